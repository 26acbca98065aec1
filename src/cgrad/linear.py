"""What a Jacobian does, in each form it can have: u^T J and J v, never building more than was given.

A block is the Jacobian of one output in one argument. Sums over the axes of y or x are taken in the block's own form.
With complex numbers J is dy/dz, and `pull` conjugates, as TensorFlow's reverse mode does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from cgrad import contract, errors, usage


@dataclass(frozen=True)
class Form:
    """What the blocks that are plain tensors stand for.

    Attributes:
        diagonal: a tensor of the shape of y: J is diagonal, element by element.
        batched: the number of leading axes that y, x and J have in common.
    """

    diagonal: bool = False
    batched: int = 0


def pull(block: Any, u: tf.Tensor, x: tf.Tensor, form: Form) -> tf.Tensor:
    """Returns u^T J (J^H u for complex numbers), of the shape and dtype of x."""
    if isinstance(block, tf.linalg.LinearOperator):
        rows = tf.concat([block.batch_shape_tensor(), [block.range_dimension_tensor()]], 0)
        pulled = block.matvec(tf.reshape(_cast(u, block.dtype), rows), adjoint=True)
    elif isinstance(block, tf.SparseTensor):
        rows, columns = _flat_indices(block, u, x)
        products = tf.math.conj(block.values) * tf.gather(_flat(_cast(u, block.dtype)), rows)
        pulled = tf.math.unsorted_segment_sum(products, columns, _size(x))
    elif form.diagonal:
        pulled = _unbroadcast(tf.math.conj(block) * _cast(u, block.dtype), x)
    elif form.batched:
        matrix, batch = _batch_matrix(block, u, x, form.batched)
        vector = tf.reshape(_cast(u, block.dtype), tf.concat([batch, [-1]], 0))
        pulled = tf.linalg.matvec(matrix, vector, adjoint_a=True)
    else:
        pulled = _pull_dense(block, u, x)
    return tf.reshape(_real_if(pulled, x.dtype), _shape(x))


def push(block: Any, v: tf.Tensor, y: tf.Tensor, form: Form) -> tf.Tensor:
    """Returns J v, of the shape and dtype of y."""
    if isinstance(block, tf.linalg.LinearOperator):
        columns = tf.concat([block.batch_shape_tensor(), [block.domain_dimension_tensor()]], 0)
        pushed = block.matvec(tf.reshape(_cast(v, block.dtype), columns))
    elif isinstance(block, tf.SparseTensor):
        rows, columns = _flat_indices(block, y, v)
        products = block.values * tf.gather(_flat(_cast(v, block.dtype)), columns)
        pushed = tf.math.unsorted_segment_sum(products, rows, _size(y))
    elif form.diagonal:
        pushed = block * _cast(v, block.dtype)
    elif form.batched:
        matrix, batch = _batch_matrix(block, y, v, form.batched)
        pushed = tf.linalg.matvec(matrix, tf.reshape(_cast(v, block.dtype), tf.concat([batch, [-1]], 0)))
    else:
        matrix = tf.reshape(block, tf.stack([_size(y), _size(v)]))
        pushed = tf.linalg.matvec(matrix, _flat(_cast(v, block.dtype)))
    return tf.reshape(_real_if(pushed, y.dtype), _shape(y))


def check(block: Any, y: tf.Tensor, x: tf.Tensor, form: Form, where: tuple[str, str]) -> Any:
    """Returns a block as a tensor, operator or sparse tensor, once its shape and dtype have been judged.

    Args:
        block: what the Jacobian function returned for this output and argument.
        y: the output.
        x: the argument.
        form: what a plain tensor stands for.
        where: the names of the function and of the argument, for messages.

    Raises:
        ContractError: if its shape or dtype does not fit.
    """
    function, argument = where
    if isinstance(block, tf.linalg.LinearOperator):
        came, due = _sizes(block.shape), _operator_shape(block, y, x)
    elif isinstance(block, tf.SparseTensor):
        came, due = _sizes(block.shape), _concat(_sizes(y.shape), _sizes(x.shape))
    else:
        block = _as_tensor(block, y, x, where)
        came, due = _sizes(block.shape), _due(y, x, form)
    _require_axes(y, x, form, where)
    if not contract.compatible(came, due):
        raise errors.ContractError(_wrong_shape(came, due, y, x, form, function, argument))
    if block.dtype not in (y.dtype, x.dtype):
        raise errors.ContractError(
            errors.describe(
                "wrong-dtype",
                function,
                f"the Jacobian in `{argument}` is {block.dtype.name}, where {_widest(y, x).name} was due",
                "a derivative has the dtype of what it is the derivative of.",
                f"tf.cast(J, tf.{_widest(y, x).name})",
            )
        )
    return block


def _as_tensor(block: Any, y: tf.Tensor, x: tf.Tensor, where: tuple[str, str]) -> tf.Tensor:
    try:
        if isinstance(block, (tf.RaggedTensor, tf.IndexedSlices)):
            raise TypeError(f"a {type(block).__name__} is none of the forms of a Jacobian")
        return tf.convert_to_tensor(block, None if isinstance(block, tf.Tensor) else _widest(y, x))
    except (TypeError, ValueError) as cause:
        raise errors.ContractError(
            errors.describe(
                "wrong-arity",
                where[0],
                f"the Jacobian in `{where[1]}` is {usage.shown(block)}, where a tensor, a tf.linalg.LinearOperator "
                "or a tf.SparseTensor was due",
                "a Jacobian has the structure of the output, and in each place of it one entry for each argument.",
                "return the Jacobian as one tensor of shape y.shape + x.shape",
            )
        ) from cause


def _require_axes(y: tf.Tensor, x: tf.Tensor, form: Form, where: tuple[str, str]) -> None:
    known = [sizes for t in (y, x) if (sizes := _sizes(t.shape)) is not None]
    if any(len(sizes) < form.batched for sizes in known):
        raise errors.ContractError(
            errors.describe(
                "wrong-shape",
                where[0],
                f"batched={form.batched} says that y and `{where[1]}` have {form.batched} leading axes in common, but "
                f"they have the shapes {contract.show(_sizes(y.shape))} and {contract.show(_sizes(x.shape))}",
                "a batched function works on each entry of a batch alone.",
                "leave out batched=, or say how many axes the batch has",
            )
        )


def spec(y: tf.Tensor, x: tf.Tensor, form: Form) -> tf.TensorSpec:
    """Returns the shape and dtype that a block as a plain tensor has."""
    return tf.TensorSpec(_shape_of(_due(y, x, form)), _widest(y, x))


def zeros(y: Any, x: Any, form: Form) -> Any:
    """Returns a block of zeros for two arrays."""
    return np.zeros(y.shape if form.diagonal else y.shape + x.shape[form.batched :])


def dense(block: Any, y: tf.Tensor, x: tf.Tensor, form: Form) -> Any:
    """Returns a block as a tensor of shape y.shape + x.shape. Only for who asks for it."""
    shape = tf.concat([_shape(y), _shape(x)], 0)
    if isinstance(block, tf.SparseTensor):
        return tf.sparse.to_dense(tf.sparse.reorder(block))
    structured = isinstance(block, tf.linalg.LinearOperator) or form.diagonal or form.batched
    if not structured:
        return tf.reshape(block, shape)
    unit = tf.reshape(tf.eye(_size(x), dtype=x.dtype), tf.concat([[_size(x)], _shape(x)], 0))
    columns = tf.map_fn(lambda v: push(block, v, y, form), unit, fn_output_signature=y.dtype)
    return tf.reshape(tf.transpose(tf.reshape(columns, tf.stack([_size(x), _size(y)]))), shape)


def _pull_dense(block: tf.Tensor, u: tf.Tensor, x: tf.Tensor) -> Any:
    matrix = tf.reshape(block, tf.stack([_size(u), _size(x)]))
    scattered = _scattered(u)
    if scattered is None:
        return tf.linalg.matvec(matrix, _flat(_cast(u, block.dtype)), adjoint_a=True)
    # tape.jacobian asks for one row at a time, by an upstream that is one value put into zeros: u^T J is then this
    # value times that row, and n rows cost n reads in the place of n products of a matrix with a vector.
    value, row = scattered
    chosen = tf.math.conj(tf.gather(matrix, row))
    return chosen if _is_one(value) else chosen * _cast(value, block.dtype)


def _scattered(u: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor] | None:
    """Returns ``(value, row)`` if the graph says that u is ``value`` at the flat index ``row`` and zero elsewhere."""
    if tf.is_symbolic_tensor(u):
        op = _behind(u)
        sizes = [_sizes(t.shape) for t in op.inputs[:2]]
        if op.type == "UnsortedSegmentSum" and sizes == [(1,), (1,)]:
            # The index as the loop itself has it: the vectoriser then knows that all rows in turn are the matrix.
            return _scalar(op.inputs[0]), _scalar(op.inputs[1])
    return None


def _scalar(t: tf.Tensor) -> tf.Tensor:
    source = _behind(t).outputs[0]
    return source if source.shape.rank == 0 and source.dtype == t.dtype else tf.reshape(t, [])


def _is_one(value: tf.Tensor) -> bool:
    op = _behind(value)
    static = tf.get_static_value(op.outputs[0])
    return op.type == "OnesLike" or (static is not None and bool(np.all(static == 1)))


def _behind(t: tf.Tensor) -> tf.Operation:
    """The operation that made the values of a symbolic tensor, whatever their shape since."""
    op = t.op
    while op.type in ("Reshape", "Identity"):
        op = op.inputs[0].op
    return op


def _unbroadcast(product: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """Sums over the axes along which x was broadcast."""
    if product.shape.is_fully_defined() and x.shape.is_fully_defined():
        axes = contract.broadcast_axes(_sizes(product.shape), _sizes(x.shape))
        return product if axes is None else tf.reduce_sum(product, axis=axes)
    axes = tf.raw_ops.BroadcastGradientArgs(s0=tf.shape(x), s1=tf.shape(product)).r0
    return tf.reduce_sum(product, axis=axes)


def _batch_matrix(block: tf.Tensor, y: tf.Tensor, x: tf.Tensor, axes: int) -> tuple[tf.Tensor, tf.Tensor]:
    batch = _shape(y)[:axes]
    sizes = [tf.reduce_prod(_shape(t)[axes:]) for t in (y, x)]
    return tf.reshape(block, tf.concat([batch, tf.stack(sizes)], 0)), batch


def _flat_indices(block: tf.SparseTensor, y: tf.Tensor, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The row and the column of each stored entry, by arithmetic, which every mode understands."""
    rank = y.shape.rank
    return (
        _ravel(block.indices[:, :rank], tf.shape(y, tf.int64)),
        _ravel(block.indices[:, rank:], tf.shape(x, tf.int64)),
    )


def _ravel(indices: tf.Tensor, shape: tf.Tensor) -> tf.Tensor:
    strides = tf.math.cumprod(shape, exclusive=True, reverse=True)
    return tf.reduce_sum(indices * strides, axis=1)


def _shape(t: tf.Tensor) -> Any:
    return tf.constant(np.array(t.shape.as_list(), np.int32)) if t.shape.is_fully_defined() else tf.shape(t)


def _size(t: tf.Tensor) -> Any:
    return t.shape.num_elements() if t.shape.is_fully_defined() else tf.size(t)


def _flat(t: tf.Tensor) -> tf.Tensor:
    return tf.reshape(t, [-1])


def _cast(t: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    return t if t.dtype == dtype else tf.cast(t, dtype)


def _real_if(t: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """A complex result for a real tensor: only its real part acts on it."""
    if t.dtype.is_complex and not dtype.is_complex:
        t = tf.math.real(t)
    return _cast(t, dtype)


def _sizes(shape: Any) -> contract.Shape:
    return None if shape.rank is None else tuple(shape.as_list())


def _shape_of(sizes: contract.Shape) -> Any:
    return tf.TensorShape(sizes)  # type: ignore[arg-type]  # the stubs know of no unknown size


def _concat(a: contract.Shape, b: contract.Shape) -> contract.Shape:
    return None if a is None or b is None else a + b


def _widest(y: tf.Tensor, x: tf.Tensor) -> tf.DType:
    return x.dtype if x.dtype.is_complex else y.dtype


def _due(y: tf.Tensor, x: tf.Tensor, form: Form) -> contract.Shape:
    of_y, of_x = _sizes(y.shape), _sizes(x.shape)
    if form.diagonal:
        return of_y
    return _concat(of_y, None if of_x is None else of_x[form.batched :])


def _operator_shape(block: tf.linalg.LinearOperator, y: tf.Tensor, x: tf.Tensor) -> contract.Shape:
    batch = _sizes(block.batch_shape)
    of_y, of_x = _sizes(y.shape), _sizes(x.shape)
    if batch is None or of_y is None or of_x is None:
        return None
    if batch:
        return (*of_y[: len(batch)], _product(of_y[len(batch) :]), _product(of_x[len(batch) :]))
    return (_product(of_y), _product(of_x))


def _product(sizes: tuple[int | None, ...]) -> int | None:
    total = 1
    for size in sizes:
        if size is None:
            return None
        total *= size
    return total


def _wrong_shape(
    came: contract.Shape,
    due: contract.Shape,
    y: tf.Tensor,
    x: tf.Tensor,
    form: Form,
    function: str,
    argument: str,
) -> str:
    of_y, of_x = contract.show(_sizes(y.shape)), contract.show(_sizes(x.shape))
    layout = "y.shape + x.shape"
    if form.diagonal:
        layout = "y.shape, as it is diagonal"
    elif form.batched:
        layout = f"y.shape + x.shape[{form.batched}:], as it is batched"
    repair = f"return a tensor of shape {contract.show(due)}"
    if came is not None and due is not None and came == (_sizes(x.shape) or ()) + (_sizes(y.shape) or ()):
        repair = "tf.transpose(J): the axes of y come first" if len(came) == 2 else "the axes of y come first"
    return errors.describe(
        "wrong-shape",
        function,
        f"the Jacobian in `{argument}` has shape {contract.show(came)}, where {contract.show(due)} was due",
        f"its shape is {layout}; y has shape {of_y}, `{argument}` has shape {of_x}.",
        repair,
    )
