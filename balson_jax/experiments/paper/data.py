"""The paper's data: a polynomial with unit noise. Other true coefficients test how general its results are."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

TRUE_THETA = (0.0013, 0.0380, 0.0102, 0.9082, 0.0423)
NUM_TRAIN = 100
NUM_TEST = 1000
NOISE = 1.0

TRUTHS: dict[str, tuple[float, ...]] = {
    "paper": TRUE_THETA,
    "one term": (0.0, 0.0, 1.0, 0.0, 0.0),
    "two terms": (0.5, 0.0, 0.0, 0.0, 0.5),
    "low order": (0.9082, 0.0423, 0.0380, 0.0102, 0.0013),
    "dense": (0.2, 0.2, 0.2, 0.2, 0.2),
    "ten terms": (0.02, 0.0, 0.05, 0.0, 0.0, 0.9, 0.0, 0.01, 0.0, 0.02),
    "sum 0.6": (0.0, 0.05, 0.0, 0.55, 0.0),
}
"""True coefficients by name. The last ones sum to less than C, which violates the samplers' constraint."""


def polynomial_design(x: jax.Array, num_components: int = len(TRUE_THETA)) -> jax.Array:
    """Return the powers ``1, x, x^2, ...`` as columns, ``(N, K)``."""
    return jnp.asarray(x)[:, None] ** jnp.arange(num_components)


def inputs(count: int = NUM_TRAIN) -> jax.Array:
    """Return equally spaced inputs from 0 to 1."""
    return jnp.linspace(0.0, 1.0, count)


def curve(theta: Sequence[float] | jax.Array, count: int = NUM_TEST) -> jax.Array:
    """Return the polynomials with coefficients ``theta``, ``(..., K)``, at equally spaced inputs, ``(..., count)``."""
    theta = jnp.asarray(theta)
    return theta @ polynomial_design(inputs(count), theta.shape[-1]).T


def targets(key: jax.Array, num_datasets: int | None = None, theta: Sequence[float] = TRUE_THETA) -> jax.Array:
    """Return noisy observations of the true curve at the training inputs, ``(N,)`` or ``(num_datasets, N)``."""
    true = curve(theta, NUM_TRAIN)
    shape = true.shape if num_datasets is None else (num_datasets, *true.shape)
    return true + NOISE * jax.random.normal(key, shape)
