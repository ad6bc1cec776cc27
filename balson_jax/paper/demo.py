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
    """Return the table of means, standard deviations and modes, one row each per sampler."""
    from rich.box import SIMPLE
    from rich.table import Table

    result = Table(title="The paper's polynomial, fitted to one data set", title_justify="left", box=SIMPLE)
    result.add_column("")
    for k in range(len(data.TRUE_THETA)):
        result.add_column(f"θ[{k}]", justify="right")
    result.add_row("truth", *(f"{true:.4f}" for true in data.TRUE_THETA), end_section=True)
    for name, posterior in posteriors.items():
        spread = zip(posterior.mean, posterior.std, strict=True)
        result.add_row(f"{name.upper()} mean", *(f"{mean:.3f} ±{std:.3f}" for mean, std in spread))
        result.add_row("mode", *(f"{value:.3f}" for value in posterior.theta), end_section=True)
    return result


def diagnostics(posteriors: dict[str, Posterior]) -> Table:
    """Return the table of errors and diagnostics, one row per sampler."""
    from rich.box import SIMPLE
    from rich.table import Table

    result = Table(box=SIMPLE)
    for heading in ("", "curve MSE", "ESS", "Pareto k", "accepted", "log-evidence", "status"):
        result.add_column(heading, justify="right" if heading else "left")
    for name, posterior in posteriors.items():
        result.add_row(
            name.upper(),
            f"{_curve_error(posterior):.4f}",
            f"{posterior.ess:,.0f}",
            f"{posterior.pareto_k:.2f}",
            f"{posterior.acceptance_rate:.3f}",
            f"{posterior.log_evidence:.2f}",
            str(Status(int(posterior.status)).name),
        )
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
        axis.fill_between(x, prediction.lower, prediction.upper, alpha=0.25, color="C0", label="90 % band (Dirichlet)")
        axis.plot(x, prediction.mean, color="C0", label="mean")
        axis.plot(x, design @ posterior.theta, "--", color="C1", label="sparse mode")
        axis.plot(x, true, "-.", color="k", label="truth")
        axis.set_title(name.upper())
        axis.set_ylim(-1.2, 2.2)
    axes[0, 0].legend(loc="upper left", fontsize=8)
    for axis in axes[1]:
        axis.set_xlabel("x")
    fig.suptitle("One data set (100 points, unit noise, some beyond the frame), four samplers")
    return fig
