"""Points of the unit cube, as unsigned integers with the sample axis last.

A coordinate is an integer ``b`` of ``w`` bits. It represents the uniform ``(b + 1/2) / 2**w``, which is never 0 or 1
and whose distances to 0 and to 1 are equally exact. Points are numbered, and point ``i`` depends only on the key and on
``i``. A result therefore does not depend on the size of the chunks in which it is computed.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np

from .sobol import DEALT_BITS, seeds_of, sobol

BLOCK = 1 << DEALT_BITS
"""Pseudo-random points are generated in blocks of this size. Each block has its own key."""


def bits_dtype(dtype) -> jnp.dtype:
    """Return the unsigned integer dtype of the points for variates of a floating dtype."""
    return jnp.dtype("uint64") if jnp.dtype(dtype) == jnp.float64 else jnp.dtype("uint32")


def pseudo(
    key: jax.Array, dims: int, n: int, *, first: int = 0, start: int | jax.Array = 0, dtype=jnp.float32
) -> jax.Array:
    """Return pseudo-random points ``start, ..., start + n - 1`` of the sequence that belongs to ``key``.

    Args:
      key: a typed PRNG key.
      dims: number of coordinates of a point.
      first: index of the first coordinate; calls with different ``first`` give independent coordinates.
      n: number of points: a multiple of ``BLOCK``, or any number below it. Below it the sequence depends on ``n``.
      start: index of the first point, a multiple of ``min(n, BLOCK)``; may be traced.
      dtype: the floating dtype in which the points will be used.

    Returns:
      Unsigned integers, ``(dims, n)``.

    >>> pseudo(jax.random.key(0), dims=3, n=2048).shape
    (3, 2048)
    """
    block = min(n, BLOCK)
    if n % block:
        raise ValueError(f"n={n} must be a multiple of {BLOCK}, or smaller")
    blocks = jnp.asarray(start) // block + jnp.arange(n // block)

    def one_block(index):
        own_key = jax.random.fold_in(jax.random.fold_in(key, index), first)
        return jax.random.bits(own_key, (dims, block), bits_dtype(dtype))

    return jnp.moveaxis(jax.vmap(one_block)(blocks), 0, 1).reshape(dims, n)


def uniform(bits: jax.Array, dtype=jnp.float32) -> jax.Array:
    """Return the uniforms in (0, 1) that integer points represent.

    Values that would round to 1 become the largest number below 1.

    >>> bool((uniform(pseudo(jax.random.key(0), 2, 1024)) < 1).all())
    True
    """
    width = jnp.iinfo(bits.dtype).bits
    value = (bits.astype(dtype) + 0.5) * 2.0**-width
    return jnp.minimum(value, 1 - jnp.finfo(dtype).epsneg)


class Points(Protocol):
    """The interface of a point generator."""

    def __call__(
        self, key: jax.Array, dims: int, n: int, *, first: int = 0, start: int | jax.Array = 0, dtype=jnp.float32
    ) -> jax.Array:
        """Return coordinates ``first, ...`` of points ``start, ...`` as unsigned integers, ``(dims, n)``."""
        ...


Coordinates = Callable[[int, int], jax.Array]
"""A function of ``(first, dims)`` that returns coordinates ``first, ...`` of n points, ``(dims, n)``.

It is a function so that coordinates that are never requested are never computed.
"""


def coordinates(generate: Points, key: jax.Array, n: int, *, start: int | jax.Array, dtype) -> Coordinates:
    """Return the coordinates of points ``start, ..., start + n - 1`` of the sequence that belongs to ``key``."""
    return lambda first, dims: generate(key, dims, n, first=first, start=start, dtype=dtype)


GENERATORS: dict[str, Points] = {"sobol": functools.partial(sobol, deal=True), "pseudo": pseudo}
"""The generators that samplers choose by name.

Sobol points are dealt (see ``sobol``), because samplers assign draws to slots by their positions modulo a power of two.
"""

HASH_COORDINATES = 0x6B656570
"""Coordinates from this number on have no points. Their seeds hash the numbers of the draws."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Streams:
    """Independent sequences of points, one for each replicate, with their seeds: made once for all chunks.

    Attributes:
      keys: of the sequences, ``(R,)``.
      seeds: of their coordinates, ``(R, dims)``; used by quasi-random points.
      hash_seeds: two for each, ``(R, 2)``.
      points: name of the generator.
    """

    keys: jax.Array
    seeds: jax.Array
    hash_seeds: jax.Array
    points: str = dataclasses.field(metadata={"static": True})

    def coordinates(self, n: int, *, start: int | jax.Array, dtype) -> Coordinates:
        """Return points ``start, ..., start + n - 1`` of all sequences, ``(dims, R n)``, those of one together."""

        def some(first, dims):
            def own(key, seeds):
                if self.points == "sobol":
                    return sobol(key, dims, n, first=first, start=start, dtype=dtype, deal=True, seeds=seeds)
                return GENERATORS[self.points](key, dims, n, first=first, start=start, dtype=dtype)

            points = jax.vmap(own)(self.keys, self.seeds[:, first : first + dims])
            return jnp.moveaxis(points, 0, 1).reshape(dims, -1)

        return some


def streams(points: str, key: jax.Array, replicates: jax.Array, dims: int) -> Streams:
    """Return the sequences of numbered replicates that belong to a key, for points with ``dims`` coordinates."""
    keys = jax.vmap(lambda number: jax.random.fold_in(key, number))(replicates)
    numbers = np.concatenate([np.arange(dims), HASH_COORDINATES + np.arange(2)])
    seeds = jax.vmap(lambda own: seeds_of(own, jnp.asarray(numbers, jnp.uint32)))(keys)
    return Streams(keys, seeds[:, :dims], seeds[:, dims:], points)


def hashed(seeds: jax.Array, n: int, start: int | jax.Array) -> jax.Array:
    """Return a hash of the numbers ``start, ..., start + n - 1`` with two seeds, as unsigned integers ``(n,)``.

    Two rounds of the finaliser ``lowbias32`` (Wellons 2018): good enough for choices, and many times cheaper than a
    cryptographic generator.
    """
    x = jnp.asarray(start).astype(jnp.uint32) + jnp.arange(n, dtype=jnp.uint32)
    for round_number in range(2):
        x = x + seeds[round_number]
        x = (x ^ (x >> 16)) * np.uint32(0x7FEB352D)
        x = (x ^ (x >> 15)) * np.uint32(0x846CA68B)
        x = x ^ (x >> 16)
    return x
