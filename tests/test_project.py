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
