"""Faults planted in right functions: all are seen, nearly all are named, and the right ones are clean."""

from __future__ import annotations

import importlib.util
import pathlib
import sys

import pytest


def _corpus():
    spec = importlib.util.spec_from_file_location("mutations", pathlib.Path(__file__).with_name("mutations.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutations"] = module
    spec.loader.exec_module(module)
    return module


CORPUS = _corpus()
TABLE = pathlib.Path(__file__).parents[1] / "docs" / "about" / "tables" / "mutations.txt"


@pytest.mark.parametrize("name", CORPUS.RIGHT)
def test_the_right_function_is_clean(name):
    report = CORPUS.check_right(name)
    assert report, report


def test_the_corpus_is_large_enough():
    assert len(CORPUS.RIGHT) >= 15
    assert len(CORPUS.FAULTS) >= 25


def test_every_mutant_is_seen_nineteen_in_twenty_are_named_and_the_docs_say_so():
    found = CORPUS.trial()
    assert [pair for pair, names in found.items() if not names] == []
    named = [pair for pair, names in found.items() if set(names) & set(CORPUS.FAULTS[pair[0]].names)]
    assert len(named) >= 0.95 * len(found), sorted({*found} - {*named})
    assert TABLE.read_text() == CORPUS.table(found)
