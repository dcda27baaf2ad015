"""compiler/resnet18_ops.py: which layers go the way of a network's operators, and what they compute."""

import numpy as np
import pytest

from tilewright.compiler import resnet18_ops as ops
from tilewright.compiler.workloads import LAYERS, Layer, accumulators
from tilewright.hw.config import PRESETS
from tilewright.runtime.loader import run
from tilewright.runtime.verify import verify

PYNQ, VTA = PRESETS["pynq_z1"], PRESETS["vta"]
SUM, FIRST, MAXIMUM = Layer("s", 5, 48, 48, 1, 1), Layer("c", 20, 3, 32, 7, 2), Layer("m", 20, 32, 32, 3, 2)


def test_it_takes_extensions_and_few_channels():
    assert ops.goes_this_way("add", SUM, PYNQ) and not ops.goes_this_way("add", SUM, VTA)
    assert ops.goes_this_way("conv2d", FIRST, PYNQ) and not ops.goes_this_way("conv2d", FIRST, VTA)
    assert ops.goes_this_way("max_pool", MAXIMUM, PYNQ) and not ops.goes_this_way("max_pool", MAXIMUM, VTA)
    assert not ops.goes_this_way("conv2d", LAYERS["C2"], PYNQ) and not ops.goes_this_way("dense", LAYERS["C2"], PYNQ)


@pytest.mark.parametrize("op, layer", [("add", SUM), ("conv2d", FIRST), ("max_pool", MAXIMUM)])
def test_programs_are_exact(op, layer):
    program = ops.program(op, layer, PYNQ)
    verify(program.finish())
    inputs, expected = ops.data(op, layer, PYNQ, np.random.default_rng(1))
    out, _ = run(program, inputs)
    assert np.array_equal(out["out"], expected) and len(np.unique(expected)) > 100


def test_random_weights_fill_the_output():
    layer = ops.convolution(FIRST)
    rng = np.random.default_rng(2)
    acc = accumulators(rng.integers(-128, 128, (3, 20, 20), np.int8), layer.weight, FIRST)
    assert 20 < (acc * layer.weight_scale[:, None]).std() < 80
