"""Mixtures of a proposal with the prior, which bound the weights."""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp

from ..random.points import Coordinates, uniform
from ..random.simplex import dims, log_dirichlet, log_uniform
from .base import Given, MixableProposal, Proposal
from .dirichlet import log_dirichlet_density

PRIOR_SHARE = 8
"""In a divided proposal, one draw in eight comes from the prior."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class DefensiveProposal:
    """The mixture ``share Dir(prior) + (1 - share) proposal``.

    A proposal fitted to the posterior may miss part of it. A Dirichlet fitted to the posterior's moments has weights of
    infinite variance if some ``alpha_k >= 2 prior_k``: near ``omega_k = 0`` the second moment of the weights is the
    integral of ``omega_k ** (2 prior_k - alpha_k - 1)``. A share of draws from the prior bounds the weights by the
    likelihood divided by the share (defensive mixture, Hesterberg 1995).
    """

    proposal: Proposal
    prior: jax.Array
    share: jax.Array

    @property
    def dims(self) -> int:
        """The number of coordinates of a point, including one that selects the mixture component."""
        return max(dims(self.prior.shape[-1]), self.proposal.dims) + 1

    @property
    def prior_share(self) -> float | jax.Array:
        """The share of draws from the prior."""
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
    """A stratified defensive mixture: every eighth draw comes from ``Dir(prior)``, the others from a proposal.

    The density is that of the mixture, as in ``DefensiveProposal``, but the share is fixed. Each draw is made once,
    whereas ``DefensiveProposal`` draws from both components and selects. The number of draws must be a multiple of
    eight, and none of them may be discarded.

    Attributes:
      proposal: the other component.
      prior: concentrations, ``(B, K)``.
      is_flat: whether they are all known to be 1.
    """

    proposal: MixableProposal
    prior: jax.Array
    is_flat: bool = dataclasses.field(default=False, metadata={"static": True})
    prior_share = 1 / PRIOR_SHARE

    @property
    def _common(self) -> int:
        """Number of coordinates that both components use: those of K variates, and of a noise level."""
        return self.prior.shape[-1] + 1

    @property
    def dims(self) -> int:
        """The number of coordinates of a point; the last K are the second numbers that small concentrations need."""
        return self._common + self.prior.shape[-1]

    def draw(self, points: Coordinates) -> tuple[jax.Array, jax.Array]:
        """Map points to ``ln omega`` and its log-density."""
        common = points(0, self._common)  # made once

        def own(first: int, dims: int) -> jax.Array:
            if first + dims <= self._common:
                return common[first : first + dims]
            return points(first + self._common - self.prior.shape[-1], dims)

        # Sobol points are dealt (see random.sobol), so every eighth point is a balanced subset, and so are the others.
        def thinned(first: int, dims: int) -> jax.Array:
            return own(first, dims)[:, ::PRIOR_SHARE]

        if self.is_flat:
            from_prior = log_uniform(thinned, self.prior.shape[-1], self.prior.dtype)
        else:
            from_prior = log_dirichlet(thinned, self.prior, rolled=True)
        given = jnp.repeat(from_prior, PRIOR_SHARE, axis=-1)
        chosen = jnp.arange(given.shape[-1]) % PRIOR_SHARE == 0
        log_omega, density = self.proposal.draw(own, Given(given, chosen))
        return log_omega, self._mixed(log_omega, density)

    def log_prob(self, log_omega: jax.Array) -> jax.Array:
        """Return the log-density of the mixture."""
        return self._mixed(log_omega, self.proposal.log_prob(log_omega))

    def _mixed(self, log_omega: jax.Array, density: jax.Array) -> jax.Array:
        if self.is_flat:  # the density of the prior is a constant
            own = math.lgamma(self.prior.shape[-1]) - math.log(PRIOR_SHARE)
            return jnp.logaddexp(own, math.log1p(-1 / PRIOR_SHARE) + density)
        return _log_mixture(1 / PRIOR_SHARE, self.prior, log_omega, density)


def _log_mixture(share: float | jax.Array, prior: jax.Array, log_omega: jax.Array, density: jax.Array) -> jax.Array:
    """Return the log-density of ``share Dir(prior) + (1 - share) q``, with ``density`` the log-density of q."""
    return jnp.logaddexp(jnp.log(share) + log_dirichlet_density(prior, log_omega), jnp.log1p(-share) + density)
