"""One data set of the paper's polynomial, fitted with the four samplers: a table and a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from ..fit import fit
from ..posterior import Posterior
from ..problem import linear_problem
from ..samplers import METHODS
from ..status import Status
from . import data

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table


def run(seed: int) -> tuple[jax.Array, dict[str, Posterior]]:
    """Return the data set and the posterior by each of the four samplers."""
    data_key, fit_key = jax.random.split(jax.random.key(seed))
    target = data.targets(data_key)
    problem = linear_problem(data.polynomial_design(data.inputs()), target, noise=data.NOISE)
    return target, {name: fit(fit_key, problem, name) for name in METHODS}


def table(posteriors: dict[str, Posterior]) -> Table:
    """Return the table of means, standard deviations and modes, with diagnostics beneath."""
    from rich.table import Table

    result = Table(title="The paper's polynomial: posterior mean ± std, and the sparse mode", title_justify="left")
    result.add_column("")
    result.add_column("true", justify="right")
    for name in posteriors:
        result.add_column(f"{name.upper()}\nmean ± std", justify="right")
        result.add_column("\nmode", justify="right")
    for k, true in enumerate(data.TRUE_THETA):
        cells = [f"θ[{k}]", f"{true:.4f}"]
        for posterior in posteriors.values():
            cells += [f"{posterior.mean[k]:.3f} ± {posterior.std[k]:.3f}", f"{posterior.theta[k]:.3f}"]
        result.add_row(*cells, end_section=k == len(data.TRUE_THETA) - 1)
    for label, describe in (
        ("MSE of the mode", lambda p: f"{_curve_error(p):.4f}"),
        ("effective draws", lambda p: f"{p.ess:,.0f}"),
        ("status", lambda p: Status(int(p.status)).name or str(Status(int(p.status)))),
    ):
        result.add_row(label, "", *(cell for p in posteriors.values() for cell in (describe(p), "")))
    return result


def _curve_error(posterior: Posterior) -> float:
    design = data.polynomial_design(data.inputs(1000))
    return float(jnp.square(design @ (posterior.theta - jnp.asarray(data.TRUE_THETA))).mean())


def figure(target: jax.Array, posteriors: dict[str, Posterior]) -> Figure:
    """Draw the fitted curves with their 90 % bands beside the true one."""
    import matplotlib.pyplot as plt

    x = np.asarray(data.inputs(200))
    design = data.polynomial_design(jnp.asarray(x))
    true = np.asarray(design @ jnp.asarray(data.TRUE_THETA))
    fig, axes = plt.subplots(2, 2, figsize=(10, 7), sharex=True, sharey=True, layout="constrained")
    for axis, (name, posterior) in zip(axes.flat, posteriors.items(), strict=True):
        prediction = posterior.predict(design)
        axis.plot(data.inputs(), target, ".", color="0.7", markersize=4, label="data")
        axis.fill_between(x, prediction.lower, prediction.upper, alpha=0.25, color="C0", label="90 % band")
        axis.plot(x, prediction.mean, color="C0", label="posterior mean")
        axis.plot(x, design @ posterior.theta, "--", color="C1", label="sparse mode")
        axis.plot(x, true, "-.", color="k", label="truth")
        axis.set_title(name.upper())
        axis.set_ylim(-1.2, 2.2)
    axes[0, 0].legend(loc="upper left", fontsize=8)
    for axis in axes[1]:
        axis.set_xlabel("x")
    fig.suptitle("One data set (100 points, unit noise), four samplers")
    return fig
