"""Scrambled Sobol points: integers whose averages converge far faster than those of random ones.

Point i is linear, over XOR, in the bits of i. A chunk of points is therefore one XOR per number: of a short table for
the low bits of the index, one for the middle bits, and a constant for the chunk's position. Owen's nested scrambling
is replaced by a hash that acts like it (Laine and Karras 2011, Burley 2020): in bit-reversed integers, addition and
multiplication by even numbers carry only from higher to lower digits of the point. Scrambled with a random seed per
coordinate, each point is uniform on the cube, so averages are unbiased, and replicates with independent seeds give
error bars.
"""

from __future__ import annotations

import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

TABLE = pathlib.Path(__file__).with_name("sobol_directions.npz")
WIDTH = 32
MAX_DIMS = 2048

_HASH = (0x6C50B47C, 0xB82F1E52, 0xC7AFE638, 0x8D22F6E6)
_SWAPS = ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF))


@functools.cache
def _directions() -> np.ndarray:
    with np.load(TABLE, allow_pickle=False) as table:
        return table["directions"]


def reversed_points(dims: int, n: int, start: int | jax.Array = 0) -> jax.Array:
    """Return the bit-reversed Sobol integers of points ``start, ..., start + n - 1``, ``(dims, n)``.

    Args:
      dims: number of coordinates, up to ``MAX_DIMS``.
      n: number of points, a power of two.
      start: number of the first point, a multiple of n; may be traced.
    """
    if dims > MAX_DIMS:
        raise ValueError(f"dims={dims} exceeds the {MAX_DIMS} coordinates of the Sobol table; use pseudo-random points")
    if n < 1 or n & (n - 1):
        raise ValueError(f"n={n} must be a power of two")
    directions = _directions()[:dims]
    num_bits = n.bit_length() - 1
    low_bits = num_bits // 2
    low = _xor_combinations(directions[:, :low_bits])
    middle = _xor_combinations(directions[:, low_bits:num_bits])
    position = jnp.asarray(start).astype(jnp.uint32)
    bits = (position >> jnp.arange(WIDTH, dtype=jnp.uint32)) & 1
    offset = jax.lax.reduce(bits * directions, np.uint32(0), jax.lax.bitwise_xor, (1,))
    middle = jnp.asarray(middle) ^ offset[:, None]
    return (middle[:, :, None] ^ low[:, None, :]).reshape(dims, n)


def _xor_combinations(directions: np.ndarray) -> np.ndarray:
    """Return the XOR of every subset of the columns, ``(dims, 2 ** columns)``, in the order of the subset's bits."""
    result = np.zeros((directions.shape[0], 1), np.uint32)
    for column in directions.T:
        result = np.concatenate([result, result ^ column[:, None]], axis=1)
    return result


def scramble(reversed_bits: jax.Array, seeds: jax.Array) -> jax.Array:
    """Permute bit-reversed integers ``(dims, n)`` within every power-of-two interval, by one seed per coordinate."""
    x = reversed_bits + seeds[:, None]
    for factor in _HASH:
        x = x ^ (x * np.uint32(factor))
    return x


def reverse_bits(x: jax.Array) -> jax.Array:
    """Return 32-bit integers with their bits in the opposite order."""
    for shift, mask in _SWAPS:
        x = ((x >> shift) & np.uint32(mask)) | ((x & np.uint32(mask)) << shift)
    return (x >> 16) | (x << 16)


def sobol(key: jax.Array | None, dims: int, n: int, *, start: int | jax.Array = 0, dtype=jnp.float32) -> jax.Array:
    """Return scrambled Sobol points ``start, ..., start + n - 1`` of the sequence that belongs to ``key``.

    Args:
      key: a typed PRNG key, or ``None`` for points without scrambling, which start at the origin.
      dims: number of coordinates of a point, up to 2,048.
      n: number of points, a power of two.
      start: number of the first point, a multiple of ``n``; may be traced.
      dtype: the floating dtype in which the points will be used.

    Returns:
      Unsigned integers ``(dims, n)``; ``points.uniform`` makes them uniforms.

    >>> from balson_jax.random.points import uniform
    >>> (uniform(sobol(None, dims=2, n=4)) * 4).round().tolist()
    [[0.0, 2.0, 3.0, 1.0], [0.0, 2.0, 1.0, 3.0]]
    """
    x = reversed_points(dims, n, start)
    if key is not None:
        x = scramble(x, jax.random.bits(key, (dims,), jnp.uint32))
    x = reverse_bits(x)
    if jnp.dtype(dtype) == jnp.float64:
        # 32 bits of the point, then the middle of the cell.
        return (x.astype(jnp.uint64) << 32) | jnp.uint64(1 << 31)
    return x
