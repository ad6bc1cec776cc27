"""Unknown noise: against quadrature over theta and the noise, and what becomes of it at the edges."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import quadrature
from cases import batch
from scipy import special, stats

import balson_jax as balson
from balson_jax import density
from balson_jax.noise import match_posterior

Z = 4.0
PRIORS = {"scale-invariant": (0.0, 0.0), "inverse gamma": (2.0, 0.8)}
METHODS = {
    "rs": balson.RS(num_draws=8_192, keep=4096),
    "is": balson.IS(num_draws=65_536, points="pseudo", keep=4096),
}
LOG_LEVELS = np.linspace(np.log(1e-3), np.log(1e3), 1500)


def noise_prior(name: str):
    return "estimate" if name == "scale-invariant" else balson.InverseGamma(*PRIORS[name])


@functools.cache
def fitted(num_components: int, prior: str, method: str) -> balson.Posterior:
    cases = batch(num_components)
    options = {"noise": noise_prior(prior), "prior": cases.prior, "total": cases.total}
    return balson.fit(jax.random.key(3), balson.linear_problem(cases.design, cases.target, **options), METHODS[method])


def integrated(cases, p: int, prior: str):
    """Return nodes of omega, their weights, log-likelihoods with the noise summed over a grid, and its mean at each."""
    omega, weights = quadrature.simplex_rule(cases.prior[p], order=60)
    half_square = 0.5 * np.square(cases.target[p] - cases.total[p] * omega @ cases.design[p].T).sum(-1)
    logs = quadrature.noise_log_likelihoods(half_square, cases.target.shape[1], LOG_LEVELS, *PRIORS[prior])
    step = LOG_LEVELS[1] - LOG_LEVELS[0]
    log_lik = special.logsumexp(logs, axis=1) + np.log(step)
    given_omega = np.exp(logs + np.log(step) - log_lik[:, None])
    return omega, weights, log_lik, given_omega


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("method", ["rs", "is"])
def test_posteriors_agree_with_quadrature_over_theta_and_noise(prior, method):
    """Three dimensions: two of omega, on Gauss-Jacobi nodes, and the noise, on a fine grid."""
    cases, found = batch(3), fitted(3, prior, method)
    assert (found.status == balson.Status.OK).all()
    for p in (0, 2, 5, 8, 10):
        omega, weights, log_lik, given_omega = integrated(cases, p, prior)
        truth = quadrature.integrate(log_lik, weights, omega)
        root, total = np.sqrt(METHODS[method].num_draws), cases.total[p]
        mean_error = getattr(truth, f"{method}_mean_error") / root
        variance_error = getattr(truth, f"{method}_variance_error") / root
        rate = float(found.acceptance_rate[p])
        evidence_error = truth.is_log_evidence_error / root if method == "is" else np.sqrt((1 - rate) / root**2)
        assert (np.abs(found.mean[p] / total - truth.mean) < Z * mean_error + 1e-6).all()
        assert (np.abs(np.square(found.std[p] / total) - truth.variance) < Z * variance_error + 1e-6).all()
        assert abs(float(found.log_evidence[p]) - truth.log_evidence) < Z * evidence_error + 1e-3
        # The noise: its mean, and the exact probability below the ends of its interval.
        posterior = weights * np.exp(log_lik - truth.log_evidence)
        marginal = posterior @ given_omega
        levels = np.exp(LOG_LEVELS)
        exact_mean = marginal @ levels
        exact_std = np.sqrt(marginal @ np.square(levels - exact_mean))
        # A mixture of inverse gammas, matched by one: with six rows its mean is off by hundredths of its spread.
        assert abs(float(found.noise.mean[p]) - exact_mean) < 0.06 * exact_std
        for end, probability in zip(found.noise.interval(0.8), (0.1, 0.9), strict=True):
            below = np.interp(np.log(float(end[p])), LOG_LEVELS, np.cumsum(marginal) - 0.5 * marginal)
            assert abs(below - probability) < 0.012
    assert found.noise.shape.shape == (12,)


def test_the_mixture_is_matched_in_the_logarithm(x64):
    """Mean and variance of ln s^2 of a mixture of inverse gammas, against draws of it."""
    rng = np.random.default_rng(0)
    half_square, weights = rng.uniform(1, 4, 50), rng.dirichlet(np.ones(50))
    found = match_posterior(balson.InverseGamma(jnp.array(1.0), jnp.array(0.5)), jnp.array(9.0), half_square, weights)
    shape = 1.0 + 4.5
    log_scale = np.log(0.5 + half_square)
    mean = weights @ log_scale
    variance = weights @ np.square(log_scale - mean)
    assert float(jnp.log(found.scale)) - special.digamma(float(found.shape)) == pytest.approx(
        mean - special.digamma(shape), abs=1e-9
    )
    assert special.polygamma(1, float(found.shape)) == pytest.approx(special.polygamma(1, shape) + variance, rel=1e-9)


@pytest.mark.parametrize("shape", [0.7, 1.4, 6.0, 19.9, 20.1, 900.0, 2e4])
def test_the_inverse_gamma_against_scipy(shape, dtype):
    exact = stats.invgamma(shape, scale=0.3)
    found = balson.InverseGamma(jnp.asarray(shape, dtype), jnp.asarray(0.3, dtype))
    tolerance = 2e-5 if dtype == "float32" else 1e-8
    log_mean = special.gammaln(shape - 0.5) - special.gammaln(shape)
    mean = np.sqrt(0.3) * np.exp(log_mean)
    assert float(found.mean) == pytest.approx(mean, rel=max(tolerance, 1e-10 * shape))
    if shape > 1:
        near = 1 / (4 * shape) if shape > 1000 else -np.expm1(2 * log_mean + np.log(shape - 1))
        std = np.sqrt(0.3 / (shape - 1) * near)
        assert float(found.std) == pytest.approx(std, rel=1e-3)
    for end, probability in zip(found.interval(0.9), (0.05, 0.95), strict=True):
        assert float(end) == pytest.approx(np.sqrt(exact.ppf(probability)), rel=max(tolerance, 1e-6))


def test_likelihoods_with_the_noise_integrated_out(x64):
    rng = np.random.default_rng(1)
    design, target = rng.normal(size=(6, 3)), rng.normal(size=6)
    omega = rng.dirichlet(np.ones(3), 4)
    half_square = 0.5 * np.square(target - omega @ design.T).sum(-1)
    for name, (shape, scale) in PRIORS.items():
        logs = quadrature.noise_log_likelihoods(half_square, 6, LOG_LEVELS, shape, scale)
        expected = special.logsumexp(logs, axis=1) + np.log(LOG_LEVELS[1] - LOG_LEVELS[0])
        problem = balson.linear_problem(design, target, noise=noise_prior(name))
        np.testing.assert_allclose(density.log_likelihood(problem, omega), expected, rtol=1e-9)


def test_a_strong_prior_is_a_known_noise():
    rng = np.random.default_rng(2)
    design, target = rng.normal(size=(9, 3)), rng.normal(size=9)
    firm = balson.InverseGamma(shape=1e6, scale=1e6 * 0.6**2)
    method = balson.IS(num_draws=8192)
    unknown, known = (
        balson.fit(jax.random.key(0), balson.linear_problem(design, target, noise=noise), method)
        for noise in (firm, 0.6)
    )
    np.testing.assert_allclose(unknown.mean, known.mean, atol=2e-4)
    # The constants of a prior of shape 1e6 are differences of numbers of order 1e7, in float32.
    assert float(unknown.noise.mean) == pytest.approx(0.6, rel=1e-3)
    assert known.noise is None


def test_the_answer_scales_with_the_data():
    """Under the scale-invariant prior only the ratio of noise to signal counts: the default is safe in any units."""
    rng = np.random.default_rng(4)
    design = rng.normal(size=(12, 3)) + 1
    target = design @ [0.2, 0.7, 0.1] + 0.2 * rng.normal(size=12)
    method = balson.IS(num_draws=4096)
    one = balson.fit(jax.random.key(0), balson.linear_problem(design, target), method)
    for factor in (1e-4, 1e4):
        other = balson.fit(jax.random.key(0), balson.linear_problem(factor * design, factor * target), method)
        np.testing.assert_allclose(other.mean, one.mean, rtol=2e-3)
        np.testing.assert_allclose(other.noise.mean, factor * one.noise.mean, rtol=1e-3)
        assert other.status == one.status


@pytest.mark.parametrize("rows", ["perfect", "fewer than parameters"])
def test_a_perfect_fit_has_no_noise_to_estimate(rows):
    rng = np.random.default_rng(5)
    design = rng.normal(size=(12 if rows == "perfect" else 1, 3)) + 1
    target = design @ [0.2, 0.7, 0.1]
    found = balson.fit(jax.random.key(0), balson.linear_problem(design, target), balson.IS(num_draws=4096))
    assert balson.Status.IMPROPER in balson.Status(int(found.status))
    for leaf in jax.tree.leaves(found):
        assert not jnp.isnan(leaf).any()
    with pytest.raises(balson.FitError, match="State the noise"):
        found.raise_for_status()
    # With a proper prior there is a posterior.
    prior = balson.InverseGamma(1.0, 0.1)
    proper = balson.fit(jax.random.key(0), balson.linear_problem(design, target, noise=prior), balson.IS(4096))
    assert proper.status == balson.Status.OK


def test_the_noise_needs_no_kept_draws():
    rng = np.random.default_rng(6)
    design, target = rng.normal(size=(30, 3)), rng.normal(size=(4, 30))
    problem = balson.linear_problem(design, target)
    few, many = (balson.fit(jax.random.key(0), problem, balson.IS(8192, keep=keep)) for keep in (0, 4096))
    assert few.draws.shape == (4, 0, 3)
    assert (jnp.abs(few.noise.mean - many.noise.mean) < 0.05 * many.noise.std).all()
