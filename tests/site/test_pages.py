"""The built pages as files: all cells ran, the key numbers stand there, links resolve, mathematics is set."""

from __future__ import annotations

import functools
import pathlib
import re
from urllib.parse import unquote, urldefrag

import pytest
from bs4 import BeautifulSoup

DOCS = pathlib.Path(__file__).parents[2] / "docs"


@functools.cache
def identifiers(path):
    return {node["id"] for node in BeautifulSoup(path.read_text(), "html.parser").select("[id]")}


def soup(site, page):
    return BeautifulSoup((site / page).read_text(), "html.parser")


def outputs(site, page):
    return [block.get_text() for block in soup(site, page).select("div.cell_output")]


def test_every_source_has_its_page(site, page):
    assert (site / page).exists()


def test_every_cell_is_there_and_none_shows_a_traceback(site, notebook):
    page = notebook
    source = (DOCS / page).with_suffix(".md").read_text()
    cells = len(re.findall(r"^```\{code-cell\}", source, re.M))
    hidden = source.count("remove-input")
    found = soup(site, page).select("div.cell")
    assert len(found) == cells
    assert len(soup(site, page).select("div.cell_input")) == cells - hidden
    for cell in found:
        if "tag_raises-exception" not in cell["class"]:
            assert not cell.select(".traceback, .stderr")
            assert "Traceback (most recent call last)" not in cell.get_text()


def test_no_output_differs_from_run_to_run(site, notebook):
    assert not re.search(r"WARNING:|0x[0-9a-f]{6,}|\b\d+(\.\d+)? m?s\b", "".join(outputs(site, notebook)))


KEY_NUMBERS = {
    "index.html": ["[[0., 1.], [2., 0.]]", "not-unbroadcast", "tf.reduce_sum(g, axis=[0])"],
    "question/index.html": [
        "[[0., 2.], [1., 0.]]",
        "None",
        "ValueError: Encountered an exception while vectorizing the jacobian computation",
    ],
    "question/derivation.html": ["[ 6., 10.]", "[[0., 1.], [2., 0.]]", "(3, 4, 3, 2)"],
    "question/repaired.html": [
        "[2., 1.]",
        "[ 6., 10.]",
        "tf.function, XLA  Jacobian, looped      [[0.0, 1.0], [2.0, 0.0]]",
    ],
    "question/answer.html": ["[[0., 1.], [2., 0.]]"],
    "question/checked.html": ["[CG104]", "jacobian-returned", "transposed-jacobian", "[[0., 1.], [2., 0.]]"],
}


@pytest.mark.parametrize(("page", "numbers"), KEY_NUMBERS.items())
def test_the_key_numbers_are_the_right_ones(site, page, numbers):
    text = re.sub(r"\s+", "", "".join(outputs(site, page)))
    for number in numbers:
        assert re.sub(r"\s+", "", number) in text


JACOBIAN, MATRIX = "[[0, 1], [2, 0]]", "[[0, 2], [1, 0]]"
ROWS = {
    "V": [MATRIX, "None", "ValueError", "ValueError", "RuntimeError"],
    "C": [MATRIX, "ValueError", "ValueError", "ValueError", "RuntimeError"],
    "A": ["[2, 1]", "None", "ValueError", JACOBIAN, "RuntimeError"],
    "S": ["[2, 1]", JACOBIAN, JACOBIAN, JACOBIAN, "RuntimeError"],
}


def test_the_table_of_causes(site):
    (table,) = soup(site, "question/causes.html").select("div.cell_output table")
    rows = [[cell.get_text() for cell in row.select("td")] for row in table.select("tbody tr")]
    assert rows == [[forward, rule, *cells] for forward in ("tf.Variable", "tf.stack") for rule, cells in ROWS.items()]


def test_mathematics_is_mathml_and_no_tex_is_left(site, page):
    parsed = soup(site, page)
    source = (DOCS / page).with_suffix(".md").read_text()
    if "$" in re.sub(r"```.*?```|`[^`]*`", "", source, flags=re.S):
        assert parsed.select("math")
    for node in parsed.select("math annotation, pre, code, script"):
        node.decompose()
    text = parsed.get_text()
    assert not re.search(r"\$\$|\\(frac|begin|inner|mathbb|sum|partial)\b", text)
    assert not parsed.select("merror")


def test_internal_links_and_anchors_resolve(site, page):
    for link in soup(site, page).select("a[href]"):
        address, fragment = urldefrag(unquote(link["href"]))
        if re.match(r"[a-z]+:", address):
            continue
        target = (site / page).parent / address if address else site / page
        assert target.exists(), link["href"]
        if fragment and target.suffix == ".html":
            assert fragment in identifiers(target.resolve()), link["href"]


def test_nothing_is_loaded_from_another_host(site, page):
    parsed = soup(site, page)
    loaded = [
        node.get("src") or node.get("href")
        for node in parsed.select("script[src], link[href]:not([rel=canonical]), img[src]")
    ]
    assert [address for address in loaded if re.match(r"(https?:)?//", address)] == []


def test_pictures_say_what_they_show(site, page):
    parsed = soup(site, page)
    for picture in parsed.select("article img"):
        assert picture.get("alt")
    for picture in parsed.select("div.cell_output svg"):
        assert picture["role"] == "img"
        assert len(picture["aria-label"]) > 15


def test_every_sign_in_use_is_in_the_font(site):
    ttlib = pytest.importorskip("fontTools.ttLib")
    signs = set(ttlib.TTFont(site / "_static" / "fonts" / "stix-two-math.woff2").getBestCmap())
    for path in site.rglob("*.html"):
        parsed = BeautifulSoup(path.read_text(), "html.parser")
        for node in parsed.select("math annotation, math mtext"):
            node.decompose()
        used = {ord(sign) for node in parsed.select("math") for sign in node.get_text() if not sign.isspace()}
        # letters in italics are drawn from the mathematical alphabets
        assert {hex(sign) for sign in used - signs} == set(), path
