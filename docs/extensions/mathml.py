"""A Sphinx extension: formulas as MathML, which browsers draw themselves. No script, no font, no network."""

from __future__ import annotations

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


def visit_inline(translator: Any, node: nodes.math) -> None:
    """Write a formula within a line."""
    translator.body.append(convert(node.astext(), display="inline"))
    raise nodes.SkipNode


def visit_block(translator: Any, node: nodes.math_block) -> None:
    """Write a displayed formula, with its number if it has a label."""
    translator.body.append(translator.starttag(node, "div", CLASS="math-block"))
    translator.body.append(convert(node.astext(), display="block"))
    translator.body.append("</div>\n")
    raise nodes.SkipNode
