"""Fits of a batch by one method: problems in blocks, on the devices where they lie.

Outside a trace the host cuts a batch into blocks of fixed sizes, so that a program is compiled once per method and
number of components, and serves any number of problems. A single problem has a program of its own. A block of many has
room for ``CAPACITY`` problems; it computes some of them at a time, and how many there are is an argument. Problems
that share a number, as a total, get copies of it, so that it makes no difference to the program which of them they
share. Only data from which sharing saves work stay shared (see ``Sampler.draws_are_shared``).

Inside a trace, as in a user's ``jit``, the whole batch is one program.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec

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

SMALL_ELEMENTS = 1 << 17
"""The same for problems that have nothing to share. Part of a block takes as long for one problem as for many. Small
parts are as fast for many problems, and faster for the few hard ones that need many draws."""

CAPACITY = 256
"""Number of problems that a block of many has room for."""

CAPACITY_ELEMENTS = 1 << 20
"""The room shrinks if the matrices of so many problems would hold more numbers than this."""

BRIEF = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": 0}
"""Compiler options of programs that run for milliseconds on a CPU: half the wait of QUICK, at a third of its speed."""

QUICK = {**BRIEF, "xla_backend_optimization_level": 1}
"""Compiler options for single models, and chains of single problems: half the wait, for half the speed."""

BRIEF_DRAWS = 1 << 19
"""Single problems with more draws than this are compiled like many problems."""

LIGHT = {"xla_backend_optimization_level": 1}
"""Compiler options for blocks of many problems on a CPU: two thirds of the wait, and the same speed, unless problems
share their draws."""


def fit_by(key: jax.Array, problem: Problem, method: Sampler) -> Posterior:
    """Return the posterior of one problem or of a batch by one method, on the devices where the problem lies."""
    placement = placement_of(problem)
    if placement is not None:
        return _fit_placed(key, placement.place(problem), method, placement)
    batch = problem.batch_shape
    if not is_known(key, problem, method) or math.prod(batch) == 0:
        return fit_from(key, problem, find_optimum(problem, key, method.needs), method)
    with device_of(problem):
        flat = Flat(problem)
        found = flat.fit(key, np.arange(flat.count), flat.prepare(key, method.needs)[0], method)
        return jax.device_put(with_batch(found, batch))


def device_of(problem: Problem) -> contextlib.AbstractContextManager:
    """Return a context in which the default device is the one to which a problem's arrays are committed, if any."""
    leaves = [leaf for leaf in jax.tree.leaves(problem) if getattr(leaf, "committed", False)]
    devices = {device for leaf in leaves for device in leaf.devices()}
    return jax.default_device(devices.pop()) if len(devices) == 1 else contextlib.nullcontext()


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

    return on_devices(fit_own, key, problem, method, placement)


def on_devices(fit_own: Any, key: jax.Array, problem: Problem, method: Sampler, placement: Placement) -> Posterior:
    """Run ``fit_own(key, problem, method)`` on each device with the problems that lie there."""
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


class Flat:
    """A flattened batch on the host, from which blocks are taken.

    Attributes:
      problem: the batch, with NumPy arrays; leaves that all problems share lack its axis.
      count: number of problems.
      mesh: devices that compute a block each at the same time; ``None`` for the default device.
    """

    def __init__(self, problem: Problem, mesh: Mesh | None = None) -> None:
        self.problem = jax.tree.map(_on_host, problem).canonical().flatten_batch(np)
        self.count = math.prod(problem.batch_shape)
        self.mesh = mesh

    def prepare(self, key: jax.Array, needs: Needs) -> tuple[Optimum, np.ndarray, np.ndarray]:
        """Return the optima, roughly which share of draws from the prior would be effective, and which are valid."""
        program = _prepare_brief if self.count == 1 else _prepare
        if self.mesh is not None or not _on_cpu():
            program = _prepare_plain if self.mesh is None else _prepare_on_mesh
        return self._map(program, key, np.arange(self.count), None, needs)

    def fit(self, key: jax.Array, chosen: np.ndarray, optimum: Optimum, method: Sampler) -> Posterior:
        """Return the posterior of some problems, with NumPy arrays."""
        program = _fit_plain if method.draws_are_shared else _fit_many
        if self.count == 1 and not method.draws_made > BRIEF_DRAWS:
            # A model's own work may be much, and so is that of chains.
            is_brief = self.problem.is_linear and not np.isnan(method.draws_made)
            program = _fit_brief if is_brief else _fit_single
        if self.mesh is not None or not _on_cpu():
            program = _fit_plain if self.mesh is None else _fit_on_mesh
        return self._map(program, key, chosen, optimum, method, method.draws_are_shared)

    def room(self, count: int) -> int:
        """Return for how many problems a block has room, if there are so many to compute.

        Models may have large arrays that they share, and searches for their optima: their blocks have hardly more room
        than there are problems, and there is a program for each power of two.
        """
        if self.count == 1:
            return 1
        if not self.problem.is_linear:
            return min(CAPACITY, 1 << (count - 1).bit_length())
        room = CAPACITY_ELEMENTS // self.problem.num_components**2
        return max(16, min(CAPACITY, 1 << room.bit_length() >> 1))

    def _map(
        self, program: Any, key: jax.Array, chosen: np.ndarray, optimum: Any, how: Any, shares: bool = False
    ) -> Any:
        """Run a program on blocks of the chosen problems and their optima; return its NumPy arrays."""
        whole, pending = None, collections.deque()
        num_devices = 1 if self.mesh is None else self.mesh.size
        room = self.room(-(-len(chosen) // num_devices))
        options = {} if self.mesh is None else {"mesh": self.mesh}

        def collect():
            nonlocal whole
            first, counts, part = pending.popleft()
            if whole is None:
                whole = jax.tree.map(lambda leaf: np.empty((len(chosen), *leaf.shape[1:]), leaf.dtype), part)

            def put(to, leaf):
                leaf, done = np.asarray(leaf), first
                for number, count in enumerate(counts):
                    to[done : done + count] = leaf[number * room : number * room + count]
                    done += count

            jax.tree.map(put, whole, part)

        for first in range(0, len(chosen), num_devices * room):
            own = chosen[first : first + num_devices * room]
            # Devices get equal parts, filled up with copies.
            parts = np.array_split(own, num_devices)
            rows = np.concatenate([np.resize(part if len(part) else own, room) for part in parts])
            counts = np.array([len(part) for part in parts], np.int32)
            taken = jax.tree.map(lambda leaf, rows=rows: leaf[rows], optimum)
            block = self._take(rows, shares or not self.problem.is_linear)
            pending.append((first, counts, program(key, block, taken, how, counts, **options)))
            # The host takes the next block while the devices compute.
            if len(pending) > 1:
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


def _on_host(leaf: Any) -> Any:
    """Return an array as NumPy's, unless it has a dtype of JAX's own, as keys have."""
    return leaf if jnp.issubdtype(leaf.dtype, jax.dtypes.extended) else np.asarray(leaf)


def _on_cpu() -> bool:
    device = jax.config.jax_default_device  # type: ignore[attr-defined]
    return (jax.default_backend() if device is None else getattr(device, "platform", device)) == "cpu"


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
