"""Which components are present, and the sparse estimate: any batch, precision, transformation; what is refused."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import DESIGN, FAST, TARGETS, TOGETHER, thinned
from examples.metropolis import Metropolis
from examples.ordered import Ordered
from scipy import stats

import balson_jax as balson

KEY, METHOD, NOISE = jax.random.key(0), FAST["is"], 0.7
NUM_PARAMS = 9
PRIOR = np.linspace(0.05, 1.2, NUM_PARAMS)
ROWS = np.random.default_rng(0).normal(size=(10, NUM_PARAMS))
OWN = np.linspace(0.6, 1.4, TOGETHER)


def problem(targets=TARGETS, **options):
    """Return problems with three components, whose presence is counted among kept draws."""
    return balson.linear_problem(DESIGN, targets, **{"noise": NOISE, **options})


def many(targets=TARGETS, **options):
    """Return problems with nine components, whose presence is counted among all draws."""
    return balson.linear_problem(ROWS, targets, **{"noise": 2.0, "prior": PRIOR, **options})


@pytest.fixture(scope="module")
def few():
    return balson.fit(KEY, problem(), METHOD)


@pytest.fixture(scope="module")
def found():
    return balson.fit(KEY, many(), METHOD)


# --- inclusion and support -------------------------------------------------------------------------------------------


def test_a_batch_equals_its_problems_whatever_its_shape(found):
    for index in (0, 3):
        alone = balson.fit(KEY, many(TARGETS[index]), METHOD)
        assert alone.present.shape == alone.support().shape == (NUM_PARAMS,)
        np.testing.assert_allclose(alone.inclusion(), found.inclusion()[index], atol=1e-4)
        np.testing.assert_allclose(alone.present_stderr, found.present_stderr[index], rtol=0.02, atol=1e-5)
    order = np.array([[0, 1, 2], [3, 4, 0]])
    grid = balson.fit(KEY, many(TARGETS[order]), METHOD)
    assert grid.present.shape == grid.present_stderr.shape == grid.support().shape == (2, 3, NUM_PARAMS)
    np.testing.assert_allclose(grid.inclusion(), found.inclusion()[order], atol=1e-4)
    np.testing.assert_array_equal(grid.support(0.9), np.asarray(grid.inclusion()) > 0.9)
    assert grid.inclusion(0.05).shape == (2, 3, NUM_PARAMS)
    none = balson.fit(KEY, many(TARGETS[:0]), METHOD)
    assert none.present.shape == none.inclusion(0.05).shape == none.support().shape == (0, NUM_PARAMS)


def test_thresholds_are_shares_of_each_total():
    """Kept draws and all draws count the same: in units of the total of each problem."""
    targets = OWN[:, None] * TARGETS[:1]
    scaled = balson.fit(KEY, many(targets, total=OWN, noise=2.0 * OWN), METHOD)
    np.testing.assert_allclose(scaled.inclusion(), np.tile(scaled.inclusion()[:1], (TOGETHER, 1)), atol=1e-4)
    np.testing.assert_allclose(scaled.inclusion(0.05), np.tile(scaled.inclusion(0.05)[:1], (TOGETHER, 1)), atol=0.01)
    assert (np.diff([scaled.inclusion(limit).sum() for limit in (0.001, 0.05, 0.3)]) < 0).all()


def test_a_problem_without_an_answer_has_no_probabilities(found):
    targets = jnp.asarray(TARGETS).at[2, 3].set(jnp.nan)
    broken = balson.fit(KEY, jax.jit(many)(targets), METHOD)
    assert broken.status[2] == balson.Status.NONFINITE
    for value in (broken.inclusion()[2], broken.inclusion(0.05)[2], broken.present_stderr[2]):
        assert np.isnan(value).all()
    assert not broken.support()[2].any()
    good = np.arange(TOGETHER) != 2
    np.testing.assert_allclose(broken.inclusion()[good], found.inclusion()[good], atol=1e-4)


@pytest.mark.slow
def test_both_precisions_and_vmap(found):
    with jax.enable_x64(True):
        double = balson.fit(jax.random.key(0), many(), METHOD)
        assert double.present.dtype == double.inclusion(0.05).dtype == jnp.float64
    assert found.present.dtype == found.present_stderr.dtype == jnp.float32
    error = np.hypot(np.asarray(found.present_stderr, float), double.present_stderr)
    np.testing.assert_array_less(np.abs(np.asarray(found.present, float) - double.present), 4.5 * error + 1e-5)
    mapped = jax.vmap(lambda target: balson.fit(KEY, many(target), METHOD).support())(jnp.asarray(TARGETS[:2]))
    clear = np.abs(np.asarray(found.present[:2]) - 0.5) > 1e-3
    np.testing.assert_array_equal(np.asarray(mapped)[clear], np.asarray(found.support()[:2])[clear])


@thinned("name", [], ["rsirs", "isirs", "variational", "metropolis", "rates"])
def test_every_method_counts_all_its_draws(name):
    """Data that say nothing leave the prior, whose probabilities are exact; nine components, false alarms 7e-6."""
    methods = {
        "rsirs": balson.RSIRS(num_draws=2000, rounds=1),
        "isirs": balson.ISIRS(num_draws=4000, rounds=1),
        "variational": balson.Variational(num_draws=4096),
        "metropolis": Metropolis(num_steps=4096),
        "rates": balson.HitAndRun(target_ess=1000.0, evidence=True),
    }
    prior = np.linspace(0.2, 1.0, NUM_PARAMS)
    told = balson.fit(KEY, many(np.zeros((2, 10)), noise=1e4, prior=prior), methods[name])
    assert (told.status == 0).all()
    truth = stats.beta.sf(0.01, prior, prior.sum() - prior)
    np.testing.assert_array_less(np.abs(told.present - truth), 4.5 * np.asarray(told.present_stderr))
    alone = np.sqrt(truth * (1 - truth) / np.asarray(told.ess)[:, None])
    assert (told.present_stderr < 3 * alone).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda own: own.inclusion(0.0), "threshold=0.0 must lie between 0 and 1"),
        (lambda own: own.inclusion(5), "threshold=5 must lie between 0 and 1; pass 0.05 for 5 %"),
        (lambda own: own.inclusion(np.nan), "threshold=nan must lie between 0 and 1"),
        (lambda own: own.inclusion("some"), "threshold is 'some'; pass real numbers"),
        (lambda own: own.inclusion(np.ones(2) / 2), r"threshold has shape \(2,\); pass one number"),
        (lambda own: own.support(1.0), "probability=1.0 must lie between 0 and 1"),
        (lambda own: own.support(0.5, -0.1), "threshold=-0.1 must lie between 0 and 1"),
    ],
)
def test_bad_calls_about_presence(found, call, message):
    with pytest.raises(ValueError, match=message):
        call(found)


# --- the sparse estimate ---------------------------------------------------------------------------------------------


def test_sparse_of_batches_of_any_shape(few):
    whole = few.sparse(problem())
    assert (whole == 0).any()
    np.testing.assert_allclose(whole.sum(-1), 1, rtol=1e-5)
    order = np.array([[0, 1, 2], [3, 4, 0]])
    grid = few[order].sparse(problem(TARGETS[order]))
    np.testing.assert_allclose(grid, whole[order], atol=1e-5)
    np.testing.assert_allclose(few[:1].sparse(problem(TARGETS[:1])), whole[:1], atol=1e-5)
    np.testing.assert_allclose(few[4].sparse(problem(TARGETS[4])), whole[4], atol=1e-5)
    assert few[:0].sparse(problem(TARGETS[:0])).shape == (0, 3)


def test_sparse_leaves_problems_without_an_answer_alone(few):
    whole = few.sparse(problem())
    targets = jnp.asarray(TARGETS).at[2, 3].set(jnp.nan)
    made = jax.jit(problem)(targets)
    broken = balson.fit(KEY, made, METHOD).sparse(made)
    assert np.isnan(broken[2]).all()
    good = np.arange(TOGETHER) != 2
    np.testing.assert_array_equal(broken[good] != 0, whole[good] != 0)
    np.testing.assert_allclose(broken[good], whole[good], atol=1e-4)


@thinned("which", ["totals"], ["designs", "signed", "at_most", "one signed", "estimate", "nuisance"])
def test_sparse_with_options_of_each_problem(which):
    """The batch gives what its problems give alone, keeps its constraint, and predicts what the mean predicts."""
    designs = np.stack([DESIGN, DESIGN[:, ::-1], 1.2 * DESIGN, DESIGN + 0.2, DESIGN])
    design, options = {
        "totals": (DESIGN, {"total": OWN, "noise": OWN}),
        "designs": (designs, {"weights": np.random.default_rng(1).uniform(0.5, 1.5, TARGETS.shape)}),
        "signed": (DESIGN, {"constraint": "signed", "total": 2 * OWN}),
        "at_most": (DESIGN, {"constraint": "at_most", "slack_prior": OWN}),
        "one signed": (DESIGN[:, :1], {"constraint": "signed", "noise": NOISE}),
        "estimate": (DESIGN, {"prior": balson.CommonConcentration(0.1, 4.0, 4), "noise": NOISE}),
        "nuisance": (DESIGN, {"intercept": True, "total": OWN}),
    }[which]

    def taken(value, index):
        return value[index] if np.shape(value)[:1] == (TOGETHER,) else value

    batch = balson.linear_problem(design, TARGETS, **options)
    told = balson.fit(KEY, batch, METHOD)
    sparse = told.sparse(batch)
    total = np.broadcast_to(np.asarray(told.total), TOGETHER)
    assert (np.abs(sparse).sum(-1) <= total * (1 + 1e-5)).all()
    assert ((sparse >= 0) | (which in ("signed", "one signed"))).all()
    for index in (1, 4):
        columns = taken(design, index) if design.ndim == 3 else design
        own = {name: taken(value, index) for name, value in options.items()}
        alone = balson.linear_problem(columns, TARGETS[index], **own)
        np.testing.assert_allclose(told[index].sparse(alone), sparse[index], atol=1e-4)
        root = np.sqrt(own.get("weights", np.ones(len(columns))))[:, None] * columns
        if which == "nuisance":
            root = root - root.mean(0)
        draws, weights = np.asarray(told.draws[index], float), np.asarray(told.draw_weights[index], float)
        spread = weights @ np.square((draws - np.asarray(told.mean[index])) @ root.T).sum(-1)
        assert np.square(root @ (sparse[index] - np.asarray(told.mean[index]))).sum() <= 1.001 * spread + 1e-9


@pytest.mark.slow
def test_sparse_in_both_precisions(few):
    with jax.enable_x64(True):
        batch = problem()
        double = balson.fit(jax.random.key(0), batch, METHOD).sparse(batch)
    assert double.dtype == np.float64
    np.testing.assert_array_equal(double != 0, few.sparse(problem()) != 0)
    np.testing.assert_allclose(double, few.sparse(problem()), atol=0.01)


def line(theta, x):
    return theta[0] + theta[1] * x


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: balson.model_problem(line, np.arange(10.0), TARGETS, 2), "problem is a ModelProblem; sparse needs"),
        (
            lambda: balson.linear_problem(balson.UncertainDesign(DESIGN, std=0.1), TARGETS),
            "problem is a UncertainProblem; sparse needs the linear_problem that was fitted, with a design that is",
        ),
        (
            lambda: problem(TARGETS[:2]),
            r"problem has batch_shape=\(2,\), the posterior \(5,\); pass the one that was fitted",
        ),
        (lambda: many(), "problem has num_params=9, the posterior 3"),
        (lambda: problem(constraint="signed"), "problem has constraint='signed', the posterior 'equal'"),
    ],
)
def test_problems_that_sparse_refuses(few, make, message):
    with pytest.raises(ValueError, match=message):
        few.sparse(make())


@pytest.mark.parametrize(
    ("tolerance", "message"),
    [
        (0.0, "tolerance is 0.0; tolerance must be positive"),
        (np.nan, "tolerance is nan; tolerance must be positive"),
        (np.inf, "tolerance is inf; tolerance must be positive"),
        ("much", "tolerance is 'much'; pass real numbers"),
        (np.ones(5), r"tolerance has shape \(5,\); pass one number"),
    ],
)
def test_tolerances_that_sparse_refuses(few, tolerance, message):
    with pytest.raises(ValueError, match=message):
        few.sparse(problem(), tolerance)


def test_posteriors_that_sparse_refuses(few):
    bare = dataclasses.replace(few, draws=few.draws[:, :0], draw_weights=few.draw_weights[:, :0])
    with pytest.raises(ValueError, match=r"sparse needs kept draws; .*keep"):
        bare.sparse(problem())
    ordered = dataclasses.replace(few, constraint=Ordered())
    with pytest.raises(ValueError, match="constraint='ordered' doesn't state its sum: set sum_may_be_less"):
        ordered.sparse(problem(constraint=Ordered()))
    with pytest.raises(ValueError, match="sparse needs concrete values; call it outside jit"):
        jax.jit(lambda own: own.sparse(problem()))(few)
