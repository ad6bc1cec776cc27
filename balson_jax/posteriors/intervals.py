"""Intervals of theta: quantiles and shortest intervals of kept draws, or quantiles of matched Beta distributions."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from .. import dirichlet

CANDIDATES = 33
"""Number of intervals from which the shortest is chosen."""

REACHING = 0.5
"""An interval that reaches an end of the range is preferred, if it is longer by at most this share of a relative Monte
Carlo error."""


@jax.jit
def quantiles(values: jax.Array, weights: jax.Array, tail: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the ``tail`` and ``1 - tail`` quantiles of weighted values over the last axis."""
    found = _quantiles(*_ranked(values, weights), jnp.stack([tail, 1 - tail]))
    return found[..., 0], found[..., 1]


def _ranked(values: jax.Array, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return values in ascending order, and the midpoints of their ranks; draws of zero weight repeat the largest."""
    weights = jnp.broadcast_to(weights, values.shape)
    largest = jnp.where(weights > 0, values, -jnp.inf).max(-1, keepdims=True)
    values = jnp.where(weights > 0, values, jnp.where(jnp.isfinite(largest), largest, jnp.nan))
    order = jnp.argsort(values, axis=-1)
    values, weights = jnp.take_along_axis(values, order, -1), jnp.take_along_axis(weights, order, -1)
    return values, jnp.cumsum(weights, -1) - 0.5 * weights


def _quantiles(values: jax.Array, ranks: jax.Array, at: jax.Array) -> jax.Array:
    """Return quantiles at probabilities ``(c,)``, ``(..., c)``, interpolated between ranked values."""
    each = jnp.vectorize(lambda values, ranks: jnp.interp(at, ranks, values), signature="(d),(d)->(c)")
    return each(values, ranks)


@jax.jit
def shortest(
    values: jax.Array, weights: jax.Array, level: jax.Array, least: jax.Array, most: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the shortest intervals that hold a share ``level`` of weighted values over the last axis.

    Args:
      values: ``(..., D)``.
      weights: of sum one, broadcasting against the values.
      level: the share.
      least: smallest possible value, ``(...)``; intervals may begin there.
      most: largest possible value, ``(...)``; intervals may end there.
    """
    tails = jnp.linspace(0, 1, CANDIDATES, dtype=values.dtype) * (1 - level)
    find = functools.partial(_quantiles, *_ranked(values, weights))
    # The first begins at the least value, and the last ends at the largest.
    lower = find(tails).at[..., 0].set(jnp.broadcast_to(least, values.shape[:-1]))
    upper = find(tails + level).at[..., -1].set(jnp.broadcast_to(most, values.shape[:-1]))
    length = upper - lower
    # Ends of intervals are random: one inside the range must be clearly shorter than one that reaches its end.
    tolerance = 1 + REACHING * jnp.sqrt(jnp.square(weights).sum(-1)) / weights.sum(-1)
    reaches = jnp.zeros(CANDIDATES, bool).at[jnp.array([0, -1])].set(True)
    best = jnp.argmin(jnp.where(reaches, length, length * tolerance[..., None]), -1)[..., None]
    ends = jnp.take_along_axis(lower, best, -1), jnp.take_along_axis(upper, best, -1)
    return ends[0][..., 0], ends[1][..., 0]


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
