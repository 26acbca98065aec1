"""Differences: the value, the bar, and the shape of the point."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cgrad.numerics import Line, Shape, extrapolate

EPS = 2.0**-52


def slope(f, x, scale=None, eps=EPS, weights=(1.0,)):
    unit = scale or 2.0 ** math.floor(math.log2(max(abs(x), 1e-3)))

    def at(t):
        return np.atleast_1d(np.asarray(f(x + t * unit), dtype=np.float64))

    with np.errstate(all="ignore"):
        found = Line(at, at(0.0), eps).slope(np.asarray(weights))
    return found, unit


@pytest.mark.parametrize(
    ("f", "x", "derivative"),
    [
        (np.sin, 1.0, math.cos(1.0)),
        (np.exp, 3.0, math.exp(3.0)),
        (np.tanh, 0.5, 1 - math.tanh(0.5) ** 2),
        (np.log, 0.01, 100.0),
        (lambda x: x**3, 100.0, 3e4),
        (lambda x: 1 / (1 + np.exp(-x)), 8.0, math.exp(-8.0) / (1 + math.exp(-8.0)) ** 2),
        (np.sqrt, 1e-4, 50.0),
    ],
)
def test_smooth_points_are_right_to_ten_digits_and_within_the_bar(f, x, derivative):
    found, unit = slope(f, x)
    assert found.shape is Shape.SMOOTH
    assert abs(found.value - derivative * unit) <= found.bar
    assert found.bar <= 1e-8 * abs(derivative * unit)


def test_the_bar_widens_with_the_rounding_of_a_large_offset():
    found, unit = slope(lambda x: 1e4 + np.sin(x), 1.0)
    assert abs(found.value - math.cos(1.0) * unit) <= found.bar
    assert found.bar > 1e-9


def test_float32_values_are_within_their_own_bar():
    found, unit = slope(lambda x: np.float64(np.sin(np.float32(x), dtype=np.float32)), 1.0, eps=2.0**-23)
    assert abs(found.value - math.cos(1.0) * unit) <= found.bar < 1e-2


def test_a_function_with_one_derivative_only_keeps_an_honest_bar():
    found, _ = slope(lambda x: x * abs(x), 0.0)
    assert found.admits(0.0)


@pytest.mark.parametrize(("f", "low", "high"), [(abs, -1.0, 1.0), (lambda x: max(x, 0.0), 0.0, 1.0)])
def test_a_kink_is_an_interval(f, low, high):
    found, unit = slope(f, 0.0)
    assert found.shape is Shape.KINK
    assert (found.low, found.high) == pytest.approx((low * unit, high * unit))
    assert found.admits(0.5 * unit)
    assert not found.admits(1.5 * unit)


def test_the_edge_of_a_domain_is_judged_from_inside():
    found, unit = slope(lambda x: 1 - math.exp(-x) if x >= 0 else math.nan, 0.0)
    assert found.shape is Shape.EDGE
    assert found.value == pytest.approx(unit)


def test_an_infinite_slope_is_steep():
    assert slope(np.sqrt, 0.0)[0].shape is Shape.STEEP
    assert slope(lambda x: math.sqrt(abs(x)), 0.0)[0].shape is Shape.STEEP


def test_a_jump_is_judged_from_its_smooth_side():
    found, _ = slope(np.floor, 4.0)
    assert found.shape is Shape.JUMP
    assert found.admits(0.0)


def test_no_number_at_the_point_is_unknown():
    found, _ = slope(lambda x: math.nan, 1.0)
    assert found.shape is Shape.UNKNOWN


def test_outputs_without_weight_do_not_matter():
    def f(x):
        return [x**2, math.nan]

    found, unit = slope(f, 3.0, weights=(1.0, 0.0))
    assert found.value == pytest.approx(6.0 * unit)


def test_extrapolation_removes_the_even_powers():
    value, bar = extrapolate([1 + h**2 + h**4 for h in (0.4, 0.2, 0.1)], order=2)
    assert value == pytest.approx(1.0, abs=1e-14)
    assert bar > abs(value - 1.0)
