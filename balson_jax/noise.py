"""The noise: of a known level, or of an unknown one that is integrated out.

With h half the sum of squared residuals (in units of the rows' own noise, if they have any), the likelihood of N rows
is ``(2 pi s^2)^(-N/2) exp(-h / s^2)`` for a known standard deviation s. With ``s^2`` unknown and an inverse-gamma
prior of shape a and scale b, the integral over it is

    (2 pi)^(-N/2)  b^a / Gamma(a)  Gamma(a + N/2)  (b + h)^-(a + N/2),

a power of the residual sum of squares. For ``a = b = 0`` the prior is ``1 / s^2``, scale-invariant and improper: the
factor ``b^a / Gamma(a)`` is left out, and evidences compare only with others of the same kind.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import digamma, gammaincc, gammaln, ndtri, polygamma

from . import validation

BISECTION_STEPS = 60
SERIES_FROM = 20.0


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class InverseGamma:
    """An inverse-gamma distribution of the noise's variance: a prior to pass as ``noise``, or what a fit found.

    Its density in the variance v is proportional to ``v^-(shape + 1) exp(-scale / v)``. As a prior, ``shape`` weighs
    as much as ``2 shape`` observations whose mean square is ``scale / shape``.

    Attributes:
      shape: a number, or one per problem; 0 with ``scale=0`` is the scale-invariant prior.
      scale: the same.

    >>> found = InverseGamma(shape=jnp.array(10.0), scale=jnp.array(0.4))
    >>> round(float(found.mean), 3), [round(float(end), 3) for end in found.interval(0.9)]
    (0.208, [0.16, 0.272])
    """

    shape: Any = 0.0
    scale: Any = 0.0

    @property
    def mean(self) -> jax.Array:
        """The mean of the standard deviation; infinite for a shape of one half or less."""
        return _mean(jnp.asarray(self.shape), jnp.asarray(self.scale))

    @property
    def std(self) -> jax.Array:
        """The standard deviation of the standard deviation; infinite for a shape of one or less."""
        return _std(jnp.asarray(self.shape), jnp.asarray(self.scale))

    def interval(self, level: float = 0.9) -> tuple[jax.Array, jax.Array]:
        """Return the ends of the central interval of the standard deviation."""
        validation.require_share("level", level)
        return _interval(jnp.asarray(self.shape), jnp.asarray(self.scale), level)


Noise = jax.Array | InverseGamma
"""A known standard deviation, or the prior of an unknown variance."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Correlated:
    """Noise that is correlated between rows: pass it as ``noise``.

    Attributes:
      covariance: ``(..., N, N)``, positive definite; or give ``cholesky``.
      cholesky: its lower factor.
      scale: what the covariance is to be multiplied by the square of: a number, ``"estimate"``, or an
        ``InverseGamma``.
    """

    covariance: Any = None
    cholesky: Any = None
    scale: Any = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.scale, str) and self.scale == "estimate":
            object.__setattr__(self, "scale", InverseGamma())  # so that all fields are numbers


def log_likelihood(noise: Noise, num_rows: jax.Array, half_square: jax.Array) -> jax.Array:
    """Return the log-likelihood of rows from half the sum of their squared residuals, broadcasting."""
    constant = -0.5 * np.log(2 * np.pi) * num_rows
    if not isinstance(noise, InverseGamma):
        return constant - num_rows * jnp.log(noise) - half_square / jnp.square(noise)
    proper = (noise.shape > 0) & (noise.scale > 0)
    shape, scale = jnp.where(proper, noise.shape, 1), jnp.where(proper, noise.scale, 1)
    prior = jnp.where(proper, shape * jnp.log(scale) - gammaln(shape), 0)
    power = noise.shape + 0.5 * num_rows
    return constant + prior + gammaln(power) - power * jnp.log(noise.scale + half_square)


def log_ratio(noise: Noise, num_rows: jax.Array, base: jax.Array, excess: jax.Array) -> jax.Array:
    """Return the log-likelihood at half-squares ``base + excess`` less that at ``base``; exact for a small excess."""
    if not isinstance(noise, InverseGamma):
        return -excess / jnp.square(noise)
    return -(noise.shape + 0.5 * num_rows) * jnp.log1p(excess / (noise.scale + base))


def match_posterior(
    prior: InverseGamma, num_rows: jax.Array, half_square: jax.Array, weights: jax.Array
) -> InverseGamma:
    """Return the inverse gamma with the posterior's mean and variance of ``ln s^2``.

    Given theta, the variance is inverse gamma of known shape; its posterior is a mixture of these over theta.

    Args:
      prior: fields ``(...)``.
      num_rows: ``(...)``.
      half_square: half-squares of draws of theta, ``(..., D)``.
      weights: of the draws, ``(..., D)``, of sum one.
    """
    shape = prior.shape + 0.5 * num_rows
    log_scale = jnp.log(prior.scale[..., None] + half_square)
    # A draw of no weight may have any half-square.
    log_scale = jnp.where(weights > 0, log_scale, 0)
    mean = (weights * log_scale).sum(-1)
    variance = (weights * jnp.square(log_scale - mean[..., None])).sum(-1)
    matched = _inverse_trigamma(polygamma(1, shape) + variance)
    return InverseGamma(matched, jnp.exp(mean - digamma(shape) + digamma(matched)))


@jax.jit
def _mean(shape: jax.Array, scale: jax.Array) -> jax.Array:
    exists = shape > 0.5
    return jnp.where(exists, jnp.sqrt(scale) * jnp.exp(_log_gamma_step(jnp.where(exists, shape, 1))), jnp.inf)


@jax.jit
def _std(shape: jax.Array, scale: jax.Array) -> jax.Array:
    exists = shape > 1
    safe = jnp.where(exists, shape, 2)
    # ln(E[s]^2 / E[s^2]): small for a large shape, where the logarithms would cancel but for the series.
    small = jnp.log1p(-0.25 / (safe - 0.75)) + 2 * _step_series(safe)
    log_ratio = jnp.where(safe > SERIES_FROM, small, 2 * _log_gamma_step(safe) + jnp.log(safe - 1))
    return jnp.where(exists, jnp.sqrt(scale / (safe - 1) * -jnp.expm1(log_ratio)), jnp.inf)


def _log_gamma_step(shape: jax.Array) -> jax.Array:
    """Return ``ln(Gamma(shape - 1/2) / Gamma(shape))``, without the cancellation that a large shape would bring."""
    small = jnp.minimum(shape, SERIES_FROM)
    exact = gammaln(small - 0.5) - gammaln(small)
    return jnp.where(shape > SERIES_FROM, -0.5 * jnp.log(jnp.maximum(shape - 0.75, 1)) + _step_series(shape), exact)


def _step_series(shape: jax.Array) -> jax.Array:
    """Return ``ln(Gamma(shape - 1/2) / Gamma(shape) sqrt(shape - 3/4))`` for a large shape."""
    inverse_square = 1 / jnp.square(jnp.maximum(shape - 0.75, 1))
    return inverse_square * (-1 / 64 + 5 / 2048 * inverse_square)


def _inverse_trigamma(value: jax.Array) -> jax.Array:
    """Return the x at which trigamma is ``value``, by Newton's method on its reciprocal, which is almost linear."""

    def step(_, x):
        trigamma = polygamma(1, x)
        return x + trigamma * (1 - trigamma / value) / polygamma(2, x)

    return lax.fori_loop(0, 8, step, 0.5 + 1 / value)


@jax.jit
def _interval(shape: jax.Array, scale: jax.Array, level: float) -> tuple[jax.Array, jax.Array]:
    tail = 0.5 * (1 - jnp.asarray(level, jnp.result_type(shape, scale)))

    def log_quantile(probability):
        # Of ln(variance / scale): the probability that scale / Gamma(shape) lies below.
        centre, reach = -digamma(shape), 40 * jnp.sqrt(polygamma(1, shape)) + 40 / shape

        def halve(_, bracket):
            low, high = bracket
            middle = 0.5 * (low + high)
            below = gammaincc(shape, jnp.exp(-middle)) < probability
            return jnp.where(below, middle, low), jnp.where(below, high, middle)

        low, high = lax.fori_loop(0, BISECTION_STEPS, halve, (centre - reach, centre + reach))
        # Wilson and Hilferty (1931): as good for a large shape, where float32's incomplete gamma function is not.
        cube_root = 1 - 1 / (9 * shape) - ndtri(probability) / (3 * jnp.sqrt(shape))
        return jnp.where(shape > 1000, -jnp.log(shape) - 3 * jnp.log(cube_root), 0.5 * (low + high))

    lower, upper = (jnp.sqrt(scale) * jnp.exp(0.5 * log_quantile(p)) for p in (tail, 1 - tail))
    unknown = ~(jnp.isfinite(shape) & jnp.isfinite(scale) & (shape > 0))
    return jnp.where(unknown, jnp.nan, lower), jnp.where(unknown, jnp.nan, upper)
