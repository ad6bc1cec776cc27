"""The paper's data: a polynomial of degree four with unit noise."""

from __future__ import annotations

import jax
import jax.numpy as jnp

TRUE_THETA = (0.0013, 0.0380, 0.0102, 0.9082, 0.0423)
NUM_TRAIN = 100
NOISE = 1.0


def polynomial_design(x: jax.Array, num_components: int = len(TRUE_THETA)) -> jax.Array:
    """Return the powers ``1, x, x^2, ...`` as columns, ``(N, K)``."""
    return jnp.asarray(x)[:, None] ** jnp.arange(num_components)


def inputs(count: int = NUM_TRAIN) -> jax.Array:
    """Return equally spaced inputs from 0 to 1."""
    return jnp.linspace(0.0, 1.0, count)


def targets(key: jax.Array, num_datasets: int | None = None) -> jax.Array:
    """Return noisy observations of the true curve at the training inputs, ``(N,)`` or ``(num_datasets, N)``."""
    curve = polynomial_design(inputs()) @ jnp.asarray(TRUE_THETA)
    shape = curve.shape if num_datasets is None else (num_datasets, *curve.shape)
    return curve + NOISE * jax.random.normal(key, shape)
