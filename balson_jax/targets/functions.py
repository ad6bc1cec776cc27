"""The log-density: Gaussian likelihood, Dirichlet prior, and their product (the paper's eq. 7).

These functions take draws ``omega = theta / total`` of shape ``(..., K)``, which sum to one and whose leading axes
broadcast against the problem's batch. All constants are included, so that evidences compare.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from .. import dirichlet
from ..problems.base import Problem


def log_likelihood(problem: Problem, omega: jax.Array) -> jax.Array:
    """Return the log-likelihood of draws ``(..., K)``; with the noise integrated out, where it is to be estimated.

    >>> from balson_jax import linear_problem
    >>> problem = linear_problem(jnp.eye(2), jnp.array([0.3, 0.7]), noise=1.0)
    >>> round(float(log_likelihood(problem, jnp.array([0.3, 0.7]))), 4)  # -ln(2 pi)
    -1.8379
    """
    omega = _checked(problem, jnp.asarray(omega, problem.dtype))
    return problem.log_likelihood(omega)


def _checked(problem: Problem, omega: jax.Array) -> jax.Array:
    """Return draws if they have the problem's number of components, or raise ``ValueError``."""
    if omega.shape[-1:] != (problem.num_components,):
        raise ValueError(
            f"omega has shape {omega.shape}; its last axis must have the problem's {problem.num_components} components "
            "(theta / total; with signs or slack, the parts of its larger simplex)"
        )
    return omega


def log_prior(problem: Problem, omega: jax.Array | None = None, *, log_omega: jax.Array | None = None) -> jax.Array:
    """Return ``ln Dir(omega; prior)`` for draws ``(..., K)``, from omega or from its logarithm."""
    return dirichlet.log_prob(problem.prior, omega, log_omega=log_omega)


def log_posterior(problem: Problem, omega: jax.Array | None = None, *, log_omega: jax.Array | None = None) -> jax.Array:
    """Return log-likelihood plus log-prior: the log-posterior up to the log-evidence, for draws ``(..., K)``."""
    if omega is None:
        omega = jnp.exp(jnp.asarray(log_omega))
    return log_likelihood(problem, omega) + log_prior(problem, omega, log_omega=log_omega)
