"""LASSO: least squares with a penalty on the L1 norm, or with a bound on it."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .. import validation
from ..least_squares import least_squares
from ..problems.batching import map_blocks
from ..problems.linear import LinearProblem, linear_problem

MAX_SWEEPS = 20_000
MEMORY = 5
"""Number of sweeps between two extrapolations."""


class Lasso(NamedTuple):
    """The LASSO's optimum, with the batch axes leading.

    Attributes:
      theta: the solution, ``(..., K)``.
      gap: the duality gap, an upper bound, up to rounding, on how far the objective is above its minimum. For a penalty
        of 0 it is uninformative: it equals the objective.
      sweeps: number of passes of coordinate descent over the components.
    """

    theta: jax.Array
    gap: jax.Array
    sweeps: jax.Array


def lasso(design: Any, target: Any, penalty: Any, positive: bool = False, tolerance: float | None = None) -> Lasso:
    """Minimise ``|target - design @ theta|^2 / 2N + penalty |theta|_1`` by coordinate descent.

    Args:
      design: ``(..., N, K)``.
      target: ``(..., N)``.
      penalty: a number, or an array that broadcasts against the batch. For a regularisation path pass ``penalties``
        with a single problem, or ``penalties[:, None]`` with a batch.
      positive: whether theta must be nonnegative.
      tolerance: stop at this duality gap, as a fraction of ``|target|^2 / 2N``. ``None`` means 1e-6 in float32 and
        1e-12 in float64. The solver also stops when theta no longer changes.

    Returns:
      A ``Lasso``.

    >>> lasso(jnp.eye(2), jnp.array([1.0, 0.3]), penalty=0.25).theta.tolist()
    [0.5, 0.0]
    """
    penalty = validation.float_array("penalty", penalty)
    validation.require_nonnegative("penalty", penalty)
    problem = linear_problem(design, target, noise=1.0)
    try:
        jnp.broadcast_shapes(penalty.shape, problem.batch_shape)
    except ValueError:
        raise ValueError(
            f"penalty has shape {penalty.shape}, which doesn't broadcast against the batch {problem.batch_shape}; "
            "for a path over a batch, give penalties one trailing axis of length 1 per batch axis"
        ) from None
    # LASSO has no total. The field carries the penalty instead, which is then batched with the rest of the problem.
    problem = dataclasses.replace(problem, total=penalty.astype(problem.dtype))
    if tolerance is None:
        tolerance = 1e-6 if problem.dtype == jnp.float32 else 1e-12
    validation.require_nonnegative("tolerance", validation.float_array("tolerance", tolerance))
    return _solve(problem, tolerance, positive)


@functools.partial(jax.jit, static_argnames="positive")
def _solve(problem: LinearProblem, tolerance: jax.Array, positive: bool) -> Lasso:
    return map_blocks(lambda flat: flat.vmap(lambda one: _descend(one, tolerance, positive)), problem)


def _descend(problem: LinearProblem, tolerance: jax.Array, positive: bool) -> Lasso:
    factor, num_rows = problem.factor, problem.num_rows
    weight = num_rows * problem.total
    square = jnp.square(factor).sum(0)
    num_components = factor.shape[-1]
    scale = jnp.square(problem.projection).sum() + 2 * problem.rest

    def step(j, state):
        theta, residual = state
        column = factor[:, j]
        pull = column @ residual + square[j] * theta[j]
        size = jnp.maximum((pull if positive else jnp.abs(pull)) - weight, 0)
        new = jnp.sign(pull) * size / jnp.where(square[j] > 0, square[j], 1)
        return theta.at[j].set(new), residual - column * (new - theta[j])

    def gap_at(theta, residual):
        correlation = residual @ factor
        largest = jnp.max(correlation if positive else jnp.abs(correlation), initial=0.0)
        shrink = jnp.minimum(1.0, weight / jnp.where(largest > 0, largest, 1))
        shrink = jnp.where(largest > 0, shrink, 1.0)
        length = jnp.square(residual).sum() + 2 * problem.rest
        # Primal minus dual objective at the dual point shrink * residual, expanded with target = residual + A theta:
        # (1 - shrink)^2 |residual|^2 / 2 + weight |theta|_1 - shrink residual'A theta. If the gap is small, so is every
        # term.
        slack = weight * jnp.abs(theta) - shrink * correlation * theta
        return 0.5 * jnp.square(1 - shrink) * length + slack.sum()

    def objective(theta):
        residual = problem.projection - factor @ theta
        return 0.5 * jnp.square(residual).sum() + weight * jnp.abs(theta).sum()

    def sweep(theta, _):
        residual = problem.projection - factor @ theta  # recomputed, so that rounding errors do not accumulate
        theta, _ = lax.fori_loop(0, num_components, step, (theta, residual))
        return theta, theta

    def sweeps(state):
        before, _, _, count = state
        last, path = lax.scan(sweep, before, None, length=MEMORY)
        further = _extrapolate(jnp.concatenate([before[None], path]))
        further = jnp.maximum(further, 0) if positive else further
        theta = jnp.where(objective(further) < objective(last), further, last)
        moves = jnp.abs(theta - before).max() > 4 * jnp.finfo(theta.dtype).eps * jnp.abs(theta).max()
        return theta, gap_at(theta, problem.projection - factor @ theta), moves, count + MEMORY

    def unfinished(state):
        _, gap, moves, count = state
        return (gap > 0.5 * tolerance * scale) & moves & (count < MAX_SWEEPS)

    start = jnp.zeros(num_components, factor.dtype)
    state = sweeps((start, jnp.inf, jnp.bool_(True), jnp.zeros((), jnp.int32)))
    theta, gap, _, count = lax.while_loop(unfinished, sweeps, state)
    return Lasso(theta, jnp.maximum(gap, 0) / num_rows, count)


def _extrapolate(path: jax.Array) -> jax.Array:
    """Return Anderson's extrapolation of successive iterates ``(MEMORY + 1, K)``; it may be non-finite.

    It is the affine combination of the iterates whose combined step is shortest (Bertrand and Massias 2021).
    """
    steps = jnp.diff(path, axis=0)
    gram = steps @ steps.T
    floor = 10 * jnp.finfo(path.dtype).eps * jnp.trace(gram)
    shares = jnp.linalg.solve(gram + floor * jnp.eye(MEMORY, dtype=path.dtype), jnp.ones(MEMORY, path.dtype))
    return (shares / shares.sum()) @ path[1:]


def lasso_within(design: Any, target: Any, total: Any = 1.0) -> jax.Array:
    """Return the theta that minimises ``|target - design @ theta|`` with ``|theta|_1 <= total``, ``(..., K)``.

    Theta is written as the difference of two nonnegative vectors, and an extra component with a zero column takes up
    the slack. This is a problem on the simplex, which ``least_squares`` solves by an interior-point method.

    Args:
      design: ``(..., N, K)``.
      target: ``(..., N)``.
      total: the bound, one number or one per problem. A bound far above the solution's norm loses digits in float32.

    >>> [round(x, 3) for x in lasso_within(jnp.eye(2), jnp.array([2.0, -0.5])).tolist()]
    [1.0, 0.0]
    """
    return least_squares(linear_problem(design, target, total=total, constraint="signed_at_most", noise=1.0)).theta


def cross_validated_penalty(
    design: Any, target: Any, penalties: Any, folds: int = 5, positive: bool = False
) -> jax.Array:
    """Return the penalty with the smallest cross-validation error, one per problem.

    Row i is held out in fold ``i % folds``.

    Args:
      design: ``(..., N, K)``.
      target: ``(..., N)``.
      penalties: candidates, ``(L,)``.
      folds: number of folds, from 2 to the number of rows.
      positive: whether theta must be nonnegative.
    """
    design, target = validation.float_array("design", design), validation.float_array("target", target)
    penalties = validation.float_array("penalties", penalties, design.dtype)
    if penalties.ndim != 1 or not penalties.size:
        raise ValueError(f"penalties has shape {penalties.shape}; pass a list of one or more numbers")
    num_rows = design.shape[-2]
    validation.require_at_least("folds", folds, 2)
    if folds > num_rows:
        raise ValueError(f"folds={folds} must not exceed the number of rows, {num_rows}")
    batch = jnp.broadcast_shapes(design.shape[:-2], target.shape[:-1])
    candidates = penalties.reshape(-1, *(1,) * len(batch))
    fold = np.arange(num_rows) % folds
    error = 0.0
    for left_out in range(folds):
        kept, held = fold != left_out, fold == left_out
        theta = lasso(design[..., kept, :], target[..., kept], candidates, positive).theta
        residual = target[..., held] - jnp.einsum("...nk,...k->...n", design[..., held, :], theta)
        error = error + jnp.square(residual).sum(-1)
    return penalties[jnp.argmin(error, axis=0)]
