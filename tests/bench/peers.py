"""Side by side with the gradient checkers of TensorFlow, PyTorch and JAX: who sees a fault, who names it, at what cost.

    python -m venv peers && peers/bin/pip install torch jax numpy       (an environment of their own)
    python tests/bench/peers.py --python peers/bin/python [--markdown FILE] [--json FILE]

The same functions, written once against a small set of operations, with the same slips in their rules. Each checker
runs with its defaults, in float64, with second derivatives; tf.test.compute_gradient gives no verdict, so its two
Jacobians are compared with numpy.allclose, as a person would.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

RANDOM = np.random.default_rng(0)
A = RANDOM.normal(size=(3, 3))
SPIKE = np.ones(1000)
SPIKE[321] += 1e-3


@dataclass
class Trial:
    """A function, its rule, and the names that fit the slip; a control has none."""

    name: str
    inputs: list[Any]
    forward: Any
    rule: Any
    accepted: tuple[str, ...] = ()


def noise(size):
    return 1.0 + size * np.random.standard_normal()


X, B = RANDOM.normal(size=(4, 3)), RANDOM.normal(size=3)
V = np.array([0.7, -1.2, 2.0])
TRIALS = [
    Trial("Jacobian transposed", [V], lambda o, x: o.mv(A, x), lambda o, u, x: [o.mv(A, u)], ("transposed-jacobian",)),
    Trial("factor 2 missing", [V], lambda o, x: x * x, lambda o, u, x: [x * u], ("constant-factor",)),
    Trial("sign lost", [V], lambda o, x: o.cos(x), lambda o, u, x: [o.sin(x) * u], ("constant-factor",)),
    Trial("upstream ignored", [V], lambda o, x: x * x, lambda o, u, x: [2.0 * x], ("upstream-ignored",)),
    Trial(
        "one entry of 1000 off by 1e-3",
        [RANDOM.normal(size=1000)],
        lambda o, x: o.sin(x),
        lambda o, u, x: [o.cos(x) * u * o.const(SPIKE)],
        ("wrong-value",),
    ),
    Trial(
        "Jacobian returned",
        [V],
        lambda o, x: o.mv(A, x),
        lambda o, u, x: [o.const(A) + 0.0 * u],
        ("jacobian-returned",),
    ),
    Trial("sum over rows missing", [X, B], lambda o, x, b: x + b, lambda o, u, x, b: [u, u], ("not-unbroadcast",)),
    Trial("upstream squared", [V], lambda o, x: x * x, lambda o, u, x: [2.0 * x * u * u], ("nonlinear-in-upstream",)),
    Trial(
        "wrong for negative inputs",
        [V],
        lambda o, x: x * x * x,
        lambda o, u, x: [o.where(x < 0, 2.0 * x * x, 3.0 * x * x) * u],
        ("wrong-value",),
    ),
    Trial(
        "second derivative lost",
        [V],
        lambda o, x: x * x * x,
        lambda o, u, x: [3.0 * o.stop(x) * o.stop(x) * u],
        ("backward-not-differentiable",),
    ),
    Trial("noise of 1e-9", [V], lambda o, x: x * x, lambda o, u, x: [2.0 * x * u * noise(1e-9)], ("nondeterministic",)),
    Trial("noise of 1e-2", [V], lambda o, x: x * x, lambda o, u, x: [2.0 * x * u * noise(1e-2)], ("nondeterministic",)),
    Trial("float32 returned", [V], lambda o, x: x * x, lambda o, u, x: [o.single(2.0 * x * u)], ("wrong-dtype",)),
    Trial(
        "NaN in one entry",
        [V],
        lambda o, x: x * x,
        lambda o, u, x: [2.0 * x * u * o.const(np.array([1.0, np.nan, 1.0]))],
        ("nan-at-point",),
    ),
    Trial(
        "None for the second input", [V, B], lambda o, a, b: a * b, lambda o, u, a, b: [u * b, None], ("none-returned",)
    ),
    Trial(
        "right in the first row only",
        [X],
        lambda o, x: x * x,
        lambda o, u, x: [2.0 * x * u * o.const(np.eye(4)[:, :1])],
        ("wrong-value",),
    ),
    Trial(
        "gradients swapped",
        [V, B],
        lambda o, a, b: a * a * b,
        lambda o, u, a, b: [u * a * a, 2.0 * a * b * u],
        ("swapped-gradients",),
    ),
    Trial("right: x^2", [V], lambda o, x: x * x, lambda o, u, x: [2.0 * x * u]),
    Trial("right: A x", [V], lambda o, x: o.mv(A, x), lambda o, u, x: [o.mv(A.T, u)]),
    Trial("right: a b", [V, B], lambda o, a, b: a * b, lambda o, u, a, b: [u * b, u * a]),
    Trial("right: x + b", [X, B], lambda o, x, b: x + b, lambda o, u, x, b: [u, o.sum0(u)]),
    Trial("right: cos", [V], lambda o, x: o.cos(x), lambda o, u, x: [-o.sin(x) * u]),
]
LARGE = RANDOM.normal(size=(1000, 1000)) / np.sqrt(1000)
COST = Trial(
    "tanh(W x), n = 1000",
    [RANDOM.normal(size=1000)],
    lambda o, x: o.tanh(o.mv(LARGE, x)),
    lambda o, u, x: [o.mv(LARGE.T, u * (1.0 - o.tanh(o.mv(LARGE, x)) * o.tanh(o.mv(LARGE, x))))],
)


# --- each framework: its operations, a function with a rule, its checkers ---------------------------------------------


def tensorflow():
    import tensorflow as tf

    import cgrad

    class Operations:
        sin, cos, tanh, where, stop = tf.sin, tf.cos, tf.tanh, tf.where, tf.stop_gradient
        const = staticmethod(lambda a: tf.constant(a, tf.float64))
        mv = staticmethod(lambda a, x: tf.linalg.matvec(tf.constant(a), x))
        single = staticmethod(lambda x: tf.cast(x, tf.float32))
        sum0 = staticmethod(lambda x: tf.reduce_sum(x, 0))

    def build(trial):
        @tf.custom_gradient
        def f(*x):
            return trial.forward(Operations, *x), lambda u: trial.rule(Operations, u, *x)

        return f, [tf.constant(v) for v in trial.inputs]

    def ours(trial):
        f, inputs = build(trial)
        report = cgrad.gradcheck(f, *inputs)
        return not report.ok, [fault.name for fault in report.faults]

    def by_eye(trial):
        f, inputs = build(trial)
        theory, numbers = tf.test.compute_gradient(f, inputs)
        return not all(np.allclose(t, n, rtol=1e-3, atol=1e-3) for t, n in zip(theory, numbers, strict=True)), []

    def first(trial):
        f, inputs = build(trial)
        cgrad.gradcheck(f, *inputs, order=1, modes=("eager",))

    def compute(trial):
        f, inputs = build(trial)
        tf.test.compute_gradient(f, inputs)

    return {"cgrad.gradcheck": (ours, first), "tf.test.compute_gradient": (by_eye, compute)}


def torch():
    import torch as th

    class Operations:
        sin, cos, tanh, where = th.sin, th.cos, th.tanh, th.where
        const = staticmethod(lambda a: th.tensor(np.ascontiguousarray(a), dtype=th.float64))
        mv = staticmethod(lambda a, x: th.tensor(np.ascontiguousarray(a)) @ x)
        single = staticmethod(lambda x: x.to(th.float32))
        stop = staticmethod(lambda x: x.detach())
        sum0 = staticmethod(lambda x: x.sum(0))

    def build(trial):
        class Function(th.autograd.Function):
            @staticmethod
            def forward(context, *x):
                context.save_for_backward(*x)
                return trial.forward(Operations, *x)

            @staticmethod
            def backward(context, u):
                return tuple(trial.rule(Operations, u, *context.saved_tensors))

        return Function.apply, [th.tensor(v, requires_grad=True) for v in trial.inputs]

    def checker(fast):
        def check(trial):
            f, inputs = build(trial)
            th.autograd.gradcheck(f, inputs, fast_mode=fast)
            th.autograd.gradgradcheck(f, inputs, fast_mode=fast)
            return False, []

        def first(trial):
            f, inputs = build(trial)
            th.autograd.gradcheck(f, inputs, fast_mode=fast)

        return check, first

    return {"torch gradcheck": checker(False), "torch gradcheck, fast": checker(True)}


def jax():
    import jax as jx
    import jax.numpy as jnp
    from jax.test_util import check_grads

    jx.config.update("jax_enable_x64", True)

    class Operations:
        sin, cos, tanh, where, stop = jnp.sin, jnp.cos, jnp.tanh, jnp.where, jx.lax.stop_gradient
        const = staticmethod(jnp.asarray)
        mv = staticmethod(lambda a, x: jnp.asarray(a) @ x)
        single = staticmethod(lambda x: x.astype(jnp.float32))
        sum0 = staticmethod(lambda x: x.sum(0))

    def build(trial):
        f = jx.custom_vjp(lambda *x: trial.forward(Operations, *x))
        f.defvjp(
            lambda *x: (trial.forward(Operations, *x), x),
            lambda x, u: tuple(trial.rule(Operations, u, *x)),
        )
        return f, tuple(jnp.asarray(v) for v in trial.inputs)

    def check(trial):
        f, inputs = build(trial)
        check_grads(f, inputs, order=2, modes=["rev"])
        return False, []

    def first(trial):
        f, inputs = build(trial)
        check_grads(f, inputs, order=1, modes=["rev"])

    return {"jax check_grads": (check, first)}


def run(framework):
    """Every trial with every checker of one framework: seen, names, milliseconds."""
    found = {}
    for name, (check, first) in {"tensorflow": tensorflow, "torch": torch, "jax": jax}[framework]().items():
        rows = {}
        for trial in TRIALS:
            try:
                seen, names = check(trial)
            except Exception:  # a checker says no by raising
                seen, names = True, []
            rows[trial.name] = {"seen": bool(seen), "named": bool(set(names) & set(trial.accepted))}
        seconds = []
        for _ in range(2 if "compute" in name or name == "torch gradcheck" else 9):
            start = time.perf_counter()
            first(COST)
            seconds.append(time.perf_counter() - start)
        found[name] = {"rows": rows, "ms": round(1000 * statistics.median(seconds), 2)}
    return found


def markdown(found):
    head = "| fault | " + " | ".join(found) + " |"
    lines = [head, "|---" * (len(found) + 1) + "|"]
    for trial in TRIALS:
        cells = []
        for result in found.values():
            row = result["rows"][trial.name]
            said = "named" if row["named"] else "seen" if row["seen"] else "-"
            cells.append(said if trial.accepted else ("false alarm" if row["seen"] else "clean"))
        lines.append(f"| {trial.name} | " + " | ".join(cells) + " |")
    lines.append("| " + COST.name + ", first order, ms | " + " | ".join(str(r["ms"]) for r in found.values()) + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", help="an interpreter that has torch and jax")
    parser.add_argument("--worker", choices=["torch", "jax"])
    parser.add_argument("--markdown")
    parser.add_argument("--json")
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(run(options.worker)))
        return
    found = run("tensorflow")
    for framework in ("torch", "jax") if options.python else ():
        command = [options.python, __file__, "--worker", framework]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found |= json.loads(done.stdout.splitlines()[-1])
    print(markdown(found))
    if options.markdown:
        with open(options.markdown, "w") as file:
            file.write(markdown(found))
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"date": datetime.date.today().isoformat(), "checkers": found}, file, indent=2)
            file.write("\n")


if __name__ == "__main__":
    sys.exit(main())
