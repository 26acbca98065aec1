"""Right in one mode of TensorFlow, and not in another."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from registry import case, d

TF = "https://github.com/tensorflow/tensorflow/issues/"


@case("graph-unfriendly", repaired=False, source=TF + "50170")
def a_variable_read_under_cond(right):
    """In a branch of tf.cond the rule cannot read a variable; the forward pass can, for it."""
    factor = tf.Variable(3.0, dtype=tf.float64, trainable=False)

    @tf.custom_gradient
    def times(x):
        now = tf.convert_to_tensor(factor)
        return x * now, lambda u: u * (now if right else factor)

    return tf.function(lambda x: tf.cond(tf.reduce_sum(x) > 0.0, lambda: times(x), lambda: x)), (d([2.0, 0.5]),)


@case("graph-unfriendly", source="https://github.com/cvxpy/cvxpylayers/issues/56", jacobian=[[0.0, 0], [0, 1.0]])
def numpy_in_the_forward_pass(right):
    """A symbolic tensor has no .numpy()."""

    @tf.custom_gradient
    def clamp(x):
        if right:
            y = tf.ensure_shape(tf.numpy_function(lambda a: np.maximum(a, 0.0), [x], x.dtype), x.shape)
        else:
            y = tf.constant(np.maximum(x.numpy(), 0.0))
        return y, lambda u: u * tf.cast(y > 0.0, x.dtype)

    return lambda x: clamp(x), (d([-1.5, 0.5]),)


@case("graph-unfriendly", source=TF + "26270")
def a_static_size_that_is_none(right):
    """With an unknown size the rule takes its fall-back branch."""

    @tf.custom_gradient
    def spread(x):
        def grad(u):
            if right:
                return 2.0 * x * u / tf.cast(tf.size(u), x.dtype)
            return tf.ones_like(x) if u.shape[0] is None else 2.0 * x * u / float(u.shape[0])

        return x * x / tf.cast(tf.size(x), x.dtype), grad

    return tf.function(spread, input_signature=[tf.TensorSpec([None], tf.float64)]), (d([0.5, -2.0]),)


@case("graph-unfriendly", source=TF + "26270")
def a_static_size_of_the_upstream(right):
    """Where the sizes are unknown, the upstream's are, too."""

    @tf.custom_gradient
    def mean_square(x):
        def grad(u):
            return 2.0 * x * u / (tf.cast(tf.size(u), x.dtype) if right else float(u.shape[0]))

        return x * x / tf.cast(tf.size(x), x.dtype), grad

    return mean_square, (d([1.0, 2.0]),)


@case("graph-unfriendly", surrogate=True, source="public repository file")
def a_flag_by_position(right):
    """In a graph a positional flag becomes a tensor, and cannot steer an if."""

    def body(x, training):
        return tf.cast(x > 0.0, x.dtype) if training else tf.identity(x)

    by_position = tf.custom_gradient(lambda x, training: (body(x, training), lambda u: (u, None)))
    closed = tf.custom_gradient(lambda x: (body(x, True), lambda u: u))
    return closed if right else (lambda x: by_position(x, True)), (tf.constant([2.0, -1.0]),)


@case("graph-only", "raises", source="public repository file", jacobian=[[2.0, 0], [0, -6.0]])
def tf_gradients_in_eager_mode(right):
    """tf.gradients exists in graphs only."""
    target = tf.constant([0.5, 1.0])

    @tf.custom_gradient
    def loss(p):
        y = (p - target) ** 2
        return y, lambda u: 2.0 * u * (p - target) if right else u * tf.gradients(y, p)

    return loss, (tf.constant([1.5, -2.0]),)


@case("pfor-unfriendly", "graph-unfriendly", source="https://github.com/PennyLaneAI/pennylane/issues/613")
def numpy_on_input_and_upstream(right):
    """tape.jacobian traces the rule, whose upstream is then a symbol."""

    @tf.custom_gradient
    def circuit(p):
        y = tf.stack([tf.cos(p[0]) * p[1], p[1] ** 2])

        def grad(u):
            if right:
                return tf.stack([-tf.sin(p[0]) * p[1] * u[0], tf.cos(p[0]) * u[0] + 2.0 * p[1] * u[1]])
            a, b = p.numpy()
            return tf.constant(u.numpy() @ np.array([[-np.sin(a) * b, np.cos(a)], [0.0, 2.0 * b]]))

        return y, grad

    return circuit, (d([0.25, 3.0]),)


@case(
    "pfor-unfriendly",
    "graph-unfriendly",
    modes=("eager", "pfor"),
    source="MrMustard, backend_tensorflow.py",
    jacobian=[[1.0, 3.0], [0, 2.0]],
)
def numpy_on_the_upstream(right):
    """The upstream is handed to NumPy."""
    a = np.array([[1.0, 3.0], [0.0, 2.0]], np.float32)

    @tf.custom_gradient
    def linear(x):
        rule = lambda u: tf.linalg.matvec(a, u, transpose_a=True) if right else tf.constant(np.conj(u) @ a)  # noqa: E731
        return tf.linalg.matvec(a, x), rule

    return linear, (tf.constant([0.5, -1.0]),)


@case("forward-watched", "raises", source="https://github.com/tensorflow/quantum/issues/667")
def an_operation_that_only_runs_forward(right):
    """The outer tape watches the forward pass, too, and a tf.function there builds its own gradient."""

    @tf.function
    def kernel(x):
        return tf.raw_ops.ResizeNearestNeighborGrad(grads=x, size=[1, 1])

    @tf.custom_gradient
    def pool(x):
        return kernel(tf.stop_gradient(x) if right else x), lambda u: tf.broadcast_to(u, tf.shape(x))

    return pool, (tf.constant([[[[1.0], [2.0]], [[3.0], [-1.0]]]]),)
