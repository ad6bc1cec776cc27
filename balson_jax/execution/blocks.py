"""Fits of a batch by one method: problems in blocks, on the devices where they lie.

Outside a trace the host cuts a batch into blocks of fixed sizes, so that a program is compiled once per method and
number of components, and serves any number of problems. A single problem has a program of its own. A block has room for
up to ``CAPACITY`` problems and computes a part of them at a time. The number of problems in it is an argument. A number
that problems share, such as the total, is copied to each, so that one program serves shared and separate values. Large
arrays stay shared where that saves work (see ``Sampler.draws_are_shared``).

Inside a trace, as in a user's ``jit``, the whole batch is one program.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from .. import validation
from ..posteriors.posterior import Posterior
from ..problems.base import Problem
from ..samplers import Sampler
from ..targets import Needs, Optimum, find_optimum
from . import ahead
from .placement import Placement, placement_of
from .programs import fit_from, fitting, on_cpu, on_devices, preparing

CAPACITY = 256
"""Largest number of problems that a block has room for."""

CAPACITY_ELEMENTS = 1 << 20
"""A block has room for fewer problems if their matrices would hold more numbers than this."""


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
        optimum = flat.prepare(key, method.needs, method)[0]
        found = flat.fit(key, np.arange(flat.count), optimum, method)
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
        self._wait: Callable[[], None] | None = None

    def prepare(
        self, key: jax.Array, needs: Needs, following: Sampler | None = None
    ) -> tuple[Optimum, np.ndarray, np.ndarray]:
        """Return the optima, the rough share of prior draws that would be effective, and which problems are valid.

        Args:
          key: a PRNG key.
          needs: what the methods to come need to know.
          following: a method that will fit all problems next: its program is compiled at the same time.
        """
        program, every = preparing(self.count == 1, self.mesh), np.arange(self.count)
        if following is not None and self.count and self.mesh is None and ahead.is_new(self._signature(following)):
            room = self.room(self.count)
            rows, counts = np.resize(every, room), np.array([min(self.count, room)], np.int32)
            own = key, self._take(rows, not self.problem.is_linear), None, needs, counts
            optimum = ahead.shapes(program.trace(*own))[0]
            block = self._take(rows, following.draws_are_shared or not self.problem.is_linear)
            self._wait = ahead.compile_ahead(self._fitting(following), key, block, optimum, following, counts)
        return self._map(program, key, every, None, needs)

    def fit(self, key: jax.Array, chosen: np.ndarray, optimum: Optimum, method: Sampler) -> Posterior:
        """Return the posterior of some problems, with NumPy arrays."""
        if self._wait is not None:
            self._wait()
            self._wait = None
        return self._map(self._fitting(method), key, chosen, optimum, method, method.draws_are_shared)

    def _fitting(self, method: Sampler) -> Any:
        return fitting(self.problem, self.count == 1, method, self.mesh)

    def _signature(self, method: Sampler) -> tuple[Any, ...]:
        """Return a value that is equal for problems with the same programs."""
        leaves: list[Any] = []
        self.problem.map_leaves(lambda leaf, ndim: leaves.append((leaf.ndim > ndim, leaf.shape[-ndim:] * (ndim > 0))))
        kinds = [(np.shape(leaf), str(jnp.result_type(leaf))) for leaf in jax.tree.leaves((self.problem, method))]
        dtypes = tuple(dtype for _, dtype in kinds)
        return self.room(self.count), jax.tree.structure((self.problem, method)), tuple(leaves), dtypes

    def room(self, count: int) -> int:
        """Return the number of problems that a block has room for, when ``count`` are to be computed.

        Models may share large arrays, and search for their optima. Their blocks therefore have hardly more room than
        there are problems, and there is a program for each power of two.
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
            # The host takes the next block while other devices compute. On a CPU, two programs at the same time could
            # wait for each other for ever (see ``elimination``).
            if len(pending) > 1 or on_cpu():
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
