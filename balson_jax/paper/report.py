"""Write an experiment to a folder: numbers, pictures, and one page that shows all of it."""

from __future__ import annotations

import base64
import csv
import dataclasses
import html
import json
import pathlib

import jax
import numpy as np

from ..version import __version__
from . import figures, published
from .experiment import Results
from .tables import Table, tables

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; margin: 1rem 0; } caption { text-align: left; font-weight: 600; }
th, td { padding: .25rem .75rem; text-align: right; border-bottom: 1px solid #ddd; } img { max-width: 100%; }
th:first-child, td:first-child { text-align: left; } .note { color: #555; } pre { background: #f5f5f5; padding: 1rem; }
"""


def write(results: Results, directory: pathlib.Path) -> pathlib.Path:
    """Write ``results.csv``, ``settings.json``, the figures and ``report.html``; return the page's path."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "results.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["dataset", "method", "mse", "sparsity"])
        for dataset in range(results.settings.datasets):
            for name in published.METHODS:
                values = results.mse[name][dataset], results.sparsity[name][dataset]
                writer.writerow([dataset, name, *(f"{value:.9g}" for value in values)])
    settings = json.dumps(record(results), indent=2) + "\n"
    (directory / "settings.json").write_text(settings)
    pictures = {"curves.png": figures.curves(results), "boxplots.png": figures.boxplots(results)}
    for name, figure in pictures.items():
        figure.savefig(directory / name, dpi=120)
    page = directory / "report.html"
    page.write_text(_page(tables(results), [directory / name for name in pictures], settings), encoding="utf-8")
    return page


def record(results: Results) -> dict:
    """Return the settings and the versions that made the results."""
    versions = {"balson_jax": __version__, "jax": jax.__version__, "numpy": np.__version__}
    return {"settings": dataclasses.asdict(results.settings), "versions": versions}


def _page(every_table: list[Table], pictures: list[pathlib.Path], settings: str) -> str:
    images = "".join(
        f'<p><img alt="{path.stem}" src="data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"></p>\n'
        for path in pictures
    )
    body = "".join(_table(table) for table in every_table)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>BALSON: the experiment</title>'
        f"<style>{STYLE}</style></head><body>\n<h1>The polynomial experiment</h1>\n{body}{images}"
        f"<h2>Settings</h2>\n<pre>{html.escape(settings)}</pre>\n</body></html>\n"
    )


def _table(table: Table) -> str:
    head = "".join(f"<th>{html.escape(column)}</th>" for column in table.columns)
    rows = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>\n" for row in table.rows)
    note = f'<p class="note">{html.escape(table.note)}</p>\n' if table.note else ""
    return f"<table><caption>{html.escape(table.title)}</caption><tr>{head}</tr>\n{rows}</table>\n{note}"
