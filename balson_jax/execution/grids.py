"""Fits of a grid of problems that differ in their prior along the batch's first axis.

Chains move in other ways for sparse priors than for peaked ones, and a program has moves of one kind (see
``HitAndRun.walls``). So the sparse part of a grid is fitted apart from the rest.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from .. import validation
from ..posteriors.posterior import Posterior
from ..problems.base import Problem
from ..samplers import Sampler
from .ladder import fit_problem


def fit_grid(key: jax.Array, grid: Problem, method: Sampler) -> Posterior:
    """Return the posterior of a batch whose first axis is a grid of priors, by a method that is not prepared yet."""
    sparse = _is_sparse(grid)
    uses_chains = method.is_chain or any(rung.method.is_chain for rung in method.rungs(grid))
    if sparse.all() or not sparse.any() or not uses_chains:
        return fit_problem(key, grid, method.prepare(grid))
    num_axes = len(grid.batch_shape)
    places = [np.flatnonzero(part) for part in (sparse, ~sparse)]
    parts = [grid.take(own, num_axes) for own in places]
    methods = [method.prepare(part) for part in parts]  # what can't serve is refused before anything is computed
    found = [fit_problem(key, part, own) for part, own in zip(parts, methods, strict=True)]
    order = np.argsort(np.concatenate(places))
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves)[order], *found)


def _is_sparse(grid: Problem) -> np.ndarray:
    """Return which places of the first axis have no concentration above one; none if concentrations are not known."""
    count = grid.batch_shape[0]
    prior = validation.known(grid.prior)
    if prior is None or prior.ndim - 1 < len(grid.batch_shape) or prior.shape[0] != count or not count:
        return np.zeros(count, bool)
    return np.asarray(prior).reshape(count, -1).max(-1, initial=0) <= 1
