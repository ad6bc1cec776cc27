"""Ensemble hit-and-run: Markov chains on the simplex, for posteriors that no proposal reaches.

Walkers come in ensembles of two halves. A walker moves along a line: the difference of two walkers of the other half,
which follows the shape of the posterior, or a direction in which a few components change (see ``directions``). Its new
place is a draw from the posterior along the line (see ``lines`` and ``slices``).

Lines are short where there are many walls. For linear problems whose concentrations are known to be at least one,
walkers therefore also fly along broken lines (see ``bounces``), which take them across the posterior in one go. If all
are known to be at most one, random rates stand for the poles of the prior, and walkers fly too (see ``rates``).

Ensembles share only the coordinates of their flights. They start farther apart than the posterior is wide (see
``starts``), so agreement of their means (R-hat, see ``convergence``) is evidence of convergence. Rounds double in
length until two in a row say that the means agree and are known well enough (see ``schedule``).

If the evidence is wanted, other walkers come in from the prior through tempered likelihoods first, and chains begin
where they arrive (see ``tempering``).
"""

from __future__ import annotations

import dataclasses
from typing import Self, get_args

import jax
import jax.numpy as jnp

from ... import dirichlet, validation
from ...problems.base import Problem
from ...status import Status
from ...targets import Target
from ...weighting.estimate import Estimate
from ..base import DEFAULT_KEEP, Sampler, num_kept, require_target_ess
from . import tempering
from .bounces import Walls
from .records import Recorder
from .schedule import Schedule, Walk
from .tempering import Tempering
from .walkers import Population

ENSEMBLES = 4
"""Number of independent ensembles."""

MIN_WALKERS = 16
"""Least number of walkers of an ensemble. More walkers would yield more effective draws than requested."""

MAX_SOFT = 8.0
"""Larger concentrations reflect walkers so often that straight lines are better."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class HitAndRun(Sampler):
    """Markov chains that sample the posterior: the fallback that works where the others don't.

    Estimates the exact posterior, and with ``evidence=True`` its evidence. Draws are correlated: ``ess`` is the number
    of independent draws with the same standard error, for the component that is known least precisely; ``rhat``
    compares separate ensembles. It has no derivatives, and raises ``TypeError`` when differentiated.

    Attributes:
      target_ess: one number; rounds end when ``ess`` is at least this and ``rhat`` at most 1.01, and the round before,
        half as long, came near that.
      max_moves: number of moves of a walker after burn-in; no round starts beyond it. ``status`` says if the result
        can't be trusted.
      walkers: number of walkers of each of the four ensembles, a power of two, at least 8; ``None`` for more than half
        the components, and at least 16.
      match: rule for the precision of the approximating Dirichlet (see ``dirichlet.from_moments``).
      keep: number of draws that the posterior keeps, for intervals, samples and predictions: a power of two, or 0.
        Rounds go on, beyond ``max_moves`` too, until there are this many.
      walls: walls off which walkers of linear problems bounce, which is many times faster than straight lines alone:
        ``"hard"`` for those of the simplex, if the prior is uniform; ``"soft"`` for those of the prior, if no
        concentration is below 1; ``"rates"`` for sparse priors, if none is above 1; ``"none"`` for straight lines only,
        which serve any prior. ``None`` chooses by the prior, if its value is known, and takes ``"none"`` if a
        concentration is above 8, or if some are below and some above 1.
      evidence: whether ``log_evidence`` is estimated, by eight ensembles that come in from the prior: several times the
        work of chains that converge soon. Its error does not depend on ``target_ess``.
    """

    target_ess: float | jax.Array = 400.0
    max_moves: int = dataclasses.field(default=1 << 18, metadata={"static": True})
    walkers: int | None = dataclasses.field(default=None, metadata={"static": True})
    match: dirichlet.MatchRule = dataclasses.field(default="ratio", metadata={"static": True})
    keep: int = dataclasses.field(default=DEFAULT_KEEP, metadata={"static": True})
    walls: Walls | None = dataclasses.field(default=None, metadata={"static": True})
    evidence: bool = dataclasses.field(default=False, metadata={"static": True})

    name = "hit_and_run"
    has_derivatives = False
    is_chain = True

    def __post_init__(self) -> None:
        super().__post_init__()
        validation.require_flag("evidence", self.evidence)
        if self.walkers is not None:
            validation.require_at_least("walkers", self.walkers, 8)
            if self.walkers & (self.walkers - 1):
                raise ValueError(f"walkers={self.walkers} must be a power of two, at least 8")
        if self.walls is not None:
            validation.require_choice("walls", self.walls, get_args(Walls))

    @property
    def has_evidence(self) -> bool:  # type: ignore[override]
        """Whether ``log_evidence`` is estimated."""
        return self.evidence

    def with_evidence(self) -> Self:
        """Return the method with ``evidence=True``."""
        return dataclasses.replace(self, evidence=True)

    def is_valid(self) -> jax.Array:
        """Return whether ``target_ess`` is positive; usable inside a trace."""
        return jnp.asarray(self.target_ess) > 0

    def prepare(self, problem: Problem) -> Self:
        """Return the method with walls that suit the prior, if its values are known, or raise ``ValueError``."""
        require_target_ess(self.target_ess)
        prior = validation.known(problem.prior)
        low, high = (1.0, 1.0) if prior is None or not prior.size else (float(prior.min()), float(prior.max()))
        suits, needed = {
            "hard": (low == high == 1, "of 1 for all components"),
            "soft": (low >= 1, "of at least 1"),
            "rates": (high <= 1, "of at most 1"),
        }.get(self.walls or "none", (True, ""))
        if not suits:
            raise ValueError(
                f"walls={self.walls!r} needs a prior {needed}, not one from {low:g} to {high:g}; leave it out"
            )
        if self.walls is not None:
            return super().prepare(problem)
        return dataclasses.replace(super().prepare(problem), walls=_suitable(prior is not None, low, high))

    def elements(self, num_components: int) -> int:
        """Return how many numbers a problem's walkers hold, times 32.

        That makes blocks small: a block waits for its slowest problem.
        """
        walkers = self.num_walkers(num_components)
        count = ENSEMBLES * walkers
        if self.evidence:
            count = tempering.ENSEMBLES * tempering.num_walkers(walkers)
        return max(32 * count, self.keep) * num_components

    def num_walkers(self, num_components: int) -> int:
        """Return the number of walkers of an ensemble."""
        return self.walkers or max(MIN_WALKERS, 1 << (num_components // 2).bit_length())

    def run(self, key: jax.Array, target: Target, axes: tuple[str, ...] = ()) -> Estimate:
        """Return the estimates of B problems; devices along the axes repeat the same work.

        Rounds of doubling length go on until each problem is known well enough, or the moves are spent.
        """
        num_walkers = self.num_walkers(target.shape[1])
        population = Population.of(target, ENSEMBLES, num_walkers)
        walk = Walk.of(population, self.walls)
        arrival = None
        if self.evidence:
            arrival = Tempering.of(target, num_walkers, self.walls).run(
                jax.random.fold_in(key, 3), walk.refuses(~target.valid | ~jnp.isfinite(target.log_peak))
            )
            walkers = population.begin(jax.random.fold_in(key, 0), arrival.log_omega)
        else:
            walkers = population.start(jax.random.fold_in(key, 0))
        hopeless = ~target.valid | ~jnp.isfinite(target.log_peak) | ~jnp.isfinite(walkers.omega).all((0, 2, 3))
        hopeless = walk.refuses(hopeless)
        walkers, frame = walk.come_in(jax.random.fold_in(key, 2), walkers)
        recorder = Recorder.of(population, walkers, self.match == "kl", num_kept(self.keep, target) // ENSEMBLES)
        last = Schedule(walk, recorder, self.target_ess, self.max_moves).run(key, walkers, frame, hopeless)
        found = recorder.estimate(last.parts, last.kept, self.target_ess)
        return found if arrival is None else _with_evidence(found, target, arrival)


def _with_evidence(found: Estimate, target: Target, arrival: tempering.Arrival) -> Estimate:
    """Return the estimate with the evidence from the walkers that came in from the prior."""
    return dataclasses.replace(
        found,
        log_evidence=target.log_peak + arrival.log_mean,
        log_evidence_stderr=arrival.stderr,
        acceptance_rate=jnp.exp(arrival.log_mean),
        status=found.status | jnp.where(arrival.reached, 0, Status.BUDGET),
    )


def _suitable(known: bool, low: float, high: float) -> Walls:
    """Return the walls that suit concentrations from ``low`` to ``high``, if they are known."""
    if not known or high > MAX_SOFT or low < 1 < high:
        return "none"
    if low < 1:
        return "rates"
    return "hard" if high == 1 else "soft"
