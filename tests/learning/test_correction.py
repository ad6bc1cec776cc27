"""The correction of a design: ridge regression where thetas are known, caution where theta can follow, learning."""

import dataclasses

import jax
import numpy as np
import pytest
from scipy import stats

import balson_jax as balson
from balson_jax.experiments.scenes import simulate, smooth_spectra
from balson_jax.residuals import correction as corrections
from balson_jax.residuals import covariance as covariances

KEY = jax.random.key(0)
ROWS, COLUMNS, PROBLEMS = 40, 3, 30


def batch(seed, size=0.05, noise=0.01, problems=PROBLEMS):
    """Return a design, thetas, targets of a design that is off, the covariance, and a correction to start from."""
    rng = np.random.default_rng(seed)
    design = smooth_spectra(rng, ROWS, COLUMNS)
    places = np.linspace(0, 1, ROWS)
    start = corrections.none_yet(design, covariances.outside(design), places)
    coefficients = size * rng.normal(size=start.coefficients.shape) * np.sqrt(start.shapes[:, 3])
    theta = rng.dirichlet(np.full(COLUMNS, 0.5), problems)
    covariance = np.square(noise) * (0.2 * np.eye(ROWS) + np.exp(-0.5 * np.square((places[:, None] - places) / 0.1)))
    errors = rng.multivariate_normal(np.zeros(ROWS), covariance, problems)
    wrong = design * (1 + start.cosines @ coefficients.T)
    return start, wrong, theta, theta @ wrong.T + errors, covariance


def known(theta, targets, weights=None):
    """Return the targets with draws of theta that all agree."""
    weights = np.ones(len(targets)) if weights is None else weights
    return corrections.Seen(targets, np.stack([theta, theta]), weights)


def regression(start, theta, weights):
    """Return the coefficients' columns for all data, ``(B, N, P J)``, and the standard deviations of the noise."""
    moved = start.design[:, :, None] * start.cosines[:, None]
    return (theta[:, None, :, None] * moved).reshape(len(theta), ROWS, -1), 1 / np.sqrt(weights)


def test_known_thetas_give_ridge_regression():
    """One step is enough, by a dense Gaussian model of all data that shares nothing with it but the variances."""
    start, _, theta, targets, covariance = batch(0)
    weights = np.random.default_rng(1).uniform(0.5, 2, PROBLEMS)
    seen = known(theta, targets, weights)
    moment = np.einsum("b,bp,bq->pq", weights, theta, theta)
    variances, evidence = start._variances(seen, covariance, moment)
    columns, levels = regression(start, theta, weights)
    flat = columns.reshape(-1, columns.shape[-1])
    noise = np.kron(np.diag(np.square(levels)), covariance)
    left = (targets - theta @ start.design.T).ravel()
    whole = noise + (flat * variances) @ flat.T
    expected = variances * (flat.T @ np.linalg.solve(whole, left))
    found = start.updated(seen, covariance)
    np.testing.assert_allclose(found.coefficients.ravel(), expected, atol=1e-6 * np.abs(expected).max())
    spread = np.diag(variances) - (variances * (flat.T @ np.linalg.solve(whole, flat)).T).T * variances
    added = np.mean([own * weight @ spread @ own.T for own, weight in zip(columns, weights, strict=True)], 0)
    np.testing.assert_allclose(found.added, added, atol=1e-6 * np.abs(added).max())

    # The evidence is that of what no theta reaches.
    basis = start.basis
    outside = ((targets - theta @ start.design.T) @ basis).ravel()
    flat = (basis.T @ columns).reshape(outside.size, -1)
    noise = np.kron(np.diag(np.square(levels)), basis.T @ covariance @ basis)
    logs = [
        stats.multivariate_normal.logpdf(outside, cov=matrix, allow_singular=False)
        for matrix in (noise, noise + (flat * variances) @ flat.T)
    ]
    assert evidence == pytest.approx(logs[1] - logs[0], rel=1e-4)


@pytest.mark.slow
def test_error_bars_of_the_correction():
    """Squares of errors in units of their standard deviations, over 40 batches, have a mean near one."""
    squares = []
    for seed in range(40):
        start, wrong, theta, targets, covariance = batch(seed, problems=12)
        found = start.updated(known(theta, targets), covariance)
        away = (found.corrected - wrong) @ theta[0]
        scale = np.sqrt(np.diagonal(found.added) * len(theta) / np.square(theta).sum() * np.square(theta[0]).sum())
        squares.append(np.mean(np.square(away / scale)))
        assert np.linalg.norm(found.corrected - wrong) < np.linalg.norm(start.design - wrong)
    # A mean of 40 averages of some five independent squares each: standard error 0.1; variances are learned, too.
    assert 0.5 < np.mean(squares) < 1.6


def test_a_design_that_is_right_is_not_corrected():
    evidence = []
    for seed in range(10):
        start, _, theta, targets, covariance = batch(seed, size=0.0)
        found = start.updated(known(theta, targets), covariance)
        evidence.append(found.evidence)
        # What free columns would show by chance; some 240 independent numbers beyond 4.5: once in 600 runs.
        chance = np.sqrt(covariance[0, 0] * np.diagonal(np.linalg.inv(theta.T @ theta)))
        assert (np.abs(found.corrected - start.design) < 4.5 * chance).all()
    assert max(evidence) < 10
    start, _, theta, targets, covariance = batch(0)
    assert start.updated(known(theta, targets), covariance).evidence > 100


def test_thetas_that_can_follow_tell_nothing():
    """A column's brightness is free to trade with a theta without walls: its variance stays the prior's."""
    rng = np.random.default_rng(2)
    start, _, theta, _, covariance = batch(3)
    brightness = dataclasses.replace(start, shapes=start.shapes[:, :1])
    errors = rng.multivariate_normal(np.zeros(ROWS), covariance, PROBLEMS)
    targets = theta @ (start.design * [1.3, 0.8, 1.2]).T + errors
    precision = np.linalg.inv(covariance)
    spread = np.linalg.inv(start.design.T @ precision @ start.design)
    centre = targets @ precision @ start.design @ spread
    free = centre + rng.standard_normal((2000, PROBLEMS, COLUMNS)) @ np.linalg.cholesky(spread).T
    shares = []
    for draws in (free, np.stack([theta, theta])):
        seen = corrections.Seen(targets, draws, np.ones(PROBLEMS))
        moment = np.einsum("lbp,lbq->pq", draws, draws) / len(draws)
        variance = brightness._variances(seen, covariance, moment)[0][0]
        prior = variance * (np.square(start.design) @ np.diagonal(moment)).sum() / PROBLEMS
        shares.append(np.trace(brightness.updated(seen, covariance).added) / prior)
    assert shares[0] > 0.7
    assert shares[1] < 0.1


def test_what_cannot_be_learned():
    design = np.random.default_rng(0).random((3, 3))
    assert corrections.none_yet(design, covariances.outside(design), np.arange(3.0)) is None
    assert corrections.none_yet(np.ones((40, 700)), np.eye(40), np.arange(40.0)) is None


@pytest.mark.slow
@pytest.mark.xfail(raises=AssertionError, strict=True, reason="not met: 0.50 from the true spectra, 0.28 before")
def test_a_scene_with_wrong_spectra():
    scene = simulate(3, "all", num_pixels=300, num_bands=60, num_materials=3)
    truth = smooth_spectra(np.random.default_rng(3), 60, 3)
    weights = np.linspace(0.5, 2, 60)
    found = balson.learn(KEY, scene.design, scene.targets, weights=weights, progress=False, correct=True)
    kept = balson.learn(KEY, scene.design, scene.targets, weights=weights, progress=False)
    np.testing.assert_array_equal(kept.design, scene.design)
    assert kept.corrected == 0
    assert "design: corrected by" in repr(found)
    assert "design:" not in repr(kept)
    assert found.gain > kept.gain + 0.1
    away = [np.linalg.norm(own - truth) for own in (found.design, scene.design)]
    assert away[0] < away[1]
    errors = [
        np.sqrt(np.square(np.asarray(balson.fit(KEY, one.problem, "tg").mean) - scene.abundances).mean())
        for one in (found, kept)
    ]
    assert errors[0] < 0.9 * errors[1]
    # Other targets are fitted with the corrected design.
    again = found.problem_for(scene.targets[:5])
    np.testing.assert_allclose(again.projection, found.problem.projection[:5], rtol=1e-3, atol=1e-3)
