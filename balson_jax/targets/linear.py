"""The target of linear problems, pivoted at the constrained optimum.

For a linear problem and any point ``omega°`` of the simplex, with residual ``r = y / C - A omega°``, gradient
``g = A'r`` and ``multipliers_k = max(g) - g_k >= 0``,

    |y / C - A omega|^2 / 2 = bound + multipliers'omega + |R (omega - omega°)|^2 / 2,

with ``bound = |r|^2 / 2 - multipliers'omega°``. Both terms after the bound are sums of nonnegative numbers, so nothing
cancels in float32 however strong the signal, and the relative log-likelihood cannot exceed zero: ``bound`` certifies
the envelope of rejection sampling. At the constrained optimum ``multipliers'omega°`` is zero (complementary slackness)
and the envelope is tight.
"""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jax import lax

from .. import dirichlet
from ..problems.linear import LinearProblem
from ..problems.nuisance import Coefficients
from .base import Needs, Optimum, Quadratic, Target, Values, common_fields, find_optimum, target_of
from .optimum import simplex_optima
from .residuals import centred, gradient_at, rounding

UNROLLED_TERMS = 16


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LinearTarget(Target):
    """Linear problems, pivoted at a point of the simplex each (see the module's text).

    Attributes:
      factor: without its mean column, ``(B, M, K)``, or ``(M, K)`` if shared.
      optimum: ``omega°``, ``(B, K)``.
      multipliers: ``(B, K)``, nonnegative.
      square_total: ``C^2``, ``(B,)``.
      nuisance: coefficients of nuisance columns given omega, or ``None``.
    """

    factor: jax.Array
    optimum: jax.Array
    multipliers: jax.Array
    square_total: jax.Array
    nuisance: Coefficients | None = None

    is_linear = True

    @property
    def least_half_square(self) -> jax.Array:
        """The smallest half-square of any omega, ``(B,)``."""
        return self.base

    def evaluate(self, omega: jax.Array) -> Values:
        """Return relative log-likelihoods and half-squares of draws."""
        exact = lax.Precision.HIGHEST
        # A product of the draws and the design, without the target: problems that share both share it.
        fitted = jnp.matmul(self.factor, omega, precision=exact)
        centre = jnp.einsum(f"{_axes('bmk', self.factor)},bk->bm", self.factor, self.optimum, precision=exact)
        linear = jnp.einsum(f"bk,{_axes('bkl', omega)}->bl", self.multipliers, omega, precision=exact)
        excess = self.square_total[:, None] * (linear + 0.5 * _square_distance(fitted, centre))
        base = self.base[:, None]
        return Values(self._noise_of_draws.log_ratio(self.num_rows[:, None], base, excess), base + excess)

    def quantities(
        self, omega: jax.Array, half_square: jax.Array, log_omega: jax.Array | None = None
    ) -> dict[str, jax.Array]:
        """Return the quantities of all targets, and ``"nuisance"``, the coefficients' means given omega."""
        found = super().quantities(omega, half_square, log_omega)
        if self.nuisance is not None:
            found["nuisance"] = self.nuisance.mean_given(omega)
        return found

    def sizes(self, logs: bool = False) -> dict[str, int]:
        """Return how many numbers each quantity has."""
        own = {} if self.nuisance is None else {"nuisance": self.nuisance.offset.shape[-1]}
        return super().sizes(logs) | own

    def prior_moments(self) -> dict[str, tuple[jax.Array, jax.Array]]:
        """Return mean and variance under the prior of the quantities for which they are known, ``(B, n)``."""
        found = super().prior_moments()
        if self.nuisance is not None:
            precision = self.full_prior.sum(-1, keepdims=True)
            found["nuisance"] = self.nuisance.moments_of(dirichlet.mean(self.full_prior), precision)
        return found

    def quadratic(self) -> Quadratic:
        """Return the log-likelihoods about the optima: exact, if the noise is known; else for its likeliest level."""
        scale = jnp.sqrt(self.square_total) / self.noise.likeliest_level(self.num_rows, self.base)
        root = jnp.broadcast_to(self.factor, (self.shape[0], *self.factor.shape[-2:]))
        return Quadratic(scale[:, None, None] * root, self.optimum, jnp.square(scale)[:, None] * self.multipliers)

    def expected_log_ratio(self, alpha: jax.Array) -> jax.Array:
        """Return the mean of ``log_ratio`` under ``Dir(alpha)``, ``(B,)``; a lower bound of it if noise is unknown.

        (The log-likelihood of unknown noise is convex in the half-square, so it is at least its value at the mean.)
        """
        mean = dirichlet.mean(alpha)
        exact = lax.Precision.HIGHEST
        subscripts = f"{_axes('bmk', self.factor)},bk->bm"
        fitted = jnp.einsum(subscripts, self.factor, mean, precision=exact)
        centre = jnp.einsum(subscripts, self.factor, self.optimum, precision=exact)
        sizes = jnp.broadcast_to(jnp.square(self.factor).sum(-2), alpha.shape)
        spread = (mean * sizes).sum(-1) - jnp.square(fitted).sum(-1)
        square = jnp.square(fitted - centre).sum(-1) + spread / (alpha.sum(-1) + 1)
        excess = self.square_total * ((self.multipliers * mean).sum(-1) + 0.5 * square)
        return self.noise.log_ratio(self.num_rows, self.base, excess)


def _axes(names: str, array: jax.Array) -> str:
    """Return the einsum axes of an array that lacks the leading ones if problems share it."""
    return names[-array.ndim :]


def _square_distance(fitted: jax.Array, centre: jax.Array) -> jax.Array:
    """Return ``sum_m (fitted_ml - centre_bm)^2``, ``(B, L)``."""
    num_terms = centre.shape[-1]
    if num_terms > UNROLLED_TERMS:
        return jnp.square(fitted - centre[:, :, None]).sum(-2)
    # Unrolled, the terms fuse into one loop over the draws.
    terms = [jnp.square(fitted[..., m, :] - centre[:, m, None]) for m in range(num_terms)]
    return functools.reduce(jnp.add, terms)


def _above_rounding(multipliers: jax.Array, problem: LinearProblem) -> jax.Array:
    """Return the multipliers, with those below the gradient's rounding error set to zero, for one problem.

    Where the residual is a rounding error, so is its product with a column.
    """
    column_size = jnp.sqrt(jnp.square(problem.factor).sum(0).max())
    return jnp.where(multipliers > 2 * column_size * rounding(problem) / problem.total, multipliers, 0)


@find_optimum.register
def _(problem: LinearProblem, key: jax.Array, needs: Needs) -> Optimum:
    return Optimum(simplex_optima(problem), None)


@target_of.register
def linear_target(problem: LinearProblem, optimum: Optimum) -> LinearTarget:
    """Return the target of a flattened batch, pivoted at a point of the simplex each.

    The point is a constant to automatic differentiation: the value does not depend on it.
    """
    assert optimum.omega is not None
    omega = lax.stop_gradient(optimum.omega)

    def one(problem, omega):
        half_square, gradient = gradient_at(problem, omega)
        multipliers = lax.stop_gradient(gradient.max()) - gradient
        square_total = jnp.square(problem.total)
        # Rounding errors can't tell smaller half-squares from zero.
        floor = 0.5 * jnp.square(2 * rounding(problem))
        bound = square_total * (half_square - multipliers @ omega)
        # For a nearly perfect fit, rounding errors of the multipliers would move the bound: leave out those that may
        # be nothing else.
        hidden = (problem.noise.floored(bound, floor)[0] > bound) & (bound < floor)
        multipliers = jnp.where(hidden, _above_rounding(multipliers, problem), multipliers)
        bound = jnp.where(hidden, square_total * (half_square - multipliers @ omega), bound)
        base, improper = problem.noise.floored(bound, floor)
        rounded = rounding(problem) / problem.noise.likeliest_level(problem.num_rows, base)
        common = common_fields(problem, base, improper=improper, unbounded=jnp.bool_(False), rounding=rounded)
        own = {"multipliers": multipliers, "square_total": square_total, "nuisance": None}
        if problem.nuisance is not None:
            own["nuisance"] = dataclasses.replace(problem.nuisance, slope=problem.total * problem.nuisance.slope)
        return common, own

    common, own = problem.vmap(one, omega)
    factor = centred(problem.factor)[0]
    return LinearTarget(
        **common, prior=problem.prior, constraint=problem.constraint, factor=factor, optimum=omega, **own
    )
