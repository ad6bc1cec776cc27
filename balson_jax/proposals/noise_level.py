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

WIDEST = 0.25
"""The shape b of the draws is at least this share of a, the shape of the precision given omega. A smaller b is wider
and safer. Where b = a would be right, b = a / 4 leaves two thirds of the draws effective."""

TAIL_SHARE = 0.6
"""No tail makes b smaller than this share of the posterior's shape: walls end tails, and draws in them are lost."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class NoiseLevel:
    """The precision of noise of unknown level, relative to the likeliest: a second unknown beside omega.

    Integrated over it the posterior of omega has the tails of a t distribution, which no truncated Gaussian covers.
    Given it, the posterior is Gaussian again. So both are drawn: the precision from ``Gamma(b) / rate``, and omega
    given the precision. A weight is the posterior of omega times the density of the precision given
    omega, ``Gamma(a) / (a + u)`` with u the loss of log-likelihood at the likeliest level, over the density of the pair
    as drawn. Draws of the prior take their precision from that same conditional, so it cancels, and their bound of the
    weights holds.

    The posterior of the precision is ``p^(a - 1) exp(-a p) Z(p)``, where Z is the evidence for known noise, and
    ``-d ln Z / d ln p = E[p u]``. Each component that the data determine adds 1/2 to ``E[p u]``. A component pressed
    hard to a wall adds its concentration. One whose optimum is at the wall adds half its concentration. In each case
    Z is a power of p, and the posterior is ``Gamma(a - E[p u]) / a``. If the prior keeps omega away from where the data
    are, Z falls exponentially and the posterior is narrower than that, about the same mean.

    With c the shape of the posterior, and ``|theta|^2`` about ``1 / p`` for small p, the error of a variance rests on
    the mean of ``weight^2 |theta|^4``, the integral of ``p^(2 (c - b) + b - 1 - 2)`` near zero. It is finite if
    ``b < 2 c - 2``, which matters for few rows. Walls end the tail, so b is not made as small as that at any price.

    Attributes:
      shape: ``a``, half the number of rows plus the shape of the noise's prior, ``(B,)``.
      drawn: ``b``, ``(B,)``.
      usual: the precision where the Gaussian was made, ``(B,)``.
      quadratic: the log-likelihoods at the likeliest level.
    """

    shape: jax.Array
    drawn: jax.Array
    usual: jax.Array
    quadratic: Quadratic

    @staticmethod
    def of(
        shape: jax.Array, usual: jax.Array, determined: jax.Array, unseen: jax.Array, quadratic: Quadratic
    ) -> NoiseLevel:
        """Return the level for a Gaussian made at a precision ``a / (a + u)``, with u the loss at its centre.

        Args:
          shape: ``a``, ``(B,)``.
          usual: that precision, ``(B,)``; so ``a - usual u = a usual``.
          determined: number of components that the data determine, ``(B,)``.
          unseen: what the centre does not tell of the concentrations of components at walls, ``(B,)``.
          quadratic: the log-likelihoods at the likeliest level.
        """
        posterior = shape * usual - 0.5 * determined
        tail = posterior - unseen
        drawn = jnp.minimum(posterior, jnp.maximum(2 * tail - 2, TAIL_SHARE * tail))
        drawn = jnp.maximum(drawn, jnp.maximum(WIDEST * shape, SMALLEST_SHAPE))
        return NoiseLevel(shape, drawn, usual, quadratic)

    @property
    def _excess_rate(self) -> jax.Array:
        """The rate of the draws less ``a``, ``(B,)``: where the shape is cut off below, it keeps the mean."""
        return jnp.maximum(self.drawn / self.usual - self.shape, 0)

    def draw(self, bits: jax.Array, given: Given | None) -> jax.Array:
        """Return log-precisions, ``(B, L)``, from integer points, ``(L,)``; those of given draws given omega."""
        new = self._variates(bits, self.drawn) - jnp.log(self.shape + self._excess_rate)[:, None]
        if given is None:
            return new
        rate = self.shape[:, None] + self.loss(jnp.exp(given.log_omega))
        return jnp.where(given.chosen, self._variates(bits, self.shape) - jnp.log(rate), new)

    def _variates(self, bits: jax.Array, shape: jax.Array) -> jax.Array:
        return unlifted(bits[None], shape[:, None], rolled=True)[:, 0]

    def log_density(self, log_precision: jax.Array, log_omega: jax.Array) -> jax.Array:
        """Return the log-density of precisions as they are drawn, over that given omega, ``(B, L)``."""
        shape, drawn, excess = (part[:, None] for part in (self.shape, self.drawn, self._excess_rate))
        loss = self.loss(jnp.exp(log_omega))
        # The constant is b ln r - ln Gamma(b) - a ln a + ln Gamma(a). By Stirling's formula, whose large terms cancel,
        # it is b ln(r / b) + ln(b / a) / 2 - (a - b) plus the difference of the remainders.
        less = shape - drawn
        relative = jnp.log1p(-less / shape)  # ln(b / a)
        constant = drawn * (jnp.log1p(excess / shape) - relative) + 0.5 * relative - less
        constant = constant + stirling_remainder(shape) - stirling_remainder(drawn)
        change = -less * log_precision + jnp.exp(log_precision) * (loss - excess)
        return constant + change - shape * jnp.log1p(loss / shape)

    def loss(self, omega: jax.Array) -> jax.Array:
        """Return the loss of log-likelihood of draws ``(B, K, L)`` at the likeliest level, ``(B, L)``."""
        away = omega - self.quadratic.optimum[:, :, None]
        fitted = jnp.matmul(self.quadratic.root, away, precision=lax.Precision.HIGHEST)
        linear = jnp.einsum("bk,bkl->bl", self.quadratic.gradient, away, precision=lax.Precision.HIGHEST)
        return jnp.maximum(linear, 0) + 0.5 * jnp.square(fitted).sum(1)
