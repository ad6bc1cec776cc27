"""Is a fit believable? Residuals, their correlation, predictions of left-out rows, and the width of error bars.

A fit reduces its rows to a few, at most one per component, and no longer sees the rows themselves. They are checked
here. The factor by which error bars are too narrow follows from a covariance of the residuals (see
``residuals.narrowness``).
"""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import tables, validation
from ..posteriors.posterior import Posterior
from ..problems import noise_arguments, rows
from ..problems import nuisance as nuisance_columns
from ..residuals.narrowness import geometry, narrowness
from ..status import Status
from .checked import Check

MOST_PROBLEMS = 1000
LEFT_OUT_PROBLEMS = 100
LAGS = 20


def check(
    design: Any,
    targets: Any,
    posterior: Posterior,
    *,
    noise: Any = None,
    weights: Any = None,
    nuisance: Any = None,
    intercept: bool = False,
) -> Check:
    """Look at the rows of a fit: does the model describe them, and are its error bars wide enough?

    Args:
      design: ``(N, P)``, as for ``linear_problem``.
      targets: ``(B, N)``, or ``(N,)`` for one problem; NaN where a row is missing. Tables are read as by
        ``linear_problem``.
      posterior: of these problems. Of a large batch, 1,000 are looked at.
      noise: as it was given to ``linear_problem``: a level (a number, or one per row or problem), or ``Correlated``.
        After ``learn`` it is ``Correlated(learned.covariance)`` or ``learned.levels``. ``None`` if it was estimated.
      weights: of the rows, ``(N,)``, if there were any.
      nuisance: nuisance columns, ``(N, q)``, if there were any. Residuals lack their part in the span of these.
      intercept: whether there was one.

    Returns:
      A ``Check``, whose printed form says what was found and what to do.

    >>> import jax, balson_jax as balson
    >>> rng = np.random.default_rng(0)
    >>> design = np.cumsum(rng.normal(size=(40, 3)), axis=0)
    >>> targets = rng.dirichlet(np.ones(3), 50) @ design.T + 0.1 * np.cumsum(rng.normal(size=(50, 40)), axis=1)
    >>> posterior = balson.fit(jax.random.key(0), balson.linear_problem(design, targets), balson.IS(4096))
    >>> found = check(design, targets, posterior)
    >>> found.narrow > 2
    True
    """
    options = {"noise": noise, "weights": weights, "nuisance": nuisance}
    design, targets, options, _ = tables.read(design, targets, options, "targets")
    noise, weights, nuisance = options.values()
    wide, data = _read(design, targets, posterior)
    extra = _nuisance(nuisance, intercept, wide, posterior)
    chosen = np.unique(np.linspace(0, len(data) - 1, min(len(data), MOST_PROBLEMS)).astype(int))
    found = posterior if posterior.batch_shape else _as_batch(posterior)
    found, data = found[chosen], data[chosen]
    num_rows = len(wide)
    scale, cholesky, levels = _noise(noise, weights, found, num_rows, chosen)
    mean = np.asarray(found.mean, np.float64)
    # Rows that no problem has, such as bad bands, and rows of weight zero tell nothing.
    missing = np.isnan(data) | (False if scale is None else np.asarray(scale) == 0)
    seen = np.flatnonzero(~missing.all(0))
    wide, data, missing, extra = wide[seen], data[:, seen], missing[:, seen], None if extra is None else extra[seen]
    scale = None if scale is None else scale[..., seen]
    if cholesky is not None and len(seen) < num_rows:
        part = np.asarray(cholesky, np.float64)[..., seen, :]
        cholesky = jnp.asarray(np.linalg.cholesky(part @ np.swapaxes(part, -1, -2)), cholesky.dtype)

    # In whitened units the noise of the model is independent and of equal level.
    def whitened(values: np.ndarray) -> np.ndarray:
        return np.asarray(rows.whiten(jnp.asarray(values), scale, cholesky), np.float64)

    columns = whitened(wide.T).T
    fitted = mean @ wide.T
    if extra is None:
        basis, spare = None, np.zeros((len(wide), 0))
    else:
        fitted = fitted + np.asarray(found.nuisance.mean, np.float64) @ extra.T  # type: ignore[union-attr]
        spare = whitened(extra.T).T
        basis = np.linalg.qr(spare)[0]
    # Subtracted before they are whitened: residuals are small, and rows may not be.
    left = whitened(np.where(missing, 0, data - fitted))
    if basis is not None:
        left = left - (left @ basis) @ basis.T
    residuals = np.where(missing, np.nan, left)
    if levels is None:
        levels = np.sqrt(np.nansum(np.square(residuals), 1) / np.maximum((~missing).sum(1) - spare.shape[1], 1))
    z = residuals / np.maximum(levels, np.finfo(float).tiny)[:, None]
    lifted = np.asarray(found.constraint.lift(jnp.asarray(columns)), np.float64)
    judged = narrowness(z, geometry(columns, lifted, None if extra is None else spare, seen.astype(float)), mean)
    left_out = _left_out(columns, spare, whitened(np.where(missing, fitted, data)), missing, levels, found)
    z, left_out = (_on_all_rows(values, seen, num_rows) for values in (z, left_out))
    return Check(
        narrow=judged.overall,
        narrow_each=judged.each,
        residuals=z,
        correlation=_correlation(z),
        p_value=_p_value(z),
        left_out=left_out,
        residual=np.asarray(found.residual),
        least_residual=np.asarray(found.least_residual),
        status=np.asarray(found.status) | np.where(judged.overconfident, int(Status.OVERCONFIDENT), 0),
        problems=chosen,
    )


def _read(design: Any, targets: Any, posterior: Posterior) -> tuple[np.ndarray, np.ndarray]:
    wide = np.asarray(validation.float_array("design", design), np.float64)
    data = np.asarray(validation.float_array("targets", targets), np.float64)
    if wide.ndim != 2 or wide.shape[1] != posterior.num_params:
        raise ValueError(f"design has shape {wide.shape}; pass the (N, {posterior.num_params}) that was fitted")
    data = data[None] if data.ndim == 1 else data
    if data.ndim != 2 or data.shape[1] != len(wide):
        raise ValueError(f"targets has shape {data.shape}; its last axis must have the design's {len(wide)} rows")
    if len(posterior.batch_shape) > 1 or data.shape[0] != max(1, int(np.prod(posterior.batch_shape))):
        raise ValueError(f"targets has {len(data)} problems, and posterior a batch of shape {posterior.batch_shape}")
    posterior.require_draws("check")
    return wide, data


def _nuisance(nuisance: Any, intercept: bool, wide: np.ndarray, posterior: Posterior) -> np.ndarray | None:
    """Return the nuisance columns, ``(N, q)``, or ``None``; or raise if they are not those that were fitted."""
    if np.ndim(nuisance) > 2:
        raise ValueError(f"nuisance has shape {np.shape(nuisance)}; check needs one (N, q) for all problems")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # linear_problem has warned of columns that the design holds
        columns = nuisance_columns.read(nuisance, intercept, jnp.asarray(wide), (len(wide),), ())
    own = posterior.nuisance
    fitted = (0, False) if own is None else (own.mean.shape[-1], own.intercept)
    if (0 if columns is None else columns.shape[-1], bool(intercept)) != fitted:
        given = f"{0 if columns is None else columns.shape[-1]} nuisance columns, intercept={bool(intercept)}"
        raise ValueError(
            f"{given}; the posterior has {fitted[0]} (an intercept is one), intercept={fitted[1]}: pass nuisance and "
            "intercept as to linear_problem"
        )
    return None if columns is None else np.asarray(columns, np.float64)


def _as_batch(posterior: Posterior) -> Posterior:
    return jax.tree.map(lambda leaf: leaf[None], posterior)


def _noise(noise: Any, weights: Any, found: Posterior, num_rows: int, chosen: np.ndarray) -> tuple[Any, Any, Any]:
    """Return factors of the rows, a Cholesky factor, and levels of the problems, each ``None`` if there is none."""
    scale = None if weights is None else jnp.sqrt(validation.float_array("weights", weights))
    levels = None if found.noise is None else np.asarray(found.noise.mean, np.float64)
    level, covariance, cholesky = noise_arguments.split(noise)
    if covariance is not None:
        cholesky = np.linalg.cholesky(np.asarray(covariance, np.float64))
    cholesky = None if cholesky is None else jnp.asarray(cholesky)
    if level is None or (levels is not None and np.ndim(level) == 0):
        return scale, cholesky, levels
    given = np.asarray(level, np.float64)
    if given.ndim == 2 and given.shape[1] == 1:  # one per problem
        given = given[:, 0]
    if given.ndim > 1:
        raise ValueError(f"noise has shape {given.shape}; check takes one level per row, or one per problem")
    if given.shape == (num_rows,):
        inverse = jnp.asarray(1 / given)
        return (inverse if scale is None else scale * inverse), None, np.ones(len(chosen)) if levels is None else levels
    return scale, cholesky, np.broadcast_to(given, chosen.max() + 1 if given.ndim == 0 else given.shape)[chosen]


def _on_all_rows(values: np.ndarray, seen: np.ndarray, num_rows: int) -> np.ndarray:
    """Return values of some rows, ``(B, n)``, as those of all, ``(B, N)``; NaN for the others."""
    whole = np.full((len(values), num_rows), np.nan)
    whole[:, seen] = values
    return whole


def _correlation(z: np.ndarray) -> np.ndarray:
    """Return correlations of residuals at distances of rows, averaged over problems."""
    known = np.nan_to_num(z)
    counts = ~np.isnan(z)
    lags = range(min(LAGS + 1, z.shape[1]))
    sums = [(known[:, : z.shape[1] - lag] * known[:, lag:]).sum() for lag in lags]
    pairs = [(counts[:, : z.shape[1] - lag] & counts[:, lag:]).sum() for lag in lags]
    means = np.asarray(sums) / np.maximum(pairs, 1)
    return means / max(means[0], np.finfo(float).tiny) if len(means) > 1 else np.append(means, 0.0)


def _p_value(z: np.ndarray) -> np.ndarray:
    """Return p-values of the lag-one correlation of residuals, whose standard error is about one over root N."""
    from scipy.special import ndtr  # slow to import

    known, counts = np.nan_to_num(z), ~np.isnan(z)
    pairs = np.maximum((counts[:, 1:] & counts[:, :-1]).sum(1), 1)
    squares = np.maximum(np.square(known).sum(1) / np.maximum(counts.sum(1), 1), np.finfo(float).tiny)
    correlation = (known[:, 1:] * known[:, :-1]).sum(1) / pairs / squares
    return 2 * ndtr(-np.abs(correlation) * np.sqrt(pairs))


def _left_out(
    columns: np.ndarray,
    spare: np.ndarray,
    data: np.ndarray,
    missing: np.ndarray,
    levels: np.ndarray,
    found: Posterior,
) -> np.ndarray:
    """Return, for each row, the probability of a smaller value that a fit without that row predicts, ``(B', N)``.

    Kept draws are weighted by one over the row's likelihood (Gelfand, Dey and Chang 1992); weights are cut at ten times
    their mean. ``spare`` are nuisance columns, ``(N, q)``, whose coefficients are drawn with theta.
    """
    from scipy.special import ndtr

    several = np.unique(np.linspace(0, len(data) - 1, min(len(data), LEFT_OUT_PROBLEMS)).astype(int))
    draws, weights = np.asarray(found.draws, np.float64), np.asarray(found.draw_weights, np.float64)
    if found.nuisance is not None:
        draws = np.concatenate([draws, np.asarray(found.nuisance.draws, np.float64)], -1)
        columns = np.hstack([columns, spare])
    below = np.empty((len(several), data.shape[1]))
    for place, i in enumerate(several):
        away = (data[i] - draws[i] @ columns.T) / levels[i]
        own = weights[i][:, None] * np.exp(np.minimum(0.5 * np.square(away), 50))
        own = np.minimum(own, 10 * own.mean(0))
        below[place] = (own * ndtr(away)).sum(0) / own.sum(0)
    return np.where(missing[several], np.nan, below)
