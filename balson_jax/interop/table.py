"""What a data file holds, whatever its format, and the error of files that can't be read."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ..mapped import release

Load = Callable[[int, int], np.ndarray]

SHOWN = 5
"""Number of names that a message lists, at most."""


class InputError(ValueError):
    """Raised for a file that can't be read. The message names the file, the place and the remedy."""

    def __init__(self, path: Any, problem: str) -> None:
        super().__init__(f"{path}: {problem}")


@dataclasses.dataclass(frozen=True)
class Table:
    """Numbers of a file, with their names.

    Attributes:
      path: the file.
      values: ``(rows, columns)``: an array, a memory map, or an object that reads what is sliced. It has ``shape``,
        ``dtype``, ``T`` and slices. Rows are observations (bands, genes, times); columns are components or targets. Of
        an image, rows are bands and columns are pixels, line by line.
      row_names: one per row, or ``None``.
      column_names: one per column, or ``None``.
      image_shape: lines and samples of an image, else ``None``.
      metadata: what else the file holds, such as the fields of an ENVI header.
      good: whether each row counts, such as the bands of an image whose header lists bad ones; ``None``: all do.
      was_read: whether all numbers have been looked at, though they may lie in a file now.
    """

    path: pathlib.Path
    values: Any
    row_names: tuple[str, ...] | None = None
    column_names: tuple[str, ...] | None = None
    image_shape: tuple[int, int] | None = None
    metadata: dict[str, Any] = dataclasses.field(default_factory=dict)
    good: np.ndarray | None = None
    was_read: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""
        return tuple(self.values.shape)  # type: ignore[return-value]

    @property
    def in_memory(self) -> bool:
        """Whether the numbers have been read, and no file lies behind them."""
        behind = (self.values, getattr(self.values, "base", None))
        return hasattr(self.values, "base") and not any(isinstance(array, np.memmap) for array in behind)

    def transposed(self) -> Table:
        """Return the table with rows for columns; it reads nothing."""
        if self.image_shape is not None:
            raise InputError(self.path, "is an image, whose pixels are the targets; leave --targets-in-rows out")
        names = {"row_names": self.column_names, "column_names": self.row_names}
        return dataclasses.replace(self, values=self.values.T, good=None, **names)


def rows_of_array(values: np.ndarray) -> Rows:
    """Return an array ``(P, N)`` as rows, of the machine's byte order; a map's pages are given back once read."""

    def load(start: int, stop: int) -> np.ndarray:
        found = np.array(values[start:stop])
        release(values)
        return found

    return Rows(values.shape, values.dtype, load)  # type: ignore[arg-type]


class Rows:
    """Rows ``(P, N)`` that are read when they are sliced along the first axis."""

    def __init__(self, shape: tuple[int, int], dtype: Any, load: Load, load_columns: Load | None = None) -> None:
        """Describe the rows.

        Args:
          shape: ``(P, N)``.
          dtype: of the rows, which are brought to the machine's byte order.
          load: returns the rows from one number to another, ``(stop - start, N)``.
          load_columns: returns the columns from one number to another, ``(P, stop - start)``, if these can be read
            without the others.
        """
        self.shape, self.dtype = shape, np.dtype(dtype).newbyteorder("=")
        self._load = _cast(load, self.dtype)
        self.load_columns = None if load_columns is None else _cast(load_columns, self.dtype)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> np.ndarray:
        """Return rows, and if a second index follows, columns of these."""
        part, first, rest = _parts(index, self.shape[0])
        if part is not None:
            found = self._load(part.start, part.stop)[:: part.step]
        else:
            numbers = np.arange(self.shape[0])[first]
            found = np.stack([self._load(int(i), int(i) + 1)[0] for i in np.ravel(numbers)])
            found = found if np.ndim(numbers) else found[0]
        return found[(slice(None),) * (found.ndim - 1) + rest] if rest else found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[:], dtype)

    @property
    def T(self) -> Columns:  # noqa: N802
        """The same numbers as columns ``(N, P)``, unread."""
        return Columns(self)


def _cast(load: Load, dtype: np.dtype) -> Load:
    return lambda start, stop: np.asarray(load(start, stop)).astype(dtype, copy=False)


class Columns:
    """Columns ``(N, P)`` that are read when they are sliced along the second axis."""

    def __init__(self, rows: Rows) -> None:
        self.T, self.shape, self.dtype = rows, rows.shape[::-1], rows.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> np.ndarray:
        """Return rows, of all columns or of those that a second index selects."""
        part, first, rest = _parts(index, self.shape[0])
        if not rest and part is not None and self.T.load_columns is not None:
            return self.T.load_columns(part.start, part.stop)[:, :: part.step].T
        found = self.T[rest[0] if rest else slice(None)]
        return np.moveaxis(found, -1, 0)[first]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[:], dtype)


def _parts(index: Any, length: int) -> tuple[range | None, Any, tuple[Any, ...]]:
    """Return the range that a slice along the first axis stands for, or ``None``; the first index; and the others."""
    first, *rest = index if isinstance(index, tuple) else (index,)
    if not isinstance(first, slice):
        return None, first, tuple(rest)
    start, stop, step = first.indices(length)
    if step < 1:
        raise IndexError("rows of a file are read forwards; slice with a positive step")
    return range(start, max(start, stop), step), first, tuple(rest)


def shortened(names: Iterable[str]) -> str:
    """Return a list of names for messages, cut after a few."""
    every = list(names)
    more = f", … ({len(every) - SHOWN:,} more)" if len(every) > SHOWN else ""
    return ", ".join(repr(name) for name in every[:SHOWN]) + more


def duplicate(names: Sequence[str]) -> tuple[str, int, int] | None:
    """Return a name that occurs twice and its first two places, counted from 0, or ``None``."""
    places: dict[str, int] = {}
    for place, name in enumerate(names):
        if name in places:
            return name, places[name], place
        places[name] = place
    return None


def require_unique(path: Any, names: Sequence[str], kind: str) -> None:
    """Raise ``InputError`` if two names of rows or columns are equal."""
    found = duplicate(names)
    if found is not None:
        name, first, second = found
        raise InputError(
            path, f"{kind}s {first + 1} and {second + 1} have the same name {name!r}; give each {kind} its own name"
        )
