"""Coordinates in which posteriors are about equally wide in all directions, for flights (see ``bounces``).

Places are ``omega = W z`` with ``W W'`` the inverse of ``R'R + diag(stiffness)`` on the plane of the simplex. R is the
root of the likelihood, and the stiffness stands for the walls. Write ``D = diag(stiffness)^(-1/2)`` and P for the
projection orthogonal to ``D 1``, so that ``D P x`` has sum zero. With singular values ``R D P = U s V'``,

    W = D P V (1 + s^2)^(-1/2),    R W = U s (1 + s^2)^(-1/2),

so the likelihood is diagonal in z, and a flight carries its gradient along without a matrix product.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ... import dirichlet
from ...targets import Quadratic
from .walkers import EXACT, Walkers

ADAPTATIONS = 8
"""Number of flights, at least, while walkers come in from afar; coordinates are adapted before each."""

MAX_ADAPTATIONS = 64
"""Number of these flights, at most."""

SETTLED = 3.0
"""Walkers have come in only if no stiffness changes by this factor or more."""

FAR_OUT = 10.0
"""Walkers have come in only if no variance exceeds the expected one by this factor or more."""

STIFFNESS = (4.0, 1e30)
"""Range of stiffness: components have a standard deviation of at most one half, and one that floats can hold."""


class Frame(NamedTuple):
    """Coordinates for B posteriors.

    Attributes:
      stiffness: curvature that the walls add to that of the likelihood, ``(B, K)``.
      axes: ``W``, ``(B, K, K)``; it maps one direction of z to zero.
      lean: ``W'R'``, which maps residuals to the gradient in z, ``(B, K, M)``.
      curvature: curvature of the negative log-likelihood along each coordinate, from 0 to 1, ``(B, K)``.
    """

    stiffness: jax.Array
    axes: jax.Array
    lean: jax.Array
    curvature: jax.Array


def frame(quadratic: Quadratic, stiffness: jax.Array) -> Frame:
    """Return the coordinates for the likelihoods of B problems and the stiffness of their walls, ``(B, K)``."""
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


def first_frame(quadratic: Quadratic, prior: jax.Array) -> Frame:
    """Return coordinates whose walls are as stiff as the prior: its variances are about ``mean / (sum + 1)``."""
    return frame(quadratic, (prior.sum(-1, keepdims=True) + 1) / dirichlet.mean(prior))


def adapted(quadratic: Quadratic, old: Frame, walkers: Walkers) -> tuple[Frame, jax.Array]:
    """Return coordinates whose variances are closer to those of the walkers, and whether the old ones were close.

    ``diag(W W')`` are the variances that the old coordinates expect; each stiffness is multiplied by the ratio of the
    expected to the observed variance.
    """
    omega = walkers.omega
    mean = omega.mean((0, 3))
    variance = jnp.square(omega - mean[:, :, None]).mean((0, 3))
    # A smaller spread than rounding is invisible: a component near one seems to stand still.
    variance = jnp.maximum(variance, jnp.square(jnp.finfo(omega.dtype).eps * mean))
    factor = jnp.square(old.axes).sum(-1) / jnp.maximum(variance, 1 / STIFFNESS[1])
    stiffness = jnp.clip(old.stiffness * jnp.clip(factor, 0.01, STIFFNESS[1]), *STIFFNESS)
    # Walkers that are far out vary more than the likelihood allows, whatever the walls.
    change = jnp.abs(jnp.log(stiffness / old.stiffness))
    near = (change < jnp.log(SETTLED)) & (factor > 1 / FAR_OUT)
    return frame(quadratic, stiffness), near.all(-1)


class Arrival(NamedTuple):
    """Walkers on their way in, the coordinates of their last advance, the number of advances, and if all settled."""

    walkers: Walkers
    frame: Frame
    advances: jax.Array
    settled: jax.Array


def come_in(
    key: jax.Array,
    quadratic: Quadratic,
    prior: jax.Array,
    walkers: Walkers,
    advance: Callable[[jax.Array, Walkers, Frame], Walkers],
) -> tuple[Walkers, Frame]:
    """Return walkers that have come in from afar, and the coordinates that they have found."""

    def unsettled(state: Arrival):
        return (state.advances < ADAPTATIONS) | (~state.settled & (state.advances < MAX_ADAPTATIONS))

    def step(state: Arrival):
        own, settled = adapted(quadratic, state.frame, state.walkers)
        moved = advance(jax.random.fold_in(key, state.advances), state.walkers, own)
        return Arrival(moved, own, state.advances + 1, settled.all())

    first = Arrival(walkers, first_frame(quadratic, prior), jnp.int32(0), jnp.bool_(False))
    return lax.while_loop(unsettled, step, first)[:2]
