"""Layers that two units divide, as one launch against the reference."""

import numpy as np
import pytest

from tilewright.compiler.conv_shape import ConvShape
from tilewright.compiler.graph import Add, Requantize, Tensor
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import UnsupportedError
from tilewright.hw.isa import known_isa
from tilewright.runtime.device import program_stats

PYNQ, TINY = PRESETS["pynq_z1_two"], PRESETS["tiny_two"]
SAME = (1, 1, 1, 1)


def conv(c, size, o, kernel=(3, 3), strides=(1, 1), pads=SAME, dilations=(1, 1), n=1):
    h, w = size
    return ConvShape(n, c, h, w, o, kernel, strides, pads, dilations)


def counts(launch):
    return program_stats(known_isa(launch.cfg), launch.insn)


@pytest.mark.parametrize("ternary", [16, 32, 48, 64])
def test_any_number_of_ternary_channels(exact, divided, ternary):
    launch = exact(divided(conv(40, (9, 11), 64), ternary), cfg=PYNQ)
    stats = counts(launch)
    assert stats.insns["TERNARY"] and bool(stats.insns["GEMM"]) == (ternary < 64)


@pytest.mark.parametrize(
    "shape, ternary",
    [
        (conv(64, (56, 56), 64), 32),
        (conv(3, (20, 33), 37), 5),  # channels that fill no block
        (conv(130, (14, 14), 70, strides=(2, 2)), 38),
        (conv(50, (1, 1), 40, (1, 1), pads=(0, 0, 0, 0)), 24),  # one pixel
        (conv(64, (15, 17), 96, (1, 1), (2, 2), (0, 0, 0, 0)), 64),  # every second row is loaded
        (conv(64, (16, 16), 32, (1, 1), pads=(0, 0, 0, 0)), 16),  # inputs without padding, in one piece
        (conv(600, (4, 4), 48, pads=(1, 0, 2, 1)), 32),  # many input channels
        (conv(20, (12, 10), 32, (3, 2), (1, 2), (2, 1, 0, 3), (2, 1)), 16),
        (conv(20, (1, 90), 32, (1, 5), pads=(0, 2, 0, 2), n=3), 16),
        (conv(24, (12, 12), 32, (12, 12), pads=(0, 0, 0, 0)), 16),  # whole images
        (conv(8, (20, 20), 32, (15, 15), pads=(2, 3, 4, 5)), 16),  # 225 taps
        (conv(16, (7, 7), 2000), 1008),  # parameters of more blocks than PAR has
    ],
)
def test_shapes(exact, divided, shape, ternary):
    exact(divided(shape, ternary), cfg=PYNQ)


@pytest.mark.parametrize("n, c, o, ternary", [(1, 500, 300, 140), (3, 20, 33, 1), (2, 4000, 80, 64), (1, 16, 16, 16)])
def test_dense_layers(exact, divided, n, c, o, ternary):
    exact(divided(ConvShape(n, c, 1, 1, o), ternary, dense=True), cfg=PYNQ)


@pytest.mark.parametrize("ternary", [1, 4, 5, 16, 17, 37])
@pytest.mark.parametrize("others", [0, 4, 12])
def test_several_blocks_at_once(exact, divided, others, ternary):
    exact(divided(conv(9, (7, 8), others + ternary), ternary), cfg=TINY)


@pytest.mark.parametrize("c, size, ternary", [(4, (3, 3), 4), (32, (9, 10), 1), (8, (8, 10), 5)])
def test_fewer_ternary_blocks_than_the_unit_makes_at_once(exact, divided, c, size, ternary):
    """With parameters of as many blocks of the others as PAR has room for."""
    exact(divided(conv(c, size, 44 + ternary, (5, 1), (1, 2), (1, 0, 1, 0)), ternary), cfg=TINY)


def test_parameters_of_a_part_of_fewer_ternary_blocks_than_run_at_once(exact, divided):
    """PAR has 8 entries: those of the tile's five blocks on GEMM and of one ternary block, which takes a group of 4."""
    exact(divided(conv(4, (14, 14), 40), 4), cfg=TINY)


@pytest.mark.parametrize(
    "facts",
    [
        {"batch": 2, "inp_bytes": 1 << 11, "acc_bytes": 1 << 12},
        {"ternary_blocks": 2, "twgt_bytes": 1 << 10},
        {"ternary_blocks": 1, "block_in": 8, "block_out": 8, "wgt_bytes": 1 << 13, "acc_bytes": 1 << 12},
    ],
)
def test_other_configurations(exact, divided, facts):
    cfg = TINY.replace(name="other", **facts)
    for ternary in (5, 24):
        exact(divided(conv(9, (6, 7), 16 + ternary, n=3), ternary), cfg=cfg)


@pytest.mark.parametrize("zero_points", [(0, 0), (-128, 127), (127, -128)])
def test_zero_points(exact, divided, zero_points):
    exact(divided(conv(9, (7, 8), 20), 12, zero_points=zero_points), cfg=TINY)


def test_random_shapes(exact, divided):
    rng = np.random.default_rng(8)
    for _ in range(25):
        kernel, strides = (tuple(rng.integers(1, high, 2).tolist()) for high in (4, 3))
        pads = tuple(int(rng.integers(0, kernel[k % 2])) for k in range(4))
        size = tuple((kernel[k] + rng.integers(0, 12)).item() for k in range(2))
        ternary, others = int(rng.integers(1, 30)), 4 * int(rng.integers(0, 4))
        shape = conv(int(rng.integers(1, 30)), size, others + ternary, kernel, strides, pads, n=int(rng.integers(1, 3)))
        exact(divided(shape, ternary, seed=int(rng.integers(99))), cfg=TINY)


def test_neighbours_read_and_write_the_same_layout(exact, divided):
    x = Tensor("x", (1, 32, 10, 10), scale=0.05, zero_point=3)
    before = Requantize("before", (x,), Tensor("p", x.shape, scale=0.07, zero_point=-2))
    first = divided(conv(32, (10, 10), 48), 16, x=before.output, name="first")
    second = divided(conv(48, (10, 10), 48), 32, x=first.output, name="second")
    plain = divided(conv(48, (10, 10), 32), 0, x=second.output, name="plain")
    total = Add("total", (first.output, second.output), Tensor("t", first.output.shape, scale=0.3))
    last = divided(conv(48, (10, 10), 16), 16, x=total.output, name="last")
    launch = exact(before, first, second, total, last, cfg=PYNQ)
    assert counts(launch).insns["TERNARY"] and counts(exact(before, first, second, plain, cfg=PYNQ)).insns["TERNARY"]


def test_inputs_and_weights_are_loaded_once(exact, divided):
    launch = exact(divided(conv(64, (14, 14), 64, (1, 1), pads=(0, 0, 0, 0)), 32), cfg=PYNQ)
    loaded = counts(launch).bytes_loaded
    assert loaded["INP"] == 64 * 14 * 14 and loaded["WGT"] == 32 * 64 and loaded["TWGT"] == 32 * 64 // 4


def test_a_layer_that_does_not_fit(divided, exact):
    with pytest.raises(UnsupportedError, match="no tile fits tiny_two"):
        exact(divided(conv(4, (30, 30), 8, (15, 15)), 4), cfg=TINY)
