"""What an option may be: each check raises a `UsageError` that names the option, what came and what was due."""

from __future__ import annotations

import math
import numbers
import reprlib
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from cgrad.errors import UsageError

LARGEST = 2**31 - 1
"""The largest number of elements of a tensor: TensorFlow counts them in 32 bits in many places."""


class _Short(reprlib.Repr):
    """Plain values as Python writes them, cut where they are long; of anything else its type."""

    def repr_instance(self, x: object, level: int) -> str:
        return repr(x) if isinstance(x, (bool, float, complex, bytes, type(None))) else f"<{type(x).__name__}>"


_short = _Short()


def shown(value: object) -> str:
    """A value in a few words, for a message.

    Examples:
        >>> from cgrad.usage import shown
        >>> shown("yes"), shown([1, None]), shown(object())
        ("'yes'", '[1, None]', 'a value of type object')
    """
    plain = (bool, int, float, complex, str, bytes, type(None), list, tuple, dict, set, frozenset)
    if isinstance(value, plain):
        return _short.repr(value)
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    of = "" if dtype is None or shape is None else f", dtype {getattr(dtype, 'name', dtype)} and shape {shape}"
    return f"a value of type {type(value).__name__}{of}"


def wrong(option: str, due: str, came: object) -> UsageError:
    """The error for an option: what was due, and what came."""
    verb = "were due" if due.startswith("any of") else "was due"
    return UsageError(f"{option}: {due} {verb}, but got {shown(came)}")


def flag(option: str, value: Any) -> bool:
    """Takes a bool; a string or a list that happens to be true is a mistake."""
    if not isinstance(value, bool):
        if type(value).__name__ in ("bool", "bool_") and not getattr(value, "shape", None):
            return bool(value)  # NumPy's own
        raise wrong(option, "a bool (True or False)", value)
    return value


def integer(option: str, value: Any, least: int, due: str) -> int:
    """Takes an integer, NumPy's too, that is ``least`` or more."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise wrong(option, due, value)
    return int(value)


def real(option: str, value: Any, due: str, above: float, below: float) -> float:
    """Takes a real number strictly between two others; never NaN."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not above < float(value) < below:
        raise wrong(option, due, value)
    return float(value)


def one_of(option: str, value: Any, due: Sequence[str]) -> str:
    """Takes one of a few words."""
    if not isinstance(value, str) or value not in due:
        raise wrong(option, f"{', '.join(map(repr, due[:-1]))} or {due[-1]!r}", value)
    return value


def names(option: str, value: Any, due: str) -> tuple[str, ...]:
    """Takes a collection of strings, or one string alone."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, Iterable) and not hasattr(value, "dtype"):
        listed = tuple(value)
        if all(isinstance(name, str) for name in listed):
            return listed
    raise wrong(option, due, value)


def function(where: str, value: Any, advice: str = "") -> None:
    """Takes something that can be called."""
    if not callable(value):
        raise UsageError(f"{where} takes a function first, but got {shown(value)}{f'; {advice}' if advice else ''}")


def collection_of_names(option: str, value: Any) -> Collection[str]:
    """Takes a collection of strings, and no string: its letters would be taken for names."""
    if isinstance(value, str):
        raise wrong(option, f"a collection of names, such as [{value!r}],", value)
    return names(option, value, "a collection of names")


def size(what: str, sizes: Iterable[int], advice: str) -> None:
    """Refuses a tensor that is too large, before anybody allocates it."""
    total = math.prod(map(int, sizes))
    if total > LARGEST:
        raise UsageError(f"{what} has {total} elements; at most {LARGEST} were due: {advice}")
