"""Points of the unit cube, as unsigned integers with the sample axis last.

A point's coordinate is the integer ``b`` of ``w`` bits that stands for the uniform ``(b + 1/2) / 2**w``: never
0, never 1, and its distance to 1 is as exact as its distance to 0. Draws of a sampler are numbered, and draw
``i`` depends on the key and on ``i`` alone: a result does not change with the size of the chunks in which it
is computed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Protocol

import jax
import jax.numpy as jnp

from .sobol import DEALT_BITS, sobol

BLOCK = 1 << DEALT_BITS
"""Pseudo-random points are generated in blocks of this many, each with its own key."""


def bits_dtype(dtype) -> jnp.dtype:
    """Return the unsigned integer type whose points suit draws of a floating dtype."""
    return jnp.dtype("uint64") if jnp.dtype(dtype) == jnp.float64 else jnp.dtype("uint32")


def pseudo(
    key: jax.Array, dims: int, n: int, *, first: int = 0, start: int | jax.Array = 0, dtype=jnp.float32
) -> jax.Array:
    """Return pseudo-random points ``start, ..., start + n - 1`` of the sequence that belongs to ``key``.

    Args:
      key: a typed PRNG key.
      dims: number of coordinates of a point.
      first: number of the first coordinate; coordinates that are asked for separately are independent.
      n: number of points: a multiple of ``BLOCK``, or fewer for a sequence of their own.
      start: number of the first point, a multiple of ``min(n, BLOCK)``; may be traced.
      dtype: the floating dtype in which the points will be used.

    Returns:
      Unsigned integers ``(dims, n)``.

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
    """Return the uniforms in (0, 1) that integer points stand for.

    Values within rounding of 1 come out as the largest number below 1.

    >>> bool((uniform(pseudo(jax.random.key(0), 2, 1024)) < 1).all())
    True
    """
    width = jnp.iinfo(bits.dtype).bits
    value = (bits.astype(dtype) + 0.5) * 2.0**-width
    return jnp.minimum(value, 1 - jnp.finfo(dtype).epsneg)


class Points(Protocol):
    """What a sampler needs of a generator of points."""

    def __call__(
        self, key: jax.Array, dims: int, n: int, *, first: int = 0, start: int | jax.Array = 0, dtype=jnp.float32
    ) -> jax.Array:
        """Return coordinates ``first, ...`` of points ``start, ...`` as unsigned integers, ``(dims, n)``."""
        ...


Coordinates = Callable[[int, int], jax.Array]
"""What draws are made from: called with ``(first, dims)``, gives coordinates ``first, ...`` of n points, ``(dims, n)``.

A function, so that coordinates that turn out not to be needed cost nothing.
"""


def coordinates(generate: Points, key: jax.Array, n: int, *, start: int | jax.Array, dtype) -> Coordinates:
    """Return the coordinates of points ``start, ..., start + n - 1`` of the sequence that belongs to ``key``."""
    return lambda first, dims: generate(key, dims, n, first=first, start=start, dtype=dtype)


GENERATORS: dict[str, Points] = {"sobol": functools.partial(sobol, deal=True), "pseudo": pseudo}
"""For samplers, which deal draws into slots by their positions modulo a power of two."""
