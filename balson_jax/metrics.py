"""Metrics of a fit: mean squared error of a curve, sparsity, coverage of intervals, paired t-test."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def mean_squared_error(found: Any, truth: Any) -> jax.Array:
    """Return the mean squared difference between curves ``(..., N)``, over the last axis.

    >>> float(mean_squared_error(jnp.array([1.0, 2.0]), jnp.array([1.0, 4.0])))
    2.0
    """
    return jnp.square(jnp.asarray(found) - jnp.asarray(truth)).mean(-1)


def hoyer_sparsity(theta: Any) -> jax.Array:
    """Return Hoyer's (2004) sparsity over the last axis, from 0 (all components equal in size) to 1 (only one nonzero).

    ``(sqrt(K) - |theta|_1 / |theta|_2) / (sqrt(K) - 1)``. Where this is 0 / 0, for a vector of zeros or with a single
    component, the result is 1. NaN stays NaN.

    >>> round(float(hoyer_sparsity(jnp.array([0.0013, 0.0380, 0.0102, 0.9082, 0.0423]))), 4)
    0.92
    """
    theta = jnp.asarray(theta)
    root = math.sqrt(theta.shape[-1])
    scale = jnp.abs(theta).max(-1, keepdims=True)
    scaled = theta / jnp.where(scale == 0, 1, scale)  # so that squares do not underflow
    length = jnp.sqrt(jnp.square(scaled).sum(-1))
    ratio = jnp.abs(scaled).sum(-1) / jnp.where(length == 0, 1, length)
    sparsity = jnp.clip((root - ratio) / (root - 1), 0, 1) if theta.shape[-1] > 1 else 1 + 0 * length
    return jnp.where(length == 0, 1, sparsity)


def coverage(lower: Any, upper: Any, truth: Any) -> jax.Array:
    """Return the fraction of intervals, over all axes, that contain the truth. The ends belong to the interval."""
    lower, upper, truth = jnp.asarray(lower), jnp.asarray(upper), jnp.asarray(truth)
    return ((lower <= truth) & (truth <= upper)).mean()


def paired_t_test(first: Any, second: Any) -> float:
    """Return the two-sided p-value of Student's paired t-test for equal means.

    Returns a Python float; not for use inside ``jit``. The p-value is never NaN: it is 1 if all pairs are equal, and 0
    if all differ by the same constant.
    """
    from scipy import stats

    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if first.ndim != 1 or first.shape != second.shape:
        raise ValueError(
            f"a paired test needs two vectors of equal length, not shapes {first.shape} and {second.shape}"
        )
    difference = first - second
    if not np.isfinite(difference).all():
        raise ValueError("a paired test needs finite numbers; leave out pairs with NaN or infinity")
    if difference.size < 2:
        raise ValueError(f"a paired test needs at least 2 pairs, not {difference.size}")
    if np.ptp(difference) == 0:
        return 1.0 if difference.flat[0] == 0 else 0.0
    _, p_value = stats.ttest_1samp(difference, 0.0)
    return np.asarray(p_value).item()
