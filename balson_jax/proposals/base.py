"""The proposal interface: a map from points of the unit cube to draws on the simplex, with their log-density."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import jax

from ..random.points import Coordinates


class Given(NamedTuple):
    """Draws from elsewhere whose density is wanted beside new draws.

    Attributes:
      log_omega: ``(B, K, L)``, or ``(K, L)`` if shared.
      chosen: which of L draws are given, ``(L,)``; the others are new.
    """

    log_omega: jax.Array
    chosen: jax.Array


class Proposal(Protocol):
    """The interface of a proposal."""

    @property
    def dims(self) -> int:
        """The number of coordinates of a point."""
        ...

    @property
    def prior_share(self) -> float | jax.Array:
        """The share of draws from the prior. Weights are at most the likelihood divided by this share."""
        ...

    def draw(self, points: Coordinates) -> tuple[jax.Array, jax.Array]:
        """Map L points to ``ln omega`` and its log-density: ``(K, L)``, or ``(B, K, L)`` if draws differ by problem."""
        ...

    def log_prob(self, log_omega: jax.Array) -> jax.Array:
        """Return the log-density of draws. Components are on the second-to-last axis."""
        ...


class MixableProposal(Proposal, Protocol):
    """The interface of a proposal that can be part of a stratified mixture."""

    def draw(self, points: Coordinates, given: Given | None = None) -> tuple[jax.Array, jax.Array]:
        """Map points to draws as any proposal does; given draws are returned as they are, with their log-density."""
        ...
