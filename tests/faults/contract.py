"""What the rule returns: number, structure, shape, dtype, None, NaN, and whether there is a rule at all."""

from __future__ import annotations

import tensorflow as tf
from registry import case, d

TF = "https://github.com/tensorflow/tensorflow/issues/"


@case(
    "wrong-arity",
    source="https://github.com/tensorflow/quantum/issues/710",
    jacobian=[[-0.1986693, 0], [0, -0.9320391]],
)
def a_list_counts_once_an_entry(right):
    """A Python list of names is two inputs; the rule answers with one gradient for it."""
    rule = lambda phase: lambda u: (None, -u * tf.sin(phase))  # noqa: E731

    @tf.custom_gradient
    def read(names, phase):
        return tf.cos(phase), rule(phase)

    names = tf.constant(["up", "down"]) if right else ["up", "down"]
    return lambda phase: read(names, phase), (d([0.2, 1.2]),)


@case("wrong-arity", source="https://github.com/PennyLaneAI/demos/pull/202", jacobian=[1.0, 0.8253356, 0.3623578])
def a_list_of_scalars_is_not_a_vector(right):
    """The gradient of one vector comes back as a list with a scalar for each entry."""

    @tf.custom_gradient
    def total(t):
        def grad(u):
            parts = [u * tf.cos(v) for v in tf.unstack(t)]
            return tf.stack(parts) if right else parts

        return tf.reduce_sum(tf.sin(t)), grad

    return lambda t: total(t), (d([0.0, 0.6, 1.2]),)


@case("wrong-arity", surrogate=True, source="public repository file")
def a_strength_by_position_is_an_input(right):
    """Gradient reversal: the strength, a Python float, needs a gradient (or None) too."""

    @tf.custom_gradient
    def reverse(x, strength):
        return tf.identity(x), lambda u: (-strength * u, None) if right else -strength * u

    return lambda x: reverse(x, 0.25), (tf.constant([1.5, -0.5]),)


@case("wrong-arity", surrogate=True, source="public repository file")
def a_default_left_out_is_no_input(right):
    """The rule always answers for two arguments; the second was left at its default."""

    @tf.custom_gradient
    def reverse(x, weight=0.5):
        return tf.identity(x), lambda u: (-weight * u, None)

    return (lambda x: reverse(x, 0.5)) if right else reverse, (tf.constant([2.0, 3.0]),)


@case("wrong-arity", source="https://stackoverflow.com/questions/60516977", repaired=False)
def the_inner_rule_answers_for_two(right):
    """A rule of the rule has one input and returns two gradients; only a second derivative shows it."""

    @tf.custom_gradient
    def cube(x):
        slope = 3.0 * x * x

        def first(u):
            @tf.custom_gradient
            def of_slope(t):
                return slope, lambda w: 6.0 * x * w if right else (6.0 * x * w, slope * w)

            return u * of_slope(x)

        return x**3, first

    return cube, (tf.constant([1.5, 0.5]),)


@case("wrong-arity", source="MrMustard, backend_tensorflow.py")
def a_tuple_of_sizes_is_two_inputs(right):
    """A static size handed over by position counts once for each of its numbers."""

    def outer(a, b, size):
        rows, columns = (tf.cast(tf.range(1, n + 1), tf.float32) for n in size)
        return a * b * rows[:, None] * columns[None, :]

    @tf.custom_gradient
    def by_position(a, b, size):
        t = outer(1.0, 1.0, size)
        return a * b * t, lambda u: (tf.reduce_sum(u * b * t), tf.reduce_sum(u * a * t))

    def closed_over(a, b):
        t = outer(1.0, 1.0, (2, 3))

        @tf.custom_gradient
        def inner(a, b):
            return a * b * t, lambda u: (tf.reduce_sum(u * b * t), tf.reduce_sum(u * a * t))

        return inner(a, b)

    return closed_over if right else (lambda a, b: by_position(a, b, (2, 3))), (tf.constant(1.5), tf.constant(-2.0))


@case("wrong-arity", surrogate=True, source="public repository file")
def one_gradient_for_a_pair(right):
    """A loss of labels and predictions returns a gradient for the predictions only."""

    @tf.custom_gradient
    def loss(labels, p):
        return (p - labels) ** 2, lambda u: (None, 2.0 * u * (p - labels)) if right else 2.0 * u * (p - labels)

    return loss, (tf.constant([1.0, 0.0]), tf.constant([0.25, 2.0]))


@case("structure-order", "swapped-gradients", source="https://github.com/jax-ml/jax/issues/5948")
def a_dict_is_sorted_by_key(right):
    """The list is in the order in which the dict was written; its leaves come sorted."""

    @tf.custom_gradient
    def model(p):
        def grad(u):
            g = {"w": u * p["b"] ** 3, "b": 3.0 * u * p["w"] * p["b"] ** 2}
            return g if right else list(g.values())

        return p["w"] * p["b"] ** 3, grad

    return lambda w, b: model({"w": w, "b": b}), (d(0.5), d(2.0))


@case("wrong-shape", "not-unbroadcast", source="https://github.com/pytorch/pytorch/issues/65244", jacobian=[1.5, 3.0])
def gradients_of_examples_not_summed(right):
    """A scalar of the whole batch; the rule returns one row of gradients for each example."""
    rows = d([[1.0, 0.0], [2.0, 4.0], [-1.5, -1.0]])

    @tf.custom_gradient
    def total(x):
        return tf.reduce_sum(tf.linalg.matvec(rows, x)), lambda u: u * (tf.reduce_sum(rows, 0) if right else rows)

    return total, (d([0.3, -0.2]),)


@case("wrong-shape", "wrong-reduction", source=TF + "44359")
def an_activation_answers_with_a_number(right):
    """The rule sums its gradient; the failure shows in the product before it."""

    @tf.custom_gradient
    def squash(z):
        s = tf.sigmoid(z)
        return s, lambda u: u * s * (1.0 - s) if right else tf.reduce_sum(u * s * (1.0 - s))

    w = d([[0.5, 1.5], [-1.0, 0.25]])
    return lambda x: squash(x @ w), (d([[0.5, -2.0]]),)


@case("wrong-shape", source="a habit of tf.squeeze")
def a_column_that_was_squeezed(right):
    """The rule squeezes away an axis of size one that the input has."""

    @tf.custom_gradient
    def triple(x):
        return 3.0 * x, lambda u: 3.0 * u if right else tf.squeeze(3.0 * u)

    return triple, (d([[1.0], [2.0], [-1.0]]),)


@case("wrong-reduction", "wrong-shape", source="https://github.com/probcomp/Gen.jl/issues/432")
def a_blind_sum_over_all_axes(right):
    """Every argument of a broadcast log-density gets one number."""

    @tf.custom_gradient
    def log_density(x, m):
        e = x - m

        def grad(u):
            return (-u * e, u * tf.reduce_sum(e, 0)) if right else (-u * tf.reduce_sum(e), u * tf.reduce_sum(e))

        return -0.5 * tf.reduce_sum(e * e), grad

    return log_density, (d([[0.5, 1.0], [2.0, -1.0]]), d([0.25, -0.5]))


@case("wrong-reduction", "wrong-value", source="https://github.com/tensorflow/tfjs-core/pull/970")
def sums_before_the_product(right):
    """The gradient of a scale is the sum of products, not the product of sums."""

    @tf.custom_gradient
    def rescale(x, gamma):
        hat = (x + 1.0) / 4.0

        def grad(u):
            total = tf.reduce_sum(u * hat, 0) if right else tf.reduce_sum(u, 0) * tf.reduce_sum(hat, 0)
            return u * gamma / 4.0, total

        return gamma * hat, grad

    return rescale, (d([[1.0, 2.0], [0.5, -1.0], [3.0, 4.0]]), d([1.5, -0.5]))


@case("not-unbroadcast", source="https://github.com/deeplearning4j/nd4j/issues/2424")
def a_row_added_to_a_matrix(right):
    """The row feeds every row of the result; its gradient is their sum."""

    @tf.custom_gradient
    def shift(m, row):
        return m + row, lambda u: (u, tf.reduce_sum(u, 0, keepdims=True) if right else u)

    return shift, (d([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), d([[0.5, -0.5]]))


@case("not-unbroadcast", source="quantizers, _float_point_ops.py")
def one_scale_for_all(right):
    """A number scales a vector; its gradient comes back as large as the vector."""

    @tf.custom_gradient
    def scale(x, s):
        return x * s, lambda u: (u * s, tf.reduce_sum(u * x) if right else u * x)

    return scale, (tf.constant([1.0, -2.0, 3.0]), tf.constant(2.0))


@case("jacobian-returned", source="geomstats, autodiff.py", jacobian=[[1.0, -2.0], [0.5, 3.0]])
def the_jacobian_times_the_upstream(right):
    """A decorator multiplies the user's Jacobian by the upstream, element by element."""
    a = tf.constant([[1.0, -2.0], [0.5, 3.0]])

    @tf.custom_gradient
    def linear(x):
        return tf.linalg.matvec(a, x), lambda u: tf.linalg.matvec(a, u, transpose_a=True) if right else a * u

    return linear, (tf.constant([0.5, 1.0]),)


@case("wrong-dtype", source="https://github.com/cvxpy/cvxpylayers/issues/92")
def a_solver_answers_in_double(right):
    """The rule computes in double precision and forgets to come back."""

    @tf.custom_gradient
    def cube(z):
        def grad(u):
            g = 3.0 * tf.cast(z, tf.float64) ** 2 * tf.cast(u, tf.float64)
            return tf.cast(g, z.dtype) if right else g

        return z**3, grad

    return lambda x: cube(2.0 * x), (tf.constant([0.5, -0.25]),)


@case("wrong-dtype", source=TF + "56694", jacobian=[[1.5, 0.0], [0.0, -6.0]])
def a_single_precision_constant_in_the_rule(right):
    """A constant of the rule has TensorFlow's default dtype, whatever the input has."""

    @tf.custom_gradient
    def parabola(x):
        return 1.5 * x * x, lambda u: tf.constant(3.0, x.dtype if right else tf.float32) * x * u

    return parabola, (d([0.5, -2.0]),)


@case("none-returned", source="https://github.com/zaccharieramzi/tfkbnufft/pull/25")
def none_for_an_input_that_matters(right):
    """The rule takes an input for fixed on which the output depends."""

    @tf.custom_gradient
    def sample(s, k):
        return s * tf.sin(k), lambda u: (u * tf.sin(k), u * s * tf.cos(k) if right else None)

    return sample, (d([1.0, -2.0]), d([0.25, 1.0]))


@case("nan-at-point", source="elasticdeform, tf.py")
def nan_for_what_is_not_implemented(right):
    """The rule says NaN where it has no derivative to offer."""

    @tf.custom_gradient
    def warp(shift, x):
        return x * shift, lambda u: (u * x if right else float("nan") * shift, u * shift)

    return warp, (tf.constant([0.5, 3.0]), tf.constant([2.0, -1.0]))


@case(
    "missing-grad-fn", "raises", source="a translated page of TensorFlow's documentation", jacobian=[[1.0, 0], [0, 6.0]]
)
def the_rule_got_lost(right):
    """The line with the rule is missing: a tensor of two entries unpacks without a word."""

    def square(x):
        return (x * x, lambda u: 2.0 * x * u) if right else x * x

    return tf.custom_gradient(square), (tf.constant([0.5, 3.0]),)


@case("raises", surrogate=True, source="https://thinbug.com/q/56841166")
def a_name_that_was_never_assigned(right):
    """The function returns a variable that does not exist."""

    @tf.custom_gradient
    def flip(x):
        kept = tf.identity(x)
        return kept if right else nothing, lambda u: -u  # noqa: F821

    return flip, (tf.constant([0.5, 1.0]),)


@case("raises", surrogate=True, source="tframe, quantization.py")
def a_chained_comparison_of_a_vector(right):
    """Python asks for the truth of a whole tensor."""

    @tf.custom_gradient
    def binary(x):
        inside = lambda: (x > -1.0) & (x < 1.0) if right else -1.0 < x < 1.0  # noqa: E731
        return tf.sign(x), lambda u: u * tf.cast(inside(), u.dtype)

    return binary, (tf.constant([0.25, -2.0]),)
