"""Rejection sampling (RS): accept a draw of the prior with probability likelihood / peak."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
from jax import lax

from .. import dirichlet
from ..problems.base import Problem
from ..proposals import DirichletProposal
from ..random import points as unit_cube
from ..status import MIN_ESS, Status
from ..targets import Needs, Target
from ..weighting import moments as running
from ..weighting import reservoir
from ..weighting.convergence import SQUARES_VARIANCE
from ..weighting.estimate import Estimate, Moment
from ..weighting.weights import log_weights
from .base import DEFAULT_CHUNK, DEFAULT_KEEP, Sampler, num_kept


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class RS(Sampler):
    """Rejection sampling of the posterior.

    Exact: accepted draws are independent draws of the posterior, because the envelope is a certified bound of the
    likelihood. The cost is ``envelope / evidence`` proposals per draw, which explodes for strong data. It has no
    derivatives, and refuses to be differentiated.

    Attributes:
      num_draws: accepted draws per problem, at least 2.
      max_proposals: give up after this many proposals, with ``Status.BUDGET``, and use what was accepted.
      match: rule for the precision of the approximating Dirichlet (see ``dirichlet.from_moments``).
      chunk: proposals computed at a time; bounds the memory and does not change the result.
      keep: how many draws the posterior keeps, for intervals, samples and predictions: a power of two, or 0 for none.
    """

    num_draws: int = dataclasses.field(default=16_384, metadata={"static": True})
    max_proposals: int = dataclasses.field(default=1 << 24, metadata={"static": True})
    match: dirichlet.MatchRule = dataclasses.field(default="ratio", metadata={"static": True})
    chunk: int = dataclasses.field(default=DEFAULT_CHUNK, metadata={"static": True})
    keep: int = dataclasses.field(default=DEFAULT_KEEP, metadata={"static": True})

    name = "rs"
    has_derivatives = False
    draws_are_shared = True
    needs = Needs(bound=True)

    def prepare(self, problem: Problem) -> Self:
        """Return the method, or raise ``ValueError`` if the likelihood is known to have no bound."""
        require_envelope(problem)
        return super().prepare(problem)

    def elements(self, num_components: int) -> int:
        """Return how many numbers a problem's chunk of draws holds."""
        return min(self.chunk, self.num_draws) * num_components

    def run(self, key: jax.Array, target: Target, axes: tuple[str, ...] = ()) -> Estimate:
        """Return the estimates of B problems; devices along the axes all do the same."""
        return rejection(key, target, self)


def require_envelope(problem: Problem) -> None:
    """Raise ``ValueError`` if the likelihood is known to have no bound."""
    if not problem.has_envelope:
        raise ValueError(
            "rejection sampling of a model whose noise is to be estimated needs a bound above 0 of its sum of squared "
            'residuals (bound="search" looks for one), or noise=InverseGamma(...) with a positive scale'
        )


class Proposals(NamedTuple):
    """Draws of the prior, and which of them are accepted.

    Attributes:
      log_omega: ``(K, L)`` or ``(B, K, L)``.
      omega: its exponential.
      half_square: ``(B, L)``.
      accepted: ``(B, L)``.
      above: which lie above the envelope, ``(B, L)``: none, unless the bound is wrong.
    """

    log_omega: jax.Array
    omega: jax.Array
    half_square: jax.Array
    accepted: jax.Array
    above: jax.Array


def propose(key: jax.Array, target: Target, start: jax.Array, count: int) -> Proposals:
    """Return proposals number ``start, ..., start + count - 1`` from the prior."""
    dtype = target.prior.dtype
    proposal = DirichletProposal(target.prior)
    points = unit_cube.coordinates(unit_cube.pseudo, key, count, start=start, dtype=dtype)
    log_omega, _ = proposal.draw(points)
    omega = jnp.exp(log_omega)
    values = target.evaluate(omega)
    log_ratio = log_weights(target, values, log_omega)
    accepted = jnp.log(unit_cube.uniform(points(proposal.dims, 1)[0], dtype)) <= log_ratio
    return Proposals(log_omega, omega, values.half_square, accepted, log_ratio > 0)


class _State(NamedTuple):
    """Rejection under way: the number of the next proposal, counts ``(B,)``, and the moments of accepted draws."""

    start: jax.Array
    accepted: jax.Array
    proposals: jax.Array
    violations: jax.Array
    moments: running.Moments


def rejection(key: jax.Array, target: Target, method: RS) -> Estimate:
    """Run rejection sampling on B problems until each has accepted enough draws or the budget is spent."""
    dtype, logs = target.prior.dtype, method.match == "kl"
    sizes = running.Sizes(0, num_kept(method.keep, target))
    blocks = -(-min(method.chunk, method.max_proposals) // unit_cube.BLOCK)
    chunk = max(unit_cube.BLOCK << (blocks - 1).bit_length(), sizes.slots)
    # A problem with a NaN would never accept; it spends nothing, and is reported by its status.
    hopeful = target.valid & jnp.isfinite(target.log_peak)

    hash_seeds = jax.random.bits(jax.random.fold_in(key, unit_cube.HASH_COORDINATES), (2,), jnp.uint32)

    def unfinished(state):
        return jnp.any((state.accepted < method.num_draws) & hopeful) & (state.start < method.max_proposals)

    def step(state):
        found = propose(key, target, state.start, chunk)
        number = state.start + jnp.arange(chunk, dtype=jnp.int32)
        accepts = found.accepted & (number < method.max_proposals)
        rank = state.accepted[:, None] + jnp.cumsum(accepts, -1, dtype=jnp.int32)
        used = accepts & (rank <= method.num_draws)
        # Proposals count up to the one that completes the sample.
        seen = (rank - accepts < method.num_draws) & (number < method.max_proposals)
        log_weight = jnp.where(used, jnp.zeros((), dtype), -jnp.inf)
        gumbel = reservoir.gumbel(hash_seeds, chunk, state.start, dtype) if sizes.slots else None
        quantities = target.quantities(found.omega, found.half_square, found.log_omega if logs else None)
        part = running.summarise(log_weight, quantities, used.sum(-1, keepdims=True), gumbel, sizes)
        return _State(
            state.start + chunk,
            state.accepted + used.sum(-1, dtype=jnp.int32),
            state.proposals + seen.sum(-1, dtype=jnp.int32),
            state.violations + (found.above & seen).sum(-1, dtype=jnp.int32),
            running.merge(state.moments, part),
        )

    nothing = running.empty(target.shape[0], target.sizes(logs), sizes, dtype)
    zeros = jnp.zeros(target.shape[0], jnp.int32)
    start = _State(jnp.zeros((), jnp.int32), zeros, zeros, zeros, nothing)
    return _estimate(target, lax.while_loop(unfinished, step, start), method)


def _estimate(target: Target, state: _State, method: RS) -> Estimate:
    count = state.accepted.astype(target.prior.dtype)
    at_least_one, some = jnp.maximum(count, 1), state.accepted > 0
    draws, draw_weights = reservoir.gather(
        jax.tree.map(lambda leaf: leaf[None], state.moments.kept), jnp.ones((1, len(count)), count.dtype)
    )
    rate = count / jnp.maximum(state.proposals, 1).astype(count.dtype)
    status = jnp.where(state.accepted < method.num_draws, Status.BUDGET, 0)
    status = status | jnp.where(state.accepted < MIN_ESS, Status.LOW_ESS, 0)
    status = status | jnp.where(state.violations > 0, Status.ENVELOPE, 0)
    return Estimate(
        moments=_moments(target, state.moments, some[:, None], at_least_one[:, None]),
        log_evidence=target.log_peak + jnp.log(rate),
        log_evidence_stderr=jnp.where(some, jnp.sqrt((1 - rate) / at_least_one), jnp.inf),
        acceptance_rate=rate,
        ess=count,
        pareto_k=jnp.full_like(count, -jnp.inf),
        status=status.astype(jnp.int32),
        draws=draws,
        draw_weights=draw_weights,
    )


def _moments(target: Target, found: running.Moments, some: jax.Array, count: jax.Array) -> dict[str, Moment]:
    """Return the moments of accepted draws; with none accepted, those of the prior where they are known."""
    moments, prior = {}, target.prior_moments()
    for name, mean in found.mean.items():
        prior_mean, prior_variance = prior.get(name, (mean, found.spread[name]))
        variance = jnp.where(some, found.spread[name] / count, prior_variance)
        stderr = jnp.where(some, jnp.sqrt(variance / count), jnp.inf)
        # Independent draws; the variance of their squares is not recorded.
        of_variance = jnp.where(some, variance * jnp.sqrt(SQUARES_VARIANCE / count), jnp.inf)
        moments[name] = Moment(jnp.where(some, mean, prior_mean), variance, stderr[None], of_variance[None])
    return moments
