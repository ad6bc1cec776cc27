"""The result of ``check``."""

from __future__ import annotations

import dataclasses
import textwrap
from typing import Any

import numpy as np

from ..residuals.covariance import MAX_ROWS
from ..residuals.narrowness import NARROW
from ..status import Status


@dataclasses.dataclass(frozen=True)
class Check:
    """What ``check`` found; (B,) are the problems looked at.

    Attributes:
      narrow: factor by which error bars of the whole batch are too narrow. Bounds of theta are ignored. NaN for more
        than 1,000 rows.
      narrow_each: the same for each problem, ``(B,)``. A problem has few residuals of its own, so those of the batch
        count too, as far as its problems are alike (see ``residuals.narrowness``).
      residuals: standardised, ``(B, N)``; independent and of unit variance, if the model is right.
      correlation: of residuals of rows at distances 0, 1, 2, ..., ``(lags,)``.
      p_value: probability of neighbouring residuals as correlated as these, if the model is right, ``(B,)``.
      left_out: for each row, the predicted probability, by a fit without it, of a value below the one observed,
        ``(B', N)``: uniform, if the model is right.
      residual: root mean square of the residuals at the posterior mean, ``(B,)``.
      least_residual: the same at the constrained optimum, ``(B,)``; both as the fit found them.
      status: of the fits, with ``OVERCONFIDENT`` where a problem's factor exceeds 1.5, and the batch as a whole shows
        it too, ``(B,)``.
      problems: numbers of the problems looked at, ``(B,)``.
    """

    narrow: float
    narrow_each: np.ndarray
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
        """Whether no trouble was found."""
        return not self.status.any()

    def __repr__(self) -> str:
        """Return what was found, in words, and what to do."""
        count = len(self.problems)
        lines = [
            f"Check of {count:,} problem{'s' * (count != 1)} with {self.residuals.shape[1]:,} rows",
            f"error bars: {self._error_bars()}",
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

    def _error_bars(self) -> str:
        if np.isnan(self.narrow):
            return f"not judged, as there are more than {MAX_ROWS:,} rows"
        flagged = (self.status & int(Status.OVERCONFIDENT) > 0).mean()
        low, high = np.quantile(self.narrow_each, [0.05, 0.95])
        spread = f"; {low:.2g} to {high:.2g} in nine problems of ten" if len(self.problems) > 1 else ""
        if self.narrow > NARROW:
            return f"too narrow by a factor of {self.narrow:.1f}{spread}"
        some = f"; too narrow in {100 * flagged:.0f} % of the problems" if flagged else ""
        return f"about right (errors {self.narrow:.2f} times as large as they say{spread}){some}"

    def plot(self, figure: Any = None) -> Any:
        """Draw residuals by row, their correlation, and predictions of left-out rows; return the Matplotlib figure."""
        if figure is None:
            try:
                from matplotlib.figure import Figure
            except ImportError:
                message = "Check.plot needs matplotlib; install it with: pip install 'balson_jax[cli]'"
                raise ImportError(message) from None
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
