"""Variables that a function reads: found, answered for, in the right order."""

from __future__ import annotations

import tensorflow as tf
from registry import D, case, d

TF = "https://github.com/tensorflow/tensorflow/"


def reading(f, *variables):
    """A function that says which variables it reads."""

    def g(x):
        return f(x)

    g.variables = list(variables)
    return g


@case("variables-missing", source=TF + "issues/31945", jacobian=[[0.5, 0.0], [0.0, 0.5]])
def no_argument_for_variables(right):
    """The forward pass reads a variable, and the rule does not know of it."""
    gain = tf.Variable(0.5, dtype=D)

    @tf.custom_gradient
    def amplify(x):
        def whole(u, variables=None):
            return u * gain, [tf.reduce_sum(u * x)]

        return gain * x, whole if right else (lambda u: u * gain)

    return reading(amplify, gain), (d([0.5, -1.0]),)


@case("variables-missing", source="modl, model.py")
def a_learned_weight_of_a_regulariser(right):
    """A data-consistency step with a learned weight."""
    weight = tf.Variable(2.0)

    @tf.custom_gradient
    def step(x):
        def whole(u, variables=None):
            return u / (1.0 + weight), [-tf.reduce_sum(u * x) / (1.0 + weight) ** 2]

        return x / (1.0 + weight), whole if right else (lambda u: u / (1.0 + weight))

    return step, (tf.constant([1.0, 4.0]),)


@case("variables-missing", surrogate=True, source="https://discuss.tensorflow.org/t/22820")
def a_codebook_that_learns(right):
    """Vector quantisation passes the gradient through, and reads a trainable codebook."""
    codes = tf.Variable([0.0, 2.0])

    @tf.custom_gradient
    def quantise(x):
        nearest = tf.argmin(tf.abs(x[:, None] - codes[None, :]), axis=1)

        def whole(u, variables=None):
            return u, [tf.math.unsorted_segment_sum(u, nearest, 2)]

        return tf.gather(codes, nearest), whole if right else (lambda u: u)

    return quantise, (tf.constant([0.3, 1.6, 1.9]),)


@case("upstream-ignored", source=TF + "pull/49488")
def a_variable_s_gradient_without_the_upstream(right):
    """The input's gradient is multiplied by the upstream, the variable's is not."""
    coefficients = tf.Variable([1.5, -0.5], dtype=D)

    @tf.custom_gradient
    def line(x):
        def grad(u, variables=None):
            basis = tf.stack([tf.ones_like(x), x])
            return u * coefficients[1], [tf.reduce_sum(u * basis if right else basis, axis=1)]

        return coefficients[0] + coefficients[1] * x, grad

    return reading(line, coefficients), (d([0.5, 2.0, -1.0]),)


@case("upstream-ignored", order=1, source="https://github.com/zfit/zfit")
def an_inner_tape_without_output_gradients(right):
    """The variable's gradient comes from an inner tape that was not told of the upstream."""
    w = tf.Variable(2.0)

    @tf.custom_gradient
    def integral(x):
        with tf.GradientTape() as tape:
            value = x * w * w

        def grad(u, variables=None):
            return u * w * w, tape.gradient(value, variables, output_gradients=u if right else None)

        return value, grad

    return integral, (tf.constant(1.5),)


@case("not-unbroadcast", source=TF + "pull/49488")
def a_weight_shared_by_the_rows(right):
    """The gradient of a weight that every row uses keeps the batch axis."""
    w = tf.Variable([0.5, -1.0], dtype=D)

    @tf.custom_gradient
    def score(x):
        def grad(u, variables=None):
            rows = u[:, None] * x
            return u[:, None] * w, [tf.reduce_sum(rows, 0) if right else rows]

        return tf.linalg.matvec(x, w), grad

    return reading(score, w), (d([[1.0, 2.0], [-1.0, 0.5], [3.0, 1.0]]),)


@case("variables-order", "swapped-gradients", source=TF + "issues/47267")
def in_the_order_they_were_made(right):
    """The rule answers in the order of creation, a graph asks by name."""
    slope = tf.Variable(1.5, dtype=D, name="slope")
    level = tf.Variable(-0.5, dtype=D, name="level")

    @tf.custom_gradient
    def ramp(x):
        def grad(u, variables=None):
            answers = {slope.ref(): tf.reduce_sum(u * x), level.ref(): tf.reduce_sum(u)}
            order = [v.ref() for v in variables] if right else list(answers)
            return u * slope, [answers[ref] for ref in order]

        return slope * x + level, grad

    return reading(tf.function(ramp), slope, level), (d([0.5, 2.0]),)


@case("variables-order", "swapped-gradients", source="public repository file")
def in_the_order_of_the_layer(right):
    """Home-made checkpointing answers in the order of the layer's weights."""
    kernel = tf.Variable([[1.0, -1.0], [0.5, 2.0]], name="kernel")
    bias = tf.Variable([0.25, -0.25], name="bias")

    @tf.custom_gradient
    def checkpointed(x):
        def grad(u, variables=None):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = x @ kernel + bias
            weights = list(variables) if right else [kernel, bias]
            g = tape.gradient(y, [x, *weights], output_gradients=u)
            return g[0], g[1:]

        return x @ kernel + bias, grad

    return checkpointed, (tf.constant([[0.5, 1.0]]),)


@case("variables-arity", "wrong-arity", source="public repository file", jacobian=[[2.0, 0.0], [0.0, 2.0]])
def accepted_and_not_answered(right):
    """The rule takes `variables` and returns the input's gradient alone."""
    w = tf.Variable(2.0)

    @tf.custom_gradient
    def scale(x):
        return w * x, lambda u, variables: (u * w, [tf.reduce_sum(u * x)]) if right else u * w

    return scale, (tf.constant([1.0, 3.0]),)
