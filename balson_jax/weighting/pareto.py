"""Pareto k, the shape of the tail of importance weights: a diagnostic of weighted means.

Weights with tail shape k have finite moments of order below ``1 / k``: infinite variance for ``k >= 1/2``, infinite
mean for ``k >= 1``.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

MAX_TAIL = 128
"""Pareto k is fitted to at most this many of the largest weights."""


def tail_size(num_draws: int) -> int:
    """Return the number of largest weights that Pareto k is fitted to: ``min(S / 5, 3 sqrt(S), MAX_TAIL)``."""
    return min(math.ceil(min(0.2 * num_draws, 3 * math.sqrt(num_draws))), MAX_TAIL)


def pareto_k_threshold(num_draws: jax.Array | int) -> jax.Array:
    """Return the Pareto k above which a weighted mean is unreliable: ``min(1 - 1 / log10(S), 0.7)`` for S draws.

    From Vehtari et al. (2024), Pareto smoothed importance sampling. Pass the effective number of draws. The
    threshold is 0.5 for 100 of them, 0.62 for 400, 0.7 from 2,154 on.
    """
    return jnp.minimum(1 - 1 / jnp.log10(jnp.maximum(jnp.asarray(num_draws, float), 11)), 0.7)


def pareto_k(tail: jax.Array) -> jax.Array:
    """Return the shape of the generalised Pareto distribution fitted to the largest weights.

    The estimate of Zhang and Stephens (2009), shrunk towards 1/2 by the weak prior of Vehtari et al. (2024), which
    counts as 10 observations.

    Args:
      tail: the T + 1 largest log-weights in descending order, ``(T + 1,)``. The last one is the threshold.

    Returns:
      The estimate, a scalar. If the fit is impossible, it is ``-inf`` if the weights in the tail are nearly equal, and
      ``inf`` otherwise. It is impossible with fewer than five weights above the threshold, or if most of them are
      negligible compared with the largest.
    """
    dtype = tail.dtype
    cutoff = jnp.exp(tail[-1] - tail[0])
    excess = jnp.exp(tail[:-1] - tail[0]) - cutoff  # descending
    valid = excess > 0
    count = valid.sum()
    largest = excess[0]
    quartile = excess[jnp.clip(count - jnp.floor(count / 4 + 0.5).astype(int), 0, excess.shape[0] - 1)]
    num_grid = 30 + math.isqrt(excess.shape[0])
    ranks = jnp.arange(1, num_grid + 1, dtype=dtype) - 0.5
    safe_quartile = jnp.where(quartile > 0, quartile, 1)
    grid = (1 - jnp.sqrt(num_grid / ranks)) / (3 * safe_quartile) + 1 / jnp.where(largest > 0, largest, 1)

    def shape_at(rate):
        return jnp.where(valid, jnp.log1p(-rate * excess), 0).sum() / jnp.maximum(count, 1)

    shapes = jax.vmap(shape_at)(grid)
    log_likelihood = count * (jnp.log(-grid / shapes) - shapes - 1)
    weights = jax.nn.softmax(jnp.where(jnp.isnan(log_likelihood), -jnp.inf, log_likelihood))
    weights = jnp.where(weights >= 10 * jnp.finfo(dtype).eps, weights, 0)
    rate = (grid * weights).sum() / weights.sum()
    prior_count = 10
    shape = (count * shape_at(rate) + 0.5 * prior_count) / (count + prior_count)
    # Too few distinct values to fit. Either the weights are nearly equal, or one of them dominates the rest.
    is_flat = tail[0] - tail[-1] < 0.01
    unfit = (count < 5) | (quartile <= 0) | jnp.isnan(shape)
    return jnp.where(unfit, jnp.where(is_flat, -jnp.inf, jnp.inf), shape)
