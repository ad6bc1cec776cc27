"""Importance sampling (IS): weigh every draw of a proposal by likelihood x prior / proposal."""

from __future__ import annotations

import dataclasses
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .. import dirichlet, validation
from ..problems.base import Problem
from ..proposals import DirichletProposal, Proposal
from ..random import points as unit_cube
from ..random.sobol import dealt
from ..targets import Target
from ..weighting import moments as running
from ..weighting import reservoir
from ..weighting.estimate import Estimate, from_replicates
from ..weighting.weights import log_weights
from .base import DEFAULT_CHUNK, DEFAULT_KEEP, REPLICATES, Sampler, num_kept


@dataclasses.dataclass(frozen=True)
class Plan:
    """How ``num_draws`` draws are laid out: independent replicates, computed in chunks.

    Replicates have independent points; their spread gives standard errors, also of quasi-random points.
    Draw ``j`` of replicate ``r`` counts if ``j * replicates + r < num_draws``. The layout of points does not depend on
    the chunk, so neither does the result.

    Attributes:
      num_draws: of all replicates together.
      chunk: draws computed at a time.
      points: name of the generator.
      diagnose_tail: whether Pareto k is wanted.
      keep: how many draws to keep.
      used: how many of the draws to make, a number of whole chunks that may be traced; ``None`` for all.
      in_turn: whether replicates are computed one after another, not side by side. Twice as fast for problems that
        share their draws, because sums over the draws of one replicate are one matrix product.
    """

    num_draws: int
    chunk: int
    points: str
    diagnose_tail: bool
    keep: int
    used: jax.Array | None = None
    in_turn: bool = False

    @property
    def replicates(self) -> int:
        """How many independent replicates there are."""
        return min(REPLICATES, self.num_draws)

    @property
    def per_replicate(self) -> int:
        """How many draws the largest replicate has."""
        return -(-self.num_draws // self.replicates)

    @property
    def chunk_size(self) -> int:
        """How many draws of a replicate are computed at a time, a power of two; not fewer than are kept."""
        whole = _power_of_two(self.per_replicate)
        smallest = max(8 if self.used is not None else unit_cube.BLOCK, self.keep // REPLICATES)
        return min(whole, max(_power_of_two(-(-self.chunk // (1 if self.in_turn else REPLICATES))), smallest))

    @property
    def at_a_time(self) -> int:
        """How many draws are computed at a time."""
        return self.chunk_size * (1 if self.in_turn else self.replicates)

    @property
    def num_chunks(self) -> int:
        """How many chunks there are."""
        return -(-self.per_replicate // self.chunk_size)

    @property
    def sizes(self) -> running.Sizes:
        """How many of its largest weights, and of its draws, a replicate keeps."""
        buckets = running.BUCKETS if self.diagnose_tail else 0
        return running.Sizes(min(buckets, self.chunk_size), min(self.keep // REPLICATES, self.chunk_size))


def _power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length()


def importance(
    key: jax.Array,
    target: Target,
    proposal: Proposal,
    plan: Plan,
    *,
    corrects: bool,
    logs: bool,
    axes: tuple[str, ...] = (),
) -> Estimate:
    """Run one pass of importance sampling on B problems.

    Args:
      key: a PRNG key.
      target: the problems.
      proposal: the distribution of the draws.
      plan: how many draws, and how they are computed.
      corrects: whether weights include prior / proposal; if not, the proposal is the prior of this pass.
      logs: whether ``E[ln omega]`` is wanted.
      axes: names of the mapped mesh axes whose devices divide the replicates among them.

    Returns:
      The estimate.
    """
    own = _own_replicates(plan.replicates, axes)
    streams = unit_cube.streams(plan.points, key, own, proposal.dims)

    def of_some(replicates: tuple[unit_cube.Streams, jax.Array]) -> running.Moments:
        return _replicate_moments(*replicates, target, proposal, plan, corrects, logs)

    if plan.in_turn:
        parts = lax.map(lambda one: of_some(jax.tree.map(lambda leaf: leaf[None], one)), (streams, own))
    else:
        shape = target.shape[0], len(own)
        parts = jax.tree.map(
            lambda leaf: jnp.moveaxis(leaf.reshape(*shape, *leaf.shape[1:]), 1, 0), of_some((streams, own))
        )
    if axes:
        gathered = lax.all_gather(parts, axes, tiled=True)
        parts = jax.tree.map(lambda leaf: leaf[: plan.replicates], gathered)
    # A draw from the prior has its likelihood as weight. In a mixture the weight is at most likelihood / prior share.
    inverse_bound = jnp.where(target.unbounded, 0, proposal.prior_share if corrects else 1)
    return from_replicates(parts, target.log_peak, plan.num_draws, inverse_bound)


def _replicate_moments(
    streams: unit_cube.Streams,
    own: jax.Array,
    target: Target,
    proposal: Proposal,
    plan: Plan,
    corrects: bool,
    logs: bool,
) -> running.Moments:
    """Return the moments of all draws of some replicates, of B problems times the replicates."""

    def moments_of(chunk):
        return _chunk_moments(streams, own, chunk, target, proposal, plan, corrects, logs)

    # Recomputed in the backward pass: gradients need no more memory than values.
    @jax.checkpoint
    def step(moments, chunk):
        return running.merge(moments, moments_of(chunk)), None

    count = target.shape[0] * len(own)
    nothing = running.empty(count, target.sizes(logs), plan.sizes, target.prior.dtype)
    if plan.used is not None:
        used = plan.used // (plan.replicates * plan.chunk_size)
        return lax.fori_loop(0, used, lambda chunk, moments: step(moments, chunk)[0], nothing)
    if plan.num_chunks == 1:
        return jax.checkpoint(moments_of)(0)
    return lax.scan(step, nothing, jnp.arange(plan.num_chunks))[0]


def _own_replicates(count: int, axes: tuple[str, ...]) -> jax.Array:
    """Return the numbers of the replicates that this device computes; devices along the axes divide them."""
    if not axes:
        return jnp.arange(count)
    share = -(-count // lax.psum(1, axes))
    return jnp.minimum(lax.axis_index(axes) * share + jnp.arange(share), count - 1)


def _chunk_moments(
    streams: unit_cube.Streams,
    replicates: jax.Array,
    chunk: jax.Array | int,
    target: Target,
    proposal: Proposal,
    plan: Plan,
    corrects: bool,
    logs: bool,
) -> running.Moments:
    """Return the moments of one chunk of draws of some replicates."""
    size, dtype = plan.chunk_size, target.prior.dtype
    start = chunk * size
    log_omega, log_proposal = proposal.draw(streams.coordinates(size, start=start, dtype=dtype))
    omega = jnp.exp(log_omega)
    values = target.evaluate(omega)
    log_weight = log_weights(target, values, log_omega, log_proposal if corrects else None)
    counts = jnp.asarray(size)
    if plan.num_draws % (plan.replicates * size):
        own_draws = (plan.num_draws - replicates + plan.replicates - 1) // plan.replicates
        used = start + dealt(np.arange(size), size) < own_draws[:, None]
        log_weight, counts = jnp.where(used.reshape(-1), log_weight, -jnp.inf), used.sum(-1)
    gumbel = None
    if plan.sizes.slots:
        gumbel = jax.vmap(lambda seeds: reservoir.gumbel(seeds, size, start, dtype))(streams.hash_seeds).reshape(-1)
    quantities = target.quantities(omega, values.half_square, log_omega if logs else None)
    return running.summarise(log_weight, quantities, counts, gumbel, plan.sizes, len(replicates))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class IS(Sampler):
    """Importance sampling of the posterior.

    Estimates the exact posterior's moments and evidence. With the prior as its proposal the weights are bounded; the
    effective sample shrinks as data get stronger, and ``status`` says when it is too small.

    Attributes:
      num_draws: draws per problem, at least 2.
      proposal: concentrations ``(K,)`` of another Dirichlet to draw from; ``None`` for the prior. If some component
        exceeds twice the prior's, the weights have infinite variance.
      match: rule for the precision of the approximating Dirichlet (see ``dirichlet.from_moments``).
      points: ``"sobol"``, scrambled quasi-random points of the unit cube, whose error falls faster than one over the
        root of the number of draws, best with a power of two; or ``"pseudo"``-random points.
      chunk: draws computed at a time; bounds the memory and does not change the result.
      diagnose_tail: whether Pareto k is computed, which takes half of the time of a large batch. Without it
        ``pareto_k`` is NaN, and ``status`` rests on the effective sample alone.
      keep: how many draws the posterior keeps, for intervals, samples and predictions: a power of two, or 0 for none.
    """

    num_draws: int = dataclasses.field(default=65_536, metadata={"static": True})
    proposal: jax.Array | None = None
    match: dirichlet.MatchRule = dataclasses.field(default="ratio", metadata={"static": True})
    points: str = dataclasses.field(default="sobol", metadata={"static": True})
    chunk: int = dataclasses.field(default=DEFAULT_CHUNK, metadata={"static": True})
    diagnose_tail: bool = dataclasses.field(default=True, metadata={"static": True})
    keep: int = dataclasses.field(default=DEFAULT_KEEP, metadata={"static": True})

    name = "is"
    draws_are_shared = True

    def prepare(self, problem: Problem) -> Self:
        """Return the method, or raise ``ValueError`` if the proposal doesn't fit the problem."""
        if self.proposal is not None:
            num_components = problem.num_components
            proposal = validation.float_array("proposal", self.proposal, problem.dtype)
            if proposal.shape not in ((), (num_components,)):
                raise ValueError(f"proposal has shape {proposal.shape}; pass {num_components} concentrations")
            validation.require_positive("proposal", proposal)
        return super().prepare(problem)

    def is_valid(self) -> jax.Array:
        """Return whether the proposal's concentrations are in their domain; usable inside a trace."""
        if self.proposal is None:
            return jnp.bool_(True)
        proposal = jnp.asarray(self.proposal)
        return (jnp.isfinite(proposal) & (proposal > 0)).all()

    def elements(self, num_components: int) -> int:
        """Return how many numbers a problem's chunk of draws holds."""
        return self._plan(self.keep).at_a_time * num_components

    def _plan(self, keep: int, shared: bool = False) -> Plan:
        return Plan(self.num_draws, self.chunk, self.points, self.diagnose_tail, keep, in_turn=shared)

    def run(self, key: jax.Array, target: Target, axes: tuple[str, ...] = ()) -> Estimate:
        """Return the estimates of B problems; devices along the axes divide the draws."""
        alpha = target.prior
        if self.proposal is not None:
            alpha = jnp.broadcast_to(jnp.asarray(self.proposal, alpha.dtype), alpha.shape)
        return importance(
            key,
            target,
            DirichletProposal(alpha),
            self._plan(num_kept(self.keep, target), shared=alpha.ndim == 1),
            corrects=self.proposal is not None,
            logs=self.match == "kl",
            axes=axes,
        )
