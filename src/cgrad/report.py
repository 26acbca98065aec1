"""Report: what gradcheck found, as text, HTML, dict and picture."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

from cgrad import text
from cgrad.diagnosis import Fault, Note
from cgrad.errors import GradientFault, UsageError
from cgrad.exam import Options
from cgrad.faults import BY_CODE
from cgrad.jacobians import LIMIT, Jacobians
from cgrad.text import Paint
from cgrad.usage import shown, wrong

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_OPEN = ("not-asked", "cannot-tell", "infinite")
_LINES = 25  # of a report with one fault
_FAULTS, _NOTES = 4, 3  # as many as are shown in full


@dataclass(frozen=True)
class Report:
    """What gradcheck found: true when nothing is wrong.

    ``print(report)`` shows it; ``report.show()`` shows it in colour on a terminal; a notebook shows it as HTML, with
    pictures of the Jacobians of small functions; ``assert cgrad.gradcheck(f, x)`` shows it where pytest reports the
    failure.

    Attributes:
        function: the name of the function.
        faults: what is wrong, the first to repair first; each with ``code``, ``name``, ``argument``, ``seen``, ``due``,
            ``reason``, ``repair`` and ``page``.
        notes: what is worth knowing and not wrong; each with ``kind``, ``argument`` and ``text``.
        evaluations: how often the function was evaluated.
        pulls: how many backward passes were made.
        seconds: how long it took.
        options: those of the call.
        inputs: the arguments, each a name and a dtype with shape, such as ``("x", "float64[2, 3]")``.

    Examples:
        >>> import tensorflow as tf
        >>> import cgrad
        >>> @tf.custom_gradient
        ... def shift(x, b):
        ...     return x + b, lambda upstream: (upstream, upstream)
        >>> report = cgrad.gradcheck(shift, tf.ones((2, 3)), tf.zeros(3))
        >>> print(report)
        shift is wrong: not-unbroadcast (CG105)
        <BLANKLINE>
          argument  b
          seen      a tensor of shape (2, 3)
          due       shape (3,)
          why       `b` was broadcast over axis 0; an entry that feeds several outputs gets the
                    sum of their gradients.
          repair    tf.reduce_sum(g, axis=[0])   # g: what is returned for `b` now
          page      https://tf-cgrad.readthedocs.io/en/latest/faults/not-unbroadcast.html
        <BLANKLINE>
          cost      4 evaluations, 4 backward passes
          again     cgrad.gradcheck(shift, x, b, seed=0)   # x: float32[2, 3], b: float32[3]
    """

    function: str
    faults: tuple[Fault, ...]
    notes: tuple[Note, ...]
    evaluations: int
    pulls: int
    seconds: float
    options: Options
    inputs: tuple[tuple[str, str], ...] = ()
    _jacobians: Callable[[], tuple[Jacobians, ...]] | None = field(default=None, compare=False, repr=False)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults

    def __bool__(self) -> bool:
        return self.ok

    # --- text -------------------------------------------------------------------------------------

    @property
    def headline(self) -> str:
        """The verdict in one line, ``f is right`` or ``f is wrong:`` and the names of its faults."""
        if self.faults:
            names = ", ".join(f"{f.name} ({f.code})" for f in self.faults[:_FAULTS])
            more = len(self.faults) - _FAULTS
            return _line(f"{self.function} is wrong: {names}{f' and {more} more' if more > 0 else ''}")
        unsure = any(note.kind in _OPEN for note in self.notes)
        verdict = "is right, as far as could be judged" if unsure else "is right"
        return _line(f"{self.function} {verdict}{', as a surrogate' if self.options.surrogate else ''}")

    @property
    def call(self) -> str:
        """The call that gives this report again, with the dtypes and shapes of the arguments in a comment."""
        shapes = ", ".join(f"{name}: {kind}" for name, kind in self.inputs)
        return _line(f"{reproducer(self.function, self.inputs, self.options)}{f'   # {shapes}' if shapes else ''}")

    def __str__(self) -> str:
        return text.encodable("\n".join(self._lines(text.plain)), sys.stdout)

    def __repr__(self) -> str:
        """The whole report; for pytest, which keeps 240 characters of one line, its headline.

        The rest goes to stdout then, which pytest shows with the failure.
        """
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if "PYTEST_CURRENT_TEST" not in os.environ or not caller.startswith("_pytest."):
            return str(self)
        if not self.__dict__.get("_printed") and not self.ok:
            object.__setattr__(self, "_printed", True)
            print(self)
        return f"<Report: {self.headline}>"

    def show(self, file: TextIO | None = None) -> None:
        """Prints the report and the time it took, in colour if the stream is a terminal and ``NO_COLOR`` is not set.

        Args:
            file: the stream; stdout by default.
        """
        stream = sys.stdout if file is None else file
        if not hasattr(stream, "write"):
            raise wrong("file", "a stream with a `write`", file)
        paint = text.coloured if text.wants_colour(stream) else text.plain
        print(text.encodable("\n".join(self._lines(paint, timed=True)), stream), file=stream)

    def _lines(self, paint: Paint, *, timed: bool = False) -> list[str]:
        style = "good" if self.ok else "bad"
        lines = [paint(style, line) for line in text.wrapped(self.headline, 2, text.WIDTH)]
        several = len(self.faults) > 1
        for fault in self.faults[:_FAULTS]:
            title = [paint("code", f"  {fault.name} ({fault.code})")] if several else []
            lines += ["", *title, *_fault_lines(fault, paint)]
        time = f"{self.seconds * 1000:.0f} ms" if self.seconds < 1.0 else f"{self.seconds:.1f} s"
        cost = f"{self.cost}, {time}" if timed else self.cost
        end = text.field("cost", [cost], paint) + text.field("again", _call_lines(self.call), paint)
        room = _LINES - len(lines) - len(end) - 1
        return [*lines, "", *_note_lines(self.notes, room, paint), *end]

    @property
    def cost(self) -> str:
        """What the check took, counted; the same at every run, unlike ``seconds``, which `show` adds."""
        return f"{_count(self.evaluations, 'evaluation')}, {_count(self.pulls, 'backward pass', 'es')}"

    # --- data -------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Returns all of it as plain data for JSON; `Report.from_dict` reads it back.

        Examples:
            >>> import json
            >>> import tensorflow as tf
            >>> import cgrad
            >>> report = cgrad.gradcheck(tf.sin, tf.constant([0.5, 1.0]))
            >>> cgrad.Report.from_dict(json.loads(json.dumps(report.to_dict()))) == report
            True
        """
        return {
            "function": self.function,
            "ok": self.ok,
            "faults": [
                {
                    "code": f.code,
                    "name": f.name,
                    "argument": f.argument,
                    "seen": f.seen,
                    "due": f.due,
                    "reason": f.reason,
                    "repair": f.repair,
                    "page": f.page,
                }
                for f in self.faults
            ],
            "notes": [asdict(note) for note in self.notes],
            "evaluations": self.evaluations,
            "pulls": self.pulls,
            "seconds": self.seconds,
            "options": {**asdict(self.options), "modes": list(self.options.modes)},
            "inputs": [list(item) for item in self.inputs],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Report:
        """Returns the report that `to_dict` wrote down; it is equal to the first, and has no Jacobians.

        Args:
            data: what `to_dict` returned.

        Raises:
            UsageError: if it is no such dict: an entry is missing or of another kind, or a code is none of the
                catalogue's.
        """
        try:
            return cls._read(data)
        except (AttributeError, KeyError, TypeError, ValueError) as cause:
            reason = f"{type(cause).__name__}: {cause}"
            raise UsageError(
                f"Report.from_dict: what Report.to_dict returned was due, but got {shown(data)} ({reason})"
            ) from cause

    @classmethod
    def _read(cls, data: dict[str, Any]) -> Report:
        texts = ("argument", "seen", "due", "reason", "repair")
        return cls(
            function=data["function"],
            faults=tuple(Fault(BY_CODE[f["code"]], *(f[name] for name in texts)) for f in data["faults"]),
            notes=tuple(Note(**note) for note in data["notes"]),
            evaluations=data["evaluations"],
            pulls=data["pulls"],
            seconds=data["seconds"],
            options=Options(**{**data["options"], "modes": tuple(data["options"]["modes"])}),
            inputs=tuple((name, kind) for name, kind in data["inputs"]),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return Report.from_dict, (self.to_dict(),)

    def raise_for_faults(self) -> None:
        """Raises an error whose text is the report, if something is wrong.

        Raises:
            GradientFault: with the code of the first fault.
        """
        if self.faults:
            raise GradientFault(f"[{self.faults[0].code}] {self}")

    # --- pictures ---------------------------------------------------------------------------------

    def jacobians(self) -> tuple[Jacobians, ...]:
        """Returns, for each small input, the Jacobian that the rule stands for and the true one.

        They are computed when first asked for, at the point of the check, one backward pass a row.

        Returns:
            One `Jacobians` for each input whose Jacobian has at most 400 entries. Empty where there is none, where the
            function or its rule raised, and for a report that was read from a dict or a pickle.

        Examples:
            >>> import tensorflow as tf
            >>> import cgrad
            >>> @tf.custom_gradient
            ... def square(x):
            ...     return x * x, lambda upstream: x * upstream
            >>> (both,) = cgrad.gradcheck(square, tf.constant([1.0, 3.0])).jacobians()
            >>> both.rule.tolist(), both.truth.tolist()
            ([[1.0, 0.0], [0.0, 3.0]], [[2.0, 0.0], [0.0, 6.0]])
        """
        return self._jacobians() if self._jacobians is not None else ()

    def _repr_html_(self) -> str:
        from cgrad import notebook

        return notebook.html(self)

    def plot(self) -> Figure:
        """Draws, for each small input, the rule's Jacobian, the true one and their difference, with matplotlib.

        Returns:
            The figure, a row of three pictures for each of `jacobians`.

        Raises:
            ImportError: without matplotlib; the text says how to install it.
            UsageError: where there are no Jacobians to draw.
        """
        from cgrad import notebook

        found = self.jacobians()
        if not found:
            raise UsageError(
                f"there is no Jacobian of {self.function} to draw: a function that runs, and whose Jacobian has at "
                f"most {LIMIT} entries, was due; read report.faults instead"
            )
        return notebook.figure(found, self.headline)


def reproducer(function: str, inputs: Sequence[tuple[str, str]], options: Options) -> str:
    """Returns the call of gradcheck with these arguments and options, leaving out what is the default.

    Examples:
        >>> from cgrad.exam import Options
        >>> from cgrad.report import reproducer
        >>> reproducer("f", [("x", "float32[2]"), ("p['w']", "float32[]"), ("p['b']", "float32[]")], Options(order=1))
        'cgrad.gradcheck(f, x, p, order=1, seed=0)'
    """
    names = [found.group() for name, _ in inputs if (found := re.match(r"args\[\d+\]|\w+", name))]
    default = Options()
    changed = [
        f"{name}={getattr(options, name)!r}"
        for name in ("order", "modes", "surrogate", "rtol")
        if getattr(options, name) != getattr(default, name)
    ]
    name = function if function.isidentifier() else "f"
    return f"cgrad.gradcheck({', '.join([name, *dict.fromkeys(names), *changed, f'seed={options.seed}'])})"


def _fault_lines(fault: Fault, paint: Paint) -> list[str]:
    return [
        *text.field("argument", text.wrapped(fault.argument, 1) if fault.argument else [], paint),
        *text.field("seen", text.wrapped(fault.seen, 2) if fault.seen else [], paint),
        *text.field("due", text.wrapped(fault.due, 2) if fault.due else [], paint),
        *text.field("why", text.wrapped(fault.reason, 4), paint),
        *text.field("repair", text.wrapped(fault.repair, 5, code=True), paint, "code"),
        *text.field("page", [fault.page], paint),
    ]


def _note_lines(notes: Sequence[Note], room: int, paint: Paint) -> list[str]:
    """As many of the first three notes, and as much of each, as there is room for."""
    most = max(1, min(_NOTES, room))
    shown = most if len(notes) <= most else most - 1
    each = max(1, (room - 1) // most)
    lines: list[str] = []
    for note in notes[:shown]:
        lines += text.field("note", text.wrapped(str(note), each), paint)
    if len(notes) > shown:
        lines += text.field("", [f"and {_count(len(notes) - shown, 'more note')}: report.notes"], paint)
    return lines


def _call_lines(call: str) -> list[str]:
    """The call in one line; the shapes go above it where they do not fit behind it."""
    if len(call) <= text.WIDTH - text.LABEL:
        return [call]
    code, _, shapes = call.partition("   # ")
    return [*text.wrapped(f"# {shapes}" if shapes else "", 1), *text.wrapped(code, 2)]


def _line(content: str) -> str:
    return text.clean(content).replace("\n", " ")


def _count(number: int, noun: str, plural: str = "s") -> str:
    return f"{number} {noun}{'' if number == 1 else plural}"
