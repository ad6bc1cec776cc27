"""Integrals over an unknown noise variance that have no closed form.

The integrand usually has one peak, whose place and width differ from draw to draw by orders of magnitude. Two coarse
scans find the range that matters, and Gauss-Legendre points there give the integral. The functions are written for one
draw, to be vmapped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

POINTS = 20
NEGLIGIBLE = 14.0
"""Where the integrand is this many nats below its peak, it is neglected."""

LINEAR = 1e-3
"""Variances below this share of the typical one are spaced evenly; above it, by their logarithms."""

NODES, WEIGHTS = np.polynomial.legendre.leggauss(POINTS)
STAGES = np.stack([np.linspace(0, 1, POINTS), np.linspace(0, 1, POINTS), 0.5 + 0.5 * NODES])
"""Where the integrand is taken: in two scans of a range, and for the integral over it."""


class Levels(NamedTuple):
    """An integral over the variance of the noise, for one draw.

    Attributes:
      log_integral: its logarithm, ``()``.
      variances: where the integrand was taken, ``(POINTS,)``.
      shares: of the integral at each of them, of sum one, ``(POINTS,)``.
    """

    log_integral: jax.Array
    variances: jax.Array
    shares: jax.Array


def over_variance(log_density: Callable[[jax.Array], jax.Array], typical: jax.Array, largest: jax.Array) -> Levels:
    """Return the integral of a density over variances from 0 to the largest that matters.

    Args:
      log_density: of variances, ``()``; it may be infinite at 0 if it is integrable there.
      typical: a variance of the order of the largest plausible one, ``()``.
      largest: variances above don't count, ``()``.
    """
    unit = lax.stop_gradient(LINEAR * typical)

    def log_integrand(z):
        # With z = ln(1 + variance / unit).
        variance = unit * jnp.maximum(jnp.expm1(z), 1e-6)
        return log_density(variance) + jnp.log(unit) + z

    def step(ends, places):
        z = ends[0] + (ends[1] - ends[0]) * places
        logs = jax.vmap(log_integrand)(z)
        return lax.stop_gradient(_range_of_peak(z, logs)), (ends, z, logs)

    # One loop, so that the integrand is compiled once.
    start = lax.stop_gradient((jnp.zeros_like(unit), jnp.log1p(largest / unit)))
    _, stages = lax.scan(step, start, jnp.asarray(STAGES, unit.dtype))
    (low, high), z, logs = jax.tree.map(lambda leaf: leaf[-1], stages)
    logs = logs + jnp.log(0.5 * (high - low) * jnp.asarray(WEIGHTS, unit.dtype))
    total = jax.nn.logsumexp(logs)
    return Levels(total, unit * jnp.expm1(z), jnp.exp(logs - total))


def _range_of_peak(z: jax.Array, logs: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the neighbours of the outermost points at which the integrand counts."""
    counts = logs > logs.max() - NEGLIGIBLE
    last = z.shape[0] - 1
    first, final = jnp.argmax(counts), last - jnp.argmax(counts[::-1])
    return z[jnp.maximum(first - 1, 0)], z[jnp.minimum(final + 1, last)]
