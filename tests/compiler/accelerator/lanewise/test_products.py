"""Products of matrices with heads in lanes as one launch against the reference."""

import pytest

from tilewright.compiler.graph import BatchMatMul, Reshape, ShiftMatMul, Tensor
from tilewright.compiler.kernels.table import refusal
from tilewright.hw.config import PRESETS

PLUS = PRESETS["pynq_z1_plus"]


def product(name, shapes, zero_points, **facts):
    x, y, out = (Tensor(n, (1, *shape), zero_point=z) for n, shape, z in zip("xyo", shapes, zero_points))
    return ShiftMatMul(name, (x, y), out, **facts)


def scores(heads, positions, elements=4, zero_points=(0, 0, 0)):
    shapes = (heads, 1, elements), (heads, positions, elements), (heads, 1, positions)
    return product("scores", shapes, zero_points, ratio=0.0088043212890625, transposed=True)


def means(heads, positions, elements=4, zero_points=(0, 0, 0)):
    shapes = (heads, 1, positions), (heads, positions, elements), (heads, 1, elements)
    return product("means", shapes, zero_points, ratio=51 / 65536)


def rows(count, positions):
    """Scores of several tokens."""
    inputs = Tensor("q", (1, 32, count, 4)), Tensor("k", (1, 32, positions, 4))
    return ShiftMatMul("rows", inputs, Tensor("y", (1, 32, count, positions)), ratio=0.25, transposed=True)


def own(count, heads=16, columns=4, zero_point=0):
    """Products of tokens with a matrix of each."""
    inputs = Tensor("x", (1, heads, count, 1, 4), zero_point=zero_point), Tensor("m", (1, heads, count, 4, columns))
    y = Tensor("y", (1, heads, count, 1, columns))
    return ShiftMatMul("own", inputs, y, ratio=0.25)


@pytest.mark.parametrize("zero_point", [0, 7])
@pytest.mark.parametrize(("count", "heads", "columns"), [(1, 16, 4), (16, 16, 4), (5, 32, 3)])
def test_matrices_of_each_row(launch, count, heads, columns, zero_point):
    op = own(count, heads, columns, zero_point)
    x, m = op.inputs
    first = Reshape("first", (Tensor("a", (1, heads, count, 4), zero_point=zero_point),), x)
    second = Reshape("second", (Tensor("b", (1, heads, count * 4, columns)),), m)
    last = Reshape("last", (op.output,), Tensor("z", (1, heads, count, columns)))
    launch(first, second, op, last)


@pytest.mark.parametrize("shape", [(2, 2), (16, 16), (16, 60)])
def test_rows(launch, shape):
    launch(rows(*shape))


@pytest.mark.parametrize("on", ["spec", "rtl"])
def test_devices(launch, on):
    launch(scores(16, 3), on=on)


@pytest.mark.parametrize("make", [scores, means])
@pytest.mark.parametrize("shape", [(16, 1), (16, 2), (16, 17), (32, 65), (16, 257), (16, 33, 8), (16, 5, 1)])
def test_shapes(launch, make, shape):
    launch(make(*shape))


@pytest.mark.parametrize("make", [scores, means])
@pytest.mark.parametrize("zero_points", [(-128, 0, 0), (0, -128, 5), (3, -4, -128)])
def test_zero_points(launch, make, zero_points):
    launch(make(16, 20, zero_points=zero_points))


def test_which_products_are_in_lanes():
    assert scores(16, 17).in_lanes(16)
    assert means(32, 17).in_lanes(16)
    assert rows(16, 9).in_lanes(16)
    assert own(16).in_lanes(16)
    assert scores(12, 17).in_lanes(16)  # heads are no whole blocks
    assert not scores(12, 10, 32).in_lanes(16)  # the same, of whole blocks each
    assert not scores(16, 40, 32).in_lanes(16)  # heads of whole blocks
    assert rows(17, 9).in_lanes(16)
    op = scores(16, 17)
    assert not BatchMatMul("m", op.inputs, op.output, transposed=True).in_lanes(16)  # another network's


def test_refusals():
    assert refusal(scores(16, 17), PLUS) == ""
    assert refusal(scores(16, 600), PLUS) == "4 elements, 600 columns: at most 512"
    assert refusal(means(16, 600), PLUS) == "600 elements, 4 columns: at most 512"
    assert refusal(scores(16, 17), PRESETS["vta"]) == "it needs the extension requant"
