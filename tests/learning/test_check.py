"""Is a fit believable? False alarms, power, and what is said."""

import dataclasses

import jax
import numpy as np
import pytest
from matplotlib.figure import Figure

import balson_jax as balson
from balson_jax.experiments.scenes import simulate, smooth_noise, smooth_spectra
from balson_jax.residuals.narrowness import geometry, narrowness

KEY = jax.random.key(0)
TG = balson.TG(4096)
ROWS = 60


def plain(design, targets, **options):
    return balson.fit(KEY, balson.linear_problem(design, targets, **options), TG)


@pytest.fixture(scope="module", params=["none", "correlated"])
def checked(request):
    scene = simulate(5, request.param, num_pixels=100, num_bands=ROWS, num_materials=3)
    return request.param, balson.check(scene.design, scene.targets, plain(scene.design, scene.targets))


def test_what_it_says(checked):
    trouble, found = checked
    text = repr(found)
    if trouble == "none":
        assert found.ok
        assert found.narrow < 1.2
        assert "about right" in text
        assert abs(found.correlation[1]) < 0.1
        # A p-value below 0.01 in one problem of a hundred.
        assert (found.p_value < 0.01).sum() <= 5
    else:
        assert (found.status & balson.Status.OVERCONFIDENT > 0).all()
        assert found.narrow > 2
        assert "too narrow by a factor of" in text
        assert "balson_jax.learn" in text
        assert found.correlation[1] > 0.5
        assert (found.p_value < 0.01).all()
    # 6,000 rows, those of correlated problems worth some 600.
    assert abs(found.left_out_coverage - 0.9) < 0.05
    assert found.residuals.shape == (100, ROWS)


def test_pictures(checked):
    figure = checked[1].plot()
    assert isinstance(figure, Figure)
    assert [axes.get_title() for axes in figure.axes] == ["Residuals", "Residuals go together?", "Rows left out"]


@pytest.mark.slow
def test_what_was_learned_passes():
    scene = simulate(5, "correlated", num_pixels=100, num_bands=ROWS, num_materials=3)
    learned = balson.learn(KEY, scene.design, scene.targets, rounds=2, progress=False)
    found = balson.fit(KEY, learned.problem, TG)
    noise = balson.Correlated(learned.covariance, scale="estimate")
    after = balson.check(scene.design, scene.targets, found, noise=noise)
    assert after.narrow < 1.3
    assert not (after.status & balson.Status.OVERCONFIDENT).any()


def errors_of_two_kinds(rng, count, share):
    """Return errors of unit variance, in odd problems partly smooth ones, and the odd problems' numbers."""
    white = rng.normal(size=(count, ROWS))
    mixed = np.sqrt(share) * smooth_noise(rng, count, ROWS, 4) + np.sqrt(1 - share) * white
    odd = np.arange(count) % 2 == 1
    return np.where(odd[:, None], mixed, white), odd


def true_factor(design, share):
    """Return the sandwich of smooth and white errors, from the matrices themselves."""
    back = np.linalg.pinv(design[:, 1:] - design[:, :1])
    back = np.vstack([-back.sum(0), back])  # the first component takes up what the others don't
    kernel = np.exp(-0.5 * np.square((np.arange(ROWS)[:, None] - np.arange(ROWS)) / 4))
    matrix = share * kernel + (1 - share) * np.eye(ROWS)
    return np.sqrt(np.trace(back @ matrix @ back.T) / np.trace(back @ back.T))


def test_half_of_the_problems():
    """Smooth errors in every second problem are told there, and seldom elsewhere."""
    rng = np.random.default_rng(0)
    design = smooth_spectra(rng, ROWS, 3)
    errors, odd = errors_of_two_kinds(rng, 100, 0.6)
    targets = rng.dirichlet(np.ones(3), 100) @ design.T + 0.02 * errors
    found = balson.check(design, targets, plain(design, targets))
    flagged = found.status & balson.Status.OVERCONFIDENT > 0
    assert flagged[odd].mean() > 0.9
    assert flagged[~odd].mean() < 0.25
    assert np.median(found.narrow_each[odd]) == pytest.approx(true_factor(design, 0.6), rel=0.35)
    assert np.median(found.narrow_each[~odd]) == pytest.approx(1, rel=0.25)
    assert "in nine problems of ten" in repr(found)


def test_the_order_of_the_columns_makes_no_difference():
    rng = np.random.default_rng(3)
    design, theta = smooth_spectra(rng, ROWS, 4), rng.dirichlet(np.ones(4), 30)
    errors = errors_of_two_kinds(rng, 30, 0.8)[0]
    order = np.array([2, 0, 3, 1])
    one = narrowness(errors, geometry(design, design), theta)
    other = narrowness(errors, geometry(design[:, order], design[:, order]), theta[:, order])
    assert one.overall > 1.5
    assert other.overall == pytest.approx(one.overall, rel=1e-6)
    np.testing.assert_allclose(other.each, one.each, rtol=1e-6)


@pytest.mark.slow
def test_half_of_the_problems_in_many_batches():
    rng = np.random.default_rng(1)
    factors, shares = [], []
    for _ in range(40):
        design = smooth_spectra(rng, ROWS, 3)
        errors, odd = errors_of_two_kinds(rng, 60, 0.6)
        known = geometry(design, design)
        found = narrowness(errors, known, rng.dirichlet(np.ones(3), 60))
        truth = np.where(odd, true_factor(design, 0.6), 1)
        factors.append([np.median(found.each[kind] / truth[kind]) for kind in (odd, ~odd)])
        shares.append([found.overconfident[kind].mean() for kind in (odd, ~odd)])
    # A factor is known to a fifth or so; the median over problems and batches has a bias of some percent.
    np.testing.assert_allclose(np.median(factors, 0), 1, atol=0.2)
    assert np.mean(shares, 0)[0] > 0.9
    assert np.mean(shares, 0)[1] < 0.15


@pytest.mark.slow
@pytest.mark.parametrize("rows", [15, ROWS])
def test_no_problem_of_a_white_batch_is_flagged(rows):
    """At most in 5 % of 200 batches is there a problem whose error bars are called too narrow."""
    rng = np.random.default_rng(8)
    alarms = 0
    for _ in range(200):
        design = smooth_spectra(rng, rows, 3)
        found = narrowness(rng.normal(size=(50, rows)), geometry(design, design), rng.dirichlet(np.ones(3), 50))
        alarms += found.overconfident.any()
    assert alarms <= 10


@pytest.mark.slow
def test_single_targets():
    """False alarms among 200 white targets of 100 rows, and power where errors are strongly correlated."""
    rng = np.random.default_rng(6)

    def factors(share, count):
        found = []
        for _ in range(count):
            design = smooth_spectra(rng, 100, 3)
            errors = np.sqrt(share) * smooth_noise(rng, 1, 100, 4) + np.sqrt(1 - share) * rng.normal(size=(1, 100))
            back = np.linalg.pinv(design[:, 1:] - design[:, :1])
            z = errors - errors @ back.T @ (design[:, 1:] - design[:, :1]).T
            z = z / np.sqrt(np.square(z).sum() / 98)
            found.append(narrowness(z, geometry(design, design), rng.dirichlet(np.ones(3), 1)).overall)
        return np.array(found)

    assert np.mean(factors(0.0, 200) > 1.5) <= 0.05
    assert np.mean(factors(0.8, 60) > 1.5) > 0.9


def test_a_single_target():
    rng = np.random.default_rng(1)
    design = smooth_spectra(rng, ROWS, 3)
    curve = design @ [0.5, 0.3, 0.2]
    for errors, flagged in ((rng.normal(size=ROWS), False), (smooth_noise(rng, 1, ROWS, 4)[0], True)):
        target = curve + 0.02 * errors
        found = balson.check(design, target, plain(design, target[None])[0])
        assert found.narrow_each.shape == (1,)
        assert found.narrow_each[0] == found.narrow
        assert bool(found.status[0] & balson.Status.OVERCONFIDENT) is flagged
        assert "nine problems" not in repr(found)


TREND = np.linspace(-1, 1, ROWS)[:, None]
BASELINE = np.column_stack([np.ones(ROWS), TREND])


def with_baselines(rng, errors):
    design = smooth_spectra(rng, ROWS, 3)
    theta = rng.dirichlet(np.full(3, 20.0), len(errors))
    return design, theta @ design.T + 10 * rng.normal(size=(len(errors), 2)) @ BASELINE.T + 0.02 * errors


def with_nuisance(design, targets, noise=None, **options):
    own = {} if noise is None else {"noise": noise}
    found = plain(design, targets, nuisance=TREND, intercept=True, **own, **options)
    return balson.check(design, targets, found, nuisance=TREND, intercept=True, **own)


@pytest.mark.slow
def test_nuisance_columns():
    """Against least squares by hand, where no bound holds theta; the level counts rows less columns."""
    rng = np.random.default_rng(5)
    design, targets = with_baselines(rng, rng.normal(size=(50, ROWS)))
    checked = with_nuisance(design, targets)
    assert checked.ok
    assert checked.narrow == pytest.approx(1, abs=0.25)
    everything = np.column_stack([design[:, 1:] - design[:, :1], BASELINE])
    left = targets - design[:, 0]
    left = left - left @ np.linalg.pinv(everything).T @ everything.T
    level = np.sqrt(np.square(left).sum(1, keepdims=True) / (ROWS - 4))
    # The noise level is a posterior mean, larger by 1 / (2 ROWS) or so; float32 rows have errors of 1e-6 / 0.02.
    assert np.corrcoef(checked.residuals.ravel(), (left / level).ravel())[0, 1] > 0.98
    assert np.square(checked.residuals).mean() == pytest.approx((ROWS - 4) / ROWS, rel=0.05)
    np.testing.assert_allclose(checked.residuals @ BASELINE, 0, atol=1e-3 * np.sqrt(ROWS))
    assert abs(checked.left_out_coverage - 0.9) < 0.03


@pytest.mark.slow
def test_nuisance_columns_with_known_noise_gaps_and_smooth_errors():
    rng = np.random.default_rng(5)
    design, targets = with_baselines(rng, rng.normal(size=(50, ROWS)))
    known = with_nuisance(design, targets, noise=0.02)
    assert known.ok
    assert np.square(known.residuals).sum(1).mean() == pytest.approx(ROWS - 4, rel=0.1)
    gappy = targets.copy()
    gappy[3, 5:9] = np.nan
    some = with_nuisance(design, gappy, missing="drop")
    assert some.ok
    np.testing.assert_allclose(np.nan_to_num(some.residuals[3]) @ BASELINE, 0, atol=1e-2 * np.sqrt(ROWS))
    design, smooth = with_baselines(rng, rng.normal(size=(50, ROWS)) + 3 * smooth_noise(rng, 50, ROWS, 4))
    assert with_nuisance(design, smooth).narrow > 1.5


@pytest.mark.slow
def test_nuisance_columns_other_than_those_fitted_are_refused():
    rng = np.random.default_rng(5)
    design, trend = rng.normal(size=(8, 3)), np.linspace(-1, 1, 8)[:, None]
    targets = rng.normal(size=(4, 8))
    found = plain(design, targets, nuisance=trend, intercept=True)
    for options in ({}, {"intercept": True}, {"nuisance": trend}):
        with pytest.raises(
            ValueError, match=r"the posterior has 2 .* pass nuisance and intercept as to linear_problem"
        ):
            balson.check(design, targets, found, **options)
    with pytest.raises(ValueError, match=r"one \(N, q\) for all problems"):
        balson.check(design, targets, found, nuisance=np.stack([trend] * 4), intercept=True)
    with pytest.raises(ValueError, match="nuisance has shape"):
        balson.check(design, targets, found, nuisance=trend[:5], intercept=True)


def test_rows_of_no_weight_are_no_observations():
    """As if they were not there, but for the places that rows have."""
    rng = np.random.default_rng(0)
    design = smooth_spectra(rng, ROWS, 3)
    targets = rng.dirichlet(np.ones(3), 20) @ design.T + 0.02 * rng.normal(size=(20, ROWS))
    weights = np.where(np.arange(ROWS) < ROWS // 4, 0.0, 1.0)
    kept = weights > 0
    weighted = balson.check(design, targets, plain(design, targets, weights=weights), weights=weights)
    without = balson.check(design[kept], targets[:, kept], plain(design[kept], targets[:, kept]))
    assert np.isnan(weighted.residuals[:, ~kept]).all()
    assert np.isnan(weighted.left_out[:, ~kept]).all()
    np.testing.assert_allclose(weighted.residuals[:, kept], without.residuals, atol=0.02)
    np.testing.assert_allclose(weighted.correlation, without.correlation, atol=0.02)
    assert weighted.left_out_coverage == pytest.approx(without.left_out_coverage, abs=0.01)


@pytest.mark.slow
def test_one_problem_gaps_weights_and_known_noise():
    rng = np.random.default_rng(0)
    design = smooth_spectra(rng, ROWS, 3)
    targets = rng.dirichlet(np.ones(3), 20) @ design.T + 0.02 * rng.normal(size=(20, ROWS))
    one = balson.check(design, targets[0], plain(design, targets[:1])[0])
    assert one.residuals.shape == (1, ROWS)
    assert one.narrow < 1.5
    known = balson.check(design, targets, plain(design, targets, noise=0.02), noise=0.02)
    assert known.ok
    assert abs(known.residuals.std() - 1) < 0.1
    wrong = balson.check(design, targets, plain(design, targets, noise=0.005), noise=0.005)
    assert wrong.narrow == pytest.approx(4, rel=0.15)
    gappy = targets.copy()
    gappy[3, 5:9] = np.nan
    found = plain(design, gappy, missing="drop", weights=np.linspace(0.5, 2, ROWS))
    checked = balson.check(design, gappy, found, weights=np.linspace(0.5, 2, ROWS))
    assert np.isnan(checked.residuals).sum() == 4
    assert np.isfinite(checked.narrow)


@pytest.mark.slow
def test_a_flat_prior_over_many_components_dominates():
    """38 donors, of whom three make the target up, and 19 years."""
    rng = np.random.default_rng(1)
    donors = 100 + np.cumsum(15 * rng.normal(size=(19, 38)), axis=0) + 20 * rng.normal(size=38)
    target = donors[:, :3] @ [0.5, 0.3, 0.2] + rng.normal(size=19)
    flat = balson.check(donors, target, balson.fit(KEY, balson.linear_problem(donors, target)))
    assert flat.status[0] & balson.Status.PRIOR_DOMINATES
    assert "smaller concentration" in repr(flat)
    assert flat.residual > 1.5 * flat.least_residual


def test_what_is_refused():
    design, targets = np.eye(4)[:, :3], np.ones((5, 4)) / 4
    found = plain(design, targets)
    with pytest.raises(ValueError, match="design has shape"):
        balson.check(design.T, targets, found)
    with pytest.raises(ValueError, match="targets has shape"):
        balson.check(design, targets[:, :3], found)
    with pytest.raises(ValueError, match="2 problems"):
        balson.check(design, targets[:2], found)
    bare = dataclasses.replace(found, draws=found.draws[:, :0], draw_weights=found.draw_weights[:, :0])
    with pytest.raises(ValueError, match="needs kept draws"):
        balson.check(design, targets, bare)


@pytest.mark.slow
def test_false_alarms_and_power():
    """200 batches of 50 problems each, well specified, and with errors that are truly twice as large as they seem."""
    rng = np.random.default_rng(2)
    design = smooth_spectra(rng, ROWS, 3)
    back = np.linalg.pinv(design[:, 1:] - design[:, :1])
    place = np.arange(ROWS)
    kernel = np.exp(-0.5 * np.square((place[:, None] - place) / 4))
    # Smooth and white variances, with sum one, for which the sandwich is four times the plain variance.
    ratio = np.trace(back @ kernel @ back.T) / np.trace(back @ back.T)
    smooth = 3 / (ratio - 1)
    assert 0 < smooth < 1

    def narrow(share):
        errors = np.sqrt(share) * smooth_noise(rng, 50, ROWS, 4) + np.sqrt(1 - share) * rng.normal(size=(50, ROWS))
        targets = rng.dirichlet(np.ones(3), 50) @ design.T + 0.02 * errors
        return balson.check(design, targets, plain(design, targets)).narrow

    assert np.mean([narrow(0.0) > 1.5 for _ in range(200)]) < 0.05
    found = np.array([narrow(smooth) for _ in range(100)])
    assert np.mean(found > 1.5) > 0.95
    assert np.median(found) == pytest.approx(2, rel=0.15)


def test_many_rows_are_not_judged_by_a_covariance():
    rng = np.random.default_rng(4)
    design = smooth_spectra(rng, 1001, 3)
    targets = rng.dirichlet(np.ones(3), 3) @ design.T + 0.05 * rng.normal(size=(3, 1001))
    found = balson.check(design, targets, plain(design, targets))
    assert np.isnan(found.narrow)
    assert "not judged, as there are more than 1,000 rows" in repr(found)
    assert not (found.status & int(balson.Status.OVERCONFIDENT)).any()
