"""The front door: fit a problem, or a batch of them."""

from __future__ import annotations

import jax

from . import validation
from .execution.mixtures import fit_any
from .posteriors.posterior import Posterior
from .problems.base import Problem, require_problem
from .samplers import Sampler, resolve


def fit(key: jax.Array, problem: Problem, method: str | Sampler = "auto") -> Posterior:
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
        as ``IS(num_draws=1_000_000)``. All estimate the posterior except ``"rsirs"`` and ``"isirs"``, which count
        the data again in each round, unless made with ``reuse_data=False``.

    Returns:
      A ``Posterior``. Look at ``posterior.status``, or call ``posterior.raise_for_status()``.

    Raises:
      ValueError: if key, problem or method has the wrong type, or the method can't serve the problem.

    >>> import jax.numpy as jnp
    >>> import balson_jax as balson
    >>> design = jnp.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> problem = balson.linear_problem(design, jnp.array([0.8, 0.1, 1.1]), noise=0.1)
    >>> posterior = balson.fit(jax.random.key(0), problem)
    >>> posterior.method, [round(value, 1) for value in posterior.mean.tolist()]
    ('tg', [0.8, 0.2])
    """
    key = validation.typed_key(key)
    require_problem(problem)
    return fit_any(key, problem, resolve(method, problem)).labelled(problem.labels)
