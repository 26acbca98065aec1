"""audit: every custom gradient that a model meets, and nothing changed for the model."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import cgrad
from cgrad import internals

X = tf.constant(np.random.default_rng(0).normal(size=(4, 3)), tf.float32)


@tf.custom_gradient
def right(x):
    return tf.sin(x), lambda u: u * tf.cos(x)


@tf.custom_gradient
def factor(x):
    return x * x, lambda u: u * x


@tf.custom_gradient
def ignoring(x):
    return tf.tanh(x), lambda u: 1.0 - tf.tanh(x) ** 2


@tf.custom_gradient
def broadcasting(x, b):
    return x + b, lambda u: (u, u)


@tf.custom_gradient
def precise(x):
    return tf.exp(x), lambda u: tf.cast(u * tf.exp(x), tf.float64)


@tf.custom_gradient
def squared(x):
    return 2.0 * x, lambda u: 2.0 * u * u


class Deep(keras.Model):
    def __init__(self):
        super().__init__()
        self.first, self.second = keras.layers.Dense(3, "silu"), keras.layers.Dense(3)

    def call(self, x):
        x = right(self.first(x))
        x = factor(x) + ignoring(x) + squared(x) + precise(x)
        return broadcasting(self.second(tf.nn.gelu(x)), tf.ones(3))


def verdicts(found):
    return {m.name: m.verdict for m in found.met}


def test_five_planted_faults_deep_inside_are_found_and_no_other():
    model = Deep()
    model(X)
    with cgrad.audit() as found:
        model(X)
    assert verdicts(found) == {
        "factor": "constant-factor",
        "ignoring": "upstream-ignored",
        "squared": "nonlinear-in-upstream",
        "precise": "wrong-dtype",
        "broadcasting": "not-unbroadcast",
        "right": "right",
        "swish_impl": "right",
    }
    assert not found.ok
    assert [m.ok for m in found.met] == [False] * 5 + [True] * 2


def test_the_vector_beta_of_silu_is_found():
    with cgrad.audit() as found:
        tf.nn.silu(X, tf.constant([0.5, 1.0, 2.0]))
    (met,) = found.met
    if met.ok:
        pytest.skip("this TensorFlow has mended silu (tensorflow issue 127690)")
    assert met.verdict == "wrong-reduction"
    assert "nn_impl.py" in met.place
    assert any("test_audit.py" in caller for caller in met.callers)


def test_each_signature_once_with_its_count():
    with cgrad.audit() as found:
        for _ in range(3):
            right(X)
        right(X[:2])
    assert {m.signature: m.count for m in found.met} == {"float32[4, 3]": 3, "float32[2, 3]": 1}
    assert len(found.reports) == 2


def test_what_is_met_in_a_graph_is_checked_with_drawn_inputs():
    with cgrad.audit() as found:
        tf.function(lambda x: factor(x))(X)
    (met,) = found.met
    assert (met.graph, met.verdict) == (True, "constant-factor")


def test_a_function_traced_before_is_seen_only_eagerly():
    traced = tf.function(lambda x: factor(x))
    traced(X)
    with cgrad.audit() as found:
        traced(X)
    assert found.met == []
    with cgrad.audit(eagerly=True) as found:
        traced(X)
    assert verdicts(found) == {"factor": "constant-factor"}
    assert not tf.config.functions_run_eagerly()


def test_a_training_step_and_recomputed_layers_are_seen():
    layer = keras.layers.LSTM(2)
    layer(tf.ones((1, 3, 2)))
    step = tf.recompute_grad(lambda x: layer(x))
    with cgrad.audit() as found, tf.GradientTape() as tape:
        y = tf.reduce_sum(step(tf.random.stateless_normal((2, 3, 2), [1, 2])))
        tape.gradient(y, layer.trainable_variables)
    assert found.met
    assert found.ok, found


def test_a_surrogate_is_a_note():
    straight = tf.custom_gradient(lambda x: (tf.round(x), lambda u: u))
    with cgrad.audit() as found:
        straight(X)
    assert found.ok
    assert [m.verdict for m in found.met] == ["looks like a surrogate"]


def test_allowed_names_and_a_spent_budget_are_said():
    with cgrad.audit(allow=["factor"]) as found:
        factor(X)
    assert (found.ok, found.met[0].unchecked) == (True, "allowed by name")
    with cgrad.audit(max_checks=0) as found:
        factor(X)
    assert found.met[0].unchecked == "the budget was spent (0 checks, 60 s)"


def test_outputs_and_random_state_are_those_without_it():
    model = Deep()
    model(X)
    drop = tf.custom_gradient(lambda x: (x * tf.random.uniform(tf.shape(x)), lambda u: u))

    def run():
        tf.random.set_seed(1)
        np.random.seed(1)
        return model(X).numpy(), drop(X).numpy()

    expected = run(), float(tf.random.uniform(())), np.random.rand()
    with cgrad.audit():
        inside = run()
    found = inside, float(tf.random.uniform(())), np.random.rand()
    for a, b in zip([*expected[0], *expected[1:]], [*found[0], *found[1:]], strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_random_layer_draws_as_if_nothing_had_been():
    def run(audited):
        drop = keras.layers.Dropout(0.5, seed=3)
        with cgrad.audit() if audited else contextlib.nullcontext():
            tf.recompute_grad(lambda x: drop(x, training=True))(X)
        return drop(X, training=True).numpy()

    np.testing.assert_array_equal(run(True), run(False))


def test_variables_are_as_they_were():
    model = Deep()
    model(X)
    before = [v.numpy() for v in model.variables]
    with cgrad.audit():
        model(X)
    for a, b in zip(before, model.variables, strict=True):
        np.testing.assert_array_equal(a, b.numpy())


def test_an_error_in_the_block_comes_through_and_the_hooks_are_put_back():
    before = [getattr(internals.custom_gradient_module, name) for name in internals.CUSTOM_GRADIENT_DECORATORS]
    with pytest.raises(ZeroDivisionError), cgrad.audit():
        1 / float(factor(X)[0, 0] * 0)
    after = [getattr(internals.custom_gradient_module, name) for name in internals.CUSTOM_GRADIENT_DECORATORS]
    assert before == after


def test_text_and_dict_tell_the_same():
    with cgrad.audit() as found:
        factor(X)
        right(X)
    data = json.loads(json.dumps(found.to_dict()))
    assert [m["verdict"] for m in data["met"]] == ["constant-factor", "right"]
    lines = str(found).splitlines()
    assert lines[0].startswith("2 custom gradients met in 2 calls: 1 wrong (")
    assert lines[1].startswith("  constant-factor: factor(float32[4, 3]), 1 calls, from tests/test_audit.py:")
    assert "repair: return g / 0.5" in str(found)


def test_the_table_for_notebooks_is_escaped_and_the_worst_comes_first():
    with cgrad.audit() as found:
        right(X)
        hostile = tf.custom_gradient(lambda x: (x * x, lambda u: u * x))
        hostile(X)
    found.met[0].name = "<script>alert(1)</script>"
    page = found._repr_html_()
    assert "<script>" not in page
    assert page.index("constant-factor") < page.index(">right<")
    assert "2 custom gradients met: 1 wrong" in page


SCRIPT = """
import sys
import tensorflow as tf

@tf.custom_gradient
def factor(x):
    return x * x, lambda u: u * x * float(sys.argv[1])

factor(tf.constant([1.0, 2.0]))
"""


@pytest.mark.parametrize(("argument", "status"), [("1.0", 1), ("2.0", 0)])
def test_a_script_from_the_command_line(tmp_path, argument, status):
    (tmp_path / "model.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-m", "cgrad", "audit", "--json", "model.py", argument],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(cgrad.__file__))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stderr
    (met,) = json.loads(done.stdout.splitlines()[-1])["met"]
    assert met["name"] == "factor"
    assert "model.py" in met["place"]


def test_a_script_that_is_not_there_is_bad_use(capsys):
    from cgrad.__main__ import main

    assert main(["audit", "nowhere.py"]) == 2
    expected = "python -m cgrad audit: script: a Python file was due, but got 'nowhere.py'\n"
    assert capsys.readouterr().err == expected
