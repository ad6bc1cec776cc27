"""Batches of problems: pytrees whose leaves have broadcasting leading axes.

A leaf that all problems share is stored once, without the batch's axes. Everything here works for any kind of problem
that says how many axes of each leaf belong to one problem.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


class Batched(abc.ABC):
    """One problem or a batch: a pytree that knows which axes of its leaves are the batch's."""

    @abc.abstractmethod
    def event_ndims(self) -> list[int]:
        """Return, for each leaf of the pytree, how many of its last axes belong to one problem."""

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The shape of the batch: ``()`` for one problem."""
        pairs = zip(jax.tree.leaves(self), self.event_ndims(), strict=True)
        return np.broadcast_shapes(*(leaf.shape[: leaf.ndim - ndim] for leaf, ndim in pairs))

    def map_leaves(self, function: Callable[[jax.Array, int], Any]) -> Self:
        """Apply a function of a leaf, and of the number of its axes that are not the batch's, to every leaf."""
        leaves, structure = jax.tree.flatten(self)
        pairs = zip(leaves, self.event_ndims(), strict=True)
        return jax.tree.unflatten(structure, [function(leaf, ndim) for leaf, ndim in pairs])

    def flatten_batch(self, arrays: Any = jnp) -> Self:
        """Return the problem with its batch as one leading axis, which leaves that all problems share don't have.

        A single problem gets the axis on every leaf. ``arrays`` is the module of array functions, JAX's or NumPy.
        """
        batch = self.batch_shape
        count = math.prod(batch)

        def flatten(leaf, ndim):
            own, event = leaf.shape[: leaf.ndim - ndim], leaf.shape[leaf.ndim - ndim :]
            if count != 1 and all(size == 1 for size in own):
                return leaf.reshape(event)
            return arrays.broadcast_to(leaf, batch + event).reshape(count, *event)

        return self.map_leaves(flatten)

    def vmap(self, function: Callable[..., Any], *arrays: jax.Array) -> Any:
        """Apply a function of one problem, and of arrays' rows, to each problem of a flattened batch."""
        axes = self.map_leaves(lambda leaf, ndim: 0 if leaf.ndim > ndim else None)
        return jax.vmap(function, in_axes=(axes, *(0 for _ in arrays)))(self, *arrays)

    def take(self, index: np.ndarray, num_axes: int) -> Self:
        """Return some problems along the first axis of a batch with ``num_axes`` axes.

        Leaves that don't have this axis, because problems share them along it, stay.
        """

        def chosen(leaf, ndim):
            if leaf.ndim - ndim < num_axes or leaf.shape[0] == 1:
                return leaf
            return leaf[index] if leaf.shape[0] else _extend(leaf, len(index))  # an empty batch has nothing to take

        return self.map_leaves(chosen)

    def all_finite(self) -> jax.Array:
        """Return, per problem, whether every number of it is finite."""
        finite = jnp.bool_(True)
        for leaf, ndim in zip(jax.tree.leaves(self), self.event_ndims(), strict=True):
            if jnp.issubdtype(leaf.dtype, jnp.inexact):
                finite = finite & jnp.isfinite(leaf).all(tuple(range(leaf.ndim - ndim, leaf.ndim)))
        return jnp.broadcast_to(finite, self.batch_shape)


def map_blocks(
    function: Callable[..., Any], problem: Batched, block: int | None = None, arrays: tuple[Any, ...] = ()
) -> Any:
    """Apply a function of a flattened batch to a batch of any shape, some problems at a time.

    Args:
      function: takes a flattened batch of B problems (see ``Batched.flatten_batch``), and rows of the arrays, and
        returns a pytree of arrays whose leading axis is B.
      problem: one problem or a batch of any shape, which may be empty.
      block: at most this many problems are computed at a time, to bound the memory; ``None`` for all.
      arrays: pytrees of arrays that belong to the problems, with the batch's axes in front.

    Returns:
      The function's pytree, each leaf with the problem's batch axes leading.
    """
    batch = problem.batch_shape
    flat = problem.flatten_batch()
    count = math.prod(batch)
    rows = jax.tree.map(lambda array: array.reshape(count, *array.shape[len(batch) :]), list(arrays))
    if count == 0:
        shapes = jax.eval_shape(function, _resize(flat, 1), *jax.tree.map(lambda array: _extend(array, 1), rows))
        results = jax.tree.map(lambda shape: jnp.zeros((0, *shape.shape[1:]), shape.dtype), shapes)
    elif block is None or count <= block:
        results = function(flat, *rows)
    else:
        num_blocks = -(-count // block)
        size = -(-count // num_blocks)

        def stack(array):
            return array.reshape(num_blocks, size, *array.shape[1:])

        stacked = _resize(flat, num_blocks * size).map_leaves(
            lambda leaf, ndim: stack(leaf) if leaf.ndim > ndim else leaf
        )
        rows = jax.tree.map(lambda array: stack(_extend(array, num_blocks * size)), rows)
        results = _map_leading_axis(function, stacked, rows)
        results = jax.tree.map(lambda leaf: leaf.reshape(num_blocks * size, *leaf.shape[2:])[:count], results)
    return jax.tree.map(lambda leaf: leaf.reshape(batch + leaf.shape[1:]), results)


def _resize(flat: Batched, count: int) -> Batched:
    """Repeat the first problems of a flattened batch, or ones for an empty batch, up to a count."""
    return flat.map_leaves(lambda leaf, ndim: leaf if leaf.ndim == ndim else _extend(leaf, count))


def _extend(array: jax.Array, count: int) -> jax.Array:
    """Repeat the first rows of an array, or ones where there are none, up to a count."""
    missing = count - array.shape[0]
    if not missing:
        return array
    filler = array[:missing] if array.shape[0] else jnp.ones((missing, *array.shape[1:]), array.dtype)
    return jnp.concatenate([array, filler])


def _map_leading_axis(function: Callable[..., Any], stacked: Batched, rows: list[Any]) -> Any:
    """Apply a function to the blocks of a problem, and of arrays, whose batched leaves have one more leading axis."""
    leaves, structure = jax.tree.flatten(stacked)
    is_stacked = [leaf.ndim > ndim for leaf, ndim in zip(leaves, stacked.event_ndims(), strict=True)]

    def one_block(parts):
        fresh, block_rows = iter(parts[0]), parts[1]
        problem = jax.tree.unflatten(
            structure, [next(fresh) if own else leaf for leaf, own in zip(leaves, is_stacked, strict=True)]
        )
        return function(problem, *block_rows)

    return lax.map(one_block, ([leaf for leaf, own in zip(leaves, is_stacked, strict=True) if own], rows))
