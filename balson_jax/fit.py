"""The front door: fit a problem, or a batch of them, by a method."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from . import dirichlet, validation
from .density import pivot_at
from .least_squares import simplex_optimum
from .posterior import Posterior
from .problem import Problem, map_problems
from .samplers import IS, METHODS, Method
from .status import Status

BLOCK_ELEMENTS = 1 << 22
"""Problems are computed together as long as their chunks of draws hold no more numbers than this."""


def fit(key: jax.Array, problem: Problem, method: str | Method = "is") -> Posterior:
    """Return the posterior of one problem or of a batch.

    All problems of a batch use the same random numbers: a batch gives exactly what a loop over its problems with the
    same key gives. For Monte Carlo errors that are independent between problems, ``jax.vmap`` over keys.

    Works inside ``jit`` and ``vmap``; ``posterior.mean`` and ``log_evidence`` of ``IS`` have reverse-mode derivatives
    with respect to everything a problem was made from.

    Args:
      key: a PRNG key, ``jax.random.key(0)``.
      problem: see ``linear_problem``.
      method: ``"rs"``, ``"is"``, ``"rsirs"``, ``"isirs"``, or an object such as ``IS(num_draws=1_000_000)``. Only
        ``"rs"`` and ``"is"`` estimate the posterior; the other two count the data again in each round.

    Returns:
      A ``Posterior``. Look at ``posterior.status``, or call ``posterior.raise_for_status()``.

    Raises:
      ValueError: for a key, problem or method that isn't one.

    >>> import balson_jax as balson
    >>> design = jnp.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> problem = balson.linear_problem(design, jnp.array([0.8, 0.1, 1.1]), noise=0.1)
    >>> posterior = balson.fit(jax.random.key(0), problem, "is")
    >>> [round(value, 1) for value in posterior.mean.tolist()]
    [0.8, 0.2]
    """
    key = validation.typed_key(key)
    if not isinstance(problem, Problem):
        raise ValueError(
            f"problem is a {type(problem).__name__}; make one with balson_jax.linear_problem(design, target)"
        )
    return _fit(key, problem, _resolve(method, problem))


def _resolve(method: Any, problem: Problem) -> Method:
    if isinstance(method, str):
        validation.require_choice("method", method, tuple(METHODS))
        return METHODS[method]()
    if not isinstance(method, Method):
        names = ", ".join(cls.__name__ for cls in METHODS.values())
        raise ValueError(
            f"method={method!r} is not a method; pass one of {', '.join(METHODS)}, or an instance of {names}"
        )
    if isinstance(method, IS) and method.proposal is not None:
        proposal = validation.float_array("proposal", method.proposal, problem.dtype)
        if proposal.shape not in ((), (problem.num_components,)):
            raise ValueError(f"proposal has shape {proposal.shape}; pass {problem.num_components} concentrations")
        validation.require_positive("proposal", proposal)
    defensive = getattr(method, "defensive", 0.5)
    if validation.is_concrete(defensive) and not 0 < float(defensive) < 1:
        raise ValueError(f"defensive={defensive} must lie between 0 and 1, for instance 0.1")
    return method


@jax.jit
def _fit(key: jax.Array, problem: Problem, method: Method) -> Posterior:
    per_problem = method.chunk * max(problem.num_components, 8)
    block = max(1, BLOCK_ELEMENTS // per_problem)
    return map_problems(lambda one: _fit_one(key, one, method), problem, block)


def _fit_one(key: jax.Array, problem: Problem, method: Method) -> Posterior:
    valid = problem.is_valid()
    density = pivot_at(problem, simplex_optimum(problem))
    found, alpha = method.run(key, density)
    finite = jnp.isfinite(found.mean).all() & jnp.isfinite(found.variance).all() & jnp.isfinite(alpha).all()
    healthy = valid & finite
    status = jnp.where(healthy, found.status, found.status | Status.NONFINITE)

    def trusted(value):
        return jnp.where(valid, value, jnp.nan)

    return Posterior(
        alpha=trusted(alpha),
        theta=trusted(problem.total * dirichlet.mode(alpha)),
        mean=trusted(problem.total * found.mean),
        std=trusted(problem.total * jnp.sqrt(found.variance)),
        mean_stderr=trusted(problem.total * found.mean_stderr),
        log_evidence=trusted(found.log_evidence),
        log_evidence_stderr=trusted(found.log_evidence_stderr),
        acceptance_rate=trusted(found.acceptance_rate),
        ess=trusted(found.ess),
        pareto_k=trusted(found.pareto_k),
        status=status,
        total=problem.total,
        method=method.name,
    )
