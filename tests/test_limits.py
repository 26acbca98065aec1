"""What TensorFlow's custom gradients do not do, one by one, with tf.custom_gradient and with cgrad side by side.

Each limit is a small function of the decorator; it returns what came of it in a few words. ``python
tests/test_limits.py FILE`` writes the table as Markdown.
"""

from __future__ import annotations

import pathlib
import re
import sys
import warnings

import numpy as np
import pytest
import tensorflow as tf

import cgrad

X = tf.constant([1.0, 2.0])
U = tf.constant([1.0, 3.0])


def pulled(f, *args, sources=None, u=None):
    sources = args if sources is None else sources
    with tf.GradientTape() as tape:
        tape.watch([s for s in tf.nest.flatten(sources) if isinstance(s, tf.Tensor)])
        y = f(*args)
    return tape.gradient(y, sources, output_gradients=u)


def pulled_one(f, x=X, u=None):
    return pulled(f, x, u=u)[0]


def shown(value):
    if value is None:
        return "None"
    if isinstance(value, (list, tuple)):
        return ", ".join(shown(v) for v in value)
    if isinstance(value, dict):
        return ", ".join(f"{key}: {shown(v)}" for key, v in value.items())
    if isinstance(value, (str, float)):
        return str(value)
    numbers = np.asarray(value)
    text = " ".join(str(np.round(numbers, 3)).split()).replace("[ ", "[")
    return text if numbers.dtype == np.float32 else f"{text} {numbers.dtype}"


def outcome(limit, define):
    """The result, or the error: cgrad's by its code, others by their class and the start of their text."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = shown(limit(define))
        except Exception as error:
            result = f"{type(error).__name__}: {essence(str(error))}"
    named = [w for w in caught if issubclass(w.category, cgrad.CapturedTensorWarning)]
    return f"{result}, with a {named[0].category.__name__}" if named else result


def essence(text):
    """The code of a fault, or the first words of a message, without the traceback that tf.function puts before it."""
    code = re.search(r"\[(CG\d{3})\]", text)
    if code:
        return code.group(1)
    text = re.sub(r"^in user code:.*?\n    \w+: ", "", text, flags=re.DOTALL)
    text = re.sub(r"object at 0x\w+", "object", text)
    return " ".join(text.split())[:70]


def returning(define, gradient):
    return define(lambda x: (x * 2.0, lambda u: gradient))


# --- what nobody checks -----------------------------------------------------------------------------------------


def the_jacobian_is_returned(define):
    return pulled_one(returning(define, tf.constant([[0.0, 2.0], [1.0, 0.0]])))


def a_scalar_for_a_vector(define):
    """It broadcasts in the operation before it: 2 exp(x) has the gradient [5.437, 14.778]."""
    f = define(lambda x: (x * 2.0, lambda u: tf.reduce_sum(2.0 * u)))
    return pulled_one(lambda x: f(tf.exp(x)))


def a_missing_sum(define):
    f = define(lambda x, b: (x + b, lambda u: (u, u)))
    return pulled(f, tf.ones([2, 2]), tf.constant([1.0, 2.0]))[1]


def another_dtype(define):
    return pulled_one(returning(define, tf.constant([1.0, 1.0], tf.float64)))


def a_python_number(define):
    return pulled_one(returning(define, 1.0))


def none_for_an_argument(define):
    return pulled_one(returning(define, None))


def too_many_gradients_in_a_graph(define):
    f = define(lambda x: (x * 2.0, lambda u: (u, u)))
    return tf.function(lambda x: pulled_one(f, x))(X)


def a_list_for_a_vector(define):
    f = define(lambda x: (tf.stack([x[1], 2.0 * x[0]]), lambda u: [2.0 * u[1], u[0]]))
    return pulled_one(f)


def a_variable_made_in_the_rule(define):
    f = define(lambda x: (tf.stack([x[1], 2.0 * x[0]]), lambda u: tf.Variable([2.0 * u[1], u[0]])))
    with tf.GradientTape() as tape:
        tape.watch(X)
        y = f(X)
    return tape.jacobian(y, X)


# --- forward mode: the rule says 100 x, the forward pass says 2 x ---------------------------------------------


def hundred(define):
    return define(lambda x: (x * x, lambda u: 100.0 * x * u))


def forward_mode(define):
    f = hundred(define)
    with tf.autodiff.ForwardAccumulator(X, tf.ones_like(X)) as forward:
        y = f(X)
    return forward.jvp(y)


def forward_mode_in_a_graph(define):
    return tf.function(lambda: forward_mode(define))()


def forward_over_reverse(define):
    f = hundred(define)
    with tf.autodiff.ForwardAccumulator(X, tf.ones_like(X)) as forward:
        g = pulled_one(f)
    return forward.jvp(g)


def reverse_over_forward(define):
    f = hundred(define)
    forward = tf.autodiff.ForwardAccumulator(X, tf.ones_like(X))
    with tf.GradientTape() as tape:
        tape.watch(X)
        with forward:
            y = f(X)
        dy = forward.jvp(y)
    return tape.gradient(dy, X)


def forward_mode_without_a_derivative(define):
    """The forward pass rounds: a graph has zeros for it."""

    @tf.function
    def step(x):
        f = define(lambda x: (tf.round(x), lambda u: 5.0 * u))
        with tf.autodiff.ForwardAccumulator(x, tf.ones_like(x)) as forward:
            y = f(x)
        return forward.jvp(y)

    return step(X)


# --- arguments ------------------------------------------------------------------------------------------------


def keyword_in_eager_mode(define):
    f = hundred(define)
    with tf.GradientTape() as tape:
        tape.watch(X)
        y = f(x=X)
    return tape.gradient(y, X)


def keyword_in_a_graph(define):
    f = hundred(define)
    return tf.function(lambda x: f(x=x))(X)


def dict_in_written_order(define):
    """The gradient of w is b = 5, that of b is w = 2."""
    f = define(lambda p: (p["w"] * p["b"], lambda u: (u * p["b"], u * p["w"])))
    p = {"w": tf.constant(2.0), "b": tf.constant(5.0)}
    return pulled(f, p)[0]


def dict_by_key(define):
    f = define(lambda p: (p["w"] * p["b"], lambda u: {"w": u * p["b"], "b": u * p["w"]}))
    p = {"w": tf.constant(2.0), "b": tf.constant(5.0)}
    return pulled(f, p)[0]


def a_flag_in_a_graph(define):
    f = define(lambda x, flag: (x * x if flag else x, lambda u: (100.0 * x * u, None)))
    return tf.function(lambda x: f(x, True))(X)


def a_flag_in_a_graph_nondiff(define):
    if define is tf.custom_gradient:
        return "there is no such option"
    f = define(nondiff="flag")(lambda x, flag: (x * x if flag else x, lambda u: 100.0 * x * u))
    return tf.function(lambda x: f(x, True))(X)


def an_object(define):
    if define is not tf.custom_gradient:
        f = define(nondiff="config")(lambda x, config: (x * x, lambda u: 100.0 * x * u))
    else:
        f = define(lambda x, config: (x * x, lambda u: (100.0 * x * u, None)))
    return pulled(f, X, object(), sources=[X])


def keras_variable_argument(define):
    w = tf.keras.Variable([1.0, 2.0])
    f = define(lambda w: (w * w, lambda u: 100.0 * tf.convert_to_tensor(w) * u))
    return pulled(f, w, sources=[w.value])


# --- variables ------------------------------------------------------------------------------------------------


def affine(define, answer):
    w, b = tf.Variable(2.0, name="w"), tf.Variable(1.0, name="b")

    def f(x):
        def grad(u, variables=None):
            return w * u, answer(variables, tf.reduce_sum(u * x), tf.reduce_sum(u))

        return w * x + b, grad

    return pulled(define(f), X, sources=[w, b])


def variables_by_name(define):
    """dy/dw is 3, dy/db is 2."""
    return affine(define, lambda variables, dw, db: {"w": dw, "b": db})


def variables_in_a_tuple(define):
    return affine(define, lambda variables, dw, db: tuple(dw if "w" in v.name else db for v in variables))


def order_of_variables(define):
    """Whether two hundred calls, each with new variables, see them by name."""
    orders = set()

    def call(k):
        made = [tf.Variable(1.0, name=name) for name in "dbca"]

        def f(x):
            def grad(u, variables=None):
                orders.add("".join(v.name[0] for v in variables))
                return u, [tf.zeros_like(v) for v in variables]

            return x * made[0] * made[1] * made[2] * made[3], grad

        pulled_one(define(f))
        return made

    kept = [call(k) for k in range(200)]
    del kept
    return "by name" if orders == {"abcd"} else "other orders too"


def a_captured_tensor(define):
    w = tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch([X, w])
        y = define(lambda x: (w * x, lambda u: w * u))(X)
    return tape.gradient(y, w)


# --- upstreams ------------------------------------------------------------------------------------------------


def upstream_of_an_integer_output(define):
    seen = []

    def f(x):
        def grad(u, u_index):
            seen.append(type(u_index).__name__)
            return u

        return (x * 2.0, tf.argmax(x)), grad

    g = tf.function(define(f))
    pulled_one(lambda x: g(x)[0])
    return "None" if "NoneType" in seen else "a tensor"


def upstream_after_gather(define):
    seen = []

    def f(x):
        def grad(u):
            seen.append(type(u).__name__)
            return tf.convert_to_tensor(u)

        return x * 2.0, grad

    g = define(f)
    pulled_one(lambda x: tf.gather(g(x), [0]))
    return "IndexedSlices" if "IndexedSlices" in seen else "a tensor"


# --- outside TensorFlow ---------------------------------------------------------------------------------------


def numpy_cube(define):
    if define is not tf.custom_gradient:
        return define(numpy=True)(lambda x: (x**3, lambda u: 3 * x**2 * u))

    def f(x):
        y = tf.numpy_function(lambda x: x**3, [x], tf.float32)
        return y, lambda u: u * tf.numpy_function(lambda x: 3 * x**2, [x], tf.float32)

    return define(f)


def numpy_first_derivative(define):
    return pulled_one(numpy_cube(define))


def numpy_second_derivative(define):
    """6 x would be right."""
    f = numpy_cube(define)
    with tf.GradientTape() as tape:
        tape.watch(X)
        g = pulled_one(f)
    return tape.gradient(g, X)


def numpy_function_in_an_ordinary_rule(define):
    """Without numpy=True nobody can know: the rule is a constant to the tape. cgrad.gradcheck finds it."""
    f = numpy_cube(tf.custom_gradient).__wrapped__
    f = define(f)
    with tf.GradientTape() as tape:
        tape.watch(X)
        g = pulled_one(f)
    return tape.gradient(g, X)


def vectorized_map_from_outside(define):
    """The vectoriser rewrites the operations, and the rule is not one of them. With the tape inside it is used."""
    f = hundred(define)
    return pulled_one(lambda x: tf.vectorized_map(f, x[:, tf.newaxis]))


# limit: (what tf.custom_gradient does, what cgrad does)
EXPECTED = {
    the_jacobian_is_returned: ("[[0. 2.] [1. 0.]]", "ContractError: CG104"),
    a_scalar_for_a_vector: ("[10.873 29.556]", "ContractError: CG106"),
    a_missing_sum: ("[[1. 1.] [1. 1.]]", "ContractError: CG105"),
    another_dtype: ("[1. 1.] float64", "ContractError: CG107"),
    a_python_number: ("1.0", "ContractError: CG106"),
    none_for_an_argument: ("None", "ContractError: CG108"),
    too_many_gradients_in_a_graph: (
        "InternalError: Recorded operation '<lambda>' returned too few gradients. Expected 2 b",
        "ContractError: CG101",
    ),
    a_list_for_a_vector: (
        "ValueError: custom_gradient function expected to return 1 gradients, but returned ",
        "ContractError: CG101",
    ),
    a_variable_made_in_the_rule: ("None", "ContractError: CG603"),
    forward_mode: ("[2. 4.]", "[100. 200.]"),
    forward_mode_in_a_graph: ("[2. 4.]", "[100. 200.]"),
    forward_over_reverse: ("[100. 100.]", "[100. 100.]"),
    reverse_over_forward: ("[2. 2.]", "[100. 100.]"),
    forward_mode_without_a_derivative: ("[0. 0.]", "[5. 5.]"),
    keyword_in_eager_mode: ("[2. 4.]", "[100. 200.]"),
    keyword_in_a_graph: (
        "ValueError: The custom_gradient decorator currently supports keywords arguments on",
        "[1. 4.]",
    ),
    dict_in_written_order: ("w: 2.0, b: 5.0", "ContractError: CG102"),
    dict_by_key: ("w: 5.0, b: 2.0", "w: 5.0, b: 2.0"),
    a_flag_in_a_graph: (
        "OperatorNotAllowedInGraphError: Using a symbolic `tf.Tensor` as a Python `bool` is not allowed. You ca",
        "UsageError: CG507",
    ),
    a_flag_in_a_graph_nondiff: ("there is no such option", "[1. 4.]"),
    an_object: (
        "ValueError: Attempt to convert a value (<object object>) with an unsupported type ",
        "[100. 200.]",
    ),
    keras_variable_argument: (
        "TypeError: @tf.custom_gradient grad_fn must accept keyword argument 'variables', ",
        "[100. 200.]",
    ),
    variables_by_name: ('TypeError: can only concatenate list (not "dict") to list', "3.0, 2.0"),
    variables_in_a_tuple: ('TypeError: can only concatenate list (not "tuple") to list', "3.0, 2.0"),
    order_of_variables: ("other orders too", "by name"),
    a_captured_tensor: ("None", "None, with a CapturedTensorWarning"),
    upstream_of_an_integer_output: ("None", "a tensor"),
    upstream_after_gather: ("IndexedSlices", "a tensor"),
    numpy_first_derivative: ("[3. 12.]", "[3. 12.]"),
    # not lifted
    numpy_function_in_an_ordinary_rule: ("None", "None"),
    vectorized_map_from_outside: ("[2. 4.]", "[2. 4.]"),
    numpy_second_derivative: ("None", "NotDifferentiableError: CG701"),
}


@pytest.mark.parametrize("limit", EXPECTED, ids=lambda limit: limit.__name__)
def test_limit(limit):
    assert (outcome(limit, tf.custom_gradient), outcome(limit, cgrad.custom_vjp)) == EXPECTED[limit]


def test_tensorflow_forgets_what_a_dead_accumulator_followed():
    """Not ours to lift, and why tests/test_modes.py keeps its accumulator: plain operations, eager mode."""

    def gradient(keep):
        forward = tf.autodiff.ForwardAccumulator(X, U)
        with tf.GradientTape() as tape:
            tape.watch(X)
            with forward:
                y = tf.exp(tf.sin(X * X))
            if not keep:
                del forward
        return tape.gradient(y, X)

    assert gradient(True) is not None
    assert gradient(False) is None


def as_markdown():
    lines = ["| limit | tf.custom_gradient | cgrad.custom_vjp |", "|---|---|---|"]
    for limit in EXPECTED:
        name = limit.__name__.replace("_", " ")
        lines.append(f"| {name} | {outcome(limit, tf.custom_gradient)} | {outcome(limit, cgrad.custom_vjp)} |")
    return "\n".join(lines) + "\n"


def test_the_table_in_the_documentation_is_what_is_found():
    page = pathlib.Path(__file__).parents[1] / "docs" / "reference" / "tables" / "limits.txt"
    assert page.read_text() == as_markdown()


if __name__ == "__main__":
    text = as_markdown()
    pathlib.Path(sys.argv[1]).write_text(text) if sys.argv[1:] else print(text)
