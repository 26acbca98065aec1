"""What audit meets in models of Keras, and what it costs against the plain forward pass.

python tests/bench/audit.py [--json FILE]
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import resource
import statistics
import time

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import tensorflow as tf

import cgrad

SMALL = (64, 64, 3)


def application(name):
    model = getattr(keras.applications, name)(weights=None, input_shape=SMALL)
    x = tf.random.stateless_normal((1, *SMALL), [1, 2])
    return lambda: model(x, training=False)


def transformer():
    attention, norm = keras.layers.MultiHeadAttention(4, 16), keras.layers.LayerNormalization()
    first, second = keras.layers.Dense(64, "gelu"), keras.layers.Dense(32)
    x = tf.random.stateless_normal((2, 16, 32), [1, 2])

    def block():
        y = norm(x + attention(x, x))
        return norm(y + second(first(y)))

    return block


def recurrent():
    layer = keras.layers.LSTM(16)
    x = tf.random.stateless_normal((2, 10, 8), [1, 2])
    layer(x)

    def step():
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(tf.recompute_grad(lambda t: layer(t))(x))
        return tape.gradient(y, layer.trainable_variables)

    return step


def silu():
    x, beta = tf.random.stateless_normal((4, 8), [1, 2]), tf.ones(8)
    return lambda: tf.nn.silu(x @ tf.eye(8), beta)


MODELS = {
    "MobileNetV3Small": lambda: application("MobileNetV3Small"),
    "EfficientNetB0": lambda: application("EfficientNetB0"),
    "ConvNeXtTiny": lambda: application("ConvNeXtTiny"),
    "transformer block": transformer,
    "LSTM with recompute_grad, a training step": recurrent,
    "silu with a vector beta": silu,
}


def in_turn(*thunks, repeats=31):
    """The median time of each, run in turn so that a drift of the machine's speed meets them all."""
    seconds = [[] for _ in thunks]
    for _ in range(repeats):
        for thunk, found in zip(thunks, seconds, strict=True):
            start = time.perf_counter()
            thunk()
            found.append(time.perf_counter() - start)
    return [statistics.median(found) for found in seconds]


def listed(thunk):
    """The time inside the block alone: the checks come when it ends."""

    def run():
        with cgrad.audit(max_checks=0):
            thunk()

    return run


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json")
    options = parser.parse_args()
    rows = {}
    for name, make in MODELS.items():
        thunk = make()
        thunk()
        plain, inside = in_turn(thunk, listed(thunk))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with cgrad.audit() as found:
            thunk()
        rows[name] = {
            "met": len(found.met),
            "calls": sum(m.count for m in found.met),
            "wrong": [m.name for m in found.met if not m.ok],
            "block / plain": round(inside / plain, 3),
            "checks / plain": round(found.seconds / plain, 1),
            "more MB at the peak": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024,
        }
        print(name, rows[name], flush=True)
    if options.json:
        result = {"date": datetime.date.today().isoformat(), "tensorflow": tf.__version__, "models": rows}
        with open(options.json, "w") as file:
            json.dump(result, file, indent=2)
            file.write("\n")


if __name__ == "__main__":
    main()
