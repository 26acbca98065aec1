"""The line where a path leaves TensorFlow."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import tensorflow as tf

from cgrad import tracing

X = tf.constant([1.0, 3.0])


def by_numpy_method(x):
    return tf.constant(x.numpy() ** 2)


def by_numpy_function(x):
    return tf.convert_to_tensor(np.mean(np.asarray(x * x)))


def by_float(x):
    return tf.constant(float(x[0]))


def by_stop_gradient(x):
    return tf.stop_gradient(x) ** 2


def by_py_function(x):
    return tf.numpy_function(np.square, [x], tf.float32)


STATE = tf.Variable([0.0, 0.0])


def by_assign(x):
    STATE.assign(x)
    return STATE * 2.0


CUTS = {
    by_numpy_method: ".numpy()",
    by_numpy_function: "a NumPy call",
    by_float: "float()",
    by_stop_gradient: "tf.stop_gradient",
    by_py_function: "tf.numpy_function",
    by_assign: "assign",
}


@pytest.mark.parametrize(("f", "operation"), CUTS.items(), ids=[f.__name__ for f in CUTS])
def test_the_cut_is_named_with_its_line(f, operation):
    found = [c for c in tracing.cuts(lambda: f(X)) if not c.step]
    assert found, f
    first = inspect.getsourcelines(f)[1]
    assert found[0].operation == operation
    assert found[0].file == __file__
    assert first < found[0].line <= first + 2


@pytest.mark.parametrize(
    ("f", "operation"),
    [
        (lambda x: tf.round(x), "tf.round"),
        (lambda x: tf.cast(x > 0.5, tf.float32), "a comparison"),
        (lambda x: tf.argmax(x), "tf.argmax"),
        (lambda x: tf.cast(x, tf.int32), "tf.cast"),
    ],
)
def test_a_staircase_is_named(f, operation):
    assert operation in [c.operation for c in tracing.cuts(lambda: f(X)) if c.step]


def test_a_path_that_stays_inside_has_no_cut():
    assert tracing.cuts(lambda: tf.reduce_mean(tf.cast(X, tf.float64) ** 2)) == []


def test_an_exception_on_the_way_is_no_matter():
    def f(x):
        x.numpy()
        raise ValueError("on the way")

    assert [c.operation for c in tracing.cuts(lambda: f(X))] == [".numpy()"]


def test_a_line_of_a_notebook_is_one_of_its_cell():
    cell = compile("def f(x):\n    return tf.constant(x.numpy() ** 2)\n", "/tmp/ipykernel_123/3031879471.py", "exec")
    names = {"tf": tf}
    exec(cell, names)
    (cut,) = tracing.cuts(lambda: names["f"](X))
    assert str(cut) == ".numpy() at line 2 of the cell"
