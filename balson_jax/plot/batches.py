"""Pictures of a batch: maps, and which method served which problems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..posteriors.posterior import Posterior
from ..status import MIN_ESS, Status
from .canvas import DARK, LIGHT, MARKERS, MIDDLE, chosen_components, labels, need, new_figure

MOST_PIXELS = 600
"""Maps show every second, third, ... pixel, so that a side has at most this many."""


def maps(
    posterior: Posterior,
    shape: tuple[int, int] | None = None,
    *,
    names: Sequence[str] | None = None,
    most: int = 6,
    figure: Any = None,
) -> Any:
    """Draw maps of the means and standard deviations of components, and of the status, for a batch ``(H, W)``.

    Args:
      posterior: of a batch ``(H, W)``, or of ``H * W`` problems, line by line.
      shape: ``(H, W)``, if the batch is flat.
      names: of the components.
      most: how many components to show; those with the largest means.
      figure: to draw on; default: a new one.

    Returns:
      An array of axes, ``(components + 1, 2)``: mean and standard deviation, then the status; the last is not used.
    """
    words, shape = labels(posterior, names), _shape(posterior, shape)
    shown = chosen_components(posterior, most)
    step = max(1, -(-max(shape) // MOST_PIXELS))
    thin = (slice(None, None, step),) * 2
    mean, std = (np.asarray(field).reshape(*shape, -1)[thin] for field in (posterior.mean, posterior.std))
    height = float(np.clip(3.2 * shape[0] / shape[1], 1.2, 4.5))
    figure = new_figure(figure, (8.5, (height + 0.3) * (len(shown) + 1)))
    axes = figure.subplots(len(shown) + 1, 2, squeeze=False)
    for row, k in enumerate(shown):
        for column, (values, kind, colours) in enumerate(((mean, "mean", "viridis"), (std, "sd", "cividis"))):
            ax = axes[row, column]
            finite = values[..., k][np.isfinite(values[..., k])]
            low = min(0.0, float(finite.min())) if finite.size else 0.0
            drawn = ax.imshow(values[..., k], cmap=colours, vmin=low, interpolation="nearest")
            figure.colorbar(drawn, ax=ax, shrink=0.85)
            ax.set_title(f"{words[k]}: {kind}", fontsize="medium")
            ax.set(xticks=[], yticks=[])
    _status_map(figure, axes[-1, 0], np.asarray(posterior.status).reshape(shape)[thin])
    axes[-1, 1].set_axis_off()
    return axes


def _shape(posterior: Posterior, shape: tuple[int, int] | None) -> tuple[int, int]:
    own = posterior.batch_shape if shape is None else tuple(shape)
    if len(own) != 2:
        raise ValueError(f"maps needs a batch (H, W); this one has shape {own}: pass shape=(H, W)")
    if int(np.prod(own)) != int(np.prod(posterior.batch_shape)):
        raise ValueError(f"shape={own} has not as many pixels as the batch of shape {posterior.batch_shape}")
    return own  # type: ignore[return-value]


def _status_map(figure: Any, ax: Any, status: np.ndarray) -> None:
    """Draw one lightness for each combination of flags that occurs."""
    codes, number = np.unique(status, return_inverse=True)
    colours = need("matplotlib").colormaps["cividis_r"].resampled(max(2, len(codes)))
    places = np.arange(len(codes))
    drawn = ax.imshow(
        number.reshape(status.shape),
        cmap=colours,
        vmin=-0.5,
        vmax=max(1, len(codes) - 1) + 0.5,
        interpolation="nearest",
    )
    bar = figure.colorbar(drawn, ax=ax, ticks=places, shrink=0.85)
    bar.ax.set_yticklabels([status_names(int(code)).replace(" and ", "\n") for code in codes], fontsize="small")
    ax.set_title("status", fontsize="medium")
    ax.set(xticks=[], yticks=[])


def status_names(code: int) -> str:
    """Return the flags of a status in words, such as ``"LOW_ESS and BUDGET"``."""
    return " and ".join(str(flag.name) for flag in Status(code)) or "OK"


def ladder(posterior: Posterior, *, figure: Any = None) -> Any:
    """Draw which method served how many problems of a batch, and how many effective draws each problem has.

    Args:
      posterior: of a batch.
      figure: to draw on; default: a new one.

    Returns:
      An array of two axes.
    """
    if not posterior.batch_shape:
        raise ValueError("ladder shows a batch, and this is the posterior of one problem; print posterior.method")
    ess = np.asarray(posterior.ess, np.float64).reshape(-1)
    methods = np.broadcast_to(np.asarray(posterior.method), posterior.batch_shape).reshape(-1)
    used = [name for name in posterior.methods if (methods == name).any()]
    figure = new_figure(figure, (9, 1.6 + 0.5 * max(3, len(used))))
    counts, draws = figure.subplots(1, 2)
    numbers = [int((methods == name).sum()) for name in used]
    bars = counts.barh(used, numbers, 0.6, color=LIGHT, edgecolor=DARK, hatch=["", "//", "..", "xx"][: len(used)])
    counts.bar_label(bars, [f"{number:,}" for number in numbers], padding=3)
    counts.set(xlabel="problems", title="Method", xlim=(0, 1.2 * max(numbers, default=1)))
    counts.invert_yaxis()
    rank = np.argsort(np.argsort(ess, kind="stable"), kind="stable")
    for number, name in enumerate(used):
        own = methods == name
        marker = MARKERS[number % len(MARKERS)]
        draws.plot(
            rank[own], np.maximum(ess[own], 0.5), marker, ms=4, label=name, mec=DARK, mfc=(LIGHT, MIDDLE)[number % 2]
        )
    draws.axhline(MIN_ESS, color="0.3", lw=1, ls="--")
    place = {"xy": (1, MIN_ESS), "xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
    draws.annotate(f"{MIN_ESS}: fewer are LOW_ESS", xytext=(-4, 3), ha="right", fontsize=8, **place)
    draws.set(yscale="log", xlabel="problems, in order", ylabel="effective draws", title="Effective draws")
    draws.legend(fontsize="small", frameon=False)
    return np.array([counts, draws])
