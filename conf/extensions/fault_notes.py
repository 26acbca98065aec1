"""What the pages of the faults hold beyond the catalogue: a formula for the reason, and public reports of the kind."""

from __future__ import annotations

FORMULAS: dict[str, str] = {
    "wrong-arity": (
        r"(x_1, \ldots, x_n) \mapsto y \qquad \text{needs} \qquad u \mapsto \left( u^\T "
        r"\frac{\partial y}{\partial x_1},\; \ldots,\; u^\T \frac{\partial y}{\partial x_n} \right)"
    ),
    "structure-order": (
        r"p = \{ w, b \}, \quad \text{leaves}(p) = (p_b,\; p_w) \qquad \text{needs} \qquad \left( "
        r"u^\T \frac{\partial y}{\partial p_b},\; u^\T \frac{\partial y}{\partial p_w} \right)"
    ),
    "wrong-shape": (
        r"u \in \R^m, \quad J \in \R^{m \times n} \quad \Rightarrow \quad u^\T J \in \R^n, \quad "
        r"\text{as is } x"
    ),
    "jacobian-returned": (
        r"(u^\T J)_j = \sum_i u_i\, J_{ij} \qquad \text{and not} \qquad u_i\, J_{ij} \quad \text{or} "
        r"\quad J_{ij}"
    ),
    "not-unbroadcast": (
        r"y_{ij} = x_{ij} + b_j \quad \Rightarrow \quad \frac{\partial}{\partial b_j} \inner{u}{y} = "
        r"\sum_i u_{ij}"
    ),
    "wrong-reduction": r"\sum_i u_i\, a_i \;\ne\; \left( \sum_i u_i \right) \left( \sum_i a_i \right)",
    "none-returned": (
        r"\text{None} \;\text{ stands for }\; \frac{\partial y}{\partial x} = 0, \qquad \text{here} "
        r"\qquad \frac{\partial y}{\partial x} \ne 0"
    ),
    "nan-at-point": (
        r"m\, g'(x)\, u \quad \text{with} \quad m = 0, \; g'(x) = \infty \qquad \text{is} \qquad 0 "
        r"\cdot \infty = \text{NaN}"
    ),
    "missing-grad-fn": r"x \;\mapsto\; \left( f(x),\;\; u \mapsto u^\T J(x) \right)",
    "variables-missing": (
        r"y = w\, x \quad \Rightarrow \quad u^\T \frac{\partial y}{\partial w} = \sum_i u_i\, x_i "
        r"\;\ne\; 0"
    ),
    "variables-arity": (
        r"u \;\mapsto\; \left( u^\T \frac{\partial y}{\partial x},\;\; \left[ u^\T \frac{\partial "
        r"y}{\partial w_1}, \ldots, u^\T \frac{\partial y}{\partial w_k} \right] \right)"
    ),
    "variables-order": (
        r"\text{place } l \text{ of the list belongs to } w_l: \qquad g_l = u^\T \frac{\partial "
        r"y}{\partial w_l}"
    ),
    "upstream-ignored": r"r(u) = u^\T J \quad \Rightarrow \quad r(0) = 0, \quad r(2u) = 2\, r(u)",
    "nonlinear-in-upstream": (
        r"(u + v)^\T J = u^\T J + v^\T J, \qquad \text{but} \qquad \max(1, 0) + \max(-1, 0) \;\ne\; "
        r"\max(1 - 1,\, 0)"
    ),
    "output-ignored": (
        r"\frac{\partial}{\partial x} \left( \inner{u_1}{y_1} + \inner{u_2}{y_2} \right) = u_1^\T "
        r"\frac{\partial y_1}{\partial x} + u_2^\T \frac{\partial y_2}{\partial x}"
    ),
    "none-upstream": (
        r"\sum_k u_k^\T \frac{\partial y_k}{\partial x} \qquad \text{over the outputs } y_k \text{ "
        r"that have an upstream } u_k"
    ),
    "indexedslices-upstream": (
        r"u_{i} = \sum_{k \,:\, i_k = i} v_k \qquad \text{from rows } v_k \text{ and their places } "
        r"i_k"
    ),
    "local-derivative-missing": (r"\frac{\d L}{\d x} = \frac{\d L}{\d y}\, \frac{\d y}{\d x} = u\, f'(x) \;\ne\; u"),
    "transposed-jacobian": r"y = A x \quad \Rightarrow \quad \inner{u}{A\, \d x} = \inner{A^\T u}{\d x}",
    "constant-factor": r"r(u) = c\; u^\T J \qquad \text{with} \qquad c \ne 1",
    "missing-conjugate": (
        r"\d L = \mathrm{Re}\left( u^* f'(z)\, \d z \right) = \mathrm{Re}\left( g^* \d z "
        r"\right) \quad \Rightarrow \quad g = u\, f'(z)^*"
    ),
    "swapped-gradients": (
        r"y = a^2\, b \quad \Rightarrow \quad \left( u \frac{\partial y}{\partial a},\; u "
        r"\frac{\partial y}{\partial b} \right) = \left( 2ab\, u,\; a^2 u \right)"
    ),
    "wrong-value": (
        r"\inner{r(u)}{v} \;\ne\; \frac{\inner{u}{f(x + hv)} - \inner{u}{f(x - hv)}}{2h} \;\pm\; "
        r"\text{error bar}"
    ),
    "wrong-at-point": (
        r"\frac{\partial}{\partial x} \left( x \log(1 + y) \right) = \log(1 + y) \qquad \text{at } x "
        r"= 0, \text{ too}"
    ),
    "duplicate-argument": (
        r"y = a\, b \text{ at } a = b = x: \qquad \frac{\d y}{\d x} = b + a = 2x, \qquad \text{not} "
        r"\qquad 2x + 2x"
    ),
    "stale-state": r"r_1(u) = u^\T J(x_1) \qquad \text{and not} \qquad u^\T J(x_2)",
    "nondeterministic": (
        r"y_i = m_i\, x_i \quad \Rightarrow \quad (u^\T J)_i = m_i\, u_i \qquad \text{with the same } "
        r"m"
    ),
    "tape-broken": (
        r"x \;\to\; \text{a number} \;\to\; y: \qquad \text{the tape sees } \frac{\partial "
        r"y}{\partial x} = 0"
    ),
    "captured-tensor": (
        r"y = v\, (1 - r) \quad \Rightarrow \quad u^\T \frac{\partial y}{\partial r} = -u\, v, \qquad "
        r"\text{and the rule answers for } v \text{ alone}"
    ),
    "integer-input": (
        r"f'(x) = \lim_{h \to 0} \frac{f(x + h) - f(x)}{h} \qquad \text{needs an } x + h \text{ near "
        r"} x"
    ),
    "integer-output": (
        r"y \in \mathbb{Z} \quad \Rightarrow \quad \frac{\partial y}{\partial x} = 0 \qquad "
        r"\text{wherever it exists}"
    ),
    "non-differentiable-op": (
        r"\frac{\d}{\d x}\, \mathrm{round}(x) = 0 \qquad \text{for every } x \text{ but the steps}"
    ),
    "pfor-unfriendly": (
        r"\left( e_1^\T J,\; \ldots,\; e_m^\T J \right) \qquad \text{for all unit vectors } e_i "
        r"\text{ in one run: } u \text{ has no value yet}"
    ),
    "backward-not-differentiable": (
        r"\frac{\partial}{\partial x} \left( u^\T J(x) \right) \qquad \text{with } J \text{ a mere "
        r"number is} \qquad 0"
    ),
    "second-order-wrong": (
        r"R(x, u) = u\, f'(x) \quad \Rightarrow \quad \left( w \frac{\partial R}{\partial x},\; w "
        r"\frac{\partial R}{\partial u} \right) = \left( w\, u\, f''(x),\; w\, f'(x) \right)"
    ),
}
"""Why, in one line of mathematics, by the name of the fault; some have none."""

GEOMSTATS = "https://github.com/geomstats/geomstats/blob/"
TENSORFLOW = "https://github.com/tensorflow/tensorflow/"
REPORTS: dict[str, tuple[str, ...]] = {
    "wrong-arity": (
        TENSORFLOW + "issues/77559",
        TENSORFLOW + "issues/21756",
    ),
    "wrong-shape": (TENSORFLOW + "issues/60085",),
    "jacobian-returned": (
        GEOMSTATS + "07fbf1fb2088b5553ac293243031aae4b78a8858/geomstats/_backend/tensorflow/autodiff.py",
        TENSORFLOW + "pull/41927",
    ),
    "not-unbroadcast": (TENSORFLOW + "issues/127690",),
    "missing-grad-fn": ("https://tensorflow.google.cn/api_docs/python/tf/custom_gradient?hl=zh-CN",),
    "variables-missing": (
        "https://github.com/keras-team/keras/issues/18139",
        "https://github.com/google/qhbm-library/issues/78",
    ),
    "variables-arity": (
        TENSORFLOW + "issues/43535",
        TENSORFLOW + "issues/38622",
    ),
    "missing-conjugate": (TENSORFLOW + "issues/3348",),
    "tape-broken": (TENSORFLOW + "issues/32964",),
    "kwargs-unsupported": (TENSORFLOW + "issues/77559",),
    "integer-input": (TENSORFLOW + "issues/25386",),
    "integer-output": (
        TENSORFLOW + "issues/20524",
        TENSORFLOW + "issues/47083",
    ),
    "non-differentiable-op": (
        TENSORFLOW + "issues/5888",
        TENSORFLOW + "issues/2177",
        "https://www.developerload.com/differentiable-round-function-in-tensorflow",
    ),
    "graph-unfriendly": ("https://github.com/google/qhbm-library/issues/78",),
    "graph-only": (
        TENSORFLOW + "pull/58486",
        TENSORFLOW + "issues/44813",
    ),
    "pfor-unfriendly": (TENSORFLOW + "issues/33919",),
    "backward-not-differentiable": (TENSORFLOW + "issues/5876",),
}
"""Addresses beyond those of the cases, by the name of the fault."""

RECIPES: dict[str, tuple[str, ...]] = {
    "wrong-arity": ("how-many-gradients",),
    "structure-order": ("how-many-gradients",),
    "wrong-shape": (
        "shapes-and-dtypes",
        "what-backward-returns",
    ),
    "jacobian-returned": (
        "what-backward-returns",
        "jacobian-of-a-vector",
    ),
    "not-unbroadcast": ("shapes-and-dtypes",),
    "wrong-reduction": ("shapes-and-dtypes",),
    "wrong-dtype": (
        "shapes-and-dtypes",
        "distribution-and-precision",
    ),
    "none-returned": (
        "none-or-zeros",
        "gradient-is-none",
    ),
    "nan-at-point": (
        "nan-at-a-point",
        "degenerate-points",
    ),
    "missing-grad-fn": ("what-backward-returns",),
    "variables-missing": ("variables",),
    "variables-arity": ("variables",),
    "variables-order": ("variables",),
    "upstream-ignored": ("what-backward-returns",),
    "nonlinear-in-upstream": ("clip-inside",),
    "output-ignored": ("what-backward-returns",),
    "none-upstream": ("none-or-zeros",),
    "indexedslices-upstream": ("embedding",),
    "local-derivative-missing": (
        "what-backward-returns",
        "stop-gradient",
    ),
    "transposed-jacobian": ("what-backward-returns",),
    "constant-factor": ("check-a-gradient",),
    "missing-conjugate": ("complex",),
    "swapped-gradients": ("how-many-gradients",),
    "wrong-value": ("check-a-gradient",),
    "wrong-at-point": (
        "degenerate-points",
        "nan-at-a-point",
    ),
    "duplicate-argument": ("check-a-gradient",),
    "stale-state": ("methods-and-keras",),
    "nondeterministic": (
        "recompute",
        "check-a-gradient",
    ),
    "tape-broken": (
        "gradient-is-none",
        "outside-code",
    ),
    "captured-tensor": (
        "gradient-is-none",
        "recompute",
    ),
    "kwargs-unsupported": ("how-many-gradients",),
    "integer-input": ("gradient-is-none",),
    "integer-output": (
        "gradient-is-none",
        "straight-through",
    ),
    "non-differentiable-op": ("straight-through",),
    "non-tensor-argument": (
        "how-many-gradients",
        "methods-and-keras",
    ),
    "graph-unfriendly": ("eager-but-not-graph",),
    "graph-only": ("eager-but-not-graph",),
    "pfor-unfriendly": (
        "jacobian-of-a-vector",
        "eager-but-not-graph",
    ),
    "forward-watched": ("stop-gradient",),
    "backward-not-differentiable": (
        "second-derivatives",
        "outside-code",
    ),
    "second-order-wrong": ("second-derivatives",),
}
"""The recipes that a fault belongs to; a page shows those that there are."""

PREFERRED = {
    "wrong-arity": "a_strength_by_position_is_an_input",
    "nan-at-point": "guarded_after_the_root",
    "upstream-ignored": "a_skeleton_without_the_upstream",
}
"""The case to show, where the first is not the most telling one."""
