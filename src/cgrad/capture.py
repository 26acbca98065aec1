"""Tensors that a function closes over: the rule does not answer for them, so their derivative would be lost."""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from cgrad import bind, errors, internals


class Captures:
    """Watches the free variables and globals of one function for tensors that are being differentiated."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self.name = name
        code = getattr(function, "__code__", None)
        cells = getattr(function, "__closure__", None) or ()
        pairs = zip(code.co_freevars, cells, strict=True) if code is not None else ()
        self.cells: tuple[tuple[str, types.CellType], ...] = tuple(pairs)
        self.globals: dict[str, Any] = getattr(function, "__globals__", {})
        self.names: tuple[str, ...] = tuple(sorted(set(_global_names(code)))) if code is not None else ()

    def check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Warns about a tensor that depends on what a tape or an accumulator follows.

        Warns:
            CapturedTensorWarning: names it. A constant is none of our business, nor one that is an argument as well.
        """
        for name, tensor in self._tensors():
            if bind.differentiable(tensor) and _followed(tensor) and not _among(tensor, args, kwargs):
                warnings.warn(self._message(name), errors.CapturedTensorWarning, stacklevel=4)

    def _tensors(self) -> Iterator[tuple[str, tf.Tensor]]:
        for name, cell in self.cells:
            try:
                value = cell.cell_contents
            except ValueError:  # not filled yet
                continue
            if isinstance(value, tf.Tensor):
                yield name, value
        for name in self.names:
            value = self.globals.get(name)
            if isinstance(value, tf.Tensor):
                yield name, value

    def _message(self, name: str) -> str:
        return errors.describe(
            "captured-tensor",
            self.name,
            f"it closes over the tensor `{name}`, which depends on what is being differentiated",
            f"the rule answers for the arguments alone; what comes through `{name}` has no derivative.",
            f"make `{name}` an argument; if it is meant to be a constant, close over tf.stop_gradient({name})",
        )


def _global_names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _global_names(constant)


def _followed(tensor: tf.Tensor) -> bool:
    if internals.could_record():
        return internals.followed_by_tape([tensor]) or internals.followed_by_accumulator([tensor])
    return tf.is_symbolic_tensor(tensor) and _reaches_input(tensor)


def _reaches_input(tensor: tf.Tensor, limit: int = 1000) -> bool:
    """Whether a floating input of the graph leads to the tensor by operations that have a derivative."""
    todo: list[tf.Tensor] = [tensor]
    seen: set[int] = set()
    while todo and len(seen) < limit:
        current = todo.pop()
        if id(current) in seen or not bind.differentiable(current):
            continue
        seen.add(id(current))
        if current.op.type == "Placeholder":
            return True
        if current.op.type != "StopGradient":
            todo += list(current.op.inputs)
    return False


def _among(tensor: tf.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return any(tensor is value for value in (*args, *kwargs.values()))
