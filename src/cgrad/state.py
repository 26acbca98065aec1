"""What a function may move while it is checked, put back: random numbers, and the variables that it reaches.

A check runs f many times. A dropout draws, a batch normalisation counts, a counter counts: the program that goes on
afterwards does not notice, also when f raised or the user interrupted.
"""

from __future__ import annotations

import contextlib
import functools
import random
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from cgrad import interception, internals
from cgrad.tracing import is_library

_DEPTH = 5
_MANY = 1000  # entries of one container that are looked at
_MOST = 10_000


@contextlib.contextmanager
def as_it_was(f: Callable[..., Any], args: Iterable[Any]) -> Iterator[None]:
    """Runs its block, and puts back what f may have moved."""
    eagerly = tf.config.functions_run_eagerly()
    try:
        with random_numbers(), variables([f, *args]), interception.settled(), internals.same_execution_mode():
            yield
    finally:
        if tf.config.functions_run_eagerly() is not eagerly:
            tf.config.run_functions_eagerly(eagerly)


@contextlib.contextmanager
def random_numbers(more: Iterable[Any] = ()) -> Iterator[None]:
    """Puts the global random states of Python, NumPy and TensorFlow back, and those of ``more`` generators."""
    of_python, of_numpy = random.getstate(), np.random.get_state(legacy=False)
    with internals.same_keras_generator() as of_keras, internals.other_eager_seeds():
        generators = [g for g in (internals.global_generator(), of_keras) if g is not None]
        states = [_variable(state) for state in (*(g.state for g in generators), *more)]
        before = [_read(state) for state in states]
        try:
            yield
        finally:
            random.setstate(of_python)
            np.random.set_state(of_numpy)
            for state, value in zip(states, before, strict=True):
                state.assign(value)


@contextlib.contextmanager
def variables(roots: Iterable[Any]) -> Iterator[None]:
    """Puts the variables back that can be reached from functions, layers and structures.

    A value that was read shares the memory of its variable, so that this costs nothing where nobody assigns.
    """
    before = [(variable, value) for variable in reached(roots) if (value := _read(variable)) is not None]
    try:
        yield
    finally:
        for variable, value in before:
            with contextlib.suppress(tf.errors.OpError):  # it may be gone by now
                variable.assign(value)


def reached(roots: Iterable[Any]) -> list[tf.Variable]:
    """Returns the variables that functions reach: by closure, by global name, in a layer, a module or a structure."""
    found: dict[int, tf.Variable] = {}
    seen: set[int] = set()
    todo = [(root, 0) for root in roots]
    while todo and len(seen) < _MOST:
        value, depth = todo.pop()
        if id(value) in seen or depth > _DEPTH:
            continue
        seen.add(id(value))
        inner = _attribute(value, "value")
        if isinstance(value, tf.Variable):
            found[id(value)] = value
        elif isinstance(inner, tf.Variable):  # Keras's
            found[id(inner)] = inner
        else:
            todo += [(part, depth + 1) for part in _parts(value)]
    return list(found.values())


def _parts(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(value)[:_MANY]
    if isinstance(value, dict):
        return list(value.values())[:_MANY]
    if isinstance(value, types.FunctionType):
        if is_library(value.__code__.co_filename):
            return [getattr(value, "__wrapped__", None), *_closed_over(value)]
        return [*_closed_over(value), *_named(value), getattr(value, "__wrapped__", None)]
    if isinstance(value, types.MethodType):
        return [value.__self__, value.__func__]
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, tf.types.experimental.PolymorphicFunction):
        return [_attribute(value, "python_function")]
    held = _attribute(value, "variables")  # a layer, a module, an optimizer
    if isinstance(held, (list, tuple)):
        return list(held)
    return [_attribute(value, "__wrapped__")]


def _attribute(value: Any, name: str) -> Any:
    """An attribute, where asking for it does not raise."""
    with contextlib.suppress(Exception):
        return getattr(value, name, None)
    return None


def _closed_over(function: types.FunctionType) -> list[Any]:
    found = []
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # a cell that is not filled yet
            found.append(cell.cell_contents)
    return found


def _named(function: types.FunctionType) -> list[Any]:
    """The globals that its code names, without modules and classes: they lead everywhere."""
    found = (function.__globals__.get(name) for name in function.__code__.co_names)
    return [value for value in found if not isinstance(value, (types.ModuleType, type, types.BuiltinFunctionType))]


def _variable(state: Any) -> tf.Variable:
    """The variable itself, where Keras has one around it."""
    return state if isinstance(state, tf.Variable) else state.value


def _read(variable: tf.Variable) -> Any:
    """Its value, or None for a variable that has none."""
    with contextlib.suppress(tf.errors.OpError, ValueError), internals.unrecorded():
        return tf.convert_to_tensor(variable)
    return None
