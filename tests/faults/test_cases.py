"""Every case: the broken function is named, the repaired one is clean, and its Jacobian is the right one."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import tensorflow as tf

from cgrad.faults import CATALOGUE

for _family in ["contract", "variables", "upstream", "values", "connection", "modes", "second_order", "right"]:
    importlib.import_module(_family)
CASES = importlib.import_module("registry").CASES


@pytest.mark.parametrize("case", [c for c in CASES if c.names], ids=lambda c: c.name)
def test_the_broken_one_is_named(case):
    report = case.check(right=False)
    assert not report.ok
    assert {fault.name for fault in report.faults} & set(case.names), report


@pytest.mark.parametrize("case", [c for c in CASES if c.repaired], ids=lambda c: c.name)
def test_the_repaired_one_is_clean(case):
    report = case.check(right=True)
    assert report.ok, report


@pytest.mark.parametrize("case", [c for c in CASES if c.jacobian is not None], ids=lambda c: c.name)
def test_the_repaired_one_has_the_right_jacobian(case):
    f, (x,) = case.make(True)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = f(x)
    found = tape.jacobian(y, x, experimental_use_pfor=False, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    np.testing.assert_allclose(found, case.jacobian, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [entry.name for entry in CATALOGUE])
def test_every_fault_has_a_case_that_names_it_first(name):
    fitting = [case for case in CASES if name in case.names]
    assert any(case.check(right=False).faults[0].name == name for case in fitting)
