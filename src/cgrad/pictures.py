"""Pictures as inline SVG: no script, no other file, labelled, and readable in light and dark."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Orange for negative, blue for positive: told apart by every common form of colour blindness.
_NEGATIVE, _ZERO, _POSITIVE = (191, 91, 0), (247, 247, 247), (0, 82, 155)
_CELL, _MARGIN = 44, 34


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
    cell = _CELL if max(m, n) <= 12 else max(8, 480 // max(m, n))
    finite = np.abs(matrix[np.isfinite(matrix)])
    top = limit if limit else float(finite.max(initial=0.0)) or 1.0
    width, height = n * cell + 2 * _MARGIN, m * cell + 2 * _MARGIN + 14
    label = f"{title}: {m} by {n}, from {np.nanmin(matrix):.4g} to {np.nanmax(matrix):.4g}"
    parts = [
        f'<svg role="img" aria-label="{html.escape(label)}" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" style="max-width:100%;height:auto" font-family="inherit" font-size="13" '
        'xmlns="http://www.w3.org/2000/svg">',
        f'<text x="{width / 2:g}" y="16" text-anchor="middle" fill="currentColor">{html.escape(title)}</text>',
    ]
    for i in range(m):
        parts += [_cell(matrix[i, j], j * cell + _MARGIN, i * cell + _MARGIN, cell, top) for j in range(n)]
    parts += _labels(rows or [str(i) for i in range(m)], cell, along_rows=True, end=m * cell + _MARGIN)
    parts += _labels(columns or [str(j) for j in range(n)], cell, along_rows=False, end=m * cell + _MARGIN)
    return "".join([*parts, "</svg>"])


def _cell(value: float, x: float, y: float, cell: int, top: float) -> str:
    share = min(abs(value) / top, 1.0) if np.isfinite(value) else 1.0
    target = _POSITIVE if value > 0 else _NEGATIVE
    red, green, blue = (round(z + (t - z) * share) for z, t in zip(_ZERO, target, strict=True))
    if not np.isfinite(value):
        red, green, blue = 60, 60, 60
    box = f'<rect x="{x}" y="{y}" width="{cell - 1}" height="{cell - 1}" fill="rgb({red},{green},{blue})"/>'
    if cell < 30:
        return box
    dark = 0.299 * red + 0.587 * green + 0.114 * blue < 140
    number = f"{value:.3g}" if np.isfinite(value) else str(value)
    ink = "#fff" if dark else "#111"
    middle = f'x="{x + cell / 2:g}" y="{y + cell / 2 + 5:g}"'
    return f'{box}<text {middle} text-anchor="middle" fill="{ink}" font-size="12">{number}</text>'


def _labels(names: Sequence[str], cell: int, *, along_rows: bool, end: int) -> list[str]:
    step = max(1, -(-18 // cell))
    found = []
    for k in range(0, len(names), step):
        middle = k * cell + cell / 2 + _MARGIN
        place = f'x="{_MARGIN - 8}" y="{middle + 4:g}" text-anchor="end"'
        if not along_rows:
            place = f'x="{middle:g}" y="{end + 16}" text-anchor="middle"'
        found.append(f'<text {place} fill="currentColor">{html.escape(names[k])}</text>')
    return found
