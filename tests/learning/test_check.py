"""Is a fit believable? False alarms, power, and what is said."""

import jax
import numpy as np
import pytest
from matplotlib.figure import Figure

import balson_jax as balson
from balson_jax.experiments.scenes import simulate, smooth_noise, smooth_spectra

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


def test_what_was_learned_passes():
    scene = simulate(5, "correlated", num_pixels=100, num_bands=ROWS, num_materials=3)
    learned = balson.learn(KEY, scene.design, scene.targets, rounds=2, progress=False)
    found = balson.fit(KEY, learned.problem, TG)
    noise = balson.Correlated(learned.covariance, scale="estimate")
    after = balson.check(scene.design, scene.targets, found, noise=noise)
    assert after.narrow < 1.3
    assert not (after.status & balson.Status.OVERCONFIDENT).any()


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
    found = plain(design, targets, noise=0.1)
    with pytest.raises(ValueError, match="design has shape"):
        balson.check(design.T, targets, found)
    with pytest.raises(ValueError, match="targets has shape"):
        balson.check(design, targets[:, :3], found)
    with pytest.raises(ValueError, match="2 problems"):
        balson.check(design, targets[:2], found)
    bare = balson.fit(KEY, balson.linear_problem(design, targets, noise=0.1), balson.IS(1024, keep=0))
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
