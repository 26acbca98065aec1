"""The function under test, normalised: flat inputs with names, flat outputs, variables, dtype, cost."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from cgrad import usage
from cgrad.errors import UsageError, said
from cgrad.numerics import Vector

Array = NDArray[Any]

PIECE = 2**18
"""How many numbers are looked at together."""


@dataclass(frozen=True)
class Input:
    """One differentiable leaf: a tensor among the arguments, or a variable.

    Attributes:
        name: how the user would write it: ``x``, ``params['w']``, ``variable kernel``.
        leaf: the tensor or variable itself.
        position: its place among the flat arguments; None for a captured variable.
    """

    name: str
    leaf: Any
    position: int | None

    @property
    def variable(self) -> bool:
        """Whether its value is set by assignment."""
        return isinstance(self.leaf, tf.Variable)

    @property
    def captured(self) -> bool:
        """Whether f reads it without being handed it."""
        return self.position is None

    @property
    def dtype(self) -> Any:
        """The dtype, as TensorFlow's."""
        return tf.as_dtype(self.leaf.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape."""
        known: Any = self.leaf.shape
        return tuple(known) if known.is_fully_defined() else self.value().shape  # a variable of no fixed shape

    def value(self) -> Array:
        """The value, as an array."""
        return numpy(self.leaf)


def differentiable(leaf: Any) -> bool:
    """Whether a derivative with respect to this leaf makes sense."""
    dtype = getattr(leaf, "dtype", None)
    if dtype is None or not isinstance(leaf, (tf.Tensor, tf.Variable)):
        return False
    dtype = tf.as_dtype(dtype)
    return bool(dtype.is_floating or dtype.is_complex)


def numpy(value: Any) -> Array:
    """A tensor, variable or IndexedSlices as an array in a precision NumPy computes in."""
    if isinstance(value, (tf.IndexedSlices, tf.Variable)):
        value = tf.convert_to_tensor(value)
    array = _shared(value) if isinstance(value, tf.Tensor) else np.asarray(value)
    if array.dtype.kind == "V" or array.dtype.name == "bfloat16" or array.dtype == np.float16:
        array = array.astype(np.float32)
    return array


def _shared(tensor: Any) -> Array:
    """A tensor's own memory where it can be read, to be left alone: `.numpy()` is a copy."""
    if tensor.dtype.name in ("float32", "float64", "complex64", "complex128") and tensor.shape.num_elements():
        with contextlib.suppress(BufferError, TypeError, ValueError):  # on another device
            return np.asarray(memoryview(tensor))
    return np.asarray(tensor.numpy())


def pieces(*arrays: Array) -> Iterator[tuple[Vector, ...]]:
    """The real numbers of arrays of one size, some of each at a time: double precision of all of them may not fit."""
    views = [_real(array) for array in arrays]
    for start in range(0, max((view.size for view in views), default=0), PIECE):
        yield tuple(view[start : start + PIECE].astype(np.float64) for view in views)


def flat(value: Array) -> Vector:
    """The real numbers of an array: complex entries count as two."""
    found: Vector = _real(value).astype(np.float64)
    return found


def largest(array: Array) -> float:
    """The largest absolute value among the real numbers of an array; 0 if there are none."""
    return max((float(np.abs(piece).max()) for (piece,) in pieces(array)), default=0.0)


def _real(array: Array) -> Any:
    """The real numbers of an array in its own precision: a view of its memory where that lies in one piece."""
    row = np.ascontiguousarray(array).reshape(-1)
    return row.view(row.real.dtype) if row.dtype.kind == "c" else row


def _named_leaves(f: Any, args: tuple[Any, ...]) -> list[tuple[str, Any]]:
    try:
        parameters = list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    leaves = []
    for index, arg in enumerate(args):
        name = f"args[{index}]"
        if index < len(parameters) and parameters[index].kind in (
            inspect.Parameter.POSITIONAL_ONLY,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
        ):
            name = parameters[index].name
        try:
            leaves += [(name + path, leaf) for path, leaf in _paths(arg)]
        except TypeError as cause:
            raise UsageError(
                f"{name}: a structure whose keys can be sorted was due, but got a dict with keys of several kinds "
                f"({cause})"
            ) from cause
        except RecursionError as cause:
            raise UsageError(f"{name}: a nested structure was due, but got one that holds itself") from cause
    return leaves


def argument_names(f: Any, args: tuple[Any, ...]) -> list[str]:
    """How the user would write each leaf of the arguments."""
    return [name for name, _ in _named_leaves(f, args)]


def _paths(tree: Any) -> list[tuple[str, Any]]:
    """The leaves of a structure with the subscript that reaches each, in the order of tf.nest."""
    if isinstance(tree, dict):
        return [(f"[{k!r}]{p}", leaf) for k in sorted(tree) for p, leaf in _paths(tree[k])]
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return [(f".{k}{p}", leaf) for k in tree._fields for p, leaf in _paths(getattr(tree, k))]
    if isinstance(tree, (list, tuple)):
        return [(f"[{i}]{p}", leaf) for i, branch in enumerate(tree) for p, leaf in _paths(branch)]
    leaves = tf.nest.flatten(tree, expand_composites=True)
    if len(leaves) == 1 and leaves[0] is tree:
        return [("", tree)]
    return [(f".component[{i}]", leaf) for i, leaf in enumerate(leaves)]


def _as_leaf(name: str, value: Any) -> Any:
    """Arrays and floats become tensors, a Keras variable the TensorFlow one inside it."""
    if isinstance(value, (np.ndarray, np.floating, np.complexfloating, float, complex)):
        return _as_tensor(name, value)
    if isinstance(value, tf.Tensor) and tf.is_symbolic_tensor(value):
        raise UsageError(
            f"{name}: a tensor with a value was due, but got a symbolic one, of a graph that is being built; call "
            "gradcheck outside of tf.function, on a point"
        )
    inner = getattr(value, "value", None)
    if isinstance(inner, tf.Variable) and not isinstance(value, tf.Variable):
        return inner
    return value


def _as_tensor(name: str, value: Any) -> Any:
    usage.size(f"{name}, of shape {np.shape(value)},", np.shape(value), "check a part of it")
    try:
        return tf.convert_to_tensor(value)
    except (TypeError, ValueError) as cause:
        raise UsageError(
            f"{name}: a tensor, or an array that TensorFlow can take, was due, but got an array of dtype "
            f"{getattr(value, 'dtype', type(value).__name__)}; x.astype(np.float64) may be what is meant"
        ) from cause


def _described(leaf: Any) -> str:
    if isinstance(leaf, (tf.Tensor, tf.Variable)):
        shape: Any = leaf.shape
        return f"{tf.as_dtype(leaf.dtype).name}{'[?]' if shape.rank is None else list(shape)}"
    return repr(leaf) if isinstance(leaf, (bool, int, float, str, type(None))) else type(leaf).__name__


def _apart(leaves: list[Any]) -> list[Any]:
    """The leaves with a copy where a tensor comes again: a tape would answer both places with their sum."""
    seen: set[int] = set()
    found = []
    for leaf in leaves:
        again = id(leaf) in seen and isinstance(leaf, tf.Tensor)
        found.append(tf.identity(leaf) if again else leaf)
        seen.add(id(leaf))
    return found


def _shifted(value: Array, step: Vector, t: float) -> Array:
    """``value + t * step``, some numbers at a time."""
    found: Array = np.empty(value.shape, value.dtype)
    old, new = _real(value), _real(found)
    for start in range(0, step.size, PIECE):
        part = slice(start, start + PIECE)
        new[part] = old[part] + (t * step[part].astype(np.float64)).astype(old.dtype)
    return found


class Subject:
    """f and the point it is checked at.

    Every value of f and every application of its rule is taken through this object, which counts them.
    """

    def __init__(self, f: Callable[..., Any], args: Sequence[Any]) -> None:
        if not callable(f):
            raise UsageError(
                f"gradcheck needs a function as its first argument, but got {type(f).__name__}; "
                "write cgrad.gradcheck(f, x), not cgrad.gradcheck(f(x))"
            )
        self.f: Callable[..., Any] = f
        self.args: tuple[Any, ...] = tuple(args)
        named = _named_leaves(f, self.args)
        self.leaves: list[Any] = _apart([_as_leaf(name, leaf) for name, leaf in named])
        if not tf.executing_eagerly():
            raise UsageError("gradcheck runs f and looks at values: it has to be called outside of tf.function")
        self.names: list[str] = [name for name, _ in named]
        self.inputs: list[Input] = [
            Input(name, leaf, position)
            for position, (name, leaf) in enumerate(zip(self.names, self.leaves, strict=True))
            if differentiable(leaf)
        ]
        self.evaluations: int = 0
        self.pulls: int = 0
        self._own_variables()

    def _own_variables(self) -> None:
        declared = getattr(self.f, "variables", None) or getattr(self.f, "trainable_variables", None) or ()
        if callable(declared):
            declared = ()
        for variable in declared:
            self.add_variable(_as_leaf("", variable))

    def add_variable(self, variable: Any) -> None:
        """Takes a captured variable in among the inputs, once."""
        known = any(variable is known.leaf for known in self.inputs)
        if known or not differentiable(variable) or not getattr(variable, "trainable", False):
            return
        name = f"variable {str(variable.name).split(':')[0]}"
        self.inputs.append(Input(name, variable, None))

    @property
    def name(self) -> str:
        """What the function is called in its author's code."""
        name = getattr(self.f, "__qualname__", None) or getattr(self.f, "__name__", None)
        if name is None:
            name = getattr(getattr(self.f, "python_function", None), "__name__", type(self.f).__name__)
        return str(name).rsplit(".", 1)[-1]

    def signature(self) -> tuple[tuple[str, str], ...]:
        """The leaves of the arguments: the name of each, and its dtype and shape (or what it is, if no tensor)."""
        return tuple((name, _described(leaf)) for name, leaf in zip(self.names, self.leaves, strict=True))

    # --- evaluation -------------------------------------------------------------------------------

    def rebuild(self, leaves: Sequence[Any]) -> tuple[Any, ...]:
        """The arguments with other leaves."""
        packed = tf.nest.pack_sequence_as(self.args, list(leaves), expand_composites=True)
        return tuple(packed)

    def call(self, leaves: Sequence[Any] | None = None) -> list[Any]:
        """The flat outputs of f for these leaves (by default: at the point)."""
        self.evaluations += 1
        outputs = self.f(*self.rebuild(self.leaves if leaves is None else leaves))
        try:
            return list(tf.nest.flatten(outputs, expand_composites=True))
        except (TypeError, RecursionError) as cause:
            raise TypeError(
                f"f returned {usage.shown(outputs)}, which has keys that cannot be sorted, or holds itself"
            ) from cause

    @contextlib.contextmanager
    def converted(self) -> Iterator[None]:
        """Calls f as a tf.function of its own, whose Python control flow is converted."""
        before = self.f
        self.f = tf.function(before)
        try:
            yield
        finally:
            self.f = before

    def run(self, leaves: Sequence[Any] | None = None) -> Run:
        """Evaluates f under a tape."""
        return Run(self, list(self.leaves if leaves is None else leaves))

    def shifted(self, steps: Sequence[Vector], t: float) -> Vector:
        """The flat real outputs at ``x + t * steps``; variables are put back afterwards."""
        leaves = list(self.leaves)
        before: list[tuple[Any, Any]] = []
        try:
            for item, step in zip(self.inputs, steps, strict=True):
                if item.variable:
                    before.append((item.leaf, tf.identity(item.leaf)))
                    item.leaf.assign(self._moved(item, step, t))
                elif item.position is not None:
                    leaves[item.position] = self._moved(item, step, t)
            return outputs_flat(self.call(leaves))
        finally:
            for variable, value in before:
                variable.assign(value)

    @staticmethod
    def _moved(item: Input, step: Vector, t: float) -> Any:
        return tf.cast(tf.constant(_shifted(item.value(), step, t)), item.dtype)

    def eps(self) -> float:
        """The rounding unit of the least precise differentiable input."""
        units = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24, "complex64": 2.0**-24}
        return 2.0 * max((units.get(item.dtype.name, 2.0**-53) for item in self.inputs), default=2.0**-53)

    def promoted(self) -> Subject | None:
        """The same function in double precision, or None where it is there already or has variables.

        Whether f accepts the wider type only running it can tell.
        """
        wider = {"float32": tf.float64, "float16": tf.float64, "bfloat16": tf.float64}
        wider["complex64"] = tf.complex128
        if any(item.variable for item in self.inputs):
            return None
        if not any(item.dtype.name in wider for item in self.inputs):
            return None
        leaves = list(self.leaves)
        for item in self.inputs:
            if item.position is not None and item.dtype.name in wider:
                leaves[item.position] = tf.cast(item.leaf, wider[item.dtype.name])
        twin = Subject(self.f, self.rebuild(leaves))
        twin.names = self.names
        twin.inputs = [
            Input(mine.name, theirs.leaf, mine.position) for mine, theirs in zip(self.inputs, twin.inputs, strict=True)
        ]
        return twin


class Run:
    """One evaluation of f under a tape, whose rule can then be applied to any upstream."""

    def __init__(self, subject: Subject, leaves: list[Any]) -> None:
        self.subject: Subject = subject
        self._leaves = leaves
        self._sources = [
            item.leaf if item.position is None or item.variable else leaves[item.position] for item in subject.inputs
        ]
        with tf.GradientTape(persistent=True) as tape:
            for source in self._sources:
                tape.watch(source)
            self.outputs: list[Any] = subject.call(leaves)
        self._tape = tape
        self.watched: tuple[Any, ...] = tape.watched_variables()
        self.once: bool = False
        """Whether the rule can be applied once only: it used up a tape of its own."""
        self.targets: list[Any] = [y for y in self.outputs if differentiable(y)]

    def add_sources(self) -> None:
        """Includes variables that joined the subject's inputs because this run met them."""
        self._sources += [item.leaf for item in self.subject.inputs[len(self._sources) :]]

    def raw(self, upstreams: Sequence[Array]) -> list[Any]:
        """The gradients as TensorFlow hands them back: tensors, IndexedSlices, or None."""
        self.subject.pulls += 1
        if self.once:
            return Run(self.subject, self._leaves)._with_sources(self._sources).raw(upstreams)
        given = [tf.cast(tf.constant(u), y.dtype) for u, y in zip(upstreams, self.targets, strict=True)]
        try:
            return list(self._tape.gradient(self.targets, self._sources, output_gradients=given))
        except RuntimeError as error:
            if "non-persistent" not in said(error):
                raise
            self.once = True
            return Run(self.subject, self._leaves)._with_sources(self._sources).raw(upstreams)

    def _with_sources(self, sources: list[Any]) -> Run:
        self._sources = sources
        return self

    def pull(self, upstreams: Sequence[Array]) -> list[Array | None]:
        """u^T J for each input, as arrays; None where the tape found no path."""
        return [None if g is None else numpy(g) for g in self.raw(upstreams)]


def outputs_flat(outputs: Sequence[Any]) -> Vector:
    """The differentiable outputs as one vector of real numbers."""
    parts = [flat(numpy(y)) for y in outputs if differentiable(y)]
    return np.concatenate(parts) if parts else np.zeros(0)
