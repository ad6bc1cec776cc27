"""Which components are present: the probability that each exceeds a share of the total."""

from __future__ import annotations

import jax
import jax.numpy as jnp


@jax.jit
def inclusion(draws: jax.Array, weights: jax.Array, limit: jax.Array) -> jax.Array:
    """Return the probability that each component is larger in magnitude than a limit, ``(..., P)``.

    Args:
      draws: ``(..., D, P)``.
      weights: of the draws, nonnegative, ``(..., D)``. NaN, of a problem without an answer, gives NaN.
      limit: ``(...)``.
    """
    exceeds = jnp.abs(draws) > limit[..., None, None]
    above, below = ((weights[..., None] * chosen).sum(-2) for chosen in (exceeds, ~exceeds))
    # Exactly one for a component that is always there, however sums are rounded.
    return above / (above + below)
