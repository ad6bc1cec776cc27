"""Bisection: the root of a monotone function, batched and jittable."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax


def bisect(is_below: Callable[[jax.Array], jax.Array], low: jax.Array, high: jax.Array, steps: int) -> jax.Array:
    """Return the points between ``low`` and ``high`` where a predicate turns from True to False.

    Args:
      is_below: whether points lie below the root; elementwise.
      low: lower ends of the brackets.
      high: upper ends.
      steps: how often the brackets are halved.

    >>> root = bisect(lambda x: x**2 < 2, jnp.array(0.0), jnp.array(2.0), 20)
    >>> round(float(root), 4)
    1.4142
    """

    def halve(_, bracket):
        low, high = bracket
        middle = 0.5 * (low + high)
        below = is_below(middle)
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    low, high = lax.fori_loop(0, steps, halve, (low, high))
    return 0.5 * (low + high)
