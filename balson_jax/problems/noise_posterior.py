"""The posterior of the noise level: a mixture of inverse gammas of the variance.

Given theta the variance is inverse gamma, with a known shape and a scale that depends on theta. The mixture is over
draws of theta, gathered in a few bins by their scale.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import digamma, gammaincc, gammaln, ndtr, polygamma

from .. import validation
from ..bisection import bisect

BISECTION_STEPS = 40
SERIES_FROM = 20.0
"""From this shape on, ratios of gamma functions come from their asymptotic series.

The first term left out, 0.00124 / x^6 with x = shape - 3/4, is below 3e-11 there."""

NORMAL_FROM = 1000.0
"""From this shape on, the cube root of a gamma variate counts as normal (Wilson and Hilferty 1931).

The error of a probability is of order 1 / shape, and float32's incomplete gamma function has a larger one."""

BINS = 16
"""The number of components of the mixture."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class NoisePosterior:
    """The posterior of the noise level (its standard deviation), a mixture of inverse gammas of the variance.

    Attributes:
      shape: of all components, ``(...)``.
      scales: of the components, ``(..., A)``.
      weights: of the components, of sum one, ``(..., A)``.
      relative: whether the prior was improper, so that the evidence has an arbitrary constant, ``(...)``.
      mean_stderr: Monte Carlo standard error of ``mean``, ``(...)``, or ``None`` if unknown.

    >>> one = jnp.ones(1)
    >>> found = NoisePosterior(jnp.array(10.0), 0.4 * one, one, jnp.array(False))
    >>> round(float(found.mean), 3), [round(float(end), 3) for end in found.interval(0.9)]
    (0.208, [0.16, 0.272])
    """

    shape: jax.Array
    scales: jax.Array
    weights: jax.Array
    relative: jax.Array
    mean_stderr: jax.Array | None = None

    def mixed(self, weights: jax.Array) -> NoisePosterior:
        """Return the mixture of the posteriors along the first axis with weights ``(G, ...)``, of sum one."""

        def together(values):
            return lax.collapse(jnp.moveaxis(values, 0, -2), values.ndim - 2)

        parts = together(self.scales), together(weights[..., None] * self.weights)
        error = self.mean_stderr
        if error is not None:  # parts share their random numbers, and those of no weight may have no error
            error = jnp.where(weights > 0, weights * error, 0).sum(0)
        return NoisePosterior(self.shape[0], *parts, self.relative[0], error)

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


QUANTILES = 129


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class NoiseQuantiles:
    """The posterior of the noise level where it is no mixture of inverse gammas, as with an uncertain design.

    Attributes:
      mean: of the standard deviation, ``(...)``.
      std: of the standard deviation, ``(...)``.
      quantiles: at evenly spaced probabilities from 0 to 1, ``(..., QUANTILES)``.
      relative: whether the prior was improper, so that the evidence has an arbitrary constant, ``(...)``.
      mean_stderr: Monte Carlo standard error of ``mean``, ``(...)``; NaN, as it is not known.
    """

    mean: jax.Array
    std: jax.Array
    quantiles: jax.Array
    relative: jax.Array
    mean_stderr: jax.Array | None = None

    def mixed(self, weights: jax.Array) -> NoiseQuantiles:
        """Return the mixture of the posteriors along the first axis with weights ``(G, ...)``, of sum one."""
        raise TypeError("posteriors of the noise level of uncertain designs are not mixed")

    def interval(self, level: float = 0.9) -> tuple[jax.Array, jax.Array]:
        """Return the ends of the central interval of the standard deviation, ``(...)``."""
        validation.require_share("level", level)
        ends = jnp.asarray([0.5 * (1 - level), 0.5 * (1 + level)], self.quantiles.dtype)
        find = jnp.vectorize(lambda own: jnp.interp(ends, jnp.linspace(0, 1, QUANTILES), own), signature="(q)->(e)")
        found = find(self.quantiles)
        return found[..., 0], found[..., 1]


def from_levels(levels: jax.Array, shares: jax.Array, relative: jax.Array) -> NoiseQuantiles:
    """Return the posterior from levels ``(B, ...)`` and their shares, of sum one."""
    levels, shares = levels.reshape(len(levels), -1), shares.reshape(len(shares), -1)
    mean = (shares * levels).sum(-1)
    std = jnp.sqrt((shares * jnp.square(levels - mean[:, None])).sum(-1))

    def quantiles(levels, shares):
        order = jnp.argsort(levels)
        below = jnp.cumsum(shares[order])
        # Half of a level's share lies below it.
        middle = (below - 0.5 * shares[order]) / below[-1]
        return jnp.interp(jnp.linspace(0, 1, QUANTILES, dtype=levels.dtype), middle, levels[order])

    unknown = jnp.full_like(mean, jnp.nan)
    return NoiseQuantiles(
        mean, std, jax.vmap(quantiles)(levels, shares), jnp.broadcast_to(relative, mean.shape), unknown
    )


def mixture(
    shape: jax.Array,
    scales: jax.Array,
    weights: jax.Array,
    relative: jax.Array,
    roots: tuple[jax.Array, jax.Array, jax.Array] | None = None,
) -> NoisePosterior:
    """Return the mixture over weighted draws of theta of inverse gammas with these scales.

    Args:
      shape: ``(B,)``.
      scales: of draws, ``(B, D)``.
      weights: of the draws, ``(B, D)``, of sum one.
      relative: ``(B,)``.
      roots: mean, variance and standard error of the mean of ``sqrt(scale)`` over all draws, where those given are
        only some of them, ``(B,)`` each: the mixture then has these moments.
    """
    counts = weights > 0  # a draw of zero weight may have any scale
    logs = jnp.log(jnp.where(counts, scales, 1))
    low = jnp.where(counts, logs, jnp.inf).min(-1, keepdims=True)
    width = jnp.where(counts, logs, -jnp.inf).max(-1, keepdims=True) - low
    bins = jnp.floor(BINS * (logs - low) / jnp.where(width > 0, width, 1)).astype(jnp.int32)
    member = jnp.clip(bins, 0, BINS - 1)[..., None] == jnp.arange(BINS)
    mass = jnp.where(member, weights[..., None], 0).sum(1)
    # Relative to the smallest, so that units don't matter. Each bin has the mean of its draws.
    ratio = jnp.where(counts, jnp.exp(logs - low), 0) * weights
    mean = jnp.where(member, ratio[..., None], 0).sum(1) / jnp.where(mass > 0, mass, 1)
    components = jnp.exp(low) * jnp.where(mass > 0, mean, 1)
    if roots is None:
        return NoisePosterior(shape, components, mass, relative, jnp.full_like(shape, jnp.nan))
    components = _with_moments(components, mass, roots[0], roots[1])
    factor = jnp.exp(_log_gamma_step(jnp.where(shape > 0.5, shape, 1)))
    return NoisePosterior(shape, components, mass, relative, jnp.where(shape > 0.5, factor * roots[2], jnp.inf))


def _with_moments(scales: jax.Array, weights: jax.Array, mean: jax.Array, variance: jax.Array) -> jax.Array:
    """Return scales ``(B, A)`` moved so that their roots have this mean and, within limits, variance, ``(B,)``.

    Some draws give the mixture its shape; all of them give it its location and width.
    """
    roots = jnp.sqrt(scales)
    middle = (weights * roots).sum(-1, keepdims=True)
    spread = (weights * jnp.square(roots - middle)).sum(-1, keepdims=True)
    # Few draws that lie close together say nothing of the width: don't stretch them beyond a factor of two.
    stretch = jnp.minimum(jnp.sqrt(variance[:, None] / jnp.where(spread > 0, spread, 1)), 2)
    moved = mean[:, None] + stretch * (roots - middle)
    # Roots are positive. Where that cuts some, the others make up for it in the mean.
    moved = jnp.maximum(moved, 0.1 * mean[:, None])
    moved = moved * (mean[:, None] / (weights * moved).sum(-1, keepdims=True))
    return jnp.where((jnp.isfinite(mean) & (mean > 0))[:, None], jnp.square(moved), scales)


@jax.jit
def _moments(noise: NoisePosterior) -> tuple[jax.Array, jax.Array]:
    shape, weights = noise.shape, noise.weights
    roots = jnp.sqrt(noise.scales)
    root = (weights * roots).sum(-1)
    factor = jnp.exp(_log_gamma_step(jnp.where(shape > 0.5, shape, 1)))
    mean = jnp.where(shape > 0.5, factor * root, jnp.inf)
    safe = jnp.where(shape > 1, shape, 2)
    # ln(E[s]^2 / E[s^2]) of one component. For a large shape it is small, and only the series avoids cancellation.
    small = jnp.log1p(-0.25 / (safe - 0.75)) + 2 * _step_series(safe)
    log_ratio = jnp.where(safe > SERIES_FROM, small, 2 * _log_gamma_step(safe) + jnp.log(safe - 1))
    within = (weights * noise.scales).sum(-1) / (safe - 1) * -jnp.expm1(log_ratio)
    between = jnp.square(factor) * (weights * jnp.square(roots - root[..., None])).sum(-1)
    return mean, jnp.where(shape > 1, jnp.sqrt(within + between), jnp.inf)


def _log_gamma_step(shape: jax.Array) -> jax.Array:
    """Return ``ln(Gamma(shape - 1/2) / Gamma(shape))`` without cancellation for a large shape."""
    small = jnp.minimum(shape, SERIES_FROM)
    exact = gammaln(small - 0.5) - gammaln(small)
    return jnp.where(shape > SERIES_FROM, -0.5 * jnp.log(jnp.maximum(shape - 0.75, 1)) + _step_series(shape), exact)


def _step_series(shape: jax.Array) -> jax.Array:
    """Return ``ln(Gamma(shape - 1/2) / Gamma(shape) sqrt(shape - 3/4))`` for a large shape.

    With ``x = shape - 3/4`` the asymptotic expansion of the ratio of gamma functions about its symmetric point has even
    powers only: ``-1 / (64 x^2) + 5 / (2048 x^4) - ...`` (Tricomi and Erdelyi 1951).
    """
    inverse_square = 1 / jnp.square(jnp.maximum(shape - 0.75, 1))
    return inverse_square * (-1 / 64 + 5 / 2048 * inverse_square)


@jax.jit
def _interval(noise: NoisePosterior, level: jax.Array) -> tuple[jax.Array, jax.Array]:
    shape, weights = noise.shape[..., None], noise.weights
    log_scales = jnp.log(noise.scales)
    centre = (weights * log_scales).sum(-1, keepdims=True)
    spread = jnp.sqrt(polygamma(1, shape) + (weights * jnp.square(log_scales - centre)).sum(-1, keepdims=True))
    is_large = shape > NORMAL_FROM
    middle, reach = centre - digamma(shape), 12 * spread + 12 / shape

    def probability_below(log_variance):
        log_gamma = log_scales - log_variance  # of the gamma variate that gives this variance, in each component
        cube_root = jnp.exp((log_gamma - jnp.log(shape)) / 3)
        score = 3 * jnp.sqrt(shape) * (1 - 1 / (9 * shape) - cube_root)
        exact = gammaincc(jnp.where(is_large, 1, shape), jnp.where(is_large, 1, jnp.exp(log_gamma)))
        return (weights * jnp.where(is_large, ndtr(score), exact)).sum(-1, keepdims=True)

    def end(probability):
        log_variance = bisect(
            lambda x: probability_below(x) < probability, middle - reach, middle + reach, BISECTION_STEPS
        )
        known = jnp.isfinite(noise.scales).all(-1) & (noise.shape > 0) & jnp.isfinite(noise.shape)
        return jnp.where(known, jnp.exp(0.5 * log_variance[..., 0]), jnp.nan)

    tail = 0.5 * (1 - level)
    return end(tail), end(1 - tail)
