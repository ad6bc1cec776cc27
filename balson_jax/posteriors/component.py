"""One component of a posterior, by its name."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from .. import validation
from .intervals import quantiles, shortest


class Component(NamedTuple):
    """The posterior of one component of theta, ``posterior["Utah"]``; a batch's axes lead every field.

    Attributes:
      name: of the component.
      mean: posterior mean, ``(...)``, from all weighted draws.
      std: posterior standard deviation, ``(...)``, from all weighted draws.
      draws: some draws that represent all, ``(..., D)``.
      draw_weights: their weights, of sum one, ``(..., D)``.
      least: the smallest possible value, ``(...)``.
      most: the largest possible value, ``(...)``.
    """

    name: str
    mean: jax.Array
    std: jax.Array
    draws: jax.Array
    draw_weights: jax.Array
    least: jax.Array
    most: jax.Array

    def interval(self, level: float = 0.9) -> tuple[jax.Array, jax.Array]:
        """Return the ends of the central interval, ``(...)``: quantiles of the kept draws."""
        tail = 0.5 * (1 - self._level("interval", level))
        return quantiles(self.draws, self.draw_weights, tail)

    def hdi(self, level: float = 0.9) -> tuple[jax.Array, jax.Array]:
        """Return the ends of the shortest interval, ``(...)``; see ``Posterior.hdi``."""
        return shortest(self.draws, self.draw_weights, self._level("hdi", level), self.least, self.most)

    def _level(self, name: str, level: float) -> jax.Array:
        validation.require_share("level", level)
        if not self.draws.shape[-1]:
            raise ValueError(f"{name} needs kept draws; {REMEDY}")
        return jnp.asarray(level, self.mean.dtype)


REMEDY = "none were kept: fit with a method whose keep is above 0, such as IS(keep=512)"
