"""Wrong calls of every public name and of the command line, as data: what is called, what is due, what has to be said.

    python tests/bad_input.py [--markdown FILE] [--verbose]

prints the table by kind. A wrong call ends in one of five ways, and in no other: an error of cgrad's own, a report, the
exception that the user's own code raised, Python's TypeError for an argument that a function does not have, or, on the
command line, exit status 2 and a line on stderr. `due` says which; `said` are pieces that the text must hold: the name
of what is wrong, what came, what was due. Each call has ten seconds.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import functools
import io
import os
import pathlib
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from typing import Any

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

import cgrad
from cgrad import ContractError, NotDifferentiableError, UsageError
from cgrad.__main__ import main

X = tf.constant([1.0, 2.0])
N = np.array([1.0, 2.0], np.float32)
ONE = tf.constant(1.0)
HUGE = np.broadcast_to(np.float32(1.0), (2**16, 2**15))  # 2^31 elements in four bytes
SECONDS = 10


@tf.custom_gradient
def square(x):
    return x * x, lambda u: 2.0 * x * u


@cgrad.custom_vjp
def cube(x):
    return x**3, lambda u: 3.0 * x**2 * u


@dataclasses.dataclass(frozen=True)
class Case:
    """One wrong call."""

    kind: str
    name: str
    call: Callable[[], Any]
    due: Any
    said: tuple[str, ...]


CASES: list[Case] = []


def add(kind, due, **calls):
    """Adds cases of one kind and one due end; each value is the call and, in a tuple, what has to be said."""
    for name, (call, *said) in calls.items():
        CASES.append(Case(kind, name.replace("_", " "), call, due, tuple(said)))


def check(f, *args, **options):
    return lambda: cgrad.gradcheck(f, *args, **{"order": 1, "modes": ("eager",), **options})


def fully(f, *args, **options):
    return lambda: cgrad.gradcheck(f, *args, **options)


def raising(error):
    def f(x):
        raise error

    return f


# --- gradcheck: the function, the options ---------------------------------------------------------------------
KIND = "gradcheck: no function"
add(
    KIND,
    UsageError,
    a_number=(check(3.0, X), "function", "float"),
    none=(check(None, X), "function", "NoneType"),
    a_string=(check("square", X), "function", "str"),
    a_tensor=(check(square(X)), "function", "EagerTensor", "cgrad.gradcheck(f, x)"),
    a_list=(check([square], X), "function", "list"),
    a_module=(check(np, X), "function", "module"),
    a_variable=(check(tf.Variable(1.0), X), "function", "Variable"),
)
KIND = "gradcheck: options"
for value in (0, 3, -1, "2", None, 1.5, (1,), [1], {}, np.array([1, 2]), True):
    add(KIND, UsageError, **{f"order={value!r}": (check(square, X, order=value), "order", "1 or 2", "but got")})
for value in ("tpu", ("eager", "tpu"), 3, None, (None,), ([],), [["eager"]], (3,), np.array([1.0]), ONE):
    add(KIND, UsageError, **{f"modes={value!r}"[:40]: (check(square, X, modes=value), "modes", "eager")})
for value in ("yes", None, np.array([1, 2]), X, 2, []):
    add(KIND, UsageError, **{f"surrogate={value!r}"[:40]: (check(square, X, surrogate=value), "surrogate", "bool")})
for value in (0, 1, -1e-3, 2.0, float("nan"), float("inf"), "1e-3", [1e-3], 1j, True, np.array([0.1, 0.2]), X):
    add(KIND, UsageError, **{f"rtol={value!r}"[:40]: (check(square, X, rtol=value), "rtol", "between 0 and 1")})
for value in (-1, 1.5, "0", None, True, [1], np.array([1, 2]), 1j):
    add(KIND, UsageError, **{f"seed={value!r}"[:40]: (check(square, X, seed=value), "seed", "non-negative integer")})
add(
    KIND,
    TypeError,
    unknown_option=(check(square, X, ordr=2), "ordr"),
    no_arguments_at_all=(lambda: cgrad.gradcheck(), "f"),
)

# --- gradcheck: the point --------------------------------------------------------------------------------------
KIND = "gradcheck: the point"


def cyclic():
    tree = [X]
    tree.append(tree)
    return tree


def deleted_dataset():
    return tf.data.Dataset.from_tensors(X)


add(
    KIND,
    "report",
    no_point_for_one_argument=(check(square), "missing", "x"),
    one_point_too_many=(check(square, X, X), "x"),
    none=(check(lambda x: x, None), "x is None"),
    a_string=(check(lambda x: x, "x"), "x is 'x'"),
    bytes=(check(lambda x: x, b"x"), "bytes"),
    an_object=(check(lambda x: x, object()), "object"),
    an_integer=(check(lambda x: x * 2, 3), "int"),
    a_bool=(check(lambda x: x, True), "x is True"),
    an_integer_tensor=(check(lambda x: x * 2, tf.constant([1, 2])), "int", "tf.cast"),
    an_integer_array=(check(lambda x: x * 2, np.array([1, 2])), "int"),
    a_string_tensor=(check(lambda x: x, tf.constant(["a"])), "x"),
    a_set=(check(lambda x: x, {1.0}), "set"),
    a_generator=(check(lambda x: x, (i for i in [1.0])), "generator"),
    a_data_set=(check(lambda x: x, deleted_dataset()), "variant"),
    a_function=(check(lambda x: x, square), "x is Bind"),
    an_empty_tensor=(check(square, tf.zeros([0])),),
    an_empty_list=(check(lambda x: X, []),),
    nan=(check(square, tf.constant([1.0, float("nan")])), "finite"),
    infinity=(check(square, tf.constant([1.0, float("inf")])), "finite"),
    ragged=(check(lambda x: x * 2.0, tf.ragged.constant([[1.0], [2.0, 3.0]])),),
    sparse=(check(lambda x: tf.sparse.reduce_sum(x), tf.sparse.from_dense(X)),),
    indexed_slices=(check(lambda x: x.values * 2.0, tf.IndexedSlices(X, tf.constant([0, 1]), tf.constant([2]))),),
    a_keras_tensor=(check(square, keras.KerasTensor((2,))), "KerasTensor"),
    a_quantised_tensor=(check(lambda x: x, tf.quantization.quantize(X, 0.0, 2.0, tf.qint8)[0]), "x"),
    a_variant_tensor=(
        check(lambda x: X, tf.raw_ops.EmptyTensorList(element_shape=[2], max_num_elements=3, element_dtype=tf.float32)),
    ),
    an_array_of_strings=(check(lambda x: x, np.array(["a"])), "x"),
    a_data_class=(check(lambda x: x, Case("", "", check, "", ())), "Case"),
)
add(
    KIND,
    UsageError,
    an_array_of_dates=(check(lambda x: x, np.array(["2026-12-01"], "datetime64[D]")), "x"),
    a_structured_array=(check(lambda x: x, np.zeros(2, [("a", "f4")])), "x"),
    long_double=(check(lambda x: x * 2.0, np.zeros(2, np.longdouble)), "x"),
    an_array_of_objects=(check(lambda x: x, np.array([object()])), "x", "object"),
    keys_that_cannot_be_sorted=(check(lambda d: X, {"a": X, 1: X}), "key", "d"),
    a_list_that_holds_itself=(check(lambda x: X, cyclic()), "x", "holds itself"),
    two_to_the_31_elements=(check(lambda x: tf.reduce_sum(x[0, :2]), HUGE), "x", "2147483648", "elements"),
    two_to_the_31_elements_in_a_dict=(check(lambda p: p["w"][0, 0], {"w": HUGE}), "p['w']", "elements"),
)


@tf.function
def checking_in_a_graph(x):
    cgrad.gradcheck(square, x)
    return x


def gone():
    variable = tf.Variable(1.0)
    tf.raw_ops.DestroyResourceOp(resource=variable.handle)
    return variable


add(KIND, UsageError, a_symbolic_tensor=(lambda: checking_in_a_graph(X), "x", "symbolic", "tf.function"))
add(
    KIND,
    "report",
    a_variable_whose_resource_is_gone=(check(lambda v: v * 2.0, gone()),),
    a_variable_without_a_shape=(check(lambda v: v * 2.0, tf.Variable([1.0], shape=tf.TensorShape(None))),),
)

# --- gradcheck: a function that misbehaves ---------------------------------------------------------------------
KIND = "gradcheck: f raises"
for error in (
    ValueError("no"),
    TypeError("no"),
    KeyError("no"),
    AssertionError(),
    RuntimeError("no"),
    StopIteration("no"),
    MemoryError("no"),
    RecursionError("no"),
    NotImplementedError("no"),
    OSError("no"),
    tf.errors.InvalidArgumentError(None, None, "no"),
    UnicodeDecodeError("utf-8", b"x", 0, 1, "no"),
    UserWarning("no"),
    Exception("several\nlines\x1b[31m"),
    ExceptionGroup("no", [ValueError("a"), TypeError("b")]),
):
    add(KIND, "report", **{type(error).__name__: (fully(raising(error), X), "CG111", type(error).__name__)})


class Unprintable(Exception):
    def __str__(self):
        raise ValueError("not even a text")


def for_ever(x):
    return for_ever(x)


def second_time(limit):
    calls = []

    @tf.custom_gradient
    def f(x):
        calls.append(1)
        if len(calls) > limit:
            raise ValueError("once was enough")
        return x * x, lambda u: 2.0 * x * u

    return f


def in_the_rule(error):
    @tf.custom_gradient
    def f(x):
        def grad(u):
            raise error

        return x * x, grad

    return f


add(
    KIND,
    "report",
    an_error_without_a_text=(fully(raising(Unprintable()), X), "CG111", "Unprintable"),
    endless_recursion=(fully(for_ever, X), "RecursionError"),
    at_the_second_call=(fully(second_time(1), X), "once was enough"),
    at_the_third_call=(fully(second_time(2), X), "once was enough"),
    in_the_rule=(fully(in_the_rule(ValueError("rule says no")), X), "CG111", "rule says no"),
    in_the_rule_without_a_text=(fully(in_the_rule(Unprintable()), X), "Unprintable"),
    at_a_point_outside_its_domain=(fully(lambda x: tf.debugging.assert_negative(x) or x, X), "CG111"),
)
KIND = "gradcheck: the user stops it"
add(
    KIND,
    KeyboardInterrupt,
    interrupt_in_f=(fully(raising(KeyboardInterrupt()), X),),
    interrupt_in_the_rule=(fully(in_the_rule(KeyboardInterrupt()), X),),
)
add(
    KIND,
    SystemExit,
    exit_in_f=(fully(raising(SystemExit(3)), X),),
    exit_in_the_rule=(fully(in_the_rule(SystemExit(3)), X),),
)

KIND = "gradcheck: f returns"


async def coroutine(x):
    return x


def generator(x):
    yield x


def returning(value):
    return lambda x: value


def growing():
    calls = []

    def f(x):
        calls.append(1)
        return tf.tile(x, [len(calls)])

    return f


def changing_type():
    calls = []

    def f(x):
        calls.append(1)
        return x * x if len(calls) < 2 else "done"

    return f


add(
    KIND,
    "report",
    nothing=(fully(returning(None), X), "None"),
    a_string=(fully(returning("y"), X), "str"),
    an_integer=(fully(returning(3), X), "int"),
    a_float=(fully(returning(3.0), X), "float"),
    an_empty_list=(fully(returning([]), X),),
    an_empty_dict=(fully(returning({}), X),),
    an_array=(fully(lambda x: x.numpy() ** 2, X), "NumPy"),
    a_function=(fully(returning(square), X),),
    an_object=(fully(returning(object()), X), "object"),
    a_string_tensor=(fully(returning(tf.constant("y")), X),),
    an_integer_tensor=(fully(lambda x: tf.cast(x, tf.int32), X),),
    a_set=(fully(returning({1.0}), X),),
    keys_that_cannot_be_sorted=(fully(lambda x: {"a": x, 1: x}, X), "key"),
    a_coroutine=(fully(coroutine, X), "coroutine"),
    a_generator=(fully(generator, X), "generator"),
    a_ragged_tensor=(fully(lambda x: tf.RaggedTensor.from_row_lengths(x * x, [1, 1]), X),),
    a_sparse_tensor=(fully(lambda x: tf.sparse.from_dense(x * x), X),),
    an_empty_tensor=(fully(lambda x: x[:0], X),),
    nan=(fully(lambda x: x * float("nan"), X), "finite"),
    infinity=(fully(lambda x: x / 0.0, X), "finite"),
    another_shape_each_time=(fully(growing(), X),),
    another_type_each_time=(fully(changing_type(), X),),
    a_data_set=(fully(lambda x: tf.data.Dataset.from_tensors(x), X),),
    its_own_argument_list=(fully(lambda xs: xs, [X, X]),),
)

KIND = "gradcheck: f does"


def shouting(x):
    print("shouting")
    return x * x


def drops(p):
    return p.pop("w") ** 2


def appends(xs):
    xs.append(ONE)
    return xs[0] ** 2


def assigning():
    variable = tf.Variable([1.0, 1.0])

    def f(x):
        variable.assign_add(x)
        return variable * x

    return f


def making_variables(x):
    return tf.Variable([1.0, 2.0]) * x


def closes_the_tape(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x**3
    return tape.gradient(y, x)


def eagerly(x):
    tf.config.run_functions_eagerly(True)
    return x * x


def seeding(x):
    tf.random.set_seed(1)
    np.random.seed(1)
    return x * x


def on_a_gpu(x):
    if not tf.config.list_physical_devices("GPU"):
        raise RuntimeError("this needs a GPU")
    return x * x


def chdir(x):
    os.chdir(os.getcwd())
    return x * x


class Layer(keras.layers.Layer):
    def call(self, x):
        raise ValueError("a layer says no")


def threads(x):
    import threading

    found = []
    worker = threading.Thread(target=lambda: found.append(x * x))
    worker.start()
    worker.join()
    return found[0]


add(
    KIND,
    "report",
    prints=(check(shouting, X),),
    takes_an_entry_out_of_its_argument=(check(drops, {"w": X, "b": X}),),
    appends_to_its_argument=(check(appends, [X]),),
    assigns_to_a_variable=(check(assigning(), X),),
    makes_a_variable_at_each_call=(fully(making_variables, X),),
    differentiates_by_itself=(fully(closes_the_tape, X),),
    sets_the_seeds=(check(seeding, X),),
    needs_a_gpu=(check(on_a_gpu, X), "GPU", "CG111"),
    changes_the_directory=(check(chdir, X),),
    works_in_another_thread=(check(threads, X),),
    warns=(check(lambda x: warnings.warn("careful", stacklevel=1) or x * x, X),),
    is_a_layer_that_raises=(check(Layer(), X), "a layer says no"),
    is_a_class=(check(Case, X), "CG111"),
    is_a_method_of_a_wrong_class=(check(str.upper, X), "CG111"),
    wants_keywords=(check(lambda x, *, y: x * y, X), "CG111", "y"),
    is_a_partial_that_does_not_fit=(check(functools.partial(square, X), X),),
    checks_itself=(check(lambda x: [cgrad.gradcheck(square, x, order=1, modes=("eager",)), x * x][1], X),),
)

KIND = "gradcheck: the rule returns"


def answering(answer):
    @tf.custom_gradient
    def f(x):
        return x * x, lambda u: answer

    return f


def with_rule(rule):
    @tf.custom_gradient
    def f(x):
        return x * x, rule

    return f


add(
    KIND,
    "report",
    none=(fully(answering(None), X), "CG108"),
    a_string=(fully(answering("g"), X), "CG"),
    an_object=(fully(answering(object()), X), "CG"),
    an_empty_list=(fully(answering([]), X), "CG101"),
    two_gradients=(fully(answering((X, X)), X), "CG101"),
    a_dict=(fully(answering({"x": X}), X),),
    a_float=(fully(answering(1.0), X), "CG"),
    a_bool=(fully(answering(True), X), "CG"),
    an_array=(fully(answering(N), X), "CG"),
    another_shape=(fully(answering(tf.ones(3)), X), "CG103"),
    another_dtype=(fully(answering(tf.ones(2, tf.float64)), X), "CG107"),
    integers=(fully(answering(tf.ones(2, tf.int32)), X), "CG107"),
    a_string_tensor=(fully(answering(tf.constant(["a", "b"])), X), "CG"),
    nan=(fully(answering(X * float("nan")), X), "CG109"),
    a_ragged_tensor=(fully(answering(tf.ragged.constant([[1.0], [2.0]])), X), "CG"),
    a_sparse_tensor=(fully(answering(tf.sparse.from_dense(X)), X), "CG"),
    a_function=(fully(answering(square), X), "CG"),
    a_set=(fully(answering({1.0}), X), "CG"),
    no_rule_but_a_number=(fully(with_rule(3.0), X), "CG110"),
    no_rule_but_none=(fully(with_rule(None), X), "CG110"),
    takes_no_upstream=(fully(with_rule(lambda: X), X), "CG"),
    takes_two_upstreams=(fully(with_rule(lambda a, b: a), X), "CG"),
    no_pair_but_a_tensor=(fully(tf.custom_gradient(lambda x: x * x), X), "CG110"),
    no_pair_but_three=(fully(tf.custom_gradient(lambda x: (x * x, lambda u: u, 3)), X), "CG110"),
    no_pair_but_nothing=(fully(tf.custom_gradient(lambda x: None), X), "CG110"),
)

# --- the definers ----------------------------------------------------------------------------------------------
KIND = "definers: decorating"
ok = lambda x: (x, lambda u: u)  # noqa: E731
add(
    KIND,
    UsageError,
    vjp_of_a_number=(lambda: cgrad.custom_vjp(3.0), "custom_vjp", "function", "3.0"),
    vjp_of_a_tensor=(lambda: cgrad.custom_vjp(X), "custom_vjp", "EagerTensor"),
    vjp_of_none_by_options=(lambda: cgrad.custom_vjp(numpy=True)(None), "custom_vjp", "None"),
    jvp_rule_none=(lambda: cgrad.custom_jvp(None), "custom_jvp", "None"),
    jvp_rule_a_matrix=(lambda: cgrad.custom_jvp(N), "custom_jvp", "ndarray"),
    jvp_of_a_number=(lambda: cgrad.custom_jvp(ok)(3), "custom_jvp", "3"),
    jacobian_a_matrix=(lambda: cgrad.custom_jacobian([[1.0]]), "custom_jacobian", "list"),
    jacobian_none=(lambda: cgrad.custom_jacobian(None), "custom_jacobian", "None"),
    jacobian_of_a_string=(lambda: cgrad.custom_jacobian(ok)("f"), "custom_jacobian", "'f'"),
    diagonal_and_batched=(lambda: cgrad.custom_jacobian(ok, diagonal=True, batched=True), "diagonal", "batched"),
    batched_minus_one=(lambda: cgrad.custom_jacobian(ok, batched=-1), "batched", "-1"),
    batched_a_string=(lambda: cgrad.custom_jacobian(ok, batched="all"), "batched", "'all'"),
    batched_one_and_a_half=(lambda: cgrad.custom_jacobian(ok, batched=1.5), "batched", "1.5"),
    batched_none=(lambda: cgrad.custom_jacobian(ok, batched=None), "batched", "None"),
    diagonal_a_string=(lambda: cgrad.custom_jacobian(ok, diagonal="no"), "diagonal", "'no'"),
    diagonal_an_array=(lambda: cgrad.custom_jacobian(ok, diagonal=N), "diagonal", "ndarray"),
    numpy_a_string=(lambda: cgrad.custom_vjp(numpy="yes")(ok), "numpy", "'yes'"),
    numpy_the_module=(lambda: cgrad.custom_vjp(numpy=np)(ok), "numpy", "module"),
    out_without_numpy=(lambda: cgrad.custom_vjp(out=tf.TensorSpec([2]))(ok), "out=", "numpy=True"),
    out_a_shape=(lambda: cgrad.custom_vjp(numpy=True, out=(2,))(ok), "out=", "TensorSpec"),
    out_a_tensor=(lambda: cgrad.custom_vjp(numpy=True, out=X)(ok), "out=", "TensorSpec"),
    out_an_empty_list=(lambda: cgrad.custom_vjp(numpy=True, out=[])(ok), "out=", "TensorSpec"),
    nondiff_an_unknown_name=(lambda: cgrad.custom_vjp(nondiff="y")(ok), "nondiff", "'y'"),
    nondiff_a_number=(lambda: cgrad.custom_vjp(nondiff=3)(ok), "nondiff", "3"),
    nondiff_numbers=(lambda: cgrad.custom_vjp(nondiff=[0])(ok), "nondiff", "0"),
    nondiff_none=(lambda: cgrad.custom_vjp(nondiff=None)(ok), "nondiff", "None"),
    nondiff_unhashable=(lambda: cgrad.custom_vjp(nondiff=[["x"]])(ok), "nondiff"),
)
add(
    KIND,
    TypeError,
    vjp_unknown_option=(lambda: cgrad.custom_vjp(ok, numpi=True), "numpi"),
    jvp_unknown_option=(lambda: cgrad.custom_jvp(ok, diagonal=True), "diagonal"),
    jvp_without_a_rule=(lambda: cgrad.custom_jvp(), "rule"),
    jacobian_without_a_rule=(lambda: cgrad.custom_jacobian(), "jacobian"),
)
KIND = "definers: the arguments of a call"
add(
    KIND,
    UsageError,
    none=(lambda: cube(None), "x", "None", "nondiff"),
    a_string=(lambda: cube("x"), "x", "'x'", "nondiff"),
    a_bool=(lambda: cube(True), "x", "True", "nondiff"),
    bytes=(lambda: cube(b"x"), "x", "bytes"),
    an_object=(lambda: cube(object()), "x", "object"),
    a_function=(lambda: cube(square), "x", "Bind"),
    a_set=(lambda: cube({1.0}), "x", "set"),
    a_generator=(lambda: cube(i for i in [1.0]), "x", "generator"),
    a_data_set=(lambda: cube(deleted_dataset()), "x", "Dataset"),
    a_keras_tensor=(lambda: cube(keras.KerasTensor((2,))), "x", "KerasTensor", "layer"),
    a_list_with_a_string=(lambda: cube([X, "a"]), "x", "list"),
    an_array_of_objects=(lambda: cube(np.array([object()])), "x", "ndarray"),
    an_array_of_dates=(lambda: cube(np.array(["2026-12-01"], "datetime64[D]")), "x", "ndarray"),
    keys_that_cannot_be_sorted=(lambda: cube({"a": X, 1: X}), "x", "dict"),
    a_list_that_holds_itself=(lambda: cube(cyclic()), "x", "list"),
    two_to_the_31_elements=(lambda: cube(HUGE), "2147483648", "elements"),
    a_tensor_array=(lambda: cube(tf.TensorArray(tf.float32, 1)), "x", "TensorArray"),
)
add(
    KIND,
    TypeError,
    none_given=(lambda: cube(), "x"),
    one_too_many=(lambda: cube(X, X), "too many"),
    unknown_keyword=(lambda: cube(X, y=X), "y"),
    the_same_twice=(lambda: cube(X, x=X), "x"),
)


def define(value_and_rule):
    return cgrad.custom_vjp(lambda x: value_and_rule)


def pull(f, x=X, u=None):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    return tape.gradient(y, x, output_gradients=u)


def rule_returning(value):
    return lambda: pull(cgrad.custom_vjp(lambda x: (x * x, lambda u: value)))


KIND = "definers: what the function returns"
add(
    KIND,
    ContractError,
    nothing=(lambda: define(None)(X), "CG110", "(value, rule)"),
    a_tensor=(lambda: define(X)(X), "CG110", "(value, rule)"),
    three=(lambda: define((X, ok, ok))(X), "CG110"),
    a_rule_that_is_none=(lambda: define((X, None))(X), "CG110"),
    a_rule_that_is_a_tensor=(lambda: define((X, X))(X), "CG110"),
    a_rule_and_no_value=(lambda: define((ok, X))(X), "CG110"),
    a_string_as_value=(lambda: define(("y", ok))(X), "returned", "'y'"),
    none_as_value=(lambda: define((None, ok))(X), "returned", "None"),
    nothing_in_a_list_as_value=(lambda: define(([], ok))(X), "returned", "None"),
    an_object_as_value=(lambda: define((object(), ok))(X), "returned", "object"),
    a_function_as_value=(lambda: define((ok, ok))(X), "returned", "function"),
    jvp_nothing=(lambda: cgrad.custom_jvp(ok)(lambda x: None)(X), "None"),
    jvp_a_string=(lambda: cgrad.custom_jvp(ok)(lambda x: "y")(X), "'y'"),
    jacobian_nothing=(lambda: cgrad.custom_jacobian(ok)(lambda x: None)(X), "None"),
    jacobian_an_object=(lambda: cgrad.custom_jacobian(ok)(lambda x: object())(X), "object"),
    numpy_an_object=(lambda: cgrad.custom_vjp(numpy=True)(lambda x: (object(), ok))(X), "object"),
    numpy_nothing=(lambda: cgrad.custom_vjp(numpy=True)(lambda x: None)(X), "CG110"),
)
KIND = "definers: what the rule returns"
add(
    KIND,
    ContractError,
    none=(rule_returning(None), "CG108", "x", "None"),
    a_string=(rule_returning("g"), "x", "str"),
    an_object=(rule_returning(object()), "x", "object"),
    an_empty_list=(rule_returning([]), "CG101", "0"),
    two_gradients=(rule_returning((X, X)), "CG101", "2"),
    a_dict_of_other_names=(rule_returning({"y": X}), "CG101", "y"),
    a_scalar=(rule_returning(1.0), "CG106", "x"),
    another_shape=(rule_returning(tf.ones(3)), "CG103", "(3,)", "(2,)"),
    the_jacobian=(rule_returning(tf.ones((2, 2))), "CG104", "(2, 2)", "(2,)"),
    another_dtype=(rule_returning(tf.ones(2, tf.float64)), "CG107", "float64", "float32"),
    integers=(rule_returning(tf.ones(2, tf.int32)), "CG107", "int32"),
    strings=(rule_returning(tf.constant(["a", "b"])), "CG107", "string"),
    a_variable=(rule_returning(tf.Variable(X)), "CG603", "Variable"),
    a_ragged_tensor=(rule_returning(tf.ragged.constant([[1.0], [2.0]])), "x", "Ragged"),
    a_sparse_tensor=(rule_returning(tf.sparse.from_dense(X)), "x", "Sparse"),
    a_function=(rule_returning(square), "x", "Bind"),
    a_set=(rule_returning({1.0}), "x", "set"),
    a_bool=(rule_returning(True), "x", "shape ()"),
)


def jvp_of(rule, x=X):
    f = cgrad.custom_jvp(rule)(lambda x: x * x)
    return lambda: pull(f, x)


def jacobian_of(rule, x=X, **options):
    f = cgrad.custom_jacobian(rule, **options)(lambda x: x * x)
    return lambda: pull(f, x)


def outside_of(rule, **options):
    f = cgrad.custom_jacobian(rule, numpy=True, **options)(lambda x: x * x)
    return lambda: pull(f)


Diag = tf.linalg.LinearOperatorDiag
add(
    KIND,
    ContractError,
    jvp_none=(jvp_of(lambda p, t: None), "None"),
    jvp_a_string=(jvp_of(lambda p, t: "t"), "str"),
    jvp_two_tangents=(jvp_of(lambda p, t: (t[0], t[0])), "2 tangents", "1"),
    jvp_another_shape=(jvp_of(lambda p, t: tf.reduce_sum(t[0])), "()", "(2,)"),
    jvp_another_dtype=(jvp_of(lambda p, t: tf.cast(t[0], tf.float64)), "float64", "float32"),
    jvp_not_linear=(jvp_of(lambda p, t: t[0] * t[0]), "linear"),
    jvp_an_array=(jvp_of(lambda p, t: np.ones(3)), "(3,)"),
    jvp_an_object=(jvp_of(lambda p, t: object()), "object"),
    jacobian_none=(jacobian_of(lambda x: None), "None"),
    jacobian_a_string=(jacobian_of(lambda x: "J"), "'J'"),
    jacobian_a_vector=(jacobian_of(lambda x: 2.0 * x), "(2,)", "(2, 2)"),
    jacobian_another_dtype=(jacobian_of(lambda x: tf.ones((2, 2), tf.float64)), "float64", "float32"),
    jacobian_integers=(jacobian_of(lambda x: tf.ones((2, 2), tf.int32)), "int32"),
    jacobian_a_pair=(jacobian_of(lambda x: (tf.eye(2), tf.eye(2))), "(2, 2, 2)"),
    jacobian_a_dict=(jacobian_of(lambda x: {"y": tf.eye(2)}), "{'y'"),
    jacobian_an_object=(jacobian_of(lambda x: object()), "object"),
    jacobian_ragged_rows=(jacobian_of(lambda x: [[1.0, 2.0], [3.0]]), "[[1.0, 2.0], [3.0]]"),
    diagonal_a_matrix=(jacobian_of(lambda x: tf.eye(3), diagonal=True), "(3, 3)", "(2,)"),
    batched_a_matrix_too_few=(jacobian_of(lambda x: tf.ones(3), batched=True), "(3,)", "(2,)"),
    batched_more_axes_than_there_are=(jacobian_of(lambda x: tf.ones(2), batched=3), "batched", "3"),
    operator_of_another_size=(jacobian_of(lambda x: Diag(tf.ones(3))), "3", "2"),
    operator_of_another_dtype=(jacobian_of(lambda x: Diag(tf.ones(2, tf.float64))), "float64", "float32"),
    sparse_of_another_shape=(jacobian_of(lambda x: tf.sparse.eye(3)), "(3, 3)", "(2, 2)"),
    sparse_of_another_dtype=(jacobian_of(lambda x: tf.sparse.eye(2, dtype=tf.float64)), "float64", "float32"),
    ragged=(jacobian_of(lambda x: tf.ragged.constant([[1.0], [2.0, 3.0]])), "Ragged"),
    numpy_another_shape=(outside_of(lambda x: np.ones(3)), "(3,)", "(2, 2)"),
    numpy_a_string=(outside_of(lambda x: "J"), "J"),
    numpy_none=(outside_of(lambda x: None), "None"),
    numpy_an_object=(outside_of(lambda x: object()), "object"),
    numpy_ragged_rows=(outside_of(lambda x: [[1.0, 2.0], [3.0]]), "(2, 2)"),
)
add(
    "definers: the user's own error",
    ZeroDivisionError,
    in_the_function=(lambda: cgrad.custom_vjp(raising(ZeroDivisionError("mine")))(X), "mine"),
    in_the_rule=(lambda: pull(cgrad.custom_vjp(lambda x: (x, raising(ZeroDivisionError("mine"))))), "mine"),
    in_the_jacobian=(jacobian_of(raising(ZeroDivisionError("mine"))), "mine"),
    in_numpy=(outside_of(raising(ZeroDivisionError("mine"))), "mine"),
    in_f_of_vjp=(lambda: cgrad.vjp(raising(ZeroDivisionError("mine")), X), "mine"),
    in_f_of_jvp=(lambda: cgrad.jvp(raising(ZeroDivisionError("mine")), (X,), (X,)), "mine"),
    in_f_of_jacobian=(lambda: cgrad.jacobian(raising(ZeroDivisionError("mine")), X), "mine"),
)

# --- the transforms --------------------------------------------------------------------------------------------
KIND = "transforms: the function and its arguments"
for transform in (cgrad.vjp, cgrad.jacobian):
    t = transform.__name__
    add(
        KIND,
        UsageError,
        **{
            f"{t} of a number": (lambda t=transform: t(3.0, X), t, "function", "3.0"),
            f"{t} of a value": (lambda t=transform: t(square(X), X), t, "function", "EagerTensor"),
            f"{t} at no point": (lambda t=transform: t(square), "argument"),
            f"{t} at an integer": (lambda t=transform: t(square, 3), "floating"),
            f"{t} at integers": (lambda t=transform: t(square, tf.constant([1, 2])), "floating"),
            f"{t} at a string": (lambda t=transform: t(square, "x"), "floating"),
            f"{t} at none": (lambda t=transform: t(square, None), "floating"),
            f"{t} at strings": (lambda t=transform: t(square, tf.constant(["a"])), "floating"),
            f"{t} at unsortable keys": (lambda t=transform: t(lambda d: X, {"a": X, 1: X}), "floating"),
            f"{t} at 2^31 elements": (lambda t=transform: t(lambda x: x[0, 0], HUGE), "2147483648", "elements"),
            f"{t} argnums=5": (lambda t=transform: t(square, X, argnums=5), "argnums", "5"),
            f"{t} argnums=-2": (lambda t=transform: t(square, X, argnums=-2), "argnums", "-2"),
            f"{t} argnums='y'": (lambda t=transform: t(square, X, argnums="y"), "argnums", "'y'"),
            f"{t} argnums=0.5": (lambda t=transform: t(square, X, argnums=0.5), "argnums", "0.5"),
            f"{t} argnums=(0, None)": (lambda t=transform: t(square, X, argnums=(0, None)), "argnums", "None"),
            f"{t} argnums=[[0]]": (lambda t=transform: t(square, X, argnums=[[0]]), "argnums", "[0]"),
            f"{t} argnums=()": (lambda t=transform: t(square, X, argnums=()), "argnums", "()"),
            f"{t} argnums=(0, 0)": (lambda t=transform: t(square, X, argnums=(0, 0)), "argnums", "twice"),
            f"{t} argnums=(0, -1)": (lambda t=transform: t(square, X, argnums=(0, -1)), "argnums", "twice"),
            f"{t} argnums=True": (lambda t=transform: t(square, X, argnums=True), "argnums", "True"),
            f"{t} argnums an array": (lambda t=transform: t(square, X, argnums=N), "argnums"),
            f"{t} argnums an integer input": (
                lambda t=transform: t(lambda x, i: x, X, 3, argnums=1),
                "CG504",
                "argument 1",
            ),
            f"{t} unconnected='zeros'": (
                lambda t=transform: t(square, X, unconnected="zeros"),
                "unconnected",
                "'zeros'",
                "'error'",
            ),
            f"{t} unconnected=None": (lambda t=transform: t(square, X, unconnected=None), "unconnected", "None"),
            f"{t} of a function that returns nothing": (lambda t=transform: t(returning(None), X), "returned", "None"),
            f"{t} of a function that returns a string": (lambda t=transform: t(returning("y"), X), "returned", "'y'"),
            f"{t} of a function that returns an object": (
                lambda t=transform: t(returning(object()), X),
                "returned",
                "object",
            ),
            f"{t} of a function that returns unsortable keys": (
                lambda t=transform: t(lambda x: {"a": x, 1: x}, X),
                "returned",
                "{'a'",
            ),
        },
    )
add(
    KIND,
    UsageError,
    **{
        "jvp of a number": (lambda: cgrad.jvp(3.0, (X,), (X,)), "jvp", "function", "3.0"),
        "jvp without tuples": (lambda: cgrad.jvp(square, X, X), "tuples"),
        "jvp at none": (lambda: cgrad.jvp(square, None, None), "tuples"),
        "jvp of other lengths": (lambda: cgrad.jvp(square, (X,), (X, X)), "1 primals", "2 tangents"),
        "jvp at nothing": (lambda: cgrad.jvp(square, (), ()), "jvp", "no primals"),
        "jvp tangent of another shape": (lambda: cgrad.jvp(square, (X,), (tf.ones(3),)), "tangent", "(3,)", "(2,)"),
        "jvp tangent of another dtype": (
            lambda: cgrad.jvp(square, (X,), (tf.ones(2, tf.float64),)),
            "tangent",
            "float64",
            "float32",
        ),
        "jvp tangent a string": (lambda: cgrad.jvp(square, (X,), ("v",)), "tangent", "'v'"),
        "jvp tangent an object": (lambda: cgrad.jvp(square, (X,), (object(),)), "tangent", "object"),
        "jvp tangent ragged rows": (lambda: cgrad.jvp(square, (X,), ([[1.0], [1.0, 2.0]],)), "tangent"),
        "jvp tangent of another structure": (
            lambda: cgrad.jvp(lambda p: p["a"], ({"a": X},), ([X],)),
            "tangent",
            "structure",
        ),
        "jvp tangent of an integer": (lambda: cgrad.jvp(lambda x, i: x, (X, 3), (X, 1)), "tangent", "1"),
        "jvp unconnected=3": (lambda: cgrad.jvp(square, (X,), (X,), unconnected=3), "unconnected", "3"),
        "jvp of a function that returns nothing": (lambda: cgrad.jvp(returning(None), (X,), (X,)), "returned", "None"),
        "jacobian mode='both'": (lambda: cgrad.jacobian(square, X, mode="both"), "mode", "'both'"),
        "jacobian mode=None": (lambda: cgrad.jacobian(square, X, mode=None), "mode", "None"),
        "jacobian mode=[]": (lambda: cgrad.jacobian(square, X, mode=[]), "mode", "[]"),
        "jacobian vectorize='no'": (lambda: cgrad.jacobian(square, X, vectorize="no"), "vectorize", "'no'"),
        "jacobian dense='no'": (lambda: cgrad.jacobian(square, X, dense="no"), "dense", "'no'"),
        "jacobian of 2^31 entries": (
            lambda: cgrad.jacobian(lambda x: x * x, tf.zeros(2**16)),
            "4294967296",
            "elements",
            "cgrad.vjp",
        ),
    },
)
add(
    KIND,
    NotDifferentiableError,
    **{
        "vjp unconnected": (
            lambda: cgrad.vjp(lambda x: X * 1.0, X, unconnected="error")[1](X),
            "CG501",
            "does not depend",
        ),
        "jacobian unconnected": (lambda: cgrad.jacobian(lambda x: X * 1.0, X, unconnected="error"), "CG501"),
        "jvp unconnected": (lambda: cgrad.jvp(lambda x: X * 1.0, (X,), (X,), unconnected="error"), "CG501"),
    },
)
KIND = "transforms: the upstream"


def pulled(u, f=square):
    return lambda: cgrad.vjp(f, X)[1](u)


add(
    KIND,
    UsageError,
    none=(pulled(None), "upstream", "None"),
    a_string=(pulled("u"), "upstream", "'u'"),
    an_object=(pulled(object()), "upstream", "object"),
    a_scalar=(pulled(1.0), "upstream", "()", "(2,)"),
    another_shape=(pulled(tf.ones(3)), "upstream", "(3,)", "(2,)"),
    another_dtype=(pulled(tf.ones(2, tf.float64)), "upstream", "float64", "float32"),
    a_list_for_a_tensor=(pulled([ONE, ONE]), "upstream", "structure"),
    a_tensor_for_a_pair=(pulled(X, lambda x: (x, x)), "upstream", "structure"),
    three_for_a_pair=(pulled((X, X, X), lambda x: (x, x)), "upstream", "structure"),
    other_keys=(pulled({"b": X}, lambda x: {"a": x}), "upstream", "structure"),
    a_ragged_tensor=(pulled(tf.ragged.constant([[1.0], [2.0]])), "upstream"),
)

# --- audit, reports, the catalogue ---------------------------------------------------------------------------------
KIND = "audit"


def auditing(**options):
    def call():
        with cgrad.audit(**options) as found:
            square(X)
        return found

    return call


add(
    KIND,
    UsageError,
    max_seconds_a_string=(auditing(max_seconds="60"), "max_seconds", "'60'"),
    max_seconds_negative=(auditing(max_seconds=-1), "max_seconds", "-1"),
    max_seconds_nan=(auditing(max_seconds=float("nan")), "max_seconds", "nan"),
    max_seconds_none=(auditing(max_seconds=None), "max_seconds", "None"),
    max_checks_negative=(auditing(max_checks=-1), "max_checks", "-1"),
    max_checks_a_string=(auditing(max_checks="9"), "max_checks", "'9'"),
    points_none=(auditing(points=0), "points", "0"),
    points_a_half=(auditing(points=0.5), "points", "0.5"),
    allow_a_string=(auditing(allow="square"), "allow", "'square'"),
    allow_a_number=(auditing(allow=3), "allow", "3"),
    allow_a_function=(auditing(allow=[square]), "allow", "Bind"),
    eagerly_a_string=(auditing(eagerly="no"), "eagerly", "'no'"),
    a_wrong_option_of_gradcheck=(auditing(order=3), "order", "3"),
    wrong_modes_of_gradcheck=(auditing(modes=("tpu",)), "modes", "'tpu'"),
)
add(
    KIND, TypeError, an_unknown_option=(auditing(ordr=1), "ordr"), by_position=(lambda: cgrad.audit(60.0), "positional")
)


def audit_of(error):
    def call():
        with cgrad.audit():
            square(X)
            raise error

    return call


add(KIND, ZeroDivisionError, the_model_raises=(audit_of(ZeroDivisionError("mine")), "mine"))
add(KIND, KeyboardInterrupt, the_user_stops_it=(audit_of(KeyboardInterrupt()),))
KIND = "reports and the catalogue"
REPORT = cgrad.gradcheck(square, X, order=1, modes=("eager",)).to_dict()
LARGE = cgrad.gradcheck(square, tf.zeros(1000), order=1, modes=("eager",))


def read(**changes):
    return lambda: cgrad.Report.from_dict({**REPORT, **changes})


def without(key):
    return lambda: cgrad.Report.from_dict({k: v for k, v in REPORT.items() if k != key})


add(
    KIND,
    UsageError,
    from_no_dict=(lambda: cgrad.Report.from_dict(3), "from_dict", "int"),
    from_none=(lambda: cgrad.Report.from_dict(None), "from_dict", "NoneType"),
    from_a_text=(lambda: cgrad.Report.from_dict("{}"), "from_dict", "str"),
    from_an_empty_dict=(lambda: cgrad.Report.from_dict({}), "from_dict", "function"),
    without_its_faults=(without("faults"), "from_dict", "faults"),
    without_its_options=(without("options"), "from_dict", "options"),
    with_an_unknown_code=(read(faults=[{"code": "CG999"}]), "from_dict", "CG999"),
    with_a_fault_of_half=(read(faults=[{"code": "CG101"}]), "from_dict", "argument"),
    with_faults_that_are_none=(read(faults=[3]), "from_dict", "faults"),
    with_unknown_options=(read(options={"modes": [], "ordr": 1}), "from_dict", "ordr"),
    with_a_note_of_another_kind=(read(notes=[{"sort": ""}]), "from_dict", "Note", "sort"),
    nothing_to_plot=(lambda: LARGE.plot(), "Jacobian"),
    shown_in_a_number=(lambda: LARGE.show(3), "file", "3"),
)
add(
    KIND,
    KeyError,
    an_unknown_name=(lambda: cgrad.faults.find("wrong-shap"), "wrong-shap", "near it: wrong-shape"),
    an_unknown_code=(lambda: cgrad.faults.find("CG999"), "CG999"),
    an_empty_name=(lambda: cgrad.faults.find(""), "''"),
)
add(KIND, AttributeError, an_unknown_public_name=(lambda: cgrad.gradchek, "gradchek"))

# --- the command line ----------------------------------------------------------------------------------------------
MODULE = """
import tensorflow as tf

@tf.custom_gradient
def square(x):
    return x * x, lambda u: 2.0 * x * u

def raises(x):
    raise ZeroDivisionError("in f")

def leaves(x):
    raise SystemExit(5)

number = 3
"""
FILES = {
    "mine_bad_input.py": MODULE,
    "broken_bad_input.py": "def f(:\n",
    "exits_bad_input.py": "import sys\nsys.exit('no')\n",
    "needs_bad_input.py": "import a_module_that_is_not_there\n",
    "raises_bad_input.py": "raise ValueError('while importing')\n",
    "script_raises_bad_input.py": "1 / 0\n",
    "script_exits_bad_input.py": "raise SystemExit(3)\n",
    "script_text_bad_input.py": "raise SystemExit('no')\n",
    "script_broken_bad_input.py": "def f(:\n",
    "script_right_bad_input.py": "print('fine')\n",
    "binary_bad_input.py": "\x00\x01",
}


def command(*arguments):
    return lambda: main(list(arguments))


M = "mine_bad_input:square"
KIND = "command line: check"
ok1 = ("--order", "1", "--modes", "eager")
add(
    KIND,
    "exit 2",
    **{
        "no target": (command("check"), "module:function"),
        "no function": (command("check", "mine_bad_input"), "module:function", "'mine_bad_input'"),
        "no module": (command("check", ":square"), "module:function", "':square'"),
        "two colons": (command("check", "a:b:c"), "module:function", "'a:b:c'"),
        "an empty target": (command("check", ""), "module:function", "''"),
        "an expression": (command("check", "__import__('os').getcwd():x"), "cannot be imported"),
        "a path": (command("check", "../mine_bad_input.py:square"), "cannot be imported"),
        "a relative module": (command("check", ".mine_bad_input:square"), "cannot be imported"),
        "a module that is not there": (command("check", "nothing_bad_input:f"), "nothing_bad_input", "cannot be"),
        "a module whose import is missing": (command("check", "needs_bad_input:f"), "a_module_that_is_not_there"),
        "a module that does not parse": (command("check", "broken_bad_input:f"), "SyntaxError"),
        "a module that exits": (command("check", "exits_bad_input:f"), "SystemExit"),
        "a module that raises": (command("check", "raises_bad_input:f"), "ValueError: while importing"),
        "a module of null bytes": (command("check", "binary_bad_input:f"), "cannot be imported"),
        "no such name": (command("check", "mine_bad_input:sqare", "1.0"), "sqare", "near it: square"),
        "no such attribute": (command("check", "mine_bad_input:square.x", "1.0"), "'x'"),
        "an empty name": (command("check", "mine_bad_input:square.", "1.0"), "''"),
        "no function but a number": (command("check", "mine_bad_input:number", "1.0"), "int"),
        "too few inputs": (command("check", M), "(x)", "0"),
        "too many inputs": (command("check", M, "1.0", "2.0"), "(x)", "2"),
        "an unknown dtype": (command("check", M, "float31[2]"), "'float31[2]'", "dtypes:"),
        "a dtype alone": (command("check", M, "float32"), "'float32'"),
        "a negative size": (command("check", M, "float32[-1]"), "'float32[-1]'"),
        "an open bracket": (command("check", M, "float32[2"), "'float32[2'"),
        "two commas": (command("check", M, "float32[2,,3]"), "'float32[2,,3]'"),
        "a fraction of a size": (command("check", M, "float32[2.5]"), "'float32[2.5]'"),
        "code for an input": (command("check", M, "__import__('os')"), "__import__"),
        "an empty input": (command("check", M, ""), "''"),
        "2^31 elements": (command("check", M, "float32[65536,32768]"), "float32[65536,32768]", "elements"),
        "10^20 elements": (command("check", M, "float64[10000000000,10000000000]"), "elements"),
        "a size of fifty digits": (command("check", M, f"float64[{'9' * 50}]"), "elements"),
        "a size of five thousand digits": (command("check", M, f"float64[{'9' * 5000}]"), "elements"),
        "as many axes as none has": (command("check", M, f"float64[{','.join('1' * 300)}]"), "axes"),
        "order=3": (command("check", M, "1.0", "--order", "3"), "--order", "3"),
        "order a word": (command("check", M, "1.0", "--order", "two"), "--order", "'two'"),
        "modes": (command("check", M, "1.0", "--modes", "eager,tpu"), "--modes", "'tpu'"),
        "no modes": (command("check", M, "1.0", "--modes", ","), "--modes"),
        "rtol=2": (command("check", M, "1.0", "--rtol", "2"), "--rtol", "2.0"),
        "rtol a word": (command("check", M, "1.0", "--rtol", "small"), "--rtol", "'small'"),
        "rtol=nan": (command("check", M, "1.0", "--rtol", "nan"), "--rtol", "nan"),
        "seed=-1": (command("check", M, "1.0", "--seed=-1"), "--seed", "-1"),
        "seed a fraction": (command("check", M, "1.0", "--seed", "0.5"), "--seed", "'0.5'"),
        "an unknown option": (command("check", M, "1.0", "--ordr", "1"), "--ordr"),
    },
)
add(
    KIND,
    "report",
    **{
        "f raises": (command("check", "mine_bad_input:raises", "1.0", *ok1), "CG111", "in f"),
        "an integer for a float": (command("check", M, "3", *ok1), "x is 3"),
        "no entries": (command("check", M, "float32[0]", *ok1),),
        "nan": (command("check", M, "nan", *ok1), "finite"),
    },
)
add(KIND, "exit 2", **{"f exits": (command("check", "mine_bad_input:leaves", "1.0", *ok1), "SystemExit", "5")})
KIND = "command line: explain, audit"
add(
    KIND,
    "exit 2",
    **{
        "no command": (command(), "explain | check | audit"),
        "an unknown command": (command("chek"), "'chek'"),
        "explain an unknown fault": (command("explain", "wrong-shap"), "'wrong-shap'", "near it: wrong-shape"),
        "explain an unknown code": (command("explain", "CG999"), "'CG999'"),
        "explain two faults": (command("explain", "CG101", "CG102"), "CG102"),
        "explain nothing by name": (command("explain", ""), "''"),
        "audit without a script": (command("audit"), "script"),
        "audit a script that is not there": (command("audit", "nowhere_bad_input.py"), "'nowhere_bad_input.py'"),
        "audit a directory": (command("audit", "."), "'.'"),
        "audit a script that raises": (command("audit", "script_raises_bad_input.py"), "ZeroDivisionError", "line 1"),
        "audit a script that exits": (command("audit", "script_exits_bad_input.py"), "status 3"),
        "audit a script that exits with a text": (command("audit", "script_text_bad_input.py"), "no"),
        "audit a script that does not parse": (command("audit", "script_broken_bad_input.py"), "SyntaxError"),
        "audit a script of null bytes": (command("audit", "binary_bad_input.py"), "binary_bad_input.py"),
        "audit for a negative time": (
            command("audit", "--max-seconds=-1", "script_right_bad_input.py"),
            "--max-seconds",
            "-1",
        ),
        "audit for a word": (command("audit", "--max-seconds", "long", "script_right_bad_input.py"), "--max-seconds"),
        "audit until nan": (command("audit", "--max-seconds", "nan", "script_right_bad_input.py"), "--max-seconds"),
    },
)


# --- what comes of a call ------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class End:
    """How a wrong call ended, and what was said."""

    how: str
    text: str
    error: BaseException | None = None


class TooLong(BaseException):
    """A call did not end in time."""


def _alarm(*_):
    raise TooLong


@contextlib.contextmanager
def directory():
    """A current directory with the modules and scripts that the command line is pointed at."""
    with tempfile.TemporaryDirectory() as place:
        for name, content in FILES.items():
            pathlib.Path(place, name).write_text(content)
        before, path = pathlib.Path.cwd(), list(sys.path)
        os.chdir(place)
        try:
            yield
        finally:
            os.chdir(before)
            sys.path[:] = path
            for name in FILES:
                sys.modules.pop(name.removesuffix(".py"), None)


def end(case: Case) -> End:
    """Makes the call and says how it ended."""
    out, err = io.StringIO(), io.StringIO()
    before = signal.signal(signal.SIGALRM, _alarm)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = case.call()
    except TooLong:
        return End("a hang", "")
    except SystemExit as error:
        if case.kind.startswith("command line"):
            return End(f"exit {error.code}", err.getvalue())
        return End("SystemExit", str(error), error)
    except BaseException as error:
        return End(type(error).__name__, "".join(traceback.format_exception_only(error)), error)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    if case.kind.startswith("command line"):
        return End("exit 2", err.getvalue()) if result == 2 else End("report", out.getvalue())
    if isinstance(result, cgrad.Report):
        return End("report", f"{result}\n{[str(note) for note in result.notes]}")
    return End("a result", repr(result))


def wanted(case: Case) -> str:
    return case.due if isinstance(case.due, str) else case.due.__name__


def shortcomings(case: Case, found: End) -> str:
    """What is wrong with the end of a call; empty where nothing is."""
    if found.how != wanted(case):
        return f"{wanted(case)} was due, but it ended in {found.how}: {found.text.strip()[:300]}"
    missing = [piece for piece in case.said if piece not in found.text]
    if missing:
        return f"it does not say {missing}: {found.text.strip()[:600]}"
    if "question of" in found.text and "broke off" in found.text:
        return f"a question broke off: {found.text[:600]}"
    return ""


def table(found: dict[int, End]) -> str:
    kinds = collections.Counter(case.kind for case in CASES)
    lines = ["| kind of wrong call | calls | how they end |", "|---|---:|---|"]
    for kind, count in kinds.items():
        ends = collections.Counter(found[i].how for i, case in enumerate(CASES) if case.kind == kind)
        lines.append(f"| {kind} | {count} | {', '.join(f'{how} ({n})' for how, n in ends.most_common())} |")
    lines.append(f"| all | {len(CASES)} | |")
    return "\n".join(lines) + "\n"


def every_end() -> dict[int, End]:
    with directory():
        return {i: end(case) for i, case in enumerate(CASES)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--markdown", type=pathlib.Path)
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args()
    ends = every_end()
    failed = 0
    for i, case in enumerate(CASES):
        short = shortcomings(case, ends[i])
        failed += bool(short)
        if short or given.verbose:
            print(f"{case.kind} / {case.name}: {short or ends[i].text.strip()}")
    text = table(ends)
    given.markdown.write_text(text) if given.markdown else print(text)
    sys.exit(bool(failed))
