"""Figures of the question's pages, as inline SVG."""

import html


def flow(upstream, jacobian):
    """The path of the upstream gradient u through f: what comes in from y, what goes out to x."""
    product = upstream @ jacobian
    shown = {
        name: "(" + ", ".join(f"{v:g}" for v in values) + ")" for name, values in (("u", upstream), ("p", product))
    }
    label = (
        f"Forward, x goes through f to y. Backward, u = {shown['u']} comes from y and u^T J = {shown['p']} goes to x."
    )
    boxes = "".join(
        f'<rect x="{x}" y="38" width="{w}" height="40" rx="6" fill="none" stroke="currentColor"/>'
        f'<text x="{x + w / 2}" y="63" text-anchor="middle" fill="currentColor">{text}</text>'
        for x, w, text in ((10, 60, "x"), (170, 60, "f"), (330, 60, "y"))
    )
    return f"""<svg role="img" aria-label="{html.escape(label)}" viewBox="0 0 400 150" width="400" height="150"
     style="max-width:100%;height:auto" font-family="inherit" font-size="15" xmlns="http://www.w3.org/2000/svg">
  <defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">
    <path d="M0 0 8 4 0 8z" fill="currentColor"/></marker></defs>
  {boxes}
  <g stroke="currentColor" fill="none" marker-end="url(#tip)">
    <path d="M70 50 168 50"/><path d="M230 50 328 50"/>
    <path d="M330 70 232 70" stroke-dasharray="4 3"/><path d="M170 70 72 70" stroke-dasharray="4 3"/>
  </g>
  <g fill="currentColor" text-anchor="middle" font-size="14">
    <text x="120" y="32">forward</text>
    <text class="upstream" x="280" y="104">u = {shown["u"]}</text>
    <text class="product" x="120" y="104">u&#7488;J = {shown["p"]}</text>
    <text x="200" y="136">backward: the rule turns u into u&#7488;J</text>
  </g>
</svg>"""
