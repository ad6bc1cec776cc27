"""Constrained least squares: ``min |y - A theta|^2 / 2`` over the constraint's set, batched, with a certified bound.

For a residual ``r = y - X omega`` and ``gap = max_k x_k'r - r'X omega >= 0`` the optimum is at least
``max(0, |r|^2 - gap)^2 / (2 |r|^2)``: for any feasible point, with residual s, ``r's >= |r|^2 - gap``, and
``|s| >= r's / |r|`` by Cauchy and Schwarz. So the answer carries its own certificate. The solver is in
``targets.optimum``, because samplers need optima too.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from .problems.batching import map_blocks
from .problems.linear import LinearProblem
from .targets.optimum import simplex_optima
from .targets.residuals import centred, gradient_at, rounding


class LeastSquares(NamedTuple):
    """The constrained optimum, with the problem's batch axes leading.

    Attributes:
      theta: the solution, ``(..., P)``, which keeps the problem's constraint.
      objective: half the sum of squared residuals at ``theta``, in units of the noise, where its level was given.
      bound: no feasible theta has a smaller objective, whatever the rounding of the reduced data did.
      gap: ``objective - bound``, nonnegative: an upper bound of the distance from the optimum, not an estimate of it.
        In float32 most of it is an allowance for rounding, about 2e-6 times the product of the target's length and the
        length of differences of columns. Where these are hundreds of times the residual, the gap is comparable to the
        objective, though the solution is right to several digits. Float64 makes it negligible. (The objective itself
        is rounded, too.)
    """

    theta: jax.Array
    objective: jax.Array
    bound: jax.Array
    gap: jax.Array


def least_squares(problem: LinearProblem) -> LeastSquares:
    """Return the constrained least-squares optimum of one problem or a batch, and how far off it can be.

    A constant to automatic differentiation.

    >>> import jax.numpy as jnp
    >>> from balson_jax import linear_problem
    >>> solution = least_squares(linear_problem(jnp.eye(3), jnp.array([0.9, 0.4, -1.0]), noise=1.0))
    >>> [round(value, 3) for value in solution.theta.tolist()]
    [0.75, 0.25, 0.0]
    """
    if not getattr(problem, "is_quadratic", False):
        needed = "least_squares needs one of linear_problem, with a design that is certain"
        raise ValueError(f"problem is a {type(problem).__name__}; {needed}")
    return _certify(problem, simplex_optima(problem))


@jax.jit
def _certify(problem: LinearProblem, omega: jax.Array) -> LeastSquares:
    return map_blocks(lambda flat, omega: flat.vmap(_certified, omega), problem, arrays=(omega,))


def _certified(problem: LinearProblem, omega: jax.Array) -> LeastSquares:
    half_square, gradient = gradient_at(problem, omega)
    square = 2 * jnp.maximum(half_square, 0)
    objective = 0.5 * square
    # The gap is a product of the residual with differences of columns. Both are rounded.
    error = rounding(problem) / problem.total
    column_size, difference = (_longest(columns) for columns in (problem.factor, centred(problem.factor)[0]))
    column_error = 8 * jnp.finfo(problem.dtype).eps * column_size
    gap = (gradient.max() - gradient) @ omega + 2 * (difference * error + column_error * jnp.sqrt(square))
    dual = jnp.square(jnp.maximum(square - gap, 0)) / jnp.where(square > 0, 2 * square, 1)
    bound = jnp.clip(dual - error * (jnp.sqrt(square) + error), 0, objective)
    square_total = jnp.square(problem.total)
    noise, num_rows = problem.noise, problem.num_rows
    level = 1.0 if problem.estimates_noise else noise.likeliest_level(num_rows, square_total * objective)
    scale = square_total / jnp.square(level)
    theta = problem.total * problem.constraint.unlift(omega)
    solution = LeastSquares(theta, scale * objective, scale * bound, scale * (objective - bound))
    return lax.stop_gradient(solution)


def _longest(columns: jax.Array) -> jax.Array:
    """Return the length of the longest column."""
    return jnp.sqrt(jnp.square(columns).sum(0).max())
