"""The inverse-gamma prior of a noise variance, where likelihoods are integrated over it numerically."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln


class VariancePrior(NamedTuple):
    """The prior of ``InverseGamma``, beside other errors that add to the variance of a row.

    Attributes:
      shape: ``(...)``, or 0.
      scale: ``(...)``, or 0.
    """

    shape: Any
    scale: Any

    @property
    def is_relative(self) -> jax.Array:
        """Whether the prior is improper, so that the evidence has an arbitrary constant."""
        return (self.shape <= 0) | (self.scale <= 0)

    def log_density(self, variance: jax.Array, added: jax.Array) -> jax.Array:
        """Return the log-density of the variance; with ``scale=0`` that of the total variance, ``variance + added``.

        With ``scale=0`` the density of the variance alone has an infinite integral near zero, where other errors keep
        the likelihood finite. So the total variance of a row has this prior: for ``shape=0`` it is scale-invariant, as
        without other errors.

        Args:
          variance: where.
          added: typical variance that other errors add to a row.
        """
        proper = ~self.is_relative
        shape, scale = jnp.where(proper, self.shape, 1), jnp.where(proper, self.scale, 1)
        constant = jnp.where(proper, shape * jnp.log(scale) - gammaln(shape), 0)
        whole = variance + jnp.where(self.scale > 0, 0, added)
        return constant - (self.shape + 1) * jnp.log(whole) - self.scale / whole

    def plausible(self, num_rows: jax.Array, half_square: jax.Array, added: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return a variance as large as is plausible, and one beyond which nothing of the posterior lies.

        Beyond its mean the precision has the tail of a gamma distribution of this shape: 16 nats for small shapes, six
        standard deviations for large ones.

        Args:
          num_rows: how many rows count.
          half_square: half the sum of squared residuals.
          added: largest variance that other errors add to a row.
        """
        shape = self.shape + 0.5 * num_rows
        typical = (self.scale + half_square) / shape + added
        return typical, typical * jnp.exp(16 / shape + 6 / jnp.sqrt(shape))
