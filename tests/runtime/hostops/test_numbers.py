"""Plain arithmetic against numpy."""

import numpy as np
import pytest

from tilewright.runtime.hostops.numbers import (
    BINARY,
    REDUCTIONS,
    UNARY,
    cast,
    compare,
    compare_int8,
    number_binary,
    number_dense,
    number_function,
    number_reduce,
    select,
)

RNG = np.random.default_rng(2)
REAL = RNG.normal(0, 5, (4, 5)).astype(np.float32)


@pytest.mark.parametrize("dtype", ["float32", "int32", "int64"])
def test_the_type_stays(dtype):
    x, y = (RNG.integers(-20, 20, (4, 5)).astype(dtype) for _ in range(2))
    assert {number_function(x, function=name).dtype for name in UNARY} == {np.dtype(dtype)}
    assert {number_binary(x, y, function=name).dtype for name in BINARY} == {np.dtype(dtype)}


def test_divisions():
    x, y = np.array([7, -7, 7, -7, 3], np.int32), np.array([2, 2, -2, -2, 0], np.int32)
    assert number_binary(x, y, function="floor_div").tolist() == [3, -4, -4, 3, 0]
    assert number_binary(x, y, function="div").tolist() == [3, -3, -3, 3, 0]
    real = number_binary(x.astype(np.float32), y.astype(np.float32), function="floor_div")
    assert real.tolist() == [3, -4, -4, 3, np.inf]


def test_results_of_sums_and_quotients_are_finite():
    x, largest = np.array([3e38, -3e38, 0], np.float32), float(np.finfo(np.float32).max)
    assert number_binary(x, x, function="add").tolist() == [largest, -largest, 0]
    assert number_binary(x, np.zeros(3, np.float32), function="div")[:2].tolist() == [largest, -largest]


def test_exponentials():
    x = np.array([-np.inf, -110, -0.5, 0, 1, 88, 89, np.nan], np.float32)
    found = number_function(x, function="exp")
    assert found[[0, 1, 3, 6]].tolist() == [0, 0, 1, np.inf] and np.isnan(found[7])
    np.testing.assert_allclose(found[[2, 4, 5]], np.exp(x[[2, 4, 5]].astype(np.float64)), rtol=1e-7)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name):
    x = REAL.reshape(2, 2, 5)
    found = number_reduce(x, function=name, axes=[0, 2], shape=[1, 2, 1])
    expected = {"mean": np.mean, "sum": np.sum, "reduce_max": np.max, "reduce_min": np.min, "reduce_prod": np.prod}
    expected |= {"reduce_all": np.all, "reduce_any": np.any}
    assert found.dtype == np.float32 and found.shape == (1, 2, 1)
    np.testing.assert_allclose(found[0, :, 0], expected[name](x.astype(np.float64), (0, 2)), rtol=1e-5)


def test_means_of_integers_are_cut_off():
    assert number_reduce(np.array([-3, 0], np.int32), function="mean", axes=[0], shape=[1]).tolist() == [-1]


def test_dense_layers():
    weight, bias = RNG.normal(size=(3, 5)).astype(np.float32), np.arange(3, dtype=np.float32)
    np.testing.assert_allclose(number_dense(REAL, weight=weight, bias=bias), REAL @ weight.T + bias, rtol=1e-4)


def test_comparisons():
    x, y = np.array([1, 2, 3], np.int32), np.array([2], np.int32)
    found = {name: compare(x, y, function=name).tolist() for name in ("less", "less_equal", "equal", "not_equal")}
    no, yes = False, True
    assert found == {
        "less": [yes, no, no],
        "less_equal": [yes, yes, no],
        "equal": [no, yes, no],
        "not_equal": [yes, no, yes],
    }
    assert compare(x, y, function="greater").dtype == bool
    halves = {"zero_points": [0, 10], "multipliers": [1 << 30] * 2, "exponents": [0, 1]}  # 1/2 and 1
    x, y = np.array([2, 4, 6], np.int8), np.array([12], np.int8)
    assert compare_int8(x, y, function="greater_equal", **halves).tolist() == [no, yes, yes]


def test_choices():
    condition = np.array([[True], [False]])
    assert select(condition, np.array([1, 2], np.int8), np.array(3, np.int8)).tolist() == [[1, 2], [3, 3]]


def test_types():
    assert cast(np.array([2.9, -2.9, 300.0], np.float32), dtype="int8").tolist() == [2, -2, 44]
    assert cast(np.array([200], np.uint8), dtype="float32").tolist() == [200.0]
    assert cast(np.array([1 << 33], np.int64), dtype="int32").tolist() == [0]
