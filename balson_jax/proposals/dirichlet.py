"""Proposals: maps from points of the unit cube to draws on the simplex, with their log-density."""

from __future__ import annotations

import dataclasses
import math
from typing import Protocol

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import gammaln

from ..random.points import Coordinates, uniform
from ..random.simplex import dims, log_dirichlet

LARGEST_LOG = 80.0
SERIES_FROM = 15.0
PRIOR_SHARE = 8
"""Of so many draws of a divided proposal one comes from the prior."""


class Proposal(Protocol):
    """What a sampler needs of a proposal."""

    @property
    def dims(self) -> int:
        """How many coordinates a point must have."""
        ...

    @property
    def prior_share(self) -> float | jax.Array:
        """Which share of the draws comes from the prior, whatever else: weights are at most likelihoods over it."""
        ...

    def draw(self, points: Coordinates) -> tuple[jax.Array, jax.Array]:
        """Map L points to ``ln omega``, ``(K, L)`` or ``(B, K, L)`` if problems have their own, and its log-density."""
        ...

    def log_prob(self, log_omega: jax.Array) -> jax.Array:
        """Return the log-density of draws, the components on their last axis but one."""
        ...


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class DirichletProposal:
    """``Dir(alpha)`` with ``alpha`` of shape ``(K,)``, or ``(B, K)`` if problems have their own."""

    alpha: jax.Array
    prior_share = 0.0

    @property
    def dims(self) -> int:
        """How many coordinates a point must have."""
        return dims(self.alpha.shape[-1])

    def draw(self, points: Coordinates) -> tuple[jax.Array, jax.Array]:
        """Map points to ``ln omega`` and its log-density."""
        log_omega = log_dirichlet(points, self.alpha)
        return log_omega, self.log_prob(log_omega)

    def log_prob(self, log_omega: jax.Array) -> jax.Array:
        """Return the log-density of draws."""
        return log_dirichlet_density(self.alpha, log_omega)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class DefensiveProposal:
    """The mixture ``share Dir(prior) + (1 - share) proposal``.

    A proposal fitted to the posterior may miss some of it; a Dirichlet fitted to the posterior's moments gives weights
    of infinite variance near the boundary as soon as some ``alpha_k >= 2 prior_k``. A share of draws from the prior
    bounds the weights by ``1 / share`` times the likelihood.
    """

    proposal: Proposal
    prior: jax.Array
    share: jax.Array

    @property
    def dims(self) -> int:
        """How many coordinates a point must have: one more, which chooses the component."""
        return max(dims(self.prior.shape[-1]), self.proposal.dims) + 1

    @property
    def prior_share(self) -> float | jax.Array:
        """Which share of the draws comes from the prior."""
        return self.share

    def draw(self, points: Coordinates) -> tuple[jax.Array, jax.Array]:
        """Map points to ``ln omega`` and its log-density."""
        chooser = points(self.dims - 1, 1)[0]
        from_prior = uniform(chooser, self.prior.dtype) < self.share
        log_omega = jnp.where(from_prior, log_dirichlet(points, self.prior), self.proposal.draw(points)[0])
        return log_omega, self.log_prob(log_omega)

    def log_prob(self, log_omega: jax.Array) -> jax.Array:
        """Return the log-density of the mixture."""
        return _log_mixture(self.share, self.prior, log_omega, self.proposal.log_prob(log_omega))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class DividedProposal:
    """Draws of which every eighth comes from ``Dir(prior)`` and the others from a proposal, weighed as a mixture.

    As ``DefensiveProposal``, but for a share that is fixed: no draw is made twice. The number of draws must be a
    multiple of eight, and all of them must count.
    """

    proposal: Proposal
    prior: jax.Array
    prior_share = 1 / PRIOR_SHARE

    @property
    def dims(self) -> int:
        """How many coordinates a point must have."""
        return max(dims(self.prior.shape[-1]), self.proposal.dims)

    def draw(self, points: Coordinates) -> tuple[jax.Array, jax.Array]:
        """Map points to ``ln omega`` and its log-density."""
        # Every eighth point: in the order in which points are dealt out these, and the others, are balanced.
        from_prior = log_dirichlet(lambda first, dims: points(first, dims)[:, ::PRIOR_SHARE], self.prior)
        own, own_density = self.proposal.draw(lambda first, dims: _without_every(points(first, dims), PRIOR_SHARE))
        from_prior, own = (
            jnp.broadcast_to(part, (*self.prior.shape[:-1], *part.shape[-2:])) for part in (from_prior, own)
        )
        log_omega = _deal(from_prior, own)
        density = _deal(self.proposal.log_prob(from_prior), own_density)
        return log_omega, _log_mixture(1 / PRIOR_SHARE, self.prior, log_omega, density)

    def log_prob(self, log_omega: jax.Array) -> jax.Array:
        """Return the log-density of the mixture."""
        return _log_mixture(1 / PRIOR_SHARE, self.prior, log_omega, self.proposal.log_prob(log_omega))


def _log_mixture(share: float | jax.Array, prior: jax.Array, log_omega: jax.Array, density: jax.Array) -> jax.Array:
    """Return the log-density of a mixture of a share of ``Dir(prior)`` with what has the given log-density."""
    return jnp.logaddexp(jnp.log(share) + log_dirichlet_density(prior, log_omega), jnp.log1p(-share) + density)


def _without_every(values: jax.Array, step: int) -> jax.Array:
    """Return what is left on the last axis without numbers ``0, step, 2 step, ...``."""
    parts = values.reshape(*values.shape[:-1], -1, step)[..., 1:]
    return parts.reshape(*values.shape[:-1], -1)


def _deal(first: jax.Array, others: jax.Array) -> jax.Array:
    """Return values of which every eighth is one of the first, on the last axis."""
    others = others.reshape(*first.shape, PRIOR_SHARE - 1)
    return jnp.concatenate([first[..., None], others], -1).reshape(*first.shape[:-1], -1)


def log_dirichlet_density(alpha: jax.Array, log_omega: jax.Array) -> jax.Array:
    """Return ``ln Dir(alpha)`` of draws ``(..., K, L)`` given by their logarithms, ``(..., L)``.

    About the mean m, where ``sum alpha (omega / m - 1)`` is zero and can be taken off, so that large concentrations
    don't turn the rounding of a draw into nats.
    """
    total = alpha.sum(-1, keepdims=True)
    away = log_omega - (jnp.log(alpha) - jnp.log(total))[..., None]
    bend = away - jnp.expm1(jnp.minimum(away, LARGEST_LOG))
    terms = jnp.einsum("...k,...kl->...l", alpha, bend, precision=lax.Precision.HIGHEST) - log_omega.sum(-2)
    # Stirling's formula without the parts that cancel.
    halves = 0.5 * (jnp.log(alpha).sum(-1) - jnp.log(total[..., 0]))
    constant = halves - 0.5 * (alpha.shape[-1] - 1) * math.log(2 * math.pi)
    constant = constant - _stirling_remainder(alpha).sum(-1) + _stirling_remainder(total[..., 0])
    return terms + constant[..., None]


def _stirling_remainder(a: jax.Array) -> jax.Array:
    """Return ``ln Gamma(a)`` less Stirling's ``(a - 1/2) ln a - a + ln(2 pi) / 2``."""
    small, large = jnp.minimum(a, SERIES_FROM), jnp.maximum(a, SERIES_FROM)
    exact = gammaln(small) - (small - 0.5) * jnp.log(small) + small - 0.5 * math.log(2 * math.pi)
    square = 1 / jnp.square(large)
    series = (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680))) / large
    return jnp.where(a > SERIES_FROM, series, exact)
