"""Choosing by evidence: between models, and between settings of one.

The evidence, ``p(target | model)``, is the prior's mean of the likelihood. It rises with the fit and falls with the
prior mass on fits that the data exclude. Differences of its logarithm are log-odds of the models, if these were equally
plausible before.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import validation
from ..fit import fit
from ..posteriors.posterior import Posterior
from ..problems.base import Problem, require_problem
from ..samplers import METHODS, Sampler
from ..status import Status


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Candidates ranked by their evidence, the best first: over all problems together, if they are a batch.

    Attributes:
      names: of the M candidates.
      log_evidence: ``(M, ...)``.
      log_evidence_stderr: its Monte Carlo error, ``(M, ...)``.
      weights: the candidates' posterior probabilities if they were equally likely before, ``(M, ...)``; zero where no
        candidate has an evidence, NaN if they don't compare.
      status: ``(M, ...)``; the evidence of a fit whose status isn't ``OK`` is in doubt.
      posteriors: by name.
    """

    names: tuple[str, ...]
    log_evidence: np.ndarray
    log_evidence_stderr: np.ndarray
    weights: np.ndarray
    status: np.ndarray
    posteriors: dict[str, Posterior]

    @property
    def best(self) -> np.ndarray:
        """The name of each problem's best candidate, ``(...)``."""
        return np.asarray(self.names)[self.log_evidence.argmax(0)]

    def __repr__(self) -> str:
        """Return the table."""
        width = max(9, *map(len, self.names))
        count = self.log_evidence[0].size
        last = "weight" if count == 1 else "best in"
        header = f"{'':>{width}}{'log-evidence':>14}{'± error':>10}{'difference':>12}{last:>10}   status"
        lines = [f"{count:,} problems; log-evidence is their sum"] if count != 1 else []
        lines.append(header)
        sums = self.log_evidence.reshape(len(self.names), -1).sum(-1)
        errors = np.sqrt(np.square(self.log_evidence_stderr.reshape(len(self.names), -1)).sum(-1))
        for i, name in enumerate(self.names):
            share = f"{int(np.sum(self.best == name)):,}"
            if count == 1:
                share = f"{float(self.weights[i].reshape(())):.4f}".replace("nan", "–")
            bad = Status(int(np.bitwise_or.reduce(self.status[i], axis=None)))
            shown = "|".join(flag.name or "" for flag in bad) or "OK"
            difference = sums[i] - sums[0]
            lines.append(f"{name:>{width}}{sums[i]:>14.3f}{errors[i]:>10.2g}{difference:>12.3f}{share:>10}   {shown}")
        return "\n".join(lines)


def compare(
    candidates: Mapping[str, Posterior | Problem | Sampler | str],
    *,
    key: jax.Array | None = None,
    problem: Problem | None = None,
    method: str | Sampler = "is",
) -> Comparison:
    """Return candidates ranked by evidence.

    All must be about the same data: problems that differ in design, constraint or prior, say, but not in the target or
    in which of its rows count. RSIRS and ISIRS (unless ``reuse_data=False``) report the evidence of data that were
    counted already, which grows with the rounds and says nothing of the model: comparing it draws a warning.

    Args:
      candidates: by name, posteriors; or problems, which are fitted by ``method``; or methods, which fit ``problem``
        (to see that they agree).
      key: for fitting.
      problem: what methods fit.
      method: how problems are fitted.

    >>> x = jnp.linspace(-1, 1, 50)
    >>> y = 0.3 + 0.7 * x**2 + 0.1 * jax.random.normal(jax.random.key(3), (50,))
    >>> from balson_jax import linear_problem
    >>> design = x[:, None] ** jnp.arange(4)
    >>> problems = {f"degree {d}": linear_problem(design[:, : d + 1], y) for d in (1, 2)}
    >>> compare(problems, key=jax.random.key(0)).names
    ('degree 2', 'degree 1')
    """
    is_mapping = isinstance(candidates, Mapping)
    if not is_mapping or not candidates:
        trouble = "is empty" if is_mapping else f"is a {type(candidates).__name__}"
        raise ValueError(f"candidates {trouble}; pass a dict of posteriors, problems or methods by name")
    posteriors = {str(name): _posterior(name, value, key, problem, method) for name, value in candidates.items()}
    sharpened = [name for name, found in posteriors.items() if found.sharpened]
    _warn_of_sharpened(sharpened)
    shapes = {name: found.batch_shape for name, found in posteriors.items()}
    if len(set(shapes.values())) > 1:
        raise ValueError(f"candidates have batches of different shapes, {shapes}; compare like with like")
    first, *others = posteriors.values()
    if not all(np.array_equal(first.num_rows, other.num_rows) for other in others):
        rows = {name: np.asarray(found.num_rows).tolist() for name, found in posteriors.items()}
        raise ValueError(f"candidates rest on different numbers of rows, {rows}; give them the same data")
    mixed = len({found.noise is not None and bool(np.any(found.noise.relative)) for found in posteriors.values()}) > 1
    if mixed:
        warnings.warn(
            'under noise="estimate" the evidence has an arbitrary constant, which some candidates have and some do '
            "not, so that these don't compare; estimate the noise in all, or with a proper InverseGamma prior",
            stacklevel=2,
        )
    evidence, errors, status = (
        np.stack([np.asarray(getattr(found, field)) for found in posteriors.values()])
        for field in ("log_evidence", "log_evidence_stderr", "status")
    )
    for name, posterior in posteriors.items():
        _require_evidence(f"candidate {name!r}", posterior)
    evidence = np.where(np.isnan(evidence), -np.inf, evidence)
    order = np.argsort(-evidence.reshape(len(evidence), -1).sum(-1), kind="stable")
    names = tuple(list(posteriors)[i] for i in order)
    peak = evidence.max(0)
    odds = np.exp(evidence[order] - np.where(np.isfinite(peak), peak, 0))
    weights = odds / np.where(odds.sum(0) > 0, odds.sum(0), 1)
    if mixed or sharpened:
        weights = np.full_like(weights, np.nan)
    return Comparison(names, evidence[order], errors[order], weights, status[order], posteriors)


def _require_evidence(name: str, posterior: Posterior) -> None:
    """Raise ``ValueError`` if a fit without trouble has no evidence, because its method doesn't estimate it."""
    missing = np.isnan(posterior.log_evidence) & ((np.asarray(posterior.status) & int(Status.NONFINITE)) == 0)
    if missing.any():
        raise ValueError(
            f'{name} was fitted by Markov chains, which don\'t tell the evidence; fit with method="tg" or "is", with '
            "more draws if status asks for them"
        )


def _posterior(name: Any, value: Any, key: Any, problem: Problem | None, method: str | Sampler) -> Posterior:
    if isinstance(value, Posterior):
        return value
    if key is None:
        raise ValueError(f"candidate {name!r} is to be fitted; pass key=jax.random.key(0)")
    if isinstance(value, Problem):
        return fit(key, value, method)
    if isinstance(value, (Sampler, str)):
        if problem is None:
            raise ValueError(f"candidate {name!r} is a method; pass problem=, which it is to fit")
        return fit(key, problem, value)
    known = f"a posterior, a problem or a method ({', '.join(METHODS)})"
    raise ValueError(f"candidate {name!r} is a {type(value).__name__}; pass {known}")


def _warn_of_sharpened(names: list[str]) -> None:
    if names:
        warnings.warn(
            f"{', '.join(names)}: the evidence is that of data counted more than once, and does not compare models; "
            "use IS, RS, or reuse_data=False",
            stacklevel=3,
        )


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
    method: str | Sampler = "is",
    shared: bool = False,
) -> Tuning:
    """Return the prior, total and noise of a grid that have the largest evidence, and the posterior with them.

    The whole grid is one batch, fitted in one call. Evidence of the resampling methods is of data counted already, and
    grows with sharpness alone: choosing by it draws a warning.

    Args:
      key: a PRNG key.
      problem: one problem or a batch, of ``linear_problem`` or ``model_problem``.
      prior: candidates ``(G,)``, or ``(G, P)`` with a concentration for each parameter. (That of a slack stays.)
      total: candidates ``(G,)``.
      noise: candidates ``(G,)``, which replace the problem's noise, known or to be estimated; if rows have noise or
        weights of their own, these stay and the candidates multiply them.
      method: how the grid is fitted.
      shared: whether all problems of a batch get the same, by the sum of their evidence, or each its own.

    >>> from balson_jax import linear_problem
    >>> y = jnp.array([0.9, 0.1, 0.0, 0.05])
    >>> found = tune(jax.random.key(0), linear_problem(jnp.eye(4), y, noise=0.1), prior=[0.3, 1.0, 3.0])
    >>> round(float(found.prior), 1)
    0.3
    """
    require_problem(problem)
    grids: dict[str, jax.Array | None] = {"prior": prior, "total": total, "noise": noise}
    grids = {name: _grid(name, values, problem) for name, values in grids.items()}
    if all(values is None for values in grids.values()):
        raise ValueError("there is nothing to tune; pass a grid of prior, total or noise")
    found = fit(key, _on_grid(problem, grids), method)
    _warn_of_sharpened(["method"] if found.sharpened else [])
    _require_evidence("the grid, or some of it,", found)

    batch, sizes = problem.batch_shape, found.batch_shape[:3]
    flat = jax.tree.map(lambda leaf: leaf.reshape(math.prod(sizes), *leaf.shape[3:]), found)
    evidence = jnp.where(jnp.isnan(flat.log_evidence), -jnp.inf, flat.log_evidence)
    if shared:
        chosen = evidence.sum(tuple(range(1, evidence.ndim))).argmax()
        posterior = jax.tree.map(lambda leaf: leaf[chosen], flat)
    else:
        chosen = evidence.argmax(0)
        posterior = jax.tree.map(lambda leaf: _take(leaf, chosen), flat)
    index = jnp.unravel_index(chosen, sizes)
    best = {name: None if values is None else values[index[axis]] for axis, (name, values) in enumerate(grids.items())}
    at_edge = jnp.zeros(chosen.shape, bool)
    for name, values in grids.items():
        if values is not None and values.ndim == 1 and values.size > 2:
            at_edge = at_edge | (best[name] == values.min()) | (best[name] == values.max())
    return Tuning(
        **best,
        problem=_replace(problem, best, batch if not shared else ()),
        posterior=posterior,
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
