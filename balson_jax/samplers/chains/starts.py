"""Places where walkers begin: spread more widely than the posterior, but near enough to come in.

R-hat detects chains that have not converged only if they begin farther apart than the posterior is wide (Gelman and
Rubin 1992).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from ...proposals import gaussian
from ...proposals.dirichlet import DirichletProposal
from ...random import points as unit_cube
from ...targets import Quadratic

CLOSENESS = 0.8
"""Contraction of the walkers of an ensemble toward the first of them; 1 means identical."""

PRESSED = 30.0
"""Largest loss of log-likelihood by one component where walkers begin, in nats."""

FAR = 1000.0
"""Largest loss of log-likelihood by all components together where walkers begin, in nats."""


def starting_places(
    key: jax.Array, quadratic: Quadratic | None, prior: jax.Array, ensembles: int, half: int
) -> jax.Array:
    """Return the first places of walkers of B problems, ``(2, B, K, L)``, with ``half`` walkers of each ensemble in L.

    Args:
      key: a PRNG key.
      quadratic: the likelihoods, or ``None`` for models.
      prior: concentrations, ``(B, K)``.
      ensembles: number of ensembles.
      half: number of walkers in half an ensemble.
    """
    num_problems, num_components = prior.shape
    points = unit_cube.coordinates(unit_cube.pseudo, key, 2 * ensembles * half, start=0, dtype=prior.dtype)
    if quadratic is None:
        draws = jnp.exp(DirichletProposal(prior).draw(points)[0])
    else:
        wide = gaussian.from_quadratic(quadratic, prior, spread=2.0)
        draws = _nearer(quadratic, jnp.exp(wide.draw(points)[0]))
    draws = draws.reshape(num_problems, num_components, 2, ensembles, half)
    # Walkers of an ensemble begin near one place: ensembles agree only once they have forgotten it.
    omega = CLOSENESS * draws[:, :, :1, :, :1] + (1 - CLOSENESS) * draws
    return jnp.moveaxis(omega, 2, 0).reshape(2, num_problems, num_components, ensembles * half)


def _nearer(quadratic: Quadratic, draws: jax.Array) -> jax.Array:
    """Return draws ``(B, K, L)``, moved towards the optimum where the log-likelihood is too low.

    The loss of one component is its multiplier times its value. The loss of all is about quadratic in the distance from
    the optimum, so scaling the distance by ``sqrt(FAR / loss)`` leaves FAR nats.
    """
    optimum, multipliers = quadratic.optimum[:, :, None], quadratic.gradient
    # A target far outside the simplex presses components to zero.
    draws = jnp.minimum(draws, (PRESSED / jnp.maximum(multipliers, PRESSED))[:, :, None])
    draws = draws + jnp.maximum(1 - draws.sum(1, keepdims=True), 0) * optimum
    away = jnp.matmul(quadratic.root, draws - optimum, precision=lax.Precision.HIGHEST)
    excess = 0.5 * jnp.square(away).sum(1, keepdims=True)
    return optimum + jnp.sqrt(FAR / jnp.maximum(excess, FAR)) * (draws - optimum)
