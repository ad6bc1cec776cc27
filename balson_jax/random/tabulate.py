"""Compute the coefficient tables of the gamma quantile.

The *score* of a uniform ``u`` is ``t = sign(u - 1/2) sqrt(-ln(4 u (1 - u)))``. It approximates the normal score up to
scale and costs one logarithm. With ``s = 1 / sqrt(alpha)``, the function

    F(t, s) = ln(g / alpha) / s,        g the u-quantile of Gamma(alpha),

is smooth on ``|t| <= T, 0 <= s <= S``. Its limit ``F(t, 0)`` is the normal quantile of ``u``, because
``sqrt(alpha) ln(g / alpha)`` tends to a standard normal variate for large ``alpha``. One table of Chebyshev
coefficients in ``(t, s)`` reproduces F. Run ``python -m balson_jax.random.tabulate`` to write the tables again.

SciPy's inverse is refined by Newton steps on ``ln P(alpha, x)``. For ``s < 0.01`` (alpha > 10,000) SciPy's incomplete
gamma function loses digits in the tails. That strip is interpolated between ``s = 0.01`` and the exact limit at
``s = 0``.
"""

from __future__ import annotations

import numpy as np
from numpy.polynomial import chebyshev
from scipy import special

from .gamma_quantile import S_MAX, SIZES, TABLE


def uniforms(t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ``(u, 1 - u)`` of a score, each to full relative accuracy."""
    weight = t * t
    small = np.exp(-weight) / (2 * (1 + np.sqrt(-np.expm1(-weight))))
    return np.where(t < 0, small, 1 - small), np.where(t < 0, 1 - small, small)


def log_quantile(t: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """Return ``ln(g / alpha)`` for the Gamma(alpha) quantile ``g`` of score ``t``, to about 1e-13."""
    lower, upper = uniforms(t)
    is_low = t < 0
    tail = np.where(is_low, lower, upper)
    guess = np.where(is_low, special.gammaincinv(alpha, lower), special.gammainccinv(alpha, upper))
    y = np.log(guess) - np.log(alpha)
    # The log-density of y = ln(x / alpha) is alpha (y - expm1(y)) + constant. For large alpha the constant comes from
    # Stirling's series of ln Gamma(alpha) (Abramowitz and Stegun 6.1.41), without cancellation.
    inverse = 1 / alpha
    stirling = inverse / 12 - inverse**3 / 360 + inverse**5 / 1260
    with np.errstate(over="ignore", invalid="ignore"):
        exact = alpha * np.log(alpha) - alpha - special.gammaln(alpha)
    constant = np.where(alpha > 30, 0.5 * np.log(alpha / (2 * np.pi)) - stirling, exact)
    for _ in range(3):
        x = alpha * np.exp(y)
        mass = np.where(is_low, special.gammainc(alpha, x), special.gammaincc(alpha, x))
        density = np.exp(alpha * (y - np.expm1(y)) + constant)
        step = mass * (np.log(mass) - np.log(tail)) / density
        y = y - np.where(is_low, step, -step)
    return y


def normal_score(t: np.ndarray) -> np.ndarray:
    """Return the normal quantile of a score: the limit of ``F`` for large alpha."""
    tail = special.ndtri(uniforms(-np.abs(t))[0])
    return np.where(t < 0, tail, -tail)


def chebyshev_nodes(count: int) -> np.ndarray:
    """Return the Chebyshev points of the first kind on [-1, 1]."""
    return np.cos(np.pi * (np.arange(count) + 0.5) / count)


def tabulate(t_max: float, terms_t: int, terms_s: int) -> np.ndarray:
    """Return the ``(terms_t, terms_s)`` Chebyshev coefficients of ``F`` on ``[-t_max, t_max] x [0, S_MAX]``."""
    x = chebyshev_nodes(terms_t)
    s = S_MAX / 2 * (1 + chebyshev_nodes(3 * terms_s))
    s = s[s > 0.01]
    t = t_max * x[:, None]
    values = log_quantile(t, 1 / s[None, :] ** 2) / s
    values = np.concatenate([values, normal_score(t)], axis=1)
    basis = chebyshev.chebvander(2 * np.append(s, 0.0) / S_MAX - 1, terms_s - 1)
    along_s = np.linalg.lstsq(basis, values.T, rcond=None)[0].T
    return np.linalg.solve(chebyshev.chebvander(x, terms_t - 1), along_s)


if __name__ == "__main__":
    tables = {name: tabulate(*size) for name, size in SIZES.items()}
    np.savez_compressed(TABLE, allow_pickle=False, **tables)
    print(f"wrote {TABLE.name}:", {name: table.shape for name, table in tables.items()})
