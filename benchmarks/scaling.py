"""Scaling of the time of ``fit`` with the numbers of draws, problems, rows and components."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import balson_jax as balson

from .report import Result, Table
from .timing import race
from .weights import problems


def run(quick: bool) -> Result:
    sweeps = {"draws L": [(n, problems(64), n) for n in (1 << 12, 1 << 14, 1 << 16)]}
    if not quick:
        sweeps["draws L"].append((1 << 18, problems(64), 1 << 18))
        sweeps["problems P"] = [(n, problems(n), 4096) for n in (64, 512, 4096, 32_768)]
        sweeps["rows N"] = [(n, problems(256, n), 4096) for n in (10, 100, 1000, 100_000)]
        sweeps["components K"] = [(n, components(n), 4096) for n in (5, 10, 20, 40)]
    rows = []
    for name, points in sweeps.items():
        contenders = {
            str(size): (lambda problem=problem, draws=draws: fit(problem, draws),) for size, problem, draws in points
        }
        times = [timing.run for timing in race(contenders, seconds=0.3).values()]
        sizes = [size for size, _, _ in points]
        exponent = float(np.polyfit(np.log(sizes[1:]), np.log(times[1:]), 1)[0])
        rows += [[name, size, 1e3 * seconds, exponent] for size, seconds in zip(sizes, times, strict=True)]
    note = "exponent: slope of log time over the three largest sizes. The reduction of N rows to K is not timed."
    return Result([Table("Time of fit", ["", "size", "ms", "exponent"], rows, note)], [])


def fit(problem: balson.Problem, num_draws: int) -> balson.Posterior:
    return balson.fit(jax.random.key(0), problem, balson.IS(num_draws=num_draws))


def components(count: int) -> balson.Problem:
    """Return 256 problems that share a random design with ``count`` components."""
    rng = np.random.default_rng(0)
    design = jnp.asarray(rng.normal(size=(100, count)), jnp.float32)
    theta = jnp.asarray(rng.dirichlet(np.ones(count), 256), jnp.float32)
    return balson.linear_problem(design, theta @ design.T, noise=5.0)


def plot(result: Result, figure) -> None:
    table = result.tables[0]
    names = list(dict.fromkeys(table.column("")))
    for axes, name in zip(figure.subplots(1, len(names), sharey=True, squeeze=False)[0], names, strict=True):
        rows = [row for row in table.rows if row[0] == name]
        axes.plot([row[1] for row in rows], [row[2] for row in rows], "o-")
        axes.set(xscale="log", yscale="log", xlabel=name, title=f"exponent {rows[0][3]:.2f}")
        axes.set_xticks([row[1] for row in rows], [f"{row[1]:,}" for row in rows], rotation=45)
        axes.minorticks_off()
    figure.axes[0].set_ylabel("ms")
    figure.suptitle("Time of fit")
