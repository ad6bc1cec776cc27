"""Users' tables: DataFrames and Series of pandas and polars, arrays of xarray, read into arrays and labels.

They are recognised by their attributes, and none of these packages is imported. In a design, rows are observations and
columns components. In a target, rows are observations and columns are targets, as is usual in tables: a batch is its
transpose. Rows of a target that have names are put into the design's order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from . import validation
from .labels import Labels, listed, require_unique

AXES = {
    "weights": ("rows",),
    "mask": ("rows",),
    "nuisance": ("rows",),
    "noise": ("rows", "problems"),
    "prior": ("components", "problems"),
    "total": ("problems",),
    "slack_prior": ("problems",),
}
"""The axes along which the entries of an option may run. In a table with rows and columns, rows are observations."""


class _Table(NamedTuple):
    """A table as arrays.

    Attributes:
      values: rows first, ``(N, ...)``.
      rows: names of the rows, or ``None`` if they are just numbered.
      columns: names of the columns, if ``values`` has two axes and these have names.
    """

    values: np.ndarray
    rows: tuple[Any, ...] | None
    columns: tuple[Any, ...] | None


def is_frame(value: Any) -> bool:
    """Return whether this is a DataFrame."""
    return all(hasattr(value, name) for name in ("columns", "dtypes", "to_numpy"))


def is_series(value: Any) -> bool:
    """Return whether this is a Series."""
    return all(hasattr(value, name) for name in ("name", "dtype", "to_numpy")) and not is_labelled_array(value)


def is_labelled_array(value: Any) -> bool:
    """Return whether this is an array of xarray."""
    return all(hasattr(value, name) for name in ("dims", "coords", "indexes", "to_numpy"))


def is_table(value: Any) -> bool:
    """Return whether this is a table of any kind."""
    return is_frame(value) or is_series(value) or is_labelled_array(value)


def read(
    design: Any, target: Any, options: dict[str, Any], argument: str = "target"
) -> tuple[Any, Any, dict[str, Any], Labels]:
    """Return design, target and options with arrays in place of tables, and the names that tables had.

    Arrays are returned as they are.

    Args:
      design: rows are observations, columns are components.
      target: a Series, or a DataFrame with one column per target, which becomes ``(targets, N)``.
      options: arguments of ``linear_problem`` by name.
      argument: what error messages call the target.

    Raises:
      ValueError: if names don't match, or a column does not hold numbers; the message names them.
    """
    if not any(is_table(value) for value in (design, target, *options.values())):
        return design, target, options, Labels()
    if is_labelled_array(design) and design.ndim != 2:
        raise ValueError(f"design has dimensions {design.dims}; pass two, those of the rows and of the components")
    dim = _row_dim(design, target)
    components = rows = None
    if is_table(design):
        wide = _table("design", design, dim)
        design, rows = wide.values, wide.rows
        components = None if wide.columns is None else tuple(str(name) for name in wide.columns)
        require_unique("design", components or (), "the name of a column")
    shape = getattr(design, "shape", ())
    target, own, problems = _read_target(argument, target, rows, shape[0] if len(shape) == 2 else None, dim)
    labels = Labels(components, own if rows is None else rows, problems)
    options = {name: _option(name, value, labels, dim) for name, value in options.items()}
    return design, target, options, labels


def read_target(
    argument: str, target: Any, rows: tuple[Any, ...] | None, num_rows: int | None
) -> tuple[Any, tuple[Any, ...] | None]:
    """Return a target as an array, ``(..., N)``, and the names of its problems; what isn't a table as it is.

    Args:
      argument: what error messages call the target.
      target: any.
      rows: names of the design's rows, in whose order the target's are put, or ``None``.
      num_rows: how many rows there should be, if known.
    """
    found, _, problems = _read_target(argument, target, rows, num_rows, None)
    return found, problems


def columns_in_order(argument: str, design: Any, names: tuple[str, ...] | None) -> Any:
    """Return a design as an array whose columns are in the order of the names, if both have names."""
    if not is_frame(design):
        return design
    found = _table(argument, design, None)
    own = None if found.columns is None else tuple(str(name) for name in found.columns)
    order = None if own is None or names is None else _order(argument, own, names, len(own), "columns", "the posterior")
    return found.values if order is None else found.values[:, order]


def lazy_labels(argument: str, targets: Any, labels: Labels) -> Labels:
    """Return the labels with the problem names of a labelled array, which is not read.

    Its last axis must have the design's rows in their order.
    """
    own = _index_names(targets.indexes.get(targets.dims[-1]))
    if own is not None and labels.rows is not None and own != labels.rows:
        _order(argument, own, labels.rows, len(own), "rows")  # raises if names differ
        raise ValueError(f"{argument} has its rows in another order than design; a stream is read as it is: reorder it")
    problems = _index_names(targets.indexes.get(targets.dims[0])) if len(targets.dims) == 2 else None
    return Labels(labels.components, own if labels.rows is None else labels.rows, problems)


def _read_target(
    argument: str, target: Any, rows: tuple[Any, ...] | None, num_rows: int | None, dim: Any
) -> tuple[Any, tuple[Any, ...] | None, tuple[Any, ...] | None]:
    if not is_table(target):
        return target, None, None
    found = _table(argument, target, target.dims[-1] if is_labelled_array(target) and dim is None else dim)
    if is_frame(target):
        _require_rows(argument, found, rows, num_rows)
    order = _order(argument, found.rows, rows, len(found.values), "rows")
    values, own = found.values, found.rows
    if order is not None:
        values, own = values[order], None if own is None else tuple(own[place] for place in order)
    require_unique(argument, found.columns or (), "the name of a column")
    return np.moveaxis(values, 0, -1), own, found.columns


def _require_rows(argument: str, found: _Table, rows: tuple[Any, ...] | None, num_rows: int | None) -> None:
    """Raise ``ValueError`` if a frame has another number of rows than the design, unless names show which."""
    count, width = found.values.shape
    turned = width == num_rows
    if num_rows in (None, count) or (found.rows is not None and rows is not None and not turned):
        return
    raise ValueError(
        f"{argument} has {count} rows, and design {num_rows}; a DataFrame has a row for each observation and a "
        f"column for each target{f': pass {argument}.T' if turned else ''}"
    )


def _option(name: str, value: Any, labels: Labels, dim: Any) -> Any:
    """Return an option as an array, in the order of the rows, problems or components that its names are."""
    if not is_table(value) or (is_labelled_array(value) and dim not in value.dims):
        return np.asarray(value) if is_table(value) else value
    found = _table(name, value, dim)
    values, axes = found.values, [getattr(labels, axis) for axis in AXES.get(name, ())]
    named = [wanted for wanted in axes if wanted is not None]
    if values.ndim == 1 and found.rows is not None and named:
        same = (wanted for wanted in named if set(map(str, wanted)) == set(map(str, found.rows)))
        wanted = tuple(map(str, next(same, named[0])))
        order = _order(name, tuple(map(str, found.rows)), wanted, len(values), "entries", "the problem")
        return values if order is None else values[order]
    if "rows" not in AXES.get(name, ()):
        return values
    order = _order(name, found.rows, labels.rows, len(values), "rows")
    values = values if order is None else values[order]
    if values.ndim == 1 or name == "nuisance":
        return values
    if found.columns is not None and labels.problems is not None:
        order = _order(name, found.columns, labels.problems, len(found.columns), "columns", "target")
        values = values if order is None else values[:, order]
    return np.moveaxis(values, 0, -1)


def _row_dim(design: Any, target: Any) -> Any:
    """Return the dimension of the rows of labelled arrays, or ``None`` if neither is labelled."""
    if not (is_labelled_array(design) and is_labelled_array(target)):
        one = next((value for value in (design, target) if is_labelled_array(value)), None)
        return None if one is None else one.dims[0 if one is design else -1]
    shared = [dim for dim in design.dims if dim in target.dims]
    if len(shared) != 1:
        raise ValueError(
            f"design has dimensions {design.dims} and target {target.dims}; exactly one, that of the rows, must be in "
            "both: rename the others"
        )
    return shared[0]


def _table(argument: str, value: Any, dim: Any) -> _Table:
    """Return a table as arrays; ``dim`` is the dimension of rows of a labelled array."""
    if is_labelled_array(value):
        if value.dtype.kind not in "biuf":
            raise ValueError(f"{argument} has dtype {value.dtype}; pass numbers")
        moved = value.transpose(dim, ...)
        names = [_index_names(moved.indexes.get(each)) for each in moved.dims]
        rows, columns = names[0], names[1] if len(names) == 2 else None
        values = moved.to_numpy()
    elif is_frame(value):
        columns = _index_names(value.columns)
        require_unique(argument, columns or (), "the name of a column")
        rows, values = _index_names(getattr(value, "index", None)), _numbers(argument, value)
    else:
        rows, columns = _index_names(getattr(value, "index", None)), None
        values = _column(argument, None, value)
    require_unique(argument, rows or (), "the name of a row")
    return _Table(values, rows, columns)


def _index_names(index: Any) -> tuple[Any, ...] | None:
    """Return the names of an index; ``None`` if there is none, or if it just counts from zero."""
    if index is None or (type(index).__name__ == "RangeIndex" and index.start == 0 and index.step == 1):
        return None
    names = index.tolist() if hasattr(index, "tolist") else list(index)
    return tuple(", ".join(map(str, name)) if isinstance(name, tuple) else name for name in names)


def _numbers(argument: str, frame: Any) -> np.ndarray:
    values = frame.to_numpy()
    if values.dtype.kind in "biuf":
        return values
    each = (frame.iloc[:, k] if hasattr(frame, "iloc") else frame.to_series(k) for k in range(frame.shape[1]))
    return np.stack([_column(argument, name, column) for name, column in zip(frame.columns, each, strict=True)], -1)


def _column(argument: str, name: Any, column: Any) -> np.ndarray:
    """Return the numbers of a column, or raise ``ValueError`` that names it."""
    values = column.to_numpy()
    if values.dtype.kind in "biuf":
        return values
    kind = getattr(column.dtype, "kind", "O")  # nullable dtypes have the kind of their numbers
    if kind in "biuf":
        return column.to_numpy(dtype=bool) if kind == "b" else column.to_numpy(dtype=float, na_value=np.nan)
    where = argument if name is None else f"column {name!r} of {argument}"
    odd = validation.first_odd(values)
    odd = values[0] if odd is None else odd
    raise ValueError(f"{where} holds {odd!r} ({column.dtype}); pass numbers: convert that column, or drop it")


def _order(
    argument: str,
    own: tuple[Any, ...] | None,
    wanted: tuple[Any, ...] | None,
    count: int,
    kind: str,
    other: str = "design",
) -> np.ndarray | None:
    """Return where the wanted names stand among an argument's own, or ``None`` if they are to be taken as they stand.

    Rows that are just numbered count as named only if the names of the others are the same numbers.
    """
    if own is None or wanted is None:
        named = wanted if own is None else own
        if named is None or len(named) != count or set(named) != set(range(count)):
            return None
        own, wanted = own or tuple(range(count)), wanted or tuple(range(count))
    if own == wanted:
        return None
    missing, extra = (_without(wanted, own), _without(own, wanted))
    if missing or extra:
        parts = [f"only in {other}: {listed(missing)}"] if missing else []
        parts += [f"only in {argument}: {listed(extra)}"] if extra else []
        raise ValueError(f"{kind} of {argument} and {other} have different names; {'; '.join(parts)}")
    return _places(own, wanted)


def _without(names: tuple[Any, ...], others: tuple[Any, ...]) -> list[Any]:
    known = set(others)
    return [name for name in names if name not in known]


def _places(own: tuple[Any, ...], wanted: tuple[Any, ...]) -> np.ndarray:
    places = {name: place for place, name in enumerate(own)}
    return np.asarray([places[name] for name in wanted], int)
