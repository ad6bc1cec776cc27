"""The log-density: Gaussian likelihood, Dirichlet prior, and their product (the paper's eq. 7).

Public functions take draws ``omega`` of shape ``(..., K)`` whose leading axes broadcast against the problem's batch,
and include every constant, so that the evidence means something.

Samplers use ``Pivoted`` instead: log-likelihoods relative to the highest value they can have, of draws with the sample
axis last. For any point ``omega°`` of the simplex, with residual ``r = y / C - A omega°``, gradient ``g = A'r`` and
``slack_k = max(g) - g_k >= 0``,

    |y / C - A omega|^2 / 2 = bound + slack'omega + |R (omega - omega°)|^2 / 2,    bound = |r|^2 / 2 - slack'omega°.

Both terms after the bound are sums of nonnegative numbers, so nothing cancels in float32 however strong the
signal, and the relative log-likelihood cannot exceed zero: ``bound`` certifies the envelope of rejection sampling.
At the constrained optimum ``slack'omega°`` is zero and the envelope is tight.
"""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from . import dirichlet
from .problem import Problem

UNROLLED_TERMS = 16


def log_likelihood(problem: Problem, omega: jax.Array) -> jax.Array:
    """Return ``ln N(y - C A omega; 0, noise^2)`` for draws ``(..., K)``.

    >>> from balson_jax import linear_problem
    >>> problem = linear_problem(jnp.eye(2), jnp.array([0.3, 0.7]))
    >>> round(float(log_likelihood(problem, jnp.array([0.3, 0.7]))), 4)  # -ln(2 pi)
    -1.8379
    """
    theta = jnp.asarray(omega) * problem.total[..., None]
    fitted = jnp.einsum("...mk,...k->...m", problem.factor, theta, precision=lax.Precision.HIGHEST)
    half_square = 0.5 * jnp.square(problem.projection - fitted).sum(-1)
    half_square = half_square + problem.rest - (problem.cross * theta).sum(-1)
    return log_normalizer(problem) - half_square / jnp.square(problem.noise)


def log_normalizer(problem: Problem) -> jax.Array:
    """Return the log-likelihood of a perfect fit: ``-N/2 ln(2 pi noise^2)``, per problem."""
    return problem.log_volume - problem.num_rows * (0.5 * np.log(2 * np.pi) + jnp.log(problem.noise))


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
class Pivoted:
    """Log-likelihoods of B problems relative to their certified peaks (see the module's text).

    Draws are ``(K, L)`` where the problems share them, and ``(B, K, L)`` where each has its own.

    Attributes:
      factor: ``(B, M, K)``, or ``(M, K)`` if shared.
      pivot: ``omega°``, ``(B, K)``.
      slack: ``(B, K)``, nonnegative.
      precision: ``C^2 / noise^2``, ``(B,)``.
      log_peak: no omega has a larger log-likelihood, ``(B,)``.
      prior: concentrations, ``(B, K)``, or ``(K,)`` if shared.
    """

    factor: jax.Array
    pivot: jax.Array
    slack: jax.Array
    precision: jax.Array
    log_peak: jax.Array
    prior: jax.Array

    def log_ratio(self, omega: jax.Array) -> jax.Array:
        """Return ``ln(likelihood / peak) <= 0`` of draws, ``(B, L)``."""
        exact = lax.Precision.HIGHEST
        # A product of the draws and the design, without the target: shared problems share it.
        fitted = jnp.matmul(self.factor, omega, precision=exact)
        centre = jnp.einsum(f"{_axes('bmk', self.factor)},bk->bm", self.factor, self.pivot, precision=exact)
        linear = jnp.einsum(f"bk,{_axes('bkl', omega)}->bl", self.slack, omega, precision=exact)
        return -self.precision[:, None] * (linear + 0.5 * _square_distance(fitted, centre))


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


def gradient_at(problem: Problem, omega: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return ``|r|^2 / 2`` and ``g = A'r`` with ``r = y / C - A omega``, for one problem."""
    exact = lax.Precision.HIGHEST
    residual = problem.projection / problem.total - jnp.matmul(problem.factor, omega, precision=exact)
    cross = problem.cross / problem.total
    half_square = 0.5 * jnp.square(residual).sum() + problem.rest / jnp.square(problem.total) - cross @ omega
    return half_square, jnp.matmul(residual, problem.factor, precision=exact) + cross


def pivot_at(problem: Problem, omega: jax.Array) -> Pivoted:
    """Return the log-likelihoods of a flattened batch, pivoted at a point of the simplex each, ``(B, K)``.

    The pivot is a constant to automatic differentiation: the value does not depend on it.
    """
    pivot = lax.stop_gradient(omega)

    def one(problem, pivot):
        half_square, gradient = gradient_at(problem, pivot)
        slack = lax.stop_gradient(gradient.max()) - gradient
        precision = jnp.square(problem.total / problem.noise)
        return slack, precision, log_normalizer(problem) - precision * (half_square - slack @ pivot)

    slack, precision, log_peak = problem.vmap(one, pivot)
    return Pivoted(problem.factor, pivot, slack, precision, log_peak, problem.prior)
