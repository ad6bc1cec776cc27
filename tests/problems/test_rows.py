"""Weights, masks, missing values, noise per row, correlated noise, vector outputs: each against rows done by hand."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import DESIGN, FAST, TARGETS, num_programs, thinned

import balson_jax as balson
from balson_jax.problems.reduction import _reduce

KEY = jax.random.key(0)
METHOD = FAST["is"]
RNG = np.random.default_rng(0)
NUM_ROWS = len(DESIGN)


def fit(design, target, **options):
    return balson.fit(KEY, balson.linear_problem(design, target, **options), METHOD)


def assert_same(found, expected, rtol=2e-4):
    for name in ("mean", "std", "log_evidence", "alpha"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=rtol, atol=1e-5, err_msg=name)


@thinned("noise", ["estimate"], [0.4])
def test_a_row_of_weight_zero_is_not_there(noise):
    kept = np.array([0, 1, 2, 4, 5, 7, 8, 9])
    expected = fit(DESIGN[kept], TARGETS[0][kept], noise=noise)
    mask = np.isin(np.arange(NUM_ROWS), kept)
    broken = np.where(mask, TARGETS[0], np.nan)
    assert_same(fit(DESIGN, TARGETS[0], noise=noise, weights=mask.astype(float)), expected)
    assert_same(fit(DESIGN, TARGETS[0], noise=noise, mask=mask), expected)
    assert_same(fit(DESIGN, broken, noise=noise, mask=mask), expected)
    assert_same(fit(DESIGN, broken, noise=noise, weights=mask.astype(float)), expected)
    assert_same(fit(DESIGN, broken, noise=noise, missing="drop"), expected)
    if noise == "estimate":
        found = fit(DESIGN, broken, noise=noise, missing="drop")
        np.testing.assert_allclose(found.noise.mean, expected.noise.mean, rtol=1e-3)


def test_weights_divide_the_variance():
    weights = RNG.uniform(0.2, 3, NUM_ROWS)
    per_row = fit(DESIGN, TARGETS[0], noise=0.4 / np.sqrt(weights))
    assert_same(fit(DESIGN, TARGETS[0], noise=0.4, weights=weights), per_row)
    # A weight of two is two rows at the same place, as far as theta goes.
    doubled = fit(np.concatenate([DESIGN, DESIGN[:1]]), np.concatenate([TARGETS[0], TARGETS[0][:1]]), noise=0.4)
    found = fit(DESIGN, TARGETS[0], noise=0.4, weights=np.where(np.arange(NUM_ROWS) == 0, 2.0, 1.0))
    np.testing.assert_allclose(found.mean, doubled.mean, rtol=1e-4)


def test_gaps_of_targets_that_share_a_design():
    targets = TARGETS.copy()
    targets[0, 2] = targets[1, [0, 5, 6]] = targets[2, 3:9] = np.nan
    together = fit(DESIGN, targets, noise=0.4, missing="drop")
    for index in range(len(targets)):
        kept = ~np.isnan(targets[index])
        alone = fit(DESIGN[kept], targets[index][kept], noise=0.4)
        np.testing.assert_allclose(together.mean[index], alone.mean, rtol=5e-4)
        np.testing.assert_allclose(together.log_evidence[index], alone.log_evidence, rtol=5e-4)
    # More gaps than rows can bear leaves fewer rows than parameters; the answer is that of these.
    assert together.status.tolist() == [0] * len(targets)


def test_targets_with_other_gaps_compile_nothing():
    def gappy(seed):
        rng = np.random.default_rng(seed)
        return np.where(rng.uniform(size=TARGETS.shape) < 0.3, np.nan, TARGETS)

    fit(DESIGN, gappy(0), noise=0.4, missing="drop")
    sizes = _reduce._cache_size(), num_programs()
    for seed in (1, 2, 3):
        fit(DESIGN, gappy(seed), noise=0.4, missing="drop")
    assert (_reduce._cache_size(), num_programs()) == sizes


def test_many_blocks_of_gappy_targets(monkeypatch):
    targets = np.where(RNG.uniform(size=(7, NUM_ROWS)) < 0.2, np.nan, TARGETS[0])
    whole = balson.linear_problem(DESIGN, targets, missing="drop")
    monkeypatch.setattr("balson_jax.problems.reduction.REDUCED_ELEMENTS", 2 * DESIGN.size)
    _reduce.clear_cache()
    try:
        blocks = balson.linear_problem(DESIGN, targets, missing="drop")
    finally:
        _reduce.clear_cache()
    for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(blocks), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_missing_values_inside_a_trace():
    broken = jnp.asarray(TARGETS).at[1, 4].set(jnp.nan)
    fitted = jax.jit(lambda y: fit(jnp.asarray(DESIGN), y, noise=0.4, missing="drop"))(broken)
    np.testing.assert_allclose(fitted.mean, fit(DESIGN, np.asarray(broken), noise=0.4, missing="drop").mean, rtol=1e-4)
    # Nothing left is no problem to solve, and the others are not harmed; outside of a trace neither.
    empty = np.asarray(broken).copy()
    empty[2] = np.nan
    assert fit(DESIGN, empty, noise=0.4, missing="drop").status.tolist() == [0, 0, balson.Status.NONFINITE, 0, 0]
    found = jax.jit(lambda y: fit(jnp.asarray(DESIGN), y, noise=0.4, missing="drop"))(broken.at[2].set(jnp.nan))
    assert found.status.tolist() == [0, 0, balson.Status.NONFINITE, 0, 0]


def covariance(num_rows=NUM_ROWS):
    lags = np.abs(np.subtract.outer(np.arange(num_rows), np.arange(num_rows)))
    return 0.16 * 0.6**lags


def test_correlated_noise_is_whitened():
    factor = np.linalg.cholesky(covariance())
    expected = fit(np.linalg.solve(factor, DESIGN), np.linalg.solve(factor, TARGETS.T).T, noise=1.0)
    for noise in (balson.Correlated(covariance()), balson.Correlated(cholesky=factor)):
        found = fit(DESIGN, TARGETS, noise=noise)
        np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-4)
        volume = np.log(np.diagonal(factor)).sum()
        np.testing.assert_allclose(found.log_evidence, expected.log_evidence - volume, rtol=1e-4)


def test_correlated_noise_of_unknown_scale():
    known = fit(DESIGN, TARGETS[0], noise=balson.Correlated(covariance(), scale=balson.InverseGamma(1e5, 1e5)))
    np.testing.assert_allclose(
        known.mean, fit(DESIGN, TARGETS[0], noise=balson.Correlated(covariance())).mean, atol=1e-3
    )
    found = fit(DESIGN, TARGETS[0], noise=balson.Correlated(100 * covariance(), scale="estimate"))
    same = fit(DESIGN, TARGETS[0], noise=balson.Correlated(covariance(), scale="estimate"))
    np.testing.assert_allclose(found.mean, same.mean, rtol=1e-3)
    np.testing.assert_allclose(10 * found.noise.mean, same.noise.mean, rtol=1e-3)


@thinned("given", [], ["covariance", "cholesky"])
def test_gaps_in_correlated_noise(given):
    kept = np.array([0, 1, 3, 4, 7, 9])
    expected = fit(DESIGN[kept], TARGETS[0][kept], noise=balson.Correlated(covariance()[np.ix_(kept, kept)]))
    broken = np.full_like(TARGETS, np.nan)
    broken[:, kept] = TARGETS[0][kept]
    matrix = covariance() if given == "covariance" else np.linalg.cholesky(covariance())
    found = fit(DESIGN, broken, noise=balson.Correlated(**{given: matrix}), missing="drop")
    for index in range(len(TARGETS)):
        np.testing.assert_allclose(found.mean[index], expected.mean, rtol=5e-4)
        np.testing.assert_allclose(found.log_evidence[index], expected.log_evidence, rtol=5e-4)


def test_vector_outputs_are_rows():
    design, targets = DESIGN.reshape(5, 2, 3), TARGETS.reshape(-1, 5, 2)
    assert_same(fit(design, targets, noise=0.4, row_axes=2), fit(DESIGN, TARGETS, noise=0.4))
    levels = np.array([0.3, 0.6])
    per_output = fit(design, targets, noise=levels, row_axes=2)
    assert_same(per_output, fit(DESIGN, TARGETS, noise=np.tile(levels, 5)))
    broken = targets.copy()
    broken[0, 2, 1] = np.nan
    found = fit(design, broken, noise=0.4, row_axes=2, missing="drop")
    assert_same(found, fit(DESIGN, broken.reshape(-1, NUM_ROWS), noise=0.4, missing="drop"))


def test_shapes_of_noise():
    """One per problem broadcasts like everything else; what could be two things is refused."""
    targets = np.stack([TARGETS[:2], TARGETS[2:4]])  # a batch of two by two
    by_row = balson.linear_problem(DESIGN, targets, noise=np.array([[0.1], [1.0]]))
    np.testing.assert_allclose(np.broadcast_to(by_row.noise, (2, 2)), [[0.1, 0.1], [1.0, 1.0]], rtol=1e-6)
    by_column = balson.linear_problem(DESIGN, targets, noise=np.array([0.1, 1.0]))
    np.testing.assert_allclose(np.broadcast_to(by_column.noise, (2, 2)), [[0.1, 1.0], [0.1, 1.0]], rtol=1e-6)
    with pytest.raises(ValueError, match="one per problem or one per row"):
        balson.linear_problem(DESIGN.reshape(5, 2, 3), TARGETS[:2].reshape(2, 5, 2), noise=[0.1, 1.0], row_axes=2)


@thinned(
    "options",
    [],
    [{"weights": np.ones((1, 1, NUM_ROWS))}, {"missing": "drop"}, {"mask": np.ones((1, NUM_ROWS), bool)}],
)
def test_axes_of_length_one(options):
    found = fit(DESIGN, TARGETS[None, :, None], noise=0.4, **options)
    assert found.mean.shape == (1, len(TARGETS), 1, 3)
    np.testing.assert_allclose(found.mean[0, :, 0], fit(DESIGN, TARGETS, noise=0.4).mean, rtol=1e-4)


def test_a_bad_weight_inside_a_trace_is_no_missing_row():
    @jax.jit
    def traced(weights):
        return balson.linear_problem(jnp.asarray(DESIGN), jnp.asarray(TARGETS[0]), noise=0.4, weights=weights)

    for value, status in ((np.nan, balson.Status.NONFINITE), (-1.0, balson.Status.NONFINITE), (0.0, balson.Status.OK)):
        assert balson.fit(KEY, traced(jnp.ones(NUM_ROWS).at[3].set(value)), METHOD).status == status


@pytest.mark.slow
def test_noise_per_row_in_a_stream_of_as_many_targets():
    targets = np.tile(TARGETS[0], (NUM_ROWS, 1)).astype(np.float32)
    noise = np.linspace(0.2, 0.6, NUM_ROWS)
    streamed = balson.fit_stream(KEY, DESIGN, targets, METHOD, chunk=NUM_ROWS, progress=False, noise=noise)
    np.testing.assert_allclose(streamed.mean[0], fit(DESIGN, targets[0], noise=noise).mean, rtol=1e-4)


@pytest.mark.slow
def test_streams_take_gaps_weights_and_constraints(tmp_path):
    broken = TARGETS.astype(np.float32).copy()
    broken[1, 3] = np.nan
    weights = np.linspace(0.5, 2, NUM_ROWS)
    options = {"missing": "drop", "weights": weights, "constraint": "at_most", "noise": balson.InverseGamma(2.0, 0.1)}
    design = DESIGN.astype(np.float32)
    whole = balson.fit(KEY, balson.linear_problem(design, broken, **options), METHOD)
    arguments = {"chunk": 2, "progress": False, "out": tmp_path / "out"}
    streamed = balson.fit_stream(KEY, design, broken, METHOD, **arguments, **options)
    again = balson.fit_stream(KEY, design, broken, METHOD, **arguments, **options)  # all from the files
    for found in (streamed, again):
        np.testing.assert_allclose(found.mean, whole.mean, rtol=1e-5)
        np.testing.assert_allclose(found.noise.mean, whole.noise.mean, rtol=1e-5)
        np.testing.assert_allclose(found.slack.std, whole.slack.std, rtol=1e-4)
        assert found.draws.shape == (len(TARGETS), 512, 3)
    assert (tmp_path / "out" / "noise.scales.npy").exists()
    other = options | {"noise": balson.InverseGamma(2.0, 0.2)}
    with pytest.raises(ValueError, match="different noise"):
        balson.fit_stream(KEY, design, broken, METHOD, **arguments, **other)


def test_other_targets_for_the_same_problem():
    """The same numbers as a new problem: whole, with gaps, with correlated noise; and nothing leaks out of a trace."""
    covariance = 0.3 * np.eye(len(DESIGN)) + 0.1
    for options in ({"noise": 0.5}, {"missing": "drop"}, {"noise": balson.Correlated(covariance), "missing": "drop"}):
        first, second = TARGETS[0], np.where(np.arange(len(DESIGN)) == 2, np.nan, TARGETS[1])
        second = second if "missing" in options else TARGETS[1]
        problem = balson.linear_problem(DESIGN, first, **options)
        expected = balson.linear_problem(DESIGN, second, **options)
        for found in (problem.with_targets(second), problem.with_targets(second)):
            for new, old in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
                np.testing.assert_allclose(new, old, rtol=1e-4, atol=1e-5)
    problem = balson.linear_problem(DESIGN, TARGETS[0], noise=0.5)
    traced = jax.jit(lambda target: problem.with_targets(target).projection)(jnp.asarray(TARGETS[1]))
    np.testing.assert_allclose(problem.with_targets(TARGETS[1]).projection, traced, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="its last axes must be"):
        problem.with_targets(TARGETS[0][1:])
    assert dataclasses.replace(problem, constraint="equal").num_params == DESIGN.shape[1]
