"""Estimates: the result of a sampler, from the moments of weighted draws."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from .. import dirichlet
from ..targets.base import PRESENT
from . import reservoir
from .diagnostics import Diagnostics, verdict
from .moments import Moments, combine
from .pareto import pareto_k, tail_size

SQUARES_ERROR = 0.25
"""Bounded weights whose mean square has at most this relative standard error have no tail: k is at most 0."""

FLAT = 2.0
"""If at least ``FLAT_COUNT`` weights are all below this multiple of their mean, there is no tail: k is at most 0."""

FLAT_COUNT = 1000
"""Number of weights that ``FLAT`` needs."""

ROUNDED_NATS = 0.01
"""A log-weight may exceed its bound by this much, because it is rounded."""

SMALLEST_RATIO = 1 / 256
"""Squared errors of quasi-random draws are never taken to be less than this share of those of independent draws.

Replicates may all lack draws of a kind that is rare, such as draws from the prior near a narrow peak.
"""


class Moment(NamedTuple):
    """Mean and variance of a quantity for B problems, with their Monte Carlo errors.

    Attributes:
      mean: ``(B, n)``.
      variance: ``(B, n)``.
      mean_errors: independent errors of the mean, ``(R, B, n)``, whose squares sum to its squared standard error.
      variance_errors: the same for the variance, or ``None`` if unknown.
    """

    mean: jax.Array
    variance: jax.Array
    mean_errors: jax.Array
    variance_errors: jax.Array | None = None

    @property
    def mean_stderr(self) -> jax.Array:
        """Monte Carlo standard error of the mean, ``(B, n)``."""
        return jnp.sqrt(jnp.square(self.mean_errors).sum(0))

    @property
    def std_stderr(self) -> jax.Array:
        """Monte Carlo standard error of the standard deviation, ``(B, n)``; NaN if unknown."""
        if self.variance_errors is None:
            return jnp.full_like(self.variance, jnp.nan)
        # Relative to the variance, whose square may underflow.
        relative = self.variance_errors / jnp.where(self.variance > 0, self.variance, jnp.inf)
        return 0.5 * jnp.sqrt(self.variance) * jnp.sqrt(jnp.square(relative).sum(0))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate(Diagnostics):
    """The result of a sampler for B problems, the leading axis of every field but the errors of ``moments``.

    The diagnostics are described in ``Diagnostics``.

    Attributes:
      moments: of the quantities that the target names, ``"omega"`` at least.
      draws: kept draws of omega, ``(B, K, D)``.
      draw_weights: their weights, ``(B, D)``, of sum one.
      alpha: concentrations of the approximating Dirichlet, ``(B, K)``; ``None`` to match them to the moments.
    """

    moments: dict[str, Moment]
    draws: jax.Array
    draw_weights: jax.Array
    alpha: jax.Array | None = None

    def matched(self, rule: dirichlet.MatchRule) -> jax.Array:
        """Return the concentrations of the approximating Dirichlet, ``(B, K)``."""
        if self.alpha is not None:
            return self.alpha
        omega, logs = self.moments["omega"], self.moments.get("log_omega")
        return dirichlet.from_moments(omega.mean, omega.variance, rule, log_mean=None if logs is None else logs.mean)


def from_replicates(parts: Moments, log_peak: jax.Array, num_draws: int, inverse_bound: jax.Array) -> Estimate:
    """Return the estimate from weighted draws, given as moments of independent replicates along a leading axis.

    Standard errors come from the spread between the replicates, which holds for quasi-random draws too. The
    errors of all quantities of a problem are pooled (see ``dependable``).

    Args:
      parts: the moments.
      log_peak: the reference of the log-weights, ``(B,)``.
      num_draws: how many draws there are in all, or at most.
      inverse_bound: one over the largest possible weight, ``(B,)``; zero if there is no bound.
    """
    moments = combine(parts)
    num_replicates = parts.mass.shape[0]
    scale = jnp.exp(parts.peak - moments.peak)
    share = parts.mass * scale / moments.mass
    correction = num_replicates / (num_replicates - 1) if num_replicates > 1 else jnp.inf
    evidence_square = correction * jnp.square(share - parts.count / moments.count).sum(0)
    log_mean_weight = moments.peak + jnp.log(moments.mass) - jnp.log(moments.count)
    ess = effective_sample_size(moments)
    # The relative variance of a mean of independent weights.
    weight_square = jnp.maximum(1 / jnp.maximum(ess, 1) - 1 / moments.count, 0)
    acceptance_rate = jnp.exp(log_mean_weight)
    k = _tail_shape(parts.buckets, num_draws)
    # A weight above a model's bound proves the bound wrong.
    holds = moments.peak + jnp.log(inverse_bound) <= ROUNDED_NATS
    is_harmless = holds & is_bounded_tightly(acceptance_rate * inverse_bound, moments.count)
    # Weights so close to their mean have no tail, whatever shape is fitted to the largest ones.
    is_harmless = is_harmless | ((moments.peak - log_mean_weight < math.log(FLAT)) & (moments.count >= FLAT_COUNT))
    k = jnp.where(is_harmless, jnp.minimum(k, 0), k)
    draws, draw_weights = reservoir.gather(parts.kept, scale / moments.mass)
    errors = {name: _errors(name, parts, moments, math.sqrt(correction) * share) for name in moments.mean}
    # Indicators jump, so quasi-random draws gain little for them. That says nothing about the gain of the others.
    smooth = {name: own for name, own in errors.items() if name != PRESENT}
    independent = 1 / jnp.maximum(ess, 1)
    gain = _gain(smooth, ess, evidence_square, weight_square)
    within = {name: (gain if name in smooth else 1.0) * independent for name in errors}
    return Estimate(
        moments={name: _moment(name, moments, own, within[name]) for name, own in errors.items()},
        log_evidence=log_peak + log_mean_weight,
        log_evidence_stderr=jnp.sqrt(dependable(evidence_square, gain * weight_square)),
        acceptance_rate=acceptance_rate,
        ess=ess,
        pareto_k=k,
        status=verdict(ess, k, moments.count),
        draws=draws,
        draw_weights=draw_weights,
    )


def effective_sample_size(moments: Moments) -> jax.Array:
    """Return ``(sum p)^2 / sum p^2``: how many equally weighted draws these are worth."""
    return jnp.square(moments.mass) / jnp.where(moments.mass_square > 0, moments.mass_square, 1)


def dependable(between: jax.Array, within: jax.Array) -> jax.Array:
    """Return a squared standard error that is not small by chance.

    The spread between R replicates has R - 1 degrees of freedom. With eight replicates the error of a mean exceeds six
    such standard errors once in 2,000 times (Student's t), because the spread is sometimes small by chance. The other
    quantities of the problem help. Relative to the errors of independent draws, which follow from the weights, theirs
    are about as large, and their mean square has more degrees of freedom. The result is a quarter of ``between`` plus
    three quarters of ``within``, and never less than ``between``.

    Args:
      between: squared standard error from the spread between replicates.
      within: squared standard error of the same number of independent draws, times the typical ratio of squared
        errors to those of independent draws over the quantities of the problem.
    """
    return jnp.maximum(between, 0.25 * between + 0.75 * within)


def _errors(name: str, parts: Moments, moments: Moments, share: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return errors of a mean in standard deviations, and of a variance relative to it, ``(R, B, n)`` each.

    They are deviations of replicates, weighted by shares ``(R, B)``.
    """
    mean, variance = moments.mean[name], moments.variance(name)
    away = parts.mean[name] - mean
    own_mass = jnp.where(parts.mass > 0, parts.mass, 1)[..., None]
    own_variance = parts.spread[name] / own_mass + jnp.square(away)
    scale, share = jnp.where(variance > 0, variance, 1), share[..., None]
    return share * away / jnp.sqrt(scale), share * (own_variance - variance) / scale


def _gain(errors: dict[str, Any], ess: jax.Array, evidence: jax.Array, independent: jax.Array) -> jax.Array:
    """Return the typical ratio of squared errors to those of independent draws, ``(B,)``.

    It is the geometric mean of the mean ratios of means and of variances, whose gains may differ. Independent draws
    have a mean with the relative variance ``1 / ess``, and a variance with ``2 / ess`` if they are about normal. The
    evidence, a mean of weights, counts among the means.
    """
    means, variances = (jnp.concatenate(own, -1) for own in zip(*errors.values(), strict=True))
    means, variances = (jnp.square(own).sum(0) * ess[:, None] for own in (means, variances))
    known = independent * ess > 1e-3  # nearly equal weights say nothing about the gain
    of_evidence = jnp.where(known, evidence / jnp.where(known, independent, 1), means.mean(-1))
    of_means = (means.sum(-1) + of_evidence) / (means.shape[-1] + 1)
    return jnp.maximum(jnp.sqrt(of_means) * jnp.sqrt(0.5 * variances.mean(-1)), SMALLEST_RATIO)


def _moment(name: str, moments: Moments, errors: tuple[jax.Array, jax.Array], within: jax.Array) -> Moment:
    """Return the moment of a quantity, given relative errors, and the expected square of that of the mean, ``(B,)``.

    That of the variance is taken as twice as large, as for normal distributions.
    """
    mean, variance = moments.mean[name], moments.variance(name)
    scale = jnp.where(variance > 0, variance, 1)
    of_mean, of_variance = _scaled(errors[0], within[:, None]), _scaled(errors[1], 2 * within[:, None])
    return Moment(mean, variance, of_mean * jnp.sqrt(scale), of_variance * scale)


def _scaled(errors: jax.Array, within: jax.Array) -> jax.Array:
    """Return errors of replicates, ``(R, B, n)``, scaled so that the sum of their squares is dependable."""
    between = jnp.square(errors).sum(0)
    some = between > 0
    return errors * jnp.sqrt(dependable(between, within) / jnp.where(some, between, 1))


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


def is_bounded_tightly(share: jax.Array, num_draws: jax.Array | int) -> jax.Array:
    """Return whether S draws show how large weights get, given the mean's share of the largest possible.

    Weights w bounded by W have a tail with Pareto k below zero, but few draws may not reach it. With mean m,
    ``Var(w^2) <= W^2 E[w^2]`` and ``E[w^2] >= m^2``, so the mean square has a relative standard error of at most
    ``W / (m sqrt(S))``. Where that is small the observed weights are representative.
    """
    return share * jnp.sqrt(jnp.asarray(num_draws, share.dtype)) >= 1 / SQUARES_ERROR
