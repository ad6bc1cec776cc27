"""Synthetic controls: panels of known weights and effects, placebos one by one, intervals against quadrature."""

import re
import sys

import jax
import numpy as np
import pytest
import quadrature

import balson_jax as balson
from balson_jax.recipes import synthetic_control
from balson_jax.status import Status

pandas = pytest.importorskip("pandas")

METHOD = balson.IS(65_536)
DONORS = ["Alba", "Brae", "Cove", "Dell"]
WEIGHTS = np.array([0.6, 0.3, 0.1, 0.0])
EFFECT, NOISE = 3.0, 0.4
START = 1990


def panel(seed=0, weights=WEIGHTS, effect=EFFECT, times=30, after=10):
    """Return a panel whose treated unit, Town, is a mean of donors with noise, and an effect at the last times."""
    rng = np.random.default_rng(seed)
    donors = 100 + rng.normal(size=(times, 1)).cumsum(0) + rng.normal(size=(times, len(weights)))
    treated = donors @ weights + NOISE * rng.normal(size=times)
    treated[times - after :] += effect
    years = START - (times - after) + np.arange(times)
    return pandas.DataFrame(np.column_stack([treated, donors]), index=years, columns=["Town", *DONORS])


FRAME = panel()


@pytest.fixture(scope="module")
def found():
    return synthetic_control(FRAME, "Town", START, method=METHOD)


def test_a_known_effect_is_found(found):
    assert found.posterior.status == 0
    assert found.average_effect.low < EFFECT < found.average_effect.high
    assert found.average_effect.high - found.average_effect.low < 1
    after = found.effect[found.effect.index >= START]
    assert ((after["low"] < EFFECT) & (after["high"] > EFFECT)).sum() >= 8
    before = found.effect[found.effect.index < START]
    assert ((before["low"] < 0) & (before["high"] > 0)).sum() >= 16
    np.testing.assert_allclose(found.effect["observed"], FRAME["Town"], rtol=1e-12)
    np.testing.assert_allclose(found.effect["effect"], found.effect["observed"] - found.effect["synthetic"], atol=1e-9)
    held = (found.weights["low"] <= WEIGHTS) & (found.weights["high"] >= WEIGHTS)
    assert held.sum() >= 3
    assert list(found.weights.index) == DONORS
    assert found.p_value == 1 / 5
    assert found.rank == 1


@pytest.mark.slow
def test_placebos_are_the_same_one_by_one(found):
    others = FRAME.drop(columns="Town")
    for k in (0, 3):
        alone = synthetic_control(others, DONORS[k], START, method=METHOD, prior=3 / 4, placebos=False)
        np.testing.assert_allclose(alone.posterior.mean, found.placebo_posterior.mean[k], atol=2e-4)
        np.testing.assert_allclose(alone.effect["effect"], found.placebo_effects[DONORS[k]], atol=2e-3)
        assert alone.ratio == pytest.approx(found.placebo_ratios[DONORS[k]], rel=1e-3)
        assert alone.placebo_ratios is None
        assert alone.rank is None
        assert np.isnan(alone.p_value)


def test_intervals_against_quadrature(found):
    """The level of the noise is integrated out, and its mean square adds to the variance of an effect."""
    is_before = FRAME.index.to_numpy() < START
    donors, treated = FRAME[DONORS].to_numpy(), FRAME["Town"].to_numpy()
    omega, weights = quadrature.simplex_rule(np.full(4, 3 / 4))
    half = 0.5 * np.square(treated[is_before] - omega @ donors[is_before].T).sum(-1)
    shape = is_before.sum() / 2
    weights = weights * (half / half.min()) ** -shape
    weights /= weights.sum()
    variance = weights @ half / (shape - 1)
    average = treated[~is_before].mean() - omega @ donors[~is_before].mean(0)
    mean = weights @ average
    std = np.sqrt(weights @ np.square(average - mean) + variance / (~is_before).sum())
    assert found.average_effect.mean == pytest.approx(mean, abs=0.1 * std)
    assert found.average_effect.std == pytest.approx(std, rel=0.06)
    assert found.average_effect.high - found.average_effect.low == pytest.approx(2 * 1.645 * std, rel=0.1)
    last = treated[-1] - omega @ donors[-1]
    spread = np.sqrt(weights @ np.square(last - weights @ last) + variance)
    row = found.effect.iloc[-1]
    assert row["effect"] == pytest.approx(weights @ last, abs=0.1 * spread)
    assert row["high"] - row["low"] == pytest.approx(2 * 1.645 * spread, rel=0.1)
    np.testing.assert_allclose(found.weights["mean"], weights @ omega, atol=0.01)


@pytest.mark.slow
def test_intervals_of_the_average_hold_as_often_as_they_say():
    rng = np.random.default_rng(1)
    held = []
    for seed in range(60):
        frame = panel(100 + seed, rng.dirichlet(np.full(4, 3 / 4)))
        average = synthetic_control(frame, "Town", START, method=METHOD, placebos=False).average_effect
        held.append(average.low < EFFECT < average.high)
    assert 0.78 < np.mean(held) < 0.99  # 3 standard errors of 60


def test_long_frames_and_order_dont_matter(found):
    long = FRAME.rename_axis("year").reset_index().melt("year", var_name="place", value_name="income")
    long = long.sample(frac=1, random_state=0)
    options = {"method": METHOD, "placebos": False}
    again = synthetic_control(long, "Town", START, unit="place", time="year", outcome="income", **options)
    pandas.testing.assert_frame_equal(again.effect, found.effect, check_names=False, atol=2e-3)
    column = synthetic_control(
        FRAME.iloc[::-1].rename_axis("year").reset_index(), "Town", START, time="year", **options
    )
    pandas.testing.assert_frame_equal(column.weights, found.weights, check_names=False, atol=2e-4)


@pytest.mark.slow
def test_a_shift_of_all_outcomes_and_an_intercept(found):
    """Weights sum to one, so that an offset of all units changes nothing; that of one takes an intercept."""
    options = {"method": METHOD, "placebos": False}
    far = synthetic_control(FRAME + 1e5, "Town", START, **options)
    np.testing.assert_allclose(far.effect["effect"], found.effect["effect"], atol=2e-3)
    plain, moved = (
        synthetic_control(FRAME.assign(Town=FRAME["Town"] + shift), "Town", START, intercept=True, **options)
        for shift in (0, 50)
    )
    assert moved.average_effect.mean == pytest.approx(plain.average_effect.mean, abs=2e-3)
    assert moved.average_effect.std == pytest.approx(plain.average_effect.std, rel=1e-2)


def test_what_is_printed(found):
    text = repr(found)
    assert text == found.summary()
    assert "Synthetic control of Town: 20 times before 1990, 10 from then on, 4 donors" in text
    assert re.search(r"rank 1 of 5 units, p = 0\.2", text)
    assert "Alba" in text
    assert "status: OK" in text
    # The prior's weight is told, if it keeps the mean from the data.
    heavy = synthetic_control(FRAME, "Town", START, method=METHOD, prior=[9.0, 9, 900, 900], placebos=False)
    assert Status.PRIOR_DOMINATES in Status(int(heavy.posterior.status))
    assert "status: PRIOR_DOMINATES" in heavy.summary()


def test_correlated_errors_are_told(found):
    """A slow wave in the place of independent errors: the average is less certain than the model believes."""
    assert abs(found.correlation) < 2 / np.sqrt(20)
    assert "too narrow" not in found.summary()
    wave = FRAME[DONORS].to_numpy() @ WEIGHTS + np.sin(np.arange(30) / 3)
    other = synthetic_control(FRAME.assign(Town=wave), "Town", START, method=METHOD, placebos=False)
    left = other.effect["effect"][:20].to_numpy()
    assert other.correlation == pytest.approx((left[1:] @ left[:-1]) / (left @ left))
    assert "the interval of the average effect is too narrow" in other.summary()


def test_a_plot(found):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    outcome, effects = found.plot()
    np.testing.assert_allclose(outcome.lines[1].get_ydata(), FRAME["Town"])
    assert len(effects.lines) == 4 + 3  # placebos; the effect, zero, the start
    matplotlib.pyplot.close("all")


@pytest.mark.parametrize(
    ("frame", "treated", "start", "options", "message"),
    [
        (FRAME.to_numpy(), "Town", START, {}, "frame is a ndarray; pass a pandas DataFrame"),
        (FRAME, "Twon", START, {}, "treated='Twon' is no unit of the frame"),
        (FRAME, "Town", 1890, {}, "start=1890 leaves 0 times before it and 30 from then on"),
        (FRAME, "Town", "May", {}, "start='May' doesn't compare with times such as"),
        (
            FRAME[["Town", "Alba", "Brae"]],
            "Town",
            START,
            {},
            "frame has 2 donors; pass at least 3 .with placebos=False",
        ),
        (FRAME.assign(Cove=FRAME["Cove"].where(FRAME.index != 1985)), "Town", START, {}, "'Cove' is nan at time"),
        (FRAME.assign(Cove="x"), "Town", START, {}, "frame holds values that are no numbers"),
        (FRAME, "Town", START, {"unit": "place"}, "frame has no column 'place'"),
        (FRAME, "Town", START, {"unit": "Town"}, "a long frame needs unit, time and outcome"),
        (FRAME, "Town", START, {"weights": np.ones(20)}, "unknown option='weights'"),
        (FRAME, "Town", START, {"noise": np.ones(20)}, "which serves all times"),
        (FRAME, "Town", START, {"level": 90}, "level=90 must lie between 0 and 1"),
        (pandas.concat([FRAME, FRAME]), "Town", START, {}, "a time or a unit twice"),
    ],
)
def test_bad_input(frame, treated, start, options, message):
    with pytest.raises(ValueError, match=message):
        synthetic_control(frame, treated, start, method=METHOD, key=jax.random.key(0), **options)


@pytest.mark.slow
def test_without_pandas_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"synthetic_control needs pandas; .*'balson_jax\[recipes\]'"):
        synthetic_control(FRAME, "Town", START)
