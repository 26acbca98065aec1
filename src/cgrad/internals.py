"""The only place that names parts of TensorFlow which are not public API.

Why they are needed: a rule reaches forward mode only if the operation is recorded together with a forward function,
and the public `tf.custom_gradient` offers none. ``tests/test_internals.py`` tells when one of these names moves.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import tensorflow as tf
from tensorflow.python.eager import context, forwardprop_util, record  # type: ignore[attr-defined]
from tensorflow.python.framework import ops
from tensorflow.python.ops import custom_gradient as _custom_gradient  # type: ignore[attr-defined]
from tensorflow.python.ops import stateful_random_ops  # type: ignore[attr-defined]

# Every call of a custom gradient, TensorFlow's own and Keras's included, looks these two names up in this module.
custom_gradient_module: Any = _custom_gradient
CUSTOM_GRADIENT_DECORATORS = ("_eager_mode_decorator", "_graph_mode_decorator")

# Whether any tape or accumulator is active on this thread (0.1 us).
could_record: Callable[[], bool] = record.could_possibly_record

# Whether a tape, reverse mode only, follows one of these tensors.
followed_by_tape: Callable[[Sequence[tf.Tensor]], bool] = record.should_record_backprop

# A context in which neither tapes nor accumulators see anything.
unrecorded: Callable[[], Any] = record.stop_recording

# The trainable variables read inside a context, as `tf.custom_gradient` finds them.
VariableWatcher: Callable[[], Any] = record.VariableWatcher


@contextlib.contextmanager
def other_eager_seeds() -> Iterator[None]:
    """Lets random operations in eager mode draw their seeds elsewhere, and go on afterwards as if nothing had been.

    Putting the state back would not do: the kernels of the seeds that were drawn meanwhile are cached, and have moved.
    """
    current = context.context()
    before = getattr(current, "_rng", None)  # None before a global seed is set
    seed = getattr(current, "_seed", None)
    if before is not None:
        current._rng = random.Random(0x5EED)
    try:
        yield
    finally:
        if getattr(current, "_seed", None) != seed:
            current._seed = seed  # set meanwhile
        if before is not None:
            current._rng = before


@contextlib.contextmanager
def same_execution_mode() -> Iterator[None]:
    """Closes the graphs that its block leaves open: an interrupt in the midst of TensorFlow's own bookkeeping does."""
    current = context.context()
    local, graphs, switches = current._thread_local_data, ops._default_graph_stack, current.context_switches
    eager, before = local.is_eager, (list(graphs.stack), list(switches.stack))
    try:
        yield
    finally:
        local.is_eager = eager
        graphs.stack[:], switches.stack[:] = before


def global_generator() -> Any:
    """Returns the generator of `tf.random.get_global_generator`, or None where nobody has asked for it yet."""
    return stateful_random_ops.global_generator


def forget_rules(graph: Any) -> None:
    """Lets go of the rules that the operations of a graph look up: they would keep it alive for ever.

    Each trace of a custom gradient enters its rule in TensorFlow's registry, under a name of its own that only the
    operations of that graph know. For a graph that nobody will differentiate any more.
    """
    entries = ops.gradient_registry._registry
    for operation in graph.get_operations():
        with contextlib.suppress(ValueError):  # most operations have no such attribute
            name = operation.get_attr("_gradient_op_type").decode()
            if name.startswith("CustomGradient-"):
                entries.pop(name, None)


@contextlib.contextmanager
def same_keras_generator() -> Iterator[Any]:
    """Hands over the seed generator of `keras.random`, None if it is not made yet; it is not made afterwards either."""
    keras = sys.modules.get("keras.src.backend.common.global_state")
    before = None if keras is None else keras.get_global_attribute("global_seed_generator")
    try:
        yield before
    finally:
        if keras is not None and before is None:
            keras.set_global_attribute("global_seed_generator", None)


def followed_by_accumulator(tensors: Sequence[tf.Tensor]) -> bool:
    """Returns whether forward mode follows one of the tensors."""
    return any(forwardprop_util.pack_tangents(list(tensors)).indices)


def tangents_of(tensors: Sequence[tf.Tensor]) -> list[list[Any]]:
    """Returns for each active accumulator, the innermost first, the tangent of each tensor (None where it has none)."""
    tensors = list(tensors)
    indices, tangents = forwardprop_util.pack_tangents(tensors)
    found = []
    for pairs in indices:
        by_primal = {primal: tangents[tangent - len(tensors)] for primal, tangent in pairs}
        found.append([by_primal.get(k) for k in range(len(tensors))])
    return found


def set_tangents(
    name: str, outputs: Sequence[tf.Tensor], inputs: Sequence[tf.Tensor], tangents: Sequence[Sequence[Any]]
) -> None:
    """Gives the outputs these tangents, for each active accumulator (None, or an empty list, for none)."""
    tensors = list(outputs)
    indices = []
    for of_one in tangents:
        pairs: list[tuple[int, int]] = []
        for k, tangent in enumerate(of_one):
            if tangent is not None:
                pairs.append((k, len(tensors)))
                tensors.append(tangent)
        indices.append(tuple(pairs))
    record.record_operation_forwardprop_only(name, tensors, list(inputs), None, tuple(indices))


def record_reverse(
    name: str, outputs: Sequence[tf.Tensor], inputs: Sequence[tf.Tensor], backward: Callable[..., Any]
) -> None:
    """Records an operation on tapes only; it takes the place of an earlier record of the same outputs."""
    record.record_operation_backprop_only(name, list(outputs), list(inputs), backward)


def flatten(structure: object) -> list[Any]:
    """Returns the leaves, composite tensors taken apart (the public `tf.nest` does this too)."""
    return cast("list[Any]", tf.nest.flatten(structure, expand_composites=True))
