"""The parts of TensorFlow that are not public API: these tests tell when one of them moves or changes its meaning."""

from __future__ import annotations

import ast
import pathlib

import tensorflow as tf

import cgrad
from cgrad import internals

X = tf.constant([1.0, 2.0])
V = tf.constant([1.0, 10.0])


def test_only_one_module_names_private_parts():
    """Of the definers and the transforms; other rooms of the package have their own reasons."""
    package = pathlib.Path(cgrad.__file__).parent
    ours = "bind capture collect contract define engine errors linear outside rules transforms variables"
    for path in (package / f"{name}.py" for name in ours.split()):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert not (node.module or "").startswith("tensorflow."), path
            if isinstance(node, ast.Import):
                assert all(not alias.name.startswith("tensorflow.") for alias in node.names), path


def test_somebody_records():
    assert not internals.could_record()
    with tf.GradientTape():
        assert internals.could_record()
    with tf.autodiff.ForwardAccumulator(X, V):
        assert internals.could_record()


def test_what_is_followed():
    with tf.GradientTape() as tape:
        tape.watch(X)
        assert internals.followed_by_tape([2.0 * X])
        assert not internals.followed_by_tape([tf.stop_gradient(X)])
        assert not internals.followed_by_accumulator([X])
    with tf.autodiff.ForwardAccumulator(X, V):
        assert internals.followed_by_accumulator([V, 2.0 * X])
        assert not internals.followed_by_tape([X])
        assert not internals.followed_by_accumulator([V])


def test_unrecorded():
    with tf.GradientTape() as tape, tf.autodiff.ForwardAccumulator(X, V) as forward:
        tape.watch(X)
        with internals.unrecorded():
            y = 2.0 * X
    assert tape.gradient(y, X) is None
    assert forward.jvp(y) is None


def test_the_variables_that_are_read():
    w, frozen = tf.Variable(1.0), tf.Variable(1.0, trainable=False)
    with internals.VariableWatcher() as watcher, internals.unrecorded():
        w + frozen
    assert [v is w for v in watcher.watched_variables()] == [True]


def test_a_reverse_rule():
    with tf.GradientTape() as tape:
        tape.watch(X)
        with internals.unrecorded():
            y = 2.0 * X
        internals.record_reverse("double", [y], [X], lambda u: [7.0 * u])
    assert list(tape.gradient(y, X)) == [7.0, 7.0]


def test_tangents_innermost_first():
    with tf.autodiff.ForwardAccumulator(X, V) as outer, tf.autodiff.ForwardAccumulator(X, 2.0 * V) as inner:
        tangents = internals.tangents_of([V, X])
        assert [of_one[0] is None for of_one in tangents] == [True, True]
        assert [list(of_one[1]) for of_one in tangents] == [[2.0, 20.0], [1.0, 10.0]]
        with internals.unrecorded():
            y = tf.identity(X)
        internals.set_tangents("copy", [y], [X], [[3.0 * V], []])
    assert list(inner.jvp(y)) == [3.0, 30.0]
    assert outer.jvp(y) is None


def test_composite_tensors_are_taken_apart():
    assert len(internals.flatten({"r": tf.ragged.constant([[1.0], []]), "t": X})) == 3


def test_the_rules_of_a_graph_are_let_go():
    """TensorFlow keeps the rule of each trace, and its graph with it, for ever: those of a check need not be kept."""
    square = tf.custom_gradient(lambda x: (x * x, lambda u: 2.0 * x * u))
    registry = internals.ops.gradient_registry
    before = set(registry.list())
    concrete = tf.function(lambda x: square(square(x))).get_concrete_function(X)
    kept = tf.function(lambda x: square(x)).get_concrete_function(X)
    assert len(set(registry.list()) - before) == 3
    internals.forget_rules(concrete.graph)
    assert len(set(registry.list()) - before) == 1  # that of the other graph
    with tf.GradientTape() as tape:
        tape.watch(X)
        y = kept(X)
    assert list(tape.gradient(y, X)) == [2.0, 4.0]


def test_a_check_leaves_no_rule_behind_but_those_of_the_user_s_own_graphs():
    registry = internals.ops.gradient_registry
    square = tf.custom_gradient(lambda x: (x * x, lambda u: 2.0 * x * u))
    before = set(registry.list())
    assert cgrad.gradcheck(square, X)
    assert set(registry.list()) == before
    graph = tf.function(square)
    for _ in range(3):
        assert cgrad.gradcheck(graph, X)
    left = len(set(registry.list()) - before)
    assert cgrad.gradcheck(graph, X)
    assert len(set(registry.list()) - before) == left  # traced once for each kind of input, and kept as the user's
    with tf.GradientTape() as tape:
        tape.watch(X)
        y = graph(X)
    assert list(tape.gradient(y, X)) == [2.0, 4.0]


def test_the_global_generators():
    import keras

    keras.utils.set_random_seed(3)
    expected = float(keras.random.uniform(()))
    keras.utils.set_random_seed(3)
    with internals.same_keras_generator() as generator:
        assert generator is None
        keras.random.uniform(())
    assert float(keras.random.uniform(())) != expected or generator is None
    with internals.same_keras_generator() as generator:
        assert generator.state.shape == (2,)
    assert internals.global_generator() is None or internals.global_generator() is tf.random.get_global_generator()
    assert tf.random.get_global_generator() is internals.global_generator()


def test_a_graph_that_was_left_open_is_closed():
    graph = tf.Graph().as_default()
    with internals.same_execution_mode():
        graph.__enter__()
        assert not tf.executing_eagerly()
    assert tf.executing_eagerly()
    assert not internals.ops._default_graph_stack.stack
    assert tf.constant(1.0).numpy() == 1.0


def test_eager_seeds_are_those_of_before_also_where_one_is_set_meanwhile():
    tf.random.set_seed(3)
    expected = [float(tf.random.uniform(())) for _ in range(2)]
    tf.random.set_seed(3)
    first = float(tf.random.uniform(()))
    with internals.other_eager_seeds():
        tf.random.set_seed(4)
        tf.random.uniform(())
    assert [first, float(tf.random.uniform(()))] == expected
