"""Parts of depthwise convolutions: every output once, input rows that fit, small ends."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.accelerator.direct.depthwise_plan import plan_of
from tilewright.compiler.conv_shape import ConvShape
from tilewright.hw.config import PRESETS

PLUS = PRESETS["pynq_z1_plus"]


def shape(channels, size, kernel=3, stride=1, pad=None, dilation=1, images=1):
    (h, w), pad = size, dilation * (kernel // 2) if pad is None else pad
    pairs = (kernel, kernel), (stride, stride), (pad, pad, pad, pad), (dilation, dilation)
    return ConvShape(images, channels, h, w, channels, *pairs, groups=channels)


def planned(of, fill=0):
    plan = plan_of(of, PLUS, fill)
    assert plan is not None
    return plan


@settings(max_examples=60)
@given(data=st.data())
def test_parts_cover_the_output_and_fit(data):
    draw = data.draw
    size = draw(st.tuples(*[st.sampled_from([1, 2, 7, 14, 31, 112])] * 2))
    kernel, stride = draw(st.sampled_from([2, 3, 5])), draw(st.integers(1, 3))
    of = shape(draw(st.sampled_from([5, 48, 180])), size, kernel, stride, kernel // 2, images=draw(st.integers(1, 2)))
    plan = plan_of(of, PLUS, draw(st.sampled_from([0, -3])))
    if plan is None:
        assert stride >= kernel or min(of.output) < 1
        return
    seen = np.zeros((of.n, plan.blocks, *of.output), int)
    for part in plan:
        assert sum(piece.size for piece in part) <= plan.size <= PLUS.acc_depth // 2 // plan.slots
        assert sum(len(plan.rows(piece.first, piece.end)) for piece in part) + plan.padded <= plan.room
        for (image, block, column, columns), first, end in part:
            seen[image, block, first:end, column : column + columns] += 1
    assert (seen == 1).all()


def test_parts_of_a_large_layer_are_small_at_both_ends():
    plan = planned(shape(96, (112, 112), stride=2))
    rows = [sum(piece.end - piece.first for piece in part) for part in plan]
    assert rows[0] == rows[-1] == 1 and max(rows) == plan.most == 4 and not plan.several
    assert (plan.slots, plan.padded, plan.columns) == (1, False, 56)


def test_small_planes_share_a_part():
    plan = planned(shape(960, (7, 7)))
    assert plan.several and plan.slots == 2
    assert max(len(part) for part in plan) == plan.most // 7 > 4


def test_rows_outside_count_where_padding_is_no_zero_or_all_there_is():
    assert not planned(shape(16, (9, 9))).padded
    assert planned(shape(16, (9, 9)), -5).padded
    assert not planned(shape(16, (9, 9), pad=0), -5).padded
    assert planned(shape(16, (9, 9), pad=4)).padded  # the first windows see nothing else


def test_wide_images_are_cut_into_columns():
    plan = planned(shape(16, (20, 1500)))
    assert plan.columns < 1500 and plan.room >= 4
    assert {piece.plane.column for part in plan for piece in part} == set(range(0, 1500, plan.columns))


def test_images_wider_than_the_scratchpad_are_cut_though_a_row_of_padding_is_kept():
    plan = planned(shape(16, (5, 3000)), -5)
    assert (plan.padded, plan.columns, plan.most) == (True, 375, 1)


def test_loads_with_a_value_of_padding_are_shorter():
    """LOADP counts 4095 columns, LOAD 65,535."""
    cfg = PRESETS["tiny"].replace(inp_bytes=1 << 18, acc_bytes=1 << 15, wgt_bytes=1 << 9)
    of = ConvShape(1, 4, 6, 8100, 4, (2, 1), (1, 16), (1, 3, 0, 0), groups=4)
    plans = [plan_of(of, cfg, fill) for fill in (0, -3)]
    assert [plan and plan.width for plan in plans] == [8097, 4049]


@pytest.mark.parametrize(
    ("of", "cfg", "fill"),
    [
        (ConvShape(1, 4, 5, 1, 4, (2, 2), (1, 3), (0, 2, 0, 0), groups=4), PLUS, 0),  # columns see padding alone
        (ConvShape(1, 4, 5, 3, 4, (2, 2), (1, 1), (0, 15, 0, 15), groups=4), PRESETS["tiny"].replace(inp_bytes=64), 0),
        (shape(16, (9, 9), stride=3), PLUS, 0),  # windows share no row
        (shape(16, (9, 9), kernel=1), PLUS, 0),
        (shape(16, (40, 40), pad=16, dilation=16), PLUS, 0),  # more columns of padding than a load adds
        (shape(16 * 65, (5, 5)), PLUS, 0),  # more parameters than there is room for
        (shape(16 * 58, (5, 5)), PRESETS["pynq_z1"], 0),  # more weights than micro-ops reach
        (shape(16, (9, 9)), PRESETS["vta"], 0),
        (shape(16, (9, 9)), PLUS.replace(extensions=PLUS.extensions - {"pad_value"}), -1),
    ],
)
def test_what_stays_a_schedule(of, cfg, fill):
    assert plan_of(of, cfg, fill) is None
