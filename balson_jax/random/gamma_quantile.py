"""Log-gamma variates by inversion: the log-quantile is a polynomial in a score of the uniform.

One uniform gives one variate. There is no rejection loop, and the variate is monotone in the uniform and differentiable
in ``alpha``, so quasi-random points can be used. ``tabulate.py`` defines the score ``t`` and the smooth function
``F(t, s) = ln(g / alpha) / s`` with ``s = alpha ** -0.5``. This module reads its Chebyshev coefficients. The s-axis is
contracted once per ``alpha``. A variate is then one Clenshaw sum of 33 terms (61 in float64).

For ``alpha`` below ``ALPHA_MIN`` a second uniform ``v`` is used: ``ln g_alpha = ln g_(alpha+1) + ln(v) / alpha``. This
is exact, because ``v ** (1 / alpha)`` is Beta(alpha, 1), and Beta(alpha, 1) times an independent Gamma(alpha + 1) is
Gamma(alpha) (Marsaglia and Tsang 2000). The sum of logarithms is finite where ``g`` itself would underflow.
"""

from __future__ import annotations

import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

TABLE = pathlib.Path(__file__).with_name("gamma_quantile.npz")

S_MAX = 1.45
"""The tables cover ``0 <= s <= S_MAX``."""

SIZES = {"float32": (4.64, 33, 30), "float64": (6.01, 61, 45)}
"""Per dtype: the largest ``|t|``, and the numbers of terms in t and s.

Scores of 32-bit points never exceed the largest ``|t|``. Those of 64-bit points do once in 1e16 draws, and are clipped.
"""

ALPHA_MIN = 1.0 / S_MAX**2
"""Variates of smaller concentrations use a second uniform."""


@functools.cache
def _table(dtype_name: str) -> np.ndarray:
    with np.load(TABLE, allow_pickle=False) as tables:
        return tables[dtype_name].astype(dtype_name)


def score(bits: jax.Array, dtype) -> jax.Array:
    """Return ``t = sign(u - 1/2) sqrt(-ln(4 u (1 - u)))`` of integer points. It is accurate in both tails."""
    width = jnp.iinfo(bits.dtype).bits
    half = jnp.iinfo(f"int{width}").max
    signed = lax.bitcast_convert_type(bits ^ bits.dtype.type(half + 1), f"int{width}")
    magnitude = signed ^ (signed >> (width - 1))
    offset = (signed.astype(dtype) + 0.5) * 2.0 ** (1 - width)  # u - (1 - u)
    distance = ((half - magnitude).astype(dtype) + 0.5) * 2.0 ** (1 - width)  # 1 - |offset|, without cancellation
    product = distance * (1 + jnp.abs(offset))  # 4 u (1 - u)
    # t = offset sqrt(-ln(product) / offset^2), where offset^2 = 1 - product. Near u = 1/2 the product is rounded to a
    # number near 1. Dividing by 1 minus the same rounded product cancels the rounding error (Goldberg 1991, theorem 4).
    square = jnp.where(jnp.abs(offset) < 0.5, 1 - product, jnp.square(offset))
    ratio = -jnp.log(product) / jnp.where(square > 0, square, 1)
    return offset * jnp.where(square > 0, jnp.sqrt(ratio), 1)


def quantile_coefficients(alpha: jax.Array) -> jax.Array:
    """Return the Chebyshev coefficients in ``t`` of ``ln(g / alpha)``: the table, contracted over ``s``.

    Args:
      alpha: concentrations of any shape, at least ``ALPHA_MIN``.

    Returns:
      Coefficients, ``(terms, *alpha.shape)``.
    """
    table = jnp.asarray(_table(alpha.dtype.name))
    s = lax.rsqrt(alpha)
    x = 2 * s / S_MAX - 1

    def step(pair, _):
        return (pair[1], 2 * x * pair[1] - pair[0]), pair[0]

    _, basis = lax.scan(step, (jnp.ones_like(x), x), length=table.shape[1])
    return s * jnp.tensordot(table, basis, axes=1, precision=lax.Precision.HIGHEST)


def evaluate(coefficients: jax.Array, t: jax.Array, rolled: bool = False) -> jax.Array:
    """Return the Chebyshev sum at scores ``t``. Trailing axes of the coefficients broadcast against ``t``.

    Even and odd terms form two independent Clenshaw sums in ``y = T_2(x)``, which a processor can run in parallel:
    ``T_2n(x) = T_n(y)``, and ``T_(2n+1)(x) = x V_n(y)`` with ``V_0 = 1, V_1 = 2y - 1``. A rolled sum is a loop: a
    smaller program to compile, but slower if the variates are most of the work.
    """
    t_max = SIZES[t.dtype.name][0]
    x = jnp.clip(t * (1 / t_max), -1.0, 1.0)
    y = 2 * jnp.square(x) - 1
    even, even_ahead = _clenshaw(coefficients[2::2], y, rolled)
    odd, odd_ahead = _clenshaw(coefficients[1::2], y, rolled)
    return (y * even - even_ahead + x * (odd - odd_ahead)) + coefficients[0]


def _clenshaw(coefficients: jax.Array, y: jax.Array, rolled: bool) -> tuple[jax.Array, jax.Array]:
    """Run ``b_n = c_n + 2 y b_(n+1) - b_(n+2)`` down to the first coefficient; return ``(b_0, b_1)``."""
    twice = 2 * y
    current, ahead = coefficients[-1], jnp.zeros_like(coefficients[-1])

    def step(pair, coefficient):
        return (twice * pair[0] - pair[1] + coefficient, pair[0]), None

    if rolled:
        shape = jnp.broadcast_shapes(current.shape, y.shape)
        start = jnp.broadcast_to(current, shape), jnp.broadcast_to(ahead, shape)
        return lax.scan(step, start, coefficients[-2::-1])[0]
    for coefficient in coefficients[-2::-1]:
        (current, ahead), _ = step((current, ahead), coefficient)
    return current, ahead


def needs_lift(alpha: jax.Array) -> jax.Array:
    """Return a mask of the concentrations whose variates need a second uniform."""
    return alpha < ALPHA_MIN


def unlifted(bits: jax.Array, alpha: jax.Array, rolled: bool = False) -> jax.Array:
    """Return log-variates of Gamma(alpha + 1) where ``alpha`` needs the lift, and of Gamma(alpha) elsewhere."""
    # The barrier hides a constant alpha from the compiler. Otherwise it would resolve the conditionals that follow at
    # compile time and fuse this costly expression into each of its uses.
    alpha = lax.optimization_barrier(alpha)
    alpha = jnp.where(needs_lift(alpha), alpha + 1, alpha)
    coefficients = quantile_coefficients(alpha).at[0].add(jnp.log(alpha))
    return evaluate(coefficients[..., None], score(bits, alpha.dtype), rolled)


def lift(draws: jax.Array, bits: jax.Array, alpha: jax.Array) -> jax.Array:
    """Turn unlifted log-variates into log-variates of Gamma(alpha), with one more uniform each."""
    width = jnp.iinfo(bits.dtype).bits
    log_v = jnp.log((bits.astype(alpha.dtype) + 0.5) * 2.0**-width)
    small = needs_lift(alpha)
    return draws + jnp.where(small, 1 / jnp.where(small, alpha, 1.0), 0.0)[..., None] * log_v
