"""Pages of the catalogue: what happened, a broken function with its report, why, how TensorFlow reacts, the repair.

``{fault} NAME`` in a page runs a case of tests/faults, broken and repaired, while the page is read; the functions, the
reports, TensorFlow's answers and the texts on the page are therefore those of the build. ``CG###.html`` leads to the
page of its fault.
"""

from __future__ import annotations

import pathlib
import re
import textwrap
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import fault_notes
import fault_reactions
import fault_scripts
from docutils import nodes
from fault_reactions import Answer
from fault_scripts import Script
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

HERE = pathlib.Path(__file__).parent
FAULTS = HERE.parents[1] / "tests" / "faults"


@dataclass(frozen=True)
class Trial:
    """A case of a fault, run: the function broken and repaired, with their reports."""

    case: Any
    broken: Script
    seen: Any
    repaired: Script
    clean: Any


def trial(name: str) -> Trial:
    """The first case whose broken function is reported as this fault first, and whose repaired one is clean."""
    module = name.replace("-", "_")
    preferred = fault_notes.PREFERRED.get(name)
    for case in sorted(fault_scripts.cases().get(name, []), key=lambda case: case.name != preferred):
        if not case.repaired:
            continue
        broken = fault_scripts.script(case, False, module)
        seen = _checked(case, broken)
        if seen.faults and seen.faults[0].name == name:
            repaired = fault_scripts.script(case, True, f"{module}_repaired")
            return Trial(case, broken, seen, repaired, _checked(case, repaired))
    raise ExtensionError(f"no repaired case in tests/faults is reported as {name} first")


def _checked(case: Any, made: Script) -> Any:
    import cgrad

    return cgrad.gradcheck(made.f, *made.args, surrogate=case.surrogate, order=case.order, modes=case.modes)


class FaultPage(SphinxDirective):
    """``{fault} NAME``: the body of the page about one fault."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Returns the sections of the page."""
        from cgrad.faults import BY_NAME

        entry = BY_NAME[self.arguments[0]]
        for path in [*HERE.glob("fault_*.py"), *FAULTS.glob("*.py")]:
            self.env.note_dependency(str(path))
        if self.config.nb_execution_mode == "off":  # a draft
            return [paragraph(entry.summary), paragraph(entry.why), paragraph(entry.repair), *code(entry.snippet)]
        try:
            return self._body(entry)
        finally:
            fault_scripts.tidy()

    def _body(self, entry: Any) -> list[nodes.Node]:
        found = trial(entry.name)
        why = [paragraph(entry.why), *formula(fault_notes.FORMULAS.get(entry.name, ""))]
        story = paragraph(found.case.make.__doc__.strip())
        shown = unsearched([*code(found.broken.text), *text(str(found.seen))])
        again = [paragraph("The same function, repaired:"), *code(found.repaired.text), *text(str(found.clean))]
        return [
            paragraph(entry.summary),
            *section("What you see", [story, *shown]),
            *section("Why", why),
            *unsearched(section("What TensorFlow says", reaction(entry, found))),
            *section("The repair", [paragraph(entry.repair), *code(entry.snippet)]),
            *unsearched(section("Repaired", again)),
            *unsearched(section("Where people met it", met(entry.name))),
            *recipes(entry.name, self.env.found_docs),
        ]


# --- TensorFlow's own reaction -------------------------------------------------------------------


def reaction(entry: Any, found: Trial) -> list[nodes.Node]:
    """What TensorFlow answers for the broken function, beside what it answers for the repaired one."""
    second = entry.code.startswith("CG7")
    seen = fault_reactions.ask(found.broken.f, found.broken.args, second)
    due = fault_reactions.ask(found.repaired.f, found.repaired.args, second)
    verdicts = {way: fault_reactions.verdict(seen[way], due[way]) for way in seen}
    rows = [[[way], [verdicts[way]], seen[way].lines(), due[way].lines()] for way in seen]
    head = ["asked", "verdict", "TensorFlow's answer", "repaired"]
    return [
        paragraph(summary(list(verdicts.values())) + UPSTREAM),
        table(head, rows),
        *instead(entry, found, second, due),
    ]


UPSTREAM = " The upstream `u` is -2, 3, -4, ... in the shape of `y`; where none is given, TensorFlow takes ones."


def summary(verdicts: list[str]) -> str:
    """One or two sentences about all the ways to ask."""
    loud = verdicts.count("an error")
    silent = sum(v.endswith("no error") for v in verdicts)
    if loud == len(verdicts):
        return "An error, whichever way it is asked."
    if silent == len(verdicts):
        return "Nothing: no error, no warning, and a wrong answer whichever way it is asked."
    asked = f"of {len(verdicts)} ways to ask"
    if silent and not loud:
        return f"Nothing: no error, no warning. In {silent} {asked} the answer is wrong."
    if loud and not silent:
        return f"An error in {loud} {asked}."
    if loud and silent:
        return f"An error in {loud} {asked}; in {silent} a wrong answer without a word."
    return "Nothing, and each answer is right in this mode and for this upstream."


def instead(entry: Any, found: Trial, second: bool, due: dict[str, Answer]) -> list[nodes.Node]:
    """The same function under ``cgrad.custom_vjp``: whether it raises, and what; or is right."""
    if "tf.custom_gradient" not in found.broken.text:
        return []
    other = fault_scripts.replaced(found.broken, entry.name.replace("-", "_") + "_vjp")
    said, seen = fault_reactions.ask_loudly(other.f, other.args, second)
    lead = "With `@cgrad.custom_vjp` in the place of `@tf.custom_gradient` "
    if said and "[CG" in said[0]:
        return [paragraph(lead + "the same function says:"), *text(textwrap.fill(said[0], 84))]
    if all(fault_reactions.verdict(seen[way], due[way]) == "right" for way in seen):
        return [paragraph(lead + "every answer is right.")]
    if said:
        return []
    return [paragraph("No call of the function alone can show this. It takes a check, `gradcheck`.")]


# --- the parts of a page -------------------------------------------------------------------------


def paragraph(words: str) -> nodes.paragraph:
    """A paragraph; what stands between backticks is code."""
    made = nodes.paragraph("", "")
    for k, part in enumerate(words.split("`")):
        made += nodes.literal("", part) if k % 2 else nodes.Text(part)
    return made


def code(words: str) -> Iterator[nodes.Node]:
    """A block of Python."""
    yield nodes.literal_block(words, words, language="python")


def text(words: str) -> Iterator[nodes.Node]:
    """A block of output; an object's address would differ from build to build."""
    words = re.sub(r"0x[0-9a-f]{6,}", "0x...", words)
    yield nodes.literal_block(words, words, language="none", classes=["report"])


def formula(tex: str) -> Iterator[nodes.Node]:
    """A displayed formula, if there is one."""
    if tex:
        yield nodes.math_block(tex, tex, number=None, label=None, nowrap=True)


def section(title: str, body: list[nodes.Node]) -> list[nodes.Node]:
    """A titled section."""
    made = nodes.section("", nodes.title("", title), *body, ids=[nodes.make_id(title)])
    return [made]


def unsearched(parts: list[nodes.Node]) -> list[nodes.Node]:
    """Left out of the site's search: what all these pages have alike would bring up each of them, whatever is asked."""
    for part in parts:
        part["classes"].append("no-search")
    return parts


def table(head: list[str], rows: list[list[list[str]]]) -> nodes.table:
    """A table; each cell is a list of lines, and all but the second column is code."""
    group = nodes.tgroup("", *[nodes.colspec("", colwidth=1) for _ in head], cols=len(head))
    group += nodes.thead("", nodes.row("", *[nodes.entry("", paragraph(word)) for word in head]))
    body = nodes.tbody()
    for row in rows:
        cells = [nodes.entry("", *_lines(lines, literal=k != 1)) for k, lines in enumerate(row)]
        body += nodes.row("", *cells)
    group += body
    return nodes.table("", group)


def _lines(lines: list[str], literal: bool) -> Iterator[nodes.Node]:
    for line in lines:
        yield nodes.paragraph("", "", nodes.literal("", line) if literal else nodes.Text(line))


def met(name: str) -> list[nodes.Node]:
    """Where people met this fault: links first, then what is known of the places without one."""
    of_fault = fault_scripts.cases()[name]
    places = [case.source for case in of_fault if case.names[0] == name] + list(fault_notes.REPORTS.get(name, ()))
    if not any(map(_public, places)):
        places = [case.source for case in of_fault]
    places = [place for place in places if place != "public repository file"]
    items = nodes.bullet_list()
    for place in sorted(dict.fromkeys(places), key=_public, reverse=True):
        link = nodes.reference("", place, refuri=place) if _public(place) else nodes.inline("", place)
        items += nodes.list_item("", nodes.paragraph("", "", link))
    return [items]


def _public(place: str) -> bool:
    return place.startswith("http")


def recipes(name: str, pages: Collection[str]) -> list[nodes.Node]:
    """Links to the recipes that this fault belongs to, of those that there are."""
    there = [slug for slug in fault_notes.RECIPES.get(name, ()) if f"recipes/{slug}" in pages]
    items = nodes.bullet_list()
    for slug in there:
        link = addnodes.pending_xref(
            "", refdomain="std", reftype="doc", reftarget=f"/recipes/{slug}", refexplicit=False
        )
        items += nodes.list_item("", nodes.paragraph("", "", link))
        link += nodes.inline("", slug)
    return section("Recipes", [items]) if there else []


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
