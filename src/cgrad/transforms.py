"""The transforms: apply the derivative of any TensorFlow function, hand-written rules included."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import tensorflow as tf

from cgrad import bind, errors, internals

Unconnected = Literal["zero", "error"]
ArgNums = int | str | Iterable[int | str] | None


def vjp(
    f: Callable[..., Any], *primals: Any, argnums: ArgNums = None, unconnected: Unconnected = "zero", **kwargs: Any
) -> tuple[Any, Callable[[Any], Any]]:
    """Returns the value of a function and its pullback, the map from u to u^T J.

    Works in eager mode and in `tf.function`. The pullback can be called any number of times, and differentiated.

    Args:
        f: the function, of tensors or nested structures of tensors.
        primals: its positional arguments.
        argnums: the arguments to differentiate in: positions, or names of keyword arguments. By default every
            positional argument that holds a floating or complex tensor.
        unconnected: what an argument without influence gets: ``"zero"`` for zeros, ``"error"`` for an exception.
        kwargs: its keyword arguments.

    Returns:
        ``(y, pullback)``. ``pullback(u)`` takes the structure and shapes of y, and returns the structure and shapes
        of the argument: of the only one, or a tuple of them. Complex numbers follow TensorFlow: the result is
        J^H u, so that the gradient points uphill.

    Raises:
        UsageError: if no argument is differentiable, or ``argnums`` or an upstream does not fit.
        NotDifferentiableError: with ``unconnected="error"``, if y does not depend on an argument.

    Examples:
        >>> import tensorflow as tf
        >>> import cgrad
        >>> y, pullback = cgrad.vjp(lambda x: tf.stack([x[1], 2.0 * x[0]]), tf.constant([1.0, 2.0]))
        >>> y.numpy()
        array([2., 2.], dtype=float32)
        >>> pullback(tf.constant([3.0, 5.0])).numpy()
        array([10.,  3.], dtype=float32)
    """
    traced = _trace(f, primals, kwargs, argnums)

    def pullback(upstream: Any) -> Any:
        ups = _like("the upstream", upstream, traced.value)
        gradients = _gradients(traced, ups)
        return traced.pack([_connected(g, x, unconnected) for g, x in zip(gradients, traced.inputs, strict=True)])

    return traced.value, pullback


def jacobian(
    f: Callable[..., Any],
    *primals: Any,
    argnums: ArgNums = None,
    unconnected: Unconnected = "zero",
    vectorize: bool = True,
    **kwargs: Any,
) -> Any:
    """Returns the Jacobian of a function: dy_i / dx_j, of shape ``y.shape + x.shape``.

    Works in eager mode, in `tf.function` and with ``jit_compile=True``.

    Args:
        f: the function, of tensors or nested structures of tensors.
        primals: its positional arguments.
        argnums: the arguments to differentiate in; see `cgrad.vjp`.
        unconnected: what an argument without influence gets: ``"zero"`` for zeros, ``"error"`` for an exception.
        vectorize: whether to compute all rows at once; False computes them one by one in less memory.
        kwargs: its keyword arguments.

    Returns:
        A tensor of shape ``y.shape + x.shape`` for one output and one argument. Else the structure of y, and in each
        place of it the structure of the argument, or a tuple over the arguments. For a holomorphic function of a
        complex argument this is dy/dz, the conjugate of what ``tape.jacobian`` returns.

    Raises:
        UsageError: if no argument is differentiable, or ``argnums`` does not fit.
        NotDifferentiableError: with ``unconnected="error"``, if an output does not depend on an argument.

    Examples:
        >>> import tensorflow as tf
        >>> import cgrad
        >>> cgrad.jacobian(lambda x: tf.stack([x[1], 2.0 * x[0]]), tf.constant([1.0, 2.0])).numpy()
        array([[0., 1.],
               [2., 0.]], dtype=float32)
        >>> by_a, by_b = cgrad.jacobian(lambda a, b: a * b, tf.constant([1.0, 2.0]), tf.constant(3.0))
        >>> by_a.numpy(), by_b.numpy()
        (array([[3., 0.],
               [0., 3.]], dtype=float32), array([1., 2.], dtype=float32))
    """
    traced = _trace(f, primals, kwargs, argnums)
    rows = [_rows(traced, output, unconnected, vectorize) for output in tf.nest.flatten(traced.value)]
    return tf.nest.pack_sequence_as(traced.value, rows) if tf.nest.is_nested(traced.value) else rows[0]


@dataclass(frozen=True)
class _Traced:
    """One evaluation under a tape: the value, the flat inputs and how to give gradients their structure."""

    value: Any
    inputs: list[tf.Tensor]
    arguments: list[Any]
    single: bool
    tape: tf.GradientTape

    def pack(self, gradients: Sequence[Any]) -> Any:
        rest = iter(gradients)
        packed = tuple(
            bind.pack(argument, [next(rest) for _ in internals.flatten(argument)]) for argument in self.arguments
        )
        return packed[0] if self.single else packed


def _trace(
    f: Callable[..., Any], primals: Sequence[Any], kwargs: dict[str, Any], argnums: ArgNums
) -> _Traced:
    args: list[Any] = list(primals)
    keys, single = _chosen(args, kwargs, argnums)
    arguments = []
    for key in keys:
        where: Any = args if isinstance(key, int) else kwargs
        # A copy: one tensor that fills two arguments is still two inputs.
        argument = tf.nest.map_structure(lambda leaf: tf.identity(bind.as_tensor(leaf)), where[key])
        where[key] = argument
        arguments.append(argument)
    inputs = [leaf for argument in arguments for leaf in internals.flatten(argument)]
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        tape.watch([leaf for leaf in inputs if bind.differentiable(leaf)])
        value = tf.nest.map_structure(bind.as_tensor, f(*args, **kwargs))
    return _Traced(value, inputs, arguments, single, tape)


def _chosen(
    args: Sequence[Any], kwargs: dict[str, Any], argnums: ArgNums
) -> tuple[list[int | str], bool]:
    if argnums is None:
        keys: list[int | str] = [i for i, arg in enumerate(args) if _is_differentiable(arg)]
        if not keys:
            raise errors.UsageError(
                "no positional argument holds a floating or complex tensor, so there is nothing to differentiate in"
            )
        return keys, len(keys) == 1
    single = isinstance(argnums, (int, str))
    keys = [argnums] if isinstance(argnums, (int, str)) else list(argnums)
    for key in keys:
        known = -len(args) <= key < len(args) if isinstance(key, int) else key in kwargs
        if not known:
            raise errors.UsageError(
                f"argnums names argument {key!r}; there are {len(args)} positional arguments and the keyword arguments "
                f"{sorted(kwargs)}"
            )
        value = args[key] if isinstance(key, int) else kwargs[key]
        if not _is_differentiable(value):
            raise errors.UsageError(
                errors.describe(
                    "integer-input",
                    "argnums",
                    f"argument {key!r} holds no floating or complex tensor",
                    "only these have a derivative.",
                    "pass a floating tensor: tf.cast(x, tf.float32)",
                )
            )
    return keys, single


def _is_differentiable(value: Any) -> bool:
    if bind.not_a_tensor(value):
        return False
    try:
        leaves = internals.flatten(tf.nest.map_structure(bind.as_tensor, value))
    except (TypeError, ValueError):
        return False
    return any(bind.differentiable(leaf) for leaf in leaves)


def _like(what: str, given: Any, value: Any) -> list[tf.Tensor]:
    """Returns the flat tensors of ``given`` once their structure and shapes are those of ``value``."""
    try:
        tf.nest.assert_same_structure(value, given)
    except (TypeError, ValueError) as cause:
        raise errors.UsageError(f"{what} has another structure than the output: {cause}") from cause
    flat = []
    for leaf, due in zip(internals.flatten(given), internals.flatten(value), strict=True):
        tensor = tf.convert_to_tensor(leaf, due.dtype) if not isinstance(leaf, tf.Tensor) else leaf
        if tensor.dtype != due.dtype or not tensor.shape.is_compatible_with(due.shape):
            raise errors.UsageError(
                f"{what} is a {tensor.dtype.name} tensor of shape {tensor.shape}, and the output is a {due.dtype.name} "
                f"tensor of shape {due.shape}; both have to be the same"
            )
        flat.append(tensor)
    return flat


def _gradients(traced: _Traced, ups: Sequence[tf.Tensor]) -> list[Any]:
    pairs = [
        (y, u) for y, u in zip(internals.flatten(traced.value), ups, strict=True) if bind.differentiable(y)
    ]
    if not pairs:
        return [None] * len(traced.inputs)
    sources = [x for x in traced.inputs if bind.differentiable(x)]
    found = iter(traced.tape.gradient([y for y, _ in pairs], sources, output_gradients=[u for _, u in pairs]))
    return [next(found) if bind.differentiable(x) else None for x in traced.inputs]


def _connected(gradient: Any, x: tf.Tensor, unconnected: Unconnected) -> tf.Tensor:
    if gradient is not None:
        return tf.convert_to_tensor(gradient)
    if unconnected == "error" and bind.differentiable(x):
        raise _unconnected_error()
    return tf.zeros_like(x)


def _unconnected_error() -> errors.NotDifferentiableError:
    return errors.NotDifferentiableError(
        errors.describe(
            "tape-broken",
            "unconnected='error'",
            "an output does not depend on an argument",
            "no chain of TensorFlow operations leads from one to the other: the derivative is 0, or the tape is broken.",
            "unconnected='zero' if it is meant so; else cgrad.gradcheck(f, x) says where the tape breaks",
        )
    )


def _rows(traced: _Traced, y: tf.Tensor, unconnected: Unconnected, vectorize: bool) -> Any:
    """The Jacobian of one output in all arguments."""
    sources = [x for x in traced.inputs if bind.differentiable(x)]
    found: list[Any] = [None] * len(sources)
    if bind.differentiable(y):
        found = traced.tape.jacobian(y, sources, experimental_use_pfor=vectorize)
    rest = iter(found)
    return traced.pack(
        [_block(next(rest) if bind.differentiable(x) else None, y, x, unconnected) for x in traced.inputs]
    )


def _block(block: Any, y: tf.Tensor, x: tf.Tensor, unconnected: Unconnected) -> tf.Tensor:
    if block is not None:
        return tf.math.conj(block) if block.dtype.is_complex else block
    if unconnected == "error" and bind.differentiable(x):
        raise _unconnected_error()
    return tf.zeros(tf.concat([tf.shape(y), tf.shape(x)], 0), x.dtype)


