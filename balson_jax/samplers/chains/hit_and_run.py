"""Ensemble hit-and-run: walkers that move along lines through the simplex, for what no proposal can reach.

Walkers come in ensembles, of two halves each. A walker moves along the difference of two walkers of the other half,
which knows the posterior's shape, or between a few components, to a point of the line that is distributed as the
posterior is along it. Where the prior is uniform and the model linear that is a cut normal distribution, drawn exactly.
Otherwise it is a step of slice sampling (Neal 2003) in the logarithm of the ratio of the distances to the line's two
ends: in that variable even the poles of a prior with concentrations below one are bounded.

Lines are short where there are many walls. For linear problems whose concentrations are known to be one or more,
walkers therefore also fly along broken lines (see ``bounces``), which take them nearly anywhere in one go.

Ensembles share nothing but the coordinates in which they fly, and start from places that are farther apart than the
posterior is wide (see ``starts``): that their means agree (R-hat) is the sign of convergence. Rounds double in length,
each going on where the last one ended and forgetting it, until two in a row say that the means agree and are known well
enough.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ... import dirichlet, validation
from ...status import MAX_RHAT, Status
from ...targets.functions import Density
from ...weighting import moments as weights
from ...weighting import reservoir
from ...weighting.estimate import Estimate, verdict
from ..base import DEFAULT_KEEP, Sampler, match_alpha, num_kept
from ..rejection import without_derivatives
from .bounces import Bounces, Walls
from .lines import ENSEMBLES, Lines

BATCHES = 8
"""A round of an ensemble is cut into so many batches, whose means tell the standard error."""

MIN_WALKERS = 64
SQUARES_VARIANCE = 4.0
"""Variance of a squared deviation, in units of the squared variance: between a normal's, 2, and an exponential's, 8."""

MAX_SOFT = 8.0
"""Larger concentrations reflect walkers so often that straight lines are better."""

FIRST_ROUND = 2
"""How many times walkers are recorded in each batch of the first round."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class HitAndRun(Sampler):
    """Markov chains that sample the posterior: the fallback that works where the others don't.

    Estimates the exact posterior, but not its evidence. Draws are correlated: ``ess`` counts what they are worth, from
    the means of batches, for the component that is known worst; ``rhat`` compares separate ensembles. It has no
    derivatives, and refuses to be differentiated.

    Attributes:
      target_ess: one number; rounds end when ``ess`` is at least this and ``rhat`` at most 1.01, and the round before,
        half as long, came near that.
      max_moves: moves of a walker, once it has come in from afar, after which to take what there is; ``status`` tells
        if that can't be trusted.
      walkers: in each of the four ensembles, a power of two, at least 8; ``None`` for more than half the components,
        and 64 at least. More, if a quarter of ``keep`` is more.
      match: rule for the precision of the approximating Dirichlet (see ``dirichlet.from_moments``).
      keep: how many draws the posterior keeps, for intervals, samples and predictions: a power of two, or 0 for none.
      walls: off what walkers of linear problems bounce, which is many times faster than straight lines alone:
        ``"hard"`` for the simplex's, if the prior is uniform; ``"soft"`` for the prior's, if no concentration is below
        1; ``"none"`` serves any prior. ``None`` looks at the prior, if its value is known; above 8 it means ``"none"``.
    """

    target_ess: float | jax.Array = 400.0
    max_moves: int = dataclasses.field(default=1 << 18, metadata={"static": True})
    walkers: int | None = dataclasses.field(default=None, metadata={"static": True})
    match: dirichlet.MatchRule = dataclasses.field(default="ratio", metadata={"static": True})
    keep: int = dataclasses.field(default=DEFAULT_KEEP, metadata={"static": True})
    walls: Walls | None = dataclasses.field(default=None, metadata={"static": True})

    name = "hit_and_run"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.walkers is not None:
            validation.require_at_least("walkers", self.walkers, 8)
            if self.walkers & (self.walkers - 1):
                raise ValueError(f"walkers={self.walkers} must be a power of two, at least 8")
        if self.walls is not None:
            validation.require_choice("walls", self.walls, get_args(Walls))

    def is_valid(self) -> jax.Array:
        """Return whether the target is in its domain; usable inside a trace."""
        return jnp.asarray(self.target_ess) > 0

    def suited_to(self, prior: np.ndarray | None) -> HitAndRun:
        """Return the method with walls that suit a prior, if its values are known."""
        low, high = (1.0, 1.0) if prior is None or not prior.size else (float(prior.min()), float(prior.max()))
        if (self.walls == "hard" and not low == high == 1) or (self.walls == "soft" and low < 1):
            needed = "of 1 for all components" if self.walls == "hard" else "of at least 1"
            raise ValueError(
                f"walls={self.walls!r} needs a prior {needed}, not one from {low:g} to {high:g}; leave it out"
            )
        if self.walls is not None:
            return self
        suitable = "none" if prior is None or low < 1 or high > MAX_SOFT else "hard" if high == 1 else "soft"
        return dataclasses.replace(self, walls=suitable)

    def elements(self, num_components: int, shares_draws: bool) -> int:
        """Return a problem's share of a block; blocks are small, as all their problems wait for the slowest."""
        return 32 * ENSEMBLES * self.num_walkers(num_components) * num_components

    def num_walkers(self, num_components: int) -> int:
        """Return how many walkers an ensemble has."""
        wanted = self.walkers or max(MIN_WALKERS, 1 << (num_components // 2).bit_length())
        return max(wanted, self.keep // ENSEMBLES)

    def run(self, key: jax.Array, density: Density, axes: tuple[str, ...] = ()) -> tuple[Estimate, jax.Array]:
        """Return the estimates and the matched ``alpha`` of B problems; devices along the axes all do the same."""
        found = hit_and_run(key, without_derivatives(density), self)
        return found, match_alpha(found, self.match, density)


def hit_and_run(key: jax.Array, density: Density, method: HitAndRun) -> Estimate:
    """Walk rounds of doubling length until each of B problems is known well enough, or the moves are spent."""
    num_problems, num_components = density.shape
    num_walkers = method.num_walkers(num_components)
    dtype = density.prior.dtype
    sizes = weights.Sizes(0, min(num_kept(method.keep, density) // ENSEMBLES, num_walkers))
    lines = Lines(density, num_walkers // 2, method.walls == "hard")
    bounces = Bounces.of(density, method.walls)
    # Walkers are recorded after a flight, or after about as many moves as a quarter of the components.
    cycles = 1 if bounces else -(-num_components // (4 * lines.moves))
    moves = cycles * lines.moves + (num_components if bounces else 0)
    walkers = lines.start(jax.random.fold_in(key, 0))
    frame = None
    log_moments = method.match == "kl"
    num_logs = num_components if log_moments else 0
    nothing = weights.empty(num_problems * ENSEMBLES, density.feature_shape[1], num_logs, sizes, dtype)

    def record(walkers, key):
        """Return the moments of where all walkers are, each ensemble as a problem of its own."""

        def flat(values):
            parts = values.reshape(2, num_problems, num_components, ENSEMBLES, num_walkers // 2)
            parts = jnp.moveaxis(parts, (0, 3), (3, 1))
            return parts.reshape(num_problems * ENSEMBLES, num_components, num_walkers)

        omega = flat(walkers.omega)
        gumbel = reservoir.gumbel(key, num_walkers, 0, dtype) if sizes.slots else None
        logs = jnp.zeros((omega.shape[0], num_walkers), dtype)
        log_omega = flat(walkers.log_omega) if log_moments else None
        # About a place among them: sums of numbers close to one would lose the digits in which they differ.
        features = density.features(omega) - jnp.repeat(middle, ENSEMBLES, 0)[:, :, None]
        return weights.digest(logs, features, log_omega, jnp.asarray(num_walkers), gumbel, sizes)

    def advance(key, walkers, frame):
        walkers = lax.fori_loop(0, cycles, lambda i, w: lines.cycle(jax.random.fold_in(key, i), w), walkers)
        if bounces:
            walkers = bounces.fly(jax.random.fold_in(key, cycles + 1), walkers, frame)
        return lines.refresh(jax.random.fold_in(key, cycles), walkers)

    def batch(carry, _):
        walkers, frame, key, length = carry

        def step(index, state):
            walkers, moments = state
            own = jax.random.fold_in(key, index)
            walkers = advance(own, walkers, frame)
            return walkers, weights.merge(moments, record(walkers, own))

        walkers, moments = lax.fori_loop(0, length, step, (walkers, nothing))
        return (walkers, frame, jax.random.fold_in(key, 1 << 30), length), moments

    def unfinished(state):
        return jnp.any(~state[-1]) & (state[2] < method.max_moves)

    def round_of_batches(state):
        walkers, frame, moved, length, parts, promising, done = state
        own = jax.random.fold_in(jax.random.fold_in(key, 1), moved)
        if bounces:
            frame, _ = bounces.adapted(frame, walkers)
        (walkers, *_), found = lax.scan(batch, (walkers, frame, own, length), None, BATCHES)
        found = jax.tree.map(lambda leaf: _by_ensemble(leaf, num_problems), found)
        parts = jax.tree.map(
            lambda new, old: jnp.where(done.reshape(1, -1, *(1,) * (new.ndim - 2)), old, new), found, parts
        )
        ess, rhat, _ = _diagnose(parts)
        # Two rounds must tell the same, as one might be lucky; along lines the first is for coming in from afar.
        done = done | (promising & (ess >= method.target_ess) & (rhat <= MAX_RHAT))
        has_come_in = bounces is not None or moved > 0
        promising = has_come_in & (ess >= method.target_ess / 4) & (rhat <= 1 + 4 * (MAX_RHAT - 1))
        return walkers, frame, moved + BATCHES * length * moves, 2 * length, parts, promising, done

    parts = jax.tree.map(
        lambda leaf: _by_ensemble(jnp.broadcast_to(leaf, (BATCHES, *leaf.shape)), num_problems), nothing
    )
    hopeless = ~density.valid | ~jnp.isfinite(density.log_peak) | ~jnp.isfinite(walkers.omega).all((0, 2, 3))
    if bounces:
        hopeless = hopeless | ~bounces.suits()
        walkers, frame = bounces.come_in(jax.random.fold_in(key, 2), walkers, advance)
    middle = density.features(walkers.omega[0, :, :, :1])[:, :, 0]
    length = jnp.int32(1 if bounces else FIRST_ROUND)
    state = walkers, frame, jnp.int32(0), length, parts, jnp.zeros_like(hopeless), hopeless
    parts = lax.while_loop(unfinished, round_of_batches, state)[4]
    return _estimate(parts, middle)


def _by_ensemble(leaf: jax.Array, num_problems: int) -> jax.Array:
    """Return moments of batches, ``(BATCHES, B E, ...)``, as ``(E BATCHES, B, ...)``, those of an ensemble together."""
    leaf = leaf.reshape(BATCHES, num_problems, ENSEMBLES, *leaf.shape[2:])
    leaf = jnp.moveaxis(leaf, (2, 0), (0, 1))
    return leaf.reshape(ENSEMBLES * BATCHES, *leaf.shape[2:])


def _diagnose(parts: weights.Moments) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return effective draws and split R-hat of the worst feature, ``(B,)``; standard errors of means, ``(B, F)``."""
    whole = weights.combine(parts)
    variance = whole.spread / whole.mass[:, None]
    count = parts.mean.shape[0]
    # From batches, and from unions of them up to whole ensembles: the shorter ones don't see slow changes, the longer
    # ones are few.
    sizes = (1, 2, 4, BATCHES)
    error_square = functools.reduce(jnp.maximum, [_error_square(parts.mean, count // size) for size in sizes])
    still = variance <= 0
    ess = jnp.where(
        still,
        whole.mass[:, None],
        variance / jnp.where(still, 1, jnp.maximum(error_square, variance / whole.mass[:, None])),
    )
    # Halves of ensembles, as chains (Margossian et al. 2024).
    halves = parts.mean.reshape(2 * ENSEMBLES, BATCHES // 2, *parts.mean.shape[1:]).mean(1)
    between = jnp.var(halves, 0, ddof=1)
    within = jnp.where(still, 1, variance - jnp.minimum(jnp.var(halves, 0), 0.99 * variance))
    # Of squares too, as outliers on both sides leave the means alone; relative ones, as those may be too small.
    scale = jnp.where(still, 1, variance)
    squares = (parts.spread / parts.mass[..., None] + jnp.square(parts.mean - whole.mean)) / scale
    squares = squares.reshape(2 * ENSEMBLES, BATCHES // 2, *squares.shape[1:]).mean(1)
    unequal = jnp.var(squares, 0, ddof=1) / SQUARES_VARIANCE
    rhat = jnp.where(still, 1, jnp.sqrt(1 + jnp.maximum(between / within, unequal)))
    return ess.min(-1), rhat.max(-1), jnp.sqrt(error_square)


def _error_square(means: jax.Array, groups: int) -> jax.Array:
    """Return the squared standard error of the mean of batches, ``(B, F)``, from the spread of groups of them."""
    grouped = means.reshape(groups, -1, *means.shape[1:]).mean(1)
    return jnp.var(grouped, 0, ddof=1) / groups


def _estimate(parts: weights.Moments, middle: jax.Array) -> Estimate:
    """Return what moments about a place, ``(B, F)``, tell."""
    whole = weights.combine(parts)
    ess, rhat, mean_stderr = _diagnose(parts)
    share = jnp.ones_like(parts.mass) / whole.mass
    draws, draw_weights = reservoir.gather(_merged_kept(parts), share[:ENSEMBLES])
    unknown = jnp.full_like(ess, jnp.nan)
    status = verdict(ess, unknown, 2) | jnp.where(rhat <= MAX_RHAT, 0, Status.HIGH_RHAT)
    return Estimate(
        mean=middle + whole.mean,
        variance=whole.spread / whole.mass[:, None],
        log_mean=whole.log_mean,
        mean_stderr=mean_stderr,
        log_evidence=unknown,
        log_evidence_stderr=jnp.full_like(ess, jnp.inf),
        acceptance_rate=unknown,
        ess=ess,
        pareto_k=unknown,
        rhat=rhat,
        status=status.astype(jnp.int32),
        draws=middle[:, :, None] + draws,
        draw_weights=draw_weights,
    )


def _merged_kept(parts: weights.Moments) -> reservoir.Reservoir:
    """Return the kept draws of ensembles, those of their batches merged."""
    kept = jax.tree.map(lambda leaf: leaf.reshape(ENSEMBLES, BATCHES, *leaf.shape[1:]), parts.kept)
    return jax.vmap(lambda own: reservoir.merge(own, jnp.ones((BATCHES, own.mass.shape[1]), own.mass.dtype)))(kept)
