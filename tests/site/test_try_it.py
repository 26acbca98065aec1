"""The figure on the question's page shows what cgrad computed, by number fields, sliders and the keyboard."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from bs4 import BeautifulSoup

PAGE = "question/index.html"


@pytest.fixture
def tab(browser, site):
    context = browser.new_context(viewport={"width": 390, "height": 800})
    opened = context.new_page()
    opened.goto((site / PAGE).as_uri())
    yield opened
    context.close()


def checks(site):
    figure = BeautifulSoup((site / PAGE).read_text(), "html.parser").select_one(".try-it")
    return json.loads(figure["data-checks"])


def shown(tab, meaning):
    """The numbers and the shape in one row of the table."""
    cells = tab.locator(".try-it tr", has=tab.get_by_role("rowheader", name=meaning)).locator("td")
    numbers, shape = (
        [float(entry) for entry in re.findall(r"-?[\d.]+(?:e[+-]?\d+)?", text)] for text in cells.all_inner_texts()
    )
    return np.reshape(numbers, [int(size) for size in shape])


def test_every_value_is_the_one_that_cgrad_computed(tab, site):
    points = checks(site)
    assert {point["function"] for point in points} == {0, 1, 2}
    for point in points:
        tab.get_by_label("function").select_option(str(point["function"]))
        for name in "xuv":
            for i, number in enumerate(point[name]):
                tab.get_by_label(f"{name}{i}", exact=True).fill(str(number))
        for key, meaning in (("y", "y = f(x)"), ("J", "J, the"), ("uJ", "uᵀJ"), ("Jv", "J v")):
            found = shown(tab, meaning)
            assert found.shape == np.shape(point[key])
            np.testing.assert_allclose(found, point[key], rtol=1e-5, err_msg=f"{meaning} at {point}")


def test_the_drawn_path_and_its_name_follow(tab):
    tab.get_by_label("u0", exact=True).fill("-2.5")
    picture = tab.locator(".try-it svg")
    written = picture.locator("text").all_text_contents()
    assert written == [
        "x",
        "f",
        "y",
        "forward",
        "u = (-2.5, 3)",
        "uᵀJ = (6, -2.5)",
        "backward: the rule turns u into uᵀJ",
    ]
    assert "u = (-2.5, 3) comes from y and u^T J = (6, -2.5)" in picture.get_attribute("aria-label")


def test_the_keyboard_alone_moves_a_slider_and_a_function(tab):
    tab.get_by_label("function").focus()
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.ariaLabel") == "x0, slider"
    tab.keyboard.press("Tab")
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.ariaLabel") == "x1, slider"
    tab.keyboard.press("ArrowRight")
    assert shown(tab, "y = f(x)").tolist() == [2.25, 2.0]
    tab.get_by_label("function").focus()
    tab.keyboard.press("ArrowDown")
    assert shown(tab, "J, the").shape == (3, 2)


def test_without_a_script_a_picture_is_left(browser, site):
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto((site / PAGE).as_uri())
    assert tab.locator(".try-it svg").is_visible()
    assert tab.locator(".try-it input, .try-it select").count() == 0
    context.close()


def test_no_page_is_too_wide_with_each_function(tab):
    for choice in "012":
        tab.get_by_label("function").select_option(choice)
        for width in (320, 390, 1280):
            tab.set_viewport_size({"width": width, "height": 800})
            assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
