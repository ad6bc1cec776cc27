"""A page in one file that needs nothing else, for phones and desktops: its frame, tables and pictures."""

from __future__ import annotations

import base64
import html
import io
import json
import pathlib
import platform
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from ..version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALLOWED = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
"""Content security policy of the page: the browser loads nothing from elsewhere."""

STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 0 auto; padding: 1rem; color: #1b1b1b; }
h1 { font-size: 1.5rem; line-height: 1.25; } h2 { font-size: 1.15rem; margin-top: 2rem; }
h1, p { overflow-wrap: anywhere; }
.verdict { padding: .75rem 1rem; border-left: .4rem solid; background: #f4f6fa; }
.good { border-color: #1f6f54; } .bad { border-color: #a23b00; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
caption { text-align: left; color: #555; padding-bottom: .25rem; }
th, td { padding: .2rem .6rem; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap; }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2), td:last-child, th:last-child { text-align: left; }
.pairs td { white-space: normal; text-align: left; overflow-wrap: anywhere; }
.pairs td:first-child { font-weight: 600; }
img { max-width: 100%; height: auto; } figure { margin: 1rem 0; } figcaption, .note { color: #555; font-size: .9rem; }
.wide img { min-width: 36rem; } .grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(17rem, 1fr)); }
pre { background: #f4f6fa; padding: .75rem; overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere; }
"""


def write(out: pathlib.Path, title: str, parts: Iterable[str]) -> pathlib.Path:
    """Write ``report.html`` and return its path. The file appears only once it is complete."""
    page, draft, name = out / "report.html", out / "report.html.draft", html.escape(title)
    body = "\n".join(parts)
    draft.write_text(
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{ALLOWED}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{name}</title><style>{STYLE}</style></head>\n"
        f"<body><main>\n<h1>{name}</h1>\n{body}\n</main></body></html>\n",
        encoding="utf-8",
    )
    draft.replace(page)
    return page


def table(caption: str, head: Sequence[str], lines: Iterable[Sequence[str]], kind: str = "plain") -> str:
    """Return a table of cells that are HTML already. Wide ones scroll, by keyboard too."""
    name = html.escape(caption, quote=True)
    header = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>" for cells in lines)
    whole = f'<table class="{kind}"><caption>{name}</caption><tr>{header}</tr>{body}</table>'
    return f'<div class="scroll" role="region" aria-label="{name}" tabindex="0">{whole}</div>'


def new_figure(width: float, height: float) -> Figure:
    """Return a figure that has no window and leaves no global state."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def picture(figure: Figure, about: str, kind: str = "plain") -> str:
    """Return a picture as part of the page, with a text for those who can't see it. Wide ones scroll on phones."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=110)
    code, text = base64.b64encode(file.getvalue()).decode(), html.escape(about, quote=True)
    shown = f'<img alt="{text}" src="data:image/png;base64,{code}">'
    return f'<figure class="{kind}"><div class="scroll">{shown}</div><figcaption>{text}.</figcaption></figure>'


def settings_and_versions(settings: dict[str, Any]) -> str:
    """Return the settings and versions that are needed to repeat the run, as HTML."""
    import matplotlib

    versions = {
        "balson_jax": __version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "matplotlib": matplotlib.__version__,
        "Python": platform.python_version(),
        "device": jax.devices()[0].device_kind,
    }
    return f"<pre>{html.escape(json.dumps({'settings': settings, 'versions': versions}, indent=2))}</pre>"
