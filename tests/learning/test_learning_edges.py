"""Learning and checking at the edges: rows that nobody has, few rows, broken problems, errors that are almost exact."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import balson_jax as balson
from balson_jax.experiments.scenes import smooth_spectra

KEY = jax.random.key(0)
ROWS, TARGETS = 40, 60


def mixtures(num_columns=3, num_rows=ROWS, alpha=1.0, seed=0):
    rng = np.random.default_rng(seed)
    design = smooth_spectra(rng, num_rows, num_columns)
    return rng, design, rng.dirichlet(np.full(num_columns, alpha), TARGETS) @ design.T


@pytest.mark.parametrize("how", ["gaps", "weights"])
def test_rows_that_no_target_has_are_as_if_left_out(how):
    """Bad bands must not hide that errors wander: half of the rows are bad."""
    rng, design, clean = mixtures()
    targets = clean + 0.02 * rng.normal(size=clean.shape).cumsum(1)
    kept = np.arange(ROWS) < ROWS // 2
    method = balson.TG(4096)
    if how == "gaps":
        data, options, extra = np.where(kept, targets, np.nan), {"missing": "drop"}, {}
    else:
        data, options, extra = targets, {"weights": kept.astype(float)}, {"weights": kept.astype(float)}
    whole = balson.fit(KEY, balson.linear_problem(design, data, **options), method)
    alone = balson.fit(KEY, balson.linear_problem(design[kept], targets[:, kept]), method)
    found = balson.check(design, data, whole, **extra)
    expected = balson.check(design[kept], targets[:, kept], alone)
    assert expected.narrow > 1.5
    assert found.narrow == pytest.approx(expected.narrow, rel=0.02)
    np.testing.assert_allclose(found.narrow_each, expected.narrow_each, rtol=0.05)
    assert found.left_out_coverage == pytest.approx(expected.left_out_coverage, abs=0.01)


@pytest.mark.slow
def test_common_gaps_in_correlated_noise_accuse_nobody():
    rng, design, clean = mixtures()
    covariance = 0.02**2 * 0.9 ** np.abs(np.subtract.outer(np.arange(ROWS), np.arange(ROWS)))
    targets = clean + rng.multivariate_normal(np.zeros(ROWS), covariance, TARGETS)
    targets[:, 5:15] = np.nan
    noise = balson.Correlated(covariance)
    found = balson.fit(KEY, balson.linear_problem(design, targets, noise=noise, missing="drop"), balson.TG(4096))
    checked = balson.check(design, targets, found, noise=noise)
    assert checked.ok
    assert abs(np.nanstd(checked.residuals) - 1) < 0.1


def test_noise_of_a_check_by_problem():
    rng, design, clean = mixtures()
    targets, level = clean + 0.02 * rng.normal(size=clean.shape), np.full((TARGETS, 1), 0.02)
    found = balson.fit(KEY, balson.linear_problem(design, targets, noise=level), balson.TG(4096))
    checks = [balson.check(design, targets, found, noise=noise) for noise in (level, level[:, 0], 0.02)]
    assert checks[0].narrow == pytest.approx(checks[1].narrow) == pytest.approx(checks[2].narrow)
    with pytest.raises(ValueError, match=r"noise has shape \(60, 40\); check takes"):
        balson.check(design, targets, found, noise=np.full(targets.shape, 0.02))


@pytest.mark.slow
@pytest.mark.parametrize(("num_rows", "num_columns"), [(8, 5), (12, 8)])
def test_a_common_level_counts_what_the_columns_explain(num_rows, num_columns):
    rng = np.random.default_rng(1)
    design = rng.normal(size=(num_rows, num_columns))
    targets = rng.dirichlet(np.ones(num_columns), 400) @ design.T + 0.05 * rng.normal(size=(400, num_rows))
    learned = balson.learn(KEY, design, targets, noise=None, level="common", progress=False)
    # Of 400 (N - K + 1) independent squares: known to 2 or 3 %.
    assert float(np.asarray(learned.problem.noise.level)) == pytest.approx(0.05, rel=0.1)


def test_a_common_level_that_nothing_tells():
    rng = np.random.default_rng(1)
    design, targets = rng.normal(size=(5, 8)), rng.normal(size=(20, 5))
    with pytest.raises(ValueError, match=r'with 5 rows.*pass level="estimate"'):
        balson.learn(KEY, design, targets, noise=None, level="common", progress=False)


@pytest.mark.slow
def test_errors_that_are_almost_only_smooth():
    """The smallest eigenvalue of what was learned is far below the rounding of float32."""
    rng, design, clean = mixtures(num_rows=100)
    place = np.linspace(0, 1, 100)
    smooth = 0.3**2 * np.exp(-0.5 * np.square(np.subtract.outer(place, place) / 0.15))
    noise = rng.multivariate_normal(np.zeros(100), smooth, TARGETS, method="eigh")
    learned = balson.learn(KEY, design, clean + noise + 1e-4 * rng.normal(size=clean.shape), progress=False)
    assert np.isfinite(learned.history[-1].log_evidence)


@pytest.mark.slow
def test_concentrations_do_not_depend_on_the_methods_rule():
    rng, design, clean = mixtures(6, alpha=0.3)
    targets = clean + 0.01 * rng.normal(size=clean.shape)
    first, second = (
        balson.learn(KEY, design, targets, noise=None, method=balson.TG(4096, match=rule), progress=False)
        for rule in ("ratio", "kl")
    )
    np.testing.assert_array_equal(first.prior, second.prior)


def test_a_broken_problem_does_not_decide_for_the_others():
    rng, design, clean = mixtures()
    targets = (clean + 0.05 * rng.normal(size=clean.shape)).astype(np.float32)
    targets[3] *= 1e25
    problem = balson.linear_problem(design.astype(np.float32), targets, noise=0.05)
    tuned = balson.tune(KEY, problem, noise=[5.0, 0.05, 0.005], shared=True, method=balson.TG(2048))
    assert float(tuned.noise) == pytest.approx(0.05)
    candidates = {f"{level:g}": balson.linear_problem(design, targets, noise=level) for level in (5.0, 0.05)}
    assert balson.compare(candidates, key=KEY, method=balson.TG(2048)).names[0] == "0.05"
