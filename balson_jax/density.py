"""The log-density: Gaussian likelihood, Dirichlet prior, and their product (the paper's eq. 7).

Public functions take draws ``omega`` of shape ``(..., K)`` whose leading axes broadcast against the problem's batch,
and include every constant, so that the evidence means something.

Samplers use ``Pivoted`` instead: one problem's log-likelihood relative to the highest value it can have, for draws
``(K, L)``. For any point ``omega°`` of the simplex, with residual ``r = y / C - A omega°``, gradient ``g = A'r`` and
``slack_k = max(g) - g_k >= 0``,

    |y / C - A omega|^2 / 2 = bound + slack'omega + |R (omega - omega°)|^2 / 2,    bound = |r|^2 / 2 - slack'omega°.

Both terms after the bound are sums of nonnegative numbers, so nothing cancels in float32 however strong the
signal, and the relative log-likelihood cannot exceed zero: ``bound`` certifies the envelope of rejection sampling.
At the constrained optimum ``slack'omega°`` is zero and the envelope is tight.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from . import dirichlet
from .problem import Problem


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
    """The log-likelihood of one problem relative to its certified peak (see the module's text).

    Attributes:
      factor: ``(M, K)``.
      pivot: ``omega°``, ``(K,)``.
      slack: ``(K,)``, nonnegative.
      precision: ``C^2 / noise^2``.
      log_peak: no omega has a larger log-likelihood.
      prior: concentrations, ``(K,)``.
    """

    factor: jax.Array
    pivot: jax.Array
    slack: jax.Array
    precision: jax.Array
    log_peak: jax.Array
    prior: jax.Array

    def log_ratio(self, omega: jax.Array) -> jax.Array:
        """Return ``ln(likelihood / peak) <= 0`` of draws ``(K, L)``, shape ``(L,)``."""
        # The products with the draws do not involve the target: problems that share a design share them.
        exact = lax.Precision.HIGHEST
        fitted = jnp.matmul(self.factor, omega, precision=exact)
        centre = jnp.matmul(self.factor, self.pivot, precision=exact)
        square = 0.5 * jnp.square(fitted - centre[:, None]).sum(0)
        return -self.precision * (jnp.matmul(self.slack, omega, precision=exact) + square)

    def log_prior(self, log_omega: jax.Array) -> jax.Array:
        """Return the log-prior of draws ``(K, L)`` given by their logarithm, shape ``(L,)``."""
        return dirichlet.log_prob(self.prior, log_omega=log_omega.T)


def gradient_at(problem: Problem, omega: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return ``|r|^2 / 2`` and ``g = A'r`` with ``r = y / C - A omega``, for one problem."""
    exact = lax.Precision.HIGHEST
    residual = problem.projection / problem.total - jnp.matmul(problem.factor, omega, precision=exact)
    cross = problem.cross / problem.total
    half_square = 0.5 * jnp.square(residual).sum() + problem.rest / jnp.square(problem.total) - cross @ omega
    return half_square, jnp.matmul(residual, problem.factor, precision=exact) + cross


def pivot_at(problem: Problem, omega: jax.Array) -> Pivoted:
    """Return the log-likelihood of one problem, pivoted at a point of the simplex.

    The pivot is a constant to automatic differentiation: the value does not depend on it.
    """
    pivot = lax.stop_gradient(omega)
    half_square, gradient = gradient_at(problem, pivot)
    slack = lax.stop_gradient(gradient.max()) - gradient
    precision = jnp.square(problem.total / problem.noise)
    log_peak = log_normalizer(problem) - precision * (half_square - slack @ pivot)
    return Pivoted(problem.factor, pivot, slack, precision, log_peak, problem.prior)
