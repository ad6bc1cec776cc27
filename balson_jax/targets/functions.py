"""The log-density: Gaussian likelihood, Dirichlet prior, and their product (the paper's eq. 7).

Public functions take draws ``omega = theta / total`` of shape ``(..., K)``, which sum to one and whose leading axes
broadcast against the problem's batch, and include every constant, so that the evidence means something.

Samplers use a ``Density`` instead: log-likelihoods relative to the highest value they can have, of draws with the
sample axis last (see ``likelihoods``).
"""

from __future__ import annotations

import abc
import dataclasses
import math

import jax
import jax.numpy as jnp
from jax import lax

from .. import dirichlet
from ..problems import constraints
from ..problems import noise as noise_model
from ..problems.constraints import Constraint
from ..problems.linear import LinearProblem, Problem
from ..problems.model import ModelProblem
from ..problems.noise import Noise


def log_likelihood(problem: Problem, omega: jax.Array) -> jax.Array:
    """Return the log-likelihood of draws ``(..., K)``; with the noise integrated out, where it is to be estimated.

    >>> from balson_jax import linear_problem
    >>> problem = linear_problem(jnp.eye(2), jnp.array([0.3, 0.7]), noise=1.0)
    >>> round(float(log_likelihood(problem, jnp.array([0.3, 0.7]))), 4)  # -ln(2 pi)
    -1.8379
    """
    omega = _checked(problem, jnp.asarray(omega, problem.dtype))
    if isinstance(problem, LinearProblem):
        theta = omega * problem.total[..., None]
        fitted = jnp.einsum("...mk,...k->...m", problem.factor, theta, precision=lax.Precision.HIGHEST)
        half_square = 0.5 * jnp.square(problem.projection - fitted).sum(-1)
        half_square = half_square + problem.rest - (problem.cross * theta).sum(-1)
    else:
        half_square = _half_squares(problem, omega)
    return problem.log_volume + noise_model.log_likelihood(problem.noise, problem.num_rows, half_square)


def _checked(problem: Problem, omega: jax.Array) -> jax.Array:
    """Return draws if they have the problem's number of components, or raise ``ValueError``."""
    if omega.shape[-1:] != (problem.num_components,):
        raise ValueError(
            f"omega has shape {omega.shape}; its last axis must have the problem's {problem.num_components} components "
            "(theta / total; with signs or slack, the parts of its larger simplex)"
        )
    return omega


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
