"""At-most and signed constraints against quadrature on the lifted simplex, and against LASSO in the limit.

Tolerances are 4 standard errors, computed by quadrature: a false alarm has probability 6e-5 per number.
"""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import quadrature
from cases import thinned
from examples.ordered import Ordered
from scipy import stats
from sklearn.linear_model import lars_path

import balson_jax as balson
from balson_jax.problems import constraints

Z = 4.0
NUM_ROWS = 6
METHODS = {
    "rs": balson.RS(num_draws=8_192, keep=1024),
    "is": balson.IS(num_draws=65_536, points="pseudo", keep=1024),
}
COUNTS = {name: method.num_draws for name, method in METHODS.items()}


@dataclasses.dataclass
class Case:
    """A batch of asymmetric problems, with concentrations of the lifted prior."""

    constraint: str
    design: np.ndarray
    target: np.ndarray
    noise: np.ndarray
    total: np.ndarray
    prior: np.ndarray
    slack_prior: float

    def problem(self):
        return balson.linear_problem(
            self.design,
            self.target,
            constraint=self.constraint,
            noise=self.noise,
            total=self.total,
            prior=self.prior,
            slack_prior=self.slack_prior,
        )

    def lifted(self) -> np.ndarray:
        slack = [self.slack_prior] if self.constraint.endswith("at_most") else []
        return np.concatenate([self.prior, slack])

    def half_square(self, p: int, theta: np.ndarray) -> np.ndarray:
        return 0.5 * np.square(self.target[p] - theta @ self.design[p].T).sum(-1)

    def log_likelihood(self, p: int, theta: np.ndarray) -> np.ndarray:
        constant = NUM_ROWS * (0.5 * np.log(2 * np.pi) + np.log(self.noise[p]))
        return -self.half_square(p, theta) / self.noise[p] ** 2 - constant


@functools.cache
def case(constraint: str, num_params: int) -> Case:
    rng = np.random.default_rng(num_params + 10 * list(constraints.CONSTRAINTS).index(constraint))
    size = num_params * (2 if constraint.startswith("signed") else 1)
    prior, noise = np.array([0.7, 1.5, 1.0, 2.0])[:size], np.array([0.5, 1.0, 3.0])
    design = rng.normal(size=(3, NUM_ROWS, num_params)) + 0.5
    total = np.array([1.5, 0.7, 2.0])
    truth = np.array([0.5, -0.2] if constraint.startswith("signed") else [0.5, 0.2])[:num_params]
    target = np.einsum("pnk,k->pn", design, truth) * total[:, None] + noise[:, None] * rng.normal(size=(3, NUM_ROWS))
    return Case(constraint, design, target, noise, total, prior, 0.8)


@functools.cache
def fitted(constraint: str, num_params: int, method: str) -> balson.Posterior:
    return balson.fit(jax.random.key(5), case(constraint, num_params).problem(), METHODS[method])


OTHERS = [("at_most", 1), ("at_most", 2), ("signed", 1), ("signed", 2), ("signed_at_most", 1)]
every_constraint = thinned(
    "which, method",
    [(("signed_at_most", 2), "is")],
    [(("signed_at_most", 2), "rs"), *((which, method) for which in OTHERS for method in METHODS)],
)
with_slack = thinned("which", [("signed_at_most", 2)], [("at_most", 2)])


@every_constraint
def test_moments_and_evidence_agree_with_quadrature(which, method):
    cases, found = case(*which), fitted(*which, method)
    nodes, weights = quadrature.simplex_rule(cases.lifted())
    assert found.mean.shape == (3, which[1])
    assert found.alpha.shape == (3, len(cases.lifted()))
    for p in range(3):
        theta = cases.total[p] * quadrature.unlift(which[0], nodes)
        truth = quadrature.integrate(cases.log_likelihood(p, theta), weights, theta)
        root = np.sqrt(COUNTS[method])
        mean_error = getattr(truth, f"{method}_mean_error") / root
        variance_error = getattr(truth, f"{method}_variance_error") / root
        # Rejection accepts exp(log_evidence - log_peak); the envelope is checked elsewhere.
        rate = float(found.acceptance_rate[p])
        evidence_error = truth.is_log_evidence_error / root if method == "is" else np.sqrt((1 - rate) / COUNTS["rs"])
        assert (np.abs(found.mean[p] - truth.mean) < Z * mean_error + 2e-6).all()
        assert (np.abs(np.square(found.std[p]) - truth.variance) < Z * variance_error + 2e-6).all()
        assert abs(float(found.log_evidence[p]) - truth.log_evidence) < Z * evidence_error + 1e-4
    assert (found.status == balson.Status.OK).all()


@every_constraint
def test_interval_ends_agree_with_the_exact_distribution(which, method):
    """The exact probability below each end, by a million points of SciPy's, is that of the tail."""
    cases, found = case(*which), fitted(*which, method)
    alpha = cases.lifted()
    uniforms = stats.qmc.Sobol(len(alpha), seed=1).random_base2(17)
    gamma = stats.gamma.ppf(uniforms, alpha)
    omega = gamma / gamma.sum(-1, keepdims=True)
    lower, upper = found.interval(0.8)
    for p in range(3):
        theta = cases.total[p] * quadrature.unlift(which[0], omega)
        log_lik = cases.log_likelihood(p, theta)
        weights = np.exp(log_lik - log_lik.max())
        weights /= weights.sum()
        # Kept draws are as good as so many equal ones; those they stand for have an error of their own.
        error = np.sqrt(0.1 * 0.9 * (np.square(found.draw_weights[p]).sum() + 1 / found.ess[p]))
        for k in range(which[1]):
            assert abs(weights[theta[:, k] < lower[p, k]].sum() - 0.1) < Z * error
            assert abs(weights[theta[:, k] < upper[p, k]].sum() - 0.9) < Z * error
        # Not so wide that anything passes.
        assert error < 0.025


@with_slack
def test_the_slack_is_what_is_left(which):
    cases, found = case(*which), fitted(*which, "is")
    nodes, weights = quadrature.simplex_rule(cases.lifted())
    root = np.sqrt(COUNTS["is"])
    for p in range(3):
        theta = cases.total[p] * quadrature.unlift(which[0], nodes)
        slack = cases.total[p] * nodes[:, -1:]
        truth = quadrature.integrate(cases.log_likelihood(p, theta), weights, slack)
        assert abs(found.slack.mean[p] - truth.mean[0]) < Z * truth.is_mean_error[0] / root + 2e-6
        variance_error = truth.is_variance_error[0] / root
        assert abs(found.slack.std[p] ** 2 - truth.variance[0]) < Z * variance_error + 2e-6
    if which[0] == "at_most":
        np.testing.assert_allclose(found.slack.mean, found.total - found.mean.sum(-1), rtol=1e-4)


@with_slack
def test_kept_draws_keep_the_constraint(which):
    found = fitted(*which, "is")
    assert found.draws.shape == (3, 1024, which[1])
    norms = np.abs(np.asarray(found.draws)).sum(-1)
    assert (norms <= 1.00001 * np.asarray(found.total)[:, None]).all()
    assert (np.asarray(found.draws) < 0).any() == which[0].startswith("signed")
    np.testing.assert_allclose(found.draw_weights.sum(-1), 1, rtol=1e-5)
    sampled = found.sample(jax.random.key(0), 7)
    assert sampled.shape == (7, 3, which[1])
    kept = {tuple(row) for row in np.asarray(found.draws)[1].tolist()}
    assert all(tuple(row) in kept for row in sampled[:, 1].tolist())


def lasso_problem():
    """Return a design, a target, and by its norm LASSO's solution: scikit-learn's path is linear between its knots."""
    rng = np.random.default_rng(0)
    design = rng.normal(size=(20, 2)) + np.array([0.0, 0.8])
    target = design @ [1.0, -0.4] + 0.3 * rng.normal(size=20)
    _, _, path = lars_path(design, target, method="lasso")
    norms = np.abs(path).sum(0)
    solutions = {total: np.array([np.interp(total, norms, row) for row in path]) for total in (0.5, 1.1)}
    return design, target, solutions


def test_the_constrained_optimum_is_lassos_solution_of_that_norm():
    design, target, solutions = lasso_problem()
    for total, lasso in solutions.items():
        assert np.abs(lasso).sum() == pytest.approx(total)
        for constraint in ("signed", "signed_at_most"):
            problem = balson.linear_problem(design, target, constraint=constraint, total=total, noise=1.0)
            np.testing.assert_allclose(balson.least_squares(problem).theta, lasso, atol=2e-5)


@pytest.mark.slow
def test_the_limit_of_little_noise_is_lasso():
    """The posterior mean comes to LASSO's solution as noise falls."""
    design, target, solutions = lasso_problem()
    for total, lasso in solutions.items():
        errors = []
        for noise in (3.2, 0.8, 0.2):
            problem = balson.linear_problem(design, target, constraint="signed", total=total, noise=noise)
            found = balson.fit(jax.random.key(0), problem, balson.IS(num_draws=1 << 20))
            assert found.status == balson.Status.OK
            errors.append(np.abs(found.mean - lasso).max())
        assert errors[0] > 2 * errors[1] > 4 * errors[2]
        assert errors[-1] < 0.03


@pytest.mark.slow
def test_a_prior_for_each_sign():
    """Concentrations of both signs pull the posterior to one side, where data are weak."""
    design, target = np.ones((3, 1)), np.zeros(3)
    problem = balson.linear_problem(design, target, constraint="signed", prior=[3.0, 1.0], noise=100.0)
    found = balson.fit(jax.random.key(0), problem, balson.IS(num_draws=4096))
    assert float(found.mean[0]) == pytest.approx(0.5, abs=1e-3)  # 3/4 - 1/4
    assert problem.num_components == 2
    assert problem.num_params == 1


def test_rejection_without_a_draw_falls_back_to_the_prior():
    design, target = np.eye(2), np.array([1.0, -1.0])
    problem = balson.linear_problem(
        design, target, constraint="signed", total=2.0, prior=[2.0, 1.0, 1.0, 1.0], noise=1e-6
    )
    found = balson.fit(jax.random.key(0), problem, balson.RS(num_draws=64, max_proposals=1024))
    assert balson.Status.BUDGET in balson.Status(int(found.status))
    draws = 2.0 * np.random.default_rng(0).dirichlet([2.0, 1.0, 1.0, 1.0], 400_000)
    np.testing.assert_allclose(found.mean, (draws[:, :2] - draws[:, 2:]).mean(0), atol=5e-3)
    np.testing.assert_allclose(found.std, (draws[:, :2] - draws[:, 2:]).std(0), rtol=1e-2)
    assert not jnp.isnan(found.alpha).any()
    assert found.slack is None


def test_a_constraint_written_outside_the_package(tmp_path):
    """Nonincreasing shares, against a grid of the posterior of the free parameter."""
    rng = np.random.default_rng(3)
    design = rng.normal(size=(6, 2)) + 0.5
    target = 1.5 * design @ [0.7, 0.3] + 0.5 * rng.normal(size=6)
    problem = balson.linear_problem(design, target, total=1.5, noise=0.5, prior=(0.8, 1.3), constraint=Ordered())
    found = balson.fit(jax.random.key(0), problem, balson.IS(num_draws=1 << 16))
    # theta = 1.5 (omega_1 + omega_2 / 2, omega_2 / 2), omega_1 ~ Beta(0.8, 1.3).
    u = (np.arange(1 << 15) + 0.5) / (1 << 15)
    omega = stats.beta.ppf(u, 0.8, 1.3)
    theta = 1.5 * np.stack([omega + (1 - omega) / 2, (1 - omega) / 2])
    logs = -np.square(target[:, None] - design @ theta).sum(0) / (2 * 0.5**2)
    p = np.exp(logs - logs.max())
    p /= p.sum()
    mean = theta @ p
    std = np.sqrt(np.square(theta - mean[:, None]) @ p)
    np.testing.assert_array_less(np.abs(found.mean - mean), 4 * std / np.sqrt(float(found.ess)))
    np.testing.assert_allclose(found.std, std, rtol=4 / np.sqrt(float(found.ess)))
    draws = np.asarray(found.draws)
    assert (draws[:, 0] >= draws[:, 1]).all()
    np.testing.assert_allclose(draws.sum(-1), 1.5, rtol=1e-5)
    assert "nonincreasing, sum = 1.5" in repr(found)
    found.save(tmp_path / "ordered.npz")
    assert repr(balson.Posterior.load(tmp_path / "ordered.npz", constraint=Ordered())) == repr(found)
    assert problem.constraint == "ordered"


def test_constraints_are_equal_by_class_and_attributes():
    """They are static: equal ones share compiled programs."""

    class Scaled(Ordered):
        def __init__(self, power):
            self.power = power

    assert Ordered() == Ordered()
    assert Scaled(1) == Scaled(1)
    assert Scaled(1) != Scaled(2)
    assert Ordered() == "ordered" != constraints.Equal()
