"""Pictures of the components: intervals, the triangle of three shares, pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..posteriors.posterior import Posterior
from .canvas import DARK, LIGHT, MARKERS, MIDDLE, chosen_components, ends, labels, new_axes, new_figure, one

MOST_TOGETHER = 8
"""Number of problems that ``forest`` shows side by side, at most."""


def forest(
    posterior: Posterior,
    ax: Any = None,
    level: float = 0.9,
    problem: Any = None,
    *,
    names: Sequence[str] | None = None,
) -> Any:
    """Draw an interval, the mean and the sparse mode of each component, and of the slack if there is one.

    Args:
      posterior: of one problem, or of a batch of up to eight.
      ax: axes to draw on; default: new ones.
      level: probability of the intervals.
      problem: index of a problem of a batch.
      names: of the components.

    Returns:
      The axes.
    """
    words = labels(posterior, names)
    shown = posterior[problem] if posterior.batch_shape and problem is not None else posterior
    if len(shown.batch_shape) > 1 or (shown.batch_shape and shown.batch_shape[0] > MOST_TOGETHER):
        one(shown, None, "forest")  # raises
    several = [shown[i] for i in range(len(shown))] if shown.batch_shape else [one(shown, None, "forest")]
    has_slack = shown.slack is not None
    height = 1.2 + (0.3 + 0.14 * (len(several) - 1)) * (len(words) + has_slack)
    ax = new_axes(ax, (6, height))
    kind = ""
    for number, single in enumerate(several):
        kind = _rows(ax, single, level, number, len(several))
    places = np.arange(len(words) + has_slack)
    ax.set_yticks(places, [*words, "slack"] if has_slack else words)
    ax.set_ylim(len(places) - 0.5, -0.5)
    ax.set_xlabel(f"theta, {shown.constraint.label} {float(several[0].total):g}" if len(several) == 1 else "theta")
    ax.axvline(0, color="0.6", lw=0.8, zorder=0)
    handles = [
        ax.plot([], [], color=MIDDLE, lw=4, label=kind)[0],
        ax.plot([], [], "o", color=DARK, ms=4, label="mean")[0],
    ]
    handles.append(ax.plot([], [], "^", color=DARK, mfc="none", ms=6, label="sparse mode")[0])
    if len(several) > 1:
        handles = handles[:1] + [
            ax.plot([], [], MARKERS[i], color=DARK, label=f"problem {i}")[0] for i in range(len(several))
        ]
    ax.legend(handles=handles, fontsize="small", loc="lower center", bbox_to_anchor=(0.5, 1), ncols=5, frameon=False)
    return ax


def _rows(ax: Any, posterior: Posterior, level: float, number: int, count: int) -> str:
    """Draw one problem's components; return the kind of the intervals."""
    lower, upper, kind = ends(posterior, level)
    mean = np.asarray(posterior.mean)
    if posterior.slack is not None:
        slack = posterior.slack
        known = posterior.draws.shape[-2] and slack.draws is not None
        low, high = posterior.slack_hdi(level) if known else (slack.mean - slack.std, slack.mean + slack.std)
        lower, upper = np.append(lower, low), np.append(upper, high)
        mean = np.append(mean, slack.mean)
    places = np.arange(len(mean)) + (0 if count == 1 else 0.6 * (number / (count - 1) - 0.5))
    ax.hlines(places, lower, upper, color=MIDDLE, lw=4 if count == 1 else 2)
    ax.plot(mean, places, MARKERS[number], color=DARK, ms=4)
    if count == 1:
        # Below the mean, which would hide it.
        ax.plot(np.asarray(posterior.theta), places[: posterior.num_params] + 0.3, "^", color=DARK, ms=6, mfc="none")
    return kind


def ternary(posterior: Posterior, ax: Any = None, problem: Any = None, *, names: Sequence[str] | None = None) -> Any:
    """Draw three shares in a triangle: kept draws of one problem, or the means of a batch.

    Two components and a slack are three shares, too. Draws are larger where they weigh more; of a batch, points are
    darker where the standard deviations are larger.

    Args:
      posterior: of a problem with three shares, or a batch of such.
      ax: axes to draw on; default: new ones.
      problem: index of a problem of a batch.
      names: of the components.
    """
    words = labels(posterior, names)
    shown = posterior[problem] if posterior.batch_shape and problem is not None else posterior
    if not shown.constraint.shares_are_beta or shown.num_params + (shown.slack is not None) != 3:
        raise ValueError(
            f"ternary needs three nonnegative shares; this posterior has {shown.num_params} components under "
            f"{shown.constraint.name!r}: use forest or pairs"
        )
    words += ["slack"] * (shown.slack is not None)
    ax = new_axes(ax, (5, 4.6))
    _triangle(ax, words)
    total = np.asarray(shown.total)[..., None]
    mean = _with_slack(np.asarray(shown.mean), shown.slack and np.asarray(shown.slack.mean)) / total
    if shown.batch_shape:
        spread = np.sqrt(np.square(np.asarray(shown.std) / total).mean(-1)).reshape(-1)
        drawn = ax.scatter(*_corners(mean.reshape(-1, 3)), c=spread, cmap="viridis_r", s=14, edgecolor="0.3", lw=0.3)
        ax.figure.colorbar(drawn, ax=ax, label="standard deviation of shares", shrink=0.7)
        return ax
    if shown.draws.shape[-2]:
        draws = _with_slack(np.asarray(shown.draws), shown.slack and np.asarray(shown.slack.draws)) / total
        weights = np.asarray(shown.draw_weights)
        ax.scatter(*_corners(draws), s=9 * weights * len(weights), color=MIDDLE, alpha=0.35, lw=0, label="kept draws")
    ax.plot(*_corners(mean), "D", color=DARK, ms=7, mec="white", label="mean")
    ax.legend(fontsize="small", loc="upper right", frameon=False)
    return ax


def _with_slack(parts: np.ndarray, slack: Any) -> np.ndarray:
    return parts if slack is None else np.concatenate([parts, slack[..., None]], -1)


def _corners(shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the places in the triangle: the first share lower left, the second lower right, the third on top."""
    return shares[..., 1] + 0.5 * shares[..., 2], np.sqrt(0.75) * shares[..., 2]


def _triangle(ax: Any, words: list[str]) -> None:
    corners = np.eye(3)
    ax.plot(*_corners(corners[[0, 1, 2, 0]]), color="0.2", lw=1)
    for share in (0.25, 0.5, 0.75):
        for k in range(3):
            ends = share * corners[k] + (1 - share) * corners[[(k + 1) % 3, (k + 2) % 3]]
            ax.plot(*_corners(ends), color="0.85", lw=0.7, zorder=0)
            ax.annotate(f"{share:g}", np.array(_corners(ends))[:, 0], fontsize=7, color="0.4", ha="center")
    for k, (place, shift) in enumerate(zip(corners, [(0, -14), (0, -14), (0, 6)], strict=True)):
        ax.annotate(words[k], _corners(place), shift, textcoords="offset points", ha="center", weight="bold")
    ax.set_aspect("equal")
    ax.set_axis_off()


def pairs(
    posterior: Posterior,
    problem: Any = None,
    *,
    names: Sequence[str] | None = None,
    most: int = 6,
    figure: Any = None,
) -> Any:
    """Draw kept draws of every two components, and histograms of each.

    Args:
      posterior: with kept draws.
      problem: index of a problem of a batch.
      names: of the components.
      most: how many components to show; those with the largest means.
      figure: to draw on; default: a new one.

    Returns:
      An array of axes, ``(components, components)``.
    """
    single, words = one(posterior, problem, "pairs"), labels(posterior, names)
    single.require_draws("pairs")
    shown = chosen_components(single, most)
    draws, weights = np.asarray(single.draws)[:, shown], np.asarray(single.draw_weights)
    side = 1.2 + 1.5 * len(shown)
    figure = new_figure(figure, (side, side))
    axes = figure.subplots(len(shown), len(shown), squeeze=False, sharex="col")
    for row in range(len(shown)):
        for column in range(len(shown)):
            ax = axes[row, column]
            if column > row:
                ax.set_axis_off()
            elif column == row:
                ax.hist(draws[:, row], bins=24, weights=weights, color=LIGHT, edgecolor=DARK, lw=0.5)
                ax.set_yticks([])
            else:
                ax.scatter(draws[:, column], draws[:, row], 5 * weights * len(weights), color=DARK, alpha=0.3, lw=0)
        axes[-1, row].set_xlabel(words[shown[row]])
        axes[row, 0].set_ylabel(words[shown[row]])
    return axes
