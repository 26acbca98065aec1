"""Every question has its page, every fault too, and the tables in the docs say what the built pages show."""

from __future__ import annotations

import importlib.util
import pathlib
import re

import pytest


def _load():
    spec = importlib.util.spec_from_file_location("questions", pathlib.Path(__file__).with_name("questions.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LISTS = _load()


def test_every_ranked_question_has_a_page_and_every_page_is_listed():
    ranks = LISTS.ranks()
    assert [rank for rank in ranks if rank] == list(range(1, LISTS.QUESTIONS + 1))  # 0: not ranked
    pages = sorted(path.stem for path in LISTS.RECIPES.glob("*.md") if path.stem != "index")
    assert sorted(name for names in ranks.values() for name in names) == pages
    shown = re.findall(r"^\[.*\]\(([\w-]+)\.md\)$", (LISTS.RECIPES / "index.md").read_text(), re.M)
    assert sorted(shown) == pages


def test_the_table_of_questions_says_what_the_pages_show(site):
    assert (LISTS.TABLES / "questions.txt").read_text() == LISTS.questions(site)


def test_every_page_of_a_fault_reports_that_fault_first(site):
    found = LISTS.faults(site)
    for row in found.splitlines()[2:]:
        name, address, first = (cell.strip() for cell in row.strip("|").split("|"))
        assert first == f"{name} ({address[1:6]})"
    assert (LISTS.TABLES / "fault-pages.txt").read_text() == found


@pytest.mark.parametrize("name", [name for names in LISTS.ranks().values() for name in names])
def test_a_recipe_answers_first_and_ends_with_a_check(site, name):
    parsed = LISTS.page(site, f"recipes/{name}")
    assert len(LISTS.title(parsed)) > 15
    assert parsed.select_one("meta[name=description]")["content"]
    code = "\n".join(cell.get_text() for cell in parsed.select("div.cell_input"))
    assert "gradcheck(" in code
    assert re.search(r"assert (not )?\w*(report|gradcheck)", code)
