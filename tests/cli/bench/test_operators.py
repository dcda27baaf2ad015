"""cli/bench/operators.py: which layers go the way of a network's operators, and what they compute."""

import numpy as np
import pytest

from tilewright.cli.bench import operators as ops
from tilewright.cli.bench.layers import LAYERS, BenchLayer, accumulators, square
from tilewright.hw.config import PRESETS
from tilewright.runtime.loader import run
from tilewright.runtime.verify import verify

PYNQ, VTA = PRESETS["pynq_z1"], PRESETS["vta"]
SUM = BenchLayer("s", "add", square(5, 48, 48, 1, 1, groups=48))
FIRST = BenchLayer("c", "conv2d", square(20, 3, 32, 7, 2))
MAXIMUM = BenchLayer("m", "max_pool", square(20, 32, 32, 3, 2, groups=32))


def test_it_takes_extensions_and_few_channels():
    assert ops.goes_this_way(SUM, PYNQ) and not ops.goes_this_way(SUM, VTA)
    assert ops.goes_this_way(FIRST, PYNQ) and not ops.goes_this_way(FIRST, VTA)
    assert ops.goes_this_way(MAXIMUM, PYNQ) and not ops.goes_this_way(MAXIMUM, VTA)
    for op in ("conv2d", "dense"):
        assert not ops.goes_this_way(BenchLayer("C2", op, LAYERS["C2"]), PYNQ)


@pytest.mark.parametrize("layer", [SUM, FIRST, MAXIMUM], ids=lambda layer: layer.op)
def test_programs_are_exact(layer):
    program = ops.program(layer, PYNQ)
    verify(program.finish())
    inputs, expected = ops.data(layer, PYNQ, np.random.default_rng(1))
    out, _ = run(program, inputs)
    assert np.array_equal(out["out"], expected) and len(np.unique(expected)) > 100


def test_random_weights_fill_the_output():
    layer = ops.convolution(FIRST)
    rng = np.random.default_rng(2)
    acc = accumulators(rng.integers(-128, 128, (3, 20, 20), np.int8), layer.weight, FIRST.shape)
    assert 20 < (acc * layer.weight_scale[:, None]).std() < 80
