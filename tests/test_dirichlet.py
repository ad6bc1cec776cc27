"""The Dirichlet distribution against SciPy, moment matching against exact moments, and the sparse mode's edges."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import thinned
from scipy import stats

from balson_jax import dirichlet

SIZES = (2, 3, 10, 1000)
RANGES = ((0.01, 0.1), (0.1, 10.0), (10.0, 1e3), (1e5, 1e6), (0.01, 1e6))


def alphas():
    rng = np.random.default_rng(0)
    return [np.exp(rng.uniform(*np.log(limits), size)) for size in SIZES for limits in RANGES]


@pytest.mark.parametrize("match", ["ratio", "geometric", "mean", "kl"])
def test_matching_recovers_alpha_from_exact_moments(match, x64):
    recover = jax.jit(
        lambda alpha: dirichlet.from_moments(
            dirichlet.mean(alpha), dirichlet.variance(alpha), match, log_mean=dirichlet.log_mean(alpha)
        )
    )
    for alpha in alphas():
        alpha = jnp.asarray(alpha)
        found = recover(alpha)
        # m (1 - m) / v - 1 loses the digits that alpha_0 is below 1; E[ln omega] fixes alpha_0 only through terms of
        # relative size 1 / alpha_0.
        precision = float(alpha.sum())
        conditioning = 1 / precision + 10 if match != "kl" else 1e2 * max(precision / len(alpha), 10)
        np.testing.assert_allclose(found, alpha, rtol=100 * conditioning * np.finfo(float).eps)


@pytest.mark.parametrize("match", ["ratio", "geometric", "mean"])
def test_matching_in_float32(match):
    for alpha in alphas():
        alpha = jnp.asarray(alpha, jnp.float32)
        found = dirichlet.from_moments(dirichlet.mean(alpha), dirichlet.variance(alpha), match)
        assert found.dtype == jnp.float32
        np.testing.assert_allclose(found, alpha, rtol=100 * (1 / float(alpha.sum()) + 1) * np.finfo(np.float32).eps)


@pytest.mark.parametrize("match", ["ratio", "geometric", "mean", "kl"])
def test_matching_degenerate_samples_stays_finite(match):
    one_point = dirichlet.from_moments(
        jnp.array([0.2, 0.8]), jnp.zeros(2), match, log_mean=jnp.log(jnp.array([0.2, 0.8]))
    )
    vertices = dirichlet.from_moments(
        jnp.array([0.3, 0.7]), jnp.array([0.21, 0.21]), match, log_mean=jnp.array([-1e8, -1e8])
    )
    absent = dirichlet.from_moments(
        jnp.array([0.0, 0.4, 0.6]), jnp.array([0.0, 0.01, 0.01]), match, log_mean=jnp.array([-1e4, -0.9, -0.5])
    )
    for alpha in (one_point, vertices, absent):
        assert jnp.isfinite(alpha).all()
        assert (alpha > 0).all()
    assert one_point.sum() > 1e4


def test_an_unknown_rule_lists_the_known_ones():
    with pytest.raises(ValueError, match="ratio, geometric, mean, kl"):
        dirichlet.from_moments(jnp.ones(2) / 2, jnp.ones(2) / 12, "median")  # pyright: ignore
    with pytest.raises(ValueError, match="log_mean"):
        dirichlet.from_moments(jnp.ones(2) / 2, jnp.ones(2) / 12, "kl")


@pytest.mark.slow
def test_from_log_mean_has_the_derivatives_of_the_solution(x64):
    alpha = jnp.array([0.4, 2.0, 7.0])
    # from_log_mean inverts log_mean, so their Jacobians are inverse matrices.
    forward = jax.jacobian(dirichlet.log_mean)(alpha)
    backward = jax.jacobian(dirichlet.from_log_mean)(dirichlet.log_mean(alpha))
    np.testing.assert_allclose(backward @ forward, np.eye(3), atol=1e-9)


def test_density_moments_entropy_against_scipy(x64):
    alpha = np.array([0.4, 2.0, 7.0])
    omega = np.random.default_rng(1).dirichlet(alpha, 50)
    expected = [stats.dirichlet(alpha).logpdf(point) for point in omega]
    np.testing.assert_allclose(dirichlet.log_prob(jnp.asarray(alpha), omega), expected, rtol=1e-10)
    np.testing.assert_allclose(dirichlet.log_prob(jnp.asarray(alpha), log_omega=np.log(omega)), expected, rtol=1e-10)
    np.testing.assert_allclose(dirichlet.mean(jnp.asarray(alpha)), stats.dirichlet(alpha).mean(), rtol=1e-12)
    np.testing.assert_allclose(dirichlet.variance(jnp.asarray(alpha)), stats.dirichlet(alpha).var(), rtol=1e-12)
    np.testing.assert_allclose(dirichlet.entropy(jnp.asarray(alpha)), stats.dirichlet(alpha).entropy(), rtol=1e-12)


def test_kl_divergence_is_the_expected_log_ratio(x64):
    a, b = jnp.array([2.0, 3.0, 0.7]), jnp.array([1.0, 4.0, 1.5])
    omega = np.random.default_rng(2).dirichlet(a, 200_000)
    ratio = np.asarray(dirichlet.log_prob(a, omega) - dirichlet.log_prob(b, omega))
    assert abs(float(dirichlet.kl_divergence(a, b)) - ratio.mean()) < 4 * ratio.std() / np.sqrt(len(ratio))
    assert abs(float(dirichlet.kl_divergence(a, a))) < 1e-12


def test_density_on_the_boundary():
    assert dirichlet.log_prob(jnp.array([1.0, 2.0]), jnp.array([0.0, 1.0])) == pytest.approx(np.log(2), rel=1e-5)
    assert dirichlet.log_prob(jnp.array([2.0, 1.0]), jnp.array([0.0, 1.0])) == -np.inf
    assert dirichlet.log_prob(jnp.array([0.5, 1.0]), jnp.array([0.0, 1.0])) == np.inf


@pytest.mark.parametrize(
    ("alpha", "expected"),
    [
        ([3.0, 2.0, 2.0], [0.5, 0.25, 0.25]),
        ([0.5, 2.0, 4.0], [0.0, 0.25, 0.75]),
        ([0.5, 1.0, 1.5], [0.0, 0.0, 1.0]),  # one above 1; exactly 1 counts as not above
        ([0.2, 0.9, 0.5], [0.0, 1.0, 0.0]),  # none above 1: the largest takes all
        ([0.5, 0.5, 0.2], [1.0, 0.0, 0.0]),  # a tie: the first
        ([1.0, 1.0, 1.0], [1.0, 0.0, 0.0]),  # flat: any point is a mode, a vertex is a sparse one
        ([1e6, 1e6, 1e-6], [0.5, 0.5, 0.0]),
    ],
)
def test_sparse_mode(alpha, expected):
    found = dirichlet.mode(jnp.array(alpha))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert ((found == 0) == (np.array(expected) == 0)).all()


def test_sparse_mode_of_a_batch():
    alpha = jnp.array([[2.0, 3.0], [0.5, 0.4], [0.5, 1.5]])
    np.testing.assert_allclose(dirichlet.mode(alpha), [[1 / 3, 2 / 3], [1, 0], [0, 1]], rtol=1e-6)


@thinned("level", [0.9], [0.5, 0.99])
def test_marginal_intervals_against_scipy(level, dtype):
    alpha = np.array([[0.3, 0.7, 4.0], [1.0, 4.0, 30.0], [2.0, 80.0, 1e6], [1e4, 1e5, 5e5]])
    lower, upper = dirichlet.marginal_interval(jnp.asarray(alpha, dtype), level)
    rest = alpha.sum(-1, keepdims=True) - alpha
    tail = (1 - level) / 2
    expected = stats.beta.ppf(tail, alpha, rest), stats.beta.isf(tail, alpha, rest)
    width = expected[1] - expected[0]
    # Relative to the width, down to the spacing of numbers near the ends.
    tolerance = (1e-3 if dtype == "float32" else 1e-8) * width + np.finfo(dtype).eps
    assert (np.abs(lower - expected[0]) < tolerance).all()
    assert (np.abs(upper - expected[1]) < tolerance).all()
