"""What a fit is judged by: error of a curve, sparsity, coverage of intervals, a paired comparison."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def mean_squared_error(found: Any, truth: Any) -> jax.Array:
    """Return the mean over the last axis of the squared difference between two curves, ``(..., N)``.

    >>> float(mean_squared_error(jnp.array([1.0, 2.0]), jnp.array([1.0, 4.0])))
    2.0
    """
    return jnp.square(jnp.asarray(found) - jnp.asarray(truth)).mean(-1)


def hoyer_sparsity(theta: Any) -> jax.Array:
    """Return Hoyer's sparsity over the last axis: 0 if all components are equal in size, 1 if only one is nonzero.

    ``(sqrt(K) - |theta|_1 / |theta|_2) / (sqrt(K) - 1)``. A vector of zeros, or one with a single component, for which
    this is 0 / 0, counts as sparse: 1. NaN stays NaN.

    >>> round(float(hoyer_sparsity(jnp.array([0.0013, 0.0380, 0.0102, 0.9082, 0.0423]))), 4)
    0.92
    """
    theta = jnp.asarray(theta)
    root = math.sqrt(theta.shape[-1])
    scale = jnp.abs(theta).max(-1, keepdims=True)
    scaled = theta / jnp.where(scale == 0, 1, scale)  # or small numbers would vanish when squared
    length = jnp.sqrt(jnp.square(scaled).sum(-1))
    ratio = jnp.abs(scaled).sum(-1) / jnp.where(length == 0, 1, length)
    sparsity = jnp.clip((root - ratio) / (root - 1), 0, 1) if theta.shape[-1] > 1 else 1 + 0 * length
    return jnp.where(length == 0, 1, sparsity)


def coverage(lower: Any, upper: Any, truth: Any) -> jax.Array:
    """Return the share of all intervals, over every axis, that contain the truth, ends included."""
    lower, upper, truth = jnp.asarray(lower), jnp.asarray(upper), jnp.asarray(truth)
    return ((lower <= truth) & (truth <= upper)).mean()


def paired_t_test(first: Any, second: Any) -> float:
    """Return the two-sided p-value of Student's test that paired numbers have the same mean.

    A number of NumPy's, not for use inside ``jit``. Never NaN: numbers that agree exactly have a p-value of 1, and
    those that differ by exactly a constant of 0.
    """
    from scipy import stats

    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if first.ndim != 1 or first.shape != second.shape:
        raise ValueError(
            f"a paired test needs two vectors of equal length, not shapes {first.shape} and {second.shape}"
        )
    difference = first - second
    if not np.isfinite(difference).all():
        raise ValueError("a paired test needs finite numbers; leave out the pairs that aren't")
    if difference.size < 2:
        raise ValueError(f"a paired test needs at least 2 pairs, not {difference.size}")
    if np.ptp(difference) == 0:
        return 1.0 if difference.flat[0] == 0 else 0.0
    _, p_value = stats.ttest_1samp(difference, 0.0)
    return np.asarray(p_value).item()
