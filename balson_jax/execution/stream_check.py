"""Are the error bars of problems wide enough? Judged from some of the targets, before any is fitted.

The residuals at the constrained optima are judged (see ``residuals.narrowness``). Only the part of the data that no
theta reaches matters. It is the same at the optimum and at the posterior mean, so no draws are needed.
"""

from __future__ import annotations

import dataclasses
import math
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np

from ..least_squares import least_squares
from ..problems.base import Template
from ..problems.linear import LinearTemplate
from ..problems.rows import Rows
from ..residuals.covariance import MAX_ROWS
from ..residuals.narrowness import geometry, narrowness

TOGETHER = 256
"""Targets whose optima are computed together."""

PERFECT = 1e-5
"""Residuals below this share of the target may be rounding errors. Such problems are left out."""


def narrow_factor(template: Template, targets: np.ndarray, places: np.ndarray | None = None) -> float:
    """Return how many times too narrow the error bars of linear problems are, as a whole.

    Args:
      template: of problems with one design, one axis of rows, and weights and noise of rows that all share.
      targets: ``(B, N)``; those with a number that is not finite are left out.
      places: coordinates of the rows, ``(N,)``; default: their numbers.

    Returns:
      The factor; NaN if the problems are of another kind, have more than ``MAX_ROWS`` rows, or fit perfectly.
    """
    if not template.is_quadratic or len(template.rows.event) != 1:
        return math.nan
    template = cast(LinearTemplate, template)
    if template.design.ndim > 2:
        return math.nan
    whole = np.flatnonzero(np.isfinite(targets).all(-1))
    if not len(whole) or targets.shape[-1] > MAX_ROWS:
        return math.nan
    template = dataclasses.replace(template, rows=dataclasses.replace(template.rows, missing="raise"))
    template, sample = template.take(whole, 1), jnp.asarray(targets[whole], template.design.dtype)
    data = template.rows.of(sample)
    own = (data.scale, 1), (data.cholesky, 2), (template.nuisance, 2)
    if any(array is not None and array.ndim > ndim for array, ndim in own):
        return math.nan
    places = np.arange(float(targets.shape[-1])) if places is None else np.asarray(places, np.float64)
    return _factor(template, data, places, np.asarray(sample, np.float64), _optima(template, sample))


def _optima(template: LinearTemplate, sample: jax.Array) -> np.ndarray:
    """Return constrained optima ``(B, P)``; by one program for any number of targets up to ``TOGETHER``."""
    index = np.resize(np.arange(len(sample)), -(-len(sample) // TOGETHER) * TOGETHER)
    problem = template.take(index, 1).with_targets(sample[index])
    return np.asarray(least_squares(problem).theta, np.float64)[: len(sample)]


def _factor(template: LinearTemplate, data: Rows, places: np.ndarray, sample: np.ndarray, theta: np.ndarray) -> float:
    """Return the factor for targets that are whole, with their optima."""
    design = np.asarray(template.design, np.float64)
    kept = slice(None) if data.scale is None else np.flatnonzero(np.asarray(data.scale) > 0)

    def whitened(rows: np.ndarray) -> np.ndarray:
        rows = rows if data.scale is None else rows * np.asarray(data.scale, np.float64)
        rows = rows if data.cholesky is None else np.linalg.solve(np.asarray(data.cholesky, np.float64), rows.T).T
        return rows[:, kept]

    columns = whitened(design.T).T
    lifted = np.asarray(template.constraint.lift(jnp.asarray(columns)), np.float64)
    nuisance = None if template.nuisance is None else whitened(np.asarray(template.nuisance, np.float64).T).T
    known = geometry(columns, lifted, nuisance, places[kept])
    left = whitened(sample - theta @ design.T)
    outside, size = left @ known.basis, known.basis.shape[1]
    half = 0.5 * np.square(outside).sum(1)
    if not size:
        return math.nan
    levels = np.asarray(data.noise.likeliest_level(jnp.asarray(float(size)), jnp.asarray(half)), np.float64)
    levels = np.broadcast_to(levels, half.shape)
    seen = np.sqrt(2 * half / size) > PERFECT * np.sqrt(np.square(whitened(sample)).mean(1))
    if nuisance is not None:
        span = np.linalg.qr(nuisance)[0]
        left = left - (left @ span) @ span.T
    z = left / np.maximum(levels, np.finfo(float).tiny)[:, None]
    return narrowness(z[seen], known, theta[seen]).overall if seen.any() else math.nan
