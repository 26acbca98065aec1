"""What the contract makes of names, shapes and dtypes: no TensorFlow in here."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cgrad import contract

Y, X = (4,), (3,)


def judge(came, due, outputs=(), dtype="float32"):
    return contract.check_gradient("x", came, dtype, due, "float32", list(outputs))


@pytest.mark.parametrize(
    ("came", "due"), [((3,), (3,)), ((None,), (3,)), (None, (3,)), ((3,), None), ((2, None), (None, 3)), ((), ())]
)
def test_what_may_be_right(came, due):
    assert judge(came, due) is None


@pytest.mark.parametrize(
    ("came", "due", "outputs", "fault", "repair"),
    [
        # the Jacobian, its transpose, in a batch, of any rank
        (Y + X, X, [Y], "jacobian-returned", "return tf.linalg.matvec(J, upstream, transpose_a=True)"),
        (X + Y, X, [Y], "jacobian-returned", "return tf.linalg.matvec(J, upstream, transpose_a=True)"),
        ((2, 2), (2,), [(2,)], "jacobian-returned", "return tf.linalg.matvec(J, upstream, transpose_a=True)"),
        ((8, 4, 3), (8, 3), [(8, 4)], "jacobian-returned", 'return tf.einsum("bi,bim->bm", upstream, J)'),
        ((5, 6, 2, 3), (2, 3), [(5, 6)], "jacobian-returned", "return tf.tensordot(upstream, J, axes=2)"),
        (Y + X, X, [(9,), Y], "jacobian-returned", "return tf.linalg.matvec(J, upstream, transpose_a=True)"),
        # a sum over broadcast axes is missing
        ((4, 3), (3,), [(4, 3)], "not-unbroadcast", "tf.reduce_sum(g, axis=[0])"),
        ((4, 3), (4, 1), [(4, 3)], "not-unbroadcast", "tf.reduce_sum(g, axis=[1], keepdims=True)"),
        (
            (5, 4, 3),
            (4, 1),
            [(5, 4, 3)],
            "not-unbroadcast",
            "tf.reshape(tf.reduce_sum(g, axis=[0, 2], keepdims=True), tf.shape(x))",
        ),
        ((4, 3), (), [(4, 3)], "not-unbroadcast", "tf.reduce_sum(g, axis=[0, 1])"),
        ((3,), (), [(3,)], "not-unbroadcast", "tf.reduce_sum(g, axis=[0])"),
        ((4, 3), (3,), [()], "not-unbroadcast", "tf.reduce_sum(g, axis=[0])"),
        ((None, 3), (3,), [(None, 3)], "not-unbroadcast", "tf.reduce_sum(g, axis=[0])"),
        # summed too much
        ((), (3,), [(3,)], "wrong-reduction", "leave out the sum over axis 0"),
        ((4,), (4, 3), [(4, 3)], "wrong-reduction", "leave out the sum over axis 1"),
        ((1, 3), (4, 3), [(4, 3)], "wrong-reduction", "leave out the sum over axis 0"),
        # other shapes
        ((3, 4), (4, 3), [(2,)], "wrong-shape", "tf.transpose(g)"),
        ((6,), (2, 3), [(2, 3)], "wrong-shape", "tf.reshape(g, tf.shape(x))"),
        ((7,), (3,), [(3,)], "wrong-shape", "return a tensor of shape (3,) for `x`"),
    ],
)
def test_what_is_wrong_with_a_shape(came, due, outputs, fault, repair):
    found = judge(came, due, outputs)
    assert found.fault == fault
    assert found.repair.startswith(repair)
    assert (found.argument, found.came, found.due) == (
        "x",
        f"a tensor of shape {contract.show(came)}",
        f"shape {contract.show(due)}",
    )


def test_a_dtype():
    assert judge((3,), (3,), dtype="float64") == contract.Violation(
        "wrong-dtype",
        "x",
        "a float64 tensor",
        "float32",
        "a gradient has the dtype of its argument, and `x` is float32.",
        "tf.cast(g, x.dtype)   # g: what is returned for `x` now",
    )


def test_the_number():
    assert contract.check_number(2, ["a", "b"]) is None
    assert contract.check_number(3, ["a", "b"], ["a", "b", "flag"]) is None
    found = contract.check_number(1, ["a", "b"])
    assert (found.fault, found.came, found.due) == ("wrong-arity", "1 gradient", "2 (`a`, `b`)")
    assert found.repair == "return d_a, d_b"


def test_the_name_of_the_upstream_is_in_the_repair():
    found = contract.check_gradient("x", (2, 2), "float32", (2,), "float32", [(2,)], upstream="dy")
    assert "tf.linalg.matvec(J, dy, transpose_a=True)" in found.repair


@pytest.mark.parametrize("module", ["contract", "errors", "faults"])
def test_without_tensorflow(module):
    """The package imports TensorFlow; these modules themselves do not."""
    code = (
        "import sys, types; sys.modules['tensorflow'] = None; package = types.ModuleType('cgrad'); "
        f"import importlib.util; "
        "package.__path__ = list(importlib.util.find_spec('cgrad').submodule_search_locations); "
        f"sys.modules['cgrad'] = package; import cgrad.{module}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
