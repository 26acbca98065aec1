"""What a rule owes, and what is wrong with what came: pure judgement on names, shapes and dtypes.

No TensorFlow in here. The definers raise what this module finds; `cgrad.gradcheck` reports it.
A shape is a tuple of sizes, None for an unknown size; the shape None has an unknown rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Shape = tuple[int | None, ...] | None


@dataclass(frozen=True)
class Violation:
    """One breach of the contract.

    Attributes:
        fault: name of the fault in the catalogue (`cgrad.faults`).
        argument: the argument concerned; empty when it is the result as a whole.
        came: what the rule returned, in words.
        due: what it owes, in words.
        reason: why this is wrong and what probably happened, in a line or two.
        repair: the line of code that repairs it.
    """

    fault: str
    argument: str
    came: str
    due: str
    reason: str
    repair: str


def show(shape: Shape) -> str:
    """Returns a shape as Python prints it, ``?`` for what is unknown.

    Examples:
        >>> from cgrad.contract import show
        >>> show((2, None))
        '(2, ?)'
    """
    if shape is None:
        return "(unknown rank)"
    sizes = ["?" if size is None else str(size) for size in shape]
    return f"({sizes[0]},)" if len(sizes) == 1 else f"({', '.join(sizes)})"


def compatible(came: Shape, due: Shape) -> bool:
    """Returns whether the two shapes can be the same one."""
    if came is None or due is None:
        return True
    return len(came) == len(due) and all(a is None or b is None or a == b for a, b in zip(came, due, strict=True))


def same(came: Shape, due: Shape) -> bool:
    """Returns whether the two shapes are the same one for certain, so that nothing is left to run time."""
    return came is not None and came == due and None not in came


def broadcast_axes(came: Shape, due: Shape) -> tuple[int, ...] | None:
    """Returns the axes of ``came`` to sum over so that ``due`` is left, or None if broadcasting does not explain it.

    Examples:
        >>> from cgrad.contract import broadcast_axes
        >>> broadcast_axes((5, 4, 3), (4, 1))
        (0, 2)
        >>> broadcast_axes((4, 3), (4,)) is None
        True
    """
    if came is None or due is None or len(came) < len(due):
        return None
    extra = len(came) - len(due)
    pairs = list(zip(came[extra:], due, strict=True))
    if any(a is not None and b is not None and a != b and b != 1 for a, b in pairs):
        return None
    stretched = tuple(extra + i for i, (a, b) in enumerate(pairs) if b == 1 and a != 1)
    return (*range(extra), *stretched) or None


def reduced_axes(came: Shape, due: Shape) -> tuple[int, ...] | None:
    """Returns the axes of ``due`` that are summed away in ``came``, or None if a sum does not explain it."""
    if came is None or due is None:
        return None
    if len(came) == len(due):
        axes = tuple(i for i, (a, b) in enumerate(zip(came, due, strict=True)) if a != b)
        return axes if axes and all(came[i] == 1 for i in axes) else None
    missing: list[int] = []
    rest = list(came)
    for axis, size in enumerate(due):
        if rest and rest[0] == size:
            rest.pop(0)
        else:
            missing.append(axis)
    return None if rest else tuple(missing)


def check_gradient(
    argument: str,
    shape: Shape,
    dtype: str,
    due_shape: Shape,
    due_dtype: str,
    outputs: Sequence[Shape] = (),
    upstream: str = "upstream",
    others: Sequence[Shape] = (),
) -> Violation | None:
    """Judges the gradient that a rule returned for one argument.

    Args:
        argument: the argument's name, as the message shows it.
        shape: the shape that came.
        dtype: the name of the dtype that came (``"float32"``).
        due_shape: the shape of the argument.
        due_dtype: the name of the argument's dtype.
        outputs: the shapes of the function's outputs, which tell a Jacobian from other wrong shapes.
        upstream: what the rule calls its upstream gradient, for the repair.
        others: the shapes of the other arguments; a gradient of their shape was not summed over their batch.

    Returns:
        The violation, or None where nothing is wrong as far as the known sizes tell.

    Examples:
        >>> from cgrad.contract import check_gradient
        >>> found = check_gradient("b", (4, 3), "float32", (3,), "float32", outputs=[(4, 3)])
        >>> found.fault, found.repair
        ('not-unbroadcast', 'tf.reduce_sum(g, axis=[0])   # g: what is returned for `b` now')
    """
    if not compatible(shape, due_shape):
        return _wrong_shape(argument, shape, due_shape, outputs, upstream, others)
    if dtype != due_dtype:
        return Violation(
            "wrong-dtype",
            argument,
            f"a {dtype} tensor",
            due_dtype,
            f"a gradient has the dtype of its argument, and `{argument}` is {due_dtype}.",
            f"tf.cast(g, {argument}.dtype)   # g: what is returned for `{argument}` now",
        )
    return None


def check_number(came: int, arguments: Sequence[str], optional: Sequence[str] = ()) -> Violation | None:
    """Judges the number of gradients that a rule returned.

    Args:
        came: how many came.
        arguments: the names of the arguments that need a gradient, in order.
        optional: the names of those and of the arguments that take none; a rule may return None for each of these.
    """
    if came == len(arguments) or (optional and came == len(optional)):
        return None
    names = ", ".join(f"`{name}`" for name in arguments)
    listed = ", ".join(f"d_{name.replace('[', '_').replace(']', '')}" for name in arguments)
    hint = ""
    if len(arguments) == 1:
        hint = "\n          A list or tuple counts one gradient an entry: a vector has to be one tensor (tf.stack)."
        listed = f"tf.stack([...])   # one tensor, of the shape of `{arguments[0]}`"
    return Violation(
        "wrong-arity",
        "",
        f"{came} gradient{'' if came == 1 else 's'}",
        f"{len(arguments)} ({names})",
        f"every argument that is not in nondiff= has one gradient.{hint}",
        f"return {listed}",
    )


def _wrong_shape(
    argument: str, came: Shape, due: Shape, outputs: Sequence[Shape], upstream: str, others: Sequence[Shape]
) -> Violation:
    assert came is not None
    assert due is not None
    fault, reason, repair = (
        _as_broadcast_output(argument, came, due, [*outputs, *others])
        or _as_jacobian(came, due, outputs, upstream)
        or _as_broadcast(argument, came, due)
        or _as_reduction(argument, came, due, outputs)
        or _as_rearranged(argument, came, due)
    )
    return Violation(
        fault,
        argument,
        f"a tensor of shape {show(came)}",
        f"shape {show(due)}",
        reason,
        repair,
    )


Cause = tuple[str, str, str]


def _as_broadcast_output(
    argument: str, came: tuple[int | None, ...], due: tuple[int | None, ...], outputs: Sequence[Shape]
) -> Cause | None:
    """The shape of an output, or of an argument with a batch, is what a rule returns that forgets the sum."""
    return _as_broadcast(argument, came, due) if came in outputs else None


def _as_broadcast(argument: str, came: tuple[int | None, ...], due: tuple[int | None, ...]) -> Cause | None:
    axes = broadcast_axes(came, due)
    if axes is None:
        return None
    total = _sum_code(argument, axes, len(came) - len(due))
    plural = "axis" if len(axes) == 1 else "axes"
    where = ", ".join(str(axis) for axis in axes)
    return (
        "not-unbroadcast",
        f"`{argument}` was broadcast over {plural} {where}; an entry that feeds several outputs gets the sum of "
        "their gradients.",
        f"{total}   # g: what is returned for `{argument}` now",
    )


def _sum_code(argument: str, axes: tuple[int, ...], extra: int) -> str:
    """The sum over ``axes``, the first ``extra`` of which the argument does not have."""
    total = f"tf.reduce_sum(g, axis={list(axes)}{'' if all(a < extra for a in axes) else ', keepdims=True'})"
    if extra and any(a >= extra for a in axes):
        total = f"tf.reshape({total}, tf.shape({argument}))"
    return total


def _as_jacobian(
    came: tuple[int | None, ...], due: tuple[int | None, ...], outputs: Sequence[Shape], upstream: str
) -> Cause | None:
    for output in outputs:
        if not output:
            continue
        batch = output[:1] == due[:1] and came == output + due[1:] and len(output) > 1 and len(due) > 1
        if came != output + due and came != due + output and not batch:
            continue
        layout = "y.shape + x.shape"
        if came != output + due:
            layout = "y.shape + x.shape without the batch axis twice" if batch else "x.shape + y.shape, transposed"
        return (
            "jacobian-returned",
            f"{show(came)} is the shape of the Jacobian J ({layout}), or of J times `{upstream}` element by element. "
            f"A rule returns\n          the product u^T J, summed over the axes of y: `{upstream}` has shape "
            f"{show(output)}, J has {show(output + due)}, u^T J has {show(due)}.",
            _contraction(output, due, upstream, batch),
        )
    return None


def _contraction(output: tuple[int | None, ...], due: tuple[int | None, ...], upstream: str, batch: bool) -> str:
    if batch:
        y, x = "ijkl"[: len(output) - 1], "mnop"[: len(due) - 1]
        return f'return tf.einsum("b{y},b{y}{x}->b{x}", {upstream}, J)'
    if len(output) == 1 and len(due) == 1:
        return f"return tf.linalg.matvec(J, {upstream}, transpose_a=True)   # J: the Jacobian, {show(output + due)}"
    return f"return tf.tensordot({upstream}, J, axes={len(output)})   # J: the Jacobian, {show(output + due)}"


def _as_reduction(
    argument: str, came: tuple[int | None, ...], due: tuple[int | None, ...], outputs: Sequence[Shape]
) -> Cause | None:
    axes = reduced_axes(came, due)
    if axes is None or (None not in came and None not in due and _size(came) == _size(due)):
        return None  # nothing is summed where no entry is missing
    repair = f"leave out the sum over axis {axes[0]}; if it is right, and the same for all entries: "
    repair += f"tf.broadcast_to(g, tf.shape({argument}))"
    for output in outputs:
        kept = broadcast_axes(output, due)
        if kept is not None and output is not None:
            repair = f"{_sum_code(argument, kept, len(output) - len(due))}   # g: the gradient before it is summed"
    plural = "axis" if len(axes) == 1 else "axes"
    where = ", ".join(str(axis) for axis in axes)
    return (
        "wrong-reduction",
        f"the gradient lacks {plural} {where} of `{argument}`, as if summed over. A gradient has one entry for each "
        f"entry of `{argument}`.",
        repair,
    )


def _as_rearranged(argument: str, came: tuple[int | None, ...], due: tuple[int | None, ...]) -> Cause:
    reason = f"a gradient has one entry for each entry of `{argument}`, in its shape."
    note = f"   # g: what is returned for `{argument}` now"
    if came == due[::-1]:
        return "wrong-shape", f"{reason} This one is transposed.", f"tf.transpose(g){note}"
    if None not in came and None not in due and _size(came) == _size(due):
        return "wrong-shape", reason, f"tf.reshape(g, tf.shape({argument})){note}"
    return "wrong-shape", reason, f"return a tensor of shape {show(due)} for `{argument}`"


def _size(shape: tuple[int | None, ...]) -> int:
    total = 1
    for size in shape:
        total *= size or 0
    return total
