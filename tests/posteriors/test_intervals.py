"""Shortest intervals, and standard errors of standard deviations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import thinned
from scipy import stats

import balson_jax as balson
from balson_jax.posteriors.intervals import shortest

DRAWS = 512


def shortest_by_search(distribution, level):
    """Return the exact shortest interval of a unimodal distribution."""
    tails = np.linspace(0, 1 - level, 100_001)
    tail = tails[np.argmin(distribution.ppf(tails + level) - distribution.ppf(tails))]
    return distribution.ppf(tail), distribution.ppf(tail + level)


@pytest.mark.parametrize(("a", "b"), [(0.2, 3.0), (1.0, 20.0), (30.0, 50.0), (3.0, 0.5)])
def test_shortest_intervals_of_beta_draws(a, b):
    distribution = stats.beta(a, b)
    draws = distribution.rvs((200, DRAWS), random_state=1)
    weights = np.full((200, DRAWS), 1 / DRAWS)
    ends = shortest(jnp.asarray(draws), jnp.asarray(weights), jnp.asarray(0.9), jnp.zeros(200), jnp.ones(200))
    lower, upper = (np.asarray(end, np.float64) for end in ends)
    exact = shortest_by_search(distribution, 0.9)
    # The share of 512 draws in an interval has a standard deviation of 0.013; the mean of 200 one of 0.001. Choosing
    # the shortest of several costs another 0.01.
    share = distribution.cdf(upper) - distribution.cdf(lower)
    assert abs(share.mean() - 0.9) < 0.015
    assert abs((upper - lower).mean() / (exact[1] - exact[0]) - 1) < 0.03
    if b > 1 >= a:
        assert (lower == 0).all()
    elif a > 1 >= b:
        assert (upper == 1).all()
    else:
        assert (lower > 0).all()
        assert (upper < 1).all()


def test_draws_without_weight_do_not_count():
    values = jnp.array([-7.0, *np.linspace(0, 1, 101), 9.0])
    weights = jnp.array([0.0, *np.full(101, 1 / 101), 0.0])
    lower, upper = shortest(values, weights, jnp.asarray(0.8), jnp.asarray(-10.0), jnp.asarray(10.0))
    np.testing.assert_allclose(upper - lower, 0.8, atol=0.02)
    assert lower >= 0
    assert upper <= 1


@pytest.fixture(scope="module")
def posterior():
    rng = np.random.default_rng(0)
    design = rng.random((30, 4))
    targets = rng.dirichlet([0.3] * 4, 20) @ design.T + 0.5 * rng.standard_normal((20, 30))
    return balson.fit(jax.random.key(1), balson.linear_problem(design, targets, constraint="at_most"), balson.IS(16384))


def test_hdi_of_a_batch(posterior):
    lower, upper = posterior.hdi(0.9)
    central = posterior.interval(0.9)
    assert lower.shape == posterior.mean.shape
    # Shorter than central intervals, up to what reaching an end may cost.
    assert (upper - lower <= 1.03 * (central[1] - central[0])).all()
    assert ((lower == 0) | (lower > 0.01 * posterior.std)).all()
    jitted = jax.jit(lambda own: own.hdi(0.9))(posterior)
    np.testing.assert_allclose(jitted[1], upper, rtol=1e-6)
    one = posterior[3]
    np.testing.assert_allclose(one.hdi(0.9)[1], upper[3], rtol=1e-6)


def test_hdi_of_the_slack(posterior):
    lower, upper = posterior.slack_hdi(0.9)
    inside = (posterior.slack.draws >= lower[:, None]) & (posterior.slack.draws <= upper[:, None])
    share = np.asarray((inside * posterior.draw_weights).sum(-1))
    assert lower.shape == posterior.batch_shape
    np.testing.assert_allclose(share, 0.9, atol=0.02)


def test_hdi_needs_draws_and_a_slack(posterior):
    problem = balson.linear_problem(np.eye(3), np.ones(3) / 3, noise=0.1)
    with pytest.raises(ValueError, match="none were kept"):
        balson.fit(jax.random.key(0), problem, balson.IS(1024, keep=0)).hdi()
    with pytest.raises(ValueError, match="has no slack"):
        balson.fit(jax.random.key(0), problem, balson.IS(1024)).slack_hdi()
    with pytest.raises(ValueError, match="level"):
        posterior.hdi(1.5)


@pytest.mark.slow
def test_shortest_bands_of_predictions(posterior):
    design = np.random.default_rng(1).random((5, 4))
    for noise in (0.0, "estimate"):
        central = posterior.predict(design, noise=noise)
        short = posterior.predict(design, noise=noise, band="shortest")
        assert (short.upper - short.lower <= 1.001 * (central.upper - central.lower)).all()
        assert ((short.lower < central.mean) & (central.mean < short.upper)).all()
    with pytest.raises(ValueError, match="band"):
        posterior.predict(design, band="narrow")  # type: ignore[arg-type]


@thinned("method", [balson.IS(4096)], [balson.TG(4096), balson.RS(2048), balson.HitAndRun()])
def test_standard_errors_of_standard_deviations(method):
    rng = np.random.default_rng(2)
    design = rng.random((8, 3))
    problem = balson.linear_problem(design, design @ [0.6, 0.3, 0.1], noise=0.5)
    found = [balson.fit(jax.random.key(seed), problem, method) for seed in range(40)]
    spread = np.std([one.std for one in found], axis=0)
    told = np.sqrt(np.mean(np.square([one.std_stderr for one in found]), axis=0))
    # 40 fits know a spread to 11 %, and their errors from 8 replicates each to 4 %; chains and RS are conservative.
    assert (told > 0.6 * spread).all()
    assert (told < (1.7 if method.name in ("is", "tg") else 4) * spread).all()
