"""Moves along lines through the simplex, all walkers in turn (see ``hit_and_run``).

A cycle takes each walker once along each kind of direction. Where the prior is uniform and the model linear, the
posterior along a line is a normal distribution cut at the walls, which is drawn exactly; otherwise walkers take a step
of slice sampling (see ``slices``).
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax import lax

from ...random import points as unit_cube
from ...random.truncated_normal import cut
from .directions import SUBSETS, Chooser, Direction, curve, differences, subset, widened
from .slices import Slices
from .walkers import Population, Walkers, fold


@dataclasses.dataclass(frozen=True)
class Lines:
    """Moves of walkers along lines.

    Attributes:
      population: the problems.
      slices: the step of slice sampling; ``None`` if lines are cut normal distributions.
    """

    population: Population
    slices: Slices | None

    @staticmethod
    def of(population: Population, exact: bool) -> Lines:
        """Return the moves of a population; exact ones for linear problems, if the prior is known to be uniform."""
        is_exact = exact and population.quadratic is not None
        return Lines(population, None if is_exact else Slices.of(population))

    @property
    def sizes(self) -> list[int]:
        """Numbers of components that change in directions of a few."""
        return [size for size in SUBSETS if size <= self.population.target.shape[1]]

    @property
    def moves(self) -> int:
        """Number of times that a walker moves in a cycle: once for each kind of direction."""
        return 1 + len(self.sizes)

    def cycle(self, key: jax.Array, walkers: Walkers) -> Walkers:
        """Move all walkers once along each kind of direction, one half and then the other."""
        width = self.sizes[-1]
        across = differences(self.population)
        some = [subset(self.population, size, width) for size in self.sizes]
        # Moving only the components that change is cheaper, but is one more program to compile.
        if self.population.quadratic is None or self.population.target.shape[1] <= 2 * width:
            return self._loop(key, walkers, 0, [across, *map(widened, some)])
        # Two loops: branches of different widths in one loop would copy all walkers.
        return self._loop(key, self._loop(key, walkers, 0, [across]), 1, some)

    def _loop(self, key: jax.Array, walkers: Walkers, first: int, kinds: list[Chooser]) -> Walkers:
        """Move both halves along each of some kinds of direction, of which the first has number ``first``."""

        def step(number, walkers):
            return self.move(jax.random.fold_in(key, number), walkers, number % 2, number // 2 - first, kinds)

        return lax.fori_loop(2 * first, 2 * (first + len(kinds)), step, walkers)

    def move(self, key: jax.Array, walkers: Walkers, own: jax.Array, kind: jax.Array, kinds: list[Chooser]) -> Walkers:
        """Move the half ``own`` of the walkers along one kind of direction."""
        choice_key, line_key = jax.random.split(key)
        direction = lax.switch(kind, kinds, choice_key, walkers.omega, 1 - own)
        chosen = direction.chosen
        every = chosen.shape[0] == walkers.omega.shape[2]
        log_omega, omega = (leaf[own] if every else leaf[own][:, chosen] for leaf in walkers[:2])
        moving = Walkers(log_omega, omega, walkers.fitted[own], walkers.precision[own])
        if self.slices is None:
            moved = to_cut_normals(line_key, self.population, moving, direction)
        else:
            moved = self.slices.move(line_key, moving, direction)

        def put(whole, rows):
            return whole.at[own].set(rows) if every else whole.at[own, :, chosen].set(jnp.moveaxis(rows, 1, 0))

        return walkers._replace(
            log_omega=put(walkers.log_omega, moved.log_omega),
            omega=put(walkers.omega, moved.omega),
            fitted=walkers.fitted.at[own].set(moved.fitted),
        )


def to_cut_normals(key: jax.Array, population: Population, walkers: Walkers, direction: Direction) -> Walkers:
    """Return walkers moved along lines to draws of normal distributions that are cut at the walls."""
    curvature, slope = curve(population, walkers, direction)
    low, high, movable = _ends(walkers.omega, direction.step)
    stiffness = jnp.maximum(jnp.sqrt(curvature), 1e-6 / (low + high))
    interval = cut(slope / stiffness - low * stiffness, (low + high) * stiffness)
    bits = jax.random.bits(key, (population.count,), unit_cube.bits_dtype(low.dtype))
    from_low, from_high = interval.quantile(unit_cube.uniform(bits, low.dtype), unit_cube.uniform(~bits, low.dtype))
    # Measured from the nearer end, which keeps the digits.
    length = jnp.where(from_low < from_high, from_low / stiffness - low, high - from_high / stiffness)
    length = jnp.where(movable, length, 0)[:, None]
    omega = jnp.maximum(walkers.omega + length * direction.step, 0)
    log_omega = jnp.log(jnp.maximum(omega, jnp.finfo(omega.dtype).tiny))
    return walkers._replace(omega=omega, log_omega=log_omega, fitted=walkers.fitted + length * direction.product)


def _ends(omega: jax.Array, step: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return distances from walkers to the two ends of their lines, and whether they can move at all, ``(B, L)``."""
    size = jnp.abs(step)
    reach = jnp.where(size > 0, omega / jnp.where(size > 0, size, 1), jnp.inf)
    low = fold(jnp.minimum, jnp.where(step > 0, reach, jnp.inf))
    high = fold(jnp.minimum, jnp.where(step < 0, reach, jnp.inf))
    movable = jnp.isfinite(low) & jnp.isfinite(high) & (low + high > 0)
    return jnp.where(movable, low, 1), jnp.where(movable, high, 1), movable
