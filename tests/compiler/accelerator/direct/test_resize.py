"""Bilinear resizes as one launch against the reference, whose arithmetic is that of TensorFlow Lite."""

import itertools

import numpy as np
import pytest

from tilewright.compiler.graph import ResizeBilinear, Tensor
from tilewright.compiler.graph.integer_forms import mean_store
from tilewright.compiler.kernels import resize
from tilewright.compiler.kernels.language import cycles, why_not
from tilewright.compiler.kernels.resize import Interpolation
from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Isa, Mem
from tilewright.runtime.hostops.resize import resize_bilinear
from tilewright.sim.timing import predict

CFG = PRESETS["pynq_z1"]
HALF, LEGACY, CORNERS = (
    {"half_pixel_centers": half, "align_corners": corners}
    for half, corners in ((True, False), (False, False), (False, True))
)


def resized(shape, size, offset=None, **centers):
    x, y = (Tensor(name, s, scale=0.1, zero_point=3) for name, s in (("x", shape), ("y", (*shape[:2], *size))))
    return ResizeBilinear("op", (x,), y, offset=offset, **centers)


@pytest.mark.parametrize("name", ["pynq_z1", "tiny"])
@pytest.mark.parametrize("centers", [HALF, LEGACY])
@pytest.mark.parametrize("offset", [None, 128])
def test_twice_the_size(exact, name, centers, offset):
    exact(resized((2, 20, 5, 7), (10, 14), offset, **centers), cfg=PRESETS[name])
    exact(resized((1, 3, 1, 1), (2, 2), offset, **centers), cfg=PRESETS[name])
    exact(resized((1, 17, 1, 6), (2, 12), offset, **centers), cfg=PRESETS[name])


@pytest.mark.parametrize("centers", [HALF, LEGACY])
@pytest.mark.parametrize("size", [(20, 7), (5, 28), (20, 28), (5, 7), (10, 7)])
def test_other_factors(exact, centers, size):
    exact(resized((1, 20, 5, 7), size, **centers))


def test_smaller_images(exact):
    exact(resized((1, 20, 8, 12), (4, 6), **HALF))
    exact(resized((1, 20, 8, 12), (4, 3), **LEGACY))
    exact(resized((1, 20, 9, 9), (5, 5), **CORNERS))


def test_images_of_several_tiles(exact):
    op = resized((1, 24, 24, 24), (48, 48), **HALF)
    launch = exact(op)
    found = predict(launch).cycles
    assert sum(fields.get("mem") == Mem.OUTQ for fields in Isa(CFG).decode(launch.insn)) > 2 * 2  # blocks of channels
    assert cycles(resize.resize_bilinear, op, CFG) == pytest.approx(found, rel=0.01) and found < 5 * 2 * 48 * 48


@pytest.mark.parametrize("ties_up", [False, True])
def test_the_store_rounds_every_sum_as_the_kernel_does(ties_up):
    corners = np.array([(-128, -128), (-128, 127), (127, -128), (127, 127), (0, 1), (-1, 0), (-3, 2), (5, -6)], np.int8)
    for (a, b), (c, d) in itertools.product(corners, corners):
        x = np.array([[[[a, b], [c, d]]]], np.int8)
        wanted = resize_bilinear(x, size=(4, 4), half_pixel_centers=True, offset=128 if ties_up else None)
        rows = np.array([[4, 0], [3, 1], [1, 3], [0, 4]])
        sums = rows @ x[0, 0].astype(int) @ rows.T
        assert np.array_equal(mean_store(16, ties_up=ties_up).apply(sums), wanted[0, 0])
    sums = np.arange(-128 * 16, 127 * 16 + 1)
    away = np.sign(sums) * ((abs(sums) + 8) // 16)
    assert np.array_equal(mean_store(16, ties_up=ties_up).apply(sums), (sums + 8) >> 4 if ties_up else away)


def test_runs():
    axis = Interpolation.of(resized((1, 1, 3, 1), (6, 1), **HALF), 0)
    assert (axis.period, axis.step, axis.denominator) == (2, 1, 4)
    assert axis.runs == [
        (0, 1, ((0, 4),)),
        (2, 2, ((0, 1), (1, 3))),
        (1, 2, ((0, 3), (1, 1))),
        (5, 1, ((2, 4),)),
    ]
    part = axis.part(3, 2)
    assert part.runs == [(0, 1, ((1, 3), (2, 1))), (1, 1, ((1, 1), (2, 3)))] and part.window == (1, 2)


def test_refusals():
    for op in (
        resized((1, 3, 5, 5), (10, 10), **CORNERS),
        resized((1, 3, 5, 5), (15, 15), **HALF),
        resized((1, 3, 5, 5), (40, 40), **HALF),
    ):
        assert why_not(resize.resize_bilinear, op, CFG) == "its weights are no int8 multiples of a power of two"
    wide = resized((1, 3, 2, 2000), (4, 4000), **HALF)
    assert (
        why_not(resize.resize_bilinear, wide, CFG)
        == "a row of 2000 pixels, or the one of 4000 that it becomes, does not fit"
    )
    op = resized((1, 3, 5, 5), (10, 10), **HALF)
    assert why_not(resize.resize_bilinear, op, CFG) == "" != why_not(resize.resize_bilinear, op, PRESETS["vta"])
