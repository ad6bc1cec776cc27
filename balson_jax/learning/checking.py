"""Is a fit believable? Residuals, their correlation, predictions of left-out rows, and the width of error bars.

A fit reduces its rows to as many numbers as there are components and can't see them any more. Here they are looked at
again. How much too narrow error bars are follows from a covariance of the residuals (see ``residuals.narrowness``).
"""

from __future__ import annotations

import dataclasses
import textwrap
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from .. import validation
from ..posteriors.posterior import Posterior
from ..problems import noise_arguments, rows
from ..residuals import covariance as covariances
from ..residuals.narrowness import NARROW, narrowness
from ..status import Status

MOST_PROBLEMS = 1000
LEFT_OUT_PROBLEMS = 100
LAGS = 20


@dataclasses.dataclass(frozen=True)
class Check:
    """What ``check`` found; (B,) are the problems looked at.

    Attributes:
      narrow: by which factor error bars are too narrow, where no bound of theta holds them; of the batch as a whole.
        NaN for more than 1,000 rows.
      residuals: standardised, ``(B, N)``; independent and of unit variance, if the model is right.
      correlation: of residuals of rows at distances 0, 1, 2, ..., ``(lags,)``.
      p_value: probability of neighbouring residuals as correlated as these, if the model is right, ``(B,)``.
      left_out: for each row, the probability that fits without it give to smaller values, ``(B', N)``: uniform, if the
        model is right.
      residual: root mean square of the residuals at the posterior mean, ``(B,)``.
      least_residual: the same at the constrained optimum, ``(B,)``; both as the fit found them.
      status: of the fits, with ``OVERCONFIDENT`` if error bars are too narrow, ``(B,)``.
      problems: numbers of the problems looked at, ``(B,)``.
    """

    narrow: float
    residuals: np.ndarray
    correlation: np.ndarray
    p_value: np.ndarray
    left_out: np.ndarray
    residual: np.ndarray
    least_residual: np.ndarray
    status: np.ndarray
    problems: np.ndarray

    @property
    def left_out_coverage(self) -> float:
        """Share of rows in the 90 % interval that a fit without them predicts."""
        known = self.left_out[np.isfinite(self.left_out)]
        return float(((known >= 0.05) & (known <= 0.95)).mean())

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.status.any()

    def __repr__(self) -> str:
        """Return what was found, in words, and what to do."""
        count = len(self.problems)
        lines = [
            f"Check of {count:,} problem{'s' * (count != 1)} with {self.residuals.shape[1]:,} rows",
            f"error bars: {_words(self.narrow)}",
            f"neighbouring residuals: correlation {self.correlation[1]:+.2f}; in "
            f"{100 * (self.p_value < 0.01).mean():.0f} % of the problems more than chance explains",
            f"rows left out: {100 * self.left_out_coverage:.0f} % lie in the 90 % interval that the others predict",
            f"residual, root mean square: {np.median(self.residual):.3g} at the posterior mean, "
            f"{np.median(self.least_residual):.3g} at best (medians)",
        ]
        union = Status(int(np.bitwise_or.reduce(self.status, initial=0)))
        if union:
            lines.append(textwrap.fill(union.explain(), 100))
        return "\n".join(lines)

    def plot(self, figure: Any = None) -> Any:
        """Draw residuals by row, their correlation, and predictions of left-out rows; return the Matplotlib figure."""
        if figure is None:
            from matplotlib.figure import Figure

            figure = Figure(figsize=(10, 3), layout="constrained")
        by_row, lags, ranks = figure.subplots(1, 3)
        number = np.arange(self.residuals.shape[1])
        low, middle, high = np.nanquantile(self.residuals, [0.05, 0.5, 0.95], axis=0)
        by_row.fill_between(number, low, high, color="0.8", label="90 % of the problems")
        by_row.plot(number, middle, color="0.2", label="median")
        for level in (-1.645, 1.645):
            by_row.axhline(level, color="0.5", lw=1, ls=":")
        by_row.set(xlabel="row", ylabel="standardised residual", title="Residuals")
        by_row.legend(fontsize="small")
        lags.bar(np.arange(1, len(self.correlation)), self.correlation[1:], color="0.4")
        lags.set(xlabel="distance of rows", ylabel="correlation", ylim=(-1, 1), title="Residuals go together?")
        known = self.left_out[np.isfinite(self.left_out)]
        ranks.hist(known, bins=20, range=(0, 1), density=True, color="0.6", edgecolor="white")
        ranks.axhline(1, color="0.2", lw=1)
        ranks.set(xlabel="predicted probability below the row", ylabel="density", title="Rows left out")
        return figure


def _words(narrow: float) -> str:
    if np.isnan(narrow):
        return f"not judged, as there are more than {covariances.MAX_ROWS:,} rows"
    if narrow > NARROW:
        return f"too narrow by a factor of {narrow:.1f}"
    return f"about right (errors {narrow:.2f} times as large as they say)"


def check(design: Any, targets: Any, posterior: Posterior, *, noise: Any = None, weights: Any = None) -> Check:
    """Look at the rows of a fit: does the model describe them, and are its error bars wide enough?

    Args:
      design: ``(N, P)``, as for ``linear_problem``.
      targets: ``(B, N)``, or ``(N,)`` for one problem; NaN where a row is missing.
      posterior: of these problems. Of a large batch, 1,000 are looked at.
      noise: as it was given to ``linear_problem``: a level (a number, or one per row or problem), or ``Correlated``; as
        ``Correlated(learned.covariance)`` or ``learned.levels``. ``None`` if it was estimated.
      weights: of the rows, ``(N,)``, if there were any.

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
    wide, data = _read(design, targets, posterior)
    chosen = np.unique(np.linspace(0, len(data) - 1, min(len(data), MOST_PROBLEMS)).astype(int))
    found = posterior if posterior.batch_shape else _as_batch(posterior)
    found, data = found[chosen], data[chosen]
    scale, cholesky, levels = _noise(noise, weights, found, wide.shape[0], chosen)
    mean = np.asarray(found.mean, np.float64)
    # Whitened, so that the model says: independent, of equal level.
    columns = np.asarray(rows.whiten(jnp.asarray(wide.T), scale, cholesky), np.float64).T
    missing = np.isnan(data)
    data = np.asarray(rows.whiten(jnp.asarray(np.where(missing, mean @ wide.T, data)), scale, cholesky), np.float64)
    residuals = np.where(missing, np.nan, data - mean @ columns.T)
    if levels is None:
        levels = np.sqrt(np.nanmean(np.square(residuals), 1))
    z = residuals / np.maximum(levels, np.finfo(float).tiny)[:, None]
    narrow = narrowness(z, columns, mean, np.asarray(found.constraint.lift(jnp.asarray(columns)), np.float64))
    status = np.asarray(found.status) | (int(Status.OVERCONFIDENT) if narrow > NARROW else 0)
    return Check(
        narrow=narrow,
        residuals=z,
        correlation=_correlation(z),
        p_value=_p_value(z),
        left_out=_left_out(columns, data, missing, levels, found),
        residual=np.asarray(found.residual),
        least_residual=np.asarray(found.least_residual),
        status=status,
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
    if posterior.nuisance is not None:
        raise ValueError("posterior has nuisance columns, which check does not know; take their part out of the rows")
    return wide, data


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
    if given.shape == (num_rows,):
        inverse = jnp.asarray(1 / given)
        return (inverse if scale is None else scale * inverse), None, np.ones(len(chosen)) if levels is None else levels
    return scale, cholesky, np.broadcast_to(given, chosen.max() + 1 if given.ndim == 0 else given.shape)[chosen]


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
    known, counts = np.nan_to_num(z), ~np.isnan(z)
    pairs = np.maximum((counts[:, 1:] & counts[:, :-1]).sum(1), 1)
    squares = np.maximum(np.square(known).sum(1) / np.maximum(counts.sum(1), 1), np.finfo(float).tiny)
    correlation = (known[:, 1:] * known[:, :-1]).sum(1) / pairs / squares
    return 2 * special.ndtr(-np.abs(correlation) * np.sqrt(pairs))


def _left_out(
    columns: np.ndarray, data: np.ndarray, missing: np.ndarray, levels: np.ndarray, found: Posterior
) -> np.ndarray:
    """Return, for each row, the probability below it that the posterior without that row predicts, ``(B', N)``.

    Kept draws are weighted by one over the row's likelihood (Gelfand, Dey and Chang 1992); weights are cut at ten times
    their mean.
    """
    several = np.unique(np.linspace(0, len(data) - 1, min(len(data), LEFT_OUT_PROBLEMS)).astype(int))
    draws, weights = np.asarray(found.draws, np.float64), np.asarray(found.draw_weights, np.float64)
    below = np.empty((len(several), data.shape[1]))
    for place, i in enumerate(several):
        away = (data[i] - draws[i] @ columns.T) / levels[i]
        own = weights[i][:, None] * np.exp(np.minimum(0.5 * np.square(away), 50))
        own = np.minimum(own, 10 * own.mean(0))
        below[place] = (own * special.ndtr(away)).sum(0) / own.sum(0)
    return np.where(missing[several], np.nan, below)
