"""The transforms: apply the derivative of any TensorFlow function, hand-written rules included."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import tensorflow as tf

from cgrad import bind, errors, internals, linear, usage

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
    usage.one_of("unconnected", unconnected, ("zero", "error"))
    traced = _trace("vjp", f, primals, kwargs, argnums)

    def pullback(upstream: Any) -> Any:
        ups = _like("the upstream", upstream, "the output", traced.value)
        gradients = _gradients(traced, ups)
        return traced.pack([_connected(g, x, unconnected) for g, x in zip(gradients, traced.inputs, strict=True)])

    return traced.value, pullback


def jvp(
    f: Callable[..., Any],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    unconnected: Unconnected = "zero",
    **kwargs: Any,
) -> tuple[Any, Any]:
    """Returns the value of a function and its derivative J v along a direction.

    Hand-written rules are honoured, also those of `tf.custom_gradient`, which `tf.autodiff.ForwardAccumulator` ignores.
    It takes two backward passes: u^T J is linear in u, and its derivative in u along v is J v.

    Args:
        f: the function, of tensors or nested structures of tensors.
        primals: the tuple of its positional arguments.
        tangents: the tuple of directions, each in the structure, shapes and dtypes of its argument; None for an
            argument that stays where it is.
        unconnected: what an output that depends on no argument gets: ``"zero"`` for zeros, ``"error"`` for an
            exception.
        kwargs: its keyword arguments.

    Returns:
        ``(y, dy)``, both in the structure and shapes of the output. An integer output has zeros.

    Raises:
        UsageError: if ``tangents`` does not fit ``primals``.
        NotDifferentiableError: with ``unconnected="error"``, if an output depends on no argument.

    Examples:
        >>> import tensorflow as tf
        >>> import cgrad
        >>> y, dy = cgrad.jvp(lambda x: x**2, (tf.constant([1.0, 2.0]),), (tf.constant([1.0, 10.0]),))
        >>> y.numpy(), dy.numpy()
        (array([1., 4.], dtype=float32), array([ 2., 40.], dtype=float32))
    """
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise errors.UsageError("cgrad.jvp takes tuples: cgrad.jvp(f, (x,), (v,))")
    if len(primals) != len(tangents):
        raise errors.UsageError(f"cgrad.jvp got {len(primals)} primals and {len(tangents)} tangents")
    usage.one_of("unconnected", unconnected, ("zero", "error"))
    moved = [i for i, tangent in enumerate(tangents) if tangent is not None]
    _require_differentiable("tangents", primals, kwargs, moved)
    if not primals:
        raise errors.UsageError("cgrad.jvp differentiates in at least one argument, but got no primals")
    traced = _trace("jvp", f, primals, kwargs, moved)
    directions = _like("the tangent", [tangents[i] for i in moved], "the argument", traced.arguments)
    outputs = internals.flatten(traced.value)
    found = _pushed(traced, outputs, directions)
    dy = [_connected(d, y, unconnected) for d, y in zip(found, outputs, strict=True)]
    return traced.value, bind.pack(traced.value, dy)


def jacobian(
    f: Callable[..., Any],
    *primals: Any,
    argnums: ArgNums = None,
    unconnected: Unconnected = "zero",
    mode: Literal["auto", "reverse", "forward"] = "auto",
    vectorize: bool = True,
    dense: bool = False,
    **kwargs: Any,
) -> Any:
    """Returns the Jacobian of a function: dy_i / dx_j, of shape ``y.shape + x.shape``.

    Works in eager mode, in `tf.function` and with ``jit_compile=True``. A function made by `cgrad.custom_jacobian`
    gives its own Jacobian directly, in the form that it has; others are differentiated.

    Args:
        f: the function, of tensors or nested structures of tensors.
        primals: its positional arguments.
        argnums: the arguments to differentiate in; see `cgrad.vjp`.
        unconnected: what an argument without influence gets: ``"zero"`` for zeros, ``"error"`` for an exception.
        mode: ``"reverse"`` costs a backward pass for each output, ``"forward"`` two for each input; ``"auto"`` takes
            the cheaper by the sizes, reverse where they are not known.
        vectorize: whether to compute all rows at once; False computes them one by one in less memory.
        dense: whether to make a structured hand-written Jacobian dense. Otherwise an operator or sparse tensor comes as
            it is, a batched one as the tensor it is, and a diagonal as a `tf.linalg.LinearOperatorDiag`.
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
    given: Any = mode
    if not isinstance(given, str) or given not in ("auto", "reverse", "forward"):
        raise errors.UsageError(f"mode is 'auto', 'reverse' or 'forward', and not {usage.shown(mode)}")
    usage.one_of("unconnected", unconnected, ("zero", "error"))
    usage.flag("vectorize", vectorize)
    usage.flag("dense", dense)
    definition = getattr(f, "__cgrad__", None)
    if definition is not None and definition.kind == "jacobian" and not kwargs and argnums is None:
        return _hand_written(definition, primals, unconnected, dense)
    traced = _trace("jacobian", f, primals, kwargs, argnums)
    rows = [_rows(traced, output, unconnected, mode, vectorize) for output in internals.flatten(traced.value)]
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
    transform: str, f: Callable[..., Any], primals: Sequence[Any], kwargs: dict[str, Any], argnums: ArgNums
) -> _Traced:
    usage.function(f"cgrad.{transform}", f, f"write cgrad.{transform}(f, ...), not cgrad.{transform}(f(...))")
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
        value = bind.as_output(f"cgrad.{transform}", f(*args, **kwargs), errors.UsageError)
    return _Traced(value, inputs, arguments, single, tape)


def _chosen(args: Sequence[Any], kwargs: dict[str, Any], argnums: ArgNums) -> tuple[list[int | str], bool]:
    if argnums is None:
        keys: list[int | str] = [i for i, arg in enumerate(args) if _is_differentiable(arg)]
        if not keys:
            raise errors.UsageError(
                "no positional argument holds a floating or complex tensor, so there is nothing to differentiate in"
            )
        return keys, len(keys) == 1
    single = isinstance(argnums, (int, str))
    keys = _listed(argnums)
    for key in keys:
        known = -len(args) <= key < len(args) if isinstance(key, int) else key in kwargs
        if not known:
            raise errors.UsageError(
                f"argnums names argument {key!r}; there are {len(args)} positional arguments and the keyword arguments "
                f"{sorted(kwargs)}"
            )
    _require_differentiable("argnums", args, kwargs, keys)
    if len({key % len(args) if isinstance(key, int) else key for key in keys}) < len(keys):
        raise errors.UsageError(f"argnums: each argument once was due, but {usage.shown(keys)} has one of them twice")
    return keys, single


def _listed(argnums: Any) -> list[int | str]:
    """The arguments that were named, each a position or the name of a keyword."""
    due = "a position, the name of a keyword argument, or several of these,"
    if isinstance(argnums, bool):
        raise usage.wrong("argnums", due, argnums)
    if isinstance(argnums, (int, str)):
        return [argnums]
    keys = list(argnums) if isinstance(argnums, Iterable) and not hasattr(argnums, "dtype") else []
    if not keys or any(isinstance(key, bool) or not isinstance(key, (int, str)) for key in keys):
        raise usage.wrong("argnums", due, argnums)
    return keys


def _require_differentiable(
    option: str, args: Sequence[Any], kwargs: dict[str, Any], keys: Iterable[int | str]
) -> None:
    for key in keys:
        if not _is_differentiable(args[key] if isinstance(key, int) else kwargs[key]):
            raise errors.UsageError(
                errors.describe(
                    "integer-input",
                    option,
                    f"argument {key!r} holds no floating or complex tensor",
                    "only these have a derivative.",
                    "pass a floating tensor: tf.cast(x, tf.float32)",
                )
            )


def _is_differentiable(value: Any) -> bool:
    if bind.not_a_tensor(value):
        return False
    try:
        leaves = internals.flatten(tf.nest.map_structure(bind.as_tensor, value))
    except (TypeError, ValueError):
        return False
    return any(bind.differentiable(leaf) for leaf in leaves)


def _like(what: str, given: Any, like: str, value: Any) -> list[tf.Tensor]:
    """Returns the flat tensors of ``given`` once their structure and shapes are those of ``value``."""
    try:
        tf.nest.assert_same_structure(value, given, expand_composites=True)
    except (TypeError, ValueError) as cause:
        raise errors.UsageError(f"{what} has another structure than {like}: {cause}") from cause
    flat = []
    for leaf, due in zip(internals.flatten(given), internals.flatten(value), strict=True):
        tensor = leaf if isinstance(leaf, tf.Tensor) else _converted(what, leaf, like, due)
        if tensor.dtype != due.dtype or not tensor.shape.is_compatible_with(due.shape):
            raise errors.UsageError(
                f"{what} is a {tensor.dtype.name} tensor of shape {tensor.shape}, and {like} is a {due.dtype.name} "
                f"tensor of shape {due.shape}; both have to be the same"
            )
        flat.append(tensor)
    return flat


def _converted(what: str, leaf: Any, like: str, due: tf.Tensor) -> tf.Tensor:
    try:
        return tf.convert_to_tensor(leaf, due.dtype)
    except (TypeError, ValueError) as cause:
        raise errors.UsageError(
            f"{what} is {usage.shown(leaf)}, which is no {due.dtype.name} tensor of shape {due.shape}, as {like} is"
        ) from cause


def _gradients(traced: _Traced, ups: Sequence[tf.Tensor]) -> list[Any]:
    pairs = [(y, u) for y, u in zip(internals.flatten(traced.value), ups, strict=True) if bind.differentiable(y)]
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
            "no TensorFlow operations lead from one to the other: the derivative is 0, or the tape is broken.",
            "unconnected='zero' if it is meant so; else cgrad.gradcheck(f, x) says where the tape breaks",
        )
    )


def _pushed(traced: _Traced, outputs: Sequence[tf.Tensor], directions: Sequence[tf.Tensor]) -> list[Any]:
    """J v by two backward passes: the derivative of u -> u^T J along v. At which u does not matter."""
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        ups = [tf.ones_like(y) for y in outputs]
        tape.watch([u for u in ups if bind.differentiable(u)])
        pulled = _gradients(traced, ups)
    pairs = [(tf.convert_to_tensor(g), v) for g, v in zip(pulled, directions, strict=True) if g is not None]
    sources = [u for u in ups if bind.differentiable(u)]
    if not pairs:
        return [None] * len(outputs)
    found = iter(tape.gradient([g for g, _ in pairs], sources, output_gradients=[v for _, v in pairs]))
    return [next(found) if bind.differentiable(u) else None for u in ups]


def _rows(traced: _Traced, y: tf.Tensor, unconnected: Unconnected, mode: str, vectorize: bool) -> Any:
    """The Jacobian of one output in all arguments."""
    blocks = [_block_of(traced, y, x, mode, vectorize) for x in traced.inputs]
    pairs = zip(blocks, traced.inputs, strict=True)
    return traced.pack([_connected_block(block, y, x, unconnected) for block, x in pairs])


def _block_of(traced: _Traced, y: tf.Tensor, x: tf.Tensor, mode: str, vectorize: bool) -> Any:
    if not bind.differentiable(y) or not bind.differentiable(x):
        return None
    _require_room(y, x)
    if 0 in (y.shape.num_elements(), x.shape.num_elements()):
        return None  # no entry to differentiate, and TensorFlow's loop trips over it
    if mode == "auto":
        mode = "forward" if _forward_is_cheaper(y, x) else "reverse"
    if mode == "forward":
        return _by_columns(traced.tape, y, x, vectorize)
    block = traced.tape.jacobian(y, x, experimental_use_pfor=vectorize)
    if block is None or not y.dtype.is_complex:
        return tf.math.conj(block) if block is not None and block.dtype.is_complex else block
    if x.dtype.is_complex:
        return tf.math.conj(block)
    return _of_real_argument(traced.tape, y, x, vectorize)


def _require_room(y: tf.Tensor, x: tf.Tensor) -> None:
    sizes = [t.shape.num_elements() or 0 for t in (y, x)]  # not known: nothing to say
    usage.size(
        f"the Jacobian of an output of shape {y.shape} in an argument of shape {x.shape}",
        sizes,
        "cgrad.vjp and cgrad.jvp apply it without building it",
    )


def _forward_is_cheaper(y: tf.Tensor, x: tf.Tensor) -> bool:
    inputs, outputs = x.shape.num_elements(), y.shape.num_elements()
    return inputs is not None and outputs is not None and 2 * inputs < outputs


def _by_columns(tape: tf.GradientTape, y: tf.Tensor, x: tf.Tensor, vectorize: bool) -> Any:
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as outer:
        u = tf.ones_like(y)
        outer.watch(u)
        pulled: Any = tape.gradient([y], [x], output_gradients=[u])[0]
        if pulled is None:
            return None
        pulled = tf.convert_to_tensor(pulled)
    columns = outer.jacobian(pulled, u, experimental_use_pfor=vectorize)
    if columns is None:
        return None
    # Axes of x, then of y: turn them round.
    y_rank, x_rank = y.shape.rank, x.shape.rank
    return tf.transpose(columns, [*range(x_rank, x_rank + y_rank), *range(x_rank)])


def _of_real_argument(tape: tf.GradientTape, y: tf.Tensor, x: tf.Tensor, vectorize: bool) -> Any:
    """dy/dx of a complex y in a real x: TensorFlow keeps the real part alone, so each part has its turn."""
    with tape:
        parts = tf.math.real(y), tf.math.imag(y)
    real, imag = (tape.jacobian(part, x, experimental_use_pfor=vectorize) for part in parts)
    return tf.complex(tf.zeros_like(imag) if real is None else real, tf.zeros_like(real) if imag is None else imag)


def _connected_block(block: Any, y: tf.Tensor, x: tf.Tensor, unconnected: Unconnected) -> Any:
    if block is not None:
        return block
    if unconnected == "error" and bind.differentiable(x) and bind.differentiable(y):
        raise _unconnected_error()
    return tf.zeros(tf.concat([tf.shape(y), tf.shape(x)], 0), x.dtype)


def _hand_written(definition: Any, primals: Sequence[Any], unconnected: Unconnected, dense: bool) -> Any:
    """The Jacobian that `cgrad.custom_jacobian` was given."""
    bound = definition.binder(tuple(primals), {})
    args, kwargs = bound.rebuild(bound.tensors)
    value = definition.evaluate(definition, bound, args, kwargs)
    outputs = internals.flatten(value.value)
    form = definition.options["form"]
    owed = bound.owed()
    rows = []
    for y, row in zip(outputs, value.rule(bound.tensors), strict=True):
        blocks = [
            _in_form(block, y, x, form, dense) if block is not None else _connected_block(None, y, x, unconnected)
            for block, x in zip(row, bound.tensors, strict=True)
        ]
        by_name = bound.by_name(blocks)
        packed = tuple(by_name[argument.name] for argument in owed)
        rows.append(packed[0] if len(packed) == 1 else packed)
    return tf.nest.pack_sequence_as(value.value, rows) if tf.nest.is_nested(value.value) else rows[0]


def _in_form(block: Any, y: tf.Tensor, x: tf.Tensor, form: linear.Form, dense: bool) -> Any:
    if dense:
        _require_room(y, x)
        return linear.dense(block, y, x, form)
    if form.diagonal and isinstance(block, tf.Tensor) and y.shape == x.shape:
        return tf.linalg.LinearOperatorDiag(tf.reshape(tf.broadcast_to(block, tf.shape(y)), [-1]))
    return block
