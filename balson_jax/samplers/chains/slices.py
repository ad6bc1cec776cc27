"""Slice sampling along lines through the simplex (Neal 2003), for any prior and any model.

A point of a line at distance t from its low end and ``length - t`` from its high end has position
``s = ln(t / (length - t))``. Its Jacobian is ``dt / ds = t (length - t) / length``, so a pole ``t^(alpha - 1)`` of the
prior at an end becomes ``t^alpha``, which is bounded.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ...random import points as unit_cube
from .directions import Curve, Direction, curve
from .walkers import EXACT, Population, Walkers, fold

MAX_SHRINKS = 10
"""Number of tries on a slice; a walker that finds no point in these stays, which Neal's proof of invariance allows."""

WINDOW = 18.0
"""Truncate lines this many nats below the peak of the likelihood: exp(-18) is less than the rounding of float32."""

SIGHT = 8.0
"""Width of the interval in which a slice is searched, in positions, for priors without poles."""


class Segment(NamedTuple):
    """Lines through walkers, between their ends.

    Attributes:
      size: absolute change of each component per unit of length, ``(B, S, L)``.
      rises: True for components that grow towards the high end, ``(B, S, L)``.
      gap: value of each component at the end towards which it falls, ``(B, S, L)``; 0 if it defines the end.
      log_scale: logarithm of ``size * length``, ``(B, S, L)``.
      low: distance of the walkers from the low end, ``(B, L)``.
      length: distance between the ends, ``(B, L)``.
      here: positions of the walkers, ``(B, L)``.
      movable: True for lines of positive, finite length, ``(B, L)``.
    """

    size: jax.Array
    rises: jax.Array
    gap: jax.Array
    log_scale: jax.Array
    low: jax.Array
    length: jax.Array
    here: jax.Array
    movable: jax.Array


class Place(NamedTuple):
    """Points of lines.

    Attributes:
      log_omega: logarithms of the components, ``(B, S, L)``.
      omega: the components, ``(B, S, L)``.
      log_jacobian: logarithm of ``dt / ds``, up to a constant of the line, ``(B, L)``.
      moved: distances from the walkers, ``(B, L)``.
    """

    log_omega: jax.Array
    omega: jax.Array
    log_jacobian: jax.Array
    moved: jax.Array


class Bracket(NamedTuple):
    """State of the search on slices.

    Attributes:
      tries: number of tries so far.
      left: left ends of the brackets, ``(B, L)``.
      right: right ends of the brackets, ``(B, L)``.
      position: positions found, ``(B, L)``; those of the walkers until then.
      found: True once a position on the slice is found, ``(B, L)``.
    """

    tries: jax.Array
    left: jax.Array
    right: jax.Array
    position: jax.Array
    found: jax.Array


class LineTarget(NamedTuple):
    """Log-posterior along lines, as a function of the position.

    Attributes:
      population: the problems.
      segment: the lines.
      powers: concentrations less one of the components that change, ``(B, S)``.
      curve: the likelihood along the lines; ``None`` for models, whose likelihood is evaluated.
    """

    population: Population
    segment: Segment
    powers: jax.Array
    curve: Curve | None

    def at(self, position: jax.Array) -> jax.Array:
        """Return the log-density of positions, up to a constant of the line, ``(B, L)``."""
        log_omega, omega, log_jacobian, moved = place(self.segment, position)
        if self.curve is None:
            log_likelihood = self.population.log_ratio(omega)
        else:
            log_likelihood = -moved * (self.curve.slope + 0.5 * self.curve.curvature * moved)
        return jnp.einsum("bk,bkl->bl", self.powers, log_omega, precision=EXACT) + log_likelihood + log_jacobian


@dataclasses.dataclass(frozen=True)
class Slices:
    """Steps of slice sampling.

    Attributes:
      population: the problems.
      window: nats below the peak of the likelihood at which lines are truncated, ``(B, 1)``.
      sight: width of the interval in which a slice is searched, in positions, ``(B, 1)``.
    """

    population: Population
    window: jax.Array
    sight: jax.Array

    @staticmethod
    def of(population: Population) -> Slices:
        """Return the steps for a population.

        A prior ``omega^(alpha - 1)`` may outweigh a loss of likelihood: the window grows by six times the largest
        power, and half the sum of all. Near a pole the density falls as ``exp(-alpha |s|)``: the interval grows
        with one over the smallest concentration.
        """
        pull = jnp.maximum(population.prior - 1, 0)
        window = WINDOW + 6 * pull.max(-1) + 0.5 * pull.sum(-1)
        sight = SIGHT / jnp.minimum(population.prior.min(-1), 1)
        return Slices(population, window[:, None], sight[:, None])

    def move(self, key: jax.Array, walkers: Walkers, direction: Direction) -> Walkers:
        """Return walkers moved along lines by a step of slice sampling."""
        dtype = self.population.prior.dtype
        bits = jax.random.bits(key, (2 + MAX_SHRINKS, self.population.count), unit_cube.bits_dtype(dtype))
        level, offset, *shares = unit_cube.uniform(bits, dtype)
        is_linear = self.population.quadratic is not None
        own = curve(self.population, walkers, direction) if is_linear else None
        line = segment(walkers, direction, own, self.window)
        target = LineTarget(self.population, line, self.population.prior[:, direction.chosen] - 1, own)
        height = target.at(line.here) + jnp.log(level)
        # An interval of fixed width, placed around the walker at random.
        left = line.here - self.sight * offset
        done = ~line.movable | ~jnp.isfinite(height)
        bracket = Bracket(jnp.int32(0), left, left + self.sight, line.here, done)
        position = search(target, height, jnp.stack(shares), bracket)
        log_omega, omega, _, length_moved = place(line, position)
        moved = (line.movable & (position != line.here))[:, None]
        fitted = walkers.fitted + jnp.where(moved, length_moved[:, None], 0) * direction.product
        return walkers._replace(
            log_omega=jnp.where(moved, log_omega, walkers.log_omega),
            omega=jnp.where(moved, omega, walkers.omega),
            fitted=fitted if is_linear else walkers.fitted,
        )


def search(target: LineTarget, height: jax.Array, shares: jax.Array, bracket: Bracket) -> jax.Array:
    """Return positions on slices, ``(B, L)``, by shrinking brackets towards the walkers (Neal 2003, figure 5).

    Args:
      target: the log-posterior along lines.
      height: level of the slices, ``(B, L)``.
      shares: uniform variates, one row for each try.
      bracket: where to begin.
    """
    here = target.segment.here

    def searching(state: Bracket):
        return jnp.any(~state.found) & (state.tries < shares.shape[0])

    def shrink(state: Bracket):
        tried = state.left + shares[state.tries] * (state.right - state.left)
        hit = ~state.found & (target.at(tried) > height)
        missed = ~state.found & ~hit
        return Bracket(
            tries=state.tries + 1,
            left=jnp.where(missed & (tried < here), tried, state.left),
            right=jnp.where(missed & (tried >= here), tried, state.right),
            position=jnp.where(hit, tried, state.position),
            found=state.found | hit,
        )

    return lax.while_loop(searching, shrink, bracket).position


def segment(walkers: Walkers, direction: Direction, own: Curve | None, window: jax.Array) -> Segment:
    """Return the lines through walkers, truncated where the likelihood is negligible."""
    size, rises = jnp.abs(direction.step), direction.step > 0
    log_size = jnp.log(jnp.where(size > 0, size, 1))
    log_reach = jnp.where(size > 0, walkers.log_omega - log_size, jnp.inf)
    log_low = fold(jnp.minimum, jnp.where(rises, log_reach, jnp.inf))
    log_high = fold(jnp.minimum, jnp.where(rises, jnp.inf, log_reach))
    if own is not None:
        log_low, log_high = truncated(own, log_low, log_high, window)
    low, high = jnp.exp(log_low), jnp.exp(log_high)
    length = low + high
    movable = jnp.isfinite(length) & (length > 0)
    low, length = jnp.where(movable, low, 0), jnp.where(movable, length, 1)
    log_end = jnp.where(rises, log_low[:, None], log_high[:, None])
    left = walkers.omega - size * jnp.where(size > 0, jnp.exp(log_end), 0)
    gap = jnp.where(log_reach <= log_end, 0, jnp.maximum(left, jnp.finfo(size.dtype).tiny))
    log_scale = log_size + jnp.log(length)[:, None]
    here = jnp.where(movable, log_low - log_high, 0)
    return Segment(size, rises, gap, log_scale, low, length, here, movable)


def truncated(own: Curve, log_low: jax.Array, log_high: jax.Array, window: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return logarithms of the distances to the ends of lines, or to where the likelihood is negligible.

    Past the peak of the line the likelihood loses ``steepness t + curvature t^2 / 2`` nats over a distance t; the width
    solves this for t where the loss equals the window. The cut depends on the line and not on the place of the walker,
    so the step stays reversible. A walker outside the window, on its way in, looks one width ahead.
    """
    curvature, slope = own
    low, high = jnp.exp(log_low), jnp.exp(log_high)
    curved = curvature > 0
    peak = jnp.where(curved, jnp.clip(-slope / jnp.where(curved, curvature, 1), -low, high), 0)
    steepness = jnp.abs(slope + curvature * peak)
    width = 2 * window / (steepness + jnp.sqrt(jnp.square(steepness) + 2 * curvature * window))
    below, above = width - peak, width + peak
    below, above = jnp.where(below > 0, below, width), jnp.where(above > 0, above, width)
    return jnp.minimum(log_low, jnp.log(below)), jnp.minimum(log_high, jnp.log(above))


def place(line: Segment, position: jax.Array) -> Place:
    """Return the points of lines at positions."""
    log_up, log_down = -jax.nn.softplus(-position), -jax.nn.softplus(position)
    up, down = jnp.exp(log_up) * line.length, jnp.exp(log_down) * line.length
    omega = line.gap + line.size * jnp.where(line.rises, up[:, None], down[:, None])
    at_end = line.log_scale + jnp.where(line.rises, log_up[:, None], log_down[:, None])
    log_omega = jnp.where(line.gap > 0, jnp.log(jnp.maximum(omega, jnp.finfo(omega.dtype).tiny)), at_end)
    return Place(log_omega, omega, log_up + log_down, up - line.low)
