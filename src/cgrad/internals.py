"""The only place that names parts of TensorFlow which are not public API.

Why they are needed: a rule reaches forward mode only if the operation is recorded together with a forward function,
and the public `tf.custom_gradient` offers none. ``tests/test_internals.py`` tells when one of these names moves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import tensorflow as tf
from tensorflow.python.eager import forwardprop_util, record

# Whether any tape or accumulator is active on this thread (0.1 us).
could_record: Callable[[], bool] = record.could_possibly_record

# Whether a tape, reverse mode only, follows one of these tensors.
followed_by_tape: Callable[[Sequence[tf.Tensor]], bool] = record.should_record_backprop

# A context in which neither tapes nor accumulators see anything.
unrecorded: Callable[[], Any] = record.stop_recording

# A context in which tapes work inside the forward function of an operation, and accumulators follow it again.
fresh_forward_state: Callable[[], Any] = forwardprop_util.push_forwardprop_state

# The trainable variables read inside a context, as `tf.custom_gradient` finds them.
VariableWatcher = record.VariableWatcher


def followed_by_accumulator(tensors: Sequence[tf.Tensor]) -> bool:
    """Returns whether forward mode follows one of the tensors."""
    return bool(forwardprop_util.pack_tangents(list(tensors)).indices)


def record_both(
    name: str,
    outputs: Sequence[tf.Tensor],
    inputs: Sequence[tf.Tensor],
    backward: Callable[..., Any],
    forward: Callable[..., Any],
) -> None:
    """Records an operation with its reverse and its forward rule, on every tape and accumulator."""
    record.record_operation(name, list(outputs), list(inputs), backward, forward)


def record_reverse(
    name: str, outputs: Sequence[tf.Tensor], inputs: Sequence[tf.Tensor], backward: Callable[..., Any]
) -> None:
    """Records an operation on tapes only; it takes the place of an earlier record of the same outputs."""
    record.record_operation_backprop_only(name, list(outputs), list(inputs), backward)


def flatten(structure: object) -> list[Any]:
    """Returns the leaves, composite tensors taken apart (the public `tf.nest` does this too)."""
    return cast("list[Any]", tf.nest.flatten(structure, expand_composites=True))
