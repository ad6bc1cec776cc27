"""Flights along broken lines: the bouncy particle sampler, for linear problems (see ``hit_and_run``).

A walker flies straight on until one of several clocks rings, and is then reflected (Bouchard-Côté, Vollmer and Doucet
2018; Bierkens et al. 2018 for walls). Each clock belongs to one factor of the posterior and rings once the walker has
lost ``a`` nats of that factor, where ``a`` is a draw from the exponential distribution. Gains don't count. All these
times have a closed form and nothing is rejected:

- The likelihood, with ``-ln L = rise t + bend t^2 / 2`` along the flight, rings at the t that solves this for ``a``; if
  ``rise < 0`` the walker first gains until ``t = -rise / bend``, and then loses ``bend (t + rise / bend)^2 / 2``.
- A wall of the simplex (a concentration of one) rings where the component reaches zero.
- A concentration ``alpha > 1`` is a soft wall: a component that falls from ``x`` to ``y`` loses
  ``(alpha - 1) ln(x / y)`` nats, so it is reflected at the floor ``y = x exp(-a / (alpha - 1))``. A rising component
  loses nothing, so its floor rises with it and ``y / x`` stays the same.

Flights are straight in the coordinates of a ``Frame``. Each begins with a new normal velocity.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ...random import points as unit_cube
from ...targets import Quadratic
from .coordinates import Frame
from .walkers import EXACT, Population, Walkers

FLIGHT = 2.0
"""Duration of a flight; a walker crosses the width of the posterior in any direction in about one unit of time."""

Walls = Literal["hard", "soft", "rates", "none"]


class Air(NamedTuple):
    """Likelihood and prior in the coordinates of a flight; B counts the problems once for each half of the walkers.

    Attributes:
      axes: ``W`` of the coordinates, ``(B, K, K)``.
      curvature: curvature of the negative log-likelihood along each coordinate, ``(B, K, 1)``.
      precision: precision of the noise, ``(B, L)``.
      power: ``1 / (alpha - 1)``, ``(B, K, 1)``; ``None`` if walls are hard.
    """

    axes: jax.Array
    curvature: jax.Array
    precision: jax.Array
    power: jax.Array | None


class Flight(NamedTuple):
    """Walkers in flight, ``(B, K, L)`` or ``(B, L)``.

    Attributes:
      omega: their places.
      floor: values at which falling components are reflected.
      slope: gradient of the negative log-likelihood, in z.
      velocity: velocity, in z.
      left: remaining time.
      events: number of reflections so far of walkers that are still flying; one number.
    """

    omega: jax.Array
    floor: jax.Array
    slope: jax.Array
    velocity: jax.Array
    left: jax.Array
    events: jax.Array


@dataclasses.dataclass(frozen=True)
class Bounces:
    """Flights of the walkers of B linear problems.

    Attributes:
      quadratic: the likelihoods.
      prior: concentrations, ``(B, K)``, none below one.
      is_soft: True if some concentrations are above one.
    """

    quadratic: Quadratic
    prior: jax.Array
    is_soft: bool

    @staticmethod
    def of(population: Population, walls: Walls | None) -> Bounces | None:
        """Return the flights, or ``None`` for models and for priors that are unknown or have poles."""
        if walls not in ("hard", "soft") or population.quadratic is None:
            return None
        return Bounces(population.quadratic, population.prior, walls == "soft")

    def suits(self) -> jax.Array:
        """Return whether the prior of each problem agrees with the walls, ``(B,)``."""
        return (self.prior >= 1 if self.is_soft else self.prior == 1).all(-1)

    def fly(self, key: jax.Array, walkers: Walkers, own: Frame) -> Walkers:
        """Return walkers after one flight each in the coordinates ``own``; their products must be refreshed.

        A flight with too many reflections is rejected: the walker stays. The reversed flight has the same number
        of reflections and the same probability, so the rejection is symmetric under time reversal and the posterior
        stays invariant.
        """
        halves, num_problems, num_components, count = walkers.omega.shape
        dtype = walkers.omega.dtype
        event_key, air, start = self._take_off(key, walkers, own)
        max_events = 16 * num_components + 256

        def flying(state: Flight):
            return jnp.any(state.left > 0) & (state.events < max_events)

        def event(state: Flight):
            own_key = jax.random.fold_in(event_key, state.events)
            losses = -jnp.log(_uniforms(own_key, (halves, 2, count), num_problems, dtype))
            return next_event(state, air, losses)

        end = lax.while_loop(flying, event, start)
        landed = ((end.left <= 0) & jnp.isfinite(end.omega).all(1))[:, None]
        omega = jnp.where(landed, end.omega, start.omega).reshape(walkers.omega.shape)
        log_omega = jnp.log(jnp.maximum(omega, jnp.finfo(dtype).tiny))
        return walkers._replace(omega=omega, log_omega=jnp.where(omega == walkers.omega, walkers.log_omega, log_omega))

    def _take_off(self, key: jax.Array, walkers: Walkers, own: Frame) -> tuple[jax.Array, Air, Flight]:
        """Return the key of the events, and walkers with new velocities and floors."""
        halves, num_problems, num_components, count = walkers.omega.shape
        dtype = walkers.omega.dtype

        def both(part):
            return jnp.concatenate([part] * halves)

        omega, fitted, precision = (
            part.reshape(halves * num_problems, *part.shape[2:])
            for part in (walkers.omega, walkers.fitted, walkers.precision)
        )
        start_key, floor_key, event_key = jax.random.split(key, 3)
        shape = (halves, num_components, count)
        velocity = _shared(jax.random.normal(start_key, shape, dtype), num_problems)
        gradient = both(jnp.einsum("bkz,bk->bz", own.axes, self.quadratic.gradient, precision=EXACT))
        slope = jnp.matmul(both(own.lean), fitted, precision=EXACT) + gradient[:, :, None]
        power, floor = None, jnp.zeros_like(omega)
        if self.is_soft:
            power = 1 / both(jnp.maximum(self.prior - 1, 1e-6))[:, :, None]
            floor = omega * _uniforms(floor_key, shape, num_problems, dtype) ** power
        air = Air(both(own.axes), both(own.curvature)[:, :, None], precision, power)
        left = jnp.full((omega.shape[0], count), FLIGHT, dtype)
        return event_key, air, Flight(omega, floor, slope, velocity, left, jnp.int32(0))


def _shared(draws: jax.Array, num_problems: int) -> jax.Array:
    """Return draws ``(2, ..., L)``, which all problems share, as ``(2 B, ..., L)``."""
    whole = jnp.broadcast_to(draws[:, None], (draws.shape[0], num_problems, *draws.shape[1:]))
    return whole.reshape(draws.shape[0] * num_problems, *draws.shape[1:])


def _uniforms(key: jax.Array, shape: tuple[int, int, int], num_problems: int, dtype) -> jax.Array:
    """Return uniform variates ``(2, rows, L)``, which all problems share, as ``(2 B, rows, L)``."""
    return _shared(unit_cube.uniform(jax.random.bits(key, shape, unit_cube.bits_dtype(dtype)), dtype), num_problems)


def next_event(state: Flight, air: Air, losses: jax.Array) -> Flight:
    """Return walkers after their next reflection, or at the end of their time.

    Args:
      state: the walkers.
      air: the posterior in their coordinates.
      losses: exponential variates ``(B, 2, L)``, for the clock of the likelihood and for the next soft wall.
    """
    omega, floor, slope, velocity, left, events = state
    speed = jnp.matmul(air.axes, velocity, precision=EXACT)
    falls = speed < 0
    until = jnp.where(falls, (omega - floor) / jnp.where(falls, -speed, 1), jnp.inf)
    to_wall = until.min(1)
    to_slope = _until_loss(state, air, losses[:, 0])
    time = jnp.maximum(jnp.minimum(jnp.minimum(to_wall, to_slope), left), 0)
    left = left - time
    moved = jnp.maximum(omega + time[:, None] * speed, 0)
    slope = slope + time[:, None] * air.curvature * velocity
    met = until <= to_wall[:, None]
    at_wall = (to_wall <= to_slope)[:, None]
    if air.power is not None:
        # A rising component takes its floor along; one that met its floor gets a new one.
        floor = jnp.where(falls, floor, floor * (moved / jnp.maximum(omega, jnp.finfo(omega.dtype).tiny)))
        floor = jnp.where(met & at_wall & (left > 0)[:, None], moved * jnp.exp(-losses[:, 1:] * air.power), floor)
    wall = jnp.matmul(jnp.swapaxes(air.axes, 1, 2), met.astype(omega.dtype), precision=EXACT)
    velocity = _reflected(velocity, jnp.where(at_wall, wall, slope), left > 0)
    return Flight(moved, floor, slope, velocity, left, events + 1)


def _until_loss(state: Flight, air: Air, loss: jax.Array) -> jax.Array:
    """Return the times after which flights have lost a number of nats of the likelihood, ``(B, L)``."""
    rise = air.precision * (state.slope * state.velocity).sum(1)
    bend = jnp.maximum(air.precision * (air.curvature * jnp.square(state.velocity)).sum(1), 1e-20)
    root = jnp.sqrt(jnp.square(jnp.maximum(rise, 0)) + 2 * bend * loss)
    return jnp.where(rise > 0, 2 * loss / (rise + root), (root - rise) / bend)


def _reflected(velocity: jax.Array, normal: jax.Array, flying: jax.Array) -> jax.Array:
    """Return velocities of flying walkers mirrored in the plane orthogonal to a normal: ``v - 2 (n'v / n'n) n``."""
    square = jnp.square(normal).sum(1)
    push = 2 * (normal * velocity).sum(1) / jnp.where(square > 0, square, 1)
    return velocity - jnp.where(flying, push, 0)[:, None] * normal
