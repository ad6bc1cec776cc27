"""What experiments write: tables of text, CSV files, figures, and one HTML page with all of them."""

from __future__ import annotations

import base64
import csv
import dataclasses
import html
import json
import pathlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from ..version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; margin: 1.5rem 0 .5rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding-bottom: .5rem; } th, td { padding: .25rem .75rem; }
th, td { text-align: right; border-bottom: 1px solid #ddd; } th:first-child, td:first-child { text-align: left; }
.note { color: #555; margin-top: 0; } img { max-width: 100%; } pre { background: #f5f5f5; padding: 1rem; }
"""


class Table(NamedTuple):
    """Cells of text under column headings."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    note: str = ""

    def _repr_html_(self) -> str:
        """Return the table as HTML, for notebooks."""
        head = "".join(f"<th>{html.escape(column)}</th>" for column in self.columns)
        rows = (f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>\n" for row in self.rows)
        note = f'<p class="note">{html.escape(self.note)}</p>\n' if self.note else ""
        return f"<table><caption>{html.escape(self.title)}</caption><tr>{head}</tr>\n{''.join(rows)}</table>\n{note}"


def record(settings: Any, **more: Any) -> dict[str, Any]:
    """Return the settings, a dataclass, with further ones, and the package versions behind the results."""
    versions = {"balson_jax": __version__, "jax": jax.__version__, "numpy": np.__version__}
    return {"settings": dataclasses.asdict(settings) | more, "versions": versions}


def write_csv(path: pathlib.Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write rows with a header to a CSV file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)


def write_page(
    directory: pathlib.Path,
    title: str,
    lead: str,
    shown: list[Table],
    pictures: dict[str, Figure],
    recorded: dict[str, Any],
) -> pathlib.Path:
    """Write the settings and the figures to files of their own, and ``report.html``; return the page's path.

    Args:
      directory: output directory.
      title: of the page.
      lead: its first paragraph.
      shown: tables.
      pictures: figures by the name of their file.
      recorded: settings and versions, from ``record``.
    """
    text = json.dumps(recorded, indent=2) + "\n"
    (directory / "settings.json").write_text(text, encoding="utf-8")
    images = []
    for name, figure in pictures.items():
        path = directory / f"{name}.png"
        figure.savefig(path, dpi=120)
        code = base64.b64encode(path.read_bytes()).decode()
        images.append(f'<p><img alt="{name}" src="data:image/png;base64,{code}"></p>\n')
    page = directory / "report.html"
    page.write_text(
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>BALSON: {html.escape(title)}</title>'
        f"<style>{STYLE}</style></head><body>\n<h1>{html.escape(title)}</h1>\n<p>{html.escape(lead)}</p>\n"
        f"{''.join(table._repr_html_() for table in shown)}{''.join(images)}"
        f"<h2>Settings</h2>\n<pre>{html.escape(text)}</pre>\n</body></html>\n",
        encoding="utf-8",
    )
    return page
