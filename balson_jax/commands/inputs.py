"""Files and options of ``balson fit`` as arguments of ``fit_stream``."""

from __future__ import annotations

import dataclasses
import pathlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ..interop import InputError, Table, aligned, by_problem, good_rows, read, taken
from ..problems import constraints
from ..problems.noise import NAMED
from .settings import Settings

TOGETHER = 1 << 22
"""Number of values that are checked together, at most."""

SAMPLED = 1000
"""Number of problems, evenly spaced, from which ``--learn`` learns and which ``--check`` checks, at most."""


@dataclasses.dataclass(frozen=True)
class Inputs:
    """What is fitted.

    Attributes:
      design: ``(N, K)``.
      targets: ``(P, N)``, read as it is sliced.
      names: of the components.
      table: the targets' file.
      options: of ``linear_problem``.
      coordinates: of the rows, ``(N,)``, where their names are numbers; else ``None``.
    """

    design: np.ndarray
    targets: Any
    names: tuple[str, ...]
    table: Table
    options: dict[str, Any]
    coordinates: np.ndarray | None

    @property
    def count(self) -> int:
        """The number of problems."""
        return self.targets.shape[0]

    def problem_names(self, start: int, stop: int) -> list[str]:
        """Return names of problems: the targets' own, line and sample of a pixel, or numbers."""
        if self.table.column_names is not None:
            return list(self.table.column_names[start:stop])
        if self.table.image_shape is not None:
            samples = self.table.image_shape[1]
            return [f"{number // samples}:{number % samples}" for number in range(start, stop)]
        return [str(number) for number in range(start, stop)]

    def sample(self) -> np.ndarray:
        """Return the numbers of evenly spaced problems that have all rows; with ``missing="drop"``, at least one."""
        numbers = np.unique(np.linspace(0, self.count - 1, min(self.count, SAMPLED)).astype(int))
        values = self.take(numbers)
        if self.options["missing"] == "drop":
            return numbers[np.isfinite(values).any(1)]
        return numbers[np.isfinite(values).all(1)]

    def take(self, numbers: np.ndarray) -> np.ndarray:
        """Return the targets of some problems."""
        return np.concatenate([np.asarray(self.targets[int(i) : int(i) + 1]) for i in numbers])


def load(settings: Settings, reader: Callable[..., Table] = read) -> Inputs:
    """Read the files, and bring their rows together.

    Args:
      settings: as the user asked.
      reader: of files, such as ``read`` with a memory.

    Raises:
      InputError: naming the file, the place and the remedy.
    """
    reading = {"header": settings.header, "row_names": settings.row_names}
    design = reader(settings.design, **reading)
    targets = reader(settings.targets, scratch=settings.out if settings.out.is_dir() else None, **reading)
    if design.image_shape is not None:
        raise InputError(design.path, "is an image; the design needs one column per component, as a table or library")
    if settings.row_names == "auto":
        _refuse_common_column(design, targets)
    targets = targets.transposed() if settings.targets_in_rows else targets
    design, targets = aligned(design, targets, settings.rows)  # type: ignore[arg-type]
    options = _options(settings, design)
    design, targets, options = _without_bad_rows(design, targets, options)
    wide = np.asarray(design.values[:], np.float64)
    _require_finite(design, "the design needs every number; fill the gap, or remove the row")
    if wide.shape[1] < 2:
        raise InputError(
            design.path, f"has {wide.shape[1]} component; the design needs two columns or more (check the delimiter)"
        )
    _check_targets(targets, settings)
    names = design.column_names or tuple(f"theta[{k}]" for k in range(wide.shape[1]))
    return Inputs(wide, by_problem(targets), names, targets, options, _coordinates(design, targets))


def _without_bad_rows(design: Table, targets: Table, options: dict[str, Any]) -> tuple[Table, Table, dict[str, Any]]:
    """Return tables and options without the bands that headers list as bad."""
    good = np.flatnonzero(good_rows(design, targets))
    count = design.shape[0]
    if len(good) == count:
        return design, targets, options
    if not len(good):
        raise InputError(targets.path, f"has no band that neither its header nor that of {design.path} lists as bad")
    warnings.warn(f"{count - len(good)} of {count} bands are left out, as a header lists them as bad", stacklevel=2)
    per_row = {name for name in ("noise", "weights", "nuisance") if np.ndim(options.get(name, 0))}
    options = {name: value[good] if name in per_row else value for name, value in options.items()}
    return taken(design, good), taken(targets, good), options


def _check_targets(targets: Table, settings: Settings) -> None:
    """Check targets that have been read already. Others are read later, and a gap becomes a status."""
    if targets.values.dtype.kind not in "iufb":
        raise InputError(targets.path, f"holds {targets.values.dtype}, not real numbers; convert it")
    if targets.image_shape or not (targets.in_memory or targets.was_read):
        return
    if settings.missing == "raise":
        _require_finite(targets, "fill the gap, or pass --missing drop to leave such rows out")


def _require_finite(table: Table, remedy: str) -> None:
    """Raise ``InputError`` at the first number, column by column, that isn't finite."""
    columns = by_problem(table)
    step = max(1, TOGETHER // max(1, table.shape[0]))
    for start in range(0, table.shape[1], step):
        values = np.asarray(columns[start : start + step])
        bad = np.argwhere(~np.isfinite(values))
        if len(bad):
            column, row = (int(i) for i in bad[0])
            own = table.row_names[row] if table.row_names else ""
            other = table.column_names[start + column] if table.column_names else ""
            where = f"row {row + 1} of the numbers{_named(own)}, column {start + column + 1}{_named(other)}"
            raise InputError(table.path, f"{where} is {values[column, row]}; {remedy}")


def _named(name: str) -> str:
    return f" ({name})" if name else ""


def _refuse_common_column(design: Table, targets: Table) -> None:
    """Raise if both files begin with the same column of numbers: it names rows, and must not become a component."""
    if not design.column_names or not targets.column_names or design.row_names or targets.row_names:
        return
    first = design.column_names[0]
    if first != targets.column_names[0] or design.shape[0] != targets.shape[0]:
        return
    if np.array_equal(np.asarray(design.values[:, :1]), np.asarray(targets.values[:, :1])):
        raise InputError(
            design.path,
            f"column 1 ({first}) is the first of {targets.path}, too, with the same numbers; pass --row-names yes if "
            "it names the rows, or --row-names no if it is a component",
        )


def _coordinates(design: Table, targets: Table) -> np.ndarray | None:
    """Return the rows' names as numbers, such as wavelengths, or ``None`` if they are not."""
    for names in (design.row_names, targets.row_names):
        try:
            found = np.array(names or ["none"], np.float64)
        except ValueError:
            continue
        if np.isfinite(found).all():
            return found
    return None


def _options(settings: Settings, design: Table) -> dict[str, Any]:
    """Return the options of ``linear_problem``."""
    options: dict[str, Any] = {
        "total": settings.total,
        "constraint": settings.constraint,
        "noise": _noise(settings, design),
        "prior": _prior(settings),
        "slack_prior": settings.slack_prior,
        "missing": settings.missing,
        "intercept": settings.intercept,
    }
    constraints.named(settings.constraint)
    if settings.weights is not None:
        options["weights"] = _column(settings.weights, settings, design, "weights")
    if settings.nuisance is not None:
        options["nuisance"] = _beside(settings.nuisance, settings, design)
    return options


def _noise(settings: Settings, design: Table) -> Any:
    """Return the noise: the word, a number, or one per row from a file."""
    text = settings.noise
    if text in NAMED:
        return text
    try:
        level = float(text)
    except ValueError:
        if not pathlib.Path(text).exists():
            raise ValueError(
                f"--noise {text}: pass estimate, a positive number, or a file with one number per row"
            ) from None
        return _column(pathlib.Path(text), settings, design, "noise levels")
    if not level > 0 or np.isinf(level):
        raise ValueError(f"--noise {text}: must be positive; leave it out to estimate it")
    return level


def _prior(settings: Settings) -> Any:
    try:
        found = [float(part) for part in settings.prior.split(",")]
    except ValueError:
        raise ValueError(
            f"--prior {settings.prior}: pass a positive number, or one per component with commas between them"
        ) from None
    return found[0] if len(found) == 1 else np.asarray(found)


def _beside(path: pathlib.Path, settings: Settings, design: Table) -> np.ndarray:
    """Return the numbers of another file in the order of the design's rows."""
    table = read(path, header=settings.header, row_names=settings.row_names)
    rule = "order" if settings.rows == "order" else "match"
    if rule == "match" and table.row_names and design.row_names and set(design.row_names) < set(table.row_names):
        rule = "common"  # it may hold rows that aren't fitted
    own = aligned(design, table, rule)[1]
    _require_finite(own, "fill the gap")
    return np.asarray(own.values[:], np.float64)


def _column(path: pathlib.Path, settings: Settings, design: Table, kind: str) -> np.ndarray:
    values = _beside(path, settings, design)
    if values.shape[1] != 1:
        raise InputError(path, f"has {values.shape[1]} columns; {kind} need one number per row")
    return values[:, 0]


def with_learned(inputs: Inputs, covariance: Any, levels: Any, prior: np.ndarray) -> Inputs:
    """Return the inputs with noise and prior that were learned."""
    from ..problems.noise import Correlated

    options = dict(inputs.options)
    if covariance is not None:
        options["noise"] = Correlated(covariance, scale="estimate")
    elif levels is not None:
        options["weights"] = options.get("weights", 1.0) / np.square(levels)
    has_slack = constraints.named(options["constraint"]).has_slack
    options["prior"] = prior[:-1] if has_slack else prior
    if has_slack:
        options["slack_prior"] = float(prior[-1])
    return dataclasses.replace(inputs, options=options)


def checked_options(inputs: Inputs) -> dict[str, Any]:
    """Return the options that ``balson_jax.check`` takes."""
    noise = inputs.options["noise"]
    found = {"noise": None if isinstance(noise, str) else noise, "intercept": inputs.options["intercept"]}
    return found | {name: inputs.options.get(name) for name in ("weights", "nuisance")}


def settings_as_text(settings: Settings) -> dict[str, Any]:
    """Return the settings for a JSON file."""
    return {
        name: str(value) if isinstance(value, pathlib.Path) else value
        for name, value in dataclasses.asdict(settings).items()
    }
