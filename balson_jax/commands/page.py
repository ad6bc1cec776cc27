"""The page ``report.html``: one file that needs nothing else, for phones and desktops."""

from __future__ import annotations

import base64
import dataclasses
import html
import io
import json
import pathlib
import platform
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from .. import plot
from ..interop import read
from ..status import Status
from ..version import __version__
from . import results
from .inputs import settings_as_text
from .running import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN, LINES = 20, 200
"""The table shows so many problems and lines, at most."""

FORESTS = 6

STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 0 auto; padding: 1rem; color: #1b1b1b; }
h1 { font-size: 1.5rem; line-height: 1.25; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.verdict { padding: .75rem 1rem; border-left: .4rem solid; background: #f4f6fa; }
.good { border-color: #1f6f54; } .bad { border-color: #a23b00; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { padding: .2rem .6rem; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap; }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2), td:last-child, th:last-child { text-align: left; }
.pairs td { white-space: normal; text-align: left; overflow-wrap: anywhere; }
.pairs td:first-child { font-weight: 600; }
img { max-width: 100%; height: auto; } figure { margin: 1rem 0; } figcaption, .note { color: #555; font-size: .9rem; }
.wide img { min-width: 36rem; } .grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(18rem, 1fr)); }
pre { background: #f4f6fa; padding: .75rem; overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere; }
"""


def write(run: Run) -> pathlib.Path:
    """Write the page and return its path."""
    count, out = run.inputs.count, run.settings.out
    components = len(run.inputs.names)
    title = f"Posterior of {count:,} problem{'s' * (count != 1)} with {components} components"
    parts = [
        f"<h1>{html.escape(title)}</h1>",
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
        _settings(run),
    ]
    page, body = out / "report.html", "\n".join(parts)
    page.write_text(
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head><body>\n{body}\n</body></html>\n",
        encoding="utf-8",
    )
    return page


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
            lines.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    more = run.inputs.count - stop
    where = "posterior.csv" if run.settings.csv else "posterior.npz"
    note = f'<p class="note">The other {more:,} are in {where}.</p>' if more else ""
    header = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    return f'<div class="scroll"><table><tr>{header}</tr>{"".join(lines)}</table></div>{note}'


def _shown(value: float) -> str:
    if not np.isfinite(value):
        return ""
    size = abs(float(value))
    return f"{value:.3e}" if size >= 1e4 or 0 < size < 1e-4 else f"{value:.4f}"


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure  # no window, no global state

    return Figure(figsize=(width, height), layout="constrained")


def _pictures(run: Run) -> list[str]:
    """Return maps of an image, or intervals of the first problems; and which methods served a batch."""
    pictures = [_forests(run) if run.inputs.table.image_shape is None else _maps(run, run.inputs.table.image_shape)]
    if len(run.posterior.methods) > 1 and run.inputs.count > 1:
        figure = _figure(9, 3)
        plot.ladder(_thinned(run), figure=figure)
        pictures.append(_image(figure, "Which method served how many problems, and their effective draws", "wide"))
    return pictures


def _maps(run: Run, shape: tuple[int, int]) -> str:
    posterior, names = run.posterior, run.inputs.names
    if results.NO_DATA in run.counts.words:  # the rasters are empty there
        mean, sd = (read(run.settings.out / f"{name}.img").values.T[:] for name in ("mean", "sd"))
        posterior = dataclasses.replace(posterior, mean=mean, std=sd)
    height = float(np.clip(3.2 * shape[0] / shape[1], 1.2, 4.5))
    figure = _figure(8.5, (height + 0.3) * (min(6, len(names)) + 1))
    plot.maps(posterior, shape, names=names, figure=figure)
    return _image(figure, f"Maps of mean and standard deviation of {', '.join(names[:6])}, and of the status")


def _forests(run: Run) -> str:
    """Return one picture for each of the first problems, side by side where there is room."""
    names, shown, pictures = run.inputs.names, min(FORESTS, run.inputs.count), []
    for number, problem in enumerate(run.inputs.problem_names(0, shown)):
        some = jax.tree.map(lambda leaf, own=number: np.asarray(leaf[own]), run.posterior)
        figure = _figure(5, 1.5 + 0.3 * len(names))
        ax = plot.forest(some, figure.subplots(), run.settings.level, names=names)
        ax.figure.suptitle(problem, fontsize="medium")
        about = f"{problem}: means and {100 * run.settings.level:g} % intervals of {', '.join(names[:12])}"
        pictures.append(_image(figure, about))
    return f'<div class="grid">{"".join(pictures)}</div>'


def _thinned(run: Run) -> Any:
    """Return the posterior of at most some thousand problems, evenly spaced."""
    numbers = np.unique(np.linspace(0, run.inputs.count - 1, min(run.inputs.count, 5000)).astype(int))
    return jax.tree.map(lambda leaf: np.asarray(leaf[numbers]), run.posterior)


def _image(figure: Figure, about: str, kind: str = "plain") -> str:
    """Return a picture as part of the page, with a text for those who can't see it. Wide ones scroll on phones."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=110)
    code, text = base64.b64encode(file.getvalue()).decode(), html.escape(about, quote=True)
    picture = f'<img alt="{text}" src="data:image/png;base64,{code}">'
    return f'<figure class="{kind}"><div class="scroll">{picture}</div><figcaption>{text}.</figcaption></figure>'


def _checked(run: Run) -> list[str]:
    if not run.settings.check:
        return []
    if run.checked is None:
        return ["<h2>Check</h2>", "<p>There was no problem with finite results to check.</p>"]
    figure = _figure(10, 3)
    run.checked.plot(figure)
    about = "Residuals by row, their correlation by distance, and predictions of rows left out"
    return ["<h2>Check</h2>", f"<pre>{html.escape(repr(run.checked))}</pre>", _image(figure, about, "wide")]


def _learned(run: Run) -> list[str]:
    return [] if run.learned is None else ["<h2>Learned</h2>", f"<pre>{html.escape(run.learned)}</pre>"]


def _statuses(run: Run) -> str:
    """Return how many problems have which status, and what the flags mean."""
    count = run.inputs.count
    rows = "".join(
        f"<tr><td>{html.escape(word)}</td><td>{number:,} ({100 * number / count:.3g} %)</td></tr>"
        for word, number in run.counts.words.items()
    )
    union = Status(0)
    for word, code in run.counts.codes.items():
        union |= Status(0 if word == results.NO_DATA else code)
    if run.checked is not None:
        union |= Status(int(np.bitwise_or.reduce(run.checked.status, initial=0)))
    flags = "".join(f"<p>{html.escape(flag.explain())}</p>" for flag in union) or f"<p>OK: {Status.OK.explain()}</p>"
    if results.NO_DATA in run.counts.words:
        flags += "<p>NO_DATA: no band of the pixel has a number. Its results are left empty.</p>"
    return f'<table class="pairs"><tr><th>status</th><th>problems</th></tr>{rows}</table>{flags}'


def _settings(run: Run) -> str:
    import matplotlib

    versions = {
        "balson_jax": __version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "matplotlib": matplotlib.__version__,
        "Python": platform.python_version(),
        "device": jax.devices()[0].device_kind,
    }
    record = {"settings": settings_as_text(run.settings), "versions": versions}
    return f"<pre>{html.escape(json.dumps(record, indent=2))}</pre>"
