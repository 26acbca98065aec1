"""From what a definer's user wrote to `engine.Evaluated`: the value, and the rule in both directions.

One function for each kind of definer; ``outside_*`` are those for NumPy code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from cgrad import bind, collect, engine, errors, internals, linear, outside, usage
from cgrad.bind import Bound
from cgrad.engine import Definition, Evaluated

SHAPE_ONLY = ("Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike", "BroadcastGradientArgs")
# Gradients of linear operations that take the input itself, for its size alone.
SIZE_OF_SECOND = ("ResizeBilinearGrad", "ResizeBicubicGrad", "ScaleAndTranslateGrad")
SUPPLY = (
    "write the rule in TensorFlow, or let it call a cgrad function that computes the Jacobian and has a rule of its own"
)


def of_vjp(definition: Definition, bound: Bound, args: list[Any], kwargs: dict[str, Any]) -> Evaluated:
    """The function returns ``(value, rule)``."""
    del bound
    value, rule = value_and_rule(definition.name, definition.function(*args, **kwargs))
    return Evaluated(value, rule, None, rule)


def value_and_rule(name: str, returned: Any) -> tuple[Any, Callable[..., Any]]:
    """Returns the two parts once it is sure that there are two."""
    if not isinstance(returned, (list, tuple)) or len(returned) != 2 or not callable(returned[1]):
        raise errors.ContractError(
            errors.describe(
                "missing-grad-fn",
                name,
                "the decorated function has to return (value, rule), and returned something else",
                "the value y comes first, then the function that maps the upstream u to u^T J.",
                "return y, grad",
            )
        )
    return returned[0], returned[1]


# --- custom_jacobian ------------------------------------------------------------------------------------------


def of_jacobian(definition: Definition, bound: Bound, args: list[Any], kwargs: dict[str, Any]) -> Evaluated:
    """The rule returns the Jacobian, in one of the forms of `linear`."""
    with internals.unrecorded():
        value = definition.function(*args, **kwargs)
    value = bind.as_output(definition.name, value)
    blocks = Blocks(definition, bound, value)
    return Evaluated(value, blocks.pull, blocks.push, blocks.jacobian)


class Blocks:
    """The Jacobian of one call: a block for each output and each flat argument.

    The rule sees the arguments of the call, not the tensors of the forward pass, so that it is differentiable
    in both modes.
    """

    def __init__(self, definition: Definition, bound: Bound, value: Any) -> None:
        self.name: str = definition.name
        self.rule: Callable[..., Any] | None = definition.rule
        self.form: linear.Form = definition.options["form"]
        self.numpy: bool = definition.options["numpy"]
        self.bound = bound
        self.value = value
        self.outputs: list[tf.Tensor] = internals.flatten(value)

    def jacobian(self, inputs: Sequence[tf.Tensor]) -> list[list[Any]]:
        """Returns the blocks, by output and by flat argument (None where there is none)."""
        if self.numpy:
            return self._outside(inputs)
        args, kwargs = self.bound.rebuild(inputs)
        assert self.rule is not None
        return self._checked(self._arranged(self.rule(*args, **kwargs)))

    def pull(self, *upstreams: Any) -> dict[str, Any]:
        """Returns u^T J by the name of the argument."""
        blocks = self.jacobian(self.bound.tensors)
        ups = internals.flatten(list(upstreams))
        flat: list[Any] = []
        for k, x in enumerate(self.bound.tensors):
            terms = [
                linear.pull(row[k], u, x, self.form) for row, u in zip(blocks, ups, strict=True) if row[k] is not None
            ]
            flat.append(tf.add_n(terms) if len(terms) > 1 else terms[0] if terms else tf.zeros_like(x))
        return self.bound.by_name(flat)

    def push(self, inputs: Sequence[tf.Tensor], tangents: Sequence[Any]) -> list[Any]:
        """Returns J v, flat; None for an output that has no derivative."""
        pushed: list[Any] = []
        for row, y in zip(self.jacobian(inputs), self.outputs, strict=True):
            terms = [
                linear.push(block, v, y, self.form)
                for block, v in zip(row, tangents, strict=True)
                if block is not None and v is not None
            ]
            nothing = tf.zeros_like(y) if bind.differentiable(y) else None
            pushed.append(tf.add_n(terms) if len(terms) > 1 else terms[0] if terms else nothing)
        return pushed

    def _arranged(self, returned: Any) -> list[list[Any]]:
        """Sorts what came by output and flat argument: the structure of y, in each place that of the arguments."""
        owed = self.bound.owed()
        rows: list[list[Any]] = []
        if returned is None and owed and any(bind.differentiable(y) for y in self.outputs):
            raise errors.ContractError(_forgotten(self.name, "the Jacobian"))
        for y, entry in zip(self.outputs, self._matched(self.value, returned, "y"), strict=True):
            if not bind.differentiable(y):
                rows.append([None] * len(self.bound.tensors))
                continue
            entries = [entry] if len(owed) == 1 else self._per_argument(entry, [a.name for a in owed])
            by_name = {
                argument.name: self._matched(argument.value, e, argument.name)
                for argument, e in zip(owed, entries, strict=True)
            }
            rows.append([b for a in self.bound.arguments for b in by_name.get(a.name, [None] * a.count)])
        return rows

    def _per_argument(self, entry: Any, names: list[str]) -> list[Any]:
        if isinstance(entry, Mapping) and set(entry) == set(names):
            return [entry[name] for name in names]
        if isinstance(entry, (list, tuple)) and len(entry) == len(names):
            return list(entry)
        raise self._wrong_number(f"{len(names)} Jacobians, one for each of {', '.join(map(repr, names))}")

    def _matched(self, like: Any, given: Any, name: str) -> list[Any]:
        if isinstance(like, Mapping):
            if not isinstance(given, Mapping) or set(given) != set(like):
                raise self._wrong_number(f"for `{name}` a dict with the keys {', '.join(map(repr, sorted(like)))}")
            return [b for key in sorted(like) for b in self._matched(like[key], given[key], f"{name}[{key!r}]")]
        if isinstance(like, (list, tuple)):
            if not isinstance(given, (list, tuple)) or len(given) != len(like):
                raise self._wrong_number(f"for `{name}` a {type(like).__name__} of {len(like)}")
            pairs = zip(like, given, strict=True)
            return [b for i, (part, g) in enumerate(pairs) for b in self._matched(part, g, f"{name}[{i}]")]
        return [given]

    def _wrong_number(self, due: str) -> errors.ContractError:
        return errors.ContractError(
            errors.describe(
                "wrong-arity",
                self.name,
                f"the Jacobian came in another structure; due is {due}",
                "a Jacobian has the structure of the output, and in each place of it one entry for each argument.",
                "return (J_a, J_b) for f(a, b); None for an argument without influence",
            )
        )

    def _checked(self, rows: list[list[Any]]) -> list[list[Any]]:
        names = [argument.name for argument in self.bound.arguments for _ in range(argument.count)]
        return [
            [
                block if block is None else linear.check(block, y, x, self.form, (self.name, name))
                for block, x, name in zip(row, self.bound.tensors, names, strict=True)
            ]
            for row, y in zip(rows, self.outputs, strict=True)
        ]

    def _outside(self, inputs: Sequence[tf.Tensor]) -> list[list[Any]]:
        places = [
            (i, k)
            for i, y in enumerate(self.outputs)
            for k, x in enumerate(self.bound.tensors)
            if bind.differentiable(y) and bind.differentiable(x)
        ]
        due = [linear.spec(self.outputs[i], self.bound.tensors[k], self.form) for i, k in places]

        count = len(inputs)

        def evaluate(*arrays: Any) -> list[Any]:
            args, kwargs = self.bound.rebuild(arrays[:count])
            assert self.rule is not None
            rows = self._arranged(self.rule(*args, **kwargs))
            return [
                linear.zeros(arrays[count + i], arrays[k], self.form) if rows[i][k] is None else rows[i][k]
                for i, k in places
            ]

        found = outside.call(self.name, evaluate, [*inputs, *self.outputs], due)
        found = outside.guarded(self.name, found, inputs, SUPPLY)
        rows: list[list[Any]] = [[None] * len(inputs) for _ in self.outputs]
        for (i, k), block in zip(places, found, strict=True):
            rows[i][k] = block
        return rows


# --- custom_jvp -----------------------------------------------------------------------------------------------


def of_jvp(definition: Definition, bound: Bound, args: list[Any], kwargs: dict[str, Any]) -> Evaluated:
    """The rule maps ``(primals, tangents)`` to the tangent of the output; its transpose is the reverse rule."""
    with internals.unrecorded():
        value = definition.function(*args, **kwargs)
    value = bind.as_output(definition.name, value)
    outputs = internals.flatten(value)

    def push(inputs: Sequence[tf.Tensor], tangents: Sequence[Any]) -> list[Any]:
        _require_linear(definition, bound, outputs)
        pairs = zip(tangents, bound.tensors, strict=True)
        moved = [tf.zeros_like(x) if t is None and bind.differentiable(x) else t for t, x in pairs]
        return _tangents_out(definition, bound, outputs, inputs, moved)

    def pull(*upstreams: Any) -> dict[str, Any]:
        _require_linear(definition, bound, outputs)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            zero = [tf.zeros_like(x) if bind.differentiable(x) else None for x in bound.tensors]
            sources = [t for t in zero if t is not None]
            tape.watch(sources)
            pushed = _tangents_out(definition, bound, outputs, bound.tensors, zero)
        pairs = [(t, u) for t, u in zip(pushed, internals.flatten(list(upstreams)), strict=True) if t is not None]
        pulled = tape.gradient(
            [t for t, _ in pairs],
            sources,
            output_gradients=[u for _, u in pairs],
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        if any(_reaches(g, sources) for g in pulled):
            raise errors.ContractError(_not_linear(definition.name))
        found = iter(pulled)
        return bound.by_name([None if t is None else next(found) for t in zero])

    assert definition.rule is not None
    return Evaluated(value, pull, push, pull)


def _tangents_out(
    definition: Definition,
    bound: Bound,
    outputs: Sequence[tf.Tensor],
    inputs: Sequence[tf.Tensor],
    tangents: Sequence[Any],
) -> list[Any]:
    """Applies the rule; returns one flat tangent for each output, judged, and None for those that have none."""
    assert definition.rule is not None
    returned = definition.rule(*_primals_and_tangents(bound, inputs, tangents))
    if returned is None and any(bind.differentiable(y) for y in outputs):
        raise errors.ContractError(_forgotten(definition.name, "the tangent of the output"))
    leaves = tf.nest.flatten(returned)
    if len(leaves) != len(outputs):
        raise errors.ContractError(
            errors.describe(
                "wrong-arity",
                definition.name,
                f"the rule returned {len(leaves)} tangents, where {len(outputs)} were due, one for each output",
                "the directional derivative of a function has the structure of its output.",
                "return the tangents in the structure of y",
            )
        )
    return [_tangent(definition.name, y, leaf) for y, leaf in zip(outputs, leaves, strict=True)]


def _tangent(name: str, y: tf.Tensor, leaf: Any) -> Any:
    if not bind.differentiable(y):
        return None
    if leaf is None:
        return tf.zeros_like(y)
    try:
        tangent = leaf if isinstance(leaf, tf.Tensor) else tf.convert_to_tensor(leaf, y.dtype)
    except (TypeError, ValueError) as cause:
        raise errors.ContractError(
            errors.describe(
                "wrong-arity",
                name,
                f"the rule returned {usage.shown(leaf)}, where a {y.dtype.name} tangent of shape {y.shape} was due",
                "J v has the structure, shape and dtype of the output.",
                "return the derivative of y along the tangents",
            )
        ) from cause
    if tangent.dtype == y.dtype and tangent.shape.is_compatible_with(y.shape):
        return tangent
    raise errors.ContractError(
        errors.describe(
            "wrong-dtype" if tangent.dtype != y.dtype else "wrong-shape",
            name,
            f"the rule returned a {tangent.dtype.name} tangent of shape {tangent.shape}, where {y.dtype.name} and "
            f"shape {y.shape} were due",
            "J v has the shape and dtype of the output.",
            "return the derivative of y along the tangents",
        )
    )


def _forgotten(name: str, due: str) -> str:
    return errors.describe(
        "none-returned",
        name,
        f"the rule returned None, where {due} was due",
        "None would be read as a derivative of zero; it is what a function without a return statement gives.",
        "return the derivative; tf.zeros(...) where it is zero",
    )


def _primals_and_tangents(
    bound: Bound, tensors: Sequence[Any], tangents: Sequence[Any]
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    pairs = [pair for pair in bound.values(tensors) if not pair[0].omitted]
    moved = [(a, t) for a, t in bound.values(tangents) if not a.omitted]
    return (
        tuple(value for _, value in pairs),
        tuple(tangent if argument.owed else None for argument, tangent in moved),
    )


def _require_linear(definition: Definition, bound: Bound, outputs: Sequence[tf.Tensor]) -> None:
    """Looks once for each definition, where there are values to look at, whether the rule is linear in the tangent."""
    if definition.checked or not tf.executing_eagerly() or any(map(tf.is_symbolic_tensor, bound.tensors)):
        return
    definition.checked = True
    rng = np.random.default_rng(0)
    with internals.unrecorded():
        a, b = ([_random(x, rng) for x in bound.tensors] for _ in range(2))
        both = [None if p is None else p - 2 * q for p, q in zip(a, b, strict=True)]
        of_a, of_b, of_both = (_tangents_out(definition, bound, outputs, bound.tensors, t) for t in (a, b, both))
    for p, q, r in zip(of_a, of_b, of_both, strict=True):
        if p is not None and not _close(p - 2 * q, r, tf.abs(p) + 2 * tf.abs(q)):
            raise errors.ContractError(_not_linear(definition.name))


def _not_linear(name: str) -> str:
    return errors.describe(
        "nonlinear-in-upstream",
        name,
        "the rule is not linear in the tangent: rule(x, a - 2 b) is not rule(x, a) - 2 rule(x, b)",
        "the derivative along v is J v, which is linear in v and 0 for v = 0.",
        "return a sum of terms that each have one factor of a tangent",
    )


def _reaches(gradient: Any, tangents: Sequence[tf.Tensor], limit: int = 10_000) -> bool:
    """Whether the graph computes the transpose of a rule from the tangent's values: then the rule is not linear.

    Its shape may matter. What happens inside a cond or a loop is not judged.
    """
    if not isinstance(gradient, tf.Tensor) or not tf.is_symbolic_tensor(gradient):
        return False
    goal, seen, todo = {id(t) for t in tangents}, set[int](), [gradient]
    while todo and len(seen) < limit:
        tensor = todo.pop()
        if id(tensor) in goal:
            return True
        op = tensor.op
        if id(op) not in seen and op.type not in SHAPE_ONLY and not any(a.type == "func" for a in op.op_def.attr):
            seen.add(id(op))
            todo += list(op.inputs)[: 1 if op.type in SIZE_OF_SECOND else None]
    return False


def _random(x: tf.Tensor, rng: np.random.Generator) -> Any:
    if not bind.differentiable(x):
        return None
    return tf.cast(tf.constant(rng.choice([-1.0, 1.0], size=np.shape(x))), x.dtype)


def _close(a: tf.Tensor, b: tf.Tensor, size: tf.Tensor) -> bool:
    """Equal up to rounding. Not finite is not judged here."""
    roundoff = float(np.finfo(a.dtype.real_dtype.as_numpy_dtype).eps) ** 0.5 if a.dtype.size > 2 else 0.1
    if a.dtype == tf.bfloat16:
        roundoff = 0.3
    error = tf.cast(tf.abs(a - b), tf.float64)
    bar = roundoff * (tf.cast(size, tf.float64) + tf.reduce_max(tf.cast(size, tf.float64), keepdims=True))
    return not bool(tf.reduce_any((error > bar) & tf.math.is_finite(error)))


# --- NumPy ----------------------------------------------------------------------------------------------------


def outside_value(
    definition: Definition, bound: Bound, function: Callable[..., Any]
) -> tuple[Any, list[tf.TensorSpec]]:
    """Calls a NumPy function on the arguments; returns its output and what its flat results are like."""
    template: list[Any] = []

    def flat(*arrays: Any) -> list[Any]:
        args, kwargs = bound.rebuild(arrays)
        value = function(*args, **kwargs)
        template[:] = [value]
        return [np.asarray(leaf) for leaf in tf.nest.flatten(value)]

    out = definition.options.get("out")
    if out is not None:
        specs = list(tf.nest.flatten(out))
        return tf.nest.pack_sequence_as(out, outside.call(definition.name, flat, bound.tensors, specs)), specs
    if tf.executing_eagerly() and not any(map(tf.is_symbolic_tensor, bound.tensors)):
        results = [bind.as_output(definition.name, r) for r in flat(*(t.numpy() for t in bound.tensors))]
        specs = [tf.TensorSpec(r.shape, r.dtype) for r in results]
    else:
        specs = outside.infer(definition.name, flat, bound.tensors)
        results = outside.call(definition.name, flat, bound.tensors, specs)
    return tf.nest.pack_sequence_as(template[0], results), specs


def outside_jacobian(definition: Definition, bound: Bound, args: list[Any], kwargs: dict[str, Any]) -> Evaluated:
    """Function and Jacobian in NumPy."""
    del args, kwargs
    value, _ = outside_value(definition, bound, definition.function)
    blocks = Blocks(definition, bound, value)
    return Evaluated(value, blocks.pull, blocks.push, blocks.jacobian)


def outside_vjp(definition: Definition, bound: Bound, args: list[Any], kwargs: dict[str, Any]) -> Evaluated:
    """The function returns ``(value, rule)``, all in NumPy. A graph computes the value again to have the rule."""
    del args, kwargs

    def value_of(*args: Any, **kwargs: Any) -> Any:
        return value_and_rule(definition.name, definition.function(*args, **kwargs))[0]

    value, specs = outside_value(definition, bound, value_of)

    def pull_arrays(arrays: Sequence[Any], ups: Sequence[Any]) -> list[Any]:
        args, kwargs = bound.rebuild(arrays)
        _, rule = value_and_rule(definition.name, definition.function(*args, **kwargs))
        packed = tf.nest.pack_sequence_as(value, list(ups))
        returned = rule(*packed) if isinstance(packed, (list, tuple)) else rule(packed)
        upstream = engine.first_name(rule)
        flat = collect.ArrayCollector(definition.name, internals.flatten(value), upstream).inputs(returned, bound)
        return [g for g, x in zip(flat, bound.tensors, strict=True) if bind.differentiable(x)]

    return _outside_linear(definition, bound, value, specs, pull_arrays, None)


def outside_jvp(definition: Definition, bound: Bound, args: list[Any], kwargs: dict[str, Any]) -> Evaluated:
    """Function and directional derivative in NumPy. The reverse rule costs one application for each input."""
    del args, kwargs
    value, specs = outside_value(definition, bound, definition.function)

    def push_arrays(arrays: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        assert definition.rule is not None
        moved = iter(tangents)
        full = [next(moved) if bind.differentiable(x) else None for x in bound.tensors]
        return list(tf.nest.flatten(definition.rule(*_primals_and_tangents(bound, arrays, full))))

    return _outside_linear(definition, bound, value, specs, None, push_arrays)


def _outside_linear(
    definition: Definition,
    bound: Bound,
    value: Any,
    specs: Sequence[tf.TensorSpec],
    pull_arrays: Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]] | None,
    push_arrays: Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]] | None,
) -> Evaluated:
    """The rule in both directions from one of them; each is the derivative of the other in the upstream."""
    name, inputs = definition.name, bound.tensors
    real = [x for x in inputs if bind.differentiable(x)]
    in_specs = [tf.TensorSpec(x.shape, x.dtype) for x in real]
    out_specs = [spec for spec in specs if spec.dtype.is_floating or spec.dtype.is_complex]

    def pull_some(*arrays: Any) -> list[Any]:
        primals, ups = arrays[: len(inputs)], list(arrays[len(inputs) :])
        if pull_arrays is not None:
            rest = iter(ups)
            shapes = zip(specs, tf.nest.flatten(value), strict=True)
            full = [next(rest) if s in out_specs else np.zeros(y.shape) for s, y in shapes]
            return list(pull_arrays(primals, full))
        assert push_arrays is not None
        like = [p for p, x in zip(primals, inputs, strict=True) if bind.differentiable(x)]
        return outside.by_units(lambda unit: _differentiable(push_arrays(primals, unit), specs), like, ups)

    def push_some(*arrays: Any) -> list[Any]:
        primals, moved = arrays[: len(inputs)], list(arrays[len(inputs) :])
        if push_arrays is not None:
            return _differentiable(push_arrays(primals, moved), specs)
        outputs = [np.zeros(shape, s.dtype.as_numpy_dtype) for shape, s in shapes_of(primals)]
        return outside.by_units(lambda unit: pull_some(*primals, *unit), outputs, moved)

    def shapes_of(primals: Sequence[Any]) -> list[tuple[Any, tf.TensorSpec]]:
        if all(s.shape.is_fully_defined() for s in out_specs):
            return [(s.shape, s) for s in out_specs]
        args, kwargs = bound.rebuild(primals)
        results = definition.function(*args, **kwargs)
        results = results[0] if pull_arrays is not None else results
        return [(np.shape(r), s) for r, s in zip(tf.nest.flatten(results), specs, strict=True) if s in out_specs]

    def both_ways(inputs: Sequence[tf.Tensor]) -> tuple[Any, Any]:
        def pull_flat(ups: Sequence[tf.Tensor]) -> list[tf.Tensor]:
            return outside.call(name, pull_some, [*inputs, *ups], in_specs)

        def push_flat(moved: Sequence[tf.Tensor]) -> list[tf.Tensor]:
            return outside.call(name, push_some, [*inputs, *moved], out_specs)

        return outside.linear(pull_flat, push_flat), outside.linear(push_flat, pull_flat)

    def pull(*upstreams: Any) -> dict[str, Any]:
        flat = zip(internals.flatten(list(upstreams)), specs, strict=True)
        ups = [u for u, spec in flat if spec in out_specs]
        pulled = iter(outside.guarded(name, both_ways(outside.here(inputs))[0](ups), inputs, SUPPLY))
        return bound.by_name([next(pulled) if bind.differentiable(x) else None for x in inputs])

    def push(inputs: Sequence[tf.Tensor], tangents: Sequence[Any]) -> list[Any]:
        pairs = zip(tangents, inputs, strict=True)
        moved = [tf.zeros_like(x) if t is None else t for t, x in pairs if bind.differentiable(x)]
        pushed = iter(outside.guarded(name, both_ways(outside.here(inputs))[1](moved), inputs, SUPPLY))
        return [next(pushed) if spec in out_specs else None for spec in specs]

    return Evaluated(value, pull, push, pull)


def _differentiable(results: Sequence[Any], specs: Sequence[tf.TensorSpec]) -> list[Any]:
    return [r for r, s in zip(results, specs, strict=True) if s.dtype.is_floating or s.dtype.is_complex]
