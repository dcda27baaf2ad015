"""Tiles of layers that two units divide: what fits, what is tried, and what is refused."""

import numpy as np
import pytest

from tilewright.compiler.accelerator.module import Accelerator
from tilewright.compiler.conv_shape import ConvShape
from tilewright.compiler.kernels.language import cycles
from tilewright.compiler.kernels.two_units import Layer, tiles
from tilewright.compiler.kernels.two_units import divided as any_division
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import Unfit
from tilewright.sim.timing import predict

PYNQ, TINY = PRESETS["pynq_z1_two"], PRESETS["tiny_two"]
LAYER = ConvShape(1, 64, 28, 28, 64, (3, 3), pads=(1, 1, 1, 1))


def test_blocks_of_each_unit():
    layer = Layer.of(ConvShape(2, 20, 5, 5, 70), 22, None, PYNQ)
    assert (layer.images, layer.inputs, layer.gemm, layer.ternary, layer.groups) == (2, 2, 3, 2, 2)
    layer = Layer.of(ConvShape(1, 20, 5, 5, 30), 22, None, TINY)
    assert (layer.inputs, layer.gemm, layer.ternary, layer.groups) == (5, 2, 6, 2)


def test_a_kernel_as_large_as_the_image_is_a_dense_layer():
    layer = Layer.of(ConvShape(1, 20, 5, 6, 30, (5, 6)), 14, None, PYNQ)
    assert layer.inputs == 60 and len(layer.reads.terms) == 1 and layer.extents == (1, 1)


@pytest.mark.parametrize("axis", [0, 1])
def test_windows_cover_the_image_and_its_padding(axis):
    shape = ConvShape(1, 4, 9, 9, 8, (3, 3), (2, 2), (1, 1, 1, 1))
    reads = Layer.of(shape, 4, None, TINY).reads
    assert [reads.window(axis, first, 2) for first in (0, 2, 3)] == [(-1, 5), (3, 5), (5, 5)]


def test_a_kernel_of_one_row_skips_rows():
    layer = Layer.of(ConvShape(1, 4, 9, 9, 8, (1, 1), (3, 2)), 4, None, TINY)
    assert layer.skip == 3 and layer.reads.size == (3, 9)
    assert layer.reads.window(0, 1, 2) == (1, 2) and layer.reads.window(1, 1, 2) == (2, 3)


def test_tiles_fit():
    rng = np.random.default_rng(0)
    for _ in range(200):
        cfg = (PYNQ, TINY)[rng.integers(2)]
        kernel = tuple(rng.integers(1, 5, 2).tolist())
        ternary, others = int(rng.integers(1, 200)), cfg.block_out * int(rng.integers(0, 9))
        h, w = rng.integers(6, 60, 2).tolist()
        shape = ConvShape(1, int(rng.integers(1, 200)), h, w, others + ternary, kernel)
        for t in tiles(Layer.of(shape, ternary, None, cfg), cfg):
            plane, taps, area = (t.rows + kernel[0] - 1) * (t.columns + kernel[1] - 1), shape.taps, t.rows * t.columns
            assert t.gemm * area <= cfg.bank_depth and t.groups * area <= cfg.plane_depth
            assert t.inputs * plane <= cfg.inp_depth and t.gemm * t.inputs * taps <= cfg.wgt_depth
            assert t.groups * t.inputs * taps <= cfg.twgt_depth


def test_cycles_are_those_of_the_launch(divided, exact):
    for ternary in (16, 64):
        op = divided(LAYER, ternary)
        found = cycles(any_division, op, PYNQ)
        assert found == pytest.approx(predict(exact(op, cfg=PYNQ)).cycles, rel=0.05)
        assert Accelerator(PYNQ).seconds((op,)) == pytest.approx(found / 100e6, rel=0.05)


def test_both_units_take_half_of_the_cycles_of_one(divided):
    both, one = (cycles(any_division, divided(LAYER, ternary), PYNQ) for ternary in (32, 64))
    products = 28 * 28 * 9 * 4 * 2  # of each unit: 4 blocks of the input, 2 of the output
    assert Layer.of(LAYER, 32, None, PYNQ).products == products and products <= both < min(1.05 * products, 0.53 * one)


def test_a_unit_makes_several_blocks_at_once():
    shape = ConvShape(1, 16, 8, 8, 32, (3, 3), pads=(1, 1, 1, 1))
    assert Layer.of(shape, 32, None, TINY).products < 0.3 * Layer.of(shape, 0, None, TINY).products


def test_layers_of_gemm_alone_are_those_of_other_kernels(divided):
    op = divided(ConvShape(1, 20, 5, 5, 32), 0)
    assert cycles(any_division, op, PYNQ) > Layer.of(op.shape, 0, None, PYNQ).products


def test_nothing_fits():
    with pytest.raises(Unfit, match="no tile fits tiny_two: .* 225 entries of inputs and 225 of each kind"):
        tiles(Layer.of(ConvShape(1, 4, 30, 30, 8, (15, 15)), 4, None, TINY), TINY)


def test_tiles_of_padding_alone():
    with pytest.raises(Unfit, match=r"tiles of padding alone: .* around 20x20"):
        tiles(Layer.of(ConvShape(1, 4, 20, 20, 8, pads=(0, 9, 0, 9)), 4, None, TINY), TINY)


@pytest.mark.parametrize(
    "text, o, ternary, cfg",
    [
        ("16 ternary channels: pynq_z1 has units gemm, not ternary", 32, 16, PRESETS["pynq_z1"]),
        ("20 channels on GEMM beside 12 ternary ones: must be a multiple of 16", 32, 12, PYNQ),
        ("it needs the extension overwrite", 32, 16, PYNQ.replace(extensions=["requant"])),
        ("", 32, 16, PYNQ),
        ("", 30, 14, PYNQ),
        ("", 12, 12, PYNQ),
    ],
)
def test_refusals(divided, text, o, ternary, cfg):
    assert Accelerator(cfg).refusal(divided(ConvShape(1, 20, 5, 5, o), ternary)) == text
