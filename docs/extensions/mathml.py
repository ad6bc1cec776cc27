"""A Sphinx extension: formulas as MathML, which browsers draw themselves. No script, no font, no network."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert


def setup(app: Any) -> dict[str, Any]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    app.connect("config-inited", choose)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def choose(_: Any, config: Any) -> None:
    """Make this the renderer of the build."""
    config.html_math_renderer = "mathml"


NAMED = re.compile(r"<mi>(ln|exp|max|min|sign|tr)</mi>(?=<m(?:i|sub|sup|subsup|frac|sqrt)\b)")
"""A function's name right before its argument, between which the converter leaves no space."""


def formula(text: str, display: str) -> str:
    """Return a formula as MathML."""
    return NAMED.sub(r'<mi>\1</mi><mspace width="0.17em"></mspace>', convert(text, display=display))


def visit_inline(translator: Any, node: nodes.math) -> None:
    """Write a formula within a line."""
    translator.body.append(formula(node.astext(), "inline"))
    raise nodes.SkipNode


def visit_block(translator: Any, node: nodes.math_block) -> None:
    """Write a displayed formula, with its number if it has a label."""
    translator.body.append(translator.starttag(node, "div", CLASS="math-block"))
    translator.body.append(formula(node.astext(), "block"))
    translator.body.append("</div>\n")
    raise nodes.SkipNode
