"""Does the rule work, and give the same numbers, in every mode of TensorFlow?

Eager, tf.function, unknown sizes, XLA, the vectorised Jacobian, forward mode. A mode that f refuses whatever its
rule is a note; a rule that breaks a mode, or gives another value there, is a fault. Each mode is traced once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from cgrad import interception, internals
from cgrad.exam import Evidence, Exam, run_eagerly
from cgrad.numerics import Vector
from cgrad.subject import Array, Subject, differentiable, flat, numpy, outputs_flat, pieces

Answer = list[Array | None]


def ask(exam: Exam) -> list[Evidence]:
    """Runs the rule in each of the modes asked for."""
    if exam.run is None or not exam.answers or not exam.run.targets:
        return []
    modes = exam.options.modes
    found: list[Evidence] = []
    graph_works, rule_refused = True, False
    if "graph" in modes:
        found += _graph(exam)
        graph_works = not any(e.kind == "raised" for e in found)
        # a rule that no graph can hold cannot be vectorised either: tape.jacobian fails in eager mode, too
        rule_refused = any(e.kind == "raised" and e.data["without"] is None for e in found)
    if graph_works and "xla" in modes:
        found += _same(exam, "xla", lambda: pull_in_graph(exam, xla=True))
    if (graph_works or rule_refused) and "pfor" in modes:
        found += _pfor(exam)
    if "forward" in modes:
        found += _forward(exam)
    return found


def _positions(exam: Exam) -> list[int]:
    """The leaves that become arguments of the traced function: floating-point tensors."""
    return [i.position for i in exam.subject.inputs if i.position is not None and not i.variable]


def traced(
    exam: Exam,
    body: Callable[[list[Any], list[Any], list[Any]], Any],
    given: Sequence[Array],
    *,
    xla: bool = False,
    unknown: bool = False,
) -> Any:
    """Runs ``body(leaves, sources, given)`` in a tf.function whose arguments are the floating-point inputs.

    The arrays ``given`` are arguments too: large constants make a graph slow to build.
    """
    subject, positions = exam.subject, _positions(exam)
    graphs: list[Any] = []  # also those of a trace that failed

    def step(tensors: list[Any], arrays: list[Any]) -> Any:
        graphs.append(tf.compat.v1.get_default_graph())
        leaves = list(subject.leaves)
        for position, tensor in zip(positions, tensors, strict=True):
            leaves[position] = tensor
        sources = [i.leaf if i.position is None or i.variable else leaves[i.position] for i in subject.inputs]
        return body(leaves, sources, arrays)

    tensors: Any = [subject.leaves[p] for p in positions]
    arrays = [tf.constant(a) for a in given]
    shapes = [[None] * len(t.shape) if unknown else t.shape for t in tensors]
    signature = (
        [tf.TensorSpec(shape, t.dtype) for shape, t in zip(shapes, tensors, strict=True)],
        [tf.TensorSpec([None] * len(a.shape) if unknown else a.shape, a.dtype) for a in arrays],
    )
    function = tf.function(step, jit_compile=True if xla else None, autograph=False)
    try:
        return _concrete(subject, function, signature)(tensors, arrays)
    finally:
        for graph in graphs:
            internals.forget_rules(graph)


def _concrete(subject: Subject, function: Any, signature: Any) -> Any:
    """A concrete function: TensorFlow would warn of retracing if many were called by the same code."""
    try:
        return function.get_concrete_function(*signature)
    except tf.errors.OperatorNotAllowedInGraphError:
        if not _refused_without_rules(function, signature):
            raise
        with subject.converted():  # an `if` on a tensor in f itself, which a tf.function takes
            return function.get_concrete_function(*signature)


def _refused_without_rules(function: Any, signature: Any) -> bool:
    try:
        with interception.bypassing():
            function.get_concrete_function(*signature)
    except tf.errors.OperatorNotAllowedInGraphError:
        return True
    return False


def pull_in_graph(exam: Exam, *, xla: bool = False, unknown: bool = False) -> tuple[Answer, Vector]:
    """The answer to the first probe, and the outputs, computed in a graph."""
    gradients, outputs = traced(exam, partial(_pull, exam), exam.probes[0], xla=xla, unknown=unknown)
    return _arrays(gradients), outputs_flat(outputs)


def _pull(exam: Exam, leaves: list[Any], sources: list[Any], probe: list[Any]) -> tuple[list[Any], list[Any]]:
    with tf.GradientTape() as tape:
        for source in sources:
            tape.watch(source)
        targets = [y for y in exam.subject.call(leaves) if differentiable(y)]
    # an upstream knows of its sizes what the output knows: nothing, where a rule may ask for them in vain
    upstreams = [tf.ensure_shape(tf.cast(u, y.dtype), y.shape) for u, y in zip(probe, targets, strict=True)]
    exam.subject.pulls += 1
    gradients = tape.gradient(targets, sources, output_gradients=upstreams)
    # a graph cannot return None: an empty list stands for it
    return [[] if g is None else [tf.convert_to_tensor(g)] for g in gradients], targets


def _arrays(found: Sequence[list[Any]]) -> Answer:
    return [numpy(g[0]) if g else None for g in found]


def _graph(exam: Exam) -> list[Evidence]:
    """Unknown sizes first: where they work, known sizes need no trace of their own."""
    ranks = [len(exam.subject.leaves[p].shape) for p in _positions(exam)]
    if any(ranks):
        try:
            with interception.observing():
                answer, outputs = pull_in_graph(exam, unknown=True)
            if _equal(exam, answer, _eager(exam)) is None and _same_value(exam, outputs):
                return []
        except Exception:
            pass
    known = _same(exam, "graph", lambda: pull_in_graph(exam))
    if known or not any(ranks):
        return known
    return _same(exam, "unknown sizes", lambda: pull_in_graph(exam, unknown=True))


def _eager(exam: Exam) -> Answer:
    return exam.gradients(0)


def _same_value(exam: Exam, outputs: Vector) -> bool:
    return outputs.shape == exam.center.shape and _equal_values(exam, outputs, exam.center)


def _same(exam: Exam, mode: str, answer: Callable[[], tuple[Answer, Vector]]) -> list[Evidence]:
    calls: list[interception.Call] = []
    try:
        with interception.observing() as calls:
            found, outputs = answer()
    except Exception as error:
        return [_refused(exam, mode, error, calls, answer)]
    if not _same_value(exam, outputs):
        at = int(np.argmax(np.abs(outputs - exam.center))) if outputs.shape == exam.center.shape else 0
        seen = f"{outputs[at]:.6g}" if outputs.size else "no output"
        data = {"mode": mode, "value": True, "calls": calls}
        return [
            Evidence(
                "modes",
                "differs",
                "",
                f"the value {seen} in mode {mode}",
                f"{exam.center[at]:.6g}, as in eager mode",
                data,
            )
        ]
    off = _equal(exam, found, _eager(exam))
    if off is None:
        return []
    index, seen, due = off
    name = exam.subject.inputs[index].name
    data = {"index": index, "mode": mode, "value": False, "calls": calls, "answer": found}
    return [Evidence("modes", "differs", name, f"{seen} in mode {mode}", f"{due}, as in eager mode", data)]


def _refused(
    exam: Exam, mode: str, error: Exception, calls: list[interception.Call], answer: Callable[[], Any]
) -> Evidence:
    """Whether f refuses the mode without its rule too."""
    without: Exception | None = None
    try:
        with interception.bypassing():
            answer()
    except Exception as other:
        without = other
    data = {"mode": mode, "error": error, "without": without, "calls": calls}
    return Evidence("modes", "raised", "", f"{type(error).__name__} in mode {mode}", "as in eager mode", data)


def _equal(exam: Exam, found: Answer, eager: Answer) -> tuple[int, str, str] | None:
    """The first input whose gradient differs from the eager one by more than rounding, with both values."""
    for index, (got, due) in enumerate(zip(found, eager, strict=True)):
        if index in exam.skip:
            continue
        # a graph gives zeros where eager mode gives None
        a = np.zeros(1) if got is None else got
        b = np.zeros(1) if due is None else due
        if a.size != b.size and (np.any(a) or np.any(b)):
            if got is None or due is None:
                return index, _brief(got), _brief(due)
            return index, f"shape {got.shape}", f"shape {due.shape}"
        if a.size != b.size:
            continue
        noise = exam.noise(index)
        most = max((_largest(q) for (q,) in pieces(b)), default=0.0)
        for p, q in pieces(a, b):
            wrong = _unequal(exam, p, q, noise, most)
            if wrong.any():
                at = int(np.argmax(wrong))
                return index, f"{p[at]:.6g}", f"{q[at]:.6g}"
    return None


def _largest(b: Vector) -> float:
    return float(np.abs(b[np.isfinite(b)]).max(initial=0.0))


def _unequal(exam: Exam, a: Vector, b: Vector, noise: float = 0.0, most: float | None = None) -> Any:
    eps = exam.eps
    rtol = 1e-6 if eps < 1e-10 else 2e-3 if eps < 1e-5 else 0.1
    with np.errstate(invalid="ignore"):
        room = rtol * (np.abs(b) + (_largest(b) if most is None else most)) + noise
        return ~((np.abs(a - b) <= room) | (a == b) | (np.isnan(a) & np.isnan(b)))


def _equal_values(exam: Exam, a: Vector, b: Vector) -> bool:
    return not _unequal(exam, a, b).any()


def _brief(g: Array | None) -> str:
    return "None" if g is None else f"{flat(g)[0]:.6g}" if np.any(g) else "zeros"


# --- the vectorised Jacobian --------------------------------------------------------------------------


def _pfor(exam: Exam) -> list[Evidence]:
    """Two upstreams at once, as tape.jacobian runs its unit vectors, without the silent fall-back to a loop."""
    both = [np.stack([a, b]) for a, b in zip(exam.probes[0], exam.probes[1], strict=True)]

    def body(leaves: list[Any], sources: list[Any], given: list[Any]) -> tuple[list[Any], list[Any]]:
        with tf.GradientTape(persistent=True) as tape:
            for source in sources:
                tape.watch(source)
            targets = [y for y in exam.subject.call(leaves) if differentiable(y)]
        upstreams = [tf.cast(u, y.dtype) for u, y in zip(given, targets, strict=True)]
        live: list[int] = []

        def one(row: Any) -> list[Any]:
            gradients = tape.gradient(targets, sources, output_gradients=row)
            live[:] = [i for i, g in enumerate(gradients) if g is not None]
            return [tf.convert_to_tensor(gradients[i]) for i in live]

        rows = tf.vectorized_map(one, upstreams, fallback_to_while_loop=True, warn=False)
        found: list[Any] = [[] for _ in sources]
        for i, row in zip(live, rows, strict=True):
            found[i] = [row[0]]
        return found, targets

    def answer() -> tuple[Answer, Vector]:
        gradients, outputs = traced(exam, body, both)
        return _arrays(gradients), outputs_flat(outputs)

    return _same(exam, "pfor", answer)


# --- forward mode -------------------------------------------------------------------------------------


def _forward(exam: Exam) -> list[Evidence]:
    """Forward mode around a direct call never sees a rule of tf.custom_gradient: said, not blamed."""
    subject = exam.subject
    moving = [(i, item) for i, item in enumerate(subject.inputs) if item.position is not None and not item.variable]
    complex_ones = any(item.dtype.is_complex for _, item in moving)
    if not moving or complex_ones or not any(call.pulls for call in exam.calls):
        return []
    tangents = exam.direction([i for i, _ in moving])
    primals: Any = [item.leaf for _, item in moving]
    given: Any = []
    for i, item in moving:
        given.append(tf.cast(tf.constant(tangents[i].reshape(item.shape)), item.dtype))
    try:
        with run_eagerly(), tf.autodiff.ForwardAccumulator(primals, given) as accumulator:
            targets: Any = [y for y in subject.call() if differentiable(y)]
        found: Any = accumulator.jvp(targets, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    except Exception as error:
        return [Evidence("modes", "forward-refused", "", type(error).__name__, "", {"mode": "forward", "error": error})]
    got = sum(float(flat(np.asarray(u)) @ flat(numpy(t))) for u, t in zip(exam.probes[0], found, strict=True))
    answer = exam.gradients(0)
    due = sum(float(flat(g) @ tangents[i]) for i, _ in moving if (g := answer[i]) is not None)
    size = sum(float(np.abs(flat(g) * tangents[i]).sum()) for i, _ in moving if (g := answer[i]) is not None)
    rtol = 1e-6 if exam.eps < 1e-10 else 1e-2
    if abs(got - due) <= rtol * (size + abs(got)):
        return []
    return [Evidence("modes", "forward-differs", "", f"{got:.6g}", f"{due:.6g}", {"mode": "forward"})]
