"""Rules, the gradients of variables and gradcheck on more than one device, in more than one process, and on a GPU.

Logical devices and a strategy are settings of a whole process, so that each case runs in one of its own.
"""

from __future__ import annotations

import functools
import json
import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import tensorflow as tf

import cgrad

SOURCE = str(Path(cgrad.__file__).parents[1])
LIMIT = 120  # seconds for one process

COMMON = """
import json, sys
import numpy as np
import tensorflow as tf
import cgrad

def define():
    @cgrad.custom_vjp
    def scaled(x, w):
        return x * w, lambda u: (u * w, tf.reduce_sum(u * x, axis=0))

    @cgrad.custom_jacobian(lambda x: 3.0 * x**2, diagonal=True)
    def cube(x):
        return x**3

    @cgrad.custom_jvp(lambda primals, tangents: tf.cos(primals[0]) * tangents[0])
    def sine(x):
        return tf.sin(x)

    return scaled, cube, sine

def right(x, w):
    return tf.reduce_sum(tf.sin(x * w) + (x * w) ** 3)

def by_rules(scaled, cube, sine):
    return lambda x, w: tf.reduce_sum(sine(scaled(x, w)) + cube(scaled(x, w)))

X = np.linspace(-1.0, 1.0, 12).reshape(4, 3)
W = np.array([0.5, -1.0, 2.0])

def expected(rows):
    x, w = tf.constant(rows), tf.constant(W)
    with tf.GradientTape() as tape:
        tape.watch(w)
        y = right(x, w)
    return tape.gradient(y, w).numpy()
"""

STRATEGY = """
def gradients(strategy, f, eager):
    with strategy.scope():
        v = tf.Variable(W)

    def step(x):
        with tf.GradientTape() as tape:
            y = f(x, tf.convert_to_tensor(v))
        return tape.gradient(y, v)

    rows = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(np.array_split(X, context.num_replicas_in_sync)[context.replica_id_in_sync_group])
    )
    run = lambda: strategy.run(step, args=(rows,))
    found = run() if eager else tf.function(run)()
    return v, strategy.experimental_local_results(found), strategy.reduce("SUM", found, axis=None).numpy()
"""

MIRRORED = (
    COMMON
    + STRATEGY
    + """
count = int(sys.argv[1])
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
strategy = tf.distribute.MirroredStrategy([f"CPU:{k}" for k in range(count)])
assert strategy.num_replicas_in_sync == count
answer = {"replicas": count}

for where in ("inside", "outside"):
    if where == "inside":
        with strategy.scope():
            f = by_rules(*define())
    else:
        f = by_rules(*define())
    for eager in (True, False):
        v, local, total = gradients(strategy, f, eager)
        for k, part in enumerate(np.array_split(X, count)):
            np.testing.assert_allclose(local[k], expected(part), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(total, expected(X), rtol=1e-12, atol=1e-12)

# a rule that reads a mirrored variable, and answers for it
with strategy.scope():
    v = tf.Variable(W, name="v")
    def affine(x):
        def grad(u, variables=None):
            return u * v, {"v": tf.reduce_sum(u * x, axis=0)}
        return x * v, grad
    layer = cgrad.custom_vjp(affine)
    def twice(x):
        def grad(u, variables=None):
            return u * v, {"v": 2.0 * tf.reduce_sum(u * x, axis=0)}
        return x * v, grad
    wrong_layer = cgrad.custom_vjp(twice)

def step(x):
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(tf.sin(layer(x)))
    return tape.gradient(y, v)

rows = strategy.experimental_distribute_values_from_function(
    lambda c: tf.constant(np.array_split(X, c.num_replicas_in_sync)[c.replica_id_in_sync_group])
)
own = strategy.reduce("SUM", tf.function(lambda: strategy.run(step, args=(rows,)))(), axis=None).numpy()
with tf.GradientTape() as tape:
    w = tf.constant(W)
    tape.watch(w)
    y = tf.reduce_sum(tf.sin(tf.constant(X) * w))
np.testing.assert_allclose(own, tape.gradient(y, w).numpy(), rtol=1e-12, atol=1e-12)
answer["variables"] = own.tolist()

# gradcheck beside the strategy, within its scope, and on a mirrored variable
scaled, cube, sine = define()
wrong = tf.custom_gradient(lambda x: (x * x, lambda u: u * x))
x = tf.constant([[1.0, 2.0]], tf.float64)
reports = {"beside": cgrad.gradcheck(lambda x, w: cube(scaled(x, w)), tf.constant(X), tf.constant(W))}
with strategy.scope():
    reports["within"] = cgrad.gradcheck(lambda x, w: sine(scaled(x, w)), tf.constant(X), tf.constant(W))
    reports["layer"] = cgrad.gradcheck(layer, tf.constant(X), order=1, modes=("eager", "graph"))
    reports["wrong layer"] = cgrad.gradcheck(wrong_layer, tf.constant(X), order=1, modes=("eager",))
    reports["wrong within"] = cgrad.gradcheck(wrong, x)
reports["mirrored argument"] = cgrad.gradcheck(lambda x, w: scaled(x, w), tf.constant(X), v, order=1, modes=("eager",))
reports["another device"] = None
with tf.device(f"CPU:{count - 1}"):
    reports["another device"] = cgrad.gradcheck(cube, tf.constant(W))
np.testing.assert_array_equal(v.numpy(), W)
for replica in strategy.experimental_local_results(v):
    np.testing.assert_array_equal(replica.numpy(), W)
answer["reports"] = {name: [f.name for f in report.faults] for name, report in reports.items()}
print(json.dumps(answer))
"""
)

WORKER = (
    COMMON
    + STRATEGY
    + """
options = tf.distribute.experimental.CommunicationOptions(
    implementation=tf.distribute.experimental.CommunicationImplementation.RING, timeout_seconds=60.0
)
strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
f = by_rules(*define())
context = strategy.cluster_resolver
v, local, total = gradients(strategy, f, False)
part = np.array_split(X, strategy.num_replicas_in_sync)[context.task_id]
np.testing.assert_allclose(local[0], expected(part), rtol=1e-12, atol=1e-12)
np.testing.assert_allclose(total, expected(X), rtol=1e-12, atol=1e-12)
scaled, cube, sine = define()
reports = [cgrad.gradcheck(lambda x, w: cube(scaled(x, w)), tf.constant(X), tf.constant(W))]
with strategy.scope():
    reports.append(cgrad.gradcheck(sine, tf.constant(W)))
    wrong = tf.custom_gradient(lambda x: (x * x, lambda u: u * x))
    reports.append(cgrad.gradcheck(wrong, tf.constant(W), order=1))
print(json.dumps({"task": context.task_id, "replicas": strategy.num_replicas_in_sync, "total": total.tolist(),
                  "faults": [[f.name for f in report.faults] for report in reports]}))
"""
)


def start(script, *arguments, **variables):
    env = {**os.environ, "PYTHONPATH": SOURCE, "CUDA_VISIBLE_DEVICES": "-1", **variables}
    command = [sys.executable, "-c", textwrap.dedent(script), *arguments]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(*processes):
    """What each process printed last, as data; a process that does not end is ended."""
    try:
        said = [process.communicate(timeout=LIMIT) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (_, err) in zip(processes, said, strict=True):
        assert process.returncode == 0, err[-3000:]
    return [json.loads(out.splitlines()[-1]) for out, _ in said]


def free_ports(count):
    holders = [socket.socket() for _ in range(count)]
    for holder in holders:
        holder.bind(("localhost", 0))
    ports = [holder.getsockname()[1] for holder in holders]
    for holder in holders:
        holder.close()
    return ports


@pytest.mark.parametrize("count", [2, 4])
def test_mirrored_strategy(count):
    (answer,) = finished(start(MIRRORED, str(count)))
    assert answer["replicas"] == count
    assert answer["reports"] == {
        "beside": [],
        "within": [],
        "layer": [],
        "wrong layer": ["constant-factor"],
        "wrong within": ["constant-factor"],
        "mirrored argument": [],
        "another device": [],
    }


def test_two_processes_on_loopback():
    workers = [f"localhost:{port}" for port in free_ports(2)]
    processes = [
        start(WORKER, TF_CONFIG=json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": k}}))
        for k in range(2)
    ]
    answers = finished(*processes)
    assert [a["task"] for a in answers] == [0, 1]
    assert [a["replicas"] for a in answers] == [2, 2]
    assert answers[0]["total"] == answers[1]["total"]
    assert [a["faults"] for a in answers] == [[[], [], ["constant-factor"]]] * 2


@functools.cache
def gpu():
    """Whether there is a GPU: the other tests of this process look away from it (tests/conftest.py)."""
    process = subprocess.run(
        [sys.executable, "-c", "import tensorflow as tf; print(len(tf.config.list_physical_devices('GPU')))"],
        env={key: value for key, value in os.environ.items() if key != "CUDA_VISIBLE_DEVICES"},
        capture_output=True,
        text=True,
        check=False,
    )
    return process.returncode == 0 and process.stdout.strip() not in ("", "0")


GPU = (
    COMMON
    + """
tf.config.experimental.enable_tensor_float_32_execution(sys.argv[1] == "tf32")
random = np.random.default_rng(0)
w = tf.constant(random.normal(size=(64, 64)), tf.float32)
x = tf.constant(random.normal(size=(8, 64)), tf.float32)

@cgrad.custom_vjp
def product(x, w):
    return x @ w, lambda u: (tf.matmul(u, w, transpose_b=True), tf.matmul(x, u, transpose_a=True))

@tf.custom_gradient
def double(x, w):
    return x @ w, lambda u: (tf.matmul(u, w, transpose_b=True), 2.0 * tf.matmul(x, u, transpose_a=True))

kernel = tf.Variable(w)

@tf.custom_gradient
def dense(x):
    def grad(u, variables=None):
        return tf.matmul(u, kernel, transpose_b=True), [tf.matmul(x, u, transpose_a=True)]
    return x @ kernel, grad

with tf.device("GPU:0"):
    reports = {
        "product": cgrad.gradcheck(product, x, w),
        "half precision": cgrad.gradcheck(product, tf.cast(x, tf.float16), tf.cast(w, tf.float16), order=1),
        "variable": cgrad.gradcheck(dense, x),
        "double": cgrad.gradcheck(double, x, w, order=1),
    }
print(json.dumps({name: [f.name for f in r.faults] for name, r in reports.items()}))
"""
)


@pytest.mark.parametrize("precision", ["tf32", "float32"])
def test_a_gpu_makes_no_right_function_look_wrong(precision):
    """TensorFloat-32 keeps ten bits of a product's factors: a right rule is off by 1e-3 there, and right."""
    if not gpu():
        pytest.skip("this machine has no GPU that TensorFlow can use; TF32 was not tried")
    environment = {key: value for key, value in os.environ.items() if key != "CUDA_VISIBLE_DEVICES"}
    env = {**environment, "PYTHONPATH": SOURCE}
    done = subprocess.run(
        [sys.executable, "-c", GPU, precision], env=env, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "product": [],
        "half precision": [],
        "variable": [],
        "double": ["constant-factor"],
    }


def test_this_process_sees_no_other_device():
    assert tf.config.list_physical_devices("GPU") == []
