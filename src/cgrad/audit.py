"""gradcheck for every custom gradient that a running model meets, in whichever library.

Inside the block calls are only listed, with the inputs they came with; they are checked when it ends. A model is
left as it was: the same outputs, the same random state, and what is hooked is put back, also after an error.
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import os
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import numpy as np
import tensorflow as tf

from cgrad import interception, usage
from cgrad.errors import said
from cgrad.exam import Exam, Options, dependence, run_eagerly
from cgrad.gradcheck import gradcheck, options_of
from cgrad.numerics import Shape
from cgrad.report import Report
from cgrad.state import random_numbers
from cgrad.subject import Subject, differentiable
from cgrad.tracing import is_library


@dataclass
class Met:
    """One function with a rule, at one signature of inputs.

    Attributes:
        name: what it is called where it is defined.
        place: file and line of its definition.
        signature: dtypes and shapes of its inputs.
        count: how often it was called.
        callers: how often from which line outside TensorFlow and Keras.
        graph: whether it was met while a tf.function was traced; its inputs were drawn afterwards then.
        reports: one report for each point it was checked at.
        surrogate: whether it looks like a deliberate surrogate: a staircase with a linear rule.
        unchecked: why it was not checked; empty if it was.

    Examples:
        >>> import tensorflow as tf
        >>> import cgrad
        >>> with cgrad.audit() as found:
        ...     y = tf.nn.silu(tf.constant([0.5, 1.0]))
        >>> found.met[0].signature, found.met[0].count
        ('float32[2], float32[]', 1)
    """

    name: str
    place: str
    signature: str
    count: int = 0
    callers: Counter[str] = field(default_factory=Counter)
    graph: bool = False
    reports: list[Report] = field(default_factory=list)
    surrogate: bool = False
    unchecked: str = ""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong with it."""
        return self.surrogate or all(self.reports)

    @property
    def verdict(self) -> str:
        """Right, the names of its faults, "looks like a surrogate", or "not checked"."""
        if self.unchecked:
            return "not checked"
        if self.surrogate:
            return "looks like a surrogate"
        names = dict.fromkeys(fault.name for report in self.reports for fault in report.faults)
        return ", ".join(names) or "right"


@dataclass
class Audit:
    """What an audit met: filled when its block ends, the worst first.

    Attributes:
        met: the functions with a rule, each with its reports.
        seconds: how long the checks took.

    Examples:
        >>> import tensorflow as tf
        >>> import cgrad
        >>> with cgrad.audit() as found:
        ...     y = tf.nn.silu(tf.constant([0.5, 1.0]))
        >>> found.ok, len(found.met)
        (True, 1)
    """

    met: list[Met] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether nothing that was checked is wrong."""
        return all(m.ok for m in self.met)

    def __bool__(self) -> bool:
        return self.ok

    @property
    def reports(self) -> list[Report]:
        """The reports, the worst first."""
        return [report for m in self.met for report in m.reports]

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data for JSON."""
        return {
            "ok": self.ok,
            "seconds": self.seconds,
            "met": [
                {
                    "name": m.name,
                    "place": m.place,
                    "signature": m.signature,
                    "count": m.count,
                    "callers": dict(m.callers),
                    "graph": m.graph,
                    "verdict": m.verdict,
                    "unchecked": m.unchecked,
                    "reports": [report.to_dict() for report in m.reports],
                }
                for m in self.met
            ],
        }

    def __str__(self) -> str:
        calls = sum(m.count for m in self.met)
        wrong = sum(not m.ok for m in self.met)
        head = f"{len(self.met)} custom gradients met in {calls} calls: {wrong} wrong ({self.seconds:.1f} s to check)"
        return "\n".join([head, *(_row(m) for m in self.met)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from cgrad import notebook

        return notebook.audit_html(self)


def _row(m: Met) -> str:
    caller = f", from {m.callers.most_common(1)[0][0]}" if m.callers else ""
    line = f"  {m.verdict}: {m.name}({m.signature}), {m.count} calls{caller}; defined at {m.place}"
    faults = [fault for report in m.reports for fault in report.faults] if not m.ok else []
    if m.unchecked:
        line += f"\n      {m.unchecked}"
    for fault in faults[:2]:
        line += f"\n      {fault.code} {fault.argument}: {fault.seen}; due: {fault.due}\n      repair: {fault.repair}"
    return line


@dataclass
class _Kept:
    met: Met
    function: Any
    points: list[tuple[tuple[Any, ...], dict[str, Any]]]


class _Log:
    """Lists calls; nothing is computed while the model runs."""

    def __init__(self, points: int) -> None:
        self.points = points
        self.kept: dict[Any, _Kept] = {}

    def __call__(self, f: Any, args: Any, kwargs: Any, proceed: interception.Proceed) -> Any:
        graph = not tf.executing_eagerly()
        leaves = tf.nest.flatten((args, kwargs), expand_composites=True)
        signature = ", ".join(_describe(leaf) for leaf in leaves)
        plain = inspect.unwrap(f)
        key = (getattr(plain, "__code__", plain), signature, graph)
        kept = self.kept.get(key)
        if kept is None:
            kept = self.kept[key] = _Kept(Met(_name(plain), _place(plain), signature, graph=graph), f, [])
        kept.met.count += 1
        kept.met.callers[_caller()] += 1
        if len(kept.points) < self.points:
            kept.points.append((tuple(args), dict(kwargs)))
        return proceed(f, args, kwargs)


@contextlib.contextmanager
def audit(
    *,
    max_seconds: float = 60.0,
    max_checks: int = 200,
    points: int = 1,
    allow: Collection[str] = (),
    eagerly: bool = False,
    **options: Any,
) -> Iterator[Audit]:
    """Checks every custom gradient that the code inside the block meets: yours, Keras's, TensorFlow's own.

    Each function is checked once for each signature of inputs, on the very inputs it met. While a tf.function is
    traced there are no values: inputs of the same shapes and dtypes are drawn afterwards. A tf.function that was
    traced before the block is not seen, unless ``eagerly`` is set.

    Args:
        max_seconds: no new check is started after this many seconds of checking.
        max_checks: the largest number of checks.
        points: how many calls of each function and signature to check.
        allow: names of functions that are wrong on purpose.
        eagerly: runs every tf.function eagerly inside the block, so that real values are met and nothing is missed.
        **options: handed to `gradcheck`; by default ``order=1, modes=("eager",)``.

    Yields:
        An `Audit`, filled when the block ends: true when nothing is wrong; print it.

    Raises:
        UsageError: before the block is entered, for a wrong value of an option.

    Examples:
        >>> import tensorflow as tf
        >>> import cgrad
        >>> @tf.custom_gradient
        ... def cube(x):
        ...     return x**3, lambda upstream: upstream * 2.0 * x
        >>> def model(x):
        ...     return tf.reduce_sum(cube(tf.sin(x)))
        >>> with cgrad.audit() as found:
        ...     y = model(tf.constant([0.5, 1.0]))
        >>> found.ok, [(m.name, m.verdict) for m in found.met]
        (False, [('cube', 'wrong-value')])
    """
    options = {"order": 1, "modes": ("eager",), **options}
    try:
        options_of(**options)
    except TypeError as error:
        raise TypeError(str(error).replace("options_of", "audit")) from None
    usage.integer("max_checks", max_checks, 0, "a non-negative integer")
    usage.integer("points", points, 1, "a positive integer")
    usage.real("max_seconds", max_seconds, "a positive number of seconds", 0.0, float("inf"))
    usage.collection_of_names("allow", allow)
    usage.flag("eagerly", eagerly)
    found, log = Audit(), _Log(points)
    with interception.intercepting(log), run_eagerly() if eagerly else contextlib.nullcontext():
        yield found
    start = time.perf_counter()
    with random_numbers(_keras_seeds()) if log.kept else contextlib.nullcontext():
        for number, kept in enumerate(log.kept.values()):
            if number >= max_checks or time.perf_counter() - start > max_seconds:
                kept.met.unchecked = f"the budget was spent ({max_checks} checks, {max_seconds:g} s)"
            elif kept.met.name in allow:
                kept.met.unchecked = "allowed by name"
            else:
                _check(kept, options)
    found.met[:] = sorted((kept.met for kept in log.kept.values()), key=lambda m: (m.ok, bool(m.unchecked), -m.count))
    found.seconds = time.perf_counter() - start


def _check(kept: _Kept, options: dict[str, Any]) -> None:
    function = tf.custom_gradient(kept.function)
    for args, kwargs in kept.points:

        def call(*inner: Any, _kwargs: dict[str, Any] = kwargs) -> Any:
            return function(*inner, **_kwargs)

        call.__name__ = kept.met.name
        try:
            inputs = _drawn(args) if kept.met.graph else args
            report = gradcheck(call, *inputs, **options)
        except Exception as error:
            kept.met.unchecked = f"{type(error).__name__}: {said(error).partition(chr(10))[0][:120]}"
            return
        if kept.met.graph and any(f.name == "raises" and "out of scope" in f.seen for f in report.faults):
            kept.met.unchecked = "it closes over tensors of the graph it was traced in; use eagerly=True"
            return
        refusals = [f.seen for f in report.faults if f.name == "raises" and f.seen.startswith("NotImplementedError")]
        if refusals:  # on purpose, such as forward mode through tf.recompute_grad
            kept.met.unchecked = f"its rule refuses: {refusals[0]}"
            return
        kept.met.reports.append(report)
        if not report and _looks_like_a_surrogate(call, inputs, options):
            kept.met.surrogate = True


def _looks_like_a_surrogate(f: Any, args: Sequence[Any], options: dict[str, Any]) -> bool:
    """A rule that is linear where the function is a staircase: flat nearby, and moving further away."""
    if not gradcheck(f, *args, **{**options, "surrogate": True}):
        return False
    exam = Exam(Subject(f, args), Options(seed=options.get("seed", 0)))
    exam.sit()
    if exam.error is not None or not exam.answers:
        return False
    flat = True
    for index in range(len(exam.subject.inputs)):
        (slope,) = exam.slopes(exam.direction([index]), [exam.weights(exam.probes[0])])
        flat &= slope.shape in (Shape.SMOOTH, Shape.JUMP) and slope.admits(0.0)
    return flat and any(dependence(exam, index) for index in range(len(exam.subject.inputs)))


def _drawn(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Values of the same dtypes and shapes, unknown sizes taken as 2."""
    random = np.random.default_rng(0)

    def draw(leaf: Any) -> Any:
        if not isinstance(leaf, tf.Tensor):
            return leaf
        shape_of: Any = leaf.shape
        sizes = [None] if shape_of.rank is None else shape_of
        shape = [2 if size is None else size for size in sizes]
        if differentiable(leaf):
            return tf.cast(tf.constant(random.normal(size=shape)), leaf.dtype)
        return tf.zeros(shape, leaf.dtype)

    return tuple(tf.nest.map_structure(draw, args, expand_composites=True))


def _keras_seeds() -> list[Any]:
    """The states of Keras's seed generators, one in each random layer: nothing lists them but the interpreter."""
    keras = sys.modules.get("keras")
    if keras is None:
        return []
    return [found.state for found in gc.get_objects() if type(found) is keras.random.SeedGenerator]


def _describe(leaf: Any) -> str:
    if not hasattr(leaf, "dtype") or not hasattr(leaf, "shape"):
        return repr(leaf) if isinstance(leaf, (bool, int, float, str, type(None))) else type(leaf).__name__
    shape = "?" if leaf.shape.rank is None else ", ".join("?" if s is None else str(s) for s in leaf.shape)
    return f"{tf.as_dtype(leaf.dtype).name}[{shape}]"


def _name(f: Any) -> str:
    return str(getattr(f, "__qualname__", type(f).__name__)).rsplit(".", 1)[-1]


def _place(f: Any) -> str:
    code = getattr(f, "__code__", None)
    return f"{_short(code.co_filename)}:{code.co_firstlineno}" if code else "?"


def _short(filename: str) -> str:
    """The end of a path: from its package on."""
    parts = filename.split(os.sep)
    return "/".join(parts[parts.index("site-packages") + 1 :] if "site-packages" in parts else parts[-2:])


def _caller() -> str:
    """The line outside of TensorFlow, Keras and this package that led here."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        filename = frame.f_code.co_filename
        if not is_library(filename) and os.path.dirname(__file__) not in filename:
            return f"{_short(filename)}:{frame.f_lineno}"
        frame = frame.f_back
    return "?"
