"""Random small problems of every kind: a fit with status OK is as exact as it says (``balson bench fuzz`` has more)."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
import quadrature

import balson_jax as balson
from benchmarks import fuzz, fuzz_problems, truth


@pytest.mark.parametrize(
    ("size", "constraint", "kind"),
    [
        *((size, "equal", kind) for size in (2, 3) for kind in fuzz_problems.KINDS),
        (2, "at_most", "estimated"),
        (2, "signed", "known"),
    ],
)
@pytest.mark.slow
def test_no_trusted_fit_is_beyond_six_standard_errors(size, constraint, kind):
    status, found = fuzz.compared(fuzz_problems.batch(size, constraint, kind, number=1000, count=48), seed=1)
    beyond = [comparison.text for comparison in found if comparison.is_beyond]
    assert not beyond, beyond
    # The comparison means something: most fits are trusted, and most of them have a truth.
    assert (status == 0).mean() > 0.8
    assert sum(comparison.known for comparison in found) > (0.3 if constraint == "signed" else 0.9) * len(found)


@pytest.mark.slow
def test_a_small_error_would_show():
    """The test can fail: a mean that is off by a tenth of a standard deviation is beyond."""
    problems = fuzz_problems.batch(2, "equal", "known", number=1000, count=48)
    moved = dataclasses.replace(problems, target=problems.target + 0.5 * problems.level[:, None])
    found = balson.fit(jax.random.key(1), problems.problem())
    trusted = np.flatnonzero(np.asarray(found.status) == 0)
    wrong = [fuzz.compare(moved, found, index, 1 << 18).is_beyond for index in trusted]
    assert np.mean(wrong) > 0.2


@pytest.mark.slow
def test_a_strong_prior_against_data_of_unknown_noise():
    """The prior holds a component off the wall to which the data press it, so that a lower precision moves it far."""
    problems, index = fuzz_problems.batch(3, "equal", "estimated", number=1, count=100), 82
    known = fuzz.true_posterior(problems, index, dict.fromkeys(fuzz.QUANTITIES, np.zeros(1)), 1 << 18)
    problem = problems.problem().map_leaves(lambda leaf, ndim: leaf[index] if leaf.ndim > ndim else leaf)
    found = jax.vmap(lambda key: balson.fit(key, problem, balson.TG(2048)))(jax.random.split(jax.random.key(0), 64))
    # Draws that miss the tail make standard deviations too small: by 1.6 % on average before it was covered.
    relative = np.asarray(found.std) / known.std - 1
    assert (np.abs(relative.mean(0)) < 4 * relative.std(0) / np.sqrt(64)).all()
    assert (relative.std(0) < 0.02).all()
    assert float(found.ess.min()) > 1400


def test_the_truths_agree():
    """Panels, product rules and prior draws, written apart, integrate the same; so does the suite's own quadrature."""
    rng = np.random.default_rng(3)
    columns, target, alpha = rng.normal(size=(5, 3)), rng.normal(size=5), np.array([0.4, 1.5, 3.0])
    likelihood, maps = truth.Likelihood(columns, target, level=0.7), np.eye(3)
    panels, product = (rule(likelihood, alpha, maps) for rule in (truth.quadrature, truth.product_rule))
    other = quadrature.posterior(columns, target, alpha, noise=0.7)
    sums = truth.Sums(np.full(3, 1 / 3))
    for _ in range(32):
        omega = truth.prior_draws(rng, alpha, 4096)
        sums.add(likelihood(omega), omega)
    drawn = sums.truth("")
    for one in (product, other):
        np.testing.assert_allclose(panels.mean, one.mean, rtol=1e-8)
        assert panels.log_evidence == pytest.approx(one.log_evidence, abs=1e-8)
    np.testing.assert_allclose(panels.std, np.sqrt(other.variance), rtol=1e-8)
    # Seven numbers: five standard errors are exceeded by chance once in 200,000 times.
    assert (np.abs(drawn.mean - panels.mean) < 5 * drawn.mean_error).all()
    assert (np.abs(drawn.std - panels.std) < 5 * drawn.std_error).all()
    assert abs(drawn.log_evidence - panels.log_evidence) < 5 * drawn.log_evidence_error
