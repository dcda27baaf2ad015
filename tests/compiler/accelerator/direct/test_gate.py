"""Products of images with a value per channel, as one launch against the reference."""

import numpy as np
import pytest

from tilewright.compiler.accelerator.module import Accelerator
from tilewright.compiler.graph import Mul, Tensor
from tilewright.compiler.kernels.elementwise import pair
from tilewright.compiler.kernels.language import why_not
from tilewright.hw.config import PRESETS
from tilewright.sim.timing import predict

CFG = PRESETS["pynq_z1"]


def gated(shape, zero_points=(-9, -128), first=False, constant=None, **clamp):
    x = Tensor("x", shape, scale=0.05, zero_point=zero_points[0])
    data = None
    if constant is not None:
        data = np.random.default_rng(0).integers(-128, 128, constant).astype(np.int8)
    gates = Tensor("g", constant or (*shape[:2], 1, 1), scale=1 / 256, zero_point=zero_points[1], data=data)
    return Mul("op", (gates, x) if first else (x, gates), Tensor("y", shape, scale=0.03, zero_point=17), **clamp)


@pytest.mark.parametrize("name", ["pynq_z1", "tiny"])
@pytest.mark.parametrize("shape", [(1, 20, 5, 7), (2, 33, 1, 9), (1, 3, 40, 33), (1, 16, 2, 1)])
def test_gates(exact, name, shape):
    exact(gated(shape), cfg=PRESETS[name])
    exact(gated(shape, (-128, 127), first=True, low=-100, high=90), cfg=PRESETS[name])


@pytest.mark.parametrize("zero_points", [(0, 0), (127, 0), (0, -128)])
def test_zero_points(exact, zero_points):
    exact(gated((1, 40, 6, 5), zero_points))


@pytest.mark.parametrize("constant", [(1, 20, 1, 1), (20, 1, 1), (1, 1, 1, 1), (1,)])
def test_constant_gates(exact, only, constant):
    only(Mul, pair)
    op = gated((2, 20, 5, 7), constant=constant)
    assert not why_not(pair, op, CFG)
    exact(op)


def test_more_gates_than_are_loaded_together(exact):
    op = gated((1, 5000, 2, 3))
    exact(op)
    exact(gated((3, 90, 2, 2)), cfg=PRESETS["tiny"])


def test_its_cycles(exact):
    assert predict(exact(gated((1, 96, 14, 14)))).cycles < 6 * 6 * 196


def test_other_products_are_none():
    x, y = (Tensor(t, (1, 20, 5, 7), scale=0.05) for t in "xy")
    wide = Tensor("w", (1, 20, 1, 7), scale=0.05)
    assert "rescale" in why_not(pair, gated((1, 20, 5, 7)), PRESETS["vta"])
    why = Accelerator(CFG).refusal(Mul("op", (x, wide), y))
    assert why == "operand of shape (1, 20, 1, 7) is broadcast"
