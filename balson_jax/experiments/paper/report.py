"""Write an experiment to a directory: CSV files, figures, and one HTML page with tables and figures."""

from __future__ import annotations

import pathlib
from typing import Any

from .. import page
from . import data, figures, published
from .experiment import TOTAL, Results, Settings
from .sensitivity import Score
from .tables import tables, truths

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
    page.write_csv(directory / "results.csv", ("dataset", "method", "mse", "sparsity"), rows)
    estimates = [
        (dataset, name, *(f"{value:.9g}" for value in row))
        for name, theta in results.theta.items()
        for dataset, row in enumerate(theta)
    ]
    components = tuple(f"theta_{k}" for k in range(len(results.settings.theta)))
    page.write_csv(directory / "estimates.csv", ("dataset", "method", *components), estimates)
    pictures = {"boxplots": figures.boxplots(results), "curves": figures.curves(results)}
    return page.write_page(
        directory, "The polynomial experiment", LEAD, tables(results), pictures, record(results.settings)
    )


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
    page.write_csv(directory / "sensitivity.csv", Score._fields, scores)
    rows = [
        (results.settings.truth, results.settings.alpha, name, f"{mse.mean():.9g}", f"{sparsity.mean():.9g}")
        for results in found
        for (name, mse), sparsity in zip(results.mse.items(), results.sparsity.values(), strict=True)
    ]
    page.write_csv(directory / "truths.csv", ("truth", "alpha", "method", "mse", "sparsity"), rows)
    pictures = {"sensitivity": figures.trade(scores, found[0])}
    lead = (
        "The same experiment with other settings (α, the rule for the precision, R rounds, L draws), and with other "
        "true coefficients θ. The paper gives none of these settings."
    )
    return page.write_page(directory, "What the experiment depends on", lead, truths(found), pictures, record(settings))


def record(settings: Settings) -> dict[str, Any]:
    """Return the settings and the package versions behind the results."""
    return page.record(settings, theta=settings.theta, total=TOTAL)
