"""What a posterior offers: intervals, samples, predictions, a table to read."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FAST, TOGETHER
from scipy import stats

import balson_jax as balson
from balson_jax import dirichlet

X = np.linspace(0, 1, 40)
DESIGN = X[:, None] ** np.arange(3)
TARGET = DESIGN @ [0.2, 0.1, 0.7] + 0.1 * np.random.default_rng(0).normal(size=40)
PROBLEM = balson.linear_problem(DESIGN, 3 * TARGET, noise=0.6, total=3.0)


@pytest.fixture(scope="module")
def found():
    return balson.fit(jax.random.key(0), PROBLEM, FAST["is"])


@pytest.fixture(scope="module")
def batch():
    targets = TARGET + 0.1 * np.arange(TOGETHER)[:, None]
    return balson.fit(jax.random.key(0), balson.linear_problem(DESIGN, targets, noise=0.3), FAST["is"])


def test_theta_is_the_sparse_mode_times_the_total(found):
    np.testing.assert_allclose(found.theta, 3 * dirichlet.mode(found.alpha), rtol=1e-6)
    np.testing.assert_allclose(found.mean, 3 * dirichlet.mean(found.alpha), rtol=1e-5)
    # the ratio rule matches the sum of the variances
    assert jnp.square(found.std).sum() == pytest.approx(9 * float(dirichlet.variance(found.alpha).sum()), rel=1e-4)


def test_intervals_are_quantiles_of_the_kept_draws(found):
    lower, upper = found.interval(0.8)
    draws, weights = np.asarray(found.draws), np.asarray(found.draw_weights)[:, None]
    assert draws.shape == (512, 3)
    # To half a draw: none has more than a few of 512 shares of the weight.
    np.testing.assert_allclose((weights * (draws < lower)).sum(0), 0.1, atol=weights.max())
    np.testing.assert_allclose((weights * (draws < upper)).sum(0), 0.9, atol=weights.max())
    assert weights.max() < 0.01


def test_without_kept_draws_intervals_are_those_of_the_matched_beta(found):
    found = dataclasses.replace(found, draws=found.draws[:0], draw_weights=found.draw_weights[:0])
    lower, upper = found.interval(0.8)
    mean, variance = np.asarray(found.mean) / 3, np.square(np.asarray(found.std) / 3)
    precision = mean * (1 - mean) / variance - 1
    beta = stats.beta(mean * precision, (1 - mean) * precision)
    np.testing.assert_allclose(lower, 3 * beta.ppf(0.1), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(upper, 3 * beta.ppf(0.9), rtol=1e-3, atol=1e-5)


def test_samples_have_the_moments_of_the_posterior(found, batch):
    draws = found.sample(jax.random.key(1), 20_000)
    assert draws.shape == (20_000, 3)
    np.testing.assert_allclose(draws.sum(-1), 3, rtol=1e-5)
    # They come from 512 kept draws.
    error = found.std * jnp.sqrt(jnp.square(found.draw_weights).sum() + 1 / 20_000)
    assert (jnp.abs(draws.mean(0) - found.mean) < 4 * error).all()
    # A variance of n draws of this kurtosis is known to sqrt((kurtosis - 1) / n), a standard deviation to half of that.
    kurtosis = stats.kurtosis(draws, fisher=False)
    worth = 1 / (jnp.square(found.draw_weights).sum() + 1 / 20_000)
    np.testing.assert_array_less(np.abs(draws.std(0) / found.std - 1), 4 * 0.5 * np.sqrt((kurtosis - 1) / worth))
    several = batch.sample(jax.random.key(1), 1000)
    assert several.shape == (1000, TOGETHER, 3)
    # problems have independent draws
    correlation = np.corrcoef(several[:, 0, 0], several[:, 1, 0])[0, 1]
    assert abs(correlation) < 4 / np.sqrt(1000)


def test_kept_draws_have_the_posteriors_correlations(found):
    """Columns of a polynomial resemble each other: data fix the curve better than independent coefficients would."""
    curve = found.predict(DESIGN).std
    apart = np.sqrt(np.square(DESIGN) @ np.square(found.std))
    assert (curve < apart)[1:].all()
    approximating = 3 * np.random.default_rng(0).dirichlet(np.asarray(found.alpha, np.float64), 20_000) @ DESIGN.T
    assert curve[20] < 0.8 * approximating.std(0)[20]


def test_predictions_have_the_moments_of_sampled_curves(found, batch):
    prediction = found.predict(DESIGN)
    curves = found.sample(jax.random.key(2), 20_000) @ DESIGN.T
    np.testing.assert_allclose(prediction.mean, DESIGN @ found.mean, rtol=1e-5)
    # At the last point every curve passes through the total, to rounding.
    np.testing.assert_allclose(prediction.std[:-1], curves.std(0)[:-1], rtol=0.05)
    assert prediction.std[-1] < 10 * 3 * np.finfo(np.float32).eps
    inside = (curves >= prediction.lower - 1e-5) & (curves <= prediction.upper + 1e-5)
    np.testing.assert_allclose(inside.mean(0)[:-1], 0.9, atol=0.02)
    assert batch.predict(DESIGN).mean.shape == (TOGETHER, 40)
    assert jax.jit(lambda p: p.predict(DESIGN[:2]).mean)(found).shape == (2,)


def test_the_table_of_one_problem(found):
    text = repr(found)
    assert text == found.summary()
    for word in (
        "theta[2]",
        "mean",
        "std",
        "90 % hdi",
        "mode",
        "effective draws",
        "Pareto k",
        "log-evidence",
        "OK",
    ):
        assert word in text
    assert "50 % hdi" in found.summary(0.5)
    assert max(map(len, text.splitlines())) <= 80


def test_a_batch_can_be_indexed(found, batch):
    np.testing.assert_array_equal(batch[1].mean, batch.mean[1])
    assert batch[1].batch_shape == ()
    assert batch[:1].batch_shape == (1,)
    with pytest.raises(TypeError, match="no batch to index"):
        found[0]
    with pytest.raises(TypeError, match="no batch to index"):
        next(iter(found))


def test_a_batch_is_a_sequence(batch):
    assert len(batch) == TOGETHER
    assert [one.batch_shape for one in batch] == [()] * TOGETHER
    with pytest.raises(IndexError):
        batch[TOGETHER]


def test_predictions_of_new_observations(found):
    """With noise the band holds new data: the draws' curves plus normal errors."""
    curve, data = found.predict(DESIGN), found.predict(DESIGN, noise=0.5)
    np.testing.assert_allclose(data.std, np.hypot(curve.std, 0.5), rtol=1e-5)
    np.testing.assert_array_equal(data.mean, curve.mean)
    rng = np.random.default_rng(0)
    weights = np.asarray(found.draw_weights, float)
    draws = rng.choice(np.asarray(found.draws), 20_000, p=weights / weights.sum())
    new = draws @ DESIGN.T + 0.5 * rng.normal(size=(20_000, 40))
    np.testing.assert_allclose(((new > data.lower) & (new < data.upper)).mean(0), 0.9, atol=0.02)
    with pytest.raises(ValueError, match="the noise was given for this fit; pass it as a number"):
        found.predict(DESIGN, noise="estimate")


def test_the_table_of_a_batch(batch):
    text = repr(batch)
    assert f"{TOGETHER} problems with 3 components" in text
    assert f"OK: {TOGETHER}" in text


def test_the_table_of_a_bad_fit_says_what_to_do():
    problem = balson.linear_problem(DESIGN, TARGET, noise=1e-4)
    text = repr(balson.fit(jax.random.key(0), problem, FAST["is"]))
    assert "status LOW_ESS" in text
    assert "times as many draws" in text
    assert 'method="auto"' in text


def test_repr_inside_a_trace(found):
    seen = []
    jax.jit(lambda posterior: seen.append(repr(posterior)))(found)
    assert seen == ["Posterior(methods=('is',), ...)"]


def test_status_ok_does_not_raise(found, batch):
    found.raise_for_status()
    batch.raise_for_status()
