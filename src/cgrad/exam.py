"""What the questions share: the function under test, the probes, its answers to them, and the reference.

Everything here is measured once and handed to each question. A question adds evidence, and may take an input out
of the comparison of values (``skip``).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf

from cgrad import interception
from cgrad.errors import ContractError
from cgrad.numerics import Line, Shape, Slope, Vector, first_step
from cgrad.subject import PIECE, Array, Run, Subject, flat, numpy, outputs_flat, pieces
from cgrad.usage import shown

MODES = ("eager", "graph", "xla", "pfor", "forward")

# The third probe is this combination of the first two. A factor of 64 drives a clip at any usual bound out
# of its linear range, the minus sign tells abs, relu and sign; powers of two are exact.
MIX = (-64.0, 0.5)

COARSE = 2.0**-23

LARGE = 2**20
"""Of functions of more numbers no more than a few copies of all of them are held at once."""


@dataclass(frozen=True)
class Options:
    """The options of one call of `gradcheck`, as a report keeps them.

    Attributes:
        order: 1 for first derivatives, 2 for second ones as well.
        modes: the modes that were compared.
        surrogate: whether the rule was said to differ from the derivative on purpose.
        rtol: the relative difference that counted as rounding; None for the one that follows from the dtype.
        seed: the seed of the random upstreams and directions.

    Examples:
        >>> import tensorflow as tf
        >>> import cgrad
        >>> cgrad.gradcheck(tf.sin, tf.constant([0.5]), order=1, seed=3).options.seed
        3
    """

    order: int = 2
    modes: tuple[str, ...] = MODES
    surrogate: bool = False
    rtol: float | None = None
    seed: int = 0


@dataclass(frozen=True)
class Evidence:
    """Something that a question saw; :mod:`cgrad.diagnosis` gives it a name.

    Attributes:
        question: the question that saw it.
        kind: what was seen, in the question's own terms.
        argument: the input it concerns, as its user would write it; empty if none.
        seen: what the function did.
        due: what was due.
        data: what the diagnosis needs beyond that.
    """

    question: str
    kind: str
    argument: str = ""
    seen: str = ""
    due: str = ""
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Pair:
    """The outputs at ``x + step * steps`` and ``x - step * steps``."""

    steps: list[Vector]
    step: float
    plus: Vector
    minus: Vector

    def slope(self, weights: Vector) -> float:
        """The central difference of <weights, f>."""
        with np.errstate(invalid="ignore"):
            return float(weights @ (self.plus - self.minus)) / (2.0 * self.step)


class Exam:
    """One function at one point, with its answers to three upstreams.

    Attributes:
        subject: the function.
        run: its evaluation under a tape; None if it raised.
        calls: the custom gradients met on the way.
        answers: the gradients for the probes u, v and the mixture of both, as TensorFlow returned them.
        error: what f or its rule raised, and ``stage`` where: "forward" or "backward".
    """

    def __init__(self, subject: Subject, options: Options) -> None:
        self.subject = subject
        self.options = options
        self.random: np.random.Generator = np.random.default_rng(options.seed)
        self.run: Run | None = None
        self.error: BaseException | None = None
        self.stage: str = ""
        self.calls: list[interception.Call] = []
        self.probes: list[list[Array]] = []
        self.answers: list[list[Any]] = []
        self.skip: set[int] = set()
        """Inputs whose gradient cannot be compared: of a wrong shape, without a path, or not linear."""
        self.unsteady: bool = False
        """Whether two identical calls gave different results."""

    def sit(self) -> None:
        """Evaluates f and asks its rule for the three gradients."""
        with interception.observing() as self.calls:
            try:
                self.stage = "forward"
                self.run = self.subject.run()
                self._meet_variables(self.run)
                if sum(math.prod(item.shape) for item in self.subject.inputs) > LARGE:
                    _ = self.pair  # now, while there are no gradients in memory
                self.stage = "backward"
                u, v = self.draw(), self.draw()
                mixed = [MIX[0] * a + MIX[1] * b for a, b in zip(u, v, strict=True)]
                self.probes = [u, v, mixed]
                if self.subject.inputs and self.run.targets:
                    self.answers = [self.run.raw(probe) for probe in self.probes]
                    self._refuse_what_is_no_tensor()
                self.stage = ""
            except Exception as error:
                self.error = error

    def _meet_variables(self, run: Run) -> None:
        for variable in run.watched:
            self.subject.add_variable(variable)
        run.add_sources()

    def _refuse_what_is_no_tensor(self) -> None:
        """A rule may return anything, and in eager mode a tape hands it on: an object is an error of that rule."""
        due = "where a gradient was due, a tensor of the input's shape"
        found: Exception | None = None
        for call in self.calls:
            for pull in call.pulls:
                odd = [g for g in tf.nest.flatten(pull.returned) if not _is_numbers(g)]
                if odd:
                    found = ContractError(f"[CG101] {call.name}: the rule returned {shown(odd[0])}, {due}")
                    pull.error = str(found)
        if found is not None:
            raise found

    # --- probes -----------------------------------------------------------------------------------

    def draw(self) -> list[Array]:
        """An upstream for each output: neither ones, nor uniform, nor positive."""
        assert self.run is not None
        return [self._draw_like(y) for y in self.run.targets]

    def _draw_like(self, y: Any) -> Array:
        shape = tuple(y.shape)
        size = self.random.uniform(0.5, 1.5, shape) * self.random.choice([-1.0, 1.0], shape)
        if y.dtype.is_complex:
            return np.asarray(size + 1j * self.random.uniform(-1.5, 1.5, shape))
        return np.asarray(size)

    def scales(self, index: int) -> Vector:
        """The size of a unit step for each real entry of an input: a power of two near |x|, with a floor."""
        value = self.subject.inputs[index].value()
        sizes = [np.where(np.isfinite(x), np.abs(x), 1.0).max(initial=0.0) for (x,) in pieces(value)]
        top = float(max(sizes, default=0.0))
        floor = 2.0**-10 * (top if 0.0 < top < 1.0 else 1.0)
        numbers = value.size * (2 if value.dtype.kind == "c" else 1)
        # powers of two: of many, half the memory holds them exactly
        found: Any = np.empty(numbers, np.float32 if numbers > PIECE and value.dtype.itemsize <= 4 else np.float64)
        for k, (x,) in enumerate(pieces(value)):
            x = np.where(np.isfinite(x), np.abs(x), 1.0)
            found[k * PIECE : (k + 1) * PIECE] = 2.0 ** np.floor(np.log2(np.maximum(x, floor)))
        return np.asarray(found)

    def invisible(self, scales: Vector) -> Vector:
        """Derivatives smaller than these cannot be told from rounding in the output, where a unit step is so large."""
        y = np.abs(self.center[np.isfinite(self.center)]).max(initial=0.0)
        return np.asarray(64.0 * self.eps * y / np.maximum(scales, 1e-300))

    def noise(self, index: int) -> float:
        """The largest of the derivatives of an input that cannot be told from rounding in the output."""
        least = min((float(np.abs(s).min()) for (s,) in pieces(self.known_scales(index))), default=np.inf)
        return float(self.invisible(np.array([least]))[0])

    def known_scales(self, index: int) -> Vector:
        """The scales but for their signs, from a direction that is there already where there is one."""
        pair: Pair | None = self.__dict__.get("pair")
        return self.scales(index) if pair is None or index >= len(pair.steps) else pair.steps[index]

    def direction(self, only: Sequence[int] | None = None) -> list[Vector]:
        """Random signs and sizes times the scales; zero for inputs other than ``only``.

        The sizes (about one, of five bits, so that steps stay exact) keep two errors of one size, in entries that
        belong together, from cancelling in every second direction.
        """
        steps = []
        for index in range(len(self.subject.inputs)):
            scale = self.scales(index)
            for start in range(0, scale.size, PIECE):
                part = scale[start : start + PIECE]
                part *= self.random.choice([-1.0, 1.0], part.shape)
                part *= self.random.integers(24, 41, part.shape) / 32.0
            steps.append(_narrow(scale) if only is None or index in only else np.zeros(scale.shape, scale.dtype))
        return steps

    def symmetric(self, index: int) -> bool:
        """Whether an input is a symmetric (Hermitian) matrix, which a function may take for granted."""
        x = self.subject.inputs[index].value()
        if x.ndim < 2 or x.shape[-1] != x.shape[-2] or x.shape[-1] < 2:
            return False
        return bool(np.array_equal(x, np.conj(np.swapaxes(x, -1, -2))))

    def mirrored(self, index: int, step: Vector) -> Vector:
        """A step along symmetric (Hermitian) matrices: its lower triangle, mirrored."""
        item = self.subject.inputs[index]
        matrix = step.view(np.complex128) if item.dtype.is_complex else step
        matrix = matrix.reshape(item.shape)
        # not the sum of both triangles: of two random signs the sum is zero half of the time
        below = np.tril(matrix, -1)
        middle = (matrix - below - np.triu(matrix, 1)).real
        return flat(middle + below + np.conj(np.swapaxes(below, -1, -2)))

    def unit(self, index: int, entry: int) -> list[Vector]:
        """The direction along one real entry of one input."""
        steps = [np.zeros(flat(item.value()).shape) for item in self.subject.inputs]
        steps[index][entry] = self.scales(index)[entry]
        return steps

    # --- differences ------------------------------------------------------------------------------

    @cached_property
    def pair(self) -> Pair:
        """Two values of f, a short step to either side: the cheapest look at its true slope."""
        steps = self.direction()
        step = float(2.0 ** np.round(np.log2(self.eps) / 3.0))
        plus, minus = (self._value(steps, t) for t in (step, -step))
        return Pair(steps, step, plus, minus)

    @cached_property
    def eps(self) -> float:
        """The rounding unit that f works in: that of its inputs, or a coarser one inside (an image operation's)."""
        eps = self.subject.eps()
        return max(eps, COARSE) if eps < 1e-10 and self.run is not None and self._coarse_inside() else eps

    def _coarse_inside(self) -> bool:
        """Whether float64 passes through float32: a tiny change of the upstream is lost, or rounded, on the way."""
        if not self.answers or self.stage:
            return False
        tiny = 2.0**-30
        assert self.run is not None
        try:
            nudged = self.run.pull([(1.0 + tiny) * u for u in self.probes[0]])
        except Exception:
            return False
        for before, after in zip(self.gradients(0), nudged, strict=True):
            if before is None or after is None or not np.isfinite(before).all() or not np.any(before):
                continue
            off = np.abs(after - (1.0 + tiny) * before).max()
            if off > 1e-2 * tiny * np.abs(before).max():
                return True
        values = self.center[self.center != 0]
        inputs = [flat(item.value()) for item in self.subject.inputs]
        single = [bool((v == v.astype(np.float32)).all()) for v in [values, *inputs]]
        return bool(values.size) and single[0] and not all(single[1:])

    @property
    def traced(self) -> bool:
        """Whether a tf.function is known to be part of f."""
        return isinstance(self.subject.f, tf.types.experimental.PolymorphicFunction) or any(c.graph for c in self.calls)

    @property
    def overflows(self) -> bool:
        """Whether something is not finite at the caller's own precision: then that is what has to be judged."""
        if not np.isfinite(self.center).all():
            return True
        return any(g is not None and not np.isfinite(g).all() for g in self.gradients(0))

    @property
    def ruled(self) -> bool:
        """Whether a rule had a part in the answers; without one, autodiff is what is being checked."""
        return any(call.pulls for call in self.calls)

    @cached_property
    def center(self) -> Vector:
        """The outputs at the point."""
        assert self.run is not None
        return outputs_flat(self.run.outputs)

    def line(self, steps: Sequence[Vector], finer: bool = False) -> Line:
        """Six values of f along a direction."""
        eps = self.eps
        step = first_step(eps) * (2.0**-7 if finer else 1.0)
        return Line(lambda t: self._value(steps, t), self.center, eps, step)

    def beside(self, steps: Sequence[Vector]) -> Vector:
        """The outputs one step along a direction."""
        return self._value(steps, 2.0 ** round(math.log2(first_step(self.eps))))

    def _value(self, steps: Sequence[Vector], t: float) -> Vector:
        """The outputs nearby; where f refuses to be evaluated, or changes its shape, they are not numbers."""
        try:
            found = self.subject.shifted(steps, t)
        except Exception:
            found = np.zeros(0)
        return found if found.shape == self.center.shape else np.full(self.center.shape, np.nan)

    def slopes(self, steps: Sequence[Vector], weights: Sequence[Vector]) -> list[Slope]:
        """The derivatives of <w, f> along a direction; tried again with finer steps where they have no limit."""
        line = self.line(steps)
        found = [line.slope(w) for w in weights]
        if all(s.shape is Shape.SMOOTH for s in found) or self.eps > 1e-10:
            return found
        line = self.line(steps, finer=True)
        return [_surer(a, line.slope(w)) for a, w in zip(found, weights, strict=True)]

    def weights(self, probe: Sequence[Array]) -> Vector:
        """An upstream as one vector of real numbers, matching :attr:`center`."""
        return np.concatenate([flat(p) for p in probe]) if probe else np.zeros(0)

    # --- reference --------------------------------------------------------------------------------

    @cached_property
    def reference(self) -> Run | None:
        """The forward pass itself under a tape, every rule bypassed; None where that is not possible."""
        try:
            # a traced tf.function has its rules built in
            with interception.bypassing(), run_eagerly() if self.traced else contextlib.nullcontext():
                run = self.subject.run()
            run.add_sources()
            same = len(run.targets) == len(self.probes[0])
            return run if same else None
        except Exception:
            return None

    def gradients(self, probe: int) -> list[Array | None]:
        """The rule's answer to a probe, as arrays."""
        found = [None if g is None else numpy(g) for g in self.answers[probe]]
        return [None if g is None or g.dtype.kind not in "biufc" else g for g in found]


def _narrow(steps: Vector) -> Vector:
    """Many steps in half precision where it holds them: they have a few bits each."""
    if steps.size <= PIECE or steps.dtype != np.float32:
        return steps
    with np.errstate(over="ignore", under="ignore"):
        half: Any = steps.astype(np.float16)
    return half if all(np.array_equal(a, b) for a, b in pieces(half, steps)) else steps


def _is_numbers(value: Any) -> bool:
    """Whether TensorFlow takes it for a tensor (of strings too: that is another dtype)."""
    if value is None or isinstance(value, (tf.Tensor, tf.Variable, tf.IndexedSlices, bool, int, float, complex)):
        return True
    return isinstance(value, (tf.RaggedTensor, tf.SparseTensor, np.ndarray, np.generic))


def _surer(first: Slope, second: Slope) -> Slope:
    return second if second.shape in (Shape.SMOOTH, Shape.EDGE) or first.bar > second.bar else first


def dependence(exam: Exam, index: int, reach: float = 1.0) -> bool:
    """Whether the outputs change at all when an input moves by its own size: a staircase does."""
    steps = exam.direction([index])
    steps[index] = np.sign(steps[index]) * np.maximum(np.abs(steps[index]), 0.5)
    for t in (reach, -reach, 3.0 * reach, -3.0 * reach, 0.3 * reach):
        moved = exam._value(steps, t)
        if np.isfinite(moved).all() and not np.allclose(moved, exam.center, rtol=1e-6, atol=0.0, equal_nan=True):
            return True
    return False


@contextlib.contextmanager
def run_eagerly() -> Iterator[None]:
    """A context in which every tf.function runs as plain Python."""
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)
