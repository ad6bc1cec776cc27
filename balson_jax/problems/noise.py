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
from jax.scipy.special import digamma, gammaincc, gammaln, ndtr, polygamma

from .. import validation

BISECTION_STEPS = 40
SERIES_FROM = 20.0
NORMAL_FROM = 1000.0
BINS = 16
"""The posterior of the noise has so many components."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class InverseGamma:
    """A prior of the noise's variance, to pass as ``noise``.

    Its density in the variance v is proportional to ``v^-(shape + 1) exp(-scale / v)``. It weighs as much as
    ``2 shape`` observations whose mean square is ``scale / shape``.

    Attributes:
      shape: a number, or one per problem; 0 with ``scale=0`` is the scale-invariant prior.
      scale: the same. If either is 0 the prior is improper, and the evidence has an arbitrary constant.
    """

    shape: Any = 0.0
    scale: Any = 0.0


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


def likeliest_level(noise: Noise, num_rows: jax.Array, half_square: jax.Array) -> jax.Array:
    """Return the standard deviation, if it is known; else the likeliest at a half-square."""
    if not isinstance(noise, InverseGamma):
        return jnp.broadcast_to(noise, jnp.shape(half_square))
    return jnp.sqrt((noise.scale + half_square) / (noise.shape + 0.5 * num_rows))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class NoisePosterior:
    """What is known of the level of the noise after a fit: a mixture of inverse gammas of the variance.

    Given theta the variance is inverse gamma, of a known shape, and a scale that depends on theta; the mixture is over
    draws of theta, gathered in a few bins by their scale.

    Attributes:
      shape: of all components, ``(...)``.
      scales: of the components, ``(..., A)``.
      weights: of the components, of sum one, ``(..., A)``.
      relative: whether the prior was improper, so that the evidence has an arbitrary constant, ``(...)``.

    >>> one = jnp.ones(1)
    >>> found = NoisePosterior(jnp.array(10.0), 0.4 * one, one, jnp.array(False))
    >>> round(float(found.mean), 3), [round(float(end), 3) for end in found.interval(0.9)]
    (0.208, [0.16, 0.272])
    """

    shape: jax.Array
    scales: jax.Array
    weights: jax.Array
    relative: jax.Array

    @property
    def mean(self) -> jax.Array:
        """The mean of the standard deviation, ``(...)``; infinite for a shape of one half or less."""
        return _moments(self)[0]

    @property
    def std(self) -> jax.Array:
        """The standard deviation of the standard deviation, ``(...)``; infinite for a shape of one or less."""
        return _moments(self)[1]

    def interval(self, level: float = 0.9) -> tuple[jax.Array, jax.Array]:
        """Return the ends of the central interval of the standard deviation, ``(...)``."""
        validation.require_share("level", level)
        return _interval(self, jnp.asarray(level, jnp.result_type(self.shape)))


def posterior(prior: InverseGamma, num_rows: jax.Array, half_square: jax.Array, weights: jax.Array) -> NoisePosterior:
    """Return the posterior of the noise's level.

    Args:
      prior: fields ``(B,)``.
      num_rows: ``(B,)``.
      half_square: half-squares of draws of theta, ``(B, D)``.
      weights: of the draws, ``(B, D)``, of sum one.
    """
    scales = prior.scale[:, None] + half_square
    counts = weights > 0  # a draw of no weight may have any scale
    logs = jnp.log(jnp.where(counts, scales, 1))
    low = jnp.where(counts, logs, jnp.inf).min(-1, keepdims=True)
    width = jnp.where(counts, logs, -jnp.inf).max(-1, keepdims=True) - low
    bins = jnp.floor(BINS * (logs - low) / jnp.where(width > 0, width, 1)).astype(jnp.int32)
    member = jnp.clip(bins, 0, BINS - 1)[..., None] == jnp.arange(BINS)
    mass = jnp.where(member, weights[..., None], 0).sum(1)
    # Relative to the smallest, so that units don't matter; each bin has its draws' mean.
    ratio = jnp.where(counts, jnp.exp(logs - low), 0) * weights
    mean = jnp.where(member, ratio[..., None], 0).sum(1) / jnp.where(mass > 0, mass, 1)
    components = jnp.exp(low) * jnp.where(mass > 0, mean, 1)
    relative = (prior.shape <= 0) | (prior.scale <= 0)
    return NoisePosterior(prior.shape + 0.5 * num_rows, components, mass, relative)


@jax.jit
def _moments(noise: NoisePosterior) -> tuple[jax.Array, jax.Array]:
    shape, weights = noise.shape, noise.weights
    roots = jnp.sqrt(noise.scales)
    root = (weights * roots).sum(-1)
    factor = jnp.exp(_log_gamma_step(jnp.where(shape > 0.5, shape, 1)))
    mean = jnp.where(shape > 0.5, factor * root, jnp.inf)
    safe = jnp.where(shape > 1, shape, 2)
    # ln(E[s]^2 / E[s^2]) of one component: small for a large shape, where logarithms would cancel but for the series.
    small = jnp.log1p(-0.25 / (safe - 0.75)) + 2 * _step_series(safe)
    log_ratio = jnp.where(safe > SERIES_FROM, small, 2 * _log_gamma_step(safe) + jnp.log(safe - 1))
    within = (weights * noise.scales).sum(-1) / (safe - 1) * -jnp.expm1(log_ratio)
    between = jnp.square(factor) * (weights * jnp.square(roots - root[..., None])).sum(-1)
    return mean, jnp.where(shape > 1, jnp.sqrt(within + between), jnp.inf)


def _log_gamma_step(shape: jax.Array) -> jax.Array:
    """Return ``ln(Gamma(shape - 1/2) / Gamma(shape))``, without the cancellation that a large shape would bring."""
    small = jnp.minimum(shape, SERIES_FROM)
    exact = gammaln(small - 0.5) - gammaln(small)
    return jnp.where(shape > SERIES_FROM, -0.5 * jnp.log(jnp.maximum(shape - 0.75, 1)) + _step_series(shape), exact)


def _step_series(shape: jax.Array) -> jax.Array:
    """Return ``ln(Gamma(shape - 1/2) / Gamma(shape) sqrt(shape - 3/4))`` for a large shape."""
    inverse_square = 1 / jnp.square(jnp.maximum(shape - 0.75, 1))
    return inverse_square * (-1 / 64 + 5 / 2048 * inverse_square)


@jax.jit
def _interval(noise: NoisePosterior, level: jax.Array) -> tuple[jax.Array, jax.Array]:
    shape, weights = noise.shape[..., None], noise.weights
    log_scales = jnp.log(noise.scales)
    centre = (weights * log_scales).sum(-1, keepdims=True)
    spread = jnp.sqrt(polygamma(1, shape) + (weights * jnp.square(log_scales - centre)).sum(-1, keepdims=True))
    is_large = shape > NORMAL_FROM

    def probability_below(log_variance):
        log_gamma = log_scales - log_variance  # the gamma variate that would give this variance, in each component
        # Wilson and Hilferty (1931): as good for a large shape, where float32's incomplete gamma function is not.
        cube_root = jnp.exp((log_gamma - jnp.log(shape)) / 3)
        score = 3 * jnp.sqrt(shape) * (1 - 1 / (9 * shape) - cube_root)
        exact = gammaincc(jnp.where(is_large, 1, shape), jnp.where(is_large, 1, jnp.exp(log_gamma)))
        return (weights * jnp.where(is_large, ndtr(score), exact)).sum(-1, keepdims=True)

    def end(probability):
        reach = 12 * spread + 12 / shape
        middle = centre - digamma(shape)

        def halve(_, bracket):
            low, high = bracket
            middle = 0.5 * (low + high)
            below = probability_below(middle) < probability
            return jnp.where(below, middle, low), jnp.where(below, high, middle)

        low, high = lax.fori_loop(0, BISECTION_STEPS, halve, (middle - reach, middle + reach))
        found = jnp.exp(0.25 * (low + high))[..., 0]
        known = jnp.isfinite(noise.scales).all(-1) & (noise.shape > 0) & jnp.isfinite(noise.shape)
        return jnp.where(known, found, jnp.nan)

    tail = 0.5 * (1 - level)
    return end(tail), end(1 - tail)
