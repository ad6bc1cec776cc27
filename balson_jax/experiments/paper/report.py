"""Write an experiment to a directory: CSV files, figures, and one HTML page with tables and figures."""

from __future__ import annotations

import base64
import csv
import dataclasses
import html
import json
import pathlib
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from ...version import __version__
from . import data, figures, published
from .experiment import TOTAL, Results, Settings
from .sensitivity import Score
from .tables import Table, tables, truths

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; margin: 1.5rem 0 .5rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding-bottom: .5rem; } th, td { padding: .25rem .75rem; }
th, td { text-align: right; border-bottom: 1px solid #ddd; } th:first-child, td:first-child { text-align: left; }
.note { color: #555; margin-top: 0; } img { max-width: 100%; } pre { background: #f5f5f5; padding: 1rem; }
"""


LEAD = (
    f"A polynomial with coefficients θ ≥ 0 that sum to C = {TOTAL:g} is observed at {data.NUM_TRAIN} points with noise "
    f"of standard deviation {data.NOISE:g}. MSE is the mean squared error of the fitted curve at {data.NUM_TEST:,} "
    "points. Sparsity is Hoyer's sparsity of θ. All methods fit the same data sets. IP: interior point. RS, IS: "
    "rejection and importance sampling. RSIRS, ISIRS: RS or IS, followed by rounds of importance resampling."
)
"""A short description of the experiment."""


def write(results: Results, directory: pathlib.Path) -> pathlib.Path:
    """Write CSV files, settings, figures, and the page ``report.html`` with tables; return the page's path."""
    rows = [
        (dataset, name, f"{results.mse[name][dataset]:.9g}", f"{results.sparsity[name][dataset]:.9g}")
        for dataset in range(results.settings.datasets)
        for name in published.METHODS
    ]
    _write_csv(directory / "results.csv", ("dataset", "method", "mse", "sparsity"), rows)
    estimates = [
        (dataset, name, *(f"{value:.9g}" for value in row))
        for name, theta in results.theta.items()
        for dataset, row in enumerate(theta)
    ]
    components = tuple(f"theta_{k}" for k in range(len(results.settings.theta)))
    _write_csv(directory / "estimates.csv", ("dataset", "method", *components), estimates)
    pictures = {"boxplots": figures.boxplots(results), "curves": figures.curves(results)}
    return _write_page(directory, "The polynomial experiment", LEAD, tables(results), pictures, results.settings)


def write_sensitivity(
    scores: list[Score], found: list[Results], settings: Settings, directory: pathlib.Path
) -> pathlib.Path:
    """Write ``sensitivity.csv``, ``truths.csv``, the figure and the page; return the page's path.

    Args:
      scores: scores of the scan.
      found: the experiment for several true coefficients, the paper's first.
      settings: settings of the scan.
      directory: output directory.
    """
    _write_csv(directory / "sensitivity.csv", Score._fields, scores)
    rows = [
        (results.settings.truth, results.settings.alpha, name, f"{mse.mean():.9g}", f"{sparsity.mean():.9g}")
        for results in found
        for (name, mse), sparsity in zip(results.mse.items(), results.sparsity.values(), strict=True)
    ]
    _write_csv(directory / "truths.csv", ("truth", "alpha", "method", "mse", "sparsity"), rows)
    pictures = {"sensitivity": figures.trade(scores, found[0])}
    lead = (
        "The same experiment with other settings (α, the rule for the precision, R rounds, L draws), and with other "
        "true coefficients θ. The paper gives none of these settings."
    )
    return _write_page(directory, "What the experiment depends on", lead, truths(found), pictures, settings)


def record(settings: Settings) -> dict[str, Any]:
    """Return the settings and the package versions behind the results."""
    versions = {"balson_jax": __version__, "jax": jax.__version__, "numpy": np.__version__}
    truth = {"theta": settings.theta, "total": TOTAL}
    return {"settings": dataclasses.asdict(settings) | truth, "versions": versions}


def _write_csv(path: pathlib.Path, header: tuple[str, ...], rows: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)


def _write_page(
    directory: pathlib.Path,
    title: str,
    lead: str,
    shown: list[Table],
    pictures: dict[str, Figure],
    settings: Settings,
) -> pathlib.Path:
    """Write the settings and the figures to files of their own, and a page with the tables, figures and settings."""
    text = json.dumps(record(settings), indent=2) + "\n"
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
