"""Flights of the active components of sparse walkers, each in coordinates of its own (see ``rates``).

Coordinates are ``omega = W z`` with ``W W'`` the inverse of ``R'R + S`` on the plane of the simplex, where R is the
root of the likelihood and ``S = diag(r^2 + 4)``: a component that only its rate r holds has a standard deviation of
``1 / r``. They depend on the rates and not on the place, so a flight is reversible. A walker flies straight on until it
meets a wall, or has lost an exponential number of nats of ``likelihood * exp(-r'omega)``, and is then reflected, as in
``bounces``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ...targets import Quadratic
from .bounces import FLIGHT
from .walkers import EXACT, Walkers

MAX_EVENTS = 64
"""Number of reflections of a flight, at most; a flight with more is rejected (see ``bounces``)."""

LEAST_STIFFNESS = 4.0
"""Components have a standard deviation of at most one half."""


class Frame(NamedTuple):
    """Coordinates of N times L walkers with A components each.

    Attributes:
      active: True for components that fly, ``(N, L, A)``; the others stay.
      axes: ``W``, ``(N, L, A, A)``.
      curvature: ``W'R'RW``, that of the negative log-likelihood, ``(N, L, A, A)``.
      slope: gradient of the negative log-density in z at the walkers' places, ``(N, L, A)``.
    """

    active: jax.Array
    axes: jax.Array
    curvature: jax.Array
    slope: jax.Array


class Flight(NamedTuple):
    """Walkers in flight.

    Attributes:
      omega: values of the components, ``(N, L, A)``.
      slope: gradient of the negative log-density, in z, ``(N, L, A)``.
      velocity: in z, ``(N, L, A)``.
      left: remaining time, ``(N, L)``.
      events: number of reflections so far of walkers that are still flying; one number.
    """

    omega: jax.Array
    slope: jax.Array
    velocity: jax.Array
    left: jax.Array
    events: jax.Array


def frame(quadratic: Quadratic, walkers: Walkers, rates: jax.Array, chosen: jax.Array, is_active: jax.Array) -> Frame:
    """Return the coordinates of flights.

    Args:
      quadratic: the likelihoods of N problems.
      walkers: L walkers of each.
      rates: of the chosen components, ``(N, L, A)``.
      chosen: indices of the components of each walker, ``(N, L, A)``.
      is_active: which of them fly, ``(N, L, A)``.
    """
    root_precision = jnp.sqrt(walkers.precision)[..., None]
    rates = jnp.where(is_active, rates, 0)
    columns = jax.vmap(lambda rows, at: rows[at])(jnp.swapaxes(quadratic.root, 1, 2), chosen)  # (N, L, A, M)
    columns = columns * (is_active * root_precision)[..., None]
    axes = _axes(columns, rates, is_active)
    seen = jnp.matmul(jnp.swapaxes(columns, -1, -2), axes, precision=EXACT)  # (N, L, M, A)
    curvature = jnp.matmul(jnp.swapaxes(seen, -1, -2), seen, precision=EXACT)
    gradient = jax.vmap(lambda row, at: row[at])(quadratic.gradient, chosen)
    along = jnp.where(is_active, walkers.precision[..., None] * gradient + rates, 0)
    fitted = jnp.swapaxes(walkers.fitted, 1, 2) * root_precision
    slope = jnp.einsum("nlmz,nlm->nlz", seen, fitted, precision=EXACT)
    slope = slope + jnp.einsum("nlaz,nla->nlz", axes, along, precision=EXACT)
    return Frame(is_active, axes, curvature, slope)


def _axes(columns: jax.Array, rates: jax.Array, is_active: jax.Array) -> jax.Array:
    """Return ``W = L^-T (1 - n n')``, where ``L L' = R'R + S``, and n is the direction of ``L^-1 1``."""
    gram = jnp.matmul(columns, jnp.swapaxes(columns, -1, -2), precision=EXACT)
    diagonal = jnp.diagonal(gram, axis1=-2, axis2=-1)
    # Rounding must not make the matrix indefinite; any positive stiffness is valid.
    rounding = 4 * jnp.finfo(gram.dtype).eps * diagonal.sum(-1, keepdims=True)
    stiffness = jnp.where(is_active, jnp.square(rates) + LEAST_STIFFNESS + rounding, 1)
    identity = jnp.eye(gram.shape[-1], dtype=gram.dtype)
    factor = jnp.linalg.cholesky(gram + stiffness[..., None] * identity, symmetrize_input=False)
    whole = jnp.broadcast_to(identity, gram.shape)
    inverse = lax.linalg.triangular_solve(factor, whole, left_side=True, lower=True)
    normal = jnp.einsum("nlza,nla->nlz", inverse, is_active.astype(gram.dtype), precision=EXACT)
    normal = normal / jnp.linalg.norm(normal, axis=-1, keepdims=True)
    axes = jnp.swapaxes(inverse, -1, -2)
    axes = axes - jnp.einsum("nlaz,nlz->nla", axes, normal, precision=EXACT)[..., None] * normal[..., None, :]
    return jnp.where(is_active[..., None], axes, 0)


def fly(own: Frame, omega: jax.Array, velocity: jax.Array, losses: Callable[[jax.Array], jax.Array]) -> jax.Array:
    """Return the components, ``(N, L, A)``, after one flight.

    Args:
      own: the coordinates.
      omega: the components.
      velocity: standard normal variates, ``(N, L, A)``.
      losses: returns exponential variates, ``(N, L)``, given the number of the reflection.
    """
    left = jnp.full(omega.shape[:2], FLIGHT, omega.dtype)
    start = Flight(jnp.where(own.active, omega, 1), own.slope, velocity, left, jnp.int32(0))

    def flying(state: Flight):
        return jnp.any(state.left > 0) & (state.events < MAX_EVENTS)

    end = lax.while_loop(flying, lambda state: next_event(state, own, losses(state.events)), start)
    landed = (end.left <= 0) & jnp.isfinite(end.omega).all(-1)
    return jnp.where(landed[..., None] & own.active, end.omega, omega)


def next_event(state: Flight, own: Frame, loss: jax.Array) -> Flight:
    """Return walkers after their next reflection, or at the end of their time.

    Args:
      state: the walkers.
      own: their coordinates.
      loss: exponential variates, ``(N, L)``: the nats of the density to lose before a reflection.
    """
    omega, slope, velocity, left, events = state
    speed = jnp.einsum("nlaz,nlz->nla", own.axes, velocity, precision=EXACT)
    bent = jnp.einsum("nlyz,nlz->nly", own.curvature, velocity, precision=EXACT)
    falls = speed < 0
    until = jnp.where(falls, omega / jnp.where(falls, -speed, 1), jnp.inf)
    wall = until.argmin(-1)
    to_wall = until.min(-1)
    rise = (slope * velocity).sum(-1)
    bend = jnp.maximum((bent * velocity).sum(-1), 1e-20)
    root = jnp.sqrt(jnp.square(jnp.maximum(rise, 0)) + 2 * bend * loss)
    to_slope = jnp.where(rise > 0, 2 * loss / (rise + root), (root - rise) / bend)
    time = jnp.maximum(jnp.minimum(jnp.minimum(to_wall, to_slope), left), 0)
    left = left - time
    omega = jnp.maximum(omega + time[..., None] * speed, 0)
    slope = slope + time[..., None] * bent
    at_wall = jnp.take_along_axis(own.axes, wall[..., None, None], -2)[..., 0, :]
    normal = jnp.where((to_wall <= to_slope)[..., None], at_wall, slope)
    square = jnp.square(normal).sum(-1)
    push = 2 * (normal * velocity).sum(-1) / jnp.where(square > 0, square, 1)
    velocity = velocity - jnp.where(left > 0, push, 0)[..., None] * normal
    return Flight(omega, slope, velocity, left, events + 1)
