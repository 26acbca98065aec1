"""From what a rule returned to one gradient for each flat tensor, or an error that says what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from cgrad import contract, errors
from cgrad.bind import COMPOSITE, Argument, Bound, differentiable


class Collector:
    """Collects the gradients of one call.

    Args:
        function: the function's name, for messages.
        outputs: its flat output tensors, whose shapes tell a Jacobian from other wrong shapes.
        upstream: what the rule calls its first upstream gradient.
    """

    def __init__(self, function: str, outputs: Sequence[tf.Tensor], upstream: str) -> None:
        self.function = function
        self.outputs = outputs
        self.upstream = upstream

    def inputs(self, returned: Any, bound: Bound) -> list[Any]:
        """Returns one gradient for each flat tensor of the call, None for those that take none."""
        owed = bound.owed()
        by_name = iter(self._by_argument(returned, bound.arguments, owed))
        gradients: list[Any] = []
        for argument in bound.arguments:
            if argument.owed:
                gradients += self._leaves(argument.name, argument.value, next(by_name))
            else:
                gradients += [None] * argument.count
        return gradients

    def _by_argument(self, returned: Any, arguments: list[Argument], owed: list[Argument]) -> list[Any]:
        if len(owed) == 1 and isinstance(owed[0].value, tf.Tensor) and not isinstance(returned, (list, tuple, dict)):
            return [returned]
        if isinstance(returned, Mapping) and (len(owed) != 1 or set(returned) == {owed[0].name}):
            return self._by_name(returned, owed)
        if not isinstance(returned, (list, tuple)) or (len(owed) == 1 and _fits(returned, owed[0].value)):
            returned = [returned]
        if len(returned) == len(owed):
            return list(returned)
        for listed in (
            [a for a in arguments if not a.static],
            [a for a in arguments if not a.hidden],
        ):
            if len(returned) == len(listed):
                pairs = zip(listed, returned, strict=True)
                return [gradient for argument, gradient in pairs if argument.owed]
        return self._by_leaf(returned, owed)

    def _by_name(self, returned: Mapping[str, Any], owed: list[Argument]) -> list[Any]:
        names = [argument.name for argument in owed]
        if set(returned) != set(names):
            raise self._error(
                contract.Violation(
                    "wrong-arity",
                    "",
                    f"gradients by the names {_listed(returned)}",
                    f"{_listed(names)}",
                    "a dict of gradients has the names of the arguments that need one as its keys.",
                    f"return {{{', '.join(f'{name!r}: d_{name}' for name in names)}}}",
                )
            )
        return [returned[name] for name in names]

    def _by_leaf(self, returned: Sequence[Any], owed: list[Argument]) -> list[Any]:
        """TensorFlow's own way: one flat list over all arguments. Right only where order is meaning (no dict)."""
        counts = [len(tf.nest.flatten(argument.value)) for argument in owed]
        if sum(counts) == len(returned) and not any(_has_mapping(argument.value) for argument in owed):
            rest = iter(returned)
            return [
                tf.nest.pack_sequence_as(argument.value, [next(rest) for _ in range(count)])
                for argument, count in zip(owed, counts, strict=True)
            ]
        if len(owed) == 1 and isinstance(owed[0].value, (dict, list, tuple)):
            return [returned]  # the structure's own check has the better message
        found = contract.check_number(len(returned), [argument.name for argument in owed])
        assert found is not None
        raise self._error(found)

    def _leaves(self, name: str, value: Any, gradient: Any) -> list[Any]:
        if isinstance(value, tf.Tensor):
            return [self.leaf(name, value, gradient)]
        if isinstance(value, COMPOSITE):
            return self._composite(name, value, gradient)
        if isinstance(value, Mapping):
            if not isinstance(gradient, Mapping) or set(gradient) != set(value):
                raise self._error(_structure(name, value, gradient))
            return [g for key in sorted(value) for g in self._leaves(f"{name}[{key!r}]", value[key], gradient[key])]
        if not isinstance(gradient, (list, tuple)) or len(gradient) != len(value):
            raise self._error(_structure(name, value, gradient))
        return [
            g
            for i, (entry, part) in enumerate(zip(value, gradient, strict=True))
            for g in self._leaves(f"{name}[{i}]", entry, part)
        ]

    def _composite(self, name: str, value: Any, gradient: Any) -> list[Any]:
        if type(gradient) is not type(value):
            raise self._error(_structure(name, value, gradient))
        parts = zip(
            tf.nest.flatten(value, expand_composites=True),
            tf.nest.flatten(gradient, expand_composites=True),
            strict=True,
        )
        return [self.leaf(f"{name}.values", v, g) if differentiable(v) else None for v, g in parts]

    def leaf(self, name: str, value: tf.Tensor, gradient: Any) -> Any:
        """Returns the gradient of one tensor (or variable) once it has been judged."""
        if not differentiable(value):
            return None
        if isinstance(gradient, tf.Tensor):
            # The common case costs two comparisons.
            if gradient.dtype is value.dtype and gradient.shape == value.shape and value.shape.is_fully_defined():
                return gradient
        else:
            gradient = self._as_gradient(name, value, gradient)
        shape, due = _sizes(gradient.shape), _sizes(value.shape)
        outputs = [_sizes(output.shape) for output in self.outputs]
        found = contract.check_gradient(name, shape, gradient.dtype.name, due, value.dtype.name, outputs, self.upstream)
        if found is not None:
            raise self._error(found)
        if contract.same(shape, due) or isinstance(gradient, tf.IndexedSlices):
            return gradient
        return self._checked_later(name, value, gradient)

    def _as_gradient(self, name: str, value: tf.Tensor, gradient: Any) -> Any:
        if gradient is None:
            raise self._error(_none(name))
        if isinstance(gradient, tf.IndexedSlices):
            return gradient
        if isinstance(gradient, tf.Variable):
            raise self._error(_variable(name))
        if isinstance(gradient, (list, tuple)) and any(
            isinstance(entry, (tf.Tensor, type(None))) for entry in tf.nest.flatten(gradient)
        ):
            found = contract.check_number(len(gradient), [name]) or _structure(name, value, gradient)
            raise self._error(found)
        if isinstance(gradient, (np.ndarray, np.generic)):
            return tf.convert_to_tensor(np.asarray(gradient))
        try:
            return tf.convert_to_tensor(gradient, value.dtype)
        except (TypeError, ValueError) as cause:
            raise self._error(_structure(name, value, gradient)) from cause

    def _checked_later(self, name: str, value: Any, gradient: Any) -> Any:
        """Unknown sizes are compared when the graph runs."""
        message = (
            f"[CG103] {self.function}: the rule returned for argument `{name}` a gradient of another shape than "
            "the argument's; got and due:"
        )
        came, due = tf.shape(gradient), tf.shape(value)
        checks: list[Any] = []
        if gradient.shape.rank is None or value.shape.rank is None:
            checks = [tf.debugging.Assert(tf.equal(tf.size(came), tf.size(due)), [message, came, due])]
        with tf.control_dependencies(checks):
            equal = tf.reduce_all(tf.equal(came, due))
        with tf.control_dependencies([tf.debugging.Assert(equal, [message, came, due])]):
            return tf.identity(gradient)

    def _error(self, violation: contract.Violation) -> errors.ContractError:
        return errors.ContractError(errors.describe_violation(violation, self.function))


class ArrayCollector(Collector):
    """Collects the gradients that a rule in NumPy returned; they are cast to the dtype of their argument."""

    def leaf(self, name: str, value: tf.Tensor, gradient: Any) -> Any:
        """Returns the gradient of one tensor as an array once its shape has been judged."""
        if not differentiable(value):
            return None
        if gradient is None:
            raise self._error(_none(name))
        array = np.asarray(gradient)
        dtype = value.dtype.name
        outputs = [_sizes(output.shape) for output in self.outputs]
        found = contract.check_gradient(name, array.shape, dtype, _sizes(value.shape), dtype, outputs, self.upstream)
        if found is not None:
            raise self._error(found)
        return array


def _sizes(shape: Any) -> contract.Shape:
    return None if shape.rank is None else tuple(shape.as_list())


def _fits(returned: Any, value: Any) -> bool:
    """Whether a list is the gradient of this one structured argument, rather than a list of one gradient."""
    return isinstance(value, (list, tuple)) and isinstance(returned, (list, tuple)) and len(returned) == len(value)


def _has_mapping(value: Any) -> bool:
    if isinstance(value, Mapping):
        return True
    return isinstance(value, (list, tuple)) and any(_has_mapping(entry) for entry in value)


def _listed(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _outline(value: Any) -> str:
    """A structure in a few words: ``{'b', 'w'}``, ``a list of 3``, ``a tensor``."""
    if isinstance(value, Mapping):
        return f"a dict with the keys {', '.join(repr(key) for key in sorted(value))}"
    if isinstance(value, (list, tuple)):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, tf.Tensor):
        return f"a tensor of shape {contract.show(_sizes(value.shape))}"
    return "None" if value is None else f"a {type(value).__name__}"


def _structure(name: str, value: Any, gradient: Any) -> contract.Violation:
    fault = "structure-order" if isinstance(value, Mapping) and isinstance(gradient, (list, tuple)) else "wrong-arity"
    reason = "a gradient has the structure of its argument, so that no entry can be taken for another."
    repair = "return the gradient in the structure that came in"
    if isinstance(value, Mapping):
        reason += " A dict is\n          matched by key, never by order."
        repair = f"return {{{', '.join(f'{key!r}: ...' for key in sorted(value))}}}"
    return contract.Violation(fault, name, _outline(gradient), _outline(value), reason, repair)


def _none(name: str) -> contract.Violation:
    base = name.split("[")[0]
    return contract.Violation(
        "none-returned",
        name,
        "None",
        "a gradient",
        f"None would be read as no influence of `{name}` at all.",
        f"return the gradient; if `{name}` takes none, name it: nondiff={base!r}, or return tf.zeros_like({base})",
    )


def _variable(name: str) -> contract.Violation:
    return contract.Violation(
        "pfor-unfriendly",
        name,
        "a tf.Variable",
        "a tensor",
        "a variable made in the rule is no function of the upstream gradient: tape.jacobian, which traces the rule "
        "once,\n          answers None or raises.",
        "tf.stack([...]) in the place of tf.Variable([...])",
    )
