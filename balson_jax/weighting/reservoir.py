"""A few weighted draws that stand for all: kept online, chunk by chunk, without sorting.

Draws are dealt into slots by their number, and of each slot one draw is kept, chosen with probability proportional to
its weight: the one whose log-weight plus a Gumbel variate is largest. It stands for the whole slot, with the slot's
mass for its weight. In expectation that is the distribution of all weighted draws; and slots of different chunks merge
by a comparison, however many chunks there are.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax import lax

from ..random import points as unit_cube


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Reservoir:
    """Kept draws of B problems, one per slot.

    Attributes:
      score: log-weight plus Gumbel variate of the kept draw, ``(B, G)``.
      mass: sum of the slot's weights relative to a peak that is kept elsewhere, ``(B, G)``.
      values: the kept draws' features, ``(B, F, G)``.
    """

    score: jax.Array
    mass: jax.Array
    values: jax.Array


def gumbel(key: jax.Array, count: int, start: jax.Array | int, dtype) -> jax.Array:
    """Return the Gumbel variates of draws number ``start, ...``, ``(count,)``; the same for all problems."""
    bits = unit_cube.pseudo(jax.random.fold_in(key, 0x6B656570), 1, count, start=start, dtype=dtype)[0]
    return -jnp.log(-jnp.log(unit_cube.uniform(bits, dtype)))


def select(log_weights: jax.Array, p: jax.Array, values: jax.Array, noise: jax.Array, num_slots: int) -> Reservoir:
    """Return the kept draws of one chunk.

    Args:
      log_weights: ``(B, L)``.
      p: weights relative to a peak, ``(B, L)``.
      values: features of the draws, ``(F, L)`` if shared, else ``(B, F, L)``.
      noise: Gumbel variates, ``(L,)``.
      num_slots: L halved some number of times.
    """
    log_weights, p, values = lax.stop_gradient((log_weights, p, values))
    score, mass = log_weights + noise, p
    index = jnp.broadcast_to(jnp.arange(score.shape[1], dtype=jnp.int32), score.shape)
    # Halves folded onto each other: what a CPU vectorises, unlike argmax.
    while score.shape[1] > num_slots:
        half = score.shape[1] // 2
        later = score[:, half:] > score[:, :half]
        index = jnp.where(later, index[:, half:], index[:, :half])
        score, mass = jnp.maximum(score[:, :half], score[:, half:]), mass[:, :half] + mass[:, half:]
    if values.ndim == 2:
        return Reservoir(score, mass, jnp.moveaxis(jnp.take(values, index, axis=1), 1, 0))
    return Reservoir(score, mass, jnp.take_along_axis(values, index[:, None, :], axis=2))


def merge(parts: Reservoir, scale: jax.Array) -> Reservoir:
    """Merge reservoirs stacked along a leading axis, whose masses are to be multiplied by ``scale``, ``(R, B)``."""
    best = parts.score.argmax(0)
    values = jnp.take_along_axis(parts.values, best[None, :, None, :], axis=0)[0]
    return Reservoir(parts.score.max(0), (lax.stop_gradient(scale)[..., None] * parts.mass).sum(0), values)


def empty(num_problems: int, num_features: int, num_slots: int, dtype) -> Reservoir:
    """Return a reservoir without draws."""
    score = jnp.full((num_problems, num_slots), -jnp.inf, dtype)
    return Reservoir(score, jnp.zeros_like(score), jnp.zeros((num_problems, num_features, num_slots), dtype))


def gather(parts: Reservoir, share: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return all kept draws of R replicates, ``(B, F, R G)``, and their weights, ``(B, R G)``, of sum one.

    Args:
      parts: stacked along a leading axis.
      share: of each replicate in the total mass, over its own mass, ``(R, B)``.
    """
    num_replicates, num_problems, num_slots = parts.score.shape
    count = num_replicates * num_slots
    weights = jnp.moveaxis(lax.stop_gradient(share)[..., None] * parts.mass, 0, 1).reshape(num_problems, count)
    values = jnp.moveaxis(parts.values, 0, 2).reshape(num_problems, parts.values.shape[2], count)
    total = weights.sum(-1, keepdims=True)
    return values, weights / jnp.where(total > 0, total, 1)
