"""Pictures as inline SVG: no script, no other file, labelled, and readable in light and dark."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Orange for negative, blue for positive: told apart by every common form of colour blindness.
_NEGATIVE, _ZERO, _POSITIVE = (191, 91, 0), (247, 247, 247), (0, 82, 155)
_CELL, _MARGIN, _LETTER = 44, 34, 7


def heatmap(
    matrix: NDArray[Any],
    title: str,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    limit: float | None = None,
) -> str:
    """Draws a matrix as an SVG picture: colour for the size of an entry, the number in it while there is room.

    Args:
        matrix: two axes, real; shape (m, n).
        title: what it shows; read out by a screen reader together with the size and the range.
        rows: m labels; the numbers of the rows by default.
        columns: n labels; the numbers of the columns by default.
        limit: the value with the full colour; the largest absolute entry by default.

    Returns:
        The text of an ``<svg>`` element.

    Examples:
        >>> import numpy as np
        >>> from cgrad.pictures import heatmap
        >>> heatmap(np.array([[0.0, 1.0], [2.0, 0.0]]), "J")[:4]
        '<svg'
    """
    matrix = np.atleast_2d(np.asarray(matrix, dtype=np.float64))
    m, n = matrix.shape
    rows, columns = rows or [str(i) for i in range(m)], columns or [str(j) for j in range(n)]
    high, wide = _side(m), _side(n)
    finite = np.abs(matrix[np.isfinite(matrix)])
    top = limit if limit else float(finite.max(initial=0.0)) or 1.0
    left = max(_MARGIN, _LETTER * max(map(len, rows), default=0) + 12)
    width, height = round(n * wide + left + _MARGIN), round(m * high + 2 * _MARGIN + 14)
    label = f"{title}: {m} by {n}{_range(matrix)}"
    parts = [
        f'<svg role="img" aria-label="{html.escape(label)}" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" style="max-width:100%;height:auto" font-family="inherit" font-size="13" '
        'xmlns="http://www.w3.org/2000/svg">',
        f'<text x="{width / 2:g}" y="16" text-anchor="middle" fill="currentColor">{html.escape(title)}</text>',
    ]
    for i in range(m):
        parts += [_cell(matrix[i, j], j * wide + left, i * high + _MARGIN, wide, high, top) for j in range(n)]
    for i in range(0, m, max(1, math.ceil(18 / high))):
        place = f'x="{left - 8}" y="{(i + 0.5) * high + _MARGIN + 4:g}" text-anchor="end"'
        parts.append(f'<text {place} fill="currentColor">{html.escape(rows[i])}</text>')
    room = _LETTER * max(map(len, columns), default=0) + 10
    for j in range(0, n, max(1, math.ceil(room / wide))):
        place = f'x="{(j + 0.5) * wide + left:g}" y="{m * high + _MARGIN + 16:g}" text-anchor="middle"'
        parts.append(f'<text {place} fill="currentColor">{html.escape(columns[j])}</text>')
    return "".join([*parts, "</svg>"])


def scale(top: float) -> str:
    """Draws the colours of `heatmap` from -top to top, as an SVG picture with three labels.

    Args:
        top: the value with the full colour.

    Returns:
        The text of an ``<svg>`` element.
    """
    boxes = [_cell(top * (k - 10) / 10, k * 8 + 10, 0, 9, 12, top) for k in range(21)]
    labels = ((14, "start", f"{-top:.3g}"), (94, "middle", "0"), (176, "end", f"{top:.3g}"))
    texts = [f'<text x="{x}" y="26" text-anchor="{a}" fill="currentColor">{t}</text>' for x, a, t in labels]
    head = f'<svg role="img" aria-label="colours from {-top:.3g} (orange) over 0 (white) to {top:.3g} (blue)" '
    size = 'viewBox="0 0 190 30" width="190" height="30" style="max-width:100%;height:auto" font-size="12" '
    return "".join([head, size, 'xmlns="http://www.w3.org/2000/svg">', *boxes, *texts, "</svg>"])


def _side(number: int) -> float:
    """The height of each of so many rows, or the width of columns."""
    return _CELL if number <= 12 else max(1.0, 480 / number)


def _range(matrix: NDArray[Any]) -> str:
    known = matrix[~np.isnan(matrix)]
    return f", from {known.min():.4g} to {known.max():.4g}" if known.size else ""


def _cell(value: float, x: float, y: float, wide: float, high: float, top: float) -> str:
    share = min(abs(value) / top, 1.0) if np.isfinite(value) else 1.0
    target = _POSITIVE if value > 0 else _NEGATIVE
    red, green, blue = (round(z + (t - z) * share) for z, t in zip(_ZERO, target, strict=True))
    if not np.isfinite(value):
        red, green, blue = 60, 60, 60
    gap = 1 if min(wide, high) > 6 else 0
    box = f'<rect x="{x:g}" y="{y:g}" width="{wide - gap:g}" height="{high - gap:g}" fill="rgb({red},{green},{blue})"/>'
    if min(wide, high) < 30:
        return box
    dark = 0.299 * red + 0.587 * green + 0.114 * blue < 140
    number = f"{value:.3g}" if np.isfinite(value) else str(value)
    ink = "#fff" if dark else "#111"
    middle = f'x="{x + wide / 2:g}" y="{y + high / 2 + 5:g}"'
    return f'{box}<text {middle} text-anchor="middle" fill="{ink}" font-size="12">{number}</text>'
