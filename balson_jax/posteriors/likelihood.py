"""The likelihood of single rows given draws of theta, for leave-one-out estimates.

With independent rows of level s, ``ln p(y_n | theta, s) = -ln(s sqrt(2 pi)) - (y_n - a_n theta)^2 / (2 s^2)``. An
unknown level belongs to the draw: given theta its variance is inverse gamma, with shape ``a + N / 2`` and scale
``b + |y - A theta|^2 / 2``, and one is drawn for each theta. Then theta and level are draws of their joint posterior.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from ..problems import noise_arguments

if TYPE_CHECKING:
    from .posterior import Posterior

SAME_RESIDUAL = 0.02
"""Residuals at the mean that differ from those of the fit by a larger share come from other data, or other weights."""

SAME_LEVEL = 0.05
"""The same for the mean of the noise level, which comes from other draws and has a Monte Carlo error."""


@dataclasses.dataclass(frozen=True)
class Likelihood:
    """Independent normal rows about ``design @ theta``.

    Attributes:
      design: ``(N, P)``.
      targets: ``(..., N)``, NaN where a row does not count.
      level: known standard deviations, of problems, ``(..., 1)``, or of rows, ``(..., N)``; ones if it is unknown.
      per_row: whether rows have levels of their own.
      prior: shape and scale of the prior of the variance, ``(...)`` each, or ``None`` if the level is known.
    """

    design: np.ndarray
    targets: np.ndarray
    level: np.ndarray
    per_row: bool
    prior: tuple[np.ndarray, np.ndarray] | None

    @staticmethod
    def read(posterior: Posterior, design: np.ndarray, targets: np.ndarray, noise: Any) -> Likelihood | None:
        """Return the likelihood; ``None`` if no noise is given and the posterior does not know enough of it."""
        asked = noise is not None and not isinstance(noise, str)
        trouble = _trouble(posterior, noise)
        if trouble is None:
            found = _read_noise(posterior, design, targets, noise)
            trouble = None if found is None else found.mismatch(posterior)
            if trouble is None:
                return found
        if asked:
            raise ValueError(f"noise was passed for log_likelihood, but {trouble}; leave it out")
        return None

    def of_draws(self, theta: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return levels, ``(n, ...)``, and the log-likelihood of rows, ``(n, ..., N)``, for draws ``(n, ..., P)``."""
        z = (self.targets - theta @ self.design.T) / self.level
        factor = np.ones(theta.shape[:-1])
        if self.prior is not None:
            shape, scale = self._given(z)
            factor = np.sqrt(scale / rng.standard_gamma(np.broadcast_to(shape, scale.shape)))
        level = factor[..., None] * self.level
        return factor, -0.5 * np.square(z / factor[..., None]) - np.log(level) - 0.5 * np.log(2 * np.pi)

    def _given(self, residuals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return shape and scale of the inverse gamma of the variance, given residuals ``(..., N)``."""
        assert self.prior is not None
        shape, scale = self.prior
        return shape + 0.5 * self.num_rows, scale + 0.5 * np.nansum(np.square(residuals), -1)

    @property
    def num_rows(self) -> np.ndarray:
        """How many rows count, ``(...)``."""
        return np.isfinite(self.targets).sum(-1)

    def mismatch(self, posterior: Posterior) -> str | None:
        """Return why these can't be the rows that were fitted, or ``None``."""
        if not np.array_equal(self.num_rows, np.broadcast_to(posterior.num_rows, self.num_rows.shape)):
            return "the fit counted other rows (a mask, weights of zero, or other targets)"
        mean = np.asarray(posterior.mean, np.float64)
        # The fit measures residuals in units of rows' own levels, if they have any.
        rows = (self.targets - mean @ self.design.T) / (self.level if self.per_row else 1)
        found = np.sqrt(np.nansum(np.square(rows), -1) / np.maximum(self.num_rows, 1))
        expected = np.asarray(posterior.residual, np.float64)
        # Differences as small as the rounding of the mean don't count.
        rounding = np.finfo(posterior.mean.dtype).eps * np.abs(self.design).max(initial=0) * np.abs(mean).sum(-1)
        if not _close(found, expected, SAME_RESIDUAL, 8 * rounding):
            return "residuals are not those of the fit (other data, or weights of rows)"
        if self.prior is None or posterior.noise is None:
            return None
        draws, weights = (np.asarray(part, np.float64) for part in (posterior.draws, posterior.draw_weights))
        shape, scale = self._given(np.moveaxis(self.targets[..., None, :] - draws @ self.design.T, -2, 0))
        # The mean of 1 / sqrt(gamma), to 1 % from three rows on.
        each = np.sqrt(scale / np.maximum(shape - 0.75, 0.25))
        found = (np.moveaxis(weights, -1, 0) * each).sum(0)
        if not _close(found, np.asarray(posterior.noise.mean, np.float64), SAME_LEVEL, 8 * rounding):
            return "the level of the noise is not that of the fit (another prior, or weights of rows)"
        return None


def _close(found: np.ndarray, expected: np.ndarray, share: float, rounding: np.ndarray) -> bool:
    """Return whether numbers agree to a share of those expected; those that are not finite don't count."""
    differs = np.abs(found - expected) > share * expected + rounding
    return not (differs & np.isfinite(found) & np.isfinite(expected)).any()


def _trouble(posterior: Posterior, noise: Any) -> str | None:
    """Return why there is no likelihood of single rows, or ``None``."""
    if posterior.nuisance is not None:
        return "the problem had nuisance columns"
    if posterior.sharpened:
        return "the data were counted more than once, so that this is not the posterior"
    if any(part is not None for part in noise_arguments.split(noise)[1:]):
        return "rows of correlated noise are not independent"
    if not posterior.certified:
        return "the design was uncertain, or the model not linear"
    return None


def _read_noise(posterior: Posterior, design: np.ndarray, targets: np.ndarray, noise: Any) -> Likelihood | None:
    batch, ones = posterior.batch_shape, np.ones((*posterior.batch_shape, 1))
    if posterior.noise is None:
        if noise is None:
            return None
        model, rows = noise_arguments.level_of(noise, targets.shape[-1:], batch, None)
        if not model.has_fixed_level:
            raise ValueError(f"noise={noise!r}: this fit was given the noise; pass it as a number or an array")
        known = np.asarray(model, np.float64)[..., None] * ones
        if rows is None:
            return Likelihood(design, targets, known, False, None)
        return Likelihood(design, targets, known * np.asarray(rows, np.float64), True, None)
    if noise is None and not np.all(posterior.noise.relative):
        return None
    model, _ = noise_arguments.level_of("estimate" if noise is None else noise, targets.shape[-1:], batch, None)
    prior = model.variance_prior()
    if prior is None:
        raise ValueError(f"noise={noise!r}: this fit estimated the noise; leave it out, or pass its InverseGamma")
    shape, scale = (np.broadcast_to(np.asarray(part, np.float64), batch) for part in (prior.shape, prior.scale))
    return Likelihood(design, targets, ones, False, (shape, scale))
