"""The one place that forms and digests weights: running moments and the effective sample size.

Draws come in chunks. ``digest`` turns a chunk into ``Moments``, which ``combine`` merges, so memory does not grow with
the number of draws. Weights are kept relative to the largest seen so far, and second moments about the mean of
the chunk (Chan, Golub and LeVeque), so that a posterior thousands of times narrower than the simplex keeps its
variance in float32.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..proposals.dirichlet import log_dirichlet_density
from ..targets.functions import Density
from . import reservoir
from .reservoir import Reservoir

CANCELLATION = 1e-3
"""A variance below this share of the squared distance of the mean from the draws' centre is computed with care."""

BUCKETS = 128
"""A stream of draws keeps the largest weight of each residue class of its draws' numbers modulo this.

The largest of those over all streams stand for the largest of all weights, without sorting: of the 128 largest among
8 streams, about eight share a bucket with a larger one and are missed.
"""


def log_weights(
    density: Density, omega: jax.Array, log_omega: jax.Array, log_proposal: jax.Array | None = None
) -> jax.Array:
    """Return the log-weights of draws for B problems, relative to the likelihood's peak, ``(B, L)``.

    Args:
      density: the problems.
      omega: the draws, ``(K, L)`` or ``(B, K, L)``.
      log_omega: their logarithms.
      log_proposal: log-density of what the draws came from, ``(B, L)`` or ``(L,)``, or ``None`` if that is the prior of
        this round, which then cancels.
    """
    log_ratio = density.log_ratio(omega)
    if log_proposal is None:
        return log_ratio
    return log_ratio + log_dirichlet_density(density.prior, log_omega) - log_proposal


class Sizes(NamedTuple):
    """How much a stream of draws keeps: of its largest weights, in buckets, and of its draws, in slots."""

    buckets: int
    slots: int


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Moments:
    """Weighted sums over some draws for B problems, with ``p = exp(log_weight - peak)``.

    Attributes:
      peak: the largest log-weight, to rounding, ``(B,)``.
      mass: ``sum p``, ``(B,)``.
      mass_square: ``sum p^2``, ``(B,)``.
      mean: ``sum p x / mass`` of features x of the draws, ``(B, F)``.
      spread: ``sum p (x - mean)^2``, ``(B, F)``.
      log_mean: ``sum p ln omega / mass``, ``(B, K)``; ``(B, 0)`` unless asked for.
      count: number of draws, of any weight, ``(B,)``.
      buckets: the largest log-weight in each residue class of the draws' numbers, ``(B, G)``.
      kept: some of the draws, which stand for all.
    """

    peak: jax.Array
    mass: jax.Array
    mass_square: jax.Array
    mean: jax.Array
    spread: jax.Array
    log_mean: jax.Array
    count: jax.Array
    buckets: jax.Array
    kept: Reservoir


def digest(
    log_weights: jax.Array,
    features: jax.Array,
    log_omega: jax.Array | None,
    count: jax.Array,
    gumbel: jax.Array | None,
    sizes: Sizes,
) -> Moments:
    """Return the moments of one chunk of draws.

    Args:
      log_weights: ``(B, L)``; ``-inf`` for draws that do not count.
      features: what moments are wanted of, ``(F, L)`` if the problems share the draws, else ``(B, F, L)``.
      log_omega: logarithms of the draws, or ``None`` if ``E[ln omega]`` is not wanted.
      count: how many of the draws count, ``(B,)`` or a scalar.
      gumbel: variates of the draws, ``(L,)``, if some are to be kept.
      sizes: how many weights and draws to keep; each is L halved some number of times, or 0.
    """
    peak = lax.stop_gradient(log_weights.max(-1))
    # The compiler may compute the weights once for the maximum and again for the exponential, and round differently.
    # Where they are huge that is many nats: lower the peak by as much, and cut what exceeds it, so that neither do all
    # weights vanish nor does one overflow.
    peak = peak - 16 * jnp.finfo(peak.dtype).eps * jnp.abs(jnp.where(jnp.isneginf(peak), 0, peak))
    p = jnp.exp(jnp.minimum(log_weights - jnp.where(jnp.isneginf(peak), 0, peak)[:, None], 30))
    mass, mean, spread = _shared_sums(p, features) if features.ndim == 2 else _own_sums(p, features)
    log_mean = jnp.zeros((mass.shape[0], 0), mass.dtype)
    if log_omega is not None:
        log_mean = _weighted_sum(p, log_omega) / _positive(mass)[:, None]
    buckets = _fold_maxima(lax.stop_gradient(log_weights), sizes.buckets)
    kept = reservoir.empty(mass.shape[0], mean.shape[1], 0, mass.dtype)
    if gumbel is not None:
        kept = reservoir.select(log_weights, p, features, gumbel, sizes.slots)
    square = jnp.einsum("bl,bl->b", p, p, precision=lax.Precision.HIGHEST)
    count = jnp.broadcast_to(count, mass.shape).astype(p.dtype)
    return Moments(peak, mass, square, mean, spread, log_mean, count, buckets, kept)


def _fold_maxima(log_weights: jax.Array, num_buckets: int) -> jax.Array:
    """Return the largest of each residue class of the draws' numbers modulo ``num_buckets``, ``(B, num_buckets)``."""
    if num_buckets == 0:
        return log_weights[:, :0]
    # Halves folded onto each other: a reduction over a middle axis is many times slower on a CPU.
    while log_weights.shape[1] > num_buckets:
        half = log_weights.shape[1] // 2
        log_weights = jnp.maximum(log_weights[:, :half], log_weights[:, half:])
    return log_weights


def _shared_sums(p: jax.Array, omega: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return mass, mean and spread where all problems weigh the same draws: one matrix product.

    Squares are taken about the draws' own mean, and the spread follows by subtraction. Where that would cost more than
    half of float32's digits, because a posterior is much narrower than the proposal, it is computed again about each
    problem's mean.
    """
    centre = lax.stop_gradient(omega.mean(-1, keepdims=True))
    shifted = omega - centre
    features = jnp.concatenate([jnp.ones_like(omega[:1]), shifted, jnp.square(shifted)])
    sums = jnp.matmul(p, features.T, precision=lax.Precision.HIGHEST)
    mass, first, second = sums[:, 0], sums[:, 1 : 1 + omega.shape[0]], sums[:, 1 + omega.shape[0] :]
    offset = first / _positive(mass)[:, None]
    spread = second - first * offset
    cancels = spread < CANCELLATION * first * offset

    def about_own_mean(_):
        def one_component(row):
            return jnp.einsum("bl,bl->b", p, jnp.square(row[0] - row[1][:, None]), precision=lax.Precision.HIGHEST)

        return lax.map(one_component, (shifted, offset.T)).T

    spread = lax.cond(jnp.any(cancels), about_own_mean, lambda spread: spread, spread)
    return mass, centre[:, 0] + offset, spread


def _own_sums(p: jax.Array, omega: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return mass, mean and spread where each problem has its own draws, squares about the exact mean."""
    mass = p.sum(-1)
    mean = _weighted_sum(p, omega) / _positive(mass)[:, None]
    # Once more about it: sums round differently, by more than a very narrow posterior is wide.
    mean = mean + _weighted_sum(p, omega - mean[:, :, None]) / _positive(mass)[:, None]
    return mass, mean, _weighted_sum(p, jnp.square(omega - mean[:, :, None]))


def _weighted_sum(p: jax.Array, values: jax.Array) -> jax.Array:
    subscripts = "bl,kl->bk" if values.ndim == 2 else "bl,bkl->bk"
    return jnp.einsum(subscripts, p, values, precision=lax.Precision.HIGHEST)


def _positive(mass: jax.Array) -> jax.Array:
    return jnp.where(mass > 0, mass, 1)


def combine(parts: Moments) -> Moments:
    """Merge moments stacked along a leading axis."""
    peak = parts.peak.max(0)
    scale = jnp.exp(parts.peak - jnp.where(jnp.isneginf(peak), 0, peak))
    mass = parts.mass * scale
    total = mass.sum(0)
    share = (mass / _positive(total))[..., None]
    mean = (share * parts.mean).sum(0)
    between = mass[..., None] * jnp.square(parts.mean - mean)
    return Moments(
        peak=peak,
        mass=total,
        mass_square=(parts.mass_square * jnp.square(scale)).sum(0),
        mean=mean,
        spread=(scale[..., None] * parts.spread + between).sum(0),
        log_mean=(share * parts.log_mean).sum(0),
        count=parts.count.sum(0),
        buckets=parts.buckets.max(0),
        kept=reservoir.merge(parts.kept, scale),
    )


def merge(first: Moments, second: Moments) -> Moments:
    """Merge two moments."""
    return combine(jax.tree.map(lambda a, b: jnp.stack([a, b]), first, second))


def empty(num_problems: int, num_features: int, num_logs: int, sizes: Sizes, dtype) -> Moments:
    """Return the moments of no draws."""
    zero, vector = jnp.zeros(num_problems, dtype), jnp.zeros((num_problems, num_features), dtype)
    return Moments(
        peak=jnp.full(num_problems, -jnp.inf, dtype),
        mass=zero,
        mass_square=zero,
        mean=vector,
        spread=vector,
        log_mean=jnp.zeros((num_problems, num_logs), dtype),
        count=zero,
        buckets=jnp.full((num_problems, sizes.buckets), -jnp.inf, dtype),
        kept=reservoir.empty(num_problems, num_features, sizes.slots, dtype),
    )


def effective_sample_size(moments: Moments) -> jax.Array:
    """Return ``(sum p)^2 / sum p^2``: how many equally weighted draws these are worth."""
    return jnp.square(moments.mass) / _positive(moments.mass_square)
