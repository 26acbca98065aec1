"""Every custom gradient that a function meets on its way: seen, bypassed or altered.

All of them, TensorFlow's own, Keras's, ``tf.recompute_grad``'s and ours included, pass through two module attributes
of TensorFlow that are looked up at call time; `cgrad.internals` names them, and a test tells when TensorFlow moves
them. Only calls made by the thread that asked are touched.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from cgrad.errors import said
from cgrad.internals import CUSTOM_GRADIENT_DECORATORS as _NAMES
from cgrad.internals import custom_gradient_module as _module

Proceed = Callable[[Any, Any, Any], Any]
Handler = Callable[[Any, Any, Any, Proceed], Any]

_lock = threading.Lock()
_originals: dict[str, Any] = {}
_users: dict[object, int] = {}  # each use of the hooks, and its thread
_local = threading.local()


@dataclass
class Pull:
    """One application of a rule: what it was handed, and what it returned, or the text of what it raised.

    The exception itself is not kept: it holds its frames, they hold tapes, a tape holds the rule, and the rule holds
    this; the circle goes through TensorFlow's own memory, where Python's collector does not see it.
    """

    upstreams: tuple[Any, ...]
    variables: tuple[Any, ...]
    returned: Any = None
    error: str | None = None


@dataclass
class Call:
    """One call of a function that carries a rule."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    graph: bool
    value: Any = None
    rule: Any = None
    pulls: list[Pull] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The function's own name, without the scopes around it."""
        name = getattr(self.function, "__qualname__", None) or getattr(self.function, "__name__", "?")
        return str(name).rsplit(".", 1)[-1]

    @property
    def place(self) -> str:
        """File and line of the function, empty when it has none."""
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        return f"{code.co_filename}:{code.co_firstlineno}" if code else ""

    def inputs(self) -> list[Any]:
        """The leaves of the positional arguments, in TensorFlow's order."""
        return list(tf.nest.flatten(self.args, expand_composites=True))

    def captured(self) -> list[Any]:
        """Tensors that the function reads from its closure."""
        cells = getattr(inspect.unwrap(self.function), "__closure__", None) or ()
        found = []
        for cell in cells:
            try:
                value = cell.cell_contents
            except ValueError:  # a cell that is not filled yet
                continue
            if isinstance(value, tf.Tensor):
                found.append(value)
        return found


class MissingRule(TypeError):
    """The function came back without a rule; raised in place of an unpacking error far from the cause."""

    def __init__(self, call: Call, value: Any) -> None:
        super().__init__(f"{call.name} returned {type(value).__name__}, not (value, rule)")
        self.call = call


@contextlib.contextmanager
def intercepting(handler: Handler) -> Iterator[None]:
    """Hands every call of a custom gradient in this thread to ``handler(function, args, kwargs, proceed)``."""
    stack: list[Handler] = _local.__dict__.setdefault("stack", [])
    user = object()
    try:
        _install(user)
        stack.append(handler)
        yield
    finally:
        if handler in stack:
            stack.remove(handler)
        _uninstall(user)


@contextlib.contextmanager
def settled() -> Iterator[None]:
    """Takes back what its block has hooked in this thread and left: an interrupt may come between two lines."""
    stack: list[Handler] = _local.__dict__.setdefault("stack", [])
    depth, before = len(stack), set(_users)
    try:
        yield
    finally:
        del stack[depth:]
        for user in [u for u, thread in list(_users.items()) if thread == threading.get_ident() and u not in before]:
            _uninstall(user)


def _install(user: object) -> None:
    with _lock:
        _users[user] = threading.get_ident()
        for name in _NAMES:
            current = getattr(_module, name)
            if not hasattr(current, "of_cgrad"):
                _originals[name] = current
                setattr(_module, name, _dispatcher(current))


def _uninstall(user: object) -> None:
    """Once or more often: what is not there is not taken away again."""
    with _lock:
        _users.pop(user, None)
        if not _users:
            for name, original in _originals.items():
                setattr(_module, name, original)


def _dispatcher(original: Proceed) -> Proceed:
    def dispatch(f: Any, args: Any, kwargs: Any) -> Any:
        stack = getattr(_local, "stack", None)
        if not stack:
            return original(f, args, kwargs)
        return stack[-1](f, args, kwargs, original)

    dispatch.of_cgrad = True  # type: ignore[attr-defined]
    return dispatch


@contextlib.contextmanager
def observing() -> Iterator[list[Call]]:
    """Lists every call of a custom gradient, and every application of its rule, and changes nothing."""
    calls: list[Call] = []

    def handler(f: Any, args: Any, kwargs: Any, proceed: Proceed) -> Any:
        call = Call(f, tuple(args), dict(kwargs), not tf.executing_eagerly())
        calls.append(call)

        def observed(*inner: Any, **options: Any) -> Any:
            call.args = inner
            pair = f(*inner, **options)
            if not (isinstance(pair, (tuple, list)) and len(pair) == 2 and callable(pair[1])):
                raise MissingRule(call, pair)
            call.value, call.rule = pair
            return pair[0], _recording(call)

        observed.__name__ = getattr(f, "__name__", "observed")
        return proceed(observed, args, kwargs)

    with intercepting(handler):
        yield calls


def takes_variables(rule: Any) -> bool:
    """Whether a rule has the ``variables`` argument that TensorFlow looks for."""
    try:
        spec = inspect.getfullargspec(rule)
    except TypeError:
        return True
    return "variables" in spec.args or "variables" in spec.kwonlyargs or spec.varkw is not None


def _recording(call: Call) -> Any:
    rule = call.rule

    def apply(upstreams: tuple[Any, ...], options: dict[str, Any]) -> Any:
        pull = Pull(upstreams, tuple(options.get("variables") or ()))
        call.pulls.append(pull)
        try:
            pull.returned = rule(*upstreams, **options)
        except BaseException as error:
            pull.error = f"{type(error).__name__}: {said(error)}"
            raise
        return pull.returned

    # TensorFlow looks for `variables` in the signature, so the copy has it where the rule has it.
    if takes_variables(rule):
        return lambda *upstreams, **variables: apply(upstreams, variables)
    return lambda *upstreams: apply(upstreams, {})


@contextlib.contextmanager
def bypassing() -> Iterator[None]:
    """Runs functions without their rules: what is left is the forward pass, open to autodiff."""

    def handler(f: Any, args: Any, kwargs: Any, proceed: Proceed) -> Any:
        if not tf.executing_eagerly():
            args = tf.nest.map_structure(tf.convert_to_tensor, args, expand_composites=True)
        return f(*args, **kwargs)[0]

    with intercepting(handler):
        yield


@contextlib.contextmanager
def altering(change: Callable[[Any, Any], tuple[Any, Any]]) -> Iterator[None]:
    """Lets ``change(function, args)`` replace the function and its arguments of every call."""

    def handler(f: Any, args: Any, kwargs: Any, proceed: Proceed) -> Any:
        f, args = change(f, args)
        return proceed(f, args, kwargs)

    with intercepting(handler):
        yield
