"""Write the experiment to a directory: a CSV file, figures, and one HTML page with tables and figures."""

from __future__ import annotations

import pathlib

from .. import page
from . import figures, tables
from .experiment import Results

LEAD = (
    "Compressive sensing: theta has K components, of which s are present, and is seen through N < K random rows. "
    "Theta lies on the simplex, or has signs and an L1 norm of 1. Rows are of independent normal numbers, or cosines "
    "and sines of random frequencies. The posterior has a Dirichlet prior with small concentrations."
)
"""A short description of the experiment."""


def write(results: Results, directory: pathlib.Path) -> pathlib.Path:
    """Write ``results.csv``, settings, figures, and the page ``report.html``; return the page's path."""
    page.write_csv(directory / "results.csv", *tables.for_csv(results))
    pictures = {
        "overview": figures.overview(results),
        "phases": figures.phases(results),
        "calibration": figures.calibration(results),
    }
    lead = f"{LEAD} {tables.finding(results)}"
    shown = tables.tables(results)
    return page.write_page(directory, "Compressive sensing", lead, shown, pictures, page.record(results.settings))
