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
from .proposals import Proposal
from .status import MIN_ESS, Status

MAX_TAIL = 512
"""Pareto k is fitted to at most this many of the largest weights."""


def log_weights(
    density: Pivoted, omega: jax.Array, log_omega: jax.Array, proposal: Proposal | None = None
) -> jax.Array:
    """Return the log-weights of draws ``(K, L)``, relative to the likelihood's peak, shape ``(L,)``.

    Args:
      density: the problem.
      omega: the draws.
      log_omega: their logarithms.
      proposal: where the draws came from, or ``None`` if from the prior of this round, which then cancels.
    """
    log_ratio = density.log_ratio(omega)
    if proposal is None:
        return log_ratio
    return log_ratio + density.log_prior(log_omega) - proposal.log_prob(log_omega)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Moments:
    """Weighted sums over some draws, with ``p = exp(log_weight - peak)``.

    Attributes:
      peak: the largest log-weight.
      mass: ``sum p``.
      mass_square: ``sum p^2``.
      mean: ``sum p omega / mass``, ``(K,)``.
      spread: ``sum p (omega - mean)^2``, ``(K,)``.
      log_mean: ``sum p ln omega / mass``, ``(K,)``; zeros unless asked for.
      count: number of draws, of any weight.
      tail: the largest log-weights, descending, ``(T,)``.
    """

    peak: jax.Array
    mass: jax.Array
    mass_square: jax.Array
    mean: jax.Array
    spread: jax.Array
    log_mean: jax.Array
    count: jax.Array
    tail: jax.Array


def digest(
    log_weights: jax.Array, omega: jax.Array, log_omega: jax.Array | None, count: jax.Array, tail_size: int
) -> Moments:
    """Return the moments of one chunk.

    Args:
      log_weights: ``(L,)``; ``-inf`` for draws that do not count.
      omega: ``(K, L)``.
      log_omega: ``(K, L)``, or ``None`` if ``E[ln omega]`` is not wanted.
      count: how many of the draws count.
      tail_size: how many of the largest log-weights to keep.
    """
    exact = lax.Precision.HIGHEST
    peak = lax.stop_gradient(log_weights.max())
    p = jnp.exp(log_weights - jnp.where(jnp.isneginf(peak), 0, peak))
    mass = p.sum()
    share = p / jnp.where(mass > 0, mass, 1)
    mean = jnp.matmul(omega, share, precision=exact)
    spread = jnp.matmul(jnp.square(omega - mean[:, None]), p, precision=exact)
    log_mean = jnp.zeros_like(mean)
    if log_omega is not None:
        # A draw of no weight may have an infinite logarithm.
        log_mean = jnp.where(share > 0, share * log_omega, 0).sum(-1)
    tail = lax.top_k(lax.stop_gradient(log_weights), tail_size)[0] if tail_size else log_weights[:0]
    return Moments(peak, mass, jnp.square(p).sum(), mean, spread, log_mean, count.astype(p.dtype), tail)


def combine(parts: Moments) -> Moments:
    """Merge moments stacked along a leading axis."""
    peak = parts.peak.max(0)
    scale = jnp.exp(parts.peak - jnp.where(jnp.isneginf(peak), 0, peak))
    mass = parts.mass * scale
    total = mass.sum(0)
    share = (mass / jnp.where(total > 0, total, 1))[:, None]
    mean = (share * parts.mean).sum(0)
    between = mass[:, None] * jnp.square(parts.mean - mean)
    size = parts.tail.shape[-1]
    return Moments(
        peak=peak,
        mass=total,
        mass_square=(parts.mass_square * jnp.square(scale)).sum(0),
        mean=mean,
        spread=(scale[:, None] * parts.spread + between).sum(0),
        log_mean=(share * parts.log_mean).sum(0),
        count=parts.count.sum(0),
        tail=lax.top_k(parts.tail.reshape(-1), size)[0] if size else parts.tail[0],
    )


def merge(first: Moments, second: Moments) -> Moments:
    """Merge two moments."""
    return combine(jax.tree.map(lambda a, b: jnp.stack([a, b]), first, second))


def empty(num_components: int, tail_size: int, dtype) -> Moments:
    """Return the moments of no draws."""
    zero, vector = jnp.zeros((), dtype), jnp.zeros(num_components, dtype)
    nothing = jnp.full(tail_size, -jnp.inf, dtype)
    return Moments(jnp.full((), -jnp.inf, dtype), zero, zero, vector, vector, vector, zero, nothing)


def effective_sample_size(moments: Moments) -> jax.Array:
    """Return ``(sum p)^2 / sum p^2``: how many equally weighted draws these are worth."""
    return jnp.square(moments.mass) / jnp.where(moments.mass_square > 0, moments.mass_square, 1)


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
      The estimate, a scalar: ``-inf`` if the weights in the tail are all equal, ``inf`` if there are fewer than five
      or if most of them vanish beside the largest.
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
    shape = jnp.where((count < 5) | (quartile <= 0) | jnp.isnan(shape), jnp.inf, shape)
    return jnp.where(tail[-1] == tail[0], -jnp.inf, shape)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Estimate:
    """What a sampler found out about ``omega`` for one problem.

    Attributes:
      mean: ``E[omega]``, ``(K,)``.
      variance: ``Var[omega]``, ``(K,)``.
      log_mean: ``E[ln omega]``, ``(K,)``; zeros unless asked for.
      mean_stderr: Monte Carlo standard error of ``mean``, ``(K,)``.
      log_evidence: log of the mean weight, constants included.
      log_evidence_stderr: its Monte Carlo standard error.
      acceptance_rate: the mean weight over its certified upper bound.
      ess: effective sample size.
      pareto_k: shape of the weights' tail.
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
    between = (jnp.square(share[:, None] * (parts.mean - moments.mean))).sum(0)
    evidence_spread = jnp.square(share - parts.count / moments.count).sum(0)
    log_mean_weight = moments.peak + jnp.log(moments.mass) - jnp.log(moments.count)
    ess = effective_sample_size(moments)
    k = pareto_k(moments.tail)
    return Estimate(
        mean=moments.mean,
        variance=moments.spread / moments.mass,
        log_mean=moments.log_mean,
        mean_stderr=jnp.sqrt(correction * between),
        log_evidence=log_peak + log_mean_weight,
        log_evidence_stderr=jnp.sqrt(correction * evidence_spread),
        acceptance_rate=jnp.exp(log_mean_weight),
        ess=ess,
        pareto_k=k,
        status=verdict(ess, k, num_draws),
    )


def verdict(ess: jax.Array, k: jax.Array, num_draws: int) -> jax.Array:
    """Return the ``Status`` that effective sample size and Pareto k alone call for."""
    low = jnp.where(ess < MIN_ESS, Status.LOW_ESS, 0)
    heavy = jnp.where(k > pareto_k_threshold(num_draws), Status.HIGH_PARETO_K, 0)
    return (low | heavy).astype(jnp.int32)
