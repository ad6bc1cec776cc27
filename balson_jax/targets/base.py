"""Targets: the log-densities of a block of problems, as samplers see them.

A target gives log-likelihoods relative to a reference (the highest value they can have, if a bound is known), of draws
with the sample axis last; the prior; and, where there is one, the quadratic form of the log-likelihood. Samplers never
ask what kind of problem is behind it. ``find_optimum`` and ``target_of`` are generic functions: a new kind of problem
registers its own.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .. import dirichlet
from ..problems.base import Problem
from ..problems.constraints import Constraint
from ..problems.noise import Noise
from ..problems.noise_posterior import NoisePosterior, NoiseQuantiles

MAX_ROUNDING = 2.0
"""Residuals whose rounding may exceed this multiple of the noise level move the answer by about its own spread."""


class Needs(NamedTuple):
    """Facts about a problem that a method requires beforehand.

    Attributes:
      optimum: the likeliest point, also of a model that is not linear.
      bound: the tightest known bound of the likelihood.
    """

    optimum: bool = False
    bound: bool = False


class Optimum(NamedTuple):
    """The likeliest point of each problem, as far as it is known.

    Attributes:
      omega: the point, ``(..., K)``, or ``None``.
      bound: lower bound of half-squares, ``(...)``, or ``None`` if it follows from the point.
      peaks: where searches from several starts ended, ``(..., S, K)``, or ``None`` if there can be only one peak.
    """

    omega: jax.Array | None
    bound: jax.Array | None
    peaks: jax.Array | None = None


PRESENT = "present"
"""Name of the booleans, one per parameter, that mark which are present in a draw."""

PRESENT_SHARE = 0.01
"""A parameter is present if its magnitude exceeds this share of the total."""

FEW_COMPONENTS = 8
"""With more components than this, probabilities of presence come from all draws, not only from the kept ones."""


@functools.singledispatch
def find_optimum(problem: Any, key: jax.Array, needs: Needs) -> Optimum:
    """Return the optimum of one problem or a batch, as far as a method needs it."""
    raise TypeError(f"there is no find_optimum for a {type(problem).__name__}")


@functools.singledispatch
def target_of(problem: Any, optimum: Optimum) -> Target:
    """Return the target of a flattened batch of problems with their optima."""
    raise TypeError(f"there is no target_of for a {type(problem).__name__}")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Quadratic:
    """Log-likelihoods of B problems around a point each: ``-gradient'd - |root d|^2 / 2``, ``d = omega - optimum``.

    Attributes:
      root: ``(B, M, K)``.
      optimum: ``(B, K)``.
      gradient: of the negative log-likelihood there, up to a constant, ``(B, K)``.
    """

    root: jax.Array
    optimum: jax.Array
    gradient: jax.Array


class Values(NamedTuple):
    """A target at draws.

    Attributes:
      log_ratio: ``ln(likelihood / peak)``, ``(B, L)``; at most zero, if the peak is certified.
      half_square: half the sums of squared residuals, ``(B, L)``.
    """

    log_ratio: jax.Array
    half_square: jax.Array


@dataclasses.dataclass(frozen=True)
class Target(abc.ABC):
    """The log-density of B problems. Draws are ``(K, L)`` where the problems share them, else ``(B, K, L)``.

    Attributes:
      base: the half-square to which likelihoods are relative: the smallest possible, if certified, ``(B,)``.
      noise: the noise model, fields ``(B,)``.
      num_rows: ``(B,)``.
      log_volume: ``(B,)``.
      valid: whether all numbers of the problem are in their domain, ``(B,)``.
      improper: whether the fit is perfect and the noise unknown, so that there is no posterior, ``(B,)``.
      unbounded: whether the likelihood may be infinite: the noise is unknown, and no positive lower bound of
        half-squares is known, ``(B,)``.
      rounding: bound of the error of residuals from the rounding of the data, in units of the noise level, ``(B,)``.
      prior: concentrations, ``(B, K)``, or ``(K,)`` if shared.
      constraint: on theta.
    """

    base: jax.Array
    noise: Noise
    num_rows: jax.Array
    log_volume: jax.Array
    valid: jax.Array
    improper: jax.Array
    unbounded: jax.Array
    rounding: jax.Array
    prior: jax.Array
    constraint: Constraint = dataclasses.field(metadata={"static": True})

    is_linear = False
    """Whether half-squares are quadratic in omega."""

    peaks = None
    """Where searches for the optimum ended, ``(B, S, K)``, if the likelihood may have several peaks."""

    nuisance = None
    """Coefficients of nuisance columns, where there are such."""

    @property
    def is_quadratic(self) -> bool:
        """Whether, given the noise level, ``quadratic`` is the exact log-likelihood."""
        return self.is_linear and self.noise.is_scale_mixture

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers B of problems and K of components."""
        return self.base.shape[0], self.prior.shape[-1]

    @property
    def tells_presence(self) -> bool:
        """Whether the moments of a fit include the probabilities that parameters are present."""
        return self.shape[1] > FEW_COMPONENTS

    @property
    def rounded(self) -> jax.Array:
        """Whether the rounding of the data may move the answer by about its own spread, ``(B,)``."""
        return self.rounding > MAX_ROUNDING

    @property
    def full_prior(self) -> jax.Array:
        """The concentrations, ``(B, K)``, also where they are shared."""
        return jnp.broadcast_to(self.prior, self.shape)

    @property
    def log_peak(self) -> jax.Array:
        """The log-likelihood at ``base``, ``(B,)``: no omega has a larger one, if the base is certified."""
        return self.log_volume + self.noise.log_likelihood(self.num_rows, self.base)

    @abc.abstractmethod
    def evaluate(self, omega: jax.Array) -> Values:
        """Return relative log-likelihoods and half-squares of draws."""

    @abc.abstractmethod
    def quadratic(self) -> Quadratic:
        """Return the log-likelihoods around their peaks at the likeliest noise level: exact for linear problems."""

    def expected_log_ratio(self, alpha: jax.Array) -> jax.Array:
        """Return the mean of ``log_ratio`` under ``Dir(alpha)``, ``(B,)``; linear problems have a closed form."""
        raise TypeError(f"a {type(self).__name__} has no closed form of the expected log-likelihood")

    def log_ratio(self, omega: jax.Array) -> jax.Array:
        """Return ``ln(likelihood / peak)`` of draws, ``(B, L)``; at most zero, if the base is certified."""
        return self.evaluate(omega).log_ratio

    def half_square(self, omega: jax.Array) -> jax.Array:
        """Return half the sums of squared residuals of draws, ``(B, L)``."""
        return self.evaluate(omega).half_square

    @property
    def least_half_square(self) -> jax.Array:
        """The smallest half-square of any omega, ``(B,)``; NaN where it is not known."""
        return jnp.full_like(self.base, jnp.nan)

    @property
    def _noise_of_draws(self) -> Noise:
        return jax.tree.map(lambda leaf: leaf[:, None], self.noise)

    # --- the quantities whose moments a fit reports ----------------------------------------------------------

    def quantities(
        self, omega: jax.Array, half_square: jax.Array, log_omega: jax.Array | None = None
    ) -> dict[str, jax.Array]:
        """Return the quantities whose moments are reported, by name: ``(n, L)`` if shared, else ``(B, n, L)``.

        ``"omega"`` always; ``"theta"``, as a share of the total, where it is not part of omega; ``"noise"``, the
        statistic from which the posterior of the noise level follows; ``"log_omega"`` if it is given; ``"present"``,
        booleans, where there are many components.
        """
        found = {"omega": omega}
        if not self.constraint.theta_is_omega:
            found["theta"] = self.constraint.unlift(omega, axis=-2)
        if self.noise.estimates_level:
            found["noise"] = self._noise_of_draws.statistic(half_square)[:, None, :]
        if log_omega is not None:
            found["log_omega"] = log_omega
        if self.tells_presence:
            shares = found.get("theta", omega)[..., : self.constraint.num_params(self.shape[1]), :]
            found[PRESENT] = jnp.abs(shares) > PRESENT_SHARE
        return found

    def sizes(self, logs: bool = False) -> dict[str, int]:
        """Return how many numbers each quantity has; ``logs`` if ``"log_omega"`` is wanted."""
        num_components = self.shape[1]
        found = {"omega": num_components}
        if not self.constraint.theta_is_omega:
            found["theta"] = self.constraint.num_params(num_components)
        if self.noise.estimates_level:
            found["noise"] = 1
        if logs:
            found["log_omega"] = num_components
        if self.tells_presence:
            found[PRESENT] = self.constraint.num_params(num_components)
        return found

    def prior_moments(self) -> dict[str, tuple[jax.Array, jax.Array]]:
        """Return mean and variance under the prior of the quantities for which they are known, ``(B, n)``."""
        found = {"omega": (dirichlet.mean(self.full_prior), dirichlet.variance(self.full_prior))}
        if not self.constraint.theta_is_omega:
            found["theta"] = self.constraint.prior_moments(self.full_prior)
        found["log_omega"] = (dirichlet.log_mean(self.full_prior), jnp.zeros(self.shape, self.prior.dtype))
        return found

    def noise_posterior(
        self, draws: jax.Array, weights: jax.Array, moments: tuple[jax.Array, jax.Array, jax.Array] | None
    ) -> NoisePosterior | NoiseQuantiles | None:
        """Return the posterior of the noise level from kept draws and the moments of ``"noise"`` over all draws."""
        if not self.noise.estimates_level:
            return None
        half_square = self.half_square(draws)
        # Without a draw, as when rejection sampling accepts none, only the best fit is known.
        empty = weights.sum(-1, keepdims=True) <= 0
        half_square = jnp.where(empty, self.base[:, None], half_square)
        weights = jnp.where(empty, 1 / weights.shape[-1], weights)
        if moments is not None:
            at_base = self.noise.statistic(self.base)
            known = (jnp.where(empty[:, 0], at_base, moments[0]), jnp.where(empty[:, 0], 0, moments[1]))
            moments = *known, jnp.where(empty[:, 0], jnp.inf, moments[2])
        return self.noise.posterior(self.num_rows, half_square, weights, moments)


def common_fields(problem: Problem, base: jax.Array, **flags: jax.Array) -> dict[str, Any]:
    """Return the fields that the targets of all kinds of problems have, for one problem."""
    fields = {name: getattr(problem, name) for name in ("noise", "num_rows", "log_volume")}
    return {"base": base, "valid": problem.is_valid(), **fields, **flags}
