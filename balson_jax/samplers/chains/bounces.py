"""How walkers move along broken lines: the bouncy particle sampler, for linear problems (see ``hit_and_run``).

A walker flies straight on, and is reflected where it meets a wall of the simplex, and where the likelihood that it has
lost on its way amounts to a random number (Bouchard-Côté, Vollmer and Doucet 2018). A concentration above one is a soft
wall: it reflects a falling component at a random share of its height, ``u^(1 / (alpha - 1))``. All of these places are
known in closed form, nothing is rejected, and a walker that has flown for a while is nearly anywhere.

Flights are straight in coordinates ``z`` in which the posterior is about as wide in all directions: ``omega = W z``
with ``W W'`` the inverse of ``R'R + diag(stiffness)`` on the simplex's plane, where R is the likelihood's root and the
stiffness stands for the walls. With the singular values of ``R diag(stiffness)^(-1/2) = U s V'`` the likelihood is
diagonal in z, so that its gradient is carried along without a product.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ... import dirichlet
from ...random import points as unit_cube
from ...targets.functions import Density, Quadratic
from ...targets.linear import Pivoted
from .lines import EXACT, Walkers

FLIGHT = 2.0
"""How long a flight is, in units in which a walker crosses the posterior's width in any direction in about one."""

ADAPTATIONS, MAX_ADAPTATIONS = 8, 64
"""How often the coordinates are adapted while walkers come in from afar."""

SETTLED, FAR_OUT = 3.0, 10.0
"""Walkers have come in when no stiffness changes by the first factor, and no variance is larger by the second."""

STIFFNESS = (4.0, 1e30)
"""Components vary between 0 and 1, and not by less than floats can hold."""

Walls = Literal["hard", "soft", "none"]


class Frame(NamedTuple):
    """Coordinates in which B posteriors are about as wide in all directions.

    Attributes:
      stiffness: what the walls add to the likelihood's curvature, ``(B, K)``.
      axes: ``W``, ``(B, K, K)``; one direction of z, of no consequence, is mapped to zero.
      lean: ``W'R'``, of the residuals' gradient, ``(B, K, M)``.
      curvature: of the negative log-likelihood along each coordinate, from 0 to 1, ``(B, K)``.
    """

    stiffness: jax.Array
    axes: jax.Array
    lean: jax.Array
    curvature: jax.Array


def frame(quadratic: Quadratic, stiffness: jax.Array) -> Frame:
    """Return the coordinates for likelihoods of B problems and what the walls add to them, ``(B, K)``."""
    width = 1 / jnp.sqrt(stiffness)
    normal = width / jnp.linalg.norm(width, axis=-1, keepdims=True)

    def on_plane(rows):
        return rows - jnp.einsum("bmk,bk->bm", rows, normal, precision=EXACT)[:, :, None] * normal[:, None]

    scaled = on_plane(quadratic.root * width[:, None])
    missing = scaled.shape[2] - scaled.shape[1]
    left, size, right = jnp.linalg.svd(jnp.pad(scaled, ((0, 0), (0, max(missing, 0)), (0, 0))), full_matrices=False)
    shrinkage = 1 / jnp.hypot(1, size)
    share = size * shrinkage
    axes = width[:, :, None] * jnp.swapaxes(on_plane(right), 1, 2) * shrinkage[:, None]
    lean = share[:, :, None] * jnp.swapaxes(left[:, : quadratic.root.shape[1]], 1, 2)
    return Frame(stiffness, axes, lean, jnp.square(share))


class Flight(NamedTuple):
    """Walkers on their way, ``(B, K, L)`` or ``(B, L)``.

    Attributes:
      omega: where they are.
      floor: where falling components are reflected.
      slope: gradient of the negative log-likelihood, in z.
      velocity: in z.
      left: of their time.
      events: how many times those that are still on their way were reflected; one number.
    """

    omega: jax.Array
    floor: jax.Array
    slope: jax.Array
    velocity: jax.Array
    left: jax.Array
    events: jax.Array


class Bounces:
    """How walkers of B linear problems fly.

    Attributes:
      quadratic: the likelihoods.
      prior: concentrations, ``(B, K)``, none below one.
      is_soft: whether some of them are above one.
    """

    def __init__(self, quadratic: Quadratic, prior: jax.Array, is_soft: bool) -> None:
        self.quadratic = quadratic
        self.prior = prior
        self.is_soft = is_soft

    @staticmethod
    def of(density: Density, walls: Walls | None) -> Bounces | None:
        """Return how walkers fly, or ``None`` if they don't: for models, and where the prior isn't known."""
        if walls in (None, "none") or not isinstance(density, Pivoted):
            return None
        return Bounces(density.quadratic(), jnp.broadcast_to(density.prior, density.shape), walls == "soft")

    def suits(self) -> jax.Array:
        """Return whether the prior of each problem is what the walls stand for, ``(B,)``."""
        return (self.prior >= 1 if self.is_soft else self.prior == 1).all(-1)

    def come_in(self, key: jax.Array, walkers: Walkers, advance: Callable) -> tuple[Walkers, Frame]:
        """Return walkers that have come in from afar, and the coordinates that they have found."""
        # At first as if walls were as stiff as the prior.
        first = frame(self.quadratic, (self.prior.sum(-1, keepdims=True) + 1) / dirichlet.mean(self.prior))

        def unsettled(state):
            return (state[2] < ADAPTATIONS) | (~state[3] & (state[2] < MAX_ADAPTATIONS))

        def step(state):
            walkers, old, count, _ = state
            own, settled = self.adapted(old, walkers)
            return advance(jax.random.fold_in(key, count), walkers, own), own, count + 1, settled.all()

        return lax.while_loop(unsettled, step, (walkers, first, jnp.int32(0), jnp.bool_(False)))[:2]

    def adapted(self, old: Frame, walkers: Walkers) -> tuple[Frame, jax.Array]:
        """Return coordinates in which variances come nearer to those of the walkers, and whether they were near."""
        omega = walkers.omega
        mean = omega.mean((0, 3))
        variance = jnp.square(omega - mean[:, :, None]).mean((0, 3))
        # Less than rounding can't be seen: a component near one looks as if it stood still.
        variance = jnp.maximum(variance, jnp.square(jnp.finfo(omega.dtype).eps * mean))
        factor = jnp.square(old.axes).sum(-1) / jnp.maximum(variance, 1 / STIFFNESS[1])
        stiffness = jnp.clip(old.stiffness * jnp.clip(factor, 0.01, STIFFNESS[1]), *STIFFNESS)
        # Walkers that are far out vary more than the likelihood allows, whatever the walls.
        change = jnp.abs(jnp.log(stiffness / old.stiffness))
        near = (change < jnp.log(SETTLED)) & (factor > 1 / FAR_OUT)
        return frame(self.quadratic, stiffness), near.all(-1)

    def fly(self, key: jax.Array, walkers: Walkers, own: Frame) -> Walkers:
        """Return walkers after a flight each in coordinates of their own; their products are to be refreshed."""
        halves, num_problems, num_components, count = walkers.omega.shape
        dtype = walkers.omega.dtype

        def both(part):
            return jnp.concatenate([part] * halves)

        omega, fitted, precision = (
            part.reshape(halves * num_problems, *part.shape[2:])
            for part in (walkers.omega, walkers.fitted, walkers.precision)
        )
        axes, lean, curvature = both(own.axes), both(own.lean), both(own.curvature)[:, :, None]
        power = 1 / both(jnp.maximum(self.prior - 1, 1e-6))[:, :, None] if self.is_soft else None
        start_key, floor_key, event_key = jax.random.split(key, 3)

        def shared(draws):
            """Return draws ``(2, ..., L)`` as those of all problems, ``(2 B, ..., L)``."""
            whole = jnp.broadcast_to(draws[:, None], (halves, num_problems, *draws.shape[1:]))
            return whole.reshape(halves * num_problems, *draws.shape[1:])

        def uniforms(key, rows):
            bits = jax.random.bits(key, (halves, rows, count), unit_cube.bits_dtype(dtype))
            return shared(unit_cube.uniform(bits, dtype))

        velocity = shared(jax.random.normal(start_key, (halves, num_components, count), dtype))
        gradient = both(jnp.einsum("bkz,bk->bz", own.axes, self.quadratic.gradient, precision=EXACT))
        slope = jnp.matmul(lean, fitted, precision=EXACT) + gradient[:, :, None]
        max_events = 16 * num_components + 256

        def flying(state):
            return jnp.any(state.left > 0) & (state.events < max_events)

        def event(state):
            losses = -jnp.log(uniforms(jax.random.fold_in(event_key, state.events), 2))
            return _event(state, axes, curvature, precision, power, losses)

        floor = jnp.zeros_like(omega)
        if power is not None:
            floor = omega * uniforms(floor_key, num_components) ** power
        left = jnp.full((omega.shape[0], count), FLIGHT, dtype)
        state = lax.while_loop(flying, event, Flight(omega, floor, slope, velocity, left, jnp.int32(0)))
        # One that is reflected too often stays where it was, as it would on the way back.
        landed = ((state.left <= 0) & jnp.isfinite(state.omega).all(1))[:, None]
        omega = jnp.where(landed, state.omega, omega).reshape(walkers.omega.shape)
        log_omega = jnp.log(jnp.maximum(omega, jnp.finfo(dtype).tiny))
        return walkers._replace(omega=omega, log_omega=jnp.where(omega == walkers.omega, walkers.log_omega, log_omega))


def _event(
    state: Flight,
    axes: jax.Array,
    curvature: jax.Array,
    precision: jax.Array,
    power: jax.Array | None,
    losses: jax.Array,
) -> Flight:
    """Return walkers where each is next reflected, by a wall or by the likelihood's slope, or where its time is up.

    Args:
      state: the walkers.
      axes: of their coordinates, ``(B, K, K)``.
      curvature: of the likelihood along these, ``(B, K, 1)``.
      precision: of the noise, ``(B, L)``.
      power: one over concentrations less one, ``(B, K, 1)``; ``None`` if walls are hard.
      losses: exponential variates ``(B, 2, L)``: what likelihood a walker may lose, and where its next soft wall is.
    """
    omega, floor, slope, velocity, left, events = state
    dtype = omega.dtype
    speed = jnp.matmul(axes, velocity, precision=EXACT)
    falls = speed < 0
    until = jnp.where(falls, (omega - floor) / jnp.where(falls, -speed, 1), jnp.inf)
    to_wall = until.min(1)
    # On a line the likelihood's loss is a parabola, of which only the part that rises counts.
    rise = precision * (slope * velocity).sum(1)
    bend = jnp.maximum(precision * (curvature * jnp.square(velocity)).sum(1), 1e-20)
    root = jnp.sqrt(jnp.square(jnp.maximum(rise, 0)) + 2 * bend * losses[:, 0])
    to_slope = jnp.where(rise > 0, 2 * losses[:, 0] / (rise + root), (root - rise) / bend)
    time = jnp.maximum(jnp.minimum(jnp.minimum(to_wall, to_slope), left), 0)
    left = left - time
    moved = jnp.maximum(omega + time[:, None] * speed, 0)
    slope = slope + time[:, None] * curvature * velocity
    met = until <= to_wall[:, None]
    at_wall = (to_wall <= to_slope)[:, None]
    if power is not None:
        # A rising component takes its wall along; one that met it gets another.
        floor = jnp.where(falls, floor, floor * (moved / jnp.maximum(omega, jnp.finfo(dtype).tiny)))
        floor = jnp.where(met & at_wall & (left > 0)[:, None], moved * jnp.exp(-losses[:, 1:] * power), floor)
    wall = jnp.matmul(jnp.swapaxes(axes, 1, 2), met.astype(dtype), precision=EXACT)
    normal = jnp.where(at_wall, wall, slope)
    square = jnp.square(normal).sum(1)
    push = 2 * (normal * velocity).sum(1) / jnp.where(square > 0, square, 1)
    velocity = velocity - jnp.where(left > 0, push, 0)[:, None] * normal
    return Flight(moved, floor, slope, velocity, left, events + 1)
