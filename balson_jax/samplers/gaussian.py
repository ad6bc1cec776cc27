"""Importance sampling from a truncated Gaussian (TG): for data so strong that the prior hardly meets the posterior."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from .. import dirichlet
from ..proposals import DividedProposal, gaussian
from ..proposals.gaussian import TruncatedGaussian
from ..random import points as unit_cube
from ..targets import Needs, Target
from ..weighting.estimate import Estimate
from ..weighting.weights import log_weights
from .base import DEFAULT_CHUNK, DEFAULT_KEEP, REPLICATES, Sampler, num_kept
from .importance import Plan, importance

PILOT_DRAWS = 256
WEAK_PRIOR = 0.01
ADAPTED_SPREAD = 1.15
"""Inflation that undoes the spread lost by truncation."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TG(Sampler):
    """Importance sampling of the posterior from a truncated Gaussian, mixed with the prior.

    Estimates the exact posterior's moments and evidence. The Gaussian is the likelihood's, with or without that of the
    prior, or one fitted to a pilot's weighted draws: whichever gives a pilot the most effective draws. One draw in
    eight comes from the prior, which bounds the weights. Made for strong data and up to some 15 components; a model
    that is not linear is replaced by its linear approximation at its optimum, which the weights correct.

    Attributes:
      num_draws: draws per problem, at least 2; rounded up to a power of two, at least 64.
      rounds: how many times the Gaussian is adapted to weighted draws.
      match: rule for the precision of the approximating Dirichlet (see ``dirichlet.from_moments``).
      points: ``"sobol"`` or ``"pseudo"``, as for ``IS``.
      chunk: draws computed at a time; bounds the memory.
      diagnose_tail: whether Pareto k is computed.
      keep: how many draws the posterior keeps, for intervals, samples and predictions: a power of two, or 0 for none.
    """

    num_draws: int = dataclasses.field(default=16_384, metadata={"static": True})
    rounds: int = dataclasses.field(default=1, metadata={"static": True})
    match: dirichlet.MatchRule = dataclasses.field(default="ratio", metadata={"static": True})
    points: str = dataclasses.field(default="sobol", metadata={"static": True})
    chunk: int = dataclasses.field(default=DEFAULT_CHUNK, metadata={"static": True})
    diagnose_tail: bool = dataclasses.field(default=True, metadata={"static": True})
    keep: int = dataclasses.field(default=DEFAULT_KEEP, metadata={"static": True})

    name = "tg"
    needs = Needs(optimum=True)

    def elements(self, num_components: int) -> int:
        """Return how many numbers a problem's chunk of draws holds."""
        return max(min(self.chunk, self.num_draws), PILOT_DRAWS) * num_components

    def run(self, key: jax.Array, target: Target, axes: tuple[str, ...] = ()) -> Estimate:
        """Return the estimates of B problems; devices along the axes divide the draws."""
        # The proposal is a constant to automatic differentiation: the weights correct for it.
        fixed = lax.stop_gradient(target)
        pilot_key, final_key = jax.random.split(key)
        proposal = lax.stop_gradient(choose(pilot_key, fixed, self.rounds))
        return importance(
            final_key,
            target,
            DividedProposal(proposal, fixed.full_prior),
            plan_of(self, target),
            corrects=True,
            logs=self.match == "kl",
            axes=axes,
        )


def plan_of(method: Any, target: Target) -> Plan:
    """Return a plan in which all draws count, so that a fixed share of each chunk can come from the prior."""
    per_replicate = max(-(-method.num_draws // REPLICATES), 8)
    count = REPLICATES << (per_replicate - 1).bit_length()
    return Plan(count, method.chunk, method.points, method.diagnose_tail, num_kept(method.keep, target))


def choose(key: jax.Array, target: Target, rounds: int) -> TruncatedGaussian:
    """Return, for each of B problems, the Gaussian that gives a pilot the largest effective sample."""
    quadratic, prior = target.quadratic(), target.full_prior
    num_problems, count = target.shape
    spread = target.noise.widening(target.num_rows, count - 1)
    weak = gaussian.from_quadratic(quadratic, prior, prior_share=WEAK_PRIOR, spread=spread)
    full = gaussian.from_quadratic(quadratic, prior, prior_share=1, spread=spread)

    def stage(best, index):
        def adapted(best):
            _, proposal, mean, covariance = best
            return gaussian.from_moments(proposal.order, mean, covariance, prior, ADAPTED_SPREAD)

        proposal = lax.switch(jnp.minimum(index, 2), [lambda _: weak, lambda _: full, adapted], best)
        found = _pilot(jax.random.fold_in(key, index), target, proposal)
        return jax.tree.map(functools.partial(_where, found[0] > best[0]), found, best), None

    dtype = prior.dtype
    start = (
        jnp.full(num_problems, -jnp.inf, dtype),
        weak,
        dirichlet.mean(prior),
        jnp.broadcast_to(jnp.eye(count, dtype=dtype), (num_problems, count, count)),
    )
    return lax.scan(stage, start, jnp.arange(2 + rounds))[0][1]


def _where(condition: jax.Array, new: jax.Array, old: jax.Array) -> jax.Array:
    return jnp.where(condition.reshape(-1, *(1,) * (new.ndim - 1)), new, old)


def _pilot(
    key: jax.Array, target: Target, proposal: TruncatedGaussian
) -> tuple[jax.Array, TruncatedGaussian, jax.Array, jax.Array]:
    """Return effective sample size, the proposal, mean and covariance of omega from a few draws for B problems."""
    dtype = target.prior.dtype
    points = unit_cube.coordinates(unit_cube.GENERATORS["sobol"], key, PILOT_DRAWS, start=0, dtype=dtype)
    log_omega, log_proposal = DividedProposal(proposal, target.full_prior).draw(points)
    omega = jnp.exp(log_omega)
    p = jax.nn.softmax(log_weights(target, target.evaluate(omega), log_omega, log_proposal), axis=-1)
    exact = lax.Precision.HIGHEST
    mean = jnp.einsum("bl,bkl->bk", p, omega, precision=exact)
    away = omega - mean[:, :, None]
    covariance = jnp.einsum("bl,bkl,bjl->bkj", p, away, away, precision=exact)
    ess = 1 / jnp.square(p).sum(-1)
    # A proposal with NaN draws ranks last.
    return jnp.where(jnp.isfinite(ess), ess, -jnp.inf), proposal, mean, covariance
