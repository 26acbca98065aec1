"""vjp, jvp and jacobian: structures, arguments, complex numbers, unconnected, and every way to get a Jacobian."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import cgrad

X = tf.constant([1.0, 2.0])
U = tf.constant([3.0, -1.0])
A = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])


def same(found, due):
    tf.nest.map_structure(lambda f, d: np.testing.assert_allclose(f, d, rtol=1e-6), found, due)


def times(x):
    return tf.linalg.matvec(A, x)


MODES = {
    "eager": lambda f: f,
    "graph": tf.function,
    "xla": lambda f: tf.function(f, jit_compile=True),
    "unknown": lambda f: tf.function(f, input_signature=[tf.TensorSpec([None])]),
}


@pytest.mark.parametrize("mode", MODES)
def test_in_every_mode(mode):
    run = MODES[mode]
    u = tf.constant([1.0, -1.0, 2.0])
    same(run(lambda x: cgrad.vjp(times, x)[1](u))(X), tf.linalg.matvec(A, u, transpose_a=True))
    same(run(lambda x: cgrad.jvp(times, (x,), (U,)))(X), (times(X), times(U)))
    for options in ({}, {"mode": "forward"}, {"mode": "reverse"}, {"vectorize": False}):
        if mode == "xla" and options.get("vectorize") is False:
            continue  # TensorFlow cannot compile the list that collects the rows
        same(run(lambda x, o=options: cgrad.jacobian(times, x, **o))(X), A)


def test_structures_and_several_arguments():
    def f(p, scale):
        return {"y": p["w"] * scale, "z": (p["b"] * p["w"],)}

    p, scale = {"w": X, "b": X + 1.0}, tf.constant(3.0)
    y, pullback = cgrad.vjp(f, p, scale)
    same(y, {"y": 3.0 * X, "z": (X * (X + 1.0),)})
    dp, ds = pullback({"y": U, "z": (2.0 * U,)})
    same(dp, {"w": 3.0 * U + 2.0 * U * p["b"], "b": 2.0 * U * X})
    same(ds, tf.reduce_sum(U * X))
    _, dy = cgrad.jvp(f, (p, scale), ({"w": U, "b": tf.zeros(2)}, tf.constant(1.0)))
    same(dy, {"y": 3.0 * U + X, "z": (U * p["b"],)})
    found = cgrad.jacobian(f, p, scale)
    same(found["y"][0]["w"], 3.0 * tf.eye(2))
    same(found["y"][0]["b"], tf.zeros([2, 2]))
    same(found["y"][1], X)
    same(found["z"][0][0]["b"], tf.linalg.diag(X))


def test_argnums():
    def f(a, n, b, *, c):
        return a * b * c * tf.cast(n, tf.float32)

    a, n, b, c = X, tf.constant(2), X + 1.0, X + 2.0
    same(cgrad.vjp(f, a, n, b, c=c)[1](U), (2.0 * U * b * c, 2.0 * U * a * c))
    same(cgrad.vjp(f, a, n, b, c=c, argnums=2)[1](U), 2.0 * U * a * c)
    same(cgrad.vjp(f, a, n, b, c=c, argnums="c")[1](U), 2.0 * U * a * b)
    same(cgrad.vjp(f, a, n, b, c=c, argnums=("c", 0))[1](U), (2.0 * U * a * b, 2.0 * U * b * c))
    same(cgrad.jacobian(f, a, n, b, c=c, argnums="c"), tf.linalg.diag(2.0 * a * b))
    same(cgrad.jvp(f, (a, n, b), (U, None, None), c=c)[1], 2.0 * U * b * c)


def test_one_tensor_in_two_arguments():
    same(cgrad.vjp(lambda a, b: a * a * b, X, X)[1](U), (2.0 * U * X * X, U * X * X))


def test_a_variable_is_an_argument():
    w = tf.Variable([1.0, 2.0])
    same(cgrad.vjp(lambda w: w * w, w)[1](U), 2.0 * U * X)


def test_settings_are_left_alone():
    same(cgrad.vjp(lambda x, power, flag: x**power if flag else x, X, 2, True)[1](U), 2.0 * U * X)


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_the_jacobian_of_a_holomorphic_function(mode):
    z = tf.constant([1.0 + 2.0j, -0.5 + 1.0j], tf.complex128)
    same(cgrad.jacobian(lambda z: z**3, z, mode=mode), tf.linalg.diag(3.0 * z**2))
    rotate = tf.constant([[1.0 + 1.0j, 2.0j], [3.0, 1.0 - 1.0j]], tf.complex128)
    same(cgrad.jacobian(lambda z: tf.linalg.matvec(rotate, z), z, mode=mode), rotate)


def test_complex_vjp_and_jvp():
    z = tf.constant([1.0 + 2.0j, -0.5 + 1.0j], tf.complex128)
    u = tf.constant([0.5j, 1.0], tf.complex128)
    same(cgrad.vjp(lambda z: z**3, z)[1](u), u * tf.math.conj(3.0 * z**2))
    same(cgrad.jvp(lambda z: z**3, (z,), (u,))[1], u * 3.0 * z**2)


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_a_complex_function_of_a_real_argument(mode):
    due = tf.linalg.diag(tf.complex(-tf.sin(X), tf.cos(X)))
    same(cgrad.jacobian(lambda t: tf.exp(tf.complex(tf.zeros_like(t), t)), X, mode=mode), due)


def test_integer_outputs_have_no_derivative():
    y, pullback = cgrad.vjp(lambda x: (x * x, tf.argmax(x)), X)
    same(pullback((U, y[1])), 2.0 * U * X)
    same(cgrad.jvp(lambda x: (x * x, tf.argmax(x)), (X,), (U,))[1], (2.0 * U * X, tf.constant(0, tf.int64)))
    assert cgrad.jacobian(lambda x: (x * x, tf.argmax(x)), X)[1].shape == [2]


def test_unconnected():
    def f(a, b):
        return a * 1.0

    same(cgrad.vjp(f, X, X)[1](U), (U, tf.zeros(2)))
    same(cgrad.jacobian(f, X, X)[1], tf.zeros([2, 2]))
    same(cgrad.jvp(lambda x: tf.constant([1.0]), (X,), (U,))[1], tf.zeros(1))
    text = (
        "[CG501] unconnected='error': an output does not depend on an argument\n"
        "  why:    no TensorFlow operations lead from one to the other: the derivative is 0, or the tape is broken.\n"
        "  repair: unconnected='zero' if it is meant so; else cgrad.gradcheck(f, x) says where the tape breaks\n"
        "  https://tf-cgrad.readthedocs.io/en/latest/faults/tape-broken.html"
    )
    for run in (
        lambda: cgrad.vjp(f, X, X, unconnected="error")[1](U),
        lambda: cgrad.jacobian(f, X, X, unconnected="error"),
        lambda: cgrad.jvp(lambda x: tf.constant([1.0]), (X,), (U,), unconnected="error"),
    ):
        with pytest.raises(cgrad.NotDifferentiableError) as caught:
            run()
        assert str(caught.value) == text


def test_the_cheaper_way_is_taken():
    """100 outputs of 2 inputs: two columns, not a hundred rows."""
    traced = []
    w = tf.random.stateless_normal([100, 2], [1, 2])

    def f(x):
        return tf.linalg.matvec(w, x)

    for mode, rows in (("auto", 2), ("reverse", 100), ("forward", 2)):
        step = tf.function(lambda x, m=mode: cgrad.jacobian(f, x, mode=m))
        graph = step.get_concrete_function(X).graph
        loops = {tuple(op.outputs[0].shape) for op in graph.get_operations() if op.type == "Range"}
        traced.append(((rows,) in loops, mode))
        same(step(X), w)
    assert all(found for found, _ in traced), traced


def test_a_hand_written_rule_is_honoured_by_jvp():
    f = tf.custom_gradient(lambda x: (x * x, lambda u: 100.0 * x * u))
    same(cgrad.jvp(f, (X,), (U,))[1], 100.0 * X * U)


# --- hand-written Jacobians -----------------------------------------------------------------------------------


def test_the_hand_written_jacobian_comes_in_its_own_form():
    dense = cgrad.custom_jacobian(lambda x: 7.0 * tf.eye(2))(lambda x: x * x)
    same(cgrad.jacobian(dense, X), 7.0 * tf.eye(2))
    diagonal = cgrad.custom_jacobian(lambda x: 7.0 * x, diagonal=True)(lambda x: x * x)
    assert isinstance(cgrad.jacobian(diagonal, X), tf.linalg.LinearOperatorDiag)
    same(cgrad.jacobian(diagonal, X, dense=True), tf.linalg.diag(7.0 * X))
    operator = tf.linalg.LinearOperatorFullMatrix(A)
    f = cgrad.custom_jacobian(lambda x: operator)(times)
    assert cgrad.jacobian(f, X) is operator
    same(cgrad.jacobian(f, X, dense=True), A)
    sparse = cgrad.custom_jacobian(lambda x: tf.sparse.from_dense(A))(times)
    assert isinstance(cgrad.jacobian(sparse, X), tf.SparseTensor)
    same(cgrad.jacobian(sparse, X, dense=True), A)
    batched = cgrad.custom_jacobian(lambda x: tf.linalg.diag(2.0 * x), batched=True)(lambda x: x * x)
    x = tf.stack([X, U])
    same(cgrad.jacobian(batched, x), tf.linalg.diag(2.0 * x))
    same(cgrad.jacobian(batched, x, dense=True), cgrad.jacobian(lambda x: x * x, x))


def test_a_wrapped_hand_written_jacobian_is_differentiated():
    diagonal = cgrad.custom_jacobian(lambda x: 7.0 * x, diagonal=True)(lambda x: x * x)
    same(cgrad.jacobian(lambda x: 2.0 * diagonal(x), X), tf.linalg.diag(14.0 * X))


# --- bad use --------------------------------------------------------------------------------------------------


def message(run):
    with pytest.raises(cgrad.UsageError) as caught:
        run()
    return str(caught.value)


def test_bad_use_says_how_to_do_it():
    f = lambda x: x * x  # noqa: E731
    assert message(lambda: cgrad.jvp(f, X, U)) == "cgrad.jvp takes tuples: cgrad.jvp(f, (x,), (v,))"
    assert message(lambda: cgrad.jvp(f, (X,), (U, U))) == "cgrad.jvp got 1 primals and 2 tangents"
    assert message(lambda: cgrad.jvp(f, (X,), (tf.ones([3]),))) == (
        "the tangent is a float32 tensor of shape (3,), and the argument is a float32 tensor of shape (2,); both have "
        "to be the same"
    )
    assert message(lambda: cgrad.vjp(f, X)[1](tf.ones([3]))) == (
        "the upstream is a float32 tensor of shape (3,), and the output is a float32 tensor of shape (2,); both have "
        "to be the same"
    )
    assert message(lambda: cgrad.vjp(f, tf.constant(1))) == (
        "no positional argument holds a floating or complex tensor, so there is nothing to differentiate in"
    )
    assert message(lambda: cgrad.vjp(f, X, argnums=3)) == (
        "argnums names argument 3; there are 1 positional arguments and the keyword arguments []"
    )
    assert message(lambda: cgrad.vjp(f, tf.constant(1), argnums=0)) == (
        "[CG504] argnums: argument 0 holds no floating or complex tensor\n"
        "  why:    only these have a derivative.\n"
        "  repair: pass a floating tensor: tf.cast(x, tf.float32)\n"
        "  https://tf-cgrad.readthedocs.io/en/latest/faults/integer-input.html"
    )
    assert message(lambda: cgrad.jacobian(f, X, mode="sideways")) == (
        "mode is 'auto', 'reverse' or 'forward', and not 'sideways'"
    )
    assert message(lambda: cgrad.vjp(lambda x: (x, x), X)[1](U)).startswith(
        "the upstream has another structure than the output: "
    )


@pytest.mark.parametrize("vectorize", [True, False])
@pytest.mark.parametrize(("size", "rows"), [(0, 2), (2, 0), (0, 0)])
def test_a_jacobian_without_entries(vectorize, size, rows):
    """Found by tests/test_properties.py: TensorFlow's loop trips over a Jacobian without rows, and without columns."""
    matrix = tf.ones((rows, size))
    found = cgrad.jacobian(lambda x: tf.linalg.matvec(matrix, x), tf.zeros(size), vectorize=vectorize)
    assert found.shape == (rows, size)
