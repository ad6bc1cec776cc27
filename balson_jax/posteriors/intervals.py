"""Intervals of theta: quantiles of kept draws, or of matched Beta distributions."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from .. import dirichlet


@jax.jit
def quantiles(values: jax.Array, weights: jax.Array, tail: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the ``tail`` and ``1 - tail`` quantiles of weighted values over the last axis."""
    weights = jnp.broadcast_to(weights, values.shape)
    order = jnp.argsort(values, axis=-1)
    values, weights = jnp.take_along_axis(values, order, -1), jnp.take_along_axis(weights, order, -1)
    # Midpoint ranks; draws of zero weight are excluded.
    ranks = jnp.where(weights > 0, jnp.cumsum(weights, -1) - 0.5 * weights, jnp.nan)

    def interpolate(ranks, values, at):
        counts = ~jnp.isnan(ranks)
        below, above = counts & (ranks <= at), counts & (ranks >= at)
        last = jnp.where(below, jnp.arange(ranks.size), -1).max()
        first = jnp.where(above, jnp.arange(ranks.size), ranks.size).min()
        last, first = jnp.where(last < 0, first, last), jnp.where(first == ranks.size, last, first)
        width = ranks[first] - ranks[last]
        share = jnp.where(width > 0, (at - ranks[last]) / jnp.where(width > 0, width, 1), 0)
        found = values[last] + share * (values[first] - values[last])
        return jnp.where(counts.any(), found, jnp.nan)

    each = jnp.vectorize(interpolate, signature="(d),(d),()->()")
    return each(ranks, values, tail), each(ranks, values, 1 - tail)


@jax.jit
def matched_beta(mean: jax.Array, variance: jax.Array, level: float) -> tuple[jax.Array, jax.Array]:
    """Return central intervals of Beta distributions with these means and variances."""
    tiny = jnp.finfo(mean.dtype).tiny
    mean = jnp.clip(mean, tiny, 1 - jnp.finfo(mean.dtype).epsneg)
    bound = mean * (1 - mean)
    precision = jnp.clip(bound / jnp.maximum(variance, tiny) - 1, *dirichlet.PRECISION_LIMITS)
    lower, upper = dirichlet.beta_interval(mean * precision, (1 - mean) * precision, level)
    unknown = jnp.isnan(mean) | jnp.isnan(variance)
    return jnp.where(unknown, jnp.nan, lower), jnp.where(unknown, jnp.nan, upper)
