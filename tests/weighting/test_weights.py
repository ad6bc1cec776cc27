"""Effective sample size and Pareto k against ArviZ, and the moments against NumPy."""

from __future__ import annotations

import functools

import arviz
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import thinned
from jax import lax

from balson_jax import Status
from balson_jax.weighting import diagnostics, pareto
from balson_jax.weighting import estimate as estimates
from balson_jax.weighting import moments as weights

NOTHING = weights.Sizes(0, 0)


def weight_sets():
    """Return a hundred sets of log-weights: bounded, log-normal, Student and Pareto tails, shifted at random."""
    rng = np.random.default_rng(0)
    for index in range(100):
        size = (500, 2000, 4000)[index % 3]
        kind = index % 4
        if kind == 0:
            logs = -0.5 * rng.normal(size=size) ** 2 * rng.uniform(0.1, 5)
        elif kind == 1:
            logs = rng.normal(size=size) * rng.uniform(0.3, 3)
        elif kind == 2:
            logs = np.log(np.abs(rng.standard_t(rng.uniform(1, 10), size=size)))
        else:
            logs = -rng.uniform(0.1, 1.5) * np.log(rng.uniform(size=size))
        yield logs + rng.uniform(-100, 100)


def exact_tail(logs: np.ndarray) -> jnp.ndarray:
    size = int(np.ceil(min(0.2 * len(logs), 3 * np.sqrt(len(logs)))))
    return lax.top_k(jnp.asarray(logs), size + 1)[0]


def test_pareto_k_agrees_with_arviz(x64):
    estimate = jax.jit(pareto.pareto_k)
    with np.errstate(all="ignore"):
        for logs in weight_sets():
            expected = float(arviz.psislw(logs)[1])
            assert float(estimate(exact_tail(logs))) == pytest.approx(expected, abs=1e-6)


def test_effective_sample_size_agrees_with_normalised_weights(x64):
    omega = jnp.full((2, 4000), 0.5)
    summarise = jax.jit(lambda logs, omega, count: weights.summarise(logs, {"omega": omega}, count, None, NOTHING))
    for logs in weight_sets():
        expected = 1 / np.square(np.exp(logs - np.logaddexp.reduce(logs))).sum()
        found = summarise(jnp.asarray(logs)[None], omega[:, : len(logs)], jnp.int32(len(logs)))
        assert float(estimates.effective_sample_size(found)[0]) == pytest.approx(expected, rel=1e-10)


def test_pareto_k_in_float32():
    estimate = jax.jit(pareto.pareto_k)
    for logs in weight_sets():
        expected = float(arviz.psislw(logs)[1])
        shifted = jnp.asarray(logs - logs.max(), jnp.float32)
        assert float(estimate(exact_tail(shifted))) == pytest.approx(expected, abs=0.02)


def test_pareto_k_of_degenerate_tails():
    estimate = jax.jit(pareto.pareto_k)
    assert estimate(jnp.zeros(50)) == -jnp.inf
    assert estimate(jnp.concatenate([jnp.zeros(1), jnp.full(49, -300.0)])) == jnp.inf
    assert estimate(jnp.array([0.0, -1.0, -2.0])) == jnp.inf


@functools.partial(jax.jit, static_argnames="num_chunks")
def summarise_all(logs, quantities, num_chunks=1):
    """Return the moments of the same draws, taken in some number of chunks."""
    sizes = {name: values.shape[-2] for name, values in quantities.items()}
    moments = weights.empty(logs.shape[0], sizes, NOTHING, logs.dtype)
    for piece in np.split(np.arange(logs.shape[-1]), num_chunks):
        own = {name: values[..., piece] for name, values in quantities.items()}
        part = weights.summarise(logs[:, piece], own, jnp.int32(len(piece)), None, NOTHING)
        moments = weights.merge(moments, part)
    return moments


@pytest.mark.parametrize("shared", [True, False])
@thinned("num_chunks", [1, 4], [40])
def test_moments_and_ess_against_numpy(shared, num_chunks, x64):
    rng = np.random.default_rng(1)
    omega = rng.dirichlet([0.3, 2.0, 5.0], 400).T
    omega = omega if shared else np.stack([omega, omega[:, ::-1]])
    logs = rng.normal(size=(2, 400)) * 3 + [[500.0], [-2000.0]]
    found = summarise_all(logs, {"omega": omega, "log_omega": np.log(omega)}, num_chunks)
    for b in range(2):
        draws = omega if shared else omega[b]
        p = np.exp(logs[b] - logs[b].max())
        p /= p.sum()
        mean = draws @ p
        np.testing.assert_allclose(found.mean["omega"][b], mean, rtol=1e-12)
        np.testing.assert_allclose(found.variance("omega")[b], (draws - mean[:, None]) ** 2 @ p, rtol=1e-10)
        np.testing.assert_allclose(found.mean["log_omega"][b], np.log(draws) @ p, rtol=1e-12)
        np.testing.assert_allclose(estimates.effective_sample_size(found)[b], 1 / (p**2).sum(), rtol=1e-12)
        expected = np.logaddexp.reduce(logs[b])
        np.testing.assert_allclose(found.peak[b] + np.log(found.mass[b]), expected, rtol=1e-14)
        assert found.count[b] == 400


@pytest.mark.parametrize("width", [1e-2, 1e-4])
def test_narrow_variances_survive_float32(width):
    rng = np.random.default_rng(2)
    deviation = width * rng.normal(size=4096)
    omega = np.float32(np.stack([0.4 + deviation, 0.6 - deviation])[None])
    found = summarise_all(np.zeros((1, 4096), np.float32), {"omega": omega}, num_chunks=4)
    np.testing.assert_allclose(np.sqrt(found.variance("omega"))[0], omega[0].astype(np.float64).std(-1), rtol=1e-3)


def test_draws_of_no_weight_do_not_count():
    omega = jnp.array([[0.1, 0.9, 0.5], [0.9, 0.1, 0.5]])
    logs = jnp.array([[0.0, -jnp.inf, -jnp.inf], [-jnp.inf, -jnp.inf, -jnp.inf]])
    found = summarise_all(logs, {"omega": omega, "log_omega": jnp.log(omega)})
    np.testing.assert_allclose(found.mean["omega"][0], [0.1, 0.9], rtol=1e-6)
    assert found.mass.tolist() == [1.0, 0.0]
    merged = jax.jit(weights.merge)(found, found)
    assert all(jnp.isfinite(leaf[0]).all() for leaf in jax.tree.leaves(merged) if leaf.size)
    assert not any(jnp.isnan(leaf).any() for leaf in jax.tree.leaves(merged) if leaf.size)


def test_the_sampler_keeps_the_largest_weights():
    """Bucketed maxima are the exact tail for few draws, and nearly so for many."""
    rng = np.random.default_rng(3)
    logs = rng.normal(size=(8, 1, 8192)).astype(np.float32)
    buckets = jnp.concatenate([weights._fold_maxima(jnp.asarray(part), weights.BUCKETS) for part in logs], axis=1)
    np.testing.assert_array_equal(buckets[0, : weights.BUCKETS], logs[0, 0].reshape(-1, weights.BUCKETS).max(0))
    size = pareto.tail_size(logs.size) + 1
    kept = np.asarray(lax.top_k(buckets, size)[0][0])
    exact = np.sort(logs.ravel())[::-1][:size]
    assert np.isin(kept, exact).mean() > 0.9
    assert kept[0] == exact[0]
    k_kept, k_exact = (float(jax.jit(pareto.pareto_k)(jnp.asarray(tail))) for tail in (kept, exact))
    assert abs(k_kept - k_exact) < 0.1


def seeming_tail(most: float, size: int) -> np.ndarray:
    """Return log-weights of eight replicates, about zero with a few that look like a heavy tail, cut at the most."""
    rng = np.random.default_rng(4)
    values = 1 + 0.0002 * (rng.uniform(size=(8, 1, size)) ** -1.0 - 1)
    return np.log(np.minimum(values, most)).astype(np.float32)


@jax.jit
def estimate_of(logs, inverse_bound):
    size, sizes = logs.shape[-1], weights.Sizes(weights.BUCKETS, 0)
    omega = jnp.asarray(np.random.default_rng(5).dirichlet([1.0, 2.0], size).T, jnp.float32)
    parts = [weights.summarise(part, {"omega": omega}, jnp.int32(size), None, sizes) for part in logs]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts)
    return estimates.from_replicates(stacked, jnp.zeros(1), logs.size, inverse_bound)


@pytest.mark.parametrize(("most", "size", "is_flat"), [(1.9, 2048, True), (2.1, 2048, False), (1.9, 64, False)])
def test_nearly_equal_weights_have_no_tail(most, size, is_flat):
    """None above twice the mean, among a thousand at least: whatever shape their bend has, it is harmless."""
    logs = seeming_tail(most, size)
    logs[0, 0, :8] = np.log(most)
    found = estimate_of(jnp.asarray(logs), jnp.zeros(1))
    tail = np.sort(logs.ravel())[::-1][: pareto.tail_size(logs.size) + 1]
    plain = float(jax.jit(pareto.pareto_k)(jnp.asarray(tail)))
    assert plain > 0.1
    assert (float(found.pareto_k[0]) <= 0) == is_flat
    if not is_flat:
        assert float(found.pareto_k[0]) == pytest.approx(plain, abs=0.1)


def test_a_standard_error_of_tiny_spreads_does_not_underflow():
    errors = jnp.full((8, 1, 2), 1e-25, jnp.float32)
    found = estimates.Moment(jnp.ones((1, 2)), jnp.array([[1e-23, 0.0]], jnp.float32), errors, errors)
    assert float(found.std_stderr[0, 0]) == pytest.approx(0.5 * np.sqrt(8) * 1e-25 / np.sqrt(1e-23), rel=1e-4)
    assert float(found.std_stderr[0, 1]) == 0


def test_a_bound_close_to_the_mean_overrules_pareto_k():
    """Weights of about one with a few that look like a heavy tail: for no bound, a far, a near, and a wrong one."""
    logs = seeming_tail(4, 2048)
    found = [estimate_of(jnp.asarray(logs), jnp.array([1 / w])) for w in (np.inf, 1000, 8, 2)]
    assert [int(one.status[0]) for one in found] == [
        Status.HIGH_PARETO_K,
        Status.HIGH_PARETO_K,
        0,
        Status.HIGH_PARETO_K,
    ]
    assert found[2].pareto_k[0] <= 0 < 0.7 < found[0].pareto_k[0]
    assert found[2].ess[0] > 0.9 * logs.size


def test_few_effective_draws_allow_a_lighter_tail_only():
    """Of many draws: 345 effective ones with k = 0.66 are not enough to know the tail, 3,000 are."""
    found = diagnostics.verdict(jnp.array([345.0, 3000.0, 345.0, 3000.0]), jnp.array([0.66, 0.66, 0.58, 0.72]), 65_536)
    assert found.tolist() == [Status.HIGH_PARETO_K, 0, 0, Status.HIGH_PARETO_K]


@pytest.mark.slow
def test_standard_errors_are_not_small_by_chance():
    """Of 80,000 means of eight replicates of independent draws none is beyond six of its own standard errors.

    Replicates alone would leave one in 2,000 beyond (Student's t with seven degrees of freedom). Two components of a
    problem, their variances and the evidence tell together how exact its draws are.
    """
    problems, replicates, size = 40_000, 8, 32
    key = jax.random.split(jax.random.key(5))
    values = jax.random.normal(key[0], (problems, 2, replicates * size))
    logs = 0.3 * jax.random.normal(key[1], (problems, replicates * size))
    found = weights.summarise(logs, {"omega": values}, jnp.int32(size), None, NOTHING, replicates)
    parts = jax.tree.map(lambda leaf: jnp.moveaxis(leaf.reshape(problems, replicates, *leaf.shape[1:]), 1, 0), found)
    estimate = estimates.from_replicates(parts, jnp.zeros(problems), replicates * size, jnp.zeros(problems))
    moment = estimate.moments["omega"]
    z = np.asarray(moment.mean / moment.mean_stderr)
    evidence = np.asarray((estimate.log_evidence - 0.5 * 0.3**2) / estimate.log_evidence_stderr)
    alone = np.asarray(moment.mean) / np.asarray(parts.mean["omega"]).std(0, ddof=1) * np.sqrt(replicates)
    assert (np.abs(alone) > 6).sum() > 15  # about 40 are expected
    assert (np.abs(z) > 6).sum() == 0
    assert (np.abs(evidence) > 6).sum() == 0
    # The errors are right on average, too: 40,000 of them give their spread to 0.4 %.
    assert z.std() == pytest.approx(1, abs=0.05)
    assert evidence.std() == pytest.approx(1, abs=0.05)
