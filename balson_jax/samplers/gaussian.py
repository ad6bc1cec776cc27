"""Importance sampling from a truncated Gaussian (TG): for weak and strong data, up to some dozens of components."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

import jax
import jax.numpy as jnp
from jax import lax

from .. import dirichlet, validation
from ..problems.base import Problem
from ..proposals import DividedProposal, gaussian
from ..status import Status
from ..targets import Needs, Target
from ..weighting.estimate import Estimate
from ..weighting.weights import log_weights
from .base import DEFAULT_CHUNK, DEFAULT_KEEP, REPLICATES, Sampler, num_kept
from .importance import Plan, importance

MISSED = 0.1
"""A peak is missed if one draw there would have more than this share of the weights of all draws."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TG(Sampler):
    """Importance sampling of the posterior from a truncated Gaussian, mixed with the prior.

    Estimates the exact posterior's moments and evidence. The Gaussian is that of the likelihood, with the walls of the
    simplex and the prior expanded about the posterior's centre (see ``proposals.gaussian``). One draw in eight comes
    from the prior, which bounds the weights. Serves weak and strong data, in corners and on edges of the simplex too,
    up to some 40 components for a flat prior and some 15 for others; a model that is not linear is replaced by its
    linear approximation at its optimum, which the weights correct. If searches from other starts ended at peaks that
    the draws miss, the status is ``HIGH_PARETO_K``.

    Attributes:
      num_draws: draws per problem, at least 2; rounded up to a power of two, at least 64.
      rounds: has no effect, since the Gaussian no longer needs to be adapted; kept for code that passes it.
      match: rule for the precision of the approximating Dirichlet (see ``dirichlet.from_moments``).
      points: ``"sobol"`` or ``"pseudo"``, as for ``IS``.
      chunk: draws computed at a time; bounds the memory.
      diagnose_tail: whether Pareto k is computed.
      keep: how many draws the posterior keeps, for intervals, samples and predictions: a power of two, or 0 for none.
      used: how many of ``num_draws`` to make, a multiple of the draws made at a time (``chunk``, or the least number
        that the replicates need); it may change without compiling again, but has
        no reverse-mode derivative. ``None`` for all.
      is_flat: whether all concentrations of the prior are 1: draws are then cheaper, and another program makes them.
        ``None`` looks at the prior, where its values are known. (With a wrong value only fewer draws are effective.)
    """

    num_draws: int = dataclasses.field(default=16_384, metadata={"static": True})
    rounds: int = dataclasses.field(default=0, metadata={"static": True})
    match: dirichlet.MatchRule = dataclasses.field(default="ratio", metadata={"static": True})
    points: str = dataclasses.field(default="sobol", metadata={"static": True})
    chunk: int = dataclasses.field(default=DEFAULT_CHUNK, metadata={"static": True})
    diagnose_tail: bool = dataclasses.field(default=True, metadata={"static": True})
    keep: int = dataclasses.field(default=DEFAULT_KEEP, metadata={"static": True})
    used: Any = None
    is_flat: bool | None = dataclasses.field(default=None, metadata={"static": True})

    name = "tg"
    needs = Needs(optimum=True)

    def prepare(self, problem: Problem) -> Self:
        """Return the method, or raise ``ValueError`` if ``used`` is no number of whole chunks."""
        used = None if self.used is None else validation.known(self.used)
        at_a_time = plan_of(self, self.keep, self.used).at_a_time
        if used is not None and not (at_a_time <= used <= self.num_draws and used % at_a_time == 0):
            raise ValueError(f"used={used} must be a multiple of {at_a_time} up to num_draws={self.num_draws}")
        method = super().prepare(problem)
        prior = validation.known(problem.prior)
        if self.is_flat is not None or prior is None:
            return method
        return dataclasses.replace(method, is_flat=bool((prior == 1).all()))

    def elements(self, num_components: int) -> int:
        """Return how many numbers a problem's chunk of draws holds."""
        return plan_of(self, self.keep, self.used).at_a_time * num_components

    def run(self, key: jax.Array, target: Target, axes: tuple[str, ...] = ()) -> Estimate:
        """Return the estimates of B problems; devices along the axes divide the draws."""
        # The proposal is a constant to automatic differentiation: the weights correct for it.
        fixed = lax.stop_gradient(target)
        shape = fixed.noise.precision_shape(fixed.num_rows)
        spread = fixed.noise.widening(fixed.num_rows, fixed.shape[1] - 1) if shape is None else 1.0
        is_flat = bool(self.is_flat)
        proposal = gaussian.from_quadratic(fixed.quadratic(), fixed.full_prior, spread, shape, is_flat)
        mixture = DividedProposal(lax.stop_gradient(proposal), fixed.full_prior, is_flat)
        plan = plan_of(self, num_kept(self.keep, target), self.used)
        found = importance(key, target, mixture, plan, corrects=True, logs=self.match == "kl", axes=axes)
        if fixed.peaks is None:
            return found
        missed = _misses_a_peak(fixed, mixture, found, self.num_draws if self.used is None else self.used)
        return dataclasses.replace(found, status=found.status | jnp.where(missed, Status.HIGH_PARETO_K, 0))


def _misses_a_peak(target: Target, proposal: DividedProposal, found: Estimate, num_draws: Any) -> jax.Array:
    """Return for which problems a draw at some peak of the likelihood would have a large part of all weights, ``(B,)``.

    If no draw came near a peak, neither the effective number of draws nor Pareto k shows that it was missed.
    """
    assert target.peaks is not None
    peaks = jnp.swapaxes(target.peaks, -1, -2)
    log_omega = jnp.log(jnp.maximum(peaks, jnp.finfo(peaks.dtype).tiny))
    weights = log_weights(target, target.evaluate(peaks), log_omega, proposal.log_prob(log_omega))
    mean = found.log_evidence - target.log_peak
    return (weights - mean[:, None] > jnp.log(MISSED * num_draws)).any(-1)


def plan_of(method: Any, keep: int, used: Any = None) -> Plan:
    """Return a plan in which all draws count, so that a fixed share of each chunk can come from the prior."""
    per_replicate = max(-(-method.num_draws // REPLICATES), 8)
    count = REPLICATES << (per_replicate - 1).bit_length()
    return Plan(count, method.chunk, method.points, method.diagnose_tail, keep, used)
