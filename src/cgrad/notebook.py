"""A report for notebooks and documentation: HTML with a table and pictures of the Jacobians, or a figure."""

from __future__ import annotations

import html as escaping
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cgrad.jacobians import Jacobians, Matrix
from cgrad.pictures import heatmap, scale
from cgrad.text import clean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from cgrad.audit import Audit
    from cgrad.diagnosis import Fault
    from cgrad.report import Report

_SHOWN = 2  # inputs whose Jacobians are drawn; where some differ, only such
_ROUNDING = 1e-6

_LIGHT = "--ink:#1c1c1e;--paper:#fff;--line:#d0d0d5;--soft:#5a5a62;--good:#17693a;--bad:#a8261c;--link:#0b57a4;"
_DARK = "--ink:#ececf0;--paper:#1b1b1f;--line:#46464e;--soft:#b0b0ba;--good:#6fd392;--bad:#ff9d92;--link:#8ec3ff;"
_DARK_PAGES = ('body[data-theme="dark"]', 'body[data-jp-theme-light="false"]', "body.vscode-dark")
_LIGHT_PAGES = ('body[data-theme="light"]', 'body[data-jp-theme-light="true"]', "body.vscode-light")

# A page's own choice of theme comes after, and so over, the system's.
_STYLE = f"""<style>
.cgrad-report{{{_LIGHT}color:var(--ink);background:var(--paper);border:1px solid var(--line);border-radius:6px;
padding:.7em 1em;margin:.5em 0;overflow-x:auto;font-size:.95em;line-height:1.45;text-align:left}}
@media (prefers-color-scheme:dark){{.cgrad-report{{{_DARK}}}}}
{",".join(f"{page} .cgrad-report" for page in _LIGHT_PAGES)}{{{_LIGHT}}}
{",".join(f"{page} .cgrad-report" for page in _DARK_PAGES)}{{{_DARK}}}
.cgrad-report p{{margin:.3em 0;color:inherit}}
.cgrad-report .cgrad-good{{color:var(--good);font-weight:600}}
.cgrad-report .cgrad-bad{{color:var(--bad);font-weight:600}}
.cgrad-report .cgrad-soft{{color:var(--soft);font-size:.9em}}
.cgrad-report table{{border-collapse:collapse;margin:.4em 0;border:0;background:none;color:inherit;width:100%}}
.cgrad-report tr{{background:none;border-top:1px solid var(--line)}}
.cgrad-report th,.cgrad-report td{{text-align:left;vertical-align:top;padding:.25em .8em .25em 0;border:0;
background:none;color:inherit;white-space:normal;overflow-wrap:anywhere}}
.cgrad-report th{{color:var(--soft);font-weight:500;width:5.5em;white-space:nowrap}}
.cgrad-report pre{{margin:0;padding:0;background:none;border:0;color:inherit;white-space:pre-wrap}}
.cgrad-report code{{background:none;border:0;padding:0;color:inherit;font-size:.92em}}
.cgrad-report a{{color:var(--link)}}
.cgrad-report figure{{margin:.6em 0}}
.cgrad-report .cgrad-row{{display:flex;flex-wrap:wrap;gap:.5em 1em}}
.cgrad-report .cgrad-narrow{{max-width:min(100%,18em)}}
.cgrad-report svg{{color:inherit}}
</style>"""


def html(report: Report) -> str:
    """Returns a report as one element with its own style: no script, no id, nothing outside it is touched."""
    verdict = "good" if report.ok else "bad"
    parts = [
        _STYLE,
        '<div class="cgrad-report">',
        f'<p class="cgrad-{verdict}">{_safe(report.headline)}</p>',
        *(_table(fault, titled=len(report.faults) > 1) for fault in report.faults),
        *(f"<p>note: {_safe(str(note))}</p>" for note in report.notes),
        *_pictures(report),
        f'<p class="cgrad-soft">{_safe(report.cost)}<br><code>{_safe(report.call)}</code></p>',
        "</div>",
    ]
    return "\n".join(parts)


def audit_html(found: Audit) -> str:
    """Returns what an audit met as a table, the worst first, each wrong one with its report."""
    head = "".join(f"<th>{name}</th>" for name in ("verdict", "function", "signature", "calls", "from", "defined at"))
    rows = []
    for met in found.met:
        caller = met.callers.most_common(1)[0][0] if met.callers else ""
        style = "cgrad-good" if met.ok else "cgrad-bad"
        cells = [met.name, met.signature, str(met.count), caller, met.place]
        listed = "".join(f"<td>{_safe(cell)}</td>" for cell in cells)
        rows.append(f'<tr><td class="{style}">{_safe(met.verdict)}</td>{listed}</tr>')
    verdict = "nothing wrong" if found.ok else f"{sum(not m.ok for m in found.met)} wrong"
    style = "cgrad-good" if found.ok else "cgrad-bad"
    title = f'<p class="{style}">{len(found.met)} custom gradients met: {verdict}</p>'
    details = "".join(html(report) for met in found.met if not met.ok for report in met.reports[:1])
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return f'{_STYLE}<div class="cgrad-report">{title}{table}</div>{details}'


def _safe(text: str) -> str:
    return escaping.escape(clean(text))


def _table(fault: Fault, titled: bool) -> str:
    rows = [
        ("fault", _safe(f"{fault.name} ({fault.code})") if titled else ""),
        ("argument", f"<code>{_safe(fault.argument)}</code>" if fault.argument else ""),
        ("seen", _safe(fault.seen)),
        ("due", _safe(fault.due)),
        ("why", _safe(fault.reason)),
        ("repair", f"<pre><code>{_safe(fault.repair)}</code></pre>"),
        ("page", f'<a href="{_safe(fault.page)}">{_safe(fault.page)}</a>'),
    ]
    cells = "".join(f'<tr><th scope="row">{name}</th><td>{value}</td></tr>' for name, value in rows if value)
    return f"<table><tbody>{cells}</tbody></table>"


# --- Jacobians ----------------------------------------------------------------------------------------------


def _pictures(report: Report) -> list[str]:
    """The pictures; a function that can no longer be evaluated costs them, not the report."""
    try:
        found = report.jacobians()
    except Exception as error:
        reason = _safe(f"{type(error).__name__}: {error}")
        return [f'<p class="cgrad-soft">no picture of the Jacobian: {reason}</p>']
    apart = [both for both in found if not _agrees(both)]
    return [_figure(both) for both in (apart or found)[:_SHOWN]]


def _agrees(both: Jacobians) -> bool:
    """Whether they are the same but for rounding; what is not finite is not."""
    return bool((np.abs(both.difference) <= _ROUNDING * _top(both)).all())


def _top(both: Jacobians) -> float:
    entries = np.abs(np.concatenate([both.rule.ravel(), both.truth.ravel()]))
    return float(entries[np.isfinite(entries)].max(initial=0.0)) or 1.0


def _panels(both: Jacobians) -> list[tuple[str, Matrix, float]]:
    """Title, matrix and full scale of the three pictures; rounding is no difference."""
    top = _top(both)
    shown = np.where(np.abs(both.difference) <= _ROUNDING * top, 0.0, both.difference)
    apart = float(np.abs(shown[np.isfinite(shown)]).max(initial=0.0))
    return [("the rule", both.rule, top), ("the truth", both.truth, top), ("their difference", shown, apart)]


def _figure(both: Jacobians) -> str:
    caption = (
        f"The Jacobian for <code>{_safe(both.argument)}</code>: a row for each entry of the output, a column for each "
        "entry of the input."
    )
    narrow = ' class="cgrad-narrow"' if len(both.columns) <= 12 else ""
    pictures = "".join(f"<div{narrow}>{_picture(both, *panel)}</div>" for panel in _panels(both))
    return (
        f'<figure><figcaption class="cgrad-soft">{caption}</figcaption><div class="cgrad-row">{pictures}</div></figure>'
    )


def _picture(both: Jacobians, title: str, matrix: Matrix, top: float) -> str:
    if not np.isfinite(matrix).any():
        return f'<p class="cgrad-soft">{title}: no numbers<br>of the size of the input</p>'
    if top == 0.0:
        return f'<p class="cgrad-soft">{title}: none</p>'
    return f"{heatmap(matrix, title, both.rows, both.columns, top)}<br>{scale(top)}"


def figure(found: Sequence[Jacobians], title: str) -> Figure:
    """Draws a row of three pictures for each input with matplotlib."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("report.plot() needs matplotlib: pip install 'tf-cgrad[plot]'") from error
    figure, axes = plt.subplots(len(found), 3, figsize=(10, 3 * len(found)), squeeze=False, layout="constrained")
    figure.suptitle(title)
    colours = plt.get_cmap("PuOr").with_extremes(bad="0.5")
    for row, both in zip(axes, found, strict=True):
        for axis, (name, matrix, top) in zip(row, _panels(both), strict=True):
            limit = top or 1.0
            image = axis.imshow(matrix, cmap=colours, vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest")
            axis.xaxis.get_major_locator().set_params(integer=True)
            axis.yaxis.get_major_locator().set_params(integer=True)
            axis.set_title(name)
            axis.set_xlabel(f"entry of {both.argument}")
            axis.set_ylabel("entry of the output")
            figure.colorbar(image, ax=axis)
    if "inline" in plt.get_backend():
        plt.close(figure)  # the notebook shows what the cell returns: once, not twice
    return figure
