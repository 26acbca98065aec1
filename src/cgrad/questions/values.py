"""Is u^T J the right number? The rule against the forward pass's own autodiff, and against differences.

The reference is autodiff of the forward pass with every rule bypassed: exact to rounding, one entry of a million
shows. It is believed only if differences along a random direction agree with it; where they do not (a kink, a
cut tape, an overflow, an operation whose own gradient is wrong) differences decide, entry by entry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cgrad.exam import Evidence, Exam
from cgrad.numerics import Shape, Slope, Vector
from cgrad.subject import PIECE, Array, flat, largest, pieces

SLIGHT = 1e-5
"""A relative error below this may be the function's own: a solver stops at some tolerance."""

CONFIRM = 6
"""Entries that a mismatch pays differences for."""
FULL = 48
"""Inputs of up to this many real entries are looked at entry by entry when only differences can tell."""


@dataclass
class _Entry:
    index: int
    entry: int
    got: list[float]
    slopes: list[Slope]
    scale: float

    @property
    def due(self) -> float:
        return self.slopes[0].value / self.scale

    def right(self, rtol: float) -> bool | None:
        """Whether the rule's value is admitted by the differences; None where they cannot tell."""
        verdicts = []
        for got, slope in zip(self.got, self.slopes, strict=True):
            if slope.shape is Shape.UNKNOWN or not np.isfinite(slope.bar):
                return None
            if slope.shape in (Shape.STEEP, Shape.JUMP) and not np.isfinite(slope.low):
                return None
            slack = rtol * max(abs(slope.low), abs(slope.high), abs(got * self.scale))
            verdicts.append(slope.admits(got * self.scale, slack))
        return all(verdicts)


def ask(exam: Exam) -> list[Evidence]:
    """Compares the rule's answers to two probes with the truth."""
    if exam.run is None or not exam.answers:
        return []
    active = [i for i, g in enumerate(exam.gradients(0)) if i not in exam.skip and g is not None]
    if not active:
        return []
    if not np.isfinite(exam.center).all():
        return _value_not_finite(exam)
    broken = [i for i in active if not all(_finite(exam.gradients(p)[i]) for p in (0, 1))]
    found = [e for i in broken for e in _nonfinite(exam, i)]
    active = [i for i in active if i not in broken]
    return found + (_compare(exam, active) if active else [])


def _finite(gradient: Array | None) -> bool:
    return gradient is None or bool(np.isfinite(gradient).all())


def tolerance(exam: Exam) -> float:
    """The relative difference that rounding explains: generous in low precision, where two right formulas differ."""
    if exam.options.rtol is not None:
        return exam.options.rtol
    eps = exam.eps
    return 1e-8 if eps < 1e-10 else 400.0 * eps if eps < 1e-5 else 16.0 * eps


# --- the ordinary case --------------------------------------------------------------------------------


def _compare(exam: Exam, active: list[int]) -> list[Evidence]:
    answers = [exam.gradients(p) for p in (0, 1)]
    if exam.ruled and _agrees_at_once(exam, active, answers[0]):
        return []
    weights = [exam.weights(p) for p in exam.probes[:2]]
    steps = exam.direction(active)
    slopes = exam.slopes(steps, weights)
    truths = _reference_answers(exam, exam.probes[:2])
    credible = truths is not None and all(
        _along(truth, steps, active) is not None
        and s.shape in (Shape.SMOOTH, Shape.EDGE)
        and s.admits(_along(truth, steps, active) or 0.0, _slack(exam, truth, steps, active))
        for truth, s in zip(truths, slopes, strict=True)
    )
    if credible:
        assert truths is not None
        suspects = {i: _differing(exam, i, answers, truths) for i in active}
        if not any(len(s) for s in suspects.values()):
            return []
        return _confirm(exam, suspects, answers, truths)
    agree = all(
        s.shape in (Shape.SMOOTH, Shape.EDGE)
        and s.admits(_along(g, steps, active) or 0.0, _slack(exam, g, steps, active))
        for g, s in zip(answers, slopes, strict=True)
    )
    if agree:
        return []
    return _entry_by_entry(exam, active, answers, truths, slopes)


def _agrees_at_once(exam: Exam, active: list[int], answer: list[Array | None]) -> bool:
    """The ordinary case, cheaply: the rule is the forward pass's autodiff in every entry, and that is no fiction.

    One probe of random numbers is enough for the first, two values of f for the second.
    """
    truths = _reference_answers(exam, exam.probes[:1])
    if truths is None or any(len(_differing(exam, i, [answer], truths)) for i in active):
        return False
    weights = exam.weights(exam.probes[0])
    along = _along(truths[0], exam.pair.steps, list(range(len(answer))))
    if along is None:
        return False
    slack = 1e3 * _slack(exam, truths[0], exam.pair.steps, active)
    center = np.where(np.isfinite(exam.center), exam.center, 0.0)
    rounding = 4.0 * exam.eps * float(np.sqrt(np.sum((weights * center) ** 2))) / exam.pair.step
    return bool(abs(exam.pair.slope(weights) - along) <= slack + rounding)


def _reference_answers(exam: Exam, probes: Sequence[list[Array]]) -> list[list[Array | None]] | None:
    if exam.reference is None:
        return None
    try:
        found = [exam.reference.pull(p) for p in probes]
    except Exception:
        return None
    shapes = [item.shape for item in exam.subject.inputs]
    for answer in found:
        for index, g in enumerate(answer):
            if g is not None and tuple(g.shape) != shapes[index]:
                return None
    return found


def _along(answer: Sequence[Array | None], steps: list[Vector], active: list[int]) -> float | None:
    total = 0.0
    for i in active:
        g = answer[i]
        if g is not None:
            total += sum(float(a @ b) for a, b in pieces(g, steps[i]))
    return total if np.isfinite(total) else None


def _slack(exam: Exam, answer: Sequence[Array | None], steps: list[Vector], active: list[int]) -> float:
    """What rounding in the gradient itself may add: relative to the terms of the sum, not to the sum."""
    squares = 0.0
    for i in active:
        g = answer[i]
        if g is not None:
            squares += sum(float(np.sum((a * b) ** 2)) for a, b in pieces(g, steps[i]))
    return tolerance(exam) * float(np.sqrt(squares))


def _differing(exam: Exam, index: int, answers: list[list[Array | None]], truths: list[list[Array | None]]) -> Vector:
    """The real entries of an input where the rule and the reference differ by more than rounding, worst first."""
    excess: Vector = np.zeros(0)
    scales = exam.known_scales(index)
    for answer, truth in zip(answers, truths, strict=True):
        got = answer[index]
        if got is None:
            continue
        due = truth[index]
        due = np.zeros(got.shape, got.dtype) if due is None else due
        # sums of terms of this size are rounded to this
        most = largest(due) if exam.eps > 1e-10 else 0.0
        for k, (g, t, scale) in enumerate(pieces(got, due, scales)):
            room = tolerance(exam) * np.maximum(np.abs(g), np.abs(t)) + exam.invisible(np.abs(scale)) * 1e-2
            room = room + 32.0 * exam.eps * most
            off = np.abs(g - t)
            if (off > room).any():
                excess = excess if excess.size else np.zeros(scales.size)
                part = excess[k * PIECE : (k + 1) * PIECE]
                np.maximum(part, np.where(off > room, off / (room + 1e-300), 0.0), out=part)
    order = np.argsort(-excess)
    return np.asarray(order[excess[order] > 0])


def _confirm(
    exam: Exam, suspects: dict[int, Any], answers: list[list[Array | None]], truths: list[list[Array | None]]
) -> list[Evidence]:
    """Pays differences for the worst entries: at a kink both may be right, and noise is not a fault."""
    found: list[Evidence] = []
    for index, entries in suspects.items():
        if not len(entries):
            continue
        checked = [_entry(exam, index, int(e), answers) for e in _spread(entries, CONFIRM)]
        wrong = [c for c in checked if c.right(tolerance(exam)) is False]
        odd = [c for c in checked if any(s.shape is not Shape.SMOOTH for s in c.slopes)]
        # at a smooth point whose bar is too wide to tell them apart, the reference is believed
        blurred = [c for c in checked if c not in odd]
        if not wrong and blurred and not _noise(exam, index, entries, answers, truths):
            wrong = blurred
        if wrong:
            found.append(_mismatch(exam, index, entries, answers, truths, wrong[0], "forward pass"))
        elif odd:
            found.append(_note(exam, odd[0]))
    return found


def _spread(entries: Any, count: int) -> list[int]:
    """The worst entries first, then others spread over the rest."""
    chosen = list(entries[: count // 2])
    rest = entries[count // 2 :]
    if len(rest):
        chosen += [rest[int(k)] for k in np.linspace(0, len(rest) - 1, min(len(rest), count - count // 2))]
    return [int(e) for e in chosen]


def _noise(
    exam: Exam, index: int, entries: Any, answers: list[list[Array | None]], truths: list[list[Array | None]]
) -> bool:
    """Whether a few units in the last place of x explain the difference."""
    got, due = answers[0][index], truths[0][index]
    if got is None or due is None:
        return False
    spread = np.zeros(flat(got).shape)
    for sign in (1.0, -1.0, 2.0):
        steps = [sign * 4.0 * exam.eps * exam.scales(i) for i in range(len(exam.subject.inputs))]
        leaves = list(exam.subject.leaves)
        for item, step in zip(exam.subject.inputs, steps, strict=True):
            if item.position is not None and not item.variable:
                leaves[item.position] = exam.subject._moved(item, step, 1.0)
        moved = exam.subject.run(leaves).pull(exam.probes[0])[index]
        if moved is not None:
            spread = np.maximum(spread, np.abs(flat(moved) - flat(got)))
    off = np.abs(flat(got) - flat(due))[entries]
    return bool(np.all(off <= 20.0 * spread[entries]))


# --- only differences can tell --------------------------------------------------------------------------


def _entry_by_entry(
    exam: Exam,
    active: list[int],
    answers: list[list[Array | None]],
    truths: list[list[Array | None]] | None,
    slopes: list[Slope],
) -> list[Evidence]:
    found: list[Evidence] = []
    for index in active:
        entries = _candidates(exam, index, answers)
        checked = [_entry(exam, index, e, answers) for e in entries]
        verdicts = [c.right(tolerance(exam)) for c in checked]
        wrong = [c for c, ok in zip(checked, verdicts, strict=True) if ok is False]
        if wrong and exam.symmetric(index) and _right_if_symmetric(exam, index, answers):
            found.append(Evidence("values", "symmetric", exam.subject.inputs[index].name, "", "", {"index": index}))
            continue
        unsure = [c for c, ok in zip(checked, verdicts, strict=True) if ok is None]
        odd = [c for c in checked if any(s.shape is not Shape.SMOOTH for s in c.slopes)]
        if wrong:
            numbers = np.array([c.entry for c in wrong])
            found.append(_mismatch(exam, index, numbers, answers, None, wrong[0], "differences", checked))
        elif odd:
            found.append(_note(exam, odd[0]))
        elif unsure:
            found.append(_note(exam, unsure[0]))
    return found


def _right_if_symmetric(exam: Exam, index: int, answers: list[list[Array | None]]) -> bool:
    """Whether the rule is right along symmetric directions: then f takes its argument as symmetric."""
    weights = [exam.weights(p) for p in exam.probes[:2]]
    for _ in range(2):
        steps = exam.direction([index])
        steps[index] = exam.mirrored(index, steps[index])
        for answer, slope in zip(answers, exam.slopes(steps, weights), strict=True):
            along = _along(answer, steps, [index])
            if along is None or slope.shape is not Shape.SMOOTH:
                return False
            if not slope.admits(along, _slack(exam, answer, steps, [index])):
                return False
    return True


def _candidates(exam: Exam, index: int, answers: list[list[Array | None]]) -> list[int]:
    size = flat(exam.subject.inputs[index].value()).size
    if size <= FULL:
        return list(range(size))
    chosen = {int(e) for e in exam.random.choice(size, 8, replace=False)}
    culprit = _bisect(exam, index, answers)
    if culprit is not None:
        chosen = {culprit, *chosen}
        return [culprit, *sorted(chosen - {culprit})]
    return sorted(chosen)


def _bisect(exam: Exam, index: int, answers: list[list[Array | None]]) -> int | None:
    """One entry where the rule and the differences part, found by halving the direction."""
    weights = exam.weights(exam.probes[0])
    got = answers[0][index]
    if got is None:
        return None
    g = flat(got)
    entries = np.arange(g.size)
    full = exam.direction([index])
    while entries.size > 1:
        halves = (entries[: entries.size // 2], entries[entries.size // 2 :])
        for half in halves:
            steps = [np.zeros_like(s) for s in full]
            steps[index][half] = full[index][half]
            (slope,) = exam.slopes(steps, [weights])
            along = float(g @ steps[index])
            if not slope.admits(along, tolerance(exam) * float(np.linalg.norm(g * steps[index]))):
                entries = half
                break
        else:
            return None
    return int(entries[0])


def _entry(exam: Exam, index: int, entry: int, answers: list[list[Array | None]]) -> _Entry:
    steps = exam.unit(index, entry)
    got = []
    for answer in answers:
        g = answer[index]
        got.append(0.0 if g is None else float(flat(g)[entry]))
    weights = [exam.weights(p) for p in exam.probes[:2]]
    slopes = exam.slopes(steps, weights)
    if any(s.shape is Shape.KINK for s in slopes):
        slopes = [_interval(exam, steps, w) for w in weights]
    return _Entry(index, entry, got, slopes, float(exam.scales(index)[entry]))


def _interval(exam: Exam, steps: list[Vector], weights: Vector) -> Slope:
    """All values that a choice of one-sided slopes, output by output, can give."""
    line = exam.line(steps)
    used = np.flatnonzero(weights)
    if used.size > 256:
        return line.slope(weights)
    low = high = bar = 0.0
    for output in used:
        one = np.zeros_like(weights)
        one[output] = weights[output]
        slope = line.slope(one)
        low, high, bar = low + slope.low, high + slope.high, bar + slope.bar
    return Slope(low, high, bar, Shape.KINK)


# --- evidence ------------------------------------------------------------------------------------------


def _where(exam: Exam, index: int, entry: int) -> str:
    item = exam.subject.inputs[index]
    position = entry // 2 if item.dtype.is_complex else entry
    if not item.shape:
        return item.name
    place = ", ".join(str(int(i)) for i in np.unravel_index(position, item.shape))
    return f"{item.name}[{place}]"


def _mismatch(
    exam: Exam,
    index: int,
    entries: Any,
    answers: list[list[Array | None]],
    truths: list[list[Array | None]] | None,
    worst: _Entry,
    source: str,
    checked: list[_Entry] | None = None,
) -> Evidence:
    item = exam.subject.inputs[index]
    size = flat(item.value()).size
    due = worst.due
    truth = None if truths is None else truths[0][index]
    if truth is not None:
        due = float(flat(truth)[worst.entry])
    looked = size if truths is not None or checked is None else len(checked)
    got = float(worst.got[0])
    apart = abs(got - due) / max(abs(got), abs(due), np.finfo(float).tiny)
    digits = 7 if apart > SLIGHT else 12  # enough to see where they part
    return Evidence(
        "values",
        "mismatch",
        item.name,
        f"{got:.{digits}g} at {_where(exam, index, worst.entry)}",
        f"{due:.{digits}g} ({source}; {len(entries)} of {looked} entries differ)",
        {
            "index": index,
            "apart": apart,
            "entries": [int(e) for e in entries],
            "looked": looked,
            "answers": answers,
            "truths": truths,
            "checked": checked,
            "worst": worst,
        },
    )


def _note(exam: Exam, entry: _Entry) -> Evidence:
    item = exam.subject.inputs[entry.index]
    shapes = {s.shape for s in entry.slopes}
    slope = entry.slopes[0]
    place = _where(exam, entry.index, entry.entry)
    kind, seen = "cannot-tell", f"differences give no limit at {place}"
    if Shape.KINK in shapes:
        kind, seen = (
            "kink",
            f"slopes from {slope.low / entry.scale:.6g} to {slope.high / entry.scale:.6g} at {place}",
        )
    elif Shape.EDGE in shapes:
        kind, seen = "edge", f"{place} lies at the edge of the domain; judged from inside"
    elif Shape.JUMP in shapes:
        kind, seen = "jump", f"the value jumps at {place}"
    elif Shape.STEEP in shapes:
        kind, seen = "steep", f"the slope has no finite limit at {place}"
    return Evidence("values", kind, item.name, seen, "", {"index": entry.index})


def _value_not_finite(exam: Exam) -> list[Evidence]:
    count = int((~np.isfinite(exam.center)).sum())
    kind = "value-nan" if np.isnan(exam.center).any() else "value-infinite"
    return [Evidence("values", kind, "", f"{count} of {exam.center.size} output entries are not finite", "", {})]


def _nonfinite(exam: Exam, index: int) -> list[Evidence]:
    """NaN or infinity in a gradient: a fault unless the slope itself has no finite limit at an edge."""
    item = exam.subject.inputs[index]
    answers = [exam.gradients(p) for p in (0, 1)]
    answer = answers[0][index]
    got = flat(np.zeros(item.shape) if answer is None else answer)
    bad = np.flatnonzero(~np.isfinite(got))
    steep: list[Evidence] = []
    for entry in bad[:CONFIRM]:
        looked = _entry(exam, index, int(entry), answers)
        slope = looked.slopes[0]
        place = _where(exam, index, int(entry))
        finite = np.isfinite(slope.low) and np.isfinite(slope.bar)
        if finite or np.isnan(got[entry]):
            due = f"{slope.value / looked.scale:.6g}" if finite else "no NaN"
            seen = f"{got[entry]} at {place} ({bad.size} of {got.size} entries)"
            return [Evidence("values", "nonfinite", item.name, seen, due, {"index": index, "entries": bad.tolist()})]
        steep.append(_note(exam, looked))
    return steep[:1]


Pull = Callable[[Sequence[Array]], list[Array | None]]
