"""What gradcheck costs, what it sees, and whether it ever cries wolf.

    python tests/bench/gradcheck.py [cost] [sensitivity] [flakiness] [--seeds N] [--json FILE]

Times are medians, compared within one run; what can be counted is counted. Not a test: nothing fails here.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import time

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import keras
import numpy as np
import tensorflow as tf

import cgrad

FIRST = {"order": 1, "modes": ("eager",)}


def median(thunk, repeats):
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        thunk()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def tanh_layer(n, dtype=tf.float64, wrong=None):
    """y = tanh(W x) with its rule; ``wrong`` is the relative error of one entry of W in the rule."""
    random = np.random.default_rng(0)
    w = random.normal(size=(n, n)) / np.sqrt(n)
    in_rule = w.copy()
    if wrong is not None:
        in_rule[n // 3, n // 2] *= 1.0 + wrong
    forward, backward = tf.constant(w, dtype), tf.constant(in_rule, dtype)

    @tf.custom_gradient
    def layer(x):
        y = tf.tanh(tf.linalg.matvec(forward, x))
        return y, lambda u: tf.linalg.matvec(backward, u * (1.0 - y * y), transpose_a=True)

    return layer, tf.constant(random.normal(size=n), dtype)


@tf.custom_gradient
def square(x):
    return x * x, lambda upstream: 2.0 * x * upstream


@tf.custom_gradient
def sine(x):
    return tf.sin(x), lambda upstream: upstream * tf.cos(x)


def cost(_):
    layer, x = tanh_layer(1000)
    cgrad.gradcheck(layer, x, **FIRST)
    ours = median(lambda: cgrad.gradcheck(layer, x, **FIRST), 15)
    theirs = median(lambda: tf.test.compute_gradient(layer, [x]), 3)
    found = {"tanh(W x), n = 1000: compute_gradient / gradcheck": round(theirs / ours, 1)}
    for size in (3, 1000, 10**6):
        report = cgrad.gradcheck(sine, tf.constant(np.random.default_rng(0).normal(size=size)), **FIRST)
        found[f"evaluations, backward passes at n = {size}"] = [report.evaluations, report.pulls]
    small = tf.constant([0.5, -1.0, 2.0], tf.float64)
    found["default call, small function, seconds"] = round(median(lambda: cgrad.gradcheck(square, small), 9), 4)
    large = tf.constant(np.random.default_rng(0).normal(size=10**6))
    found["default call, 10^6 inputs element-wise, seconds"] = round(median(lambda: cgrad.gradcheck(sine, large), 3), 3)
    return found


def sensitivity(seeds):
    n = 10**6
    x = tf.constant(np.random.default_rng(0).normal(size=n))
    seen = 0
    for seed in range(min(seeds, 100)):
        mask = np.ones(n)
        mask[np.random.default_rng(seed).integers(n)] += 1e-6
        factor = tf.constant(mask)

        @tf.custom_gradient
        def f(x, factor=factor):
            return tf.sin(x), lambda upstream: upstream * tf.cos(x) * factor

        seen += not cgrad.gradcheck(lambda x, f=f: f(x), x, seed=seed, **FIRST)
    found = {"one of 10^6 entries off by 1e-6 relative, seeds that see it": f"{seen} of {min(seeds, 100)}"}
    for dtype in (tf.float64, tf.float32):
        layer, x = tanh_layer(1000, dtype, wrong=1e-3)
        hits = sum(not cgrad.gradcheck(layer, x, seed=seed, **FIRST) for seed in range(20))
        found[f"one of 10^6 Jacobian entries off by 1e-3, tanh(W x), {dtype.name}"] = f"{hits} of 20"
    return found


def right_functions(dtype):
    """Functions with a right rule, and plain ones; each with a maker of inputs."""
    random = np.random.default_rng(1)
    w = tf.cast(tf.constant(random.normal(size=(4, 3))), dtype)

    @tf.custom_gradient
    def layer(x):
        y = tf.tanh(tf.linalg.matvec(w, x))
        return y, lambda u: tf.linalg.matvec(w, u * (1.0 - y * y), transpose_a=True)

    @tf.custom_gradient
    def softplus(x):
        return tf.math.softplus(x), lambda u: u * tf.sigmoid(x)

    @tf.custom_gradient
    def softmax(x):
        y = tf.nn.softmax(x)
        return y, lambda u: y * (u - tf.reduce_sum(u * y, -1, keepdims=True))

    @tf.custom_gradient
    def logsumexp(x):
        y = tf.reduce_logsumexp(x, -1)
        return y, lambda u: u[..., None] * tf.exp(x - y[..., None])

    @tf.custom_gradient
    def direction(x):
        r = tf.sqrt(tf.reduce_sum(x * x))
        y = x / r
        return y, lambda u: (u - y * tf.reduce_sum(u * y)) / r

    @tf.custom_gradient
    def product(a, b):
        return a * b, lambda u: (u * b, tf.reduce_sum(u * a, 0))

    @tf.custom_gradient
    def matmul(a, b):
        return a @ b, lambda u: (tf.matmul(u, b, transpose_b=True), tf.matmul(a, u, transpose_a=True))

    @tf.custom_gradient
    def cumsum(x):
        return tf.cumsum(x), lambda u: tf.cumsum(u, reverse=True)

    def layer_norm(x):
        centred = x - tf.reduce_mean(x, -1, keepdims=True)
        return centred * tf.math.rsqrt(tf.reduce_mean(centred**2, -1, keepdims=True) + tf.cast(1e-5, dtype))

    one = lambda *shape: [shape]  # noqa: E731
    return {
        "tanh(W x)": (layer, one(3)),
        "softplus": (softplus, one(5)),
        "softmax": (softmax, one(2, 4)),
        "logsumexp": (logsumexp, one(2, 3)),
        "direction": (direction, one(4)),
        "product": (product, [(3, 2), (2,)]),
        "matmul": (matmul, [(2, 3), (3, 2)]),
        "cumsum": (cumsum, one(5)),
        "layer norm": (layer_norm, one(2, 5)),
        "exp": (tf.exp, one(4)),
        "relu": (tf.nn.relu, one(6)),
        "gelu": (tf.nn.gelu, one(4)),
        "plain matmul": (tf.matmul, [(2, 3), (3, 2)]),
        "plain logsumexp": (lambda x: tf.reduce_logsumexp(x, -1), one(2, 3)),
        "std": (tf.math.reduce_std, one(6)),
        "large offset": (lambda x: tf.sin(x) * tf.cast(1e4, dtype) + tf.cast(1e4, dtype), one(3)),
        "sort": (tf.sort, one(5)),
        "max": (tf.reduce_max, one(5)),
    }


def flakiness(seeds):
    dense = keras.layers.Dense(3, "tanh")
    dense(tf.ones((1, 2)))
    alarms, checks = [], 0
    for dtype in (tf.float64, tf.float32, tf.bfloat16, tf.float16):
        table = right_functions(dtype)
        if dtype == tf.float32:
            table["keras Dense"] = (lambda x: dense(x), [(4, 2)])
        for name, (f, shapes) in table.items():
            for seed in range(seeds // len(table) + 1):
                random = np.random.default_rng(1000 + seed)
                scale = [1.0, 1.0, 1.0, 1e-3, 30.0][seed % 5] if dtype in (tf.float64, tf.float32) else 1.0
                inputs = [tf.cast(tf.constant(scale * random.normal(size=shape)), dtype) for shape in shapes]
                report = cgrad.gradcheck(f, *inputs, seed=seed, **FIRST)
                checks += 1
                if not report:
                    alarms.append(f"{name}, {dtype.name}, seed {seed}: {report.faults[0].name}")
    for line in alarms[:20]:
        print("   ", line)
    return {"false alarms": f"{len(alarms)} of {checks} checks"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=["cost", "sensitivity", "flakiness"])
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--json")
    options = parser.parse_args()
    result = {
        "date": datetime.date.today().isoformat(),
        "tensorflow": tf.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }
    for name in options.what:
        result[name] = {"cost": cost, "sensitivity": sensitivity, "flakiness": flakiness}[name](options.seeds)
        for line, value in result[name].items():
            print(f"{line}: {value}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(result, file, indent=2)
            file.write("\n")


if __name__ == "__main__":
    main()
