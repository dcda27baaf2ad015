"""Tiles of layers that two units divide: what fits, what is chosen, and what is refused."""

import numpy as np
import pytest

from tilewright.compiler.accelerator.split.plan import Division, plan_for, refusal
from tilewright.compiler.conv_shape import ConvShape
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import ScheduleError

PYNQ, TINY = PRESETS["pynq_z1_two"], PRESETS["tiny_two"]
LAYER = ConvShape(1, 64, 56, 56, 64, (3, 3), pads=(1, 1, 1, 1))


def test_blocks_of_each_unit():
    work = Division.of(ConvShape(2, 20, 5, 5, 70), 22, PYNQ)
    assert (work.images, work.inputs, work.gemm, work.ternary, work.groups) == (2, 2, 3, 2, 2)
    work = Division.of(ConvShape(1, 20, 5, 5, 30), 22, TINY)
    assert (work.inputs, work.gemm, work.ternary, work.groups) == (5, 2, 6, 2)


def test_a_kernel_as_large_as_the_image_is_a_dense_layer():
    work = Division.of(ConvShape(1, 20, 5, 6, 30, (5, 6)), 14, PYNQ)
    assert work.inputs == 60 and work.shape.taps == 1 and work.shape.output == (1, 1)


@pytest.mark.parametrize("axis", [0, 1])
def test_windows_cover_the_image_and_its_padding(axis):
    shape = ConvShape(1, 4, 9, 9, 8, (3, 3), (2, 2), (1, 1, 1, 1))
    work = Division.of(shape, 4, TINY)
    assert [work.window(axis, first, 2) for first in (0, 2, 3)] == [(0, 1, 4, 0), (3, 0, 5, 0), (5, 0, 4, 1)]


def test_a_kernel_of_one_row_skips_rows():
    work = Division.of(ConvShape(1, 4, 9, 9, 8, (1, 1), (3, 2)), 4, TINY)
    assert work.row_step == (3, 1) and work.window(0, 1, 2) == (3, 0, 2, 0) and work.window(1, 1, 2) == (2, 0, 3, 0)


def test_tiles_fit():
    rng = np.random.default_rng(0)
    for _ in range(200):
        cfg = (PYNQ, TINY)[rng.integers(2)]
        kernel = tuple(rng.integers(1, 5, 2).tolist())
        ternary, others = int(rng.integers(1, 200)), cfg.block_out * int(rng.integers(0, 9))
        h, w = rng.integers(6, 60, 2).tolist()
        plan = plan_for(ConvShape(1, int(rng.integers(1, 200)), h, w, others + ternary, kernel), ternary, cfg)
        t, work = plan.tile, plan.work
        plane, taps = work.height(t.rows) * work.width(t.columns), work.shape.taps
        assert t.gemm * t.area <= cfg.bank_depth and t.groups * t.area <= cfg.plane_depth
        assert t.inp_slots * t.inputs * plane <= cfg.inp_depth
        assert t.wgt_slots * t.gemm * t.inputs * taps <= cfg.wgt_depth
        assert t.twgt_slots * t.groups * t.inputs * taps <= cfg.twgt_depth
        assert plan.cycles > max(plan.units.values())


def test_both_units_take_half_of_the_products():
    plan = plan_for(LAYER, 32, PYNQ)
    assert plan.units["gemm"] == plan.units["ternary"] and plan.units["gemm"] == pytest.approx(225_792, rel=0.01)
    assert plan.cycles < 0.52 * plan_for(LAYER, 64, PYNQ).cycles


def test_a_unit_makes_several_blocks_at_once():
    shape = ConvShape(1, 16, 8, 8, 32, (3, 3), pads=(1, 1, 1, 1))
    units = plan_for(shape, 16, TINY).units
    assert units["ternary"] < 0.3 * units["gemm"]


def test_quarters_of_a_layer():
    plan = plan_for(LAYER, 16, PYNQ)
    assert list(plan.units) == list(PYNQ.units)
    assert plan.units["gemm"] == pytest.approx(3 * plan.units["ternary"], rel=0.01)


def test_nothing_fits():
    with pytest.raises(ScheduleError, match="no tile fits tiny_two: .* 225 entries of inputs and 225 of each kind"):
        plan_for(ConvShape(1, 4, 30, 30, 8, (15, 15)), 4, TINY)


def test_tiles_of_padding_alone():
    with pytest.raises(ScheduleError, match=r"tiles of padding alone: padding \(0, 9, 0, 9\) around 20x20 pixels"):
        plan_for(ConvShape(1, 4, 20, 20, 8, pads=(0, 9, 0, 9)), 4, TINY)


@pytest.mark.parametrize(
    "text, o, ternary, cfg",
    [
        ("16 ternary channels: pynq_z1 has units gemm, not ternary", 32, 16, PRESETS["pynq_z1"]),
        ("20 channels on GEMM beside 12 ternary ones: must be a multiple of 16", 32, 12, PYNQ),
        ("16 ternary channels: need extension overwrite", 32, 16, PYNQ.replace(extensions=["requant"])),
        ("", 32, 16, PYNQ),
        ("", 30, 14, PYNQ),
        ("", 12, 12, PYNQ),
    ],
)
def test_refusals(divided, text, o, ternary, cfg):
    assert refusal(divided(ConvShape(1, 20, 5, 5, o), ternary), cfg) == text
