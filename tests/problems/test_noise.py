"""Unknown noise: against quadrature over theta and the noise, and what becomes of it at the edges."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import quadrature
from cases import FAST, batch, thinned
from scipy import special, stats

import balson_jax as balson
from balson_jax.problems.noise_posterior import mixture
from balson_jax.targets import functions as density

Z = 4.0
PRIORS = {"scale-invariant": (0.0, 0.0), "inverse gamma": (2.0, 0.8)}
METHODS = {
    "rs": balson.RS(num_draws=8_192, keep=4096),
    "is": balson.IS(num_draws=1 << 20, points="pseudo", keep=32_768),
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


@thinned(
    "which",
    [],
    [("inverse gamma", "is"), ("scale-invariant", "rs"), ("scale-invariant", "is"), ("inverse gamma", "rs")],
)
def test_posteriors_agree_with_quadrature_over_theta_and_noise(which):
    """Three dimensions: two of omega, on Gauss-Jacobi nodes, and the noise, on a fine grid."""
    prior, method = which
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
        # All draws are averaged: the noise's mean and its mean square deviation, given omega.
        given, square = given_omega @ levels, given_omega @ np.square(levels - exact_mean)
        averages = quadrature.integrate(log_lik, weights, np.stack([given, square], axis=-1))
        mean_error, square_error = getattr(averages, f"{method}_mean_error") / root
        assert abs(float(found.noise.mean[p]) - exact_mean) < Z * mean_error + 1e-3 * exact_std
        assert abs(float(found.noise.std[p]) ** 2 - exact_std**2) < Z * square_error + 2e-3 * exact_std**2
        assert mean_error < 0.02 * exact_std
        assert square_error < 0.05 * exact_std**2
        for end, probability in zip(found.noise.interval(0.8), (0.1, 0.9), strict=True):
            below = np.interp(np.log(float(end[p])), LOG_LEVELS, np.cumsum(marginal) - 0.5 * marginal)
            assert abs(below - probability) < 0.006
    assert found.noise.mean.shape == (12,)


def test_the_mixture_over_theta(x64):
    """A mixture of inverse gammas over weighted draws, against its own moments and distribution function."""
    rng = np.random.default_rng(0)
    half_square, weights = rng.uniform(1, 9, (2, 400)) ** 2, rng.dirichlet(np.ones(400), 2)
    weights[1, ::2] = 0
    weights[1] /= weights[1].sum()
    half_square[1, ::2] = np.nan
    shape, scale, num_rows = np.array([1.0, 3.0]), np.array([0.5, 2.0]), np.array([3.0, 9.0])
    prior = balson.InverseGamma(jnp.asarray(shape), jnp.asarray(scale))
    found = prior.posterior(jnp.asarray(num_rows), half_square, weights)
    lower, upper = found.interval(0.8)
    for p in range(2):
        counts = weights[p] > 0
        w, component = (
            weights[p][counts],
            stats.invgamma(shape[p] + num_rows[p] / 2, scale=scale[p] + half_square[p][counts]),
        )
        power = shape[p] + num_rows[p] / 2
        roots = np.sqrt(scale[p] + half_square[p][counts]) * np.exp(
            special.gammaln(power - 0.5) - special.gammaln(power)
        )
        mean = w @ roots
        assert float(found.mean[p]) == pytest.approx(mean, rel=1e-3)
        assert float(found.std[p]) == pytest.approx(np.sqrt(w @ component.mean() - mean**2), rel=5e-3)
        assert w @ component.cdf(float(lower[p]) ** 2) == pytest.approx(0.1, abs=2e-3)
        assert w @ component.cdf(float(upper[p]) ** 2) == pytest.approx(0.9, abs=2e-3)


def test_the_mixture_has_the_moments_of_all_draws():
    """Few kept draws, which may be far off: the mean of the level is that of all."""
    shape, none = jnp.full(3, 6.0), jnp.zeros(3, bool)
    scales = jnp.stack([jnp.linspace(0.2, 4, 64), jnp.ones(64).at[0].set(900.0), jnp.full(64, 2.0)])
    weights = jnp.full((3, 64), 1 / 64)
    moments = jnp.array([1.1, 1.0, 1.3]), jnp.array([0.04, 0.5, 0.001]), jnp.full(3, 0.01)
    found = mixture(shape, scales, weights, none, moments)
    roots = jnp.sqrt(found.scales)
    mean = (found.weights * roots).sum(-1)
    np.testing.assert_allclose(mean, moments[0], rtol=1e-5)
    np.testing.assert_allclose((found.weights * jnp.square(roots - mean[:, None])).sum(-1)[0], 0.04, rtol=1e-4)
    assert (found.scales > 0).all()
    assert jnp.isnan(mixture(shape, scales, weights, none).mean_stderr).all()


@pytest.mark.parametrize("shape", [0.7, 1.4, 6.0, 19.9, 20.1, 900.0, 2e4])
def test_one_component_against_scipy(shape, dtype):
    exact = stats.invgamma(shape, scale=0.3)
    one = jnp.ones(1, dtype)
    found = balson.NoisePosterior(jnp.asarray(shape, dtype), 0.3 * one, one, jnp.array(False))
    log_mean = special.gammaln(shape - 0.5) - special.gammaln(shape)
    tolerance = 2e-5 if dtype == "float32" else 1e-9
    assert float(found.mean) == pytest.approx(np.sqrt(0.3) * np.exp(log_mean), rel=tolerance)
    if shape > 1:
        near = 1 / (4 * shape) if shape > 1000 else -np.expm1(2 * log_mean + np.log(shape - 1))
        assert float(found.std) == pytest.approx(np.sqrt(0.3 / (shape - 1) * near), rel=1e-3)
    for end, probability in zip(found.interval(0.9), (0.05, 0.95), strict=True):
        width = np.sqrt(exact.ppf(0.95)) - np.sqrt(exact.ppf(0.05))
        assert float(end) == pytest.approx(np.sqrt(exact.ppf(probability)), abs=2e-3 * width)


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


@pytest.mark.slow
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
    method = FAST["is"]
    one = balson.fit(jax.random.key(0), balson.linear_problem(design, target), method)
    for factor in (1e-4, 1e4):
        other = balson.fit(jax.random.key(0), balson.linear_problem(factor * design, factor * target), method)
        np.testing.assert_allclose(other.mean, one.mean, rtol=2e-3)
        np.testing.assert_allclose(other.noise.mean, factor * one.noise.mean, rtol=1e-3)
        assert other.status == one.status


@thinned("rows", ["perfect"], ["fewer than parameters"])
def test_a_perfect_fit_has_no_noise_to_estimate(rows):
    rng = np.random.default_rng(5)
    design = rng.normal(size=(12 if rows == "perfect" else 1, 3)) + 1
    target = design @ [0.2, 0.7, 0.1]
    found = balson.fit(jax.random.key(0), balson.linear_problem(design, target), FAST["is"])
    assert balson.Status.IMPROPER in balson.Status(int(found.status))
    for leaf in jax.tree.leaves(found):
        assert not jnp.isnan(leaf).any()
    with pytest.raises(balson.FitError, match="State the noise"):
        found.raise_for_status()
    # With a proper prior there is a posterior.
    prior = balson.InverseGamma(1.0, 0.1)
    proper = balson.fit(jax.random.key(0), balson.linear_problem(design, target, noise=prior), FAST["is"])
    assert proper.status == balson.Status.OK


@thinned("which", [], [(1000.0, "linear"), (1000.0, "model"), (0.0, "model"), (100.0, "linear")])
def test_a_small_noise_beside_a_large_signal_keeps_its_digits(which):
    """In float32 the rounding of the signal is as large as the noise, or larger; the residuals are not."""
    offset, kind = which
    rng = np.random.default_rng(7)
    x = np.linspace(0, 1, 1000)
    design = np.stack([offset + x, offset + x**2], axis=1).astype(np.float32)
    target = (design.astype(float) @ [0.3, 0.7] + 0.1 * rng.normal(size=1000)).astype(np.float32)
    if kind == "linear":
        problem = balson.linear_problem(design, target)
    else:
        problem = balson.model_problem(lambda theta, a: a[:, 0] * theta[0] + a[:, 1] * theta[1], design, target, 2)
    found = balson.fit(jax.random.key(0), problem, balson.IS(num_draws=16_384))
    # In float64, from the same data, on the line from one vertex to the other.
    first = np.linspace(0, 1, 20_001)
    residual = target.astype(float) - np.stack([first, 1 - first], 1) @ design.T.astype(float)
    half_square = 0.5 * np.square(residual).sum(-1)
    log_lik = special.gammaln(500) - 500 * np.log(2 * np.pi) - 500 * np.log(half_square)
    log_evidence = special.logsumexp(log_lik) - np.log(len(first))
    p = np.exp(log_lik - special.logsumexp(log_lik))
    mean = p @ first
    assert found.status == balson.Status.OK
    std = np.sqrt(p @ (first - mean) ** 2)
    assert float(found.mean[0]) == pytest.approx(mean, abs=0.2 * std)
    assert float(found.std[0]) == pytest.approx(std, rel=0.05)
    assert float(found.log_evidence) == pytest.approx(log_evidence, abs=0.15)
    assert float(found.noise.mean) == pytest.approx(0.1, rel=0.06)


@pytest.mark.slow
def test_rounding_that_moves_the_answer_is_reported():
    """An offset of ten thousand times the noise's spread: float32 can't tell the columns apart, and float64 can."""
    rng = np.random.default_rng(7)
    x = np.linspace(0, 1, 1000)
    design = np.stack([1e4 + x, 1e4 + x**2], axis=1).astype(np.float32)
    target = design.astype(float) @ [0.3, 0.7] + 0.1 * rng.normal(size=1000)
    for noise in ("estimate", 0.1):
        problem = balson.linear_problem(design, target.astype(np.float32), noise=noise)
        found = balson.fit(jax.random.key(0), problem, balson.IS(num_draws=16_384))
        assert balson.Status.ROUNDING in balson.Status(int(found.status))
    with jax.enable_x64(True):
        problem = balson.linear_problem(design.astype(np.float64), target, noise=0.1)
        assert balson.fit(jax.random.key(0), problem, balson.IS(num_draws=16_384)).status == balson.Status.OK


@pytest.mark.slow
def test_the_noise_needs_no_kept_draws():
    """With 4 rows the noise depends strongly on theta; its moments come from all draws, however few are kept."""
    rng = np.random.default_rng(6)
    design, target = rng.normal(size=(4, 3)), rng.normal(size=(20, 4))
    problem = balson.linear_problem(design, target)
    few, many = (balson.fit(jax.random.key(0), problem, balson.IS(8192, keep=keep)) for keep in (0, 4096))
    assert few.draws.shape == (20, 0, 3)
    np.testing.assert_allclose(few.noise.mean, many.noise.mean, rtol=1e-3)
    np.testing.assert_allclose(few.noise.std, many.noise.std, rtol=1e-2)
    # The quoted standard error is that of refits.
    refits = [balson.fit(jax.random.key(seed), problem, balson.IS(8192, keep=0)).noise.mean for seed in range(24)]
    spread = np.std(refits, axis=0, ddof=1)
    ratio = np.asarray(few.noise.mean_stderr) / spread
    assert 0.6 < np.median(ratio) < 1.6, ratio
    assert (ratio > 0.15).all(), ratio
