"""The result of ``learn``."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from ..problems.base import Problem
from ..problems.linear import LinearProblem

UNTRUSTED_COST = 20.0
"""A fit that can't be trusted counts as a loss of this many nats."""


class Round(NamedTuple):
    """One round of learning.

    Attributes:
      log_evidence: mean log-evidence of the problems held out.
      prior: the concentrations with which it was fitted, ``(K,)``.
      shares: which share of the variance each kind of error had; empty for the plain fit.
      trusted: share of the fits with status ``OK``.
    """

    log_evidence: float
    prior: np.ndarray
    shares: dict[str, float]
    trusted: float

    @property
    def score(self) -> float:
        """The log-evidence, less a cost of fits that can't be trusted: a prior is useless if no sampler can fit it."""
        return self.log_evidence - UNTRUSTED_COST * (1 - self.trusted)


@dataclasses.dataclass(frozen=True)
class Learned:
    """What ``learn`` found.

    Attributes:
      problem: all targets with what was learned, ready for ``fit``.
      covariance: of the residuals of the rows, ``(N, N)``, up to a factor for each problem; ``None`` if the plain noise
        or levels of rows were kept.
      levels: standard deviations of the rows, ``(N,)``, up to a factor for each problem, with ``noise="rows"``; else
        ``None``.
      prior: concentrations of all components of omega, ``(K,)``: of theta's, and of the slack if there is one, last.
        Ones stand for a common concentration that is integrated out, if it was given as ``prior="estimate"``.
      design: as it was given, or corrected for errors that all problems share, ``(N, P)``. Pass it to ``check`` and
        ``predict``.
      history: the rounds; the first is the plain fit.
      chosen: number of the round that was kept.
      notes: warnings, in words.
      narrow: factors by which error bars of theta are too narrow, in the plain fit and with what was learned, as
        ``check`` would find; NaN where that can't be judged.
      corrected: root mean square of the change of the design, as a share of the design's own; 0 if it was kept.
    """

    problem: LinearProblem
    covariance: np.ndarray | None
    levels: np.ndarray | None
    prior: np.ndarray
    design: np.ndarray
    history: list[Round]
    chosen: int
    notes: tuple[str, ...]
    narrow: tuple[float, float] = (np.nan, np.nan)
    corrected: float = 0.0

    @property
    def gain(self) -> float:
        """How much larger the log-evidence of a problem is, on average, than with the plain fit."""
        return self.history[self.chosen].log_evidence - self.history[0].log_evidence

    def problem_for(self, targets: Any) -> Problem:
        """Return the problem of fitting other targets with what was learned."""
        return self.problem.with_targets(targets)

    def __repr__(self) -> str:
        """Return what was learned, in words."""
        kept = self.history[self.chosen]
        count = self.problem.batch_shape[0]
        lines = [f"Learned from a batch of {count:,} problems in {len(self.history) - 1} rounds"]
        if not self.chosen:
            lines.append("nothing learned predicts problems held out better than the plain fit, which is kept")
        else:
            lines.append(f"log-evidence of a problem held out: {self.gain:+.2f} against the plain fit")
        if np.isfinite(self.narrow).all():
            before, after = self.narrow
            lines.append(f"errors of theta against error bars: {before:.1f} times as large before, {after:.1f} after")
        if kept.shares:
            parts = ", ".join(f"{name} {100 * share:.0f} %" for name, share in kept.shares.items())
            lines.append(f"variance of the residuals: {parts}")
        if self.corrected:
            lines.append(f"design: corrected by {100 * self.corrected:.2g} %, the same for all problems; see design")
        spread = self.problem.hyperprior
        if spread is None:
            shown = np.array2string(self.prior, precision=3, max_line_width=90, threshold=12)
        else:
            shown = f"a common concentration from {spread.smallest:g} to {spread.largest:g}, integrated out"
        lines.append(f"prior: {shown}")
        return "\n".join([*lines, *self.notes])
