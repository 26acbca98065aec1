"""A right function is clean: operations of TensorFlow and Keras, and the faults that are TensorFlow's own."""

from __future__ import annotations

import importlib.util
import pathlib
import sys

import numpy as np
import pytest
import tensorflow as tf

import cgrad


def _table():
    spec = importlib.util.spec_from_file_location("operations", pathlib.Path(__file__).with_name("operations.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules["operations"] = module
    spec.loader.exec_module(module)
    return module


TABLE = _table()


def arguments(values, dtype):
    return [tf.constant(value, dtype) for value in values]


def assert_clean(report):
    assert report.ok, report
    assert [note for note in report.notes if note.kind == "not-asked"] == []


def test_there_are_at_least_150():
    assert len({*TABLE.REAL, *TABLE.COMPLEX, *TABLE.LAYERS} - {*TABLE.EXCEPTIONS}) >= 250


@pytest.mark.parametrize("name", [name for name in TABLE.REAL if name not in TABLE.EXCEPTIONS])
def test_in_double_precision_in_every_mode(name):
    f, values = TABLE.REAL[name]
    assert_clean(cgrad.gradcheck(f, *arguments(values, tf.float64)))


@pytest.mark.parametrize("name", [name for name in TABLE.REAL if name not in TABLE.EXCEPTIONS])
def test_in_single_precision(name):
    f, values = TABLE.REAL[name]
    assert_clean(cgrad.gradcheck(f, *arguments(values, tf.float32), modes=("eager", "graph")))


@pytest.mark.parametrize("dtype", ["complex128", "complex64"])
@pytest.mark.parametrize("name", TABLE.COMPLEX)
def test_complex(name, dtype):
    f, values = TABLE.COMPLEX[name]
    assert_clean(cgrad.gradcheck(f, *arguments(values, dtype)))


@pytest.mark.parametrize("name", TABLE.LAYERS)
def test_layers_with_their_weights(name):
    layer = TABLE.LAYERS[name]
    x = tf.constant(np.random.default_rng(1).normal(size=(2, 4, 2)), tf.float32)
    f = (lambda x: layer(x, x)) if name == "MultiHeadAttention" else layer
    f(x)  # builds it
    assert_clean(cgrad.gradcheck(lambda x: f(x), x, modes=("eager", "graph")))


# --- TensorFlow's own -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "fault"), TABLE.EXCEPTIONS.items())
def test_a_fault_of_tensorflow_is_named(name, fault):
    f, values = TABLE.EXTRA.get(name) or TABLE.REAL[name]
    report = cgrad.gradcheck(f, *[tf.constant(value) for value in values])
    assert [found.name for found in report.faults][:1] == [fault], report


def test_by_hand_softsign_has_no_second_gradient():
    x = tf.constant([0.5])
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = tf.nn.softsign(x)
        slope = inner.gradient(y, x)
    with pytest.raises(LookupError):
        outer.gradient(slope, x)


def test_by_hand_the_variance_of_moments_has_a_wrong_second_derivative():
    def variance(x):
        return tf.nn.moments(x, [0])[1]

    def slope(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = variance(x)
        return tape.gradient(y, x)

    x = tf.constant([0.5, -1.0, 2.0], tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(x)
        first = slope(x)[0]
    by_tape = tape.gradient(first, x)
    h = 1e-5
    by_differences = [(slope(x + h * e)[0] - slope(x - h * e)[0]) / (2 * h) for e in np.eye(3)]
    true = 2 / 3 * np.array([2 / 3, -1 / 3, -1 / 3])  # d2/dx0 dx_j of the mean of squares about the mean
    np.testing.assert_allclose(by_differences, true, atol=1e-8)
    assert np.abs(by_tape - true).max() > 0.1


def test_by_hand_the_complex_determinant_stands_where_its_conjugate_is_due():
    a = tf.constant([[1 + 1j, 2 - 1j], [0.5j, 3 + 0j]], tf.complex128)
    with tf.GradientTape() as tape:
        tape.watch(a)
        y = tf.linalg.det(a)
    g = tape.gradient(y, a).numpy()
    cofactors = np.array([[3, -0.5j], [-(2 - 1j), 1 + 1j]])
    due = np.conj(cofactors)  # TensorFlow's convention for the holomorphic function det
    np.testing.assert_allclose(g, due * (y / np.conj(y)), atol=1e-12)
    assert np.abs(g - due).max() > 0.5


@pytest.mark.parametrize("f", [tf.sqrt, tf.math.rsqrt, tf.math.reciprocal])
def test_by_hand_xla_gives_other_complex_gradients(f):
    z = tf.constant([1 + 2j, 0.5 - 1j], tf.complex128)

    def gradient(z):
        with tf.GradientTape() as tape:
            tape.watch(z)
            y = f(z)
        return tape.gradient(y, z)

    eager, xla = gradient(z).numpy(), tf.function(gradient, jit_compile=True)(z).numpy()
    np.testing.assert_allclose(xla, np.conj(eager), rtol=1e-10)
    assert np.abs(xla - eager).max() > 0.1
