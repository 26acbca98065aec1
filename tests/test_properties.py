"""Random functions: every definer and every transform agrees with autodiff, and gradcheck sees what is planted.

A function is drawn: structures of outputs, shapes with empty, scalar, size-1 and broadcast axes, dtypes, real and
complex, linear and smooth. Its true derivative is TensorFlow's autodiff of the same operations. The budget of an
ordinary run is fixed, and the examples are the same each time; for more, and for other ones at each run:

    CGRAD_EXAMPLES=300 python -m pytest tests/test_properties.py

Every counter-example found on the way stands at the end of this file as a plain test.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import cgrad

MORE = int(os.environ.get("CGRAD_EXAMPLES", "0"))
TOLERANCE = {"float32": 2e-4, "float64": 1e-9, "complex64": 2e-4, "complex128": 1e-9}


def budget(ordinary):
    """Settings of one test: ``ordinary`` examples, always the same, or as many as the environment asks for."""
    return settings(
        max_examples=MORE or ordinary,
        derandomize=not MORE,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink] if MORE else [Phase.generate],
    )


# --- random functions -----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Function:
    """A function of several tensors: each output is a sum of terms, a smooth function of a linear map of one input.

    A term is ``shape(M vec(x_k))`` for a constant matrix M, times another input where there is one; an elementwise term
    broadcasts x_k to the output. All in one dtype.
    """

    dtype: str
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]
    terms: tuple[tuple[int, str, int], ...]  # for each output in turn: which input, what is done, which other input
    structure: str
    seed: int

    def __repr__(self):
        parts = (f"{k}={getattr(self, k)!r}" for k in ("dtype", "inputs", "outputs", "terms", "structure", "seed"))
        return f"Function({', '.join(parts)})"

    # --- the point and the matrices

    def random(self, *key):
        return np.random.default_rng([self.seed, *key])

    def draw(self, shape, *key):
        random = self.random(*key)
        real = random.uniform(0.3, 1.2, shape) * random.choice([-1.0, 1.0], shape)
        if self.dtype.startswith("complex"):
            real = real + 1j * random.uniform(-1.0, 1.0, shape)
        return tf.cast(tf.constant(real), self.dtype)

    def point(self):
        return [self.draw(shape, 1, k) for k, shape in enumerate(self.inputs)]

    def upstream(self):
        return self.packed([self.draw(shape, 2, k) for k, shape in enumerate(self.outputs)])

    def tangents(self):
        return [self.draw(shape, 3, k) for k, shape in enumerate(self.inputs)]

    # --- the function

    def packed(self, outputs):
        if self.structure == "one":
            return outputs[0]
        if self.structure == "dict":
            return {f"k{len(outputs) - i}": y for i, y in enumerate(outputs)}
        return tuple(outputs) if self.structure == "tuple" else [outputs[0], tuple(outputs[1:])]

    def sized(self, xs):
        """Its own code goes by sizes, so that in a graph of unknown ones it says which they are."""
        return [tf.ensure_shape(x, shape) for x, shape in zip(xs, self.inputs, strict=True)]

    def like(self, leaves):
        """Leaves in the order of tf.nest, which sorts the keys of a dict, in the structure of the output."""
        return tf.nest.pack_sequence_as(self.packed([0] * len(self.outputs)), leaves)

    def flat(self, *xs):
        return tf.nest.flatten(self(*xs))

    def values(self, *xs):
        xs = self.sized(xs)
        found = []
        for number, shape in enumerate(self.outputs):
            total = tf.zeros(shape, self.dtype)
            for at, (k, what, other) in enumerate(self.terms[number :: len(self.outputs)]):
                total += self.term(number, at, what, xs[k], shape) * self.factor(xs[other], what)
            found.append(total)
        return found

    def term(self, number, at, what, x, shape):
        if what.startswith("broadcast"):
            z = tf.broadcast_to(x, tf.broadcast_dynamic_shape(tf.shape(x), shape))
            extra = z.shape.rank - len(shape)
            z = tf.reduce_sum(z, axis=list(range(extra))) if extra else z
            axes = [i for i, (a, b) in enumerate(zip(z.shape, shape, strict=True)) if a != b]
            z = tf.reduce_sum(z, axis=axes, keepdims=True) if axes else z
            z = tf.broadcast_to(z, shape)
        else:
            rows = int(np.prod(shape))
            matrix = self.draw((rows, int(np.prod(x.shape))), 4, number, at)
            z = tf.reshape(tf.linalg.matvec(matrix, tf.reshape(x, [-1])), shape)
        return {
            "linear": lambda: z,
            "sine": lambda: tf.sin(z),
            "square": lambda: z * z,
            "tanh": lambda: z / (2.0 + z * z),
        }[what.rpartition("-")[2] if what.rpartition("-")[2] != "tanh" or self.dtype[0] == "f" else "square"]()

    def factor(self, other, what):
        if "times" in what:
            return 1.0 + tf.reduce_sum(other) / 4.0
        return tf.ones([], self.dtype)

    def __call__(self, *xs):
        return self.packed(self.values(*xs))


WHATS = ["linear", "sine", "square", "tanh"]
SHAPES = st.one_of(
    st.just(()),
    st.just((0,)),
    st.just((1,)),
    st.just((2, 0)),
    st.lists(st.integers(1, 3), min_size=1, max_size=3).map(tuple),
)


@st.composite
def functions(draw, dtypes=("float32", "float64", "complex128"), empty=True, linear=False, most=3):
    shapes = SHAPES if empty else SHAPES.filter(lambda s: 0 not in s)
    inputs = draw(st.lists(shapes, min_size=1, max_size=most))
    if draw(st.booleans()) and inputs[0]:  # a broadcasting pair
        inputs = [*inputs, tuple(1 if draw(st.booleans()) else n for n in inputs[0])][:most]
    outputs = draw(st.lists(st.one_of(shapes, st.sampled_from(inputs)), min_size=1, max_size=2))
    whats = ["linear"] if linear else WHATS
    terms = []
    for number in range(len(outputs) * draw(st.integers(1, 2))):
        k, other = draw(st.integers(0, len(inputs) - 1)), draw(st.integers(0, len(inputs) - 1))
        how = draw(st.sampled_from(["", "broadcast-"] + ([] if linear else ["times-", "broadcast-times-"])))
        if "broadcast" in how and not broadcasts(inputs[k], outputs[number % len(outputs)]):
            how = how.replace("broadcast-", "")
        terms.append((k, how + draw(st.sampled_from(whats)), other))
    kinds = ["one"] if len(outputs) == 1 else ["tuple", "dict", "nested"]
    return Function(
        draw(st.sampled_from(dtypes)),
        tuple(inputs),
        tuple(outputs),
        tuple(terms),
        draw(st.sampled_from(kinds)),
        draw(st.integers(0, 10**6)),
    )


def broadcasts(shape, onto):
    try:
        return np.broadcast_shapes(shape, onto) is not None and not (0 in shape or 0 in onto)
    except ValueError:
        return False


# --- the truth ----------------------------------------------------------------------------------------------------


def truth(f, xs, u):
    """u^T J by autodiff."""
    with tf.GradientTape() as tape:
        tape.watch(xs)
        y = tf.nest.flatten(f(*xs))
    found = tape.gradient(
        y, xs, output_gradients=tf.nest.flatten(u), unconnected_gradients=tf.UnconnectedGradients.ZERO
    )
    return [tf.convert_to_tensor(g) for g in found]


def blocks(f, xs):
    """The Jacobian of each output in each input, dy/dx, by autodiff one row at a time; holomorphic if complex."""
    xs = f.sized(xs)
    ys = f.flat(*xs)
    found = []
    for number, y in enumerate(ys):
        rows = [[] for _ in xs]
        for row in range(int(np.prod(y.shape))):
            unit = [tf.zeros_like(other) for other in ys]
            unit[number] = tf.reshape(tf.one_hot(row, int(np.prod(y.shape)), dtype=y.dtype), y.shape)
            for k, g in enumerate(truth(f, xs, unit)):
                rows[k].append(tf.math.conj(g) if y.dtype.is_complex else g)
        found.append(
            [
                tf.reshape(tf.stack(r) if r else tf.zeros((0,)), (*y.shape, *x.shape))
                if r
                else tf.zeros((*y.shape, *x.shape), x.dtype)
                for r, x in zip(rows, xs, strict=True)
            ]
        )
    return found


def pushed(f, xs, vs):
    """J v, from the blocks."""
    ys = tf.nest.flatten(f(*xs))
    return [
        tf.add_n([tf.zeros_like(y), *(tf.tensordot(block, v, v.shape.rank) for block, v in zip(row, vs, strict=True))])
        for row, y in zip(blocks(f, xs), ys, strict=True)
    ]


def close(found, due, dtype, what=""):
    flat_found, flat_due = tf.nest.flatten(found), tf.nest.flatten(due)
    assert len(flat_found) == len(flat_due), what
    for a, b in zip(flat_found, flat_due, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert a.shape == b.shape, f"{what}: {a.shape} and {b.shape}"
        assert a.dtype == b.dtype, f"{what}: {a.dtype} and {b.dtype}"
        room = TOLERANCE[dtype] * (1.0 + np.abs(b).max(initial=0.0))
        assert np.abs(a - b).max(initial=0.0) <= room, f"{what}: {a} and {b}"


def per_argument(values):
    """What a transform hands back: the only one, or a tuple."""
    return values[0] if len(values) == 1 else tuple(values)


def defined(function, kind, change=None):
    """The function under a definer, its rule made from autodiff of the same operations; ``change`` spoils the rule."""
    spoil = change or (lambda gradient: gradient)

    def named(body):  # a definer reads names and number of the arguments from the signature
        names = ", ".join("abcde"[: len(function.inputs)])
        scope: dict[str, Any] = {"body": body}
        exec(f"def drawn({names}):\n    return body({names})", scope)
        return scope["drawn"]

    if kind == "custom_vjp":

        def with_rule(*xs):
            def grad(*ups):
                u = tf.nest.flatten(ups)
                return tuple(spoil(truth(function, list(xs), u)))

            return function(*xs), grad

        return cgrad.custom_vjp(named(with_rule))
    if kind == "custom_jvp":

        def rule(primals, tangents):
            xs = list(primals)
            with tf.GradientTape() as outer:
                ups = [tf.ones_like(y) for y in function.flat(*xs)]
                outer.watch(ups)
                pulled = spoil(truth(function, xs, ups))
            found = outer.gradient(
                pulled, ups, output_gradients=list(tangents), unconnected_gradients=tf.UnconnectedGradients.ZERO
            )
            return function.like(found)

        return cgrad.custom_jvp(rule)(named(function))

    def jacobian(*xs):
        rows = blocks(function, list(xs))
        if change is not None:
            rows = [spoil(row) for row in rows]
        return function.like([per_argument(row) for row in rows])

    return cgrad.custom_jacobian(jacobian)(named(function))


DEFINERS = ("custom_vjp", "custom_jvp", "custom_jacobian")


# --- agreement ----------------------------------------------------------------------------------------------------


@budget(25)
@given(functions())
def test_transforms_of_a_plain_function_agree_with_autodiff(f):
    agree(f, f)


@pytest.mark.parametrize("kind", DEFINERS)
@budget(12)
@given(f=functions())
def test_definers_agree_with_autodiff_through_every_transform(kind, f):
    agree(f, defined(f, kind))


def inner(a, b):
    return sum(np.sum(np.conj(p) * q) for p, q in zip(tf.nest.flatten(a), tf.nest.flatten(b), strict=True))


def agree(f, g):
    """vjp, jvp and jacobian of g against the truth about f, and against each other."""
    xs, u, vs = f.point(), f.upstream(), f.tangents()
    y, pullback = cgrad.vjp(g, *xs)
    pulled = pullback(u)
    close(y, f(*xs), f.dtype, "value of vjp")
    close(pulled, per_argument(truth(f, xs, u)), f.dtype, "vjp")
    y, dy = cgrad.jvp(g, tuple(xs), tuple(vs))
    close(y, f(*xs), f.dtype, "value of jvp")
    close(dy, f.like(pushed(f, xs, vs)), f.dtype, "jvp")
    due = f.like([per_argument(row) for row in blocks(f, xs)])
    close(cgrad.jacobian(g, *xs), due, f.dtype, "jacobian")
    # <u, J v> == <u^T J, v>, the conjugate of u for complex numbers
    left, right = inner(u, dy), inner(pulled, per_argument(vs))
    assert abs(left - right) <= 10 * TOLERANCE[f.dtype] * (1.0 + abs(left))


@pytest.mark.parametrize("mode", ["reverse", "forward", "loop", "graph", "xla"])
@budget(4)
@given(f=functions(dtypes=("float64",), most=2))
def test_every_way_to_a_jacobian_agrees(mode, f):
    xs = f.point()
    due = f.like([per_argument(row) for row in blocks(f, xs)])
    options = {"loop": {"vectorize": False}, "reverse": {"mode": "reverse"}, "forward": {"mode": "forward"}}.get(
        mode, {}
    )
    run = lambda *xs: cgrad.jacobian(f, *xs, **options)  # noqa: E731
    if mode in ("graph", "xla"):
        run = tf.function(run, jit_compile=True if mode == "xla" else None)
    close(run(*xs), due, f.dtype, mode)


@pytest.mark.parametrize("kind", DEFINERS)
@budget(5)
@given(f=functions(dtypes=("float64",), most=2))
def test_definers_in_a_graph_and_on_a_tape(kind, f):
    """tape.gradient eagerly and in a tf.function, and the second derivative along a direction."""
    g, xs, u, vs = defined(f, kind), f.point(), f.upstream(), f.tangents()
    close(truth(g, xs, u), truth(f, xs, u), f.dtype, "tape")
    close(tf.function(lambda *xs: truth(g, list(xs), u))(*xs), truth(f, xs, u), f.dtype, "tape in a graph")
    second = lambda h: truth(lambda *xs: truth(h, list(xs), u), xs, vs)  # noqa: E731
    close(second(g), second(f), f.dtype, "second order")


ARGUMENTS = {
    "list": list,
    "dict": lambda xs: {f"k{9 - i}": x for i, x in enumerate(xs)},
    "nested": lambda xs: (xs[0], {"rest": list(xs[1:]), "empty": []}),
}


def in_one_argument(f, kind):
    """The function of one structure of all inputs, plain or under a definer; its leaves in the order of tf.nest."""

    def plain(p):
        return f(*tf.nest.flatten(p))

    if kind == "custom_vjp":

        def with_rule(p):
            return plain(p), lambda *ups: tf.nest.pack_sequence_as(
                p, truth(f, tf.nest.flatten(p), tf.nest.flatten(ups))
            )

        return cgrad.custom_vjp(with_rule)
    if kind == "custom_jvp":

        def rule(primals, tangents):
            return f.like(pushed(f, tf.nest.flatten(primals), tf.nest.flatten(tangents)))

        return cgrad.custom_jvp(rule)(plain)
    if kind == "custom_jacobian":

        def jacobian(p):
            return f.like([tf.nest.pack_sequence_as(p, row) for row in blocks(f, tf.nest.flatten(p))])

        return cgrad.custom_jacobian(jacobian)(plain)
    return plain


@pytest.mark.parametrize("kind", ["plain", *DEFINERS])
@budget(6)
@given(f=functions(), shape=st.sampled_from(sorted(ARGUMENTS)))
def test_a_structure_for_an_argument(kind, f, shape):
    # tf.nest sorts the keys: the leaves come in another order than they were written in
    p = ARGUMENTS[shape](f.point()[::-1] if shape == "dict" else f.point())
    xs = tf.nest.flatten(p)
    g = in_one_argument(f, kind)
    pv = tf.nest.map_structure(lambda x: 0.5 * x + 1.0, p)
    u = f.upstream()
    y, pullback = cgrad.vjp(g, p)
    close(y, f(*xs), f.dtype, "value")
    pulled = pullback(u)
    tf.nest.assert_same_structure(pulled, p)
    close(pulled, truth(f, xs, u), f.dtype, "vjp")
    y, dy = cgrad.jvp(g, (p,), (pv,))
    close(dy, f.like(pushed(f, xs, tf.nest.flatten(pv))), f.dtype, "jvp")
    found = cgrad.jacobian(g, p)
    close(found, [block for row in blocks(f, xs) for block in row], f.dtype, "jacobian")


# --- gradcheck ----------------------------------------------------------------------------------------------------


def smooth(**more):
    return functions(empty=False, most=2, **more)


@pytest.mark.parametrize("kind", ["plain", *DEFINERS])
@budget(6)
@given(f=smooth(dtypes=("float64", "float32", "complex128")))
def test_gradcheck_is_clean_on_right_functions(kind, f):
    g = f if kind == "plain" else defined(f, kind)
    report = cgrad.gradcheck(g, *f.point(), modes=("eager", "graph", "pfor", "forward"))
    assert report, report


CHANGES = {
    "factor": lambda g: 1.5 * g,
    "sign": lambda g: -g,
    "zero": lambda g: tf.zeros_like(g),
    "small": lambda g: g * (1.0 + 1e-4),
    "one entry": lambda g: tf.reshape(
        tf.tensor_scatter_nd_update(tf.reshape(g, [-1]), [[0]], [tf.reshape(g, [-1])[0] * 1.25]), tf.shape(g)
    ),
}


@pytest.mark.parametrize("change", CHANGES)
@budget(6)
@given(f=smooth(dtypes=("float64", "complex128")), kind=st.sampled_from(DEFINERS), which=st.integers(0, 1))
def test_gradcheck_sees_a_change(change, f, kind, which):
    xs = f.point()
    which %= len(xs)

    def spoil(gradients):
        return [CHANGES[change](g) if k == which else g for k, g in enumerate(gradients)]

    before = truth(f, xs, f.upstream())[which]
    moved = np.abs(np.asarray(CHANGES[change](before) - before)).max(initial=0.0)
    size = np.abs(np.asarray(before)).max(initial=0.0)
    if moved <= 1e-5 * max(size, 1e-3):
        return  # nothing was changed: the input has no influence there
    report = cgrad.gradcheck(defined(f, kind, spoil), *xs, order=1, modes=("eager",))
    assert not report, f"{change} in input {which} was not seen\n{report}"
