"""The check: six questions, the evidence they find, the names it comes to."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from cgrad.diagnosis import Fault, Verdict, diagnose
from cgrad.errors import UsageError
from cgrad.exam import MODES, Evidence, Exam, Options, run_eagerly
from cgrad.faults import BY_NAME
from cgrad.questions import connection, contract, linearity, modes, second_order, values
from cgrad.report import Report
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
    """Checks the derivative of a function at a point, and names what is wrong with it."""
    options = _options(order, modes, surrogate, rtol, seed)
    start = time.perf_counter()
    subject = Subject(f, args)
    exam = Exam(subject, options)
    exam.sit()
    verdict, judged = _judge(exam)
    return Report(
        function=subject.name,
        faults=tuple(verdict.faults),
        notes=tuple(verdict.notes),
        evaluations=subject.evaluations + (judged.subject.evaluations if judged is not exam else 0),
        pulls=subject.pulls + (judged.subject.pulls if judged is not exam else 0),
        seconds=time.perf_counter() - start,
        options=options,
    )


def _judge(exam: Exam) -> tuple[Verdict, Exam]:
    evidence = contract.ask(exam)
    if evidence:
        verdict = diagnose(exam, evidence)
        if exam.error is not None or not exam.answers or _unsteady(evidence):
            if not verdict.faults and exam.run is not None:
                more = diagnose(exam, connection.ask(exam))
                verdict.faults += more.faults
                verdict.notes += more.notes
            return verdict, exam
    # what is right in one precision is judged in the finest that f accepts
    fine = _finest(exam)
    found = connection.ask(fine)
    found += linearity.ask(fine)
    linear = {e.data["index"] for e in found}
    fine.skip |= linear
    found += values.ask(exam) if _overflows(exam) else values.ask(fine)
    verdict = diagnose(exam, evidence)
    _extend(verdict, diagnose(fine, found))
    if found and verdict.faults and any(call.graph for call in exam.calls):
        _blame_the_graph(fine, verdict)
    if not verdict.faults:
        _extend(verdict, diagnose(exam, modes.ask(exam)))
        if not exam.options.surrogate:
            _extend(verdict, diagnose(fine, second_order.ask(fine)))
    return verdict, fine


def _blame_the_graph(exam: Exam, verdict: Verdict) -> None:
    """f is a tf.function: if the same code is right in eager mode, the rule is not at fault but the graph."""
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
        Fault(
            entry, f.argument, f"{f.seen}, in a graph", f"{f.due}, as in eager mode", entry.why, entry.snippet
        )
        for f in verdict.faults[:1]
    ]


def _extend(verdict: Verdict, more: Verdict) -> None:
    verdict.faults += more.faults
    verdict.notes += more.notes


def _unsteady(evidence: list[Evidence]) -> bool:
    return any(e.kind in ("value-changes", "gradient-changes") for e in evidence)


def _overflows(exam: Exam) -> bool:
    """Whether something is not finite at the precision of the caller: then that is what has to be judged."""
    import numpy as np

    if not np.isfinite(exam.center).all():
        return True
    return any(g is not None and not np.isfinite(g).all() for g in exam.gradients(0))


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


def _options(order: int, modes: tuple[str, ...], surrogate: bool, rtol: float | None, seed: int) -> Options:
    if order not in (1, 2):
        raise UsageError(f"order: 1 or 2 was due, but got {order!r}")
    names = (modes,) if isinstance(modes, str) else tuple(modes)
    unknown = [m for m in names if m not in MODES]
    if unknown:
        raise UsageError(f"modes: any of {', '.join(MODES)} were due, but got {unknown[0]!r}")
    if rtol is not None and not 0 < rtol < 1:
        raise UsageError(f"rtol: None or a number between 0 and 1 was due, but got {rtol!r}")
    return Options(order, names, bool(surrogate), rtol, int(seed))
