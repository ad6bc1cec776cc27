"""Accuracy per second: error of the posterior mean against time, for ours and IS with ``jax.random.dirichlet``."""

from __future__ import annotations

import functools
import time

import jax
import jax.numpy as jnp
import numpy as np

import balson_jax as balson
from balson_jax import density

from .report import Result, Table, Target
from .timing import race
from .weights import problems

GOAL = 1e-4


@functools.partial(jax.jit, static_argnames="num_draws")
def plain(key: jax.Array, problem: balson.Problem, num_draws: int) -> jax.Array:
    """Return the posterior mean by a straightforward importance sampler with the prior as proposal."""
    omega = jax.random.dirichlet(key, problem.prior, (num_draws,))
    weights = jax.nn.softmax(density.log_likelihood(problem, omega))
    return weights @ omega


def run(quick: bool) -> Result:
    problem = problems(1).flatten_batch()
    one = jax.tree.map(lambda leaf: leaf[0], problem)
    replicates = 8 if quick else 16
    keys = jax.random.split(jax.random.key(2), replicates)
    truth = balson.fit(jax.random.key(99), one, balson.IS(num_draws=(1 << 20) if quick else (1 << 23)))
    rows = []
    for size in [1 << n for n in ((15,) if quick else range(8, 19, 2))]:
        method = balson.IS(num_draws=size)
        seconds = race({"ours": (balson.fit, jax.random.key(0), one, method)}, seconds=0.3)["ours"].run
        means = jnp.stack([balson.fit(key, one, method).mean for key in keys])
        rows.append(["ours", size, seconds, rmse(means, truth.mean)])
    for size in [1 << n for n in range(12, 16 if quick else 21, 4)]:
        plain.lower(keys[0], one, size).compile()
        repeats = keys[:4] if size > 1 << 17 else keys
        start = time.perf_counter()
        means = jnp.stack([plain(key, one, size) for key in jax.block_until_ready(repeats)])
        jax.block_until_ready(means)
        seconds = (time.perf_counter() - start) / len(repeats)
        rows.append(["jax.random.dirichlet", size, seconds, rmse(means, truth.mean)])
    ours = time_to_goal([row for row in rows if row[0] == "ours"])
    theirs = extrapolated([row for row in rows if row[0] != "ours"])
    note = (
        f"Time to an error of {GOAL:g}: ours {ours:.2g} s, interpolated between sizes; theirs {theirs:.3g} s, "
        "extrapolated from their largest sizes, with the error proportional to 1 / sqrt(draws). The standard error of "
        f"the reference solution is {float(truth.mean_stderr.max()):.1g}."
    )
    table = Table(
        f"Root mean square error of the posterior mean of the paper's problem, {replicates} repetitions",
        ["", "draws", "s", "error"],
        rows,
        note,
    )
    return Result([table], [Target(f"time to an error of {GOAL:g}, theirs / ours", theirs / ours, 1000)])


def rmse(means: jax.Array, truth: jax.Array) -> float:
    return float(jnp.sqrt(jnp.square(means - truth).mean()))


def time_to_goal(rows: list) -> float:
    """Return the time to reach the goal, by linear interpolation of log-time in log-error."""
    errors, seconds = np.log([row[3] for row in rows]), np.log([row[2] for row in rows])
    if errors.min() > np.log(GOAL):
        raise RuntimeError(f"no size reached {GOAL}")
    first = int(np.argmax(errors <= np.log(GOAL)))
    if first == 0:
        return float(np.exp(seconds[0]))
    share = (errors[first - 1] - np.log(GOAL)) / (errors[first - 1] - errors[first])
    return float(np.exp(seconds[first - 1] + share * (seconds[first] - seconds[first - 1])))


def extrapolated(rows: list) -> float:
    """Return the time to reach the goal if error = c / sqrt(time), with c^2 averaged over the two largest sizes."""
    constants = [row[3] ** 2 * row[2] for row in rows[-2:]]
    return float(np.mean(constants)) / GOAL**2


def plot(result: Result, figure) -> None:
    table = result.tables[0]
    axes = figure.subplots()
    for name, style in (("ours", "o-"), ("jax.random.dirichlet", "s--")):
        rows = [row for row in table.rows if row[0] == name]
        label = "balson.fit, Sobol points" if name == "ours" else f"importance sampling on {name}"
        axes.plot([row[2] for row in rows], [row[3] for row in rows], style, label=label)
        for row in rows:
            axes.annotate(f"{row[1]:,}", (row[2], row[3]), textcoords="offset points", xytext=(4, 4), fontsize=7)
    axes.margins(x=0.12)
    axes.axhline(GOAL, color="black", linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlabel="seconds", ylabel="error of the posterior mean")
    axes.set_title("The paper's problem: error against time. Labels: number of draws")
    axes.legend()
