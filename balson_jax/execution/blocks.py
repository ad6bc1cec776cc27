"""Fits of a batch by one method: problems in blocks, on the devices where they lie."""

from __future__ import annotations

import functools

import jax
from jax.sharding import PartitionSpec

from ..posteriors.posterior import Posterior
from ..problems.base import Problem
from ..problems.batching import map_blocks
from ..samplers import Sampler
from ..targets import Optimum, Target, find_optimum, target_of
from .assembly import posterior_of
from .placement import Placement, placement_of

BLOCK_ELEMENTS = 1 << 20
"""Problems are computed together as long as their chunks of draws hold no more numbers than this."""


def fit_by(key: jax.Array, problem: Problem, method: Sampler) -> Posterior:
    """Return the posterior of one problem or of a batch by one method, on the devices where the problem lies."""
    placement = placement_of(problem)
    if placement is None:
        # The optimum is a call of its own: its compiled program serves all methods.
        return fit_from(key, problem, find_optimum(problem, key, method.needs), method)
    return _fit_placed(key, placement.place(problem), method, placement)


@functools.partial(jax.jit, static_argnames="placement")
def _fit_placed(key: jax.Array, problem: Problem, method: Sampler, placement: Placement) -> Posterior:
    """Fit each device's problems there, without the others; devices that hold copies divide the draws."""

    def fit_own(key, problem, method):
        return fit_from(key, problem, find_optimum(problem, key, method.needs), method, placement.copies)

    return jax.shard_map(
        fit_own,
        mesh=placement.mesh,
        in_specs=(PartitionSpec(), placement.specs(problem), PartitionSpec()),
        out_specs=PartitionSpec(*placement.batch),
        check_vma=False,
    )(key, problem, method)


@functools.partial(jax.jit, static_argnames="axes")
def fit_from(
    key: jax.Array, problem: Problem, optimum: Optimum, method: Sampler, axes: tuple[str, ...] = ()
) -> Posterior:
    """Return the posterior, given the problems' optima."""
    elements = method.elements(problem.num_components)
    if method.draws_are_shared and problem.prior.ndim == 1 and problem.batch_shape:
        elements = elements // problem.num_components
    block = max(1, BLOCK_ELEMENTS // max(elements, 1))

    def fit_block(flat, optimum):
        target = target_of(flat, optimum)
        target = target if method.has_derivatives else _without_derivatives(target)
        return posterior_of(flat, target, method.run(key, target, axes), method)

    return map_blocks(fit_block, problem, block, (optimum,))


@jax.custom_jvp
def _without_derivatives(target: Target) -> Target:
    """Return the target as it is, and refuse to differentiate it."""
    return target


@_without_derivatives.defjvp
def _refuse(primals, tangents):
    # Whether a draw is accepted, or where a chain goes, is no smooth function of the data.
    raise TypeError("this method has no derivatives; use IS or TG, or jax.lax.stop_gradient on the problem")
