"""Fits: effective draws per second against MCMC, and constrained optima per second against other solvers."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import nnls

import balson_jax as balson
from balson_jax.experiments.paper import data

from . import nuts
from .report import Result, Table, Target
from .timing import race

COPIES = 200
WARM_UP = 300
BLACKJAX = "BlackJAX NUTS after its warm-up"
DESIGN = np.asarray(data.polynomial_design(data.inputs()))
SIZE = DESIGN.shape[1]


def run(quick: bool) -> Result:
    copies, steps = (50, 200) if quick else (COPIES, 500)
    targets = noisy_targets(copies)
    rows = [ours(targets, "is", balson.IS())]
    if not quick:
        rows.append(ours(targets, "rs", balson.RS(num_draws=4096)))
    peers = ["blackjax"] if quick else list(MCMC)
    for name in peers:
        if importlib.util.find_spec(name):
            rows += MCMC[name](targets, steps)
    rows = [[*row, rows[0][3] / row[3]] for row in rows]
    sampling = Table(
        f"Effective draws of {copies} copies of the paper's problem",
        ["", "effective draws", "s", "per second", "ours (is) / this"],
        rows,
        "ours: effective sample size of the weights, summed over problems; default settings; the time includes the "
        "reduction of the data. BlackJAX: vmapped over the problems. NumPyro: one problem. Both: mean over components.",
    )
    ratios = [row[4] for row in rows if row[0] == BLACKJAX]
    goals = [Target("effective draws per second, ours / BlackJAX", ratio, 1000) for ratio in ratios]
    return Result([sampling] if quick else [sampling, optima(1000)], goals)


def noisy_targets(count: int) -> np.ndarray:
    noise = np.random.default_rng(0).normal(size=(count, len(DESIGN)))
    return (DESIGN @ np.asarray(data.TRUE_THETA) + data.NOISE * noise).astype(np.float32)


def ours(targets: np.ndarray, name: str, method) -> list:
    def fit() -> balson.Posterior:
        return balson.fit(jax.random.key(0), balson.linear_problem(DESIGN, targets, noise=data.NOISE), method)

    seconds, total = race({"ours": (fit,)}, seconds=0.5)["ours"].run, float(fit().ess.sum())
    return [f"ours ({name})", total, seconds, total / seconds]


def blackjax_nuts(targets: np.ndarray, steps: int) -> list:
    walked = nuts.walk(DESIGN, targets, data.NOISE, warm_up=WARM_UP, steps=steps)
    total = float(walked.ess().mean(-1).sum())
    whole = walked.seconds + walked.warm_up_seconds
    return [
        [BLACKJAX, total, walked.seconds, total / walked.seconds],
        ["… with its warm-up", total, whole, total / whole],
    ]


def numpyro_nuts(targets: np.ndarray, steps: int) -> list:
    import numpyro
    from numpyro import distributions, infer
    from numpyro.diagnostics import effective_sample_size

    def model():
        theta = numpyro.sample("theta", distributions.Dirichlet(jnp.ones(SIZE)))
        numpyro.sample("target", distributions.Normal(jnp.asarray(DESIGN) @ theta, data.NOISE), obs=targets[0])

    mcmc = infer.MCMC(infer.NUTS(model), num_warmup=WARM_UP, num_samples=2 * steps, progress_bar=False)
    mcmc.run(jax.random.key(0))
    start = time.perf_counter()
    mcmc.run(jax.random.key(1))
    chain = jax.block_until_ready(mcmc.get_samples())["theta"]
    seconds = time.perf_counter() - start
    total = float(np.mean(effective_sample_size(np.asarray(chain)[None])))
    return [["NumPyro NUTS with its warm-up", total, seconds, total / seconds]]


MCMC: dict[str, Callable] = {"blackjax": blackjax_nuts, "numpyro": numpyro_nuts}


def optima(count: int) -> Table:
    targets = noisy_targets(count)
    heavy = 1e3 * np.linalg.norm(DESIGN, axis=0).max()
    augmented = np.vstack([DESIGN, np.full(SIZE, heavy)])
    contenders: dict[str, tuple[Callable, ...]] = {
        "ours": (balson.least_squares, balson.linear_problem(DESIGN, targets, noise=data.NOISE)),
        "SciPy nnls, a heavy row for the sum": (lambda: [nnls(augmented, np.append(y, heavy)) for y in targets],),
    }
    counts = dict.fromkeys([*contenders, QPAX], count) | {CVXPY: max(count // 50, 10)}
    if importlib.util.find_spec("qpax"):
        contenders[QPAX] = qpax_solver(), jnp.asarray(-targets @ DESIGN)
    if importlib.util.find_spec("cvxpy"):
        contenders[CVXPY] = cvxpy_solver(), targets[: counts[CVXPY]]
    times = race(contenders)
    rate = {name: counts[name] / timing.run for name, timing in times.items()}
    return Table(
        "Constrained optima per second, K = 5, N = 100",
        ["", "per second", "ours / this"],
        [[name, rate[name], rate["ours"] / rate[name]] for name in times],
        "ours includes the certified bound but not the reduction to K x K; SciPy and cvxpy solve one problem at a time",
    )


QPAX, CVXPY = "qpax, vmapped", "cvxpy"


def qpax_solver() -> Callable:
    import qpax

    gram = jnp.asarray(DESIGN.T @ DESIGN)
    sides = jnp.ones((1, SIZE)), jnp.ones(1), -jnp.eye(SIZE), jnp.zeros(SIZE)
    return jax.jit(jax.vmap(lambda linear: qpax.solve_qp(gram, linear, *sides)[0]))


def cvxpy_solver() -> Callable:
    import cvxpy

    theta, y = cvxpy.Variable(SIZE, nonneg=True), cvxpy.Parameter(len(DESIGN))
    program = cvxpy.Problem(cvxpy.Minimize(cvxpy.sum_squares(DESIGN @ theta - y)), [cvxpy.sum(theta) == 1])

    def solve(targets):
        for y.value in targets:
            program.solve()

    return solve


def plot(result: Result, figure) -> None:
    every_axes = figure.subplots(len(result.tables), 1, squeeze=False)[:, 0]
    for axes, table in zip(every_axes, result.tables, strict=True):
        axes.barh(table.column(""), table.column("per second"))
        axes.set(xscale="log", xlabel="per second", title=table.title)
        axes.title.set_fontsize(9)
        axes.invert_yaxis()
