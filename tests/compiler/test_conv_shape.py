"""compiler/conv_shape.py: what follows from the extents of a convolution, and which have no output."""

from typing import Any

import numpy as np
import pytest

from tilewright.compiler.conv_shape import ConvShape, output_size
from tilewright.hw.errors import ScheduleError

UNEVEN = ConvShape(2, 6, 8, 7, 10, (3, 2), (2, 1), (1, 0, 1, 3), (1, 2), groups=2)


def test_output_and_macs_are_those_of_a_convolution_by_hand():
    assert UNEVEN.span == (3, 3) and UNEVEN.size == (8, 7) and UNEVEN.taps == 6
    rows = [y for y in range(-1, 9) if y + 2 <= 8 and (y + 1) % 2 == 0]  # where windows begin; -1 and 8 are padding
    columns = [x for x in range(7 + 3) if x + 2 <= 9]
    assert UNEVEN.output == (len(rows), len(columns))
    assert UNEVEN.macs == 2 * 10 * len(rows) * len(columns) * 3 * 6


def test_windows_of_pooling():
    assert output_size((7, 6), (3, 2), (2, 1), (1, 0, 0, 3)) == (3, 8)


def test_a_dense_layer_is_a_convolution_of_one_pixel():
    dense = ConvShape(3, 20, 1, 1, 24)
    assert dense.output == (1, 1) and dense.macs == 3 * 20 * 24


def test_reach_is_the_rows_and_columns_of_all_taps():
    for rows, columns in ((1, 1), (2, 5)):
        last = (rows - 1) * 2 + 2, (columns - 1) + 1 * 2  # of the last output's last tap
        assert UNEVEN.reach(rows, columns) == (last[0] + 1, last[1] + 1)
    rows, columns = UNEVEN.reach(np.array([1, 2]), np.array([1, 5]))
    assert rows.tolist() == [3, 5] and columns.tolist() == [3, 7]


def test_shapes_are_values():
    same = ConvShape(2, 6, 8, 7, 10, (3, 2), (2, 1), (1, 0, 1, 3), (1, 2), groups=2)
    assert UNEVEN.output and same == UNEVEN and hash(same) == hash(UNEVEN)  # what is derived does not count


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


def test_a_shape_with_output_is_itself():
    assert UNEVEN.checked("conv2d") is UNEVEN


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
