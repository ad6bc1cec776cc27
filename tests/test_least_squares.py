"""The constrained optimum against cvxpy, and its certificate."""

from __future__ import annotations

import cvxpy
import jax
import numpy as np
import pytest
from cases import thinned
from examples.two_levels import TwoLevels

import balson_jax as balson

# (rows, components): few and many, fewer rows than components, one row.
SHAPES = [(1, 3), (8, 20), (150, 100)]
OTHERS = [(5, 2), (3, 8), (30, 5), (60, 20), (40, 60), (50, 100), (12, 12)]
PER_SHAPE = 20


def problems(num_rows: int, num_components: int):
    """Return random problems, some with duplicate, zero or collinear columns, some with a target outside the cone."""
    rng = np.random.default_rng(1000 * num_rows + num_components)
    design = rng.normal(size=(PER_SHAPE, num_rows, num_components))
    design[1::5, :, -1] = design[1::5, :, 0]
    design[2::5, :, 0] = 0
    design[3::5] = np.linspace(0.1, 1, num_rows)[:, None] ** np.linspace(0, 3, num_components)
    omega = rng.dirichlet(np.full(num_components, 0.3), PER_SHAPE)
    total = 10.0 ** rng.uniform(-1, 1, PER_SHAPE)
    target = np.einsum("pnk,pk->pn", design, omega * total[:, None])
    target += 10.0 ** rng.uniform(-2, 0.5, (PER_SHAPE, 1)) * rng.normal(size=target.shape)
    target[4::5] += 20 * total[4::5, None]
    return design, target, total


def reference(design, target, total) -> float:
    theta = cvxpy.Variable(design.shape[1], nonneg=True)
    objective = 0.5 * cvxpy.sum_squares(target - design @ theta)
    task = cvxpy.Problem(cvxpy.Minimize(objective), [cvxpy.sum(theta) == total])
    task.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    # Make the answer exactly feasible, so that its objective is an upper bound.
    value = np.maximum(theta.value, 0)
    value *= total / value.sum()
    return 0.5 * np.square(target - design @ value).sum()


@thinned("shape", SHAPES, OTHERS)
def test_agrees_with_cvxpy(shape, x64):
    design, target, total = problems(*shape)
    solution = balson.least_squares(balson.linear_problem(design, target, total=total))
    assert (solution.gap >= 0).all()
    assert (solution.theta >= 0).all()
    np.testing.assert_allclose(solution.theta.sum(-1), total, rtol=1e-12)
    expected = np.array([reference(*case) for case in zip(design, target, total, strict=True)])
    np.testing.assert_allclose(solution.objective, expected, rtol=1e-6, atol=1e-6)
    # The bound holds for the independent solution as well, and is tight.
    assert (np.asarray(solution.bound) <= expected * (1 + 1e-9) + 1e-9).all()
    assert (np.asarray(solution.gap) <= 1e-6 * (1 + expected)).all()


@thinned("shape", SHAPES[1:2], [*SHAPES, *OTHERS][::2])
def test_float32_is_as_good_as_float32_can_be(shape):
    design, target, total = problems(*shape)
    with jax.enable_x64(True):
        exact = balson.least_squares(balson.linear_problem(design, target, total=total))
    solution = balson.least_squares(balson.linear_problem(np.float32(design), np.float32(target), total=total))
    assert (solution.gap >= 0).all()
    scale = 0.5 * np.square(target).sum(-1)
    assert (np.abs(np.asarray(solution.objective) - np.asarray(exact.objective)) < 2e-5 * scale).all()


def test_noise_scales_the_objective_and_not_the_solution(x64):
    design, target, total = problems(8, 20)
    plain = balson.least_squares(balson.linear_problem(design, target, total=total))
    noisy = balson.least_squares(balson.linear_problem(design, target, total=total, noise=0.1))
    np.testing.assert_allclose(noisy.theta, plain.theta, atol=1e-9)
    np.testing.assert_allclose(noisy.objective, 100 * plain.objective, rtol=1e-9)


def test_a_level_that_depends_on_residuals_sees_those_of_the_targets(x64):
    """Half the sum of squares is 4.5 in three rows: the large level is likelier, though not for a total of one."""
    problem = balson.linear_problem(np.eye(3), np.array([3.0, 3.0, -3.0]), noise=TwoLevels(0.8, 3.0), total=6.0)
    np.testing.assert_allclose(balson.least_squares(problem).objective, 4.5 / 9, rtol=1e-9)


@pytest.mark.slow
def test_works_inside_jit_and_vmap(x64):
    """The same fit and, where no columns are equal, the same theta. Designs are reduced by NumPy outside a trace."""
    cases = problems(30, 5)
    batch = balson.least_squares(balson.linear_problem(*cases[:2], total=cases[2]))
    solve = jax.vmap(lambda a, y, total: balson.least_squares(balson.linear_problem(a, y, total=total)).theta)
    inside = np.asarray(jax.jit(solve)(*cases))
    unique = np.arange(PER_SHAPE) % 5 != 1
    np.testing.assert_allclose(inside[unique], batch.theta[unique], atol=1e-7)
    fitted, expected = (np.einsum("pnk,pk->pn", cases[0], theta) for theta in (inside, np.asarray(batch.theta)))
    np.testing.assert_allclose(fitted, expected, atol=1e-7)


@pytest.mark.slow
def test_the_bound_holds_where_the_fit_is_finer_than_rounding():
    """Nearly equal columns, a target 1e-5 off them: float32 can't tell the optimum from zero, and must not claim to."""
    rng = np.random.default_rng(0)
    base = rng.normal(size=(40, 20, 1))
    design = (base + 1e-3 * rng.normal(size=(40, 20, 3))).astype(np.float32)
    shares = rng.dirichlet(np.ones(3), 40)
    target = np.einsum("pnk,pk->pn", design.astype(np.float64), shares) + 1e-5 * rng.normal(size=(40, 20))
    target = target.astype(np.float32)
    found = balson.least_squares(balson.linear_problem(design, target))
    with jax.enable_x64(True):
        exact = balson.least_squares(balson.linear_problem(design.astype(np.float64), target.astype(np.float64)))
    # What any theta reaches is no less than the optimum.
    assert (np.asarray(found.bound, np.float64) <= np.asarray(exact.objective)).all()
