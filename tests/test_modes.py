"""Every definer in every mode: the table that the documentation shows.

The function is x**3 and the hand-written derivative is 100 x**2, on purpose another one than autodiff's 3 x**2: a mode
that forgets the rule gives a wrong number. ``python tests/test_modes.py FILE`` writes the table as Markdown.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

import cgrad

# --- the definers ---------------------------------------------------------------------------------------------


def slope(x):
    return 100.0 * x * x if isinstance(x, np.ndarray) else tf.cast(100.0, x.dtype) * x * x


def dense(x):
    diagonal = tf.linalg.diag(tf.reshape(slope(x), [-1]))
    return tf.reshape(diagonal, tf.concat([tf.shape(x), tf.shape(x)], 0))


def dense_numpy(x):
    return np.diag(slope(x).ravel()).reshape(x.shape + x.shape)


def sparse(x):
    where = tf.where(tf.ones_like(x, tf.bool))
    shape = tf.cast(tf.concat([tf.shape(x), tf.shape(x)], 0), tf.int64)
    return tf.SparseTensor(tf.concat([where, where], 1), tf.reshape(slope(x), [-1]), shape)


def with_rule(x):
    return x * x * x, lambda u: u * tf.math.conj(slope(x))


def with_rule_numpy(x):
    return x * x * x, lambda u: u * np.conj(slope(x))


def cube(x):
    return x * x * x


def along(primals, tangents):
    return slope(primals[0]) * tangents[0]


DEFINERS: dict[str, Callable] = {
    "custom_vjp": cgrad.custom_vjp(with_rule),
    "custom_jvp": cgrad.custom_jvp(along)(cube),
    "custom_jacobian, dense": cgrad.custom_jacobian(dense)(cube),
    "custom_jacobian, diagonal": cgrad.custom_jacobian(slope, diagonal=True)(cube),
    "custom_jacobian, batched": cgrad.custom_jacobian(lambda x: tf.linalg.diag(slope(x)), batched=True)(cube),
    "custom_jacobian, LinearOperator": cgrad.custom_jacobian(
        lambda x: tf.linalg.LinearOperatorDiag(tf.reshape(slope(x), [-1]))
    )(cube),
    "custom_jacobian, SparseTensor": cgrad.custom_jacobian(sparse)(cube),
    "custom_vjp, numpy": cgrad.custom_vjp(with_rule_numpy, numpy=True),
    "custom_jvp, numpy": cgrad.custom_jvp(along, numpy=True)(cube),
    "custom_jacobian, numpy": cgrad.custom_jacobian(dense_numpy, numpy=True)(cube),
}

# --- the modes: each returns what it computed and what was due --------------------------------------------------

X = np.array([[1.0, -2.0, 0.5], [3.0, 1.5, -1.0]])
U = np.array([[0.3, -1.0, 2.0], [1.0, 0.7, -0.4]])
V = np.array([[-0.5, 1.0, 0.2], [2.0, -1.0, 0.6]])
SLOPE = 100.0 * X**2
CURVE = 200.0 * X
JACOBIAN = np.diag(SLOPE.ravel()).reshape(2, 3, 2, 3)


def pulled(f, x, u):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    return tape.gradient(y, x, output_gradients=u)


def const(array, dtype=tf.float64):
    return tf.cast(tf.constant(array), dtype)


def eager(f):
    return pulled(f, const(X), const(U)), U * SLOPE


def graph(f):
    step = tf.function(lambda x, u: pulled(f, x, u))
    return step(const(X), const(U)), U * SLOPE


def graph_across(f):
    """The tape outside, the function inside tf.function."""
    return pulled(tf.function(f), const(X), const(U)), U * SLOPE


def unknown_shapes(f):
    spec = tf.TensorSpec([None, None], tf.float64)
    step = tf.function(lambda x, u: pulled(f, x, u), input_signature=[spec, spec])
    return step(const(X), const(U)), U * SLOPE


def xla(f):
    step = tf.function(lambda x, u: pulled(f, x, u), jit_compile=True)
    return step(const(X), const(U)), U * SLOPE


def jacobian(f, x, **options):
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = f(x)
    return tape.jacobian(y, x, **options)


def pfor(f):
    return jacobian(f, const(X)), JACOBIAN


def pfor_graph(f):
    return tf.function(lambda x: jacobian(f, x))(const(X)), JACOBIAN


def loop(f):
    return jacobian(f, const(X), experimental_use_pfor=False), JACOBIAN


def batch_jacobian(f):
    with tf.GradientTape() as tape:
        x = const(X)
        tape.watch(x)
        y = f(x)
    return tape.batch_jacobian(y, x), np.stack([np.diag(row) for row in SLOPE])


def second_order(f):
    x, u = const(X), const(U)
    with tf.GradientTape() as outer:
        outer.watch(x)
        g = pulled(f, x, u)
    return outer.gradient(g, x, output_gradients=const(V)), U * V * CURVE


def second_order_graph(f):
    return tf.function(lambda: second_order(f)[0])(), U * V * CURVE


def second_order_across(f):
    return second_order(tf.function(f))


def second_order_xla(f):
    return tf.function(lambda: second_order(f)[0], jit_compile=True)(), U * V * CURVE


def pushed(f, x, v):
    with tf.autodiff.ForwardAccumulator(x, v) as forward:
        y = f(x)
    return forward.jvp(y)


def forward(f):
    return pushed(f, const(X), const(V)), V * SLOPE


def forward_graph(f):
    return tf.function(lambda x, v: pushed(f, x, v))(const(X), const(V)), V * SLOPE


def forward_across(f):
    """The accumulator outside, the function inside tf.function."""
    return pushed(tf.function(f), const(X), const(V)), V * SLOPE


def forward_xla(f):
    step = tf.function(lambda x, v: pushed(f, x, v), jit_compile=True)
    return step(const(X), const(V)), V * SLOPE


def forward_over_reverse(f):
    x = const(X)
    with tf.autodiff.ForwardAccumulator(x, const(V)) as forward:
        g = pulled(f, x, const(U))
    return forward.jvp(g), U * V * CURVE


def forward_over_reverse_graph(f):
    return tf.function(lambda: forward_over_reverse(f)[0])(), U * V * CURVE


def reverse_over_forward(f):
    x = const(X)
    # The accumulator has to live as long as the tape: TensorFlow forgets what it followed (tests/test_limits.py).
    forward = tf.autodiff.ForwardAccumulator(x, const(V))
    with tf.GradientTape() as tape:
        tape.watch(x)
        with forward:
            y = f(x)
        dy = forward.jvp(y)
    return tape.gradient(dy, x, output_gradients=const(U)), U * V * CURVE


def reverse_over_forward_graph(f):
    return tf.function(lambda: reverse_over_forward(f)[0])(), U * V * CURVE


def forward_over_forward(f):
    x = const(X)
    with tf.autodiff.ForwardAccumulator(x, const(U)) as outer:
        dy = pushed(f, x, const(V))
    return outer.jvp(dy), U * V * CURVE


def cond(f):
    @tf.function
    def step(x, u):
        return pulled(lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: f(x), lambda: x), x, u)

    return step(const(X), const(U)), U * SLOPE


def while_loop(f):
    def twice(x):
        def body(i, y):
            return i + 1, y + f(x)

        return tf.while_loop(lambda i, y: i < 2, body, (tf.constant(0), tf.zeros_like(x)))[1]

    return tf.function(lambda x, u: pulled(twice, x, u))(const(X), const(U)), 2 * U * SLOPE


def map_fn(f):
    def both(x):
        return tf.reduce_sum(tf.map_fn(f, tf.stack([x, x])), 0)

    return tf.function(lambda x, u: pulled(both, x, u))(const(X), const(U)), 2 * U * SLOPE


def vectorized_map(f):
    """Gradients of many examples at once: the tape is inside."""
    xs = tf.stack([const(X), const(X)])
    return tf.vectorized_map(lambda x: pulled(f, x, const(U)), xs), np.stack([U * SLOPE] * 2)


def recompute_grad(f):
    return pulled(tf.recompute_grad(lambda x: f(x)), const(X), const(U)), U * SLOPE


def cgrad_jvp(f):
    return cgrad.jvp(f, (const(X),), (const(V),))[1], V * SLOPE


def cgrad_jacobian(f):
    return cgrad.jacobian(lambda x: f(x), const(X)), JACOBIAN


def threads(f):
    found = {}

    def work(k):
        found[k] = pulled(f, const(X + k), const(U)).numpy()

    workers = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return np.stack([found[k] for k in range(8)]), np.stack([U * 100.0 * (X + k) ** 2 for k in range(8)])


class Cube(tf.keras.layers.Layer):
    """A Keras layer around one of the definers."""

    def __init__(self, definer, **kwargs):
        super().__init__(**kwargs)
        self.definer = definer

    def call(self, x):
        return DEFINERS[self.definer](x)

    def get_config(self):
        return {**super().get_config(), "definer": self.definer}


def model_around(f, jit):
    tf.keras.utils.set_random_seed(0)
    inputs = tf.keras.Input([3], dtype="float64")
    start = tf.keras.initializers.Constant(1.0)
    scaled = tf.keras.layers.Dense(3, use_bias=False, kernel_initializer=start, dtype="float64")(inputs)
    outputs = Cube(name_of(f), dtype="float64")(scaled)
    model = tf.keras.Model(inputs, outputs)
    model.compile(tf.keras.optimizers.SGD(1.0), loss=lambda t, y: tf.reduce_sum(y - t, -1), jit_compile=jit)
    return model


def trained(model):
    model.fit(X, np.zeros_like(X), batch_size=2, verbose=0, shuffle=False)
    return model.layers[1].kernel.numpy()


def due_after_fit():
    hidden = X @ np.ones([3, 3])
    return 1.0 - X.T @ (100.0 * hidden**2) / 2


def fit(f):
    return trained(model_around(f, False)), due_after_fit()


def fit_default(f):
    return trained(model_around(f, "auto")), due_after_fit()


def keras_file(f):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        model_around(f, False).save(path)
        model = tf.keras.models.load_model(path, {"Cube": Cube}, compile=False)
        x = const(X)
        return pulled(model, x, const(U)), U * 100.0 * (X @ np.ones([3, 3])) ** 2 @ np.ones([3, 3])


def in_dtype(dtype):
    def mode(f):
        due = U * SLOPE
        if dtype.is_complex:
            z = const(X, dtype) * (1 + 1j)
            w = X * (1 + 1j)
            return pulled(f, z, const(U, dtype)), U * np.conj(100.0 * w**2)
        return pulled(f, const(X, dtype), const(U, dtype)), due

    return mode


def strategy(f):
    """Two logical devices: only in a process of its own (see `fresh`)."""
    mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with mirrored.scope():
        w = tf.Variable(X, dtype=tf.float64)

    @tf.function
    def step():
        def replica():
            with tf.GradientTape() as tape:
                y = f(tf.convert_to_tensor(w))
            return tape.gradient(y, w, output_gradients=const(U))

        return mirrored.reduce("SUM", mirrored.run(replica), axis=None)

    return step(), 2 * U * SLOPE


class Saved(tf.Module):
    def __init__(self, f):
        self.f = f

    @tf.function(input_signature=[tf.TensorSpec([2, 3], tf.float64)])
    def __call__(self, x):
        return self.f(x)


MODES: dict[str, Callable] = {
    "eager": eager,
    "graph": graph,
    "graph, tape outside": graph_across,
    "unknown shapes": unknown_shapes,
    "XLA": xla,
    "jacobian, pfor": pfor,
    "jacobian, pfor in a graph": pfor_graph,
    "jacobian, loop": loop,
    "batch_jacobian": batch_jacobian,
    "second order": second_order,
    "second order in a graph": second_order_graph,
    "second order, tapes outside": second_order_across,
    "second order, XLA": second_order_xla,
    "forward": forward,
    "forward in a graph": forward_graph,
    "forward, accumulator outside": forward_across,
    "forward, XLA": forward_xla,
    "forward over reverse": forward_over_reverse,
    "forward over reverse in a graph": forward_over_reverse_graph,
    "reverse over forward": reverse_over_forward,
    "reverse over forward in a graph": reverse_over_forward_graph,
    "forward over forward": forward_over_forward,
    "cgrad.jvp": cgrad_jvp,
    "cgrad.jacobian": cgrad_jacobian,
    "tf.cond": cond,
    "tf.while_loop": while_loop,
    "tf.map_fn": map_fn,
    "tf.vectorized_map": vectorized_map,
    "tf.recompute_grad": recompute_grad,
    "threads": threads,
    "Keras fit": fit,
    "Keras fit, default compile": fit_default,
    ".keras file": keras_file,
    "float16": in_dtype(tf.float16),
    "bfloat16": in_dtype(tf.bfloat16),
    "float32": in_dtype(tf.float32),
    "complex128": in_dtype(tf.complex128),
}
FRESH = ("SavedModel, fresh process", "SavedModel, second order", "MirroredStrategy")

# Where a cell is an error: a rule in NumPy has no second derivative, does not compile, and is not in a SavedModel.
# Forward mode from outside a tf.function asks for one: TensorFlow differentiates all that the function keeps.
NO_SECOND = ("second order", "forward over", "reverse over")
NOT_FOR_NUMPY = ("XLA", "SavedModel", "accumulator outside", *NO_SECOND)


def name_of(f):
    return next(name for name, g in DEFINERS.items() if g is f)


def judged(mode, f, bar=1e-9):
    """``"right"``, ``"wrong"``, or the name of the error."""
    try:
        found, due = mode(f)
    except Exception as error:
        return type(error).__name__
    if found is None:
        return "wrong"
    found = np.asarray(found)
    if found.dtype == np.float32:
        bar = 1e-5
    elif found.dtype.itemsize == 2:
        bar = 2e-2
    kind = complex if np.iscomplexobj(due) else float
    right = found.shape == due.shape and np.allclose(found.astype(kind), due, rtol=bar, atol=bar)
    return "right" if right else "wrong"


def fresh():
    """The cells that need a process of their own, for all definers: mode -> definer -> verdict."""
    with tempfile.TemporaryDirectory() as folder:
        for k, f in enumerate(DEFINERS.values()):
            tf.saved_model.save(Saved(f), os.path.join(folder, str(k)))
        done = subprocess.run(
            [sys.executable, __file__, "--fresh", folder], capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def in_fresh_process(folder):
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    verdicts = {mode: {} for mode in FRESH}
    for k, (name, f) in enumerate(DEFINERS.items()):
        verdicts["MirroredStrategy"][name] = judged(strategy, f)
        try:
            loaded = tf.saved_model.load(os.path.join(folder, str(k)))
        except Exception as error:
            verdicts["SavedModel, fresh process"][name] = type(error).__name__
            continue
        verdicts["SavedModel, fresh process"][name] = judged(eager, loaded)
        verdicts["SavedModel, second order"][name] = judged(second_order, loaded)
    print(json.dumps(verdicts))


def table():
    """The whole table: mode -> definer -> verdict."""
    verdicts = {mode: {name: judged(run, f) for name, f in DEFINERS.items()} for mode, run in MODES.items()}
    return {**verdicts, **fresh()}


def as_markdown(verdicts):
    lines = ["| mode | " + " | ".join(DEFINERS) + " |", "|---" * (len(DEFINERS) + 1) + "|"]
    lines += [
        f"| {mode} | " + " | ".join(row.get(name, "") for name in DEFINERS) + " |" for mode, row in verdicts.items()
    ]
    return "\n".join(lines) + "\n"


# --- the tests ------------------------------------------------------------------------------------------------


def is_refused(mode, name):
    return "numpy" in name and any(part in mode for part in NOT_FOR_NUMPY)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", DEFINERS)
def test_mode(mode, name):
    verdict = judged(MODES[mode], DEFINERS[name])
    if is_refused(mode, name):
        assert verdict not in ("right", "wrong")
    else:
        assert verdict == "right"


def test_modes_in_a_fresh_process():
    for mode, row in fresh().items():
        for name, verdict in row.items():
            if is_refused(mode, name):
                assert verdict not in ("right", "wrong"), (mode, name)
            else:
                assert verdict == "right", (mode, name)


def test_the_table_in_the_documentation_is_what_is_found():
    page = pathlib.Path(__file__).parents[1] / "docs" / "reference" / "tables" / "modes.txt"
    rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in page.open()]
    names, verdicts = rows[0][1:], {row[0]: row[1:] for row in rows[2:]}
    assert names == list(DEFINERS)
    assert set(verdicts) == {*MODES, *FRESH}
    for mode, row in verdicts.items():
        for name, verdict in zip(names, row, strict=True):
            assert (verdict == "right") != is_refused(mode, name), (mode, name)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--fresh"]:
        in_fresh_process(sys.argv[2])
    else:
        text = as_markdown(table())
        pathlib.Path(sys.argv[1]).write_text(text) if sys.argv[1:] else print(text)
