"""From an exception to the name of the fault: by what the rule was handed, by TensorFlow's words, by other modes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from cgrad import interception, tracing
from cgrad.diagnosis.verdict import Fault, Found, Note, fault
from cgrad.errors import GradientError, NotDifferentiableError, said
from cgrad.exam import Evidence, Exam, run_eagerly
from cgrad.faults import BY_NAME
from cgrad.interception import Call, MissingRule


def name(exam: Exam, piece: Evidence) -> Found:
    """Names an exception, by the question that met it."""
    if piece.question == "modes":
        return _mode_raised(exam, piece)
    if piece.question == "second_order":
        return _second_raised(exam, piece)
    return _raised(exam, piece)


def _raised(exam: Exam, piece: Evidence) -> Found:
    error: BaseException = piece.data["error"]
    calls: list[Call] = piece.data["calls"]
    place = tracing.user_line(error)
    seen = f"{type(error).__name__}: {_first_line(error)}" + (f" ({place})" if place else "")
    found = _by_its_pull(calls, piece, seen) or _by_its_text(error, piece, seen, piece.data.get("stage", ""))
    if found is None and piece.question == "contract":
        found = _by_other_mode(exam, error, piece, seen)
    return [
        found or fault("raises", piece, seen=seen, due="a value and its gradient", repair=place or "see the traceback")
    ]


def _first_line(error: BaseException) -> str:
    plain = re.sub(r"\x1b\[[0-9;]*m", "", said(error))
    lines = [line.strip() for line in plain.splitlines() if line.strip()]
    # a traced function puts "in user code:" and a traceback before the message
    if lines and lines[0].startswith("in user code"):
        lines = lines[-1:]
    # Keras says where first, and what below
    if len(lines) > 1 and lines[0].startswith("Exception encountered when calling"):
        lines = [f"{lines[0]} {lines[1]}"]
    return (lines[0] if lines else "")[:160]


def _by_its_pull(calls: Sequence[Call], piece: Evidence, seen: str) -> Fault | None:
    """A rule that raised: on what it was handed."""
    for call in calls:
        for pull in call.pulls:
            if pull.error is None:
                continue
            if any(u is None for u in pull.upstreams):
                return fault(
                    "none-upstream",
                    piece,
                    argument=call.name,
                    seen=seen,
                    due="an answer where one upstream is None",
                )
            if any(isinstance(u, tf.IndexedSlices) for u in pull.upstreams):
                return fault(
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
        return fault("missing-grad-fn", piece, argument=error.call.name, seen=said(error), due="(value, rule)")
    if isinstance(error, GradientError) and error.fault:
        return fault(error.fault, piece, seen=seen)
    text = said(error)
    for part, known in _TEXTS:
        if known == "kwargs-unsupported" and "custom_gradient" not in text:
            continue
        if known == "wrong-dtype" and stage == "forward":
            continue  # the function's own mixture of dtypes, not its gradient's
        if part in text:
            return fault(known, piece, seen=seen, due=BY_NAME[known].repair)
    return None


def _by_other_mode(exam: Exam, error: BaseException, piece: Evidence, seen: str) -> Fault | None:
    """What raises as it is called may work without a graph, within one, or with its forward pass hidden."""
    if isinstance(error, LookupError) and _works_unwatched(exam):
        return fault("forward-watched", piece, argument="", seen=seen, due="the rule alone")
    if not exam.calls and not _traces(exam.subject.f):
        return None
    if _works(exam, run_eagerly()):
        due, repair = "as in eager mode, where it works", _for_a_graph(error, "graph-unfriendly")
        return fault("graph-unfriendly", piece, seen=f"{seen}, in a graph", due=due, repair=repair)
    if exam.stage == "backward" and _works_in_graph(exam):
        return fault("graph-only", piece, seen=f"{seen}, in eager mode", due="as in tf.function, where it works")
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


def _mode_raised(exam: Exam, piece: Evidence) -> Found:
    mode, error, without = piece.data["mode"], piece.data["error"], piece.data["without"]
    place = tracing.user_line(error)
    seen = f"{type(error).__name__} in mode {mode}: {_first_line(error)}" + (f" ({place})" if place else "")
    if mode == "xla" or (without is not None and mode != "graph") or _needs_sizes(mode, error):
        return [Note(f"mode-{mode}", "", f"f cannot run in mode {mode}, whatever its rule: {type(error).__name__}")]
    named = _by_its_pull(piece.data["calls"], piece, seen) or _by_its_text(error, piece, seen)
    if named is not None:
        return [named]
    known = "pfor-unfriendly" if mode == "pfor" else "graph-unfriendly"
    return [fault(known, piece, seen=seen, repair=_for_a_graph(error, known))]


def _for_a_graph(error: BaseException, known: str) -> str:
    """The repair for what was asked of a tensor that has no value yet."""
    text = said(error)
    if "Python `bool`" in text:
        return "tf.where(condition, a, b)   # not: a if condition else b"
    if "numpy" in text.lower():
        return "tf.sin(x)   # not np.sin(x), nor x.numpy()"
    return BY_NAME[known].snippet


def _needs_sizes(mode: str, error: BaseException) -> bool:
    """tf.unstack and its kin refuse unknown sizes, loudly and whoever calls them."""
    return mode == "unknown sizes" and isinstance(error, ValueError) and "Cannot infer" in said(error)


def _second_raised(exam: Exam, piece: Evidence) -> Found:
    error: BaseException = piece.data["error"]
    place = tracing.user_line(error)
    seen = f"{type(error).__name__}: {_first_line(error)}" + (f" ({place})" if place else "")
    refused = isinstance(error, NotDifferentiableError) and not piece.data["possible"]
    if refused:  # said aloud, and NumPy has no second derivative to offer
        return [Note("second-order", "", f"no second derivative: {_first_line(error)}")]
    named = _by_its_pull(piece.data["calls"], piece, seen) or _by_its_text(error, piece, seen)
    if named is not None and named.name != "raises":
        return [named]
    if piece.data["possible"] or (isinstance(error, LookupError) and piece.data["moves"]):
        return [
            fault(
                "backward-not-differentiable",
                piece,
                seen=seen,
                due="the second derivative, which the forward pass has",
            )
        ]
    return [Note("second-order", "", f"no second derivative: {seen}")]
