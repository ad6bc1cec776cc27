"""Directions of the lines along which walkers move.

Two kinds: differences between walkers of the other half of the ensemble, which follow the shape of the posterior
(ter Braak 2006; Goodman and Weare 2010), and directions in which a few components change. A direction doesn't depend on
the walker that moves along it, so a draw from the posterior on the line leaves the posterior invariant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from .walkers import EXACT, Population, Walkers, fold

SUBSETS = (2, 4, 8)
"""Numbers of components that change in the second kind of direction."""


class Direction(NamedTuple):
    """Directions of lines.

    Attributes:
      chosen: indices of the S components that change, the same for all walkers.
      step: change of these components, ``(B, S, L)``, of sum zero.
      product: root of the likelihood times the step, ``(B, M, L)``.
    """

    chosen: jax.Array
    step: jax.Array
    product: jax.Array


Chooser = Callable[[jax.Array, jax.Array, jax.Array], Direction]
"""Called with a key, the places of all walkers ``(2, B, K, L)`` and the index of the half that stands still."""


class Curve(NamedTuple):
    """Negative log-likelihood along lines: ``slope t + curvature t^2 / 2``, each ``(B, L)``."""

    curvature: jax.Array
    slope: jax.Array


def curve(population: Population, walkers: Walkers, direction: Direction) -> Curve:
    """Return the negative log-likelihood of linear problems along lines through walkers."""
    assert population.quadratic is not None
    chosen, step, product = direction
    linear = jnp.einsum("bk,bkl->bl", population.quadratic.gradient[:, chosen], step, precision=EXACT)
    curvature = walkers.precision * fold(jnp.add, jnp.square(product))
    return Curve(curvature, walkers.precision * (linear + fold(jnp.add, walkers.fitted * product)))


def differences(population: Population) -> Chooser:
    """Return the chooser of differences between two walkers of the other half of the same ensemble."""

    def choose(key, omega, other):
        omega = omega[other]
        ensembles = omega.reshape(*omega.shape[:-1], population.ensembles, population.half)
        # All walkers use the same two shifts along the row of the others: cheaper than a choice for each.
        shifts = _two_different(key, population.half)
        first, second = (jnp.roll(ensembles, shift, -1).reshape(omega.shape) for shift in shifts)
        direction = _on_plane(first - second, jnp.maximum(first, second))
        size = _sum(jnp.abs(direction))
        direction = direction / jnp.where(size > 0, size, 1)
        product = jnp.matmul(population.root, direction, precision=EXACT)
        return Direction(jnp.arange(omega.shape[1]), direction, product)

    return choose


def subset(population: Population, size: int, width: int) -> Chooser:
    """Return the chooser of directions in which some components change.

    The steps are normal with covariance ``(I + A'A)^-1``, where A has the columns of the root for these components
    relative to the last one: directions that the likelihood leaves free are long.

    Args:
      population: the problems.
      size: number of components that change.
      width: number of components in the answer; the others have a step of zero.
    """

    def choose(key, *_):
        num_problems, num_components = population.target.shape
        dtype = population.prior.dtype
        chosen = jax.random.permutation(key, num_components)[:width]
        normals = jax.random.normal(jax.random.fold_in(key, 1), (size - 1, population.count), dtype)
        columns = population.root[:, :, chosen[:size]]
        columns = columns[:, :, :-1] - columns[:, :, -1:]
        identity = jnp.broadcast_to(jnp.eye(size - 1, dtype=dtype), (num_problems, size - 1, size - 1))
        factor = jnp.linalg.qr(jnp.concatenate([columns, identity], 1), mode="r")
        inverse = jax.scipy.linalg.solve_triangular(factor, identity)
        steps = jnp.matmul(inverse, normals, precision=EXACT)
        product = jnp.matmul(columns, steps, precision=EXACT)
        rest = jnp.zeros((num_problems, width - size, population.count), dtype)
        return Direction(chosen, jnp.concatenate([steps, -steps.sum(1, keepdims=True), rest], 1), product)

    return choose


def widened(some: Chooser) -> Chooser:
    """Return a chooser of directions of a few components as directions of all; the other components stay."""

    def choose(key, omega, other):
        chosen, step, product = some(key, omega, other)
        every = jnp.zeros_like(omega[0]).at[:, chosen].set(step)
        return Direction(jnp.arange(every.shape[1]), every, product)

    return choose


def _on_plane(difference: jax.Array, mass: jax.Array) -> jax.Array:
    """Return differences ``(B, K, L)`` of sum zero: the largest component takes minus the sum of the others.

    Close to a vertex the rounding of the largest component would otherwise leave the plane of the simplex.
    """
    is_largest = mass >= mass.max(1, keepdims=True)
    others = _sum(jnp.where(is_largest, 0, difference))
    return jnp.where(is_largest, -others / _sum(is_largest.astype(mass.dtype)), difference)


def _sum(values: jax.Array) -> jax.Array:
    """Return sums over the second of three axes, which stays; a product with ones is fastest on a CPU."""
    return jnp.matmul(jnp.ones((1, values.shape[1]), values.dtype), values, precision=EXACT)


def _two_different(key: jax.Array, number: int) -> tuple[jax.Array, jax.Array]:
    """Return two different integers below a number."""
    first_key, second_key = jax.random.split(key)
    first = jax.random.randint(first_key, (), 0, number)
    other = jax.random.randint(second_key, (), 0, number - 1)
    return first, other + (other >= first)
