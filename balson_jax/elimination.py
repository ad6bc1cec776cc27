"""Small systems of linear equations in batches: loops over columns, each step vectorised over the batch.

LAPACK takes matrices one by one. On a CPU jaxlib 0.10 spreads a batch of its calls over the threads that run the
program, and waits for them. If every thread waits, for another program or another part of this one, no thread is left
to compute: a deadlock. The loops here do not call LAPACK.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

EXACT = lax.Precision.HIGHEST


def solve_positive(matrix: jax.Array, sides: jax.Array) -> jax.Array:
    """Return ``matrix^-1 sides`` of positive definite matrices ``(..., K, K)`` for sides ``(..., K, S)``.

    Gauss-Jordan elimination, which needs no pivots here.

    >>> solve_positive(jnp.array([[2.0, 1.0], [1.0, 3.0]]), jnp.array([[4.0], [7.0]])).ravel().tolist()
    [1.0, 2.0]
    """
    count = matrix.shape[-1]

    def step(number, work):
        row = lax.dynamic_index_in_dim(work, number, -2)
        row = row / lax.dynamic_index_in_dim(row, number, -1)
        column = lax.dynamic_index_in_dim(work, number, -1)
        return lax.dynamic_update_index_in_dim(work - column * row, row, number, work.ndim - 2)

    return lax.fori_loop(0, count, step, jnp.concatenate([matrix, sides], -1))[..., count:]


def triangular_factor(rows: jax.Array) -> jax.Array:
    """Return R, ``(..., K, K)``, upper triangular with a positive diagonal, such that ``R'R = rows'rows``.

    The modified Gram-Schmidt process on ``(..., M, K)`` rows of full rank; R is as exact as from Householder's
    method (Björck 1967).
    """
    count = rows.shape[-1]
    factor = jnp.zeros((*rows.shape[:-2], count, count), rows.dtype)

    def step(number, state):
        left, factor = state
        column = lax.dynamic_index_in_dim(left, number, -1)
        size = jnp.sqrt(jnp.square(column).sum(-2, keepdims=True))
        column = column / jnp.where(size > 0, size, 1)
        row = jnp.matmul(jnp.swapaxes(column, -1, -2), left, precision=EXACT)
        row = jnp.where(jnp.arange(count) > number, row, 0)
        here = jnp.where(jnp.arange(count) == number, size, row)
        return left - column * row, lax.dynamic_update_index_in_dim(factor, here, number, factor.ndim - 2)

    return lax.fori_loop(0, count, step, (rows, factor))[1]


def triangular_inverse(factor: jax.Array) -> jax.Array:
    """Return the inverses of upper triangular matrices ``(..., K, K)``, by back substitution."""
    count = factor.shape[-1]
    identity = jnp.eye(count, dtype=factor.dtype)

    def step(done, inverse):
        number = count - 1 - done
        row = lax.dynamic_index_in_dim(factor, number, -2)
        diagonal = lax.dynamic_index_in_dim(row, number, -1)
        right = lax.dynamic_index_in_dim(identity, number, 0) - jnp.matmul(row, inverse, precision=EXACT)
        return lax.dynamic_update_index_in_dim(inverse, right / diagonal, number, inverse.ndim - 2)

    return lax.fori_loop(0, count, step, jnp.zeros_like(factor))
