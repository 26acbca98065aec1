"""A second build reads again what changed, and nothing else."""

from __future__ import annotations

import pathlib
import re

import pytest

EXTENSIONS = pathlib.Path(__file__).parents[2] / "conf" / "extensions"
CONF = f"""
import sys
sys.path.insert(0, {str(EXTENSIONS)!r})
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_autodoc_typehints", "public_types", "freshness"]
suppress_warnings = ["config.cache"]
"""


@pytest.fixture
def read(tmp_path, capsys):
    """Builds a site of two pages, each in a folder of its own; returns how many pages were read."""
    main = pytest.importorskip("sphinx.cmd.build", reason="the extra 'docs' is not installed").main
    source = tmp_path / "docs"
    for name in ("one", "two"):
        (source / name).mkdir(parents=True)
        (source / name / "page.md").write_text(f"# {name}\n")
    (source / "conf.py").write_text(CONF)
    (source / "index.md").write_text("# Site\n\n```{toctree}\none/page\ntwo/page\n```\n")
    (source / "one" / "figures.py").write_text("")

    def build():
        assert main(["--no-color", str(source), str(tmp_path / "html")]) == 0
        (added, changed) = re.search(r"(\d+) added, (\d+) changed", capsys.readouterr().out).groups()
        return int(added) + int(changed)

    build.source = source
    assert build() == 3
    return build


def test_an_unchanged_site_is_not_read_again(read):
    assert read() == 0


def test_a_changed_page_is_read_alone(read):
    (read.source / "two" / "page.md").write_text("# Two, changed\n")
    assert read() == 1


def test_a_changed_helper_reads_the_pages_beside_it(read):
    (read.source / "one" / "figures.py").write_text("x = 1\n")
    assert read() == 1
