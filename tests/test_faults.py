"""The catalogue: complete, unique, found by code and by name, and independent of TensorFlow."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cgrad import faults

SOURCE = str(Path(faults.__file__).parents[1])


def test_codes_and_names_are_unique():
    assert len(faults.BY_CODE) == len(faults.BY_NAME) == len(faults.CATALOGUE)


def test_codes_are_sorted():
    codes = [entry.code for entry in faults.CATALOGUE]
    assert codes == sorted(codes)


@pytest.mark.parametrize("entry", faults.CATALOGUE, ids=faults.BY_NAME)
def test_an_entry_is_complete(entry):
    assert re.fullmatch(r"CG[1-7]\d\d", entry.code)
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", entry.name)
    for value in (entry.summary, entry.why, entry.repair):
        assert value.strip() == value
        assert value.endswith((".", ")"))
        assert value.isascii()
    assert entry.page == f"{faults.SITE}faults/{entry.name}.html"


@pytest.mark.parametrize("entry", faults.CATALOGUE, ids=faults.BY_NAME)
def test_a_snippet_is_python(entry):
    body = "\n".join("    " + line for line in entry.snippet.splitlines())
    ast.parse(f"def around():\n{body}\n")


@pytest.mark.parametrize("key", ["CG105", "cg105", " CG105 ", "not-unbroadcast", "Not-Unbroadcast"])
def test_find_by_code_and_by_name(key):
    assert faults.find(key) is faults.BY_NAME["not-unbroadcast"]


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (
            "jacobian-return",
            "no fault has the code or name 'jacobian-return'; near it: jacobian-returned, none-returned",
        ),
        ("CG9", "no fault has the code or name 'CG9'"),
        ("", "no fault has the code or name ''"),
    ],
)
def test_a_near_miss_names_what_is_near(key, message):
    with pytest.raises(KeyError) as caught:
        faults.find(key)
    assert caught.value.args[0].startswith(message)


def test_the_text_of_an_entry():
    entry = faults.BY_NAME["wrong-shape"]
    assert str(entry) == (
        "CG103 wrong-shape\n"
        "  A gradient does not have the shape of its input.\n"
        "\n"
        "Why\n"
        "  u^T J has one entry for each entry of x, so its shape is that of x. TensorFlow does not check it.\n"
        "\n"
        "Repair\n"
        "  Return a tensor of exactly the shape of the input.\n"
        "\n"
        "    def grad(upstream):\n"
        "        return tf.reshape(g, tf.shape(x))\n"
        "\n"
        "https://tf-cgrad.readthedocs.io/en/latest/faults/wrong-shape.html"
    )


def test_the_catalogue_needs_no_tensorflow():
    code = "import sys, cgrad; cgrad.faults.find('CG101'); import cgrad.faults; print('tensorflow' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": SOURCE}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
