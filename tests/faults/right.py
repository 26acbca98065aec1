"""Nothing is wrong, though it looked so to somebody: conventions, kinks, deliberate surrogates."""

from __future__ import annotations

import keras
import tensorflow as tf
from registry import case, d

TF = "https://github.com/tensorflow/tensorflow/issues/"


@case(source=TF + "3348")
def the_conjugate_is_the_convention(right):
    """The gradient of z**3 is the conjugate of its derivative."""
    return lambda z: z**3, (tf.constant(1 + 2j, tf.complex128),)


@case(source="https://math.stackexchange.com/questions/2350481")
def the_sign_of_the_imaginary_part(right):
    """The same for z*z at an imaginary point."""
    return lambda z: z * z, (tf.constant([0.5j, 2.0 - 1.0j], tf.complex128),)


@case(source=TF + "3850")
def a_real_parameter_of_a_complex_number(right):
    """A complex target is read as the real part of its sum."""
    return lambda x, y: tf.complex(x, y), (d(0.5), d(-1.0))


@case(source="https://github.com/pytorch/pytorch/issues/58509", jacobian=[[9.0, 0], [0, -4.5]])
def an_intermediate_in_the_rule(right):
    """The tape also records the forward pass, so the intermediate keeps its link."""

    @tf.custom_gradient
    def f(x):
        m = 3.0 * x
        return m * m, lambda u: 6.0 * m * u

    return f, (d([0.5, -0.25]),)


@case(source=TF + "22048", jacobian=[[1.0, 0], [0, 1.0]])
def clipped_at_zero(right):
    """tf.clip_by_norm guards its square root today."""
    return lambda x: tf.clip_by_norm(x, 2.0), (d([0.0, 0.0]),)


@case(order=1, source=TF + "60556")
def floor_at_an_integer(right):
    """A difference steps over the jump, and must not be believed."""
    return lambda x: tf.floor(x), (d([2.0]),)


@case(source=TF + "60736")
def sign_has_no_tangent(right):
    """The derivative is zero, and reported as unconnected."""
    return lambda x: tf.sign(x), (d([3.0, -0.5]),)


@case(source="https://taourl.com/read-3507017.html")
def sign_is_not_straight_through(right):
    """TensorFlow registers zero for it."""
    return tf.sign, (tf.constant([1.0, -2.0]),)


@case(
    source="https://github.com/pytorch/pytorch/issues/113527", jacobian=[[0.5 * 0.7071068] * 2, [-0.5 * 0.7071068] * 2]
)
def a_formula_for_the_diagonal_only(right):
    """The gradient of a sum adds what lies off the diagonal."""
    f = lambda x: tf.stack([tf.norm(x) / 2.0, -tf.norm(x) / 2.0])  # noqa: E731
    return f, (d([1.0, 1.0]),)


@case(source="https://github.com/jax-ml/jax/issues/3359")
def a_derivative_kept_from_the_forward_loop(right):
    """The rule may close over values of the forward pass."""

    @tf.custom_gradient
    def grow(x):
        value, slope = x, tf.ones_like(x)
        for _ in range(2):
            slope, value = slope * (1.0 + 2.0 * value), value * (1.0 + value)
        return value, lambda u: u * slope

    return grow, (d(0.25),)


@case(surrogate=True, order=1, source=TF + "22977")
def a_range_taken_from_the_data(right):
    """Values beyond the nudged range send their gradient to the minimum or the maximum."""

    def f(x):
        return tf.quantization.fake_quant_with_min_max_vars(x, tf.reduce_min(x), tf.reduce_max(x), num_bits=3)

    return f, (tf.constant([-0.8, -0.7, -0.4, -0.1]),)


@case(surrogate=True, source="a blog on gradient reversal in TensorFlow 1")
def reversal_by_stop_gradient(right):
    """The stopped term adds to the value only."""
    return lambda x: -2.0 * x + 4.0 * tf.stop_gradient(x), (tf.constant([0.5, -1.0]),)


@case(source="tutorialexample.com", jacobian=[[0.25, -0.25], [-0.25, 0.25]])
def the_sum_of_a_softmax_is_constant(right):
    """So its gradient is zero; the Jacobian is not."""
    return tf.nn.softmax, (tf.constant([1.0, 1.0]),)


@case(source="https://discuss.tensorflow.org/t/15499", jacobian=[[1.0, -1.0], [2.0, 0.5]])
def the_gradient_of_a_vector_is_a_vector(right):
    """tape.gradient gives the product with ones."""
    w = tf.constant([[1.0, -1.0], [2.0, 0.5]])
    return lambda x: tf.linalg.matvec(w, x), (tf.constant([0.5, 2.0]),)


@case(source="a copy of stackoverflow", jacobian=[[1.0, 0], [0, 1.0]])
def no_second_derivative_of_the_identity(right):
    """Zero, and reported as None."""
    return tf.identity, (d([2.0, -1.0]),)


@case(source="a copy of stackoverflow question 40834852", jacobian=[[0.5, 0], [1.0, 0.5]])
def the_lower_triangle_only(right):
    """tf.linalg.eigh reads one triangle, so its gradient has one."""
    return lambda a: tf.linalg.eigh(a)[0][-1], (d([[3.0, 1.0], [1.0, 3.0]]),)


@case(surrogate=True, order=1, source="public repository file")
def none_for_an_input_without_influence(right):
    """The forward pass does not depend on the scale."""
    return tf.custom_gradient(lambda x, s: (tf.identity(x), lambda u: (u * s, None))), (
        tf.constant([1.0, -1.0]),
        tf.constant(0.5),
    )


@case(surrogate=True, source="TensorFlow's guide to advanced autodiff")
def clipped_on_the_way_back(right):
    """Deliberate, and not linear in the upstream."""
    return tf.custom_gradient(lambda x: (tf.identity(x), lambda u: tf.clip_by_norm(u, 0.25))), (
        tf.constant([1.0, 3.0]),
    )


@case(surrogate=True, source="larq zoo, dorefanet.py")
def a_quantiser_that_passes_through(right):
    """round(n x) / n has slope one on average."""
    return tf.custom_gradient(lambda x: (tf.round(5.0 * x) / 5.0, lambda u: u)), (tf.constant([0.33, 0.75]),)


@case(source="the documentation of keras.ops.custom_gradient", jacobian=[[1.0, 0], [0, 5.0]])
def the_form_of_keras(right):
    """The extra parameters serve another backend."""

    @keras.ops.custom_gradient
    def square(x):
        def grad(*args, upstream=None):
            return 2.0 * x * (args[0] if upstream is None else upstream)

        return x * x, grad

    return square, (tf.constant([0.5, 2.5]),)


@case(source="whosebug.com/question/6179425", jacobian=[[0.0, 0], [0, 1.0]])
def compared_on_other_random_numbers(right):
    """Two draws of the input, not two gradients."""
    return tf.custom_gradient(lambda v: (tf.nn.relu(v), lambda u: [u * tf.cast(v > 0.0, u.dtype)])), (
        tf.constant([-0.5, 1.5]),
    )
