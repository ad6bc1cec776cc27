"""Rounds of doubling length, until the chains of each problem agree and its means are known well enough.

A round goes on where the last one ended, and forgets its records: so the share of walkers that are still on their way
in shrinks. Two rounds in a row must agree, because one might be lucky.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ...status import MAX_RHAT
from ...weighting import moments as running
from ...weighting.convergence import BATCHES, judge
from ...weighting.reservoir import Reservoir
from . import coordinates
from .bounces import Bounces, Walls
from .coordinates import Frame
from .lines import Lines
from .rates import Rates
from .records import Recorder
from .walkers import Population, Walkers

FIRST_ROUND = 2
"""Number of records in each batch of the first round along lines only; with bounces it is 1."""


@dataclasses.dataclass(frozen=True)
class Walk:
    """The way from one record of walkers to the next.

    Attributes:
      lines: moves along lines.
      bounces: flights; ``None`` if walkers don't fly.
      rates: moves for sparse priors; ``None`` for others.
    """

    lines: Lines
    bounces: Bounces | None
    rates: Rates | None = None

    @staticmethod
    def of(population: Population, walls: Walls | None) -> Walk:
        """Return the moves of a population that suit the walls."""
        rates = Rates.of(population) if walls == "rates" else None
        return Walk(Lines.of(population, walls == "hard"), Bounces.of(population, walls), rates)

    def refuses(self, hopeless: jax.Array) -> jax.Array:
        """Return which problems are hopeless, or have priors that don't agree with the walls, ``(B,)``."""
        for moves in (self.bounces, self.rates):
            hopeless = hopeless if moves is None else hopeless | ~moves.suits()
        return hopeless

    @property
    def flies(self) -> bool:
        """Whether walkers fly."""
        return self.bounces is not None or self.rates is not None

    @property
    def cycles(self) -> int:
        """Number of cycles between records: 1 with flights; else moves for about a quarter of the components."""
        num_components = self.lines.population.target.shape[1]
        return 1 if self.flies else -(-num_components // (4 * self.lines.moves))

    @property
    def moves(self) -> int:
        """Number of moves between records; a flight counts as one for each component."""
        return self.cycles * self.lines.moves + (self.lines.population.target.shape[1] if self.flies else 0)

    def advance(self, key: jax.Array, walkers: Walkers, frame: Frame | None) -> Walkers:
        """Return the walkers at their next record."""

        def cycle(index, walkers):
            return self.lines.cycle(jax.random.fold_in(key, index), walkers)

        walkers = lax.fori_loop(0, self.cycles, cycle, walkers)
        if self.bounces and frame is not None:
            walkers = self.bounces.fly(jax.random.fold_in(key, self.cycles + 1), walkers, frame)
        if self.rates:
            walkers = self.rates.move(jax.random.fold_in(key, self.cycles + 1), walkers)
        return self.lines.population.refresh(jax.random.fold_in(key, self.cycles), walkers)

    def come_in(self, key: jax.Array, walkers: Walkers) -> tuple[Walkers, Frame | None]:
        """Return walkers that have come in from afar, and the coordinates of their flights."""
        if self.bounces is None:
            return walkers, None
        return coordinates.come_in(key, self.bounces.quadratic, self.bounces.prior, walkers, self.advance)

    def adapted(self, frame: Frame | None, walkers: Walkers) -> Frame | None:
        """Return coordinates that suit where the walkers are now."""
        if self.bounces is None or frame is None:
            return None
        return coordinates.adapted(self.bounces.quadratic, frame, walkers)[0]


class State(NamedTuple):
    """State between rounds.

    Attributes:
      walkers: the walkers.
      frame: the coordinates of their flights, or ``None``.
      moved: number of moves of a walker so far.
      length: number of records in each batch of the next round.
      parts: moments of the batches of the last round, ``(E BATCHES, B, ...)``, those of an ensemble together.
      kept: kept draws of the last round.
      promising: True for problems whose last round came near the target, ``(B,)``.
      done: True for problems that are finished, whose moments and draws no longer change, ``(B,)``.
    """

    walkers: Walkers
    frame: Frame | None
    moved: jax.Array
    length: jax.Array
    parts: running.Moments
    kept: Reservoir
    promising: jax.Array
    done: jax.Array


class Progress(NamedTuple):
    """State within a round: the walkers, the moments of the current batch, and the draws kept in this round."""

    walkers: Walkers
    moments: running.Moments
    kept: Reservoir


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Rounds of records.

    Attributes:
      walk: the way from one record to the next.
      recorder: turns records into moments and kept draws.
      target_ess: number of effective draws at which a problem is finished.
      max_moves: number of moves of a walker after which no round begins, once all slots are filled.
    """

    walk: Walk
    recorder: Recorder
    target_ess: jax.Array | float
    max_moves: int

    def run(self, key: jax.Array, walkers: Walkers, frame: Frame | None, hopeless: jax.Array) -> State:
        """Return the state after the last round; hopeless problems, ``(B,)``, are skipped."""
        nothing = self.recorder.no_moments()
        parts = jax.tree.map(lambda leaf: self._by_ensemble(jnp.broadcast_to(leaf, (BATCHES, *leaf.shape))), nothing)
        first = State(
            walkers=walkers,
            frame=frame,
            moved=jnp.int32(0),
            length=jnp.int32(1 if self.walk.bounces else FIRST_ROUND),
            parts=parts,
            kept=self.recorder.no_draws(),
            promising=jnp.zeros_like(hopeless),
            done=hopeless,
        )
        return lax.while_loop(self._unfinished, lambda state: self._next(key, state), first)

    def _unfinished(self, state: State) -> jax.Array:
        """Return whether another round is needed: at least until all slots are filled."""
        last = jnp.where(state.moved > 0, state.length // 2, 0)
        within = (state.moved < self.max_moves) | ~self._is_filled(last)
        return jnp.any(~state.done) & within

    def _is_filled(self, length: jax.Array) -> jax.Array:
        """Return whether a round with ``length`` records in each batch fills all slots."""
        return BATCHES * length >= self.recorder.groups

    def _next(self, key: jax.Array, state: State) -> State:
        """Return the state after one more round."""
        own = jax.random.fold_in(jax.random.fold_in(key, 1), state.moved)
        frame = self.walk.adapted(state.frame, state.walkers)
        walkers, found, kept = self._round(own, state.walkers, frame, state.length)
        parts = jax.tree.map(lambda new, old: _unless(state.done, new, old), found, state.parts)
        done_ensembles = jnp.repeat(state.done, self.recorder.population.ensembles)
        kept = jax.tree.map(lambda new, old: _unless(done_ensembles, new, old), kept, state.kept)
        ess, rhat, *_ = judge(parts, self.recorder.population.ensembles)
        good = (ess >= self.target_ess) & (rhat <= MAX_RHAT)
        near = (ess >= self.target_ess / 4) & (rhat <= 1 + 4 * (MAX_RHAT - 1))
        # Along lines walkers come in from afar during the first round.
        has_come_in = self.walk.bounces is not None or state.moved > 0
        return State(
            walkers=walkers,
            frame=frame,
            moved=state.moved + BATCHES * state.length * self.walk.moves,
            length=2 * state.length,
            parts=parts,
            kept=kept,
            promising=has_come_in & near,
            done=state.done | (state.promising & good & self._is_filled(state.length)),
        )

    def _round(
        self, key: jax.Array, walkers: Walkers, frame: Frame | None, length: jax.Array
    ) -> tuple[Walkers, running.Moments, Reservoir]:
        """Return the walkers after a round, the moments of its batches by ensemble, and its kept draws."""

        def batch(carry, number):
            walkers, kept, key = carry
            first = Progress(walkers, self.recorder.no_moments(), kept)

            def step(index, state: Progress):
                own = jax.random.fold_in(key, index)
                walkers = self.walk.advance(own, state.walkers, frame)
                record = self.recorder.add(own, walkers, number * length + index, state.moments, state.kept)
                return Progress(walkers, *record)

            walkers, moments, kept = lax.fori_loop(0, length, step, first)
            return (walkers, kept, jax.random.fold_in(key, 1 << 30)), moments

        carry = walkers, self.recorder.no_draws(), key
        (walkers, kept, _), found = lax.scan(batch, carry, jnp.arange(BATCHES))
        return walkers, jax.tree.map(self._by_ensemble, found), kept

    def _by_ensemble(self, leaf: jax.Array) -> jax.Array:
        """Return moments of batches, ``(BATCHES, B E, ...)``, as ``(E BATCHES, B, ...)``, an ensemble's together."""
        ensembles = self.recorder.population.ensembles
        leaf = leaf.reshape(BATCHES, leaf.shape[1] // ensembles, ensembles, *leaf.shape[2:])
        leaf = jnp.moveaxis(leaf, (2, 0), (0, 1))
        return leaf.reshape(ensembles * BATCHES, *leaf.shape[2:])


def _unless(done: jax.Array, new: jax.Array, old: jax.Array) -> jax.Array:
    """Return the new values, or the old ones where done; problems are along the second axis."""
    return jnp.where(done.reshape(1, -1, *(1,) * (new.ndim - 2)), old, new)
