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
from balson_jax.paper import data

from .report import Result, Table, Target
from .timing import race

COPIES = 200
WARM_UP = 300
BLACKJAX = "BlackJAX NUTS"
DESIGN = np.asarray(data.polynomial_design(data.inputs()))


def run(quick: bool) -> Result:
    copies, steps = (50, 200) if quick else (COPIES, 500)
    targets = noisy_targets(copies)
    rows = [ours(targets, "is", balson.IS(num_draws=16_384))]
    if not quick:
        rows.append(ours(targets, "rs", balson.RS(num_draws=4096)))
    peers = ["blackjax"] if quick else list(MCMC)
    rows += [MCMC[name](targets, steps) for name in peers if importlib.util.find_spec(name)]
    best = rows[0][3]
    rows = [[*row, best / row[3]] for row in rows]
    sampling = Table(
        f"Effective draws of {copies} copies of the paper's problem",
        ["", "effective draws", "s", "per second", "ours (is) / this"],
        rows,
        "ours: sum over problems of the effective sample by weights. BlackJAX: vmapped NUTS, without its warm-up. "
        "NumPyro: NUTS on one problem, with its warm-up. Both: mean over components.",
    )
    targets = [
        Target("effective draws per second, ours / BlackJAX", row[4], 1000)
        for row in rows
        if row[0].startswith("Black")
    ]
    return Result([sampling, optima(200 if quick else 1000)], targets)


def ours(batch: balson.Problem, name: str, method) -> list:
    timing = race({"ours": (lambda: balson.fit(jax.random.key(0), batch, method),)})["ours"]
    total = float(balson.fit(jax.random.key(0), batch, method).ess.sum())
    return [f"ours ({name})", total, timing.run, total / timing.run]


def log_density(position: jax.Array, problem: balson.Problem) -> jax.Array:
    """Return the log-posterior in additive log-ratio coordinates, with the K x K reduction that we use too."""
    log_omega = jax.nn.log_softmax(jnp.append(position, 0.0))
    return density.log_likelihood(problem, jnp.exp(log_omega)) + problem.prior @ log_omega


def blackjax_nuts(batch: balson.Problem, steps: int) -> list:
    import blackjax

    flat = batch.flatten_batch()
    num_problems = batch.batch_shape[0]
    start = jnp.zeros((num_problems, batch.num_components - 1))
    keys = jax.random.split(jax.random.key(0), num_problems)

    def warm_up(problem, key, position):
        adaptation = blackjax.window_adaptation(blackjax.nuts, lambda z: log_density(z, problem))
        (state, parameters), _ = adaptation.run(key, position, num_steps=WARM_UP)
        return state, parameters["step_size"], parameters["inverse_mass_matrix"]

    def sample(target, key, state, step_size, inverse_mass_matrix):
        kernel = blackjax.nuts(lambda z: log_density(z, target), step_size, inverse_mass_matrix)

        def step(state, key):
            state, _ = kernel.step(key, state)
            return state, jax.nn.softmax(jnp.append(state.position, 0.0))

        return jax.lax.scan(step, state, jax.random.split(key, steps))[1]

    warm = jax.jit(jax.vmap(warm_up))(jnp.asarray(targets), keys, start)
    draws = jax.jit(jax.vmap(sample))
    seconds = race({"nuts": (draws, targets, keys, *warm)})["nuts"].run
    chains = draws(targets, keys, *warm)  # (problems, steps, K)
    ess = jax.vmap(lambda chain: blackjax.diagnostics.effective_sample_size(chain[None]))(chains)
    total = float(ess.mean(-1).sum())
    return [BLACKJAX, total, seconds, total / seconds]


def numpyro_nuts(targets: np.ndarray, steps: int) -> list:
    import numpyro
    from numpyro import distributions, infer
    from numpyro.diagnostics import effective_sample_size

    def model():
        theta = numpyro.sample("theta", distributions.Dirichlet(jnp.ones(DESIGN.shape[1])))
        numpyro.sample("target", distributions.Normal(jnp.asarray(DESIGN) @ theta, data.NOISE), obs=targets[0])

    mcmc = infer.MCMC(infer.NUTS(model), num_warmup=WARM_UP, num_samples=2 * steps, progress_bar=False)
    mcmc.run(jax.random.key(0))
    start = time.perf_counter()
    mcmc.run(jax.random.key(1))
    chain = jax.block_until_ready(mcmc.get_samples())["theta"]
    seconds = time.perf_counter() - start
    total = float(np.mean(effective_sample_size(np.asarray(chain)[None])))
    return ["NumPyro NUTS (one problem)", total, seconds, total / seconds]


MCMC: dict[str, Callable] = {"blackjax": blackjax_nuts, "numpyro": numpyro_nuts}


def optima(count: int, few_peers: bool) -> Table:
    targets = noisy_targets(count)
    batch = balson.linear_problem(DESIGN, targets)
    heavy = 1e3 * np.linalg.norm(DESIGN, axis=0).max()
    augmented = np.vstack([DESIGN, np.full(DESIGN.shape[1], heavy)])
    few = max(count // 50, 10)
    contenders: dict[str, tuple[Callable, ...]] = {
        "ours": (balson.least_squares, batch),
        "SciPy nnls, a heavy row for the sum": (lambda: [nnls(augmented, np.append(y, heavy)) for y in targets],),
    }
    sizes = dict.fromkeys(contenders, count)
    if importlib.util.find_spec("qpax") and not few_peers:
        import qpax

        size = DESIGN.shape[1]
        gram = jnp.asarray(DESIGN.T @ DESIGN)
        sides = jnp.ones((1, size)), jnp.ones(1), -jnp.eye(size), jnp.zeros(size)
        solve = jax.jit(jax.vmap(lambda linear: qpax.solve_qp(gram, linear, *sides)[0]))
        contenders["qpax, vmapped"] = (solve, jnp.asarray(-targets @ DESIGN, jnp.float32))
        sizes["qpax, vmapped"] = count
    if importlib.util.find_spec("cvxpy") and not few_peers:
        import cvxpy

        theta, y = cvxpy.Variable(DESIGN.shape[1], nonneg=True), cvxpy.Parameter(len(DESIGN))
        program = cvxpy.Problem(cvxpy.Minimize(cvxpy.sum_squares(DESIGN @ theta - y)), [cvxpy.sum(theta) == 1])

        def solve_few():
            for y.value in targets[:few]:
                program.solve()

        contenders["cvxpy"] = (solve_few,)
        sizes["cvxpy"] = few
    times = race(contenders)
    rate = {name: sizes[name] / timing.run for name, timing in times.items()}
    return Table(
        "Constrained optima per second, K = 5, N = 100",
        ["", "per second", "ours / this"],
        [[name, rate[name], rate["ours"] / rate[name]] for name in times],
        "ours includes the certified bound and not the reduction to K x K; SciPy and cvxpy run one problem at a time",
    )


def plot(result: Result, figure) -> None:
    for axes, table in zip(figure.subplots(1, 2), result.tables, strict=True):
        axes.barh(table.column(""), table.column("per second"))
        axes.set(xscale="log", xlabel="per second", title=table.title)
        axes.title.set_fontsize(9)
        axes.invert_yaxis()
