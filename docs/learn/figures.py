"""Pictures of the chapters, as inline SVG: the page's own colour, and three more that read on white and on black."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence

BLUE, ORANGE, GREEN = "#3b82c4", "#d9822b", "#2e9e6b"


def svg(label: str, width: float, height: float, body: str) -> str:
    """A picture with a text for those who do not see it."""
    return (
        f'<svg role="img" aria-label="{html.escape(label)}" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" style="max-width:100%;height:auto" font-family="inherit" font-size="14" '
        f'xmlns="http://www.w3.org/2000/svg"><defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" '
        'markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" fill="context-stroke"/></marker></defs>'
        f"{body}</svg>"
    )


def text(x: float, y: float, words: str, anchor: str = "middle", colour: str = "currentColor") -> str:
    """Words, centred on x unless told otherwise."""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{colour}">{html.escape(words)}</text>'


def grid(x: float, y: float, rows: int, columns: int, colour: str, cell: float = 22) -> str:
    """A matrix as boxes."""
    lines = "".join(f"M{x} {y + k * cell}h{columns * cell}" for k in range(rows + 1))
    lines += "".join(f"M{x + k * cell} {y}v{rows * cell}" for k in range(columns + 1))
    area = f'<rect x="{x}" y="{y}" width="{columns * cell}" height="{rows * cell}" fill="{colour}" opacity="0.35"/>'
    return f'{area}<path d="{lines}" stroke="currentColor" stroke-width="1" fill="none"/>'


def arrow(x: float, y: float, to_x: float, to_y: float, dashed: bool = False, colour: str = "currentColor") -> str:
    """A straight arrow."""
    dash = ' stroke-dasharray="4 3"' if dashed else ""
    return f'<path d="M{x:g} {y:g} {to_x:g} {to_y:g}" stroke="{colour}" fill="none" marker-end="url(#head)"{dash}/>'


def box(x: float, y: float, width: float, words: str, colour: str = "none", height: float = 34) -> str:
    """A named box."""
    opacity = ' fill-opacity="0.3"' if colour != "none" else ""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" fill="{colour}"{opacity} '
        f'stroke="currentColor"/>{text(x + width / 2, y + height / 2 + 5, words)}'
    )


def two_products(m: int, n: int) -> str:
    """A row times J and, below it, J times a column, to scale: side by side they would not fit a phone."""
    cell, top = 22.0, 32.0
    body, x = "", 10.0
    for rows, columns, colour, name, sign in (
        (1, m, ORANGE, "u\u1d40", "\u00b7"),
        (m, n, BLUE, "J", "="),
        (1, n, GREEN, "u\u1d40J", ""),
    ):
        body += grid(x, top, rows, columns, colour) + text(x + columns * cell / 2, top - 10, name)
        x += columns * cell + 14
        body += text(x, top + 16, sign)
        x += 14
    wide, x, top = x, 10.0, top + m * cell + 44
    for rows, columns, colour, name, sign in (
        (m, n, BLUE, "J", "\u00b7"),
        (n, 1, ORANGE, "v", "="),
        (m, 1, GREEN, "Jv", ""),
    ):
        body += grid(x, top, rows, columns, colour) + text(x + columns * cell / 2, top - 10, name)
        x += columns * cell + 14
        body += text(x, top + 16, sign)
        x += 14
    label = (
        f"Above: a row u with {m} entries times a {m} by {n} matrix J gives a row with {n} entries. "
        f"Below: J times a column v with {n} entries gives a column with {m} entries."
    )
    return svg(label, max(wide, x), top + max(m, n) * cell + 12, body)


def repeated_row(rows: int, columns: int) -> str:
    """Broadcasting forward, summing backward."""
    cell, top, right = 22.0, 40.0, 300.0
    body = grid(10, top + (rows - 1) * cell / 2, 1, columns, ORANGE)
    body += text(10 + columns * cell / 2, top + (rows - 1) * cell / 2 - 10, "b")
    body += grid(right, top, rows, columns, BLUE) + text(right + columns * cell / 2, top - 10, "y")
    start = 18 + columns * cell
    for k in range(rows):
        body += arrow(start, top + rows * cell / 2 - 4, right - 8, top + (k + 0.35) * cell)
        body += arrow(right - 8, top + (k + 0.65) * cell, start, top + rows * cell / 2 + 4, dashed=True)
    body += text((start + right) / 2, top - 10, "forward: repeated")
    body += text((start + right) / 2, top + rows * cell + 22, "backward (dashed): summed")
    label = (
        f"A row b is repeated into each of the {rows} rows of y. Backward, an upstream gradient arrives from each row, "
        "and the gradient of b is their sum."
    )
    return svg(label, right + columns * cell + 10, top + rows * cell + 34, body)


def chain(steps: Sequence[str], broken: int | None = None) -> str:
    """Steps from left to right, the way back dashed; after step ``broken`` there is no way back."""
    # Boxes as wide as their words, so that five of them fit a phone in letters of 12 px.
    gap, top, x = 22.0, 30.0, 8.0
    body = ""
    for k, words in enumerate(steps):
        width = 18 + 6.8 * len(words)
        body += box(x, top, width, words, ORANGE if k == broken else "none")
        if k:
            body += arrow(x - gap, top + 11, x - 2, top + 11)
            if broken is None or k not in (broken, broken + 1):
                body += arrow(x - 2, top + 24, x - gap + 1, top + 24, dashed=True)
            elif k == broken:
                body += text(x - gap / 2, top + 30, "\u2715")
        x += width + gap
    body += text(8, top - 12, "forward", "start") + text(8, top + 60, "backward (dashed)", "start")
    label = "Forward: " + ", then ".join(steps) + ". "
    label += "Every step has a way back." if broken is None else f"The way back ends before {steps[broken]}."
    return svg(label, x - gap + 8, top + 70, body)


def batch(m: int, n: int) -> str:
    """All unit vectors through one backward pass, and one after the other."""
    cell, top, x = 22.0, 40.0, 10.0
    body = grid(x, top, m, m, ORANGE) + text(x + m * cell / 2, top - 10, "unit vectors")
    x += m * cell + 10
    body += arrow(x, top + m * cell / 2, x + 50, top + m * cell / 2)
    body += box(x + 54, top + m * cell / 2 - 17, 120, "rule, once", BLUE)
    body += arrow(x + 178, top + m * cell / 2, x + 228, top + m * cell / 2)
    body += grid(x + 234, top, m, n, GREEN) + text(x + 234 + n * cell / 2, top - 10, "J")
    label = (
        f"A batch of {m} unit vectors goes through the rule once, as one batched computation, and comes out as the "
        f"{m} rows of the Jacobian."
    )
    return svg(label, x + 244 + n * cell, top + m * cell + 14, body)


def loglog(
    curves: Iterable[tuple[str, str, Sequence[float], Sequence[float]]], across: str, up: str, label: str
) -> str:
    """Curves on logarithmic axes; each is (name, colour, x values, y values)."""
    curves = list(curves)
    left, top, width, height = 64.0, 16.0, 310.0, 230.0
    logs = [([math.log10(v) for v in xs], [math.log10(v) for v in ys]) for _, _, xs, ys in curves]
    low_x, high_x = (f(f(xs) for xs, _ in logs) for f in (min, max))
    low_y, high_y = math.floor(min(min(ys) for _, ys in logs)), math.ceil(max(max(ys) for _, ys in logs))
    place_x = lambda v: left + width * (v - low_x) / (high_x - low_x)  # noqa: E731
    place_y = lambda v: top + height * (high_y - v) / (high_y - low_y)  # noqa: E731
    body = f'<path d="M{left} {top}v{height}h{width}" stroke="currentColor" fill="none"/>'
    for tick in range(math.ceil(low_x), math.floor(high_x) + 1, 2):
        body += text(place_x(tick), top + height + 18, f"1e{tick}")
    for tick in range(low_y, high_y + 1, 2):
        body += text(left - 6, place_y(tick) + 5, f"1e{tick}", "end")
    for k, ((name, colour, _, _), (xs, ys)) in enumerate(zip(curves, logs, strict=True)):
        points = " ".join(f"{place_x(a):.1f},{place_y(b):.1f}" for a, b in zip(xs, ys, strict=True))
        dash = ("", ' stroke-dasharray="6 3"', ' stroke-dasharray="2 3"')[k % 3]
        body += f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2.5"{dash}/>'
        body += f'<path d="M{left + 14} {top + 14 + 20 * k}h26" stroke="{colour}" stroke-width="2.5"{dash}/>'
        body += text(left + 46, top + 19 + 20 * k, name, "start")
    body += text(left + width / 2, top + height + 40, across)
    body += f'<g transform="rotate(-90 14 {top + height / 2})">{text(14, top + height / 2, up)}</g>'
    return svg(label, left + width + 20, top + height + 50, body)


def both_ways() -> str:
    """Forward mode above the chain of operations, reverse mode below."""
    body, width, gap, top = "", 58.0, 40.0, 70.0
    for k, words in enumerate(("x", "f", "g", "y")):
        x = 8 + k * (width + gap)
        body += box(x, top, width, words)
        if k:
            body += arrow(x - gap, top + 17, x - 2, top + 17)
            body += arrow(x - gap - 12, top - 18, x + 8, top - 18, colour=BLUE)
            body += arrow(x + 8, top + 52, x - gap - 12, top + 52, dashed=True, colour=ORANGE)
    body += text(8, top - 36, "forward mode: a tangent, with the values", "start", BLUE)
    body += text(8, top + 84, "reverse mode (dashed): a cotangent, after them", "start", ORANGE)
    label = (
        "A chain x, f, g, y. Forward mode carries a tangent from x to y along with the values; reverse mode carries a "
        "cotangent from y back to x, after them."
    )
    return svg(label, 16 + 4 * (width + gap) - gap, top + 96, body)


def plane(points: Sequence[complex], arrows: Sequence[complex], center: complex) -> str:
    """Gradients in the complex plane, shortened."""
    size, unit = 320.0, 100.0
    x = lambda z: size / 2 + unit * z.real  # noqa: E731
    y = lambda z: size / 2 - unit * z.imag  # noqa: E731
    body = f'<path d="M8 {size / 2}H{size - 8}M{size / 2} 8V{size - 8}" stroke="currentColor" opacity="0.4"/>'
    body += text(size - 14, size / 2 - 6, "Re") + text(size / 2 + 14, 18, "Im")
    body += f'<circle cx="{x(center):.1f}" cy="{y(center):.1f}" r="5" fill="{ORANGE}"/>'
    body += text(x(center) + 14, y(center) + 5, "c")
    for z, g in zip(points, arrows, strict=True):
        end = z + 0.15 * g
        body += arrow(round(x(z), 1), round(y(z), 1), round(x(end), 1), round(y(end), 1), colour=BLUE)
    label = (
        f"Nine points of the complex plane; at each the gradient of |z - c| squared points away from c = {center:g}."
    )
    return svg(label, size, size, body)
