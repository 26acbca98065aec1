"""Derivatives by differences, each with its error bar.

A derivative along a direction is taken from values on a line, f(x + t d), by central differences at three
steps and two Richardson extrapolations (Ridders 1982; Press et al., Numerical Recipes, 5.7). The bar is the
size of the last extrapolation's correction plus the rounding error of the values, times a safety factor.
One-sided slopes from the same points tell a kink, a jump and the edge of a domain from a smooth point.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

SAFETY = 10.0
LEVELS = 3


class Shape(enum.Enum):
    """How a function behaves along a line through the point."""

    SMOOTH = "smooth"
    KINK = "kink"  # the slopes from left and right differ
    EDGE = "edge"  # finite on one side only
    JUMP = "jump"  # the value itself jumps
    STEEP = "steep"  # the slope grows without bound
    UNKNOWN = "unknown"  # the bar is wider than what it should judge


@dataclass(frozen=True)
class Slope:
    """A derivative along a line: between ``low`` and ``high``, give or take ``bar``."""

    low: float
    high: float
    bar: float
    shape: Shape

    @property
    def value(self) -> float:
        """The middle of the interval: the derivative itself at a smooth point."""
        return 0.5 * (self.low + self.high)

    def admits(self, value: float, slack: float = 0.0) -> bool:
        """Whether a value is right as far as the differences can tell."""
        room = self.bar + slack
        return bool(self.low - room <= value <= self.high + room)


def first_step(eps: float) -> float:
    """The largest of the three steps, as a fraction of the scale of x.

    The truncation of the extrapolated value goes with h**6, the rounding with eps / h; eps**(1/5) leaves
    both small at h / 4.
    """
    return float(eps**0.2)


class Line:
    """The values of f on a line through the point, each entry of the output a real number.

    Args:
        at: returns the flat real outputs for a step t; non-finite entries are allowed.
        center: the outputs at t = 0.
        eps: the rounding unit in which f is evaluated.
        step: the largest step; by default :func:`first_step`.

    Costs six evaluations.
    """

    def __init__(self, at: Callable[[float], Vector], center: Vector, eps: float, step: float | None = None) -> None:
        first = first_step(eps) if step is None else step
        # powers of two: t * d is exact, so the step taken is the step meant
        first = float(2.0 ** np.round(np.log2(first)))
        self.steps: list[float] = [first / 2**level for level in range(LEVELS)]
        self.eps: float = eps
        self.center: Vector = center
        self.right: list[Vector] = [at(h) for h in self.steps]
        self.left: list[Vector] = [at(-h) for h in self.steps]

    def finite(self) -> tuple[bool, bool]:
        """Whether all values to the left, and to the right, are finite."""
        return (
            all(bool(np.isfinite(v).all()) for v in self.left),
            all(bool(np.isfinite(v).all()) for v in self.right),
        )

    def slope(self, weights: Vector) -> Slope:
        """The derivative of <weights, f> along the line."""
        used = weights != 0
        w, center = weights[used], self.center[used]
        left = [v[used] for v in self.left]
        right = [v[used] for v in self.right]
        left_ok = all(np.isfinite(v).all() for v in left)
        right_ok = all(np.isfinite(v).all() for v in right)
        if not np.isfinite(center).all() or not (left_ok or right_ok):
            return Slope(np.nan, np.nan, np.inf, Shape.UNKNOWN)
        size = float(np.sqrt(np.sum((w * center) ** 2)))
        rounding = 2.0 * self.eps * size / self.steps[-1]
        if left_ok and right_ok:
            central = [float(w @ (r - m)) / (2 * h) for r, m, h in zip(right, left, self.steps, strict=True)]
            value, bar = extrapolate(central, order=2)
            plus = self._one_sided(w, right, center, +1.0)
            minus = self._one_sided(w, left, center, -1.0)
            return _combine(value, SAFETY * (bar + rounding), plus, minus, rounding)
        side, sign = (right, 1.0) if right_ok else (left, -1.0)
        value, bar, diverges = self._one_sided(w, side, center, sign)
        if diverges:
            return Slope(-np.inf, np.inf, 0.0, Shape.STEEP)
        return Slope(value, value, SAFETY * (bar + rounding), Shape.EDGE)

    def _one_sided(self, w: Vector, values: list[Vector], center: Vector, sign: float) -> tuple[float, float, bool]:
        quotients = [sign * float(w @ (v - center)) / h for v, h in zip(values, self.steps, strict=True)]
        value, bar = extrapolate(quotients, order=1)
        # a slope that grows as the step shrinks (by 2**p, p > 0) has no limit
        growth = abs(quotients[-1]) / max(abs(quotients[0]), 1e-300)
        return value, bar, bool(growth > 1.3 and bar > 0.1 * abs(quotients[-1]))


def extrapolate(estimates: list[float], order: int) -> tuple[float, float]:
    """Richardson's extrapolation of estimates at h, h/2, h/4, ... to h = 0.

    Args:
        estimates: from the largest to the smallest step.
        order: 2 if the error is even in h (central differences), 1 if not (one-sided).

    Returns:
        The limit, and the size of the last two corrections. The one before the last keeps the bar honest
        where the function has too few derivatives for the extrapolation (x * abs(x) at 0).

    Examples:
        >>> from cgrad.numerics import extrapolate
        >>> value, bar = extrapolate([(1 + h) ** 2 for h in (0.4, 0.2, 0.1)], order=1)
        >>> round(value, 12), bar > abs(value - 1.0)
        (1.0, True)
    """
    row = previous = list(estimates)
    for level in range(1, len(estimates)):
        factor = 2.0 ** (order * level)
        previous = row
        row = [(factor * fine - coarse) / (factor - 1) for coarse, fine in pairwise(row)]
    return row[-1], abs(row[-1] - previous[-1]) + abs(previous[-1] - previous[0])


def _combine(
    value: float,
    bar: float,
    plus: tuple[float, float, bool],
    minus: tuple[float, float, bool],
    rounding: float,
) -> Slope:
    right, right_bar, right_diverges = plus
    left, left_bar, left_diverges = minus
    if right_diverges or left_diverges:
        # one smooth side: its slope is a derivative too (floor at an integer)
        if right_diverges and left_diverges:
            shape = Shape.JUMP if right * left > 0 else Shape.STEEP
            return Slope(-np.inf, np.inf, 0.0, shape)
        side, side_bar = (left, left_bar) if right_diverges else (right, right_bar)
        return Slope(side, side, SAFETY * (side_bar + rounding), Shape.JUMP)
    sides = SAFETY * (right_bar + left_bar + rounding)
    if abs(right - left) > sides:
        low, high = min(left, right), max(left, right)
        return Slope(low, high, sides, Shape.KINK)
    shape = Shape.SMOOTH if np.isfinite(bar) else Shape.UNKNOWN
    return Slope(value, value, bar, shape)
