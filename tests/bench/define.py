"""What the definers cost, as ratios within one run: ``python tests/bench/define.py``.

custom_vjp against tf.custom_gradient, tape.jacobian of a custom_jacobian against evaluating that Jacobian, and the
memory that a diagonal or an operator takes at 100,000 entries (a dense Jacobian would take 80 GB).
"""

from __future__ import annotations

import argparse
import collections
import datetime
import json
import resource
import statistics
import time

import tensorflow as tf

import cgrad


def square(x):
    return x * x, lambda u: 2.0 * x * u


def swap(x):
    def grad(u):
        return tf.stack([2.0 * u[1], u[0]])

    return tf.stack([x[1], 2.0 * x[0]]), grad


def softplus(x):
    e = tf.exp(-tf.abs(x))

    def grad(u):
        return u * tf.where(x >= 0, 1.0 / (1.0 + e), e / (1.0 + e))

    return tf.maximum(x, 0.0) + tf.math.log1p(e), grad


def forward_and_gradient(f):
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        return tape.gradient(y, x)

    return step


def ratio(ours, theirs, repeats=40, number=50):
    """The median of the ratios of turns that follow each other, so that a busy machine hits both."""
    for _ in range(number):
        ours(), theirs()
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(number):
            ours()
        middle = time.perf_counter()
        for _ in range(number):
            theirs()
        found.append((middle - start) / (time.perf_counter() - middle))
    return statistics.median(found)


def eager_ratio(f):
    x = tf.constant([1.0, 2.0])
    ours, theirs = (forward_and_gradient(define(f)) for define in (cgrad.custom_vjp, tf.custom_gradient))
    return ratio(lambda: ours(x), lambda: theirs(x))


def graph_ratio(f):
    x = tf.constant([1.0, 2.0])
    ours, theirs = (tf.function(forward_and_gradient(define(f))) for define in (cgrad.custom_vjp, tf.custom_gradient))
    return ratio(lambda: ours(x), lambda: theirs(x), number=200)


def operations(define, f, spec=None):
    """How many of each operation are in the graph of forward pass and gradient."""
    spec = spec or tf.TensorSpec([2], tf.float32)
    graph = tf.function(forward_and_gradient(define(f))).get_concrete_function(spec).graph
    return collections.Counter(op.type for op in graph.get_operations())


def jacobian_ratio(n=1000):
    """tape.jacobian of y = tanh(W x) with its Jacobian by hand, against evaluating that Jacobian; in tf.function."""
    w = tf.random.stateless_normal([n, n], [1, 2], dtype=tf.float64) / n**0.5
    x = tf.random.stateless_normal([n], [3, 4], dtype=tf.float64)

    def by_hand(x):
        return (1.0 - tf.tanh(tf.linalg.matvec(w, x)) ** 2)[:, tf.newaxis] * w

    @cgrad.custom_jacobian(by_hand)
    def f(x):
        return tf.tanh(tf.linalg.matvec(w, x))

    def by_tape(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        return tape.jacobian(y, x)

    ours, theirs = tf.function(by_tape), tf.function(by_hand)
    assert float(tf.reduce_max(tf.abs(ours(x) - theirs(x)))) == 0.0
    return ratio(lambda: ours(x), lambda: theirs(x), number=10)


def memory(define, n):
    """Megabytes that the largest moment of gradient and forward mode adds."""
    f = define()
    x = tf.linspace(0.0, 1.0, n)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    forward_and_gradient(f)(x)
    with tf.autodiff.ForwardAccumulator(x, tf.ones_like(x)) as accumulator:
        y = f(x)
    accumulator.jvp(y)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def diagonal():
    return cgrad.custom_jacobian(lambda x: tf.cos(x), diagonal=True)(tf.sin)


def operator():
    return cgrad.custom_jacobian(lambda x: tf.linalg.LinearOperatorDiag(tf.cos(x)))(tf.sin)


def sparse():
    def band(x):
        n = tf.size(x, tf.int64)
        index = tf.range(n)
        return tf.SparseTensor(tf.stack([index, index], 1), tf.cos(x), tf.stack([n, n]))

    return cgrad.custom_jacobian(band)(tf.sin)


def ratios():
    """What each definer costs against what it stands beside."""
    found = {}
    for f in (square, swap, softplus):
        found[f"custom_vjp / tf.custom_gradient, {f.__name__}, eager forward + gradient"] = eager_ratio(f)
    for f in (square, swap, softplus):
        same = operations(cgrad.custom_vjp, f) == operations(tf.custom_gradient, f)
        found[f"the same, {f.__name__}, in tf.function ({'the same' if same else 'OTHER'} operations)"] = graph_ratio(f)
    found["tape.jacobian of a custom_jacobian / the Jacobian alone, n = 1000"] = jacobian_ratio()
    return {what: round(value, 2) for what, value in found.items()}


def megabytes():
    """What the largest moment adds, for Jacobians that are never made dense."""
    found = {}
    for define in (diagonal, operator, sparse):
        memory(define, 100)  # what the first call loads is no cost of the size
        for n in (100_000, 1_000_000):
            found[f"{define.__name__}, n = {n:,}"] = round(memory(define, n))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json")
    options = parser.parse_args()
    result = {"ratios": ratios(), "MB more at the peak": megabytes()}
    for title, rows in result.items():
        print(f"\n| what | {title} |\n|---|---|")
        for what, value in rows.items():
            print(f"| {what} | {value} |")
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"date": datetime.date.today().isoformat(), **result}, file, indent=2)
            file.write("\n")


if __name__ == "__main__":
    main()
