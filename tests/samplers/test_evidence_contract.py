"""The contract of chains with evidence, and of moves for sparse priors: batches, precisions, tracing, broken data.

Both at the same time: the prior decides whether walkers move by random rates, and all estimate the evidence.
"""

from __future__ import annotations

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import DESIGN, TARGETS, thinned
from examples.metropolis import Metropolis
from examples.two_levels import TwoLevels

import balson_jax as balson
from balson_jax.samplers import METHODS

KEY, NOISE = jax.random.key(42), 0.7
METHOD = balson.HitAndRun(target_ess=1.0, keep=64, evidence=True)
PRIORS = {"none": (0.8, 1.0, 1.5), "rates": (0.3, 0.5, 1.0), "soft": (1.0, 1.5, 2.0), "hard": 1.0}
"""Priors by the walls that suit them."""

Z = 6.0
"""Errors of evidences come from eight ensembles: t variates of 7 degrees of freedom exceed 6 in 1 of 2,000 cases."""

every_walls = thinned("walls", [], ["none", "rates"])


def problem(walls, targets=TARGETS, **options):
    return balson.linear_problem(DESIGN, targets, **{"noise": NOISE, "prior": PRIORS[walls], **options})


@functools.cache
def single_fit(walls, index=0):
    return balson.fit(KEY, problem(walls, TARGETS[index]), METHOD)


def assert_agree(found, expected, z=Z):
    """Compare to Monte Carlo error: chains magnify the rounding in which two programs differ."""
    error = np.hypot(np.asarray(found.log_evidence_stderr, float), np.asarray(expected.log_evidence_stderr))
    away = np.abs(np.asarray(found.log_evidence, float) - np.asarray(expected.log_evidence))
    np.testing.assert_array_less(away, z * error)
    assert (error < 0.5).all()
    worth = np.sqrt(1 / np.asarray(found.ess, float) + 1 / np.asarray(expected.ess))[..., None]
    for name in ("mean", "std"):
        away = np.abs(np.asarray(getattr(found, name), float) - np.asarray(getattr(expected, name)))
        np.testing.assert_array_less(away, z * np.asarray(expected.std) * worth)


# --- batches, axes and precisions ------------------------------------------------------------------------------------


@every_walls
def test_a_batch_equals_a_loop_and_has_any_number_of_problems(walls):
    whole = balson.fit(KEY, problem(walls), METHOD)
    assert whole.log_evidence.shape == whole.log_evidence_stderr.shape == (len(TARGETS),)
    assert (whole.status == 0).all()
    for index in range(len(TARGETS)):
        assert_agree(whole[index], single_fit(walls, index))
    one = balson.fit(KEY, problem(walls, TARGETS[:1]), METHOD)
    chex.assert_trees_all_equal(one[0], single_fit(walls))  # by the program of single problems
    none = balson.fit(KEY, problem(walls, TARGETS[:0]), METHOD)
    assert none.log_evidence.shape == none.status.shape == (0,)
    assert "0 problems" in repr(none)
    # The same key gives the same answer, and another one another.
    chex.assert_trees_all_equal(balson.fit(KEY, problem(walls), METHOD), whole)
    other = balson.fit(jax.random.key(1), problem(walls), METHOD)
    assert (np.asarray(other.log_evidence) != np.asarray(whole.log_evidence)).all()
    assert_agree(other, whole)


@every_walls
def test_own_designs_priors_and_totals_on_several_axes(walls):
    """Two axes, with everything of each problem's own; the prior and the total along one of them."""
    designs = np.stack([DESIGN, DESIGN[:, ::-1], 1.2 * DESIGN, DESIGN, DESIGN + 0.2, DESIGN]).reshape(2, 3, 10, 3)
    targets = np.stack([TARGETS[:3], TARGETS[2:]])
    priors = np.stack([np.broadcast_to(PRIORS[walls], 3), np.broadcast_to(PRIORS[walls], 3)[::-1]])[:, None]
    totals, noise = np.array([1.0, 0.8, 1.3]), np.array([[0.7], [0.5]])
    found = balson.fit(KEY, balson.linear_problem(designs, targets, noise=noise, prior=priors, total=totals), METHOD)
    assert found.log_evidence.shape == (2, 3)
    for i, j in ((1, 0), (0, 2)):
        own = {"noise": noise[i, 0], "prior": priors[i, 0], "total": totals[j]}
        assert_agree(found[i, j], balson.fit(KEY, balson.linear_problem(designs[i, j], targets[i, j], **own), METHOD))


@thinned("walls", [], ["rates"])
def test_both_precisions_agree(walls):
    single = single_fit(walls)
    with jax.enable_x64(True):
        double = balson.fit(jax.random.key(42), problem(walls, TARGETS[0]), METHOD)
    for found, kind in ((single, "float32"), (double, "float64")):
        assert {str(leaf.dtype) for leaf in jax.tree.leaves(found)} == {kind, "int32"}
    assert_agree(single, double)


# --- inside transformations, and broken data -------------------------------------------------------------------------


@pytest.mark.slow
def test_inside_jit_and_vmap_of_the_users():
    """Values of the prior are not known there, so walls are stated; a prior that they don't suit ends in a status."""
    method = dataclasses.replace(METHOD, walls="rates")

    def fit(key, target, prior):
        found = balson.fit(key, problem("rates", target, prior=prior), method)
        return {
            name: getattr(found, name)
            for name in ("log_evidence", "log_evidence_stderr", "mean", "std", "ess", "status")
        }

    keys, priors = jax.random.split(KEY, 3), jnp.array([PRIORS["rates"], PRIORS["rates"], PRIORS["none"]])
    mapped = jax.jit(jax.vmap(fit))(keys, jnp.asarray(TARGETS[:3]), priors)
    assert mapped["status"][:2].tolist() == [0, 0]
    for index in range(2):
        found = balson.fit(keys[index], problem("rates", TARGETS[index]), METHOD)
        assert_agree(dataclasses.replace(found, **{name: value[index] for name, value in mapped.items()}), found)
    assert balson.Status.NONFINITE in balson.Status(int(mapped["status"][2]))
    assert np.isnan(mapped["log_evidence"][2])


@every_walls
def test_one_bad_problem_does_not_harm_the_others(walls):
    targets = jnp.asarray(TARGETS).at[2, 3].set(jnp.nan)
    found = balson.fit(KEY, jax.jit(functools.partial(problem, walls))(targets), METHOD)
    assert found.status[2] == balson.Status.NONFINITE
    for value in (found.log_evidence[2], found.log_evidence_stderr[2], found.mean[2], found.acceptance_rate[2]):
        assert np.isnan(value).all()
    for index in (0, 1, 3, 4):
        assert_agree(found[index], single_fit(walls, index))
    with pytest.raises(balson.FitError, match=r"1 of 5 problems, first at index \[2\]"):
        found.raise_for_status()


# --- constraints, noises and models ----------------------------------------------------------------------------------


def decay(theta, times):
    return theta[0] * jnp.exp(-times) + theta[1] * jnp.exp(-3 * times) + 0.3 * theta[1] ** 2


TIMES = np.linspace(0, 2, 8)
CURVES = np.stack([decay(np.array([0.3, 0.7]), TIMES), decay(np.array([0.8, 0.2]), TIMES)]) + 0.1 * TARGETS[:2, :8]
KINDS = {
    "one of either sign": lambda: balson.linear_problem(DESIGN[:, :1], TARGETS[:2], prior=0.4, constraint="signed"),
    "two levels": lambda: problem("none", TARGETS[:2], prior=0.5, noise=TwoLevels(0.4, 1.5)),
    "uncertain": lambda: balson.linear_problem(
        balson.UncertainDesign(DESIGN, std=0.2), TARGETS[:2], noise=NOISE, prior=0.5
    ),
    "model": lambda: balson.model_problem(decay, TIMES, CURVES, 2, noise=0.1, prior=(0.5, 0.8)),
}


@thinned("kind", [], list(KINDS))
def test_against_importance_sampling(kind):
    """Draws from the prior, half a million of them, need no moves of walkers and no powers of likelihoods."""
    made = KINDS[kind]()
    found = balson.fit(KEY, made, METHOD)
    expected = balson.fit(KEY, made, balson.IS(num_draws=1 << 18, keep=64))
    assert (np.asarray(expected.status) == 0).all()
    assert (np.asarray(found.status) == 0).all()
    assert_agree(found, expected)


@pytest.mark.slow
def test_auto_tells_the_evidence_of_problems_that_walk():
    """A model with weak data and with strong ones, beside the truncated Gaussian for the same linear problem."""
    design, targets = jnp.asarray(DESIGN), np.tile(DESIGN @ [0.2, 0.5, 0.3], (2, 1))
    levels = np.array([1.0, 1e-3])
    whole = balson.model_problem(lambda theta, _: design @ theta, None, targets, 3, noise=levels)
    plain, found = (balson.fit(KEY, whole, balson.Auto(evidence=own)) for own in (False, True))
    assert plain.method.tolist() == found.method.tolist() == ["is", "hit_and_run"]
    assert np.isnan(plain.log_evidence).tolist() == [False, True]
    expected = balson.fit(KEY, balson.linear_problem(design, targets, noise=levels), balson.TG(1 << 16))
    error = np.hypot(found.log_evidence_stderr, expected.log_evidence_stderr)
    np.testing.assert_array_less(np.abs(found.log_evidence - expected.log_evidence), Z * error)
    ranked = balson.compare({"plain": whole, "linear": expected}, key=KEY)  # compare asks for the evidence by itself
    assert np.isfinite(ranked.log_evidence).all()
    with pytest.raises(ValueError, match=r"'plain' was fitted by a method .*; fit with Auto\(evidence=True\)"):
        balson.compare({"plain": plain, "linear": expected})


# --- settings --------------------------------------------------------------------------------------------------------


def test_with_evidence_changes_nothing_else():
    for method in (balson.HitAndRun(target_ess=7.0, keep=64, walls="rates"), balson.Auto(target_ess=7.0, match="kl")):
        found = method.with_evidence()
        assert found == dataclasses.replace(method, evidence=True)
        assert found.with_evidence() == found
        assert not method.evidence
    assert not balson.HitAndRun().has_evidence
    assert balson.HitAndRun(evidence=True).has_evidence
    for cls in {*METHODS.values(), Metropolis} - {balson.HitAndRun, balson.Auto}:
        method = cls()
        assert method.with_evidence() is method


def test_auto_passes_it_on():
    """To the last rung of its ladder, and to the method that serves inside a trace."""
    small, large = (balson.linear_problem(np.eye(count), np.ones(count), noise=1.0) for count in (3, 40))
    for evidence in (False, True):
        method = balson.Auto(evidence=evidence, rungs_inside_jit=2)
        assert [rung.method.evidence for rung in method.rungs(small) if rung.method.is_chain] == [evidence]
        assert method.inside_trace(large).evidence is evidence
    assert hash(balson.Auto(evidence=True)) != hash(balson.Auto())


def test_blocks_have_room_for_the_walkers_that_come_in():
    """Eight ensembles of at least 64 walkers, beside four of at least 16."""
    plain, found = (balson.HitAndRun(evidence=own).elements(3) for own in (False, True))
    assert found == 8 * plain
