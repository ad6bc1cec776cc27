"""Choosing by evidence: the right degree, the right noise, and a table that a person can read."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FAST, thinned

import balson_jax as balson

KEY = jax.random.key(0)
X = np.linspace(-1, 1, 100)
DESIGN = X[:, None] ** np.arange(5)


@thinned("largest", [], [3, 4])
def test_evidence_finds_the_degree_of_a_polynomial(largest):
    """True degree 2, others to choose from, noise unknown; 200 data sets."""
    noise = 0.1 * np.random.default_rng(1).normal(size=(200, 100))
    targets = DESIGN[:, :3] @ [0.3, 0.2, 0.5] + noise
    problems = {f"degree {d}": balson.linear_problem(DESIGN[:, : d + 1], targets) for d in range(1, largest + 1)}
    found = balson.compare(problems, key=KEY, method=balson.IS(num_draws=1 << 17, keep=0))
    assert found.names[0] == "degree 2"
    share = (found.best == "degree 2").mean()
    assert share >= 0.8, share
    assert found.weights.shape == (largest, 200)
    np.testing.assert_allclose(found.weights.sum(0), 1, rtol=1e-4)
    text = repr(found)
    assert "200 problems" in text
    assert text.splitlines()[2].split()[:2] == ["degree", "2"]


@pytest.fixture(scope="module")
def small():
    target = DESIGN[:, :2] @ [0.4, 0.6] + 0.3 * np.random.default_rng(2).normal(size=100)
    columns = {"line": [0, 1, 3], "parabola": [0, 2, 4]}  # three each, which one compiled program serves
    return {name: balson.linear_problem(DESIGN[:, chosen], target, noise=0.3) for name, chosen in columns.items()}


def test_the_table_of_one_problem(small):
    method = FAST["is"]
    found = balson.compare(small, key=KEY, method=method)
    posteriors = {name: balson.fit(KEY, problem, method) for name, problem in small.items()}
    again = balson.compare(posteriors)
    assert repr(again) == repr(found)
    lines = repr(found).splitlines()
    assert lines[0].split() == ["log-evidence", "±", "error", "difference", "weight", "status"]
    assert [line.split()[-1] for line in lines[1:]] == ["OK", "OK"]
    first = lines[1].split()
    assert float(first[1]) == pytest.approx(float(posteriors[found.names[0]].log_evidence), abs=1e-3)
    assert found.names == ("line", "parabola")  # the data are a line
    odds = np.exp(float(posteriors["line"].log_evidence) - float(posteriors["parabola"].log_evidence))
    assert found.weights[0] == pytest.approx(odds / (1 + odds), rel=1e-3)
    assert max(map(len, lines)) <= 80


@pytest.mark.slow
def test_methods_compare_on_one_problem(small):
    methods = {"is": FAST["is"], "rs": balson.RS(num_draws=2048)}
    found = balson.compare(methods, key=KEY, problem=small["line"])
    error = float(np.hypot(*found.log_evidence_stderr))
    assert abs(found.log_evidence[0] - found.log_evidence[1]) < 5 * error


def test_what_does_not_compare(small):
    problem = small["line"]
    known = balson.fit(KEY, problem, FAST["is"])
    one = jnp.ones(1)

    def estimating(relative):
        noise = balson.NoisePosterior(jnp.array(50.0), 4.5 * one, one, jnp.array(relative))
        return dataclasses.replace(known, noise=noise)

    with pytest.warns(UserWarning, match="sharp: the evidence is that of data counted more than once"):
        table = balson.compare({"sharp": dataclasses.replace(known, sharpened=True), "known": known})
    assert np.isnan(table.weights).all()
    assert "–" in repr(table)
    with pytest.warns(UserWarning, match="arbitrary constant"):
        balson.compare({"known": known, "unknown": estimating(True)})
    # A proper prior of the noise gives an evidence like any other.
    np.testing.assert_allclose(balson.compare({"known": known, "proper": estimating(False)}).weights, 0.5)
    fewer = dataclasses.replace(known, num_rows=jnp.array(50.0))
    with pytest.raises(ValueError, match=r"different numbers of rows, \{'all': 100.0, 'half': 50.0\}"):
        balson.compare({"all": known, "half": fewer})
    for bad, message in (([known], "candidates is a list; pass a dict"), ({}, "candidates is empty")):
        with pytest.raises(ValueError, match=message):
            balson.compare(bad)
    with pytest.raises(ValueError, match="'a' is to be fitted; pass key="):
        balson.compare({"a": problem})
    with pytest.raises(ValueError, match="'a' is a method; pass problem="):
        balson.compare({"a": "is"}, key=KEY)
    with pytest.raises(ValueError, match="'a' is a int; pass a posterior"):
        balson.compare({"a": 3}, key=KEY)


@pytest.mark.slow
def test_a_grid_is_what_single_fits_give():
    target = DESIGN[:, :3] @ [0.3, 0.2, 0.5] + 0.2 * np.random.default_rng(3).normal(size=100)
    options = {"constraint": "at_most", "slack_prior": 2.0}
    problem = balson.linear_problem(DESIGN[:, :3], target, noise=0.2, **options)
    priors, totals, noises = [0.5, 1.0, 2.0], [1.0, 1.5], [0.1, 0.2, 0.4]
    method = balson.IS(num_draws=4096)
    found = balson.tune(KEY, problem, prior=priors, total=totals, noise=noises, method=method)
    assert found.log_evidence.shape == (3, 2, 3)
    i, j, k = np.unravel_index(np.argmax(found.log_evidence), (3, 2, 3))
    assert (float(found.prior), float(found.total), float(found.noise)) == pytest.approx(
        (priors[i], totals[j], noises[k])
    )
    best = balson.linear_problem(DESIGN[:, :3], target, noise=noises[k], prior=priors[i], total=totals[j], **options)
    alone = balson.fit(KEY, best, method)
    np.testing.assert_allclose(found.posterior.mean, alone.mean, rtol=1e-3)
    np.testing.assert_allclose(found.posterior.log_evidence, alone.log_evidence, rtol=1e-4)
    for one, other in zip(jax.tree.leaves(found.problem), jax.tree.leaves(best), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    assert float(found.noise) == pytest.approx(0.2)
    assert bool(found.at_edge) == (i in (0, 2) or k in (0, 2))


@pytest.mark.slow
def test_each_problem_is_tuned_or_all_together():
    """Half of the problems have three times the noise of the other half."""
    levels = np.repeat([0.1, 0.3], 5)
    targets = DESIGN[:, :3] @ [0.3, 0.2, 0.5] + levels[:, None] * np.random.default_rng(4).normal(size=(10, 100))
    problem = balson.linear_problem(DESIGN[:, :3], targets)
    method = balson.IS(num_draws=1 << 14)
    found = balson.tune(KEY, problem, noise=[0.03, 0.1, 0.3, 1.0], method=method)
    np.testing.assert_allclose(found.noise, levels, rtol=1e-5)
    assert found.posterior.mean.shape == (10, 3)
    assert found.problem.batch_shape == (10,)
    assert not found.at_edge.any()
    assert found.status.shape == (1, 1, 4, 10)
    together = balson.tune(KEY, problem, noise=[0.03, 0.1, 0.3, 1.0], method=method, shared=True)
    assert together.noise.shape == ()
    assert float(together.noise) == pytest.approx(0.3)  # the smaller one is far too confident for half of them
    np.testing.assert_allclose(together.posterior.mean, balson.fit(KEY, together.problem, method).mean, rtol=1e-5)


@pytest.mark.slow
def test_an_empty_batch_is_tuned():
    found = balson.tune(
        KEY, balson.linear_problem(DESIGN[:, :3], np.zeros((0, 100))), noise=[0.1, 0.2], method=balson.IS(64)
    )
    assert found.noise.shape == (0,)


def test_bad_grids(small):
    problem = small["line"]
    with pytest.raises(ValueError, match="nothing to tune"):
        balson.tune(KEY, problem)
    with pytest.raises(ValueError, match=r"prior has shape \(2, 2\); pass a list of candidates, or \(candidates, 3\)"):
        balson.tune(KEY, problem, prior=np.ones((2, 2)))
    with pytest.raises(ValueError, match=r"noise\[1\] is 0.0; noise must be positive"):
        balson.tune(KEY, problem, noise=[1.0, 0.0])
    with pytest.raises(ValueError, match=r"total has shape \(\); pass a list"):
        balson.tune(KEY, problem, total=1.0)
    with pytest.raises(ValueError, match="problem is a float"):
        balson.tune(KEY, 1.0, noise=[1.0])


@pytest.mark.slow
def test_tuning_by_a_method_that_counts_data_again_warns(small):
    with pytest.warns(UserWarning, match="counted more than once"):
        balson.tune(KEY, small["line"], prior=jnp.ones((2, 3)), method=balson.ISIRS(num_draws=256, rounds=1))


@pytest.mark.slow
def test_chains_tune_sparse_and_peaked_priors():
    """Chains move differently for concentrations below and above one; the grid keeps its order. False alarms 1e-3."""
    target = DESIGN[:, :3] @ [0.1, 0.85, 0.05] + 0.3 * np.random.default_rng(5).normal(size=100)
    problem = balson.linear_problem(DESIGN[:, :3], target, noise=0.3)
    priors = [3.0, 0.3, 1.0]
    found = balson.tune(KEY, problem, prior=priors, method=balson.HitAndRun(target_ess=50.0))
    expected = balson.tune(KEY, problem, prior=priors, method=balson.IS(num_draws=1 << 16))
    assert found.posterior.method == "hit_and_run"
    assert float(found.prior) == float(expected.prior)
    error = np.hypot(found.log_evidence_stderr, expected.log_evidence_stderr)
    np.testing.assert_array_less(np.abs(found.log_evidence - expected.log_evidence), 4 * error)
    one = balson.compare({"chains": "hit_and_run", "is": "is"}, key=KEY, problem=found.problem)
    assert np.isfinite(one.log_evidence).all()
