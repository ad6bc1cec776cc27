"""The result of ``synthetic_control``: frames, a printed table, a plot."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from ..posteriors.posterior import Posterior
from ..status import Status
from .extras import load

TOO_CORRELATED = 2.0
"""Correlations above this number, divided by the root of the number of times, are reported. Chance alone causes one in
forty times."""


class AverageEffect(NamedTuple):
    """Posterior of the average effect over the treated times: mean, standard deviation, ends of an interval."""

    mean: float
    std: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True, repr=False)
class SyntheticControl:
    """The result of ``synthetic_control``.

    Attributes:
      treated: the treated unit.
      start: its first treated time.
      level: probability of the intervals.
      weights: a frame with the donors in rows and ``mean``, ``std``, ``low``, ``high`` (the shortest interval).
      effect: a frame with all times in rows and ``observed``, ``synthetic``, ``effect``, and a band of the effect in
        ``low`` and ``high``.
      average_effect: over the treated times.
      ratio: root mean squared effect after the start over that before it.
      placebo_ratios: the same of each donor, a series; ``None`` without placebos.
      placebo_effects: a frame, times in rows and donors in columns, of the effects on donors; ``None`` without.
      p_value: share of units, the treated one included, with a ratio at least as large; NaN without placebos.
      posterior: of the weights.
      placebo_posterior: of the placebos' weights, a batch; ``None`` without placebos.
    """

    treated: Any
    start: Any
    level: float
    weights: Any
    effect: Any
    average_effect: AverageEffect
    ratio: float
    placebo_ratios: Any
    placebo_effects: Any
    p_value: float
    posterior: Posterior
    placebo_posterior: Posterior | None

    @property
    def rank(self) -> int | None:
        """Rank of the treated unit's ratio among all units, 1 for the largest; ``None`` without placebos."""
        return None if self.placebo_ratios is None else 1 + int((self.placebo_ratios >= self.ratio).sum())

    @property
    def correlation(self) -> float:
        """Correlation of effects before the start from one time to the next; about 0 if the model is right."""
        before = self.effect["effect"][self.effect.index < self.start].to_numpy()
        return float((before[1:] * before[:-1]).sum() / max(np.square(before).sum(), np.finfo(float).tiny))

    def summary(self) -> str:
        """Return a table for people: the average effect, the placebos, the largest weights, the status."""
        found, percent = self.average_effect, f"{100 * self.level:g} %"
        before = int((self.effect.index < self.start).sum())
        lines = [
            f"Synthetic control of {self.treated}: {before} times before {self.start}, {len(self.effect) - before} "
            f"from then on, {len(self.weights)} donors",
            f"average effect {found.mean:.4g} ± {found.std:.2g}, "
            f"{percent} interval {found.low:.4g} to {found.high:.4g}",
        ]
        if self.correlation > TOO_CORRELATED / np.sqrt(before):
            lines.append(
                f"effects before the start go together from one time to the next "
                f"(correlation {self.correlation:+.2f}), so that the interval of the average effect is too narrow"
            )
        if self.placebo_ratios is not None:
            units = 1 + len(self.placebo_ratios)
            lines.append(
                f"errors after the start are {self.ratio:.3g} times those before: rank {self.rank} of {units} units, "
                f"p = {self.p_value:.3g}"
            )
        largest = self.weights.sort_values("mean", ascending=False).head(10)
        width = max(10, *(len(str(name)) for name in largest.index))
        lines += ["", f"{'donor':>{width}}{'weight':>10}{'std':>10}{f'{percent} hdi':>20}"]
        for name, row in largest.iterrows():
            ends = f"{row['low']:.3f} – {row['high']:.3f}"
            lines.append(f"{name!s:>{width}}{row['mean']:>10.3f}{row['std']:>10.3f}{ends:>20}")
        if len(self.weights) > len(largest):
            lines.append(f"... and {len(self.weights) - len(largest)} donors of smaller weight")
        lines += ["", *_verdict("status", self.posterior)]
        if self.placebo_posterior is not None:
            lines += _verdict("status of placebos", self.placebo_posterior)
        return "\n".join(lines)

    def __repr__(self) -> str:
        """Return the summary."""
        return self.summary()

    def plot(self, axes: Any = None) -> Any:
        """Draw observed and synthetic outcomes, and the effect before placebos in grey; return the two axes.

        Args:
          axes: two matplotlib axes to draw on; made if ``None``.
        """
        if axes is None:
            axes = load("matplotlib.pyplot", "plot").subplots(1, 2, figsize=(11, 4), layout="constrained")[1]
        outcome, effects = axes
        frame = self.effect
        if hasattr(frame.index, "to_timestamp"):  # matplotlib draws no periods
            frame = frame.set_axis(frame.index.to_timestamp())
        outcome.fill_between(
            frame.index, frame["observed"] - frame["high"], frame["observed"] - frame["low"], alpha=0.25, color="C0"
        )
        outcome.plot(frame.index, frame["synthetic"], color="C0", linestyle="--", label="synthetic")
        outcome.plot(frame.index, frame["observed"], color="black", label=str(self.treated))
        if self.placebo_effects is not None:
            effects.plot(frame.index, self.placebo_effects.to_numpy(), color="0.8", linewidth=0.8)
        effects.fill_between(frame.index, frame["low"], frame["high"], alpha=0.25, color="C0")
        effects.plot(frame.index, frame["effect"], color="black", label="effect")
        effects.axhline(0, color="black", linewidth=0.5)
        before = int((self.effect.index < self.start).sum())
        for axis in axes:
            axis.axvline(frame.index[before], color="black", linestyle=":", linewidth=1)
            axis.legend(frameon=False)
        return axes


def _verdict(label: str, posterior: Posterior) -> list[str]:
    """Return what the status of one fit, or of a batch, says."""
    status = np.asarray(posterior.status).reshape(-1)
    flags = Status(int(np.bitwise_or.reduce(status)))
    if not flags:
        return [f"{label}: OK"]
    share = f" in {int((status != 0).sum())} of {status.size}" if status.size > 1 else ""
    return [f"{label}: {'|'.join(flag.name or '' for flag in flags)}{share}", flags.explain()]
