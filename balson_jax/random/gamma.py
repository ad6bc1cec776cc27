"""Log-gamma draws by quantile: a polynomial in the score of a uniform.

One uniform gives one draw, without a loop, monotonically and differentiably in ``alpha``; so the uniforms may
as well be quasi-random. ``tabulate.py`` defines the score ``t`` and the smooth function
``F(t, s) = ln(g / alpha) / s`` with ``s = alpha ** -0.5``, whose Chebyshev coefficients are read here.
The s-axis is contracted once per ``alpha``; a draw is then one Clenshaw sum of 33 terms (61 in float64).

For ``alpha`` below ``ALPHA_MIN`` a second uniform ``v`` lifts the draw:
``ln g_alpha = ln g_(alpha+1) + ln(v) / alpha``. This is exact, and stays in logarithms where ``g`` would underflow.
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
"""The tables hold for ``s`` up to this."""

SIZES = {"float32": (4.64, 33, 30), "float64": (6.01, 61, 45)}
"""Per dtype: the largest ``|t|`` (32-bit and 53-bit uniforms reach no further), and the terms in t and s."""

ALPHA_MIN = 1.0 / S_MAX**2
"""Below this concentration a draw uses a second uniform."""


@functools.cache
def _table(dtype_name: str) -> np.ndarray:
    with np.load(TABLE, allow_pickle=False) as tables:
        return tables[dtype_name].astype(dtype_name)


def score(bits: jax.Array, dtype) -> jax.Array:
    """Return ``t = sign(u - 1/2) sqrt(-ln(4 u (1 - u)))`` of integer points, accurate in both tails."""
    width = jnp.iinfo(bits.dtype).bits
    signed = lax.bitcast_convert_type(bits ^ bits.dtype.type(1 << (width - 1)), f"int{width}")
    offset = (signed.astype(dtype) + 0.5) * 2.0 ** (1 - width)  # u - (1 - u)
    lower = (bits.astype(dtype) + 0.5) * 2.0**-width
    upper = ((~bits).astype(dtype) + 0.5) * 2.0**-width
    middle = jnp.abs(offset) < 0.5
    inner = -jnp.log1p(-jnp.square(jnp.where(middle, offset, 0.0)))
    outer = -jnp.log(4 * lower * upper)
    return jnp.sign(offset) * jnp.sqrt(jnp.where(middle, inner, outer))


def quantile_coefficients(alpha: jax.Array) -> jax.Array:
    """Contract the table over ``s``: the Chebyshev coefficients in ``t`` of ``ln(g / alpha)``, leading axis first.

    Args:
      alpha: concentrations of any shape, at least ``ALPHA_MIN``.

    Returns:
      Coefficients ``(terms, *alpha.shape)``.
    """
    table = jnp.asarray(_table(alpha.dtype.name))
    s = lax.rsqrt(alpha)
    x = 2 * s / S_MAX - 1
    basis = [jnp.ones_like(x), x]
    for _ in range(table.shape[1] - 2):
        basis.append(2 * x * basis[-1] - basis[-2])
    return s * jnp.tensordot(table, jnp.stack(basis), axes=1, precision=lax.Precision.HIGHEST)


def evaluate(coefficients: jax.Array, t: jax.Array) -> jax.Array:
    """Return the Chebyshev sum at scores ``t`` (Clenshaw); trailing coefficient axes broadcast against ``t``."""
    t_max = SIZES[t.dtype.name][0]
    x = jnp.clip(t * (1 / t_max), -1.0, 1.0)
    twice = 2 * x
    ahead, current = jnp.zeros_like(x), jnp.zeros_like(x)
    for coefficient in coefficients[:0:-1]:
        ahead, current = current, twice * current - ahead + coefficient
    return x * current - ahead + coefficients[0]


def loggamma_quantile(bits: jax.Array, boost_bits: jax.Array, alpha: jax.Array) -> jax.Array:
    """Return ``ln g`` of Gamma(alpha) draws from integer points.

    Args:
      bits: points that choose the quantile.
      boost_bits: points of the same shape, used only where ``alpha < ALPHA_MIN``.
      alpha: concentrations; ``alpha[..., None]`` broadcasts against the points.

    Returns:
      Log-draws of the points' shape and of ``alpha``'s dtype; finite for every bit pattern.
    """
    small = alpha < ALPHA_MIN
    lifted = jnp.where(small, alpha + 1, alpha)
    coefficients = quantile_coefficients(lifted)[..., None]
    draws = jnp.log(lifted)[..., None] + evaluate(coefficients, score(bits, alpha.dtype))

    def lift(draws):
        width = jnp.iinfo(boost_bits.dtype).bits
        log_v = jnp.log((boost_bits.astype(alpha.dtype) + 0.5) * 2.0**-width)
        return draws + jnp.where(small, 1 / jnp.where(small, alpha, 1.0), 0.0)[..., None] * log_v

    return lax.cond(jnp.any(small), lift, lambda draws: draws, draws)
