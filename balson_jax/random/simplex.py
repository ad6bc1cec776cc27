"""Logarithms of Dirichlet variates from points of the unit cube."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from .gamma_quantile import lift, needs_lift, unlifted
from .points import Coordinates, uniform


def dims(num_components: int) -> int:
    """Return the number of coordinates of a point: two per component, the second for small concentrations only."""
    return 2 * num_components


def log_uniform(points: Coordinates, num_components: int, dtype) -> jax.Array:
    """Map points to variates that are uniform on the simplex, ``Dir(1)``, as ``log_dirichlet`` does for any."""
    bits = points(0, num_components)
    below, above = uniform(bits, dtype), uniform(~bits, dtype)
    # Exponential variates, exact where they are small and where they are large.
    log_gamma = jnp.log(jnp.where(below < 0.5, -jnp.log1p(-jnp.minimum(below, 0.5)), -jnp.log(above)))
    return log_gamma - jnp.log(jnp.exp(log_gamma).sum(-2, keepdims=True))


def log_dirichlet(points: Coordinates, alpha: jax.Array, rolled: bool = False) -> jax.Array:
    """Map points of the unit cube to variates of ``Dir(alpha)``.

    Args:
      points: returns the integer coordinates of L points, ``(..., dims, L)``, with at least ``dims(K)`` coordinates.
      alpha: concentrations, ``(..., K)``; leading axes broadcast against those of the points.
      rolled: whether quantiles are computed in a loop (see ``gamma_quantile.evaluate``).

    Returns:
      ``ln omega``, ``(..., K, L)``. Exponentiated columns sum to one. The logarithm is returned because omega may be
      far below the smallest float.
    """
    num_components = alpha.shape[-1]
    alpha = lax.optimization_barrier(alpha)  # see gamma_quantile.unlifted
    unlifted_draws = unlifted(points(0, num_components), alpha, rolled)

    def lifted():
        lifted = lift(unlifted_draws, points(num_components, num_components), alpha)
        # Lifted values can all underflow in exp, so subtract the largest. Unlifted ones cannot.
        return lifted - lax.stop_gradient(lifted.max(-2, keepdims=True))

    log_gamma = lax.cond(needs_lift(alpha).any(), lifted, lambda: unlifted_draws)
    # Sum by a matrix product: a reduction over a short leading axis is many times slower on a CPU.
    ones = jnp.ones((1, num_components), alpha.dtype)
    normalizer = jnp.matmul(ones, jnp.exp(log_gamma), precision=lax.Precision.HIGHEST)
    return log_gamma - jnp.log(normalizer)
