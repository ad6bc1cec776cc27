"""The standard normal distribution truncated to an interval, accurate in float32 for any width and position.

Intervals are reflected where needed, so that the end closer to zero comes first, at ``near``, and the interval extends
from there to ``near + width``. Densities and masses are relative to the normal density at ``near``. With

    D(y) = integral from 0 to y of exp(-near s - s^2 / 2) ds,

a draw at distance y from ``near`` has density ``exp(-near y - y^2 / 2) / D(width)`` and cumulative probability
``D(y) / D(width)``, because ``phi(near + s) / phi(near) = exp(-near s - s^2 / 2)``. Neither the density at ``near`` nor
the mass of the interval is needed. Both may be far below the smallest float.
"""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import ndtr, ndtri
from numpy.polynomial import chebyshev, legendre

FARTHEST = 1e12
REACH = 7.0
"""A near end below ``-REACH`` is moved to ``-REACH``. The probability that this leaves out is about 1e-12."""

_MAP_SCALE = 2.5
_DEGREE = {"float32": 14, "float64": 32}
_ABSCISSAS, _QUADRATURE_WEIGHTS = (0.5 * part for part in legendre.leggauss(6))


@functools.cache
def _mills_table(degree: int) -> np.ndarray:
    """Return polynomial coefficients of ``R(x) (x + sqrt(x^2 + 4)) / 2`` in ``(x - c) / (x + c)``, for x >= 0.

    Mills' ratio R is divided by Birnbaum's (1942) lower bound ``2 / (x + sqrt(x^2 + 4))``. The quotient is smooth and
    lies between 1 and 1.26.
    """
    t = np.cos(np.pi * (np.arange(512) + 0.5) / 512)
    x = _MAP_SCALE * (1 + t) / (1 - t)
    # R(x) is the integral of exp(-x s - s^2 / 2) over s >= 0; beyond ``last`` the exponent is below -40.
    last = 80 / (x + np.sqrt(x * x + 80))
    nodes, weights = legendre.leggauss(64)
    s = 0.5 * last * (1 + nodes[:, None])
    ratio = 0.5 * last * (weights @ np.exp(-s * (x + 0.5 * s)))
    fitted = chebyshev.chebfit(t, ratio * (x + np.sqrt(x * x + 4)) / 2, degree)
    return chebyshev.cheb2poly(fitted)


def mills(x: jax.Array) -> jax.Array:
    """Return Mills' ratio ``R(x)``, the normal mass above x divided by the density at x, for ``x >= 0``.

    >>> round(float(mills(jnp.array(1000.0))), 9)
    0.000999999
    """
    table = _mills_table(_DEGREE[str(x.dtype)]).astype(x.dtype)
    t = (x - _MAP_SCALE) / (x + _MAP_SCALE)
    value = table[-1]
    for coefficient in table[-2::-1]:
        value = t * value + coefficient
    return value * 2 / (x + jnp.sqrt(x * x + 4))


def _relative_density(near: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.exp(-y * (near + 0.5 * y))


def _relative_mass(near: jax.Array, y: jax.Array) -> jax.Array:
    """Return ``D(y)``."""
    x = near + y
    # In a narrow interval the difference of tail masses would cancel; integrate the density by quadrature instead.
    narrow = _is_narrow(near, y)
    smooth = _narrow_mass(near, jnp.where(narrow, y, 0))
    # Elsewhere D(y) is a difference of tail masses. Each is relative to the density at near, by Mills' ratio.
    first, last = mills(jnp.abs(near)), mills(jnp.abs(x)) * _relative_density(near, y)
    whole = np.sqrt(2 * np.pi) * jnp.exp(0.5 * jnp.square(jnp.minimum(near, 0)))
    tails = jnp.where(near >= 0, first - last, jnp.where(x < 0, last - first, whole - first - last))
    return jnp.where(narrow, smooth, tails)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Cut:
    """Intervals of the standard normal distribution, reflected so that the end closer to zero comes first.

    Attributes:
      turned: whether the interval was reflected, because its upper end is the one closer to zero.
      near: the end closer to zero, after reflection; at least ``-REACH``.
      width: length of the interval above ``near``.
      skipped: length of the part below ``-REACH``, which is left out.
      mass: ``D(width)``.
    """

    turned: jax.Array
    near: jax.Array
    width: jax.Array
    skipped: jax.Array
    mass: jax.Array

    def log_density(self, from_low: jax.Array, from_high: jax.Array) -> jax.Array:
        """Return the log-density of draws, given their distances from the lower and from the upper end."""
        y = jnp.where(self.turned, from_high, from_low) - self.skipped
        return -y * (self.near + 0.5 * y) - jnp.log(self.mass)

    def quantile(self, below: jax.Array, above: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the distances of quantiles from the lower and from the upper end, each with small relative error.

        Args:
          below: probability below the draw.
          above: probability above the draw: ``1 - below``, but accurate where it is small.
        """
        p, q = jnp.where(self.turned, above, below), jnp.where(self.turned, below, above)
        y = jnp.clip(self._distance(p, q), 0, self.width)
        # Close to the far end, width - y cancels. Invert mass = density (r + end r^2 / 2) for the distance r instead.
        rest = self.width - y
        end = self.near + self.width
        beyond = q * self.mass / _relative_density(self.near, self.width)
        rest = jnp.where(beyond * (1 + jnp.abs(end)) < 1e-3, beyond * (1 - 0.5 * end * beyond), rest)
        rest = jnp.clip(rest, 0, self.width)
        y = y + self.skipped
        return jnp.where(self.turned, rest, y), jnp.where(self.turned, y, rest)

    def _distance(self, p: jax.Array, q: jax.Array) -> jax.Array:
        """Return distances from ``near``, by the method that is accurate for each interval. Skip unused methods."""
        narrow, far = _is_narrow(self.near, self.width), self.near >= 1
        found = nothing = jnp.zeros_like(p + self.near)
        for suits, way in (
            (narrow, self._in_narrow),
            (~narrow & ~far, self._in_middle),
            (~narrow & far, self._in_tail),
        ):
            found = jnp.where(suits, lax.cond(suits.any(), way, lambda p, q: nothing, p, q), found)
        return found

    def _in_narrow(self, p: jax.Array, q: jax.Array) -> jax.Array:
        """Return distances in narrow intervals: the quantile of an exponential density, then two Newton steps."""
        tilt = self.width * (self.near + 0.5 * self.width)
        flat = jnp.abs(tilt) < 1e-3
        tilt = jnp.clip(jnp.where(flat, 1, tilt), -1.5, 1.5)
        y = self.width * jnp.where(flat, p, -jnp.log1p(p * jnp.expm1(-tilt)) / tilt)

        def step(_, y):
            return y - (_narrow_mass(self.near, y) - p * self.mass) / _relative_density(self.near, y)

        return lax.fori_loop(0, 2, step, y)

    def _in_middle(self, p: jax.Array, q: jax.Array) -> jax.Array:
        """Return distances by the normal quantile of the smaller of the two tails."""
        near = jnp.minimum(self.near, 1)
        scale = jnp.exp(-0.5 * jnp.square(near)) / np.sqrt(2 * np.pi)
        lower = ndtr(near) + scale * p * self.mass
        upper = ndtr(-near - self.width) + scale * q * self.mass
        x = ndtri(jnp.minimum(jnp.minimum(lower, upper), 0.6))
        return self._close(p, jnp.where(lower < upper, x, -x) - self.near)

    def _in_tail(self, p: jax.Array, q: jax.Array) -> jax.Array:
        """Return distances by inverting the cumulative hazard with Newton steps.

        The cumulative hazard ``H(y) = y (near + y / 2) + ln(R(near) / R(near + y))`` is minus the log-probability of
        exceeding ``near + y`` given that ``near`` is exceeded. It is convex, with ``H'(y) = 1 / R(near + y)``.
        """
        near = jnp.maximum(self.near, 1)
        ratio = mills(near)
        hazard = 1 / ratio
        goal = -jnp.log(jnp.maximum(q + p * (1 - jnp.minimum(self.mass * hazard, 1)), jnp.finfo(ratio.dtype).tiny))
        slope = jnp.where(near > 30, 1 - 2 / jnp.square(near), hazard * (hazard - near))
        # Start from the expansion H(y) = hazard y + slope y^2 / 2. The exact slope is hazard (hazard - near), which
        # cancels for a large near; an asymptotic value is enough for a start.
        y = 2 * goal / (hazard + jnp.sqrt(jnp.square(hazard) + 2 * slope * goal))

        def step(_, y):
            here = mills(near + y)
            return jnp.maximum(y - (y * (near + 0.5 * y) + jnp.log(ratio / here) - goal) * here, 0)

        return self._close(p, lax.fori_loop(0, 2, step, y))

    def _close(self, p: jax.Array, y: jax.Array) -> jax.Array:
        """Return distances; those close to ``near`` by inverting the series ``D(y) = y - near y^2 / 2``."""
        mass = p * self.mass
        return jnp.where(mass * (1 + jnp.abs(self.near)) < 1e-2, mass * (1 + 0.5 * self.near * mass), y)


def _is_narrow(near: jax.Array, width: jax.Array) -> jax.Array:
    """Return whether the density changes by less than a factor of e over the width."""
    return (jnp.abs(near) + 0.5 * width) * width < 1


def _narrow_mass(near: jax.Array, y: jax.Array) -> jax.Array:
    """Return ``D(y)`` by Gauss-Legendre quadrature with six nodes."""
    terms = [
        weight * _relative_density(near, (0.5 + place) * y)
        for place, weight in zip(_ABSCISSAS, _QUADRATURE_WEIGHTS, strict=True)
    ]
    return y * functools.reduce(jnp.add, terms)


def cut(low: jax.Array, width: jax.Array) -> Cut:
    """Return the interval from ``low`` to ``low + width`` of the standard normal distribution."""
    turned = low + 0.5 * width < 0
    nearer = jnp.where(turned, -low - width, low)
    skipped = jnp.maximum(-REACH - nearer, 0)
    near = jnp.clip(nearer, -REACH, FARTHEST)
    return Cut(turned, near, width - skipped, skipped, _relative_mass(near, width - skipped))
