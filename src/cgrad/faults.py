"""The catalogue of faults, as data: what can be wrong with a hand-written gradient, why, and how to repair it.

Importable without TensorFlow, so that ``python -m cgrad explain`` and the documentation need nothing else.
Notation: f maps x to y, J = dy/dx is its Jacobian, u is the upstream gradient (the cotangent, of the shape of y),
and a rule has to return u^T J, of the shape of x.
"""

from __future__ import annotations

from dataclasses import dataclass

SITE = "https://tf-cgrad.readthedocs.io/en/latest/"
"""The address of the documentation; no other line holds it."""


@dataclass(frozen=True)
class Entry:
    """One kind of fault.

    Attributes:
        code: ``CG`` and three digits; never reused.
        name: the word a report carries in ``fault.name``.
        summary: what happened, in one line.
        why: the reason, in a line or two of mathematics.
        repair: what to do about it, in general; a report says it for the function at hand.
        snippet: the repaired rule in the shortest form, as code.
    """

    code: str
    name: str
    summary: str
    why: str
    repair: str
    snippet: str

    @property
    def page(self) -> str:
        """The address of the page about this fault."""
        return f"{SITE}faults/{self.name}.html"

    def __str__(self) -> str:
        code = "\n".join("    " + line for line in self.snippet.splitlines())
        return (
            f"{self.code} {self.name}\n  {self.summary}\n\nWhy\n  {self.why}\n\n"
            f"Repair\n  {self.repair}\n\n{code}\n\n{self.page}"
        )


CATALOGUE: tuple[Entry, ...] = (
    # --- contract: what the rule returns -------------------------------------------------------
    Entry(
        "CG101",
        "wrong-arity",
        "The rule returns another number of gradients than the function has inputs.",
        "Every positional tensor is an input and has one gradient: f(x_1, ..., x_n) needs "
        "(u^T dy/dx_1, ..., u^T dy/dx_n). A list counts one input per entry; a list of scalars is not a vector.",
        "Return one gradient per positional input, in order; keep settings out of the arguments.",
        "def grad(upstream):\n    return upstream * b, upstream * a   # f(a, b): two inputs, two gradients",
    ),
    Entry(
        "CG102",
        "structure-order",
        "The gradients of a structure (a dict, say) come back in another order than its leaves.",
        "Structures are flattened in sorted key order, whatever order the keys were written in.",
        "Return the gradients in the structure that came in: a dict for a dict.",
        "def grad(upstream):\n    return {'w': upstream * p['b'], 'b': upstream * p['w']}",
    ),
    Entry(
        "CG103",
        "wrong-shape",
        "A gradient does not have the shape of its input.",
        "u^T J has one entry for each entry of x, so its shape is that of x. TensorFlow does not check it.",
        "Return a tensor of exactly the shape of the input.",
        "def grad(upstream):\n    return tf.reshape(g, tf.shape(x))",
    ),
    Entry(
        "CG104",
        "jacobian-returned",
        "The rule returns the Jacobian, or J * u element by element, where u^T J is due.",
        "(u^T J)_j = sum_i u_i J_ij: the axes of the output are summed away. A product without the sum keeps them.",
        "Contract the Jacobian with the upstream over the axes of the output.",
        "def grad(upstream):\n    return tf.linalg.matvec(J, upstream, transpose_a=True)",
    ),
    Entry(
        "CG105",
        "not-unbroadcast",
        "The sum over a broadcast axis is missing.",
        "An entry that broadcasting repeated feeds several outputs; its gradient is the sum of theirs: "
        "y_ij = x_ij + b_j gives (u^T J)_j = sum_i u_ij.",
        "Sum the gradient over the axes that broadcasting added or stretched.",
        "def grad(upstream):\n    return upstream, tf.reduce_sum(upstream, axis=0)   # y = x + b",
    ),
    Entry(
        "CG106",
        "wrong-reduction",
        "The rule sums over too many axes, over the wrong ones, or before it multiplies.",
        "Only the axes an input lacks are summed, and sum_i u_i a_i is not (sum_i u_i)(sum_i a_i).",
        "Multiply first, then sum over exactly the axes that the input does not have.",
        "def grad(upstream):\n    return tf.reduce_sum(upstream * x, axis=0)",
    ),
    Entry(
        "CG107",
        "wrong-dtype",
        "A gradient does not have the dtype of its input.",
        "The gradient is added to others of the input's dtype; TensorFlow hands it on unchecked.",
        "Compute in any precision, return in the input's dtype.",
        "def grad(upstream):\n    return tf.cast(g, x.dtype)",
    ),
    Entry(
        "CG108",
        "none-returned",
        "The rule returns None for an input that matters.",
        "None says that the output does not depend on the input: dy/dx = 0. Here it does depend on it.",
        "Return the gradient; None only for an input without influence.",
        "def grad(upstream):\n    return upstream * b, upstream * a",
    ),
    Entry(
        "CG109",
        "nan-at-point",
        "A gradient is NaN or infinite where the function has a finite value or derivative.",
        "A product like 0 * inf, or 0 / 0, in the rule (or in the branch tf.where did not take) has no value.",
        "Make the argument safe before the singular operation, not after it.",
        "safe = tf.where(x > 0, x, 1.0)\nreturn tf.where(x > 0, upstream * 0.5 / tf.sqrt(safe), 0.0)",
    ),
    Entry(
        "CG110",
        "missing-grad-fn",
        "The decorated function does not return (value, rule).",
        "tf.custom_gradient needs both: the value y and the function that maps u to u^T J.",
        "Return the value and the rule.",
        "def f(x):\n    def grad(upstream):\n        return 2.0 * x * upstream\n    return x * x, grad",
    ),
    Entry(
        "CG111",
        "raises",
        "The function or its rule raises.",
        "There is no value to compare.",
        "The report shows the exception and its place.",
        "raise ...",
    ),
    # --- variables ------------------------------------------------------------------------------
    Entry(
        "CG201",
        "variables-missing",
        "The function reads a trainable variable, and the rule has no `variables` argument.",
        "A captured variable is an input too: its gradient u^T dy/dw comes from the rule, or from nowhere.",
        "Accept `variables` and return (input gradients, variable gradients), or pass the variable as an argument.",
        "def grad(upstream, variables=None):\n    return upstream * w, [tf.reduce_sum(upstream * x)]",
    ),
    Entry(
        "CG202",
        "variables-arity",
        "The rule returns another number of variable gradients than there are variables.",
        "With variables a rule returns a pair: the gradients of the inputs, and a list with one for each variable.",
        "Return (input gradients, list of variable gradients).",
        "def grad(upstream, variables=None):\n    return upstream * w, [tf.reduce_sum(upstream * x)]",
    ),
    Entry(
        "CG203",
        "variables-order",
        "The variables' gradients come in another order than `variables`.",
        "The order of `variables` is TensorFlow's: that of a set in eager mode, by name in a graph.",
        "Look each gradient up by its variable.",
        "by_ref = {w.ref(): dw, b.ref(): db}\nreturn dx, [by_ref[v.ref()] for v in variables]",
    ),
    # --- the upstream gradient --------------------------------------------------------------------
    Entry(
        "CG301",
        "upstream-ignored",
        "The rule does not use the upstream gradient.",
        "u^T J is linear in u and 0 for u = 0. A rule without u is right only where u happens to be 1.",
        "Multiply by the upstream; with an inner tape, pass it as output_gradients.",
        "def grad(upstream):\n    return upstream * 2.0 * x",
    ),
    Entry(
        "CG302",
        "nonlinear-in-upstream",
        "The rule is not linear in the upstream gradient.",
        "u -> u^T J is linear for every J: no Jacobian gives clip(u), u**2 or relu(u).",
        "Make it linear; if it is meant so (clipping), check it with surrogate=True.",
        "def grad(upstream):\n    return upstream * tf.cast(x > 0, x.dtype)",
    ),
    Entry(
        "CG303",
        "output-ignored",
        "One of several outputs has no part in the gradient.",
        "With outputs y_1, y_2 the gradient is u_1^T dy_1/dx + u_2^T dy_2/dx.",
        "Add the contribution of every output.",
        "def grad(u1, u2):\n    return u1 * b + u2, u1 * a + 2.0 * b * u2   # (a * b, a + b**2)",
    ),
    Entry(
        "CG304",
        "none-upstream",
        "The rule cannot take the None it is handed for an output without a gradient.",
        "Through tf.function the upstream of an integer (or unused) output is None.",
        "Leave that upstream alone, or replace None by zeros.",
        "def grad(up, up_index):\n    return 2.0 * x * up   # up_index belongs to an integer output",
    ),
    Entry(
        "CG305",
        "indexedslices-upstream",
        "The rule cannot take the IndexedSlices it is handed.",
        "After tf.gather (an embedding lookup) the upstream is a sparse tf.IndexedSlices.",
        "Convert the upstream to a tensor first.",
        "def grad(upstream):\n    upstream = tf.convert_to_tensor(upstream)\n    return 0.5 * upstream",
    ),
    # --- values -------------------------------------------------------------------------------------
    Entry(
        "CG401",
        "local-derivative-missing",
        "The upstream is passed on without the local derivative.",
        "A rule replaces the derivative, it is not applied after it: u^T J, not u.",
        "Multiply by the derivative of the forward pass.",
        "def grad(upstream):\n    return upstream * tf.cast(x > 0, x.dtype)   # relu",
    ),
    Entry(
        "CG402",
        "transposed-jacobian",
        "The rule computes J u where u^T J (that is, J^T u) is due.",
        "For y = A x the rule is A^T u. A square A hides the slip: the shapes agree.",
        "Transpose (for a filter: flip) the linear map.",
        "def grad(upstream):\n    return tf.matmul(upstream, w, transpose_b=True)   # y = x @ w",
    ),
    Entry(
        "CG403",
        "constant-factor",
        "The gradient is off by a constant factor (-1 is a lost sign).",
        "The rule returns c * u^T J with c other than 1.",
        "Divide by the factor that the report names.",
        "def grad(upstream):\n    return 2.0 * x * upstream   # x**2",
    ),
    Entry(
        "CG404",
        "missing-conjugate",
        "The complex derivative lacks the conjugate that TensorFlow's convention asks for.",
        "For holomorphic f TensorFlow's gradient is u * conj(f'(z)), the direction of steepest ascent.",
        "Conjugate the local derivative.",
        "def grad(upstream):\n    return upstream * tf.math.conj(2.0 * z)   # z**2",
    ),
    Entry(
        "CG405",
        "swapped-gradients",
        "The gradients of two inputs are exchanged.",
        "The rule's results belong to the inputs by position.",
        "Return them in the order of the arguments.",
        "def grad(upstream):\n    return upstream * b, upstream * a   # a * b",
    ),
    Entry(
        "CG406",
        "wrong-value",
        "The gradient has a wrong value.",
        "It differs from u^T J by more than the error bar of the reference.",
        "Derive the rule again; the report shows the entries that differ.",
        "def grad(upstream):\n    return upstream * 3.0 * x**2   # x**3",
    ),
    Entry(
        "CG407",
        "wrong-at-point",
        "The gradient is right nearby and wrong at this point.",
        "A mask or a tf.where takes the wrong branch exactly here, so the derivative of the other branch is returned.",
        "Look at the comparison at this value: < or <=, 0 times log 0, a guarded branch.",
        "inside = (x >= low) & (x <= high)\nreturn upstream * tf.cast(inside, x.dtype)",
    ),
    Entry(
        "CG408",
        "duplicate-argument",
        "The gradient is wrong when one tensor fills two arguments.",
        "An inner tape asked for [d/da, d/db] with a and b the same tensor answers the full derivative twice.",
        "Give the inner tape copies.",
        "inner = [tf.identity(a) for a in args]\nwith tf.GradientTape() as tape:\n    tape.watch(inner)",
    ),
    Entry(
        "CG409",
        "stale-state",
        "The rule uses what a later call left behind.",
        "State kept outside the call (self.saved, a list, a variable) belongs to the last call, not to this one.",
        "Let the rule close over the values of its own call.",
        "def f(x):\n    def grad(upstream):\n        return 2.0 * x * upstream   # x, not self.saved\n"
        "    return x * x, grad",
    ),
    Entry(
        "CG410",
        "nondeterministic",
        "Two identical calls give different results.",
        "A derivative belongs to one function: random numbers drawn again in the rule make another one.",
        "Draw once in the forward pass and let the rule close over the draw, or use tf.random.stateless_*.",
        "mask = tf.cast(tf.random.stateless_uniform(tf.shape(x), seed) < 0.5, x.dtype)\n"
        "return x * mask, lambda upstream: upstream * mask",
    ),
    # --- connection -----------------------------------------------------------------------------------
    Entry(
        "CG501",
        "tape-broken",
        "The path from input to output leaves TensorFlow.",
        "The tape records TensorFlow operations only: after .numpy(), NumPy, float(), assign or py_function "
        "the result is a constant.",
        "Stay in TensorFlow, or give the step a rule of its own.",
        "@cgrad.custom_vjp\ndef f(x):\n    y = tf.numpy_function(outside, [x], x.dtype)\n    return y, grad",
    ),
    Entry(
        "CG502",
        "captured-tensor",
        "A tensor that matters comes by closure and gets no gradient.",
        "A rule answers for its arguments only; what the function closes over counts as a constant.",
        "Make the tensor an argument.",
        "@tf.custom_gradient\ndef step(v, rate):\n    return v * rate, lambda u: (u * rate, u * v)",
    ),
    Entry(
        "CG503",
        "kwargs-unsupported",
        "Tensors passed by keyword lose the rule, or raise.",
        "tf.custom_gradient records positional arguments only; a graph refuses keywords.",
        "Pass tensors by position, or use cgrad.custom_vjp, which binds keywords.",
        "y = f(x)   # not f(x=x)",
    ),
    Entry(
        "CG504",
        "integer-input",
        "An integer input where a derivative was expected.",
        "Integers are not differentiable: the tape does not watch them, and the rule is never called.",
        "Pass floating-point tensors.",
        "x = tf.cast(x, tf.float32)",
    ),
    Entry(
        "CG505",
        "integer-output",
        "An integer output where a derivative was expected.",
        "No gradient flows out of an integer tensor, so the rule is never called.",
        "Return a floating-point tensor from the function that has the rule.",
        "return tf.cast(tf.cast(x, tf.int32), x.dtype), lambda upstream: upstream",
    ),
    Entry(
        "CG506",
        "non-differentiable-op",
        "An operation whose derivative is zero or undefined: round, sign, argmax, a comparison, a cast.",
        "The function is a staircase: its derivative is 0 almost everywhere, so nothing is learnt through it.",
        "Give it a surrogate, for example straight-through.",
        "@tf.custom_gradient\ndef quantise(x):\n    return tf.round(x), lambda upstream: upstream",
    ),
    Entry(
        "CG507",
        "non-tensor-argument",
        "An argument that cannot become a tensor.",
        "tf.custom_gradient converts every positional argument to a tensor.",
        "Close over it, or name it with nondiff= in cgrad.custom_vjp.",
        "@cgrad.custom_vjp(nondiff='config')\ndef f(x, config): ...",
    ),
    # --- modes ----------------------------------------------------------------------------------------
    Entry(
        "CG601",
        "graph-unfriendly",
        "Right in eager mode; in tf.function, or with unknown sizes, it raises or differs.",
        "While a graph is traced a tensor has no value: .numpy(), `if tensor` and a static shape of None fail there.",
        "Use TensorFlow operations: tf.shape(x) for x.shape, tf.cond or tf.where for if.",
        "n = tf.cast(tf.size(upstream), x.dtype)   # not upstream.shape[0]",
    ),
    Entry(
        "CG602",
        "graph-only",
        "Right in tf.function, raises in eager mode.",
        "tf.gradients and its kin exist in graphs only.",
        "Use a tf.GradientTape inside the rule.",
        "with tf.GradientTape() as tape:\n    tape.watch(x)\n    y = g(x)\n"
        "return tape.gradient(y, x, output_gradients=upstream)",
    ),
    Entry(
        "CG603",
        "pfor-unfriendly",
        "tape.gradient works, the vectorised Jacobian does not.",
        "tape.jacobian traces the rule once with a symbolic upstream and runs it for all unit vectors at once.",
        "Keep the rule in TensorFlow operations; no .numpy() on the upstream, no variable made inside.",
        "def grad(upstream):\n    return tf.linalg.matvec(J, upstream, transpose_a=True)",
    ),
    Entry(
        "CG604",
        "forward-watched",
        "An operation of the forward pass has no gradient, although the rule never needs it.",
        "The outer tape watches the forward pass too, and a tf.function there builds its own gradient.",
        "Stop the gradient on the way into that operation.",
        "y = kernel(tf.stop_gradient(x))",
    ),
    # --- second order ---------------------------------------------------------------------------------
    Entry(
        "CG701",
        "backward-not-differentiable",
        "The second derivative is None, raises, or is silently that of a constant.",
        "The second derivative differentiates the rule: a rule computed by NumPy is a constant to the tape.",
        "Write the rule in differentiable TensorFlow operations, or give it a rule of its own.",
        "def grad(upstream):\n    return upstream * tf.sigmoid(x)   # not np.exp(x.numpy())",
    ),
    Entry(
        "CG702",
        "second-order-wrong",
        "The first derivative is right, the second is a wrong number.",
        "The rule is itself a function of (x, u); its own derivative is wrong.",
        "Check the rule as a function: cgrad.gradcheck(lambda x, u: rule(x)(u), x, u).",
        "return up * e, lambda up2: (up2 * up * e, up2 * e)   # the rule of (x, up) -> up * exp(x)",
    ),
)
"""Every kind of fault, in the order of the codes."""

BY_NAME: dict[str, Entry] = {entry.name: entry for entry in CATALOGUE}
"""The catalogue by the name of the fault."""

BY_CODE: dict[str, Entry] = {entry.code: entry for entry in CATALOGUE}
"""The catalogue by code."""


def find(key: str) -> Entry:
    """Returns the entry with this code or name.

    Args:
        key: a code (``"CG105"``, in any case) or a name (``"not-unbroadcast"``).

    Raises:
        KeyError: if there is none; the message names the nearest ones.

    Examples:
        >>> from cgrad import faults
        >>> faults.find("cg105").name
        'not-unbroadcast'
        >>> faults.find("not-unbroadcast").code
        'CG105'
    """
    import difflib

    entry = BY_CODE.get(key.strip().upper()) or BY_NAME.get(key.strip().lower())
    if entry is None:
        near = difflib.get_close_matches(key.lower(), [*BY_NAME, *(code.lower() for code in BY_CODE)], 3, 0.5)
        hint = f"; near it: {', '.join(near)}" if near else ""
        raise KeyError(f"no fault has the code or name {key!r}{hint}")
    return entry
