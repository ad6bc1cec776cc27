"""Rows of one file in the order of another's."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any, Literal

import numpy as np

from .table import InputError, Rows, Table, duplicate, rows_of_array, shortened

RowRule = Literal["match", "common", "order"]
"""How rows of two files are paired: by equal names, by the names that both have, or by their order."""


def aligned(design: Table, targets: Table, rule: RowRule = "match") -> tuple[Table, Table]:
    """Return both tables with the same rows in the same order, which is the design's.

    Args:
      design: rows are observations.
      targets: rows are observations.
      rule: ``"match"`` needs the same names in any order, ``"common"`` takes the rows that both have, and ``"order"``
        ignores names. If one of them has no names, the order counts.

    Raises:
      InputError: if rows can't be paired.
    """
    if rule == "order" or design.row_names is None or targets.row_names is None:
        _require_count(design, targets)
        return design, targets
    ours, theirs = _keys([design, targets])
    if rule == "match" and set(ours) != set(theirs):
        only = [key for key in ours if key not in theirs], [key for key in theirs if key not in ours]
        raise InputError(
            targets.path,
            f"rows are not those of {design.path}: only the design has {shortened(only[0]) or 'none'}; only the "
            f"targets have {shortened(only[1]) or 'none'}. Correct the names, or pass --rows common to take the rows "
            "that both have, or --rows order to ignore names",
        )
    common = [key for key in ours if key in theirs]
    if not common:
        raise InputError(
            targets.path,
            f"has no row in common with {design.path}: {shortened(theirs)} against {shortened(ours)}; correct the "
            "names, or pass --rows order to ignore them",
        )
    ours_places, theirs_places = (np.asarray([places[key] for key in common]) for places in (ours, theirs))
    return taken(design, ours_places), taken(targets, theirs_places)


def by_problem(table: Table) -> Any:
    """Return the targets as ``(problems, rows)``, which reads what is sliced along the first axis."""
    values = table.values.T
    return rows_of_array(values) if hasattr(values, "base") else values


def good_rows(design: Table, targets: Table) -> np.ndarray:
    """Return which rows of two tables, with the same rows in the same order, count in both."""
    good = np.ones(design.shape[0], bool)
    for table in (design, targets):
        good = good if table.good is None else good & table.good
    return good


def taken(table: Table, places: np.ndarray) -> Table:
    """Return some rows of a table."""
    if len(places) == table.shape[0] and (places == np.arange(len(places))).all():
        return table
    names = tuple(table.row_names[place] for place in places) if table.row_names else None
    own = {"row_names": names, "good": None if table.good is None else table.good[places]}
    if table.in_memory:
        return dataclasses.replace(table, values=table.values[places], **own)
    problems = by_problem(table)
    rows = Rows((problems.shape[0], len(places)), problems.dtype, lambda start, stop: problems[start:stop][:, places])
    return dataclasses.replace(table, values=rows.T, **own)


def _require_count(design: Table, targets: Table) -> None:
    if design.shape[0] == targets.shape[0]:
        return
    turned = targets.shape[1] == design.shape[0] and targets.image_shape is None
    remedy = "pass --targets-in-rows" if turned else "pass files with the same rows"
    raise InputError(
        targets.path, f"has {targets.shape[0]:,} rows, but {design.path} has {design.shape[0]:,}; {remedy}"
    )


def _keys(tables: list[Table]) -> list[dict[str, int]]:
    """Return the places of rows by name, for each table. Names that are all numbers are compared as numbers.

    Six digits are compared: they distinguish wavelengths, and forgive rounding. If different numbers agree to six
    digits, as dates do, all digits are compared.
    """
    every = [list(table.row_names or ()) for table in tables]
    with contextlib.suppress(ValueError):
        numbers = [[float(name) for name in names] for names in every]
        rounded = [[f"{number:.6g}" for number in names] for names in numbers]
        exact = [[repr(number) for number in names] for names in numbers]
        distinct = all(len(set(short)) == len(set(long)) for short, long in zip(rounded, exact, strict=True))
        every = rounded if distinct else exact
    return [_places(table, names) for table, names in zip(tables, every, strict=True)]


def _places(table: Table, names: list[str]) -> dict[str, int]:
    found = duplicate(names)
    if found is not None:
        name, first, second = found
        raise InputError(
            table.path,
            f"rows {first + 1} and {second + 1} of the numbers have the same name {name!r}; give each row its own "
            "name, or pass --rows order to ignore names",
        )
    return {name: place for place, name in enumerate(names)}
