"""Images with one constant per channel as one launch against the reference."""

import numpy as np
import pytest

from tilewright.compiler.graph import Add, Mul, Sub, Tensor
from tilewright.compiler.kernels.elementwise import constant_per_channel, line_of
from tilewright.compiler.kernels.language import cycles, why_not
from tilewright.hw.config import PRESETS
from tilewright.sim.timing import predict

CFG = PRESETS["pynq_z1"]
SHAPES = [(1, 16, 1, 16), (2, 20, 1, 20), (1, 3, 40, 9), (1, 128, 1, 128), (3, 600, 1, 7), (1, 1100, 1, 3)]
SCALES = [(0.1, 0.02), (0.02, 0.1), (0.1, 0.1), (0.1, 0.05), (0.0371, 0.00913)]


@pytest.fixture(autouse=True)
def by_this_kernel(only):
    for kind in (Add, Mul):
        only(kind, constant_per_channel)


def constant(kind, shape, scales=SCALES[0], points=(3, -7), first=True, values=None):
    values = np.random.default_rng(3).integers(-128, 128, (1, shape[1], 1, 1)) if values is None else values
    x = Tensor("x", shape, scale=scales[0], zero_point=points[0])
    y = Tensor("c", values.shape, scale=scales[1], zero_point=points[1], data=values.astype(np.int8))
    z = Tensor("z", shape, scale=0.09, zero_point=-20)
    return kind("op", (x, y) if first else (y, x), z)


@pytest.mark.parametrize("kind", [Add, Sub, Mul])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_size(exact, kind, shape):
    op = constant(kind, shape)
    assert found(op).bias.shape == (shape[1],)
    exact(op)


@pytest.mark.parametrize("points", [(0, 0), (-128, 127), (127, -128)])
@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("kind", [Add, Sub, Mul])
def test_every_constant(exact, kind, first, scales, points):
    exact(constant(kind, (1, 256, 1, 16), scales, points, first, np.arange(-128, 128).reshape(1, 256, 1, 1)))


def test_one_constant_for_all_channels(exact):
    op = constant(Mul, (2, 40, 1, 20), values=np.array(55).reshape(1))
    assert found(op).same
    exact(op)


@pytest.mark.parametrize("kind", [Add, Mul])
def test_what_fits_decides_the_tile(exact, kind):
    values = np.arange(20).reshape(1, 20, 1, 1)
    exact(constant(kind, (2, 20, 5, 7), points=(-9, -128), values=values), cfg=PRESETS["tiny"])


def test_what_it_applies_to():
    pixels = constant(Add, (1, 16, 1, 16), values=np.arange(16).reshape(1, 1, 1, 16))
    assert line_of(pixels) is None
    assert why_not(constant_per_channel, pixels, CFG).startswith("no operand is one constant")
    assert "overwrite" in why_not(constant_per_channel, constant(Add, (1, 16, 1, 16)), PRESETS["vta"])


def found(op):
    line = line_of(op)
    assert line is not None
    return line


def test_weights_and_shifts():
    every = np.arange(-128, 128).reshape(1, 256, 1, 1)
    line = found(constant(Add, (1, 256, 1, 1), values=every))
    assert line.shift == 14 and line.same and len(line.weights) == 1
    line = found(constant(Mul, (1, 256, 1, 1), points=(3, 0), values=every))
    assert line.shift == 0 and not line.same and len(line.weights) == 1
    for point, parts in ((-128, 3), (-127, 2), (127, 2)):  # factors of up to 255
        line = found(constant(Mul, (1, 256, 1, 1), points=(3, point), values=every))
        assert len(line.weights) == parts and -128 <= np.min(line.weights) and np.max(line.weights) <= 127
        np.testing.assert_array_equal(np.sum(line.weights, 0), np.arange(-128, 128) - point)


@pytest.mark.parametrize("kind, most", [(Add, 4), (Mul, 5)])
def test_the_cycles(exact, kind, most):
    op = constant(kind, (1, 256, 1, 128))
    found = predict(exact(op)).cycles
    assert cycles(constant_per_channel, op, CFG) == pytest.approx(found, rel=0.01) and found < most * 16 * 128
