"""Text for a terminal: escaped, wrapped, aligned. Importable without TensorFlow."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable
from typing import TextIO

WIDTH = 88
LABEL = 12

Paint = Callable[[str, str], str]
"""Gives a text a style: ``paint("bad", text)``."""

_STYLES = {"good": "1;32", "bad": "1;31", "label": "36", "code": "1"}


def plain(style: str, text: str) -> str:
    """The text as it is."""
    return text


def coloured(style: str, text: str) -> str:
    """The text between the escape sequences of its style."""
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if text else text


def wants_colour(stream: TextIO) -> bool:
    """Whether a stream is a terminal whose user has not asked for plain text (``NO_COLOR``, ``TERM=dumb``)."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(getattr(stream, "isatty", lambda: False)())


def encodable(text: str, stream: TextIO) -> str:
    """The text with what the stream's encoding lacks written as escapes."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def clean(text: str) -> str:
    r"""The text with control characters shown, not obeyed; line breaks stay, tabs become blanks.

    Examples:
        >>> from cgrad.text import clean
        >>> print(clean("red \x1b[31m"))
        red \x1b[31m
    """
    kept = text.expandtabs(4).replace("\r\n", "\n")
    return "".join(c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode() for c in kept)


def wrapped(text: str, most: int = 100, width: int = WIDTH - LABEL, code: bool = False) -> list[str]:
    """The lines of a text, none wider than ``width`` and at most ``most`` of them.

    Args:
        text: any text; prose is filled anew.
        most: the number of lines; what does not fit is cut, and ends in ``...``.
        width: the number of columns.
        code: whether it is Python: a trailing comment of a line too long goes above it, and blanks are kept.

    Examples:
        >>> from cgrad.text import wrapped
        >>> wrapped("one two three four", most=2, width=8)
        ['one two', 'thre ...']
    """
    source = [" ".join(clean(text).split())]
    if code:
        source = [part for line in clean(text).strip("\n").split("\n") for part in _comment_first(line, width)]
    lines = []
    for line in source:
        indent = line[: len(line) - len(line.lstrip())] if code else ""
        lines += textwrap.wrap(
            line, width, subsequent_indent=indent + "    " if code else "", drop_whitespace=True, break_on_hyphens=False
        ) or [""]
    lines = [line.rstrip() for line in lines]
    if len(lines) <= most:
        return lines
    last = lines[most - 1]
    return [*lines[: most - 1], (last if len(last) <= width - 4 else last[: width - 4].rstrip()) + " ..."]


def _comment_first(line: str, width: int) -> list[str]:
    body, mark, comment = line.partition("   # ")
    if len(line) <= width or not mark:
        return [line]
    indent = body[: len(body) - len(body.lstrip())]
    return [f"{indent}# {comment}", body]


def field(label: str, lines: list[str], paint: Paint = plain, style: str = "") -> list[str]:
    """A label, and its lines beside it."""
    if not lines:
        return []
    head = paint("label", f"  {label:<{LABEL - 2}}")
    shown = [paint(style, line) if style else line for line in lines]
    return [(head + shown[0]).rstrip(), *((" " * LABEL + line).rstrip() for line in shown[1:])]
