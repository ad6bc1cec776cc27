"""How many random rows constrained least squares needs: the weak threshold of Donoho and Tanner (2005, 2009).

Noiseless rows ``y = A theta`` determine theta within a convex set if no direction of the set's tangent cone at theta is
invisible, ``A d = 0``. For Gaussian rows that changes from never to always about where the number of rows equals the
cone's statistical dimension (Amelunxen et al. 2014), which is the mean squared distance of a standard normal vector g
to the polar cone. With s of K components present:

- On the simplex, of known total, tangents have ``sum(d) = 0`` and ``d >= 0`` where theta is zero. The polar cone is all
  v that equal some t on the support and are at most t elsewhere.
- In the L1 ball v is t times the sign on the support, and at most t in magnitude elsewhere, t >= 0.
- With signs alone (nonnegative least squares) v is 0 on the support and at most 0 elsewhere: the mean squared distance
  is ``s + (K - s) / 2``.

The expected squared distance for a fixed t is, with c = 1 on the simplex and 2 in the ball,

    s (1 + t^2) + c (K - s) E[(u - t)_+^2],    u ~ N(0, 1),

and t minimises it, so ``s t = c (K - s) E[(u - t)_+]``. The share of rows and the share of components that are present
are thus explicit functions of t. The sum on the simplex is one more equation, but it is not one more random row: at the
minimum a total that is only bounded gives the same distance. But t follows g, which lowers the mean by a little less
than one row. ``rows_needed`` counts that too.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

BISECTIONS = 100
MIN_STEP = 1e-8
"""Smallest t."""

MAX_STEP = 30.0
"""Largest t."""


class _Excess(NamedTuple):
    """Excess of a normal variate u (of its magnitude, if signed) over t: its probability, mean and mean square."""

    probability: float
    mean: float
    square: float


def rows_needed(num_components: int, num_present: int, signed: bool = False) -> float:
    """Return the number of Gaussian rows that determine theta in about half of all cases.

    Args:
      num_components: K.
      num_present: s, from 1 to K.
      signed: whether theta has signs and a known L1 norm; else it is nonnegative and of known sum.

    >>> round(rows_needed(40, 4), 1), round(rows_needed(40, 4, signed=True), 1)
    (10.0, 12.6)
    """
    if not 1 <= num_present <= num_components:
        raise ValueError(f"num_present={num_present} must lie between 1 and num_components={num_components}")
    absent = num_components - num_present
    step = _bisect(lambda t: num_present * t - absent * _excess(t, signed).mean)
    excess = _excess(step, signed)
    distance = num_present * (1 + step**2) + absent * excess.square
    # The minimiser for g itself differs from t: variance of the slope at t, over the curvature.
    slope = num_present + absent * (excess.square - excess.mean**2)
    return distance - slope / (num_present + absent * excess.probability)


def weak_threshold(share_of_rows: float, signed: bool = False) -> float:
    """Return the largest s / N at which theta is determined, given N / K, in the limit of many components.

    >>> round(weak_threshold(0.5), 3), round(weak_threshold(0.5, signed=True), 3)
    (0.558, 0.386)
    """
    _require_share(share_of_rows)
    step = _bisect(lambda t: share_of_rows - _shares(t, signed)[1])
    return _shares(step, signed)[0] / share_of_rows


def nonnegative_threshold(share_of_rows: float) -> float:
    """Return the largest s / N that nonnegative least squares determines without knowing the total.

    >>> nonnegative_threshold(0.4), nonnegative_threshold(0.8)
    (0.0, 0.75)
    """
    _require_share(share_of_rows)
    return max(0.0, 2 - 1 / share_of_rows)


def line(shares_of_rows: np.ndarray, signed: bool = False) -> np.ndarray:
    """Return the weak threshold for several shares of rows."""
    return np.asarray([weak_threshold(float(share), signed) for share in shares_of_rows])


def _require_share(share: float) -> None:
    if not 0 < share < 1:
        raise ValueError(f"share_of_rows={share} must lie between 0 and 1: it is the number of rows per component")


def _shares(step: float, signed: bool) -> tuple[float, float]:
    """Return s / K and N / K at which t is the minimiser."""
    excess = _excess(step, signed)
    odds = excess.mean / step
    present = odds / (1 + odds)
    return present, present * (1 + step**2) + (1 - present) * excess.square


def _excess(step: float, signed: bool) -> _Excess:
    density = math.exp(-0.5 * step**2) / math.sqrt(2 * math.pi)
    tail = 0.5 * math.erfc(step / math.sqrt(2))
    sides = 2 if signed else 1
    return _Excess(sides * tail, sides * (density - step * tail), sides * ((1 + step**2) * tail - step * density))


def _bisect(rising) -> float:
    """Return the t where a function that rises with t is zero, by halving its logarithm's range."""
    low, high = math.log(MIN_STEP), math.log(MAX_STEP)
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if rising(math.exp(middle)) > 0 else (middle, high)
    return math.exp(0.5 * (low + high))
