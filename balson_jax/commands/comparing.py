"""One run of ``balson compare``: read, fit every model, rank them, write."""

from __future__ import annotations

import csv
import dataclasses
import functools
import itertools
import json
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import numpy as np

from ..execution.stream import fit_stream
from ..interop import InputError, read
from ..interop.envi import Writer
from ..learning import Comparison
from ..learning import compare as rank
from ..posteriors.posterior import Posterior
from ..status import Status
from .candidates import Candidates
from .inputs import Inputs, load
from .results import NO_DATA
from .running import FIELDS

COLUMNS = ("problem", "candidate", "log_evidence", "log_evidence_stderr", "difference", "weight", "status")


class Compared(NamedTuple):
    """What a comparison found.

    Attributes:
      candidates: as the user asked.
      inputs: of the first model; the others have the same targets.
      comparison: of the problems that all models could fit.
      fitted: whether all models could fit a problem, ``(P,)``.
      untrusted: number of these whose evidence is in doubt.
    """

    candidates: Candidates
    inputs: Inputs
    comparison: Comparison
    fitted: np.ndarray
    untrusted: int


def run(candidates: Candidates, progress: Callable[[int, int], None]) -> Compared:
    """Do everything but the report. Results that an interrupted run left in the directory are not computed again."""
    base, every, reader = candidates.base, candidates.each(), functools.cache(read)
    loaded = {name: load(settings, reader) for name, settings in every.items()}
    inputs = next(iter(loaded.values()))
    _require_same_rows(loaded)
    total, posteriors = inputs.count * len(loaded), {}
    for number, (name, own) in enumerate(loaded.items()):
        before = number * inputs.count
        posteriors[name] = fit_stream(
            jax.random.key(base.seed),
            own.design,
            own.targets,
            dataclasses.replace(every[name], keep=0).sampler(own.count, len(own.names)),
            chunk=base.chunk,
            progress=lambda done, _, before=before: progress(before + done, total),
            out=base.out / FIELDS / str(number),
            check=False,
            **own.options,
        )
    fitted = np.all([_is_finite(found) for found in posteriors.values()], axis=0)
    if not fitted.any():
        raise InputError(inputs.table.path, "has no target that all models can fit; are there numbers in it?")
    comparison = rank({name: _some(found, fitted) for name, found in posteriors.items()})
    found = Compared(candidates, inputs, comparison, fitted, int(comparison.status.any(0).sum()))
    text = json.dumps(candidates.as_text(), indent=2) + "\n"
    (base.out / "settings.json").write_text(text, encoding="utf-8")
    _write_table(found)
    if inputs.table.image_shape is not None:
        _write_rasters(found, inputs.table.image_shape)
    return found


def _require_same_rows(loaded: dict[str, Inputs]) -> None:
    """Raise ``InputError`` unless all models explain the same rows."""
    (first, wanted), *others = loaded.items()
    for name, own in others:
        if own.table.row_names != wanted.table.row_names or len(own.design) != len(wanted.design):
            raise InputError(
                own.table.path,
                f"{len(own.design)} rows go with {name}, and not the same {len(wanted.design)} with {first}; models "
                "compare only on the same rows: give all designs these rows",
            )


def _is_finite(found: Posterior) -> np.ndarray:
    return (np.asarray(found.status) & int(Status.NONFINITE)) == 0


def _some(found: Posterior, chosen: np.ndarray) -> Posterior:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[chosen], found)


def _write_table(found: Compared) -> None:
    """Write ``comparison.csv``, a line for each problem and model; missing numbers are left empty."""
    out = found.candidates.base.out
    draft = out / "comparison.csv.draft"
    with draft.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(_lines(found))
    draft.replace(out / "comparison.csv")


def _lines(found: Compared) -> Iterator[tuple[str, ...]]:
    ranked, place = found.comparison, itertools.count()
    difference = ranked.log_evidence - ranked.log_evidence.max(0)
    parts = ranked.log_evidence, ranked.log_evidence_stderr, difference, ranked.weights
    for number, fitted in enumerate(found.fitted):
        problem = found.inputs.problem_names(number, number + 1)[0]
        at = next(place) if fitted else 0
        for i, name in enumerate(ranked.names):
            numbers = [_text(part[i, at]) if fitted else "" for part in parts]
            yield problem, name, *numbers, Status(int(ranked.status[i, at])).words() if fitted else NO_DATA


def _text(value: float) -> str:
    return f"{value:.6g}" if np.isfinite(value) else ""


def _write_rasters(found: Compared, shape: tuple[int, int]) -> None:
    """Write two rasters: the number of each pixel's best model (0 without data), and the weights of all models."""
    ranked, metadata, out = found.comparison, found.inputs.table.metadata, found.candidates.base.out
    best = np.zeros((len(found.fitted), 1), np.int32)
    best[found.fitted, 0] = 1 + ranked.log_evidence.argmax(0)
    weights = np.full((len(found.fitted), len(ranked.names)), np.nan, np.float32)
    weights[found.fitted] = ranked.weights.T
    numbered = ", ".join(f"{number} {name}" for number, name in enumerate(ranked.names, start=1))
    for name, values, bands, about in (
        ("best", best, ["best"], f"number of the best model: {numbered}; 0 no data"),
        ("weights", weights, list(ranked.names), "posterior probabilities of the models, equally likely before"),
    ):
        raster = Writer(out / f"{name}.img", shape, bands, values.dtype, metadata, about)
        raster.write(0, values)
        raster.close()
