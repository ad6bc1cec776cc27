"""Figures of the experiment: phase diagrams, and what posteriors say of themselves. All can be read in grey."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from .experiment import EXACT, LASSO, MEAN, RECOVERED, Outcome, Results
from .tables import METHODS, reliability
from .theory import line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHADES = LinearSegmentedColormap.from_list("shades", ["0.4", "1.0"])
"""White where all problems are recovered, and never so dark that black lines vanish."""


def overview(results: Results) -> Figure:
    """Return two panels: where the posterior mean recovers theta, and its errors against those that it expects."""
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    outcome = results.outcomes[0]
    image = _phase(left, results, outcome, MEAN)
    _frontiers(left, results, outcome)
    left.set_title(f"Problems that the posterior mean recovers ({outcome.case.name})", fontsize=9)
    left.legend(fontsize=7, loc="lower right", framealpha=0.95)
    figure.colorbar(image, ax=left, label="share recovered")
    _expectations(right, results.outcomes)
    right.set_title("The posterior says when it has not recovered", fontsize=9)
    return figure


def phases(results: Results) -> Figure:
    """Return the phase diagrams of all methods for all cases, with the theoretical thresholds."""
    num_cases = len(results.outcomes)
    figure = Figure(figsize=(2.1 * len(METHODS), 2.2 * num_cases + 0.4), layout="constrained")
    grid = figure.subplots(num_cases, len(METHODS), squeeze=False, sharex=True, sharey=True)
    image = None
    for row, outcome in zip(grid, results.outcomes, strict=True):
        for axes, name in zip(row, METHODS, strict=True):
            if name not in outcome.error:
                axes.set_axis_off()
                continue
            image = _phase(axes, results, outcome, name)
            _theory(axes, outcome)
            axes.set_title(name, fontsize=8)
            axes.set(xlabel="", ylabel="")
        row[0].set_ylabel(outcome.case.name.replace(", ", "\n"), fontsize=8)
    assert image is not None
    figure.supxlabel("rows per component, N / K", fontsize=9)
    figure.supylabel("components present per row, s / N", fontsize=9)
    figure.colorbar(image, ax=grid, label="share recovered", shrink=0.6)
    return figure


def calibration(results: Results) -> Figure:
    """Return the calibration of probabilities of inclusion, for each case."""
    figure = Figure(figsize=(5, 4.4), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    for index, outcome in enumerate(results.outcomes):
        found = reliability([outcome])
        axes.plot(
            found.claimed, found.held, "os^Dv"[index % 5] + "-", markersize=4, linewidth=0.8, label=outcome.case.name
        )
    axes.set(xlabel="probability of inclusion", ylabel="share of such components that are present")
    axes.legend(fontsize=7)
    return figure


def _edges(values: tuple[float, ...]) -> np.ndarray:
    """Return the edges of cells whose centres are the values."""
    centres = np.asarray(values)
    if len(centres) == 1:
        return centres[0] + np.array([-0.05, 0.05])
    middle = 0.5 * (centres[1:] + centres[:-1])
    return np.concatenate([[2 * centres[0] - middle[0]], middle, [2 * centres[-1] - middle[-1]]])


def _grid(results: Results, shares: np.ndarray) -> np.ndarray:
    """Return shares of cells as a matrix, components present along the rows."""
    settings = results.settings
    return shares.reshape(len(settings.shares_of_rows), len(settings.shares_present)).T


def _phase(axes: Axes, results: Results, outcome: Outcome, method: str):
    settings = results.settings
    edges = _edges(settings.shares_of_rows), _edges(settings.shares_present)
    shares = _grid(results, outcome.recovered(method))
    image = axes.pcolormesh(*edges, shares, cmap=SHADES, vmin=0, vmax=1)
    axes.set(xlim=edges[0][[0, -1]], ylim=edges[1][[0, -1]])
    axes.set(xlabel="rows per component, N / K", ylabel="components present per row, s / N")
    return image


def _theory(axes: Axes, outcome: Outcome, **style) -> None:
    """Draw the weak threshold of Donoho and Tanner."""
    low, high = axes.get_xlim()
    shares = np.linspace(max(low, 0.02), min(high, 0.98), 60)
    axes.plot(shares, line(shares, outcome.case.signed), color="black", linewidth=2, **style)


def _frontiers(axes: Axes, results: Results, outcome: Outcome) -> None:
    """Draw the theory, and where least squares and the posterior mean recover half of the problems."""
    _theory(axes, outcome, label="least squares, theory (Donoho and Tanner)")
    settings = results.settings
    if min(len(settings.shares_of_rows), len(settings.shares_present)) < 2:
        return
    for method, style in ((EXACT if EXACT in outcome.error else LASSO, "--"), (MEAN, ":")):
        shares = _grid(results, outcome.recovered(method))
        if shares.min() < 0.5 < shares.max():
            place = settings.shares_of_rows, settings.shares_present
            axes.contour(*place, shares, levels=[0.5], colors="black", linestyles=style, linewidths=1.4)
            axes.plot([], [], color="black", linestyle=style, linewidth=1.4, label=f"{method}: half recovered")


def _expectations(axes: Axes, outcomes: tuple[Outcome, ...]) -> None:
    """Draw actual errors of posterior means against those that the posteriors expect."""
    for outcome, marker in zip(outcomes, "os^Dv" * len(outcomes), strict=False):
        expected, error = outcome.expected.ravel(), outcome.error[MEAN].ravel()
        kept = np.maximum(expected, 1e-4), np.maximum(error, 1e-4)
        axes.plot(*kept, marker, markersize=3, alpha=0.5, color="black", markerfacecolor="none", markeredgewidth=0.6)
    axes.axhline(RECOVERED, color="black", linewidth=1, linestyle="--")
    axes.axvline(RECOVERED, color="black", linewidth=1, linestyle="--")
    axes.axline((0.01, 0.01), slope=1, color="0.6", linewidth=1)
    axes.set(xscale="log", yscale="log", xlabel="relative error that the posterior expects", ylabel="relative error")
