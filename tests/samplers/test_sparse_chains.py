"""Chains for sparse priors: draws of the posterior stay draws of the posterior, and supports are found."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from scipy import stats

import balson_jax as balson
from balson_jax.experiments.scenes import smooth_spectra
from balson_jax.samplers.chains.rates import Rates
from balson_jax.samplers.chains.walkers import Population, Walkers
from balson_jax.targets import Needs, find_optimum, target_of

KEY, NUM_ROWS, NUM_PROBLEMS, MOVES = jax.random.key(0), 40, 64, 8


def sparse_shares(rng, alpha, count):
    """Return logarithms of draws from a Dirichlet, also of those that floats can't hold."""
    log_gamma = np.log(rng.gamma(alpha + 1, size=(count, len(alpha)))) + np.log(rng.random((count, len(alpha)))) / alpha
    return log_gamma - np.logaddexp.reduce(log_gamma, 1)[:, None]


@functools.partial(jax.jit, static_argnames="moves")
def moved(key, log_omega, problem, moves):
    """Return logarithms of places of walkers that all began at one place of each problem, after some moves."""
    target = target_of(problem, find_optimum(problem, key, Needs(True, True)))
    population = Population.of(target, 1, 16)
    rates = Rates.of(population)
    log_omega = jnp.broadcast_to(log_omega[None, :, :, None], (2, *log_omega.shape, population.count))
    empty, ones = jnp.zeros((2, len(log_omega[0]), 0, population.count)), jnp.ones((2, len(log_omega[0]), 1))
    first = Walkers(log_omega, jnp.exp(log_omega), empty, jnp.broadcast_to(ones, log_omega[:, :, 0].shape))

    def step(number, walkers):
        own = jax.random.fold_in(key, number)
        return population.refresh(jax.random.fold_in(own, 1), rates.move(own, walkers))

    return lax.fori_loop(0, moves, step, population.refresh(key, first)).log_omega


def statistics(log_omega, design):
    """Return functions of places, ``(..., n)``: of each component, and of all."""
    omega = np.exp(log_omega)
    parts = [omega, omega > 1e-2, omega > 1e-4, np.maximum(log_omega, -12.0), np.sort(omega, -1)[..., -3:]]
    sums = [np.square(omega), np.square(omega @ design.T), omega > 1e-3]
    return np.concatenate([*parts, *(part.sum(-1, keepdims=True) for part in sums)], -1)


@pytest.mark.slow
@pytest.mark.parametrize(("num_components", "alpha", "noise"), [(12, 0.1, 0.01), (12, 0.4, "unknown"), (30, 0.1, 0.03)])
def test_draws_of_the_posterior_stay_draws_of_it(num_components, alpha, noise):
    """A place from the prior is a draw of the posterior given data made from it (Geweke 2004).

    After some moves it must still be one: means of any function over problems stay. Problems share random numbers, so
    errors come from independent repetitions. A false alarm has a probability of 1 %.
    """
    rng = np.random.default_rng(num_components)
    design = smooth_spectra(rng, NUM_ROWS, num_components)
    prior = np.minimum(alpha * np.linspace(0.6, 1.4, num_components), 1)
    changes, distances = [], []
    for repetition in range(32):
        log_omega = sparse_shares(rng, prior, NUM_PROBLEMS)
        level = noise if noise != "unknown" else 0.1 / np.sqrt(rng.gamma(5.0, size=(NUM_PROBLEMS, 1)))
        targets = np.exp(log_omega) @ design.T + level * rng.normal(size=(NUM_PROBLEMS, NUM_ROWS))
        own = noise if noise != "unknown" else balson.InverseGamma(shape=5.0, scale=0.01)
        problem = balson.linear_problem(design, targets, noise=own, prior=prior).flatten_batch()
        start = np.maximum(log_omega, -80).astype(np.float32)
        found = np.moveaxis(np.asarray(moved(jax.random.key(repetition), start, problem, MOVES), np.float64), 2, 3)
        before, after = statistics(start.astype(np.float64), design), statistics(found, design).mean((0, 2))
        changes.append((after - before).mean(0)[1:])  # the first share is what the others leave
        distances.append(np.abs(np.exp(found[0, :, 0]) - np.exp(start)).sum(-1).mean())
    assert np.mean(distances) > 0.1
    p_values = stats.ttest_1samp(changes, 0.0).pvalue
    assert np.nanmin(p_values) * len(p_values) > 0.01


@pytest.mark.slow
def test_sparse_prior_alone():
    """Data that say nothing: shares have exact Beta distributions, of which almost all mass is invisibly small."""
    prior = np.linspace(0.02, 0.3, 20)
    problem = balson.linear_problem(np.eye(20), np.zeros(20), noise=1e4, prior=prior)
    found = balson.fit(KEY, problem, balson.HitAndRun(target_ess=2000.0))
    assert found.status == 0
    total = prior.sum()
    mean, variance = prior / total, prior * (total - prior) / (total**2 * (total + 1))
    np.testing.assert_array_less(np.abs(found.mean - mean), 4.5 * np.sqrt(variance / float(found.ess)))
    np.testing.assert_allclose(np.square(found.std), variance, rtol=0.35)


@pytest.mark.slow
@pytest.mark.parametrize("prior", [0.3, 0.1])
def test_many_components_of_which_few_are_present(prior):
    """Forty similar columns: two keys agree, and what is certainly present is found."""
    rng = np.random.default_rng(3)
    design = smooth_spectra(rng, 120, 40)
    truth = np.zeros(40)
    truth[[3, 17, 30]] = 0.5, 0.3, 0.2
    problem = balson.linear_problem(design, design @ truth + 0.01 * rng.normal(size=120), noise=0.01, prior=prior)
    first, second = (balson.fit(jax.random.key(number), problem, balson.HitAndRun()) for number in (1, 2))
    for found in (first, second):
        assert found.status == 0
        assert found.rhat <= 1.01
    error = np.hypot(first.mean_stderr, second.mean_stderr)
    np.testing.assert_array_less(np.abs(first.mean - second.mean), 5 * error)
    residual = np.sqrt(np.mean(np.square(design @ (np.asarray(first.mean) - truth))))
    assert residual < 0.01
