"""The command line, and the package that it must be able to import without TensorFlow."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import cgrad
from cgrad import faults, text
from cgrad.__main__ import main
from cgrad.exam import MODES

SOURCE = str(Path(cgrad.__file__).parents[1])
MODULE = """
import tensorflow as tf

@tf.custom_gradient
def half(x):
    return x * x, lambda upstream: x * upstream

@tf.custom_gradient
def staircase(x):
    print("printed by f")
    return tf.round(x), lambda upstream: upstream

def scaled(x, factor, index):
    return tf.cast(factor, x.dtype) * tf.gather(x, index)

def broken(x):
    raise ZeroDivisionError("in f")

class Layer:
    @staticmethod
    def call(x):
        return tf.sin(x)

number = 3
"""


def own(stderr):
    """What is not TensorFlow's: its libraries remark on missing GPU drivers while they load."""
    return [line for line in stderr.splitlines() if "cuda" not in line and "absl::InitializeLog" not in line]


def run(*arguments, cwd=None, **variables):
    """The command line in a process of its own."""
    env = {**os.environ, "PYTHONPATH": SOURCE, **variables}
    command = [sys.executable, "-m", "cgrad", *arguments]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)


@pytest.fixture
def here(tmp_path, monkeypatch, request):
    """A current directory with a module ``NAME`` in it; a name of its own for each test, as modules are kept."""
    name = f"module_{abs(hash(request.node.nodeid))}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    (tmp_path / f"{name}_bad.py").write_text("import sys\nsys.exit('no')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield name
    sys.modules.pop(name, None)


# --- explain ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["CG107", "cg107", "wrong-dtype"])
def test_explain(key, capsys):
    assert main(["explain", key]) == 0
    assert capsys.readouterr().out == textwrap.dedent(
        """\
        CG107 wrong-dtype
          A gradient does not have the dtype of its input.

        Why
          The gradient is added to others of the input's dtype; TensorFlow hands it on
          unchecked.

        Repair
          Compute in any precision, return in the input's dtype.

            def grad(upstream):
                return tf.cast(g, x.dtype)

        https://tf-cgrad.readthedocs.io/en/latest/faults/wrong-dtype.html
        """
    )


def test_explain_lists_all(capsys):
    assert main(["explain"]) == 0
    out = capsys.readouterr().out
    assert [line[:5] for line in out.splitlines() if line.startswith("CG")] == list(faults.BY_CODE)
    assert all(name in out for name in faults.BY_NAME)
    assert max(map(len, out.splitlines())) <= text.WIDTH


@pytest.mark.parametrize("entry", faults.CATALOGUE, ids=faults.BY_NAME)
def test_explanations_are_no_wider_than_the_catalogue_s_code(entry, capsys):
    main(["explain", entry.code])
    code = max(len(line) + 4 for line in entry.snippet.splitlines())
    assert max(map(len, capsys.readouterr().out.splitlines())) <= max(text.WIDTH, code)


def test_explain_what_is_not_there(capsys):
    assert main(["explain", "structre-order"]) == 2
    assert capsys.readouterr().err == (
        "python -m cgrad explain: no fault has the code or name 'structre-order'; near it: structure-order, "
        "variables-order, upstream-ignored; 'python -m cgrad explain' lists all\n"
    )


def test_explain_imports_no_tensorflow(tmp_path):
    (tmp_path / "tensorflow.py").write_text("raise SystemExit('tensorflow was imported')")
    done = run("explain", "CG101", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("CG101 wrong-arity\n")


def test_a_closed_pipe_is_no_error():
    command = f"{sys.executable} -m cgrad explain | head -1"
    done = subprocess.run(
        ["bash", "-c", command], env={**os.environ, "PYTHONPATH": SOURCE}, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("CG101")
    assert own(done.stderr) == []


def test_no_command_is_bad_use(capsys):
    with pytest.raises(SystemExit) as caught:
        main([])
    assert caught.value.code == 2
    assert "explain | check | audit" in capsys.readouterr().err


# --- check --------------------------------------------------------------------------------------------------


def test_check_in_a_process_of_its_own(tmp_path):
    (tmp_path / "mine.py").write_text(MODULE)
    done = run("check", "mine:half", "float64[3]", "--order", "1", "--modes", "eager", cwd=tmp_path)
    assert done.returncode == 1
    assert own(done.stderr) == []
    lines = done.stdout.splitlines()
    assert lines[:3] == ["half is wrong: constant-factor (CG403)", "", "  argument  x"]
    assert lines[-2:] == [
        "  again     # x: float64[3]",
        "            cgrad.gradcheck(half, x, order=1, modes=('eager',), seed=0)",
    ]


def test_right_is_0_and_wrong_is_1(here, capsys):
    assert main(["check", f"{here}:Layer.call", "float32[2,3]"]) == 0
    assert capsys.readouterr().out.startswith("call is right\n")
    assert main(["check", f"{here}:half", "float32[2, 3]"]) == 1


def test_numbers_integers_and_scalars(here, capsys):
    assert main(["check", f"{here}:scaled", "float64[3,2]", "-2.0", "int32[4]", "--order=1", "--modes=eager"]) == 0
    assert "# x: float64[3, 2], factor: float32[], index: int32[4]" in capsys.readouterr().out.replace("\n", " ")


def test_a_fault_of_the_function_is_a_report(here, capsys):
    assert main(["check", f"{here}:broken", "float32[]"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("broken is wrong: raises (CG111)\n")
    assert "ZeroDivisionError: in f" in out


def test_surrogate_and_json(here, capsys):
    arguments = ["check", f"{here}:staircase", "float64[2]", "--json", "--order", "1", "--modes", "eager"]
    assert main(arguments) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["faults"][0]["code"].startswith("CG")
    assert "printed by f" in captured.err
    assert main([*arguments, "--surrogate", "--seed", "5"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["options"] == {"order": 1, "modes": ["eager"], "surrogate": True, "rtol": None, "seed": 5}
    assert cgrad.Report.from_dict(data).ok


def test_the_seed_draws_the_inputs(here, capsys):
    seen = []
    for seed in ("0", "0", "1"):
        main(["check", f"{here}:half", "float64[3]", "--seed", seed, "--json"])
        seen.append(json.loads(capsys.readouterr().out)["faults"][0]["seen"])
    assert seen[0] == seen[1] != seen[2]


DTYPES = (
    "float16, bfloat16, float32, float64, complex64, complex128, int8, int16, int32, int64, uint8, uint16, uint32, "
    "uint64, bool"
)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["NAME"], "module:function was due, such as package.module:f, but got 'NAME'"),
        (["NAME:"], "module:function was due, such as package.module:f, but got 'NAME:'"),
        (["NAME:a:b"], "module:function was due, such as package.module:f, but got 'NAME:a:b'"),
        (["NAME:haf"], "NAME:haf: NAME has no 'haf'; near it: half"),
        (["NAME:Layer.cal"], "NAME:Layer.cal: Layer has no 'cal'; near it: call"),
        (["NAME:number"], "NAME:number: a function was due, but it is of type int"),
        (
            ["NAME_not:f"],
            "NAME_not:f: the module NAME_not cannot be imported: ModuleNotFoundError: No module named 'NAME_not'",
        ),
        (["NAME_bad:f"], "NAME_bad:f: the module NAME_bad cannot be imported: SystemExit: no"),
        (["NAME:half"], "NAME:half: inputs for (x) were due, but got 0 (missing a required argument: 'x')"),
        (["NAME:half", "1.0", "2.0"], "NAME:half: inputs for (x) were due, but got 2 (too many positional arguments)"),
        *(
            (
                ["NAME:half", given],
                f"input {given!r}: a dtype with a shape, such as 'float32[2,3]' or 'float64[]', or a number was due\n"
                f"  dtypes: {DTYPES}",
            )
            for given in ("float31[2]", "float32", "float32[2,-1]", "float32[2", "__import__('os')", "float32[2,,3]")
        ),
        (["NAME:half", "float32[]", "--order", "3"], "--order: 1 or 2 was due, but got 3"),
        (
            ["NAME:half", "float32[]", "--modes", "eager,tpu"],
            "--modes: any of eager, graph, xla, pfor, forward were due, but got 'tpu'",
        ),
        (
            ["NAME:half", "float32[]", "--rtol", "2"],
            "--rtol: None or a number between 0 and 1 was due, but got 2.0",
        ),
        (["NAME:half", "float32[]", "--seed=-1"], "--seed: a non-negative integer was due, but got -1"),
    ],
)
def test_bad_use_is_2_and_says_what_was_due(arguments, message, here, capsys):
    assert main(["check", *(argument.replace("NAME", here) for argument in arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.err == f"python -m cgrad check: {message.replace('NAME', here)}\n"
    assert captured.out == ""


def test_the_modes_of_the_command_line_are_those_of_gradcheck():
    from cgrad import __main__

    assert __main__._MODES == MODES


# --- the package --------------------------------------------------------------------------------------------


def test_the_lazy_names_are_those_that_type_checkers_see():
    tree = ast.parse(Path(cgrad.__file__).read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {alias.name: node.module for node in block.body for alias in node.names}
    assert seen.pop("faults") == "cgrad"
    assert seen == cgrad._PLACES
    assert set(cgrad.__all__) == {*seen, "faults"}


def test_every_public_name_is_there():
    for name in cgrad.__all__:
        assert getattr(cgrad, name) is not None
        assert name in dir(cgrad)
    with pytest.raises(AttributeError, match="module 'cgrad' has no attribute 'gradchek'"):
        cgrad.gradchek  # noqa: B018


def test_the_functions_win_over_the_modules_of_the_same_name():
    code = (
        "import cgrad.gradcheck, cgrad.audit\n"
        "print(type(cgrad.gradcheck).__name__, type(cgrad.audit).__name__)\n"
        "from cgrad import gradcheck\n"
        "print(gradcheck is cgrad.gradcheck, gradcheck is __import__('sys').modules['cgrad.gradcheck'].gradcheck)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "function function\nTrue True\n"
