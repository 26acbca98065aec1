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
    """A rule returned something else than what was due: its structure, number, shape or dtype is wrong."""


class NotDifferentiableError(GradientError):
    """A derivative was asked for that nobody supplied, such as the second one of a rule in NumPy."""


class UsageError(GradientError):
    """A definer or a transform was called in a way that it does not understand."""


class GradientFault(GradientError):
    """A check found a fault; raised by `Report.raise_for_faults` only. Its text is the report."""


class CapturedTensorWarning(UserWarning):
    """A function closes over a tensor that may depend on what is being differentiated."""


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
