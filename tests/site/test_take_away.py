"""Each page can be taken along: as Markdown, as a notebook that runs; and machines find an index of them."""

from __future__ import annotations

import os
import pathlib
import re
import xml.etree.ElementTree as Tree

import pytest

nbformat = pytest.importorskip("nbformat", reason="the extra 'docs' is not installed")
nbclient = pytest.importorskip("nbclient")

DOCS = pathlib.Path(__file__).parents[2] / "docs"
SAMPLE = ["question/index.html", "learn/tape.html", "recipes/variables.html"]


def test_every_page_leads_to_its_files(site, page):
    html = (site / page).read_text()
    for suffix in re.findall(r'href="[\w-]+\.(ipynb|md)" download', html):
        assert (site / page).with_suffix(f".{suffix}").exists()
    assert (site / page).with_suffix(".md").exists()


def test_a_notebook_holds_every_cell_of_its_page(site, notebook):
    source = (DOCS / notebook).with_suffix(".md").read_text()
    found = nbformat.read((site / notebook).with_suffix(".ipynb"), as_version=4)
    nbformat.validate(found)
    written = [cell for cell in found.cells if cell.source.startswith("%%writefile")]
    code = [cell for cell in found.cells if cell.cell_type == "code"]
    assert len(code) - len(written) == len(re.findall(r"^```\{code-cell\}", source, re.M))


def test_markdown_holds_no_directive_for_cells(site, notebook):
    text = (site / notebook).with_suffix(".md").read_text()
    assert text.startswith("# ")
    assert "```python" in text
    assert "{code-cell}" not in text
    assert not re.search(r"\{(term|func|class)\}`", text)


def test_notebooks_run_in_a_fresh_kernel(site, notebook, tmp_path, monkeypatch):
    """Three of them; all with CGRAD_NOTEBOOKS=all."""
    if notebook not in SAMPLE and os.environ.get("CGRAD_NOTEBOOKS") != "all":
        pytest.skip("CGRAD_NOTEBOOKS=all runs this one, too")
    for name, value in {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}.items():
        monkeypatch.setenv(name, value)
    found = nbformat.read((site / notebook).with_suffix(".ipynb"), as_version=4)
    nbclient.NotebookClient(found, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()


def test_machines_find_every_page(site):
    pages = {path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md")}
    index = (site / "llms.txt").read_text()
    assert {place for place in pages if f"/{place}.md)" not in index} == set()
    places = [node.text for node in Tree.parse(site / "sitemap.xml").iter() if node.tag.endswith("loc")]
    assert {place for place in pages if not any(known.endswith(f"/{place}.html") for known in places)} == set()


def test_a_page_that_is_not_there_says_so(site):
    assert "404" in (site / "404.html").read_text() or "not found" in (site / "404.html").read_text().lower()
