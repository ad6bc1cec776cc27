"""The evidence from walkers that come in from the prior: against quadrature, other samplers, and itself."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import quadrature
from cases import thinned

import balson_jax as balson
from balson_jax.execution.programs import QUICK
from balson_jax.experiments.scenes import smooth_spectra
from balson_jax.samplers.chains import powers
from balson_jax.samplers.chains.tempering import Tempering
from balson_jax.samplers.chains.walkers import Population
from balson_jax.targets import Needs, find_optimum, target_of

KEY, NUM_KEYS, Z = jax.random.key(5), 24, 4.0
PRIORS = {
    "rates": [[0.1, 0.5, 0.9], [0.02, 0.3, 0.05]],
    "hard": [[1.0, 1.0, 1.0]],
    "soft": [[1.0, 2.0, 4.0], [1.5, 1.0, 1.0]],
    "none": [[0.4, 1.0, 3.0]],
}
LEVELS = np.linspace(np.log(1e-3), np.log(1e3), 4001)
"""Logarithms of noise levels at which likelihoods are summed up."""


def cases(walls, noise):
    """Return asymmetric problems with three components, weak and strong, and their log-evidences by quadrature."""
    rng = np.random.default_rng(3)
    design = rng.normal(size=(7, 3)) + np.arange(3)
    grid = [(prior, level) for prior in PRIORS[walls] for level in (0.05, 0.5)]
    targets = np.stack([design @ [0.15, 0.6, 0.25] + level * rng.normal(size=7) for _, level in grid])
    prior, levels = np.array([prior for prior, _ in grid]), np.array([level for _, level in grid])
    problem = balson.linear_problem(
        design, targets, prior=prior, noise=levels if noise == "known" else balson.InverseGamma(1.5, 0.1)
    )
    return problem, [exact(design, *case, noise) for case in zip(targets, prior, levels, strict=True)]


def exact(design, target, prior, level, noise):
    """Return the log-evidence, that of an unknown noise as a sum over its levels."""
    if noise == "known":
        return quadrature.posterior(design, target, prior, noise=level).log_evidence
    omega, weights = quadrature.simplex_rule(prior, 100)
    half_square = 0.5 * np.square(target - omega @ design.T).sum(-1)
    own = [
        quadrature.noise_log_likelihoods(part, len(target), LEVELS, 1.5, 0.1)
        for part in np.array_split(half_square, 40)
    ]
    logs = np.concatenate([np.logaddexp.reduce(part, 1) for part in own]) + np.log(LEVELS[1] - LEVELS[0])
    return float(np.logaddexp.reduce(logs[weights > 0] + np.log(weights[weights > 0])))


@functools.partial(jax.jit, static_argnames=("walls", "wrong"), compiler_options=QUICK)
def arrivals(keys, problem, walls, wrong=1.0):
    """Return the log-evidences of problems and their errors, ``(keys, B)``; ``wrong`` names another program."""
    target = target_of(problem, find_optimum(problem, keys[0], Needs(True, True)))
    come_in = Tempering.of(target, 16, walls)
    found = jax.lax.map(lambda key: come_in.run(key, ~target.valid), keys)
    return target.log_peak + found.log_mean, found.stderr


def checked(found, stderr, truth):
    """Return in how many errors of many keys the mean evidence is off, and the spread over the errors claimed."""
    ratio = np.exp(np.asarray(found, np.float64) - truth)
    off = np.abs(ratio.mean(0) - 1) / (ratio.std(0, ddof=1) / np.sqrt(len(ratio)))
    claimed = np.sqrt(np.square(stderr).mean(0))
    return off, np.asarray(found, np.float64).std(0, ddof=1) / claimed


EVERY = [(walls, noise) for walls in PRIORS for noise in ("known", "unknown")]


@thinned("walls,noise", [], EVERY)
def test_against_quadrature(walls, noise):
    """The mean evidence over keys is that of quadrature, and errors are about those claimed.

    Evidences of all keys together are unbiased and about normal. A false alarm has a probability of 1e-3 for each of
    the walls: up to four problems, four errors of 24 keys. Spreads of 24 keys are known to 15 %.
    """
    problem, truth = cases(walls, noise)
    found, stderr = arrivals(jax.random.split(KEY, NUM_KEYS), problem.flatten_batch(), walls)
    off, spread = checked(found, stderr, np.array(truth))
    assert (off < Z).all(), off
    assert (spread < 1.7).all(), spread
    assert (spread > 0.3).all(), spread
    assert (np.abs(found - np.array(truth)) < 6 * stderr).all()


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [0.9, 1.1])
def test_a_wrong_power_is_seen(wrong, monkeypatch):
    """Walkers that move under another power than that of their weights give another evidence."""
    right = Population.tempered
    monkeypatch.setattr(Population, "tempered", lambda self, power: right(self, wrong * power))
    problem, truth = cases("rates", "unknown")
    found, stderr = arrivals(jax.random.split(KEY, NUM_KEYS), problem.flatten_batch(), "rates", wrong)
    assert checked(found, stderr, np.array(truth))[0].max() > 2 * Z


# --- more components -------------------------------------------------------------------------------------------------


def mixtures(num_components, noise, count=4, seed=0):
    """Return targets that are mixtures of three of many similar columns, with a strong signal."""
    rng = np.random.default_rng(seed)
    design = smooth_spectra(rng, 100, num_components)
    theta = np.zeros((count, num_components))
    for own in theta:
        own[rng.choice(num_components, 3, replace=False)] = 0.5, 0.3, 0.2
    return design, theta @ design.T + noise * rng.normal(size=(count, 100))


@thinned("noise", [], ["known", "unknown"])
def test_against_importance_sampling(noise):
    """Eight components, concentrations below, at and above one: with half a million draws of TG; false alarms 1e-3."""
    design, targets = mixtures(8, 0.02, 2)
    for prior in (0.3, 1.0, 3.0):
        options = {"prior": prior} | ({"noise": 0.02} if noise == "known" else {})
        problem = balson.linear_problem(design, targets, **options)
        expected = balson.fit(KEY, problem, balson.TG(1 << 19, keep=0))
        found = balson.fit(KEY, problem, balson.HitAndRun(evidence=True))
        assert (found.status == 0).all()
        error = np.hypot(found.log_evidence_stderr, expected.log_evidence_stderr)
        np.testing.assert_array_less(np.abs(found.log_evidence - expected.log_evidence), Z * error)


@pytest.mark.slow
@pytest.mark.parametrize("prior", [0.1, 0.3, 1.0])
def test_keys_agree_for_many_components(prior):
    """Forty similar columns and strong data: errors below 0.3 nats, and two keys within four of them."""
    design, targets = mixtures(40, 0.01, 2)
    problem = balson.linear_problem(design, targets, prior=prior, noise=0.01)
    method = balson.HitAndRun(evidence=True)
    first, second = (balson.fit(jax.random.key(number), problem, method) for number in (1, 2))
    for found in (first, second):
        assert (found.log_evidence_stderr < 0.3).all()
        assert (found.status == 0).all()
    error = np.hypot(first.log_evidence_stderr, second.log_evidence_stderr)
    np.testing.assert_array_less(np.abs(first.log_evidence - second.log_evidence), Z * error)


@pytest.mark.slow
def test_chains_agree_with_chains_that_began_elsewhere():
    """Chains that begin where walkers from the prior arrive have the same means; 12 components, false alarms 1e-3."""
    design, targets = mixtures(12, 0.02, 2)
    problem = balson.linear_problem(design, targets, prior=0.5, noise=0.02)
    plain, found = (balson.fit(KEY, problem, balson.HitAndRun(evidence=own)) for own in (False, True))
    assert np.isnan(plain.log_evidence).all()
    assert (found.status == 0).all()
    error = np.hypot(plain.mean_stderr, found.mean_stderr)
    np.testing.assert_array_less(np.abs(plain.mean - found.mean), 4.5 * error)


# --- parts -----------------------------------------------------------------------------------------------------------


def test_next_power():
    """Steps leave the share of effective walkers that is wanted, and end at one; outliers don't stop them."""
    log_ratio = -jnp.abs(jax.random.normal(KEY, (3, 4096))) * jnp.array([[1e4], [10.0], [0.01]])
    log_ratio = log_ratio.at[:, 0].set(-1e12)
    power = powers.next_power(jnp.array([0.0, 0.2, 0.2]), log_ratio)
    share = powers.effective_share((power - jnp.array([0.0, 0.2, 0.2]))[:, None] * log_ratio)
    np.testing.assert_allclose(share[:2], powers.SHARE, atol=0.01)
    assert power[2] == 1
    assert powers.next_power(jnp.ones(3), log_ratio).tolist() == [1, 1, 1]


def test_resampling_follows_the_weights():
    """Each draw is taken as often as its weight says, or once less or more."""
    log_weights = jnp.log(jnp.array([[[0.5, 0.25, 0.15, 0.1] * 4, [1.0] + [0.0] * 15]]))
    chosen = np.asarray(powers.resampled(KEY, log_weights))[0]
    weights = np.exp(np.asarray(log_weights))[0]
    for own, weight in zip(chosen, weights, strict=True):
        counts = np.bincount(own, minlength=16)
        assert (np.abs(counts - 16 * weight / weight.sum()) < 1).all()
    assert (np.diff(chosen[0]) < 0).any()  # in random order


def test_combined():
    """The mean of estimates, not of their logarithms."""
    log_mean, stderr = powers.combined(jnp.log(jnp.array([[1.0, 2.0, 3.0], [1.0, 1.0, 1.0]])), jnp.array([0.0, 0.04]))
    np.testing.assert_allclose(np.exp(log_mean), [2.0, 1.0], rtol=1e-6)
    assert stderr[0] == pytest.approx(max(np.std([0.5, 1, 1.5], ddof=1), np.log([1, 2, 3]).std(ddof=1)) / np.sqrt(3))
    assert stderr[1] == pytest.approx(0.2)
