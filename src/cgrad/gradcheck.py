"""The check: six questions, the evidence they find, the names it comes to."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import tensorflow as tf

from cgrad import progress, usage
from cgrad.diagnosis import Fault, Note, Verdict, diagnose
from cgrad.errors import said
from cgrad.exam import MODES, Exam, Options, run_eagerly
from cgrad.faults import BY_NAME
from cgrad.jacobians import lazily
from cgrad.questions import connection, contract, linearity, modes, second_order, values
from cgrad.report import Report
from cgrad.state import as_it_was
from cgrad.subject import Subject


def gradcheck(
    f: Callable[..., Any],
    *args: Any,
    order: int = 2,
    modes: tuple[str, ...] = MODES,
    surrogate: bool = False,
    rtol: float | None = None,
    seed: int = 0,
) -> Report:
    """Checks the derivative of a function at a point, and names what is wrong with it.

    Six questions are asked in turn: is what the rule returns of the right structure, shape and dtype; is every input
    connected; is the rule linear in the upstream gradient; are its values right; does it work in every mode of
    TensorFlow; is its own derivative right. Nothing is changed for the caller: random
    states, settings and the variables that f reaches are put back, also when f draws, counts, raises or is
    interrupted.

    Args:
        f: any function of tensors: decorated by `cgrad`, by ``tf.custom_gradient``, by Keras, composed, or plain.
            Variables that it reads are checked too.
        *args: the point: tensors, variables, arrays, numbers, or nested structures of them. Floating-point and
            complex leaves of any shape are differentiated; integers, strings and other objects are left alone.
        order: 1 for first derivatives only, 2 for second ones as well.
        modes: those of ``("eager", "graph", "xla", "pfor", "forward")`` to compare; ``("eager",)`` is the cheapest.
        surrogate: the rule differs from the derivative on purpose (straight-through, reversal, clipping): values and
            non-linearity become notes; contract, connection and modes are still checked.
        rtol: the relative difference that counts as rounding; by default it follows from the dtype, and where
            differences decide, from their own error bar.
        seed: of the random upstreams and directions.

    Returns:
        A `Report`: true when nothing is wrong, with ``faults`` and ``notes``; print it.

    Raises:
        UsageError: for a wrong call of gradcheck itself. What f does wrong is reported, not raised. There is no limit
            of time: a function that never returns is waited for, and Ctrl-C ends the check with everything as it was.

    Source:
        Central differences with Richardson's extrapolation: Ridders, Adv. Eng. Software 4 (1982) 75.

    Examples:
        The rule forgets that ``b`` is added to every row:

        >>> import tensorflow as tf
        >>> import cgrad
        >>> @tf.custom_gradient
        ... def shift(x, b):
        ...     return x + b, lambda upstream: (upstream, upstream)
        >>> report = cgrad.gradcheck(shift, tf.ones((2, 3)), tf.zeros(3))
        >>> report.ok, report.faults[0].name, report.faults[0].argument
        (False, 'not-unbroadcast', 'b')
        >>> print(report.faults[0].repair)
        tf.reduce_sum(g, axis=[0])   # g: what is returned for `b` now

        >>> @tf.custom_gradient
        ... def shift(x, b):
        ...     return x + b, lambda upstream: (upstream, tf.reduce_sum(upstream, axis=[0]))
        >>> assert cgrad.gradcheck(shift, tf.ones((2, 3)), tf.zeros(3))
    """
    options = options_of(order, modes, surrogate, rtol, seed)
    start = time.perf_counter()
    subject = Subject(f, args)
    exam = Exam(subject, options)
    with _one_at_a_time, _quiet(), as_it_was(f, args), progress.shown(subject.name):
        progress.step("values of f and its rule")
        exam.sit()
        verdict, fine = _judge(exam)
    used = {id(s): s for s in (subject, fine.subject)}.values()
    return Report(
        function=subject.name,
        faults=tuple(verdict.faults),
        notes=tuple(verdict.notes),
        evaluations=sum(s.evaluations for s in used),
        pulls=sum(s.pulls for s in used),
        seconds=time.perf_counter() - start,
        options=options,
        inputs=subject.signature(),
        _jacobians=lazily(fine, _one_at_a_time),
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps TensorFlow's logger from remarking, in this thread, on what is only being tried out."""
    here, logger = threading.get_ident(), tf.get_logger()

    def by_others(record: logging.LogRecord) -> bool:
        return record.thread != here

    logger.addFilter(by_others)
    try:
        yield
    finally:
        logger.removeFilter(by_others)


# Running functions eagerly, which two of the questions need, is a setting of the whole process.
_one_at_a_time = threading.RLock()


def _judge(exam: Exam) -> tuple[Verdict, Exam]:
    verdict = Verdict()
    _ask(contract, exam, verdict)
    if exam.error is not None or exam.unsteady or not exam.answers:
        if not verdict.faults and exam.run is not None:
            _ask(connection, exam, verdict)
        return verdict, exam
    fine = _finest(exam)  # what is right in one precision is judged in the finest that f accepts
    before = len(verdict.faults)
    _ask(connection, fine, verdict)
    _ask(linearity, fine, verdict)
    _ask(values, exam if exam.overflows else fine, verdict)
    verdict.faults.sort(key=lambda fault: fault.name == "wrong-value")  # what has a better name comes first
    if len(verdict.faults) > before and any(call.graph for call in exam.calls):
        _blame_the_graph(fine, verdict)
    if not verdict.faults:
        _ask(modes, exam, verdict)
        if not exam.options.surrogate:
            _ask(second_order, fine, verdict)
    return verdict, fine


def _ask(question: ModuleType, exam: Exam, verdict: Verdict) -> None:
    """Asks one question and names what it saw; what goes wrong on the way is said, not raised."""
    name = question.__name__.rsplit(".", 1)[-1]
    progress.step(name.replace("_", " "))
    try:
        verdict.add(diagnose(exam, question.ask(exam)))
    except Exception as error:
        verdict.notes.append(
            Note("not-asked", "", f"the question of {name} broke off: {type(error).__name__}: {said(error)}")
        )


def _blame_the_graph(exam: Exam, verdict: Verdict) -> None:
    """Looks whether the same code is right in eager mode: then the graph is at fault, not the rule."""
    if any(fault.name.startswith("variables") for fault in verdict.faults):
        return  # eager mode orders variables as a set does: right there by luck
    with run_eagerly():
        twin = Exam(exam.subject, exam.options)
        twin.sit()
        if twin.error is not None or not twin.answers:
            return
        if diagnose(twin, [*linearity.ask(twin), *values.ask(twin)]).faults:
            return
    entry = BY_NAME["graph-unfriendly"]
    verdict.faults = [
        Fault(entry, f.argument, f"{f.seen}, in a graph", f"{f.due}, as in eager mode", entry.why, entry.snippet)
        for f in verdict.faults[:1]
    ]


def _finest(exam: Exam) -> Exam:
    twin = exam.subject.promoted()
    if twin is None:
        return exam
    fine = Exam(twin, exam.options)
    fine.sit()
    fine.skip |= exam.skip
    if fine.error is not None or not fine.answers or fine.run is None or exam.run is None:
        return exam
    wide = all(y.dtype.name in ("float64", "complex128") for y in fine.run.targets)
    if not wide or len(fine.run.targets) != len(exam.run.targets) or contract.violations(twin.f, fine.calls):
        return exam
    return fine


def options_of(
    order: int = 2,
    modes: tuple[str, ...] = MODES,
    surrogate: bool = False,
    rtol: float | None = None,
    seed: int = 0,
) -> Options:
    """Returns the options of a check once each of them has been judged.

    Raises:
        UsageError: names the option, what was due and what came.
    """
    if usage.integer("order", order, 1, "1 or 2") > 2:
        raise usage.wrong("order", "1 or 2", order)
    due = f"any of {', '.join(MODES)}"
    names = usage.names("modes", modes, due)
    unknown = [m for m in names if m not in MODES]
    if unknown or not names:
        raise usage.wrong("modes", due, unknown[0] if unknown else modes)
    if rtol is not None:
        usage.real("rtol", rtol, "None or a number between 0 and 1", 0.0, 1.0)
    number = usage.integer("seed", seed, 0, "a non-negative integer")
    return Options(int(order), names, usage.flag("surrogate", surrogate), rtol, number)
