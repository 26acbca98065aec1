"""What the evidence comes to: faults, with their reason and repair, and notes."""

from __future__ import annotations

from dataclasses import dataclass, field

from cgrad.exam import Evidence
from cgrad.faults import BY_NAME, Entry


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong.

    Attributes:
        entry: its kind, from the catalogue.
        argument: the input it concerns; empty if it concerns the function.
        seen: what the function did.
        due: what was due.
        reason: why, in a line or two.
        repair: the code that repairs it, made for this function where possible.

    Examples:
        >>> import tensorflow as tf
        >>> import cgrad
        >>> @tf.custom_gradient
        ... def square(x):
        ...     return x * x, lambda upstream: x * upstream
        >>> (fault,) = cgrad.gradcheck(square, tf.constant([1.0, 2.0])).faults
        >>> fault.name, fault.code, fault.argument
        ('constant-factor', 'CG403', 'x')
    """

    entry: Entry
    argument: str
    seen: str
    due: str
    reason: str
    repair: str

    @property
    def name(self) -> str:
        """The fault's name in the catalogue."""
        return self.entry.name

    @property
    def code(self) -> str:
        """The fault's code in the catalogue."""
        return self.entry.code

    @property
    def page(self) -> str:
        """The address of the page about it."""
        return self.entry.page


@dataclass(frozen=True)
class Note:
    """Something worth knowing that is not a fault: a kink, an edge, a mode that f refuses.

    Attributes:
        kind: what it is, in a word: ``"kink"``, ``"edge"``, ``"surrogate"``, ``"mode-xla"``, ...
        argument: the input it concerns; empty if it concerns the function.
        text: what was seen.

    Examples:
        >>> import tensorflow as tf
        >>> import cgrad
        >>> [note.kind for note in cgrad.gradcheck(tf.abs, tf.constant([0.0, 1.0])).notes]
        ['kink']
    """

    kind: str
    argument: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}{f' ({self.argument})' if self.argument else ''}: {self.text}"


@dataclass
class Verdict:
    """What the evidence comes to."""

    faults: list[Fault] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    def add(self, other: Verdict) -> None:
        """Takes in what another question came to."""
        self.faults += [f for f in other.faults if f not in self.faults]
        self.notes += [n for n in other.notes if n not in self.notes]


def fault(name: str, piece: Evidence, reason: str = "", repair: str = "", **changes: str) -> Fault:
    """The fault of this name, as this piece of evidence shows it."""
    entry = BY_NAME[name]
    return Fault(
        entry,
        changes.get("argument", piece.argument),
        changes.get("seen", piece.seen),
        changes.get("due", piece.due),
        reason or entry.why,
        repair or f"# for example\n{entry.snippet}",
    )


Found = list[Fault | Note]
