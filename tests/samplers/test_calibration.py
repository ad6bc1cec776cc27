"""Simulation-based calibration: parameters drawn from the prior, data from them, and posteriors that know it.

A parameter's rank in its posterior is uniform if and only if the posteriors are right on average (Talts et al. 2018).
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import thinned
from scipy import stats

import balson_jax as balson

NUM_DATASETS, NUM_ROWS = 1000, 12
PRIOR = np.array([0.8, 1.5, 1.0])
NOISE = 0.3
NOISE_PRIOR = (4.0, 0.3)
SLACK_PRIOR = 1.2


@functools.cache
def simulated(kind: str):
    """Return the true theta and noise of a thousand data sets, and their posteriors."""
    rng = np.random.default_rng({"known": 1, "estimated": 2, "scale-invariant": 3}[kind])
    design = rng.normal(size=(NUM_ROWS, 3)) + 0.5
    if kind == "estimated":  # also with the constraint that lifts
        theta = rng.dirichlet([*PRIOR, SLACK_PRIOR], NUM_DATASETS)[:, :3]
        level = np.sqrt(stats.invgamma(NOISE_PRIOR[0], scale=NOISE_PRIOR[1]).rvs(NUM_DATASETS, random_state=rng))
        options = {"noise": balson.InverseGamma(*NOISE_PRIOR), "constraint": "at_most", "slack_prior": SLACK_PRIOR}
    else:
        theta = rng.dirichlet(PRIOR, NUM_DATASETS)
        level = np.full(NUM_DATASETS, NOISE)
        options = {"noise": NOISE if kind == "known" else "estimate"}
    targets = theta @ design.T + level[:, None] * rng.normal(size=(NUM_DATASETS, NUM_ROWS))

    # Keys of their own: problems of a batch share their draws, and so the errors of these.
    def fit(key, target):
        problem = balson.linear_problem(jnp.asarray(design), target, prior=jnp.asarray(PRIOR), **options)
        return balson.fit(key, problem, balson.IS(num_draws=8192, diagnose_tail=False))

    keys = jax.random.split(jax.random.key(7), NUM_DATASETS)
    return theta, level, jax.jit(jax.vmap(fit))(keys, jnp.asarray(targets))


def is_uniform(ranks: np.ndarray, bins: int = 20) -> float:
    counts = np.histogram(ranks, np.linspace(0, 1, bins + 1))[0]
    return stats.chisquare(counts).pvalue


@thinned("kind", [], ["estimated", "known"])
def test_ranks_are_uniform(kind):
    theta, level, found = simulated(kind)
    weights = np.asarray(found.draw_weights)[..., None]
    ranks = (weights * (np.asarray(found.draws) < theta[:, None])).sum(1)
    pvalues = [is_uniform(ranks[:, k]) for k in range(3)]
    if kind == "estimated":
        shape, scales = np.asarray(found.noise.shape, float)[:, None], np.asarray(found.noise.scales, float)
        below = stats.invgamma(shape, scale=scales).cdf(np.square(level)[:, None])
        pvalues.append(is_uniform((np.asarray(found.noise.weights) * below).sum(-1)))
        totals = np.asarray(found.draws).sum(-1)
        pvalues.append(is_uniform((weights[..., 0] * (totals < theta.sum(-1)[:, None])).sum(1)))
    assert min(pvalues) > 1e-3, pvalues


@thinned("kind", [], ["estimated", "known", "scale-invariant"])
def test_intervals_cover_what_they_say(kind):
    theta, level, found = simulated(kind)
    lower, upper = found.interval(0.9)
    covered = ((lower <= theta) & (theta <= upper)).mean(0)
    # 1,000 data sets: the standard error is 1 %.
    assert ((covered > 0.87) & (covered < 0.93)).all(), covered
    if kind != "known":
        lower, upper = found.noise.interval(0.9)
        share = float(((lower <= level) & (level <= upper)).mean())
        assert 0.87 < share < 0.93


@pytest.mark.slow
def test_the_ranks_would_show_a_wrong_noise():
    """The test can fail: with half the noise taken for granted, ranks pile up at the ends."""
    theta, _, _ = simulated("known")
    rng = np.random.default_rng(1)
    design = rng.normal(size=(NUM_ROWS, 3)) + 0.5
    targets = theta[:, :3] @ design.T + NOISE * np.random.default_rng(9).normal(size=(NUM_DATASETS, NUM_ROWS))
    problem = balson.linear_problem(design, targets, prior=PRIOR, noise=NOISE / 2)
    found = balson.fit(jax.random.key(0), problem, balson.IS(num_draws=16_384, diagnose_tail=False))
    weights = np.asarray(found.draw_weights)[..., None]
    ranks = (weights * (np.asarray(found.draws) < theta[:, None])).sum(1)
    assert is_uniform(ranks[:, 1]) < 1e-6
