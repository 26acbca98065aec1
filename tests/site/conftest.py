"""The built site, and a browser to drive it."""

from __future__ import annotations

import os
import pathlib
import shutil

import pytest

DOCS = pathlib.Path(__file__).parents[2] / "docs"
SOURCES = sorted(path.relative_to(DOCS) for path in DOCS.rglob("*.md"))
PAGES = [path.with_suffix(".html").as_posix() for path in SOURCES]
NOTEBOOKS = [p for p, source in zip(PAGES, SOURCES, strict=True) if "mystnb" in (DOCS / source).read_text()[:60]]

SITE = pathlib.Path(__file__).parents[2] / "build" / "html"
REQUIRED = os.environ.get("CGRAD_SITE") == "required"


def _missing(what):
    if REQUIRED:
        pytest.fail(f"{what} is missing, and CGRAD_SITE=required")
    pytest.skip(f"{what} is missing")


def pytest_generate_tests(metafunc):
    """A test that takes ``page`` runs for every page, one that takes ``notebook`` for every page with cells."""
    for name, pages in (("page", PAGES), ("notebook", NOTEBOOKS)):
        if name in metafunc.fixturenames and not _parametrized(metafunc, name):
            metafunc.parametrize(name, pages)


def _parametrized(metafunc, name):
    return any(name in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))


@pytest.fixture(scope="session")
def site():
    if not (SITE / "index.html").exists():
        _missing("the built site (build/html)")
    return SITE


@pytest.fixture(scope="session")
def browser(site):
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        _missing("Chromium")
    from playwright.sync_api import sync_playwright

    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=flags)
        yield running
        running.close()
