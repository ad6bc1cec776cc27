"""What samplers see of a problem: log-likelihoods of draws, of linear problems and of models.

For a linear problem and any point ``omega°`` of the simplex, with residual ``r = y / C - A omega°``, gradient
``g = A'r`` and ``slack_k = max(g) - g_k >= 0``,

    |y / C - A omega|^2 / 2 = bound + slack'omega + |R (omega - omega°)|^2 / 2,    bound = |r|^2 / 2 - slack'omega°.

Both terms after the bound are sums of nonnegative numbers, so nothing cancels in float32 however strong the
signal, and the relative log-likelihood cannot exceed zero: ``bound`` certifies the envelope of rejection sampling.
At the constrained optimum ``slack'omega°`` is zero and the envelope is tight.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from .. import dirichlet
from ..problems import noise as noise_model
from ..problems.linear import LinearProblem, Problem
from ..problems.model import ModelProblem
from ..problems.noise import InverseGamma
from .functions import Density, Quadratic

UNROLLED_TERMS = 16
PREDICTED_ELEMENTS = 1 << 20
"""A model's predictions are computed for as many draws at a time as hold no more numbers than this."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Pivoted(Density):
    """Linear problems, pivoted at a point of the simplex each (see the module's text).

    Attributes:
      factor: without its mean column, ``(B, M, K)``, or ``(M, K)`` if shared.
      pivot: ``omega°``, ``(B, K)``.
      slack: ``(B, K)``, nonnegative.
      square_total: ``C^2``, ``(B,)``.
    """

    factor: jax.Array
    pivot: jax.Array
    slack: jax.Array
    square_total: jax.Array

    def excess(self, omega: jax.Array) -> jax.Array:
        """Return half the sums of squared residuals of draws above the smallest, ``(B, L)``."""
        exact = lax.Precision.HIGHEST
        # A product of the draws and the design, without the target: shared problems share it.
        fitted = jnp.matmul(self.factor, omega, precision=exact)
        centre = jnp.einsum(f"{_axes('bmk', self.factor)},bk->bm", self.factor, self.pivot, precision=exact)
        linear = jnp.einsum(f"bk,{_axes('bkl', omega)}->bl", self.slack, omega, precision=exact)
        return self.square_total[:, None] * (linear + 0.5 * _square_distance(fitted, centre))

    def quadratic(self) -> Quadratic:
        """Return the log-likelihoods about the pivots: exact, if the noise is known; else for its likeliest level."""
        scale = jnp.sqrt(self.square_total) / noise_model.likeliest_level(self.noise, self.num_rows, self.base)
        root = jnp.broadcast_to(self.factor, (self.shape[0], *self.factor.shape[-2:]))
        return Quadratic(scale[:, None, None] * root, self.pivot, jnp.square(scale)[:, None] * self.slack)

    def expected_log_ratio(self, alpha: jax.Array) -> jax.Array:
        """Return the mean of ``log_ratio`` under ``Dir(alpha)``, ``(B,)``; a lower bound of it if noise is unknown."""
        mean = dirichlet.mean(alpha)
        exact = lax.Precision.HIGHEST
        subscripts = f"{_axes('bmk', self.factor)},bk->bm"
        fitted = jnp.einsum(subscripts, self.factor, mean, precision=exact)
        centre = jnp.einsum(subscripts, self.factor, self.pivot, precision=exact)
        sizes = jnp.broadcast_to(jnp.square(self.factor).sum(-2), alpha.shape)
        spread = (mean * sizes).sum(-1) - jnp.square(fitted).sum(-1)
        square = jnp.square(fitted - centre).sum(-1) + spread / (alpha.sum(-1) + 1)
        excess = self.square_total * ((self.slack * mean).sum(-1) + 0.5 * square)
        return noise_model.log_ratio(self.noise, self.num_rows, self.base, excess)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Modelled(Density):
    """Problems whose model is a function.

    Attributes:
      problem: the flattened batch.
      centre: where the likelihood is largest, as far as is known, ``(B, K)``, or ``None``.
    """

    problem: ModelProblem
    centre: jax.Array | None

    def excess(self, omega: jax.Array) -> jax.Array:
        """Return half the sums of squared residuals of draws above the base, ``(B, L)``."""
        return self.half_square(omega) - self.base[:, None]

    def half_square(self, omega: jax.Array) -> jax.Array:
        """Return half the sums of squared residuals of draws, ``(B, L)``."""
        num_problems = self.base.shape[0]
        at_a_time = max(1, PREDICTED_ELEMENTS // (num_problems * self.problem.target.shape[-1]))

        def one(problem, omega):
            draws = jnp.moveaxis(omega, -1, 0)
            return lax.map(problem.half_square, draws, batch_size=min(at_a_time, draws.shape[0]))

        # What neither depends on the problem nor on its total, vmap computes once.
        if omega.ndim == 2:
            half_square = self.problem.vmap(lambda problem: one(problem, omega))
            return jnp.broadcast_to(half_square, (num_problems, omega.shape[-1]))
        return self.problem.vmap(one, omega)

    def quadratic(self) -> Quadratic:
        """Return the log-likelihoods of the models that are linear in omega and agree with these at the centres."""
        assert self.centre is not None, "the model's optimum is needed"

        def one(problem, centre):
            residual = problem.residual(centre)
            jacobian = -jax.jacfwd(problem.residual)(centre)
            return residual, jacobian - jacobian.mean(-1, keepdims=True)

        residual, root = self.problem.vmap(one, self.centre)
        half_square = 0.5 * jnp.square(residual).sum(-1)
        scale = 1 / noise_model.likeliest_level(self.noise, self.num_rows, half_square)
        root, residual = scale[:, None, None] * root, scale[:, None] * residual
        return Quadratic(root, self.centre, -jnp.einsum("bnk,bn->bk", root, residual, precision=lax.Precision.HIGHEST))

    def log_ratio(self, omega: jax.Array) -> jax.Array:
        """Return ``ln(likelihood / peak)`` of draws, ``(B, L)``."""
        if not isinstance(self.noise, InverseGamma):
            return super().log_ratio(omega)
        # The base need not be near: the logarithms keep the digits that a difference would lose.
        noise = jax.tree.map(lambda leaf: leaf[:, None], self.noise)
        power = noise.shape + 0.5 * self.num_rows[:, None]
        return power * (jnp.log(noise.scale + self.base[:, None]) - jnp.log(noise.scale + self.half_square(omega)))


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


def centred(factor: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return a design without its mean column, ``(..., M, K)``, and that column, ``(..., M)``.

    As omega sums to one, the product with it is that of the first, plus the second. What columns have in common, an
    offset say, would cost the digits in which they differ.
    """
    column = factor.mean(-1)
    return factor - column[..., None], column


def gradient_at(problem: LinearProblem, omega: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return ``|r|^2 / 2`` with ``r = y / C - A omega``, and ``g = A'r`` up to a constant, for one problem."""
    exact = lax.Precision.HIGHEST
    factor, column = centred(problem.factor)
    residual = problem.projection / problem.total - column - jnp.matmul(factor, omega, precision=exact)
    cross = problem.cross / problem.total
    half_square = 0.5 * jnp.square(residual).sum() + problem.rest / jnp.square(problem.total) - cross @ omega
    return half_square, jnp.matmul(residual, factor, precision=exact) + cross


def pivot_at(problem: LinearProblem, omega: jax.Array) -> Pivoted:
    """Return the density of a flattened batch, pivoted at a point of the simplex each, ``(B, K)``.

    The pivot is a constant to automatic differentiation: the value does not depend on it.
    """
    pivot = lax.stop_gradient(omega)

    def one(problem, pivot):
        half_square, gradient = gradient_at(problem, pivot)
        slack = lax.stop_gradient(gradient.max()) - gradient
        square_total = jnp.square(problem.total)
        base, improper = square_total * (half_square - slack @ pivot), jnp.bool_(False)
        if isinstance(problem.noise, InverseGamma):
            # Rounding hides a smaller base, whose logarithm matters here.
            floor = 0.5 * jnp.square(2 * rounding(problem))
            improper = problem.noise.scale + base <= floor
            base = jnp.maximum(base, floor)
        rounded = rounding(problem) > 2 * noise_model.likeliest_level(problem.noise, problem.num_rows, base)
        common = _common(problem, base, improper=improper, unbounded=jnp.bool_(False), rounded=rounded)
        return common, {"slack": slack, "square_total": square_total}

    common, own = problem.vmap(one, pivot)
    factor = centred(problem.factor)[0]
    return Pivoted(**common, prior=problem.prior, constraint=problem.constraint, factor=factor, pivot=pivot, **own)


def _common(problem: Problem, base: jax.Array, **flags: jax.Array) -> dict[str, Any]:
    """Return what the densities of all kinds of problems have, for one problem."""
    fields = {name: getattr(problem, name) for name in ("noise", "num_rows", "log_volume")}
    return {"base": base, "valid": problem.is_valid(), **fields, **flags}


def rounding(problem: LinearProblem) -> jax.Array:
    """Return how far off a residual's length may be, because the reduced data are rounded, for one problem."""
    target_size = jnp.sqrt(jnp.square(problem.projection).sum() + 2 * problem.rest)
    column_size = jnp.sqrt(jnp.square(problem.factor).sum(0).max())
    return 8 * jnp.finfo(problem.dtype).eps * lax.stop_gradient(target_size + problem.total * column_size)


def modelled(problem: ModelProblem, bound: jax.Array, centre: jax.Array | None = None) -> Modelled:
    """Return the density of a flattened batch of models, relative to bounds of their half-squares, ``(B,)``."""

    def one(problem, bound):
        base, unbounded = bound, jnp.bool_(False)
        if isinstance(problem.noise, InverseGamma):
            # A perfect fit would be infinitely likely: relative to that of the prior's mean, which is no bound.
            middle = lax.stop_gradient(problem.half_square(dirichlet.mean(problem.prior)))
            unbounded = problem.noise.scale + bound <= 0
            base = jnp.where(unbounded, jnp.where(middle > 0, middle, 1), bound)
        return _common(problem, base, improper=jnp.bool_(False), unbounded=unbounded, rounded=jnp.bool_(False))

    common = problem.vmap(one, lax.stop_gradient(bound))
    return Modelled(**common, prior=problem.prior, constraint=problem.constraint, problem=problem, centre=centre)
