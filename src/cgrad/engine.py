"""One call of a function that has a rule: what every definer hands its function to.

A definer reduces what its user wrote to an `Evaluated`: the value, and how the rule applies (``pull`` for reverse
mode, ``push`` for forward mode). This module lets TensorFlow see it: `tf.custom_gradient` for reverse mode, one more
record for forward mode when somebody is in it, and the contract around both.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from cgrad import bind, capture, collect, internals, variables


@dataclass(slots=True)
class Evaluated:
    """What one call of the user's function gave.

    Attributes:
        value: the output, a tensor or a structure of tensors.
        pull: maps the upstream gradients (one for each entry of a top-level tuple or list, else one) to what the
            user's rule returns: the gradients of the arguments. Takes ``variables=`` where the rule does.
        push: maps the flat inputs and their flat tangents (None for none) to flat tangents of the outputs; None to
            transpose ``pull``.
        rule: the user's own rule, for its names in messages.
    """

    value: Any
    pull: Callable[..., Any]
    push: Callable[[Sequence[tf.Tensor], Sequence[Any]], list[Any]] | None
    rule: Callable[..., Any]


class Definition:
    """A function and its rule. The decorated function keeps it as ``__cgrad__``, for `cgrad.gradcheck`.

    Attributes:
        kind: ``"vjp"``, ``"jvp"`` or ``"jacobian"``.
        function: the function as its author wrote it; for kind vjp it returns ``(value, rule)``.
        rule: the derivative that the decorator was given (None for kind vjp).
        options: the decorator's other arguments.
        binder: binds calls by signature.
    """

    def __init__(
        self,
        kind: str,
        function: Callable[..., Any],
        nondiff: str | Iterable[str],
        evaluate: Callable[[Definition, bind.Bound, list[Any], dict[str, Any]], Evaluated],
        rule: Callable[..., Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.kind = kind
        self.function = function
        self.rule = rule
        self.options: dict[str, Any] = dict(options or {})
        self.evaluate = evaluate
        self.binder: bind.Binder = bind.Binder(function, nondiff)
        self.name: str = self.binder.name
        self.checked: bool = False  # whether a rule has been looked at for linearity
        # A rule that needs the arguments alone, and nothing of the forward pass.
        self.detached: bool = kind != "vjp" or bool(self.options.get("numpy"))
        self._captures = capture.Captures(function, self.name)
        self._local = threading.local()
        core: Callable[..., Any] = lambda *tensors: self._local.call.run(tensors)  # noqa: E731
        core.__name__ = self.name
        self._core = tf.custom_gradient(core)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function so that TensorFlow sees its rule."""
        bound = self.binder(args, kwargs)
        call = _Call(self, bound)
        self._captures.check(args, kwargs)
        recording = internals.could_record()
        tensors = bound.tensors
        if not tf.executing_eagerly():
            tensors = _of_this_graph(tensors)
        call.followed, call.recorded = recording and internals.followed_by_accumulator(tensors), False
        if call.followed and self.detached:
            tensors = _copies(tensors)  # or it would differentiate the forward pass, for nothing
        # tf.custom_gradient makes tensors of all it is handed, so the call itself travels beside it.
        self._local.call = call
        try:
            outputs = self._core(*tensors)
            call.recorded = True
        finally:
            self._local.call = None  # or its tensors would live until the next call
        if call.positions is None:
            outputs = [outputs]
        if recording:
            outputs = call.follow_forward(outputs)
        return call.result(outputs)


def decorated(definition: Definition) -> Callable[..., Any]:
    """Returns a plain function around a definition, so that Python itself binds methods and finds the signature."""
    # AutoGraph would otherwise rewrite this module when the call is traced.
    wrapped = functools.wraps(definition.function)(tf.autograph.experimental.do_not_convert(definition.__call__))
    wrapped.__cgrad__ = definition  # type: ignore[attr-defined]
    return wrapped


_pushing = threading.local()  # how many rules are being pushed through, one inside the other


class _Call:
    """One call: its arguments, its outputs, and its rule once the function has run."""

    __slots__ = ("bound", "definition", "evaluated", "followed", "outputs", "positions", "recorded", "variables")

    definition: Definition
    bound: bind.Bound
    evaluated: Evaluated
    followed: bool  # whether forward mode follows an argument
    outputs: list[tf.Tensor]
    positions: list[int] | None
    recorded: bool  # whether TensorFlow has recorded it
    variables: list[Any]

    def __init__(self, definition: Definition, bound: bind.Bound) -> None:
        self.definition = definition
        self.bound = bound

    # --- forward ------------------------------------------------------------------------------------------

    def run(self, tensors: Sequence[tf.Tensor]) -> tuple[Any, Callable[..., Any]]:
        """Runs the function, under `tf.custom_gradient`; returns its flat outputs and its flat rule."""
        args, kwargs = self.bound.rebuild(tensors)
        with internals.VariableWatcher() as watcher:
            self.evaluated = self.definition.evaluate(self.definition, self.bound, args, kwargs)
        self.variables = self._captured(watcher.watched_variables())
        value = self.evaluated.value
        if isinstance(value, tf.Tensor):
            self.positions = None
            self.outputs = [value]
            return value, self._flat_rule()  # TensorFlow takes 20 us to pack a list of one
        self._flatten(value)
        return self.outputs, self._flat_rule()

    def _flat_rule(self) -> Callable[..., Any]:
        """`backward` in the form that TensorFlow inspects fastest: it reads the signature at every call."""
        if self.followed:
            return lambda *ups, variables=None: self._once_recorded(*ups, read=variables)
        if self.variables or not tf.executing_eagerly():
            return lambda *ups, variables=None: self.backward(*ups, read=variables)
        if self.positions is None and self.bound.plain is not None and len(self.bound.plain) == 1:
            return lambda upstream: self._simple(upstream)
        return lambda *ups: self.backward(*ups)

    def _once_recorded(self, *upstreams: Any, read: Sequence[Any] | None) -> Any:
        """`backward`, but for the accumulators that ask for it while the call is being recorded.

        They would push tangents of their own through the rule, with every tape at rest (a rule that uses one would come
        back with None) and for tensors only. What they get is replaced by `follow_forward`; so they get nothing.
        """
        if self.recorded:
            return self.backward(*upstreams, read=read)
        nothing = [None] * len(self.bound.tensors)
        return (nothing, [None] * len(read)) if read else nothing

    def _simple(self, upstream: Any) -> Any:
        """`backward` for one tensor in and one out, where nothing is wrong: this is what most rules are."""
        if isinstance(upstream, tf.Tensor):
            returned = self.evaluated.pull(upstream)
            (x,) = self.bound.tensors
            tensor = isinstance(returned, tf.Tensor)
            # An eager tensor: its shape is known.
            if tensor and returned.dtype is x.dtype and returned.shape == x.shape and hasattr(returned, "numpy"):
                return returned
            return self._collector().inputs(self._of_arguments(returned), self.bound)
        return self.backward(upstream)

    def _of_arguments(self, returned: Any) -> Any:
        if isinstance(returned, (list, tuple)) and variables.accepted_by(self.evaluated.rule):
            return variables.without(returned)
        return returned

    def _flatten(self, value: Any) -> None:
        value = bind.as_output(self.definition.name, value, optional=True)
        self.evaluated.value = value
        leaves = internals.flatten(value)
        self.positions = [i for i, leaf in enumerate(leaves) if leaf is not None]
        self.outputs = [leaves[i] for i in self.positions]
        if not self.outputs:
            bind.as_output(self.definition.name, None)  # nothing at all: it says so

    def result(self, outputs: Sequence[tf.Tensor]) -> Any:
        """Returns flat tensors in the structure of the output."""
        if self.positions is None:
            return outputs[0]
        leaves: list[Any] = [None] * len(internals.flatten(self.evaluated.value))
        for position, output in zip(self.positions, outputs, strict=True):
            leaves[position] = output
        return tf.nest.pack_sequence_as(self.evaluated.value, leaves, expand_composites=True)

    def _captured(self, watched: Sequence[Any]) -> list[Any]:
        """The trainable variables that the function read; its rule has to answer for them."""
        if not watched:
            return []
        found = variables.captured(watched, self.bound.arguments)
        if found and not variables.accepted_by(self.evaluated.rule):
            raise variables.missing(self.definition.name, self.definition.kind, found)
        return found

    # --- reverse ------------------------------------------------------------------------------------------

    def backward(self, *upstreams: Any, read: Sequence[Any] | None = None) -> Any:
        """The rule on flat tensors, in the form that `tf.custom_gradient` asks for."""
        ups = [_dense(up, output) for up, output in zip(upstreams, self.outputs, strict=True)]
        captured = variables.in_order(self._captured(read or []))
        arguments = self._by_output(ups)
        collector = self._collector()
        if not captured:
            returned = self._of_arguments(self.evaluated.pull(*arguments))
            gradients = collector.inputs(returned, self.bound)
            return (gradients, [None] * len(read)) if read else gradients
        returned = self.evaluated.pull(*arguments, variables=captured)
        returned, answers = variables.split(self.definition.name, returned, captured)
        gradients = collector.inputs(returned, self.bound)
        of_variables = {v.ref(): collector.leaf(variables.name(v), v, answers[v.ref()]) for v in captured}
        return gradients, [of_variables.get(v.ref()) for v in read or []]

    def _collector(self) -> collect.Collector:
        return collect.Collector(self.definition.name, self.outputs, first_name(self.evaluated.rule))

    def _by_output(self, ups: list[Any]) -> Sequence[Any]:
        """One upstream for each entry of a top-level tuple or list of outputs, each in that entry's structure."""
        if self.positions is None:
            return ups
        leaves = list(internals.flatten(self.evaluated.value))
        in_composite = [
            isinstance(leaf, bind.COMPOSITE)
            for leaf in tf.nest.flatten(self.evaluated.value)
            for _ in internals.flatten(leaf)
        ]
        for position, up in zip(self.positions, ups, strict=True):
            # The row splits of a ragged output are those of its upstream too.
            if bind.differentiable(leaves[position]) or not in_composite[position]:
                leaves[position] = up
        packed = tf.nest.pack_sequence_as(self.evaluated.value, leaves, expand_composites=True)
        return packed if isinstance(packed, (list, tuple)) else [packed]

    # --- forward mode -------------------------------------------------------------------------------------

    def follow_forward(self, outputs: list[tf.Tensor]) -> list[tf.Tensor]:
        """Records the call for forward mode, if an accumulator follows one of its inputs.

        The forward pass itself has just been followed, op by op, and has tangents that know nothing of the rule. So
        the outputs are copied out of every record, recorded once more with the rule's own forward function, and tied
        back to the originals for reverse mode (in a graph the originals carry the gradient that TensorFlow looks up).
        """
        if not self.followed and not (
            self.variables and internals.followed_by_accumulator([v.handle for v in self.variables])
        ):
            return outputs
        inputs = [*self.bound.tensors, *(tf.convert_to_tensor(v) for v in self.variables)]
        tangents = internals.tangents_of(inputs)
        # Inside the rule of another call that is being pushed, the innermost accumulator has no question left. (A rule
        # may call its own function: it would be pushed without end.)
        depth = getattr(_pushing, "depth", 0)
        if depth >= len(tangents):
            return outputs
        with internals.unrecorded():
            copies = [tf.identity(output) for output in outputs]
        _pushing.depth = depth + 1
        try:
            pushed = [self._push(inputs, tangents, k) for k in range(len(tangents))]
        finally:
            _pushing.depth = depth
        internals.set_tangents(self.definition.name, copies, inputs, pushed)
        internals.record_reverse(self.definition.name, copies, outputs, lambda *ups: list(ups))
        return copies

    def _push(self, inputs: list[tf.Tensor], tangents: list[list[Any]], k: int) -> list[Any]:
        """Returns the tangents of the outputs for accumulator k.

        The rule runs on copies that only the accumulators outside of k follow: what k itself would make of the rule
        is not asked for, costs time, and takes the rule off every tape when k is deleted (TensorFlow's fault).
        """
        if self.evaluated.push is None:
            return self._transpose(tangents[k])
        copies = _copies(inputs)
        internals.set_tangents("cgrad_copy", copies, inputs, [t if i > k else [] for i, t in enumerate(tangents)])
        return self.evaluated.push(copies, tangents[k])

    def _reverse(self, *upstreams: Any) -> list[Any]:
        if not self.variables:
            return list(self.backward(*upstreams))
        gradients, of_variables = self.backward(*upstreams, read=self.variables)
        return [*gradients, *of_variables]

    def _transpose(self, tangents: Sequence[Any]) -> list[Any]:
        """The rule is linear in the upstream; its transpose, by a tape over the upstream, is the forward rule."""
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            ups = [tf.ones_like(output) for output in self.outputs]
            real = [up for up in ups if bind.differentiable(up)]
            tape.watch(real)
            gradients = self._reverse(*ups)
            pairs = [(g, t) for g, t in zip(gradients, tangents, strict=True) if g is not None and t is not None]
            gradients = [tf.convert_to_tensor(g) for g, _ in pairs]
        pushed = iter(
            tape.gradient(
                gradients,
                real,
                output_gradients=[t for _, t in pairs],
                unconnected_gradients=tf.UnconnectedGradients.ZERO,
            )
        )
        return [next(pushed) if bind.differentiable(up) else None for up in ups]


def _of_this_graph(tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Brings in what belongs to another graph: the argument of a call inside a rule whose function is compiled.

    `tf.custom_gradient` records the call with the tensors it was handed. A backward graph that is differentiated
    again, from outside, would look for a tensor of the forward graph, and "out of scope" is all TensorFlow says.
    """
    here = tf.compat.v1.get_default_graph()
    foreign = [getattr(t, "graph", here) is not here for t in tensors]
    return [tf.identity(t) if away else t for t, away in zip(tensors, foreign, strict=True)]


def _copies(tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Copies that reverse mode follows and forward mode does not."""
    with internals.unrecorded():
        copies = [tf.identity(t) for t in tensors]
    internals.record_reverse("cgrad_copy", copies, tensors, lambda *ups: list(ups))
    return copies


def _dense(upstream: Any, output: tf.Tensor) -> tf.Tensor:
    if isinstance(upstream, tf.Tensor):
        return upstream
    return tf.zeros_like(output) if upstream is None else tf.convert_to_tensor(upstream)


def first_name(rule: Callable[..., Any]) -> str:
    """Returns what a rule calls its first upstream gradient."""
    code = getattr(rule, "__code__", None)
    if code is None or not code.co_argcount or inspect.ismethod(rule):
        return "upstream"
    return str(code.co_varnames[0])
