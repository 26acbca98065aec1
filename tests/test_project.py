"""The project's own files keep their word: lists that stand twice, commands that are promised, the README's code."""

from __future__ import annotations

import importlib.util
import pathlib
import re
import tomllib

import pytest

ROOT = pathlib.Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
CI = (ROOT / ".ci" / "run").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def commands(text):
    return [block.strip() for block in re.findall(r"```bash\n(.*?)```", text, re.S)]


def test_extras_and_groups_are_the_same_lists():
    extras = PROJECT["project"]["optional-dependencies"]
    groups = PROJECT["dependency-groups"]
    assert {name: groups[name] for name in extras} == extras


def test_the_version_stands_in_one_place():
    import cgrad

    assert cgrad.__version__ == PROJECT["project"]["version"]


def test_the_changelog_knows_the_version():
    assert f"## {PROJECT['project']['version']}" in (ROOT / "docs" / "about" / "changelog.md").read_text()


def test_nothing_else_lies_at_the_top():
    shown = {path.name for path in ROOT.iterdir() if not path.name.startswith(".")}
    assert shown - {"build", "dist"} == {"docs", "src", "tests", "conf", "pyproject.toml", "README.md", "LICENSE"}


def test_ci_runs_what_the_readme_says():
    build, test = commands(README)
    assert ".venv/bin/sphinx-build -c conf -j 2 docs build/html" in build
    assert test.endswith(".venv/bin/pytest")
    assert re.search(r"sphinx-build -c conf .*docs build/html", CI)
    assert "sphinx-build -c conf -b doctest" in CI
    assert ".venv/bin/pytest" in CI


def test_hosting_builds_what_ci_builds():
    (strict,) = re.findall(r"sphinx-build (-c conf -W .*?) docs build/html", CI)
    assert f"sphinx-build {strict} docs build/html" in (ROOT / ".github/workflows/site.yml").read_text()
    assert f"sphinx-build {strict} docs $READTHEDOCS_OUTPUT/html" in (ROOT / ".readthedocs.yaml").read_text()
    assert "bash .ci/run" in (ROOT / ".github/workflows/tests.yml").read_text()


def test_a_release_is_made_by_the_script_that_is_tried():
    assert "bash .ci/release" in (ROOT / ".github/workflows/release.yml").read_text()
    pinned = (ROOT / ".ci" / "tools.txt").read_text()
    for tool in (ROOT / ".ci" / "tools.in").read_text().split():
        assert re.search(rf"^{tool}==[\d.]+ \\\n    --hash=sha256:", pinned, re.M), tool
    assert "://" not in pinned


def test_the_readme_s_code_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", README, re.S)
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out == "[[0. 1.]\n [2. 0.]]\n"


@pytest.mark.parametrize("source", sorted((ROOT / "conf" / "inventories").glob("*.txt")), ids=lambda p: p.stem)
def test_inventories_are_made_from_their_lists(source):
    spec = importlib.util.spec_from_file_location("make", source.parent / "make.py")
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    assert source.with_suffix(".inv").read_bytes() == make.inventory(source.stem)
