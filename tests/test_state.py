"""A check leaves the process as it was: also when f draws, counts, raises, or its user interrupts; in any thread.

    python tests/test_state.py [--threads 8] [--checks 200] [--interrupts 300]

checks in many threads at once, and interrupts checks at random moments: the long versions of two of the tests.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import random
import signal
import sys
import threading
import time
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import cgrad
from cgrad import interception, internals
from cgrad.state import reached

X = tf.constant([1.0, 2.0])
CHEAP = {"order": 1, "modes": ("eager",)}


@tf.custom_gradient
def square(x):
    return x * x, lambda u: 2.0 * x * u


@tf.custom_gradient
def half(x):
    return x * x, lambda u: x * u


def settings():
    """Everything of the process that a check might move, as values that can be compared."""
    logger = tf.get_logger()
    return {
        "eager": tf.executing_eagerly(),
        "functions run eagerly": tf.config.functions_run_eagerly(),
        "precision": keras.mixed_precision.dtype_policy().name,
        "floatx": keras.config.floatx(),
        "jit": str(tf.config.optimizer.get_jit()),
        "optimizer options": str(tf.config.optimizer.get_experimental_options()),
        "soft placement": tf.config.get_soft_device_placement(),
        "tf32": tf.config.experimental.tensor_float_32_execution_enabled(),
        "logging": (
            logger.level,
            list(logger.filters),
            list(logger.handlers),
            logging.root.level,
            logging.root.manager.disable,
        ),
        "environment": dict(os.environ),
        "directory": os.getcwd(),
        "path": list(sys.path),
        "warnings": list(warnings.filters),
        "numpy errors": np.geterr(),
        "numpy printing": str(np.get_printoptions()),
        "hooks": (sys.getprofile(), sys.gettrace(), sys.excepthook, sys.displayhook),
        "streams": (sys.stdout, sys.stderr),
        "signals": [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGALRM)],
        "custom gradients": [
            getattr(internals.custom_gradient_module, n) for n in internals.CUSTOM_GRADIENT_DECORATORS
        ],
        "handlers": list(interception._local.__dict__.get("stack", [])),
        "recording": internals.could_record(),
        "recursion": sys.getrecursionlimit(),
        "collecting": (gc.isenabled(), gc.get_threshold()),
    }


def draws():
    """The next numbers of every global random state."""
    generator = tf.random.get_global_generator()
    return (
        random.random(),
        np.random.rand(),
        float(tf.random.uniform(())),
        float(generator.uniform(())),
        float(keras.random.uniform(())),
    )


def seeded():
    random.seed(7)
    np.random.seed(7)
    tf.random.set_seed(7)
    tf.random.get_global_generator().reset_from_seed(7)
    keras.utils.set_random_seed(7)


class Interrupt(KeyboardInterrupt):
    pass


def failing(error):
    @tf.custom_gradient
    def f(x):
        def grad(u):
            raise type(error)(*error.args)

        return x * x, grad

    return f


def after(calls, error):
    """Raises at that call: somewhere in the middle of the check."""
    count = []

    def f(x):
        count.append(1)
        if len(count) % calls == 0:
            raise type(error)(*error.args)  # a new one: an error keeps the frames that it went through
        return square(x)

    return f


def drawing(x):
    noise = [random.random(), np.random.rand(), tf.random.uniform(()), tf.random.get_global_generator().uniform(())]
    return x * tf.add_n([tf.cast(n, x.dtype) for n in noise]) + keras.random.uniform((), dtype=x.dtype)


def leaving():
    raise SystemExit(1)


FUNCTIONS = {
    "right": square,
    "wrong": half,
    "plain": tf.sin,
    "a tf.function": tf.function(square),
    "draws": drawing,
    "raises": failing(ValueError("no")),
    "is interrupted": failing(Interrupt()),
    "exits": failing(SystemExit(1)),
    "raises at the third call": after(3, ValueError("no")),
    "is interrupted at the sixth call": after(6, Interrupt()),
    "is interrupted at the twelfth call": after(12, Interrupt()),
    "is no number": lambda x: "y",
    "has a nan": lambda x: x * float("nan"),
    "drops out": lambda x: tf.nn.dropout(square(x), 0.5),
}


def interrupted(thunk):
    try:
        return thunk()
    except (KeyboardInterrupt, SystemExit) as error:
        return error


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("surrogate", [False, True])
def test_settings_and_random_states_are_as_they_were(name, surrogate):
    cgrad.gradcheck(square, X)  # what the first check of a process loads is no state
    seeded()
    expected = draws()
    seeded()
    before = settings()
    result = interrupted(lambda: cgrad.gradcheck(FUNCTIONS[name], X, surrogate=surrogate))
    assert settings() == before
    assert draws() == expected
    assert ("interrupted" in name or name == "exits") == isinstance(result, BaseException)


def test_random_states_that_nobody_set_are_left_alone():
    """Without a global seed TensorFlow draws anew; there is nothing to keep, and a check must not set one."""
    current = internals.context.context()
    before = current._seed, current._rng
    current._seed, current._rng = None, None
    try:
        cgrad.gradcheck(drawing, X, **CHEAP)
        assert (current._seed, current._rng) == (None, None)
    finally:
        current._seed, current._rng = before


@pytest.mark.parametrize("name", ["right", "wrong", "draws", "raises", "is interrupted"])
def test_audit_leaves_settings_and_random_states_as_they_were(name):
    f = FUNCTIONS[name]

    def block():
        with cgrad.audit():
            f(X)
            f(X + 1.0)

    def plain():
        f(X)
        f(X + 1.0)

    seeded()
    plain()
    expected = draws()
    seeded()
    before = settings()
    interrupted(block)
    assert settings() == before
    assert draws() == expected


def test_settings_see_a_change():
    """The two witnesses are no yes-men."""
    before = settings()
    tf.config.run_functions_eagerly(True)
    try:
        assert settings() != before
    finally:
        tf.config.run_functions_eagerly(False)
    seeded()
    expected = draws()
    seeded()
    np.random.rand()
    assert draws() != expected


# --- variables --------------------------------------------------------------------------------------------------


def values(variables):
    return [tf.convert_to_tensor(v).numpy() for v in variables]


def same(before, variables):
    return all(np.array_equal(a, b) for a, b in zip(before, values(variables), strict=True))


def counting():
    count = tf.Variable(0.0, trainable=False)

    def f(x):
        count.assign_add(1.0)
        return square(x)

    return f, [count]


COUNT = tf.Variable(0.0)


def by_global_name(x):
    COUNT.assign_add(1.0)
    return square(x)


def normalisation():
    layer = keras.layers.BatchNormalization()
    layer(tf.ones((4, 2)))

    def f(x):
        return layer(tf.stack([x, 2.0 * x, x - 1.0]), training=True)

    return f, layer.variables


def stateful_module():
    class Module(tf.Module):
        def __init__(self):
            super().__init__()
            self.seen = tf.Variable([0.0, 0.0])

        def __call__(self, x):
            self.seen.assign(x)
            return self.seen * square(x)

    module = Module()
    return module, [module.seen]


def training_step():
    w = tf.Variable([1.0, -1.0])
    optimizer = keras.optimizers.Adam(0.1)
    optimizer.build([w])

    def f(x):
        optimizer.apply([tf.ones_like(w)], [w])
        return square(x) * w

    return f, [w, *(v.value for v in optimizer.variables)]


def a_variable_of_its_own():
    w = tf.Variable([1.0, -1.0])
    return lambda x: square(x) * w, [w]


def a_variable_that_fails():
    w, calls = tf.Variable([1.0, -1.0]), []

    def f(x):
        calls.append(1)
        if len(calls) > 4:
            raise Interrupt
        return square(x) * w

    return f, [w]


def through_a_partial_and_a_method():
    import functools

    f, variables = counting()

    class Owner:
        def method(self, factor, x):
            return factor * f(x)

    return functools.partial(Owner().method, 2.0), variables


def random_layer():
    layer = keras.layers.Dropout(0.5, seed=3)
    return (lambda x: layer(square(x), training=True)), [layer.seed_generator.state]


STATEFUL = [
    counting,
    lambda: (by_global_name, [COUNT]),
    normalisation,
    stateful_module,
    training_step,
    a_variable_of_its_own,
    a_variable_that_fails,
    through_a_partial_and_a_method,
    random_layer,
]


@pytest.mark.parametrize("make", STATEFUL, ids=lambda make: make.__name__)
@pytest.mark.parametrize("options", [CHEAP, {}], ids=["cheap", "full"])
def test_variables_are_as_they_were(make, options):
    f, variables = make()
    before = values(variables)
    interrupted(lambda: cgrad.gradcheck(f, X, **options))
    assert same(before, variables)


def test_a_variable_among_the_arguments_is_as_it_was():
    v = tf.Variable([1.0, 2.0])
    w = keras.Variable([3.0, 4.0])
    cgrad.gradcheck(lambda p: square(p["v"]) * tf.convert_to_tensor(p["w"]), {"v": v, "w": w})
    assert same([[1.0, 2.0], [3.0, 4.0]], [v, w])
    interrupted(lambda: cgrad.gradcheck(after(9, Interrupt()), v))
    assert same([[1.0, 2.0]], [v])


def test_the_pictures_of_a_report_leave_everything_too():
    f, variables = counting()
    report = cgrad.gradcheck(f, X, **CHEAP)
    seeded()
    expected = draws()
    seeded()
    before = values(variables)
    assert report.jacobians()
    assert cgrad.gradcheck(drawing, X, **CHEAP).jacobians() is not None
    assert same(before, variables)
    assert draws() == expected


def test_what_is_reached():
    f, variables = training_step()
    assert {id(v) for v in variables} <= {id(v) for v in reached([f])}
    assert [v is COUNT for v in reached([by_global_name])] == [True]
    assert reached([tf.sin, np.sin, 3, None, [X], {"a": "b"}]) == []
    loop = []
    loop.append(loop)
    assert reached([loop]) == []


def test_other_threads_draw_and_count_during_a_check():
    """A variable that f does not reach belongs to somebody else, who may be at work."""
    other, done = tf.Variable(0.0), threading.Event()

    def work():
        while not done.is_set():
            other.assign_add(1.0)

    worker = threading.Thread(target=work)
    worker.start()
    cgrad.gradcheck(square, X)
    seen = float(other)
    done.set()
    worker.join()
    assert float(other) >= seen > 0.0


# --- memory -----------------------------------------------------------------------------------------------------


def more_than(before):
    """What there is more of; what other tests left behind may go at any time."""
    return {name: count for name, count in kept().items() if count > before[name]}


def kept():
    """What lives of checks and of graphs."""
    gc.collect()
    names = ("Exam", "Subject", "Run", "Call", "Pull", "Line", "FuncGraph", "Evidence")
    counts = dict.fromkeys(names, 0)
    for thing in gc.get_objects():
        if type(thing).__name__ in counts:
            counts[type(thing).__name__] += 1
    return counts


@pytest.mark.parametrize(
    "f", [square, half, failing(ValueError("no")), tf.sin], ids=["right", "wrong", "raises", "plain"]
)
def test_nothing_lives_on_after_a_check(f):
    cgrad.gradcheck(f, X)
    before, entries = kept(), len(internals.ops.gradient_registry.list())
    for _ in range(5):
        cgrad.gradcheck(f, X)
    assert more_than(before) == {}
    assert len(internals.ops.gradient_registry.list()) == entries


def test_a_report_keeps_no_graph_and_no_large_tensor():
    before = kept()
    large = cgrad.gradcheck(square, tf.ones(50_000), **CHEAP)
    assert more_than(before) == {}
    small = cgrad.gradcheck(square, X)
    assert "FuncGraph" not in more_than(before)
    assert large
    assert small


# --- threads and interrupts -------------------------------------------------------------------------------------

CHECKS = [
    (square, X, {}),
    (half, X, {}),
    (tf.function(half), X, CHEAP),
    (lambda x, b: x + b, (tf.ones((2, 3)), tf.zeros(3)), CHEAP),
    (failing(ValueError("no")), X, CHEAP),
    (tf.nn.softmax, tf.ones((2, 3), tf.float64), CHEAP),
    (lambda x: tf.cast(tf.numpy_function(np.sin, [x], x.dtype), x.dtype), X, CHEAP),
]


def one(number):
    f, args, options = CHECKS[number % len(CHECKS)]
    report = cgrad.gradcheck(f, *(args if isinstance(args, tuple) else (args,)), seed=number % 3, **options)
    data = report.to_dict()
    del data["seconds"]
    return data


def in_threads(threads, checks):
    """The reports of each thread, and those of one thread alone."""
    for k in range(7):
        one(k)  # what a tf.function costs to trace is paid once
    expected = [one(k) for k in range(21)]
    found = [[] for _ in range(threads)]
    errors = []

    def work(mine):
        try:
            for k in range(checks):
                mine.append((k % 21, one(k % 21)))
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=work, args=(mine,)) for mine in found]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not errors
    return [(k, data == expected[k]) for mine in found for k, data in mine]


def test_threads_give_the_same_reports():
    before = settings()
    found = in_threads(8, 7)
    assert len(found) == 56
    assert [k for k, same in found if not same] == []
    assert settings() == before


def test_definers_and_transforms_in_threads():
    f = cgrad.custom_vjp(lambda x, s: (x * s, lambda u: (u * s, tf.reduce_sum(u * x))))
    wrong = []

    def work(k):
        for _ in range(50):
            y, pullback = cgrad.vjp(f, X, tf.constant(float(k)))
            if not (np.array_equal(y, X * k) and np.array_equal(pullback(X)[0], X * k)):
                wrong.append(k)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


def interrupt_at_random(times, most):
    """Interrupts full checks after random times; returns how many were, and what was not as before."""
    variable = tf.Variable([1.0, 2.0])

    def f(x):
        return square(x) * variable

    cgrad.gradcheck(f, X)
    seeded()
    moments = np.random.default_rng(0).uniform(0.0005, most, times)
    before, hit, moved = settings(), 0, []

    def ring(*_):
        raise Interrupt

    previous = signal.signal(signal.SIGALRM, ring)
    try:
        for moment in moments:
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, moment)
                    cgrad.gradcheck(f, X)
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except Interrupt:
                hit += 1
            if not tf.executing_eagerly():
                moved.append("eager mode")
                internals.context.context()._thread_local_data.is_eager = True
            now = {**settings(), "signals": before["signals"]}
            moved += [key for key in before if now[key] != before[key]]
            if not np.array_equal(variable, [1.0, 2.0]):
                moved.append(f"variable {variable.numpy()}")
                variable.assign([1.0, 2.0])
    finally:
        signal.signal(signal.SIGALRM, previous)
    return hit, moved


def test_an_interrupt_at_any_moment():
    hit, moved = interrupt_at_random(12, 0.06)
    assert hit > 3
    assert moved == []


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--checks", type=int, default=200)
    parser.add_argument("--interrupts", type=int, default=300)
    given = parser.parse_args()
    start = time.perf_counter()
    found = in_threads(given.threads, given.checks)
    print(
        f"{given.threads} threads, {len(found)} checks: {sum(not same for _, same in found)} reports differ "
        f"({time.perf_counter() - start:.0f} s)"
    )
    hit, moved = interrupt_at_random(given.interrupts, 0.12)
    print(f"{hit} of {given.interrupts} checks interrupted: {moved or 'everything was as before'}")
