"""Bounds of accumulators that some inputs reach, and none exceeds, and what is refused because of them."""

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


def pair(cls, seed):
    rng = np.random.default_rng(seed)
    x, y = (tensor(n, 4, scale=rng.uniform(0.001, 1), zero_point=int(rng.integers(-128, 128))) for n in "xy")
    return cls("a", (x, y), tensor("z", 4))


EVERY = np.arange(-128, 128)


@pytest.mark.parametrize("seed", range(8))
def test_bounds_of_layers_are_reached(seed):
    rng = np.random.default_rng(seed)
    zero = int(rng.integers(-128, 128))
    op = dense(rng.integers(-128, 128, (3, 6)), int(rng.integers(-9999, 9999)), zero)
    corners = np.array(list(itertools.product((-128, 127), repeat=6)), np.int8)
    found = dense_accumulators(corners, weight=op.weight, bias=op.bias, x_zero_point=zero)
    reach = op.reach()
    assert not problem(op) and (reach.low == found.min(0)).all() and (reach.high == found.max(0)).all()


def sums(op):
    x, y = (rounding.rescale((EVERY - t.zero_point) << ADD_SHIFT, *op.multipliers[k]) for k, t in enumerate(op.inputs))
    return x[:, None] + op.sign * y


def products(op):
    x, y = (EVERY if t.data is None else t.data.astype(int) for t in op.inputs)
    return (x[:, None] - op.inputs[0].zero_point) * (y - op.inputs[1].zero_point)


def windows(cls, size, zero_point=0):
    x = tensor("x", 1, 1, size, size, zero_point=zero_point)
    return cls("p", (x,), tensor("y", 1, 1, 1, 1, zero_point=zero_point), (size, size))


def mean(count, scale=0.1, zero_point=0, cls=g.Mean):
    return cls("m", (tensor("x", count, scale=1.0, zero_point=zero_point),), tensor("y", 1, scale=scale), (0,))


X, CONSTANT = tensor("x", 3, zero_point=-7), tensor("y", 3, zero_point=2, data=np.array([-5, 0, 3], np.int8))
REACHED = [(pair(cls, seed), sums) for cls in (g.Add, g.Sub) for seed in range(4)]
REACHED += [(g.Mul("m", (X, y), tensor("z", 3)), products) for y in (tensor("y", 3, zero_point=20), CONSTANT)]
REACHED += [(g.Requantize("r", (X,), tensor("y", 3, zero_point=20)), lambda op: EVERY + 7)]
REACHED += [
    (windows(g.AveragePool, 4, 3), lambda op: 16 * (EVERY - 3)),
    (mean(16, 0.1, 3), lambda op: 16 * (EVERY - 3)),
]
REACHED += [(windows(g.ExactAveragePool, 4, 3), lambda op: 16 * EVERY)]


@pytest.mark.parametrize("op, accumulators", REACHED, ids=lambda value: getattr(value, "name", ""))
def test_bounds_are_reached(op, accumulators):
    found, reach = accumulators(op), op.reach()
    assert (reach.low[0], reach.high[0]) == (found.min(), found.max()) and abs(found).max() <= BIG


def two(cls, scale):
    return cls("p", (tensor("x", 4, scale=1.0), tensor("y", 4, scale=1.0)), tensor("z", 4, scale=scale))


def wraps(bias):
    limits = f"from {bias - 768} to {BIG + 1} for output channel 0 (bias {bias})"
    return f"has accumulators {limits}, outside {-BIG - 1}..{BIG}, where they wrap"


ROW, FACTOR = np.ones((1, 6)), "scales accumulators by"
PROBLEMS = [
    (dense(np.ones((2, 6)), BIG - 6 * 127), ""),
    (dense(np.ones((2, 6)), BIG - 6 * 127 + 1), wraps(BIG - 6 * 127 + 1)),
    (dense(ROW, -BIG - 1 + 768), ""),
    (dense(ROW, -BIG - 2 + 768), "outside"),
    *((dense(ROW, scale=k), f"{FACTOR} {k / 2:g} for output channel 0") for k in (-1.0, np.nan, np.inf)),
    (dense([[1]], -128, 127, 2.0**30, 0.1), f"{FACTOR} 1.07374e+09"),
    (dense([[0]], 0, 0, 1e30), ""),  # nothing to scale
    (dense([[0]], 1, 0, 2.0**27), ""),  # 1 << 30 is within int32
    (windows(g.ExactAveragePool, 4097), "outside"),
    (windows(g.ExactAveragePool, 4096), ""),  # -2**31 is within int32
    (mean(1 << 24, zero_point=1), "outside"),
    (two(g.Prelu, 1.0), ""),
    (two(g.SquaredDifference, 1.0), ""),
    (two(g.Prelu, 2.0**-20), "at most"),
    (two(g.SquaredDifference, 2.0**-20), "at most"),
    (g.BatchMatMul("op", (tensor("x", 1, 1 << 18), tensor("y", 1 << 18, 1)), tensor("z", 1, 1)), "wrap"),
    (g.Reshape("r", (tensor("x", 4),), tensor("y", 2, 2)), ""),
]


@pytest.mark.parametrize("op, text", PROBLEMS)
def test_problems_are_named(op, text):
    assert text in problem(op) and bool(problem(op)) == bool(text)


@pytest.mark.parametrize("exponent", range(20, 26))
def test_what_is_accepted_does_not_wrap(exponent):
    """Both contracts give what unlimited integers do, saturated by the output."""
    op = dense([[1, -1]], 5, 0, 2.0**exponent, 0.1)
    fits = 255 + 5 <= BIG >> exponent + 1
    assert bool(problem(op)) != fits
    reach = op.reach()
    ends = np.array([reach.low[0], reach.high[0]])
    multiplier, shift = (int(v[0]) for v in op.multipliers)
    exact = ends * multiplier * 2.0 ** (shift - 31)
    assert np.allclose(rounding.rescale(ends, multiplier, shift), exact) or not fits


@pytest.mark.parametrize("count", [1, 3, 4, 100])
def test_means_have_their_count_in_the_exponent(count):
    scale = next(2.0**-k for k in range(1, 31) if problem(mean(count, 2.0**-k)))
    shift = mean(count, 2 * scale).multipliers[1]
    assert 128 * count << max(shift, 0) <= BIG < 128 * count << max(mean(count, scale).multipliers[1], 0)


def test_bounds_of_norms():
    def norm(scale, gains=(1.0, 0.1, 20.0, 0.0)):
        return g.RmsNorm("n", (tensor("x", 1, 4),), tensor("y", 1, 4, scale=scale), np.array(gains))

    most = 128 * roots.inverse_root(np.arange(1 << 20)).max()
    reach = norm(0.1).reach()
    assert set(reach.low) == {-most} and set(reach.high) == {most}
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
    assert reach.high.tolist() == [2 * 12 * 128 * 128, BIG] and problem(attention()) == ""
    assert "give the output a larger scale" in problem(attention(scale=0.1 / 2**25))
    scale = next(2.0**k for k in range(20) if problem(attention(score_scale=2.0**k)))
    assert "scores of up to" in problem(attention(score_scale=scale))
    assert 12 * 2 * 2**14 * attention(score_scale=scale).factors[0] >= 2**26
    assert 12 * 2 * 2**14 * attention(score_scale=scale / 2).factors[0] < 2**26


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
    reshape = PROBLEMS[-1][0]
    assert reshape.reach() is headroom(reshape) is None
