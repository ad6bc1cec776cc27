"""The log-density: Gaussian likelihood, Dirichlet prior, and their product (the paper's eq. 7).

Public functions take draws ``omega`` of shape ``(..., K)`` whose leading axes broadcast against the problem's batch,
and include every constant, so that the evidence means something.

Samplers use a ``Density`` instead: log-likelihoods relative to the highest value they can have, of draws with the
sample axis last. For a linear problem and any point ``omega°`` of the simplex, with residual ``r = y / C - A omega°``,
gradient ``g = A'r`` and ``slack_k = max(g) - g_k >= 0``,

    |y / C - A omega|^2 / 2 = bound + slack'omega + |R (omega - omega°)|^2 / 2,    bound = |r|^2 / 2 - slack'omega°.

Both terms after the bound are sums of nonnegative numbers, so nothing cancels in float32 however strong the
signal, and the relative log-likelihood cannot exceed zero: ``bound`` certifies the envelope of rejection sampling.
At the constrained optimum ``slack'omega°`` is zero and the envelope is tight.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from . import constraints, dirichlet
from . import noise as noise_model
from .constraints import Constraint
from .model import ModelProblem
from .noise import InverseGamma, Noise
from .problem import LinearProblem, Problem

UNROLLED_TERMS = 16
PREDICTED_ELEMENTS = 1 << 20
"""A model's predictions are computed for as many draws at a time as hold no more numbers than this."""


def log_likelihood(problem: Problem, omega: jax.Array) -> jax.Array:
    """Return the log-likelihood of draws ``(..., K)``; with the noise integrated out, where it is to be estimated.

    >>> from balson_jax import linear_problem
    >>> problem = linear_problem(jnp.eye(2), jnp.array([0.3, 0.7]), noise=1.0)
    >>> round(float(log_likelihood(problem, jnp.array([0.3, 0.7]))), 4)  # -ln(2 pi)
    -1.8379
    """
    omega = jnp.asarray(omega, problem.dtype)
    if isinstance(problem, LinearProblem):
        theta = omega * problem.total[..., None]
        fitted = jnp.einsum("...mk,...k->...m", problem.factor, theta, precision=lax.Precision.HIGHEST)
        half_square = 0.5 * jnp.square(problem.projection - fitted).sum(-1)
        half_square = half_square + problem.rest - (problem.cross * theta).sum(-1)
    else:
        half_square = _half_squares(problem, omega)
    return problem.log_volume + noise_model.log_likelihood(problem.noise, problem.num_rows, half_square)


def _half_squares(problem: Problem, omega: jax.Array) -> jax.Array:
    assert isinstance(problem, ModelProblem)
    shape = jnp.broadcast_shapes(omega.shape[:-1], problem.batch_shape)
    count = math.prod(shape)

    def expand(leaf, ndim):
        own, event = leaf.shape[: leaf.ndim - ndim], leaf.shape[leaf.ndim - ndim :]
        return jnp.broadcast_to(leaf, shape + event).reshape(count, *event) if own else leaf

    flat = jnp.broadcast_to(omega, (*shape, omega.shape[-1])).reshape(count, -1)
    return problem.map_leaves(expand).vmap(lambda one, omega: one.half_square(omega), flat).reshape(shape)


def log_prior(problem: Problem, omega: jax.Array | None = None, *, log_omega: jax.Array | None = None) -> jax.Array:
    """Return ``ln Dir(omega; prior)`` for draws ``(..., K)``, from omega or from its logarithm."""
    return dirichlet.log_prob(problem.prior, omega, log_omega=log_omega)


def log_posterior(problem: Problem, omega: jax.Array | None = None, *, log_omega: jax.Array | None = None) -> jax.Array:
    """Return log-likelihood plus log-prior: the log-posterior up to the log-evidence, for draws ``(..., K)``."""
    if omega is None:
        omega = jnp.exp(jnp.asarray(log_omega))
    return log_likelihood(problem, omega) + log_prior(problem, omega, log_omega=log_omega)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Quadratic:
    """The log-likelihoods of B problems around a point each: ``-gradient'd - |root d|^2 / 2``, ``d = omega - centre``.

    Attributes:
      root: ``(B, M, K)``.
      centre: ``(B, K)``.
      gradient: ``(B, K)``.
    """

    root: jax.Array
    centre: jax.Array
    gradient: jax.Array


@dataclasses.dataclass(frozen=True)
class Density(abc.ABC):
    """What samplers need of B problems. Draws are ``(K, L)`` where the problems share them, else ``(B, K, L)``.

    Attributes:
      base: half the sum of squared residuals to which likelihoods are relative: the smallest, if certified, ``(B,)``.
      noise: fields ``(B,)``.
      num_rows: ``(B,)``.
      log_volume: ``(B,)``.
      valid: whether all numbers of the problem are in their domain, ``(B,)``.
      improper: whether the fit is perfect and the noise unknown, so that there is no posterior, ``(B,)``.
      unbounded: whether the base is no bound, because there is none above zero and the noise is unknown, ``(B,)``.
      rounded: whether the rounding of the data may move the answer by about its own spread, ``(B,)``.
      prior: concentrations, ``(B, K)``, or ``(K,)`` if shared.
      constraint: which constraint holds.
    """

    base: jax.Array
    noise: Noise
    num_rows: jax.Array
    log_volume: jax.Array
    valid: jax.Array
    improper: jax.Array
    unbounded: jax.Array
    rounded: jax.Array
    prior: jax.Array
    constraint: Constraint = dataclasses.field(metadata={"static": True})

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers B of problems and K of components."""
        return self.base.shape[0], self.prior.shape[-1]

    @property
    def feature_shape(self) -> tuple[int, int]:
        """The numbers B of problems and F of features."""
        num_problems, num_components = self.shape
        signed = constraints.is_signed(self.constraint)
        return num_problems, num_components + (constraints.num_params(self.constraint, num_components) if signed else 0)

    @property
    def log_peak(self) -> jax.Array:
        """The log-likelihood at ``base``, ``(B,)``: no omega has a larger one, if the base is certified."""
        return self.log_volume + noise_model.log_likelihood(self.noise, self.num_rows, self.base)

    @property
    def level(self) -> jax.Array:
        """The noise's standard deviation, if it is known; else the likeliest at ``base``, ``(B,)``."""
        if not isinstance(self.noise, InverseGamma):
            return jnp.broadcast_to(self.noise, self.base.shape)
        return jnp.sqrt((self.noise.scale + self.base) / (self.noise.shape + 0.5 * self.num_rows))

    @abc.abstractmethod
    def excess(self, omega: jax.Array) -> jax.Array:
        """Return half the sums of squared residuals of draws, less the base, ``(B, L)``."""

    @abc.abstractmethod
    def quadratic(self) -> Quadratic:
        """Return the log-likelihoods around their peaks: exact for linear problems with known noise."""

    def log_ratio(self, omega: jax.Array) -> jax.Array:
        """Return ``ln(likelihood / peak)`` of draws, ``(B, L)``; at most zero, if the base is certified."""
        noise = jax.tree.map(lambda leaf: leaf[:, None], self.noise)
        return noise_model.log_ratio(noise, self.num_rows[:, None], self.base[:, None], self.excess(omega))

    def half_square(self, omega: jax.Array) -> jax.Array:
        """Return half the sums of squared residuals of draws, ``(B, L)``."""
        return self.base[:, None] + self.excess(omega)

    def features(self, omega: jax.Array) -> jax.Array:
        """Return what moments are wanted of: omega and, if that is something else, theta / C; ``(..., F, L)``."""
        if not constraints.is_signed(self.constraint):
            return omega
        return jnp.concatenate([omega, constraints.unlift(self.constraint, omega, axis=-2)], axis=-2)

    def prior_moments(self) -> tuple[jax.Array, jax.Array]:
        """Return mean and variance of the features under the prior, ``(..., F)``."""
        mean, variance = dirichlet.mean(self.prior), dirichlet.variance(self.prior)
        if not constraints.is_signed(self.constraint):
            return mean, variance
        count = constraints.num_params(self.constraint, self.prior.shape[-1])
        plus, minus = mean[..., :count], mean[..., count : 2 * count]
        difference = plus - minus
        second = (plus + minus - jnp.square(difference)) / (self.prior.sum(-1, keepdims=True) + 1)
        return jnp.concatenate([mean, difference], -1), jnp.concatenate([variance, second], -1)


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
        scale = jnp.sqrt(self.square_total) / self.level
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
        at_centre = dataclasses.replace(self, base=0.5 * jnp.square(residual).sum(-1))
        scale = 1 / at_centre.level
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
        level = problem.noise
        if isinstance(level, InverseGamma):
            level = jnp.sqrt((level.scale + base) / (level.shape + 0.5 * problem.num_rows))
        rounded = rounding(problem) > 2 * level
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
