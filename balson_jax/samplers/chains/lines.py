"""How walkers move along lines through the simplex (see ``hit_and_run``)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ...problems.noise import InverseGamma
from ...random import points as unit_cube
from ...random.gamma_quantile import unlifted
from ...random.truncated_normal import cut
from ...targets.functions import Density
from ...targets.linear import Pivoted
from .starts import starting_places

ENSEMBLES = 4
SUBSETS = (2, 4, 8)
"""Directions in which so many components change are among those along which walkers move."""

MAX_SHRINKS = 10
WINDOW = 18.0
"""Along a line, what is this many nats below the likelihood's peak is left out of sight."""

SIGHT = 8.0
"""How far a walker looks along a line, in e-folds of the probability beyond."""

EXACT = lax.Precision.HIGHEST


class Direction(NamedTuple):
    """Directions of lines.

    Attributes:
      chosen: the numbers of the S components that change, the same for all walkers.
      step: how they change, ``(B, S, L)``.
      product: the likelihood's root times that, ``(B, M, L)``.
    """

    chosen: jax.Array
    step: jax.Array
    product: jax.Array


class Walkers(NamedTuple):
    """Walkers of B problems in two halves of L, the first of which moves; L counts H of each ensemble.

    Attributes:
      log_omega: where they are, ``(2, B, K, L)``.
      omega: its exponential.
      fitted: the likelihood's root times where they are, less its centre, ``(2, B, M, L)``.
      precision: of the noise, relative to the quadratic's, ``(2, B, L)``.
    """

    log_omega: jax.Array
    omega: jax.Array
    fitted: jax.Array
    precision: jax.Array


class Lines:
    """How walkers of B problems move: ``half`` of each ensemble at a time."""

    def __init__(self, density: Density, half: int, exact: bool) -> None:
        self.density = density
        self.half = half
        self.count = ENSEMBLES * half
        self.prior = jnp.broadcast_to(density.prior, density.shape)
        self.quadratic = density.quadratic() if isinstance(density, Pivoted) else None
        nothing = jnp.zeros((density.shape[0], 0, density.shape[1]), self.prior.dtype)
        self.root = nothing if self.quadratic is None else self.quadratic.root
        self.is_exact = exact and self.quadratic is not None
        sizes = [size for size in SUBSETS if size <= density.shape[1]]
        self.width = sizes[-1]
        self.some = [functools.partial(self.subset, size) for size in sizes]
        # Moves of a few components cost less if the others are left alone, but that must be compiled too.
        self.is_narrow = self.quadratic is not None and density.shape[1] > 2 * self.width
        pull = jnp.maximum(self.prior - 1, 0)
        self.window = (WINDOW + 6 * pull.max(-1) + 0.5 * pull.sum(-1))[:, None]
        self.sight = (SIGHT / jnp.minimum(self.prior.min(-1), 1))[:, None]

    def start(self, key: jax.Array) -> Walkers:
        """Return walkers at places more widely spread than the posterior."""
        num_problems = self.density.shape[0]
        omega = starting_places(key, self.quadratic, self.prior, ENSEMBLES, self.half)
        log_omega = jnp.log(jnp.maximum(omega, jnp.finfo(omega.dtype).tiny))
        empty = jnp.zeros((2, num_problems, 0, self.count), omega.dtype)
        walkers = Walkers(log_omega, omega, empty, jnp.ones((2, num_problems, self.count), omega.dtype))
        return self.refresh(jax.random.fold_in(key, 1), walkers)

    def refresh(self, key: jax.Array, walkers: Walkers) -> Walkers:
        """Return the walkers with their sums and products computed anew, and new levels of the noise."""
        log_omega = walkers.log_omega - jnp.log(_fold(jnp.add, walkers.omega))[..., None, :]
        omega = jnp.exp(log_omega)
        if self.quadratic is None:
            return walkers._replace(log_omega=log_omega, omega=omega)
        away = omega - self.quadratic.centre[:, :, None]
        fitted = jnp.matmul(self.root, away, precision=EXACT)
        precision, noise = walkers.precision, self.density.noise
        if isinstance(noise, InverseGamma):
            linear = jnp.einsum("bk,sbkl->sbl", self.quadratic.gradient, away, precision=EXACT)
            excess = jnp.maximum(linear + 0.5 * _fold(jnp.add, jnp.square(fitted)), 0)
            shape = jnp.broadcast_to(noise.shape + 0.5 * self.density.num_rows, self.density.base.shape)[:, None]
            bits = jax.random.bits(key, (2, 1, self.count), unit_cube.bits_dtype(shape.dtype))
            # A shape is half a row at least, for which quantiles need no second number.
            draws = jax.vmap(lambda own: unlifted(own, shape)[:, 0])(bits)
            precision = jnp.exp(draws) / (shape + excess)
        return Walkers(log_omega, omega, fitted, precision)

    @property
    def moves(self) -> int:
        """How often each walker moves in a cycle: once for each kind of direction."""
        return 1 + len(self.some)

    def cycle(self, key: jax.Array, walkers: Walkers) -> Walkers:
        """Move all walkers once along each kind of direction, one half and then the other."""
        # Loops of their own, as branches of one loop would copy all walkers.
        if self.is_narrow:
            walkers = lax.fori_loop(0, 2, lambda number, w: self.move(key, w, number, [self.differences]), walkers)
            return lax.fori_loop(2, 2 * self.moves, lambda number, w: self.move(key, w, number, self.some), walkers)
        kinds = [self.differences, *(self.widened(few) for few in self.some)]
        return lax.fori_loop(0, 2 * self.moves, lambda number, w: self.move(key, w, number, kinds), walkers)

    def move(self, key: jax.Array, walkers: Walkers, number: jax.Array, kinds: list[Callable]) -> Walkers:
        """Move one half of the walkers, the first if the number of the move is even."""
        choice_key, line_key = jax.random.split(jax.random.fold_in(key, number))
        own = number % 2
        # A loop over fewer kinds than there are is over the last of them.
        kind = (number // 2 + len(kinds) - self.moves) % len(kinds)
        direction = lax.switch(kind, kinds, choice_key, walkers.omega, 1 - own)
        chosen = direction.chosen
        every = chosen.shape[0] == walkers.omega.shape[2]
        log_omega, omega = (leaf[own] if every else leaf[own][:, chosen] for leaf in walkers[:2])
        moving = Walkers(log_omega, omega, walkers.fitted[own], walkers.precision[own])
        moved = (self.exactly if self.is_exact else self.by_slices)(line_key, moving, direction)

        def put(whole, rows):
            return whole.at[own].set(rows) if every else whole.at[own, :, chosen].set(jnp.moveaxis(rows, 1, 0))

        return walkers._replace(
            log_omega=put(walkers.log_omega, moved.log_omega),
            omega=put(walkers.omega, moved.omega),
            fitted=walkers.fitted.at[own].set(moved.fitted),
        )

    # --- directions ------------------------------------------------------------------------------------------

    def differences(self, key: jax.Array, omega: jax.Array, other: jax.Array) -> Direction:
        """Return differences between walkers of the other half, of the same ensemble."""
        omega = omega[other]
        ensembles = omega.reshape(*omega.shape[:-1], ENSEMBLES, self.half)
        # All walkers look equally far along the row of the others: shifts are cheaper than choices of their own.
        first, second = (jnp.roll(ensembles, shift, -1).reshape(omega.shape) for shift in _two(key, self.half))
        difference = first - second
        # Close to a vertex rounding would leave the plane: the largest component is what the others leave.
        mass = jnp.maximum(first, second)
        is_largest = mass >= mass.max(1, keepdims=True)
        others = _sum(jnp.where(is_largest, 0, difference))
        direction = jnp.where(is_largest, -others / _sum(is_largest.astype(mass.dtype)), difference)
        size = _sum(jnp.abs(direction))
        direction = direction / jnp.where(size > 0, size, 1)
        product = jnp.matmul(self.root, direction, precision=EXACT)
        return Direction(jnp.arange(mass.shape[1]), direction, product)

    def subset(self, size: int, key: jax.Array, *_) -> Direction:
        """Return directions in which some components change, and as the likelihood lets them."""
        num_problems, num_components = self.density.shape
        dtype = self.prior.dtype
        chosen = jax.random.permutation(key, num_components)[: self.width]
        normals = jax.random.normal(jax.random.fold_in(key, 1), (size - 1, self.count), dtype)
        columns = self.root[:, :, chosen[:size]]
        columns = columns[:, :, :-1] - columns[:, :, -1:]
        identity = jnp.broadcast_to(jnp.eye(size - 1, dtype=dtype), (num_problems, size - 1, size - 1))
        factor = jnp.linalg.qr(jnp.concatenate([columns, identity], 1), mode="r")
        inverse = jax.scipy.linalg.solve_triangular(factor, identity)
        steps = jnp.matmul(inverse, normals, precision=EXACT)
        product = jnp.matmul(columns, steps, precision=EXACT)
        rest = jnp.zeros((num_problems, self.width - size, self.count), dtype)
        return Direction(chosen, jnp.concatenate([steps, -steps.sum(1, keepdims=True), rest], 1), product)

    def widened(self, some: Callable[..., Direction]) -> Callable[..., Direction]:
        """Return directions of a few components as directions of all, most of which don't change."""

        def directions(key, omega, _):
            chosen, step, product = some(key)
            every = jnp.zeros_like(omega[0]).at[:, chosen].set(step)
            return Direction(jnp.arange(every.shape[1]), every, product)

        return directions

    # --- moves -----------------------------------------------------------------------------------------------

    def _curve(self, walkers: Walkers, direction: Direction) -> tuple[jax.Array, jax.Array]:
        """Return curvature and slope of the negative log-likelihood along lines, ``(B, L)``."""
        assert self.quadratic is not None
        chosen, step, product = direction
        linear = jnp.einsum("bk,bkl->bl", self.quadratic.gradient[:, chosen], step, precision=EXACT)
        curvature = walkers.precision * _fold(jnp.add, jnp.square(product))
        return curvature, walkers.precision * (linear + _fold(jnp.add, walkers.fitted * product))

    def exactly(self, key: jax.Array, walkers: Walkers, direction: Direction) -> Walkers:
        """Return walkers moved along lines to draws of cut normal distributions."""
        curvature, slope = self._curve(walkers, direction)
        _, step, product = direction
        size = jnp.abs(step)
        reach = jnp.where(size > 0, walkers.omega / jnp.where(size > 0, size, 1), jnp.inf)
        low = _fold(jnp.minimum, jnp.where(step > 0, reach, jnp.inf))
        high = _fold(jnp.minimum, jnp.where(step < 0, reach, jnp.inf))
        movable = jnp.isfinite(low) & jnp.isfinite(high) & (low + high > 0)
        low, high = jnp.where(movable, low, 1), jnp.where(movable, high, 1)
        stiffness = jnp.maximum(jnp.sqrt(curvature), 1e-6 / (low + high))
        interval = cut(slope / stiffness - low * stiffness, (low + high) * stiffness)
        bits = jax.random.bits(key, (self.count,), unit_cube.bits_dtype(low.dtype))
        from_low, from_high = interval.quantile(unit_cube.uniform(bits, low.dtype), unit_cube.uniform(~bits, low.dtype))
        # From the nearer end, which keeps its digits.
        length = jnp.where(from_low < from_high, from_low / stiffness - low, high - from_high / stiffness)
        length = jnp.where(movable, length, 0)[:, None]
        omega = jnp.maximum(walkers.omega + length * step, 0)
        log_omega = jnp.log(jnp.maximum(omega, jnp.finfo(omega.dtype).tiny))
        return walkers._replace(omega=omega, log_omega=log_omega, fitted=walkers.fitted + length * product)

    def by_slices(self, key: jax.Array, walkers: Walkers, direction: Direction) -> Walkers:
        """Return walkers moved along lines by a step of slice sampling."""
        bits = jax.random.bits(key, (2 + MAX_SHRINKS, self.count), unit_cube.bits_dtype(self.prior.dtype))
        level, offset, *shares = unit_cube.uniform(bits, self.prior.dtype)
        shares = jnp.stack(shares)
        chosen, step, product = direction
        powers = self.prior[:, chosen] - 1
        size, rises = jnp.abs(step), step > 0
        tiny = jnp.finfo(size.dtype).tiny
        log_size = jnp.log(jnp.where(size > 0, size, 1))
        log_reach = jnp.where(size > 0, walkers.log_omega - log_size, jnp.inf)
        log_low = _fold(jnp.minimum, jnp.where(rises, log_reach, jnp.inf))
        log_high = _fold(jnp.minimum, jnp.where(rises, jnp.inf, log_reach))
        curvature = slope = jnp.zeros_like(log_low)
        if self.quadratic is not None:
            curvature, slope = self._curve(walkers, direction)
            log_low, log_high = self._within_sight(curvature, slope, log_low, log_high)
        low, high = jnp.exp(log_low), jnp.exp(log_high)
        length = low + high
        movable = jnp.isfinite(length) & (length > 0)
        low, length = jnp.where(movable, low, 0), jnp.where(movable, length, 1)
        # What a component has left at the end towards which it falls; nothing, if it is the one that sets the end.
        log_end = jnp.where(rises, log_low[:, None], log_high[:, None])
        left = walkers.omega - size * jnp.where(size > 0, jnp.exp(log_end), 0)
        gap = jnp.where(log_reach <= log_end, 0, jnp.maximum(left, tiny))
        log_scale = log_size + jnp.log(length)[:, None]

        def place(position):
            """Return ``ln omega`` and omega at positions along the lines, the Jacobian, and the steps."""
            log_up, log_down = -jax.nn.softplus(-position), -jax.nn.softplus(position)
            up, down = jnp.exp(log_up) * length, jnp.exp(log_down) * length
            omega = gap + size * jnp.where(rises, up[:, None], down[:, None])
            at_end = log_scale + jnp.where(rises, log_up[:, None], log_down[:, None])
            log_omega = jnp.where(gap > 0, jnp.log(jnp.maximum(omega, tiny)), at_end)
            return log_omega, omega, log_up + log_down, up - low

        def log_target(position):
            log_omega, omega, jacobian, moved = place(position)
            if self.quadratic is None:
                log_likelihood = self.density.log_ratio(omega)
            else:
                log_likelihood = -moved * (slope + 0.5 * curvature * moved)
            return jnp.einsum("bk,bkl->bl", powers, log_omega, precision=EXACT) + log_likelihood + jacobian

        here = jnp.where(movable, log_low - log_high, 0)
        height = log_target(here) + jnp.log(level)

        def searching(state):
            return jnp.any(~state[-1]) & (state[0] < MAX_SHRINKS)

        def shrink(state):
            count, left, right, position, found = state
            tried = left + shares[count] * (right - left)
            hit = ~found & (log_target(tried) > height)
            missed = ~found & ~hit
            return (
                count + 1,
                jnp.where(missed & (tried < here), tried, left),
                jnp.where(missed & (tried >= here), tried, right),
                jnp.where(hit, tried, position),
                found | hit,
            )

        # An interval of fixed width around the walker, at random; a walker that finds nothing in time stays.
        left = here - self.sight * offset
        state = jnp.int32(0), left, left + self.sight, here, ~movable | ~jnp.isfinite(height)
        position = lax.while_loop(searching, shrink, state)[3]
        log_omega, omega, _, length_moved = place(position)
        moved = (movable & (position != here))[:, None]
        fitted = walkers.fitted + jnp.where(moved, length_moved[:, None], 0) * product
        return walkers._replace(
            log_omega=jnp.where(moved, log_omega, walkers.log_omega),
            omega=jnp.where(moved, omega, walkers.omega),
            fitted=walkers.fitted if self.quadratic is None else fitted,
        )

    def _within_sight(
        self, curvature: jax.Array, slope: jax.Array, log_low: jax.Array, log_high: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Return logarithms of the distances to the line's ends, or to where the likelihood has become nothing."""
        low, high = jnp.exp(log_low), jnp.exp(log_high)
        curved = curvature > 0
        peak = jnp.where(curved, jnp.clip(-slope / jnp.where(curved, curvature, 1), -low, high), 0)
        steepness = jnp.abs(slope + curvature * peak)
        width = 2 * self.window / (steepness + jnp.sqrt(jnp.square(steepness) + 2 * curvature * self.window))
        below, above = width - peak, width + peak
        below, above = jnp.where(below > 0, below, width), jnp.where(above > 0, above, width)
        return jnp.minimum(log_low, jnp.log(below)), jnp.minimum(log_high, jnp.log(above))


def _fold(combine: Callable[[jax.Array, jax.Array], jax.Array], values: jax.Array) -> jax.Array:
    """Return the sum, or the smallest, ... over the last axis but one; halves are folded, which a CPU vectorises."""
    while values.shape[-2] > 1:
        half = values.shape[-2] // 2
        rest = values[..., 2 * half :, :]
        values = jnp.concatenate([combine(values[..., :half, :], values[..., half : 2 * half, :]), rest], axis=-2)
    return values[..., 0, :]


def _sum(values: jax.Array) -> jax.Array:
    """Return sums over the second axis of three, which stays; a product with ones, as a CPU is best at it."""
    return jnp.matmul(jnp.ones((1, values.shape[1]), values.dtype), values, precision=EXACT)


def _two(key: jax.Array, number: int) -> tuple[jax.Array, jax.Array]:
    """Return two different integers below a number."""
    first_key, second_key = jax.random.split(key)
    first = jax.random.randint(first_key, (), 0, number)
    other = jax.random.randint(second_key, (), 0, number - 1)
    return first, other + (other >= first)
