"""What a long check is doing, on stderr: after two seconds, and on a terminal only."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

from cgrad.text import clean

PATIENCE = 2.0
_PERIOD = 0.5
_local = threading.local()


class _Line:
    """One line of a terminal, written over and over by a thread, and erased at the end."""

    def __init__(self, title: str) -> None:
        self.title = clean(title)
        self.step = ""
        self._start = time.perf_counter()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        shown = False
        while not self._done.wait(_PERIOD if shown else PATIENCE):
            seconds = time.perf_counter() - self._start
            sys.stderr.write(f"\r\x1b[Kgradcheck of {self.title}: {self.step}, {seconds:.0f} s")
            sys.stderr.flush()
            shown = True
        if shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def close(self) -> None:
        self._done.set()
        self._thread.join()


@contextlib.contextmanager
def shown(title: str) -> Iterator[None]:
    """A context in which `step` says what is being done, if it lasts and somebody looks on."""
    outer = getattr(_local, "line", None)
    if outer is not None or not getattr(sys.stderr, "isatty", lambda: False)():
        yield
        return
    _local.line = _Line(title)
    try:
        yield
    finally:
        _local.line.close()
        _local.line = None


def step(name: str) -> None:
    """Says what is being done now."""
    line = getattr(_local, "line", None)
    if line is not None:
        line.step = name
