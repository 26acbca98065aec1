"""What the rule makes of the upstream gradient."""

from __future__ import annotations

import tensorflow as tf
from registry import case, d

TF = "https://github.com/tensorflow/tensorflow/issues/"


@case("upstream-ignored", source="https://github.com/pytorch/pytorch/issues/995", jacobian=[-15.0, -10.0, -6.0])
def the_sign_in_front_is_lost(right):
    """The gradient of -prod(x) comes out as that of prod(x)."""

    @tf.custom_gradient
    def product(x):
        p = tf.reduce_prod(x)
        return p, lambda u: u * p / x if right else p / x

    return lambda x: -product(x), (d([2.0, 3.0, 5.0]),)


@case("upstream-ignored", source=TF + "34549", jacobian=[[0.5, 1.0], [1.0, -4.0]])
def tf_gradients_without_grad_ys(right):
    """tf.gradients weighs every output with one unless it is told otherwise."""

    @tf.custom_gradient
    def mixed(x):
        y = x * x + tf.reverse(x, [0])
        return y, lambda u: tf.gradients(y, x, grad_ys=u if right else None)

    return tf.function(mixed), (d([0.25, -2.0]),)


@case(
    "upstream-ignored",
    source="https://markaicode.com/custom-gradients-non-differentiable-losses",
    jacobian=[[3, 0], [0, 0.75]],
)
def a_skeleton_without_the_upstream(right):
    """A published skeleton returns the function's own derivative."""

    @tf.custom_gradient
    def cube(x):
        return x**3, lambda u: u * 3.0 * x**2 if right else 3.0 * x**2

    return cube, (tf.constant([1.0, 0.5]),)


@case("upstream-ignored", source="GPflow, mcmc.py", jacobian=[-0.5, 3.0])
def a_density_s_own_gradient(right):
    """A sampler's density returns what an inner tape gave it, once."""

    def log_p(x):
        return -0.5 * tf.reduce_sum(x * x)

    @tf.custom_gradient
    def density(x):
        with tf.GradientTape() as kept:
            kept.watch(x)
            value = log_p(x)

        def grad(u, variables=None):
            if not right:
                return kept.gradient(value, x)
            with tf.GradientTape() as tape:
                tape.watch(x)
                again = log_p(x)
            return tape.gradient(again, x, output_gradients=u)

        return value, grad

    return density, (tf.constant([0.5, -3.0]),)


@case("nonlinear-in-upstream", source="https://github.com/keisen/tf-keras-vis/issues/49", jacobian=[[1.0, 0], [0, 0]])
def guided_back_propagation(right):
    """Negative upstreams are masked: no Jacobian gives that."""

    @tf.custom_gradient
    def guided(x):
        def grad(u):
            gate = tf.cast(x > 0.0, x.dtype)
            return gate * u if right else gate * tf.cast(u > 0.0, x.dtype) * u

        return tf.nn.relu(x), grad

    return guided, (d([2.0, -1.0]),)


@case("output-ignored", source=TF + "58941")
def the_second_output_has_no_part(right):
    """Two outputs, two upstreams, and the rule uses one."""

    @tf.custom_gradient
    def pair(a, b):
        def grad(u, v):
            extra = (v, 2.0 * b * v) if right else (0.0, 0.0)
            return u * b + extra[0], u * a + extra[1]

        return (a * b, a + b * b), grad

    return pair, (d(0.5), d(-1.5))


@case("none-upstream", "graph-unfriendly", source="https://github.com/jax-ml/jax/pull/15341")
def arithmetic_with_none(right):
    """Through tf.function the upstream of an integer output is None."""

    @tf.custom_gradient
    def split(x):
        def grad(u, of_whole):
            return 2.0 * x * u if right else 2.0 * x * u + tf.cast(of_whole, x.dtype)

        return (x * x, tf.cast(tf.floor(x), tf.int32)), grad

    return tf.function(split), (d([0.5, 3.25]),)


@case("indexedslices-upstream", "raises", surrogate=True, source=TF + "23033")
def after_an_embedding_lookup(right):
    """After a gather the upstream is a tf.IndexedSlices."""

    @tf.custom_gradient
    def slow(table):
        return tf.identity(table), lambda u: 0.25 * (tf.convert_to_tensor(u) if right else u)

    return lambda table: tf.gather(slow(table), [1, 1, 0]), (d([[1.0, 2.0], [3.0, 4.0]]),)
