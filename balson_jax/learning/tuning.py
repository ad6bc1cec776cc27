"""Choosing prior, total and noise of a problem by the evidence (see ``comparison``)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import validation
from ..execution.grids import fit_grid
from ..posteriors.posterior import Posterior
from ..problems.base import Problem, require_problem
from ..samplers import Sampler, chosen
from .comparison import require_evidence, summed, warn_of_sharpened


class Tuning(NamedTuple):
    """What ``tune`` found; the grid's axes are prior, total and noise, of length 1 where nothing was to be tuned.

    Attributes:
      prior: the best concentrations, ``(...)`` or ``(..., P)``, as the grid had; ``None`` if not tuned. (...) is the
        batch's shape, or ``()`` if the choice is shared.
      total: the best total, or ``None``.
      noise: the best noise, or ``None``.
      problem: the problem with these.
      posterior: its posterior.
      log_evidence: of the whole grid, ``(prior, total, noise, ...)``.
      log_evidence_stderr: its Monte Carlo error.
      status: of the whole grid; a candidate whose evidence is in doubt may have lost, or won, by chance.
      at_edge: whether the best is the smallest or largest of a grid of three numbers or more, so that a wider one might
        be better, ``(...)``.
    """

    prior: jax.Array | None
    total: jax.Array | None
    noise: jax.Array | None
    problem: Problem
    posterior: Posterior
    log_evidence: jax.Array
    log_evidence_stderr: jax.Array
    status: jax.Array
    at_edge: jax.Array

    def __repr__(self) -> str:
        """Return what was chosen, and what to mind."""
        values = {"prior": self.prior, "total": self.total, "noise": self.noise}
        chosen = {name: np.asarray(value) for name, value in values.items() if value is not None}
        count = math.prod(self.log_evidence.shape[3:])
        lines = [f"The largest evidence of {math.prod(self.log_evidence.shape[:3])} candidates, {count:,} problem(s)"]
        for name, value in chosen.items():
            shown = value if value.ndim == 0 or value.size <= 8 else f"from {value.min():g} to {value.max():g}"
            lines.append(f"{name:>7}: {shown}")
        edge = int(np.sum(self.at_edge))
        if edge:
            lines.append(f"{edge:,} choice(s) at the edge of a grid: a wider one may have a better")
        doubtful = int((np.asarray(self.status) != 0).sum())
        if doubtful:
            shown = f"{doubtful:,} of {self.status.size:,}"
            lines.append(f"{shown} fits have a status other than OK: see status, and try another method")
        return "\n".join(lines)


def tune(
    key: jax.Array,
    problem: Any,
    *,
    prior: Any = None,
    total: Any = None,
    noise: Any = None,
    method: str | Sampler = "auto",
    shared: bool = False,
) -> Tuning:
    """Return the prior, total and noise of a grid that have the largest evidence, and the posterior with them.

    The whole grid is one batch. Where Markov chains are needed they estimate the evidence too, so a grid of priors can
    pick the sparsity of many components. The evidence of the resampling methods counts the data more than once, and
    grows with sharpness alone: choosing by it draws a warning.

    Args:
      key: a PRNG key.
      problem: one problem or a batch, of ``linear_problem`` or ``model_problem``.
      prior: candidates ``(G,)``, or ``(G, P)`` with a concentration for each parameter. (That of a slack stays.)
      total: candidates ``(G,)``.
      noise: candidates ``(G,)``, which replace the problem's noise, known or to be estimated; if rows have noise or
        weights of their own, these stay and the candidates multiply them.
      method: how the grid is fitted; chains with ``evidence=True``.
      shared: whether all problems of a batch get the same, by the sum of their evidence, or each its own.

    >>> from balson_jax import IS, linear_problem
    >>> problem = linear_problem(jnp.eye(3), jnp.array([0.9, 0.1, 0.0]), noise=0.2)
    >>> found = tune(jax.random.key(0), problem, prior=[0.3, 1.0, 3.0], method=IS(num_draws=4000))
    >>> round(float(found.prior), 1)
    0.3
    """
    require_problem(problem)
    if problem.hyperprior is not None:
        raise ValueError(
            'the problem has prior="estimate", which weighs a grid already; give it concentrations to tune'
        )
    grids: dict[str, jax.Array | None] = {"prior": prior, "total": total, "noise": noise}
    grids = {name: _grid(name, values, problem) for name, values in grids.items()}
    if all(values is None for values in grids.values()):
        raise ValueError("there is nothing to tune; pass a grid of prior, total or noise")
    method = chosen(method).with_evidence()
    found = fit_grid(validation.typed_key(key), _on_grid(problem, grids), method)
    warn_of_sharpened(["method"] if found.sharpened else [])
    require_evidence("the grid, or some of it,", found)

    batch, sizes = problem.batch_shape, found.batch_shape[:3]
    flat = jax.tree.map(lambda leaf: leaf.reshape(math.prod(sizes), *leaf.shape[3:]), found)
    evidence = jnp.where(jnp.isnan(flat.log_evidence), -jnp.inf, flat.log_evidence)
    if shared:
        best_one = summed(evidence).argmax()
        posterior = jax.tree.map(lambda leaf: leaf[best_one], flat)
    else:
        best_one = evidence.argmax(0)
        posterior = jax.tree.map(lambda leaf: _take(leaf, best_one), flat)
    index = jnp.unravel_index(best_one, sizes)
    best = {name: None if values is None else values[index[axis]] for axis, (name, values) in enumerate(grids.items())}
    at_edge = jnp.zeros(best_one.shape, bool)
    for name, values in grids.items():
        if values is not None and values.ndim == 1 and values.size > 2:
            at_edge = at_edge | (best[name] == values.min()) | (best[name] == values.max())
    return Tuning(
        **best,
        problem=_replace(problem, best, batch if not shared else ()).labelled(problem.labels),
        posterior=posterior.labelled(problem.labels),
        log_evidence=found.log_evidence,
        log_evidence_stderr=found.log_evidence_stderr,
        status=found.status,
        at_edge=at_edge,
    )


def _take(leaf: jax.Array, chosen: jax.Array) -> jax.Array:
    index = chosen.reshape(1, *chosen.shape, *(1,) * (leaf.ndim - 1 - chosen.ndim))
    return jnp.take_along_axis(leaf, index, axis=0)[0]


def _grid(name: str, values: Any, problem: Problem) -> jax.Array | None:
    if values is None:
        return None
    grid = validation.float_array(name, values, problem.dtype)
    validation.require_positive(name, grid)
    wanted = [1, 2] if name == "prior" else [1]
    fits = grid.ndim in wanted and grid.shape[0] > 0 and (grid.ndim == 1 or grid.shape[1] == problem.num_params)
    if not fits:
        also = f", or (candidates, {problem.num_params})" if name == "prior" else ""
        raise ValueError(f"{name} has shape {grid.shape}; pass a list of candidates{also}")
    return grid


def _on_grid(problem: Any, grids: dict[str, jax.Array | None]) -> Any:
    """Return the problem with three axes more, in front of the batch's."""
    spread = {}
    ones = (1,) * len(problem.batch_shape)
    for axis, (name, values) in enumerate(grids.items()):
        if values is not None:
            where = [1, 1, 1]
            where[axis] = values.shape[0]
            spread[name] = values.reshape(*where, *ones, *values.shape[1:])
    return _replace(problem, spread, (1, 1, 1, *ones))


def _replace(problem: Any, values: Mapping[str, Any], shape: tuple[int, ...]) -> Any:
    """Return the problem with other hyperparameters, whose axes are those of ``shape``."""
    given = {name: value for name, value in values.items() if value is not None}
    if "prior" in given:
        prior = given["prior"]
        prior = prior[..., None] if prior.ndim == len(shape) else prior
        prior = jnp.broadcast_to(prior, (*prior.shape[:-1], problem.num_params))
        slack = problem.prior[..., -1]
        given["prior"] = problem.constraint.lift_prior(prior, slack, problem.num_params)
    return dataclasses.replace(problem, **given)
