"""Gamma, beta and Dirichlet variates with the signatures of ``jax.random``, many times faster on a CPU.

Each variate is a quantile. There is no rejection loop, and automatic differentiation gives the derivatives with respect
to the concentrations. For the same key the numbers differ from those of ``jax.random``, but have the same distribution.
Concentrations from 1e-3 to 1e6 are supported, with a relative error of about 1e-6 in a float32 variate. A concentration
of zero gives a gamma variate of zero. A negative concentration gives NaN.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike, DTypeLike

from .gamma_quantile import lift, needs_lift, unlifted
from .points import bits_dtype

BLOCK = 1 << 14
"""The quantile's coefficients are computed for at most this many concentrations at a time."""

SHORT = 8
"""With fewer variates per concentration than this, sums over components are reductions, not matrix products."""


def loggamma(
    key: jax.Array, a: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = None
) -> jax.Array:
    """Return logarithms of gamma variates: a drop-in replacement for ``jax.random.loggamma``.

    The result is finite for every positive concentration: values are at least the lowest finite number of the dtype.
    Subnormal concentrations may count as zero, which gives ``-inf``.

    Args:
      key: a PRNG key.
      a: concentrations.
      shape: the result's shape, to which ``a`` broadcasts; ``None`` for the shape of ``a``.
      dtype: floating dtype of the result; ``None`` for JAX's default.

    >>> loggamma(jax.random.key(0), 0.001, (3,)).shape
    (3,)
    """
    working, dtype = _dtypes(dtype)
    a = jnp.asarray(a, working)
    shape = _result_shape("a", a.shape, shape)
    lead, own = _split(shape, a.shape)
    a = jnp.broadcast_to(a.reshape(a.shape[a.ndim - len(own) :]), own)
    draws = _log_draws(key, a.reshape(-1), math.prod(lead))
    return jnp.moveaxis(draws, -1, 0).reshape(shape).astype(dtype)


def gamma(
    key: jax.Array, a: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = None
) -> jax.Array:
    """Return gamma variates: a drop-in replacement for ``jax.random.gamma``.

    Variates of small concentrations can underflow to zero. Those of ``loggamma`` do not.

    Args:
      key: a PRNG key.
      a: concentrations.
      shape: the result's shape, to which ``a`` broadcasts; ``None`` for the shape of ``a``.
      dtype: floating dtype of the result; ``None`` for JAX's default.

    >>> bool(abs(gamma(jax.random.key(0), 3.0, (100_000,)).mean() - 3) < 0.03)
    True
    """
    working, dtype = _dtypes(dtype)
    return jnp.exp(loggamma(key, a, shape, working)).astype(dtype)


def beta(
    key: jax.Array,
    a: ArrayLike,
    b: ArrayLike,
    shape: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
) -> jax.Array:
    """Return beta variates: a drop-in replacement for ``jax.random.beta``.

    Args:
      key: a PRNG key.
      a: first concentrations.
      b: second concentrations.
      shape: the result's shape, to which ``a`` and ``b`` broadcast; ``None`` for their broadcast shape.
      dtype: floating dtype of the result; ``None`` for JAX's default.

    >>> bool(abs(beta(jax.random.key(0), 1.0, 3.0, (100_000,)).mean() - 0.25) < 0.01)
    True
    """
    working, dtype = _dtypes(dtype)
    a, b = jnp.asarray(a, working), jnp.asarray(b, working)
    if shape is None:
        shape = jnp.broadcast_shapes(a.shape, b.shape)
    first_key, second_key = jax.random.split(key)
    difference = loggamma(first_key, a, shape, working) - loggamma(second_key, b, shape, working)
    return jax.nn.sigmoid(difference).astype(dtype)


def dirichlet(
    key: jax.Array, alpha: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = None
) -> jax.Array:
    """Return Dirichlet variates: a drop-in replacement for ``jax.random.dirichlet``.

    Args:
      key: a PRNG key.
      alpha: concentrations, ``(..., K)``.
      shape: the result's shape without its last axis; ``alpha.shape[:-1]`` must broadcast to it and is the default.
      dtype: floating dtype of the result; ``None`` for JAX's default.

    Returns:
      Variates of shape ``(*shape, K)``, which sum to one along the last axis.

    >>> dirichlet(jax.random.key(0), jnp.array([0.5, 1.0, 3.0]), (4,)).shape
    (4, 3)
    """
    working, dtype = _dtypes(dtype)
    alpha = jnp.asarray(alpha, working)
    if alpha.ndim < 1:
        raise ValueError("alpha is a single number; pass at least one axis of components, (..., K)")
    shape = _result_shape("alpha without its last axis", alpha.shape[:-1], shape)
    num_components = alpha.shape[-1]
    lead, own = _split(shape, alpha.shape[:-1])
    alpha = jnp.broadcast_to(alpha.reshape(alpha.shape[alpha.ndim - len(own) - 1 :]), (*own, num_components))
    draws = _simplex_draws(key, alpha.reshape(math.prod(own), num_components), math.prod(lead))
    return draws.reshape(*shape, num_components).astype(dtype)


@functools.partial(jax.jit, static_argnames="count")
def _simplex_draws(key: jax.Array, alpha: jax.Array, count: int) -> jax.Array:
    """Return ``count`` Dirichlet variates, ``(count, R, K)``, for each row of concentrations ``(R, K)``."""
    log_gamma = _log_draws(key, alpha.reshape(-1), count).reshape(*alpha.shape, count)
    peak = lax.cond(
        needs_lift(alpha).any(),
        lambda: lax.stop_gradient(log_gamma).max(-2, keepdims=True, initial=-jnp.inf),
        lambda: jnp.broadcast_to(jnp.log(alpha.max(-1, initial=1))[:, None, None], (alpha.shape[0], 1, count)),
    )
    share = jnp.exp(log_gamma - peak)
    share = share / _sum_components(share)
    return jnp.moveaxis(share, -1, 0)


@functools.partial(jax.jit, static_argnames="count")
def _log_draws(key: jax.Array, alpha: jax.Array, count: int) -> jax.Array:
    """Return ``count`` log-gamma variates for each of R concentrations, ``(R, count)``."""
    alpha = lax.optimization_barrier(alpha)  # see gamma_quantile.unlifted
    quantile_key, boost_key = jax.random.split(key)
    shape, kind = (alpha.size, count), bits_dtype(alpha.dtype)
    bits = jax.random.bits(quantile_key, shape, kind)
    draws = unlifted(bits, alpha) if alpha.size <= BLOCK else _in_blocks(bits, alpha)
    draws = lax.cond(
        needs_lift(alpha).any(), lambda: lift(draws, jax.random.bits(boost_key, shape, kind), alpha), lambda: draws
    )
    draws = jnp.where(alpha[:, None] > 0, jnp.maximum(draws, jnp.finfo(draws.dtype).min), draws)
    return jnp.where(alpha[:, None] >= 0, draws, jnp.nan)


def _in_blocks(bits: jax.Array, alpha: jax.Array) -> jax.Array:
    """Return ``unlifted(bits, alpha)``, computed for ``BLOCK`` concentrations at a time."""
    num_blocks = -(-alpha.size // BLOCK)
    missing = num_blocks * BLOCK - alpha.size
    alphas = jnp.pad(alpha, (0, missing), constant_values=1).reshape(num_blocks, BLOCK)
    blocks = jnp.pad(bits, ((0, missing), (0, 0))).reshape(num_blocks, BLOCK, bits.shape[1])
    draws = lax.map(lambda block: unlifted(*block), (blocks, alphas))
    return draws.reshape(num_blocks * BLOCK, bits.shape[1])[: alpha.size]


def _sum_components(values: jax.Array) -> jax.Array:
    """Sum ``(R, K, L)`` over K, keeping the axis."""
    if values.shape[-1] < SHORT:
        return values.sum(-2, keepdims=True)
    # Sum by a matrix product: a reduction over a short leading axis is many times slower on a CPU.
    return jnp.matmul(jnp.ones((1, values.shape[-2]), values.dtype), values, precision=lax.Precision.HIGHEST)


def _dtypes(dtype: DTypeLike | None) -> tuple[jnp.dtype, jnp.dtype]:
    """Return the dtype to compute in and the dtype to return."""
    dtype = jnp.dtype(jax.dtypes.canonicalize_dtype(float if dtype is None else dtype))
    if not jnp.issubdtype(dtype, jnp.floating):
        raise ValueError(f"dtype={dtype.name} is not a floating dtype; pass float32 or float64, say")
    return (dtype if dtype in (jnp.float32, jnp.float64) else jnp.dtype("float32")), dtype


def _result_shape(name: str, own: tuple[int, ...], shape: int | Sequence[int] | None) -> tuple[int, ...]:
    if shape is None:
        return own
    shape = tuple(shape) if np.iterable(shape) else (operator.index(shape),)
    try:
        if np.broadcast_shapes(own, shape) == shape:
            return shape
    except ValueError:
        pass
    raise ValueError(f"shape={shape} is not what the shape {own} of {name} broadcasts to")


def _split(shape: tuple[int, ...], own: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Split a result's shape into leading axes along which the concentrations do not vary, and the rest."""
    while own and own[0] == 1:
        own = own[1:]
    return shape[: len(shape) - len(own)], shape[len(shape) - len(own) :]
