"""The page of ``balson compare``."""

from __future__ import annotations

import html
import pathlib

import numpy as np

from ..plot.canvas import DARK, LIGHT, literal
from ..status import Status
from . import document
from .comparing import Compared
from .document import new_figure, picture, table

EXPLAINED = (
    "The evidence is the probability of the targets under a model, averaged over its prior. Differences of its "
    "logarithm are log-odds of the models, if these were equally likely before: 1 is odds of 3 to 1, 3 of 20 to 1, "
    "5 of 150 to 1. They depend on the prior, and say which model is better, not whether any is good: balson check "
    "looks at that."
)


def write(found: Compared) -> pathlib.Path:
    """Write the page and return its path."""
    ranked, base = found.comparison, found.candidates.base
    count = ranked.log_evidence.shape[1]
    title = f"Comparison of {len(ranked.names)} models on {count:,} target{'s' * (count != 1)}"
    skipped = len(found.fitted) - count
    lead = f"{len(found.fitted):,} targets of {base.targets}, {len(found.inputs.design):,} rows, method {base.method}."
    lead += f" {skipped:,} without data are left out." if skipped else ""
    parts = [
        f"<p>{html.escape(lead)}</p>",
        _verdict(found),
        "<h2>Ranking</h2>",
        _ranking(found),
        _bars(found),
        *_map(found),
        f"<p>{EXPLAINED}</p>",
        "<h2>Statuses</h2>",
        _statuses(found),
        "<h2>To repeat it</h2>",
        f"<pre>{html.escape(found.candidates.words())}</pre>",
        "<h2>Settings and versions</h2>",
        document.settings_and_versions(found.candidates.as_text()),
    ]
    return document.write(base.out, title, parts)


def _sums(found: Compared) -> tuple[np.ndarray, np.ndarray]:
    """Return the evidence of all targets together, and its Monte Carlo error, ``(models,)`` each."""
    ranked = found.comparison
    return ranked.log_evidence.sum(1), np.sqrt(np.square(ranked.log_evidence_stderr).sum(1))


def _verdict(found: Compared) -> str:
    names, (sums, errors) = found.comparison.names, _sums(found)
    if found.untrusted:
        count = found.comparison.log_evidence.shape[1]
        which = f"The evidence of {found.untrusted:,} of {count:,} targets is in doubt."
        return f'<p class="verdict bad"><strong>{which}</strong> See Statuses below.</p>'
    ahead, error = sums[0] - sums[1], float(np.hypot(errors[0], errors[1]))
    text = f"{html.escape(names[0])} is ahead of {html.escape(names[1])} by {ahead:.1f}"
    if ahead < 2 * error:
        text = f"{html.escape(names[0])} and {html.escape(names[1])} can’t be told apart: they differ by {ahead:.2f}"
    return f'<p class="verdict good"><strong>{text}</strong> in log-evidence, ± {error:.2g}.</p>'


def _ranking(found: Compared) -> str:
    ranked, (sums, errors) = found.comparison, _sums(found)
    alone = ranked.log_evidence.shape[1] == 1
    lines = []
    for i, name in enumerate(ranked.names):
        share = _weight(ranked.weights[i, 0]) if alone else f"{int((ranked.best == name).sum()):,}"
        cells = [str(i + 1), html.escape(name), f"{sums[i]:,.2f}", f"{errors[i]:.2g}", f"{sums[i] - sums[0]:,.2f}"]
        words = Status(int(np.bitwise_or.reduce(ranked.status[i], axis=None))).words()
        lines.append([*cells, share, html.escape(words)])
    last = "weight" if alone else "best in"
    head = ("", "model", "log-evidence", "± error", "difference", last, "status")
    return table("Models, the best first" + ("" if alone else "; sums over all targets"), head, lines)


def _weight(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.4f}"


def _bars(found: Compared) -> str:
    """Return a picture of the differences to the best model."""
    ranked, (sums, errors) = found.comparison, _sums(found)
    figure = new_figure(7, 1.3 + 0.35 * len(ranked.names))
    ax = figure.subplots()
    ax.barh([literal(name) for name in ranked.names], sums - sums[0], 0.6, color=LIGHT, edgecolor=DARK, xerr=errors)
    ax.axvline(0, color=DARK, lw=1)
    ax.invert_yaxis()
    ax.set_xlabel("difference of log-evidence to the best")
    return picture(figure, f"Log-evidence of {', '.join(ranked.names)}, as differences to the best, {ranked.names[0]}")


def _map(found: Compared) -> list[str]:
    """Return a map of each pixel's best model, if the targets are an image."""
    from matplotlib import colormaps

    ranked, shape = found.comparison, found.inputs.table.image_shape
    if shape is None:
        return []
    best = np.full(len(found.fitted), np.nan)
    best[found.fitted] = ranked.log_evidence.argmax(0)
    figure = new_figure(7, float(np.clip(6 * shape[0] / shape[1], 2, 8)))
    ax, count = figure.subplots(), len(ranked.names)
    colours = colormaps["cividis_r"].resampled(count)
    drawn = ax.imshow(best.reshape(shape), cmap=colours, vmin=-0.5, vmax=count - 0.5, interpolation="nearest")
    bar = figure.colorbar(drawn, ax=ax, ticks=range(count), shrink=0.85)
    bar.ax.set_yticklabels([literal(name) for name in ranked.names], fontsize="small")
    ax.set(xticks=[], yticks=[])
    return [picture(figure, f"Map of the best model of each pixel, of {', '.join(ranked.names)}")]


def _statuses(found: Compared) -> str:
    union = Status(int(np.bitwise_or.reduce(found.comparison.status, axis=None)))
    return "".join(f"<p>{html.escape(flag.explain())}</p>" for flag in union) or f"<p>OK: {Status.OK.explain()}</p>"
