"""From the evidence to the name of the fault: each kind of evidence has one function that names it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cgrad import contract
from cgrad.diagnosis import exceptions, mismatch, paths, surrogates
from cgrad.diagnosis.verdict import Fault as Fault
from cgrad.diagnosis.verdict import Found, fault
from cgrad.diagnosis.verdict import Note as Note
from cgrad.diagnosis.verdict import Verdict as Verdict
from cgrad.exam import Evidence, Exam
from cgrad.interception import Call


def diagnose(exam: Exam, evidence: Sequence[Evidence]) -> Verdict:
    """Names each piece of evidence; the same fault of the same input is named once."""
    verdict = Verdict()
    known: set[tuple[str, str]] = set()
    for piece in evidence:
        for found in _NAMES[piece.kind](exam, piece):
            if isinstance(found, Note):
                if found not in verdict.notes:
                    verdict.notes.append(found)
            elif found.name == "raises" and verdict.faults:
                continue  # TensorFlow stumbles over what has a name already
            elif (found.name, found.argument) not in known:
                known.add((found.name, found.argument))
                verdict.faults.append(found)
    return verdict


# --- contract -------------------------------------------------------------------------------------------


def _violation(exam: Exam, piece: Evidence) -> Found:
    breach: contract.Violation = piece.data["violation"]
    return [fault(breach.fault, piece, breach.reason, breach.repair)]


def _permuted(exam: Exam, piece: Evidence) -> Found:
    call: Call = piece.data["call"]
    if piece.data["variables"]:
        return [fault("variables-order", piece)]
    if any(isinstance(arg, dict) for arg in call.args) and not piece.data["mapping"]:
        return [mismatch.structure_fault(piece, call)]
    return [fault("swapped-gradients", piece)]


def _tensor_kwargs(exam: Exam, piece: Evidence) -> Found:
    call: Call = piece.data["call"]
    reason = "tf.custom_gradient records positional arguments only: by keyword the rule is dropped or miscounts."
    return [
        fault(
            "kwargs-unsupported",
            piece,
            reason,
            f"{call.name}({piece.argument})   # not {piece.seen}",
            due="the tensor by position",
        )
    ]


def _variable_order(exam: Exam, piece: Evidence) -> Found:
    return [fault("variables-order", piece)]


def _no_inputs(exam: Exam, piece: Evidence) -> Found:
    if piece.data["error"] is not None:
        return exceptions.name(
            exam, Evidence("contract", "raised", "", piece.seen, "", {**piece.data, "stage": exam.stage})
        )
    if piece.data["integers"]:
        name = piece.data["integers"][0]
        return [
            fault(
                "integer-input",
                piece,
                repair=f"{name} = tf.cast({name}, tf.float32)",
                due="a floating-point tensor",
            )
        ]
    came = ", ".join(f"{name} is {what}" for name, what in exam.subject.signature()) or "no argument was given"
    return [Note("no-inputs", "", f"no input is a floating-point tensor ({came}): there is nothing to differentiate")]


def _value_changes(exam: Exam, piece: Evidence) -> Found:
    reason = (
        "f itself gives another value at each call (random numbers, a state), so it has no derivative to compare with."
    )
    return [fault("nondeterministic", piece, reason)]


def _gradient_changes(exam: Exam, piece: Evidence) -> Found:
    return [fault("nondeterministic", piece)]


def _follows_later_call(exam: Exam, piece: Evidence) -> Found:
    return [fault("stale-state", piece)]


# --- linearity ------------------------------------------------------------------------------------------


def _constant(exam: Exam, piece: Evidence) -> Found:
    return [fault("upstream-ignored", piece)]


def _nonlinear(exam: Exam, piece: Evidence) -> Found:
    if exam.options.surrogate:
        return [
            Note(
                "nonlinear",
                piece.argument,
                "the rule is not linear in the upstream: no Jacobian gives it (surrogate=True)",
            )
        ]
    return [fault("nonlinear-in-upstream", piece)]


# --- values ---------------------------------------------------------------------------------------------


def _nonfinite(exam: Exam, piece: Evidence) -> Found:
    return [fault("nan-at-point", piece)]


def _value_nan(exam: Exam, piece: Evidence) -> Found:
    reason = "f itself is NaN here, so no rule can be right; guard the argument before the operation."
    return [fault("nan-at-point", piece, reason, due="a finite value")]


def _value_infinite(exam: Exam, piece: Evidence) -> Found:
    return [Note("infinite", "", f"{piece.seen}: the derivative cannot be compared")]


def _shape_note(kind: str, text: str) -> Callable[[Exam, Evidence], Found]:
    return lambda exam, piece: [Note(kind, piece.argument, f"{piece.seen}: {text}")]


def _mismatch(exam: Exam, piece: Evidence) -> Found:
    if exam.options.surrogate:
        masked = surrogates.narrow_mask(exam, piece)
        return [masked or Note("surrogate", piece.argument, f"the rule gives {piece.seen}, the function {piece.due}")]
    return [mismatch.name(exam, piece)]


# --- modes ---


def _mode_differs(exam: Exam, piece: Evidence) -> Found:
    if piece.data["value"] and piece.data["mode"] == "xla":
        return [Note("mode-xla", "", f"f itself has another value under XLA: {piece.seen}")]
    return [fault("pfor-unfriendly" if piece.data["mode"] == "pfor" else "graph-unfriendly", piece)]


def _forward_differs(exam: Exam, piece: Evidence) -> Found:
    text = (
        f"forward mode gives {piece.seen} where the rule means {piece.due}: it does not use the rules of "
        "tf.custom_gradient; those of cgrad.custom_vjp it does"
    )
    return [Note("mode-forward", "", text)]


def _forward_refused(exam: Exam, piece: Evidence) -> Found:
    return [Note("mode-forward", "", f"f cannot run in forward mode: {piece.seen}")]


# --- second order ---------------------------------------------------------------------------------------


def _second_silent(exam: Exam, piece: Evidence) -> Found:
    if piece.argument == "upstream":
        why = (
            "What comes after f differentiates the rule in the upstream, too: d<g(x; u), w>/du = J w. The rule cut it."
        )
        repair = "use the upstream itself in the rule: no tf.stop_gradient, no NumPy, no .numpy() on it"
        return [fault("backward-not-differentiable", piece, why, repair=repair)]
    for call in exam.calls:
        for inner in call.captured():
            if any(inner is item.leaf for item in exam.subject.inputs):
                return [fault("captured-tensor", piece)]
    return [fault("backward-not-differentiable", piece)]


def _second_wrong(exam: Exam, piece: Evidence) -> Found:
    return [fault("second-order-wrong", piece)]


_NAMES: dict[str, Callable[[Exam, Evidence], Found]] = {
    "violation": _violation,
    "permuted": _permuted,
    "tensor-kwargs": _tensor_kwargs,
    "variable-order": _variable_order,
    "no-inputs": _no_inputs,
    "value-changes": _value_changes,
    "gradient-changes": _gradient_changes,
    "gradient-follows-later-call": _follows_later_call,
    "raised": exceptions.name,
    "constant": _constant,
    "nonlinear": _nonlinear,
    "disconnected": paths.disconnected,
    "flat": paths.flat,
    "no-float-output": paths.no_float_output,
    "nonfinite": _nonfinite,
    "value-nan": _value_nan,
    "value-infinite": _value_infinite,
    "mismatch": _mismatch,
    "kink": _shape_note("kink", "any slope in between is a derivative"),
    "edge": _shape_note("edge", "judged from inside"),
    "jump": _shape_note("jump", "a derivative does not exist there"),
    "steep": _shape_note("steep", "the derivative is infinite there"),
    "symmetric": lambda exam, piece: [
        Note("symmetric", piece.argument, "right along symmetric directions: the function takes it as symmetric")
    ],
    "cannot-tell": _shape_note("cannot-tell", "neither right nor wrong can be shown"),
    "differs": _mode_differs,
    "forward-differs": _forward_differs,
    "forward-refused": _forward_refused,
    "silent": _second_silent,
    "wrong": _second_wrong,
}
