"""A question in the asker's words or by its title finds its page by the site's own search."""

from __future__ import annotations

import pathlib

import pytest
from bs4 import BeautifulSoup

DOCS = pathlib.Path(__file__).parents[2] / "docs"
RECIPES = sorted(f"recipes/{path.stem}.html" for path in (DOCS / "recipes").glob("*.md") if path.stem != "index")
HITS = "#search-results li a"
# Not the words of the page's title.
ASKED = {
    "recipes/gradient-is-none.html": "why does tape.gradient return None with custom_gradient",
    "recipes/stop-gradient.html": "how do I use stop_gradient in a custom function",
    "recipes/straight-through.html": "gradient through round or sign, straight-through estimator",
    "recipes/nan-at-a-point.html": "gradient is NaN at zero, tf.where does not help",
    "recipes/sinkhorn.html": "backpropagate through sinkhorn iterations",
    "question/index.html": "define jacobian with tensorflow custom_gradient",
}


@pytest.fixture(scope="module")
def find(browser, site):
    context = browser.new_context()
    tab = context.new_page()

    def search(words):
        tab.goto((site / "search.html").as_uri())
        tab.get_by_label("Search", exact=False).first.wait_for()
        tab.evaluate("words => Search.performSearch(words)", words)
        tab.wait_for_function("/found|did not match/.test(document.querySelector('.search-summary')?.textContent)")
        found = [link.get_attribute("href").split("#")[0].split("?")[0] for link in tab.locator(HITS).all()]
        return list(dict.fromkeys(found))

    yield search
    context.close()


def heading(page):
    lines = (DOCS / page).with_suffix(".md").read_text().splitlines()
    return next(line.removeprefix("# ") for line in lines if line.startswith("# "))


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_title_of_a_recipe_finds_it_among_the_first_three(find, recipe):
    assert recipe in find(heading(recipe).replace("`", ""))[:3]


@pytest.mark.parametrize(("wanted", "words"), ASKED.items())
def test_a_question_in_other_words_finds_its_page_among_the_first_three(find, wanted, words):
    assert wanted in find(words)[:3]


@pytest.mark.parametrize("page", ["faults/messages.html", "faults/messages-modes.html"])
def test_a_message_that_a_page_quotes_finds_it(find, site, page):
    items = BeautifulSoup((site / page).read_text(), "html.parser").select("div.cell_output li code")
    quoted = [item.get_text(" ", strip=True) for item in items if "Error: " in item.get_text()]
    assert len(quoted) > 10
    lost = [message for message in quoted if page not in find(message)[:3]]
    assert lost == []
