"""The figure on the question's page whose x, u and v a reader may choose; what it knows, cgrad computed."""

import html
import json

import numpy as np
import tensorflow as tf
from figures import flow

import cgrad

tf.get_logger().setLevel("ERROR")  # it remarks on many small graphs

FUNCTIONS = {
    "f(x) = (x1, 2 x0)": (2, lambda x: tf.stack([x[1], 2.0 * x[0]])),
    "f(x) = (x0 x1, x0 + x1, x0²)": (2, lambda x: tf.stack([x[0] * x[1], x[0] + x[1], x[0] ** 2])),
    "f(x) = (x0² + x1² + x2²,)": (3, lambda x: tf.reduce_sum(x * x, keepdims=True)),
}


def _jacobian(f, x):
    return cgrad.jacobian(f, tf.constant(x)).numpy()


def _described(label, n, f):
    """What determines a function of at most second degree: f(0), and J at 0 and at every unit vector."""
    zero = np.zeros(n)
    return {
        "label": label,
        "value": f(tf.constant(zero)).numpy().tolist(),
        "jacobian": _jacobian(f, zero).tolist(),
        "units": [_jacobian(f, unit).tolist() for unit in np.eye(n)],
    }


def _check(index, n, f, random):
    """What cgrad finds at one point; the tests drive the figure there and compare."""
    x, v = (random.integers(-12, 13, n) / 4 for _ in range(2))
    y, pullback = cgrad.vjp(f, tf.constant(x))
    u = random.integers(-12, 13, y.shape[0]) / 4
    _, along = cgrad.jvp(f, (tf.constant(x),), (tf.constant(v),))
    found = {"x": x, "u": u, "v": v, "y": y, "J": _jacobian(f, x), "uJ": pullback(tf.constant(u)), "Jv": along}
    return {"function": index, **{name: np.asarray(value).tolist() for name, value in found.items()}}


def figure():
    """The figure as HTML: a picture at one point, which a script, where it runs, makes one of all points."""
    random = np.random.default_rng(0)
    functions = list(FUNCTIONS.items())
    described = [_described(label, n, f) for label, (n, f) in functions]
    checks = [_check(i, n, f, random) for i, (_, (n, f)) in enumerate(functions) for _ in range(4)]
    jacobian = _jacobian(functions[0][1][1], np.array([1.0, 2.0]))
    data = " ".join(
        f'data-{name}="{html.escape(json.dumps(value, ensure_ascii=False))}"'
        for name, value in (("functions", described), ("checks", checks))
    )
    return f'<div class="try-it" {data}>{flow(np.array([10.0, 3.0]), jacobian)}</div>'
