"""Every custom gradient passes through one place; this tells when TensorFlow moves it."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import cgrad
from cgrad import interception, internals


@tf.custom_gradient
def double(x):
    return 2.0 * x, lambda upstream: 3.0 * upstream  # not its derivative, so that it can be told


@cgrad.custom_vjp
def ours(x):
    return 2.0 * x, lambda upstream: 3.0 * upstream


@keras.ops.custom_gradient
def theirs(x):
    def rule(*args, upstream=None):
        return 3.0 * (args[0] if upstream is None else upstream)

    return 2.0 * x, rule


def gradient(f, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    return tape.gradient(y, x)


X = tf.constant([1.0, -2.0])
FUNCTIONS = {"tf.custom_gradient": double, "cgrad.custom_vjp": ours, "keras.ops.custom_gradient": theirs}


@pytest.mark.parametrize("f", FUNCTIONS.values(), ids=FUNCTIONS.keys())
@pytest.mark.parametrize("wrap", [lambda f: f, tf.function], ids=["eager", "graph"])
def test_a_call_and_each_application_of_its_rule_are_seen(f, wrap):
    with interception.observing() as calls:
        gradient(wrap(f), X)
    assert calls
    assert all(call.pulls for call in calls[:1])


@pytest.mark.parametrize("f", FUNCTIONS.values(), ids=FUNCTIONS.keys())
@pytest.mark.parametrize("wrap", [lambda f: f, lambda f: tf.function(f)], ids=["eager", "graph"])
def test_bypassing_leaves_the_forward_pass(f, wrap):
    np.testing.assert_array_equal(gradient(f, X), [3.0, 3.0])
    with interception.bypassing():
        np.testing.assert_array_equal(gradient(wrap(f), X), [2.0, 2.0])
    np.testing.assert_array_equal(gradient(f, X), [3.0, 3.0])


def test_tensorflow_and_keras_themselves_are_seen():
    with interception.observing() as calls:
        tf.nn.silu(X)
        keras.activations.silu(X)
        tf.recompute_grad(lambda x: x * x)(X)
    assert len(calls) >= 3


def test_what_was_hooked_is_put_back_after_an_error():
    before = [getattr(interception._module, name) for name in interception._NAMES]
    with pytest.raises(ZeroDivisionError), interception.observing():
        raise ZeroDivisionError
    assert [getattr(interception._module, name) for name in interception._NAMES] == before


def test_a_function_without_a_rule_says_so():
    @tf.custom_gradient
    def square(x):
        return x * x

    with interception.observing(), pytest.raises(interception.MissingRule) as caught:
        square(X)
    assert "square returned EagerTensor, not (value, rule)" in str(caught.value)


def test_other_threads_are_left_alone():
    import threading

    found = []
    with interception.bypassing():
        thread = threading.Thread(target=lambda: found.append(gradient(double, X)))
        thread.start()
        thread.join()
    np.testing.assert_array_equal(found[0], [3.0, 3.0])


def test_variables_stay_an_error_where_the_rule_does_not_take_them():
    w = tf.Variable(2.0)

    @tf.custom_gradient
    def scale(x):
        return w * x, lambda upstream: upstream * w

    with interception.observing(), pytest.raises(TypeError, match="must accept keyword argument 'variables'"):
        scale(X)


def test_hooks_that_an_interrupt_left_are_taken_back():
    names = internals.CUSTOM_GRADIENT_DECORATORS
    before = [getattr(internals.custom_gradient_module, name) for name in names]
    with interception.observing():
        kept = len(interception._local.stack)
        with interception.settled():
            left = [interception.intercepting(lambda *args: None) for _ in range(2)]
            for context in left:
                context.__enter__()  # and never left
        assert len(interception._local.stack) == kept
        del left  # what is left at last finds nothing to take away
        assert [getattr(internals.custom_gradient_module, name) for name in names] != before
    assert [getattr(internals.custom_gradient_module, name) for name in names] == before
