"""Report: what gradcheck found, as text, HTML, dict and picture."""

from __future__ import annotations

from dataclasses import dataclass

from cgrad.diagnosis import Fault, Note
from cgrad.exam import Options


@dataclass(frozen=True)
class Report:
    """What gradcheck found."""

    function: str
    faults: tuple[Fault, ...]
    notes: tuple[Note, ...]
    evaluations: int
    pulls: int
    seconds: float
    options: Options

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        lines = [f"{self.function}: {'right' if self.ok else 'wrong'}"]
        for fault in self.faults:
            lines += [
                f"{fault.code} {fault.name} ({fault.argument})",
                f"  seen {fault.seen}",
                f"  due {fault.due}",
                f"  why {fault.reason}",
                f"  repair {fault.repair}",
            ]
        lines += [f"note {n.kind} {n.argument}: {n.text}" for n in self.notes]
        lines.append(f"{self.evaluations} evaluations, {self.pulls} pulls, {self.seconds:.3f} s")
        return "\n".join(lines)

    __repr__ = __str__
