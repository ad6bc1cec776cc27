"""Models that are functions: equal to linear problems where they are linear, and to quadrature where they are not."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import quadrature
from cases import DESIGN, FAST, TARGETS, thinned

import balson_jax as balson
from balson_jax.targets import functions as density

KEY = jax.random.key(2)
RNG = np.random.default_rng(3)
NUM_ROWS = len(DESIGN)
IS = FAST["is"]


def linear(theta, design):
    return design @ theta


def decays(theta, times):
    """A sum of decays whose rates are parameters too: not linear in theta."""
    return theta[0] * jnp.exp(-3 * theta[1] * times) + 0.5 * theta[-1]


def assert_same(found, expected):
    for name in ("mean", "std", "alpha", "theta", "log_evidence", "mean_stderr", "draws", "draw_weights"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=3e-4, atol=3e-5, err_msg=name)
    assert found.constraint == expected.constraint


OPTIONS = {
    "known": (TARGETS, {"noise": 0.5}),
    "one": (TARGETS[0], {"noise": 0.5}),
    "signed": (TARGETS, {"noise": "estimate", "constraint": "signed", "total": 1.5}),
    "gaps": (
        np.where(np.arange(NUM_ROWS) == 3, np.nan, TARGETS),
        {
            "noise": np.linspace(0.3, 0.8, NUM_ROWS),
            "constraint": "at_most",
            "missing": "drop",
            "weights": np.linspace(0, 2, NUM_ROWS),
        },
    ),
}


@functools.cache
def fitted(name: str) -> balson.Posterior:
    target, options = OPTIONS[name]
    return balson.fit(KEY, balson.model_problem(linear, DESIGN, target, 3, **options), IS)


@thinned("name", [], ["known", "one", "signed", "gaps"])
def test_a_linear_model_is_a_linear_problem(name):
    target, options = OPTIONS[name]
    found, expected = fitted(name), balson.fit(KEY, balson.linear_problem(DESIGN, target, **options), IS)
    assert_same(found, expected)
    if found.noise is not None:
        np.testing.assert_allclose(found.noise.mean, expected.noise.mean, rtol=1e-3)


@thinned("name", [], ["rs", "isirs", "rsirs"])
def test_other_methods_fit_models(name):
    methods = {"rs": balson.RS(4096), "isirs": balson.ISIRS(4096, rounds=2), "rsirs": balson.RSIRS(2048, rounds=2)}
    problem = balson.model_problem(linear, DESIGN, TARGETS[0], 3, noise=0.5)
    found = balson.fit(KEY, problem, methods[name])
    expected = balson.fit(KEY, balson.linear_problem(DESIGN, TARGETS[0], noise=0.5), methods[name])
    # The envelope is looser, so that rejection accepts other draws.
    error = 5 * np.hypot(found.mean_stderr, expected.mean_stderr) + 1e-3
    assert (np.abs(found.mean - expected.mean) < error).all()
    if name == "rs":
        assert found.acceptance_rate < expected.acceptance_rate
        assert found.certified


@thinned("which", [(2, "rs"), (3, "is")], [(2, "is"), (3, "rs")])
def test_a_nonlinear_model_agrees_with_quadrature(which):
    num_params, method = which
    times = np.linspace(0, 2, 7)
    alpha = np.array([0.8, 1.3, 1.7])[:num_params]
    truth_theta = 1.5 * np.array([0.6, 0.3, 0.1])[:num_params]
    # A data set of its own, of whose proposals one in twenty is accepted.
    target = np.asarray(decays(truth_theta, times)) + 0.2 * np.random.default_rng(5).normal(size=7)
    methods = {"rs": balson.RS(num_draws=8192), "is": balson.IS(num_draws=65_536, points="pseudo")}
    problem = balson.model_problem(decays, times, target, num_params, total=1.5, noise=0.2, prior=alpha)
    found = balson.fit(KEY, problem, methods[method])
    assert found.status == balson.Status.OK
    nodes, weights = quadrature.simplex_rule(alpha)
    theta = 1.5 * nodes
    curves = theta[:, :1] * np.exp(-3 * theta[:, 1:2] * times) + 0.5 * theta[:, -1:]
    log_lik = -0.5 * np.square((target - curves) / 0.2).sum(-1) - 7 * (0.5 * np.log(2 * np.pi) + np.log(0.2))
    truth = quadrature.integrate(log_lik, weights, theta)
    root = np.sqrt(methods[method].num_draws)
    rate = float(found.acceptance_rate)
    evidence_error = truth.is_log_evidence_error / root if method == "is" else np.sqrt((1 - rate) / root**2)
    assert (np.abs(found.mean - truth.mean) < 4 * getattr(truth, f"{method}_mean_error") / root).all()
    error = 4 * getattr(truth, f"{method}_variance_error") / root
    assert (np.abs(np.square(found.std) - truth.variance) < error).all()
    assert abs(float(found.log_evidence) - truth.log_evidence) < 4 * evidence_error


@pytest.mark.slow
def test_bounds_of_rejection_sampling():
    times = np.linspace(0, 2, 7)
    target = np.asarray(decays(np.array([0.7, 0.3]), times)) + 0.2 * np.random.default_rng(1).normal(size=7)

    def fit(bound, method="rs", **options):
        problem = balson.model_problem(decays, times, target, 2, bound=bound, **{"noise": 0.2} | options)
        return balson.fit(KEY, problem, balson.RS(num_draws=2048) if method == "rs" else method)

    grid = np.linspace(0, 1, 2001)
    curves = np.stack([np.asarray(decays(np.array([w, 1 - w]), times)) for w in grid])
    smallest = np.square(target - curves).sum(-1).min()
    trivial, tight, searched = fit(0.0), fit(0.999 * smallest), fit("search")
    assert trivial.certified
    assert tight.certified
    assert not searched.certified
    # The search finds what the grid finds, and the envelope is tight.
    rate = float(trivial.acceptance_rate) * np.exp(0.5 * smallest / 0.2**2)
    assert float(searched.acceptance_rate) == pytest.approx(rate, rel=0.15)
    assert float(tight.acceptance_rate) == pytest.approx(rate, rel=0.15)
    for found in (tight, searched):
        assert found.status == balson.Status.OK
        assert (np.abs(found.mean - trivial.mean) < 5 * np.hypot(found.mean_stderr, trivial.mean_stderr)).all()
    # A bound that is too high distorts, and says so.
    assert balson.Status.ENVELOPE in balson.Status(int(fit(2 * smallest).status))
    with pytest.raises(ValueError, match="needs a bound above 0"):
        fit(0.0, noise="estimate")
    assert fit(0.9 * smallest, noise="estimate").status == balson.Status.OK
    unbounded = fit(0.0, balson.IS(4096), noise="estimate")
    assert jnp.isnan(unbounded.acceptance_rate)
    assert "acceptance rate –" in repr(unbounded)


@pytest.mark.slow
def test_outputs_and_inputs_of_any_shape():
    inputs = {"x": np.linspace(0, 1, 5), "shift": 0.1}

    def curve(theta, inputs):
        return jnp.stack([inputs["x"] * theta[0], inputs["x"] ** 2 * theta[1] + inputs["shift"]], axis=-1)

    clean = np.stack([inputs["x"] * 0.3, inputs["x"] ** 2 * 0.7 + 0.1], -1)
    targets = clean + 0.05 * np.random.default_rng(0).normal(size=(2, 3, 5, 2))
    problem = balson.model_problem(curve, inputs, targets, 2, noise=[0.05, 0.1])
    assert problem.batch_shape == (2, 3)
    found = balson.fit(KEY, problem, IS)
    assert found.mean.shape == (2, 3, 2)
    design = np.stack(
        [np.stack([inputs["x"], 0 * inputs["x"]], -1), np.stack([0 * inputs["x"], inputs["x"] ** 2], -1)], 1
    )
    expected = balson.fit(KEY, balson.linear_problem(design, targets - [0.0, 0.1], row_axes=2, noise=[0.05, 0.1]), IS)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-3)
    # One problem gets its inputs as they are, without an axis for a batch of one.
    one = balson.fit(
        KEY, balson.model_problem(lambda theta, x: _checked(x) * theta[0], inputs["x"], clean[:, 0], 2), IS
    )
    assert one.mean.shape == (2,)
    scalar = balson.model_problem(lambda theta, _: theta[0] + 0.0, None, 0.4, 2, noise=0.1)
    assert float(balson.fit(KEY, scalar, IS).mean[0]) == pytest.approx(0.4, abs=0.02)


def _checked(x):
    assert x.shape == (5,)
    return x


@pytest.mark.slow
def test_draws_are_predicted_in_bounded_chunks(monkeypatch):
    problem = balson.model_problem(linear, DESIGN, TARGETS, 3, noise=0.5)
    whole = balson.fit(KEY, problem, IS)
    monkeypatch.setattr("balson_jax.targets.model.PREDICTED_ELEMENTS", TARGETS.size * 100)
    jax.clear_caches()
    assert_same(balson.fit(KEY, problem, IS), whole)


def test_inputs_may_be_what_they_like():
    """Infinite inputs whose prediction is finite, and NaN where the row does not count."""
    times = np.array([0.0, 0.5, 1.0, np.inf, np.nan])
    target = np.array([1.0, 0.6, 0.4, 0.1, 7.0])
    mask = np.array([True, True, True, True, False])

    def decay(theta, t):
        return theta[0] * jnp.exp(-2 * t) + theta[1] * jnp.where(t == 0, 1.0, 0.1)

    found = balson.fit(KEY, balson.model_problem(decay, times, target, 2, noise=0.1, mask=mask), IS)
    assert found.status == balson.Status.OK
    assert jnp.isfinite(found.mean).all()


def test_predictions_of_a_model():
    """By any function of theta, whatever was fitted."""
    found, later = fitted("known"), np.linspace(0, 4, 6)
    prediction = found.predict(lambda theta: decays(theta, later), 0.8)
    assert prediction.mean.shape == prediction.lower.shape == (len(TARGETS), 6)
    curves = np.asarray(jax.vmap(jax.vmap(lambda theta: decays(theta, later)))(found.draws))
    weights = np.asarray(found.draw_weights)[..., None]
    np.testing.assert_allclose(prediction.mean, (weights * curves).sum(1), rtol=1e-4, atol=1e-5)
    inside = (weights * ((curves >= prediction.lower[:, None]) & (curves <= prediction.upper[:, None]))).sum(1)
    np.testing.assert_allclose(inside, 0.8, atol=0.03)


def test_likelihoods_of_a_model():
    totals = np.linspace(0.5, 2, len(TARGETS))
    problem = balson.model_problem(linear, DESIGN, TARGETS, 3, noise=0.5, total=totals)
    same = balson.linear_problem(DESIGN, TARGETS, noise=0.5, total=totals)
    omega = RNG.dirichlet(np.ones(3), (4, len(TARGETS)))
    np.testing.assert_allclose(density.log_posterior(problem, omega), density.log_posterior(same, omega), rtol=1e-4)


@pytest.mark.slow
def test_a_model_in_jit_vmap_and_grad(x64):
    target = jnp.asarray(TARGETS[0])

    @jax.jit
    def evidence(level):
        problem = balson.model_problem(linear, jnp.asarray(DESIGN), target, 3, noise=level)
        return balson.fit(jax.random.key(2), problem, IS).log_evidence

    levels, step = jnp.array([0.4, 0.6]), 1e-5
    slopes = jax.vmap(jax.grad(evidence))(levels)
    ends = [jax.vmap(evidence)(levels + sign * step) for sign in (1, -1)]
    np.testing.assert_allclose(slopes, (ends[0] - ends[1]) / (2 * step), rtol=1e-5)
