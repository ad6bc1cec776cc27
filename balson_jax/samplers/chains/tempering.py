"""Evidence from walkers that come in from the prior through tempered likelihoods: sequential Monte Carlo.

Walkers of independent ensembles begin as exact draws of the prior, and follow the distributions

    prior * (likelihood / peak)^b,    0 = b_0 < b_1 < ... = 1.

At each step a walker has the weight ``(likelihood / peak)^(b' - b)``. The mean weight of an ensemble estimates the
ratio of two normalising constants, and the product of these means ``evidence / peak``. The estimate is unbiased
whether or not the moves mix, if powers and moves are fixed beforehand (Del Moral, Doucet and Jasra 2006). Here they
follow the walkers, which adds a bias of the order of one over their number. Walkers are resampled by their weights, and
move on as chains do.

*Moves.* Let x be the nats of likelihood that a place loses. For known noise the power of a likelihood is
``exp(-b x)``, the Gaussian whose quadratic is multiplied by b. For unknown noise the likelihood is
``(1 + x / a)^-a``, a mixture of ``exp(-p x)`` over precisions ``p ~ Gamma(a) / a``. Its power is
``(1 + x' / a')^-a'`` with ``x' = b x`` and ``a' = b a``: the same mixture for the quadratic multiplied by b. So given
the place, ``p ~ Gamma(a') / (a' + x')``, and everything that moves walkers serves (see ``Population.tempered``).
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ...random import points as unit_cube
from ...random.simplex import log_dirichlet
from ...targets import Target
from .bounces import Walls
from .coordinates import Frame, first_frame
from .powers import combined, correlation, effective_share, next_power, resampled
from .schedule import Walk
from .walkers import Population, Walkers

ENSEMBLES = 8
"""Number of independent ensembles. The error follows from their spread. With more, each has too few walkers."""

LEAST_WALKERS = 64
"""Least number of walkers of an ensemble."""

REMEMBERED = 0.3
"""Walkers move at one power until their log-likelihoods have at most this correlation with the first ones."""

MAX_ADVANCES = 16
"""Number of times that walkers move at one power, at most."""

MAX_STEPS = 2000
"""Number of powers, at most."""


class Descent(NamedTuple):
    """Walkers on their way from the prior to the posterior.

    Attributes:
      walkers: the walkers.
      frame: the coordinates of their flights, or ``None``.
      power: to which likelihoods are raised, ``(B,)``.
      log_means: logarithms of the estimates of each ensemble, ``(B, E)``.
      variance: variance of the logarithm of all ensembles' estimate if moves gave independent walkers, ``(B,)``.
      steps: number of steps so far.
    """

    walkers: Walkers
    frame: Frame | None
    power: jax.Array
    log_means: jax.Array
    variance: jax.Array
    steps: jax.Array


class Arrival(NamedTuple):
    """Walkers that have come in from the prior, and their estimate of the evidence.

    Attributes:
      log_omega: logarithms of their places, ``(B, K, E, W)``.
      log_mean: logarithm of ``evidence / peak``, ``(B,)``.
      stderr: its standard error, ``(B,)``.
      reached: whether the walkers reached the posterior, ``(B,)``.
    """

    log_omega: jax.Array
    log_mean: jax.Array
    stderr: jax.Array
    reached: jax.Array


class Progress(NamedTuple):
    """Walkers that move at a power, how often they have, and which problems' walkers have moved enough, ``(B,)``."""

    walkers: Walkers
    number: jax.Array
    settled: jax.Array


@dataclasses.dataclass(frozen=True)
class Tempering:
    """The way of walkers from the prior to the posterior.

    Attributes:
      population: the problems and the sizes of the ensembles.
      walls: see ``HitAndRun``.
    """

    population: Population
    walls: Walls | None

    @staticmethod
    def of(target: Target, walkers: int, walls: Walls | None) -> Tempering:
        """Return the way for the problems of a target, with at least ``walkers`` walkers in each ensemble."""
        population = Population.of(target, ENSEMBLES, num_walkers(walkers))
        noise = target.noise
        # For other noise a power of the likelihood is no such mixture. Moves along lines serve any likelihood.
        if not noise.has_fixed_level and noise.precision_shape(target.num_rows) is None:
            population = dataclasses.replace(population, quadratic=None)
        return Tempering(population, walls)

    def run(self, key: jax.Array, hopeless: jax.Array) -> Arrival:
        """Return the walkers at the posterior; hopeless problems, ``(B,)``, are skipped."""

        def unfinished(state: Descent):
            return jnp.any(state.power < 1) & (state.steps < MAX_STEPS)

        last = lax.while_loop(unfinished, lambda state: self._next(key, state), self._first(key, hopeless))
        log_mean, stderr = combined(last.log_means, last.variance)
        log_mean = jnp.where(hopeless, jnp.nan, log_mean)
        reached = (last.power >= 1) & jnp.isfinite(log_mean)
        log_omega = self._by_ensemble(last.walkers.log_omega)
        return Arrival(log_omega, log_mean, jnp.where(reached, stderr, jnp.inf), reached)

    def _first(self, key: jax.Array, hopeless: jax.Array) -> Descent:
        """Return draws of the prior."""
        population, dtype = self.population, self.population.prior.dtype
        num_problems = population.target.shape[0]
        points = unit_cube.coordinates(unit_cube.pseudo, key, 2 * population.count, start=0, dtype=dtype)
        log_omega = population.by_halves(log_dirichlet(points, population.prior, rolled=True))
        fitted = jnp.zeros((2, num_problems, population.root.shape[1], population.count), dtype)
        walkers = Walkers(log_omega, jnp.exp(log_omega), fitted, jnp.ones_like(log_omega[:, :, 0]))
        at_prior = population.tempered(jnp.zeros(num_problems, dtype))
        frame = None
        if Walk.of(at_prior, self.walls).bounces is not None and at_prior.quadratic is not None:
            frame = first_frame(at_prior.quadratic, population.prior)
        return Descent(
            walkers=walkers,
            frame=frame,
            power=hopeless.astype(dtype),
            log_means=jnp.zeros((num_problems, population.ensembles), dtype),
            variance=jnp.zeros(num_problems, dtype),
            steps=jnp.int32(0),
        )

    def _next(self, key: jax.Array, state: Descent) -> Descent:
        """Return the walkers at the next power."""
        resample_key, refresh_key, move_key = jax.random.split(jax.random.fold_in(key, 1 + state.steps), 3)
        log_ratio = self._log_ratio(state.walkers)
        done = state.power >= 1
        power = next_power(state.power, log_ratio.reshape(len(done), -1))
        step = (power - state.power)[:, None, None]
        log_weights = jnp.where(done[:, None, None], 0, step * log_ratio)
        count = log_weights.shape[-1]
        means = jax.nn.logsumexp(log_weights, -1) - jnp.log(count)
        lost = 1 / effective_share(log_weights.reshape(len(done), -1)) - 1
        resampled_ones = self._resampled(resample_key, state, log_weights)
        moved, frame = self._moved(refresh_key, move_key, resampled_ones, power)

        # A mean weight that is not finite ends the problem.
        lost_all = ~jnp.isfinite(means).all(-1)
        return Descent(
            walkers=_unless(done, state.walkers, moved),
            frame=frame,
            power=jnp.where(lost_all, 1, power),
            log_means=state.log_means + means,
            variance=state.variance + lost / (means.shape[1] * count),
            steps=state.steps + 1,
        )

    def _moved(
        self, refresh_key: jax.Array, move_key: jax.Array, state: Descent, power: jax.Array
    ) -> tuple[Walkers, Frame | None]:
        """Return walkers that have moved at a power, ``(B,)``, and the coordinates of their flights."""
        population = self.population.tempered(power)
        walk = Walk.of(population, self.walls)
        frame = walk.adapted(state.frame, state.walkers)
        walkers = population.refresh(refresh_key, state.walkers)
        before = self._log_ratio(walkers)

        def moving(progress: Progress):
            return jnp.any(~progress.settled) & (progress.number < MAX_ADVANCES)

        def advance(progress: Progress):
            own = jax.random.fold_in(move_key, progress.number)
            walkers = _unless(progress.settled, progress.walkers, walk.advance(own, progress.walkers, frame))
            forgot = correlation(before, self._log_ratio(walkers)) <= REMEMBERED
            return Progress(walkers, progress.number + 1, progress.settled | forgot)

        first = Progress(walkers, jnp.int32(0), state.power >= 1)
        return lax.while_loop(moving, advance, first).walkers, frame

    def _log_ratio(self, walkers: Walkers) -> jax.Array:
        """Return logarithms of the likelihoods of walkers relative to the peak, ``(B, E, W)``."""
        found = self.population.log_ratio(self.population.by_problem(walkers.omega))
        return found.reshape(found.shape[0], self.population.ensembles, -1)

    def _by_ensemble(self, values: jax.Array) -> jax.Array:
        """Return values of walkers, ``(2, B, n, L)``, as ``(B, n, E, W)``."""
        found = self.population.by_problem(values)
        return found.reshape(*found.shape[:2], self.population.ensembles, -1)

    def _resampled(self, key: jax.Array, state: Descent, log_weights: jax.Array) -> Descent:
        """Return walkers taken from each ensemble by their weights, ``(B, E, W)``."""
        chosen = resampled(key, log_weights)
        taken = jnp.take_along_axis(self._by_ensemble(state.walkers.log_omega), chosen[:, None], -1)
        log_omega = self.population.by_halves(taken.reshape(*taken.shape[:2], -1))
        return state._replace(walkers=state.walkers._replace(log_omega=log_omega, omega=jnp.exp(log_omega)))


def num_walkers(walkers: int) -> int:
    """Return the number of walkers of a tempered ensemble, given that of an ensemble of the chains."""
    return max(LEAST_WALKERS, walkers)


def _unless(done: jax.Array, old: Walkers, new: Walkers) -> Walkers:
    """Return the new walkers, or the old ones of problems that are done, ``(B,)``."""

    def pick(old, new):
        return jnp.where(done.reshape(1, -1, *(1,) * (new.ndim - 2)), old, new)

    return jax.tree.map(pick, old, new)
