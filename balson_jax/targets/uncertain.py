"""The target of problems with an uncertain design.

The likelihood of every draw is exact. Only proposals use the covariance at one point, the optimum, which is found by
weighted least squares with weights that follow the point.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from .. import dirichlet
from ..problems.batching import map_blocks
from ..problems.level_integral import POINTS
from ..problems.linear import LinearProblem
from ..problems.noise_posterior import NoiseQuantiles, from_levels
from ..problems.uncertain import UncertainProblem
from .base import Needs, Optimum, Quadratic, Target, Values, common_fields, find_optimum, target_of
from .optimum import simplex_optimum

ELEMENTS = 1 << 21
"""Draws are evaluated together as long as their rows, at all noise levels, hold no more numbers than this."""

REWEIGHTINGS = 6
SOLVED_TOGETHER = 256
"""Number of problems whose optima are found together."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class UncertainTarget(Target):
    """Problems with an uncertain design.

    Attributes:
      problem: the flattened batch.
      optimum: the point about which proposals are made, ``(B, K)``.
      peak: log-likelihood there, to which others are relative; it may not be the largest, ``(B,)``.
    """

    problem: UncertainProblem
    optimum: jax.Array
    peak: jax.Array

    @property
    def log_peak(self) -> jax.Array:
        """The log-likelihood at the optimum, ``(B,)``."""
        return self.peak

    def evaluate(self, omega: jax.Array) -> Values:
        """Return relative log-likelihoods and half-squares of draws."""

        def one(problem, omega):
            return Values(problem.levels(omega).log_integral, problem.half_square(omega))

        found = self._of_draws(one, omega)
        return found._replace(log_ratio=found.log_ratio - self.peak[:, None])

    def half_square(self, omega: jax.Array) -> jax.Array:
        """Return half the sums of squared residuals of draws, ``(B, L)``."""
        return self._of_draws(lambda problem, omega: problem.half_square(omega), omega)

    def _of_draws(self, function: Any, omega: jax.Array) -> Any:
        """Return a function of one problem and one draw for draws ``(K, L)`` or ``(B, K, L)``: ``(B, L, ...)``."""
        problem = self.problem
        columns = problem.target.shape[-1] * (1 if problem.directions is None else problem.directions[0].size)
        elements = max(columns, 1) * (POINTS if self.noise.estimates_level else 1)
        at_a_time = max(1, ELEMENTS // (self.shape[0] * elements))
        omega = jnp.broadcast_to(omega, (self.shape[0], *omega.shape[-2:]))

        def one(problem, omega):
            draws = jnp.moveaxis(omega, -1, 0)
            return lax.map(lambda draw: function(problem, draw), draws, batch_size=min(at_a_time, draws.shape[0]))

        return problem.vmap(one, omega)

    def quadratic(self) -> Quadratic:
        """Return the log-likelihoods about the optima, with the covariance of the residuals there."""

        def one(problem, omega):
            found = problem.levels(omega)
            variance = found.variances @ found.shares
            design = problem.whitened(omega, variance)[0]
            root = jnp.concatenate([design, problem.log_determinant_root(omega, variance)])
            gradient = -jax.grad(lambda omega: problem.levels(omega).log_integral)(omega)
            root = problem.total * problem.constraint.lift(root)
            return root - root.mean(-1, keepdims=True), gradient - gradient.min()

        root, gradient = self.problem.vmap(one, self.optimum)
        return Quadratic(root, self.optimum, gradient)

    def quantities(
        self, omega: jax.Array, half_square: jax.Array, log_omega: jax.Array | None = None
    ) -> dict[str, jax.Array]:
        """Return the quantities of all targets; that of the noise comes from kept draws alone."""
        found = super().quantities(omega, half_square, log_omega)
        return {name: values for name, values in found.items() if name != "noise"}

    def sizes(self, logs: bool = False) -> dict[str, int]:
        """Return how many numbers each quantity has."""
        return {name: size for name, size in super().sizes(logs).items() if name != "noise"}

    def noise_posterior(
        self, draws: jax.Array, weights: jax.Array, moments: tuple[jax.Array, jax.Array, jax.Array] | None
    ) -> NoiseQuantiles | None:
        """Return the posterior of the noise level from kept draws: a mixture of the posteriors given each."""
        prior = self.noise.variance_prior()
        if prior is None:
            return None
        found = self._of_draws(lambda problem, omega: problem.levels(omega), draws)
        empty = weights.sum(-1, keepdims=True) <= 0
        weights = jnp.where(empty, 1 / weights.shape[-1], weights)
        shares = weights[:, :, None] * found.shares
        return from_levels(jnp.sqrt(found.variances), shares, prior.is_relative)


@find_optimum.register
def _(problem: UncertainProblem, key: jax.Array, needs: Needs) -> Optimum:
    return Optimum(_optima(problem), None)


@jax.jit
def _optima(problem: UncertainProblem) -> jax.Array:
    return map_blocks(lambda flat: flat.vmap(_reweighted), problem, SOLVED_TOGETHER)


def _reweighted(problem: UncertainProblem) -> jax.Array:
    """Return the optimum of least squares whose weights are those at the optimum, for one problem."""
    problem = lax.stop_gradient(problem)
    zero = jnp.zeros((), problem.dtype)

    def step(_, omega):
        found = problem.levels(omega)
        design, target = problem.whitened(omega, found.variances @ found.shares)
        factor = problem.constraint.lift(design)
        weighted = LinearProblem(
            factor=factor,
            projection=target,
            cross=jnp.zeros(factor.shape[-1], problem.dtype),
            rest=zero,
            num_rows=problem.num_rows,
            log_volume=zero,
            total=problem.total,
            noise=problem.noise,
            prior=problem.prior,
            constraint=problem.constraint,
        )
        # Half way, so that two points don't alternate.
        new = simplex_optimum(weighted)
        return jnp.where(jnp.isfinite(new).all(), 0.5 * (omega + new), omega)

    return lax.fori_loop(0, REWEIGHTINGS, step, dirichlet.mean(problem.prior))


@target_of.register
def uncertain_target(problem: UncertainProblem, optimum: Optimum) -> UncertainTarget:
    """Return the target of a flattened batch, relative to the likelihoods at the optima."""
    assert optimum.omega is not None
    omega = lax.stop_gradient(optimum.omega)

    def one(problem, omega):
        found = problem.levels(omega)
        base = problem.half_square(omega)
        level = jnp.sqrt(found.variances @ found.shares + problem.added)
        size = jnp.sqrt(jnp.square(problem.target).sum() + 2 * problem.rest)
        columns = problem.total * jnp.sqrt(jnp.square(problem.design).sum(0).max())
        rounded = 8 * jnp.finfo(problem.dtype).eps * (size + columns) / level
        no = jnp.bool_(False)
        return common_fields(problem, base, improper=no, unbounded=no, rounding=rounded), found.log_integral

    common, peak = problem.vmap(one, omega)
    return UncertainTarget(
        **common, prior=problem.prior, constraint=problem.constraint, problem=problem, optimum=omega, peak=peak
    )
