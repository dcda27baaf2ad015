"""Layers of two units on images of few channels, as one launch against the reference."""

from dataclasses import replace

import pytest

from tilewright.compiler.accelerator.first_images import cheapest_layout
from tilewright.compiler.conv_shape import ConvShape
from tilewright.compiler.graph import QConv2d, Requantize, Tensor
from tilewright.compiler.kernels.language import cycles
from tilewright.compiler.kernels.two_units import Layer, tiles
from tilewright.compiler.kernels.two_units import divided as divided_kernel
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import Unfit
from tilewright.hw.isa import known_isa
from tilewright.runtime.device import program_stats

PYNQ, TINY = PRESETS["pynq_z1_two"], PRESETS["tiny_two"]
SAME = (1, 1, 1, 1)
FIRST = ConvShape(1, 3, 32, 32, 32, (3, 3), pads=SAME)


def folded(divided, shape, ternary, cfg, nhwc=False):
    """(the layer, its fold)."""
    op = divided(shape, ternary)
    assert isinstance(op, QConv2d)
    fold = cheapest_layout(op, cfg, nhwc=nhwc)
    assert fold is not None
    return op, fold


@pytest.mark.parametrize("ternary", [16, 5, 37])
@pytest.mark.parametrize(
    "shape",
    [
        FIRST,
        ConvShape(1, 3, 40, 41, 32, (7, 7), (2, 2), (3, 2, 1, 3)),
        ConvShape(2, 1, 17, 13, 32, (4, 5), (1, 2), (0, 2, 0, 2), (2, 1)),
        ConvShape(1, 5, 9, 70, 32, (3, 1)),
    ],
)
def test_shapes(exact, divided, shape, ternary):
    o = 16 * (2 - ternary // 32) + ternary
    op, _ = folded(divided, replace(shape, o=o), ternary, PYNQ)
    exact(op, cfg=PYNQ)


@pytest.mark.parametrize("size, ternary", [((8, 8), 8), ((8, 8), 4), ((9, 12), 20), ((8, 20), 1)])
def test_several_blocks_at_once(exact, divided, size, ternary):
    h, w = size
    shape = ConvShape(1, 1, h, w, 4 * bool(ternary < 8) + ternary, (3, 3), pads=SAME)
    for nhwc in (False, True):
        op, fold = folded(divided, shape, ternary, TINY, nhwc)
        assert cycles(divided_kernel, op, TINY, fold) < cycles(divided_kernel, op, TINY)
    exact(op, cfg=TINY)


def test_both_units_take_fewer_products(divided):
    _, fold = folded(divided, FIRST, 16, PYNQ)
    assert Layer.of(FIRST, 16, fold, PYNQ).products < 0.5 * Layer.of(FIRST, 16, None, PYNQ).products


def test_tiles_are_whole_groups_of_phases(divided):
    shape = ConvShape(1, 3, 40, 41, 32, (7, 7), (2, 2), (3, 2, 1, 3))
    _, fold = folded(divided, shape, 16, PYNQ)
    sizes = Layer.of(shape, 16, fold, PYNQ).sizes(1)
    assert sizes[-1] == shape.output[1] and not any(size % fold.phases for size in sizes[:-1])


def test_images_of_many_channels_and_those_that_are_computed_stay(exact, divided):
    many = divided(ConvShape(1, 16, 8, 8, 32), 16)
    assert isinstance(many, QConv2d) and cheapest_layout(many, PYNQ, nhwc=False) is None
    x = Tensor("x", (1, 3, 32, 32), scale=0.05)
    before = Requantize("before", (x,), Tensor("p", x.shape, scale=0.07, zero_point=-2))
    launch = exact(before, divided(FIRST, 16, x=before.output), cfg=PYNQ)
    assert program_stats(known_isa(PYNQ), launch.insn).uops > 32 * 32 * 9


def test_weights_that_are_loaded_in_parts(exact, divided):
    shape = ConvShape(1, 3, 12, 12, 800, (5, 5))
    op, fold = folded(divided, shape, 400, PYNQ)
    for tile in tiles(Layer.of(shape, 400, fold, PYNQ), PYNQ):
        assert tile.gemm < 25 and tile.gemm * len(fold.terms) <= PYNQ.wgt_depth
    exact(op, cfg=PYNQ)


def test_what_does_not_fit(divided):
    op, fold = folded(divided, FIRST, 16, PYNQ)
    with pytest.raises(Unfit, match="no tile fits narrow"):
        cycles(divided_kernel, op, PYNQ.replace(name="narrow", wgt_bytes=512, twgt_bytes=128), fold)
