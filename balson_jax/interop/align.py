"""Rows of one file in the order of another's."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any, Literal

import numpy as np

from .table import InputError, Rows, Table, duplicate, shortened

RowRule = Literal["match", "common", "order"]
"""How rows of two files go together: by names that agree, by those that both have, or by their order."""


def aligned(design: Table, targets: Table, rule: RowRule = "match") -> tuple[Table, Table]:
    """Return both tables with the same rows in the same order, which is the design's.

    Args:
      design: rows are observations.
      targets: rows are observations.
      rule: ``"match"`` needs the same names in any order, ``"common"`` takes the rows that both have, and ``"order"``
        ignores names. Without names in one of them the order counts.

    Raises:
      InputError: if rows don't go together.
    """
    if rule == "order" or design.row_names is None or targets.row_names is None:
        _require_count(design, targets)
        return design, targets
    ours, theirs = _keys(design), _keys(targets)
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
    return _taken(design, [ours[key] for key in common]), _taken(targets, [theirs[key] for key in common])


def by_problem(table: Table) -> Any:
    """Return the targets as ``(problems, rows)``, which reads what is sliced along the first axis."""
    return table.values.T


def _require_count(design: Table, targets: Table) -> None:
    if design.shape[0] == targets.shape[0]:
        return
    turned = targets.shape[1] == design.shape[0] and targets.image_shape is None
    remedy = "pass --targets-in-rows" if turned else "pass files with the same rows"
    raise InputError(
        targets.path, f"has {targets.shape[0]:,} rows, but {design.path} has {design.shape[0]:,}; {remedy}"
    )


def _keys(table: Table) -> dict[str, int]:
    """Return the places of rows by name. Names that are all numbers are compared as numbers."""
    names = list(table.row_names or ())
    with contextlib.suppress(ValueError):
        names = [f"{float(name):.6g}" for name in names]
    found = duplicate(names)
    if found is not None:
        name, first, second = found
        raise InputError(
            table.path,
            f"rows {first + 1} and {second + 1} of the numbers have the same name {name!r}; give each row its own "
            "name, or pass --rows order to ignore names",
        )
    return {name: place for place, name in enumerate(names)}


def _taken(table: Table, places: list[int]) -> Table:
    """Return some rows of a table."""
    names = tuple(table.row_names[place] for place in places) if table.row_names else None
    if places == list(range(table.shape[0])):
        return table
    index = np.asarray(places)
    values = table.values
    if table.in_memory:
        return dataclasses.replace(table, values=values[index], row_names=names)
    problems = values.T

    def load(start: int, stop: int) -> np.ndarray:
        return np.asarray(problems[start:stop])[:, index]

    rows = Rows((problems.shape[0], len(index)), values.dtype, load)
    return dataclasses.replace(table, values=rows.T, row_names=names)
