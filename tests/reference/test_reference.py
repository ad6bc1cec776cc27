"""The methods of comparison against scikit-learn, cvxpy and NumPyro."""

from __future__ import annotations

import functools

import cvxpy
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import thinned
from scipy import stats
from sklearn import linear_model

import balson_jax as balson
from balson_jax import reference
from balson_jax.experiments.paper import data
from balson_jax.reference.bayesian_lasso import _inverse_gaussian, convergence

KEY = jax.random.key(0)


def random_problems(count, num_rows, num_components, seed=0):
    rng = np.random.default_rng(seed)
    design = rng.normal(size=(count, num_rows, num_components)) * rng.uniform(0.3, 3, num_components)
    theta = rng.normal(size=(count, num_components)) * (rng.random((count, num_components)) < 0.6)
    return design, np.einsum("pnk,pk->pn", design, theta) + 0.5 * rng.normal(size=(count, num_rows))


@thinned("num_rows, num_components, positive", [(30, 6, False), (8, 15, True)], [(30, 6, True), (8, 15, False)])
def test_lasso_agrees_with_scikit_learn(num_rows, num_components, positive, x64):
    design, target = random_problems(25, num_rows, num_components)
    penalty = np.geomspace(1e-3, 2.0, 25)
    found = reference.lasso(design, target, penalty, positive)

    def objective(theta, p):
        residual = target[p] - design[p] @ theta
        return residual @ residual / (2 * num_rows) + penalty[p] * np.abs(theta).sum()

    for p in range(25):
        model = linear_model.Lasso(penalty[p], fit_intercept=False, positive=positive, tol=1e-9, max_iter=1_000_000)
        exact = objective(model.fit(design[p], target[p]).coef_, p)
        ours = objective(np.asarray(found.theta[p]), p)
        assert abs(ours - exact) < 1e-6 * max(exact, 1)
        assert ours - exact <= float(found.gap[p]) + 1e-12
    if positive:
        assert (found.theta >= 0).all()


def test_lasso_in_float32_path_and_zero_penalty():
    design, target = random_problems(3, 20, 4)
    design, target = design.astype(np.float32), target.astype(np.float32)
    penalties = np.array([0.0, 0.1, 100.0], np.float32)
    path = reference.lasso(design[0], target[0], penalties).theta
    assert path.shape == (3, 4)
    np.testing.assert_allclose(path[0], reference.ordinary(design[0], target[0]), atol=2e-5)
    assert (path[2] == 0).all()
    both = reference.lasso(design, target, penalties[:, None])
    assert both.theta.shape == (3, 3, 4)
    np.testing.assert_allclose(both.theta[1, 0], path[1], atol=1e-3)
    assert reference.lasso(design[:0], target[:0], 0.1).theta.shape == (0, 4)
    with pytest.raises(ValueError, match=r"penalty.*-1.* not negative"):
        reference.lasso(design, target, -1.0)
    with pytest.raises(ValueError, match=r"penalty has shape \(2,\).*batch \(3,\)"):
        reference.lasso(design, target, [0.1, 0.2])
    with pytest.raises(ValueError, match=r"penalties has shape \(1, 2\)"):
        reference.cross_validated_penalty(design, target, [[0.1, 0.2]])


@pytest.mark.slow
def test_lasso_stops_where_the_gap_cannot_say_so():
    """At a zero penalty the dual bound is zero; the iterates stand still after few sweeps all the same."""
    design, target = (part.astype(np.float32) for part in random_problems(3, 20, 4))
    design[:, :, 1] = 0
    found = reference.lasso(design, target, 0.0)
    assert (found.sweeps < 200).all()
    np.testing.assert_allclose(found.theta, reference.ordinary(design, target), atol=2e-5)
    # Scales, and a penalty that is an array of JAX's, closed over.
    penalty = jnp.float32(0.3)
    plain = jax.jit(lambda y: reference.lasso(design, y, penalty))(target)
    for scale in (1e-6, 1e6):
        scaled = reference.lasso(design, scale * target, scale * penalty)
        np.testing.assert_allclose(scaled.theta, scale * plain.theta, atol=1e-5 * scale)
        assert (scaled.gap <= 2e-6 * np.square(scale * target).mean(-1)).all()


def test_cross_validation_agrees_with_scikit_learn(x64):
    design, target = random_problems(4, 40, 5, seed=2)
    design = design[0]
    penalties = np.geomspace(1e-3, 1.0, 12)
    found = reference.cross_validated_penalty(design, target, penalties)
    folds = [(np.flatnonzero(np.arange(40) % 5 != f), np.flatnonzero(np.arange(40) % 5 == f)) for f in range(5)]
    for p in range(4):
        model = linear_model.LassoCV(alphas=penalties, cv=folds, fit_intercept=False, tol=1e-10, max_iter=100_000)
        assert float(found[p]) == pytest.approx(model.fit(design, target[p]).alpha_)


@thinned("kind", ["equal", "within"], ["at_most"])
def test_constrained_solutions_agree_with_cvxpy(kind, x64):
    design, target = random_problems(12, 15, 5, seed=3)
    totals = np.geomspace(0.1, 30, 12)
    if kind == "within":
        found = reference.lasso_within(design, target, totals)
    else:
        found = reference.interior_point(design, target, totals, kind)
    for p in range(12):
        theta = cvxpy.Variable(5)
        rules = {
            "equal": [theta >= 0, cvxpy.sum(theta) == totals[p]],
            "at_most": [theta >= 0, cvxpy.sum(theta) <= totals[p]],
            "within": [cvxpy.norm1(theta) <= totals[p]],
        }
        goal = cvxpy.sum_squares(design[p] @ theta - target[p])
        exact = cvxpy.Problem(cvxpy.Minimize(goal), rules[kind]).solve(
            solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10
        )
        ours = np.square(design[p] @ np.asarray(found[p]) - target[p]).sum()
        assert ours == pytest.approx(exact, rel=1e-6, abs=1e-6)
        assert np.abs(found[p]).sum() <= totals[p] * (1 + 1e-9)


def test_the_bound_of_equation_one_is_named():
    with pytest.raises(ValueError, match="constraint='signed'"):
        reference.interior_point(np.eye(2), np.ones(2), constraint="signed")


@thinned("options", [], [(None, None), (0.5, 2.0)])
def test_bayesian_lasso_agrees_with_numpyro(options, x64):
    """Noise and penalty sampled, or both given: posterior means of two samplers within 4 standard errors."""
    import numpyro
    from numpyro import distributions, infer
    from numpyro.diagnostics import effective_sample_size

    rng = np.random.default_rng(5)
    design = rng.normal(size=(12, 3))
    target = design @ [1.0, 0.0, -0.4] + 0.5 * rng.normal(size=12)

    def model(noise, penalty):
        if noise is None:
            variance = numpyro.sample(
                "variance", distributions.ImproperUniform(distributions.constraints.positive, (), ())
            )
            numpyro.factor("scale-free", -jnp.log(variance))
            noise = jnp.sqrt(variance)
        if penalty is None:
            penalty = jnp.sqrt(numpyro.sample("square penalty", distributions.Gamma(1.0, 1.78)))
        theta = numpyro.sample("theta", distributions.Laplace(0.0, noise / penalty).expand([3]).to_event(1))
        numpyro.sample("target", distributions.Normal(design @ theta, noise), obs=target)

    noise, penalty = options
    found = reference.bayesian_lasso(KEY, design, target, noise=noise, penalty=penalty, num_draws=4000)
    assert (found.r_hat < 1.02).all()
    mcmc = infer.MCMC(infer.NUTS(model), num_warmup=1000, num_samples=4000, progress_bar=False)
    mcmc.run(jax.random.key(1), noise, penalty)
    chain = np.asarray(mcmc.get_samples()["theta"])
    variance = found.std**2 / found.ess + chain.var(0) / effective_sample_size(chain[None])
    assert (np.abs(found.mean - chain.mean(0)) < 4 * np.sqrt(variance)).all()
    np.testing.assert_allclose(found.std, chain.std(0), rtol=0.1)
    np.testing.assert_allclose(found.median, np.median(chain, 0), atol=0.1 * found.std.max())
    if noise is None:
        samples = mcmc.get_samples()
        np.testing.assert_allclose(found.noise, np.sqrt(samples["variance"]).mean(), rtol=0.05)
        np.testing.assert_allclose(found.penalty, np.sqrt(samples["square penalty"]).mean(), rtol=0.05)


def test_inverse_gaussians_of_any_mean_in_float32():
    """Where the mean is large, the distribution is that of 1 / z^2 for a normal z."""
    for mean in (0.3, 1.0, 1e4, 1e6):
        draws = np.asarray(_inverse_gaussian(KEY, jnp.full(50_000, mean, jnp.float32)), np.float64)
        assert (draws > 0).all()
        assert stats.kstest(draws, stats.invgauss(mean).cdf).pvalue > 1e-3
    assert stats.kstest(1 / np.sqrt(draws), stats.halfnorm.cdf).pvalue > 1e-3


@pytest.mark.slow
def test_bayesian_lasso_of_twins_and_little_noise():
    """Duplicate columns at a signal a thousand times the noise: twins share the coefficient, and nothing is NaN."""
    design, target = (part.astype(np.float32)[0] for part in random_problems(1, 20, 3))
    design = np.concatenate([design, design[:, :1]], axis=1)
    target = design[:, :3] @ np.float32([1.0, 0.5, -2.0]) + 1e-3 * target
    found = reference.bayesian_lasso(KEY, design, target)
    assert all(jnp.isfinite(field).all() for field in found)
    np.testing.assert_allclose(found.mean[0] + found.mean[3], 1.0, atol=2e-2)
    np.testing.assert_allclose(found.mean[1:3], [0.5, -2.0], atol=2e-2)
    # No noise can be estimated from a target of zeros, and the chains say that they stand still.
    assert not (reference.bayesian_lasso(KEY, design, np.zeros(20, np.float32)).r_hat < 1.1).any()


@pytest.mark.slow
def test_bayesian_lasso_of_collinear_columns_in_float32():
    """Powers of x, a condition number of 1e6: no chain may run away, and both precisions agree."""
    design = data.polynomial_design(data.inputs())
    targets = data.targets(jax.random.key(3), 50)
    single = reference.bayesian_lasso(KEY, design, targets)
    with jax.enable_x64(True):
        wide = (np.asarray(part, np.float64) for part in (design, targets))
        double = reference.bayesian_lasso(jax.random.key(1), *wide)
    single, double = (jax.tree.map(np.asarray, found) for found in (single, double))
    error = np.sqrt(single.std**2 / single.ess + double.std**2 / double.ess)
    assert (np.abs(single.mean - double.mean) < 5 * error).all()
    # The spread of a standard deviation, from the effective draws; Laplace tails double that of a Gaussian.
    relative = np.sqrt(1 / single.ess + 1 / double.ess)
    assert (np.abs(single.std / double.std - 1) < 5 * relative).all()
    assert (single.r_hat < 1.1).all()


@pytest.mark.slow
def test_bayesian_lasso_in_batches_and_bad_input():
    design, target = random_problems(3, 20, 4)
    found = reference.bayesian_lasso(KEY, design.astype(np.float32), target.astype(np.float32), num_draws=100)
    assert found.median.shape == found.ess.shape == (3, 4)
    assert found.noise.shape == (3,)
    assert all(jnp.isfinite(field).all() for field in found)
    with pytest.raises(ValueError, match="num_draws=5 must be even"):
        reference.bayesian_lasso(KEY, design, target, num_draws=5)
    with pytest.raises(ValueError, match="noise"):
        reference.bayesian_lasso(KEY, design, target, noise=-1.0)


def test_convergence_of_known_chains():
    """Autoregressive chains have a known effective size; one chain elsewhere spoils R-hat."""
    rng = np.random.default_rng(0)
    shocks, rho = rng.normal(size=(4, 4000)), 0.8
    chains = np.zeros_like(shocks)
    for i in range(1, 4000):
        chains[:, i] = rho * chains[:, i - 1] + shocks[:, i]
    r_hat, ess = convergence(jnp.asarray(chains))
    assert float(r_hat) < 1.02
    assert float(ess) == pytest.approx(16_000 * (1 - rho) / (1 + rho), rel=0.25)
    assert float(convergence(jnp.asarray(chains) + jnp.array([[0.0], [0.0], [0.0], [9.0]]))[0]) > 1.5


@pytest.mark.slow
def test_everything_works_under_jit_and_vmap():
    """One problem at a time inside a trace gives what a batch gives outside."""
    design, target = (part.astype(np.float32) for part in random_problems(3, 20, 4))
    penalties = np.array([0.01, 0.1, 1.0], np.float32)
    for method in (
        lambda design, target: reference.lasso(design, target, 0.1).theta,
        reference.interior_point,
        lambda design, target: reference.bayesian_lasso(KEY, design, target, num_draws=10, warm_up=5).mean,
    ):
        inside = jax.jit(jax.vmap(method))(design, target)
        np.testing.assert_allclose(inside, method(design, target), rtol=1e-3, atol=1e-4)
    # The others are made of these: that they can be traced is enough.
    assert jax.eval_shape(reference.ordinary, design, target).shape == (3, 4)
    assert jax.eval_shape(reference.lasso_within, design, target).shape == (3, 4)
    choose = functools.partial(reference.cross_validated_penalty, penalties=penalties)
    assert jax.eval_shape(choose, design, target).shape == (3,)


def test_ordinary_is_numpys(x64):
    design, target = random_problems(4, 3, 6)  # fewer rows than components
    for p in range(4):
        expected = np.linalg.lstsq(design[p], target[p], rcond=None)[0]
        np.testing.assert_allclose(reference.ordinary(design[p], target[p]), expected, rtol=1e-8)
    assert balson.reference is reference
