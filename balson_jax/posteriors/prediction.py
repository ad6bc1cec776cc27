"""Quantiles, samples and predicted curves from weighted draws of theta."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import ndtr

from ..bisection import bisect
from .intervals import CANDIDATES, quantiles, shortest

BISECTION_STEPS = 30
CURVE_ELEMENTS = 1 << 22
"""Largest number of curve values computed at a time. It bounds the memory of ``curves``."""


class Prediction(NamedTuple):
    """Posterior mean, standard deviation and band of a curve. Fields have the batch's axes, then the curve's."""

    mean: jax.Array
    std: jax.Array
    lower: jax.Array
    upper: jax.Array


@jax.jit
def resample(draws: jax.Array, weights: jax.Array, uniforms: jax.Array) -> jax.Array:
    """Resample draws by weight: ``(..., n, P)`` from draws ``(..., D, P)`` and uniforms ``(..., n)``."""
    ranks = jnp.cumsum(weights, -1)
    ranks = ranks / ranks[..., -1:]
    find = jnp.vectorize(functools.partial(jnp.searchsorted, side="right"), signature="(d),(n)->(n)")
    index = jnp.minimum(find(ranks, uniforms), draws.shape[-2] - 1)
    return jnp.take_along_axis(draws, index[..., None], axis=-2)


def _noisy_quantile(
    values: jax.Array, weights: jax.Array, noise: jax.Array, mean: jax.Array, std: jax.Array, probability: jax.Array
) -> jax.Array:
    """Return a quantile of a mixture of normals with weighted means ``values`` on the last axis, by bisection."""

    def is_below(x):
        return (weights * ndtr((x[..., None] - values) / noise)).sum(-1) < probability

    return bisect(is_below, mean - 20 * std, mean + 20 * std, BISECTION_STEPS)


def curves(
    draws: jax.Array,
    weights: jax.Array,
    model: Callable[..., Any],
    level: float,
    noise: jax.Array | None,
    design: jax.Array | None = None,
    central: bool = True,
) -> Prediction:
    """Return the posterior of ``model(theta)``, or of ``model(design, theta)``, for each problem.

    Args:
      draws: draws of theta, ``(..., D, P)``.
      weights: weights of the draws, ``(..., D)``, which sum to one.
      model: a function of theta, or of a design and theta.
      level: probability of the band.
      noise: standard deviation of the noise of new observations, ``(...)``, or ``None`` to predict the curve itself.
      design: ``(..., N, P)``, or ``(N, P)`` if shared by the problems.
      central: whether the band has equal probabilities on both sides; else it is the shortest.
    """
    batch, tail = weights.shape[:-1], 0.5 * (1 - jnp.asarray(level, draws.dtype))
    draws, weights = draws.reshape(-1, *draws.shape[-2:]), weights.reshape(-1, weights.shape[-1])
    own = () if design is None or design.ndim == 2 else (design.reshape(-1, *design.shape[-2:]),)

    noisy = noise is not None
    added = jnp.zeros(len(draws), draws.dtype) if noise is None else jnp.broadcast_to(noise, batch).reshape(-1)

    def one(parts):
        draws, weights, noise, *rows = parts
        function = model if design is None else functools.partial(model, *(rows or (design,)))
        each = jax.vmap(function)(draws)
        if not hasattr(each, "ndim"):
            raise ValueError(f"model returned a {type(each).__name__}; expected one array")
        values = jnp.moveaxis(each, 0, -1)
        mean = (weights * values).sum(-1)
        std = jnp.sqrt((weights * jnp.square(values - mean[..., None])).sum(-1))
        if not noisy:
            anywhere = jnp.full_like(mean, jnp.inf)
            band = (
                quantiles(values, weights, tail) if central else shortest(values, weights, level, -anywhere, anywhere)
            )
            return Prediction(mean, std, *band)
        std = jnp.hypot(std, noise)
        find = functools.partial(_noisy_quantile, values, weights, noise, mean, std)
        if central:
            return Prediction(mean, std, find(tail), find(1 - tail))
        tails = tail * jnp.linspace(0, 2, CANDIDATES, dtype=draws.dtype)[1:-1]
        lower, upper = (jnp.moveaxis(lax.map(find, at), 0, -1) for at in (tails, tails + level))
        best = jnp.argmin(upper - lower, -1)[..., None]
        return Prediction(mean, std, *(jnp.take_along_axis(ends, best, -1)[..., 0] for ends in (lower, upper)))

    parts = (draws, weights, added, *own)
    size = 1
    if len(draws):
        example = jax.eval_shape(one, jax.tree.map(lambda array: array[0], parts))
        size = max(1, draws.shape[1] * math.prod(example.mean.shape))
    at_a_time = min(max(1, CURVE_ELEMENTS // size), max(1, len(draws)))
    found = lax.map(one, parts, batch_size=at_a_time)
    return jax.tree.map(lambda leaf: leaf.reshape(batch + leaf.shape[1:]), found)
