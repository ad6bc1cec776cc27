"""A weighted reservoir sample of the draws, updated chunk by chunk without sorting.

Draws are assigned to slots by their index. Each slot keeps one draw, chosen with probability proportional to its weight
by the Gumbel-max trick: keep the draw whose log-weight plus a Gumbel variate is largest. The kept draw represents the
slot, and its weight is the slot's mass. In expectation the kept draws have the distribution of all weighted draws. The
slots of two chunks merge by one comparison of scores.
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
      mass: sum of the slot's weights, relative to a peak weight that the caller keeps, ``(B, G)``.
      values: features of the kept draws, ``(B, F, G)``.
    """

    score: jax.Array
    mass: jax.Array
    values: jax.Array


def gumbel(seeds: jax.Array, count: int, start: jax.Array | int, dtype) -> jax.Array:
    """Return the Gumbel variates of draws ``start, ...``, ``(count,)``, from two seeds. All problems share them."""
    return -jnp.log(-jnp.log(unit_cube.uniform(unit_cube.hashed(seeds, count, start), dtype)))


def select(log_weights: jax.Array, p: jax.Array, values: jax.Array, noise: jax.Array, num_slots: int) -> Reservoir:
    """Return the kept draws of one chunk of R replicates, as those of ``B R`` problems.

    Args:
      log_weights: ``(B, R, L)``.
      p: weights relative to the peak, ``(B, R, L)``.
      values: features of the draws, ``(F, R, L)`` if shared by the problems, otherwise ``(B, F, R, L)``.
      noise: Gumbel variates, ``(R, L)``.
      num_slots: number of slots of a replicate: L divided by a power of two.
    """
    log_weights, p, values = lax.stop_gradient((log_weights, p, values))
    num_problems, num_replicates, length = p.shape
    score, mass = log_weights + noise, p
    index = jnp.broadcast_to(jnp.arange(length, dtype=jnp.int32), score.shape)
    # Fold the second half onto the first until num_slots are left. CPUs vectorise this, unlike argmax.
    while score.shape[-1] > num_slots:
        half = score.shape[-1] // 2
        later = score[..., half:] > score[..., :half]
        index = jnp.where(later, index[..., half:], index[..., :half])
        score, mass = jnp.maximum(score[..., :half], score[..., half:]), mass[..., :half] + mass[..., half:]
    if values.ndim == 3:
        place = index + length * jnp.arange(num_replicates, dtype=jnp.int32)[:, None]
        chosen = jnp.moveaxis(jnp.take(values.reshape(values.shape[0], -1), place, axis=1), 0, 2)
    else:
        chosen = jnp.swapaxes(jnp.take_along_axis(values, index[:, None], axis=3), 1, 2)
    count = num_problems * num_replicates
    return Reservoir(*(part.reshape(count, *part.shape[2:]) for part in (score, mass, chosen)))


def merge(parts: Reservoir, scale: jax.Array) -> Reservoir:
    """Merge R reservoirs stacked along a leading axis. Their masses are multiplied by ``scale``, ``(R, B)``."""
    best = parts.score.argmax(0)
    values = jnp.take_along_axis(parts.values, best[None, :, None, :], axis=0)[0]
    return Reservoir(parts.score.max(0), (lax.stop_gradient(scale)[..., None] * parts.mass).sum(0), values)


def empty(num_problems: int, num_features: int, num_slots: int, dtype) -> Reservoir:
    """Return an empty reservoir."""
    score = jnp.full((num_problems, num_slots), -jnp.inf, dtype)
    return Reservoir(score, jnp.zeros_like(score), jnp.zeros((num_problems, num_features, num_slots), dtype))


def gather(parts: Reservoir, share: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the kept draws of R replicates, ``(B, F, R G)``, and their weights, ``(B, R G)``, which sum to one.

    Args:
      parts: the replicates' reservoirs, stacked along a leading axis.
      share: factor of each replicate's masses that puts all replicates on a common scale, ``(R, B)``.
    """
    num_replicates, num_problems, num_slots = parts.score.shape
    count = num_replicates * num_slots
    weights = jnp.moveaxis(lax.stop_gradient(share)[..., None] * parts.mass, 0, 1).reshape(num_problems, count)
    values = jnp.moveaxis(parts.values, 0, 2).reshape(num_problems, parts.values.shape[2], count)
    total = weights.sum(-1, keepdims=True)
    return values, weights / jnp.where(total > 0, total, 1)
