"""Dirichlet proposals, and their log-density without cancellation."""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import gammaln

from ..random.points import Coordinates
from ..random.simplex import dims, log_dirichlet
from .base import Given

LARGEST_LOG = 80.0
"""Exponents are clipped here, below the overflow of float32."""

SERIES_FROM = 15.0
"""Stirling's series is used for arguments above this."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class DirichletProposal:
    """``Dir(alpha)`` with ``alpha`` of shape ``(K,)``, or ``(B, K)`` if it differs by problem."""

    alpha: jax.Array
    prior_share = 0.0

    @property
    def dims(self) -> int:
        """The number of coordinates of a point."""
        return dims(self.alpha.shape[-1])

    def draw(self, points: Coordinates, given: Given | None = None) -> tuple[jax.Array, jax.Array]:
        """Map points to ``ln omega`` and its log-density."""
        log_omega = log_dirichlet(points, self.alpha)
        if given is not None:
            log_omega = jnp.where(given.chosen, given.log_omega, log_omega)
        return log_omega, self.log_prob(log_omega)

    def log_prob(self, log_omega: jax.Array) -> jax.Array:
        """Return the log-density of draws."""
        return log_dirichlet_density(self.alpha, log_omega)


def log_dirichlet_density(alpha: jax.Array, log_omega: jax.Array) -> jax.Array:
    """Return ``ln Dir(alpha)``, ``(..., L)``, at draws given by their logarithms, ``(..., K, L)``.

    Large concentrations would turn the rounding error of a draw into nats. The density is therefore expanded about the
    mean m, with ``d = ln(omega / m)``. Because ``sum alpha expm1(d) = sum alpha (omega / m - 1) = 0``, the sum of
    ``alpha d`` equals the sum of ``alpha (d - expm1(d))``, whose terms are of second order in d.
    """
    total = alpha.sum(-1, keepdims=True)
    away = log_omega - (jnp.log(alpha) - jnp.log(total))[..., None]
    bend = away - jnp.expm1(jnp.minimum(away, LARGEST_LOG))
    terms = jnp.einsum("...k,...kl->...l", alpha, bend, precision=lax.Precision.HIGHEST) - log_omega.sum(-2)
    # The normalising constant by Stirling's formula. Its terms a ln a and a cancel and are left out.
    halves = 0.5 * (jnp.log(alpha).sum(-1) - jnp.log(total[..., 0]))
    constant = halves - 0.5 * (alpha.shape[-1] - 1) * math.log(2 * math.pi)
    constant = constant - stirling_remainder(alpha).sum(-1) + stirling_remainder(total[..., 0])
    return terms + constant[..., None]


def stirling_remainder(a: jax.Array) -> jax.Array:
    """Return ``ln Gamma(a)`` minus Stirling's ``(a - 1/2) ln a - a + ln(2 pi) / 2``.

    For large a by the series ``1/(12 a) - 1/(360 a^3) + 1/(1260 a^5) - 1/(1680 a^7)`` (Abramowitz and Stegun 6.1.41).
    """
    small, large = jnp.minimum(a, SERIES_FROM), jnp.maximum(a, SERIES_FROM)
    exact = gammaln(small) - (small - 0.5) * jnp.log(small) + small - 0.5 * math.log(2 * math.pi)
    square = 1 / jnp.square(large)
    series = (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680))) / large
    return jnp.where(a > SERIES_FROM, series, exact)
