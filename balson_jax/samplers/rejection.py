"""Rejection sampling (RS): accept a draw of the prior with probability likelihood / peak."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax import lax

from .. import dirichlet
from ..proposals.dirichlet import DirichletProposal
from ..random import points as unit_cube
from ..status import MIN_ESS, Status
from ..targets.functions import Density
from ..weighting import moments as weights
from ..weighting import reservoir
from ..weighting.estimate import Estimate
from .base import DEFAULT_CHUNK, DEFAULT_KEEP, Sampler, match_alpha, num_kept


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

    def elements(self, num_components: int, shares_draws: bool) -> int:
        """Return how many numbers a problem's chunk of draws holds, if all problems share the draws or if not."""
        return min(self.chunk, self.num_draws) * (1 if shares_draws else num_components)

    def run(self, key: jax.Array, density: Density, axes: tuple[str, ...] = ()) -> tuple[Estimate, jax.Array]:
        """Return the estimates and the matched ``alpha`` of B problems; devices along the axes all do the same."""
        found = rejection(key, density, self)
        return found, match_alpha(found, self.match, density)


def propose(
    key: jax.Array, density: Density, start: jax.Array, count: int
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Draw proposals number ``start, ..., start + count - 1`` from the prior.

    Returns:
      ``ln omega`` and ``omega``, ``(K, L)`` or ``(B, K, L)``; which are accepted, ``(B, L)``; and which lie above the
      envelope, ``(B, L)``, which never happens unless the bound is wrong.
    """
    proposal = DirichletProposal(density.prior)
    points = unit_cube.coordinates(unit_cube.pseudo, key, count, start=start, dtype=density.prior.dtype)
    log_omega, _ = proposal.draw(points)
    omega = jnp.exp(log_omega)
    log_ratio = weights.log_weights(density, omega, log_omega)
    accepted = jnp.log(unit_cube.uniform(points(proposal.dims, 1)[0], density.prior.dtype)) <= log_ratio
    return log_omega, omega, accepted, log_ratio > 0


@jax.custom_jvp
def without_derivatives(density: Density) -> Density:
    """Return the density as it is, and refuse to differentiate it."""
    return density


@without_derivatives.defjvp
def _refuse(primals, tangents):
    # Whether a draw is accepted, or where a chain goes, is no smooth function of the data.
    raise TypeError("this method has no derivatives; use IS or TG, or jax.lax.stop_gradient on the problem")


def rejection(key: jax.Array, density: Density, method: RS) -> Estimate:
    """Run rejection sampling on B problems until each has accepted enough draws or the budget is spent."""
    density = without_derivatives(density)
    dtype = density.prior.dtype
    num_problems, num_components = density.shape
    sizes = weights.Sizes(0, num_kept(method.keep, density))
    blocks = -(-min(method.chunk, method.max_proposals) // unit_cube.BLOCK)
    chunk = max(unit_cube.BLOCK << (blocks - 1).bit_length(), sizes.slots)
    # A problem with a NaN would never accept; it spends nothing, and is reported by its status.
    hopeful = density.valid & jnp.isfinite(density.log_peak)

    def unfinished(state):
        start, accepted = state[:2]
        return jnp.any((accepted < method.num_draws) & hopeful) & (start < method.max_proposals)

    def step(state):
        start, accepted, proposals, violations, moments = state
        log_omega, omega, accepts, violates = propose(key, density, start, chunk)
        number = start + jnp.arange(chunk, dtype=jnp.int32)
        accepts = accepts & (number < method.max_proposals)
        rank = accepted[:, None] + jnp.cumsum(accepts, -1, dtype=jnp.int32)
        used = accepts & (rank <= method.num_draws)
        # Proposals count up to the one that completes the sample.
        seen = (rank - accepts < method.num_draws) & (number < method.max_proposals)
        logs = jnp.where(used, jnp.zeros((), dtype), -jnp.inf)
        logarithms = log_omega if method.match == "kl" else None
        gumbel = reservoir.gumbel(key, chunk, start, dtype) if sizes.slots else None
        part = weights.digest(logs, density.features(omega), logarithms, used.sum(-1), gumbel, sizes)
        return (
            start + chunk,
            accepted + used.sum(-1, dtype=jnp.int32),
            proposals + seen.sum(-1, dtype=jnp.int32),
            violations + (violates & seen).sum(-1, dtype=jnp.int32),
            weights.merge(moments, part),
        )

    num_logs = num_components if method.match == "kl" else 0
    nothing = weights.empty(*density.feature_shape, num_logs, sizes, dtype)
    zeros = jnp.zeros(num_problems, jnp.int32)
    state = jnp.zeros((), jnp.int32), zeros, zeros, zeros, nothing
    _, accepted, proposals, violations, moments = lax.while_loop(unfinished, step, state)
    return _estimate(density, moments, accepted, proposals, violations, method)


def _estimate(density, moments, accepted, proposals, violations, method) -> Estimate:
    dtype = density.prior.dtype
    count = accepted.astype(dtype)
    at_least_one = jnp.maximum(count, 1)
    some = accepted > 0
    # With nothing accepted, all that is known is the prior.
    prior_mean, prior_variance = density.prior_moments()
    mean = jnp.where(some[:, None], moments.mean, prior_mean)
    variance = jnp.where(some[:, None], moments.spread / at_least_one[:, None], prior_variance)
    log_mean = moments.log_mean
    if log_mean.shape[-1]:
        log_mean = jnp.where(some[:, None], log_mean, dirichlet.log_mean(density.prior))
    draws, draw_weights = reservoir.gather(
        jax.tree.map(lambda leaf: leaf[None], moments.kept), jnp.ones((1, len(count)), dtype)
    )
    rate = count / jnp.maximum(proposals, 1).astype(dtype)
    status = jnp.where(accepted < method.num_draws, Status.BUDGET, 0)
    status = status | jnp.where(accepted < MIN_ESS, Status.LOW_ESS, 0)
    status = status | jnp.where(violations > 0, Status.ENVELOPE, 0)
    return Estimate(
        mean=mean,
        variance=variance,
        log_mean=log_mean,
        mean_stderr=jnp.where(some[:, None], jnp.sqrt(variance / at_least_one[:, None]), jnp.inf),
        log_evidence=density.log_peak + jnp.log(rate),
        log_evidence_stderr=jnp.where(some, jnp.sqrt((1 - rate) / at_least_one), jnp.inf),
        acceptance_rate=rate,
        ess=count,
        pareto_k=jnp.full_like(count, -jnp.inf),
        rhat=jnp.ones_like(count),
        status=status.astype(jnp.int32),
        draws=draws,
        draw_weights=draw_weights,
    )
