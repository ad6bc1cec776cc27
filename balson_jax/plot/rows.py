"""Pictures of the rows: predictions beside the data, and residuals."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..posteriors.posterior import Posterior
from .canvas import DARK, LIGHT, MIDDLE, new_axes, new_figure, one


def predictive(
    posterior: Posterior,
    design: Any,
    target: Any,
    x: Any = None,
    *,
    problem: Any = None,
    level: float = 0.9,
    noise: Any = None,
    nuisance: Any = None,
    ax: Any = None,
) -> Any:
    """Draw the data beside the fitted curve: its band, and the band of new observations.

    Args:
      posterior: with kept draws.
      design: ``(N, P)``.
      target: ``(N,)``, or of a batch ``(..., N)``.
      x: coordinates of the rows, ``(N,)``; default: their numbers.
      problem: index of a problem of a batch.
      level: probability of the bands.
      noise: standard deviation of the noise, if it was given to the fit; an estimated one comes from the posterior.
      nuisance: nuisance columns, ``(N, q)``, if the problem had any; an intercept is added by itself.
      ax: axes to draw on; default: new ones.
    """
    single = one(posterior, problem, "predictive")
    observed = np.asarray(target) if problem is None else np.asarray(target)[problem]
    wide = np.asarray(design)
    if observed.shape != wide.shape[:1]:
        raise ValueError(f"target has shape {observed.shape}; pass one number for each of {len(wide)} rows")
    x = np.arange(len(wide)) if x is None else np.asarray(x)
    order = np.argsort(x, kind="stable")
    ax = new_axes(ax, (7, 4))
    noise = ("estimate" if single.noise is not None else 0.0) if noise is None else noise
    curve = single.predict(wide, level, nuisance=nuisance)
    if not (np.isscalar(noise) and noise == 0):
        around = single.predict(wide, level, noise=noise, nuisance=nuisance)
        low, high = np.asarray(around.lower)[order], np.asarray(around.upper)[order]
        ax.fill_between(x[order], low, high, color=LIGHT, lw=0, label=f"{100 * level:g} % of new observations")
    low, high = np.asarray(curve.lower)[order], np.asarray(curve.upper)[order]
    ax.fill_between(x[order], low, high, color=MIDDLE, lw=0, label=f"{100 * level:g} % of curves")
    ax.plot(x[order], np.asarray(curve.mean)[order], color=DARK, lw=1.5, label="posterior mean")
    ax.plot(x, observed, "o", ms=4, mfc="white", mec="0.1", label="data")
    ax.set(xlabel="row", ylabel="target")
    ax.legend(fontsize="small", frameon=False)
    return ax


def residuals(
    posterior: Posterior, design: Any, target: Any, x: Any = None, *, nuisance: Any = None, figure: Any = None
) -> Any:
    """Draw the residuals at the posterior mean: by row, and against a normal distribution.

    Of a batch, the median and the range of nine problems of ten are drawn. Residuals that wander slowly from row to row
    mean that error bars are too narrow; ``balson_jax.check`` says by how much.

    Args:
      posterior: of one problem or a batch.
      design: ``(N, P)``.
      target: ``(..., N)``.
      x: coordinates of the rows, ``(N,)``; default: their numbers.
      nuisance: nuisance columns, ``(N, q)``, if the problem had any; an intercept is added by itself.
      figure: to draw on; default: a new one.

    Returns:
      An array of two axes.
    """
    wide, observed = np.asarray(design, np.float64), np.asarray(target, np.float64)
    if observed.shape != (*posterior.batch_shape, len(wide)):
        wanted = (*posterior.batch_shape, len(wide))
        raise ValueError(f"target has shape {observed.shape}; pass {wanted}, the problems and the design's rows")
    fitted = np.asarray(posterior.mean, np.float64) @ wide.T
    if posterior.nuisance is not None:
        columns = np.asarray(posterior.nuisance.columns(nuisance, len(wide), posterior.mean.dtype), np.float64)
        fitted = fitted + np.asarray(posterior.nuisance.mean, np.float64) @ columns.T
    left = (observed - fitted).reshape(-1, len(wide))
    x = np.arange(len(wide)) if x is None else np.asarray(x)
    figure = new_figure(figure, (9, 3.4))
    by_row, normal = figure.subplots(1, 2)
    order = np.argsort(x, kind="stable")
    by_row.axhline(0, color="0.5", lw=1)
    if len(left) == 1:
        by_row.plot(x[order], left[0, order], "-o", color=DARK, ms=3, lw=0.6)
    else:
        low, middle, high = np.nanquantile(left, [0.05, 0.5, 0.95], axis=0)
        by_row.fill_between(x[order], low[order], high[order], color=LIGHT, lw=0, label="90 % of the problems")
        by_row.plot(x[order], middle[order], color=DARK, label="median")
        by_row.legend(fontsize="small", frameon=False)
    by_row.set(xlabel="row", ylabel="residual", title="Residuals")
    _against_normal(normal, left)
    return np.array([by_row, normal])


def _against_normal(ax: Any, left: np.ndarray) -> None:
    """Draw quantiles of residuals, each problem's in units of its root mean square, against a normal's."""
    from statistics import NormalDist

    scale = np.sqrt(np.nanmean(np.square(left), -1, keepdims=True))
    known = np.sort((left / np.where(scale > 0, scale, 1))[np.isfinite(left)])
    at = (np.arange(min(len(known), 200)) + 0.5) / max(1, min(len(known), 200))
    expected = [NormalDist().inv_cdf(p) for p in at]
    ax.axline((0, 0), slope=1, color="0.5", lw=1)
    ax.plot(expected, np.quantile(known, at) if len(known) else [], "o", ms=3, color=DARK)
    ax.set(xlabel="normal quantile", ylabel="residual / root mean square", title="Normal?")
