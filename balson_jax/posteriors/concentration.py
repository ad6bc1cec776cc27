"""The posterior of an unknown concentration of the prior, on a grid."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from .. import validation


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ConcentrationPosterior:
    """The posterior of a concentration that all components have in common.

    Attributes:
      values: the grid, at even distances of the logarithms, ``(..., G)``.
      weights: posterior probabilities of the values, ``(..., G)``; NaN where no value has an evidence.
      log_evidence: of each value, ``(..., G)``.
      log_evidence_stderr: its Monte Carlo error, ``(..., G)``.
      status: of the fit with each value, ``(..., G)``.

    >>> grid, even = jnp.array([0.1, 1.0, 10.0]), jnp.zeros(3)
    >>> found = ConcentrationPosterior(grid, jnp.array([0.25, 0.5, 0.25]), even, even, even)
    >>> [round(float(end), 3) for end in found.interval(0.5)]
    [0.316, 3.162]
    """

    values: jax.Array
    weights: jax.Array
    log_evidence: jax.Array
    log_evidence_stderr: jax.Array
    status: jax.Array

    @property
    def mean(self) -> jax.Array:
        """The posterior mean, ``(...)``."""
        return (self.weights * self.values).sum(-1)

    @property
    def std(self) -> jax.Array:
        """The posterior standard deviation, ``(...)``."""
        return jnp.sqrt((self.weights * jnp.square(self.values - self.mean[..., None])).sum(-1))

    def interval(self, level: float = 0.9) -> tuple[jax.Array, jax.Array]:
        """Return the ends of the central interval, ``(...)``; between values the density follows a straight line."""
        validation.require_share("level", level)
        ends = jnp.asarray([0.5 * (1 - level), 0.5 * (1 + level)], self.values.dtype)
        # The outermost values have half a share each (see ``problems.hyperprior``): doubled, they have its density.
        whole = jnp.ones(self.values.shape[-1], self.values.dtype).at[jnp.array([0, -1])].set(2)
        density = whole * self.weights
        below = jnp.cumsum(0.5 * (density[..., 1:] + density[..., :-1]), -1)
        below = jnp.concatenate([jnp.zeros_like(below[..., :1]), below / below[..., -1:]], -1)
        find = jnp.vectorize(lambda below, logs: jnp.interp(ends, below, logs), signature="(g),(g)->(e)")
        found = jnp.exp(find(below, jnp.log(self.values)))
        return found[..., 0], found[..., 1]
