"""The proposal interface: a map from points of the unit cube to draws on the simplex, with their log-density."""

from __future__ import annotations

from typing import Protocol

import jax

from ..random.points import Coordinates


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
