"""The edges of the problem: extreme priors, sizes, noise levels, designs and targets."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import quadrature
from cases import thinned

import balson_jax as balson
from balson_jax import density, dirichlet

KEY = jax.random.key(0)
RNG_SEED = 12
METHODS = ("is", "isirs")


def assert_sound(found: balson.Posterior, total=1.0):
    """No NaN anywhere, theta on its simplex, a status that is a known flag."""
    for leaf in jax.tree.leaves(found):
        assert not jnp.isnan(leaf).any()
    np.testing.assert_allclose(found.mean.sum(-1), total, rtol=1e-4)
    np.testing.assert_allclose(found.theta.sum(-1), total, rtol=1e-4)
    assert (found.theta >= 0).all()
    lower, upper = found.interval()
    assert (lower <= upper).all()
    assert (found.std >= 0).all()


@pytest.mark.parametrize("alpha", [1e-3, 0.05, 1.0, 1e3, 1e6])
def test_without_data_the_posterior_is_the_prior(alpha):
    """A zero design says nothing: moments and evidence are exact, and all weights are equal."""
    prior = alpha * np.array([1.0, 2.0, 3.0])
    target = np.array([0.3, -0.2, 0.1])
    found = balson.fit(KEY, balson.linear_problem(np.zeros((3, 3)), target, noise=1.0, prior=prior), "is")
    exact_mean, exact_std = dirichlet.mean(jnp.asarray(prior)), jnp.sqrt(dirichlet.variance(jnp.asarray(prior)))
    assert (jnp.abs(found.mean - exact_mean) < 10 * found.mean_stderr + 1e-3 * exact_std + 1e-6).all()
    # Eight replicates of quasi-random points: 3 % is generous except where nearly all mass is at the vertices.
    np.testing.assert_allclose(found.std, exact_std, rtol=0.03)
    assert float(found.log_evidence) == pytest.approx(-0.5 * target @ target - 1.5 * np.log(2 * np.pi), abs=1e-5)
    assert found.ess == pytest.approx(65_536, rel=1e-5)
    assert found.status == balson.Status.OK


@pytest.mark.slow
def test_two_hundred_components():
    rng = np.random.default_rng(RNG_SEED)
    design = rng.normal(size=(60, 200))
    # One column, of a weight of its own, carries the signal.
    design[:, 7] *= 160
    target = 0.025 * design[:, 7] + 5 * rng.normal(size=60)
    problem = balson.linear_problem(design, target, noise=5.0)
    found = balson.fit(KEY, problem, balson.IS(num_draws=1 << 17))
    assert_sound(found)
    assert found.status == balson.Status.OK
    # With the others' small share of the likelihood left out, the signal's component has a one-dimensional posterior.
    x = (np.arange(1 << 14) + 0.5) / (1 << 14)
    rest = design[:, np.arange(200) != 7].mean(1)
    log_density = -np.square(target[:, None] - np.outer(design[:, 7], x) - np.outer(rest, 1 - x)).sum(0) / 50
    log_density = log_density + 198 * np.log1p(-x)  # the marginal of a flat Dirichlet is Beta(1, 199)
    p = np.exp(log_density - log_density.max())
    p /= p.sum()
    exact = x @ p
    std = np.sqrt(np.square(x - exact) @ p)
    assert exact > 1 / 200 + 3 * std  # the data move it by many times the tolerance
    assert abs(float(found.mean[7]) - exact) < 0.1 * std
    np.testing.assert_allclose(found.std[7], std, rtol=0.1)


def test_a_million_rows_cost_one_reduction():
    rng = np.random.default_rng(RNG_SEED)
    omega = np.array([0.5, 0.3, 0.2])
    design = rng.normal(size=(1_000_000, 3)).astype(np.float32)
    target = design @ omega + 30 * rng.normal(size=len(design)).astype(np.float32)
    problem = balson.linear_problem(design, target, noise=30.0)
    assert problem.factor.shape == (3, 3)
    found = balson.fit(KEY, problem, "is")
    assert_sound(found)
    assert (jnp.abs(found.mean - omega) < 4 * found.std).all()
    truth = quadrature.posterior(
        np.asarray(problem.factor, float), np.asarray(problem.projection, float), np.ones(3), noise=30.0
    )
    np.testing.assert_allclose(found.mean, truth.mean, atol=2e-3)


@thinned("method", METHODS[:1], METHODS[1:])
def test_zero_and_duplicate_columns(method):
    rng = np.random.default_rng(RNG_SEED)
    design = rng.normal(size=(30, 3))
    design[:, 1] = design[:, 0]
    design[:, 2] = 0
    found = balson.fit(KEY, balson.linear_problem(design, design @ [0.4, 0.4, 0.2], noise=0.5), method)
    assert_sound(found)
    # Twins cannot be told apart.
    np.testing.assert_allclose(found.mean[0], found.mean[1], atol=5e-3)
    assert found.status == balson.Status.OK


@thinned("noise", [1e-4, 1.0, 1e4], [1e-2, 1e2])
@thinned("method", METHODS[:1], METHODS[1:])
def test_noise_over_eight_decades(noise, method):
    rng = np.random.default_rng(RNG_SEED)
    design = rng.normal(size=(8, 3)) + 1
    targets = design @ [0.6, 0.3, 0.1], np.full(8, 1e3)  # the second lies far outside the cone
    found, far = (balson.fit(KEY, balson.linear_problem(design, target, noise=noise), method) for target in targets)
    for one in (found, far):
        assert_sound(one)
        assert one.ess >= 0.99
    if noise >= 1:
        assert found.status == balson.Status.OK
    if noise <= 1e-4:
        assert found.status != balson.Status.OK
    truth = quadrature.posterior(design, targets[0], np.ones(3), noise=noise) if noise >= 1e-2 else None
    if method == "is" and truth is not None and found.status == 0:
        assert (np.abs(found.mean - truth.mean) < 10 * found.mean_stderr + 1e-5).all()


def test_a_target_far_outside_the_cone_keeps_its_digits():
    """The likelihood is 5e11 nats below a perfect fit, and its differences over the simplex are of order one."""
    design = np.array([[1.0, 0.0], [0.0, 1.0]], np.float32)
    far = np.array([1e6, 1e6], np.float32)
    found = balson.fit(KEY, balson.linear_problem(design, far, noise=1.0), balson.IS(num_draws=16_384))
    # |far - omega|^2 / 2 varies only through |omega|^2 / 2, as the sum of omega is fixed.
    truth = quadrature.posterior(design.astype(float), np.zeros(2), np.ones(2))
    np.testing.assert_allclose(found.mean, truth.mean, atol=1e-3)
    np.testing.assert_allclose(np.square(found.std), truth.variance, rtol=1e-2)


@thinned("method", [balson.IS(2)], [balson.RS(3), balson.ISIRS(17), balson.IS(100), balson.IS(1000)])
def test_few_draws(method):
    found = balson.fit(KEY, balson.linear_problem(np.eye(3), np.array([0.2, 0.3, 0.5]), noise=1.0), method)
    assert_sound(found)
    assert found.ess <= method.num_draws * (1 + 1e-5)
    assert (balson.Status.LOW_ESS in balson.Status(int(found.status))) == (method.num_draws < 1000)


def noise_per_row():
    rng = np.random.default_rng(RNG_SEED)
    return rng.normal(size=(5, 3)), rng.normal(size=5), rng.uniform(0.5, 2, 5)


def test_noise_per_row():
    design, target, sigma = noise_per_row()
    truth = quadrature.posterior(design / sigma[:, None], target / sigma, np.ones(3))
    found = balson.fit(KEY, balson.linear_problem(design, target, noise=sigma), "is")
    np.testing.assert_allclose(found.mean, truth.mean, atol=2e-3)
    assert float(found.log_evidence) == pytest.approx(truth.log_evidence - np.log(sigma).sum(), abs=5e-3)


@pytest.mark.slow
def test_prior_per_problem():
    """Two problems that share rows of noise, against whitening by hand."""
    design, target, sigma = noise_per_row()
    two = balson.linear_problem(design, np.stack([target, target]), noise=sigma, prior=[1.0, 2.0])
    both = balson.fit(KEY, two, "is")
    once = quadrature.posterior(design / sigma[:, None], target / sigma, np.ones(3))
    np.testing.assert_allclose(both.mean[0], once.mean, atol=2e-3)
    column = balson.linear_problem(design, np.stack([target, target])[:, None], prior=np.array([[1.0], [2.0]]))
    assert column.batch_shape == (2, 1)
    twice = quadrature.posterior(design / sigma[:, None], target / sigma, 2 * np.ones(3))
    np.testing.assert_allclose(both.mean[1], twice.mean, atol=2e-3)


def test_densities_against_numpy(dtype):
    rng = np.random.default_rng(RNG_SEED)
    design, target = rng.normal(size=(6, 3)), rng.normal(size=(4, 6))
    noise, total, prior = rng.uniform(0.5, 2, 4), rng.uniform(0.5, 2, 4), np.array([0.5, 1.0, 3.0])
    problem = balson.linear_problem(design.astype(dtype), target.astype(dtype), noise=noise, total=total, prior=prior)
    omega = rng.dirichlet(np.ones(3), (7, 4))
    expected = np.stack(
        [quadrature.log_likelihood(design, target[p], omega[:, p], total[p], noise[p]) for p in range(4)], axis=1
    )
    tolerance = 1e-4 if dtype == "float32" else 1e-11
    np.testing.assert_allclose(density.log_likelihood(problem, omega), expected, rtol=tolerance)
    from scipy import stats

    log_prior = np.array([[stats.dirichlet(prior).logpdf(w) for w in row] for row in omega])
    np.testing.assert_allclose(density.log_prior(problem, omega), log_prior, rtol=tolerance, atol=tolerance)
    both = density.log_posterior(problem, log_omega=np.log(omega))
    np.testing.assert_allclose(both, expected + log_prior, rtol=tolerance, atol=tolerance)
