"""What checks leave behind, and what the check of a large model takes: ``python tests/bench/memory.py``.

    python tests/bench/memory.py [growth] [large] [--checks 2000] [--parameters 5e7] [--markdown FILE]

growth: the memory of a process before and after many full checks, beside a process in which TensorFlow alone traces,
runs and differentiates the same function in the same modes. large: the peak of a check of a model, in multiples of what
its parameters and one gradient of them take. Each measurement is a process of its own. Linux only: it reads /proc.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import pathlib
import subprocess
import sys

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import numpy as np
import tensorflow as tf

import cgrad

MB = 2**20
WARM = 20


def status(name):
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise KeyError(name)


def peak_of(thunk):
    """How much more memory a call takes at its worst moment than before it."""
    gc.collect()
    before = status("VmRSS")
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    thunk()
    return status("VmHWM") - before


@tf.custom_gradient
def square(x):
    return x * x, lambda u: 2.0 * x * u


X = tf.constant([1.0, 2.0, 3.0])
U = np.array([1.0, -2.0, 0.5])

# --- growth: TensorFlow alone -------------------------------------------------------------------------------------


def gradient(x, u):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = square(x)
    return tape.gradient(y, x, output_gradients=u), y


def second(x, u, w):
    with tf.GradientTape() as tape:
        tape.watch(x)
        g, _ = gradient(x, u)
    return tape.gradient(g, x, output_gradients=w)


def several(x, u):
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = square(x)
    return tf.vectorized_map(lambda row: tape.gradient(y, x, output_gradients=row), u), y


def traced(body, *args, unknown=False, xla=None):
    function = tf.function(body, jit_compile=xla, autograph=False)
    specs = [tf.TensorSpec([None] * len(a.shape) if unknown else a.shape, a.dtype) for a in args]
    return function.get_concrete_function(*specs)(*args)


def tensorflow_alone():
    u, x64 = tf.constant(U, tf.float32), tf.cast(X, tf.float64)
    traced(gradient, X, u, unknown=True)
    traced(gradient, X, u, xla=True)
    traced(several, X, tf.stack([u, u]))
    traced(second, x64, tf.constant(U), tf.constant(U))


GROWTH = {
    "tensorflow": tensorflow_alone,
    "cgrad": lambda: cgrad.gradcheck(square, X),
    "cgrad, order=1, eager": lambda: cgrad.gradcheck(square, X, order=1, modes=("eager",)),
}


def growth(who, checks):
    for _ in range(WARM):
        GROWTH[who]()
    gc.collect()
    before = status("VmRSS")
    for _ in range(checks):
        GROWTH[who]()
    gc.collect()
    return {"before": before / MB, "after": status("VmRSS") / MB}


# --- large --------------------------------------------------------------------------------------------------------

OPTIONS = {
    "order=1, eager": {"order": 1, "modes": ("eager",)},
    "order=1, every mode": {"order": 1},
    "order=2, every mode": {},
}


def model_of(parameters):
    side = int(parameters**0.5)
    w = tf.Variable(tf.random.stateless_normal((side, side), [1, 2]) / side**0.5)
    return (lambda x: square(tf.linalg.matvec(w, x))), w, tf.random.stateless_normal((side,), [1, 3])


def large(which, parameters):
    model, w, x = model_of(9)
    cgrad.gradcheck(model, x, **OPTIONS[which])  # what the first check of a process loads is no cost of the size
    model, w, x = model_of(parameters)
    own = w.shape.num_elements() * 4

    def step():
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(model(x))
        tape.gradient(y, w)

    plain = own + peak_of(step)
    reports = []
    taken = own + peak_of(lambda: reports.append(cgrad.gradcheck(model, x, **OPTIONS[which])))
    assert reports[0], reports[0]
    return {"parameters": own / MB, "gradient": plain / MB, "check": taken / MB, "seconds": reports[0].seconds}


# --- the tables -----------------------------------------------------------------------------------------------------


def apart(*arguments):
    """One measurement in a process of its own."""
    command = [sys.executable, __file__, "--one", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def growth_table(checks, kept):
    lines = [f"| {checks:,} times | before | after | each |", "|---|---:|---:|---:|"]
    for who in GROWTH:
        found = kept[f"growth / {who}"] = apart("growth", who, checks)
        each = (found["after"] - found["before"]) * 1024 / checks
        lines.append(f"| {who} | {found['before']:.0f} MB | {found['after']:.0f} MB | {each:.0f} KB |")
    return lines


def large_table(parameters, kept):
    lines = [
        f"| check of {parameters / 1e6:.0f} million parameters | parameters | and a gradient | check | ratio | time |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for which in OPTIONS:
        found = kept[f"large / {which}"] = apart("large", which, parameters)
        ratio = found["check"] / found["gradient"]
        sizes = " | ".join(f"{found[key]:.0f} MB" for key in ("parameters", "gradient", "check"))
        lines.append(f"| {which} | {sizes} | {ratio:.1f}x | {found['seconds']:.0f} s |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["growth", "large"], help="both without")
    parser.add_argument("--checks", type=int, default=2000)
    parser.add_argument("--parameters", type=float, default=5e7)
    parser.add_argument("--markdown", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        kind, which, number = given.one
        print(json.dumps(growth(which, int(number)) if kind == "growth" else large(which, float(number))))
        return
    kept = {}
    lines = growth_table(given.checks, kept) if given.what != "large" else []
    if given.what != "growth":
        lines += [*([""] if lines else []), *large_table(given.parameters, kept)]
    if given.json:
        given.json.write_text(json.dumps(kept, indent=2) + "\n")
    text = "\n".join(lines) + "\n"
    given.markdown.write_text(text) if given.markdown else print(text)


if __name__ == "__main__":
    main()
