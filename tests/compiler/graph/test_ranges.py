"""compiler/graph/ranges.py: bounds that some inputs reach, and none exceeds."""

import itertools

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.graph.elementwise import ADD_SHIFT
from tilewright.compiler.graph.ranges import headroom, problem
from tilewright.hw import rounding
from tilewright.runtime.hostops import roots
from tilewright.runtime.hostops.layers import dense_accumulators

BIG = 2**31 - 1


def tensor(name, *shape, scale=0.1, zero_point=0, data=None):
    return g.Tensor(name, shape, scale=scale, zero_point=zero_point, data=data)


def dense(weight, bias=0, zero_point=0, scale=0.5, y_scale=0.2):
    weight = np.asarray(weight, np.int8)
    channels, features = weight.shape
    x, y = tensor("x", 1, features, zero_point=zero_point), tensor("y", 1, channels, scale=y_scale)
    return g.QDense("d", (x,), y, weight, np.full(channels, scale, np.float32), np.full(channels, bias, np.int32))


@pytest.mark.parametrize("seed", range(8))
def test_bounds_of_layers_are_reached(seed):
    rng = np.random.default_rng(seed)
    zero = int(rng.integers(-128, 128))
    op = dense(rng.integers(-128, 128, (3, 6)), int(rng.integers(-9999, 9999)), zero)
    corners = np.array(list(itertools.product((-128, 127), repeat=6)), np.int8)
    found = dense_accumulators(corners, weight=op.weight, bias=op.bias, x_zero_point=zero)
    reach = op.reach()
    assert reach is not None and not problem(op)
    assert (reach.low == found.min(0)).all() and (reach.high == found.max(0)).all()


@pytest.mark.parametrize("cls", [g.Add, g.Sub])
@pytest.mark.parametrize("seed", range(4))
def test_bounds_of_sums_are_reached(cls, seed):
    rng = np.random.default_rng(seed)
    x, y = (tensor(n, 4, scale=rng.uniform(0.001, 1), zero_point=int(rng.integers(-128, 128))) for n in "xy")
    op = cls("a", (x, y), tensor("z", 4))
    values = np.arange(-128, 128)
    first, second = (
        rounding.rescale((values - t.zero_point) << ADD_SHIFT, *op.multipliers[k]) for k, t in enumerate((x, y))
    )
    sums, reach = first[:, None] + op.sign * second, op.reach()
    assert reach is not None and (reach.low[0], reach.high[0]) == (sums.min(), sums.max())
    assert abs(sums).max() <= BIG


def test_bounds_of_products_are_reached_and_constants_count():
    x, values = tensor("x", 3, zero_point=-7), np.array([-5, 0, 3], np.int8)
    for y in (tensor("y", 3, zero_point=20), tensor("y", 3, zero_point=2, data=values)):
        seen = np.arange(-128, 128) if y.data is None else values.astype(int)
        products = (np.arange(-128, 128)[:, None] + 7) * (seen - y.zero_point)
        reach = g.Mul("m", (x, y), tensor("z", 3)).reach()
        assert reach is not None and (reach.low[0], reach.high[0]) == (products.min(), products.max())


def windows(cls, size, zero_point=0, y_scale=0.1):
    x = tensor("x", 1, 1, size, size, zero_point=zero_point)
    return cls("p", (x,), tensor("y", 1, 1, 1, 1, scale=y_scale, zero_point=zero_point), (size, size))


def test_bounds_of_means():
    for op in (windows(g.AveragePool, 4, 3), g.Mean("m", (tensor("x", 16, zero_point=3),), tensor("y", 1), (0,))):
        reach = op.reach()
        assert reach is not None and (reach.low[0], reach.high[0]) == (16 * -131, 16 * 124)
    reach = windows(g.ExactAveragePool, 4, 3).reach()
    assert reach is not None and (reach.low[0], reach.high[0]) == (16 * -128, 16 * 127)
    assert "outside" in problem(windows(g.ExactAveragePool, 4097))
    assert not problem(windows(g.ExactAveragePool, 4096))  # -2**31 is within int32
    assert "outside" in problem(g.Mean("m", (tensor("x", 1 << 24, zero_point=1),), tensor("y", 1), (0,)))


@pytest.mark.parametrize("bias, fits", [(BIG - 6 * 127, True), (BIG - 6 * 127 + 1, False)])
def test_the_largest_bias(bias, fits):
    text = problem(dense(np.ones((2, 6)), bias))
    assert text == (
        ""
        if fits
        else f"has accumulators from {bias - 768} to {BIG + 1} for output channel 0 (bias {bias}), "
        f"outside {-BIG - 1}..{BIG}, where they wrap"
    )


@pytest.mark.parametrize("low, fits", [(-BIG - 1, True), (-BIG - 2, False)])
def test_the_least_bias(low, fits):
    assert bool(problem(dense(np.ones((1, 6)), low + 768))) != fits


@pytest.mark.parametrize("scale", [-1.0, np.nan, np.inf])
def test_factors_that_are_none(scale):
    assert f"scales accumulators by {scale / 2:g} for output channel 0" in problem(dense(np.ones((1, 2)), scale=scale))


def test_the_largest_factor_of_an_accumulator():
    assert "scales accumulators by 1.07374e+09" in problem(dense([[1]], -128, 128 - 1, 2.0**30, 0.1))
    assert not problem(dense([[0]], 0, 0, 1e30))  # nothing to scale
    assert not problem(dense([[0]], 1, 0, 2.0**27))  # 1 << 30 is within int32


@pytest.mark.parametrize("exponent", range(20, 26))
def test_what_is_accepted_does_not_wrap(exponent):
    """Both contracts give what unlimited integers do, saturated by the output."""
    op = dense([[1, -1]], 5, 0, 2.0**exponent, 0.1)
    fits = 255 + 5 <= BIG >> exponent + 1
    assert bool(problem(op)) != fits
    reach = op.reach()
    assert reach is not None
    ends = np.array([reach.low[0], reach.high[0]])
    multiplier, shift = (int(v[0]) for v in op.multipliers)
    exact = ends * multiplier * 2.0 ** (shift - 31)
    assert np.allclose(rounding.rescale(ends, multiplier, shift), exact) or not fits


@pytest.mark.parametrize("count", [1, 3, 4, 100])
def test_means_have_their_count_in_the_exponent(count):
    def mean(scale):
        return g.Mean("m", (tensor("x", count, scale=1.0),), tensor("y", 1, scale=scale), (0,))

    scale = next(2.0**-k for k in range(1, 31) if problem(mean(2.0**-k)))
    shift = mean(2 * scale).multipliers[1]
    assert 128 * count << max(shift, 0) <= BIG < 128 * count << max(mean(scale).multipliers[1], 0)


def test_bounds_of_norms():
    def norm(scale, gains=(1.0, 0.1, 20.0, 0.0)):
        return g.RmsNorm("n", (tensor("x", 1, 4),), tensor("y", 1, 4, scale=scale), np.array(gains))

    most = 128 * roots.inverse_root(np.arange(1 << 20)).max()
    reach = norm(0.1).reach()
    assert reach is not None and set(reach.low) == {-most} and set(reach.high) == {most}
    scale = next(2.0**-k for k in range(1, 60) if problem(norm(2.0**-k)))
    shift = norm(2 * scale).multipliers[1].max()
    assert most << max(shift, 0) <= BIG < most << norm(scale).multipliers[1].max()
    assert problem(norm(scale, gains=(0.0,) * 4)) == ""


def attention(scale=0.1, score_scale=0.1):
    inputs = tensor("q", 1, 64, scale=score_scale), tensor("k", 1, 32, 48, 1), tensor("v", 1, 48, 16, 1)
    position = g.Tensor("p", (1,), "int32")
    groups, outputs = (0,) * 12 + (1,) * 3 + (-1,), (1, 0) * 8
    return g.Attention("a", (*inputs, position), tensor("y", 1, 32, scale=scale), groups, outputs, 8, 48)


def test_bounds_of_attention():
    reach = attention().reach()
    assert reach is not None and reach.high.tolist() == [2 * 12 * 128 * 128, BIG] and problem(attention()) == ""
    assert "give the output a larger scale" in problem(attention(scale=0.1 / 2**25))
    scale = next(2.0**k for k in range(20) if problem(attention(score_scale=2.0**k)))
    assert "scores of up to" in problem(attention(score_scale=scale))
    assert 12 * 2 * 2**14 * attention(score_scale=scale).factors[0] >= 2**26
    assert 12 * 2 * 2**14 * attention(score_scale=scale / 2).factors[0] < 2**26


def test_operators_without_accumulators():
    x = tensor("x", 1, 4)
    assert g.Reshape("r", (x,), tensor("y", 4, 1)).reach() is None
    assert problem(g.Reshape("r", (x,), tensor("y", 4, 1))) == ""


@pytest.mark.parametrize(
    "features, bias, bits", [(1, 0, 17), (1, -200, 16), (65536, 0, 1), (131071, 0, 0), (2, BIG, -1)]
)
def test_headroom(features, bias, bits):
    """Weights of 127 on inputs up to 127 or down to -128, by hand: 128 * 127 = 16,256 < 2**14."""
    op = dense(np.full((1, features), 127), bias)
    low, high = -128 * 127 * features + bias, 127 * 127 * features + bias
    fits = [h for h in range(32) if -(2**31) <= low << h and high << h < 2**31]
    assert headroom(op) == (max(fits) if fits else -1) == bits
    assert bool(problem(op)) == (bits < 0)


def test_no_accumulators_have_no_headroom():
    assert headroom(g.Reshape("r", (tensor("x", 4),), tensor("y", 2, 2))) is None
