"""From the arguments of a call to flat tensors and back, by the function's own signature.

What TensorFlow differentiates is a flat list of tensors. What a user writes has names, defaults, keywords, nested
structures, and arguments that are no tensors. `Binder` knows one function's signature; `Bound` is one call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from cgrad import errors, internals, usage

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
COMPOSITE = (tf.RaggedTensor, tf.SparseTensor, tf.IndexedSlices)
STATIC_TYPES = (bool, str, bytes, type(None))


@dataclass(slots=True)
class Argument:
    """One argument of one call.

    Attributes:
        name: its name; ``xs[0]`` for an entry of ``*xs``.
        keyword: the keyword it is passed by, or None for a positional one.
        value: the tensor or structure of tensors, or the Python value of an argument that takes no gradient.
        static: whether it is handed on as it is.
        count: the number of flat tensors in it.
        owed: whether a gradient is due: it holds a floating or complex tensor.
        hidden: whether a rule need not even mention it (``self``).
        omitted: whether it is a setting that the call left at its default.
    """

    name: str
    keyword: str | None
    value: Any
    static: bool
    count: int = 0
    owed: bool = False
    hidden: bool = False
    omitted: bool = False


class Bound:
    """The arguments of one call.

    Attributes:
        tensors: all tensors in them, flat.
        plain: the names of the arguments where every one is a tensor, given by position; else None.
    """

    __slots__ = ("_arguments", "plain", "tensors")

    def __init__(
        self, tensors: Sequence[tf.Tensor], arguments: list[Argument] | None, plain: tuple[str, ...] | None = None
    ) -> None:
        self.tensors: Sequence[tf.Tensor] = tensors
        self.plain: tuple[str, ...] | None = plain
        self._arguments = arguments

    @property
    def arguments(self) -> list[Argument]:
        """The arguments, in the order of the signature."""
        if self._arguments is None:  # a plain call pays for these only when somebody looks
            assert self.plain is not None
            pairs = zip(self.plain, self.tensors, strict=True)
            self._arguments = [Argument(name, None, t, False, 1, differentiable(t)) for name, t in pairs]
        return self._arguments

    def rebuild(self, tensors: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """Returns ``(args, kwargs)`` with these tensors (or arrays) in the places of the original ones.

        Settings that the call left at their defaults are not among them: the function has them itself, and a rule
        need not know of them (``name=None`` of every TensorFlow function).
        """
        if self.plain is not None:
            return list(tensors), {}
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        skipped = False
        for argument, value in self.values(tensors):
            if argument.omitted:
                skipped = True
            elif argument.keyword == "**":
                kwargs.update(value)
            elif argument.keyword is None and not skipped:
                args.append(value)
            else:
                kwargs[argument.keyword or argument.name] = value
        return args, kwargs

    def values(self, tensors: Sequence[Any]) -> Iterator[tuple[Argument, Any]]:
        """Yields each argument with its value, made of these tensors."""
        start = 0
        for argument in self.arguments:
            stop = start + argument.count
            yield argument, argument.value if argument.static else pack(argument.value, tensors[start:stop])
            start = stop

    def by_name(self, gradients: Sequence[Any]) -> dict[str, Any]:
        """Returns flat gradients in the structures of the arguments that have one, by name."""
        found: dict[str, Any] = {}
        start = 0
        for argument in self.arguments:
            if argument.owed:
                found[argument.name] = pack(argument.value, gradients[start : start + argument.count])
            start += argument.count
        return found

    def owed(self) -> list[Argument]:
        """Returns the arguments that have a gradient."""
        return [argument for argument in self.arguments if argument.owed]


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except ValueError:  # compiled code without one, NumPy's ufuncs before NumPy 2.4 among it
        count = getattr(function, "nin", None)
        if count is None:
            return inspect.signature(lambda *args, **kwargs: None)
        names = ["x"] if count == 1 else [f"x{i + 1}" for i in range(count)]
        return inspect.Signature([inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in names])


class Binder:
    """Binds calls of one function.

    Args:
        function: the function as its author wrote it.
        nondiff: the names of arguments that are no tensors or take no gradient.

    Raises:
        UsageError: if ``nondiff`` names an argument that the function does not have.
    """

    def __init__(self, function: Callable[..., Any], nondiff: str | Iterable[str]) -> None:
        self.name: str = getattr(function, "__qualname__", type(function).__name__).rpartition("<locals>.")[2]
        self.signature: inspect.Signature = _signature(function)
        parameters = self.signature.parameters
        listed = usage.names("nondiff", nondiff, "the name of an argument, or several,")
        self.nondiff: frozenset[str] = frozenset(listed)
        takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
        unknown = sorted(self.nondiff - set(parameters))
        if unknown and not takes_any:
            raise errors.UsageError(
                f"nondiff= names {', '.join(map(repr, unknown))}, but {self.name}{self.signature} has no such argument"
            )
        first = next(iter(parameters), None)
        self.owner: str | None = first if first in ("self", "cls") else None
        # A call with this many tensors, all by position, needs no binding.
        plain = all(p.kind in POSITIONAL for p in parameters.values()) and not self.nondiff and not self.owner
        self.plain: tuple[str, ...] | None = tuple(parameters) if plain else None

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Bound:
        """Binds one call.

        Raises:
            UsageError: if an argument cannot be a tensor and is not in ``nondiff``.
            TypeError: if the call does not fit the signature, as Python raises it.
        """
        if (
            self.plain is not None
            and not kwargs
            and len(args) == len(self.plain)
            and all(isinstance(arg, tf.Tensor) for arg in args)
        ):
            return Bound(args, None, self.plain)
        return self._bind(args, kwargs)

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Bound:
        given = self.signature.bind(*args, **kwargs)
        named = set(given.arguments)
        given.apply_defaults()
        arguments: list[Argument] = []
        for name, value in given.arguments.items():
            parameter = self.signature.parameters[name]
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                for i, entry in enumerate(value):
                    arguments.append(self._argument(f"{name}[{i}]", None, entry, parameter))
            elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
                static = {k: v for k, v in value.items() if k in self.nondiff or name in self.nondiff}
                arguments += [Argument(k, k, v, True) for k, v in static.items()]
                rest = {k: v for k, v in value.items() if k not in static}
                if rest:
                    arguments.append(self._argument(name, "**", rest, parameter))
            else:
                keyword = None if parameter.kind in POSITIONAL else name
                argument = self._argument(name, keyword, value, parameter)
                argument.omitted = argument.static and name not in named
                arguments.append(argument)
        tensors = [t for a in arguments if not a.static for t in internals.flatten(a.value)]
        return Bound(tensors, arguments)

    def _argument(self, name: str, keyword: str | None, value: Any, parameter: inspect.Parameter) -> Argument:
        if parameter.name in self.nondiff or parameter.name == self.owner:
            return Argument(name, keyword, value, True, hidden=parameter.name == self.owner)
        if not_a_tensor(value) or isinstance(value, int):
            default = parameter.default
            if default is not parameter.empty and (not_a_tensor(default) or isinstance(default, int)):
                return Argument(name, keyword, value, True)
        if not_a_tensor(value):
            raise self._refuse(name, parameter.name, value)
        try:
            value = tf.nest.map_structure(as_tensor, value)
        except (TypeError, ValueError, RecursionError) as cause:
            raise self._refuse(name, parameter.name, value) from cause
        flat = internals.flatten(value)
        return Argument(name, keyword, value, False, len(flat), any(differentiable(t) for t in flat))

    def _refuse(self, name: str, parameter: str, value: Any) -> errors.UsageError:
        repair = (
            f"name it where {self.name} is decorated: nondiff={parameter!r}; it then stays a Python value, "
            "in a graph too"
        )
        if type(value).__name__ == "KerasTensor":
            repair = f"call {self.name} in the `call` of a Keras layer, or wrap it: tf.keras.layers.Lambda({self.name})"
        return errors.UsageError(
            errors.describe(
                "non-tensor-argument",
                self.name,
                f"argument `{name}` is {describe_value(value)}, which is no tensor",
                "every argument that is not in nondiff= becomes a tensor and has a gradient.",
                repair,
            )
        )


def not_a_tensor(value: object) -> bool:
    """Returns whether a value is of a kind that never stands for a tensor."""
    return isinstance(value, STATIC_TYPES) or callable(value)


def as_tensor(value: Any) -> Any:
    """Returns a leaf as a tensor; composite tensors stay what they are."""
    if isinstance(value, tf.Tensor):
        return value
    if isinstance(value, COMPOSITE):
        return value
    if isinstance(value, STATIC_TYPES):
        raise TypeError(f"{value!r} is no tensor")
    if isinstance(value, np.ndarray):
        usage.size(f"an array of shape {value.shape}", value.shape, "take a part of it")
    return tf.convert_to_tensor(value)


def as_output(
    where: str, value: Any, error: type[errors.GradientError] = errors.ContractError, optional: bool = False
) -> Any:
    """Returns what a function returned with tensors for leaves.

    Args:
        where: the function, for the message.
        value: what it returned.
        error: the class of the error.
        optional: whether None may stand in a place of the structure.

    Raises:
        GradientError: of that class, if a leaf cannot be a tensor.
    """
    try:
        return tf.nest.map_structure(lambda leaf: None if leaf is None and optional else as_tensor(leaf), value)
    except (TypeError, ValueError, RecursionError) as cause:
        raise error(
            errors.describe(
                "tape-broken",
                where,
                f"the function returned {usage.shown(value)}, where a tensor or a structure of tensors was due",
                "only tensors have a derivative.",
                "return the tensors that the result is made of",
            )
        ) from cause


def differentiable(tensor: tf.Tensor) -> bool:
    """Returns whether a tensor can have a gradient: it is floating or complex."""
    dtype = tensor.dtype
    return bool(dtype.is_floating or dtype.is_complex)


def pack(like: Any, tensors: Sequence[Any]) -> Any:
    """Returns these flat tensors in the structure of ``like``."""
    if len(tensors) == 1 and isinstance(like, tf.Tensor):
        return tensors[0]
    if any(isinstance(leaf, COMPOSITE) for leaf in tf.nest.flatten(like)):
        # What is no number in a composite tensor (row splits, indices) is the same in its gradient.
        own = tf.nest.flatten(like, expand_composites=True)
        tensors = [o if t is None else t for o, t in zip(own, tensors, strict=True)]
    return tf.nest.pack_sequence_as(like, list(tensors), expand_composites=True)


def describe_value(value: Any) -> str:
    """Returns a value in a few words, for a message."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    return f"a {type(value).__name__}"
