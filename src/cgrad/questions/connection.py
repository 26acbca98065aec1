"""Is there a path from each input to the output? None, or zero, where the output does change.

Asked of those inputs only whose gradient is missing or zero for every probe, by differences along that input.
"""

from __future__ import annotations

import numpy as np

from cgrad.exam import Evidence, Exam, dependence
from cgrad.numerics import Shape


def ask(exam: Exam) -> list[Evidence]:
    """Looks for inputs that matter and have no gradient."""
    found: list[Evidence] = []
    if exam.run is None:
        return found
    for index, item in enumerate(exam.subject.inputs):
        if index in exam.skip:
            continue
        missing = not exam.run.targets or all(answer[index] is None for answer in exam.answers)
        if missing or _zero(exam, index):
            evidence = _judge(exam, index, item.name, missing)
            if evidence is not None:
                exam.skip.add(index)
                found.append(evidence)
    return found


def _zero(exam: Exam, index: int) -> bool:
    answers = [exam.gradients(probe)[index] for probe in range(len(exam.answers))]
    return all(g is not None and not np.any(g) for g in answers)


def _judge(exam: Exam, index: int, name: str, missing: bool) -> Evidence | None:
    seen = "None" if missing else "zero for every upstream"
    data = {"index": index, "missing": missing}
    if not exam.run or not exam.run.targets:
        return Evidence("connection", "no-float-output", name, "no floating-point output", "", data)
    if not np.isfinite(exam.center).all():
        return None
    weights = [exam.weights(p) for p in exam.probes[:2]]
    slopes = exam.slopes(exam.direction([index]), weights)
    judged = [s for s in slopes if s.shape in (Shape.SMOOTH, Shape.EDGE)]
    moving = [s for s in judged if not s.admits(0.0)]
    if moving:
        due = f"a slope of {moving[0].value:.6g} along a random direction (give or take {moving[0].bar:.1g})"
        return Evidence("connection", "disconnected", name, seen, due, data)
    if not missing and _moves_nearby(exam, index):
        return None  # flat to first order only: a kink, the bottom of a bowl
    if dependence(exam, index):
        return Evidence("connection", "flat", name, seen, "the output changes in steps only", data)
    return None


def _moves_nearby(exam: Exam, index: int) -> bool:
    """Whether the output changes beside the point; a staircase gives the same there, to the last bit."""
    beside = exam.beside(exam.direction([index]))
    return bool(np.isfinite(beside).all() and np.any(beside != exam.center))
