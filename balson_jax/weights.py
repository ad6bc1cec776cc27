"""The one place that forms and digests weights: running moments, effective sample size, Pareto k, evidence.

Draws come in chunks. ``digest`` turns a chunk into ``Moments``, which ``combine`` merges, so memory does not grow with
the number of draws. Weights are kept relative to the largest seen so far, and second moments about the mean of
the chunk (Chan, Golub and LeVeque), so that a posterior thousands of times narrower than the simplex keeps its
variance in float32.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
from jax import lax

from .density import Pivoted
from .proposals import Proposal, log_dirichlet_density
from .status import MIN_ESS, Status

MAX_TAIL = 128
"""Pareto k is fitted to at most this many of the largest weights."""

CANCELLATION = 1e-3
"""A variance below this share of the squared distance of the mean from the draws' centre is computed with care."""

BUCKETS = 128
"""A stream of draws keeps the largest weight of each residue class of its draws' numbers modulo this.

The largest of those over all streams stand for the largest of all weights, without sorting: of the 128 largest among
8 streams, about eight share a bucket with a larger one and are missed.
"""


def log_weights(
    density: Pivoted, omega: jax.Array, log_omega: jax.Array, proposal: Proposal | None = None
) -> jax.Array:
    """Return the log-weights of draws for B problems, relative to the likelihood's peak, ``(B, L)``.

    Args:
      density: the problems.
      omega: the draws, ``(K, L)`` or ``(B, K, L)``.
      log_omega: their logarithms.
      proposal: where the draws came from, or ``None`` if from the prior of this round, which then cancels.
    """
    log_ratio = density.log_ratio(omega)
    if proposal is None:
        return log_ratio
    return log_ratio + log_dirichlet_density(density.prior, log_omega) - proposal.log_prob(log_omega)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Moments:
    """Weighted sums over some draws for B problems, with ``p = exp(log_weight - peak)``.

    Attributes:
      peak: the largest log-weight, to rounding, ``(B,)``.
      mass: ``sum p``, ``(B,)``.
      mass_square: ``sum p^2``, ``(B,)``.
      mean: ``sum p omega / mass``, ``(B, K)``.
      spread: ``sum p (omega - mean)^2``, ``(B, K)``.
      log_mean: ``sum p ln omega / mass``, ``(B, K)``; zeros unless asked for.
      count: number of draws, of any weight, ``(B,)``.
      buckets: the largest log-weight in each residue class of the draws' numbers, ``(B, G)``.
    """

    peak: jax.Array
    mass: jax.Array
    mass_square: jax.Array
    mean: jax.Array
    spread: jax.Array
    log_mean: jax.Array
    count: jax.Array
    buckets: jax.Array


def digest(
    log_weights: jax.Array, omega: jax.Array, log_omega: jax.Array | None, count: jax.Array, num_buckets: int
) -> Moments:
    """Return the moments of one chunk of draws.

    Args:
      log_weights: ``(B, L)``; ``-inf`` for draws that do not count.
      omega: ``(K, L)`` if the problems share the draws, else ``(B, K, L)``.
      log_omega: of the same shape, or ``None`` if ``E[ln omega]`` is not wanted.
      count: how many of the draws count, ``(B,)`` or a scalar.
      num_buckets: L halved some number of times, or 0 if the tail of the weights is of no interest.
    """
    peak = lax.stop_gradient(log_weights.max(-1))
    # The compiler may compute the weights once for the maximum and again for the exponential, and round differently.
    # Where they are huge that is many nats: lower the peak by as much, and cut what exceeds it, so that neither do all
    # weights vanish nor does one overflow.
    peak = peak - 16 * jnp.finfo(peak.dtype).eps * jnp.abs(jnp.where(jnp.isneginf(peak), 0, peak))
    p = jnp.exp(jnp.minimum(log_weights - jnp.where(jnp.isneginf(peak), 0, peak)[:, None], 30))
    mass, mean, spread = _shared_sums(p, omega) if omega.ndim == 2 else _own_sums(p, omega)
    log_mean = jnp.zeros_like(mean)
    if log_omega is not None:
        log_mean = _weighted_sum(p, log_omega) / _positive(mass)[:, None]
    buckets = _fold_maxima(lax.stop_gradient(log_weights), num_buckets)
    square = jnp.einsum("bl,bl->b", p, p, precision=lax.Precision.HIGHEST)
    count = jnp.broadcast_to(count, mass.shape).astype(p.dtype)
    return Moments(peak, mass, square, mean, spread, log_mean, count, buckets)


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
    )


def merge(first: Moments, second: Moments) -> Moments:
    """Merge two moments."""
    return combine(jax.tree.map(lambda a, b: jnp.stack([a, b]), first, second))


def empty(shape: tuple[int, ...], num_buckets: int, dtype) -> Moments:
    """Return the moments of no draws, for ``(B, K)`` problems and components."""
    num_problems = shape[0]
    zero, vector = jnp.zeros(num_problems, dtype), jnp.zeros(shape, dtype)
    nothing = jnp.full((num_problems, num_buckets), -jnp.inf, dtype)
    return Moments(jnp.full(num_problems, -jnp.inf, dtype), zero, zero, vector, vector, vector, zero, nothing)


def effective_sample_size(moments: Moments) -> jax.Array:
    """Return ``(sum p)^2 / sum p^2``: how many equally weighted draws these are worth."""
    return jnp.square(moments.mass) / _positive(moments.mass_square)


def tail_size(num_draws: int) -> int:
    """Return how many of the largest weights Pareto k is fitted to: ``min(S / 5, 3 sqrt(S), MAX_TAIL)``."""
    return min(math.ceil(min(0.2 * num_draws, 3 * math.sqrt(num_draws))), MAX_TAIL)


def pareto_k_threshold(num_draws: int) -> float:
    """Return the Pareto k above which a weighted mean of so many draws cannot be trusted (Vehtari et al. 2024)."""
    return min(1 - 1 / math.log10(max(num_draws, 11)), 0.7)


def pareto_k(tail: jax.Array) -> jax.Array:
    """Return the shape of the generalised Pareto distribution fitted to the largest weights.

    Zhang and Stephens' (2009) estimate with the weak prior of Vehtari et al. (2024), as in PSIS.

    Args:
      tail: the T + 1 largest log-weights, descending, ``(T + 1,)``. The last one is the threshold.

    Returns:
      The estimate, a scalar: ``-inf`` if the weights in the tail are equal to rounding, ``inf`` if there are fewer
      than five or if most of them vanish beside the largest.
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
    # Too few distinct values to fit: either the weights are equal, to rounding, or one of them dwarfs the rest.
    is_flat = tail[0] - tail[-1] < 0.01
    unfit = (count < 5) | (quartile <= 0) | jnp.isnan(shape)
    return jnp.where(unfit, jnp.where(is_flat, -jnp.inf, jnp.inf), shape)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Estimate:
    """What a sampler found out about ``omega`` for B problems, the leading axis of every field.

    Attributes:
      mean: ``E[omega]``, ``(B, K)``.
      variance: ``Var[omega]``, ``(B, K)``.
      log_mean: ``E[ln omega]``, ``(B, K)``; zeros unless asked for.
      mean_stderr: Monte Carlo standard error of ``mean``, ``(B, K)``.
      log_evidence: log of the mean weight, constants included.
      log_evidence_stderr: its Monte Carlo standard error.
      acceptance_rate: the mean weight over its certified upper bound.
      ess: effective sample size.
      pareto_k: shape of the weights' tail; NaN unless asked for.
      status: ``Status`` as an integer.
    """

    mean: jax.Array
    variance: jax.Array
    log_mean: jax.Array
    mean_stderr: jax.Array
    log_evidence: jax.Array
    log_evidence_stderr: jax.Array
    acceptance_rate: jax.Array
    ess: jax.Array
    pareto_k: jax.Array
    status: jax.Array


def estimate(parts: Moments, log_peak: jax.Array, num_draws: int) -> Estimate:
    """Return the estimate from weighted draws, given as moments of independent replicates along a leading axis.

    Standard errors come from the spread between the replicates, which holds for quasi-random draws too.
    """
    moments = combine(parts)
    num_replicates = parts.mass.shape[0]
    scale = jnp.exp(parts.peak - moments.peak)
    share = parts.mass * scale / moments.mass
    correction = num_replicates / (num_replicates - 1) if num_replicates > 1 else jnp.inf
    between = jnp.square(share[..., None] * (parts.mean - moments.mean)).sum(0)
    evidence_spread = jnp.square(share - parts.count / moments.count).sum(0)
    log_mean_weight = moments.peak + jnp.log(moments.mass) - jnp.log(moments.count)
    ess = effective_sample_size(moments)
    k = _tail_shape(parts.buckets, num_draws)
    return Estimate(
        mean=moments.mean,
        variance=moments.spread / moments.mass[:, None],
        log_mean=moments.log_mean,
        mean_stderr=jnp.sqrt(correction * between),
        log_evidence=log_peak + log_mean_weight,
        log_evidence_stderr=jnp.sqrt(correction * evidence_spread),
        acceptance_rate=jnp.exp(log_mean_weight),
        ess=ess,
        pareto_k=k,
        status=verdict(ess, k, num_draws),
    )


def _tail_shape(buckets: jax.Array, num_draws: int) -> jax.Array:
    """Return Pareto k of B problems from the buckets of R replicates, ``(R, B, G)``; NaN if there are none."""
    num_replicates, num_problems, num_buckets = buckets.shape
    if num_buckets == 0:
        return jnp.full(num_problems, jnp.nan, buckets.dtype)
    num_candidates = num_replicates * num_buckets
    candidates = jnp.moveaxis(buckets, 0, 1).reshape(num_problems, num_candidates)
    # Without the barrier XLA may turn a sliced top_k into a full sort, several times slower.
    tail = lax.optimization_barrier(lax.top_k(candidates, min(tail_size(num_draws) + 1, num_candidates))[0])
    return jax.vmap(pareto_k)(tail)


def verdict(ess: jax.Array, k: jax.Array, num_draws: int) -> jax.Array:
    """Return the ``Status`` that effective sample size and Pareto k alone call for."""
    low = jnp.where(ess < MIN_ESS, Status.LOW_ESS, 0)
    heavy = jnp.where(k > pareto_k_threshold(num_draws), Status.HIGH_PARETO_K, 0)
    return (low | heavy).astype(jnp.int32)
