"""Does the rule return what it owes: structure, number, shape, dtype, for arguments and for variables, every time?

Every rule that f meets is looked at, also those deep inside, on the very values it was handed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from cgrad import contract
from cgrad.exam import Evidence, Exam
from cgrad.interception import Call, Pull
from cgrad.subject import argument_names, largest, numpy, pieces

REPEAT_ROUNDINGS = 256.0


def ask(exam: Exam) -> list[Evidence]:
    """Judges what came back for the probes."""
    if not exam.subject.inputs:
        kinds = [type(leaf).__name__ for leaf in exam.subject.leaves]
        integers = [n for n, leaf in zip(exam.subject.names, exam.subject.leaves, strict=True) if _integer(leaf)]
        data: dict[str, Any] = {"integers": integers, "error": exam.error, "calls": exam.calls}
        return [Evidence("contract", "no-inputs", ", ".join(integers), ", ".join(kinds) or "nothing", "", data)]
    found = [*keyword_tensors(exam.calls), *violations(exam.subject.f, exam.calls)]
    if exam.error is not None:
        data = {"error": exam.error, "stage": exam.stage, "calls": exam.calls}
        seen = f"{type(exam.error).__name__} in the {exam.stage} pass"
        return [*found, Evidence("contract", "raised", "", seen, "", data)]
    found += _own(exam, found)
    found += _variable_order(exam)
    if not found:
        found += _repeat(exam)
    return found


def _integer(leaf: Any) -> bool:
    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and (tf.as_dtype(dtype).is_integer or tf.as_dtype(dtype).is_bool)


def keyword_tensors(calls: Sequence[Call]) -> list[Evidence]:
    """Tensors handed over by keyword, which tf.custom_gradient does not record."""
    found = []
    for call in calls:
        named = [
            k
            for k, v in call.kwargs.items()
            if any(isinstance(x, (tf.Tensor, tf.Variable)) for x in tf.nest.flatten(v))
        ]
        if named:
            seen = f"{call.name}({', '.join(f'{k}=...' for k in named)})"
            found.append(Evidence("contract", "tensor-kwargs", named[0], seen, "", {"call": call}))
    return found


def violations(f: Any, calls: Sequence[Call]) -> list[Evidence]:
    """What the applications of all rules returned, against what was due; each kind once."""
    found: list[Evidence] = []
    known: set[tuple[str, str]] = set()
    for call in calls:
        for pull in call.pulls:
            permuted = _permuted(call, pull)
            if permuted is not None:
                if ("permuted", permuted.argument) not in known:
                    known.add(("permuted", permuted.argument))
                    found.append(permuted)
                continue
            for breach in _breaches(call, pull):
                key = (breach.fault, breach.argument)
                if key not in known:
                    known.add(key)
                    place = "" if call.function is getattr(f, "__wrapped__", None) else f" of {call.name}"
                    data = {"violation": breach, "call": call}
                    name = f"{breach.argument}{place}" if breach.argument else call.name
                    found.append(Evidence("contract", "violation", name, breach.came, breach.due, data))
    return found


def _permuted(call: Call, pull: Pull) -> Evidence | None:
    """The right shapes in the wrong order: one cause, not two wrong shapes."""
    if pull.error is not None:
        return None
    returned, variables = pull.returned, pull.variables
    pairs = [(call.inputs(), tf.nest.flatten(returned), argument_names(call.function, call.args), False)]
    if variables:
        if not (isinstance(returned, (tuple, list)) and len(returned) == 2):
            return None
        names = [f"variable {v.name.split(':')[0]}" for v in variables]
        pairs[0] = (pairs[0][0], tf.nest.flatten(returned[0]), pairs[0][2], False)
        pairs.append((list(variables), tf.nest.flatten(returned[1]), names, True))
    for leaves, gradients, named, of_variables in pairs:
        due, came = _shapes(leaves), _shapes(gradients)
        if due is None or came is None or len(due) != len(came) or sorted(due) != sorted(came):
            continue
        off = [i for i, (d, c) in enumerate(zip(due, came, strict=True)) if d != c]
        if off:
            data = {"call": call, "variables": of_variables, "mapping": isinstance(returned, dict)}
            seen = f"gradients of shapes {', '.join(map(str, came))}"
            name = ", ".join(named[i] for i in off)
            return Evidence("contract", "permuted", name, seen, ", ".join(map(str, due)), data)
    return None


def _shapes(tensors: Sequence[Any]) -> list[tuple[int, ...]] | None:
    shapes = []
    for tensor in tensors:
        shape = getattr(tensor, "shape", None)
        if shape is None or getattr(shape, "rank", 0) is None or None in tuple(shape):
            return None
        shapes.append(tuple(int(s) for s in shape))
    return shapes


def _breaches(call: Call, pull: Pull) -> Iterator[contract.Violation]:
    if pull.error is not None:
        return
    returned, for_variables = pull.returned, None
    if pull.variables:
        pair = isinstance(returned, (tuple, list)) and len(returned) == 2
        for_variables = list(tf.nest.flatten(returned[1])) if pair else None
        if for_variables is None or len(for_variables) != len(pull.variables):
            yield _variables_arity(pull, for_variables)
            return
        returned = returned[0]
    inputs = call.inputs()
    gradients = tf.nest.flatten(returned, expand_composites=False)
    names = argument_names(call.function, call.args)
    outputs = [tuple(y.shape) for y in tf.nest.flatten(call.value, expand_composites=True) if hasattr(y, "shape")]
    if len(gradients) != len(inputs) and not any(isinstance(g, (tf.RaggedTensor, tf.SparseTensor)) for g in gradients):
        violation = contract.check_number(len(gradients), names)
        if violation is not None:
            yield violation
        return
    for name, leaf, g in zip(names, inputs, gradients, strict=False):
        yield from _gradient(name, leaf, g, outputs, _others(inputs, leaf))
    for variable, g in zip(pull.variables, for_variables or (), strict=True):
        yield from _gradient(f"variable {variable.name.split(':')[0]}", variable, g, outputs, _others(inputs, variable))


def _others(inputs: Sequence[Any], leaf: Any) -> list[contract.Shape]:
    shapes = [getattr(other, "shape", None) for other in inputs if other is not leaf]
    return [tuple(s) for s in shapes if s is not None and getattr(s, "rank", 0) is not None]


def _variables_arity(pull: Pull, came: list[Any] | None) -> contract.Violation:
    names = ", ".join(v.name.split(":")[0] for v in pull.variables)
    count = len(pull.variables)
    return contract.Violation(
        "variables-arity",
        "",
        "no list of variable gradients" if came is None else f"{len(came)} variable gradients",
        f"a pair: the gradients of the inputs, and a list with {count} for the variables ({names})",
        "a rule that takes `variables` returns (input gradients, variable gradients).",
        f"return d_inputs, [{', '.join('d_' + v.name.split(':')[0].split('/')[-1] for v in pull.variables)}]",
    )


def _gradient(
    name: str, leaf: Any, g: Any, outputs: Sequence[Any], others: Sequence[contract.Shape]
) -> Iterator[contract.Violation]:
    dtype = getattr(leaf, "dtype", None)
    if g is None or dtype is None:
        return
    due = tf.as_dtype(dtype)
    if not (due.is_floating or due.is_complex):
        return
    if isinstance(g, (tf.RaggedTensor, tf.SparseTensor)):
        return
    # a Python number or an array has a shape and a dtype as TensorFlow would read it
    came = g if isinstance(g, (tf.Tensor, tf.Variable, tf.IndexedSlices)) else tf.convert_to_tensor(g)
    shape: Any = came.dense_shape if isinstance(came, tf.IndexedSlices) else came.shape
    if isinstance(came, tf.IndexedSlices):
        static = None if shape is None else tf.get_static_value(shape)
        known = None if static is None else tuple(int(s) for s in static)
    else:
        known = None if shape.rank is None else tuple(shape)
    wanted = None if leaf.shape.rank is None else tuple(leaf.shape)
    number = isinstance(g, (int, float, complex))
    breach = contract.check_gradient(
        name, known, due.name if number else came.dtype.name, wanted, due.name, outputs=outputs, others=others
    )
    if breach is not None:
        yield breach


def _own(exam: Exam, found: list[Evidence]) -> list[Evidence]:
    """The gradients of f itself, where no rule inside has been blamed; and what cannot be compared later on."""
    own: list[Evidence] = []
    outputs = [tuple(y.shape) for y in exam.run.targets] if exam.run else []
    for index, item in enumerate(exam.subject.inputs):
        g: Any = exam.answers[0][index] if exam.answers else None
        if g is None:
            continue
        # in eager mode a tape hands on whatever the rule returned: a number, an array, IndexedSlices
        came = tf.convert_to_tensor(g, item.dtype if isinstance(g, (int, float, complex)) else None)
        breach = contract.check_gradient(
            item.name, tuple(came.shape), came.dtype.name, item.shape, item.dtype.name, outputs=outputs
        )
        if breach is None:
            continue
        exam.skip.add(index)  # in another shape or precision its values cannot be compared
        if not found:
            own.append(Evidence("contract", "violation", item.name, breach.came, breach.due, {"violation": breach}))
    return own


def _variable_order(exam: Exam) -> list[Evidence]:
    """A rule asked with its variables in another order has to answer in that order."""
    for call in exam.calls:
        pull = next((p for p in call.pulls if len(p.variables) > 1 and p.error is None), None)
        if pull is None or call.graph:
            continue
        turned = tuple(reversed(pull.variables))
        try:
            again = call.rule(*pull.upstreams, variables=list(turned))
        except Exception:
            continue
        before, after = list(pull.returned[1]), list(reversed(list(again[1])))
        for variable, a, b in zip(pull.variables, before, after, strict=True):
            if a is None or b is None:
                continue
            x, y = numpy(a), numpy(b)
            if x.shape != y.shape or not np.allclose(x, y, rtol=1e-4, atol=1e-6 * np.abs(x).max(initial=0.0)):
                names = ", ".join(v.name.split(":")[0] for v in pull.variables)
                seen = "the same list, whatever the order of `variables`"
                name = f"variable {variable.name.split(':')[0]} of {call.name}"
                return [
                    Evidence(
                        "contract",
                        "variable-order",
                        name,
                        seen,
                        f"one for each of ({names}), in their order",
                        {"call": call},
                    )
                ]
    return []


def _repeat(exam: Exam) -> list[Evidence]:
    """A second time, with a call at another point in between: a rule is a function of its own inputs."""
    if exam.run is None or not exam.answers:
        return []
    first = exam.gradients(0)
    try:
        again = exam.subject.run()
        _ = exam.pair  # f at two other points, which a rule may not remember
        second = again.pull(exam.probes[0])
    except Exception as error:
        return [
            Evidence(
                "contract",
                "raised",
                "",
                f"{type(error).__name__} at the second call",
                "",
                {"error": error, "stage": "backward", "calls": exam.calls},
            )
        ]
    values = [numpy(a) for a in exam.run.targets], [numpy(b) for b in again.targets]
    if not _alike(exam, *values):
        exam.unsteady = True
        return [Evidence("contract", "value-changes", "", "another value", "the same for the same inputs")]
    if _same_bits(first, second):
        return []
    # not the same bits: rounding of another order, or noise that came close by chance; two more draws tell
    more = [exam.subject.run().pull(exam.probes[0]) for _ in range(2)]
    changed = [i for i, a in enumerate(first) if not all(_alike(exam, [a], [b[i]]) for b in (second, *more))]
    if not changed:
        return []
    exam.unsteady = True
    steady = all(_alike(exam, [first[i]], [b[i]]) for i in changed for b in more)
    kind = "gradient-follows-later-call" if steady else "gradient-changes"
    name = exam.subject.inputs[changed[0]].name
    seen = "another gradient after a call elsewhere" if steady else "another gradient at each call"
    return [Evidence("contract", kind, name, seen, "the same for the same inputs", {"index": changed[0]})]


def _same_bits(before: Sequence[Any], after: Sequence[Any]) -> bool:
    pairs = zip(before, after, strict=True)
    return all(a is b if a is None or b is None else a.shape == b.shape and _equal_bits(a, b) for a, b in pairs)


def _equal_bits(a: Any, b: Any) -> bool:
    return all(np.array_equal(x, y, equal_nan=True) for x, y in pieces(a, b))


def _alike(exam: Exam, before: Sequence[Any], after: Sequence[Any]) -> bool:
    for a, b in zip(before, after, strict=True):
        if a is None or b is None:
            if (a is None) != (b is None):
                return False
            continue
        if a.size != b.size:
            return False
        most = largest(a)
        for x, y in pieces(a, b):
            room = REPEAT_ROUNDINGS * exam.subject.eps() * (np.abs(x) + most)
            with np.errstate(invalid="ignore"):
                if not ((np.abs(x - y) <= room) | (x == y) | (np.isnan(x) & np.isnan(y))).all():
                    return False
    return True
