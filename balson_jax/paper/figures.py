"""The paper's figures: fitted curves, and boxplots of error and sparsity."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from ..metrics import hoyer_sparsity
from . import data, published
from .experiment import NUM_TEST, Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def curves(results: Results) -> Figure:
    """Return the curves of all methods on the first data set, beside the true one."""
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    x = data.inputs(NUM_TEST)
    design = np.asarray(data.polynomial_design(x))
    for name in published.METHODS:
        style = "--" if name in published.REFERENCES else "-"
        axes.plot(x, design @ results.theta[name][0], style, label=name)
    axes.plot(x, design @ np.array(data.TRUE_THETA), "k-.", linewidth=2, label="truth")
    axes.set(xlabel="x", ylabel="fitted curve", title="One data set: solid, samplers; dashed, references")
    axes.legend()
    return figure


def boxplots(results: Results) -> Figure:
    """Return boxplots of error and sparsity over the data sets."""
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    _boxes(left, results.mse, "MSE")
    left.set_yscale("log")
    _boxes(right, results.sparsity, "sparsity")
    truth = float(hoyer_sparsity(np.array(data.TRUE_THETA, np.float32)))
    right.axhline(truth, color="black", linestyle="-.", linewidth=1, label="of the true θ")
    right.legend()
    return figure


def _boxes(axes: Axes, values: dict[str, np.ndarray], title: str) -> None:
    names = published.METHODS
    axes.boxplot([values[name] for name in names], tick_labels=[name.replace(" ", "\n") for name in names])
    axes.set_title(title)
