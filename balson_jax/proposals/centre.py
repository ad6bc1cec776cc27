"""The centre of a posterior on the simplex: the forces of the walls and of the data are in balance there.

The centre maximises ``ln likelihood + sum_k e_k ln omega_k`` for positive exponents e, here for a quadratic
log-likelihood. With exponents equal to the concentrations it is the mode in log-ratio coordinates. It always lies
inside the simplex, also where the optimum lies on a face: a component that the data press to zero with force g has its
centre at ``e / g``, the mean of an exponential density if ``e = 1``.

It is a point of the central path of interior-point methods: with multipliers ``z_k = e_k / omega_k`` the gradient of
the negative log-likelihood is ``z`` plus a constant. Newton steps on both (Wright 1997, chapter 5) find it.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..elimination import solve_positive
from ..targets import Quadratic

STEPS = 20
SHORTENED = 0.95
"""Steps end before they reach a wall, at this share of the distance."""

EXACT = lax.Precision.HIGHEST
STIFFEST = 1e30
"""Curvatures are cut here, below the overflow of float32."""


class Centre(NamedTuple):
    """Centres of B posteriors.

    Attributes:
      omega: the points, ``(B, K)``, inside the simplex.
      multipliers: ``exponent / omega``, the slopes of the walls there, ``(B, K)``.
    """

    omega: jax.Array
    multipliers: jax.Array

    @property
    def stiffness(self) -> jax.Array:
        """Curvatures ``exponent / omega**2`` of the walls, ``(B, K)``."""
        return jnp.minimum(self.multipliers / self.omega, STIFFEST)


def find_centre(quadratic: Quadratic, exponents: jax.Array) -> Centre:
    """Return the centres of B posteriors with the exponents ``(B, K)``.

    A step solves ``(H + diag(z / omega)) d = right + level``, with H the curvature of the likelihood and the level such
    that the sum stays one. Dividing by the roots of the diagonal leaves a matrix whose eigenvalues are at least one.
    """
    root, optimum = quadratic.root, quadratic.optimum
    identity = jnp.eye(exponents.shape[-1], dtype=exponents.dtype)

    def gradient(omega):
        fitted = jnp.einsum("bmk,bk->bm", root, omega - optimum, precision=EXACT)
        return quadratic.gradient + jnp.einsum("bmk,bm->bk", root, fitted, precision=EXACT)

    def step(_, state):
        omega, multipliers, level = state
        width = lax.rsqrt(jnp.clip(multipliers / omega, 1 / STIFFEST, STIFFEST))
        scaled = root * width[:, None]
        matrix = identity + jnp.einsum("bmk,bmj->bkj", scaled, scaled, precision=EXACT)
        missing = exponents - omega * multipliers
        right = missing / omega - (gradient(omega) - level - multipliers)
        sides = width[:, :, None] * jnp.stack([right, jnp.ones_like(right)], -1)
        solved = width[:, :, None] * solve_positive(matrix, sides)
        along, ones = solved[..., 0], solved[..., 1]
        d_level = (1 - omega.sum(-1, keepdims=True) - along.sum(-1, keepdims=True)) / ones.sum(-1, keepdims=True)
        d_omega = along + d_level * ones
        d_multipliers = (missing - multipliers * d_omega) / omega
        length = jnp.minimum(_until_wall(omega, d_omega), _until_wall(multipliers, d_multipliers))
        moves = d_omega, d_multipliers, d_level
        healthy = jnp.isfinite(jnp.concatenate(moves, -1)).all(-1, keepdims=True)
        return tuple(
            old + jnp.where(healthy, jnp.minimum(1, SHORTENED * length) * move, 0)
            for old, move in zip(state, moves, strict=True)
        )

    omega = 0.5 * (optimum + exponents / exponents.sum(-1, keepdims=True))
    slopes = gradient(omega)
    level = slopes.min(-1, keepdims=True) - exponents.sum(-1, keepdims=True)
    start = omega, jnp.maximum(slopes - level, exponents / omega), level
    omega = lax.fori_loop(0, STEPS, step, start)[0]
    omega = jnp.maximum(omega, jnp.finfo(omega.dtype).tiny)
    return Centre(omega, exponents / omega)


def _until_wall(value: jax.Array, change: jax.Array) -> jax.Array:
    """Return the length of the step at which a component reaches zero, ``(B, 1)``."""
    falls = change < 0
    return jnp.where(falls, -value / jnp.where(falls, change, -1), jnp.inf).min(-1, keepdims=True)
