"""Dirichlet draws, in logarithms, from points of the unit cube."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from .gamma import ALPHA_MIN, loggamma_quantile


def dims(num_components: int) -> int:
    """Return how many coordinates a point needs: one per component and one more for small concentrations."""
    return 2 * num_components


def log_dirichlet(bits: jax.Array, alpha: jax.Array) -> jax.Array:
    """Map points of the unit cube to draws of ``Dir(alpha)``.

    Args:
      bits: integer points ``(..., 2K, L)`` (see ``points``).
      alpha: concentrations ``(..., K)``; leading axes broadcast against those of the points.

    Returns:
      ``ln omega``, ``(..., K, L)``. Exponentiated columns sum to one; entries may lie far below the smallest
      float, which is why the logarithm is kept.
    """
    num_components = alpha.shape[-1]
    log_gamma = loggamma_quantile(bits[..., :num_components, :], bits[..., num_components:, :], alpha)
    # Only lifted draws (small alpha) can be too small to exponentiate as they are.
    shift = lax.cond(
        jnp.any(alpha < ALPHA_MIN),
        lambda values: jnp.max(values, axis=-2, keepdims=True),
        lambda values: jnp.zeros_like(values[..., :1, :]),
        lax.stop_gradient(log_gamma),
    )
    shifted = log_gamma - shift
    # As a matrix product: a reduction over a short leading axis is many times slower on a CPU.
    ones = jnp.ones((1, num_components), alpha.dtype)
    normalizer = jnp.matmul(ones, jnp.exp(shifted), precision=lax.Precision.HIGHEST)
    return shifted - jnp.log(normalizer)
