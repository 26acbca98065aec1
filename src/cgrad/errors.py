"""The exceptions of cgrad, and the one place where a violation becomes a message.

None of them is a ``ValueError``: ``tape.jacobian`` replaces the text of every ``ValueError`` by its own. And each
derives from ``Exception`` alone: `tf.function` makes exceptions anew, and keeps the class of only such.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cgrad import faults

if TYPE_CHECKING:
    from cgrad.contract import Violation


class GradientError(Exception):
    """Every error that cgrad raises about a hand-written derivative.

    Its text starts with the code of the fault, in brackets, and ends with the address of the fault's page.

    Examples:
        >>> import cgrad
        >>> error = cgrad.GradientError("[CG105] f: ...")
        >>> error.code, error.fault
        ('CG105', 'not-unbroadcast')
    """

    @property
    def code(self) -> str:
        """The code of the fault, read from the text (TensorFlow makes exceptions anew from their text alone)."""
        found = re.search(r"\[(CG\d{3})\]", str(self))
        return found.group(1) if found else ""

    @property
    def fault(self) -> str:
        """The name of the fault."""
        return faults.BY_CODE[self.code].name if self.code in faults.BY_CODE else ""

    @property
    def page(self) -> str:
        """The address of the page about the fault."""
        return faults.BY_CODE[self.code].page if self.code in faults.BY_CODE else ""


class ContractError(GradientError):
    """A rule returned something else than what was due: its structure, number, shape or dtype is wrong.

    Examples:
        >>> import tensorflow as tf
        >>> import cgrad
        >>> @cgrad.custom_vjp
        ... def total(x):
        ...     return tf.reduce_sum(x), lambda upstream: upstream
        >>> y, pullback = cgrad.vjp(total, tf.ones(3))
        >>> try:
        ...     pullback(tf.constant(1.0))
        ... except cgrad.ContractError as error:
        ...     print(error.code)
        CG106
    """


class NotDifferentiableError(GradientError):
    """A derivative was asked for that nobody supplied, such as the second one of a rule in NumPy.

    Examples:
        >>> import numpy as np
        >>> import tensorflow as tf
        >>> import cgrad
        >>> @cgrad.custom_jacobian(np.cos, diagonal=True, numpy=True)
        ... def sine(x):
        ...     return np.sin(x)
        >>> x = tf.constant([0.5], tf.float64)
        >>> with tf.GradientTape() as outer, tf.GradientTape() as inner:
        ...     outer.watch(x)
        ...     inner.watch(x)
        ...     slope = inner.gradient(sine(x), x)
        >>> try:
        ...     outer.gradient(slope, x)
        ... except cgrad.NotDifferentiableError as error:
        ...     print(error.fault)
        backward-not-differentiable
    """


class UsageError(GradientError):
    """A definer, a transform or a check was called in a way that it does not understand.

    Examples:
        >>> import cgrad
        >>> try:
        ...     cgrad.gradcheck(3.0)
        ... except cgrad.UsageError as error:
        ...     print(str(error).partition(";")[0])
        gradcheck needs a function as its first argument, but got float
    """


class GradientFault(GradientError):
    """A check found a fault; raised by `Report.raise_for_faults` only. Its text is the report.

    Examples:
        >>> import tensorflow as tf
        >>> import cgrad
        >>> @tf.custom_gradient
        ... def square(x):
        ...     return x * x, lambda upstream: x * upstream
        >>> try:
        ...     cgrad.gradcheck(square, tf.constant([1.0, 2.0])).raise_for_faults()
        ... except cgrad.GradientFault as error:
        ...     print(error.fault)
        constant-factor
    """


class CapturedTensorWarning(UserWarning):
    """A function closes over a tensor that may depend on what is being differentiated.

    Examples:
        >>> import warnings
        >>> import tensorflow as tf
        >>> import cgrad
        >>> def scaled(x, s):
        ...     @cgrad.custom_vjp
        ...     def inner(x):
        ...         return x * s, lambda upstream: upstream * s
        ...     return inner(x)
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     y, pullback = cgrad.vjp(scaled, tf.constant(2.0), tf.constant(3.0))
        >>> [w.category.__name__ for w in caught]
        ['CapturedTensorWarning']
    """


def said(error: BaseException) -> str:
    """Returns the text of an exception, also of one that cannot give it."""
    try:
        return str(error)
    except Exception as second:
        return f"(its text cannot be had: {type(second).__name__})"


def describe(fault: str, function: str, what: str, why: str, repair: str) -> str:
    """Returns the text of an error: code and place, reason, repair, page."""
    entry = faults.BY_NAME[fault]
    indented = repair.replace("\n", "\n          ")
    return f"[{entry.code}] {function}: {what}\n  why:    {why}\n  repair: {indented}\n  {entry.page}"


def describe_violation(violation: Violation, function: str) -> str:
    """Returns the text of a `ContractError` about a violation by the rule of ``function``."""
    place = f" for argument `{violation.argument}`" if violation.argument else ""
    what = f"the rule returned {violation.came}{place}, where {violation.due} was due"
    return describe(violation.fault, function, what, violation.reason, violation.repair)
