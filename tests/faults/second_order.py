"""The first derivative is right; the second is wrong, or lost."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from registry import case, d

TF = "https://github.com/tensorflow/tensorflow/issues/"


@case("second-order-wrong", source=TF + "11091")
def the_outer_factor_is_lost(right):
    """The rule of the rule does not multiply by the first upstream."""

    @tf.custom_gradient
    def slope(x, u):
        e = tf.exp(x)
        return u * e, lambda w: (w * e * (u if right else 1.0), w * e)

    @tf.custom_gradient
    def rise(x):
        return tf.math.expm1(x), lambda u: slope(x, u)

    return lambda x: 3.0 * rise(x), (d([-1.0, 0.25]),)


@case("captured-tensor", "backward-not-differentiable", repaired=False, source=TF + "34503")
def the_inner_rule_closes_over_x(right):
    """In one graph the path through the closure is missing; eager mode happens to find it."""

    @tf.custom_gradient
    def slope(x, u):
        return 4.0 * x**3 * u, lambda w: (12.0 * x**2 * u * w, 4.0 * x**3 * w)

    @tf.custom_gradient
    def quartic(x):
        @tf.custom_gradient
        def closing(u):
            return 4.0 * x**3 * u, lambda w: 4.0 * x**3 * w

        return x**4, (lambda u: slope(x, u)) if right else closing

    return lambda x: quartic(x), (d([0.5]),)


@case("backward-not-differentiable", source="https://github.com/PennyLaneAI/pennylane/issues/890")
def a_derivative_by_numpy(right):
    """The local derivative is a number to the tape."""

    @tf.custom_gradient
    def softplus(x):
        def grad(u):
            return u * tf.sigmoid(x) if right else u * (1.0 / (1.0 + np.exp(-x.numpy())))

        return tf.math.log1p(tf.exp(x)), grad

    return softplus, (d([0.5, -1.0]),)


@case("backward-not-differentiable", source=TF + "43648")
def an_operation_without_a_second_gradient(right):
    """Nearest-neighbour resizing has a gradient, and its gradient has none."""
    x = tf.constant([[[[0.5], [1.5]], [[-1.0], [2.0]]]])
    if right:
        return lambda x: tf.repeat(tf.repeat(x, 2, axis=1), 2, axis=2) ** 2, (x,)
    return lambda x: tf.image.resize(x, [4, 4], method="nearest") ** 2, (x,)


@case("backward-not-differentiable", source="the chapter on second order")
def the_upstream_is_stopped(right):
    """Right alone, to second order; wrong as soon as something curved comes after it."""

    @tf.custom_gradient
    def square(x):
        return x * x, lambda u: 2.0 * x * (u if right else tf.stop_gradient(u))

    return square, (d([1.0, 2.0]),)
