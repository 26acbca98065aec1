"""The Jacobian that a rule stands for, entry by entry, beside the true one: for small functions, and only if asked."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cgrad.exam import Exam
from cgrad.numerics import Shape, Slope
from cgrad.state import as_it_was
from cgrad.subject import Array, Input, Run, flat

LIMIT = 400
"""The largest number of entries of one Jacobian."""

_KEPT = 10_000  # a report keeps its inputs for this; a large model's are not worth it

Matrix = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Jacobians:
    """Two Jacobians of one input; a complex entry counts as two real ones.

    Attributes:
        argument: the input.
        rule: what the rule gives, shape (m, n): row i is its answer to the i-th unit upstream. NaN where it gives
            none, or one of another size than the input.
        truth: the derivative of the function, shape (m, n). At a kink, the possible value nearest to the rule's; NaN
            where differences have no limit.
        rows: the m entries of the output, as indices: ``"0"``, ``"1, 2"``.
        columns: the n entries of the input, likewise.

    Examples:
        >>> import tensorflow as tf
        >>> import cgrad
        >>> @tf.custom_gradient
        ... def square(x):
        ...     return x * x, lambda upstream: x * upstream
        >>> (both,) = cgrad.gradcheck(square, tf.constant([1.0, 2.0])).jacobians()
        >>> both.argument, both.difference.tolist()
        ('x', [[-1.0, 0.0], [0.0, -2.0]])
    """

    argument: str
    rule: Matrix
    truth: Matrix
    rows: tuple[str, ...]
    columns: tuple[str, ...]

    @property
    def difference(self) -> Matrix:
        """What the rule gives less the truth, shape (m, n)."""
        return self.rule - self.truth


def lazily(exam: Exam, lock: AbstractContextManager[Any]) -> Callable[[], tuple[Jacobians, ...]] | None:
    """Returns a function that computes the Jacobians of the small inputs when first called; None if there are none.

    Args:
        exam: one that has sat.
        lock: held while it computes.
    """
    if exam.run is None or not exam.answers:
        return None
    sizes = [_size(item) for item in exam.subject.inputs]
    small = [i for i, n in enumerate(sizes) if 0 < n * exam.center.size <= LIMIT]
    if not small or sum(sizes) > _KEPT:
        return None

    @functools.cache
    def compute() -> tuple[Jacobians, ...]:
        with lock, as_it_was(exam.subject.f, exam.subject.args):
            return _both(exam, small)

    return compute


def _size(item: Input) -> int:
    return int(np.prod(item.shape, dtype=np.int64)) * (2 if item.dtype.is_complex else 1)


def _both(exam: Exam, small: list[int]) -> tuple[Jacobians, ...]:
    assert exam.run is not None
    answers = _pulled(exam, exam.run)
    reference = exam.reference
    truths = None if reference is None else _pulled(exam, reference)
    found = []
    for index in small:
        item = exam.subject.inputs[index]
        rule = _matrix(answers, index, _size(item))
        truth = None if truths is None else _matrix(truths, index, _size(item))
        if truth is None or not _believed(exam, index, truth):
            truth = _by_differences(exam, index, rule)
        rows = [label for k, y in enumerate(exam.run.targets) for label in _labels(y, str(k))]
        if len(exam.run.targets) == 1:
            rows = _labels(exam.run.targets[0])
        found.append(Jacobians(item.name, rule, truth, tuple(rows), tuple(_labels(item))))
    return tuple(found)


def _pulled(exam: Exam, run: Run) -> list[list[Array | None]]:
    """The answers to all unit upstreams; an answer that raises counts as none."""
    rows: list[list[Array | None]] = []
    for row in range(exam.center.size):
        none: list[Array | None] = [None] * len(exam.subject.inputs)
        rows.append(none)
        with contextlib.suppress(Exception):
            rows[-1] = run.pull(_unit(run, exam.center.size, row))
    return rows


def _unit(run: Run, size: int, row: int) -> list[Array]:
    vector = np.zeros(size)
    vector[row] = 1.0
    upstreams: list[Array] = []
    for y in run.targets:
        numbers = int(np.prod(y.shape, dtype=np.int64)) * (2 if y.dtype.is_complex else 1)
        part, vector = vector[:numbers], vector[numbers:]
        upstreams.append((part.view(np.complex128) if y.dtype.is_complex else part).reshape(tuple(y.shape)))
    return upstreams


def _matrix(rows: list[list[Array | None]], index: int, size: int) -> Matrix:
    matrix = np.full((len(rows), size), np.nan)
    for row, answer in zip(matrix, rows, strict=True):
        got = answer[index]
        if got is not None and flat(got).size == size:
            row[:] = flat(got)
    return matrix


def _believed(exam: Exam, index: int, truth: Matrix) -> bool:
    """Whether differences along one direction admit autodiff's answer, output by output."""
    steps = exam.direction([index])
    along = truth @ steps[index]
    slack = 64.0 * exam.eps * np.linalg.norm(truth * steps[index], axis=1)
    slopes = exam.slopes(steps, list(np.eye(exam.center.size)))
    return all(
        slope.shape is Shape.SMOOTH and slope.admits(float(a), float(s))
        for slope, a, s in zip(slopes, along, slack, strict=True)
    )


def _by_differences(exam: Exam, index: int, rule: Matrix) -> Matrix:
    truth = np.full(rule.shape, np.nan)
    for entry in range(rule.shape[1]):
        slopes = exam.slopes(exam.unit(index, entry), list(np.eye(exam.center.size)))
        scale = float(exam.scales(index)[entry])
        truth[:, entry] = [_nearest(s, float(r) * scale) / scale for s, r in zip(slopes, rule[:, entry], strict=True)]
    return truth


def _nearest(slope: Slope, value: float) -> float:
    if slope.shape is Shape.KINK and np.isfinite(value):
        return float(np.clip(value, slope.low, slope.high))
    return slope.value if np.isfinite(slope.low) and np.isfinite(slope.high) else np.nan


def _labels(leaf: Any, prefix: str = "") -> list[str]:
    """The entries of a tensor as indices, in the order of the flat vector of real numbers."""
    parts = ("re", "im") if leaf.dtype.is_complex else ("",)
    places = [", ".join(map(str, place)) for place in np.ndindex(*leaf.shape)]
    return [" ".join(filter(None, (prefix and f"{prefix}:", part, place))) for place in places for part in parts]
