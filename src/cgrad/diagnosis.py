"""From the evidence to the name of the fault.

Each kind of evidence has one function here. A mismatch of values is named by testing hypotheses: what would the
rule have answered if it had this fault? The most specific hypothesis that all probes bear out wins.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
import tensorflow as tf

from cgrad import contract, interception, tracing
from cgrad.errors import GradientError
from cgrad.exam import Evidence, Exam, run_eagerly
from cgrad.faults import BY_NAME, Entry
from cgrad.interception import Call, MissingRule
from cgrad.numerics import Vector
from cgrad.subject import Array, Subject, flat, forward_only, numpy


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong.

    Attributes:
        entry: its kind, from the catalogue.
        argument: the input it concerns; empty if it concerns the function.
        seen: what the function did.
        due: what was due.
        reason: why, in a line or two.
        repair: the code that repairs it, made for this function where possible.
    """

    entry: Entry
    argument: str
    seen: str
    due: str
    reason: str
    repair: str

    @property
    def name(self) -> str:
        """The fault's name in the catalogue."""
        return self.entry.name

    @property
    def code(self) -> str:
        """The fault's code in the catalogue."""
        return self.entry.code

    @property
    def page(self) -> str:
        """The address of the page about it."""
        return self.entry.page


@dataclass(frozen=True)
class Note:
    """Something worth knowing that is not a fault: a kink, an edge, a mode that f refuses."""

    kind: str
    argument: str
    text: str


@dataclass
class Verdict:
    """What the evidence comes to."""

    faults: list[Fault] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)


def diagnose(exam: Exam, evidence: Sequence[Evidence]) -> Verdict:
    """Names each piece of evidence; the same fault of the same input is named once."""
    verdict = Verdict()
    known: set[tuple[str, str]] = set()
    for piece in evidence:
        for found in _NAMES[piece.kind](exam, piece):
            if isinstance(found, Note):
                if found not in verdict.notes:
                    verdict.notes.append(found)
            elif (found.name, found.argument) not in known:
                known.add((found.name, found.argument))
                verdict.faults.append(found)
    return verdict


def _fault(name: str, piece: Evidence, reason: str = "", repair: str = "", **changes: str) -> Fault:
    entry = BY_NAME[name]
    return Fault(
        entry,
        changes.get("argument", piece.argument),
        changes.get("seen", piece.seen),
        changes.get("due", piece.due),
        reason or entry.why,
        repair or entry.snippet,
    )


Found = list[Fault | Note]

# --- contract -------------------------------------------------------------------------------------------


def _violation(exam: Exam, piece: Evidence) -> Found:
    breach: contract.Violation = piece.data["violation"]
    return [_fault(breach.fault, piece, breach.reason, breach.repair)]


def _tensor_kwargs(exam: Exam, piece: Evidence) -> Found:
    call: Call = piece.data["call"]
    reason = (
        "tf.custom_gradient records positional arguments only: by keyword the rule is dropped or miscounts."
    )
    return [
        _fault(
            "kwargs-unsupported",
            piece,
            reason,
            f"{call.name}({piece.argument})   # not {piece.seen}",
            due="the tensor by position",
        )
    ]


def _variable_order(exam: Exam, piece: Evidence) -> Found:
    return [_fault("variables-order", piece)]


def _no_inputs(exam: Exam, piece: Evidence) -> Found:
    if piece.data["error"] is not None:
        return _raised(
            exam, Evidence("contract", "raised", "", piece.seen, "", {**piece.data, "stage": exam.stage})
        )
    if piece.data["integers"]:
        name = piece.data["integers"][0]
        return [
            _fault(
                "integer-input",
                piece,
                repair=f"{name} = tf.cast({name}, tf.float32)",
                due="a floating-point tensor",
            )
        ]
    return [Note("no-inputs", "", "no input is a floating-point tensor: there is nothing to differentiate")]


def _value_changes(exam: Exam, piece: Evidence) -> Found:
    reason = "f itself gives another value at each call (random numbers, a state), so it has no derivative to compare with."
    return [_fault("nondeterministic", piece, reason)]


def _gradient_changes(exam: Exam, piece: Evidence) -> Found:
    return [_fault("nondeterministic", piece)]


def _follows_later_call(exam: Exam, piece: Evidence) -> Found:
    return [_fault("stale-state", piece)]


# --- exceptions -----------------------------------------------------------------------------------------


def _raised(exam: Exam, piece: Evidence) -> Found:
    error: BaseException = piece.data["error"]
    calls: list[Call] = piece.data["calls"]
    place = tracing.user_line(error)
    seen = f"{type(error).__name__}: {_first_line(error)}" + (f" ({place})" if place else "")
    found = _by_its_pull(calls, piece, seen) or _by_its_text(error, piece, seen, piece.data.get("stage", ""))
    if found is None and piece.question == "contract":
        found = _by_other_mode(exam, error, piece, seen)
    return [
        found
        or _fault(
            "raises", piece, seen=seen, due="a value and its gradient", repair=place or "see the traceback"
        )
    ]


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # a traced function puts "in user code:" and a traceback before the message
    if lines and lines[0].startswith("in user code"):
        lines = lines[-1:]
    return (lines[0] if lines else "")[:160]


def _by_its_pull(calls: Sequence[Call], piece: Evidence, seen: str) -> Fault | None:
    """A rule that raised: on what it was handed."""
    for call in calls:
        for pull in call.pulls:
            if pull.error is None:
                continue
            if any(u is None for u in pull.upstreams):
                return _fault(
                    "none-upstream",
                    piece,
                    argument=call.name,
                    seen=seen,
                    due="an answer where one upstream is None",
                )
            if any(isinstance(u, tf.IndexedSlices) for u in pull.upstreams):
                return _fault(
                    "indexedslices-upstream",
                    piece,
                    argument=call.name,
                    seen=seen,
                    due="an answer for tf.IndexedSlices",
                )
    return None


# TensorFlow's own words, each with the fault that makes it say so
_TEXTS: tuple[tuple[str, str], ...] = (
    ("must accept keyword argument 'variables'", "variables-missing"),
    ("got an unexpected keyword argument 'variables'", "variables-missing"),
    ("Must return gradient for each variable", "variables-arity"),
    ("custom_gradient function expected to return", "wrong-arity"),
    ("returned too few gradients", "wrong-arity"),
    ("too many gradients", "wrong-arity"),
    ("supports keywords arguments only when eager", "kwargs-unsupported"),
    ("keyword arguments", "kwargs-unsupported"),
    ("Attempt to convert a value", "non-tensor-argument"),
    ("tensor but is a", "wrong-dtype"),  # "... was expected to be a float tensor but is a double tensor"
    ("is not supported when eager execution is enabled", "graph-only"),
    ("is meaningless when eager execution is enabled", "graph-only"),
)


def _by_its_text(error: BaseException, piece: Evidence, seen: str, stage: str = "") -> Fault | None:
    if isinstance(error, MissingRule):
        return _fault(
            "missing-grad-fn", piece, argument=error.call.name, seen=str(error), due="(value, rule)"
        )
    if isinstance(error, GradientError) and error.fault:
        return _fault(error.fault, piece, seen=seen)
    text = str(error)
    for part, name in _TEXTS:
        if name == "kwargs-unsupported" and "custom_gradient" not in text:
            continue
        if name == "wrong-dtype" and stage == "forward":
            continue  # the function's own mixture of dtypes, not its gradient's
        if part in text:
            return _fault(name, piece, seen=seen, due=BY_NAME[name].repair)
    return None


def _by_other_mode(exam: Exam, error: BaseException, piece: Evidence, seen: str) -> Fault | None:
    """What raises as it is called may work without a graph, within one, or with its forward pass hidden."""
    if isinstance(error, LookupError) and exam.stage == "backward" and _works_unwatched(exam):
        return _fault("forward-watched", piece, argument="", seen=seen, due="the rule alone")
    if not exam.calls and not _traces(exam.subject.f):
        return None
    if _works(exam, run_eagerly()):
        return _fault(
            "graph-unfriendly", piece, seen=f"{seen}, in a graph", due="as in eager mode, where it works"
        )
    if exam.stage == "backward" and _works_in_graph(exam):
        return _fault(
            "graph-only", piece, seen=f"{seen}, in eager mode", due="as in tf.function, where it works"
        )
    return None


def _traces(f: Any) -> bool:
    return isinstance(f, tf.types.experimental.PolymorphicFunction)


def _works(exam: Exam, scope: Any) -> bool:
    if tf.config.functions_run_eagerly():
        return False
    try:
        with scope:
            run = exam.subject.run()
            twin = Exam(exam.subject, exam.options)
            twin.run = run
            run.pull(twin.draw())
    except Exception:
        return False
    # only a function that was traced can behave differently now
    return bool(_traces(exam.subject.f) or any(call.graph for call in exam.calls))


def _works_unwatched(exam: Exam) -> bool:
    def hide(f: Any, args: Any) -> tuple[Any, Any]:
        def hidden(*inner: Any, **options: Any) -> Any:
            return f(*tf.nest.map_structure(tf.stop_gradient, inner), **options)

        return hidden, args

    try:
        with interception.altering(hide):
            run = exam.subject.run()
            run.pull([np.ones(tuple(y.shape)) for y in run.targets])
    except Exception:
        return False
    return True


def _works_in_graph(exam: Exam) -> bool:
    from cgrad.questions import modes

    if exam.run is None or not exam.probes:
        return False
    try:
        modes.pull_in_graph(exam)
    except Exception:
        return False
    return True


# --- linearity ------------------------------------------------------------------------------------------


def _constant(exam: Exam, piece: Evidence) -> Found:
    return [_fault("upstream-ignored", piece)]


def _nonlinear(exam: Exam, piece: Evidence) -> Found:
    if exam.options.surrogate:
        return [
            Note(
                "nonlinear",
                piece.argument,
                "the rule is not linear in the upstream: no Jacobian gives it (surrogate=True)",
            )
        ]
    return [_fault("nonlinear-in-upstream", piece)]


# --- connection -----------------------------------------------------------------------------------------


def _disconnected(exam: Exam, piece: Evidence) -> Found:
    index = piece.data["index"]
    item = exam.subject.inputs[index]
    if exam.options.surrogate and (not piece.data["missing"] or _returned_none(exam, item)):
        return [
            Note("surrogate", piece.argument, f"the rule gives {piece.seen}; the function has {piece.due}")
        ]
    integer = _integer_output(exam, piece)
    if integer:
        return [integer]
    if _returned_none(exam, item):
        return [_fault("none-returned", piece)]
    captured = _captured(exam, index)
    if captured:
        return [captured_fault(piece, captured)]
    cuts = [c for c in tracing.cuts(lambda: exam.subject.call()) if not c.step]
    if cuts:
        seen = f"{piece.seen}; the path leaves TensorFlow by {cuts[0]}"
        repair = f"# {os.path.basename(cuts[0].file)}:{cuts[0].line}: replace {cuts[0].operation} by TensorFlow operations"
        return [_fault("tape-broken", piece, seen=seen, repair=repair)]
    if not piece.data["missing"] and exam.calls:
        return [_fault("wrong-value", piece)]
    return [_fault("tape-broken", piece)]


def captured_fault(piece: Evidence, call: Call) -> Fault:
    """The fault of a function that closes over a tensor which matters."""
    names = ", ".join(inspect.unwrap(call.function).__code__.co_freevars)
    reason = f"{call.name} reads {piece.argument} through its closure ({names}); its rule answers for arguments only."
    return _fault(
        "captured-tensor",
        piece,
        reason,
        f"{call.name}({', '.join(argument_list(call))}, {piece.argument})   # and one more gradient",
    )


def argument_list(call: Call) -> list[str]:
    """The names of a call's arguments."""
    from cgrad.subject import argument_names

    return argument_names(call.function, call.args)


def _integer_output(exam: Exam, piece: Evidence) -> Fault | None:
    for call in exam.calls:
        dtypes = [tf.as_dtype(y.dtype) for y in tf.nest.flatten(call.value) if hasattr(y, "dtype")]
        if dtypes and not call.pulls and not any(d.is_floating or d.is_complex for d in dtypes):
            return _fault(
                "integer-output",
                piece,
                seen=f"{call.name} returns {dtypes[0].name}: its rule is never called",
            )
    return None


def _returned_none(exam: Exam, item: Any) -> bool:
    for call in exam.calls:
        for pull in call.pulls:
            returned = (
                pull.returned[0]
                if pull.variables and isinstance(pull.returned, (tuple, list))
                else pull.returned
            )
            answers = tf.nest.flatten(returned)
            if pull.variables and isinstance(pull.returned, (tuple, list)) and len(pull.returned) == 2:
                for variable, g in zip(pull.variables, pull.returned[1], strict=False):
                    if g is None and variable is item.leaf:
                        return True
            for leaf, g in zip(call.inputs(), answers, strict=False):
                # in a graph the leaf is a placeholder, so only shape and dtype are left to know it by
                if g is None and (leaf is item.leaf or getattr(leaf, "shape", None) == item.leaf.shape):
                    return True
    return False


def _captured(exam: Exam, index: int) -> Call | None:
    """A call that closes over this input, or over a tensor made from it."""
    truth = exam.reference
    if truth is None:
        return None
    try:
        with_path = truth.pull(exam.probes[0])[index]
    except Exception:
        return None
    if with_path is None or not exam.calls:
        return None
    for call in exam.calls:
        for tensor in call.captured():
            if tensor is exam.subject.inputs[index].leaf:
                return call
    # without rules there is a path, with them there is none: one of them swallowed it
    return exam.calls[0] if any(call.captured() for call in exam.calls) or _closes(exam.calls) else None


def _closes(calls: Sequence[Call]) -> bool:
    return any(getattr(inspect.unwrap(call.function), "__closure__", None) for call in calls)


def _flat(exam: Exam, piece: Evidence) -> Found:
    integer = _integer_output(exam, piece)
    if integer:
        return [integer]
    if not exam.options.surrogate:
        return [
            Note(
                "staircase",
                piece.argument,
                "the output changes in steps only: the derivative is zero where it exists",
            )
        ]
    cuts = [c for c in tracing.cuts(lambda: exam.subject.call()) if c.step]
    seen = f"{piece.seen}; {cuts[0]} has no derivative" if cuts else piece.seen
    return [_fault("non-differentiable-op", piece, seen=seen, due="the surrogate's gradient")]


def _no_float_output(exam: Exam, piece: Evidence) -> Found:
    return [_integer_output(exam, piece) or _fault("integer-output", piece, due="a floating-point output")]


# --- values ---------------------------------------------------------------------------------------------


def _nonfinite(exam: Exam, piece: Evidence) -> Found:
    return [_fault("nan-at-point", piece)]


def _value_nan(exam: Exam, piece: Evidence) -> Found:
    reason = "f itself is NaN here, so no rule can be right; guard the argument before the operation."
    return [_fault("nan-at-point", piece, reason, due="a finite value")]


def _value_infinite(exam: Exam, piece: Evidence) -> Found:
    return [Note("infinite", "", f"{piece.seen}: the derivative cannot be compared")]


def _shape_note(kind: str, text: str) -> Callable[[Exam, Evidence], Found]:
    return lambda exam, piece: [Note(kind, piece.argument, f"{piece.seen}: {text}")]


def _mismatch(exam: Exam, piece: Evidence) -> Found:
    if exam.options.surrogate:
        return [Note("surrogate", piece.argument, f"the rule gives {piece.seen}, the function {piece.due}")]
    case = _Case(exam, piece)
    for hypothesis in _HYPOTHESES:
        found = hypothesis(case)
        if found is not None:
            return [found]
    return [_fault("wrong-value", piece)]


class _Case:
    """A mismatch of one input, with the rule and the truth as functions of the upstream."""

    def __init__(self, exam: Exam, piece: Evidence) -> None:
        self.exam, self.piece = exam, piece
        self.index: int = piece.data["index"]
        self.item = exam.subject.inputs[self.index]
        self.answers: list[list[Array | None]] = piece.data["answers"]
        self._jacobian: Array | None = None

    def got(self, probe: int) -> Vector:
        g = self.answers[probe][self.index]
        return flat(g if g is not None else np.zeros(self.item.shape))

    def rule(self, upstream: Sequence[Array]) -> Vector:
        assert self.exam.run is not None
        g = self.exam.run.pull(upstream)[self.index]
        return flat(g if g is not None else np.zeros(self.item.shape))

    def truth(self, upstream: Sequence[Array], index: int | None = None) -> Vector | None:
        """u^T J by the reference where it was believed, by a numerical Jacobian where f is small."""
        index = self.index if index is None else index
        shape = self.exam.subject.inputs[index].shape
        if self.piece.data["truths"] is not None and self.exam.reference is not None:
            g = self.exam.reference.pull(upstream)[index]
            return flat(g if g is not None else np.zeros(shape, self._kind(index)))
        columns = self._numerical(index)
        return None if columns is None else np.asarray(columns @ self.exam.weights(upstream))

    def _kind(self, index: int) -> Any:
        return np.complex128 if self.exam.subject.inputs[index].dtype.is_complex else np.float64

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
        if self.exam.subject.eps() > 1e-10:
            rtol = max(rtol, 2e-2 if self.exam.subject.eps() > 1e-5 else 1e-3)
        size = max(float(np.abs(a).max(initial=0.0)), float(np.abs(b).max(initial=0.0)))
        return bool(np.abs(a - b).max(initial=0.0) <= rtol * size)

    def probes(self) -> list[list[Array]]:
        return self.exam.probes[:2]

    def zero(self, a: Vector) -> bool:
        return not np.any(np.abs(a) > 1e-12)


def _duplicate(case: _Case) -> Fault | None:
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
    return _fault(
        "duplicate-argument",
        case.piece,
        f"{doubled.name} is handed one tensor as two arguments, and answers the whole derivative for each.",
    )


def _stale(case: _Case) -> Fault | None:
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
                    return _fault("stale-state", case.piece)
    except Exception:
        return None
    return None


def _structure(case: _Case) -> Fault | None:
    """A dict came in, a list went out, and another leaf's gradient fits."""
    for call in case.exam.calls:
        mapped = any(isinstance(arg, dict) and len(arg) > 1 for arg in call.args)
        pull = next((p for p in call.pulls if p.error is None), None)
        if not mapped or pull is None:
            continue
        returned = (
            pull.returned[0]
            if isinstance(pull.returned, tuple) and len(pull.returned) == 1
            else pull.returned
        )
        listed = isinstance(returned, (list, tuple)) and not any(isinstance(g, dict) for g in returned)
        if listed and (_exchanged(case) is not None or len(call.args) == 1):
            keys = sorted(next(arg for arg in call.args if isinstance(arg, dict)))
            reason = f"a dict is flattened in sorted key order ({', '.join(map(str, keys))}); the list came in another order."
            repair = "return {" + ", ".join(f"{k!r}: d_{k}" for k in keys) + "}"
            return _fault("structure-order", case.piece, reason, repair)
    return None


def _exchanged(case: _Case) -> int | None:
    """Another input whose true gradient this one's is."""
    for other, item in enumerate(case.exam.subject.inputs):
        if other == case.index or item.shape != case.item.shape:
            continue
        fits = [case.same(case.got(p), case.truth(case.exam.probes[p], other)) for p in (0, 1)]
        if all(fits) and not case.zero(case.got(0)):
            return other
    return None


def _swapped(case: _Case) -> Fault | None:
    other = _exchanged(case)
    if other is None:
        return None
    theirs = case.exam.subject.inputs[other]
    if case.item.variable and theirs.variable:
        return _fault("variables-order", case.piece, f"this is the gradient of {theirs.name}.")
    # the other input has to be wrong too, or it is a coincidence of two equal gradients
    g = case.answers[0][other]
    if g is not None and case.same(flat(g), case.truth(case.exam.probes[0], other)):
        return None
    return _fault(
        "swapped-gradients", case.piece, f"this is the gradient of {theirs.name}: u^T dy/d{theirs.name}."
    )


def _by_closure(case: _Case) -> Fault | None:
    """The path through a captured tensor is missing."""
    for call in case.exam.calls:
        for tensor in call.captured():
            if any(tensor is item.leaf for item in case.exam.subject.inputs) and tensor is case.item.leaf:
                if all(tensor is not x for x in call.inputs()):
                    return captured_fault(case.piece, call)
    return None


def _point(case: _Case) -> Fault | None:
    """Right at a point nearby."""
    if case.item.variable or case.exam.reference is None and case.piece.data["truths"] is None:
        return _point_by_differences(case) if not case.item.variable else None
    nearby = _elsewhere(case, 0.03)
    if nearby is None:
        return _point_by_differences(case)
    got, truth = nearby
    here = np.abs(case.got(0) - case.truth(case.exam.probes[0]))
    there = np.abs(got - truth)
    if not np.isfinite(there).all() or there.max(initial=0.0) > 1e-3 * here.max(initial=0.0):
        return None
    return _fault("wrong-at-point", case.piece)


def _moved_leaves(case: _Case, reach: float) -> list[Any]:
    subject = case.exam.subject
    leaves = list(subject.leaves)
    steps = case.exam.direction()
    for item, step in zip(subject.inputs, steps, strict=True):
        if item.position is not None and not item.variable:
            away = np.maximum(np.abs(step), 0.1) * np.sign(step)
            leaves[item.position] = subject._moved(item, away, reach)
    return leaves


def _elsewhere(case: _Case, reach: float) -> tuple[Vector, Vector] | None:
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


def _point_by_differences(case: _Case) -> Fault | None:
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
    return _fault("wrong-at-point", case.piece)


def _passed_on(case: _Case) -> Fault | None:
    """The upstream itself, or its sum, comes back."""
    for probe in case.probes():
        fits = False
        got = case.rule(probe)
        for u in probe:
            if flat(u).shape == got.shape and case.same(got, flat(u), 1e-6):
                fits = True
            axes = contract.broadcast_axes(tuple(u.shape), case.item.shape)
            if axes and case.same(got, flat(np.sum(u, axis=axes, keepdims=True)), 1e-6):
                fits = True
        if not fits:
            return None
    return _fault("local-derivative-missing", case.piece)


def _conjugate(case: _Case) -> Fault | None:
    """What comes back is the conjugate of the right answer to the conjugate upstream."""
    if not case.item.dtype.is_complex:
        return None
    for probe in case.probes():
        truth = case.truth([np.conj(u) for u in probe])
        if truth is None or not case.same(case.rule(probe), flat(np.conj(truth.view(np.complex128)))):
            return None
    return _fault("missing-conjugate", case.piece)


def _transposed(case: _Case) -> Fault | None:
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
        if not case.same(got, (line.right[1] - line.left[1]) / (2 * h * scale), 1e-3):
            return None
    return _fault("transposed-jacobian", case.piece)


def _output_ignored(case: _Case) -> Fault | None:
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
            reason = (
                f"output {k} has no part in the gradient: u_{k}^T dy_{k}/d{case.piece.argument} is missing."
            )
            return _fault("output-ignored", case.piece, reason)
    return None


def _reduction(case: _Case) -> Fault | None:
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
            if case.same(case.got(0), flat(np.ascontiguousarray(total))):
                return _fault(
                    "wrong-reduction",
                    case.piece,
                    f"every entry holds the sum over axis {', '.join(map(str, axes))} of {case.piece.argument}, which keeps that axis.",
                )
    return _sums_first(case, truth)


def _sums_first(case: _Case, truth: Vector) -> Fault | None:
    """The rule sees only the upstream's sum over an axis of the output; the truth sees more."""
    probe = case.exam.probes[0]
    for k, u in enumerate(probe):
        for axis in range(u.ndim):
            if u.shape[axis] < 2:
                continue
            rolled = [np.roll(u, 1, axis) if i == k else w for i, w in enumerate(probe)]
            if case.same(case.rule(rolled), case.got(0), 1e-9) and _differs(case, rolled, truth):
                reason = f"the upstream enters only by its sum over axis {axis}: sum(u) * sum(a) is not sum(u * a)."
                return _fault("wrong-reduction", case.piece, reason)
    return None


def _differs(case: _Case, upstream: Sequence[Array], truth: Vector) -> bool:
    other = case.truth(upstream)
    return other is not None and not case.same(other, truth, 1e-6)


def _factor(case: _Case) -> Fault | None:
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
        if not case.same(got, c * due):
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
    return _fault("constant-factor", case.piece, f"every entry is {c:.6g} times u^T J: {lost}.", repair)


def _elsewhere_by_differences(case: _Case, reach: float) -> tuple[Vector, Vector] | None:
    subject = case.exam.subject
    twin = Subject(subject.f, subject.rebuild(_moved_leaves(case, reach)))
    other = Exam(twin, case.exam.options)
    other.sit()
    if other.error is not None or not other.answers or len(twin.inputs) != len(subject.inputs):
        return None
    g = other.gradients(0)[case.index]
    moved = _Case(other, Evidence("values", "mismatch", data={**case.piece.data, "truths": None}))
    moved.exam.probes[0] = other.probes[0]
    truth = moved.truth(other.probes[0])
    return None if g is None or truth is None else (flat(g), truth)


_HYPOTHESES: tuple[Callable[[_Case], Fault | None], ...] = (
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


# --- modes ----------------------------------------------------------------------------------------------


def _mode_raised(exam: Exam, piece: Evidence) -> Found:
    mode, error, without = piece.data["mode"], piece.data["error"], piece.data["without"]
    place = tracing.user_line(error)
    seen = f"{type(error).__name__} in mode {mode}: {_first_line(error)}" + (f" ({place})" if place else "")
    if mode == "xla" or (without is not None and mode != "graph") or _needs_sizes(mode, error):
        return [
            Note(
                f"mode-{mode}", "", f"f cannot run in mode {mode}, whatever its rule: {type(error).__name__}"
            )
        ]
    named = _by_its_pull(piece.data["calls"], piece, seen) or _by_its_text(error, piece, seen)
    if named is not None:
        return [named]
    return [_fault("pfor-unfriendly" if mode == "pfor" else "graph-unfriendly", piece, seen=seen)]


def _needs_sizes(mode: str, error: BaseException) -> bool:
    """tf.unstack and its kin refuse unknown sizes, loudly and whoever calls them."""
    return mode == "unknown sizes" and isinstance(error, ValueError) and "Cannot infer" in str(error)


def _mode_differs(exam: Exam, piece: Evidence) -> Found:
    if piece.data["value"] and piece.data["mode"] == "xla":
        return [Note("mode-xla", "", f"f itself has another value under XLA: {piece.seen}")]
    return [_fault("pfor-unfriendly" if piece.data["mode"] == "pfor" else "graph-unfriendly", piece)]


def _forward_differs(exam: Exam, piece: Evidence) -> Found:
    text = f"forward mode gives {piece.seen} where the rule means {piece.due}: tf.custom_gradient's rules are not used there; cgrad.custom_vjp's are"
    return [Note("mode-forward", "", text)]


def _forward_refused(exam: Exam, piece: Evidence) -> Found:
    return [Note("mode-forward", "", f"f cannot run in forward mode: {piece.seen}")]


# --- second order ---------------------------------------------------------------------------------------


def _second_raised(exam: Exam, piece: Evidence) -> Found:
    error: BaseException = piece.data["error"]
    place = tracing.user_line(error)
    seen = f"{type(error).__name__}: {_first_line(error)}" + (f" ({place})" if place else "")
    named = _by_its_pull(piece.data["calls"], piece, seen) or _by_its_text(error, piece, seen)
    if named is not None and named.name != "raises":
        return [named]
    if piece.data["possible"] or (isinstance(error, LookupError) and piece.data["moves"]):
        return [
            _fault(
                "backward-not-differentiable",
                piece,
                seen=seen,
                due="the second derivative, which the forward pass has",
            )
        ]
    return [Note("second-order", "", f"no second derivative: {seen}")]


def _second_silent(exam: Exam, piece: Evidence) -> Found:
    for call in exam.calls:
        for inner in call.captured():
            if any(inner is item.leaf for item in exam.subject.inputs):
                return [_fault("captured-tensor", piece)]
    return [_fault("backward-not-differentiable", piece)]


def _second_wrong(exam: Exam, piece: Evidence) -> Found:
    return [_fault("second-order-wrong", piece)]


_NAMES: dict[str, Callable[[Exam, Evidence], Found]] = {
    "violation": _violation,
    "tensor-kwargs": _tensor_kwargs,
    "variable-order": _variable_order,
    "no-inputs": _no_inputs,
    "value-changes": _value_changes,
    "gradient-changes": _gradient_changes,
    "gradient-follows-later-call": _follows_later_call,
    "raised": lambda exam, piece: {"modes": _mode_raised, "second_order": _second_raised}.get(
        piece.question, _raised
    )(exam, piece),
    "constant": _constant,
    "nonlinear": _nonlinear,
    "disconnected": _disconnected,
    "flat": _flat,
    "no-float-output": _no_float_output,
    "nonfinite": _nonfinite,
    "value-nan": _value_nan,
    "value-infinite": _value_infinite,
    "mismatch": _mismatch,
    "kink": _shape_note("kink", "any slope in between is a derivative"),
    "edge": _shape_note("edge", "judged from inside"),
    "jump": _shape_note("jump", "a derivative does not exist there"),
    "steep": _shape_note("steep", "the derivative is infinite there"),
    "cannot-tell": _shape_note("cannot-tell", "neither right nor wrong can be shown"),
    "differs": _mode_differs,
    "forward-differs": _forward_differs,
    "forward-refused": _forward_refused,
    "silent": _second_silent,
    "wrong": _second_wrong,
}
