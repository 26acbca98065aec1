"""Functions and derivatives outside TensorFlow: NumPy, SciPy, compiled code.

In eager mode they are simply called; in a graph they become `tf.numpy_function`. They hold no state between the
forward and the backward pass, so that threads cannot meet in it. What TensorFlow cannot differentiate refuses to be.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from cgrad import bind, errors, usage

Array = np.ndarray[Any, Any]


def call(
    name: str, function: Callable[..., Sequence[Array]], inputs: Sequence[tf.Tensor], due: Sequence[tf.TensorSpec]
) -> list[tf.Tensor]:
    """Calls a function of arrays on tensors, in any mode.

    Args:
        name: the function's name, for messages.
        function: takes one array for each input and returns one for each entry of ``due``.
        inputs: the tensors.
        due: shapes and dtypes of the results. Results are cast to these dtypes.

    Raises:
        ContractError: if a result has another shape; inside a graph TensorFlow wraps it when the graph runs.
    """

    def checked(*arrays: Array) -> list[Array]:
        results = function(*arrays)
        return [_checked(name, result, spec) for result, spec in zip(results, due, strict=True)]

    if not any(tf.is_symbolic_tensor(t) for t in inputs) and tf.executing_eagerly():
        return [tf.convert_to_tensor(r) for r in checked(*(t.numpy() for t in inputs))]
    # A SavedModel keeps only the number of the callback, and another process has another one under that number.
    mark = secrets.randbits(62)

    def marked(came: Any, *arrays: Array) -> list[Array]:
        if int(came) != mark:
            raise errors.NotDifferentiableError(
                f"{name}: the NumPy code of this function is not in the SavedModel; load the model in the process that "
                "saved it, or write the function in TensorFlow"
            )
        return checked(*arrays)

    tensors = [tf.constant(mark, tf.int64), *(tf.stop_gradient(t) for t in inputs)]
    # XLA refuses this operation by its name.
    label = re.sub(r"\W+", "_", f"NumPy_code_of_{name}").strip("_")
    results = tf.numpy_function(marked, tensors, [spec.dtype for spec in due], name=label)
    for result, spec in zip(results, due, strict=True):
        result.set_shape(spec.shape)
    return list(results)


def infer(name: str, function: Callable[..., Sequence[Any]], inputs: Sequence[tf.Tensor]) -> list[tf.TensorSpec]:
    """Returns the shapes and dtypes of a function's results, from calls on arrays of ones.

    One call is enough where all sizes are known. Else there are two, with 2 and with 3 in the place of every unknown
    size: a size of the result that differs is unknown too.

    Raises:
        UsageError: if the rank of an input is not known, or the function fails on ones.
    """
    advice = f"say what {name} returns where it is decorated: out=tf.TensorSpec(shape, dtype)"
    if any(t.shape.rank is None for t in inputs):
        raise errors.UsageError(
            f"{name}: in a graph the shape of what a NumPy function returns is found by a call on ones, and an input "
            f"has an unknown rank; {advice}"
        )
    known = all(t.shape.is_fully_defined() for t in inputs)
    try:
        found = [_probed(function, inputs, size) for size in ((1,) if known else (2, 3))]
    except Exception as cause:
        raise errors.UsageError(
            f"{name}: in a graph the shape of what a NumPy function returns is found by a call on ones, and that "
            f"call raised {type(cause).__name__}: {cause}; {advice}"
        ) from cause
    return [
        tf.TensorSpec(_common(*(array.shape for array in arrays)), tf.as_dtype(arrays[0].dtype))
        for arrays in zip(*found, strict=True)
    ]


def _probed(function: Callable[..., Sequence[Any]], inputs: Sequence[tf.Tensor], unknown: int) -> list[Array]:
    with np.errstate(all="ignore"):
        shapes = [[unknown if size is None else size for size in t.shape.as_list()] for t in inputs]
        ones = [np.ones(shape, t.dtype.as_numpy_dtype) for shape, t in zip(shapes, inputs, strict=True)]
        return [np.asarray(result) for result in function(*ones)]


def _common(shape: tuple[int, ...], other: tuple[int, ...] | None = None) -> Any:
    if other is None:
        return list(shape)
    if len(shape) != len(other):
        return None
    return [a if a == b else None for a, b in zip(shape, other, strict=True)]


def guarded(name: str, results: Sequence[tf.Tensor], inputs: Sequence[tf.Tensor], advice: str) -> list[tf.Tensor]:
    """Ties results that NumPy computed to the inputs they came from, so that differentiating them is refused.

    The tie is a function of the inputs alone: a derivative in what the results are multiplied with stays allowed.
    """
    real = [t for t in here(inputs) if bind.differentiable(t)]
    if not real:
        return list(results)
    nothing = _tie(name, advice)(*real)
    return [r + tf.cast(nothing, r.dtype) if bind.differentiable(r) else r for r in results]


def here(tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Returns the tensors as members of the graph that is being built.

    A rule is traced into another graph than the forward pass, and the rule of a rule into a third: that one can reach
    into the second, and not into the first.
    """
    return list(tensors) if tf.executing_eagerly() else [tf.identity(t) for t in tensors]


def linear(
    forward: Callable[[Sequence[tf.Tensor]], list[tf.Tensor]],
    transposed: Callable[[Sequence[tf.Tensor]], list[tf.Tensor]],
) -> Callable[[Sequence[tf.Tensor]], list[tf.Tensor]]:
    """Returns a linear map whose derivative is its transpose, and the other way round, to any order."""

    def apply(*tensors: tf.Tensor) -> Any:
        @tf.custom_gradient  # type: ignore[untyped-decorator]
        def mapped(*tensors: tf.Tensor) -> Any:
            return forward(tensors), lambda *ups: linear(transposed, forward)(ups)

        return mapped(*tensors)

    return lambda tensors: list(apply(*tensors))


def by_units(
    apply: Callable[[list[Array]], Sequence[Array]], like: Sequence[Array], upstreams: Sequence[Array]
) -> list[Array]:
    """Returns the adjoint of a linear map at ``upstreams``: one application for each entry of ``like``."""
    found = [np.zeros_like(array) for array in like]
    for k, array in enumerate(like):
        for index in np.ndindex(array.shape):
            unit = [np.zeros_like(other) for other in like]
            unit[k][index] = 1
            images = apply(unit)
            total = sum(np.sum(np.conj(np.asarray(i)) * u) for i, u in zip(images, upstreams, strict=True))
            found[k][index] = total if np.iscomplexobj(array) else np.real(total)
    return found


def _tie(name: str, advice: str) -> Any:
    message = errors.describe(
        "backward-not-differentiable",
        name,
        "a second derivative was asked for, and the rule runs outside TensorFlow",
        "the second derivative differentiates the rule, and a rule in NumPy is a constant to TensorFlow.",
        advice,
    )

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def nothing(*inputs: tf.Tensor) -> Any:
        def rule(upstream: tf.Tensor) -> Any:
            del upstream
            if tf.executing_eagerly():
                raise errors.NotDifferentiableError(message)
            # A graph traces this rule whether or not anybody uses it, so that only its value may fail.
            return [_failing(x, message) for x in inputs]

        return tf.zeros([]), rule

    return nothing


def _failing(x: tf.Tensor, message: str) -> Any:
    real = x.dtype.real_dtype
    # Checked as a scalar, then spread: a check of an empty tensor would pass.
    nan = tf.raw_ops.CheckNumerics(tensor=tf.constant(np.nan, real), message=message)
    return tf.fill(tf.shape(x), tf.cast(nan, x.dtype))


def _no_array(name: str, result: Any, spec: tf.TensorSpec) -> str:
    return errors.describe(
        "wrong-dtype",
        name,
        f"the NumPy code returned {usage.shown(result)}, where numbers of shape {spec.shape} were due",
        "what TensorFlow takes back is one array of numbers.",
        f"return an array of shape {spec.shape} and dtype {spec.dtype.name}",
    )


def _checked(name: str, result: Any, spec: tf.TensorSpec) -> Array:
    try:
        array = np.asarray(result)
    except ValueError as cause:
        raise errors.ContractError(_no_array(name, result, spec)) from cause
    if array.dtype.kind not in "biufcV" and not spec.dtype == tf.string:
        raise errors.ContractError(_no_array(name, result, spec))
    if not spec.shape.is_compatible_with(array.shape):
        raise errors.ContractError(
            errors.describe(
                "wrong-shape",
                name,
                f"the NumPy code returned an array of shape {array.shape}, where {spec.shape} was due",
                "a gradient has the shape of its argument, a Jacobian y.shape + x.shape, a value that of out=.",
                f"return an array of shape {spec.shape}",
            )
        )
    if array.dtype.kind == "c" and not spec.dtype.is_complex:
        array = array.real
    return array.astype(spec.dtype.as_numpy_dtype, copy=False)
