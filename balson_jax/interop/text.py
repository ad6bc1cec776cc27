"""Tables in text: values with commas, semicolons or tabs between them.

Text is read once, line by line. The numbers of a large file go to an unnamed file on the disk, from which those that
are needed are read: neither the text nor the numbers have to fit into memory.
"""

from __future__ import annotations

import codecs
import csv
import itertools
import os
import pathlib
import re
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np

from .table import InputError, Table, require_unique

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs"}
IN_MEMORY = 1 << 26
"""The numbers of text with more bytes than this are kept on the disk."""

HEAD_CELLS = 100_000
"""Approximate number of cells, at most, by which it is decided whether the first column names the rows."""

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "."})
"""Cells that stand for a missing number, in lower case."""

_NAMING = """
row rows name names index id label labels band bands channel gene genes gene_id gene_name symbol time times date
wavelength wavelengths observation observations sample feature features period year
"""
NAMING = frozenset(_NAMING.split())
"""Headers of a first column that names the rows, even if all names are numbers."""


def read(
    path: pathlib.Path,
    *,
    header: str = "auto",
    row_names: str = "auto",
    scratch: str | os.PathLike | None = None,
    **_: Any,
) -> Table:
    """Return a table of text. The first line names the columns, and the first column may name the rows.

    Args:
      path: the file, in UTF-8.
      header: whether the first line has names: ``"yes"``, ``"no"``, or ``"auto"``, which refuses a line of numbers.
      row_names: whether the first column has names; ``"auto"`` looks for words in it, and at its header.
      scratch: directory for the numbers of a large file, which takes 8 bytes for each; default: that of temporary
        files. Nothing is left there.
    """
    with path.open(newline="", encoding="utf-8-sig") as file:
        delimiter = _delimiter(path, _first_line(path))
        lines = _lines(path, csv.reader(file, delimiter=delimiter, strict=True))
        try:
            with _Numbers(scratch, path.stat().st_size > IN_MEMORY) as numbers:
                return _table(path, delimiter, lines, header, row_names, numbers)
        except UnicodeDecodeError:
            raise _not_utf8(path) from None


class _Numbers:
    """Rows of numbers that are added one by one: a list, or an unnamed file that is gone once the process ends."""

    def __init__(self, directory: str | os.PathLike | None, on_disk: bool) -> None:
        self._rows: list[np.ndarray] = []
        self._file = tempfile.TemporaryFile(dir=directory) if on_disk else None  # noqa: SIM115
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file; a map of it stays valid."""
        if self._file is not None:
            self._file.close()

    def add(self, row: np.ndarray) -> None:
        """Add a row."""
        self._count += 1
        if self._file is None:
            self._rows.append(row)
        else:
            self._file.write(row.tobytes())

    def values(self, width: int) -> np.ndarray:
        """Return all rows, ``(rows, width)``: an array, or a map of the file."""
        if self._file is None:
            return np.stack(self._rows)
        self._file.flush()
        return np.memmap(self._file, np.float64, "r", shape=(self._count, width))


def _not_utf8(path: pathlib.Path) -> InputError:
    """Return the error that names the first line that is no UTF-8."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                bad = line[error.start]
                return InputError(path, f"row {number}: byte {bad:#x} is not UTF-8; save the file as UTF-8")
    return InputError(path, "is not UTF-8; save it as UTF-8")


def _first_line(path: pathlib.Path) -> str:
    """Return the first line that isn't blank."""
    with path.open("rb") as file:
        start = file.read(4)
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise InputError(path, "is UTF-16 text; save it as UTF-8")
    if start.startswith((b"PK", b"\x1f\x8b", b"\xd0\xcf")):
        raise InputError(path, "is no text but a compressed file or a spreadsheet; export it as CSV in UTF-8")
    try:
        with path.open(encoding="utf-8-sig") as file:
            line = next((line for line in file if line.strip()), "")
    except UnicodeDecodeError:
        raise _not_utf8(path) from None
    if "\0" in line:
        raise InputError(path, "row 1 has a zero byte, so this is no text; export the table as CSV in UTF-8")
    if not line:
        raise InputError(path, "has only blank lines; was it written completely?")
    return line


def _delimiter(path: pathlib.Path, line: str) -> str:
    """Return the delimiter: the one that the first line has most of outside of quotes; tabs, if the ending says so."""
    bare = re.sub(r'"[^"]*"', "", line)
    if path.suffix.lower() == ".tsv" and "\t" in bare:
        return "\t"
    counts = {mark: bare.count(mark) for mark in DELIMITERS}
    best = max(counts, key=lambda mark: counts[mark])
    if counts[best]:
        return best
    if len(line.split()) > 1 or "|" in line:
        raise InputError(path, f"row 1 ({_cut(line)}) has no {', '.join(DELIMITERS.values())}; separate columns by one")
    return ","


def _lines(path: pathlib.Path, reader: Any) -> Iterator[tuple[int, list[str]]]:
    """Yield lines that aren't blank, with their numbers in the file, counted from 1."""
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise InputError(path, f"row {reader.line_num}: {error}; check the quotes") from None
        if any(cell.strip() for cell in cells):
            yield reader.line_num, [cell.strip() for cell in cells]


def _table(
    path: pathlib.Path,
    delimiter: str,
    lines: Iterator[tuple[int, list[str]]],
    header: str,
    row_names: str,
    numbers: _Numbers,
) -> Table:
    first = next(lines, None)
    if first is None:
        raise InputError(path, "row 1 has only delimiters, as have all others; was it written completely?")
    names = _header(path, first, header)
    body = lines if names is not None else itertools.chain([first], lines)
    head = _head(body)
    if not head:
        raise InputError(path, "has a header but no rows of numbers; was it written completely?")
    width = len(head[0][1])
    if names is not None and len(names) == width - 1 and any(cells[-1] for _, cells in head):
        names = ["", *names]  # as R writes it, with no header above the row names; not where rows end with a delimiter
    if names is not None and len(names) != width:
        raise _ragged(path, head[0][0], width, len(names), "the header", delimiter)
    named = _names_rows(names, head, row_names)
    if width - named < 1:
        raise InputError(path, f"row {head[0][0]} has no column of numbers beside the row names; check the delimiter")
    if names is not None:
        _check_names(path, tuple(names[named:]))
    labels = []
    for number, cells in itertools.chain(head, body):
        if len(cells) != width:
            raise _ragged(path, number, len(cells), width, "the rows above", delimiter)
        if named:
            labels.append(cells[0])
        numbers.add(_numbers(path, number, cells[named:], names[named:] if names else None, int(named)))
    columns = tuple(names[named:]) if names else None
    values, first_column = numbers.values(width - named), _first_column(names, named)
    return Table(path, values, tuple(labels) if named else None, columns, metadata=first_column, was_read=True)


def _head(body: Iterator[tuple[int, list[str]]]) -> list[tuple[int, list[str]]]:
    """Return the first 100 lines, or fewer long ones."""
    found = list(itertools.islice(body, 1))
    while found and len(found) < min(100, HEAD_CELLS // len(found[0][1])):
        line = next(body, None)
        if line is None:
            break
        found.append(line)
    return found


def _first_column(names: list[str] | None, named: bool) -> dict[str, Any]:
    return {"row names from": names[0]} if names and named else {}


def _header(path: pathlib.Path, first: tuple[int, list[str]], header: str) -> list[str] | None:
    """Return the names of the first line; ``None`` with ``header="no"``."""
    number, cells = first
    if header == "no":
        return None
    if header == "auto" and all(_is_number(cell) for cell in cells):
        raise InputError(
            path,
            f"row {number} has numbers only, where names of the columns are expected; add a line of names above, or "
            "pass --header no (or --header yes if these are names)",
        )
    return cells


def _names_rows(names: list[str] | None, head: list[tuple[int, list[str]]], row_names: str) -> bool:
    """Return whether the first column names the rows."""
    if row_names != "auto":
        return row_names == "yes"
    if len(head[0][1]) < 2:
        return False
    if names is not None and (not names[0] or names[0].lower().split(" ")[0].split("(")[0] in NAMING):
        return True
    # A few words are mistakes in a column of numbers; if most cells are words, they are names.
    words = sum(not _is_number(cells[0]) for _, cells in head)
    return words > len(head) / 2


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return cell.lower() in MISSING and bool(cell)
    return True


def _numbers(
    path: pathlib.Path, number: int, cells: Sequence[str], names: Sequence[str] | None, offset: int
) -> np.ndarray:
    """Return the numbers of a row; missing ones are NaN."""
    try:
        found = np.array(cells, np.float64)
        if any("_" in cell for cell in cells):  # Python's own notation
            raise ValueError
    except ValueError:
        found = np.array([_number(path, number, place, cell, names, offset) for place, cell in enumerate(cells)])
    if np.isinf(found).any():
        place = int(np.argmax(np.isinf(found)))
        where = _where(number, place, names, offset)
        raise InputError(path, f"{where} is infinite ({cells[place]}); replace it, or leave the cell empty")
    return found


def _number(path: pathlib.Path, number: int, place: int, cell: str, names: Sequence[str] | None, offset: int) -> float:
    if cell.lower() in MISSING:
        return np.nan
    try:
        return float(cell.replace("_", "?"))
    except ValueError:
        comma = cell.replace(",", "", 1).replace(".", "").lstrip("+-").isdigit() and "," in cell
        remedy = "write decimals with a point" if comma else "write a number, or leave the cell empty if it is missing"
        raise InputError(path, f"{_where(number, place, names, offset)} is {cell!r}; {remedy}") from None


def _where(number: int, place: int, names: Sequence[str] | None, offset: int) -> str:
    own = f" ({names[place]})" if names and names[place] else ""
    return f"row {number}, column {place + offset + 1}{own}"


def _ragged(path: pathlib.Path, number: int, found: int, wanted: int, by: str, delimiter: str) -> InputError:
    return InputError(
        path,
        f"row {number} has {found} columns, but {by} {'has' if by == 'the header' else 'have'} {wanted} "
        f"(separated by {DELIMITERS[delimiter]}); add or remove cells, or quote texts that contain the separator",
    )


def _check_names(path: pathlib.Path, names: tuple[str, ...]) -> None:
    blank = next((place for place, name in enumerate(names) if not name), None)
    if blank is not None:
        raise InputError(path, f"row 1: column {blank + 1} of the numbers has no name; name it, or remove the column")
    require_unique(path, names, "column")


def _cut(line: str) -> str:
    line = line.strip()
    return repr(line if len(line) <= 40 else line[:40] + "…")
