"""The contract of an unknown concentration: batches, axes, precisions, tracing, options, constraints, broken data."""

from __future__ import annotations

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import quadrature
from cases import DESIGN, FAST, TARGETS, TOGETHER, thinned

import balson_jax as balson

KEY, METHOD, NOISE = jax.random.key(3), FAST["is"], 0.7
RANGE = balson.CommonConcentration(0.1, 4.0, 4)
Z = 4.0
"""Standard errors. With a dozen numbers each, a false alarm has a probability of 1e-3."""


def problem(targets=TARGETS, **options):
    return balson.linear_problem(DESIGN, targets, **{"noise": NOISE, "prior": RANGE, **options})


@pytest.fixture(scope="module")
def whole():
    return balson.fit(KEY, problem(), METHOD)


def assert_same(found, expected, rtol=1e-3, atol=2e-4):
    """Compare two programs for a mixture to rounding, which weights and differences of means amplify a little."""
    for name in ("mean", "std", "theta", "log_evidence", "residual", "mean_stderr"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol, atol, err_msg=name)
    for name in ("values", "weights", "log_evidence"):
        own, other = (getattr(one.concentration, name) for one in (found, expected))
        np.testing.assert_allclose(own, other, rtol, atol, err_msg=name)
    np.testing.assert_allclose(found.ess, expected.ess, 0.02)
    np.testing.assert_array_equal(found.status, expected.status)


# --- batches and axes ------------------------------------------------------------------------------------------------


def test_batch_of_one_and_empty_batch(whole):
    one = balson.fit(KEY, problem(TARGETS[:1]), METHOD)
    assert one.mean.shape == (1, 3)
    assert_same(one, whole[:1])
    none = balson.fit(KEY, problem(TARGETS[:0]), METHOD)
    assert none.batch_shape == none.status.shape == none.concentration.mean.shape == (0,)
    assert none.concentration.weights.shape == (0, RANGE.num)
    assert none.draws.shape == (0, 512, 3)
    assert none.concentration.interval()[0].shape == (0,)
    assert "0 problems" in repr(none)


def test_leading_axes(whole):
    order = np.array([[0, 1, 2], [3, 4, 0]])
    found = balson.fit(KEY, problem(TARGETS[order]), METHOD)
    assert found.batch_shape == (2, 3)
    assert found.concentration.values.shape == (2, 3, RANGE.num)
    assert found.concentration.interval()[0].shape == found.concentration.std.shape == (2, 3)
    for i in range(2):
        assert_same(found[i], whole[order[i]])


def test_same_key_same_answer(whole):
    again = balson.fit(KEY, problem(), METHOD)
    chex.assert_trees_all_equal(again, whole)
    other = balson.fit(jax.random.key(4), problem(), METHOD)
    assert (np.asarray(other.concentration.weights) != np.asarray(whole.concentration.weights)).any()


def test_both_precisions_agree(whole):
    with jax.enable_x64(True):
        double = balson.fit(jax.random.key(3), problem(), METHOD)
    for found, kind in ((whole, "float32"), (double, "float64")):
        assert {str(leaf.dtype) for leaf in jax.tree.leaves(found)} == {kind, "int32"}
    # Quasi-random points differ below the 32nd bit only.
    error = 10 * (np.asarray(whole.mean_stderr, np.float64) + np.asarray(double.mean_stderr))
    np.testing.assert_array_less(np.abs(np.asarray(whole.mean, np.float64) - np.asarray(double.mean)), error + 1e-5)
    np.testing.assert_allclose(whole.concentration.weights, double.concentration.weights, atol=5e-3)


@pytest.mark.slow
def test_vmap_equals_a_loop():
    keys = jax.random.split(KEY, 2)
    mapped = jax.vmap(lambda key, target: balson.fit(key, problem(target), METHOD))(keys, jnp.asarray(TARGETS[:2]))
    for i in range(2):
        assert_same(mapped[i], balson.fit(keys[i], problem(TARGETS[i]), METHOD))


# --- options ---------------------------------------------------------------------------------------------------------

OWN = np.linspace(0.6, 1.4, TOGETHER)
OPTIONS = {
    "total and noise": {"total": OWN, "noise": OWN[::-1]},
    "weights": {"weights": np.random.default_rng(1).uniform(0.5, 1.5, TARGETS.shape)},
    "slack": {"constraint": "at_most", "slack_prior": 2 * OWN},
    "signed": {"constraint": "signed", "total": OWN},
    "inverse gamma": {"noise": balson.InverseGamma(2.0, OWN)},
}


@thinned("which", ["total and noise"], [name for name in OPTIONS if name != "total and noise"])
def test_options_may_differ_between_problems(which):
    """The batch gives what its problems give alone."""

    def taken(value, index):
        return value[index] if np.shape(value)[:1] == (TOGETHER,) else value

    found = balson.fit(KEY, problem(**OPTIONS[which]), METHOD)
    for index in (1, 4):
        own = {name: jax.tree.map(lambda leaf, i=index: taken(leaf, i), v) for name, v in OPTIONS[which].items()}
        alone = balson.fit(KEY, problem(TARGETS[index], **own), METHOD)
        assert_same(found[index], alone)
        for part in ("slack", "noise"):
            if getattr(alone, part) is not None:
                np.testing.assert_allclose(getattr(found, part).mean[index], getattr(alone, part).mean, rtol=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("constraint", "num_params"),
    [("equal", 2), ("at_most", 1), ("at_most", 2), ("signed", 1), ("signed_at_most", 1)],
)
def test_one_or_two_parameters_against_quadrature(constraint, num_params):
    """Weights, means and evidences of two problems, for every constraint."""
    columns, slack = DESIGN[:, :num_params], 2.0
    targets = TARGETS[:2] - TARGETS[:2].mean() * (constraint != "equal")
    options = {"noise": NOISE, "constraint": constraint, "slack_prior": slack, "total": 1.5}
    found = balson.fit(KEY, balson.linear_problem(columns, targets, prior=RANGE, **options), METHOD)
    lifted = np.hstack([columns, -columns]) if "signed" in constraint else columns
    extra = [slack] if "at_most" in constraint else []
    lifted = np.hstack([lifted, np.zeros((len(lifted), len(extra)))])
    for own, target in zip((found[0], found[1]), targets, strict=True):
        parts = []
        for value in RANGE.values():
            omega, weights = quadrature.simplex_rule([value] * (lifted.shape[1] - len(extra)) + extra)
            log_likelihood = quadrature.log_likelihood(lifted, target, omega, 1.5, NOISE)
            parts.append(quadrature.integrate(log_likelihood, weights, quadrature.unlift(constraint, omega)))
        logs = np.array([part.log_evidence for part in parts])
        error = Z * np.asarray(own.concentration.log_evidence_stderr) + 1e-3
        np.testing.assert_array_less(np.abs(own.concentration.log_evidence - logs), error)
        shares = np.exp(logs - logs.max()) * RANGE.shares()
        shares = shares / shares.sum()
        np.testing.assert_allclose(own.concentration.weights, shares, atol=error.max())
        mean = 1.5 * sum(share * part.mean for share, part in zip(shares, parts, strict=True))
        np.testing.assert_array_less(np.abs(own.mean - mean), Z * np.asarray(own.mean_stderr) + 1e-5)


@pytest.mark.slow
def test_what_is_saved_is_loaded(tmp_path):
    """Slack, noise, nuisance and names, beside the concentration."""
    options = {"constraint": "at_most", "noise": "estimate", "intercept": True, "names": ("a", "b", "c")}
    found = balson.fit(KEY, problem(TARGETS[:2], **options), METHOD)
    found.save(tmp_path / "posterior.npz")
    loaded = balson.Posterior.load(tmp_path / "posterior.npz")
    assert jax.tree.structure(loaded) == jax.tree.structure(found)
    chex.assert_trees_all_equal(loaded, jax.tree.map(np.asarray, found))
    assert loaded.names == ("a", "b", "c")
    assert repr(loaded[1]) == repr(found[1])


# --- methods ---------------------------------------------------------------------------------------------------------

METHODS = {
    "tg": balson.TG(4096),
    "rs": balson.RS(num_draws=2000),
    "fresh": balson.ISIRS(num_draws=4000, rounds=1, reuse_data=False),
    "variational": balson.Variational(num_draws=4096),
    "chains": balson.HitAndRun(target_ess=200.0, keep=64),
    "auto": balson.Auto(),
}


@thinned("name", [], list(METHODS))
def test_methods_agree(name, whole):
    """All that estimate the evidence; chains walk in two ways, for values below one and above."""
    found = balson.fit(KEY, problem(), METHODS[name])
    assert (found.status == 0).all()
    error = np.hypot(found.log_evidence_stderr, whole.log_evidence_stderr)
    np.testing.assert_array_less(np.abs(found.log_evidence - whole.log_evidence), Z * error + 1e-4)
    error = np.hypot(found.mean_stderr, whole.mean_stderr)
    np.testing.assert_array_less(np.abs(found.mean - whole.mean), Z * error + 1e-5)
    own, other = found.concentration, whole.concentration
    np.testing.assert_array_equal(own.values, other.values)
    error = np.hypot(own.log_evidence_stderr, other.log_evidence_stderr)
    np.testing.assert_array_less(np.abs(own.log_evidence - other.log_evidence), Z * error + 1e-4)
    # A share w moves by w (1 - w) times the error of the difference of two logarithms.
    np.testing.assert_allclose(own.weights, other.weights, atol=0.25 * Z * np.sqrt(2) * error.max() + 1e-4)


@pytest.mark.slow
def test_derivatives_against_finite_differences(x64):
    def objective(target, noise):
        found = balson.fit(jax.random.key(1), problem(target, noise=noise), balson.IS(num_draws=256))
        return found.log_evidence + found.mean @ jnp.arange(1.0, 4.0) + found.std.sum()

    evaluate = jax.jit(jax.value_and_grad(objective, argnums=(0, 1)))
    target, noise, step = jnp.asarray(TARGETS[0]), jnp.array(NOISE), 1e-5
    slopes = evaluate(target, noise)[1]
    direction = np.random.default_rng(0).normal(size=len(target))
    for slope, along in ((slopes[0] @ direction, (direction, 0.0)), (slopes[1], (0 * direction, 1.0))):
        ends = [evaluate(target + sign * step * along[0], noise + sign * step * along[1])[0] for sign in (1, -1)]
        assert float(slope) == pytest.approx(float(ends[0] - ends[1]) / (2 * step), rel=1e-5)


def test_chains_refuse_to_be_differentiated():
    with pytest.raises(TypeError, match="this method has no derivatives"):
        jax.grad(lambda target: balson.fit(KEY, problem(target), balson.RS(num_draws=500)).mean[0])(TARGETS[0])


# --- what ends in a status -------------------------------------------------------------------------------------------


def test_one_bad_problem_does_not_harm_the_others(whole):
    """And nothing is told of its concentration."""
    targets = jnp.asarray(TARGETS).at[2, 3].set(jnp.nan)
    found = balson.fit(KEY, jax.jit(problem)(targets), METHOD)
    good = np.arange(TOGETHER) != 2
    assert found.status[2] == balson.Status.NONFINITE
    assert_same(found[good], whole[good])
    own = found[2].concentration
    for value in (found.mean[2], found.log_evidence[2], own.weights, own.mean, own.std, *own.interval()):
        assert np.isnan(value).all()
    assert "NONFINITE" in repr(found[2])
    with pytest.raises(balson.FitError, match=r"1 of 5 problems, first at index \[2\]"):
        found.raise_for_status()


@thinned("broken", ["noise"], ["design", "total"])
def test_troubles_inside_a_trace_end_in_status(broken):
    values = {"design": DESIGN, "target": TARGETS[0], "noise": NOISE, "total": 1.0}
    values[broken] = np.full_like(values[broken], np.nan if broken == "design" else -1.0)
    made = jax.jit(balson.linear_problem, static_argnames="prior")(**values, prior=RANGE)
    found = balson.fit(KEY, made, METHOD)
    assert found.status == balson.Status.NONFINITE
    assert np.isnan(found.mean).all()
    assert np.isnan(found.concentration.mean)


@pytest.mark.slow
def test_data_that_every_concentration_excludes():
    """Rejection sampling accepts nothing for any value: the weights are not known, and the status says so."""
    method = dataclasses.replace(FAST["rs"], max_proposals=4096)
    found = balson.fit(KEY, problem(1e3 * np.ones((2, 10)), noise=1e-3), method)
    assert (np.asarray(found.status) & int(balson.Status.LOW_ESS) > 0).all()
    assert np.isnan(found.concentration.weights).all()


# --- other doors -----------------------------------------------------------------------------------------------------


def test_streams_take_a_range_and_go_on_with_it(whole, tmp_path):
    def stream(prior):
        options = {"noise": NOISE, "prior": prior, "check": False, "progress": False}
        return balson.fit_stream(KEY, DESIGN, TARGETS, METHOD, chunk=TOGETHER, out=tmp_path / "out", **options)

    assert_same(stream(RANGE), whole)
    assert_same(stream(dataclasses.replace(RANGE)), whole)
    with pytest.raises(ValueError, match="holds results for a different prior"):
        stream(dataclasses.replace(RANGE, largest=3.0))


def test_compare_ranks_it_beside_fixed_concentrations(whole):
    """Its evidence is the mean of those of the grid by their prior shares: the largest is above, the smallest below."""
    values = RANGE.values()
    candidates = {f"{value:.2g}": problem(prior=value) for value in values[[0, -1]]} | {"estimated": whole}
    found = balson.compare(candidates, key=KEY, method=METHOD)
    by_value = np.asarray(whole.concentration.log_evidence)
    rows = dict(zip(found.names, found.log_evidence, strict=True))
    np.testing.assert_allclose(rows["0.1"], by_value[:, 0], rtol=1e-4)
    np.testing.assert_allclose(rows["4"], by_value[:, -1], rtol=1e-4)
    mean = np.log(np.exp(by_value) @ RANGE.shares())
    np.testing.assert_allclose(rows["estimated"], mean, rtol=1e-4)
    np.testing.assert_allclose(found.weights.sum(0), 1, rtol=1e-5)


def test_names_and_checks_go_with_it(whole):
    one = balson.fit(KEY, problem(TARGETS[1], names=("a", "b", "c")), METHOD)
    assert one.names == ("a", "b", "c")
    assert float(one["b"].mean) == pytest.approx(float(whole.mean[1, 1]), abs=1e-4)
    assert np.isfinite(balson.check(DESIGN, TARGETS, whole, noise=NOISE).narrow)
