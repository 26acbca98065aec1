"""From a mismatch of values to the name of the fault, by testing hypotheses.

What would the rule have answered if it had this fault? The most specific hypothesis that every probe bears out wins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import tensorflow as tf

from cgrad import contract, interception
from cgrad.diagnosis import paths
from cgrad.diagnosis.paths import captured_fault
from cgrad.diagnosis.verdict import Fault, fault
from cgrad.exam import Evidence, Exam, run_eagerly
from cgrad.numerics import Vector
from cgrad.questions.values import SLIGHT
from cgrad.subject import Array, Input, Subject, flat, numpy


def name(exam: Exam, piece: Evidence) -> Fault:
    """The most specific fault whose hypothesis holds; wrong-value if none does."""
    case = Case(exam, piece)
    cut = _cut(case)
    if cut is not None:
        return cut
    for hypothesis in _HYPOTHESES:
        found = hypothesis(case)
        if found is not None:
            return found
    if piece.data["apart"] < SLIGHT:
        reason = (
            f"off by {piece.data['apart']:.1g} relative: a slip, or f is an approximation itself (a solver, a series)."
        )
        repair = f"cgrad.gradcheck(..., rtol={_next_power(piece.data['apart'])})   # if that is how exact f is"
        return fault("wrong-value", piece, reason, repair)
    return fault("wrong-value", piece)


def _next_power(value: float) -> str:
    return f"{10.0 ** np.ceil(np.log10(value) + 0.3):.0e}"


class Case:
    """A mismatch of one input, with the rule and the truth as functions of the upstream."""

    def __init__(self, exam: Exam, piece: Evidence) -> None:
        self.exam: Exam = exam
        self.piece: Evidence = piece
        self.index: int = piece.data["index"]
        self.item: Input = exam.subject.inputs[self.index]
        self.answers: list[list[Array | None]] = piece.data["answers"]

    def got(self, probe: int) -> Vector:
        """The rule's answer to one of the first two probes."""
        return self.entries(self.answers[probe][self.index], self.index)

    def rule(self, upstream: Sequence[Array]) -> Vector:
        """The rule's answer to any upstream."""
        assert self.exam.run is not None
        return self.entries(self.exam.run.pull(upstream)[self.index], self.index)

    def truth(self, upstream: Sequence[Array], index: int | None = None) -> Vector | None:
        """u^T J by the reference where it was believed, by a numerical Jacobian where f is small."""
        index = self.index if index is None else index
        if self.piece.data["truths"] is not None and self.exam.reference is not None:
            return self.entries(self.exam.reference.pull(upstream)[index], index)
        columns = self._numerical(index)
        return None if columns is None else np.asarray(columns @ self.exam.weights(upstream))

    def entries(self, gradient: Array | None, index: int) -> Vector:
        """The real numbers of a gradient of one input; None stands for zeros."""
        item = self.exam.subject.inputs[index]
        kind = np.complex128 if item.dtype.is_complex else np.float64
        return flat(np.zeros(item.shape, kind) if gradient is None else gradient)

    def _numerical(self, index: int) -> Array | None:
        size = flat(self.exam.subject.inputs[index].value()).size
        outputs = self.exam.center.size
        if size > 48 or outputs > 256:
            return None
        rows = []
        for entry in range(size):
            line = self.exam.line(self.exam.unit(index, entry))
            scale = self.exam.scales(index)[entry]
            h = line.steps[1]
            rows.append((line.right[1] - line.left[1]) / (2 * h * scale))
        return np.array(rows)

    def same(self, a: Vector, b: Vector | None, rtol: float = 1e-4) -> bool:
        """Alike, entry by entry, relative to the largest."""
        if b is None or a.shape != b.shape or not (np.isfinite(a).all() and np.isfinite(b).all()):
            return False
        if self.exam.eps > 1e-10:
            rtol = max(rtol, 2e-2 if self.exam.eps > 1e-5 else 1e-3)
        size = max(float(np.abs(a).max(initial=0.0)), float(np.abs(b).max(initial=0.0)))
        return bool(np.abs(a - b).max(initial=0.0) <= rtol * size)

    def explains(self, got: Vector, guess: Vector | None, upstream: Sequence[Array], rtol: float = 1e-4) -> bool:
        """Whether a guess is what came, and far nearer to it than the truth: a small slip fits many guesses."""
        if guess is None or not self.same(got, guess, rtol):
            return False
        truth = self.truth(upstream)
        if truth is None or truth.shape != got.shape:
            return True
        return bool(np.abs(got - guess).max(initial=0.0) <= 0.1 * np.abs(got - truth).max(initial=0.0))

    def probes(self) -> list[list[Array]]:
        """The first two probes."""
        return self.exam.probes[:2]

    def zero(self, a: Vector) -> bool:
        """Whether nothing is there."""
        return not np.any(np.abs(a) > 1e-12)


def _cut(case: Case) -> Fault | None:
    """The rule is the forward pass's own autodiff, and both miss a part: a path leaves TensorFlow on the way."""
    if case.piece.data["truths"] is not None:
        return None
    if case.exam.ruled:
        try:
            same = case.exam.reference.pull(case.exam.probes[0])[case.index] if case.exam.reference else None
        except Exception:
            return None
        if same is None or not case.same(case.got(0), flat(same)):
            return None
    return paths.cut_fault(case.exam, case.piece)


def _duplicate(case: Case) -> Fault | None:
    """With copies of its arguments the rule is right."""
    doubled = None
    for call in case.exam.calls:
        tensors = [x for x in call.inputs() if isinstance(x, tf.Tensor)]
        if any(a is b for a, b in combinations(tensors, 2)):
            doubled = call
    if doubled is None:
        return None

    def copies(f: Any, args: Any) -> tuple[Any, Any]:
        return f, tf.nest.map_structure(lambda x: tf.identity(x) if isinstance(x, tf.Tensor) else x, args)

    with interception.altering(copies):
        g = case.exam.subject.run().pull(case.exam.probes[0])[case.index]
    truth = case.truth(case.exam.probes[0])
    if g is None or not case.same(flat(g), truth):
        return None
    return fault(
        "duplicate-argument",
        case.piece,
        f"{doubled.name} is handed one tensor as two arguments, and answers the whole derivative for each.",
    )


def _stale(case: Case) -> Fault | None:
    """Asked at once each rule answers differently than asked later."""
    if len(case.exam.calls) < 2:
        return None
    asked: list[tuple[Any, list[Any], list[Any]]] = []

    def ask_now(f: Any, args: Any) -> tuple[Any, Any]:
        def asking(*inner: Any, **options: Any) -> Any:
            pair = f(*inner, **options)
            if not tf.executing_eagerly() or interception.takes_variables(pair[1]):
                return pair
            ups = [tf.ones_like(y) for y in tf.nest.flatten(pair[0])]
            asked.append((pair[1], ups, tf.nest.flatten(pair[1](*ups))))
            return pair

        return asking, args

    try:
        with interception.altering(ask_now):
            case.exam.subject.call()
        for rule, ups, now in asked:
            for before, after in zip(now, tf.nest.flatten(rule(*ups)), strict=True):
                if before is not None and not case.same(flat(numpy(before)), flat(numpy(after))):
                    return fault("stale-state", case.piece)
    except Exception:
        return None
    return None


def _structure(case: Case) -> Fault | None:
    """A dict came in, a list went out, and another leaf's gradient fits."""
    for call in case.exam.calls:
        mapped = any(isinstance(arg, dict) and len(arg) > 1 for arg in call.args)
        pull = next((p for p in call.pulls if p.error is None), None)
        if not mapped or pull is None:
            continue
        returned = pull.returned[0] if isinstance(pull.returned, tuple) and len(pull.returned) == 1 else pull.returned
        listed = isinstance(returned, (list, tuple)) and not any(isinstance(g, dict) for g in returned)
        if listed and _exchanged(case) is not None:
            return structure_fault(case.piece, call)
    return None


def structure_fault(piece: Evidence, call: interception.Call) -> Fault:
    """The fault of a list that was written in another order than a dict is flattened in."""
    keys = sorted(next(arg for arg in call.args if isinstance(arg, dict)))
    listed = ", ".join(map(str, keys))
    reason = f"a dict is flattened in sorted key order ({listed}); the list came in another order."
    repair = "return {" + ", ".join(f"{k!r}: d_{k}" for k in keys) + "}"
    return fault("structure-order", piece, reason, repair)


def _exchanged(case: Case) -> int | None:
    """Another input whose true gradient this one's is."""
    for other, item in enumerate(case.exam.subject.inputs):
        if other == case.index or item.shape != case.item.shape:
            continue
        probes = case.probes()
        fits = [case.explains(case.got(p), case.truth(probes[p], other), probes[p]) for p in (0, 1)]
        if all(fits) and not case.zero(case.got(0)):
            return other
    return None


def _swapped(case: Case) -> Fault | None:
    other = _exchanged(case)
    if other is None:
        return None
    theirs = case.exam.subject.inputs[other]
    if case.item.variable and theirs.variable:
        return fault("variables-order", case.piece, f"this is the gradient of {theirs.name}.")
    # the other input has to be wrong too, or it is a coincidence of two equal gradients
    g = case.answers[0][other]
    if g is not None and case.same(flat(g), case.truth(case.exam.probes[0], other)):
        return None
    return fault("swapped-gradients", case.piece, f"this is the gradient of {theirs.name}: u^T dy/d{theirs.name}.")


def _by_closure(case: Case) -> Fault | None:
    """The path through a captured tensor is missing."""
    for call in case.exam.calls:
        for tensor in call.captured():
            if tensor is case.item.leaf and all(tensor is not x for x in call.inputs()):
                return captured_fault(case.piece, call)
    return None


def _point(case: Case) -> Fault | None:
    """Right at a point nearby."""
    if case.item.variable or case.piece.data["apart"] < SLIGHT:
        return None  # so small an error would be overlooked nearby
    nearby = _elsewhere(case, 0.03)
    if nearby is None:
        return _point_by_differences(case)
    got, truth = nearby
    due = case.truth(case.exam.probes[0])
    if due is None:
        return None
    here = np.abs(case.got(0) - due)
    there = np.abs(got - truth)
    if not np.isfinite(there).all() or there.max(initial=0.0) > 1e-3 * here.max(initial=0.0):
        return None
    return fault("wrong-at-point", case.piece)


def _moved_leaves(case: Case, reach: float) -> list[Any]:
    subject = case.exam.subject
    leaves = list(subject.leaves)
    steps = case.exam.direction()
    for item, step in zip(subject.inputs, steps, strict=True):
        if item.position is not None and not item.variable:
            away = np.maximum(np.abs(step), 0.1) * np.sign(step)
            leaves[item.position] = subject._moved(item, away, reach)
    return leaves


def _elsewhere(case: Case, reach: float) -> tuple[Vector, Vector] | None:
    """The rule and the truth at another point, for the first probe."""
    subject = case.exam.subject
    leaves = _moved_leaves(case, reach)
    try:
        got = subject.run(leaves).pull(case.exam.probes[0])[case.index]
        with interception.bypassing(), run_eagerly():
            due = subject.run(leaves).pull(case.exam.probes[0])[case.index]
    except Exception:
        return None
    if got is None or due is None or case.piece.data["truths"] is None:
        return None
    return flat(got), flat(due)


def _point_by_differences(case: Case) -> Fault | None:
    """The same without a reference: the entries that are wrong here, looked at by differences nearby."""
    subject = case.exam.subject
    leaves = _moved_leaves(case, 0.03)
    twin = Subject(subject.f, subject.rebuild(leaves))
    other = Exam(twin, case.exam.options)
    other.sit()
    if other.error is not None or not other.answers:
        return None
    g = other.gradients(0)[case.index]
    if g is None or not np.isfinite(other.center).all():
        return None
    weights = [other.weights(other.probes[0])]
    for entry in case.piece.data["entries"][:3]:
        (slope,) = other.slopes(other.unit(case.index, entry), weights)
        scale = other.scales(case.index)[entry]
        value = float(flat(g)[entry]) * scale
        if slope.shape.value != "smooth" or not slope.admits(value, 1e-6 * abs(value)):
            return None
    return fault("wrong-at-point", case.piece)


def _passed_on(case: Case) -> Fault | None:
    """The upstream itself, or its sum, comes back."""
    for probe in case.probes():
        fits = False
        got = case.rule(probe)
        for upstream in probe:
            # what tf.cast makes of it on the way from a real output to a complex input, or back
            u = upstream.astype(np.complex128) if case.item.dtype.is_complex else upstream.real
            if flat(u).shape == got.shape and case.explains(got, flat(u), probe, 1e-6):
                fits = True
            axes = contract.broadcast_axes(tuple(u.shape), case.item.shape)
            if axes and case.explains(got, flat(np.sum(u, axis=axes, keepdims=True)), probe, 1e-6):
                fits = True
        if not fits:
            return None
    return fault("local-derivative-missing", case.piece)


def _conjugate(case: Case) -> Fault | None:
    """What comes back is the conjugate of the right answer to the conjugate upstream."""
    if not case.item.dtype.is_complex:
        return None
    for probe in case.probes():
        truth = case.truth([np.conj(u) for u in probe])
        if truth is None:
            return None
        if not case.explains(case.rule(probe), flat(np.conj(truth.view(np.complex128))), probe):
            return None
    return fault("missing-conjugate", case.piece)


def _transposed(case: Case) -> Fault | None:
    """J u came back, not J^T u: the derivative along u tells."""
    for probe in case.probes():
        weights = case.exam.weights(probe)
        got = case.rule(probe)
        if len(probe) != 1 or weights.shape != got.shape or got.size < 2:
            return None
        steps = [np.zeros(flat(item.value()).shape) for item in case.exam.subject.inputs]
        scale = float(np.median(case.exam.scales(case.index)))
        steps[case.index] = weights * scale
        line = case.exam.line(steps)
        h = line.steps[1]
        if not case.explains(got, (line.right[1] - line.left[1]) / (2 * h * scale), probe, 1e-3):
            return None
    repair = "tf.linalg.matvec(J, upstream, transpose_a=True)   # J^T u, not J u"
    return fault("transposed-jacobian", case.piece, repair=repair if len(case.item.shape) == 1 else "")


def _output_ignored(case: Case) -> Fault | None:
    """Silencing one output changes nothing, and should."""
    probe = case.exam.probes[0]
    if len(probe) < 2:
        return None
    whole = case.truth(probe)
    for k in range(len(probe)):
        silent = [np.zeros_like(u) if i == k else u for i, u in enumerate(probe)]
        truth = case.truth(silent)
        if truth is None or whole is None:
            return None
        if case.same(case.rule(silent), case.rule(probe), 1e-9) and not case.same(truth, whole, 1e-9):
            reason = f"output {k} has no part in the gradient: u_{k}^T dy_{k}/d{case.piece.argument} is missing."
            return fault("output-ignored", case.piece, reason)
    return None


def _reduction(case: Case) -> Fault | None:
    """Sums over an axis where none is due, or takes sums of the upstream before multiplying."""
    shape = case.item.shape
    truth = case.truth(case.exam.probes[0])
    if truth is None or case.item.dtype.is_complex:
        return None
    for count in range(1, len(shape) + 1):
        for axes in combinations(range(len(shape)), count):
            if all(shape[a] == 1 for a in axes):
                continue
            total = np.broadcast_to(np.sum(truth.reshape(shape), axis=axes, keepdims=True), shape)
            if case.explains(case.got(0), flat(np.ascontiguousarray(total)), case.exam.probes[0]):
                where = ", ".join(map(str, axes))
                reason = f"every entry holds the sum over axis {where} of {case.item.name}, which keeps that axis."
                return fault("wrong-reduction", case.piece, reason)
    return _sums_first(case, truth)


def _sums_first(case: Case, truth: Vector) -> Fault | None:
    """The rule sees only the upstream's sum over an axis of the output; the truth sees more."""
    probe = case.exam.probes[0]
    if np.abs(case.got(0)).max(initial=0.0) <= 1e-6 * np.abs(truth).max(initial=0.0):
        return None
    for k, u in enumerate(probe):
        for axis in range(u.ndim):
            if u.shape[axis] < 2:
                continue
            rolled = [np.roll(u, 1, axis) if i == k else w for i, w in enumerate(probe)]
            if case.same(case.rule(rolled), case.got(0), 1e-9) and _differs(case, rolled, truth):
                reason = f"the upstream enters only by its sum over axis {axis}: sum(u) * sum(a) is not sum(u * a)."
                return fault("wrong-reduction", case.piece, reason)
    return None


def _differs(case: Case, upstream: Sequence[Array], truth: Vector) -> bool:
    other = case.truth(upstream)
    return other is not None and not case.same(other, truth, 1e-6)


def _factor(case: Case) -> Fault | None:
    """The same factor in every entry, for every probe, and at another point."""
    truth = case.truth(case.exam.probes[0])
    if truth is None:
        return None
    factors = []
    pairs = [(case.got(p), case.truth(case.exam.probes[p])) for p in (0, 1)]
    away = _elsewhere(case, 0.25)
    if away is None:
        away = _elsewhere_by_differences(case, 0.25)
    if away is not None:
        pairs.append(away)
    elif case.got(0).size < 3:
        return None
    for got, due in pairs:
        if due is None or case.zero(due):
            return None
        c = float(got @ due) / float(due @ due)
        off = np.abs(got - due).max(initial=0.0)
        if not case.same(got, c * due) or np.abs(got - c * due).max(initial=0.0) > 0.1 * off:
            return None
        factors.append(c)
    c = factors[0]
    if abs(c) < 1e-9 or abs(c - 1.0) < 1e-6 or any(abs(other - c) > 1e-3 * abs(c) for other in factors):
        return None
    lost = "the sign is lost" if abs(c + 1) < 1e-3 else f"the factor is {c:.6g}"
    repair = (
        "return -g   # g: what is returned now"
        if abs(c + 1) < 1e-3
        else f"return g / {c:.6g}   # g: what is returned now"
    )
    return fault("constant-factor", case.piece, f"every entry is {c:.6g} times u^T J: {lost}.", repair)


def _elsewhere_by_differences(case: Case, reach: float) -> tuple[Vector, Vector] | None:
    subject = case.exam.subject
    twin = Subject(subject.f, subject.rebuild(_moved_leaves(case, reach)))
    other = Exam(twin, case.exam.options)
    other.sit()
    if other.error is not None or not other.answers or len(twin.inputs) != len(subject.inputs):
        return None
    g = other.gradients(0)[case.index]
    moved = Case(other, Evidence("values", "mismatch", data={**case.piece.data, "truths": None}))
    moved.exam.probes[0] = other.probes[0]
    truth = moved.truth(other.probes[0])
    return None if g is None or truth is None else (flat(g), truth)


_HYPOTHESES: tuple[Callable[[Case], Fault | None], ...] = (
    _duplicate,
    _stale,
    _structure,
    _swapped,
    _by_closure,
    _point,
    _passed_on,
    _conjugate,
    _transposed,
    _output_ignored,
    _factor,
    _reduction,
)
