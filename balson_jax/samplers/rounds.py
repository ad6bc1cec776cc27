"""Importance resampling (RSIRS, ISIRS): a first pass of RS or IS, then R rounds of IS from the last fit.

Round i takes ``Dir(alpha^(i-1))`` as prior *and* proposal, as in the paper, so its weights are the likelihood alone.
After R rounds the data have been counted R + 1 times: the answer is sharper and sparser than the posterior, and its
spread is too small. With ``reuse_data=False`` the weights keep the user's prior in every round (population Monte
Carlo), and the answer is the posterior.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax import lax

from .. import dirichlet
from ..proposals.dirichlet import DefensiveProposal, DirichletProposal
from ..targets.functions import Density
from ..weighting.estimate import Estimate
from .base import DEFAULT_CHUNK, DEFAULT_KEEP, Sampler, match_alpha, num_kept
from .importance import IS, Plan, importance
from .rejection import RS, rejection


def resample(
    key: jax.Array, density: Density, first: Estimate, method: Rounds, axes: tuple[str, ...]
) -> tuple[Estimate, jax.Array]:
    """Run the rounds of importance sampling that follow a first pass; devices along the axes divide the draws.

    Returns:
      The last round's estimate, with the troubles of all rounds in its status, the smallest effective sample and the
      largest Pareto k; and the matched ``alpha``. After a collapsed round the later ones look healthy around a wrong
      place, so the worst round speaks for all.
    """
    if method.rounds == 0:
        return first, match_alpha(first, method.match, density)
    keep = num_kept(method.keep, density)
    plan = Plan(method.num_draws, method.chunk, method.points, method.diagnose_tail, keep)

    def round_of_importance(carry, index):
        last, alpha = carry
        if method.reuse_data:
            proposal = DirichletProposal(alpha)
        else:
            proposal = DefensiveProposal(
                DirichletProposal(alpha), density.prior, jnp.asarray(method.defensive, alpha.dtype)
            )
        found = importance(
            jax.random.fold_in(key, index),
            density,
            proposal,
            plan,
            corrects=not method.reuse_data,
            log_moments=method.match == "kl",
            axes=axes,
        )
        found = dataclasses.replace(
            found,
            status=found.status | last.status,
            ess=jnp.minimum(found.ess, last.ess),
            pareto_k=jnp.maximum(found.pareto_k, last.pareto_k),
        )
        return (found, match_alpha(found, method.match, density)), None

    # The first pass may have kept another number of draws; each round replaces them.
    (num_problems, num_features), num_draws = density.feature_shape, plan.replicates * plan.sizes.slots
    first = dataclasses.replace(
        first,
        draws=jnp.zeros((num_problems, num_features, num_draws), first.mean.dtype),
        draw_weights=jnp.zeros((num_problems, num_draws), first.mean.dtype),
    )
    start = first, match_alpha(first, method.match, density)
    return lax.scan(round_of_importance, start, jnp.arange(method.rounds))[0]


@dataclasses.dataclass(frozen=True)
class Rounds(Sampler):
    """What RSIRS and ISIRS have in common: the rounds of importance sampling after the first pass.

    Not the posterior unless ``reuse_data=False``: each round counts the data once more, which makes the answer sharper
    and sparser. Use them for a sparse point estimate, as the paper does; use ``IS`` or ``RS`` for uncertainty. Their
    ``log_evidence`` is the last round's, for the sharpened prior.

    Attributes:
      num_draws: draws per problem and pass, at least 2.
      rounds: how many rounds follow the first pass; with 0 there is only that.
      reuse_data: ``True`` is the paper's recursion; ``False`` keeps the user's prior in the weights.
      defensive: share of draws from the prior in each round when ``reuse_data=False``, between 0 and 1.
      match: rule for the precision of the approximating Dirichlet (see ``dirichlet.from_moments``).
      points: ``"sobol"`` or ``"pseudo"``, as for ``IS``.
      chunk: draws computed at a time; bounds the memory and does not change the result.
      diagnose_tail: whether Pareto k is computed, which takes half of the time of a large batch. Without it
        ``pareto_k`` is NaN, and ``status`` rests on the effective sample alone.
      keep: how many draws the posterior keeps, for intervals, samples and predictions: a power of two, or 0 for none.
    """

    num_draws: int = dataclasses.field(default=16_384, metadata={"static": True})
    rounds: int = dataclasses.field(default=3, metadata={"static": True})
    reuse_data: bool = dataclasses.field(default=True, metadata={"static": True})
    defensive: float | jax.Array = 0.1
    match: dirichlet.MatchRule = dataclasses.field(default="ratio", metadata={"static": True})
    points: str = dataclasses.field(default="sobol", metadata={"static": True})
    chunk: int = dataclasses.field(default=DEFAULT_CHUNK, metadata={"static": True})
    diagnose_tail: bool = dataclasses.field(default=True, metadata={"static": True})
    keep: int = dataclasses.field(default=DEFAULT_KEEP, metadata={"static": True})

    @property
    def is_sharpened(self) -> bool:
        """Whether the answer counts the data more than once, and is not the posterior."""
        return self.reuse_data and self.rounds > 0

    def elements(self, num_components: int, shares_draws: bool) -> int:
        """Return how many numbers a problem's chunk of draws holds."""
        return min(self.chunk, self.num_draws) * num_components

    def is_valid(self) -> jax.Array:
        """Return whether ``defensive`` is in its domain; usable inside a trace."""
        defensive = jnp.asarray(self.defensive)
        return (defensive > 0) & (defensive < 1)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ISIRS(Rounds):
    """Importance sampling followed by rounds of importance resampling.

    Not the posterior unless ``reuse_data=False``; see ``samplers.Rounds`` for what it is and for its settings.
    """

    name = "isirs"

    def run(self, key: jax.Array, density: Density, axes: tuple[str, ...] = ()) -> tuple[Estimate, jax.Array]:
        """Return the last round's estimates and the matched ``alpha`` of B problems."""
        first_key, round_key = jax.random.split(key)
        first = IS(
            num_draws=self.num_draws,
            match=self.match,
            points=self.points,
            chunk=self.chunk,
            diagnose_tail=self.diagnose_tail,
            keep=self.keep if self.rounds == 0 else 0,
        )
        return resample(round_key, density, first.run(first_key, density, axes)[0], self, axes)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class RSIRS(Rounds):
    """Rejection sampling followed by rounds of importance resampling.

    Not the posterior unless ``reuse_data=False``; see ``samplers.Rounds`` for what it is and for its settings. It has
    no derivatives, and refuses to be differentiated.

    Attributes:
      max_proposals: budget of the first pass.
    """

    max_proposals: int = dataclasses.field(default=1 << 24, metadata={"static": True})

    name = "rsirs"

    def run(self, key: jax.Array, density: Density, axes: tuple[str, ...] = ()) -> tuple[Estimate, jax.Array]:
        """Return the last round's estimates and the matched ``alpha`` of B problems."""
        first_key, round_key = jax.random.split(key)
        first = RS(
            num_draws=self.num_draws,
            max_proposals=self.max_proposals,
            match=self.match,
            chunk=self.chunk,
            keep=self.keep if self.rounds == 0 else 0,
        )
        return resample(round_key, density, rejection(first_key, density, first), self, axes)
