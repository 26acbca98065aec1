"""Is the rule linear in the upstream gradient? Costs no difference quotient.

u -> u^T J is linear whatever J is, so g(a u + b v) = a g(u) + b g(v), at the same point, to rounding.
"""

from __future__ import annotations

import numpy as np

from cgrad.exam import MIX, Evidence, Exam
from cgrad.subject import Array, pieces

ROUNDINGS = 1000.0


def ask(exam: Exam) -> list[Evidence]:
    """Compares the answer to the mixed probe with the mixture of the answers."""
    found = []
    for index, (u, v, mixed) in enumerate(zip(*(exam.gradients(p) for p in range(3)), strict=True)):
        if index in exam.skip or u is None or v is None or mixed is None:
            continue
        if not all(np.isfinite(g).all() for g in (u, v, mixed)):
            continue
        evidence = _judge(exam, index, u, v, mixed)
        if evidence is not None:
            exam.skip.add(index)
            found.append(evidence)
    return found


def _judge(exam: Exam, index: int, u: Array, v: Array, mixed: Array) -> Evidence | None:
    most = max((float(_size(a, b).max()) for a, b in pieces(u, v)), default=0.0)
    # a gradient that is zero but for rounding (a bias before a softmax) is noise of this size
    noise = abs(MIX[0]) * exam.noise(index)
    parts = pieces(u, v, mixed)
    if all(
        (np.abs(m - _mixture(a, b)) <= ROUNDINGS * exam.eps * (_size(a, b) + most) + noise).all() for a, b, m in parts
    ):
        return None
    name = exam.subject.inputs[index].name
    # only a single upstream number, or one that is never read, leaves the answer as it was
    if np.array_equal(u, mixed) and np.array_equal(u, v):
        seen = "the same gradient for three different upstreams"
        return Evidence(
            "linearity", "constant", name, seen, "a gradient proportional to the upstream", {"index": index}
        )
    due = _mixture(u, v)
    off = np.abs(mixed - due) - ROUNDINGS * exam.eps * _size(u, v)
    worst = np.unravel_index(int(np.argmax(off)), off.shape)
    return Evidence(
        "linearity",
        "nonlinear",
        name,
        f"g({MIX[0]:g} u + {MIX[1]:g} v){_at(worst)} = {mixed[worst]:.6g}",
        f"{MIX[0]:g} g(u) + {MIX[1]:g} g(v) = {due[worst]:.6g}",
        {"index": index},
    )


def _mixture(u: Array, v: Array) -> Array:
    found: Array = MIX[0] * u + MIX[1] * v
    return found


def _size(u: Array, v: Array) -> Array:
    found: Array = abs(MIX[0]) * np.abs(u) + MIX[1] * np.abs(v)
    return found


def _at(position: tuple[np.intp, ...]) -> str:
    return f"[{', '.join(str(int(i)) for i in position)}]" if position else ""
