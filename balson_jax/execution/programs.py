"""The programs that fit blocks of problems, and how they are compiled.

A program is compiled once per method and number of components (see ``blocks``). On a CPU, compiling takes far longer
than fitting a few problems, so programs that run for milliseconds are hardly optimised.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from ..posteriors.posterior import Posterior
from ..problems.base import Problem
from ..problems.batching import map_blocks
from ..samplers import Sampler
from ..samplers.auto import prior_share
from ..targets import Needs, Optimum, Target, find_optimum, target_of
from .assembly import posterior_of
from .placement import Placement

BLOCK_ELEMENTS = 1 << 20
"""Problems are computed together as long as their chunks of draws hold no more numbers than this."""

SMALL_ELEMENTS = 1 << 17
"""The same bound for problems that do not share their draws, except for chains. A part of a block takes the same time
whether it holds one problem or is full. Small parts are as fast for many problems, and faster for a few hard ones."""

BRIEF = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": 0}
"""Compiler options of programs that run for milliseconds on a CPU: half the wait of QUICK, at a third of its speed."""

QUICK = {**BRIEF, "xla_backend_optimization_level": 1}
"""Compiler options for single models, and chains of single problems: half the wait, for half the speed."""

BRIEF_DRAWS = 1 << 19
"""Single problems with more draws than this are compiled like many problems."""

LIGHT = {"xla_backend_optimization_level": 1}
"""Compiler options for blocks of many problems on a CPU: two thirds of the wait, and the same speed, unless problems
share their draws."""


@functools.partial(jax.jit, static_argnames="axes")
def fit_from(
    key: jax.Array, problem: Problem, optimum: Optimum, method: Sampler, axes: tuple[str, ...] = ()
) -> Posterior:
    """Return the posterior, given the problems' optima."""
    run = functools.partial(_fit_block, key, method, axes)
    return map_blocks(run, problem, block_size(problem, method), (optimum,))


def _fit_block(key: jax.Array, method: Sampler, axes: tuple[str, ...], flat: Problem, optimum: Optimum) -> Posterior:
    target = target_of(flat, optimum)
    target = target if method.has_derivatives else without_derivatives(target)
    return posterior_of(key, flat, target, method.run(key, target, axes), method)


def block_size(problem: Problem, method: Sampler) -> int:
    """Return how many problems to compute at a time."""
    elements = method.elements(problem.num_components)
    if method.draws_are_shared and problem.prior.ndim == 1 and problem.batch_shape:
        elements = elements // problem.num_components
    most = BLOCK_ELEMENTS if method.draws_are_shared or method.is_chain else SMALL_ELEMENTS
    return max(1, most // max(elements, 1))


@jax.custom_jvp
def without_derivatives(target: Target) -> Target:
    """Return the target as it is, and refuse to differentiate it."""
    return target


@without_derivatives.defjvp
def _refuse(primals, tangents):
    # Whether a draw is accepted, or where a chain goes, is no smooth function of the data.
    raise TypeError("this method has no derivatives; use IS or TG, or jax.lax.stop_gradient on the problem")


def on_devices(fit_own: Any, key: jax.Array, problem: Problem, method: Sampler, placement: Placement) -> Posterior:
    """Run ``fit_own(key, problem, method)`` on each device with the problems that lie there."""
    return jax.shard_map(
        fit_own,
        mesh=placement.mesh,
        in_specs=(PartitionSpec(), placement.specs(problem), PartitionSpec()),
        out_specs=PartitionSpec(*placement.batch),
        check_vma=False,
    )(key, problem, method)


def _prepared(
    key: jax.Array, flat: Problem, optimum: None, needs: Needs, counts: jax.Array
) -> tuple[Optimum, jax.Array, jax.Array]:
    found = find_optimum(flat, key, needs)
    target = target_of(flat, found)
    return found, prior_share(target), target.valid


def _fit_some(key: jax.Array, flat: Problem, optimum: Optimum, method: Sampler, counts: jax.Array) -> Posterior:
    """Return the posterior of a block; only that of the first ``counts[0]`` problems is computed."""
    room = flat.batch_shape[0]
    size = min(room, 1 << block_size(flat, method).bit_length() >> 1)
    if size == room:
        return _fit_block(key, method, (), flat, optimum)

    def some(first):
        own = flat.map_leaves(lambda leaf, ndim: _rows(leaf, first, size) if leaf.ndim > ndim else leaf)
        return _fit_block(key, method, (), own, jax.tree.map(lambda leaf: _rows(leaf, first, size), optimum))

    def step(number, found):
        first = number * size
        put = functools.partial(lax.dynamic_update_slice_in_dim, start_index=first, axis=0)
        return jax.tree.map(put, found, some(first))

    empty = jax.tree.map(lambda leaf: jnp.zeros((room, *leaf.shape[1:]), leaf.dtype), jax.eval_shape(some, 0))
    return lax.fori_loop(0, -(-counts[0] // size), step, empty)


def _rows(leaf: jax.Array, first: jax.Array, size: int) -> jax.Array:
    return lax.dynamic_slice_in_dim(leaf, first, size)


def _on_mesh(
    function: Any, key: jax.Array, flat: Problem, optimum: Any, how: Any, counts: jax.Array, mesh: Mesh
) -> Any:
    """Run a function of a block on each device of a mesh, with that device's problems."""
    split, copied = PartitionSpec(*mesh.axis_names), PartitionSpec()
    specs = flat.map_leaves(lambda leaf, ndim: split if leaf.ndim > ndim else copied)

    def own(key, flat, optimum, counts, how=how):
        return function(key, flat, optimum, how, counts)

    run = jax.shard_map(own, mesh=mesh, in_specs=(copied, specs, split, split), out_specs=split, check_vma=False)
    return run(key, flat, optimum, counts)


_prepare = jax.jit(_prepared, static_argnums=3, compiler_options=QUICK)
_prepare_brief = jax.jit(_prepared, static_argnums=3, compiler_options=BRIEF)
_fit_many = jax.jit(_fit_some, compiler_options=LIGHT)
_fit_brief = jax.jit(_fit_some, compiler_options=BRIEF)
_fit_single = jax.jit(_fit_some, compiler_options=QUICK)
_prepare_plain = jax.jit(_prepared, static_argnums=3)
_fit_plain = jax.jit(_fit_some)
_prepare_on_mesh = jax.jit(functools.partial(_on_mesh, _prepared), static_argnums=3, static_argnames="mesh")
_fit_on_mesh = jax.jit(functools.partial(_on_mesh, _fit_some), static_argnames="mesh")


def preparing(is_single: bool, mesh: Mesh | None) -> Any:
    """Return the program that finds optima."""
    if mesh is not None:
        return _prepare_on_mesh
    if not on_cpu():
        return _prepare_plain
    return _prepare_brief if is_single else _prepare


def fitting(problem: Problem, is_single: bool, method: Sampler, mesh: Mesh | None) -> Any:
    """Return the program that fits problems by a method."""
    if mesh is not None:
        return _fit_on_mesh
    if not on_cpu():
        return _fit_plain
    if is_single and not method.draws_made > BRIEF_DRAWS:
        # Models may be costly, and chains are: their programs are optimised more.
        return _fit_brief if problem.is_linear and not np.isnan(method.draws_made) else _fit_single
    return _fit_plain if method.draws_are_shared else _fit_many


def on_cpu() -> bool:
    """Return whether programs run on the CPU by default."""
    device = jax.config.jax_default_device  # type: ignore[attr-defined]
    return (jax.default_backend() if device is None else getattr(device, "platform", device)) == "cpu"
