"""How many times too narrow error bars are, from residuals.

A covariance S of the residuals with few parameters (see ``covariance``) is fitted to the part of the data that no theta
reaches. Errors of theta then have the covariance ``D S D'`` with D the pseudo-inverse of differences of columns (the
sandwich of White 1980), while the plain model says ``D D'`` in units of its noise level.
"""

from __future__ import annotations

import numpy as np

from . import covariance as covariances

NARROW = 1.5
"""Error bars that are too narrow by more than this factor set ``Status.OVERCONFIDENT``."""


def narrowness(z: np.ndarray, columns: np.ndarray, mean: np.ndarray, lifted: np.ndarray) -> float:
    """Return how many times larger errors of theta are than independent rows of unit level would make them.

    Args:
      z: residuals in units of the noise, ``(B, N)``; NaN where a row is missing.
      columns: the whitened design, ``(N, P)``.
      mean: estimates of theta, ``(B, P)``.
      lifted: the whitened design lifted to the components of omega, ``(N, K)``.

    Returns:
      The factor; NaN for more than ``MAX_ROWS`` rows.
    """
    if z.shape[1] > covariances.MAX_ROWS:
        return np.nan
    whole = ~np.isnan(z).any(1)
    z, mean = (z[whole], mean[whole]) if whole.sum() > 1 else (np.nan_to_num(z), mean)
    # In units of the residuals, so that components have the right size.
    size = max(np.sqrt(np.mean(np.square(mean @ columns.T))), np.finfo(float).tiny)
    own, lifted = columns / size, lifted / size
    start = covariances.with_components(covariances.rows_only(z), own, mean, np.arange(float(z.shape[1])))
    basis = covariances.outside(lifted)
    if basis.shape[1] < 2:
        return 1.0
    inside = z @ basis
    fitted = start.fitted(inside.T @ inside / len(z), len(z), covariances.FIRST_STEPS, basis)
    back = np.linalg.pinv(lifted[:, 1:] - lifted[:, :1], rcond=1e-6)
    return float(np.sqrt(np.trace(back @ fitted.matrix @ back.T) / np.trace(back @ back.T)))
