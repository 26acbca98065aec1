"""Provokes messages of TensorFlow, and lists them: helper of the page about messages."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from IPython.display import Markdown

ROOM = 300  # characters of a message

_heard: list[str] = []


class _Ear(logging.Handler):
    """Keeps what is logged, under the name of the logger."""

    def emit(self, record: logging.LogRecord) -> None:
        _heard.append(f"tensorflow: {record.getMessage()}")


# TensorFlow's log goes to the list, not to the page.
_logger = tf.get_logger()
_logger.handlers = [_Ear()]
_logger.propagate = False


def listed(*rows: tuple[str, Callable[[], Any], str]) -> Markdown:
    """A list of messages, each with what was done and what it means.

    Args:
        rows: what was done, in words; a call that does it; what the message means, as Markdown, with the names of
            pages in braces: {wrong-arity}, {recipes/variables}.
    """
    items = []
    for done, call, means in rows:
        message = said(call)
        assert message, f"this TensorFlow says nothing to this any more: {done}"
        items.append(f"- {_code(message)}\n\n  *{done}.* {re.sub(PAGE, _link, means)}")
    return Markdown("\n\n".join(items))


PAGE = r"\{([\w/-]+)\}"


def _link(found: re.Match[str]) -> str:
    folder, _, name = found[1].rpartition("/")
    return f"[{name.replace('-', ' ') if folder else name}]({f'../{folder}/' if folder else ''}{name}.html)"


def said(call: Callable[[], Any]) -> str:
    """The error that a call raises, or the first warning; the line of it that matters. Empty if there is none."""
    _heard.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            call()
        except Exception as error:
            return _short(_line(error))
    spoken = [f"{w.category.__name__}: {w.message}" for w in caught if w.category is UserWarning]
    spoken += [line for line in _heard if "AutoGraph" not in line]
    return _short(spoken[0].splitlines()[0]) if spoken else ""


def _line(error: Exception) -> str:
    """The first line; of an error in traced code, whose first lines are a traceback, the one with its name."""
    kind = type(error).__name__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [line for line in lines if line.startswith(f"{kind}:")]
    if named:
        return named[-1]
    if lines[0].startswith("Exception encountered when calling"):  # Keras puts its own line first, and colours
        lines = [re.sub(r"\x1b\[\d+m", "", line) for line in lines[1:]]
    return f"{kind}: {lines[0]}"


def _short(words: str) -> str:
    words = re.sub(r" at 0x[0-9a-f]+", " at 0x...", words)
    words = re.sub(r"\[_XlaMustCompile=.*?\]", "", words)  # a hash of the machine's settings
    return words if len(words) <= ROOM else words[:ROOM].rsplit(" ", 1)[0] + " ..."


def _code(words: str) -> str:
    return f"`` {words} ``"


# --- ways to ask ---------------------------------------------------------------------------------


def gradient(f: Callable[..., Any], *args: Any, **how: Any) -> Any:
    """tape.gradient, by all arguments."""
    with tf.GradientTape() as tape:
        tape.watch(args)
        y = f(*args)
    return tape.gradient(y, args, **how)


def jacobian(f: Callable[..., Any], x: Any, persistent: bool = True, **how: Any) -> Any:
    """tape.jacobian."""
    with tf.GradientTape(persistent=persistent) as tape:
        tape.watch(x)
        y = f(x)
    return tape.jacobian(y, x, **how)


def in_graph(f: Callable[..., Any], *args: Any) -> Any:
    """The tape and all inside a tf.function."""
    return tf.function(lambda *a: gradient(f, *a))(*args)


def through(f: Callable[..., Any], *args: Any) -> Any:
    """The tape outside, f in a tf.function."""
    return gradient(tf.function(f), *args)


def fit(activation: Callable[..., Any], eager: bool = False) -> None:
    """model.fit of a small network with this activation."""

    class Activation(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            return activation(x)

    model = keras.Sequential([keras.layers.Dense(2), Activation(), keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=eager)
    model.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0)
