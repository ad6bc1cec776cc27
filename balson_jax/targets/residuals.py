"""Residuals of one linear problem at a point of the simplex, without cancellation in float32."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from ..problems.linear import LinearProblem


def centred(factor: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return a design without its mean column, ``(..., M, K)``, and that column, ``(..., M)``.

    As omega sums to one, ``factor @ omega`` is the product with the first, plus the second. A common offset of the
    columns would cost the digits in which they differ.
    """
    column = factor.mean(-1)
    return factor - column[..., None], column


def gradient_at(problem: LinearProblem, omega: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return ``|r|^2 / 2`` with ``r = y / C - A omega``, and ``g = A'r`` up to a constant, for one problem."""
    exact = lax.Precision.HIGHEST
    factor, column = centred(problem.factor)
    residual = problem.projection / problem.total - column - jnp.matmul(factor, omega, precision=exact)
    cross = problem.cross / problem.total
    half_square = 0.5 * jnp.square(residual).sum() + problem.rest / jnp.square(problem.total) - cross @ omega
    return half_square, jnp.matmul(residual, factor, precision=exact) + cross


def rounding(problem: LinearProblem) -> jax.Array:
    """Return a bound of the error of a residual's length from the rounding of the reduced data, for one problem."""
    target_size = jnp.sqrt(jnp.square(problem.projection).sum() + 2 * problem.rest)
    column_size = jnp.sqrt(jnp.square(problem.factor).sum(0).max())
    return 8 * jnp.finfo(problem.dtype).eps * lax.stop_gradient(target_size + problem.total * column_size)
