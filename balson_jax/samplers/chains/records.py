"""Records of walkers: moments of their places, and a few places that are kept.

All walkers of an ensemble are recorded at the same time. Kept draws lie in slots, one draw in each (see
``weighting.reservoir``). Slots may outnumber the walkers of an ensemble: they come in groups, and record number i goes
into group ``i mod groups``. A round fills all slots once it has as many records as there are groups.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from ...status import Status
from ...weighting import moments as running
from ...weighting import reservoir
from ...weighting.convergence import judge
from ...weighting.diagnostics import high_rhat, verdict
from ...weighting.estimate import Estimate
from .walkers import Population, Walkers


@dataclasses.dataclass(frozen=True)
class Recorder:
    """Turns places of walkers into moments and kept draws.

    Attributes:
      population: the problems.
      middle: the quantities of one walker of each problem, ``(B, n)`` by name. Moments are taken about it, because sums
        of numbers close to one would lose the digits in which they differ.
      logs: True if means of ``ln omega`` are wanted.
      keep: number of draws that an ensemble keeps: 0 or a power of two.
    """

    population: Population
    middle: dict[str, jax.Array]
    logs: bool
    keep: int

    @staticmethod
    def of(population: Population, walkers: Walkers, logs: bool, keep: int) -> Recorder:
        """Return a recorder whose moments are about the place of a walker of each problem."""
        found = quantities(population, walkers, logs)
        return Recorder(population, {name: values[:, :, 0] for name, values in found.items()}, logs, keep)

    @property
    def slots(self) -> int:
        """Number of slots in a group: that of the walkers of an ensemble, or ``keep`` if that is less."""
        return min(self.keep, 2 * self.population.half)

    @property
    def groups(self) -> int:
        """Number of groups of slots."""
        return self.keep // self.slots if self.keep else 1

    @property
    def _num_ensembles(self) -> int:
        return self.population.target.shape[0] * self.population.ensembles

    @property
    def _dtype(self):
        return self.middle["omega"].dtype

    def no_moments(self) -> running.Moments:
        """Return the moments of no record, of B times E ensembles."""
        sizes = self.population.target.sizes(self.logs)
        return running.empty(self._num_ensembles, sizes, running.Sizes(0, 0), self._dtype)

    def no_draws(self) -> reservoir.Reservoir:
        """Return empty slots of B times E ensembles, with the groups along the leading axis."""
        num_components = self.population.target.shape[1]
        one = reservoir.empty(self._num_ensembles, num_components, self.slots, self._dtype)
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.groups, *leaf.shape)), one)

    def add(
        self, key: jax.Array, walkers: Walkers, number: jax.Array, moments: running.Moments, kept: reservoir.Reservoir
    ) -> tuple[running.Moments, reservoir.Reservoir]:
        """Return moments and kept draws with record ``number`` added."""
        found = {
            name: self.population.by_ensemble(_about(values, self.middle[name][:, :, None]))
            for name, values in quantities(self.population, walkers, self.logs).items()
        }
        logs = jnp.zeros((self._num_ensembles, 2 * self.population.half), self._dtype)
        own = running.summarise(logs, found, jnp.asarray(logs.shape[1]), None, running.Sizes(0, 0))
        moments = running.merge(moments, own)
        if not self.keep:
            return moments, kept
        gumbel = reservoir.gumbel(jax.random.bits(key, (2,), jnp.uint32), logs.shape[1], 0, logs.dtype)
        one = jnp.zeros_like(logs)[:, None]  # one replicate of draws of equal weight
        chosen = reservoir.select(one, one + 1, found["omega"][:, :, None], gumbel[None], self.slots)
        return moments, self._put(kept, chosen, number % self.groups)

    def _put(self, kept: reservoir.Reservoir, chosen: reservoir.Reservoir, group: jax.Array) -> reservoir.Reservoir:
        """Return the kept draws after merging a record into one group."""
        both = jax.tree.map(lambda whole, new: jnp.stack([whole[group], new]), kept, chosen)
        merged = reservoir.merge(both, jnp.ones((2, chosen.mass.shape[0]), chosen.mass.dtype))
        return jax.tree.map(lambda whole, new: whole.at[group].set(new), kept, merged)

    def estimate(self, parts: running.Moments, kept: reservoir.Reservoir, target_ess: jax.Array | float) -> Estimate:
        """Return the estimates from moments of batches, stacked by ensemble, and from kept draws."""
        whole = running.combine(parts)
        verdicts = judge(parts, self.population.ensembles)
        draws, draw_weights = self._gathered(kept)
        ess, rhat = verdicts.ess, verdicts.rhat
        status = verdict(ess) | high_rhat(rhat) | jnp.where(ess < target_ess, Status.BUDGET, 0)
        moments = {
            name: verdicts.moment(name, _back(mean, self.middle[name]), whole.variance(name))
            for name, mean in whole.mean.items()
        }
        return Estimate(
            moments=moments,
            ess=ess,
            rhat=rhat,
            status=status.astype(jnp.int32),
            draws=self.middle["omega"][:, :, None] + draws,
            draw_weights=draw_weights,
        )

    def _gathered(self, kept: reservoir.Reservoir) -> tuple[jax.Array, jax.Array]:
        """Return kept draws of B problems, ``(B, K, D)``, and their weights, ``(B, D)``."""
        num_problems, ensembles = self.population.target.shape[0], self.population.ensembles

        def by_group(leaf):
            leaf = leaf.reshape(self.groups, num_problems, ensembles, *leaf.shape[2:])
            leaf = jnp.moveaxis(leaf, 2, 0)
            return leaf.reshape(ensembles * self.groups, *leaf.shape[2:])

        parts = jax.tree.map(by_group, kept)
        return reservoir.gather(parts, jnp.ones(parts.mass.shape[:2], parts.mass.dtype))


def _about(values: jax.Array, middle: jax.Array) -> jax.Array:
    """Return values relative to a middle; of indicators, whether they differ from it."""
    return values ^ middle if values.dtype == bool else values - middle


def _back(mean: jax.Array, middle: jax.Array) -> jax.Array:
    """Return a mean, given that of values relative to a middle."""
    return jnp.where(middle, 1 - mean, mean) if middle.dtype == bool else middle + mean


def quantities(population: Population, walkers: Walkers, logs: bool) -> dict[str, jax.Array]:
    """Return the quantities whose moments are wanted at the places of all walkers, ``(B, n, E W)`` by name."""
    target = population.target
    omega = population.by_problem(walkers.omega)
    # Evaluated only if the noise level is estimated.
    half_square = target.half_square(omega) if target.noise.estimates_level else omega[:, 0]
    return target.quantities(omega, half_square, population.by_problem(walkers.log_omega) if logs else None)
