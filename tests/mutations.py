"""Right functions, and the faults that can be planted in their rules: the trial of gradcheck.

    python tests/mutations.py [--markdown FILE]

prints, for each planted fault, what was reported first, and how many were detected and named. A fault is planted by
wrapping the right rule, so that the same slip is tried on functions of every kind; where it changes nothing (a diagonal
Jacobian transposed), or makes another fault of it, it is left out by the function's own tags.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

import cgrad

RANDOM = np.random.default_rng(0)
D, Z = tf.float64, tf.complex128


def normal(*shape, dtype=D):
    return tf.cast(tf.constant(RANDOM.normal(size=shape)), dtype)


W3, W43 = normal(3, 3), normal(4, 3)


@dataclass
class Right:
    """A right function: ``forward(*x)`` and ``rule(u, *x)``, a list with one gradient for each input.

    Tags: "elementwise", "square" (an asymmetric square Jacobian), "vector" (one vector in, one out), "broadcast"
    (the last input is broadcast), "pair" (two inputs of one shape, neither symmetric), "outputs" (two), "complex",
    "real" (its rule can change sign), "curved" (a second derivative), "opaque" (NumPy in the forward pass).
    """

    forward: Callable[..., Any]
    rule: Callable[..., list[Any]]
    inputs: list[Any]
    tags: set[str] = field(default_factory=set)


def softmax_rule(u, x):
    y = tf.nn.softmax(x)
    return [y * (u - tf.reduce_sum(u * y, -1, keepdims=True))]


def normalised(x):
    centred = x - tf.reduce_mean(x, -1, keepdims=True)
    return centred / tf.sqrt(tf.reduce_mean(centred**2, -1, keepdims=True) + 1e-3)


def normalised_rule(u, x):
    y = normalised(x)
    centred = x - tf.reduce_mean(x, -1, keepdims=True)
    s = tf.sqrt(tf.reduce_mean(centred**2, -1, keepdims=True) + 1e-3)
    mean = lambda a: tf.reduce_mean(a, -1, keepdims=True)  # noqa: E731
    return [(u - mean(u) - y * mean(u * y)) / s]


def correlate(x, taps):
    padded = tf.pad(x, [[1, 1]])
    return sum(t * padded[k : k + 5] for k, t in enumerate(taps))


def numpy_sine(x):
    return tf.ensure_shape(tf.numpy_function(np.sin, [x], x.dtype), x.shape)


RIGHT = {
    "sine": Right(tf.sin, lambda u, x: [u * tf.cos(x)], [normal(4)], {"elementwise", "vector", "real", "curved"}),
    "square": Right(lambda x: x * x, lambda u, x: [2.0 * x * u], [normal(2, 3)], {"elementwise", "real", "curved"}),
    "exp": Right(tf.exp, lambda u, x: [u * tf.exp(x)], [normal(3)], {"elementwise", "vector", "real", "curved"}),
    "sum of squares": Right(
        lambda x: tf.reduce_sum(x * x), lambda u, x: [2.0 * u * x], [normal(4)], {"real", "curved", "scalar"}
    ),
    "matvec": Right(
        lambda x: tf.linalg.matvec(W3, x),
        lambda u, x: [tf.linalg.matvec(W3, u, transpose_a=True)],
        [normal(3)],
        {"square", "vector", "real"},
    ),
    "tall matvec": Right(
        lambda x: tf.linalg.matvec(W43, x),
        lambda u, x: [tf.linalg.matvec(W43, u, transpose_a=True)],
        [normal(3)],
        {"vector", "real"},
    ),
    "cumulative sum": Right(
        tf.cumsum, lambda u, x: [tf.cumsum(u, reverse=True)], [normal(4)], {"square", "vector", "real"}
    ),
    "correlation": Right(
        lambda x: correlate(x, [0.5, 2.0, -1.0]),
        lambda u, x: [correlate(u, [-1.0, 2.0, 0.5])],
        [normal(5)],
        {"square", "vector", "real"},
    ),
    "matmul": Right(
        lambda a, b: a @ b,
        lambda u, a, b: [tf.matmul(u, b, transpose_b=True), tf.matmul(a, u, transpose_a=True)],
        [normal(3, 3), normal(3, 3)],
        {"pair", "real", "curved"},
    ),
    "scaled rows": Right(
        lambda x, s: x * s,
        lambda u, x, s: [u * s, tf.reduce_sum(u * x, 0)],
        [normal(4, 3), normal(3)],
        {"broadcast", "real", "curved"},
    ),
    "product": Right(
        lambda a, b: a * a * b,
        lambda u, a, b: [2.0 * a * b * u, u * a * a],
        [normal(3), normal(3)],
        {"pair", "real", "curved"},
    ),
    "softmax": Right(tf.nn.softmax, softmax_rule, [normal(2, 4)], {"real", "curved"}),
    "log-sum-exp": Right(
        lambda x: tf.reduce_logsumexp(x, -1),
        lambda u, x: [u[..., None] * tf.nn.softmax(x)],
        [normal(2, 3)],
        {"real", "curved"},
    ),
    "layer norm": Right(normalised, normalised_rule, [normal(2, 5)], {"real", "curved"}),
    "gather": Right(
        lambda x: tf.gather(x, [2, 0, 2]) ** 2,
        lambda u, x: [tf.math.unsorted_segment_sum(2.0 * u * tf.gather(x, [2, 0, 2]), [2, 0, 2], 4)],
        [normal(4)],
        {"real", "curved"},
    ),
    "two outputs": Right(
        lambda x: (x * x, tf.sin(x)),
        lambda u, x: [2.0 * x * u[0] + tf.cos(x) * u[1]],
        [normal(3)],
        {"outputs", "curved"},
    ),
    "complex exp": Right(
        tf.exp,
        lambda u, z: [u * tf.math.conj(tf.exp(z))],
        [tf.complex(normal(3), normal(3))],
        {"complex", "elementwise", "curved"},
    ),
    "squared modulus": Right(
        lambda z: tf.math.real(z) ** 2 + tf.math.imag(z) ** 2,
        lambda u, z: [2.0 * tf.cast(u, Z) * z],
        [tf.complex(normal(3), normal(3))],
        {"complex", "elementwise", "curved"},
    ),
    "NumPy inside": Right(numpy_sine, lambda u, x: [u * tf.cos(x)], [normal(3)], {"elementwise", "vector", "opaque"}),
    "float32": Right(
        lambda x: tf.tanh(x) * x,
        lambda u, x: [u * (tf.tanh(x) + x * (1.0 - tf.tanh(x) ** 2))],
        [normal(4, dtype=tf.float32)],
        {"elementwise", "vector", "real", "curved"},
    ),
}


# --- the faults -----------------------------------------------------------------------------------------------------


@dataclass
class Fault:
    """A way to be wrong: where it applies, the names that fit, and how the right function is spoilt."""

    names: tuple[str, ...]
    applies: Callable[[Right], bool]
    plant: Callable[[Right], tuple[Callable[..., Any], list[Any]]]
    options: dict[str, Any] = field(default_factory=dict)


FAULTS: dict[str, Fault] = {}


def decorated(right, rule):
    @tf.custom_gradient
    def f(*x):
        def grad(*u):
            return rule(u[0] if len(u) == 1 else list(u), *x)

        return right.forward(*x), grad

    return f, right.inputs


def has(*tags):
    return lambda right: all(tag in right.tags for tag in tags)


def by_rule(name, names, applies=lambda right: True, **options):
    """A fault in what the rule returns: ``spoil(rule, u, *x)``."""

    def register(spoil):
        def plant(right):
            return decorated(right, lambda u, *x: spoil(right.rule, u, *x))

        FAULTS[name] = Fault((names,) if isinstance(names, str) else names, applies, plant, options)
        return spoil

    return register


def one_input(right):
    return len(right.inputs) == 1


def several(right):
    return len(right.inputs) > 1


single_output = lambda right: "outputs" not in right.tags  # noqa: E731


# where the answer to ones is zero (softmax, layer norm), nothing tells this from a rule that returns zeros
@by_rule("upstream left out", ("upstream-ignored", "wrong-value"), single_output)
def _(rule, u, *x):
    return rule(tf.ones_like(u), *x)


@by_rule("upstream squared", "nonlinear-in-upstream", single_output)
def _(rule, u, *x):
    return rule(u * u, *x)


@by_rule("upstream without its sign", "nonlinear-in-upstream", has("real"))
def _(rule, u, *x):
    return rule(tf.abs(u), *x)


@by_rule("upstream clipped", "nonlinear-in-upstream", has("real"))
def _(rule, u, *x):
    return rule(tf.clip_by_value(u, -1.0, 1.0), *x)


@by_rule("sign lost", "constant-factor")
def _(rule, u, *x):
    return [-g for g in rule(u, *x)]


@by_rule("twice as much", "constant-factor")
def _(rule, u, *x):
    return [2.0 * g for g in rule(u, *x)]


@by_rule("a third", "constant-factor")
def _(rule, u, *x):
    return [g / 3.0 for g in rule(u, *x)]


@by_rule("another dtype", "wrong-dtype", lambda right: "complex" not in right.tags)
def _(rule, u, *x):
    other = tf.float32 if x[0].dtype == tf.float64 else tf.float64
    return [tf.cast(g, other) for g in rule(u, *x)]


@by_rule("a leading axis too many", ("wrong-shape", "not-unbroadcast"))
def _(rule, u, *x):
    return [g[None] for g in rule(u, *x)]


@by_rule("summed to one number", ("wrong-reduction", "wrong-shape"))
def _(rule, u, *x):
    return [tf.reduce_sum(g) for g in rule(u, *x)]


@by_rule(
    "every entry the sum",
    ("wrong-reduction", "wrong-value"),
    lambda right: one_input(right) and "complex" not in right.tags,
)
def _(rule, u, *x):
    return [tf.zeros_like(g) + tf.reduce_sum(g) for g in rule(u, *x)]


@by_rule("sum over a broadcast axis left out", "not-unbroadcast", has("broadcast"))
def _(rule, u, x, s):
    return [u * s, u * x]


@by_rule("product with J, not J^T", "transposed-jacobian", has("square"))
def _(rule, u, x):
    rows = tf.stack([rule(e, x)[0] for e in tf.unstack(tf.eye(3 if x.shape[0] == 3 else x.shape[0], dtype=D))])
    return [tf.linalg.matvec(rows, u)]


@by_rule("the Jacobian itself", "jacobian-returned", has("vector"))
def _(rule, u, x):
    size = u.shape[0]
    return [tf.stack([rule(e, x)[0] for e in tf.unstack(tf.eye(size, dtype=u.dtype))])]


@by_rule("upstream passed on", "local-derivative-missing", has("elementwise"))
def _(rule, u, x):
    return [tf.cast(u, x.dtype)]


@by_rule("gradients swapped", "swapped-gradients", has("pair"))
def _(rule, u, a, b):
    return rule(u, a, b)[::-1]


@by_rule("one gradient too many", "wrong-arity")
def _(rule, u, *x):
    return [*rule(u, *x), tf.zeros_like(x[0])]


@by_rule("one gradient too few", "wrong-arity", several)
def _(rule, u, *x):
    return rule(u, *x)[:1]


@by_rule("None for the last input", "none-returned", lambda right: several(right))
def _(rule, u, *x):
    return [*rule(u, *x)[:-1], None]


@by_rule("NaN in one entry", "nan-at-point", lambda right: "complex" not in right.tags)
def _(rule, u, *x):
    return [
        tf.where(tf.reshape(tf.range(tf.size(g)), tf.shape(g)) == 1, tf.cast(np.nan, g.dtype), g) for g in rule(u, *x)
    ]


@by_rule("one entry off by a thousandth", ("wrong-value",), lambda right: "opaque" not in right.tags)
def _(rule, u, *x):
    g, *rest = rule(u, *x)
    spike = tf.reshape(tf.range(tf.size(g)), tf.shape(g)) == 0
    return [g * tf.where(spike, tf.cast(1.001, g.dtype), tf.cast(1.0, g.dtype)), *rest]


@by_rule("conjugate left out", "missing-conjugate", has("complex"))
def _(rule, u, z):
    return [tf.math.conj(rule(tf.math.conj(u), z)[0])]


@by_rule("second output left out", "output-ignored", has("outputs"))
def _(rule, u, x):
    return rule([u[0], tf.zeros_like(u[1])], x)


@by_rule("noise in the rule", "nondeterministic", lambda right: "complex" not in right.tags)
def _(rule, u, *x):
    return [g * tf.cast(1.0 + 1e-3 * tf.random.normal(()), g.dtype) for g in rule(u, *x)]


@by_rule(".numpy() on the upstream", ("pfor-unfriendly", "graph-unfriendly"), single_output)
def _(rule, u, *x):
    return rule(tf.constant(u.numpy()), *x)


@by_rule("an if on the upstream", "graph-unfriendly", has("real", "vector"))
def _(rule, u, *x):
    return rule(u, *x) if u[0] > -1e9 else [None]


@by_rule(
    "derivative as a constant",
    "backward-not-differentiable",
    lambda right: "curved" in right.tags and one_input(right) and single_output(right),
)
def _(rule, u, *x):
    return rule(u, *[tf.stop_gradient(v) for v in x])


@by_rule("a name that is not there", "raises")
def _(rule, u, *x):
    return rule(u, *y)  # noqa: F821


def planted(name, names, applies=lambda right: True, **options):
    """A fault of the function around the rule."""

    def register(plant):
        FAULTS[name] = Fault((names,) if isinstance(names, str) else names, applies, plant, options)
        return plant

    return register


@planted("no rule returned", "missing-grad-fn", single_output)
def _(right):
    return tf.custom_gradient(right.forward), right.inputs


@planted("forward pass through NumPy", "tape-broken", lambda right: one_input(right) and single_output(right))
def _(right):
    return lambda x: right.forward(tf.constant(x.numpy())), right.inputs


@planted("an input by closure", ("captured-tensor",), lambda right: "pair" in right.tags or "broadcast" in right.tags)
def _(right):
    def f(a, b):
        @tf.custom_gradient
        def inner(a):
            return right.forward(a, b), lambda u: right.rule(u, a, b)[0]

        return inner(a)

    return f, right.inputs


@planted("called by keyword", "kwargs-unsupported", one_input)
def _(right):
    @tf.custom_gradient
    def inner(x):
        return right.forward(x), lambda *u: right.rule(u[0] if len(u) == 1 else list(u), x)[0]

    return lambda x: inner(x=x), right.inputs


@planted("an integer input", "integer-input", has("elementwise", "real"))
def _(right):
    f, _ = decorated(right, right.rule)
    return lambda x: f(tf.cast(x, tf.float64)), [tf.constant([1, 2, 3])]


@planted("an integer output", "integer-output", has("elementwise", "real"))
def _(right):
    @tf.custom_gradient
    def whole(x):
        return tf.cast(5.0 * right.forward(x), tf.int32), lambda u: 5.0 * right.rule(u, x)[0]

    return lambda x: tf.cast(whole(x), x.dtype), right.inputs


@planted("a variable without `variables`", "variables-missing", has("elementwise", "real"))
def _(right):
    gain = tf.Variable(1.5, dtype=right.inputs[0].dtype)

    @tf.custom_gradient
    def f(x):
        return gain * right.forward(x), lambda u: gain * right.rule(u, x)[0]

    return f, right.inputs


@planted("variables' gradients in another order", "variables-order", has("elementwise", "real"))
def _(right):
    slope = tf.Variable(1.5, dtype=right.inputs[0].dtype, name="slope")
    level = tf.Variable(0.5, dtype=right.inputs[0].dtype, name="level")

    @tf.custom_gradient
    def f(x):
        def grad(u, variables=None):
            return slope * right.rule(u, x)[0], [tf.reduce_sum(u * right.forward(x)), tf.reduce_sum(u)]

        return slope * right.forward(x) + level, grad

    return f, right.inputs


@planted("state of a later call", ("stale-state",), has("elementwise", "curved", "real"))
def _(right):
    kept = []

    @tf.custom_gradient
    def f(x):
        kept[:] = [x]
        return right.forward(x), lambda u: right.rule(u, kept[0])[0]

    return lambda x: f(x) + 3.0 * f(0.5 * x), right.inputs


@planted(
    "the rule's own rule is wrong", "second-order-wrong", lambda right: has("elementwise", "curved", "real")(right)
)
def _(right):
    @tf.custom_gradient
    def slope(x, u):
        def grad(w):
            with tf.GradientTape() as tape:
                tape.watch([x, u])
                g = right.rule(u, x)[0]
            dx, du = tape.gradient(g, [x, u], output_gradients=w)
            return 2.0 * dx, du

        return right.rule(u, x)[0], grad

    @tf.custom_gradient
    def f(x):
        return right.forward(x), lambda u: slope(x, u)

    return f, right.inputs


# --- the trial ------------------------------------------------------------------------------------------------------


def mutants():
    """Every fault in every function it applies to."""
    return [(fault, right) for fault, f in FAULTS.items() for right, r in RIGHT.items() if f.applies(r)]


def check(fault, right):
    """The names that gradcheck reports for one mutant."""
    tf.random.set_seed(0)  # the noise of one mutant is the same in every trial: the table is compared to the letter
    f, inputs = FAULTS[fault].plant(RIGHT[right])
    return [found.name for found in cgrad.gradcheck(f, *inputs, **FAULTS[fault].options).faults]


def check_right(right):
    f, inputs = decorated(RIGHT[right], RIGHT[right].rule)
    order = 1 if "opaque" in RIGHT[right].tags else 2
    return cgrad.gradcheck(f, *inputs, order=order)


def trial():
    """What came of every mutant: (fault, function) -> names."""
    return {pair: check(*pair) for pair in mutants()}


def table(found):
    lines = ["| planted | functions | reported first | named | detected |", "|---|---|---|---|---|"]
    for fault, kind in FAULTS.items():
        results = [names for (planted_fault, _), names in found.items() if planted_fault == fault]
        first = Counter(names[0] if names else "nothing" for names in results)
        shown = ", ".join(f"{name} {count}" for name, count in first.most_common())
        named = sum(bool(set(names) & set(kind.names)) for names in results)
        detected = sum(bool(names) for names in results)
        lines.append(f"| {fault} | {len(results)} | {shown} | {named} | {detected} |")
    named = sum(bool(set(names) & set(FAULTS[fault].names)) for (fault, _), names in found.items())
    detected = sum(bool(names) for names in found.values())
    lines.append(f"| **all {len(FAULTS)} faults, {len(RIGHT)} functions** | {len(found)} | | {named} | {detected} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown")
    options = parser.parse_args()
    found = trial()
    for (fault, right), names in found.items():
        if not set(names) & set(FAULTS[fault].names):
            print(f"not named: {fault} in {right}: wanted {FAULTS[fault].names}, got {names}")
    print(table(found))
    print("right functions with a fault:", [name for name in RIGHT if not check_right(name)])
    if options.markdown:
        with open(options.markdown, "w") as file:
            file.write(table(found))


if __name__ == "__main__":
    main()
