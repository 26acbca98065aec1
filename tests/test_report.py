"""Report: whole texts, what a hostile name does to it, the round trip, the two Jacobians, pytest and the terminal."""

from __future__ import annotations

import copy
import html.parser
import io
import json
import os
import pickle
import re
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import cgrad
from cgrad import progress, text
from cgrad.diagnosis import Fault, Note
from cgrad.exam import Options
from cgrad.faults import BY_NAME
from cgrad.report import Report, reproducer

X = tf.constant([1.0, 3.0], tf.float64)
EVIL = "<script>alert('&\"')</script>\x1b[31m"


@tf.custom_gradient
def half(x):
    return x * x, lambda upstream: x * upstream


def made(*names, notes=(), function="f", options=None, inputs=(("x", "float32[2]"),), **changes):
    """A report with the faults of these names."""
    values = {
        "argument": "x",
        "seen": "1 at x[0]",
        "due": "2",
        "reason": "because.",
        "repair": "return 2.0 * g",
        **changes,
    }
    faults = tuple(Fault(BY_NAME[name], **values) for name in names)
    return Report(function, faults, tuple(notes), 12, 1, 0.0345, options or Options(), tuple(inputs))


class Terminal(io.StringIO):
    def isatty(self):
        return True


# --- text ---------------------------------------------------------------------------------------------------


def test_the_text_of_one_fault():
    assert str(made("constant-factor")) == (
        "f is wrong: constant-factor (CG403)\n"
        "\n"
        "  argument  x\n"
        "  seen      1 at x[0]\n"
        "  due       2\n"
        "  why       because.\n"
        "  repair    return 2.0 * g\n"
        "  page      https://tf-cgrad.readthedocs.io/en/latest/faults/constant-factor.html\n"
        "\n"
        "  cost      12 evaluations, 1 backward pass\n"
        "  again     cgrad.gradcheck(f, x, seed=0)   # x: float32[2]"
    )


def test_the_text_of_two_faults():
    assert str(made("wrong-dtype", "wrong-value", argument="", seen="", due="")) == (
        "f is wrong: wrong-dtype (CG107), wrong-value (CG406)\n"
        "\n"
        "  wrong-dtype (CG107)\n"
        "  why       because.\n"
        "  repair    return 2.0 * g\n"
        "  page      https://tf-cgrad.readthedocs.io/en/latest/faults/wrong-dtype.html\n"
        "\n"
        "  wrong-value (CG406)\n"
        "  why       because.\n"
        "  repair    return 2.0 * g\n"
        "  page      https://tf-cgrad.readthedocs.io/en/latest/faults/wrong-value.html\n"
        "\n"
        "  cost      12 evaluations, 1 backward pass\n"
        "  again     cgrad.gradcheck(f, x, seed=0)   # x: float32[2]"
    )


def test_the_text_of_a_right_function_with_notes():
    notes = [Note("kink", "x", "any slope in between"), *(Note(f"mode-{k}", "", "f cannot run") for k in "abc")]
    assert str(made(notes=notes)) == (
        "f is right\n"
        "\n"
        "  note      kink (x): any slope in between\n"
        "  note      mode-a: f cannot run\n"
        "            and 2 more notes: report.notes\n"
        "  cost      12 evaluations, 1 backward pass\n"
        "  again     cgrad.gradcheck(f, x, seed=0)   # x: float32[2]"
    )


def test_the_headline_says_what_could_not_be_judged_and_what_was_asked():
    assert made(notes=[Note("not-asked", "", "the question of values broke off")]).headline == (
        "f is right, as far as could be judged"
    )
    assert made(options=Options(surrogate=True)).headline == "f is right, as a surrogate"


def test_more_than_four_faults_are_counted():
    report = made("raises", "wrong-dtype", "wrong-shape", "wrong-value", "stale-state", "nondeterministic")
    assert report.headline.endswith("wrong-value (CG406) and 2 more")
    assert "stale-state" not in str(report)


@pytest.mark.parametrize("entry", BY_NAME.values(), ids=BY_NAME)
def test_no_report_of_one_fault_is_longer_than_25_lines_or_wider_than_its_width(entry):
    long = "a long word " * 200
    notes = [Note("kink", "x", long)] * 5
    inputs = [(f"argument_{k}", "float32[10, 10, 10]") for k in range(12)]
    for repair in (entry.snippet, long, "return g\n" * 40):
        report = made(
            entry.name, notes=notes, inputs=inputs, function="f" * 150, seen=long, due=long, reason=long, repair=repair
        )
        lines = str(report).splitlines()
        assert len(lines) <= 25
        assert max(map(len, lines)) <= 100
        assert all(len(line) <= text.WIDTH for line in lines if "https:" not in line)
        assert sum(line.lstrip().startswith(("note", "and 4 more")) for line in lines) >= 1


def test_a_long_call_is_never_cut_and_its_shapes_go_above():
    inputs = [(name, "float32[10, 10, 10]") for name in ("query", "key", "value", "mask")]
    assert str(made(inputs=inputs)).splitlines()[-2:] == [
        "  again     # query: float32[10, 10, 10], key: float32[10, 10, 10], value: float32[1 ...",
        "            cgrad.gradcheck(f, query, key, value, mask, seed=0)",
    ]


def test_the_comment_of_a_long_repair_goes_above_it():
    body, comment = "return tf.reduce_sum(upstream * weights, axis=[0, 1], keepdims=True)", "a comment that is long"
    lines = str(made("wrong-value", repair=f"{body}   # {comment}")).splitlines()
    assert f"  repair    # {comment}" in lines
    assert f"            {body}" in lines


def test_control_characters_are_shown_not_obeyed():
    report = made("raises", seen=f"ValueError: {EVIL}\r\nnext", function="f\nis right")
    assert "\x1b" not in str(report)
    assert r"\x1b[31m next" in str(report)
    assert str(report).startswith("f is right is wrong: raises (CG111)\n")


def test_only_a_stream_that_cannot_encode_it_gets_escapes(monkeypatch):
    report = made(function="größe")
    assert str(report).startswith("größe is right")
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert str(report).startswith(r"gr\xf6\xdfe is right")
    print(report)


def test_the_layout_is_ascii():
    assert str(made("wrong-value", notes=[Note("kink", "x", "text")] * 5)).isascii()


@pytest.mark.parametrize(
    ("stream", "variables", "coloured"),
    [
        (Terminal(), {}, True),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"TERM": "dumb"}, False),
        (io.StringIO(), {}, False),
    ],
)
def test_colour_on_a_terminal_only(stream, variables, coloured, monkeypatch):
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    report = made("constant-factor")
    report.show(stream)
    shown = stream.getvalue()
    assert ("\x1b[1;31mf is wrong" in shown) == coloured
    timed = str(report).replace("backward pass\n", "backward pass, 34 ms\n")
    assert re.sub(r"\x1b\[[\d;]*m", "", shown) == f"{timed}\n"


def test_str_has_no_colour_even_on_a_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert "\x1b" not in str(made("constant-factor"))


def test_repr_is_the_report_outside_pytest():
    assert repr(made("constant-factor")) == str(made("constant-factor"))


# --- the call -----------------------------------------------------------------------------------------------


def test_the_reproducer_has_what_is_not_default():
    options = Options(order=1, modes=("eager",), surrogate=True, rtol=1e-3, seed=7)
    assert reproducer("f", [("x", "float32[2]")], options) == (
        "cgrad.gradcheck(f, x, order=1, modes=('eager',), surrogate=True, rtol=0.001, seed=7)"
    )


def test_arguments_stand_once_and_lambdas_are_called_f():
    inputs = [("p['b']", "float32[]"), ("p['w'][0]", "float32[]"), ("args[1]", "3"), ("q.left", "float64[2]")]
    assert reproducer("<lambda>", inputs, Options()) == "cgrad.gradcheck(f, p, args[1], q, seed=0)"


def test_the_reproducer_reproduces():
    report = cgrad.gradcheck(half, X, seed=3)
    again = eval(report.call, {"cgrad": cgrad, "half": half, "x": X})
    assert (again.faults, again.notes, again.options) == (report.faults, report.notes, report.options)
    assert report.call == "cgrad.gradcheck(half, x, seed=3)   # x: float64[2]"


def test_a_function_without_inputs_that_raises_is_wrong():
    assert [fault.name for fault in cgrad.gradcheck(half).faults] == ["raises"]


# --- data ---------------------------------------------------------------------------------------------------


def test_the_dict_goes_through_json_and_back():
    report = cgrad.gradcheck(half, X, order=1, rtol=1e-3)
    data = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert Report.from_dict(data) == report
    assert str(Report.from_dict(data)) == str(report)
    assert data["faults"][0]["page"] == report.faults[0].page
    assert data["ok"] is False


def test_notes_survive_too():
    report = made("raises", notes=[Note("kink", "x", "text")])
    assert Report.from_dict(report.to_dict()) == report


def test_a_dict_with_an_unknown_code_is_refused():
    data = made("raises").to_dict()
    data["faults"][0]["code"] = "CG999"
    with pytest.raises(cgrad.UsageError, match="CG999"):
        Report.from_dict(data)


def test_a_report_can_be_pickled_copied_and_hashed():
    report = cgrad.gradcheck(half, X, order=1, modes=("eager",))
    for other in (pickle.loads(pickle.dumps(report)), copy.deepcopy(report)):
        assert other == report
        assert hash(other) == hash(report)
        assert other.jacobians() == ()


def test_raise_for_faults():
    made().raise_for_faults()
    report = made("constant-factor")
    with pytest.raises(cgrad.GradientFault) as caught:
        report.raise_for_faults()
    assert str(caught.value) == f"[CG403] {report}"
    assert (caught.value.code, caught.value.fault) == ("CG403", "constant-factor")
    assert isinstance(caught.value, cgrad.GradientError)
    assert not isinstance(caught.value, ValueError)


# --- Jacobians ----------------------------------------------------------------------------------------------


def jacobians(f, *args, **options):
    return cgrad.gradcheck(f, *args, order=1, modes=("eager",), **options).jacobians()


def test_the_two_jacobians_of_a_wrong_rule():
    (both,) = jacobians(half, X)
    np.testing.assert_array_equal(both.rule, [[1.0, 0.0], [0.0, 3.0]])
    np.testing.assert_array_equal(both.truth, [[2.0, 0.0], [0.0, 6.0]])
    np.testing.assert_array_equal(both.difference, [[-1.0, 0.0], [0.0, -3.0]])
    assert (both.argument, both.rows, both.columns) == ("x", ("0", "1"), ("0", "1"))


def test_they_cost_nothing_until_asked_for():
    calls = []

    def f(x):
        calls.append(1)
        return tf.sin(x)

    report = cgrad.gradcheck(f, X, order=1, modes=("eager",))
    before = len(calls)
    report.jacobians()
    after = len(calls)
    assert report.jacobians() is report.jacobians()
    assert before < after == len(calls)


def test_several_inputs_and_outputs_and_a_matrix():
    a, b = tf.constant([[1.0, 2.0]], tf.float64), tf.constant(3.0, tf.float64)
    first, second = jacobians(lambda a, b: (a * b, b * b), a, b)
    np.testing.assert_array_equal(first.truth, [[3.0, 0.0], [0.0, 3.0], [0.0, 0.0]])
    np.testing.assert_array_equal(second.truth, [[1.0], [2.0], [6.0]])
    assert first.rows == ("0: 0, 0", "0: 0, 1", "1:")
    assert first.columns == ("0, 0", "0, 1")


def test_a_complex_entry_is_two_real_ones():
    (both,) = jacobians(lambda z: z * z, tf.constant(1.0 + 2.0j, tf.complex128))
    # TensorFlow: u * conj(2 z); as real numbers the transpose of multiplication by 2 z, which is what J is
    np.testing.assert_allclose(both.rule, [[2.0, -4.0], [4.0, 2.0]])
    np.testing.assert_allclose(both.truth, both.rule)
    assert both.rows == ("re", "im")


def test_where_the_forward_pass_is_cut_differences_tell_the_truth():
    @tf.custom_gradient
    def f(x):
        y = tf.numpy_function(np.sin, [x], tf.float64)
        return tf.ensure_shape(y, x.shape), lambda upstream: upstream

    (both,) = jacobians(f, X)
    np.testing.assert_array_equal(both.rule, np.eye(2))
    np.testing.assert_allclose(both.truth, np.diag(np.cos([1.0, 3.0])), atol=1e-8)


def test_at_a_kink_the_possible_slope_nearest_to_the_rule_s_is_true():
    (both,) = jacobians(tf.nn.relu, tf.constant([0.0, 2.0], tf.float64))
    np.testing.assert_allclose(both.truth, [[0.0, 0.0], [0.0, 1.0]], atol=1e-8)

    @tf.custom_gradient
    def steeper(x):
        return tf.nn.relu(x), lambda upstream: 3.0 * upstream

    (both,) = jacobians(steeper, tf.constant([0.0, 2.0], tf.float64))
    np.testing.assert_allclose(both.difference, [[2.0, 0.0], [0.0, 2.0]], atol=1e-8)


def test_a_rule_of_another_size_has_no_numbers():
    @tf.custom_gradient
    def f(x):
        return tf.stack([x[1], 2.0 * x[0]]), lambda upstream: tf.ones((2, 2), tf.float64)

    (both,) = jacobians(f, X)
    assert np.isnan(both.rule).all()
    np.testing.assert_array_equal(both.truth, [[0.0, 1.0], [2.0, 0.0]])


def test_a_captured_variable_has_one_too_and_keeps_its_value():
    w = tf.Variable([2.0, 5.0], dtype=tf.float64, name="w")
    x, of_w = jacobians(lambda x: x * w, X)
    np.testing.assert_array_equal(x.truth, [[2.0, 0.0], [0.0, 5.0]])
    np.testing.assert_array_equal(of_w.truth, [[1.0, 0.0], [0.0, 3.0]])
    assert of_w.argument == "variable w"
    assert w.numpy().tolist() == [2.0, 5.0]


def test_large_ones_and_functions_that_raise_have_none():
    def broken(x):
        raise ZeroDivisionError

    assert jacobians(tf.sin, tf.ones(21, tf.float64)) == ()
    assert len(jacobians(tf.sin, tf.ones(20, tf.float64))) == 1
    assert jacobians(broken, X) == ()
    assert made().jacobians() == ()


# --- HTML ---------------------------------------------------------------------------------------------------


class Tags(html.parser.HTMLParser):
    """The elements of a page; fails where they are not nested."""

    def __init__(self, page):
        super().__init__()
        self.found, self.open, self.texts = [], [], []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        if tag not in ("br", "rect"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_html_escapes_everything_that_comes_from_outside():
    values = dict.fromkeys(("argument", "seen", "due", "reason", "repair"), EVIL)
    report = made("raises", notes=[Note(EVIL, EVIL, EVIL)], function=EVIL, inputs=[(EVIL, EVIL)], **values)
    page = Tags(report._repr_html_())
    assert {tag for tag, _ in page.found} <= set(re.findall(r"\w+", "style div p table tbody tr th td pre code a br"))
    shown = EVIL.replace("\x1b", r"\x1b")
    assert sum(shown in piece for piece in page.texts) >= 8
    assert "\x1b" not in report._repr_html_()


def test_html_of_a_hostile_name_with_pictures():
    half_ = half
    report = cgrad.gradcheck(lambda p: half_(p[EVIL]), {EVIL: X}, order=1, modes=("eager",))
    page = Tags(report._repr_html_())
    tags = {tag for tag, _ in page.found}
    assert "script" not in tags
    assert "svg" in tags


def test_html_shows_the_rule_the_truth_and_their_difference():
    page = Tags(cgrad.gradcheck(half, X)._repr_html_())
    labels = [a["aria-label"] for tag, a in page.found if tag == "svg"]
    assert labels[::2] == [
        "the rule: 2 by 2, from 0 to 3",
        "the truth: 2 by 2, from 0 to 6",
        "their difference: 2 by 2, from -3 to 0",
    ]
    assert all(a["role"] == "img" for tag, a in page.found if tag == "svg")
    assert not any(name.startswith("on") or name == "id" for _, a in page.found for name in a)
    assert any("a row for each entry of the output" in piece for piece in page.texts)


def test_html_of_a_right_function_says_that_nothing_differs():
    page = cgrad.gradcheck(tf.sin, X)._repr_html_()
    assert "their difference: none" in page
    assert "sin is right" in page


def test_html_draws_only_the_inputs_that_differ():
    @tf.custom_gradient
    def f(a, b):
        return a * b, lambda upstream: (upstream * b, 2.0 * upstream * a)

    captions = re.findall(r"The Jacobian for <code>(.*?)</code>", cgrad.gradcheck(f, X, X + 1.0)._repr_html_())
    assert captions == ["b"]


def test_html_without_warning_where_nothing_is_finite():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        page = cgrad.gradcheck(lambda x: tf.math.log(-x), X, order=1, modes=("eager",))._repr_html_()
    assert "no numbers" in page


def test_html_survives_a_function_that_has_broken_meanwhile():
    broken = []

    @tf.custom_gradient
    def f(x):
        if broken:
            raise ZeroDivisionError("later")
        return tf.numpy_function(np.sin, [x], tf.float64), lambda upstream: upstream

    report = cgrad.gradcheck(f, X, order=1, modes=("eager",))
    broken.append(1)
    assert "f is wrong" in report._repr_html_()


def test_the_style_is_scoped_and_a_page_s_theme_beats_the_system_s():
    page = made()._repr_html_()
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)[1]
    rules = re.sub(r"@media[^{]*\{(.*?\})\}", r"\1", style, flags=re.DOTALL)
    selectors = [s.strip() for group in re.findall(r"([^{}]+)\{", rules) for s in group.split(",")]
    assert selectors
    assert all(".cgrad-report" in selector for selector in selectors)
    places = [style.index(mark) for mark in ("prefers-color-scheme:dark", 'data-theme="light"', 'data-theme="dark"')]
    assert places == sorted(places)


# --- matplotlib ---------------------------------------------------------------------------------------------


def test_plot_draws_three_pictures_for_each_input(tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    figure = cgrad.gradcheck(lambda a, b: half(a) * b, X, X).plot()
    pictures = [axis for axis in figure.axes if axis.images]
    assert [axis.get_title() for axis in pictures] == ["the rule", "the truth", "their difference"] * 2
    np.testing.assert_array_equal(pictures[0].images[0].get_array(), [[1.0, 0.0], [0.0, 9.0]])
    assert pictures[0].get_xlabel() == "entry of a"
    figure.savefig(tmp_path / "figure.png")


def test_plot_without_matplotlib_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError) as caught:
        cgrad.gradcheck(half, X).plot()
    assert str(caught.value) == "report.plot() needs matplotlib: pip install 'tf-cgrad[plot]'"


def test_plot_without_a_jacobian_says_what_was_due():
    with pytest.raises(cgrad.UsageError) as caught:
        made().plot()
    assert str(caught.value) == (
        "there is no Jacobian of f to draw: a function that runs, and whose Jacobian has at most 400 entries, was due; "
        "read report.faults instead"
    )


# --- pytest -------------------------------------------------------------------------------------------------

ASSERTION = """
import tensorflow as tf
import cgrad

@tf.custom_gradient
def half(x):
    return x * x, lambda upstream: x * upstream

def test_half():
    assert cgrad.gradcheck(half, tf.constant([1.0, 3.0]))

def test_expected():
    report = cgrad.gradcheck(half, tf.constant([1.0, 3.0]))
    assert not report
"""


def test_an_assertion_in_pytest_shows_the_report_by_itself(tmp_path):
    (tmp_path / "test_it.py").write_text(ASSERTION)
    source = str(Path(cgrad.__file__).parents[1])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": source}, capture_output=True, text=True, check=False
    )
    assert "E       assert <Report: half is wrong: constant-factor (CG403)>" in done.stdout
    shown = done.stdout.split("Captured stdout call")[1].split("short test summary")[0]
    assert "half is wrong: constant-factor (CG403)\n\n  argument  x\n" in shown
    assert "  repair    return g / 0.5   # g: what is returned now\n" in shown
    assert shown.count("half is wrong") == 1
    assert "1 failed, 1 passed" in done.stdout


# --- progress -----------------------------------------------------------------------------------------------


def test_a_long_check_says_on_a_terminal_what_it_does_and_erases_it(monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.02)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress.shown("f\x1b"):
        progress.step("values")
        time.sleep(0.2)
        assert sys.stderr.getvalue() == "\r\x1b[Kgradcheck of f\\x1b: values, 0 s"
    assert sys.stderr.getvalue().endswith("\r\x1b[K")


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()], ids=["short on a terminal", "long elsewhere"])
def test_otherwise_nothing_is_written(stream, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 10.0 if stream.isatty() else 0.0)
    monkeypatch.setattr(sys, "stderr", stream)
    assert cgrad.gradcheck(tf.sin, X, order=1, modes=("eager",))
    assert stream.getvalue() == ""


def test_gradcheck_names_its_questions(monkeypatch):
    steps = []
    monkeypatch.setattr(progress, "step", steps.append)
    cgrad.gradcheck(tf.sin, X)
    assert steps[0] == "values of f and its rule"
    assert steps[1:] == ["contract", "connection", "linearity", "values", "modes", "second order"]


def test_wrapping_keeps_to_its_width():
    assert text.wrapped("one two three four", width=8) == ["one two", "three", "four"]
    assert text.wrapped("x" * 20, width=8) == ["x" * 8, "x" * 8, "x" * 4]
    assert text.wrapped("    a = 1\n    b = 2", code=True) == ["    a = 1", "    b = 2"]
