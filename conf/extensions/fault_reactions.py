"""How TensorFlow itself answers for a function: every usual way to ask, for the broken one and for the repaired one."""

from __future__ import annotations

import contextlib
import inspect
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

ROOM = 12  # entries of a tensor that are written out


@dataclass(frozen=True)
class Answer:
    """What came back for one way to ask: a gradient (or None) for each input by name, or the error."""

    gradients: dict[str, Any]
    error: str = ""

    def lines(self) -> list[str]:
        """The answer as it stands in a table."""
        if self.error:
            return [self.error]
        return [f"{name}: {_written(value)}" for name, value in self.gradients.items()]


def ask(f: Any, args: Sequence[Any], second: bool) -> dict[str, Answer]:
    """Asks TensorFlow for the derivatives of f in every usual way; ``second`` adds the second derivative."""
    import tensorflow as tf

    ways: dict[str, Callable[[], Any]] = {
        "tape.gradient(y, x)": lambda: _gradient(f, args, False),
        "tape.gradient(y, x, output_gradients=u)": lambda: _gradient(f, args, True),
        "the same in tf.function": lambda: tf.function(lambda *a: _gradient(f, a, True))(*args),
        "tape.jacobian(y, x)": lambda: _jacobian(f, args),
    }
    if second:
        ways["tape.gradient of tape.gradient(y, x)"] = lambda: _second(f, args)
    with _silent():
        return {way: _answer(call, f, len(args)) for way, call in ways.items()}


def ask_loudly(f: Any, args: Sequence[Any], second: bool) -> tuple[list[str], dict[str, Answer]]:
    """The same, with everything that was said: errors first, then warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = ask(f, args, second)
    said = [f"{w.category.__name__}: {str(w.message).splitlines()[0]}" for w in caught]
    return [answer.error for answer in found.values() if answer.error] + said, found


def verdict(seen: Answer, due: Answer) -> str:
    """One line: whether the answer is right, and whether TensorFlow says so."""
    if seen.error:
        return "an error either way" if due.error else "an error"
    for a, b in zip(seen.gradients.values(), due.gradients.values(), strict=False):
        problem = _problem(a, b)
        if problem:
            return f"{problem}, no error"
    return "right"


def _problem(seen: Any, due: Any) -> str:
    if due is None:
        return "" if seen is None or not np.any(seen) else "wrong value"
    if seen is None:
        return "None" if np.any(due) else ""
    if np.shape(seen) != np.shape(due):
        return "wrong shape"
    if np.asarray(seen).dtype != np.asarray(due).dtype:
        return "wrong dtype"
    return "" if np.allclose(seen, due, rtol=1e-5, atol=1e-7, equal_nan=False) else "wrong value"


# --- the ways to ask -----------------------------------------------------------------------------


def _taped(f: Any, args: Sequence[Any], **how: Any) -> tuple[Any, Any, list[Any]]:
    """A tape, the outputs, and what to differentiate by: the arguments, then the variables that were read."""
    import tensorflow as tf

    with tf.GradientTape(**how) as tape:
        for x in args:
            if x.dtype.is_floating or x.dtype.is_complex:
                tape.watch(x)
        y = f(*args)
    return tape, y, [*args, *tape.watched_variables()]


def _gradient(f: Any, args: Sequence[Any], weighted: bool) -> list[Any]:
    import tensorflow as tf

    tape, y, sources = _taped(f, args)
    upstream = tf.nest.map_structure(_upstream, y) if weighted else None
    return list(tape.gradient(y, sources, output_gradients=upstream))


def _jacobian(f: Any, args: Sequence[Any]) -> list[Any]:
    tape, y, sources = _taped(f, args, persistent=True)
    return list(tape.jacobian(y, sources))


def _second(f: Any, args: Sequence[Any]) -> list[Any]:
    import tensorflow as tf

    with tf.GradientTape() as outer:
        for x in args:
            outer.watch(x)
        first = [g for g in _gradient(f, args, False) if g is not None]
        total = tf.add_n([tf.reduce_sum(g) for g in first])
    return list(outer.gradient(total, list(args)))


def _upstream(y: Any) -> Any:
    """-2, 3, -4, ... in the shape of y: neither ones, nor uniform, nor positive."""
    import tensorflow as tf

    if not (y.dtype.is_floating or y.dtype.is_complex):
        return None
    k = np.arange(int(np.prod(y.shape, dtype=int)))
    return tf.constant(((2.0 + k) * (-1.0) ** (k + 1)).reshape(y.shape), y.dtype)


# --- what came back ------------------------------------------------------------------------------


def _answer(call: Callable[[], Any], f: Any, count: int) -> Answer:
    import tensorflow as tf

    try:
        found = call()
    except Exception as error:
        return Answer({}, message(error))
    names = _names(f, count) + ["the variable"] * (len(found) - count)
    if len(found) - count > 1:
        names = names[:count] + [f"variable {k}" for k in range(len(found) - count)]
    arrays = [None if g is None else np.asarray(tf.convert_to_tensor(g)) for g in found]
    return Answer(dict(zip(names, arrays, strict=True)))


def _names(f: Any, count: int) -> list[str]:
    """The names of f's arguments, as far as f tells them."""
    try:
        names = list(inspect.signature(getattr(f, "python_function", f)).parameters)
    except (TypeError, ValueError):
        names = []
    return [names[k] if len(names) == count else f"input {k}" for k in range(count)]


def message(error: BaseException) -> str:
    """The line of an error that matters, without what differs from run to run."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    traced = bool(lines) and lines[0].startswith("in user code")
    named = [line.partition(": ")[2] for line in lines if line.startswith(type(error).__name__)]
    text = (named or lines)[-1] if traced else " ".join(lines[:1])
    text = re.sub(r"\{\{.*?\}\} ?", "", re.sub(r" at 0x[0-9a-f]+", "", text))
    kind = type(error).__name__
    text = text if text.startswith(f"{kind}:") else f"{kind}: {text}"
    return text if len(text) <= 200 else text[:200].rsplit(" ", 1)[0] + " ..."


def _written(value: Any) -> str:
    if value is None:
        return "None"
    return _nested(value) if value.size <= ROOM else f"{value.dtype}{list(value.shape)}"


def _nested(value: Any) -> str:
    if np.ndim(value):
        return f"[{', '.join(map(_nested, value))}]"
    return f"{value + 0.0:.4g}" if np.isfinite(value) else str(value)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Without what TensorFlow logs of an operation that it could not vectorise."""
    import tensorflow as tf

    logger = tf.get_logger()
    before = logger.level
    logger.setLevel("CRITICAL")
    try:
        yield
    finally:
        logger.setLevel(before)
