"""One component of the truncated Gaussian, given the previous ones (see ``gaussian``)."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax import lax

from ..random.truncated_logistic import LogisticCut, cut

MAX_POLE_SHARE = 0.99
"""Largest share of the pole, so that the truncated Gaussian always covers the whole interval."""


@dataclasses.dataclass(frozen=True)
class FlatConditional:
    """One component given the previous ones for a flat prior: nearly a truncated Gaussian.

    Attributes:
      scale: standard deviation of the Gaussian before truncation.
      interval: the truncation, in units of ``scale``.
    """

    scale: jax.Array
    interval: LogisticCut

    @staticmethod
    def of(centre: jax.Array, scale: jax.Array, left: jax.Array) -> FlatConditional:
        """Return the conditional of a Gaussian before truncation, ``N(centre, scale^2)``, on ``(0, left)``."""
        return FlatConditional(scale, cut(-centre / scale, jnp.maximum(left, jnp.finfo(left.dtype).tiny) / scale))

    def draw(self, below, above):
        """Return ``ln x``, x, and the remaining sum."""
        from_low, from_high = self.interval.quantile(below, above)
        x = self.scale * from_low
        return jnp.log(jnp.maximum(x, jnp.finfo(x.dtype).tiny)), x, self.scale * from_high

    def log_density(self, log_x, x, later):
        """Return the log-density of x; ``later`` is the remaining sum after x."""
        return self.interval.log_density(x / self.scale, later / self.scale) - jnp.log(self.scale)


@dataclasses.dataclass(frozen=True)
class Conditional:
    """One component given the previous ones: nearly a truncated Gaussian, with a pole at zero if ``alpha < 1``.

    Attributes:
      alpha: exponent of the pole, at most 1.
      scale: standard deviation of the Gaussian before truncation.
      interval: the truncation, in units of ``scale``.
      left: the remaining sum, which is the upper end of the interval.
      share: probability of the pole.
      pole_width: the pole has density ``alpha x^(alpha - 1) / pole_width^alpha`` on ``(0, pole_width)``.
    """

    alpha: jax.Array
    scale: jax.Array
    interval: LogisticCut
    left: jax.Array
    share: jax.Array
    pole_width: jax.Array

    @staticmethod
    def of(centre: jax.Array, scale: jax.Array, left: jax.Array, alpha: jax.Array) -> Conditional:
        """Return the conditional of ``N(centre, scale^2) x^(alpha - 1)`` on ``(0, left)``."""
        left = jnp.maximum(left, jnp.finfo(left.dtype).tiny)
        # For alpha > 1 the target is N(x) x^(alpha - 1). At the root y of y^2 - centre y - alpha scale^2 its
        # logarithm has slope -1 / y. (With the centre far below zero the target is a gamma density, and y its mean.)
        # Choose the Gaussian with that slope at y. A share ((alpha - 1) / (alpha + 1))^2 of the prior's curvature
        # (alpha - 1) / y^2 narrows it; all of it would make the tails of a skewed density too light. The share was
        # chosen by trial: 0 for alpha = 1, where nothing must change, and 1 for large alpha, where the prior is normal.
        power = jnp.maximum(alpha, 1)
        place = jnp.maximum(_root(centre, power * jnp.square(scale)), jnp.finfo(left.dtype).tiny)
        narrowing = jnp.square(scale / place) * (power - 1) * jnp.square((power - 1) / (power + 1))
        narrowed = scale * lax.rsqrt(1 + narrowing)
        moved = jnp.where(power > 1, place - jnp.square(narrowed) / place, centre)
        interval = cut(-moved / narrowed, left / narrowed)
        # Share of the pole for alpha < 1. The target is N(x) x^(alpha - 1), with N the truncated Gaussian of mass one.
        # Let m be a typical x. Near zero the target is about N(0) x^(alpha - 1), with mass N(0) m^alpha / alpha on
        # (0, m). Elsewhere it is about N(x) m^(alpha - 1), with mass m^(alpha - 1). The odds of the pole are the ratio
        # of these masses, N(0) m / alpha. For m take the positive root of x^2 - centre x - scale^2: about centre if
        # centre >> scale, scale if centre = 0, and the decay length scale^2 / |centre| if centre << -scale.
        middle = jnp.minimum(_root(centre, jnp.square(scale)), left)
        exponent = jnp.minimum(alpha, 1)
        at_zero = interval.log_density(jnp.zeros_like(left), left / narrowed) - jnp.log(narrowed)
        odds = jnp.exp(jnp.minimum(at_zero, 80)) * middle / exponent
        share = jnp.where(alpha < 1, jnp.minimum(odds / (1 + odds), MAX_POLE_SHARE), 0)
        return Conditional(exponent, narrowed, interval, left, share, middle)

    def draw(self, below, above):
        """Return ``ln x``, x, and the remaining sum."""
        # Probabilities below the share select the pole, the others the truncated Gaussian.
        in_pole, rest = below < self.share, 1 - self.share
        smooth_below, smooth_above = (below - self.share) / rest, jnp.minimum(above / rest, 1)
        smooth_below = jnp.clip(smooth_below, 0.5 * jnp.finfo(below.dtype).epsneg * (self.share > 0), 1)
        from_low, from_high = self.interval.quantile(smooth_below, smooth_above)
        x, left = self.scale * from_low, self.scale * from_high
        within = jnp.where(in_pole, below / jnp.where(in_pole, self.share, 1), 1)
        log_pole = jnp.log(self.pole_width) + jnp.log(within) / self.alpha
        pole = jnp.exp(log_pole)
        # A draw from the pole may underflow; its logarithm does not.
        log_smooth = jnp.log(jnp.maximum(x, jnp.finfo(x.dtype).tiny))
        log_x, x = jnp.where(in_pole, log_pole, log_smooth), jnp.where(in_pole, pole, x)
        return log_x, x, jnp.where(in_pole, jnp.maximum(self.left - pole, 0), left)

    def log_density(self, log_x, x, later):
        """Return the log-density of x; ``later`` is the remaining sum after x."""
        smooth = self.interval.log_density(x / self.scale, later / self.scale) - jnp.log(self.scale)
        pole = jnp.log(self.alpha) + (self.alpha - 1) * log_x - self.alpha * jnp.log(self.pole_width)
        pole = jnp.where(
            (x <= self.pole_width) & (self.share > 0),
            pole + jnp.log(jnp.where(self.share > 0, self.share, 1)),
            -jnp.inf,
        )
        return jnp.logaddexp(smooth + jnp.log1p(-self.share), pole)


def _root(centre: jax.Array, product: jax.Array) -> jax.Array:
    """Return the positive root of ``x^2 - centre x - product``, without cancellation."""
    size = jnp.hypot(centre, 2 * jnp.sqrt(product))
    positive = 0.5 * (jnp.abs(centre) + size)
    return jnp.where(centre >= 0, positive, product / jnp.where(positive > 0, positive, 1))
