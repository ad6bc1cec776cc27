"""Proposals: maps from points of the unit cube to draws on the simplex, with their log-density."""

from __future__ import annotations

import dataclasses
from typing import Protocol

import jax
import jax.numpy as jnp
from jax import lax

from . import dirichlet
from .random.points import Coordinates, uniform
from .random.simplex import dims, log_dirichlet


class Proposal(Protocol):
    """What a sampler needs of a proposal."""

    @property
    def dims(self) -> int:
        """How many coordinates a point must have."""
        ...

    def draw(self, points: Coordinates) -> jax.Array:
        """Map L points to ``ln omega``, ``(K, L)``, or ``(B, K, L)`` if problems have their own draws."""
        ...

    def log_prob(self, log_omega: jax.Array) -> jax.Array:
        """Return the log-density of draws, the components on their last axis but one."""
        ...


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class DirichletProposal:
    """``Dir(alpha)`` with ``alpha`` of shape ``(K,)``, or ``(B, K)`` if problems have their own."""

    alpha: jax.Array

    @property
    def dims(self) -> int:
        """How many coordinates a point must have."""
        return dims(self.alpha.shape[-1])

    def draw(self, points: Coordinates) -> jax.Array:
        """Map points to ``ln omega``."""
        return log_dirichlet(points, self.alpha)

    def log_prob(self, log_omega: jax.Array) -> jax.Array:
        """Return the log-density of draws."""
        return log_dirichlet_density(self.alpha, log_omega)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class DefensiveProposal:
    """The mixture ``share Dir(prior) + (1 - share) Dir(alpha)``.

    A Dirichlet fitted to the posterior's moments alone gives weights of infinite variance near the boundary as soon
    as some ``alpha_k >= 2 prior_k``. A share of draws from the prior bounds them by ``1 / share``.
    """

    alpha: jax.Array
    prior: jax.Array
    share: jax.Array

    @property
    def dims(self) -> int:
        """How many coordinates a point must have: one more, which chooses the component."""
        return dims(self.alpha.shape[-1]) + 1

    def draw(self, points: Coordinates) -> jax.Array:
        """Map points to ``ln omega``."""
        chooser = points(self.dims - 1, 1)[0]
        from_prior = uniform(chooser, self.alpha.dtype) < self.share
        return jnp.where(from_prior, log_dirichlet(points, self.prior), log_dirichlet(points, self.alpha))

    def log_prob(self, log_omega: jax.Array) -> jax.Array:
        """Return the log-density of the mixture."""
        return jnp.logaddexp(
            jnp.log(self.share) + log_dirichlet_density(self.prior, log_omega),
            jnp.log1p(-self.share) + log_dirichlet_density(self.alpha, log_omega),
        )


def log_dirichlet_density(alpha: jax.Array, log_omega: jax.Array) -> jax.Array:
    """Return ``ln Dir(alpha)`` of draws ``(..., K, L)`` given by their logarithms, ``(..., L)``."""
    terms = jnp.einsum("...k,...kl->...l", alpha - 1, log_omega, precision=lax.Precision.HIGHEST)
    return terms - dirichlet.log_normalizer(alpha)[..., None]
