"""Strong data: which method serves where, whether it can be trusted, and effective draws per second against NUTS."""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
import numpy as np

import balson_jax as balson

from .report import Result, Table, Target
from .spectra import mixed_problems, smooth_spectra

BANDS = 156
REFERENCES = {3: 10, 5: 10, 10: 8, 20: 3, 40: 2}
"""How many problems of a cell are also walked for long, by number of components."""

PIXELS, PIXEL_BANDS, PIXEL_NOISE = 10_000, 200, 0.01


def run(quick: bool) -> Result:
    sizes, noises, priors = ((3, 10), (0.1, 0.01), (1.0,)) if quick else ((3, 5, 10, 20, 40), NOISES, PRIORS)
    rows = [cell(size, noise, prior, 8 if quick else 50) for size in sizes for noise in noises for prior in priors]
    cells = Table(
        f"Smooth spectra of {BANDS} bands, problems of their own in each row",
        ["K", "noise", "prior", "problems", "methods", "trusted", "least ESS", "ms each", "z mean", "z std", "beyond"],
        rows,
        "trusted: share with status OK and at least 400 effective draws. z: largest difference from long, independent "
        "chains (slice sampling, not exact lines), in standard errors of both; beyond: how many exceed 4.",
    )
    trusted = min(row[5] for row in rows)
    goals = [Target("share of problems that can be trusted, worst row", trusted, 0.99)]
    tables = [cells]
    many = against_nuts("10,000 pixels", 4, PIXELS if not quick else 500, 20)
    one = against_nuts("one problem", 40, 1, 1)
    tables.append(
        Table(
            "Effective draws of the worst component per second, noise 0.01",
            ["", "K", "problems", "effective draws", "s", "per second", "auto / this"],
            [*many, *one],
            "BlackJAX NUTS: vmapped, in logarithms of ratios, dense mass matrix, after its warm-up.",
        )
    )
    goals += [
        Target("K = 4: effective draws per second, auto / NUTS", many[1][-1], 200),
        Target("K = 40: effective draws per second, auto / NUTS", one[1][-1], 10),
    ]
    if not quick:
        goals.append(Target("K = 4: seconds for 10,000 pixels", many[0][4], 10, at_least=False))
    return Result(tables, goals)


NOISES, PRIORS = (0.3, 0.1, 0.03, 0.01), (0.5, 1.0, 2.0)


def cell(size: int, noise: float, prior: float, count: int) -> list:
    """Fit problems of one kind by the default method, and walk some of them for long."""
    rng = np.random.default_rng([size, round(1000 * noise), round(10 * prior)])
    problem = mixed_problems(rng, count, BANDS, size, noise, prior)
    balson.fit(jax.random.key(0), problem)  # to compile what it takes
    start = time.perf_counter()
    found = jax.block_until_ready(balson.fit(jax.random.key(0), problem))
    seconds = time.perf_counter() - start
    trusted = (np.asarray(found.status) == 0) & (np.asarray(found.ess) >= 400)
    names, counts = np.unique(found.method, return_counts=True)
    methods = ", ".join(f"{name} {number}" for name, number in zip(names, counts, strict=True))
    means, stds = compare(problem, found, min(REFERENCES[size], count))
    return [
        size,
        noise,
        prior,
        count,
        methods,
        float(trusted.mean()),
        float(np.min(found.ess)),
        1000 * seconds / count,
        float(means.max()),
        float(stds.max()),
        f"{int((means > 4).sum() + (stds > 4).sum())} of {means.size + stds.size}",
    ]


def compare(problem: balson.Problem, found: balson.Posterior, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return differences of means and standard deviations from those of long chains, in standard errors of both."""
    some = jax.tree.map(lambda leaf: leaf[:count] if leaf.ndim and leaf.shape[0] == len(found) else leaf, problem)
    walked = balson.fit(jax.random.key(2), some, balson.HitAndRun(target_ess=1500.0, exact_lines=False))
    own = found[:count]
    share = np.sqrt(1 / np.asarray(own.ess) + 1 / np.asarray(walked.ess))[:, None]
    away = np.asarray(walked.draws) - np.asarray(walked.mean)[:, None]
    kurtosis = (away**4).mean(1) / (away**2).mean(1) ** 2
    mean = np.abs(own.mean - walked.mean) / (walked.std * share)
    std = np.abs(own.std - walked.std) / (walked.std * share * np.sqrt((np.maximum(kurtosis, 3) - 1) / 4))
    return np.asarray(mean), np.asarray(std)


def against_nuts(name: str, size: int, count: int, nuts_count: int) -> list:
    """Return rows for the default method and for NUTS, the latter on some of the same problems."""
    rng = np.random.default_rng(size)
    design = smooth_spectra(rng, PIXEL_BANDS, size).astype(np.float32)
    abundance = rng.dirichlet(np.ones(size), count)
    target = (abundance @ design.T + PIXEL_NOISE * rng.normal(size=(count, PIXEL_BANDS))).astype(np.float32)

    def fit():
        return jax.block_until_ready(
            balson.fit(jax.random.key(0), balson.linear_problem(design, target, noise=PIXEL_NOISE))
        )

    fit()
    start = time.perf_counter()
    total = float(fit().ess.sum())
    seconds = time.perf_counter() - start
    rows = [[f"auto, {name}", size, count, total, seconds, total / seconds]]
    total, seconds, rhat = nuts(design, target[:nuts_count])
    rows.append([f"NUTS (R-hat {rhat:.2f})", size, nuts_count, total, seconds, total / seconds])
    return [[*row, rows[0][5] / row[5]] for row in rows]


def nuts(design: np.ndarray, targets: np.ndarray, warm_up: int = 500, steps: int = 500) -> tuple[float, float, float]:
    """Return effective draws, seconds after the warm-up and R-hat of BlackJAX's NUTS, two chains per problem."""
    import blackjax

    size = design.shape[1]
    targets = jnp.repeat(jnp.asarray(targets), 2, axis=0)
    keys = jax.random.split(jax.random.key(0), len(targets))

    def log_density(position, target):
        log_omega = jax.nn.log_softmax(jnp.append(position, 0.0))
        residual = (target - design @ jnp.exp(log_omega)) / PIXEL_NOISE
        return -0.5 * jnp.square(residual).sum() + log_omega.sum()

    def warm(target, key):
        adaptation = blackjax.window_adaptation(
            blackjax.nuts, lambda z: log_density(z, target), is_mass_matrix_diagonal=False
        )
        (state, parameters), _ = adaptation.run(key, jnp.zeros(size - 1), num_steps=warm_up)
        return state, parameters["step_size"], parameters["inverse_mass_matrix"]

    def sample(target, key, state, step_size, inverse_mass_matrix):
        kernel = blackjax.nuts(lambda z: log_density(z, target), step_size, inverse_mass_matrix)

        def step(state, key):
            state, _ = kernel.step(key, state)
            return state, jax.nn.softmax(jnp.append(state.position, 0.0))

        return jax.lax.scan(step, state, jax.random.split(key, steps))[1]

    warmed = jax.block_until_ready(jax.jit(jax.vmap(warm))(targets, keys))
    draws = jax.jit(jax.vmap(sample)).lower(targets, keys, *warmed).compile()
    start = time.perf_counter()
    chains = jax.block_until_ready(draws(targets, keys, *warmed))
    seconds = time.perf_counter() - start
    chains = chains.reshape(-1, 2, steps, size)
    ess = jax.vmap(blackjax.diagnostics.effective_sample_size)(chains).min(-1)
    rhat = jax.vmap(blackjax.diagnostics.potential_scale_reduction)(chains).max()
    return float(jnp.nan_to_num(ess).sum()), seconds, float(rhat)


def plot(result: Result, figure) -> None:
    table = result.tables[1]
    axes = figure.subplots()
    labels = [f"{row[0]}, K = {row[1]}" for row in table.rows]
    axes.barh(labels, table.column("per second"))
    axes.set(xscale="log", xlabel="effective draws per second", title=table.title)
    axes.title.set_fontsize(9)
    axes.invert_yaxis()
