"""Sparse priors over many components: can chains be trusted, do they agree, and how fast are they?

Beside the default chains, whose walls are random rates: straight lines alone, and NUTS.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import jax
import numpy as np

import balson_jax as balson
from balson_jax.experiments.scenes import smooth_spectra

from . import nuts
from .report import Table, tell

BANDS, PROBLEMS = 156, 20
SIZES, PRIORS, NOISES = (20, 40, 100, 240), (0.5, 0.3, 0.1, 0.05), (0.03, 0.01)
COMPARED = 4
"""Problems of a cell that are compared with longer, independent chains."""

LONGER = 4.0
"""How many times the effective draws those have."""

RIVALS_UP_TO = 40
"""Most components for which straight lines and NUTS are run; beyond, they take too long."""

RIVAL_PROBLEMS = 2
STRAIGHT = balson.HitAndRun(walls="none", max_moves=1 << 13)
CONVERGED = 1.05
"""R-hat above this: the number of effective draws means nothing."""

COLUMNS = [
    "K",
    "prior",
    "noise",
    "problems",
    "trusted",
    "least ESS",
    "worst R-hat",
    "z mean",
    "z std",
    "beyond",
    "compared",
    "ESS per s",
    "straight lines",
    "NUTS",
]


def mixtures(size: int, prior: float, noise: float, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a set of collinear spectra as a design, and mixtures of them with shares drawn from the prior."""
    rng = np.random.default_rng([size, round(1000 * prior), round(1000 * noise)])
    design = smooth_spectra(rng, BANDS, size).astype(np.float32)
    abundances = rng.dirichlet(np.full(size, prior), count)
    return design, (abundances @ design.T + noise * rng.normal(size=(count, BANDS))).astype(np.float32)


def cell(size: int, prior: float, noise: float, count: int = PROBLEMS) -> list:
    """Return a row of the table."""
    design, targets = mixtures(size, prior, noise, count)
    problem = balson.linear_problem(design, targets, noise=noise, prior=prior)
    found, seconds = timed(problem, balson.HitAndRun(), prior)
    few = min(COMPARED, count)
    longer = balson.HitAndRun(target_ess=LONGER * 400)
    walked = balson.fit(jax.random.key(7), problem.with_targets(targets[:few]), longer)
    means = z_scores(found[:few].mean, walked.mean, found[:few].mean_stderr, walked.mean_stderr)
    stds = z_scores(found[:few].std, walked.std, found[:few].std_stderr, walked.std_stderr)
    rivals = [float("nan")] * 2
    if size <= RIVALS_UP_TO:
        rivals = list(against(problem, design, targets[:RIVAL_PROBLEMS], prior, noise))
    return [
        size,
        prior,
        noise,
        count,
        float((np.asarray(found.status) == 0).mean()),
        float(np.min(found.ess)),
        float(np.max(np.asarray(found.rhat))),
        float(means.max()),
        float(stds.max()),
        int((means > 4).sum() + (stds > 4).sum()),
        means.size + stds.size,
        float(np.sum(found.ess)) / seconds,
        *rivals,
    ]


def timed(problem: balson.LinearProblem, method: balson.Sampler, prior: float) -> tuple[balson.Posterior, float]:
    """Return a fit by a method that was compiled before, and its seconds."""
    balson.warm_up(problem.num_components, method, noise=1.0, prior=prior)
    start = time.perf_counter()
    found = jax.block_until_ready(balson.fit(jax.random.key(0), problem, method))
    return found, time.perf_counter() - start


def against(
    problem: balson.LinearProblem, design: np.ndarray, targets: np.ndarray, prior: float, noise: float
) -> Iterator[float]:
    """Yield effective draws a second of straight lines and of NUTS after its warm-up; NaN if they did not converge."""
    lines, seconds = timed(problem.with_targets(targets), STRAIGHT, prior)
    rhat = float(np.max(np.asarray(lines.rhat)))
    yield float(np.sum(lines.ess)) / seconds if rhat <= CONVERGED else float("nan")
    walked = nuts.walk(design, targets, noise, prior=prior, warm_up=500, steps=500, chains=2, dense_mass=True)
    converged = walked.rhat() <= CONVERGED
    yield float(walked.ess().min(-1).sum()) / walked.seconds if converged else float("nan")


def z_scores(ours, theirs, our_errors, their_errors) -> np.ndarray:
    """Return differences in combined standard errors."""
    return np.abs(np.asarray(ours - theirs)) / np.hypot(our_errors, their_errors)


def table(quick: bool) -> Table:
    """Return the table of all cells."""
    sizes, priors, noises = ((20,), (0.1,), (0.03,)) if quick else (SIZES, PRIORS, NOISES)
    rows = []
    cells = list(itertools.product(sizes, priors, noises))
    for settings in cells:
        rows.append(cell(*settings, count=4 if quick else PROBLEMS))
        tell(COLUMNS, rows[-1], len(rows), len(cells))
    return Table(
        f"Sparse priors: mixtures of smooth spectra of {BANDS} bands, shares drawn from the prior, known noise",
        COLUMNS,
        rows,
        f"z: largest difference from chains of their own with {LONGER:g} times the effective draws, in combined "
        f"standard errors, over {COMPARED} problems; beyond: how many are above 4. ESS per s: effective draws of the "
        f"worst component, all problems, without compiling. Straight lines and NUTS ({RIVAL_PROBLEMS} problems, K up "
        f"to {RIVALS_UP_TO}): the same for them; NaN if R-hat is above {CONVERGED:g}.",
    )
