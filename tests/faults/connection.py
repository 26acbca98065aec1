"""Paths that are cut, and inputs and outputs that have no derivative."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from registry import case, d

TF = "https://github.com/tensorflow/tensorflow/issues/"


@case("tape-broken", source=TF + "30190", jacobian=[3.0, -1.0])
def by_float(right):
    """float() leaves TensorFlow."""
    if right:
        return lambda x: tf.reduce_sum(x * x), (d([1.5, -0.5]),)
    return lambda x: d(sum(float(v) ** 2 for v in x)), (d([1.5, -0.5]),)


@case("tape-broken", source="https://prograide.com/pregunta/45507", jacobian=[[1.0, 0], [0, 0]])
def by_numpy_function(right):
    """An activation in NumPy, wrapped as an operation, has no gradient unless it is given one."""

    def saw(v):
        r = np.mod(v, 1.0)
        return np.where(r <= 0.5, r, 0.0).astype(np.float32)

    def wrapped(x):
        return tf.ensure_shape(tf.numpy_function(saw, [x], tf.float32), x.shape)

    def with_rule(x):
        return wrapped(x), lambda u: tf.where(tf.math.floormod(x, 1.0) <= 0.5, u, tf.zeros_like(u))

    return tf.custom_gradient(with_rule) if right else wrapped, (tf.constant([1.3, 0.8]),)


@case("tape-broken", source="https://www.tensorflow.org/guide/autodiff", jacobian=[0.5, -2.0])
def by_numpy_in_the_middle(right):
    """A mean computed by NumPy is a constant to the tape."""
    if right:
        return lambda x: tf.reduce_mean(x * x), (tf.constant([0.5, -2.0]),)
    return lambda x: tf.convert_to_tensor(np.mean(np.asarray(x * x))), (tf.constant([0.5, -2.0]),)


@case("tape-broken", source="a copy of TensorFlow's guide", jacobian=4.0)
def by_a_state_in_between(right):
    """What is written to a variable has no link to what is read from it."""
    state = tf.Variable(0.0)

    def through(x):
        state.assign(0.0)
        state.assign_add(x)
        return state * state

    return (lambda x: (0.0 + x) ** 2) if right else through, (tf.constant(2.0),)


@case("captured-tensor", "tape-broken", source="https://github.com/rtqichen/torchdiffeq/pull/104")
def a_parameter_by_closure(right):
    """The function closes over a tensor; its rule answers for arguments only."""

    def f(x, rate):
        @tf.custom_gradient
        def closing(v):
            return v * (1.0 - rate), lambda u: u * (1.0 - rate)

        @tf.custom_gradient
        def open_(v, r):
            return v * (1.0 - r), lambda u: (u * (1.0 - r), -u * v)

        return open_(x, rate) if right else closing(x)

    return f, (d(1.5), d(0.25))


@case("captured-tensor", "tape-broken", repaired=False, source="the old documentation of recompute_grad")
def recomputed_with_a_tensor_by_closure(right):
    """tf.recompute_grad is a custom gradient too."""
    if right:
        return lambda x, s: tf.recompute_grad(lambda t, w: t * w)(x, s), (tf.constant([1.0, 3.0]), tf.constant(2.0))
    return lambda x, s: tf.recompute_grad(lambda t: t * s)(x), (tf.constant([1.0, 3.0]), tf.constant(2.0))


@case("kwargs-unsupported", order=1, source=TF + "65839", jacobian=[0.0, 0.0])
def all_tensors_by_keyword(right):
    """Keyword arguments drop the rule, without a warning."""

    @tf.custom_gradient
    def length(v):
        r = tf.sqrt(tf.reduce_sum(v * v))
        return r, lambda u: u * v / tf.maximum(r, d(1e-12))

    return (lambda v: length(v)) if right else (lambda v: length(v=v)), (d([0.0, 0.0]),)


@case("kwargs-unsupported", "graph-unfriendly", source="https://github.com/keras-team/keras/issues/21207")
def a_flag_by_keyword_in_a_graph(right):
    """Fine in eager mode; a graph refuses every keyword."""

    @tf.custom_gradient
    def by_keyword(x, training=False):
        k = 0.5 if training else 1.0
        return k * x * x, lambda u: 2.0 * k * x * u

    closed = tf.custom_gradient(lambda x: (0.5 * x * x, lambda u: x * u))
    return tf.function(closed if right else (lambda x: by_keyword(x, training=True))), (d([1.0, -2.0]),)


@case("integer-input", source=TF + "73631")
def integers_are_not_watched(right):
    """With integers the rule is never called."""

    @tf.custom_gradient
    def area(a, b):
        x, y = tf.cast(a, tf.float64), tf.cast(b, tf.float64)
        return x * y, lambda u: (u * y, u * x)

    return area, (d(2.0), d(5.0)) if right else (tf.constant(2), tf.constant(5))


@case("integer-output", surrogate=True, source="public repository file")
def integers_hand_nothing_back(right):
    """No gradient flows out of an integer tensor."""

    @tf.custom_gradient
    def whole(x):
        y = tf.cast(x, tf.int32)
        return tf.cast(y, x.dtype) if right else y, lambda u: u

    return lambda x: tf.cast(whole(x), tf.float32), (tf.constant([1.25, -3.5]),)


@case("non-differentiable-op", "tape-broken", surrogate=True, source="developerload.com")
def rounding_trains_nothing(right):
    """The network's output is rounded, and nothing is learnt."""
    straight = tf.custom_gradient(lambda p: (tf.round(p), lambda u: u))
    return straight if right else (lambda p: tf.round(p)), (tf.constant([0.1, 0.8]),)


@case("non-differentiable-op", "tape-broken", surrogate=True, source="markaicode.com")
def a_threshold_in_the_loss(right):
    """A comparison and a cast have no gradient."""
    decide = lambda p: tf.cast(p > 0.5, p.dtype)  # noqa: E731
    return tf.custom_gradient(lambda p: (decide(p), lambda u: u)) if right else decide, (tf.constant([0.4, 0.7]),)


@case("non-tensor-argument", "raises", source=TF + "52193", jacobian=[[2.0, 0], [0, -6.0]])
def an_object_as_argument(right):
    """Settings have to be closed over."""

    class Settings:
        scale = 2.0

    @tf.custom_gradient
    def bowl(x, settings):
        return settings.scale * x * x, lambda u: (2.0 * settings.scale * x * u, None)

    closed = tf.custom_gradient(lambda x: (2.0 * x * x, lambda u: 4.0 * x * u))
    return closed if right else (lambda x: bowl(x, Settings())), (d([0.5, -1.5]),)
