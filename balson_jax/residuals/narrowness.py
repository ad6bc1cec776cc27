"""How many times too narrow error bars are, from residuals: of a batch as a whole, and of each of its problems.

A covariance S of the residuals with few parameters (see ``covariance``) is fitted to the part of the data that no theta
reaches. Errors of theta then have the covariance ``D S D'`` with D the pseudo-inverse of the columns less their mean
(least squares for a fixed sum, without walls; the sandwich of Huber 1967 and White 1980), while the plain model says
``D D'`` in units of its noise level. The factor f is the root of the ratio of their traces. S is the likeliest under a
prior ``exp(-g / 2)``, with g the part of f^2 that comes from correlated errors. A batch overrules this prior; the
residuals of a single target, which fit some smooth error by chance, do not.

The problems of a batch differ. Problem i is given the covariance ``a_i (W + r_i C)`` with W the levels of rows and C
the components, both of the batch. In coordinates in which W is the identity and C diagonal, the likelihood of ``r_i``
with ``a_i`` integrated out is a sum over coordinates. The distribution of r over the problems is the likeliest on a
grid (Kiefer and Wolfowitz 1956), so that a problem's few residuals count as far as problems do differ. Its factor is
the exponential of the posterior mean of the logarithm.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from . import covariance as covariances
from .covariance import Covariance

NARROW = 1.5
"""Error bars that are too narrow by more than this factor set ``Status.OVERCONFIDENT``."""

SHOWN = 1.3
"""No problem is called overconfident in a batch whose factor is smaller than this."""

AMOUNTS = np.concatenate([[0.0], 2.0 ** np.arange(-3, 6.5, 0.5)])
"""Amounts of correlated errors that a problem may have, as multiples of the batch's."""

PRIOR_PROBLEMS = 1
"""Each step counts this many extra problems with an amount of 1, the batch's own."""

MIXTURE_STEPS = 50


class Narrowness(NamedTuple):
    """How many times too narrow error bars are.

    Attributes:
      overall: of the batch as a whole; NaN for more than ``MAX_ROWS`` rows.
      each: of each problem, ``(B,)``.
    """

    overall: float
    each: np.ndarray

    @property
    def overconfident(self) -> np.ndarray:
        """Which problems are overconfident, ``(B,)``: those whose own factor is large in a batch that shows it."""
        return np.logical_and(self.each > NARROW, self.overall > SHOWN)


@dataclasses.dataclass(frozen=True)
class Geometry:
    """A whitened design: its linear estimate, and the part of the data that no theta reaches. Made by ``geometry``.

    Attributes:
      columns: the design, ``(N, P)``.
      basis: of what no theta and no nuisance column reaches, orthonormal, ``(N, n)``.
      back: the linear estimate of omega for a fixed sum, ``(K, N)``.
      places: coordinates of the rows, ``(N,)``.
    """

    columns: np.ndarray
    basis: np.ndarray
    back: np.ndarray
    places: np.ndarray

    def ratio(self, matrix: np.ndarray) -> float:
        """Return how many times larger a covariance makes errors of theta than the identity, in variance."""
        return float(np.einsum("kn,nm,km->", self.back, matrix, self.back, optimize=True) / np.square(self.back).sum())


def geometry(
    columns: np.ndarray, lifted: np.ndarray, nuisance: np.ndarray | None = None, places: np.ndarray | None = None
) -> Geometry:
    """Return the geometry of a whitened design.

    Args:
      columns: the design, ``(N, P)``.
      lifted: the same for all components of omega, ``(N, K)``.
      nuisance: nuisance columns, ``(N, q)``, or ``None``.
      places: coordinates of the rows, ``(N,)``; default: their numbers.
    """
    span = None if nuisance is None else np.linalg.qr(nuisance)[0]
    centred = lifted - lifted.mean(1, keepdims=True)
    if span is not None:
        centred = centred - span @ (span.T @ centred)
    back = np.linalg.pinv(centred, rcond=1e-6)
    places = np.arange(float(len(columns))) if places is None else places
    return Geometry(columns, covariances.outside(lifted, span), back, places)


def narrowness(z: np.ndarray, known: Geometry, theta: np.ndarray) -> Narrowness:
    """Return how many times larger errors of theta are than independent rows of unit level would make them.

    Args:
      z: residuals in units of the noise, ``(B, N)``; NaN where a row is missing.
      known: the whitened rows.
      theta: estimates, ``(B, P)``.
    """
    count, num_rows = z.shape
    if num_rows > covariances.MAX_ROWS:
        return Narrowness(np.nan, np.full(count, np.nan))
    if known.basis.shape[1] < 2 or not known.back.any():
        return Narrowness(1.0, np.ones(count))
    missing = np.isnan(z)
    whole = np.logical_not(missing.any(1))
    # Missing residuals are set to zero. The others are scaled up to make up for them.
    share = np.sqrt(num_rows / np.maximum(num_rows - missing.sum(1, keepdims=True), 1))
    filled = np.where(whole[:, None], z, np.nan_to_num(z) * share)
    inside = filled @ known.basis
    fitted = _fitted(*((filled, inside, theta) if whole.sum() < 2 else (z[whole], inside[whole], theta[whole])), known)
    rows = known.ratio(np.diag(fitted.levels))
    components = known.ratio(fitted.matrix) - rows
    overall = float(np.sqrt(max(rows + components, 0)))
    if count == 1:
        return Narrowness(overall, np.array([overall]))
    return Narrowness(overall, np.sqrt(_each(inside, fitted, known.basis, rows, max(components, 0))))


def _fitted(z: np.ndarray, inside: np.ndarray, theta: np.ndarray, known: Geometry) -> Covariance:
    """Return the likeliest covariance of residuals that are given by rows, and by their coordinates in the basis."""
    # In units of the residuals, so that components have the right size.
    size = max(np.sqrt(np.mean(np.square(theta @ known.columns.T))), np.finfo(float).tiny)
    start = covariances.with_components(covariances.rows_only(z), known.columns / size, theta, known.places)
    moment = inside.T @ inside / len(z)
    penalty = np.array([known.ratio(part) for part in start.parts])
    return start.fitted(moment, len(z), covariances.FIRST_STEPS, known.basis, penalty)


def _each(inside: np.ndarray, fitted: Covariance, basis: np.ndarray, rows: float, components: float) -> np.ndarray:
    """Return the square of each problem's factor, ``(B,)``, given the parts due to levels of rows and to components."""
    root = np.linalg.inv(np.linalg.cholesky((basis.T * fitted.levels) @ basis))
    mixed = basis.T @ (fitted.matrix - np.diag(fitted.levels)) @ basis
    values, vectors = np.linalg.eigh(root @ mixed @ root.T)
    squares = np.square(inside @ root.T @ vectors)
    variances = 1 + np.maximum(values, 0)[:, None] * AMOUNTS
    sums, size = np.maximum(squares @ (1 / variances), np.finfo(float).tiny), len(values)
    logs = -0.5 * (np.log(variances).sum(0) + size * np.log(sums))
    likelihood = np.exp(logs - logs.max(1, keepdims=True))
    common = PRIOR_PROBLEMS * (AMOUNTS == 1)
    shares = np.full(AMOUNTS.size, 1 / AMOUNTS.size)
    own = shares * likelihood
    for _ in range(MIXTURE_STEPS):
        own = shares * likelihood
        own /= own.sum(1, keepdims=True)
        shares = (own.sum(0) + common) / (len(own) + PRIOR_PROBLEMS)
    logs = _shrunk(np.log(sums / size), own, size) + np.log(rows + AMOUNTS * components)
    return np.exp((own * logs).sum(1))


def _shrunk(levels: np.ndarray, own: np.ndarray, size: int) -> np.ndarray:
    """Return log-variances drawn to their mean, as far as chance explains their spread, ``(B, amounts)``.

    Args:
      levels: the log-variances.
      own: the probability of each amount, ``(B, amounts)``.
      size: number of residuals of a problem.
    """
    from scipy import special  # slow to import

    levels = levels - special.digamma(size / 2) + np.log(size / 2)
    mine = (own * levels).sum(1)
    chance = special.polygamma(1, size / 2)
    kept = max(mine.var() - chance, 0) / max(mine.var(), chance)
    return levels + (1 - kept) * (mine.mean() - mine)[:, None]
