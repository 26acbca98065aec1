"""Cases: functions that people got wrong, written afresh, each beside its repaired form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

import cgrad
from cgrad import Report
from cgrad.exam import MODES

D = tf.float64


def d(value):
    """A float64 tensor: most cases are told apart by their structure, not by rounding."""
    return tf.constant(value, D)


@dataclass(frozen=True)
class Case:
    """One function and its mistake.

    Attributes:
        make: called with ``right``: True for the repaired function; returns (function, arguments).
        names: the fault names that fit; empty if nothing is wrong.
        source: where somebody met it.
        surrogate: whether the rule differs from the derivative on purpose.
        order: how far to differentiate.
        repaired: whether the repaired function is right in every mode of TensorFlow.
        modes: the modes to compare; all by default.
        jacobian: the right Jacobian of the repaired function, where it takes one tensor and returns one.
    """

    make: Callable[[bool], tuple[Any, tuple[Any, ...]]]
    names: tuple[str, ...]
    source: str
    surrogate: bool
    order: int
    repaired: bool
    modes: tuple[str, ...]
    jacobian: Any

    def check(self, right: bool) -> Report:
        f, args = self.make(right)
        return cgrad.gradcheck(f, *args, surrogate=self.surrogate, order=self.order, modes=self.modes)

    @property
    def name(self) -> str:
        return self.make.__name__


CASES: list[Case] = []


def case(*names, source="", surrogate=False, order=2, repaired=True, modes=MODES, jacobian=None):
    """Registers a case; without names it is a right function that looked wrong to somebody."""

    def register(make):
        CASES.append(Case(make, names, source, surrogate, order, repaired, modes, jacobian))
        return make

    return register
