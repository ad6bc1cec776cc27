"""The page ``report.html``: one file that needs nothing else, for phones and desktops."""

from __future__ import annotations

import dataclasses
import html
import pathlib
from typing import Any

import jax
import numpy as np

from .. import plot
from ..interop import read
from ..plot.canvas import chosen_components, literal
from ..status import Status
from . import document, results
from .document import new_figure, picture, table
from .inputs import settings_as_text
from .running import Run

SHOWN = 20
"""Number of problems in the table, at most."""

LINES = 200
"""Number of lines in the table, at most, unless one problem has more."""

FORESTS = 6


def write(run: Run) -> pathlib.Path:
    """Write the page and return its path."""
    count = run.inputs.count
    components = len(run.inputs.names)
    title = f"Posterior of {count:,} problem{'s' * (count != 1)} with {components} components"
    parts = [
        f"<p>{html.escape(_lead(run))}</p>",
        _verdict(run),
        "<h2>Results</h2>",
        *_pictures(run),
        _table(run),
        *_checked(run),
        *_learned(run),
        "<h2>Statuses</h2>",
        _statuses(run),
        "<h2>To repeat it</h2>",
        f"<pre>{html.escape(run.settings.words())}</pre>",
        "<h2>Settings and versions</h2>",
        document.settings_and_versions(settings_as_text(run.settings)),
    ]
    return document.write(run.settings.out, title, parts)


def _lead(run: Run) -> str:
    settings, inputs = run.settings, run.inputs
    label = run.posterior.constraint.label
    noise = "noise of unknown level" if settings.noise == "estimate" else f"noise {settings.noise}"
    pixels = "pixels" if inputs.table.image_shape else "targets"
    return (
        f"{inputs.count:,} {pixels} of {settings.targets}, fitted by the columns of {settings.design} over "
        f"{len(inputs.design):,} rows; {label} {settings.total:g}, {noise}"
        f"{', learned from the batch' if settings.learn else ''}."
    )


def _verdict(run: Run) -> str:
    bad, count = run.counts.untrusted, run.inputs.count
    if run.can_be_trusted:
        return '<p class="verdict good"><strong>No problem was found</strong> in any fit.</p>'
    which = f"{bad:,} of {count:,} fits" if bad else "The check found that these fits"
    return f'<p class="verdict bad"><strong>{which} can’t be trusted as they are.</strong> See Statuses below.</p>'


def _table(run: Run) -> str:
    """Return the table of the first problems."""
    stop = min(SHOWN, run.inputs.count, max(1, LINES // len(run.inputs.names)))
    own = results.block(run.posterior, run.inputs, run.settings, 0, stop)
    level = f"{100 * run.settings.level:g} %"
    kind = "hdi" if run.posterior.draws.shape[-2] else "interval"
    head = ("problem", "component", "mean", "sd", f"{level} {kind}", f"P(&gt; {run.settings.least:g})", "status")
    lines = []
    problems = run.inputs.problem_names(0, stop)
    for place in np.flatnonzero(~own.empty):
        for k, name in enumerate(own.names):
            cells = [html.escape(problems[place]), html.escape(name), *(_shown(part[place, k]) for part in own[2:4])]
            ends = _shown(own.low[place, k]), _shown(own.high[place, k])
            cells.append(" – ".join(ends) if all(ends) else "")
            above = own.inclusion[place, k]
            cells += ["" if np.isnan(above) else f"{above:.2f}", html.escape(own.status[place])]
            lines.append(cells)
    more = run.inputs.count - stop
    where = "posterior.csv" if run.settings.csv else "posterior.npz"
    note = f'<p class="note">The other {more:,} are in {where}.</p>' if more else ""
    return table("Means, standard deviations and intervals", head, lines) + note


def _shown(value: float) -> str:
    if not np.isfinite(value):
        return ""
    size = abs(float(value))
    return f"{value:.3e}" if size >= 1e4 or 0 < size < 1e-4 else f"{value:.4f}"


def _pictures(run: Run) -> list[str]:
    """Return maps of an image, or intervals of the first problems; and which methods served a batch."""
    pictures = [_forests(run) if run.inputs.table.image_shape is None else _maps(run, run.inputs.table.image_shape)]
    if len(run.posterior.methods) > 1 and run.inputs.count > 1:
        figure = new_figure(9, 3)
        plot.ladder(_thinned(run), figure=figure)
        pictures.append(picture(figure, "Which method served how many problems, and their effective draws", "wide"))
    return pictures


def _maps(run: Run, shape: tuple[int, int]) -> str:
    posterior, names = run.posterior, run.inputs.names
    if results.NO_DATA in run.counts.words:  # the rasters are empty there
        mean, sd = (read(run.settings.out / f"{name}.img").values.T[:] for name in ("mean", "sd"))
        posterior = dataclasses.replace(posterior, mean=mean, std=sd)
    height = float(np.clip(3.2 * shape[0] / shape[1], 1.2, 4.5))
    figure = new_figure(8.5, (height + 0.3) * (min(6, len(names)) + 1))
    plot.maps(posterior, shape, names=names, figure=figure)
    shown = ", ".join(names[k] for k in chosen_components(posterior, 6))
    return picture(figure, f"Maps of mean and standard deviation of {shown}, and of the status", "wide")


def _forests(run: Run) -> str:
    """Return one picture for each of the first problems, side by side where there is room."""
    names, shown, pictures = run.inputs.names, min(FORESTS, run.inputs.count), []
    for number, problem in enumerate(run.inputs.problem_names(0, shown)):
        some = jax.tree.map(lambda leaf, own=number: np.asarray(leaf[own]), run.posterior)
        figure = new_figure(5, 1.5 + 0.3 * len(names))
        ax = plot.forest(some, figure.subplots(), run.settings.level, names=names)
        ax.figure.suptitle(literal(problem), fontsize="medium")
        about = f"{problem}: means and {100 * run.settings.level:g} % intervals of {', '.join(names[:12])}"
        pictures.append(picture(figure, about))
    return f'<div class="grid">{"".join(pictures)}</div>'


def _thinned(run: Run) -> Any:
    """Return the posterior of at most some thousand problems, evenly spaced."""
    numbers = np.unique(np.linspace(0, run.inputs.count - 1, min(run.inputs.count, 5000)).astype(int))
    return jax.tree.map(lambda leaf: np.asarray(leaf[numbers]), run.posterior)


def _checked(run: Run) -> list[str]:
    if not run.settings.check:
        return []
    if run.checked is None:
        return ["<h2>Check</h2>", "<p>There was no problem with finite results to check.</p>"]
    figure = new_figure(10, 3)
    run.checked.plot(figure)
    about = "Residuals by row, their correlation by distance, and predictions of rows left out"
    return ["<h2>Check</h2>", f"<pre>{html.escape(repr(run.checked))}</pre>", picture(figure, about, "wide")]


def _learned(run: Run) -> list[str]:
    return [] if run.learned is None else ["<h2>Learned</h2>", f"<pre>{html.escape(run.learned)}</pre>"]


def _statuses(run: Run) -> str:
    """Return how many problems have which status, and what the flags mean."""
    count = run.inputs.count
    rows = [
        [html.escape(word), f"{number:,} ({100 * number / count:.3g} %)"] for word, number in run.counts.words.items()
    ]
    union = Status(0)
    for word, code in run.counts.codes.items():
        union |= Status(0 if word == results.NO_DATA else code)
    if run.checked is not None:
        union |= Status(int(np.bitwise_or.reduce(run.checked.status, initial=0)))
    flags = "".join(f"<p>{html.escape(flag.explain())}</p>" for flag in union) or f"<p>OK: {Status.OK.explain()}</p>"
    if results.NO_DATA in run.counts.words:
        flags += "<p>NO_DATA: no band of the pixel has a number. Its results are left empty.</p>"
    return table("Statuses", ("status", "problems"), rows, "pairs") + flags
