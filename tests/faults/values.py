"""Right in form, wrong in value: everywhere, at a point, twice, or at the next call."""

from __future__ import annotations

import keras
import tensorflow as tf
from registry import case, d

TF = "https://github.com/tensorflow/tensorflow/issues/"


@case("local-derivative-missing", source=TF + "29449", jacobian=[[0.0, 0], [0, 1.0]])
def a_rule_replaces_it_is_not_applied_after(right):
    """A rule meant as "no change" turns the derivative of relu into ones."""

    @tf.custom_gradient
    def logged(x):
        return tf.nn.relu(x), lambda u: u * tf.cast(x > 0.0, x.dtype) if right else u

    return logged, (d([-2.0, 3.0]),)


@case("wrong-value", "local-derivative-missing", source="https://coderoad.ru/66139974", jacobian=[[4.0, 0], [0, -1.0]])
def a_clip_that_forgets_the_square(right):
    """A clip with a limit that is never reached, and no derivative of the square."""

    @tf.custom_gradient
    def clipped(y):
        return y * y, lambda u: tf.clip_by_norm(2.0 * y * u if right else u, 1e6)

    return clipped, (tf.constant([2.0, -0.5]),)


@case(
    "wrong-value", "constant-factor", source="https://github.com/jax-ml/jax/pull/29485", jacobian=[[3.0, 0], [0, -1.0]]
)
def half_of_a_square(right):
    """The factor 2 of the documentation's own example is missing on purpose; readers take it for the derivative."""

    @tf.custom_gradient
    def square(x):
        return x**2, lambda u: u * x * (2.0 if right else 1.0)

    return square, (d([1.5, -0.5]),)


@case("wrong-value", "constant-factor", source="a tutorial on eager execution", jacobian=[[12.0, 0], [0, 3.0]])
def the_value_in_place_of_the_slope(right):
    """The rule multiplies by the function instead of its derivative."""

    @tf.custom_gradient
    def parabola(x):
        y = 3.0 * x * x
        return y, lambda u: u * (6.0 * x if right else y)

    return parabola, (tf.constant([2.0, 0.5]),)


@case("wrong-value", source="a page about custom gradients", jacobian=12.0)
def a_cube_with_two_x(right):
    """The wrong power."""

    @tf.custom_gradient
    def cube(x):
        return x**3, lambda u: u * (3.0 * x**2 if right else 2.0 * x)

    return cube, (tf.constant(2.0),)


@case(
    "wrong-value",
    source="https://github.com/zhreshold/mxnet-ssd/issues/48",
    jacobian=[[0.128, -0.096], [-0.096, 0.072]],
)
def divided_by_the_norm_twice(right):
    """The second term of the rule of x/|x| is divided once more."""

    @tf.custom_gradient
    def unit(x):
        r = tf.sqrt(tf.reduce_sum(x * x))
        y = x / r
        return y, lambda u: (u - y * tf.reduce_sum(u * y) / (1.0 if right else r)) / r

    return unit, (d([3.0, 4.0]),)


@case("transposed-jacobian", source="https://github.com/pulp-platform/pulp-trainlib/issues/3")
def a_square_weight_not_transposed(right):
    """x @ W: the shapes agree either way."""
    w = d([[0.5, 2.0], [1.0, -1.0]])

    @tf.custom_gradient
    def dense(x):
        return x @ w, lambda u: tf.matmul(u, w, transpose_b=right)

    return dense, (d([[1.0, 3.0]]),)


@case("transposed-jacobian", source="https://github.com/KeKsBoTer/torch-dwt/issues/2")
def taps_not_flipped(right):
    """The adjoint of a correlation has its taps the other way round."""

    def correlate(x, taps):
        padded = tf.pad(x, [[1, 1]])
        return sum(t * padded[k : k + 4] for k, t in enumerate(taps))

    taps = [1.0, -0.5, 0.25]

    @tf.custom_gradient
    def smooth(x):
        return correlate(x, taps), lambda u: correlate(u, taps[::-1] if right else taps)

    return smooth, (d([0.5, 1.0, -2.0, 3.0]),)


@case("missing-conjugate", source="https://github.com/pytorch/pytorch/pull/43208")
def a_complex_root_without_conjugate(right):
    """Right for real input; the local derivative has to be conjugated."""

    @tf.custom_gradient
    def inverse_root(z):
        y = 1.0 / tf.sqrt(z)
        local = -0.5 * y**3
        return y, lambda u: u * (tf.math.conj(local) if right else local)

    return inverse_root, (tf.constant([2 + 1j, 1 - 0.5j], tf.complex128),)


@case("missing-conjugate", source="a copy of stackoverflow question 42479024")
def a_complex_square_without_conjugate(right):
    """The derivative 2z itself, where its conjugate is due."""

    @tf.custom_gradient
    def square(z):
        return z * z, lambda u: u * (tf.math.conj(2.0 * z) if right else 2.0 * z)

    return square, (tf.constant([0.5j, 1 - 2j], tf.complex128),)


@case("swapped-gradients", source="every tutorial's comments")
def two_gradients_exchanged(right):
    """The gradients of a product in the order in which they came to mind."""

    @tf.custom_gradient
    def f(a, b):
        g = lambda u: (2.0 * a * b * u, a * a * u)  # noqa: E731
        return a * a * b, g if right else (lambda u: g(u)[::-1])

    return f, (d([1.0, 2.0]), d([3.0, -1.0]))


# --- at a point ---------------------------------------------------------------------------------------------------


@case("wrong-at-point", "wrong-value", source=TF + "56873")
def zero_times_log_is_zero(right):
    """tf.math.xlog1py applies its convention to the derivative, too."""
    f = (lambda x, y: x * tf.math.log1p(y)) if right else tf.math.xlog1py
    return lambda x, y: f(x, y), (d([0.0, 1.5]), d([2.0, 0.5]))


@case("wrong-at-point", "wrong-value", source=TF + "127244", jacobian=[[4.0, 0], [0, 2.0]])
def the_other_branch_at_zero(right):
    """keras.ops.ldexp takes another branch at 0 and loses the factor."""
    exponents = tf.constant([2, 1])
    if right:
        return lambda x: x * d([4.0, 2.0]), (d([0.0, 0.25]),)
    return lambda x: keras.ops.ldexp(x, exponents), (d([0.0, 0.25]),)


@case("wrong-at-point", "wrong-value", surrogate=True, source="https://github.com/pytorch/ao/pull/4806")
def a_mask_on_the_rounded_value(right):
    """Values that land on the bound lose their gradient: < where <= was meant, on the rounded value."""

    @tf.custom_gradient
    def quantise(x):
        code = tf.clip_by_value(tf.round(2.0 * x), -4.0, 4.0)

        def grad(u):
            inside = (tf.abs(x) <= 2.0) if right else (tf.abs(code) < 4.0)
            return u * tf.cast(inside, x.dtype)

        return code / 2.0, grad

    return quantise, (d([-1.9, 0.3, 1.8, 3.0]),)


@case("nan-at-point", source=TF + "123578", jacobian=1.0)
def zero_times_minus_infinity(right):
    """tf.math.igamma(1, x) computes (a - 1) log x at 0."""
    one = d(1.0)
    return (lambda x: -tf.math.expm1(-x)) if right else (lambda x: tf.math.igamma(one, x)), (d(0.0),)


@case("nan-at-point", source=TF + "127226")
def the_branch_that_where_did_not_take(right):
    """keras.ops.sinc patches the value at 0, not its gradient."""

    def sinc(x):
        z = 3.141592653589793 * tf.where(x == 0.0, tf.ones_like(x), x)
        return tf.where(x == 0.0, 1.0 - (3.141592653589793 * x) ** 2 / 6.0, tf.sin(z) / z)

    return sinc if right else (lambda x: keras.ops.sinc(x)), (d([0.0, 0.25]),)


@case("nan-at-point", source=TF + "35011", jacobian=2.0)
def the_second_derivative_of_a_power(right):
    """x**[1, 2, 3] differentiated twice at 0 holds 0 times infinity."""

    def slope(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x + x * x + x * x * x if right else tf.reduce_sum(tf.pow(x, d([1.0, 2.0, 3.0])))
        return tape.gradient(y, x)

    return slope, (d(0.0),)


@case("nan-at-point", source="https://m.jb51.cc/faq/2430863.html", jacobian=[[0.0, 0], [0, 0]])
def to_the_power_of_one(right):
    """Written as x**1 so that the second derivative is not None, and NaN at 0 for it."""

    def slope(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x + 0.0 * x * x if right else x**1.0
        return tape.gradient(y, x)

    return slope, (d([0.0, 3.0]),)


@case("nan-at-point", source="https://github.com/jax-ml/jax/pull/540", jacobian=[[0.25, 0], [0, 0]])
def a_logistic_that_overflows(right):
    """exp(x)/(1 + exp(x))**2 is infinity over infinity."""

    @tf.custom_gradient
    def logistic(x):
        s, e = tf.sigmoid(x), tf.exp(x)
        return s, lambda u: u * s * (1.0 - s) if right else u * e / (1.0 + e) ** 2

    return logistic, (d([0.0, 900.0]),)


@case("nan-at-point", order=1, source="https://www.iiask.com/34l56756.html", jacobian=[[0.0, 0], [0, 0.25]])
def clamped_in_the_rule_only(right):
    """A "stable" square root that is NaN for negative input all the same."""

    @tf.custom_gradient
    def root(x):
        safe = tf.maximum(x, 1e-10)
        if not right:
            return tf.sqrt(x), lambda u: 0.5 * u / tf.sqrt(safe)
        return tf.sqrt(safe), lambda u: tf.where(x > 1e-10, 0.5 * u / tf.sqrt(safe), tf.zeros_like(u))

    return root, (tf.constant([-2.0, 4.0]),)


@case(
    "nan-at-point",
    order=1,
    source="https://www.iiask.com/34l59058.html",
    jacobian=[[0.0, 0, 0], [0, 0, 0], [0, 0, 0.5]],
)
def guarded_after_the_root(right):
    """where() selects values, and differentiates both branches."""

    def root(x):
        ok = x > 0.0
        inside = tf.sqrt(tf.where(ok, x, 1.0)) if right else tf.sqrt(x)
        return tf.where(ok if right else x >= 0.0, inside, 0.0)

    return root, (tf.constant([-1.0, 0.0, 1.0]),)


# --- twice, and later ---------------------------------------------------------------------------------------------


@case("duplicate-argument", "constant-factor", "wrong-value", source=TF + "36999", jacobian=[[4.0, 0], [0, -1.0]])
def one_tensor_in_two_places(right):
    """An inner tape that is asked for two gradients of one tensor answers the whole one twice."""

    @tf.custom_gradient
    def product(*pair):
        def grad(u):
            inner = [tf.identity(v) for v in pair] if right else list(pair)
            with tf.GradientTape() as tape:
                tape.watch(inner)
                y = inner[0] * inner[1]
            return tape.gradient(y, inner, output_gradients=u)

        return pair[0] * pair[1], grad

    return lambda x: product(x, x), (d([2.0, -0.5]),)


@case("stale-state", "nondeterministic", source="https://github.com/pytorch/pytorch/issues/16947")
def the_input_of_the_last_call(right):
    """The forward pass keeps its input on the object; a second call overwrites it."""

    class Square:
        kept = None

        def __call__(self, x):
            @tf.custom_gradient
            def inner(v):
                self.kept = v
                return v * v, lambda u: 2.0 * u * (v if right else self.kept)

            return inner(x)

    layer = Square()
    return lambda a, b: layer(a) + 2.0 * layer(b), (d(1.5), d(-2.0))


@case("nondeterministic", source="https://github.com/awslabs/raf/pull/33")
def a_mask_drawn_again(right):
    """The rule draws another dropout mask than the forward pass."""
    generator = tf.random.Generator.from_seed(3)

    @tf.custom_gradient
    def drop(x):
        if right:
            keep = tf.cast(tf.random.stateless_uniform(tf.shape(x), [3, 4]) < 0.5, x.dtype)
            return x * keep, lambda u: u * keep
        draw = lambda: tf.cast(generator.uniform(tf.shape(x)) < 0.5, x.dtype)  # noqa: E731
        return x * draw(), lambda u: u * draw()

    return drop, (tf.ones([10], tf.float64),)


@case("nondeterministic", source="public repository file", jacobian=[[1.0, 0], [0, 3.0]])
def noise_in_the_rule(right):
    """The rule shakes its input."""

    @tf.custom_gradient
    def energy(x):
        shake = (lambda: 0.0) if right else (lambda: 0.1 * tf.random.normal(tf.shape(x)))
        return x * x, lambda u: 2.0 * u * (x + shake())

    return energy, (tf.constant([0.5, 1.5]),)
