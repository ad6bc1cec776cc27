"""The sparse point estimate, against every subset of the components."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest
from cases import thinned
from scipy.optimize import minimize

import balson_jax as balson

KEY, NUM_ROWS, NUM_COMPONENTS = jax.random.key(0), 20, 5
METHOD = balson.TG(2048)


def problem(constraint="equal", count=8, total=2.0, noise=0.15):
    rng = np.random.default_rng(5)
    design = rng.normal(size=(NUM_ROWS, NUM_COMPONENTS))
    theta = np.zeros((count, NUM_COMPONENTS))
    for row in theta:
        present = rng.choice(NUM_COMPONENTS, 2, replace=False)
        row[present] = total * np.array([0.6, 0.4]) * (rng.choice([-1, 1], 2) if "signed" in constraint else 1)
    targets = theta @ design.T + noise * rng.normal(size=(count, NUM_ROWS))
    return design, balson.linear_problem(design, targets, total=total, noise=noise, constraint=constraint), theta


def least_loss(columns, goal, total, may_be_less):
    """Return the least squared distance from a goal by nonnegative weights of a sum, by a general solver."""
    count = columns.shape[1]
    kind = "ineq" if may_be_less else "eq"
    found = minimize(
        lambda w: np.square(columns @ w - goal).sum(),
        np.full(count, total / count),
        jac=lambda w: 2 * columns.T @ (columns @ w - goal),
        bounds=[(0, total)] * count,
        constraints=[{"type": kind, "fun": lambda w: total - w.sum(), "jac": lambda w: -np.ones(count)}],
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
    )
    return found.fun


@thinned("constraint", ["equal"], ["signed", "at_most"])
def test_no_smaller_set_serves(constraint):
    design, batch, theta = problem(constraint)
    posterior = balson.fit(KEY, batch, METHOD)
    found = posterior.sparse(batch)
    total = 2.0
    np.testing.assert_array_less(np.abs(found).sum(-1), total * (1 + 1e-5))
    if constraint == "equal":
        np.testing.assert_allclose(found.sum(-1), total, rtol=1e-5)
    mean, draws, weights = (
        np.asarray(part, np.float64) for part in (posterior.mean, posterior.draws, posterior.draw_weights)
    )
    for i in range(len(theta)):
        spread = weights[i] @ np.square((draws[i] - mean[i]) @ design.T).sum(-1)
        loss = np.square(design @ (found[i] - mean[i])).sum()
        assert loss <= 1.001 * spread
        size = (found[i] != 0).sum()
        signed = design * np.where(mean[i] < 0, -1, 1)
        losses = [
            least_loss(signed[:, list(some)], design @ mean[i], total, constraint != "equal")
            for some in itertools.combinations(range(NUM_COMPONENTS), size - 1)
            if some
        ]
        assert min(losses, default=np.inf) > 0.999 * spread
    # Strong data: components that are present are found, and few others.
    assert (found[theta != 0] != 0).all()
    assert (found[theta == 0] == 0).mean() > 0.6


@pytest.mark.slow
def test_one_problem_equals_its_place_in_a_batch():
    design, batch, _ = problem(count=3)
    whole = balson.fit(KEY, batch, METHOD).sparse(batch)
    alone = balson.linear_problem(design, np.asarray(design @ whole[1]), total=2.0, noise=0.15)
    posterior = balson.fit(KEY, alone, METHOD)
    assert posterior.sparse(alone).shape == (NUM_COMPONENTS,)
    np.testing.assert_array_equal(posterior.sparse(alone) != 0, whole[1] != 0)


def test_more_tolerance_gives_fewer_components():
    _, batch, _ = problem(noise=0.6)
    posterior = balson.fit(KEY, batch, METHOD)
    sizes = [(posterior.sparse(batch, tolerance) != 0).sum() for tolerance in (0.01, 1.0, 100.0)]
    assert sizes[0] > sizes[1] > sizes[2] >= len(batch.projection)


def test_what_is_refused():
    _, batch, _ = problem(count=3)
    posterior = balson.fit(KEY, batch, METHOD)
    with pytest.raises(ValueError, match="tolerance"):
        posterior.sparse(batch, -1.0)
    with pytest.raises(ValueError, match="batch"):
        posterior[0].sparse(batch)
    with pytest.raises(ValueError, match="linear_problem"):
        posterior.sparse("no problem")
