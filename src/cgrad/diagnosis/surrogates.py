"""What a deliberate surrogate is held to: the forward pass with its steps taken as the identity.

The values of a surrogate are its author's choice. One slip shows all the same: a rule that is the straight-through
derivative where it answers, and silent inside the range that the forward pass lets through (a mask taken on the
rounded value, with < for <=).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from cgrad import interception
from cgrad.diagnosis.verdict import Fault, fault
from cgrad.exam import Evidence, Exam
from cgrad.questions.modes import traced
from cgrad.subject import Array, differentiable, flat, numpy

_STEPS = ("Round", "Rint", "Floor", "Ceil", "Sign")


def straight_through(exam: Exam) -> list[Array | None]:
    """The answer to the first probe if every rounding were the identity; raises where that cannot be had."""

    def body(leaves: list[Any], sources: list[Any], probe: list[Any]) -> list[Any]:
        graph = tf.compat.v1.get_default_graph()
        with graph.gradient_override_map(dict.fromkeys(_STEPS, "Identity")):
            targets = [y for y in exam.subject.call(leaves) if differentiable(y)]
        upstreams = [tf.cast(u, y.dtype) for u, y in zip(probe, targets, strict=True)]
        gradients = tf.gradients(targets, sources, grad_ys=upstreams)
        return [[] if g is None else [tf.convert_to_tensor(g)] for g in gradients]

    with interception.bypassing():
        found = traced(exam, body, exam.probes[0])
    return [numpy(g[0]) if g else None for g in found]


def narrow_mask(exam: Exam, piece: Evidence) -> Fault | None:
    """A rule that blocks entries inside the range of a saturating staircase."""
    index = piece.data["index"]
    answer = exam.gradients(0)[index]
    try:
        through = straight_through(exam)[index]
    except Exception:
        return None
    if answer is None or through is None:
        return None
    got, due = flat(answer), flat(through)
    if not np.isfinite(got).all() or not np.isfinite(due).all():
        return None
    alike = np.abs(got - due) <= 1e-4 * np.abs(due)
    blocked = (got == 0) & (due != 0)
    saturates = bool((due == 0).any()) and bool((alike & (due != 0)).any())
    if not (saturates and blocked.any() and (alike | blocked).all()):
        return None
    at = int(np.argmax(blocked))
    return fault(
        "wrong-at-point",
        piece,
        "the rule is the straight-through derivative, but it blocks entries inside the range the output moves in.",
        "inside = (x >= low) & (x <= high)   # on the unrounded value, bounds included",
        seen=f"0 at entry {at}, and at {int(blocked.sum()) - 1} more that the forward pass does not saturate",
        due=f"{due[at]:.6g}, as where it answers",
    )
