"""Probabilities of inclusion from all draws, against exact ones."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from cases import DESIGN, FAST, TARGETS, thinned
from scipy import integrate, special, stats

import balson_jax as balson

KEY, NUM_PARAMS, SHARE, TOTAL = jax.random.key(0), 9, 0.01, 2.0
PRIOR = np.linspace(0.05, 1.2, NUM_PARAMS)
ROWS = np.random.default_rng(0).normal(size=(10, NUM_PARAMS))
METHODS = {"is": FAST["is"], "rs": FAST["rs"], "tg": balson.TG(4096), "chains": balson.HitAndRun(walls="none")}
FALSE_ALARM = 4.5
"""Standard errors: nine components, each off by more with a probability of 7e-6."""


def vague(constraint="equal", prior=PRIOR, count=2):
    """Return problems whose data say nothing, so that the posterior is the prior."""
    targets = np.zeros((count, len(ROWS)))
    return balson.linear_problem(ROWS, targets, noise=1e4, prior=prior, constraint=constraint, total=TOTAL)


def exact(constraint, prior=PRIOR):
    """Return the prior's probabilities that magnitudes exceed a hundredth of the total."""
    slack = 1.0 if "at_most" in constraint else 0.0
    if "signed" not in constraint:
        return stats.beta.sf(SHARE, prior, prior.sum() - prior + slack)
    # Plus and minus have a sum of s, a Beta variate, and differ by s |2 u - 1| with u another.
    rest = 2 * (prior.sum() - prior) + slack

    def within(a, b):
        """Return the probability of a smaller magnitude, in the variable ``s^(2a)``, which has no pole."""

        def integrand(v):
            s = v ** (0.5 / a)
            reach = 0.5 * min(SHARE / s, 1.0)
            density = (1 - s) ** (b - 1) / (2 * a)
            return density * (stats.beta.cdf(0.5 + reach, a, a) - stats.beta.cdf(0.5 - reach, a, a))

        norm = special.beta(2 * a, b)
        return integrate.quad(integrand, 0, 1, points=[SHARE ** (2 * a)], limit=200)[0] / norm

    return np.array([1 - within(a, b) for a, b in zip(prior, rest, strict=True)])


@pytest.fixture(scope="module")
def found():
    return balson.fit(KEY, vague(), METHODS["is"])


@thinned(
    "name, constraint",
    [("is", "equal")],
    [
        *((name, "equal") for name in ("rs", "tg", "chains")),
        *(("is", constraint) for constraint in ("at_most", "signed", "signed_at_most")),
        ("chains", "signed_at_most"),
    ],
)
def test_all_draws_tell_what_the_prior_says(name, constraint):
    """And the kept ones agree, as far as so few can."""
    posterior = balson.fit(KEY, vague(constraint), METHODS[name])
    truth = exact(constraint)
    assert truth.min() < 0.25
    assert truth.max() > 0.9
    present, error = np.asarray(posterior.inclusion()), np.asarray(posterior.present_stderr)
    np.testing.assert_array_less(np.abs(present - truth), FALSE_ALARM * error)
    # No larger than the errors of as many independent draws, by far.
    alone = np.sqrt(truth * (1 - truth) / np.asarray(posterior.ess)[:, None])
    assert (error < 3 * alone).all()
    kept = dataclasses.replace(posterior, present=None, present_stderr=None).inclusion()
    assert (kept != present).any()
    count = np.minimum(np.asarray(posterior.ess), posterior.draws.shape[-2])[:, None]
    few = np.sqrt(truth * (1 - truth) / count)
    np.testing.assert_array_less(np.abs(kept - present), FALSE_ALARM * np.hypot(few, 2 * error))


def test_other_thresholds_and_few_components_count_kept_draws(found):
    assert found.inclusion(0.02).max() <= 1
    assert (found.inclusion(0.02) != found.inclusion()).any()
    np.testing.assert_array_equal(found.support(0.5), np.asarray(found.present) > 0.5)
    few = balson.fit(KEY, balson.linear_problem(DESIGN, TARGETS, noise=0.5), FAST["is"])
    assert few.present is None
    assert few.inclusion().shape == (5, 3)


def test_without_kept_draws_and_on_disk(found, tmp_path):
    bare = dataclasses.replace(found, draws=found.draws[..., :0, :], draw_weights=found.draw_weights[..., :0])
    np.testing.assert_array_equal(bare.inclusion(), found.present)
    frame = bare.to_frame()
    np.testing.assert_allclose(frame["inclusion"], np.asarray(found.present).reshape(-1))
    assert frame["hdi_low"].isna().all()
    with pytest.raises(ValueError, match="inclusion needs kept draws"):
        bare.inclusion(0.02)
    found.save(tmp_path / "posterior.npz")
    loaded = balson.Posterior.load(tmp_path / "posterior.npz")
    np.testing.assert_array_equal(loaded.inclusion(), found.present)
    np.testing.assert_array_equal(loaded.present_stderr, found.present_stderr)
    np.testing.assert_array_equal(found[1].present, found.present[1])


def test_a_long_table_begins_with_what_is_present(found):
    lines = repr(found[0]).splitlines()
    assert "inclusion" in lines[2]
    order = [int(line.split("]")[0].split("[")[1]) for line in lines if "theta[" in line]
    assert sorted(order) == list(range(NUM_PARAMS))
    np.testing.assert_array_equal(order, np.argsort(-np.round(np.asarray(found.present[0]), 3), kind="stable"))
    shown = [float(line.split()[6]) for line in lines if "theta[" in line]
    np.testing.assert_allclose(shown, np.asarray(found.present[0])[order], atol=5e-4)
    assert max(map(len, lines)) <= 80


def test_without_a_draw_nothing_is_known():
    """Data that the prior excludes: rejection sampling accepts none."""
    method = balson.RS(num_draws=500, max_proposals=4096)
    problem = balson.linear_problem(ROWS, 1e3 * np.ones((2, len(ROWS))), noise=1e-3, total=TOTAL)
    nothing = balson.fit(KEY, problem, method)
    assert (nothing.ess == 0).all()
    assert np.isnan(nothing.present).all()
    assert (nothing.status & int(balson.Status.BUDGET) > 0).all()


@pytest.mark.slow
def test_streams_tell_it_without_keeping_draws():
    targets = np.zeros((6, len(ROWS)), np.float32)
    options = {"noise": 1e4, "prior": PRIOR, "total": TOTAL}
    stream = balson.fit_stream(KEY, ROWS.astype(np.float32), targets, method="is", chunk=4, progress=False, **options)
    assert stream.draws.shape[-2] == 0
    whole = balson.fit(KEY, vague(count=6), balson.IS(keep=0))
    np.testing.assert_allclose(stream.inclusion(), whole.inclusion(), atol=1e-5)


@pytest.mark.slow
def test_inside_a_trace(found):
    traced = jax.jit(lambda problem: balson.fit(KEY, problem, METHODS["is"]).inclusion())(vague())
    np.testing.assert_allclose(traced, found.inclusion(), atol=1e-5)


@pytest.mark.slow
def test_probabilities_are_calibrated():
    """Truths from the prior: of the components that are given a probability, that share is present.

    Sums over the components of a problem are independent between problems. Ten bins; a false alarm has a probability
    of 6e-4.
    """
    rng = np.random.default_rng(1)
    num_problems, num_components, num_rows, noise = 1000, 12, 8, 0.04
    design = rng.normal(size=(num_rows, num_components))
    prior = np.linspace(0.15, 0.45, num_components)
    theta = rng.dirichlet(prior, num_problems)
    targets = theta @ design.T + noise * rng.normal(size=(num_problems, num_rows))
    problem = balson.linear_problem(design, targets, noise=noise, prior=prior)
    posterior = balson.fit(KEY, problem, balson.TG(65_536))
    assert (np.asarray(posterior.status) == 0).mean() > 0.95
    claimed, present = np.asarray(posterior.inclusion(), np.float64), theta > SHARE
    for low in np.arange(10) / 10:
        chosen = (claimed >= low) & (claimed < low + 0.1 + (low == 0.9))
        assert chosen.sum() > 300
        excess = np.where(chosen, present - claimed, 0).sum(1)
        assert abs(excess.sum()) < 4 * np.sqrt(np.square(excess).sum())
