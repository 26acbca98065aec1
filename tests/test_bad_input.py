"""Every wrong call of tests/bad_input.py ends as it has to, says what it has to, and leaves nothing behind."""

from __future__ import annotations

import importlib.util
import pathlib
import sys

import pytest

import cgrad

HERE = pathlib.Path(__file__).parent
TABLE = HERE.parent / "docs" / "about" / "tables" / "bad-input.txt"


def _data():
    spec = importlib.util.spec_from_file_location("bad_input", HERE / "bad_input.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["bad_input"] = module
    spec.loader.exec_module(module)
    return module


DATA = _data()


@pytest.fixture(scope="module")
def ends():
    return DATA.every_end()


@pytest.mark.parametrize("number", range(len(DATA.CASES)), ids=lambda i: f"{DATA.CASES[i].kind}/{DATA.CASES[i].name}")
def test_a_wrong_call(number, ends):
    assert not DATA.shortcomings(DATA.CASES[number], ends[number])


def test_there_are_enough_of_them_and_each_is_one():
    assert len(DATA.CASES) >= 200
    assert len({(case.kind, case.name) for case in DATA.CASES}) == len(DATA.CASES)


def test_an_error_of_ours_never_comes_bare_from_tensorflow(ends):
    """Where the error is ours, so is the frame that raised it: TensorFlow's own error is its cause, and inside."""
    for end in ends.values():
        if isinstance(end.error, cgrad.GradientError):
            trace = end.error.__traceback__
            while trace.tb_next is not None:
                trace = trace.tb_next
            assert "/cgrad/" in trace.tb_frame.f_code.co_filename, end.text


def test_the_table_in_the_documentation_is_what_is_found(ends):
    assert TABLE.read_text() == DATA.table(ends)


def test_the_judge_sees_what_is_wrong():
    """A check that cannot fail is none: another end, a missing word, a question that broke off, a call that hangs."""
    case = DATA.Case("k", "n", lambda: None, cgrad.UsageError, ("argument",))
    assert "was due" in DATA.shortcomings(case, DATA.End("ValueError", "argument"))
    assert "does not say" in DATA.shortcomings(case, DATA.End("UsageError", "no"))
    assert "broke off" in DATA.shortcomings(case, DATA.End("UsageError", "argument: the question of values broke off"))
    assert DATA.shortcomings(case, DATA.End("UsageError", "argument")) == ""
    assert DATA.end(DATA.Case("k", "n", lambda: 3, "report", ())).how == "a result"


def test_a_call_that_hangs_is_seen(monkeypatch):
    monkeypatch.setattr(DATA, "SECONDS", 0.2)

    def forever():
        while True:
            pass

    assert DATA.end(DATA.Case("k", "n", forever, "report", ())).how == "a hang"
