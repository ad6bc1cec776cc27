"""The paper's figures (fitted curves and boxplots), and a figure of how its results depend on the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure

from ...dirichlet import MATCH_RULES
from ...metrics import hoyer_sparsity
from . import data, published
from .experiment import EXACT, Results, Settings
from .sensitivity import ALPHAS, DRAWS, MAX_ROUNDS, Score, reproduces

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {
    "LASSO": "#8c8c8c",
    "IP": "#595959",
    "Bayesian LASSO": "#bdbdbd",
    "RS": "#4c78a8",
    "IS": "#72b7b2",
    "RSIRS": "#e45756",
    "ISIRS": "#f2a03d",
    EXACT: "#262626",
}
"""The reference methods are grey."""


def curves(results: Results) -> Figure:
    """Return the curves of all methods on the first data set, with the true curve."""
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    x = np.asarray(data.inputs(data.NUM_TEST))
    for name, style in zip(published.REFERENCES, ("--", ":", (0, (6, 1))), strict=True):
        axes.plot(x, data.curve(results.theta[name][0]), linestyle=style, color=COLOURS[name], label=name)
    for index, name in enumerate(published.SAMPLERS):  # ever thinner lines, because the curves often coincide
        width = 8 - 2 * index
        axes.plot(x, data.curve(results.theta[name][0]), color=COLOURS[name], linewidth=width, label=name)
    axes.plot(x, data.curve(results.settings.theta), "k-.", linewidth=2, label="truth")
    axes.set(xlabel="x", ylabel="curve", title="Data set 0: samplers solid, reference methods dashed or dotted")
    axes.legend()
    return figure


def boxplots(results: Results) -> Figure:
    """Return boxplots of error and sparsity over the data sets."""
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    _boxes(left, results.mse, "MSE of the curve (logarithmic)")
    left.set_yscale("log")
    _boxes(right, results.sparsity, "Hoyer sparsity of θ")
    truth = float(hoyer_sparsity(np.array(results.settings.theta)))
    right.axhline(truth, color="black", linestyle="-.", linewidth=1, label="true θ")
    right.legend(loc="lower right")
    figure.suptitle(f"{results.settings.datasets} data sets: boxes are quartiles, triangles are means")
    return figure


def _boxes(axes: Axes, values: dict[str, np.ndarray], title: str) -> None:
    names = (*published.METHODS, EXACT)
    labels = [name.replace(" LASSO", "\nLASSO").replace(", ", "\n") for name in names]
    boxes = axes.boxplot(
        [values[name] for name in names],
        tick_labels=labels,
        showmeans=True,
        patch_artist=True,
        medianprops={"color": "black"},
        meanprops={"markerfacecolor": "white", "markeredgecolor": "black"},
        flierprops={"markersize": 3, "alpha": 0.5},
    )
    for box, name in zip(boxes["boxes"], names, strict=True):
        box.set(facecolor=COLOURS[name], alpha=0.8)
    axes.tick_params(axis="x", labelsize=8)
    axes.set_title(title)


def trade(scores: list[Score], results: Results) -> Figure:
    """Return the trade-off between error and sparsity over concentration, rule, rounds and draws.

    Args:
      scores: scores of the scan.
      results: the experiment on the same data sets. Its settings and the reference methods are marked.
    """
    settings = results.settings
    figure = Figure(figsize=(13, 8), layout="constrained")
    panels = figure.subplots(2, 3).flat
    colours = colormaps["viridis"](np.linspace(0, 0.95, MAX_ROUNDS + 1))
    for match in MATCH_RULES:
        axes = next(panels)
        for rounds in range(MAX_ROUNDS + 1):
            label = "IS (R = 0)" if rounds == 0 else f"ISIRS, R = {rounds}"
            _line(axes, _pick(scores, match, rounds, settings.num_draws), color=colours[rounds], label=label)
        _dress(axes, results, f"rule “{match}”, L = {settings.num_draws:,}")
        if match == MATCH_RULES[0]:
            axes.legend(fontsize=7, ncols=2, loc="upper right")
    axes, styles = next(panels), (":", "-.", "--", "-")
    for rounds in (0, settings.rounds):
        for draws, style in zip(DRAWS, styles, strict=False):
            label = f"R = {rounds}, L = {draws:,}"
            line = _pick(scores, settings.match, rounds, draws)
            _line(axes, line, color=colours[rounds], linestyle=style, label=label)
    _dress(axes, results, f"draws L, rule “{settings.match}”")
    axes.legend(fontsize=7, ncols=2, loc="upper right")
    _where(next(panels), reproduces(_pick(scores, None, None, settings.num_draws)), settings)
    figure.suptitle(
        f"Each line: α from {ALPHAS[-1]:g} (large dot, left) down to {ALPHAS[0]:g}. Shaded: at least as good as the "
        f"paper's best in MSE and sparsity. Crosses: reference methods. {settings.datasets} data sets."
    )
    return figure


def _pick(scores: list[Score], match: str | None, rounds: int | None, num_draws: int) -> list[Score]:
    return [s for s in scores if s.num_draws == num_draws and match in (None, s.match) and rounds in (None, s.rounds)]


def _line(axes: Axes, scores: list[Score], **style) -> None:
    sparsity, mse = [s.sparsity for s in scores], [s.mse for s in scores]
    axes.plot(sparsity, mse, marker=".", markersize=4, linewidth=1.2, **style)
    axes.plot(sparsity[-1:], mse[-1:], "o", markersize=6, color=style["color"])


def _dress(axes: Axes, results: Results, title: str) -> None:
    for name in (*published.REFERENCES, EXACT):
        point = results.sparsity[name].mean(), results.mse[name].mean()
        axes.plot(*point, "x", color="black")
        box = {"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 0.5}
        axes.annotate(name, point, xytext=(4, 3), textcoords="offset points", fontsize=7, bbox=box)
    best_mse, best_sparsity = min(published.MSE.values()), max(published.SPARSITY.values())
    axes.fill_between([best_sparsity, 1.01], 1e-3, best_mse, color="green", alpha=0.12)
    axes.set(yscale="log", xlim=(0.1, 1.01), ylim=(2.5e-3, 2e-1), xlabel="sparsity", ylabel="MSE", title=title)


def _where(axes: Axes, good: list[Score], settings: Settings) -> None:
    def across(alpha: float, match: str) -> float:
        return ALPHAS.index(alpha) + 0.2 * (MATCH_RULES.index(match) - 1.5)

    for index, match in enumerate(MATCH_RULES):
        chosen = [s for s in good if s.match == match]
        x, y = [across(s.alpha, s.match) for s in chosen], [s.rounds for s in chosen]
        label = f"rule “{match}”" if chosen else f"rule “{match}”: none"
        axes.plot(x, y, "os^D"[index], color=f"C{index}", markersize=6, label=label)
    place = across(settings.alpha, settings.match), settings.rounds
    axes.plot(*place, "o", markersize=13, markerfacecolor="none", markeredgecolor="black", label="settings used")
    axes.set_xticks(range(len(ALPHAS)), [f"{alpha:g}" for alpha in ALPHAS])
    axes.set(xlabel="α", ylabel="rounds R", xlim=(-0.6, len(ALPHAS) - 0.4), ylim=(0.3, MAX_ROUNDS + 0.7))
    axes.set_title("at least as good as the paper's best")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
