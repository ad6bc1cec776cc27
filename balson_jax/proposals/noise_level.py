"""Noise of unknown level: its precision is drawn beside omega."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax import lax

from ..random.gamma_quantile import ALPHA_MIN, unlifted
from ..targets import Quadratic
from .base import Given
from .dirichlet import stirling_remainder

SMALLEST_SHAPE = max(ALPHA_MIN, 0.5)
"""Gamma variates of smaller shapes would need a second number."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class NoiseLevel:
    """The precision of noise of unknown level, relative to the likeliest: a second unknown beside omega.

    Integrated over it the posterior of omega has the tails of a t distribution, which no truncated Gaussian covers.
    Given it, the posterior is Gaussian again. So both are drawn: the precision from ``Gamma(a - free / 2) / rate``,
    its posterior if the data determine so many components and no wall is near, and omega given the precision.
    Weights are those of both: the posterior times the precision's density given omega, ``Gamma(a) / (a + u)`` with u
    the loss of log-likelihood at the likeliest level. Draws of the prior have a precision from the latter, so their
    bound of the weights holds.

    Attributes:
      shape: ``a``, half the number of rows plus the shape of the noise's prior, ``(B,)``.
      free: number of components that the data determine, ``(B,)``.
      usual: the precision where the Gaussian was made, ``a / rate``, ``(B,)``.
      quadratic: the log-likelihoods at the likeliest level.
    """

    shape: jax.Array
    free: jax.Array
    usual: jax.Array
    quadratic: Quadratic

    @property
    def _drawn_shape(self) -> jax.Array:
        return jnp.maximum(self.shape - 0.5 * self.free, SMALLEST_SHAPE)

    def draw(self, bits: jax.Array, given: Given | None) -> jax.Array:
        """Return log-precisions, ``(B, L)``, from integer points, ``(L,)``; those of given draws given omega."""
        new = self._variates(bits, self._drawn_shape) + jnp.log(self.usual / self.shape)[:, None]
        if given is None:
            return new
        rate = self.shape[:, None] + self.loss(jnp.exp(given.log_omega))
        return jnp.where(given.chosen, self._variates(bits, self.shape) - jnp.log(rate), new)

    def _variates(self, bits: jax.Array, shape: jax.Array) -> jax.Array:
        return unlifted(bits[None], shape[:, None], rolled=True)[:, 0]

    def log_density(self, log_precision: jax.Array, log_omega: jax.Array) -> jax.Array:
        """Return the log-density of precisions as they are drawn, over that given omega, ``(B, L)``."""
        shape, drawn = self.shape[:, None], self._drawn_shape[:, None]
        loss = self.loss(jnp.exp(log_omega))
        # The ratio of the two densities has the constant Gamma(a) / (Gamma(b) a^(a - b)). By Stirling's formula, whose
        # large terms cancel, its logarithm is -(b - 1/2) ln(b / a) - (a - b) plus the difference of the remainders.
        less = shape - drawn
        constant = -(drawn - 0.5) * jnp.log1p(-less / shape) - less
        constant = constant + stirling_remainder(shape) - stirling_remainder(drawn)
        constant = constant - drawn * jnp.log(self.usual)[:, None]
        beyond = loss + shape * (1 - 1 / self.usual[:, None])  # rate given omega less the rate of the draws
        change = (drawn - shape) * log_precision + jnp.exp(log_precision) * beyond
        return constant + change - shape * jnp.log1p(loss / shape)

    def loss(self, omega: jax.Array) -> jax.Array:
        """Return the loss of log-likelihood of draws ``(B, K, L)`` at the likeliest level, ``(B, L)``."""
        away = omega - self.quadratic.optimum[:, :, None]
        fitted = jnp.matmul(self.quadratic.root, away, precision=lax.Precision.HIGHEST)
        linear = jnp.einsum("bk,bkl->bl", self.quadratic.gradient, away, precision=lax.Precision.HIGHEST)
        return jnp.maximum(linear, 0) + 0.5 * jnp.square(fitted).sum(1)
