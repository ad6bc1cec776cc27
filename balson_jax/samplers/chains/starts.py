"""Where walkers begin: places more widely spread than the posterior, but not so far that they never come in."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from ...proposals import gaussian
from ...proposals.dirichlet import DirichletProposal
from ...random import points as unit_cube
from ...targets.functions import Quadratic

CLOSENESS = 0.8
"""How close the walkers of an ensemble begin to the first of them: 1 for at the same place."""

PRESSED, FAR = 30.0, 1000.0
"""By how much one component, and all together, may lower the log-likelihood where walkers begin."""


def starting_places(
    key: jax.Array, quadratic: Quadratic | None, prior: jax.Array, ensembles: int, half: int
) -> jax.Array:
    """Return where walkers of B problems begin, ``(2, B, K, L)``, with ``half`` of each ensemble in L.

    Args:
      key: a PRNG key.
      quadratic: the likelihoods, or ``None`` for models.
      prior: concentrations, ``(B, K)``.
      ensembles: how many ensembles there are.
      half: how many walkers half an ensemble has.
    """
    num_problems, num_components = prior.shape
    points = unit_cube.coordinates(unit_cube.pseudo, key, 2 * ensembles * half, start=0, dtype=prior.dtype)
    if quadratic is None:
        draws = jnp.exp(DirichletProposal(prior).draw(points)[0])
    else:
        wide = gaussian.from_quadratic(quadratic, prior, prior_share=0.25, spread=2.0)
        draws = _nearer(quadratic, jnp.exp(wide.draw(points)[0]))
    draws = draws.reshape(num_problems, num_components, 2, ensembles, half)
    # Those of an ensemble around one of them: ensembles agree only when they have forgotten where they began.
    omega = CLOSENESS * draws[:, :, :1, :, :1] + (1 - CLOSENESS) * draws
    return jnp.moveaxis(omega, 2, 0).reshape(2, num_problems, num_components, ensembles * half)


def _nearer(quadratic: Quadratic, draws: jax.Array) -> jax.Array:
    """Return draws ``(B, K, L)``, those moved towards the optimum from where walkers would be long in coming."""
    centre = quadratic.centre[:, :, None]
    # A target far outside presses components to zero.
    draws = jnp.minimum(draws, (PRESSED / jnp.maximum(quadratic.gradient, PRESSED))[:, :, None])
    draws = draws + jnp.maximum(1 - draws.sum(1, keepdims=True), 0) * centre
    away = jnp.matmul(quadratic.root, draws - centre, precision=lax.Precision.HIGHEST)
    excess = 0.5 * jnp.square(away).sum(1, keepdims=True)
    return centre + jnp.sqrt(FAR / jnp.maximum(excess, FAR)) * (draws - centre)
