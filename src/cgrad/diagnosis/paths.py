"""From a missing path to the name of the fault: who cut it, and where."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from cgrad import tracing
from cgrad.diagnosis.verdict import Fault, Found, Note, fault
from cgrad.exam import Evidence, Exam
from cgrad.interception import Call
from cgrad.subject import argument_names


def disconnected(exam: Exam, piece: Evidence) -> Found:
    """Names an input that matters and has no gradient."""
    index = piece.data["index"]
    item = exam.subject.inputs[index]
    if exam.options.surrogate and (not piece.data["missing"] or _returned_none(exam, item)):
        return [Note("surrogate", piece.argument, f"the rule gives {piece.seen}; the function has {piece.due}")]
    integer = _integer_output(exam, piece)
    if integer:
        return [integer]
    if _returned_none(exam, item):
        return [fault("none-returned", piece)]
    captured = _captured(exam, index)
    if captured:
        return [captured_fault(piece, captured)]
    cut = cut_fault(exam, piece)
    if cut is not None:
        return [cut]
    if not piece.data["missing"] and _answers_nearby(exam, index):
        return [fault("wrong-at-point", piece)]
    if not piece.data["missing"] and exam.calls:
        return [fault("wrong-value", piece)]
    return [fault("tape-broken", piece)]


def _answers_nearby(exam: Exam, index: int) -> bool:
    """Whether the gradient that is zero here is not a little further on."""
    leaves = list(exam.subject.leaves)
    for item, step in zip(exam.subject.inputs, exam.direction(), strict=True):
        if item.position is not None and not item.variable:
            away = np.sign(step) * np.maximum(np.abs(step), 0.1)
            leaves[item.position] = exam.subject._moved(item, away, 0.03)
    try:
        nearby = exam.subject.run(leaves).pull(exam.probes[0])[index]
    except Exception:
        return False
    return nearby is not None and bool(np.abs(nearby).max(initial=0.0) > exam.noise(index))


def cut_fault(exam: Exam, piece: Evidence) -> Fault | None:
    """The fault of a path that leaves TensorFlow, with the line where it does; None if no such line is found."""
    cuts = [c for c in tracing.cuts(lambda: exam.subject.call()) if not c.step]
    if not cuts:
        return None
    seen = f"{piece.seen}; the path leaves TensorFlow by {cuts[0]}"
    if cuts[0].operation == "tf.stop_gradient":
        reason = (
            "tf.stop_gradient makes a constant of what it is handed, for the tape; the value still follows the input."
        )
        repair = f"# {cuts[0].place}: leave it out; or say that it is meant: cgrad.gradcheck(..., surrogate=True)"
        return fault("tape-broken", piece, reason, repair, seen=seen)
    repair = f"# {cuts[0].place}: replace {cuts[0].operation} by TensorFlow operations"
    return fault("tape-broken", piece, seen=seen, repair=repair)


def captured_fault(piece: Evidence, call: Call) -> Fault:
    """The fault of a function that closes over a tensor which matters."""
    free = ", ".join(inspect.unwrap(call.function).__code__.co_freevars)
    names = argument_names(call.function, call.args)
    reason = f"{call.name} reads {piece.argument} through its closure ({free}); its rule answers for arguments only."
    return fault(
        "captured-tensor",
        piece,
        reason,
        f"{call.name}({', '.join(names)}, {piece.argument})   # and one more gradient",
    )


def _integer_output(exam: Exam, piece: Evidence) -> Fault | None:
    for call in exam.calls:
        dtypes = [tf.as_dtype(y.dtype) for y in tf.nest.flatten(call.value) if hasattr(y, "dtype")]
        if dtypes and not call.pulls and not any(d.is_floating or d.is_complex for d in dtypes):
            return fault(
                "integer-output",
                piece,
                seen=f"{call.name} returns {dtypes[0].name}: its rule is never called",
            )
    return None


def _returned_none(exam: Exam, item: Any) -> bool:
    for call in exam.calls:
        for pull in call.pulls:
            returned = (
                pull.returned[0] if pull.variables and isinstance(pull.returned, (tuple, list)) else pull.returned
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
    if exam.ruled and any(answer[index] is not None for answer in exam.answers):
        return None  # a rule answered, with zeros
    # without rules there is a path, with them there is none: one of them swallowed it
    return exam.calls[0] if any(call.captured() for call in exam.calls) or _closes(exam.calls) else None


def _closes(calls: Sequence[Call]) -> bool:
    return any(getattr(inspect.unwrap(call.function), "__closure__", None) for call in calls)


def flat(exam: Exam, piece: Evidence) -> Found:
    """Names an input through which the output moves in steps only."""
    integer = _integer_output(exam, piece)
    if integer:
        return [integer]
    if not exam.options.surrogate:
        return [
            Note(
                "staircase",
                piece.argument,
                "nothing changes nearby, only further away (a step, a dead relu): the derivative is zero",
            )
        ]
    cuts = [c for c in tracing.cuts(lambda: exam.subject.call()) if c.step]
    seen = f"{piece.seen}; {cuts[0]} has no derivative" if cuts else piece.seen
    return [fault("non-differentiable-op", piece, seen=seen, due="the surrogate's gradient")]


def no_float_output(exam: Exam, piece: Evidence) -> Found:
    """Names an output without derivatives: a number that left TensorFlow, an integer, or nothing at all."""
    integer = _integer_output(exam, piece)
    if integer:
        return [integer]
    outputs = exam.run.outputs if exam.run else []
    tensors = [y for y in outputs if isinstance(y, (tf.Tensor, tf.Variable))]
    came = ", ".join(type(y).__name__ for y in outputs) or "nothing"
    if any(isinstance(y, (float, np.floating, np.ndarray)) for y in outputs):
        gone = replace(piece, seen=f"f returns {came}", due="a tensor")
        return [cut_fault(exam, gone) or fault("tape-broken", gone)]
    if not tensors:
        return [
            fault("raises", piece, f"f returns {came}: there is nothing to differentiate.", argument="", due="a tensor")
        ]
    return [fault("integer-output", piece, due="a floating-point output")]
