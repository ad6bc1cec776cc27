"""Residuals at the mean and at best, and the warning that a prior dominates."""

import jax
import numpy as np
import pytest
from scipy import optimize

import balson_jax as balson

KEY = jax.random.key(0)


def donors():
    """38 donors, of whom three make the target up, and 19 years."""
    rng = np.random.default_rng(1)
    wide = 100 + np.cumsum(15 * rng.normal(size=(19, 38)), axis=0) + 20 * rng.normal(size=38)
    return wide, wide[:, :3] @ [0.5, 0.3, 0.2] + rng.normal(size=19)


def rms(values):
    return np.sqrt(np.square(values).mean())


def test_both_residuals_against_an_independent_solver():
    rng = np.random.default_rng(0)
    design = rng.normal(size=(12, 3))
    targets = rng.dirichlet(np.ones(3), 4) @ design.T + 0.3 * rng.normal(size=(4, 12))
    found = balson.fit(KEY, balson.linear_problem(design, targets), balson.IS(4096))
    heavy = np.vstack([design, np.full((1, 3), 1e4)])
    for i in range(4):
        best = optimize.nnls(heavy, np.append(targets[i], 1e4))[0]
        assert float(found.least_residual[i]) == pytest.approx(rms(targets[i] - design @ best), rel=1e-4)
        assert float(found.residual[i]) == pytest.approx(rms(targets[i] - design @ np.asarray(found.mean[i])), rel=1e-4)
    assert (found.status == 0).all()
    assert "at the mean" in found[0].summary()


@pytest.mark.slow
def test_a_flat_prior_over_many_components_dominates():
    design, target = donors()
    flat = balson.fit(KEY, balson.linear_problem(design, target), balson.IS(4096))
    assert balson.Status.PRIOR_DOMINATES in balson.Status(int(flat.status))
    assert float(flat.residual) > 1.5 * float(flat.least_residual)
    assert "smaller concentration" in flat.summary()
    # Nobody asks how the fit would be without noise if its level is stated.
    stated = balson.fit(KEY, balson.linear_problem(design, target, noise=20.0), balson.IS(4096))
    assert balson.Status.PRIOR_DOMINATES not in balson.Status(int(stated.status))


def test_a_model_has_no_least_residual():
    problem = balson.model_problem(lambda theta, x: theta[0] * x, np.linspace(0, 1, 5), np.linspace(0, 0.5, 5), 2)
    found = balson.fit(KEY, problem, balson.IS(1024))
    assert np.isnan(found.least_residual)
    assert np.isfinite(found.residual)
