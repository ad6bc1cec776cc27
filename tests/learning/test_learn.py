"""Learning noise and prior from a batch: intervals that hold, gaps and weights, and what is refused."""

import jax
import numpy as np
import pytest
from scipy import special

import balson_jax as balson
from balson_jax.experiments.scenes import TROUBLES, simulate
from balson_jax.learning import concentrations
from balson_jax.residuals import covariance as covariances

KEY = jax.random.key(0)
TG = balson.TG(4096)


def quietly(design, targets, **options):
    return balson.learn(KEY, design, targets, progress=False, **options)


def held(posterior, truth):
    lower, upper = (np.asarray(end) for end in posterior.hdi(0.9))
    return (truth >= lower - 1e-6) & (truth <= upper + 1e-6)


def coverage(posterior, truth):
    return held(posterior, truth).mean()


def error(posterior, truth):
    return np.sqrt(np.square(np.asarray(posterior.mean) - truth).mean())


@pytest.fixture(scope="module")
def scene():
    return simulate(5, "correlated", num_pixels=300, num_bands=60, num_materials=3)


@pytest.fixture(scope="module")
def learned(scene):
    return quietly(scene.design, scene.targets, rounds=4)


@pytest.mark.slow
def test_intervals_hold_after_learning(scene, learned):
    plain = balson.fit(KEY, balson.linear_problem(scene.design, scene.targets), TG)
    found = balson.fit(KEY, learned.problem, TG)
    assert coverage(plain, scene.abundances) < 0.6
    # 900 shares, about two thirds of them independent, have a standard error of 0.012.
    assert 0.85 < coverage(found, scene.abundances) < 0.96
    assert error(found, scene.abundances) < 1.03 * error(plain, scene.abundances)
    assert learned.gain > 20
    assert learned.history[learned.chosen].shares["smooth"] > 0.5
    before, after = learned.narrow
    assert before > 2
    assert after < 1.3
    assert "times as large before" in repr(learned)
    assert not any("too narrow" in note for note in learned.notes)


@pytest.mark.slow
def test_what_was_learned_serves_other_targets(scene, learned):
    again = learned.problem_for(scene.targets[:7])
    np.testing.assert_allclose(again.projection, learned.problem.projection[:7], rtol=1e-3, atol=1e-3)
    stream = balson.fit_stream(
        KEY, learned.problem_for(scene.targets[:1]), scene.targets[:7], TG, chunk=4, progress=False
    )
    direct = balson.fit(KEY, again, TG)
    np.testing.assert_allclose(stream.mean, direct.mean, atol=2e-3)
    text = repr(learned)
    for word in ("300 problems", "log-evidence", "smooth", "prior"):
        assert word in text


@pytest.mark.slow
def test_gaps_and_weights(scene):
    rng = np.random.default_rng(0)
    gappy = scene.targets.copy()
    gappy[rng.random(gappy.shape) < 0.02] = np.nan
    gappy = gappy[:60]
    found = quietly(scene.design, gappy, rounds=2, missing="drop", weights=np.linspace(0.5, 2, 60))
    posterior = balson.fit(KEY, found.problem, TG)
    assert (np.asarray(posterior.status) == 0).all()
    assert coverage(posterior, scene.abundances[:60]) > 0.75


@pytest.mark.slow
@pytest.mark.parametrize("constraint", ["at_most", "signed_at_most"])
def test_other_constraints(scene, constraint):
    found = quietly(scene.design, 3 * scene.targets[:50], rounds=2, constraint=constraint, total=3.0)
    assert found.problem.constraint == constraint
    assert found.prior.shape == (found.problem.num_components,)
    assert found.gain > 10


@pytest.mark.slow
def test_weights_that_all_problems_share_change_units_only():
    """Rows divided by factors, and weights that multiply them back, learn the same."""
    scene = simulate(6, "correlated", num_pixels=60, num_bands=30, num_materials=3)
    factors = np.linspace(0.5, 2, 30)
    plain = quietly(scene.design, scene.targets, rounds=1, prior=1.0)
    found = quietly(
        scene.design / factors[:, None], scene.targets / factors, rounds=1, prior=1.0, weights=np.square(factors)
    )
    np.testing.assert_allclose(
        found.covariance, plain.covariance, rtol=1e-3, atol=1e-3 * np.diag(plain.covariance).max()
    )


@pytest.mark.slow
def test_a_single_column_with_a_slack():
    rng = np.random.default_rng(1)
    column = np.exp(-np.square(np.linspace(-1, 1, 20)))[:, None]
    targets = rng.uniform(0.2, 0.9, (30, 1)) @ column.T + 0.02 * rng.normal(size=(30, 20))
    found = quietly(column, targets, rounds=1, constraint="at_most")
    assert found.problem.num_params == 1


@pytest.mark.slow
def test_levels_of_rows_alone():
    rng = np.random.default_rng(1)
    design = rng.normal(size=(30, 3))
    levels = np.where(np.arange(30) < 10, 1.0, 0.1)
    targets = rng.dirichlet(np.ones(3), 200) @ design.T + levels * rng.normal(size=(200, 30))
    found = quietly(design, targets, noise="rows", prior=1.0, rounds=3)
    ratio = found.levels / levels
    # 200 problems know a standard deviation to 5 %; levels are known up to a factor.
    np.testing.assert_allclose(ratio / np.median(ratio), 1, atol=0.25)
    np.testing.assert_array_equal(found.prior, 1)
    assert found.covariance is None
    posterior = balson.fit(KEY, found.problem, TG)
    assert balson.check(design, targets, posterior, noise=found.levels).narrow < 1.3


@pytest.mark.slow
def test_levels_of_many_rows():
    """As many as genes: no matrix of that size is made."""
    rng = np.random.default_rng(4)
    design = rng.random((20_000, 3), np.float32)
    targets = rng.dirichlet(np.ones(3), 10) @ design.T + 0.1 * rng.normal(size=(10, 20_000))
    found = quietly(design, targets.astype(np.float32), noise="rows", rounds=1, level="common")
    assert found.levels.shape == (20_000,)
    assert np.median(found.levels) == pytest.approx(0.1, rel=0.1)


@pytest.mark.slow
def test_concentrations_alone():
    rng = np.random.default_rng(2)
    truth = np.array([0.5, 1.0, 4.0])
    design = rng.normal(size=(30, 3))
    targets = rng.dirichlet(truth, 400) @ design.T + 0.05 * rng.normal(size=(400, 30))
    found = quietly(design, targets, noise=None, rounds=6)
    # The Fisher information of 320 draws gives 10 % or less; the rounds stop somewhat short of the optimum.
    np.testing.assert_allclose(found.prior, truth, rtol=0.3)
    assert found.covariance is None


@pytest.mark.parametrize("truth", [[0.3, 0.3, 0.3, 2.0], [5.0, 5.0, 0.05], [0.7, 0.7]])
def test_equal_concentrations(truth):
    """Means of ln omega under a Dirichlet give its concentrations back; that of a slack, the last, may differ."""
    logs = special.digamma(truth) - special.digamma(sum(truth))
    np.testing.assert_allclose(concentrations.equal(logs, has_slack=truth[0] != truth[-1]), truth, rtol=1e-3)
    # Without a slack they are equal, and their mean of ln omega is the mean over the components.
    equal = concentrations.equal(logs, has_slack=False)
    assert np.ptp(equal) == 0
    assert special.digamma(equal[0]) - special.digamma(equal.sum()) == pytest.approx(logs.mean(), rel=1e-3)


def test_steps_increase_the_likelihood():
    rng = np.random.default_rng(3)
    scene = simulate(1, "all", num_pixels=80, num_bands=30, num_materials=3)
    residuals = scene.targets - scene.abundances @ scene.design.T
    start = covariances.with_components(
        covariances.rows_only(residuals), scene.design.astype(float), scene.abundances.astype(float), np.arange(30.0)
    )
    basis = covariances.outside(scene.design.astype(float))
    assert basis.shape == (30, 28)
    np.testing.assert_allclose(basis.T @ (scene.design[:, 1:] - scene.design[:, :1]), 0, atol=1e-5)
    inside = residuals @ basis
    moment = inside.T @ inside / len(inside)

    def log_likelihood(covariance):
        matrix = basis.T @ covariance.matrix @ basis
        return -0.5 * (np.linalg.slogdet(matrix)[1] + np.trace(np.linalg.solve(matrix, moment)))

    values = [log_likelihood(start.fitted(moment, 1e12, steps, basis)) for steps in (0, 1, 2, 10, 50)]
    assert (np.diff(values) > 0).all()
    # What is missing is filled in with its expectation: rows of which a quarter is missing tell nearly the same.
    gappy = np.where(rng.random(residuals.shape) < 0.25, np.nan, residuals)
    fitted = start.fitted(residuals.T @ residuals / 80, 80, 50)
    filled = covariances.second_moment(gappy, fitted)
    whole = residuals.T @ residuals / 80
    assert np.abs(np.linalg.eigvalsh(filled)[-1] / np.linalg.eigvalsh(whole)[-1] - 1) < 0.3


@pytest.mark.slow
def test_a_row_without_residuals_and_few_problems(scene):
    targets = scene.targets[:8].copy()
    design = scene.design.copy()
    design[5], targets[:, 5] = 0, 0
    found = quietly(design, targets, rounds=2)
    assert np.isfinite(found.covariance).all()
    assert any("fewer than the 60 rows" in note for note in found.notes)
    assert any("too few to hold some out" in note for note in found.notes)
    assert np.isfinite(np.asarray(balson.fit(KEY, found.problem, TG).mean)).all()


@pytest.mark.slow
def test_error_bars_that_stay_too_narrow_are_told():
    """Levels of rows can't describe smooth errors."""
    scene = simulate(5, "correlated", num_pixels=60, num_bands=30, num_materials=3)
    found = quietly(scene.design, scene.targets, noise="rows", rounds=1)
    assert found.narrow[1] > 1.5
    assert any("still too narrow by a factor of" in note for note in found.notes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"targets": np.zeros(60)}, "one problem tells too little"),
        ({"targets": np.zeros((1, 60))}, "targets has 1 problem"),
        ({"targets": np.zeros((2, 3, 60))}, "reshape"),
        ({"targets": np.zeros((5, 9))}, "60 rows"),
        ({"noise": "iid"}, "noise='iid'"),
        ({"level": 3}, "level"),
        ({"coordinates": np.zeros(3)}, "coordinates has shape"),
        ({"prior": -1.0}, "prior"),
        ({"prior": np.ones((300, 3))}, "one prior for all problems"),
        ({"priors": 1.0}, "learn has no such option"),
        ({"rounds": 0}, "rounds=0"),
    ],
)
def test_what_is_refused(scene, change, message):
    arguments = {"design": scene.design, "targets": scene.targets, **change}
    with pytest.raises(ValueError, match=message):
        quietly(arguments.pop("design"), arguments.pop("targets"), **arguments)


def test_too_many_rows_for_a_covariance():
    with pytest.raises(ValueError, match='pass noise="rows"'):
        quietly(np.random.default_rng(0).random((1001, 2)), np.zeros((3, 1001)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trouble", "num_materials"),
    [*((trouble, 3) for trouble in TROUBLES), ("none", 8), ("correlated", 8), ("variable", 8), ("all", 8)],
)  # `balson bench coverage` has all
def test_troubles_of_real_scenes(trouble, num_materials, request):
    # TG alone: Auto sends some pixels with eight materials and concentrations far below one to slow chains.
    method = balson.TG(16_384)
    # Spectra that are off bias all pixels of a scene alike, and with three materials in two directions only: one scene
    # tells little of such errors.
    seeds = [num_materials] if trouble != "all" else [num_materials + 10 * number for number in range(5)]
    scenes = [simulate(seed, trouble, num_pixels=500 // len(seeds), num_materials=num_materials) for seed in seeds]
    plain, found = [], []
    for scene in scenes:
        plain.append(balson.fit(KEY, balson.linear_problem(scene.design, scene.targets), method))
        found.append(balson.fit(KEY, quietly(scene.design, scene.targets).problem, method))
    before, after = (
        np.concatenate([held(fit, scene.abundances) for fit, scene in zip(fits, scenes, strict=True)])
        for fits in (plain, found)
    )
    present = np.concatenate([scene.abundances for scene in scenes]) > 0
    assert after.mean() > 0.85
    # Intervals that begin at 0 hold all shares of 0; the others tell whether they are too wide.
    assert after[present].mean() < 0.95
    errors = [
        np.sqrt(np.mean([error(fit, scene.abundances) ** 2 for fit, scene in zip(fits, scenes, strict=True)]))
        for fits in (plain, found)
    ]
    assert errors[1] < 1.03 * errors[0]
    trusted = np.mean([(np.asarray(fit.status) == 0).mean() for fit in found])
    assert trusted > (0.99 if num_materials == 3 else 0.95)
    # Not met: 95.5 % of all shares are held, and the plain fit holds 61 %.
    if (trouble, num_materials) in (("gain", 3), ("variable", 8)):
        request.node.add_marker(pytest.mark.xfail(raises=AssertionError, strict=True))
    assert after.mean() < 0.95
    if trouble in ("correlated", "variable"):
        assert before.mean() < 0.6
