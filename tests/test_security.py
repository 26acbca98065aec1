"""What the package never does: run text as code, read pickles, open a connection, import what nobody named."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import cgrad

PACKAGE = Path(cgrad.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))
BUILT_IN = {"eval", "exec", "compile", "__import__", "open"}
METHODS = {"system", "popen", "loads", "load", "spawnv", "execv", "load_module", "exec_module"}
MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "ctypes", "subprocess", "socket", "ssl"}
MODULES |= {"urllib", "http", "ftplib", "smtplib", "requests", "webbrowser", "tempfile", "shutil", "yaml"}


def imports(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def calls(tree, kind):
    """The names that are called: plain ones, or those of attributes."""
    functions = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {f.id if isinstance(f, ast.Name) else f.attr for f in functions if isinstance(f, kind)}


def findings(source):
    tree = ast.parse(source)
    found = {module for module in imports(tree) if module.partition(".")[0] in MODULES}
    return found | (calls(tree, ast.Name) & BUILT_IN) | (calls(tree, ast.Attribute) & METHODS)


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_code_from_text_no_pickle_no_connection(path):
    assert findings(path.read_text()) == set()


@pytest.mark.parametrize(
    "source",
    ["eval('1')", "exec(text)", "import pickle", "from pickle import loads", "x.loads(data)", "import urllib.request"],
)
def test_the_look_finds_them(source):
    assert findings(source)


def test_modules_are_imported_by_name_in_two_places_only():
    """The package's own lazy names, and the module that the command line was told."""
    users = [p.name for p in SOURCES if "import_module" in calls(ast.parse(p.read_text()), ast.Attribute)]
    assert users == ["__init__.py", "__main__.py"]
    assert [p.name for p in SOURCES if "runpy" in set(imports(ast.parse(p.read_text())))] == ["__main__.py"]


WITNESS = """
import atexit, json, os, sys
import tensorflow as tf

def tell():
    here = os.path.realpath(os.getcwd())
    files = {name: getattr(m, "__file__", None) or "" for name, m in list(sys.modules.items())}
    mine = sorted(n for n, f in files.items() if f and os.path.dirname(os.path.realpath(f)) == here)
    with open("imported.json", "w") as out:
        json.dump(mine, out)

if "pytest" not in sys.modules:  # a process of its own
    atexit.register(tell)

@tf.custom_gradient
def square(x):
    return x * x, lambda u: 2.0 * x * u
"""
DECOY = "raise SystemExit('a module was imported that nobody named')\n"
DECOYS = ("conftest", "setup", "cgrad_plugin", "other", "usercustomize_cgrad", "questions", "faults", "report", "state")


@pytest.fixture
def place(tmp_path):
    (tmp_path / "witness.py").write_text(WITNESS)
    for name in DECOYS:
        (tmp_path / f"{name}.py").write_text(DECOY)
    return tmp_path


def run(place, *arguments):
    env = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    command = [sys.executable, "-m", "cgrad", *arguments]
    return subprocess.run(command, cwd=place, env=env, capture_output=True, text=True, check=False, timeout=100)


def test_check_imports_the_module_it_was_told_and_no_other(place):
    done = run(place, "check", "witness:square", "float32[2]", "--order", "1", "--modes", "eager")
    assert done.returncode == 0, done.stderr
    assert json.loads((place / "imported.json").read_text()) == ["witness"]


@pytest.mark.parametrize(
    "target",
    [
        "witness:square.__globals__['__builtins__']",
        "witness:__import__('other')",
        "witness:square;import other",
        "witness,other:square",
        "other.py:square",
    ],
)
def test_a_target_is_a_name_and_no_code(place, target, monkeypatch, capsys):
    from cgrad.__main__ import main

    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "path", list(sys.path))
    try:
        assert main(["check", target, "1.0"]) == 2
    finally:
        sys.modules.pop("witness", None)
    assert "nobody named" not in capsys.readouterr().err or target == "other.py:square"
    assert "other" not in sys.modules


def test_explain_imports_nothing_from_here(place):
    done = run(place, "explain", "CG101")
    assert (done.returncode, done.stderr) == (0, "")
    assert not (place / "imported.json").exists()


def test_a_report_that_was_read_is_data():
    report = cgrad.Report.from_dict(
        {
            "function": "__import__('os').system('true')",
            "faults": [],
            "notes": [],
            "evaluations": 0,
            "pulls": 0,
            "seconds": 0.0,
            "options": {"modes": ["eager"]},
            "inputs": [["os.getcwd()", "float32[2]"]],
        }
    )
    assert report.function in str(report)
    assert report.jacobians() == ()
