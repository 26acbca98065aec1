"""Mathematics as MathML, made at build time: no script, no other host, and bad TeX fails the build."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from math_core import LatexError, LatexToMathML
from sphinx.application import Sphinx
from sphinx.errors import SphinxError
from sphinx.util.math import get_node_equation_number
from sphinx.writers.html5 import HTML5Translator

MACROS = {
    "R": r"\mathbb{R}",
    "C": r"\mathbb{C}",
    "d": r"\mathrm{d}",
    "T": r"{\top}",
    "inner": r"\left\langle #1, #2\right\rangle",
}
_converter = LatexToMathML(macros=MACROS, annotation=True, fancy_error=False)


class BadTeX(SphinxError):
    """A formula that cannot be rendered."""

    category = "Bad TeX"


def convert(tex: str, display: bool, place: str = "") -> str:
    """Returns a formula as MathML, its TeX kept in an annotation.

    Raises:
        BadTeX: with the page and the line, so that the build stops at a typing error.
    """
    try:
        made = _converter.convert_with_local_state(tex.strip(), displaystyle=display)
        # math-core 0.9 sets a line below over its operand, which no font stretches; the line above it does.
        return made.replace('<mo stretchy="true">\u0332</mo></mover>', '<mo stretchy="true">\u203e</mo></mover>')
    except LatexError as error:
        raise BadTeX(f"{place}: {error}\n    {tex.strip()}") from error


def _place(node: nodes.Node) -> str:
    source, line = node.source, node.line
    parent = node.parent
    while (source is None or line is None) and parent is not None:
        source, line = source or parent.source, line or parent.line
        parent = parent.parent
    return f"{source}:{line}"


def _inline(self: HTML5Translator, node: nodes.math) -> None:
    self.body.append(convert(node.astext(), False, _place(node)))
    raise nodes.SkipNode


def _block(self: HTML5Translator, node: nodes.math_block) -> None:
    tex = _unwrapped(node.astext())
    label = node.get("label") or "formula"
    identifier = f' id="equation-{node["label"]}"' if node.get("label") else ""
    self.body.append(f'<div class="formula"{identifier}>')
    # focusable, so that the keyboard reaches the end of a formula wider than the screen
    self.body.append(f'<div class="formula-box" role="group" tabindex="0" aria-label="{self.attval(label)}">')
    self.body.append(convert(tex, True, _place(node)))
    self.body.append("</div>")
    if node.get("number"):
        number = get_node_equation_number(self, node)
        self.body.append(f'<span class="formula-number">({number})')
        self.add_permalink_ref(node, "Link to this equation")
        self.body.append("</span>")
    self.body.append("</div>\n")
    raise nodes.SkipNode


def _unwrapped(tex: str) -> str:
    """``equation`` adds nothing to a displayed formula, and math-core would number it a second time."""
    tex = tex.strip()
    for name in ("equation*", "equation"):
        begin, end = f"\\begin{{{name}}}", f"\\end{{{name}}}"
        if tex.startswith(begin) and tex.endswith(end):
            return tex[len(begin) : -len(end)]
    return tex


def setup(app: Sphinx) -> dict[str, Any]:
    """Registers the renderer ``mathml``."""
    app.add_html_math_renderer("mathml", inline_renderers=(_inline, None), block_renderers=(_block, None))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
