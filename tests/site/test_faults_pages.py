"""The pages of the faults: none missing, each shows its own fault, what TensorFlow says, and where people met it."""

from __future__ import annotations

import pathlib
import re
import runpy
import sys

import pytest
from bs4 import BeautifulSoup

from cgrad.faults import CATALOGUE

ROOT = pathlib.Path(__file__).parents[2]
EXTENSIONS = ROOT / "conf" / "extensions"
sys.path.insert(0, str(EXTENSIONS))
fault_scripts = pytest.importorskip("fault_scripts")
notes = pytest.importorskip("fault_notes")

NAMES = [entry.name for entry in CATALOGUE]
HEADINGS = ["What you see", "Why", "What TensorFlow says", "The repair", "Repaired", "Where people met it"]


def sections(site, name):
    """The page's sections by their heading."""
    page = BeautifulSoup((site / "faults" / f"{name}.html").read_text(), "html.parser")
    for mark in page.select("a.headerlink"):
        mark.decompose()
    return {part.find("h2").get_text().strip(): part for part in page.select("article section section")}


@pytest.mark.parametrize("name", NAMES)
def test_every_fault_has_its_page_with_every_section(site, name):
    found = sections(site, name)
    assert [heading for heading in found if heading != "Recipes"] == HEADINGS


@pytest.mark.parametrize("entry", CATALOGUE, ids=NAMES)
def test_the_first_report_of_a_page_names_its_own_fault_and_the_last_is_green(site, entry):
    found = sections(site, entry.name)
    broken, repaired = found["What you see"].get_text(), found["Repaired"].get_text()
    first = re.search(r"^\S+ is wrong: (\S+) \((CG\d+)\)", broken, re.M)
    assert first
    assert first.groups() == (entry.name, entry.code)
    assert re.search(r"^\S+ is right", repaired, re.M)
    assert " is wrong" not in repaired


@pytest.mark.parametrize("name", NAMES)
def test_tensorflow_s_answers_stand_beside_the_repaired_ones(site, name):
    part = sections(site, name)["What TensorFlow says"]
    rows = [[cell.get_text(" ", strip=True) for cell in row.select("td")] for row in part.select("tbody tr")]
    assert [row[0] for row in rows][:4] == [
        "tape.gradient(y, x)",
        "tape.gradient(y, x, output_gradients=u)",
        "the same in tf.function",
        "tape.jacobian(y, x)",
    ]
    for _, verdict, seen, due in rows:
        assert seen
        assert due
        shortened = re.search(r"\w+\d+\[", seen)  # too large a tensor to be written out
        assert verdict in ("right", "an error either way") or seen != due or shortened
        assert ("Error" in seen) == verdict.startswith("an error")
    assert any(verdict != "right" for _, verdict, *_ in rows), "nothing to be seen of this fault"


@pytest.mark.parametrize("name", NAMES)
def test_a_page_links_to_where_people_met_the_fault(site, name):
    cases = fault_scripts.cases()[name]
    known = {case.source for case in cases} | set(notes.REPORTS.get(name, ()))
    first = {case.source for case in cases if case.names[0] == name and case.source.startswith("http")}
    part = sections(site, name)["Where people met it"]
    links = {link["href"] for link in part.select("a.reference.external")}
    assert links
    assert first <= links <= known


@pytest.mark.parametrize("name", sorted(notes.FORMULAS))
def test_a_formula_of_the_reason_is_set(site, name):
    assert sections(site, name)["Why"].select("math")


def test_what_is_kept_about_faults_is_about_faults():
    for kept in (notes.FORMULAS, notes.REPORTS, notes.RECIPES, notes.PREFERRED):
        assert set(kept) <= set(NAMES)
    assert set(notes.RECIPES) | {"raises"} == set(NAMES)


@pytest.mark.parametrize("entry", CATALOGUE, ids=NAMES)
def test_a_code_leads_to_the_page_of_its_fault(site, entry):
    page = (site / "faults" / f"{entry.code}.html").read_text()
    assert f"{entry.name}.html" in page


@pytest.mark.parametrize("page", ["index", "symptoms"])
def test_every_fault_is_found_by_name_and_by_symptom(site, page):
    index = BeautifulSoup((site / "faults" / f"{page}.html").read_text(), "html.parser")
    linked = {link["href"] for link in index.select("article a[href]")}
    assert {f"{name}.html" for name in NAMES} - linked == set()


QUOTED = {
    "messages": [
        "custom_gradient function expected to return 2 gradients, but returned 1 instead.",
        "returned too few gradients. Expected 3 but received 4",
        "Tensor's shape (2, 2, 2) is not compatible with supplied shape (2, 2).",
        "@tf.custom_gradient grad_fn must accept keyword argument 'variables', since function uses variables:",
        "Must return gradient for each variable from @custom_gradient grad_fn.",
        "None values not supported.",
        "No gradients provided for any variable.",
    ],
    "messages-modes": [
        "'SymbolicTensor' object has no attribute 'numpy'",
        "Cannot convert a symbolic tf.Tensor",
        "A non-persistent GradientTape can only be used to compute one set of gradients (or jacobians)",
        "No gradient defined for operation",
    ],
}


@pytest.mark.parametrize(("page", "quotes"), QUOTED.items())
def test_the_messages_that_people_search_for_are_quoted_each_with_a_page(site, page, quotes):
    parsed = BeautifulSoup((site / "faults" / f"{page}.html").read_text(), "html.parser")
    items = parsed.select("div.cell_output li")
    quoted = " ".join(item.find("code").get_text(" ", strip=True) for item in items)
    for quote in quotes:
        assert quote in quoted
    assert len(items) > 25
    for item in items:
        assert re.search(r"(Error|Warning|tensorflow): ", item.find("code").get_text())
        assert item.select("a[href], em")


@pytest.mark.parametrize("name", NAMES)
def test_the_code_of_a_page_pasted_into_a_file_prints_the_report_of_the_page(site, name, tmp_path, capsys):
    found = sections(site, name)
    for heading, suffix in (("What you see", ""), ("Repaired", "_repaired")):
        code, report = (block.get_text() for block in found[heading].select("pre"))
        path = tmp_path / f"{name.replace('-', '_')}{suffix}.py"
        path.write_text(code)
        runpy.run_path(str(path), run_name=path.stem)
        printed = re.sub(r"0x[0-9a-f]{6,}", "0x...", capsys.readouterr().out)
        assert printed.strip() == report.strip()
