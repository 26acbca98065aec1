"""Pages of the catalogue: what happened, a broken function with its report, why, the repair and the green report.

``{fault} NAME`` in a page runs a case of tests/faults, broken and repaired, while the page is read; the functions, the
reports and the texts on the page are therefore those of the build. ``CG###.html`` leads to the page of its fault.
"""

from __future__ import annotations

import importlib
import inspect
import os
import pathlib
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

ROOT = pathlib.Path(__file__).parents[2]
FAMILIES = "contract variables upstream values connection modes second_order"


@cache
def cases() -> dict[str, list[Any]]:
    """The cases of tests/faults by the fault they stand for, the most telling first."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    folder = str(ROOT / "tests" / "faults")
    sys.path.insert(0, folder)
    try:
        for family in FAMILIES.split():
            importlib.import_module(family)
        found: dict[str, list[Any]] = {}
        for case in importlib.import_module("registry").CASES:
            for name in case.names[:1]:
                found.setdefault(name, []).append(case)
        for case in importlib.import_module("registry").CASES:
            for name in case.names[1:]:
                found.setdefault(name, []).append(case)
        return found
    finally:
        sys.path.remove(folder)


@cache
def trial(name: str) -> tuple[Any, Any, Any]:
    """The first case whose report names this fault first; with its two reports (the second None if not to be had)."""
    for case in cases().get(name, []):
        broken = case.check(right=False)
        if broken.faults and broken.faults[0].name == name:
            return case, broken, case.check(right=True) if case.repaired else None
    raise ExtensionError(f"no case in tests/faults is reported as {name} first")


class FaultPage(SphinxDirective):
    """``{fault} NAME``: the body of the page about one fault."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Returns the sections of the page."""
        from cgrad.faults import BY_NAME

        entry = BY_NAME[self.arguments[0]]
        case, broken, repaired = trial(entry.name)
        self.env.note_dependency(inspect.getsourcefile(case.make))
        found: list[nodes.Node] = [paragraph(entry.summary)]
        story = inspect.getdoc(case.make) + " The function is broken with right=False; d makes a float64 tensor."
        found += section("What you see", [paragraph(story), *code(source(case)), *text(str(broken))])
        found += section("Why", [paragraph(entry.why)])
        found += section("The repair", [paragraph(entry.repair), *code(entry.snippet)])
        if repaired is not None:
            found += section(
                "Repaired",
                [paragraph("The same function with right=True:"), *text(str(repaired))],
            )
        found += section("Met", met(cases()[entry.name]))
        return found


def source(case: Any) -> str:
    """The case's code, without its decorator and docstring."""
    lines = textwrap.dedent(inspect.getsource(case.make)).splitlines()
    start = next(k for k, line in enumerate(lines) if line.startswith("def "))
    doc = next(k for k, line in enumerate(lines) if k > start and '"""' in line)
    return "\n".join(lines[start : start + 1] + lines[doc + 1 :]).strip()


def paragraph(words: str) -> nodes.paragraph:
    """A paragraph of plain words."""
    return nodes.paragraph("", words)


def code(words: str) -> Iterator[nodes.Node]:
    """A block of Python."""
    yield nodes.literal_block(words, words, language="python")


def text(words: str) -> Iterator[nodes.Node]:
    """A block of output."""
    yield nodes.literal_block(words, words, language="none", classes=["report"])


def section(title: str, body: list[nodes.Node]) -> list[nodes.Node]:
    """A titled section."""
    made = nodes.section("", nodes.title("", title), *body, ids=[nodes.make_id(title)])
    return [made]


def met(of_fault: list[Any]) -> list[nodes.Node]:
    """Where people met this fault: links, or what is known of the place."""
    items = nodes.bullet_list()
    for place in dict.fromkeys(case.source for case in of_fault):
        link = nodes.reference("", place, refuri=place) if place.startswith("http") else nodes.inline("", place)
        items += nodes.list_item("", nodes.paragraph("", "", link))
    return [items]


def redirects(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """A page for each code that leads to the fault's own."""
    from cgrad.faults import CATALOGUE

    for entry in CATALOGUE:
        context = {"target": f"{entry.name}.html", "title": f"{entry.code}: {entry.name}"}
        yield f"faults/{entry.code}", context, "redirect.html"


def setup(app: Sphinx) -> dict[str, Any]:
    """Registers the directive and the redirects."""
    app.add_directive("fault", FaultPage)
    app.connect("html-collect-pages", redirects)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
