"""Scrambled Sobol points: quasi-random integers, whose averages converge far faster than those of random points.

Point i is the XOR of the direction numbers selected by the bits of i. Within a chunk only the low bits vary, and the
high bits contribute a constant. The bits are selected by shifts and masks, which the compiler can fuse and vectorise,
rather than by a table of combinations.

Owen's nested scrambling is approximated by a hash (Laine and Karras 2011, Burley 2020). In bit-reversed integers,
carries of additions and of multiplications by even numbers move only from more to less significant digits of the point.
The hash is a bijection applied after adding a random seed to each coordinate. Each point is therefore uniform on the
cube, averages are unbiased, and replicates with independent seeds give standard errors.
"""

from __future__ import annotations

import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

TABLE = pathlib.Path(__file__).with_name("sobol_directions.npz")
WIDTH = 32
MAX_DIMS = 2048
DEALT_BITS = 10

_HASH = (0x6C50B47C, 0xB82F1E52, 0xC7AFE638, 0x8D22F6E6)
_SWAPS = ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF))


@functools.cache
def _directions() -> np.ndarray:
    with np.load(TABLE, allow_pickle=False) as table:
        return table["directions"]


def dealt(position: np.ndarray, n: int) -> np.ndarray:
    """Return the point indices at the given positions of a dealt sequence: the low bits reversed (see ``sobol``)."""
    width = min(n.bit_length() - 1, DEALT_BITS)
    number = position >> width << width
    for bit in range(width):
        number = number | (position >> bit & 1) << (width - 1 - bit)
    return number


def reversed_points(dims: int, n: int, first: int = 0, start: int | jax.Array = 0, deal: bool = False) -> jax.Array:
    """Return the bit-reversed Sobol integers of points ``start, ..., start + n - 1``, ``(dims, n)``.

    Args:
      dims: number of coordinates.
      n: number of points, a power of two.
      first: index of the first coordinate; ``first + dims`` is at most ``MAX_DIMS``.
      start: index of the first point, a multiple of n; may be traced.
      deal: whether to deal the points, as in ``sobol``.
    """
    if first + dims > MAX_DIMS:
        message = f"dims={first + dims} exceeds the {MAX_DIMS} coordinates of the Sobol table"
        raise ValueError(f"{message}; use pseudo-random points")
    if n < 1 or n & (n - 1):
        raise ValueError(f"n={n} must be a power of two")
    directions = _directions()[first : first + dims]
    position = jnp.asarray(start).astype(jnp.uint32)
    chosen = (position >> jnp.arange(WIDTH, dtype=jnp.uint32)) & 1
    offset = lax.reduce(chosen * directions, np.uint32(0), lax.bitwise_xor, (1,))
    index = jnp.arange(n, dtype=jnp.int32)
    points = jnp.broadcast_to(offset[:, None], (dims, n))
    width = n.bit_length() - 1
    for bit in range(width):
        mask = lax.bitcast_convert_type((index << (WIDTH - 1 - bit)) >> (WIDTH - 1), jnp.uint32)  # ones if it is set
        # Dealing reverses the lowest bits of the index, and so the directions that they select.
        direction = min(width, DEALT_BITS) - 1 - bit if deal and bit < DEALT_BITS else bit
        points = points ^ (mask & directions[:, direction : direction + 1])
    return points


def scramble(reversed_bits: jax.Array, seeds: jax.Array) -> jax.Array:
    """Scramble bit-reversed integers ``(dims, n)``, permuting every dyadic interval, with one seed per coordinate."""
    x = reversed_bits + seeds[:, None]
    for factor in _HASH:
        x = x ^ (x * np.uint32(factor))
    return x


def seeds_of(key: jax.Array, coordinates: jax.Array) -> jax.Array:
    """Return the seeds with which a key scrambles these coordinates, of the same shape."""
    return jax.vmap(lambda number: jax.random.bits(jax.random.fold_in(key, number)))(coordinates)


def reverse_bits(x: jax.Array) -> jax.Array:
    """Return 32-bit integers with their bits reversed."""
    for shift, mask in _SWAPS:
        x = ((x >> shift) & np.uint32(mask)) | ((x & np.uint32(mask)) << shift)
    return (x >> 16) | (x << 16)


def sobol(
    key: jax.Array | None,
    dims: int,
    n: int,
    *,
    first: int = 0,
    start: int | jax.Array = 0,
    dtype=jnp.float32,
    deal: bool = False,
    seeds: jax.Array | None = None,
) -> jax.Array:
    """Return scrambled Sobol points ``start, ..., start + n - 1`` of the sequence that belongs to ``key``.

    Args:
      key: a typed PRNG key, or ``None`` for unscrambled points, which start at the origin.
      dims: number of coordinates of a point.
      n: number of points, a power of two.
      first: index of the first coordinate; ``first + dims`` is at most 2,048.
      start: index of the first point, a multiple of ``n``; may be traced.
      dtype: the floating dtype in which the points will be used.
      deal: whether to reorder the points by reversing the lowest ten bits of their indices. Sobol points whose indices
        agree modulo a power of two lie in one part of the cube. After dealing, points whose positions agree modulo a
        power of two are spread over the whole cube.
      seeds: ``seeds_of(key, first + jnp.arange(dims))``, if they are known already.

    Returns:
      Unsigned integers, ``(dims, n)``; ``points.uniform`` turns them into uniforms.

    >>> from balson_jax.random.points import uniform
    >>> (uniform(sobol(None, dims=2, n=4)) * 4).round().tolist()
    [[0.0, 2.0, 3.0, 1.0], [0.0, 2.0, 1.0, 3.0]]
    """
    x = reversed_points(dims, n, first, start, deal)
    if key is not None:
        x = scramble(x, seeds_of(key, first + jnp.arange(dims)) if seeds is None else seeds)
    x = reverse_bits(x)
    if jnp.dtype(dtype) == jnp.float64:
        # The 32 bits of the point, followed by the midpoint of its cell.
        return (x.astype(jnp.uint64) << 32) | jnp.uint64(1 << 31)
    return x
