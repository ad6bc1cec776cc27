"""Informative data: the methods that auto chooses, their reliability, and effective draws per second against NUTS."""

from __future__ import annotations

import itertools
import time

import jax
import numpy as np

import balson_jax as balson

from . import nuts
from .report import Result, Table, Target, tell
from .spectra import mixed_problems, smooth_spectra

BANDS = 156
NOISES, PRIORS = (0.3, 0.1, 0.03, 0.01), (0.5, 1.0, 2.0)
COLUMNS = [
    "K",
    "noise",
    "prior",
    "problems",
    "methods",
    "trusted",
    "least ESS",
    "ms each",
    "z mean",
    "z std",
    "beyond",
    "compared",
]
REFERENCES = {3: 10, 5: 10, 10: 8, 20: 3, 40: 2}
"""Number of problems per cell that are compared with long reference chains, by number of components."""

REFITS = 24
"""Number of refits with other keys, which measure the standard errors of fits by weighted draws."""

LONG = 120.0
"""Fits longer than this many seconds are timed once, with compilation."""

PIXELS, PIXEL_BANDS, PIXEL_NOISE = 10_000, 200, 0.01


def run(quick: bool) -> Result:
    many = against_nuts("pixels", 4, PIXELS if not quick else 500, 20)
    one = against_nuts("one problem", 40, 1, 1)
    speed = Table(
        "Effective draws of the worst component per second, noise 0.01",
        ["", "K", "problems", "effective draws", "s", "per second", "auto / this"],
        [*many, *one],
        "BlackJAX NUTS: vmapped, log-ratio coordinates, dense mass matrix, two chains of 500 steps after 500 steps of "
        "warm-up. auto: total time, including the warm-up of its chains.",
    )
    sizes, noises, priors = ((3, 10), (0.1, 0.01), (1.0,)) if quick else ((3, 5, 10, 20, 40), NOISES, PRIORS)
    rows = []
    for size, noise, prior in itertools.product(sizes, noises, priors):
        if rows and rows[-1][0] != size:
            # Thousands of compiled functions would exhaust the memory maps that a process may have.
            jax.clear_caches()
        rows.append(cell(size, noise, prior, 8 if quick else 50))
        tell(COLUMNS, rows[-1], len(rows), len(sizes) * len(noises) * len(priors))
    cells = Table(
        f"Smooth spectra of {BANDS} bands, different problems in each row",
        COLUMNS,
        rows,
        "trusted: share of problems with status OK and at least 400 effective draws. z: largest difference from long, "
        "independent chains (hit-and-run along straight lines), in combined standard errors. beyond: number of the "
        "compared values above 4, which chance alone exceeds once in 16,000.",
    )
    goals = [
        Target("share of problems that can be trusted, worst row", min(cells.column("trusted")), 0.99),
        Target("comparisons beyond 4 standard errors, all rows", sum(cells.column("beyond")), 2, at_least=False),
        Target("K = 4: effective draws per second, auto / NUTS after its warm-up", many[1][-1], 200),
        Target("K = 40: effective draws per second, auto / NUTS after its warm-up", one[1][-1], 10),
    ]
    if not quick:
        goals.append(Target("K = 4: seconds for 10,000 pixels", many[0][4], 10, at_least=False))
    return Result([cells, speed], goals)


def cell(size: int, noise: float, prior: float, count: int) -> list:
    """Return a row of the table: fits by the default method, compared with long reference chains."""
    rng = np.random.default_rng([size, round(1000 * noise), round(10 * prior)])
    problem = mixed_problems(rng, count, BANDS, size, noise, prior)
    found, seconds = timed_fit(problem)
    # Fit again to exclude compilation, unless the fit is so long that compilation is a small part of it.
    if seconds < LONG:
        found, seconds = timed_fit(problem)
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
        int((means > 4).sum() + (stds > 4).sum()),
        means.size + stds.size,
    ]


def timed_fit(problem: balson.Problem) -> tuple[balson.Posterior, float]:
    start = time.perf_counter()
    found = jax.block_until_ready(balson.fit(jax.random.key(0), problem))
    return found, time.perf_counter() - start


def compare(problem: balson.Problem, found: balson.Posterior, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return differences of means and standard deviations from those of long chains, in combined standard errors.

    The standard error of a mean is ``std / sqrt(ess)``. That of a standard deviation is
    ``std sqrt((kurtosis - 1) / (4 ess))``, with a kurtosis of at least 3. Both are too small for weighted draws whose
    weights correlate with the averaged quantity. For these the spread between refits with other keys is used, if it is
    larger.
    """
    some = take(problem, slice(count))
    walked = balson.fit(jax.random.key(2), some, balson.HitAndRun(target_ess=1500.0, walls="none"))
    own = found[:count]
    away = np.asarray(walked.draws) - np.asarray(walked.mean)[:, None]
    kurtosis = (away**4).mean(1) / (away**2).mean(1) ** 2
    scales = np.asarray(walked.std) * np.stack([np.ones_like(kurtosis), np.sqrt((np.maximum(kurtosis, 3) - 1) / 4)])
    errors, walked_errors = (scales / np.sqrt(np.asarray(fit.ess))[:, None] for fit in (own, walked))
    weighted = own.method != balson.HitAndRun.name
    if weighted.any():
        errors[:, weighted] = np.maximum(errors[:, weighted], refit_errors(take(some, weighted)))
    differences = np.stack([own.mean - walked.mean, own.std - walked.std])
    mean, std = np.abs(differences) / np.hypot(errors, walked_errors)
    return mean, std


def refit_errors(problem: balson.Problem) -> np.ndarray:
    """Return the standard deviations of means and of standard deviations over refits with other keys, ``(2, B, K)``."""
    fits = [balson.fit(jax.random.key(10 + number), problem) for number in range(REFITS)]
    return np.std([[fit.mean, fit.std] for fit in fits], axis=0, ddof=1)


def take(problem: balson.Problem, index: slice | np.ndarray) -> balson.Problem:
    """Return the selected problems of a batch."""
    return problem.map_leaves(lambda leaf, ndim: leaf[index] if leaf.ndim > ndim else leaf)


def against_nuts(name: str, size: int, count: int, nuts_count: int) -> list:
    """Return table rows for the default method on all problems, and for NUTS on the first ``nuts_count`` of them."""
    rng = np.random.default_rng(size)
    design = smooth_spectra(rng, PIXEL_BANDS, size).astype(np.float32)
    abundance = rng.dirichlet(np.ones(size), count)
    target = (abundance @ design.T + PIXEL_NOISE * rng.normal(size=(count, PIXEL_BANDS))).astype(np.float32)
    timed_fit(balson.linear_problem(design, target, noise=PIXEL_NOISE))
    start = time.perf_counter()
    found, _ = timed_fit(balson.linear_problem(design, target, noise=PIXEL_NOISE))
    total, seconds = float(found.ess.sum()), time.perf_counter() - start
    rows = [[f"auto, {name}", size, count, total, seconds, total / seconds]]
    walked = nuts.walk(design, target[:nuts_count], PIXEL_NOISE, warm_up=500, steps=500, chains=2, dense_mass=True)
    total, whole = float(walked.ess().min(-1).sum()), walked.seconds + walked.warm_up_seconds
    label = f"NUTS (R-hat {walked.rhat():.2f})"
    rows.append([f"{label} after its warm-up", size, nuts_count, total, walked.seconds, total / walked.seconds])
    rows.append([f"{label} with its warm-up", size, nuts_count, total, whole, total / whole])
    return [[*row, rows[0][5] / row[5]] for row in rows]


def plot(result: Result, figure) -> None:
    table = result.tables[1]
    axes = figure.subplots()
    labels = [f"{row[0]}, K = {row[1]}" for row in table.rows]
    axes.barh(labels, table.column("per second"))
    axes.set(xscale="log", xlabel="effective draws per second", title=table.title)
    axes.title.set_fontsize(9)
    axes.invert_yaxis()
