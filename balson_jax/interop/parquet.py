"""Tables in Parquet files, read by columns."""

from __future__ import annotations

import functools
import itertools
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

from .arrays import brief
from .table import InputError, Rows, Table, require_unique


def read(path: pathlib.Path, *, row_names: str = "auto", **_: Any) -> Table:
    """Return the numeric columns of a Parquet file, unread.

    The index of pandas, or a first column of words, names the rows.

    Args:
      path: the file.
      row_names: ``"yes"`` if the first column names the rows, ``"no"`` if it doesn't, or ``"auto"``.
    """
    try:
        import pyarrow as pa
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise ImportError("Parquet needs pyarrow; install it with: pip install 'balson_jax[files]'") from None
    try:
        file = ParquetFile(path, memory_map=True)
    except (pa.ArrowException, OSError) as error:
        raise InputError(path, f"is no Parquet file, or is cut off ({brief(error)}); write it again") from None
    schema = file.schema_arrow
    names = list(schema.names)
    require_unique(path, names, "column")
    index = [name for name in _pandas_index(schema) if name in names]
    first = schema.types[0] if names else None
    words = pa.types.is_string(first) or pa.types.is_large_string(first) or pa.types.is_dictionary(first)
    if not index and (row_names == "yes" or (row_names == "auto" and words)):
        index = names[:1]
    columns = [name for name in names if name not in index]
    for name in columns:
        kind = schema.field(name).type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
            raise InputError(path, f"column {name!r} holds {kind}, not numbers; remove or convert it")
    if not columns or not file.metadata.num_rows:
        raise InputError(path, "has no rows, or no columns of numbers; was it written completely?")

    def undamaged(read: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return read(*arguments)
        except (pa.ArrowException, OSError) as error:
            raise InputError(path, f"is damaged ({brief(error)}); write it again") from None

    def load(start: int, stop: int) -> np.ndarray:
        return _stacked(undamaged(file.read, columns[start:stop]))

    @functools.lru_cache(2)  # a group is read once, even if its rows are asked for one by one
    def group_of(number: int) -> np.ndarray:
        return _stacked(undamaged(file.read_row_group, number, columns))

    def load_some(start: int, stop: int) -> np.ndarray:
        groups = [group for group in range(len(sizes)) if ends[group] < stop and ends[group + 1] > start]
        parts = [group_of(group)[:, max(0, start - ends[group]) : stop - ends[group]] for group in groups]
        return np.concatenate(parts or [np.zeros((len(columns), 0))], axis=1)

    sizes = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
    ends = [0, *itertools.accumulate(sizes)]
    labels = None if not index else tuple(map(str, undamaged(file.read, index[:1]).column(0).to_pylist()))
    rows = Rows((len(columns), file.metadata.num_rows), np.float64, load, load_some)
    return Table(path, rows.T, labels, tuple(columns))


def _pandas_index(schema: Any) -> list[str]:
    described = (schema.pandas_metadata or {}).get("index_columns", [])
    return [name for name in described if isinstance(name, str)]


def _stacked(table: Any) -> np.ndarray:
    """Return the numbers of columns, ``(columns, rows)``; null is NaN."""
    return np.stack([column.cast("float64", safe=False).to_numpy() for column in table.columns])
