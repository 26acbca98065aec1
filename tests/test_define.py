"""The definers: how they are called, what they bind, and what they make of what the rule returns."""

from __future__ import annotations

import collections
import inspect
import warnings

import numpy as np
import pytest
import tensorflow as tf

import cgrad

X = tf.constant([1.0, 2.0])
U = tf.constant([3.0, -1.0])
Pair = collections.namedtuple("Pair", "w b")


def pull(f, *args, u=None, sources=None, **kwargs):
    with tf.GradientTape() as tape:
        sources = args if sources is None else sources
        tape.watch([s for s in tf.nest.flatten(sources) if isinstance(s, tf.Tensor)])
        y = f(*args, **kwargs)
    found = tape.gradient(y, sources, output_gradients=u)
    return tf.nest.map_structure(lambda g: g if g is None else tf.convert_to_tensor(g).numpy(), found)


def both(f, *args, **kwargs):
    """In eager mode and in a graph; the results have to be the same."""
    eager = pull(f, *args, **kwargs)
    with_tape = tf.function(lambda: tf.nest.map_structure(tf.convert_to_tensor, pull_graph(f, *args, **kwargs)))
    tf.nest.map_structure(np.testing.assert_allclose, eager, tf.nest.map_structure(lambda t: t.numpy(), with_tape()))
    return eager


def pull_graph(f, *args, u=None, sources=None, **kwargs):
    with tf.GradientTape() as tape:
        sources = args if sources is None else sources
        tape.watch([s for s in tf.nest.flatten(sources) if isinstance(s, tf.Tensor)])
        y = f(*args, **kwargs)
    return tape.gradient(y, sources, output_gradients=u)


def product(a, b):
    return a * b, lambda u: (u * b * 10.0, u * a * 10.0)


# --- decorator habits -----------------------------------------------------------------------------------------


def test_with_and_without_arguments():
    def f(x):
        return x * x, lambda u: 7.0 * u

    for g in (cgrad.custom_vjp(f), cgrad.custom_vjp()(f), cgrad.custom_vjp(nondiff=())(f)):
        np.testing.assert_array_equal(pull(g, X, u=U)[0], 7.0 * U)


def test_a_lambda():
    g = cgrad.custom_vjp(lambda x: (x * x, lambda u: 7.0 * u))
    np.testing.assert_array_equal(both(g, X, u=U)[0], 7.0 * U)


def test_keeps_name_docstring_and_signature():
    @cgrad.custom_vjp(nondiff="power")
    def f(x, *, power=2):
        """What it does."""
        return x**power, lambda u: u

    assert (f.__name__, f.__doc__) == ("f", "What it does.")
    assert str(inspect.signature(f)) == "(x, *, power=2)"
    value_and_rule = f.__wrapped__(X, power=2)
    assert callable(value_and_rule[1])
    assert f.__cgrad__.kind == "vjp"


class Scaled(tf.Module):
    def __init__(self):
        super().__init__()
        self.factor = 3.0
        self.w = tf.Variable(2.0)

    @cgrad.custom_vjp
    def vjp(self, x):
        return x * self.factor, lambda u: 5.0 * u

    @cgrad.custom_vjp(nondiff="flag")
    def with_weight(self, x, flag=True):
        assert flag is True

        def grad(u, variables=None):
            return 5.0 * u, {"Variable": 11.0 * tf.reduce_sum(u)}

        return x * self.w, grad

    @cgrad.custom_jvp(lambda primals, tangents: primals[0].factor * tangents[1])
    def jvp(self, x):
        return x * self.factor

    @cgrad.custom_jacobian(lambda self, x: self.factor * tf.eye(2))
    def jacobian(self, x):
        return x * self.factor


@pytest.mark.parametrize(("name", "factor"), [("vjp", 5), ("jvp", 3), ("jacobian", 3)])
def test_a_method(name, factor):
    np.testing.assert_array_equal(both(getattr(Scaled(), name), X, u=U)[0], factor * U)


def test_a_method_with_a_weight():
    module = Scaled()
    dx, dw = pull(module.with_weight, X, u=U, sources=[X, module.w])
    np.testing.assert_array_equal(dx, 5.0 * U)
    assert dw == 22.0


def test_the_call_of_a_keras_layer():
    class Layer(tf.keras.layers.Layer):
        @cgrad.custom_vjp
        def call(self, x):
            return x * x, lambda u: 5.0 * u

    layer = Layer()
    np.testing.assert_array_equal(both(layer, X, u=U)[0], 5.0 * U)
    model = tf.keras.Sequential([tf.keras.Input([2]), Layer()])
    np.testing.assert_array_equal(pull(model, X[tf.newaxis], u=U[tf.newaxis])[0], 5.0 * U[tf.newaxis])


# --- binding --------------------------------------------------------------------------------------------------


def test_keywords_are_bound_by_signature():
    f = cgrad.custom_vjp(product)
    b = tf.constant([4.0, 5.0])
    for args, kwargs in (((X, b), {}), ((X,), {"b": b}), ((), {"a": X, "b": b}), ((), {"b": b, "a": X})):
        da, db = both(f, *args, u=U, sources=[X, b], **kwargs)
        np.testing.assert_array_equal(da, U * b * 10.0)
        np.testing.assert_array_equal(db, U * X * 10.0)


def test_a_tensor_default_is_an_argument():
    @cgrad.custom_vjp
    def f(x, scale=2.0):
        return x * scale, lambda u: (u * scale, tf.reduce_sum(u * x))

    np.testing.assert_array_equal(both(f, X, u=U)[0], 2.0 * U)
    np.testing.assert_array_equal(both(f, X, scale=4.0, u=U)[0], 4.0 * U)


def test_keyword_only_and_variadic_arguments():
    @cgrad.custom_vjp
    def f(x, *more, scale, **named):
        y = scale * (x + sum(more) + named["extra"])
        return y, lambda u: {
            "x": u,
            "more[0]": 2.0 * u,
            "more[1]": 3.0 * u,
            "scale": tf.reduce_sum(u),
            "named": {"extra": 4.0 * u},
        }

    a, b, extra, scale = X + 1.0, X + 2.0, X + 3.0, tf.constant(2.0)
    found = both(f, X, a, b, scale=scale, extra=extra, u=U, sources=[X, a, b, scale, extra])
    for g, due in zip(found, [U, 2 * U, 3 * U, 2.0, 4 * U], strict=True):
        np.testing.assert_array_equal(g, due)


def test_nondiff_stays_a_python_value_in_a_graph():
    seen = []

    @cgrad.custom_vjp(nondiff=("flag", "power", "config", "nothing", "mode"))
    def f(x, flag, power, config, nothing=None, *, mode="up"):
        seen.append((flag, power, config, nothing, mode))
        return x**power if flag else x, lambda u: 9.0 * u

    config = object()
    np.testing.assert_array_equal(both(f, X, True, 3, config, mode="down", u=U, sources=[X])[0], 9.0 * U)
    assert seen == [(True, 3, config, None, "down")] * 2


def test_a_setting_with_a_default_needs_no_nondiff():
    @cgrad.custom_vjp
    def f(x, axis=0, name=None, keep=False):
        assert isinstance(axis, int)
        return tf.reduce_sum(x, axis), lambda u: 9.0 * u * tf.ones_like(x)

    np.testing.assert_array_equal(both(f, X, axis=0, sources=[X])[0], [9.0, 9.0])


def test_none_for_an_integer_or_a_setting_is_welcome():
    @cgrad.custom_vjp(nondiff="flag")
    def f(x, index, flag):
        return tf.gather(x, index), lambda u: (u * tf.one_hot(index, 2), None, None)

    assert list(both(f, X, tf.constant(1), True, sources=[X])[0]) == [0.0, 1.0]


def test_nondiff_that_is_no_argument():
    with pytest.raises(cgrad.UsageError) as caught:
        cgrad.custom_vjp(nondiff="flg")(product)
    assert str(caught.value) == "nondiff= names 'flg', but product(a, b) has no such argument"


@pytest.mark.parametrize("value", [None, "up", True, object(), len])
def test_an_argument_that_is_no_tensor(value):
    f = cgrad.custom_vjp(product)
    shown = repr(value) if value is None or isinstance(value, (str, bool)) else f"a {type(value).__name__}"
    with pytest.raises(cgrad.UsageError) as caught:
        f(X, value)
    assert str(caught.value) == (
        f"[CG507] product: argument `b` is {shown}, which is no tensor\n"
        "  why:    every argument that is not in nondiff= becomes a tensor and has a gradient.\n"
        "  repair: name it where product is decorated: nondiff='b'; it then stays a Python value, in a graph too\n"
        "  https://tf-cgrad.readthedocs.io/en/latest/faults/non-tensor-argument.html"
    )
    assert caught.value.fault == "non-tensor-argument"


# --- structures -----------------------------------------------------------------------------------------------


def test_a_dict_is_matched_by_key():
    @cgrad.custom_vjp
    def f(p):
        # written in another order than TensorFlow sorts it
        return p["w"] * p["b"], lambda u: {"w": 2.0 * u, "b": 3.0 * u}

    p = {"w": X, "b": X + 1.0}
    found = both(f, p, u=U)[0]
    np.testing.assert_array_equal(found["w"], 2.0 * U)
    np.testing.assert_array_equal(found["b"], 3.0 * U)


def test_a_dict_is_never_matched_by_order():
    @cgrad.custom_vjp
    def f(p):
        return p["w"] * p["b"], lambda u: (u * p["b"], u * p["w"])

    with pytest.raises(cgrad.ContractError) as caught:
        pull(f, {"w": X, "b": X})
    assert str(caught.value) == (
        "[CG102] f: the rule returned a tuple of 2 for argument `p`, "
        "where a dict with the keys 'b', 'w' was due\n"
        "  why:    a gradient has the structure of its argument, so that no entry can be taken for another. A dict is\n"
        "          matched by key, never by order.\n"
        "  repair: return {'b': ..., 'w': ...}\n"
        "  https://tf-cgrad.readthedocs.io/en/latest/faults/structure-order.html"
    )


def test_nested_structures():
    @cgrad.custom_vjp
    def f(x, layers):
        y = x
        for layer in layers:
            y = y * layer["w"] + layer["b"][0]
        return y, lambda u: (u, [{"w": float(k + 2) * u, "b": (float(k + 5) * u,)} for k in range(len(layers))])

    layers = [{"w": X, "b": (X + 3.0,)}, {"w": X + 1.0, "b": (X + 2.0,)}]
    dx, dl = both(f, X + 7.0, layers, u=U)
    np.testing.assert_array_equal(dx, U)
    np.testing.assert_array_equal(dl[1]["w"], 3.0 * U)
    np.testing.assert_array_equal(dl[0]["b"][0], 5.0 * U)


def test_lists_and_namedtuples():
    @cgrad.custom_vjp
    def f(xs, pair):
        return xs[0] * xs[1] + pair.w * pair.b, lambda u: ((u, 2.0 * u), Pair(3.0 * u, 4.0 * u))

    (a, b), (c, d) = both(f, [X, X + 1.0], Pair(X + 2.0, X + 3.0), u=U)
    for g, k in ((a, 1), (b, 2), (c, 3), (d, 4)):
        np.testing.assert_array_equal(g, k * U)


def test_a_flat_list_as_tensorflow_takes_it():
    @cgrad.custom_vjp
    def f(x, ys):
        return x * ys[0] * ys[1], lambda u: (u, 2.0 * u, 3.0 * u)

    dx, (da, db) = both(f, X, [X + 1.0, X + 2.0], u=U)
    np.testing.assert_array_equal([dx, da, db], [U, 2 * U, 3 * U])


def test_one_argument_may_answer_with_a_list_of_one():
    f = cgrad.custom_vjp(lambda x: (x * x, lambda u: [3.0 * u]))
    np.testing.assert_array_equal(both(f, X, u=U)[0], 3.0 * U)


def test_gradients_by_name():
    f = cgrad.custom_vjp(lambda a, b: (a * b, lambda u: {"b": 3.0 * u, "a": 2.0 * u}))
    da, db = both(f, X, X + 1.0, u=U)
    np.testing.assert_array_equal([da, db], [2 * U, 3 * U])


def test_a_ragged_argument():
    @cgrad.custom_vjp
    def f(r):
        return tf.reduce_sum(r * r, axis=1), lambda u: r.with_values(5.0 * tf.ones_like(r.values))

    r = tf.ragged.constant([[1.0, 2.0], [3.0]])
    with tf.GradientTape() as tape:
        tape.watch(r.values)
        y = f(r)
    np.testing.assert_array_equal(tape.gradient(y, r.values), [5.0, 5.0, 5.0])


def test_a_ragged_output():
    @cgrad.custom_vjp
    def f(x):
        def grad(u):
            assert isinstance(u, tf.RaggedTensor)
            assert u.shape == [2, None]
            return 5.0 * u.values

        return tf.RaggedTensor.from_row_lengths(x, [1, 1]), grad

    np.testing.assert_array_equal(pull(lambda x: f(x).values, X, u=U)[0], 5.0 * U)
    np.testing.assert_array_equal(tf.function(lambda x: pull_graph(lambda x: f(x).values, x, u=U)[0])(X), 5.0 * U)


# --- outputs and upstreams ------------------------------------------------------------------------------------


def test_several_outputs_and_an_unused_one():
    seen = []

    @cgrad.custom_vjp
    def f(x):
        def grad(u1, u2):
            seen.append(u2)
            return 2.0 * u1 + 3.0 * u2

        return (x + 1.0, x * 2.0), grad

    np.testing.assert_array_equal(both(lambda x: f(x)[0], X, u=U)[0], 2.0 * U)
    np.testing.assert_array_equal(both(lambda x: f(x)[1], X, u=U)[0], 3.0 * U)
    assert all(isinstance(u, tf.Tensor) for u in seen)


def test_a_dict_of_outputs_has_a_dict_of_upstreams():
    @cgrad.custom_vjp
    def f(x):
        return {"z": x + 1.0, "a": x * 2.0}, lambda u: 2.0 * u["z"] + 3.0 * u["a"]

    assert set(f(X)) == {"a", "z"}
    np.testing.assert_array_equal(both(lambda x: f(x)["z"], X, u=U)[0], 2.0 * U)
    np.testing.assert_array_equal(both(lambda x: f(x)["a"], X, u=U)[0], 3.0 * U)


@pytest.mark.parametrize("across", [False, True])
def test_an_integer_output_beside_a_floating_one(across):
    @cgrad.custom_vjp
    def f(x):
        def grad(u, u_index):
            assert isinstance(u_index, tf.Tensor)
            return 2.0 * u

        return (x * x, tf.argmax(x)), grad

    g = tf.function(f) if across else f
    assert g(X)[1].numpy() == 1
    np.testing.assert_array_equal(pull(lambda x: g(x)[0], X, u=U)[0], 2.0 * U)


def test_none_among_the_outputs():
    @cgrad.custom_vjp
    def f(x):
        return (x * x, None), lambda u, nothing: 2.0 * u

    assert f(X)[1] is None
    np.testing.assert_array_equal(both(lambda x: f(x)[0], X, u=U)[0], 2.0 * U)


@pytest.mark.parametrize("across", [False, True])
def test_indexed_slices_come_as_a_tensor(across):
    @cgrad.custom_vjp
    def f(x):
        def grad(u):
            assert isinstance(u, tf.Tensor)
            return 2.0 * u

        return x * 1.0, grad

    g = tf.function(f) if across else f
    np.testing.assert_array_equal(pull(lambda x: tf.gather(g(x), [1, 1]), X)[0], [0.0, 4.0])


# --- variables ------------------------------------------------------------------------------------------------


def linear(answer):
    w = tf.Variable(2.0, name="w")
    b = tf.Variable(-1.0, name="b")

    @cgrad.custom_vjp
    def f(x):
        def grad(u, variables=None):
            return 7.0 * u, answer(w, b, variables)

        return w * x + b, grad

    return f, w, b


ANSWERS = {
    "by name": lambda w, b, variables: {"w": 3.0, "b": 4.0},
    "by full name": lambda w, b, variables: {"b:0": 4.0, "w:0": 3.0},
    "by reference": lambda w, b, variables: {w.ref(): 3.0, b.ref(): 4.0},
    "by pairs": lambda w, b, variables: [(w, 3.0), (b, 4.0)],
    "in order": lambda w, b, variables: [{"w:0": 3.0, "b:0": 4.0}[v.name] for v in variables],
}


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("graph", [False, True])
def test_gradients_of_captured_variables(answer, graph):
    f, w, b = linear(ANSWERS[answer])
    dx, dw, db = pull(tf.function(f) if graph else f, X, u=U, sources=[X, w, b])
    np.testing.assert_array_equal(dx, 7.0 * U)
    assert (dw, db) == (3.0, 4.0)


def test_variables_come_by_name_in_every_mode():
    seen = []
    f, w, b = linear(lambda w, b, variables: seen.append([v.name for v in variables]) or {"w": 3.0, "b": 4.0})
    both(f, X, u=U, sources=[X, w, b])
    assert seen == [["b:0", "w:0"]] * 2


def test_a_keras_variable_by_itself():
    layer = tf.keras.layers.Dense(1, use_bias=False)
    layer.build([None, 2])

    @cgrad.custom_vjp
    def f(x):
        def grad(u, variables=None):
            return tf.zeros_like(x), {layer.kernel.path: tf.fill([2, 1], 6.0)}

        return tf.matmul(x, tf.convert_to_tensor(layer.kernel)), grad

    with tf.GradientTape() as tape:
        y = f(X[tf.newaxis])
    np.testing.assert_array_equal(tape.gradient(y, layer.kernel.value), [[6.0], [6.0]])


@pytest.mark.parametrize("make", [tf.Variable, tf.keras.Variable])
def test_a_variable_as_an_argument(make):
    w = make([1.0, 2.0])
    f = cgrad.custom_vjp(product)
    value = w.value if isinstance(w, tf.keras.Variable) else w
    found = both(f, w, X, u=U, sources=[value])
    np.testing.assert_array_equal(found[0], 10.0 * U * X)


def test_a_rule_for_variables_when_none_was_read():
    @cgrad.custom_vjp
    def f(x):
        def grad(u, variables=None):
            return 2.0 * u, []

        return x * x, grad

    np.testing.assert_array_equal(both(f, X, u=U)[0], 2.0 * U)


def test_a_variable_that_the_rule_ignores():
    w = tf.Variable(2.0, name="scale")
    f = cgrad.custom_vjp(lambda x: (w * x, lambda u: w * u))
    for g in (f, tf.function(f)):
        with pytest.raises(cgrad.ContractError) as caught:
            g(X)
        assert (
            "[CG201] <lambda>: the function reads the trainable variables `scale`, "
            "and its rule does not answer for them\n"
        ) in str(caught.value)
    frozen = tf.Variable(2.0, trainable=False)
    g = cgrad.custom_vjp(lambda x: (frozen * x, lambda u: frozen * u))
    np.testing.assert_array_equal(both(g, X, u=U)[0], 2.0 * U)


def test_a_variable_gradient_that_is_missing():
    f, w, _ = linear(lambda w, b, variables: {"w": 3.0})
    with pytest.raises(cgrad.ContractError) as caught:
        pull(f, X, sources=[w])
    assert str(caught.value) == (
        "[CG202] f: the rule returned gradients of `w`, where gradients of `b`, `w` was due\n"
        "  why:    every trainable variable that the function reads is an input, and has one gradient.\n"
        "  repair: return gradients, {'name of the variable': its gradient, ...}\n"
        "  https://tf-cgrad.readthedocs.io/en/latest/faults/variables-arity.html"
    )


def test_a_variable_gradient_of_another_shape():
    f, w, _ = linear(lambda w, b, variables: {"w": tf.ones([2]), "b": 1.0})
    with pytest.raises(cgrad.ContractError, match=r"\[CG105\] f: .* for argument `w`"):
        pull(f, X, sources=[w])


# --- captured tensors -----------------------------------------------------------------------------------------


def test_a_captured_tensor_that_is_differentiated_is_named():
    w = tf.constant(3.0)

    @cgrad.custom_vjp
    def f(x):
        return w * x, lambda u: w * u

    with tf.GradientTape() as tape:
        tape.watch([X, w])
        with pytest.warns(cgrad.CapturedTensorWarning) as caught:
            f(X)
    del tape
    assert caught[0].filename == __file__
    assert str(caught[0].message) == (
        "[CG502] f: it closes over the tensor `w`, which depends on what is being differentiated\n"
        "  why:    the rule answers for the arguments alone; what comes through `w` has no derivative.\n"
        "  repair: make `w` an argument; if it is meant to be a constant, close over tf.stop_gradient(w)\n"
        "  https://tf-cgrad.readthedocs.io/en/latest/faults/captured-tensor.html"
    )


def test_a_captured_tensor_inside_a_graph_is_named():
    @tf.function
    def step(x):
        h = x * 2.0
        f = cgrad.custom_vjp(lambda x: (h * x, lambda u: h * u))
        return f(x)

    with pytest.warns(cgrad.CapturedTensorWarning, match="`h`"):
        step(X)


def test_a_captured_constant_is_no_matter():
    w = tf.constant(3.0)
    f = cgrad.custom_vjp(lambda x: (w * x, lambda u: w * u))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        both(f, X, u=U)


# --- the contract ---------------------------------------------------------------------------------------------


def returning(g):
    @cgrad.custom_vjp
    def f(x):
        return x * 2.0, lambda upstream: g

    return f


def test_no_rule():
    f = cgrad.custom_vjp(lambda x: x * x)
    with pytest.raises(cgrad.ContractError) as caught:
        f(X)
    assert str(caught.value) == (
        "[CG110] <lambda>: the decorated function has to return (value, rule), and returned something else\n"
        "  why:    the value y comes first, then the function that maps the upstream u to u^T J.\n"
        "  repair: return y, grad\n"
        "  https://tf-cgrad.readthedocs.io/en/latest/faults/missing-grad-fn.html"
    )


@pytest.mark.parametrize("graph", [False, True])
def test_a_rule_may_answer_with_indexed_slices(graph):
    f = cgrad.custom_vjp(
        lambda x: (tf.gather(x, [1]), lambda u: tf.IndexedSlices(5.0 * u, tf.constant([1]), tf.constant([2])))
    )
    run = lambda x: tf.convert_to_tensor(pull_graph(f, x)[0])  # noqa: E731
    np.testing.assert_array_equal((tf.function(run) if graph else run)(X), [0.0, 5.0])


def test_mixed_precision():
    class Layer(tf.keras.layers.Layer):
        def build(self, shape):
            self.w = self.add_weight(shape=(shape[-1],), initializer="ones")

        def call(self, x):
            return scale(x, self.w)

    @cgrad.custom_vjp
    def scale(x, w):
        assert x.dtype == w.dtype == tf.float16
        return x * w, lambda u: (u * w, 7.0 * tf.reduce_sum(u * x, 0))

    layer = Layer(dtype="mixed_float16")
    with tf.GradientTape() as tape:
        y = layer(X[tf.newaxis])
    found = tape.gradient(y, layer.trainable_variables[0].value)
    assert found.dtype == tf.float32
    np.testing.assert_array_equal(found, 7.0 * X)


def test_none_is_no_gradient():
    with pytest.raises(cgrad.ContractError) as caught:
        pull(returning(None), X)
    assert str(caught.value) == (
        "[CG108] f: the rule returned None for argument `x`, where a gradient was due\n"
        "  why:    None would be read as no influence of `x` at all.\n"
        "  repair: return the gradient; if `x` takes none, name it: nondiff='x', or return tf.zeros_like(x)\n"
        "  https://tf-cgrad.readthedocs.io/en/latest/faults/none-returned.html"
    )


def test_a_variable_is_no_gradient():
    with pytest.raises(cgrad.ContractError) as caught:
        pull(returning(tf.Variable(X)), X)
    assert str(caught.value) == (
        "[CG603] f: the rule returned a tf.Variable for argument `x`, where a tensor was due\n"
        "  why:    a variable made in the rule is no function of the upstream gradient: tape.jacobian, which traces "
        "the rule once,\n"
        "          answers None or raises.\n"
        "  repair: tf.stack([...]) in the place of tf.Variable([...])\n"
        "  https://tf-cgrad.readthedocs.io/en/latest/faults/pfor-unfriendly.html"
    )


def test_a_list_is_no_vector():
    with pytest.raises(cgrad.ContractError) as caught:
        pull(returning([X[0], X[1]]), X)
    assert str(caught.value) == (
        "[CG101] f: the rule returned 2 gradients, where 1 (`x`) was due\n"
        "  why:    every argument that is not in nondiff= has one gradient.\n"
        "          A list or tuple counts one gradient an entry: a vector has to be one tensor (tf.stack).\n"
        "  repair: return tf.stack([...])   # one tensor, of the shape of `x`\n"
        "  https://tf-cgrad.readthedocs.io/en/latest/faults/wrong-arity.html"
    )


@pytest.mark.parametrize("mode", ["eager", "graph", "pfor", "loop", "xla"])
def test_the_jacobian_is_no_gradient_in_any_mode(mode):
    f = returning(tf.constant([[0.0, 2.0], [1.0, 0.0]]))

    def jacobian(x, pfor=True):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = f(x)
        return tape.jacobian(y, x, experimental_use_pfor=pfor)

    run = {
        "eager": lambda: pull(f, X),
        "graph": lambda: tf.function(lambda: pull_graph(f, X))(),
        "pfor": lambda: jacobian(X),
        "loop": lambda: jacobian(X, False),
        "xla": lambda: tf.function(jacobian, jit_compile=True)(X),
    }[mode]
    with pytest.raises(cgrad.ContractError) as caught:
        run()
    lines = [line.strip() for line in str(caught.value).splitlines()]
    start = next(i for i, line in enumerate(lines) if "[CG104]" in line)
    text = "\n".join(lines[start:]).removeprefix("ContractError: ")
    assert text == (
        "[CG104] f: the rule returned a tensor of shape (2, 2) for argument `x`, where shape (2,) was due\n"
        "why:    (2, 2) is the shape of the Jacobian J (y.shape + x.shape), or of J times `upstream` element by "
        "element. A rule returns\n"
        "the product u^T J, summed over the axes of y: `upstream` has shape (2,), J has (2, 2), u^T J has (2,).\n"
        "repair: return tf.linalg.matvec(J, upstream, transpose_a=True)   # J: the Jacobian, (2, 2)\n"
        "https://tf-cgrad.readthedocs.io/en/latest/faults/jacobian-returned.html"
    )
    assert (caught.value.code, caught.value.fault) == ("CG104", "jacobian-returned")


def test_unknown_sizes_are_compared_when_the_graph_runs():
    @tf.function(input_signature=[tf.TensorSpec([None])])
    def step(x):
        return pull_graph(cgrad.custom_vjp(lambda x: (x * 2.0, lambda u: u[:1])), x)[0]

    assert list(step(tf.constant([1.0]))) == [1.0]
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[CG103\] .* for argument `x`"):
        step(X)


@pytest.mark.parametrize("kind", ["vjp", "jvp", "jacobian"])
def test_an_unknown_rank(kind):
    f = {
        "vjp": cgrad.custom_vjp(lambda x: (x * x, lambda u: 3.0 * x * u)),
        "jvp": cgrad.custom_jvp(lambda p, t: 3.0 * p[0] * t[0])(lambda x: x * x),
        "jacobian": cgrad.custom_jacobian(lambda x: 3.0 * x, diagonal=True)(lambda x: x * x),
    }[kind]
    step = tf.function(lambda x: pull_graph(f, x)[0], input_signature=[tf.TensorSpec(None)])
    np.testing.assert_array_equal(step(X), 3.0 * X)
    np.testing.assert_array_equal(step(X[tf.newaxis]), 3.0 * X[tf.newaxis])


def test_a_keras_tensor_belongs_into_a_layer():
    with pytest.raises(cgrad.UsageError, match=r"repair: call product in the `call` of a Keras layer, or wrap it: "):
        cgrad.custom_vjp(product)(tf.keras.Input([2]), X)


# --- nested definitions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("graph", [False, True])
def test_the_rule_of_the_rule(graph):
    @cgrad.custom_vjp
    def slope(x, u):
        return u * 10.0 * x, lambda w: (w * u * 77.0, w * 10.0 * x)

    @cgrad.custom_vjp
    def f(x):
        return x * x, lambda u: slope(x, u)

    def second(x):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = f(x)
            g = inner.gradient(y, x, output_gradients=U)
        return g, outer.gradient(g, x)

    first, curve = (tf.function(second) if graph else second)(X)
    np.testing.assert_array_equal(first, 10.0 * X * U)
    np.testing.assert_array_equal(curve, 77.0 * U)


@pytest.mark.parametrize("jit", [False, True])
def test_a_nested_rule_of_a_compiled_function_under_tapes_outside_of_it(jit):
    @cgrad.custom_vjp
    def slope(x, u):
        return 3.0 * x**2 * u, lambda w: (6.0 * x * u * w, 3.0 * x**2 * w)

    @cgrad.custom_vjp
    def cube(x):
        return x**3, lambda u: slope(x, u)  # x is of the forward graph, the call in the backward one

    compiled = tf.function(cube, jit_compile=jit)
    x = tf.constant([1.0, 2.0])
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = compiled(x)
        first = inner.gradient(y, x)
    assert np.allclose(first, 3.0 * x**2)
    assert np.allclose(outer.gradient(first, x), 6.0 * x)


@pytest.mark.parametrize("graph", [False, True])
def test_third_order_through_nested_jacobians(graph):
    third = cgrad.custom_jacobian(lambda x: 7.0 * tf.ones_like(x), diagonal=True)(lambda x: 5.0 * x)
    second = cgrad.custom_jacobian(third, diagonal=True)(lambda x: x**2)
    f = cgrad.custom_jacobian(second, diagonal=True)(lambda x: x**3)

    def derivatives(x):
        found = []
        with tf.GradientTape(persistent=True) as a:
            a.watch(x)
            with tf.GradientTape(persistent=True) as b:
                b.watch(x)
                with tf.GradientTape() as c:
                    c.watch(x)
                    y = f(x)
                found.append(c.gradient(y, x))
            found.append(b.gradient(found[0], x))
        found.append(a.gradient(found[1], x))
        return found

    found = (tf.function(derivatives) if graph else derivatives)(X)
    np.testing.assert_array_equal(found, [X**2, 5.0 * X, [7.0, 7.0]])


# --- custom_jacobian ------------------------------------------------------------------------------------------


def test_one_jacobian_for_each_argument_and_output():
    def jacobian(a, b):
        return {"s": (tf.eye(2), 2.0 * tf.ones([2])), "p": (3.0 * tf.eye(2), None)}

    @cgrad.custom_jacobian(jacobian)
    def f(a, b):
        return {"s": a + b, "p": a * b}

    b = tf.constant(4.0)
    da, db = both(lambda a, b: f(a, b)["s"], X, b, u=U)
    np.testing.assert_array_equal(da, U)
    assert db == 2.0 * float(tf.reduce_sum(U))
    da, db = both(lambda a, b: f(a, b)["p"], X, b, u=U)
    np.testing.assert_array_equal(da, 3.0 * U)
    assert db == 0.0
    found = cgrad.jacobian(f, X, b)
    np.testing.assert_array_equal(found["p"][0], 3.0 * tf.eye(2))
    np.testing.assert_array_equal(found["p"][1], [0.0, 0.0])


def test_a_structured_argument_has_structured_jacobians():
    @cgrad.custom_jacobian(lambda p: {"w": 2.0 * tf.eye(2), "b": 3.0 * tf.eye(2)})
    def f(p):
        return p["w"] + p["b"]

    found = both(f, {"w": X, "b": X + 1.0}, u=U)[0]
    np.testing.assert_array_equal(found["w"], 2.0 * U)
    np.testing.assert_array_equal(found["b"], 3.0 * U)


def test_any_rank():
    a = tf.random.stateless_normal([3, 4, 2, 5], [1, 2])
    x = tf.random.stateless_normal([2, 5], [3, 4])
    u = tf.random.stateless_normal([3, 4], [5, 6])
    f = cgrad.custom_jacobian(lambda x: a)(lambda x: tf.tensordot(a, x, 2))
    np.testing.assert_allclose(both(f, x, u=u)[0], tf.tensordot(u, a, 2), rtol=1e-5)


def test_a_diagonal_sums_over_broadcast_axes():
    f = cgrad.custom_jacobian(lambda a, b: (b * tf.ones_like(a), a * tf.ones_like(b)), diagonal=True)(tf.multiply)
    a, b = tf.ones([4, 3]), tf.constant([[2.0, 3.0, 4.0]])
    da, db = both(f, a, b)
    np.testing.assert_array_equal(da, np.broadcast_to(b, [4, 3]))
    np.testing.assert_array_equal(db, [[4.0, 4.0, 4.0]])


def test_a_batched_operator():
    w = tf.random.stateless_normal([4, 2, 3], [1, 2])
    f = cgrad.custom_jacobian(lambda x: tf.linalg.LinearOperatorFullMatrix(w))(lambda x: tf.linalg.matvec(w, x))
    x, u = tf.ones([4, 3]), tf.random.stateless_normal([4, 2], [3, 4])
    np.testing.assert_allclose(both(f, x, u=u)[0], tf.linalg.matvec(w, u, transpose_a=True), rtol=1e-5)


def test_a_real_argument_of_a_complex_function():
    f = cgrad.custom_jacobian(lambda t: tf.complex(-tf.sin(t), tf.cos(t)), diagonal=True)(
        lambda t: tf.exp(tf.complex(tf.zeros_like(t), t))
    )
    u = tf.complex(U, U)
    due = pull(lambda t: tf.exp(tf.complex(tf.zeros_like(t), t)), X, u=u)[0]
    np.testing.assert_allclose(both(f, X, u=u)[0], due, rtol=1e-5)
    with tf.autodiff.ForwardAccumulator(X, U) as forward:
        y = f(X)
    np.testing.assert_allclose(forward.jvp(y), tf.complex(-tf.sin(X), tf.cos(X)) * tf.cast(U, tf.complex64), rtol=1e-5)


def test_a_jacobian_of_another_shape():
    f = cgrad.custom_jacobian(lambda x: tf.ones([2, 3]))(lambda x: tf.ones([3]) * tf.reduce_sum(x))
    with pytest.raises(cgrad.ContractError) as caught:
        pull(f, X)
    assert str(caught.value) == (
        "[CG103] <lambda>: the Jacobian in `x` has shape (2, 3), where (3, 2) was due\n"
        "  why:    its shape is y.shape + x.shape; y has shape (3,), `x` has shape (2,).\n"
        "  repair: tf.transpose(J): the axes of y come first\n"
        "  https://tf-cgrad.readthedocs.io/en/latest/faults/wrong-shape.html"
    )


def test_a_jacobian_of_another_dtype():
    f = cgrad.custom_jacobian(lambda x: tf.eye(2, dtype=tf.float64))(lambda x: x * 1.0)
    with pytest.raises(cgrad.ContractError) as caught:
        pull(f, X)
    assert str(caught.value) == (
        "[CG107] <lambda>: the Jacobian in `x` is float64, where float32 was due\n"
        "  why:    a derivative has the dtype of what it is the derivative of.\n"
        "  repair: tf.cast(J, tf.float32)\n"
        "  https://tf-cgrad.readthedocs.io/en/latest/faults/wrong-dtype.html"
    )


def test_a_missing_jacobian():
    f = cgrad.custom_jacobian(lambda a, b: tf.eye(2))(lambda a, b: a * b)
    with pytest.raises(cgrad.ContractError) as caught:
        pull(f, X, X + 1.0)
    assert str(caught.value) == (
        "[CG101] <lambda>: the Jacobian came in another structure; due is 2 Jacobians, one for each of 'a', 'b'\n"
        "  why:    a Jacobian has the structure of the output, and in each place of it one entry for each argument.\n"
        "  repair: return (J_a, J_b) for f(a, b); None for an argument without influence\n"
        "  https://tf-cgrad.readthedocs.io/en/latest/faults/wrong-arity.html"
    )


# --- custom_jvp -----------------------------------------------------------------------------------------------


def test_jvp_of_several_arguments_with_a_setting():
    def along(primals, tangents):
        a, b, flag = primals
        assert flag is True
        assert tangents[2] is None
        return 2.0 * tangents[0] * b + 3.0 * tangents[1] * a

    f = cgrad.custom_jvp(along, nondiff="flag")(lambda a, b, flag: a * b)
    b = X + 4.0
    da, db = both(f, X, b, True, u=U, sources=[X, b])
    np.testing.assert_array_equal(da, 2.0 * U * b)
    np.testing.assert_array_equal(db, 3.0 * U * X)


@pytest.mark.parametrize("rule", [lambda p, t: t[0] ** 2, lambda p, t: tf.abs(t[0]), lambda p, t: t[0] + 1.0])
def test_a_jvp_that_is_not_linear(rule):
    f = cgrad.custom_jvp(rule)(lambda x: x * x)
    with pytest.raises(cgrad.ContractError) as caught:
        pull(f, X)
    assert str(caught.value) == (
        "[CG302] <lambda>: the rule is not linear in the tangent: rule(x, a - 2 b) is not rule(x, a) - 2 rule(x, b)\n"
        "  why:    the derivative along v is J v, which is linear in v and 0 for v = 0.\n"
        "  repair: return a sum of terms that each have one factor of a tangent\n"
        "  https://tf-cgrad.readthedocs.io/en/latest/faults/nonlinear-in-upstream.html"
    )


@pytest.mark.parametrize("rule", [lambda p, t: t[0] ** 2, lambda p, t: tf.abs(t[0]), lambda p, t: tf.sin(t[0]) * p[0]])
def test_a_jvp_that_is_seen_not_to_be_linear_in_a_graph(rule):
    f = cgrad.custom_jvp(rule)(lambda x: x * x)
    with pytest.raises(cgrad.ContractError, match=r"\[CG302\]"):
        tf.function(lambda x: pull_graph(f, x)[0])(X)


LINEAR = {
    "product": lambda p, t: p[0] * t[0] * tf.sin(p[0]),
    "sum": lambda p, t: tf.reduce_sum(p[0] * t[0]) * tf.ones_like(p[0]) + t[0][::-1],
    "matrix": lambda p, t: tf.linalg.matvec(tf.tensordot(p[0], p[0], 0), t[0]),
    "solve": lambda p, t: tf.linalg.solve(tf.eye(2) + tf.tensordot(p[0], p[0], 0), t[0][:, tf.newaxis])[:, 0],
    "gather": lambda p, t: tf.gather(t[0], [1, 0]) / p[0],
    "where": lambda p, t: tf.where(p[0] > 1.5, t[0], 0.0),
    "concat": lambda p, t: tf.concat([t[0][1:], 3.0 * t[0][:1]], 0),
    "cumsum": lambda p, t: tf.cumsum(tf.reshape(t[0], [2, 1]), 0)[:, 0],
    "fft": lambda p, t: tf.math.real(tf.signal.fft(tf.cast(t[0], tf.complex64))),
    "cond": lambda p, t: tf.cond(p[0][0] > 0, lambda: 2.0 * t[0], lambda: t[0]),
    "while": lambda p, t: tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * p[0]), (0, t[0]))[1],
    "jvp": lambda p, t: cgrad.jvp(lambda x: tf.exp(x) * x, p, t)[1],
    "resize": lambda p, t: tf.reshape(tf.image.resize(tf.reshape(t[0], [1, 1, 2, 1]), [1, 2]), [2]),
    "mean": lambda p, t: t[0] - tf.reduce_mean(t[0]) * tf.reduce_sum(p[0]),
    "pad": lambda p, t: tf.pad(t[0], [[1, 0]])[:2],
    "transpose": lambda p, t: tf.reshape(tf.transpose(tf.tile(t[0][tf.newaxis], [2, 1])), [4])[1:3],
    "convolution": lambda p, t: tf.nn.conv1d(t[0][tf.newaxis, :, tf.newaxis], tf.ones([2, 1, 1]), 1, "SAME")[0, :, 0],
}


@pytest.mark.parametrize("rule", LINEAR)
def test_a_linear_jvp_raises_no_alarm(rule):
    f = cgrad.custom_jvp(LINEAR[rule])(lambda x: x * 1.0)
    graph = tf.function(lambda x: tf.convert_to_tensor(pull_graph(f, x, u=U)[0]))(X)
    np.testing.assert_allclose(pull(f, X, u=U)[0], graph, rtol=1e-6)
    with tf.autodiff.ForwardAccumulator(X, tf.constant([0.5, 2.0])) as forward:
        y = f(X)
    np.testing.assert_allclose(tf.reduce_sum(U * forward.jvp(y)), tf.reduce_sum(graph * [0.5, 2.0]), rtol=1e-5)


def test_a_jvp_of_another_shape():
    f = cgrad.custom_jvp(lambda p, t: tf.reduce_sum(t[0]))(lambda x: x * x)
    with pytest.raises(cgrad.ContractError) as caught:
        pull(f, X)
    assert str(caught.value) == (
        "[CG103] <lambda>: the rule returned a float32 tangent of shape (), where float32 and shape (2,) were due\n"
        "  why:    J v has the shape and dtype of the output.\n"
        "  repair: return the derivative of y along the tangents\n"
        "  https://tf-cgrad.readthedocs.io/en/latest/faults/wrong-shape.html"
    )


def test_a_jvp_made_of_another_derivative():
    f = cgrad.custom_jvp(lambda p, t: cgrad.jvp(lambda x: x**5, p, t)[1])(lambda x: x**3)
    np.testing.assert_allclose(both(f, X, u=U)[0], 5.0 * X**4 * U)
    with tf.autodiff.ForwardAccumulator(X, U) as forward:
        y = f(X)
    np.testing.assert_allclose(forward.jvp(y), 5.0 * X**4 * U)


# --- forward mode ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("graph", [False, True])
def test_forward_mode_of_several_inputs_outputs_and_a_variable(graph):
    w = tf.Variable([2.0, 3.0], name="w")

    @cgrad.custom_vjp
    def f(p, index, b):
        def grad(u1, u_int, u2, variables=None):
            return ({"a": 3.0 * u1 + u2}, None, 5.0 * u1), {"w": 7.0 * u1 + 11.0 * u2}

        return (p["a"] * b, index + 1, w * p["a"]), grad

    def run():
        v, vb, vw = tf.constant([1.0, 10.0]), tf.constant([2.0, -1.0]), tf.constant([0.5, 1.0])
        b = X + 1.0
        with tf.autodiff.ForwardAccumulator([X, b, w], [v, vb, vw]) as forward:
            y1, _, y2 = f({"a": X}, tf.constant([1, 2]), b)
        return forward.jvp(y1), 3.0 * v + 5.0 * vb + 7.0 * vw, forward.jvp(y2), v + 11.0 * vw

    d1, due1, d2, due2 = (tf.function(run) if graph else run)()
    np.testing.assert_array_equal(d1, due1)
    np.testing.assert_array_equal(d2, due2)


def test_forward_mode_with_one_input_followed():
    f = cgrad.custom_vjp(product)
    b = X + 1.0
    with tf.autodiff.ForwardAccumulator(b, U) as forward:
        y = f(X, b)
    np.testing.assert_array_equal(forward.jvp(y), 10.0 * X * U)
    g = cgrad.custom_jvp(lambda p, t: 2.0 * t[0] + 3.0 * t[1])(lambda a, b: a * b)
    with tf.autodiff.ForwardAccumulator(b, U) as forward:
        y = g(X, b)
    np.testing.assert_array_equal(forward.jvp(y), 3.0 * U)


# --- NumPy ----------------------------------------------------------------------------------------------------


def test_numpy_with_several_arguments_and_outputs():
    def f(a, b, k):
        def grad(u, u_k):
            return 2.0 * u * b, 3.0 * u * a

        return (a * b, np.int64(k)), grad

    g = cgrad.custom_vjp(f, numpy=True, nondiff="k")
    b = X + 4.0
    da, db = both(lambda a, b: g(a, b, 5)[0], X, b, u=U)
    np.testing.assert_array_equal(da, 2.0 * U * b)
    np.testing.assert_array_equal(db, 3.0 * U * X)
    with tf.autodiff.ForwardAccumulator([X, b], [U, U]) as forward:
        y = g(X, b, 5)[0]
    np.testing.assert_array_equal(forward.jvp(y), 2.0 * U * b + 3.0 * U * X)


def test_a_ufunc_as_it_is():
    f = cgrad.custom_jacobian(np.cos, diagonal=True, numpy=True)(np.sin)
    np.testing.assert_allclose(both(f, X, u=U)[0], U * tf.cos(X), rtol=1e-6)
    g = cgrad.custom_jacobian(tf.cos, diagonal=True)(tf.sin)
    np.testing.assert_allclose(both(g, X, u=U)[0], U * tf.cos(X), rtol=1e-6)


def test_compiled_code_from_scipy():
    special = pytest.importorskip("scipy.special")
    f = cgrad.custom_jacobian(lambda x: -special.k1(x), diagonal=True, numpy=True)(special.k0)
    np.testing.assert_allclose(both(f, X)[0], -special.k1(X.numpy()), rtol=1e-6)


def test_numpy_output_as_told():
    calls = []

    def f(x):
        calls.append(x.shape)
        return np.outer(x, x).astype(np.float32)

    g = cgrad.custom_jacobian(lambda x: None, numpy=True, out=tf.TensorSpec([2, 2], tf.float32))(f)
    concrete = tf.function(g).get_concrete_function(tf.TensorSpec([2]))
    assert concrete.output_shapes == [2, 2]
    assert calls == []


def test_numpy_that_cannot_be_tried_on_ones():
    def f(x):
        raise ValueError("no data")

    g = cgrad.custom_jacobian(lambda x: None, numpy=True)(f)
    with pytest.raises(cgrad.UsageError) as caught:
        tf.function(g)(X)
    assert (
        "f: in a graph the shape of what a NumPy function returns is found by a call on ones, and that call raised "
        "ValueError: no data; say what f returns where it is decorated: out=tf.TensorSpec(shape, dtype)"
    ) in str(caught.value)


def test_a_numpy_gradient_of_another_shape():
    g = cgrad.custom_vjp(lambda x: (x * x, lambda u: np.sum(u)), numpy=True)
    with pytest.raises(cgrad.ContractError, match=r"\[CG106\] <lambda>: the rule returned a tensor of shape \(\)"):
        pull(g, X)


NUMPY = {
    "vjp": cgrad.custom_vjp(lambda x: (x**3, lambda u: u * 3 * x**2), numpy=True),
    "jvp": cgrad.custom_jvp(lambda p, t: 3 * p[0] ** 2 * t[0], numpy=True)(lambda x: x**3),
    "jacobian": cgrad.custom_jacobian(lambda x: 3 * x**2, diagonal=True, numpy=True)(lambda x: x**3),
}


@pytest.mark.parametrize("kind", NUMPY)
def test_a_second_derivative_of_numpy_says_what_to_supply(kind):
    def second(x):
        with tf.GradientTape() as outer:
            outer.watch(x)
            g = pull_graph(NUMPY[kind], x, u=U)[0]
        return outer.gradient(g, x)

    with pytest.raises(cgrad.NotDifferentiableError) as caught:
        second(X)
    name = "<lambda>"
    assert str(caught.value) == (
        f"[CG701] {name}: a second derivative was asked for, and the rule runs outside TensorFlow\n"
        "  why:    the second derivative differentiates the rule, and a rule in NumPy is a constant to TensorFlow.\n"
        "  repair: write the rule in TensorFlow, or let it call a cgrad function that computes the Jacobian and has a "
        "rule of its own\n"
        "  https://tf-cgrad.readthedocs.io/en/latest/faults/backward-not-differentiable.html"
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[CG701\]"):
        tf.function(second)(X)


@pytest.mark.parametrize("kind", NUMPY)
@pytest.mark.parametrize("graph", [False, True])
def test_a_mixed_derivative_of_numpy_is_right(kind, graph):
    """d/dw of d/dx of w f(x) needs no second derivative of f."""

    def mixed(w):
        with tf.GradientTape() as outer:
            outer.watch(w)
            g = pull_graph(lambda x: w * NUMPY[kind](x), X, u=U)[0]
        return outer.gradient(g, w)

    w = tf.constant(2.0)
    np.testing.assert_allclose((tf.function(mixed) if graph else mixed)(w), np.sum(U * 3 * X**2), rtol=1e-6)


def test_options_that_do_not_go_together():
    with pytest.raises(cgrad.UsageError) as caught:
        cgrad.custom_jacobian(lambda x: x, diagonal=True, batched=True)
    assert str(caught.value) == "cgrad.custom_jacobian: a Jacobian is either diagonal=True or batched=True"
    with pytest.raises(cgrad.UsageError) as caught:
        cgrad.custom_vjp(product, out=tf.TensorSpec([2]))
    assert str(caught.value) == "cgrad.custom_vjp: out= describes what NumPy code returns; say numpy=True with it"
    with pytest.raises(cgrad.UsageError) as caught:
        cgrad.custom_vjp(3)
    assert str(caught.value) == "cgrad.custom_vjp decorates a function, and got 3"


# --- cost -----------------------------------------------------------------------------------------------------


def operations(define, f, spec):
    graph = tf.function(lambda x: pull_graph(define(f), x)[0]).get_concrete_function(spec).graph
    return collections.Counter(op.type for op in graph.get_operations())


def test_static_shapes_cost_nothing_in_a_graph():
    def f(x):
        return tf.sin(x), lambda u: u * tf.cos(x)

    spec = tf.TensorSpec([3])
    assert operations(cgrad.custom_vjp, f, spec) == operations(tf.custom_gradient, f, spec)


def test_unknown_sizes_cost_one_comparison():
    def f(x):
        return tf.sin(x), lambda u: u * tf.cos(x)

    spec = tf.TensorSpec([None])
    more = operations(cgrad.custom_vjp, f, spec) - operations(tf.custom_gradient, f, spec)
    assert more["Shape"] == 2
    assert sum(count for kind, count in more.items() if kind not in ("Const", "Identity")) <= 8, more


BIG = 100_000  # a dense Jacobian would take 40 GB
STRUCTURED = {
    "diagonal": (lambda x: tf.cos(x), {"diagonal": True}),
    "operator": (lambda x: tf.linalg.LinearOperatorDiag(tf.cos(x)), {}),
    "sparse": (
        lambda x: tf.SparseTensor(tf.stack([tf.range(BIG, dtype=tf.int64)] * 2, 1), tf.cos(x), [BIG, BIG]),
        {},
    ),
}


@pytest.mark.parametrize("kind", STRUCTURED)
@pytest.mark.parametrize("graph", [False, True])
def test_nothing_structured_is_made_dense(kind, graph):
    jacobian, options = STRUCTURED[kind]
    f = cgrad.custom_jacobian(jacobian, **options)(tf.sin)

    def run(x):
        with tf.autodiff.ForwardAccumulator(x, tf.ones_like(x)) as forward:
            y = f(x)
        return pull_graph(f, x)[0], forward.jvp(y)

    x = tf.linspace(0.0, 1.0, BIG)
    for found in (tf.function(run) if graph else run)(x):
        np.testing.assert_allclose(found, tf.cos(x), rtol=1e-6)


def test_a_sparse_gradient_in_forward_mode():
    @cgrad.custom_vjp
    def lookup(table, ids):
        def grad(u):
            return tf.IndexedSlices(u, ids, tf.shape(table))

        return tf.gather(table, ids), grad

    table, ids = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), tf.constant([2, 0, 2])
    tangent = tf.constant([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]])
    with tf.autodiff.ForwardAccumulator(table, tangent) as accumulator:
        y = lookup(table, ids)
    assert accumulator.jvp(y).numpy().tolist() == tf.gather(tangent, ids).numpy().tolist()
    with tf.GradientTape() as tape:
        tape.watch(table)
        y = lookup(table, ids)
    assert isinstance(tape.gradient(y, table), tf.IndexedSlices)  # and stays sparse in reverse mode


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function], ids=["eager", "graph"])
def test_a_rule_with_a_tape_of_its_own_in_forward_mode(wrap):
    @cgrad.custom_vjp
    def recomputed(x):
        def grad(u):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = tf.tanh(2.0 * x)
            return tape.gradient(y, x, output_gradients=u)

        return tf.tanh(2.0 * tf.stop_gradient(x)), grad

    def tangent(x, v):
        with tf.autodiff.ForwardAccumulator(x, v) as accumulator:
            y = recomputed(x)
        return accumulator.jvp(y)

    x, v = tf.constant([0.1, 0.2]), tf.constant([1.0, -3.0])
    found = wrap(tangent)(x, v)
    assert np.allclose(found, 2.0 * (1.0 - np.tanh([0.2, 0.4]) ** 2) * [1.0, -3.0])


def test_a_rule_that_calls_its_own_function_in_forward_mode():
    @cgrad.custom_vjp
    def rise(x):  # its own derivative
        return tf.exp(x), lambda u: u * rise(x)

    x, v = tf.constant([0.5, -1.0], tf.float64), tf.constant([2.0, 3.0], tf.float64)
    with tf.autodiff.ForwardAccumulator(x, v) as outer:
        with tf.autodiff.ForwardAccumulator(x, v) as inner:
            y = rise(x)
        once = inner.jvp(y)
    assert np.allclose(once, np.exp(x) * v)
    assert np.allclose(outer.jvp(once), np.exp(x) * v * v)
    assert cgrad.gradcheck(rise, x)
