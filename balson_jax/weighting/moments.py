"""Running moments of weighted draws.

Draws come in chunks. ``summarise`` turns a chunk into ``Moments``, which ``combine`` merges, so memory does not grow
with the number of draws. Weights are kept relative to the largest seen so far, and second moments about the mean of
the chunk (Chan, Golub and LeVeque 1983), so that a posterior thousands of times narrower than the simplex keeps its
variance in float32.

Quantities whose moments are wanted go by name (see ``Target.quantities``): ``{"omega": (K, L), ...}``. Booleans are
indicators, whose mean is a probability.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from . import reservoir
from .reservoir import Reservoir

EXACT = lax.Precision.HIGHEST

CANCELLATION = 1e-3
"""A variance below this share of the squared distance of the mean from the draws' centre is computed about the mean."""

BUCKETS = 128
"""Number of buckets of a stream, at most. Draw i falls into bucket i modulo this.

A bucket keeps its largest weight. These over all streams stand for the largest of all weights, without sorting. Of the
128 largest among 8 streams, about eight share a bucket with a larger one and are missed.
"""


class Sizes(NamedTuple):
    """How many numbers a stream of draws keeps: buckets for its largest weights, slots for its draws."""

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
      mean: ``sum p x / mass`` of each quantity x, ``(B, n)`` by name.
      spread: ``sum p (x - mean)^2``, ``(B, n)`` by name.
      count: number of draws, of any weight, ``(B,)``.
      buckets: the largest log-weight of each bucket (see ``BUCKETS``), ``(B, G)``.
      kept: some of the draws of omega, which represent all.
    """

    peak: jax.Array
    mass: jax.Array
    mass_square: jax.Array
    mean: dict[str, jax.Array]
    spread: dict[str, jax.Array]
    count: jax.Array
    buckets: jax.Array
    kept: Reservoir

    def variance(self, name: str) -> jax.Array:
        """Return the variance of a quantity, ``(B, n)``."""
        return self.spread[name] / self.mass[:, None]


def summarise(
    log_weights: jax.Array,
    quantities: dict[str, jax.Array],
    count: jax.Array,
    gumbel: jax.Array | None,
    sizes: Sizes,
    replicates: int = 1,
) -> Moments:
    """Return the moments of one chunk of draws, of each of R replicates apart: problems number ``B R``.

    Args:
      log_weights: ``(B, L)``, L the same number of draws from each replicate, those of one together; ``-inf`` for draws
        that do not count.
      quantities: ``"omega"`` and others, ``(n, L)`` if the problems share them, else ``(B, n, L)``.
      count: how many draws of each replicate count, ``(B, R)``, ``(R,)`` or a scalar.
      gumbel: variates of the draws, ``(L,)``, if some are to be kept.
      sizes: how many weights and draws to keep; each is ``L / R`` halved some number of times, or 0.
      replicates: R. All replicates of the first problem come first.
    """

    def split(array):
        return array.reshape(*array.shape[:-1], replicates, array.shape[-1] // replicates)

    log_weights, quantities = split(log_weights), {name: split(values) for name, values in quantities.items()}
    peak = lax.stop_gradient(log_weights.max(-1))
    # XLA may compute the weights once for the maximum and again for the exponential, with different rounding. For huge
    # log-weights the difference is many nats. Lower the peak by a bound of it, so that not all weights vanish, and cut
    # the exponent, so that none overflows.
    peak = peak - 16 * jnp.finfo(peak.dtype).eps * jnp.abs(jnp.where(jnp.isneginf(peak), 0, peak))
    p = jnp.exp(jnp.minimum(log_weights - jnp.where(jnp.isneginf(peak), 0, peak)[..., None], 30))
    sums = {name: _sums(p, x) for name, x in quantities.items()}
    mass = sums["omega"][0]
    kept = reservoir.empty(mass.size, quantities["omega"].shape[-3], 0, mass.dtype)
    if gumbel is not None:
        kept = reservoir.select(log_weights, p, quantities["omega"], split(gumbel), sizes.slots)
    found = Moments(
        peak=peak,
        mass=mass,
        mass_square=jnp.einsum("brl,brl->br", p, p, precision=EXACT),
        mean={name: found[1] for name, found in sums.items()},
        spread={name: found[2] for name, found in sums.items()},
        count=jnp.broadcast_to(count, mass.shape).astype(p.dtype),
        buckets=_fold_maxima(lax.stop_gradient(log_weights), sizes.buckets),
        kept=kept,
    )
    own = dataclasses.replace(found, kept=None)
    flat = jax.tree.map(lambda leaf: leaf.reshape(mass.size, *leaf.shape[2:]), own)
    return dataclasses.replace(flat, kept=kept)


def _fold_maxima(log_weights: jax.Array, num_buckets: int) -> jax.Array:
    """Return the largest log-weight of each bucket, on the last axis; draw i is in bucket i modulo ``num_buckets``."""
    if num_buckets == 0:
        return log_weights[..., :0]
    # Halves folded onto each other: a reduction over a middle axis is many times slower on a CPU.
    while log_weights.shape[-1] > num_buckets:
        half = log_weights.shape[-1] // 2
        log_weights = jnp.maximum(log_weights[..., :half], log_weights[..., half:])
    return log_weights


def _sums(p: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return mass, ``(B, R)``, mean and spread, ``(B, R, n)``, of a quantity ``(n, R, L)`` or ``(B, n, R, L)``."""
    if x.dtype == bool:
        return _indicator_sums(p, x)
    return (_shared_sums if x.ndim == 3 else _own_sums)(p, x)


def _indicator_sums(p: jax.Array, holds: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return mass, mean and spread of indicators: an indicator is its own square, so one sum gives both."""
    mass = p.sum(-1)
    axes = "krl" if holds.ndim == 3 else "bkrl"
    sums = jnp.einsum(f"brl,{axes}->brk", p, holds.astype(p.dtype), precision=EXACT)
    mean = jnp.minimum(sums / _positive(mass)[..., None], 1)
    return mass, mean, mass[..., None] * mean * (1 - mean)


def _shared_sums(p: jax.Array, omega: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return mass, ``(B, R)``, mean and spread, ``(B, R, n)``, where all problems weigh the same draws.

    It is one matrix product for each replicate. Squares are taken about the draws' own mean, and the spread follows by
    subtraction. Where that would cost more than half of float32's digits, because a posterior is much narrower than the
    proposal, it is computed again about each problem's mean.
    """
    centre = lax.stop_gradient(omega.mean(-1, keepdims=True))
    shifted = omega - centre
    features = jnp.concatenate([jnp.ones_like(omega[:1]), shifted, jnp.square(shifted)])
    sums = jnp.einsum("brl,frl->brf", p, features, precision=EXACT)
    num_values = omega.shape[0]
    mass, first, second = sums[..., 0], sums[..., 1 : 1 + num_values], sums[..., 1 + num_values :]
    offset = first / _positive(mass)[..., None]
    spread = second - first * offset
    cancels = spread < CANCELLATION * first * offset

    def about_own_mean(_):
        def one_component(row):
            return jnp.einsum("brl,brl->br", p, jnp.square(row[0] - row[1][..., None]), precision=EXACT)

        return jnp.moveaxis(lax.map(one_component, (shifted, jnp.moveaxis(offset, -1, 0))), 0, -1)

    spread = lax.cond(jnp.any(cancels), about_own_mean, lambda spread: spread, spread)
    return mass, centre[..., 0].T + offset, spread


def _own_sums(p: jax.Array, omega: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return mass, mean and spread where each problem has its own draws, squares about the exact mean."""
    mass = p.sum(-1)
    mean = _weighted_sum(p, omega) / _positive(mass)[..., None]
    # Once more about the mean: the rounding of the sums can exceed the width of a very narrow posterior.
    mean = mean + _weighted_sum(p, omega - _per_draw(mean)) / _positive(mass)[..., None]
    return mass, mean, _weighted_sum(p, jnp.square(omega - _per_draw(mean)))


def _per_draw(mean: jax.Array) -> jax.Array:
    return jnp.swapaxes(mean, 1, 2)[..., None]


def _weighted_sum(p: jax.Array, values: jax.Array) -> jax.Array:
    return jnp.einsum("brl,bkrl->brk", p, values, precision=EXACT)


def _positive(mass: jax.Array) -> jax.Array:
    return jnp.where(mass > 0, mass, 1)


def combine(parts: Moments) -> Moments:
    """Merge moments stacked along a leading axis."""
    peak = parts.peak.max(0)
    scale = jnp.exp(parts.peak - jnp.where(jnp.isneginf(peak), 0, peak))
    mass = parts.mass * scale
    total = mass.sum(0)
    share = (mass / _positive(total))[..., None]
    mean = {name: (share * own).sum(0) for name, own in parts.mean.items()}
    spread = {
        name: (scale[..., None] * own + mass[..., None] * jnp.square(parts.mean[name] - mean[name])).sum(0)
        for name, own in parts.spread.items()
    }
    return Moments(
        peak=peak,
        mass=total,
        mass_square=(parts.mass_square * jnp.square(scale)).sum(0),
        mean=mean,
        spread=spread,
        count=parts.count.sum(0),
        buckets=parts.buckets.max(0),
        kept=reservoir.merge(parts.kept, scale),
    )


def merge(first: Moments, second: Moments) -> Moments:
    """Merge two moments."""
    return combine(jax.tree.map(lambda a, b: jnp.stack([a, b]), first, second))


def empty(num_problems: int, quantities: dict[str, int], sizes: Sizes, dtype) -> Moments:
    """Return the moments of no draws, of quantities with these numbers of components."""
    zero = jnp.zeros(num_problems, dtype)
    zeros = {name: jnp.zeros((num_problems, size), dtype) for name, size in quantities.items()}
    return Moments(
        peak=jnp.full(num_problems, -jnp.inf, dtype),
        mass=zero,
        mass_square=zero,
        mean=zeros,
        spread=zeros,
        count=zero,
        buckets=jnp.full((num_problems, sizes.buckets), -jnp.inf, dtype),
        kept=reservoir.empty(num_problems, quantities["omega"], sizes.slots, dtype),
    )
