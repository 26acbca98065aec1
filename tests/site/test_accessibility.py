"""axe-core finds nothing on any page against WCAG 2.2 A and AA, on a phone and a desk, in both modes.

Each page is looked at once, in one of the four ways, which go round; in all four with CGRAD_AXE=all.
"""

from __future__ import annotations

import functools
import importlib.resources
import os
import zlib

import pytest

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22a", "wcag22aa"]
WIDTHS = (390, 1280)


@functools.cache
def axe_core():
    """The checker's script; the package around it is not needed for more than carrying it."""
    return (importlib.resources.files("axe_playwright_python") / "axe.min.js").read_text()


WAYS = [(mode, width) for mode in ("light", "dark") for width in WIDTHS]


@pytest.fixture(scope="session", params=["light", "dark"])
def mode(request):
    return request.param


@pytest.fixture(scope="session")
def tab(mode, browser):
    if os.environ.get("CGRAD_SITE") != "required":  # there, its absence is an error
        pytest.importorskip("axe_playwright_python", reason="the extra 'test' is not installed")
    context = browser.new_context(color_scheme=mode)
    yield context.new_page()
    context.close()


def violations(tab):
    # the page's observers run with the next frame: boxes that scroll become reachable by the keyboard then
    tab.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    tab.evaluate(axe_core())
    found = tab.evaluate("rules => axe.run({runOnly: rules})", RULES)
    assert found["passes"], "the checker has seen nothing"
    return [
        f"{rule['id']}: {node['html'][:160]}: {node['failureSummary']}"
        for rule in found["violations"]
        for node in rule["nodes"]
    ]


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_found_on_any_page(tab, site, page, width, mode):
    turn = WAYS[zlib.crc32(page.encode()) % len(WAYS)]
    if os.environ.get("CGRAD_AXE") != "all" and turn != (mode, width):
        pytest.skip("CGRAD_AXE=all looks at this way, too")
    tab.set_viewport_size({"width": width, "height": 800})
    tab.goto((site / page).as_uri())
    assert violations(tab) == []


def test_the_checker_finds_what_is_wrong(tab):
    tab.set_content("<html><body><img src='x.png'><p style='color:#ccc;background:#fff'>pale</p></body></html>")
    found = {line.split(":")[0] for line in violations(tab)}
    assert {"image-alt", "color-contrast", "document-title", "html-has-lang"} <= found


def test_who_wants_less_motion_gets_none(browser, site):
    context = browser.new_context(reduced_motion="reduce")
    tab = context.new_page()
    tab.goto((site / "index.html").as_uri())
    moving = "[...document.querySelectorAll('*')].filter(n => parseFloat(getComputedStyle(n).transitionDuration) > 0)"
    assert tab.evaluate(f"{moving}.length") == 0
    assert tab.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"
    context.close()
