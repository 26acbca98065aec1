"""The built site in a real browser: nothing wider than the screen, no other host, no error, readable in both modes."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["light", "dark"])
def mode(request):
    return request.param


def test_no_page_is_wider_than_the_screen_or_asks_another_host(browser, site, page, mode):
    context = browser.new_context(color_scheme=mode)
    tab = context.new_page()
    asked, errors = [], []
    tab.on("request", lambda request: asked.append(request.url))
    tab.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.goto((site / page).as_uri())
    for width in (320, 390, 1280):
        tab.set_viewport_size({"width": width, "height": 800})
        over = tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert over <= 0, f"{over} pixels too wide at {width}"
    assert [url for url in asked if not url.startswith("file:")] == []
    assert errors == []
    context.close()


CONTRAST = """
() => {
  const channel = c => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const numbers = s => (s.match(/[\\d.]+/g) || []).map(Number);
  const ground = node => {
    for (; node; node = node.parentElement) {
      const c = numbers(getComputedStyle(node).backgroundColor);
      if (c.length && (c.length < 4 || c[3] > 0)) return c;
    }
    return [255, 255, 255];
  };
  return [...document.querySelectorAll("article p, article pre span, article pre, article td, article math")]
    .filter(node => node.textContent.trim() && node.getClientRects().length)
    .map(node => {
      const a = light(numbers(getComputedStyle(node).color)), b = light(ground(node));
      return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), node.textContent.slice(0, 40)];
    })
    .filter(([ratio]) => ratio < 4.5);
}
"""


def test_text_code_and_outputs_have_enough_contrast(browser, site, notebook, mode):
    context = browser.new_context(color_scheme=mode, viewport={"width": 1280, "height": 900})
    tab = context.new_page()
    tab.goto((site / notebook).as_uri())
    assert tab.evaluate(CONTRAST) == []
    context.close()


def test_formulas_are_set_and_wide_ones_scroll_in_their_own_box(browser, site):
    context = browser.new_context(viewport={"width": 320, "height": 800})
    tab = context.new_page()
    tab.goto((site / "question/derivation.html").as_uri())
    boxes = tab.evaluate(
        "[...document.querySelectorAll('.formula-box')].map(b => [b.clientWidth, b.scrollWidth, b.tabIndex,"
        " b.querySelector('math').getBoundingClientRect().height])"
    )
    assert boxes
    assert all(height > 10 for *_, height in boxes)
    assert any(scroll > client for client, scroll, *_ in boxes)
    assert all(tab_index == 0 for *_, tab_index, _ in boxes)
    context.close()


def test_the_answer_is_in_the_first_screen(browser, site):
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    tab = context.new_page()
    tab.goto((site / "index.html").as_uri())
    output = tab.locator("div.cell_output").first
    assert output.bounding_box()["y"] + output.bounding_box()["height"] < 900
    context.close()
