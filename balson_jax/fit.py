"""The front door: fit a problem, or a batch of them."""

from __future__ import annotations

from typing import Any

import jax

from . import validation
from .execution.blocks import fit_by
from .execution.ladder import Auto, escalate
from .posteriors.posterior import Posterior
from .problems.linear import Problem
from .problems.model import needs_bound
from .random.sobol import MAX_DIMS
from .samplers import IS, METHODS, RS, RSIRS, HitAndRun, Method, Rounds

NAMES = (Auto.name, *METHODS)


def fit(key: jax.Array, problem: Problem, method: str | Method | Auto = "auto") -> Posterior:
    """Return the posterior of one problem or of a batch.

    All problems of a batch use the same random numbers: a batch gives, to rounding, what a loop over its problems with
    the same key gives. For Monte Carlo errors that are independent between problems, ``jax.vmap`` over keys.

    Works inside ``jit`` and ``vmap``; ``posterior.mean`` and ``log_evidence`` of ``IS``, ``ISIRS``, ``TG`` and
    ``Variational`` have first derivatives, forward and reverse, with respect to everything a problem was made from.

    A problem that lies on a mesh of devices is computed there, and so is its posterior (see ``parallel``).

    Args:
      key: a PRNG key, ``jax.random.key(0)``.
      problem: see ``linear_problem`` and ``model_problem``.
      method: ``"auto"`` takes, for each problem, the cheapest method whose result can be trusted (see ``Auto``). Or
        ``"rs"``, ``"is"``, ``"rsirs"``, ``"isirs"``, ``"tg"``, ``"hit_and_run"``, ``"variational"``, or an object such
        as ``IS(num_draws=1_000_000)``. All estimate the posterior but ``"rsirs"`` and ``"isirs"``, which count the data
        again in each round, unless made with ``reuse_data=False``.

    Returns:
      A ``Posterior``. Look at ``posterior.status``, or call ``posterior.raise_for_status()``.

    Raises:
      ValueError: for a key, problem or method that isn't one.

    >>> import jax.numpy as jnp
    >>> import balson_jax as balson
    >>> design = jnp.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> problem = balson.linear_problem(design, jnp.array([0.8, 0.1, 1.1]), noise=0.1)
    >>> posterior = balson.fit(jax.random.key(0), problem)
    >>> posterior.method, [round(value, 1) for value in posterior.mean.tolist()]
    ('is', [0.8, 0.2])
    """
    key = validation.typed_key(key)
    if not isinstance(problem, Problem):
        raise ValueError(
            f"problem is a {type(problem).__name__}; make one with balson_jax.linear_problem(design, target)"
        )
    method = resolve(method, problem)
    return escalate(key, problem, method) if isinstance(method, Auto) else fit_by(key, problem, method)


def resolve(method: Any, problem: Problem) -> Method | Auto:
    """Return the method that a name or an object stands for, or raise ``ValueError`` if it doesn't suit the problem."""
    if isinstance(method, str):
        method = named(method)
    if not isinstance(method, Method | Auto):
        classes = ", ".join(cls.__name__ for cls in (Auto, *METHODS.values()))
        known = f"{', '.join(NAMES)}, or an instance of {classes}"
        shown = f"the class {method.__name__}" if isinstance(method, type) else repr(method)
        raise ValueError(f"method is {shown}; pass one of {known}, as IS()")
    num_components = problem.num_components
    if isinstance(method, IS) and method.proposal is not None:
        proposal = validation.float_array("proposal", method.proposal, problem.dtype)
        if proposal.shape not in ((), (num_components,)):
            raise ValueError(f"proposal has shape {proposal.shape}; pass {num_components} concentrations")
        validation.require_positive("proposal", proposal)
    if isinstance(method, Rounds):
        validation.require_share("defensive", method.defensive)
    if isinstance(method, (RS, RSIRS)) and needs_bound(problem):
        raise ValueError(
            "rejection sampling of a model whose noise is to be estimated needs a bound above 0 of its sum of squared "
            'residuals (bound="search" looks for one), or noise=InverseGamma(...) with a positive scale'
        )
    if isinstance(method, HitAndRun | Auto):
        target_ess = validation.float_array("target_ess", method.target_ess)
        if target_ess.ndim:
            raise ValueError(f"target_ess has shape {target_ess.shape}; pass one number for all problems")
        validation.require_positive("target_ess", target_ess)
    if isinstance(method, HitAndRun):
        method = method.suited_to(validation.known(problem.prior))
    limit = MAX_DIMS // 2 - 1
    if getattr(method, "points", None) == "sobol" and num_components > limit:
        raise ValueError(f'points="sobol" serves up to {limit} components, not {num_components}; pass points="pseudo"')
    return method


def named(name: str, **options: Any) -> Method | Auto:
    """Return the method of a name, or of a class's name, with its defaults but for some options."""
    classes = {Auto.name: Auto, **METHODS}
    spellings = {cls.__name__.lower(): cls for cls in classes.values()} | classes
    if name.lower() not in spellings:
        validation.require_choice("method", name, NAMES)
    return spellings[name.lower()](**options)
