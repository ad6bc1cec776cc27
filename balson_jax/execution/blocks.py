"""Fits of a batch by one method: problems in blocks, on the devices where they lie.

Outside a trace the host cuts a batch into blocks of fixed sizes, so that a program is compiled once per method and
number of components, and serves any number of problems. A single problem has a program of its own. A block of many has
room for ``capacity`` problems; it computes some of them at a time, and how many there are is an argument. Problems
that share a number, as a total, get copies of it, so that it makes no difference to the program which of them they
share. Only data from which sharing saves work stay shared (see ``Sampler.draws_are_shared``).

Inside a trace, as in a user's ``jit``, the whole batch is one program.
"""

from __future__ import annotations

import collections
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec

from .. import validation
from ..posteriors.posterior import Posterior
from ..problems.base import Problem
from ..problems.batching import map_blocks
from ..samplers import Sampler
from ..samplers.auto import prior_share
from ..targets import Needs, Optimum, Target, find_optimum, target_of
from .assembly import posterior_of
from .placement import Placement, placement_of

BLOCK_ELEMENTS = 1 << 20
"""Problems are computed together as long as their chunks of draws hold no more numbers than this."""

CAPACITY = 256
"""Number of problems that a block of many has room for."""

CAPACITY_ELEMENTS = 1 << 20
"""The room shrinks if the matrices of so many problems would hold more numbers than this."""

QUICK = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": 1}
"""Compiler options for programs that run for milliseconds: half the wait, for half the speed."""

LIGHT = {"xla_backend_optimization_level": 1}
"""Compiler options for blocks of many problems: two thirds of the wait, and the same speed."""


def fit_by(key: jax.Array, problem: Problem, method: Sampler) -> Posterior:
    """Return the posterior of one problem or of a batch by one method, on the devices where the problem lies."""
    placement = placement_of(problem)
    if placement is not None:
        return _fit_placed(key, placement.place(problem), method, placement)
    batch = problem.batch_shape
    if not is_known(key, problem, method) or math.prod(batch) == 0:
        return fit_from(key, problem, find_optimum(problem, key, method.needs), method)
    flat = Flat(problem)
    found = flat.fit(key, np.arange(flat.count), flat.prepare(key, method.needs)[0], method)
    return jax.device_put(with_batch(found, batch))


def with_batch(found: Posterior, batch: tuple[int, ...]) -> Posterior:
    """Return the posterior of a flattened batch as one of the batch's shape; both have NumPy arrays."""
    return jax.tree.map(lambda leaf: np.reshape(leaf, batch + leaf.shape[1:]), found)


def is_known(*values: Any) -> bool:
    """Return whether this host knows all numbers of pytrees, and those that are computed from them.

    Inside a trace the results even of known numbers are tracers.
    """
    staged = not validation.is_concrete(jnp.zeros(()))
    known = (validation.is_concrete(leaf) and validation.is_local(leaf) for leaf in jax.tree.leaves(values))
    return not staged and all(known)


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
    run = functools.partial(_fit_block, key, method, axes)
    return map_blocks(run, problem, _block_size(problem, method), (optimum,))


def _fit_block(key: jax.Array, method: Sampler, axes: tuple[str, ...], flat: Problem, optimum: Optimum) -> Posterior:
    target = target_of(flat, optimum)
    target = target if method.has_derivatives else _without_derivatives(target)
    return posterior_of(flat, target, method.run(key, target, axes), method)


def _block_size(problem: Problem, method: Sampler) -> int:
    """Return how many problems to compute at a time."""
    elements = method.elements(problem.num_components)
    if method.draws_are_shared and problem.prior.ndim == 1 and problem.batch_shape:
        elements = elements // problem.num_components
    return max(1, BLOCK_ELEMENTS // max(elements, 1))


@jax.custom_jvp
def _without_derivatives(target: Target) -> Target:
    """Return the target as it is, and refuse to differentiate it."""
    return target


@_without_derivatives.defjvp
def _refuse(primals, tangents):
    # Whether a draw is accepted, or where a chain goes, is no smooth function of the data.
    raise TypeError("this method has no derivatives; use IS or TG, or jax.lax.stop_gradient on the problem")


class Flat:
    """A flattened batch on the host, from which blocks are taken.

    Attributes:
      problem: the batch, with NumPy arrays; leaves that all problems share lack its axis.
      count: number of problems.
      room: number of problems in a block: 1 for a single problem.
      devices: where blocks are computed, in turns; ``None`` for the default device.
    """

    def __init__(self, problem: Problem, devices: list[Any] | None = None) -> None:
        self.problem = jax.tree.map(np.asarray, problem).canonical().flatten_batch(np)
        self.count = math.prod(problem.batch_shape)
        room = CAPACITY_ELEMENTS // problem.num_components**2
        self.room = 1 if self.count == 1 else max(16, min(CAPACITY, 1 << room.bit_length() >> 1))
        self.devices = devices or [None]

    def prepare(self, key: jax.Array, needs: Needs) -> tuple[Optimum, np.ndarray, np.ndarray]:
        """Return the optima, roughly which share of draws from the prior would be effective, and which are valid."""
        return self._map(lambda key, block, size: _prepare(key, block, needs), key, np.arange(self.count), False)

    def fit(self, key: jax.Array, chosen: np.ndarray, optimum: Optimum, method: Sampler) -> Posterior:
        """Return the posterior of some problems, with NumPy arrays."""
        program = _fit_one if self.room == 1 else _fit_many

        def run(key, block, size, optimum):
            return program(key, block, optimum, method, size)

        return self._map(run, key, chosen, method.draws_are_shared, optimum)

    def _map(self, program: Any, key: jax.Array, chosen: np.ndarray, shares: bool, *arrays: Any) -> Any:
        """Run a program on blocks of the chosen problems, and of the rows of arrays; return its NumPy arrays."""
        whole, pending = None, collections.deque()

        def collect():
            nonlocal whole
            first, size, part = pending.popleft()
            if whole is None:
                whole = jax.tree.map(lambda leaf: np.empty((len(chosen), *leaf.shape[1:]), leaf.dtype), part)

            def put(to, leaf):
                to[first : first + size] = np.asarray(leaf)[:size]

            jax.tree.map(put, whole, part)

        for number, first in enumerate(range(0, len(chosen), self.room)):
            own = chosen[first : first + self.room]
            rows = np.resize(own, self.room)
            taken = jax.tree.map(lambda leaf, rows=rows: leaf[rows], arrays)
            given = self._take(rows, shares), np.int32(len(own)), *taken
            device = self.devices[number % len(self.devices)]
            if device is not None:
                key, given = jax.device_put((key, given), device)
            pending.append((first, len(own), program(key, *given)))
            # The host takes the next block while the devices compute.
            if len(pending) > len(self.devices):
                collect()
        while pending:
            collect()
        return whole

    def _take(self, rows: np.ndarray, shares: bool) -> Problem:
        """Return a block. Its leaves have the batch's axis, except large ones that problems share, if ``shares``."""

        def take(leaf, ndim):
            if leaf.ndim > ndim:
                return leaf[rows]
            return leaf if shares and ndim else np.broadcast_to(leaf, (len(rows), *leaf.shape))

        return self.problem.map_leaves(take)


def _prepared(key: jax.Array, flat: Problem, needs: Needs) -> tuple[Optimum, jax.Array, jax.Array]:
    optimum = find_optimum(flat, key, needs)
    target = target_of(flat, optimum)
    return optimum, prior_share(target), target.valid


def _fit_some(key: jax.Array, flat: Problem, optimum: Optimum, method: Sampler, count: jax.Array) -> Posterior:
    """Return the posterior of a block; only that of the first ``count`` problems is computed."""
    room = flat.batch_shape[0]
    size = min(room, 1 << _block_size(flat, method).bit_length() >> 1)
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
    return lax.fori_loop(0, -(-count // size), step, empty)


def _rows(leaf: jax.Array, first: jax.Array, size: int) -> jax.Array:
    return lax.dynamic_slice_in_dim(leaf, first, size)


_prepare = jax.jit(_prepared, static_argnames="needs", compiler_options=QUICK)
_fit_many = jax.jit(_fit_some, compiler_options=LIGHT)
_fit_one = jax.jit(_fit_some, compiler_options=QUICK)
