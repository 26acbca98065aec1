"""Is the derivative of the rule right? Tape over tape against the forward pass, and against differences.

Wrong, not differentiable and silently zero are three findings. The quantity is h = d<g(x; u), w>/dx, where g is
the rule's answer to the upstream u. A rule is differentiated with respect to u as well, by everything that comes after
f: k = d<g(x; u), w>/du has <k, v> = <g(x; v), w> for every v, since g is linear in u.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from cgrad import interception
from cgrad.exam import Evidence, Exam, run_eagerly
from cgrad.numerics import Line, Vector
from cgrad.questions.modes import traced
from cgrad.subject import PIECE, Array, differentiable, flat, largest, numpy, pieces

_STRIDE = 1024


def ask(exam: Exam) -> list[Evidence]:
    """Differentiates the rule a second time."""
    if exam.options.order < 2 or exam.run is None or not exam.answers:
        return []
    used = [i for i, g in enumerate(exam.gradients(0)) if g is not None and i not in exam.skip]
    if not used:
        return []
    weights = [_signs(exam, i) for i in used]
    truth = _Truth(exam, used, weights)
    with interception.observing() as calls:
        try:
            second, upstream = twice(exam, used, weights, in_upstream=True)
        except Exception as error:
            return _raised(error, truth, calls)
    found = [e for i, h in zip(used, second, strict=True) if (e := _judge(exam, i, h, truth)) is not None]
    if not found and upstream is not None:
        found = _judge_upstream(exam, used, weights, upstream)
    if found or "graph" not in exam.options.modes or not exam.calls:
        return found
    return _in_graph(exam, used, weights, second)


def _in_graph(exam: Exam, used: list[int], weights: list[Array], eager: list[Array | None]) -> list[Evidence]:
    """A path that eager mode finds through a closure may be missing where all is one graph."""

    def body(leaves: list[Any], sources: list[Any], given: list[Any]) -> list[Any]:
        probe, signs = given[: len(exam.probes[0])], given[len(exam.probes[0]) :]
        second, _ = _twice(exam, leaves, [sources[i] for i in used], probe, signs)
        return [[] if h is None else [tf.convert_to_tensor(h)] for h in second]

    try:
        found = [numpy(h[0]) if h else None for h in traced(exam, body, [*exam.probes[0], *weights])]
    except Exception:
        return []  # refused loudly: first order in a graph has been asked for elsewhere
    for index, h, due in zip(used, found, eager, strict=True):
        if due is None or not np.any(due) or not np.isfinite(due).all():
            continue
        got = np.zeros_like(due) if h is None else h
        if got.shape == due.shape and _close(got, due):
            continue
        kind = "wrong" if np.any(got) else "silent"
        seen = f"{'None' if h is None else f'{got.flat[0]:.6g}'} where all is one tf.function"
        name = exam.subject.inputs[index].name
        data = {"index": index, "slope": None, "second": h, "exact": due}
        return [Evidence("second_order", kind, name, seen, f"{due.flat[0]:.6g}, as in eager mode", data)]
    return []


def _close(got: Array, due: Array) -> bool:
    atol = 1e-4 * largest(due)
    return all(np.allclose(g, d, rtol=1e-3, atol=atol) for g, d in pieces(got, due))


def _along(h: Array, step: Vector) -> float:
    return float(flat(h) @ step)


def _plainly_other(exam: Exam, h: Array, exact: Array) -> bool:
    """Whether the exact reference sees what a wide bar hides; in double precision only."""
    if exam.eps > 1e-10 or not np.isfinite(exact).all():
        return False
    return bool((np.abs(h - exact) > 1e-5 * np.abs(exact) + 1e-6 * np.abs(exact).max(initial=0.0)).any())


def _signs(exam: Exam, index: int) -> Array:
    item = exam.subject.inputs[index]
    # sizes other than 1, or the products with a direction of powers of two may cancel
    kind: Any = np.float32 if math.prod(item.shape) > PIECE and item.dtype.name == "float32" else np.float64
    signs = np.empty(math.prod(item.shape), kind)
    for start in range(0, signs.size, PIECE):
        part = signs[start : start + PIECE]
        part[:] = exam.random.choice([-1.0, 1.0], part.shape) * exam.random.uniform(0.5, 1.5, part.shape)
    signs = signs.reshape(item.shape)
    return np.asarray(signs * (1.0 + 1.0j) if item.dtype.is_complex else signs)


Found = list[Array | None]


def twice(
    exam: Exam, used: Sequence[int], weights: Sequence[Array], in_upstream: bool = False
) -> tuple[Found, Found | None]:
    """Returns h for each used input, and k for each output; None where the second tape found no path.

    There is no k (None in place of the list) where it was not asked for, or the rule refuses it loudly.
    """
    subject = exam.subject
    sources = [subject.inputs[i].leaf for i in used]
    second, upstream = _twice(exam, subject.leaves, sources, exam.probes[0], weights, in_upstream)
    arrays = [[None if h is None else numpy(h) for h in found] for found in (second, upstream or [])]
    return arrays[0], None if upstream is None else arrays[1]


def _twice(
    exam: Exam,
    leaves: Sequence[Any],
    sources: Sequence[Any],
    probe: Sequence[Any],
    weights: Sequence[Any],
    in_upstream: bool = False,
) -> tuple[list[Any], list[Any] | None]:
    with tf.GradientTape(persistent=in_upstream) as outer:
        for source in sources:
            outer.watch(source)
        with tf.GradientTape() as inner:
            for source in sources:
                inner.watch(source)
            targets = [y for y in exam.subject.call(leaves) if differentiable(y)]
        upstreams = [tf.cast(u, y.dtype) for u, y in zip(probe, targets, strict=True)]
        if in_upstream:
            outer.watch(upstreams)
        gradients = inner.gradient(targets, sources, output_gradients=upstreams)
        gradients = [g if g is None else tf.convert_to_tensor(g) for g in gradients]
    exam.subject.pulls += 2
    kept = [(g, tf.cast(w, g.dtype)) for g, w in zip(gradients, weights, strict=True) if g is not None]
    rules, cotangents = [g for g, _ in kept], [w for _, w in kept]
    second = list(outer.gradient(rules, sources, output_gradients=cotangents))
    if not in_upstream:
        return second, None
    try:
        return second, list(outer.gradient(rules, upstreams, output_gradients=cotangents))
    except Exception:
        return second, None


class _Truth:
    """The second derivative by autodiff of the forward pass where that can be had, and by differences of g."""

    def __init__(self, exam: Exam, used: list[int], weights: list[Array]) -> None:
        self.exam, self.used, self.weights = exam, used, weights
        self.exact: dict[int, Array | None] | None = None
        try:
            with interception.bypassing(), run_eagerly():
                found, _ = twice(exam, used, weights)
            self.exact = dict(zip(used, found, strict=True))
        except Exception:
            self.exact = None

    def direction(self, index: int) -> list[Vector]:
        return self.exam.direction([index])

    def slope(self, steps: list[Vector]) -> Any:
        """d<w, g(x + t d)>/dt by differences of the rule's own gradient."""
        center = self._gradient(steps, 0.0)
        line = Line(lambda t: self._gradient(steps, t), center, self.exam.eps)
        return line.slope(np.ones(center.shape))

    def _gradient(self, steps: list[Vector], t: float) -> Vector:
        subject = self.exam.subject
        leaves = list(subject.leaves)
        for item, step in zip(subject.inputs, steps, strict=True):
            if item.position is not None and not item.variable:
                leaves[item.position] = subject._moved(item, step, t)
        gradients = subject.run(leaves).pull(self.exam.probes[0])
        pairs = [(g, w) for i, w in zip(self.used, self.weights, strict=True) if (g := gradients[i]) is not None]
        many = sum(g.size for g, _ in pairs) > PIECE
        return np.concatenate([_products(g, w, many) for g, w in pairs])


def _products(g: Array, w: Array, summed: bool) -> Vector:
    """The terms of <g, w>; of many the sums of some, which say as much about the sum of all and fit in memory."""
    if not summed:
        return flat(g) * flat(w)
    return np.array([(a[k::_STRIDE] * b[k::_STRIDE]).sum() for a, b in pieces(g, w) for k in range(_STRIDE)])


def _raised(error: Exception, truth: _Truth, calls: list[interception.Call]) -> list[Evidence]:
    data = {"error": error, "calls": calls, "possible": truth.exact is not None and _any(truth.exact)}
    moves = False
    if not data["possible"]:
        try:
            slope = truth.slope(truth.exam.direction(truth.used))
            moves = not slope.admits(0.0)
        except Exception:
            moves = False
    data["moves"] = moves
    return [Evidence("second_order", "raised", "", f"{type(error).__name__}", "a second derivative", data)]


def _judge_upstream(exam: Exam, used: list[int], weights: list[Array], upstream: Found) -> list[Evidence]:
    """Compares <k, v> with <g(x; v), w> for the second probe v, whose answer is there already."""
    answers = [exam.gradients(1)[i] for i in used]
    pairs = [(g, w) for g, w in zip(answers, weights, strict=True) if g is not None]
    many = sum(g.size for g, _ in pairs) > PIECE
    terms = [_products(g, w, many) for g, w in pairs]
    seen = [flat(k) * flat(v) for k, v in zip(upstream, exam.probes[1], strict=True) if k is not None]
    with np.errstate(invalid="ignore"):
        due, got = (float(sum(part.sum() for part in parts)) for parts in (terms, seen))
    size = float(sum(np.abs(part).sum() for part in terms))
    if not np.isfinite([due, got]).all() or abs(got - due) <= (1e-6 if exam.eps < 1e-10 else 1e-2) * size:
        return []
    kind = "wrong" if any(np.any(part) for part in seen) else "silent"
    shown = f"{got:.6g}" if kind == "wrong" else "zero" if seen else "None"
    return [
        Evidence(
            "second_order",
            kind,
            "upstream",
            f"{shown} for the rule's derivative in the upstream",
            f"{due:.6g}, since the rule is linear in it",
            {"index": used[0]},
        )
    ]


def _any(found: dict[int, Array | None]) -> bool:
    return any(h is not None and np.isfinite(h).all() for h in found.values())


def _judge(exam: Exam, index: int, second: Array | None, truth: _Truth) -> Evidence | None:
    item = exam.subject.inputs[index]
    if item.variable:
        return None
    h = np.zeros(item.shape, complex if item.dtype.is_complex else float) if second is None else second
    steps = truth.direction(index)
    slope = truth.slope(steps)
    along = _along(h, steps[index])
    exact = None if truth.exact is None else truth.exact.get(index)
    data: dict[str, Any] = {"index": index, "slope": slope, "second": second, "exact": exact}
    if not np.isfinite(h).all():
        if np.isfinite(slope.value) and slope.shape.value in ("smooth", "kink", "edge"):
            return Evidence(
                "second_order",
                "nonfinite",
                item.name,
                "NaN or infinity",
                f"{slope.value:.6g} along a direction",
                data,
            )
        return None
    size = float(np.abs(flat(h) * steps[index]).sum())
    slack = 1e-7 * size if exam.eps < 1e-10 else 1e-3 * size
    if slope.shape.value not in ("smooth", "edge"):
        return None
    if not slope.admits(along, slack) and exam.symmetric(index):
        steps[index] = exam.mirrored(index, steps[index])
        mirrored = truth.slope(steps)
        if mirrored.admits(_along(h, steps[index]), slack):
            return None
    # in low precision the rounding of g drowns its differences: two autodiffs that agree are believed
    low = exam.eps > 1e-10
    rtol, atol = (1e-2, 1e-3) if low else (1e-9, 1e-12)
    agree = exact is not None and np.allclose(h, exact, rtol=rtol, atol=atol * (np.abs(exact).max(initial=0.0) + 1.0))
    if slope.admits(along, slack):
        if (
            agree
            or exact is None
            or not _plainly_other(exam, h, exact)
            or not slope.admits(_along(exact, steps[index]))
        ):
            return None
    elif agree and np.any(h) and (exam.calls or low):
        return None  # two autodiffs against the differences of one of them: no verdict on the rule
    due = f"{slope.value:.6g} along a random direction, give or take {slope.bar:.1g}"
    if second is None or not np.any(h):
        seen = "None" if second is None else "zero"
        return Evidence("second_order", "silent", item.name, seen, due, data)
    return Evidence("second_order", "wrong", item.name, f"{along:.6g}", due, data)
