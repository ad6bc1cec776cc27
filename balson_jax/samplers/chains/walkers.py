"""Walkers of a batch of problems: their places, their ensembles, and the products that moves need."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ...random import points as unit_cube
from ...random.gamma_quantile import lift, unlifted
from ...targets import Quadratic, Target
from .starts import starting_places

EXACT = lax.Precision.HIGHEST


class Walkers(NamedTuple):
    """Walkers of B problems in two halves; each half has L walkers, those of one ensemble side by side.

    A move takes one half at a time, and then these arrays lack the leading axis.

    Attributes:
      log_omega: logarithms of the places, ``(2, B, K, L)``.
      omega: the places, ``(2, B, K, L)``.
      fitted: root of the likelihood times ``omega - optimum``, ``(2, B, M, L)``; M is 0 for models.
      precision: precision of the noise relative to that of the quadratic, ``(2, B, L)``.
    """

    log_omega: jax.Array
    omega: jax.Array
    fitted: jax.Array
    precision: jax.Array


@dataclasses.dataclass(frozen=True)
class Population:
    """B problems and the sizes of the ensembles that sample each of them.

    Attributes:
      target: the problems.
      prior: concentrations, ``(B, K)``.
      quadratic: the likelihoods of linear problems; ``None`` for models.
      ensembles: number of ensembles, which never exchange anything.
      half: number of walkers in half an ensemble.
      power: power to which the likelihoods are raised, ``(B,)``; ``None`` for one (see ``tempering``).
    """

    target: Target
    prior: jax.Array
    quadratic: Quadratic | None
    ensembles: int
    half: int
    power: jax.Array | None = None

    @staticmethod
    def of(target: Target, ensembles: int, walkers: int) -> Population:
        """Return the population of a number of ensembles, each with a number of walkers."""
        quadratic = target.quadratic() if target.is_quadratic else None
        return Population(target, target.full_prior, quadratic, ensembles, walkers // 2)

    def tempered(self, power: jax.Array) -> Population:
        """Return the population whose likelihoods are raised to a power, ``(B,)``."""
        quadratic = self.quadratic
        if quadratic is not None:
            root, gradient = jnp.sqrt(power)[:, None, None] * quadratic.root, power[:, None] * quadratic.gradient
            quadratic = Quadratic(root, quadratic.optimum, gradient)
        return dataclasses.replace(self, quadratic=quadratic, power=power)

    def log_ratio(self, omega: jax.Array) -> jax.Array:
        """Return logarithms of the likelihoods of places ``(B, K, L)``, relative to their peaks, ``(B, L)``."""
        found = self.target.log_ratio(omega)
        return found if self.power is None else self.power[:, None] * found

    @property
    def count(self) -> int:
        """Number of walkers of a problem that move at the same time: half of each ensemble."""
        return self.ensembles * self.half

    @property
    def root(self) -> jax.Array:
        """Root of the likelihood's curvature, ``(B, M, K)``; M is 0 for models."""
        if self.quadratic is not None:
            return self.quadratic.root
        num_problems, num_components = self.target.shape
        return jnp.zeros((num_problems, 0, num_components), self.prior.dtype)

    def start(self, key: jax.Array) -> Walkers:
        """Return walkers that are spread more widely than the posterior."""
        num_problems = self.target.shape[0]
        omega = starting_places(key, self.quadratic, self.prior, self.ensembles, self.half)
        log_omega = jnp.log(jnp.maximum(omega, jnp.finfo(omega.dtype).tiny))
        empty = jnp.zeros((2, num_problems, 0, self.count), omega.dtype)
        walkers = Walkers(log_omega, omega, empty, jnp.ones((2, num_problems, self.count), omega.dtype))
        return self.refresh(jax.random.fold_in(key, 1), walkers)

    def refresh(self, key: jax.Array, walkers: Walkers) -> Walkers:
        """Return the walkers with sums and products computed anew, and with new draws of the noise's precision.

        The precision given omega has a gamma distribution: drawing it is a Gibbs step.
        """
        log_omega = walkers.log_omega - jnp.log(fold(jnp.add, walkers.omega))[..., None, :]
        omega = jnp.exp(log_omega)
        if self.quadratic is None:
            return walkers._replace(log_omega=log_omega, omega=omega)
        away = omega - self.quadratic.optimum[:, :, None]
        fitted = jnp.matmul(self.root, away, precision=EXACT)
        precision = self._precision(key, away, fitted)
        return Walkers(log_omega, omega, fitted, walkers.precision if precision is None else precision)

    def _precision(self, key: jax.Array, away: jax.Array, fitted: jax.Array) -> jax.Array | None:
        """Return draws of the noise's precision given the places, ``(2, B, L)``; ``None`` if the noise is known."""
        noise = self.target.noise
        if self.quadratic is None or noise.has_fixed_level:
            return None
        linear = jnp.einsum("bk,sbkl->sbl", self.quadratic.gradient, away, precision=EXACT)
        excess = jnp.maximum(linear + 0.5 * fold(jnp.add, jnp.square(fitted)), 0)
        shape = None if self.power is None else noise.precision_shape(self.target.num_rows)
        kind = unit_cube.bits_dtype(excess.dtype)
        if self.power is None or shape is None:
            return noise.draw_precision(jax.random.bits(key, (2, 1, self.count), kind), self.target.num_rows, excess)
        # A power of a mixture over gamma-distributed precisions is such a mixture too (see ``tempering``).
        shape = self.power * shape
        first, second = jax.random.bits(key, (2, 2, 1, self.count), kind)
        draws = lift(unlifted(first, shape, rolled=True), second, shape)
        return jnp.exp(draws) / (shape[:, None] + excess)

    def by_problem(self, values: jax.Array) -> jax.Array:
        """Return values of walkers, ``(2, B, K, L)``, as ``(B, K, E W)``, those of an ensemble together."""
        num_problems, num_rows = values.shape[1:3]
        parts = values.reshape(2, num_problems, num_rows, self.ensembles, self.half)
        return jnp.moveaxis(parts, 0, 3).reshape(num_problems, num_rows, -1)

    def by_halves(self, values: jax.Array) -> jax.Array:
        """Return values ``(B, K, E W)``, those of an ensemble together, as those of walkers, ``(2, B, K, L)``."""
        num_problems, num_rows = values.shape[:2]
        parts = values.reshape(num_problems, num_rows, self.ensembles, 2, self.half)
        return jnp.moveaxis(parts, 3, 0).reshape(2, num_problems, num_rows, self.count)

    def begin(self, key: jax.Array, log_omega: jax.Array) -> Walkers:
        """Return walkers at some of given places, ``(B, K, D, W)``, of ensembles that are independent along D.

        Each half of an ensemble takes its places from one of these, and no two halves from the same, if D is large
        enough.
        """
        num_problems, num_components, sources, _ = log_omega.shape
        own = (jnp.arange(2)[:, None] + 2 * jnp.arange(self.ensembles)) % sources
        taken = jnp.moveaxis(log_omega[:, :, own, : self.half], 2, 0)
        taken = taken.reshape(2, num_problems, num_components, self.count)
        empty = jnp.zeros((2, num_problems, 0, self.count), taken.dtype)
        return self.refresh(key, Walkers(taken, jnp.exp(taken), empty, jnp.ones_like(taken[:, :, 0])))

    def by_ensemble(self, values: jax.Array) -> jax.Array:
        """Return values of all walkers, ``(B, n, E W)``, as those of B times E ensembles, ``(B E, n, W)``."""
        num_problems, num_rows = values.shape[:2]
        parts = values.reshape(num_problems, num_rows, self.ensembles, 2 * self.half)
        return jnp.moveaxis(parts, 2, 1).reshape(num_problems * self.ensembles, num_rows, 2 * self.half)


def fold(combine: Callable[[jax.Array, jax.Array], jax.Array], values: jax.Array) -> jax.Array:
    """Return the sum, or minimum, ... over the last axis but one, by folding halves, which a CPU vectorises.

    >>> fold(jnp.minimum, jnp.array([[3.0, 1.0], [2.0, 5.0], [4.0, 0.5]])).tolist()
    [2.0, 0.5]
    """
    while values.shape[-2] > 1:
        half = values.shape[-2] // 2
        rest = values[..., 2 * half :, :]
        values = jnp.concatenate([combine(values[..., :half, :], values[..., half : 2 * half, :]), rest], axis=-2)
    return values[..., 0, :]
