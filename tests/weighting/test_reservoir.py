"""Kept draws: chosen in proportion to their weights, the same however they are chunked, and worth their number."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import DESIGN, TOGETHER
from scipy import stats

import balson_jax as balson
from balson_jax.weighting import reservoir


def test_a_slot_keeps_a_draw_in_proportion_to_its_weight():
    logs = jnp.array([[0.0, -1.0, 0.5, -np.inf, -3.0, 1.0, -0.5, 0.2]])
    p = jnp.exp(logs - 1.0)
    values = jnp.arange(8.0)[None]
    keys = jax.random.split(jax.random.key(0), 20_000)

    @jax.jit
    @jax.vmap
    def choose(key):
        kept = reservoir.select(logs[:, None], p[:, None], values[:, None], jax.random.gumbel(key, (1, 8)), 2)
        return kept.values[0, 0], kept.mass[0]

    chosen, mass = choose(keys)
    for slot in range(2):  # the draws of even and of odd numbers
        weights = np.asarray(p[0, slot::2], np.float64)
        np.testing.assert_allclose(mass[:, slot], weights.sum(), rtol=1e-5)
        counts = np.array([(chosen[:, slot] == value).sum() for value in range(slot, 8, 2)])
        expected = weights / weights.sum() * len(keys)
        assert (counts[expected == 0] == 0).all()
        assert stats.chisquare(counts[expected > 0], expected[expected > 0]).pvalue > 1e-3


def test_chunks_merge_to_the_whole():
    merge = jax.jit(reservoir.merge)

    @functools.partial(jax.jit, static_argnums=4)
    def select(logs, p, values, noise, num_slots):
        """One replicate."""
        return reservoir.select(logs[:, None], p[:, None], values[..., None, :], noise[None], num_slots)

    rng = np.random.default_rng(0)
    logs, values = jnp.asarray(rng.normal(size=(3, 64)) * 3), jnp.asarray(rng.normal(size=(3, 2, 64)))
    noise, peak = jnp.asarray(rng.gumbel(size=64)), logs.max(-1, keepdims=True)
    whole = select(logs, jnp.exp(logs - peak), values, noise, 4)
    parts, scales = [], []
    for rows in np.split(np.arange(64), 4):
        own = logs[:, rows].max(-1, keepdims=True)
        parts.append(select(logs[:, rows], jnp.exp(logs[:, rows] - own), values[..., rows], noise[rows], 4))
        scales.append(jnp.exp(own - peak)[:, 0])
    merged = merge(jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts), jnp.stack(scales))
    np.testing.assert_array_equal(merged.values, whole.values)
    np.testing.assert_allclose(merged.mass, whole.mass, rtol=1e-5)
    # Shared draws are chosen alike.
    shared = select(logs[:1], jnp.exp(logs[:1] - peak[:1]), values[0], noise, 4)
    np.testing.assert_array_equal(shared.values[0], whole.values[0])


@pytest.mark.slow
def test_kept_draws_are_worth_their_number():
    """A posterior that one draw in thirty reaches: 512 kept ones, of 16,384 weighted, are worth more than half of that.

    Points of a Sobol sequence with the same last bits lie together; slots made of these would be mostly empty.
    """
    rng = np.random.default_rng(1)
    targets = rng.dirichlet(np.ones(3), TOGETHER) @ DESIGN.T + 0.2 * rng.normal(size=(TOGETHER, len(DESIGN)))
    problem = balson.linear_problem(DESIGN, targets, noise=0.2)
    found = balson.fit(jax.random.key(0), problem, balson.IS(num_draws=16_384))
    assert 0.01 < float(jnp.median(found.ess)) / 16_384 < 0.1
    worth = 1 / np.square(found.draw_weights).sum(-1)
    limit = 1 / (1 / 512 + 1 / np.asarray(found.ess))
    assert (worth > 0.75 * limit).all(), worth / limit
    # Their mean is that of all draws, to their own error.
    mean = np.einsum("pd,pdk->pk", found.draw_weights, found.draws)
    assert (np.abs(mean - found.mean) < 4.5 * found.std / np.sqrt(worth)[:, None]).all()


def test_replicates_keep_their_own_draws():
    """Two replicates at once keep what each keeps alone."""
    rng = np.random.default_rng(1)
    logs, noise = jnp.asarray(rng.normal(size=(3, 2, 32))), jnp.asarray(rng.gumbel(size=(2, 32)))
    own, shared = jnp.asarray(rng.normal(size=(3, 4, 2, 32))), jnp.asarray(rng.normal(size=(4, 2, 32)))
    for values in (own, shared):
        both = reservoir.select(logs, jnp.exp(logs), values, noise, 8)
        for number in range(2):
            rows = slice(number, number + 1)
            alone = reservoir.select(logs[:, rows], jnp.exp(logs[:, rows]), values[..., rows, :], noise[rows], 8)
            for one, two in zip(jax.tree.leaves(alone), jax.tree.leaves(both), strict=True):
                np.testing.assert_array_equal(one, two[number::2])
