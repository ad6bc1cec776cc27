"""What a sampler found out: estimates from the moments of weighted draws, and a verdict on them."""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
from jax import lax

from ..status import MIN_ESS, Status
from . import reservoir
from .moments import Moments, combine, effective_sample_size
from .pareto import pareto_k, pareto_k_threshold, tail_size

SQUARES_ERROR = 0.25
"""Bounded weights whose sum of squares is known this well have no tail to be feared: their Pareto k is at most 0."""

ROUNDED_NATS = 0.01
"""A log-weight may be above its bound by this much, because it is rounded."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Estimate:
    """What a sampler found out about ``omega`` for B problems, the leading axis of every field.

    Attributes:
      mean: mean of the features, ``(B, F)``, of which the first K are omega.
      variance: their variance, ``(B, F)``.
      log_mean: ``E[ln omega]``, ``(B, K)``; ``(B, 0)`` unless asked for.
      mean_stderr: Monte Carlo standard error of ``mean``, ``(B, F)``.
      log_evidence: log of the mean weight, constants included.
      log_evidence_stderr: its Monte Carlo standard error.
      acceptance_rate: the mean weight over its certified upper bound.
      ess: effective sample size.
      pareto_k: shape of the weights' tail; NaN unless asked for.
      rhat: how well chains agree; 1 if there are none.
      status: ``Status`` as an integer.
      draws: features of kept draws, ``(B, F, D)``.
      draw_weights: their weights, ``(B, D)``, of sum one.
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
    rhat: jax.Array
    status: jax.Array
    draws: jax.Array
    draw_weights: jax.Array


def estimate(parts: Moments, log_peak: jax.Array, num_draws: int, inverse_bound: jax.Array) -> Estimate:
    """Return the estimate from weighted draws, given as moments of independent replicates along a leading axis.

    Standard errors come from the spread between the replicates, which holds for quasi-random draws too.

    Args:
      parts: the moments.
      log_peak: to which log-weights are relative, ``(B,)``.
      num_draws: how many draws there are in all.
      inverse_bound: one over the largest weight that there can be, ``(B,)``; zero if there is no bound.
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
    acceptance_rate = jnp.exp(log_mean_weight)
    k = _tail_shape(parts.buckets, num_draws)
    # A model's bound may be wrong, and then a weight above it tells.
    holds = moments.peak + jnp.log(inverse_bound) <= ROUNDED_NATS
    is_harmless = holds & is_bounded_tightly(acceptance_rate * inverse_bound, num_draws)
    k = jnp.where(is_harmless, jnp.minimum(k, 0), k)
    draws, draw_weights = reservoir.gather(parts.kept, scale / moments.mass)
    return Estimate(
        mean=moments.mean,
        variance=moments.spread / moments.mass[:, None],
        log_mean=moments.log_mean,
        mean_stderr=jnp.sqrt(correction * between),
        log_evidence=log_peak + log_mean_weight,
        log_evidence_stderr=jnp.sqrt(correction * evidence_spread),
        acceptance_rate=acceptance_rate,
        ess=ess,
        pareto_k=k,
        rhat=jnp.ones_like(ess),
        status=verdict(ess, k, num_draws),
        draws=draws,
        draw_weights=draw_weights,
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


def is_bounded_tightly(share: jax.Array, num_draws: int) -> jax.Array:
    """Return whether S draws show how large weights get, given the mean's share of the largest possible.

    The tail of weights up to W has a Pareto k below zero, but few draws may not get there. If the mean is m, the sum of
    their squares has a relative standard error of at most ``W / (m sqrt(S))``: where that is small, what was seen is
    what there is, however the largest of many nearly equal weights are spread.
    """
    return share * math.sqrt(num_draws) >= 1 / SQUARES_ERROR


def verdict(ess: jax.Array, k: jax.Array, num_draws: int) -> jax.Array:
    """Return the ``Status`` that effective sample size and Pareto k alone call for."""
    low = jnp.where(ess < MIN_ESS, Status.LOW_ESS, 0)
    heavy = jnp.where(k > pareto_k_threshold(num_draws), Status.HIGH_PARETO_K, 0)
    return (low | heavy).astype(jnp.int32)
