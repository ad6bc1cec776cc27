"""One run of ``balson fit``: read, learn, fit, check, write."""

from __future__ import annotations

import contextlib
import json
import pathlib
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from ..execution.storage import digest
from ..execution.stream import fit_stream
from ..labels import Labels
from ..learning import Check, check, learn
from ..posteriors.posterior import Posterior
from ..status import Status
from . import results
from .inputs import Inputs, checked_options, load, settings_as_text, with_learned
from .settings import Settings

FIELDS = "fields"
"""The directory of an unfinished run, from which it resumes."""


class Run(NamedTuple):
    """What a run found.

    Attributes:
      settings: as the user asked.
      inputs: as fitted, with what was learned.
      posterior: of all problems; its fields may be maps of files.
      counts: numbers of problems by status.
      learned: what was learned, in words, or ``None``.
      checked: what a check found, or ``None``.
      sampled: numbers of the problems that were checked.
    """

    settings: Settings
    inputs: Inputs
    posterior: Posterior
    counts: results.Counts
    learned: str | None
    checked: Check | None
    sampled: np.ndarray

    @property
    def can_be_trusted(self) -> bool:
        """Whether no trouble was found in any problem."""
        return not self.counts.untrusted and (self.checked is None or self.checked.ok)


def run(settings: Settings, resume: bool, progress: Callable[[int, int], None]) -> Run:
    """Do everything but the report.

    Args:
      settings: as the user asked.
      resume: whether to go on with what an interrupted run left in the directory.
      progress: called with the numbers of problems done and in total.
    """
    inputs = load(settings)
    key = jax.random.key(settings.seed)
    method = settings.sampler(inputs.count, len(inputs.names))
    _require_space(settings.out, 4 * method.keep * inputs.count * len(inputs.names))
    learned = None
    if settings.learn:
        inputs, learned = _learned(key, inputs, settings, resume)
    posterior = fit_stream(
        key,
        inputs.design,
        inputs.targets,
        method,
        chunk=settings.chunk,
        progress=progress,
        out=settings.out / FIELDS,
        check=not settings.unordered,
        **inputs.options,
    )
    posterior = posterior.labelled(Labels(components=inputs.names))
    text = json.dumps(settings_as_text(settings), indent=2) + "\n"
    (settings.out / "settings.json").write_text(text, encoding="utf-8")
    counts = results.write(posterior, inputs, settings)
    sampled, checked = np.zeros(0, int), None
    if settings.check:
        sampled, checked = _checked(posterior, inputs)
    return Run(settings, inputs, posterior, counts, learned, checked, sampled)


def _learned(key: jax.Array, inputs: Inputs, settings: Settings, resume: bool) -> tuple[Inputs, str]:
    """Return the inputs with learned noise and prior, and what was learned in words; kept in a file to resume from."""
    for name in ("intercept", "nuisance"):
        if getattr(settings, name):
            raise ValueError(f"--{name} doesn't go with --learn; take its part out of the rows, or leave --learn out")
    if settings.noise != "estimate":
        raise ValueError(f"--noise {settings.noise} doesn't go with --learn, which learns the noise; leave one out")
    path = settings.out / "learned.npz"
    numbers = inputs.sample()
    if len(numbers) < 2:
        raise ValueError("--learn needs dozens of targets without gaps; leave it out")
    sampled = inputs.take(numbers)
    learned_from = digest(json.dumps(settings_as_text(settings)), inputs.design, sampled)
    if not (resume and _was_learned_from(path, learned_from)):
        unordered = settings.unordered or inputs.table.path.suffix == ".h5ad" or len(inputs.design) > 1000
        options = {name: inputs.options[name] for name in ("total", "constraint", "missing", "slack_prior")}
        options |= {"weights": inputs.options["weights"]} if "weights" in inputs.options else {}
        prior = "learn" if settings.prior == "1" else inputs.options["prior"]
        found = learn(
            key,
            inputs.design,
            sampled,
            noise="rows" if unordered else "covariance",
            prior=prior,
            coordinates=None if unordered else inputs.coordinates,
            correct=False,  # the stream, the check and the page use the design of the file
            progress=sys.stderr.isatty(),
            **options,
        )
        parts = {"covariance": found.covariance, "levels": found.levels, "prior": found.prior, "words": repr(found)}
        parts["learned_from"] = learned_from
        arrays: dict[str, Any] = {name: np.asarray(part) for name, part in parts.items() if part is not None}
        draft = path.with_name("learned.draft.npz")
        np.savez(draft, **arrays)
        draft.replace(path)  # an interruption leaves no half file
    with np.load(path) as file:
        covariance, levels = (file.get(name) for name in ("covariance", "levels"))
        return with_learned(inputs, covariance, levels, file["prior"]), str(file["words"])


def _was_learned_from(path: pathlib.Path, learned_from: str) -> bool:
    """Return whether a file holds what was learned from these targets under these settings."""
    if not path.exists():
        return False
    with np.load(path) as file:
        return "learned_from" in file.files and str(file["learned_from"]) == learned_from


def _checked(posterior: Posterior, inputs: Inputs) -> tuple[np.ndarray, Check | None]:
    """Return which problems were checked, and what was found."""
    numbers = inputs.sample()
    status = np.asarray(posterior.status)[numbers]
    numbers = numbers[(status & int(Status.NONFINITE)) == 0]
    if not len(numbers):
        return numbers, None
    some = jax.tree.map(lambda leaf: np.asarray(leaf[numbers]), posterior)
    return numbers, check(inputs.design, inputs.take(numbers), some, **checked_options(inputs))


def _require_space(out: pathlib.Path, draws: int) -> None:
    """Raise if the disk has no room for the kept draws, twice while they are packed."""
    free = shutil.disk_usage(out).free
    if 2 * draws > free:
        raise ValueError(
            f"--out {out}: kept draws need {2 * draws / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are free; pass a "
            "smaller --keep, such as 64, or --keep 0"
        )


def claim(out: pathlib.Path, resume: bool, overwrite: bool) -> bool:
    """Make the output directory ready. Return False if an earlier run has finished, and resuming has nothing to do."""
    fields = out / FIELDS
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--out {out}: can't create the directory ({error.strerror}); pass another") from None
    if overwrite:
        for path in results.files_of(out):
            path.unlink()
        if any(path.name in ("arguments.json", "finished.txt") for path in fields.rglob("*")):
            shutil.rmtree(fields)
        return True
    if not (out / "report.html").exists() and not fields.exists():
        return True
    if not resume:
        state = "an interrupted run; pass --resume to go on, or" if fields.exists() else "an earlier run; pass"
        raise ValueError(f"--out {out}: holds {state} --overwrite to begin anew, or another directory")
    return fields.exists() or not (out / "report.html").exists()


def tidy(out: pathlib.Path) -> None:
    """Remove what only serves to resume."""
    shutil.rmtree(out / FIELDS)


@contextlib.contextmanager
def bar() -> Iterator[tuple[Callable[[int, int], None], dict[str, int]]]:
    """Show a progress bar on standard error; yield the function that updates it, and the numbers last shown."""
    from rich import progress
    from rich.console import Console

    columns: tuple[Any, ...] = (
        progress.TextColumn("fitting"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TextColumn("remaining"),
        progress.TimeRemainingColumn(),
    )
    told: dict[str, int] = {"done": 0, "total": 0}
    with progress.Progress(*columns, console=Console(stderr=True)) as shown:
        task = shown.add_task("fitting", total=None)

        def report(done: int, total: int) -> None:
            told.update(done=done, total=total)
            shown.update(task, completed=done, total=total)

        yield report, told
