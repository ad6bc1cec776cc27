"""The centre of a posterior, and the truncated Gaussian around it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import spectra, thinned
from quadrature import posterior as exact_posterior
from scipy import optimize

import balson_jax as balson
from balson_jax.proposals import DirichletProposal, DividedProposal
from balson_jax.proposals.centre import find_centre
from balson_jax.proposals.gaussian import exponents, from_quadratic
from balson_jax.random.points import GENERATORS, coordinates
from balson_jax.targets import Quadratic, find_optimum, target_of

KEY = jax.random.key(3)


def quadratics(num_components: int) -> tuple[Quadratic, np.ndarray]:
    """Return weak and strong likelihoods, with optima inside, on an edge and at a corner, and concentrations."""
    rng = np.random.default_rng(num_components)
    root = rng.normal(size=(4, num_components, num_components)) * np.array([0.3, 5.0, 30.0, 200.0])[:, None, None]
    optimum = rng.dirichlet(np.ones(num_components), 4)
    optimum[2, 0] = 0
    optimum[3] = np.eye(num_components)[1]
    optimum = optimum / optimum.sum(-1, keepdims=True)
    gradient = np.where(optimum > 0, 0, rng.uniform(1, 3000, optimum.shape))
    prior = np.stack([np.full(num_components, 0.4), np.ones(num_components), *rng.uniform(0.5, 6, (2, num_components))])
    return Quadratic(*map(jnp.asarray, (root, optimum, gradient))), prior


@pytest.mark.parametrize("num_components", [2, 5])
def test_the_centre_maximises_likelihood_times_walls(num_components, x64):
    """Against a general optimiser in log-ratio coordinates."""
    quadratic, prior = quadratics(num_components)
    found = find_centre(quadratic, jnp.asarray(prior))
    np.testing.assert_allclose(found.omega.sum(-1), 1, rtol=1e-9)
    for i in range(4):
        root, optimum, gradient = (
            np.asarray(part[i]) for part in (quadratic.root, quadratic.optimum, quadratic.gradient)
        )

        def loss(z, root=root, optimum=optimum, gradient=gradient, alpha=prior[i]):
            log_omega = z - np.logaddexp.reduce(z)
            away = np.exp(log_omega) - optimum
            return gradient @ away + 0.5 * np.square(root @ away).sum() - alpha @ log_omega

        best = optimize.minimize(loss, np.log(prior[i]), method="BFGS", options={"gtol": 1e-9, "maxiter": 2000})
        values = loss(np.log(np.asarray(found.omega[i]))), best.fun
        assert values[0] <= values[1] + 1e-8 * abs(values[1])


@thinned("num_components", [], [2, 3, 6])
def test_the_density_of_draws_is_normalised(num_components):
    """The mean of q / prior under the prior is one, and a draw's density is that which ``log_prob`` gives it."""
    rng = np.random.default_rng(1)
    design = spectra(rng, 20, num_components).astype(np.float32)
    targets = rng.dirichlet(np.ones(num_components), 3) @ design.T + np.array([[0.1], [0.5], [2.0]]) * rng.normal(
        size=20
    )
    prior = np.array([0.6, 1.0, 3.0])[:, None] * np.linspace(0.8, 1.2, num_components)
    noise = np.array([0.3, 0.5, 1.0])
    problem = balson.linear_problem(design, targets, noise=noise, prior=prior)
    alpha = jnp.asarray(prior, jnp.float32)
    target = jax.jit(lambda: target_of(problem, find_optimum(problem, KEY, balson.TG.needs)))()
    proposal = jax.jit(lambda: from_quadratic(target.quadratic(), alpha))()
    points = coordinates(GENERATORS["sobol"], KEY, 1 << 15, start=0, dtype=jnp.float32)
    base = DirichletProposal(alpha)
    log_prob, draw = jax.jit(lambda draws: proposal.log_prob(draws)), jax.jit(lambda: proposal.draw(points))
    log_omega, log_prior = jax.jit(lambda: base.draw(points))()
    ratio = np.exp(np.asarray(log_prob(log_omega) - log_prior, np.float64))
    # Quasi-random points are better than the standard error of independent ones.
    error = ratio.std(-1) / np.sqrt(ratio.shape[-1])
    np.testing.assert_array_less(np.abs(ratio.mean(-1) - 1), 4 * error + 1e-3)
    drawn, density = draw()
    np.testing.assert_allclose(jnp.exp(drawn).sum(1), 1, rtol=1e-4)
    np.testing.assert_allclose(log_prob(drawn), density, rtol=2e-3, atol=2e-2)
    # In a mixture one draw in eight is the prior's.
    mixed, _ = jax.jit(lambda: DividedProposal(proposal, alpha).draw(points))()
    expected = base.draw(lambda first, dims: points(first, dims)[:, ::8])[0]
    np.testing.assert_allclose(mixed[..., ::8], expected, rtol=1e-3, atol=1e-3)


@thinned("prior,noise", [], [(1.0, 0.02), (2.0, 0.2), (1.0, 0.2), (2.0, 0.02), (0.5, 0.02), (0.5, 0.2)])
def test_corners_and_edges(prior, noise):
    """Targets outside the simplex press components to zero: many effective draws, and the exact moments."""
    design = np.array([[1.0, 0.2, 0.1], [0.1, 1.0, 0.3], [0.2, 0.1, 1.0], [0.5, 0.4, 0.9]])
    omega = np.array([[1.3, -0.2, -0.1], [0.6, 0.6, -0.2], [1.0, 0.0, 0.0], [0.3, 0.3, 0.4]])
    found = balson.fit(
        KEY, balson.linear_problem(design, omega @ design.T, noise=noise, prior=prior), balson.TG(num_draws=8192)
    )
    assert (found.status == 0).all()
    assert (found.ess > 0.3 * 8192).all()
    for i, target in enumerate(omega @ design.T):
        exact = exact_posterior(design, target, np.full(3, prior), noise=noise)
        # Gauss-Jacobi nodes resolve these posteriors to about three digits where the noise is smallest.
        error = 4 * np.sqrt(exact.variance / float(found.ess[i])) + 2e-3 * exact.mean
        np.testing.assert_array_less(np.abs(found.mean[i] - exact.mean), error)
        assert abs(float(found.log_evidence[i]) - exact.log_evidence) < 4 / np.sqrt(float(found.ess[i])) + 5e-3


def test_many_components():
    """Forty spectra and a flat prior: a tenth of the draws are effective."""
    rng = np.random.default_rng(5)
    design = spectra(rng, 60, 40)
    target = design @ rng.dirichlet(np.ones(40)) + 0.05 * rng.normal(size=60)
    found = balson.fit(KEY, balson.linear_problem(design, target, noise=0.05), balson.TG(num_draws=4096))
    assert found.status == 0
    assert found.ess > 400


@thinned("num_rows,draws", [], [(12, 2048), (4, 8192), (2000, 2048)])
def test_unknown_noise(num_rows, draws):
    """Few rows give heavy tails, many rows large gamma functions: the answer agrees with draws of the prior."""
    rng = np.random.default_rng(num_rows)
    design = rng.random((num_rows, 3))
    targets = rng.dirichlet(np.full(3, 0.5), 20) @ design.T + 0.2 * rng.normal(size=(20, num_rows))
    problem = balson.linear_problem(design, targets)
    found = balson.fit(KEY, problem, balson.TG(num_draws=draws))
    truth = balson.fit(KEY, problem, balson.IS(num_draws=1 << 20))
    assert (found.status == 0).all()
    assert (found.pareto_k < (0.5 if num_rows > 4 else 0.7)).all()
    assert (found.ess > 0.4 * draws).all()
    error = np.asarray(truth.std) * np.sqrt(1 / found.ess + 1 / truth.ess)[:, None]
    np.testing.assert_array_less(np.abs(found.mean - truth.mean), 4.5 * error)
    evidence_error = np.hypot(1 / np.sqrt(found.ess), 1 / np.sqrt(truth.ess))
    np.testing.assert_array_less(np.abs(found.log_evidence - truth.log_evidence), 4 * evidence_error)
    np.testing.assert_allclose(found.noise.mean, truth.noise.mean, rtol=0.05)


@thinned("prior", [], [50.0, 5.0, 1000.0])
def test_unknown_noise_beside_a_strong_prior(prior):
    """Prior and data disagree, so that the noise is far from its likeliest level."""
    rng = np.random.default_rng(2)
    design = rng.random((10, 4))
    targets = rng.dirichlet(np.ones(4), 6) @ design.T + 0.1 * rng.normal(size=(6, 10))
    problem = balson.linear_problem(design, targets, prior=prior)
    found = balson.fit(KEY, problem, balson.TG(num_draws=4096))
    truth = balson.fit(KEY, problem, balson.IS(num_draws=1 << 18))
    status, ratio = np.asarray(found.status), np.asarray(found.residual / found.least_residual)
    assert ((status == 0) | ((status == balson.Status.PRIOR_DOMINATES) & (ratio > 1.5))).all()
    assert (found.ess > 0.25 * 4096).all()
    error = np.asarray(truth.std) * np.sqrt(1 / found.ess + 1 / truth.ess)[:, None]
    np.testing.assert_array_less(np.abs(found.mean - truth.mean), 4.5 * error)


def test_exponents():
    np.testing.assert_allclose(exponents(jnp.array([0.3, 1.0, 1.5, 2.0, 7.0])), [0.3, 1.0, 1.0, 1.0, 6.0])


@pytest.mark.slow
def test_using_some_of_the_draws():
    """The first draws of many are those of a smaller number, and the number may be traced."""
    rng = np.random.default_rng(0)
    design = rng.random((9, 3))
    problem = balson.linear_problem(design, design @ [0.2, 0.3, 0.5], noise=0.1)
    few = balson.fit(KEY, problem, balson.TG(num_draws=1024))
    some = balson.fit(KEY, problem, balson.TG(num_draws=8192, chunk=1024, used=np.int32(1024)))
    for name in ("mean", "std", "log_evidence", "ess", "draws"):
        np.testing.assert_allclose(getattr(some, name), getattr(few, name), rtol=1e-5)
