"""compiler/schedule/work.py: a convolution in blocks of the packed layout."""

from dataclasses import replace
from typing import Any

import pytest

from tilewright.compiler.conv_shape import ConvShape
from tilewright.compiler.schedule.tiling import Work
from tilewright.hw.config import Config
from tilewright.hw.errors import ScheduleError

CFG = Config("uneven", batch=2, block_in=8, block_out=4, inp_bytes=1 << 12, wgt_bytes=1 << 12, acc_bytes=1 << 14)


def test_blocks_are_rounded_up():
    work = Work.of(ConvShape(3, 20, 9, 8, 10, (3, 2), (2, 1)), CFG)
    assert (work.n, work.ci, work.co) == (2, 3, 3) and (work.oy, work.ox) == (4, 7)
    assert (work.operands, work.packed, work.alu_ops, work.planes) == (0, 0, 0, 1)


def test_of_channels_alone_there_is_one_input_block():
    work = Work.of(ConvShape(1, 20, 9, 8, 20, groups=20), CFG, depthwise=True)
    assert (work.ci, work.co) == (1, 5)


def test_several_taps_are_one_micro_op():
    one = Work.of(ConvShape(1, 20, 9, 8, 20, (3, 5), groups=20), CFG, depthwise=True)
    assert (one.issues, one.weight_rows) == (15, 15)
    assert (replace(one, row_taps=4).issues, replace(one, pitch=8).weight_rows) == (6, 24)


def test_a_kernel_of_one_row_skips_the_rows_between_its_strides():
    several, one = (Work.of(ConvShape(1, 8, 9, 9, 8, kernel, (2, 2)), CFG) for kernel in ((3, 3), (1, 3)))
    assert several.inputs(4, 4) == (9, 9) and one.inputs(4, 4) == (4, 9)


def test_a_configurations_name_is_none():
    name: Any = "vta"
    with pytest.raises(ScheduleError, match="configuration 'vta': must be a Config, as load_config"):
        Work.of(ConvShape(1, 8, 9, 9, 8), name)


def test_a_vector_is_one_pixel_whose_weights_are_used_once():
    assert Work.of(ConvShape(1, 64, 1, 1, 32), CFG).vector and Work.of(ConvShape(1, 8, 3, 3, 8, (3, 3)), CFG).vector
    assert not Work.of(ConvShape(1, 8, 3, 3, 8), CFG).vector
    assert not Work.of(ConvShape(1, 8, 1, 1, 8, groups=8), CFG, depthwise=True).vector
