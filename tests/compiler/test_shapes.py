"""Shapes of convolutions, tiles, and what a configuration limits."""

from typing import Any

import numpy as np
import pytest

from tilewright.compiler.conv_shape import ConvShape, output_size
from tilewright.compiler.limits import activations_refused, limits, most_padding, runs_whole_networks
from tilewright.compiler.tile import Tile
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import ScheduleError

UNEVEN = ConvShape(2, 6, 8, 7, 10, (3, 2), (2, 1), (1, 0, 1, 3), (1, 2), groups=2)


def test_output_and_macs_are_those_of_a_convolution_by_hand():
    assert UNEVEN.span == (3, 3) and UNEVEN.size == (8, 7) and UNEVEN.taps == 6
    rows = [y for y in range(-1, 9) if y + 2 <= 8 and (y + 1) % 2 == 0]  # where windows begin; -1 and 8 are padding
    columns = [x for x in range(7 + 3) if x + 2 <= 9]
    assert UNEVEN.output == (len(rows), len(columns))
    assert UNEVEN.macs == 2 * 10 * len(rows) * len(columns) * 3 * 6
    assert output_size((7, 6), (3, 2), (2, 1), (1, 0, 0, 3)) == (3, 8) and UNEVEN.checked("conv2d") is UNEVEN
    dense = ConvShape(3, 20, 1, 1, 24)
    assert dense.output == (1, 1) and dense.macs == 3 * 20 * 24


def test_reach_is_the_rows_and_columns_of_all_taps():
    for rows, columns in ((1, 1), (2, 5)):
        last = (rows - 1) * 2 + 2, (columns - 1) + 1 * 2  # of the last output's last tap
        assert UNEVEN.reach(rows, columns) == (last[0] + 1, last[1] + 1)
    rows, columns = UNEVEN.reach(np.array([1, 2]), np.array([1, 5]))
    assert rows.tolist() == [3, 5] and columns.tolist() == [3, 7]


@pytest.mark.parametrize(
    "shape, text",
    [
        (ConvShape(1, 4, 5, 6, 4, (7, 7)), "pool: an input of 5x6 with pad (0, 0, 0, 0) is smaller than the kernel of"),
        (ConvShape(1, 4, 5, 6, 4, (3, 3), dilations=(3, 1)), "3x3 with dilation (3, 1), which spans 7x3"),
        (ConvShape(1, 4, 5, 6, 4, (3, 3), (0, 1)), "kernel 3x3, stride (0, 1), pad (0, 0, 0, 0): pad must be at least"),
        (
            ConvShape(1, 4, 5, 6, 4, (3, 3), pads=(0, -1, 0, 0)),
            "pool: input 5x6, kernel 3x3, stride (1, 1), pad (0, -",
        ),
    ],
)
def test_a_shape_without_output_is_named(shape, text):
    with pytest.raises(ScheduleError) as caught:
        shape.checked("pool")
    assert text in str(caught.value)


def test_sizes_that_are_no_integers_are_named():
    shape_of: Any = ConvShape
    wrong = [
        (shape_of(1, 4, 5, 6, np.zeros(3)), "o is a ndarray: must be an integer, for a tensor x as in x.shape[0]"),
        (shape_of(1, 4, 5, 6, 0), "o = 0: must be at least 1"),
        (shape_of(1, 4, 5, 6, 4, 3), "kernel = 3: must be (y, x), for example (3, 3)"),
        (shape_of(1, 4, 5, 6, 4, pads=(2, 2)), "pad = (2, 2): must be (top, left, bottom, right), for example (2, 2,"),
        (shape_of(1, 4, 5, 6, 4, strides="two"), "stride = str: must be (y, x), for example (1, 1)"),
    ]
    for shape, text in wrong:
        with pytest.raises(ScheduleError) as caught:
            shape.checked("conv2d")
        assert f"conv2d: {text}" in str(caught.value)
    assert shape_of(1, 4, np.int64(5), 6, 4).checked("conv2d").output == (5, 6)


@pytest.mark.parametrize(
    "fields, text",
    [
        ({"ci": 0}, "Tile.ci = 0: must be at least 1"),
        ({"order": ("n", "co", "oy")}, "Tile.order = ('n', 'co', 'oy'): must name each of n, co, oy, ox once"),
        ({"thread": "ci"}, "Tile.thread = 'ci': must be one of n, co, oy, ox"),
        ({"vthreads": 5}, "Tile.vthreads = 5: must be 1 to 4"),
        ({"wgt_slots": -1}, "Tile.wgt_slots = -1: must be at least 0"),
    ],
)
def test_impossible_tiles_are_named(fields, text):
    with pytest.raises(ScheduleError) as caught:
        Tile(**fields).checked()
    assert str(caught.value) == text


def test_limits_are_those_of_the_formats():
    load, padded = limits(PRESETS["vta"], "LOAD"), limits(PRESETS["vta"], "LOADP")
    assert (load["y_size"], load["x_stride"], load["x_pad_0"]) == (0xFFFF, 0xFFFF, 15)
    assert (padded["y_size"], padded["x_size"], padded["pad_value"]) == (0xFFF, 0xFFF, 127)


def test_a_load_pads_alike_on_every_side():
    for cfg in PRESETS.values():
        for name in ("LOAD", "LOADP"):
            assert {limits(cfg, name)[f"{axis}_pad_{side}"] for axis in "yx" for side in (0, 1)} == {most_padding(cfg)}


def test_how_networks_run():
    pynq = PRESETS["pynq_z1"]
    assert runs_whole_networks(pynq) and runs_whole_networks(PRESETS["tiny"])
    assert not runs_whole_networks(PRESETS["vta"])  # layer by layer
    other = frozenset({"requant", "acc8", "pad_value", "rescale"})
    assert not runs_whole_networks(PRESETS["tiny"].replace(block_in=8, wgt_bytes=1 << 12, extensions=other))
    assert runs_whole_networks(PRESETS["pynq_z1_fast"])  # a store writes two entries of inputs
    assert not runs_whole_networks(PRESETS["pynq_z1_fast"].replace(batch=2))
    assert not runs_whole_networks(pynq.replace(wgt_bits=4, wgt_bytes=1 << 16))
    assert activations_refused(pynq) == ""
    narrow = PRESETS["vta"].replace(inp_bits=4, inp_bytes=1 << 14)
    assert activations_refused(narrow) == "inp_bits is 4 and out_bits 8; int8 activations need 8"
