"""Results of a benchmark group (tables and targets), their display, and their JSON form."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import platform
import sys
import time
from typing import Any

import jax
import numpy as np
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table as RichTable

import balson_jax


@dataclasses.dataclass
class Table:
    """A table with a title, column headings and an optional note."""

    title: str
    columns: list[str]
    rows: list[list[Any]]
    note: str = ""

    def column(self, name: str) -> list[Any]:
        """Return one column."""
        return [row[self.columns.index(name)] for row in self.rows]


@dataclasses.dataclass
class Target:
    """A measured value and the bound that it should meet."""

    name: str
    value: float
    bound: float
    at_least: bool = True

    @property
    def met(self) -> bool:
        """Whether the value meets its bound."""
        return self.value >= self.bound if self.at_least else self.value <= self.bound


@dataclasses.dataclass
class Result:
    """The tables and targets of a group."""

    tables: list[Table]
    targets: list[Target]


def show(console: Console, result: Result) -> None:
    """Print the tables and targets of a group."""
    for table in result.tables:
        rich = RichTable(
            title=table.title, title_justify="left", box=SIMPLE, caption=table.note, caption_justify="left"
        )
        for column in table.columns:
            rich.add_column(column, justify="right")
        for row in table.rows:
            rich.add_row(*(shown(value) for value in row))
        console.print(rich)
    for target in result.targets:
        sign, colour = (">=" if target.at_least else "<="), ("green" if target.met else "red")
        verdict = f"[{colour}]{'met' if target.met else 'missed'}[/]"
        console.print(f"  {target.name}: {shown(target.value)} (target {sign} {shown(target.bound)}, {verdict})")


def shown(value: Any) -> str:
    """Return a table cell as text, with numbers to three digits."""
    if isinstance(value, float):
        if np.isnan(value):
            return "-"
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def tell(columns: list[str], row: list[Any], done: int, total: int) -> None:
    """Print a finished row of a long table to standard error."""
    said = ", ".join(f"{name} {shown(value)}" for name, value in zip(columns, row, strict=True))
    print(f"{done} of {total}: {said}", file=sys.stderr, flush=True)


def write(path: pathlib.Path, results: dict[str, Result], quick: bool) -> None:
    """Write all results as JSON, with the machine and the package versions."""
    record = {
        "when": time.strftime("%Y-%m-%d"),
        "quick": quick,
        "machine": {"cores": os.cpu_count(), "architecture": platform.machine(), "backend": jax.default_backend()},
        "versions": {"balson_jax": balson_jax.__version__, "jax": jax.__version__, "numpy": np.__version__},
        "groups": {name: dataclasses.asdict(result) for name, result in results.items()},
    }
    path.write_text(json.dumps(record, indent=1) + "\n")
