"""Compile ahead: the programs that a first fit would have to wait for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from .. import validation
from ..problems import hyperprior
from ..problems.constraints import Constraint
from ..problems.linear import linear_problem
from ..samplers import Sampler, resolve
from .blocks import Flat


def warm_up(
    num_params: int,
    methods: str | Sampler | Iterable[str | Sampler] = "auto",
    *,
    constraint: str | Constraint = "equal",
    noise: Any = "estimate",
    prior: Any = 1.0,
    dtype: Any = np.float32,
    batches: bool = True,
) -> None:
    """Compile the programs for linear problems with ``num_params`` parameters, so that fits don't wait for them.

    A program depends on the method's sizes, the numbers of parameters and components, the kind of constraint, the kind
    of noise (known or estimated) and the dtype. It does not depend on the number of problems, on values or on keys, nor
    on the number of rows if there are at least as many as components. ``TG`` has one program for flat priors, and one
    for others. ``"auto"`` compiles all methods of its ladder; with JAX's persistent compilation cache that is once per
    machine.

    Args:
      num_params: number of columns of the designs to come.
      methods: one or several methods, as for ``fit``.
      constraint: as for ``linear_problem``.
      noise: as for ``linear_problem``; of a number only its kind matters.
      prior: as for ``linear_problem``. Chains are compiled for concentrations of one, above one, or below one.
      dtype: of the data.
      batches: whether to compile for batches too, not only for single problems.

    >>> from balson_jax import IS
    >>> warm_up(3, IS(num_draws=4000), batches=False)
    """
    validation.require_at_least("num_params", num_params, 2)
    wanted = list(methods) if np.iterable(methods) and not hasattr(methods, "lower") else [methods]  # a name is one
    rng = np.random.default_rng(0)
    design = rng.random((num_params + 2, num_params)).astype(dtype)
    targets = (design @ np.full(num_params, 1 / num_params) + 0.1 * rng.random((2, num_params + 2))).astype(dtype)
    if hyperprior.read(prior)[1] is not None:
        raise ValueError('prior="estimate" has a grid of concentrations; warm up for one below and for one above 1')
    key = jax.random.key(0)
    for target in (targets[0], targets) if batches else (targets[0],):
        problem = linear_problem(design, target, constraint=constraint, noise=noise, prior=prior)
        for method in (resolve(method, problem) for method in wanted):
            flat = Flat(problem)
            rungs = [rung.method for rung in method.rungs(problem)] or [method]
            for rung in rungs:
                optimum = flat.prepare(key, rung.needs)[0]
                flat.fit(key, np.arange(flat.count), optimum, rung.prepare(problem))
