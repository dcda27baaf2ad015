"""Statements, and the plans of walks."""

import numpy as np
import pytest

from tilewright.hw.errors import UnsupportedError
from tilewright.runtime.hostops.c_calls import Value, Writer, merged, real, spread, strides, type_of


def test_numbers_are_exact():
    assert real(0.1) == "0x1.99999a0000000p-4f" and float.fromhex(real(1e-45)[:-1]) == np.float32(1e-45)


def test_numbers_beyond_float32_are_infinite():
    assert (real(3.5e38), real(-3.5e38)) == ("TW_INFINITY", "-TW_INFINITY")


def test_types_that_kernels_do_not_know():
    assert type_of(Value("x", (1,), "bool")) == "TW_UINT8"
    with pytest.raises(UnsupportedError, match="an array is uint32; C kernels compute with int8, uint8, bool, int16"):
        type_of(Value("x", (1,), "uint32"))


def test_dimensions_that_are_run_through_alike_become_one():
    steps = strides((2, 3, 4), 2)
    assert steps == [24, 8, 2]
    assert merged((2, 3, 4), (steps, steps)) == [(24, 2, 2)]
    assert merged((2, 1, 4), ([24, 8, 2], [8, 99, 2])) == [(4, 2, 2), (2, 24, 8)]
    assert spread((3, 1), (2, 3, 4)) == [0, 1, 0]


def test_equal_arrays_have_one_name():
    writer = Writer()
    first, second = writer.array("walk", [1, 2]), writer.array("walk", np.array([[1], [2]]))
    assert first == second != writer.array("walk", [1, 2], "int64") and len(writer.data) == 2
    with pytest.raises(UnsupportedError, match="walk: 5 to 2147483648 are not in int32, as the C kernel needs"):
        writer.array("walk", [5, 1 << 31])


def test_scratch_is_aligned_and_used_again():
    writer = Writer()
    assert writer.scratch(3) == "(void *)(scratch + 0)" and writer.scratch(9) == "(void *)(scratch + 8)"
    writer.top = 8
    assert writer.scratch(1) == "(void *)(scratch + 8)" and writer.most == 24


def test_walks_have_at_most_eight_dimensions():
    with pytest.raises(UnsupportedError, match="its arrays are walked in 9 dimensions, at most 8"):
        Writer().plan([(2, 1, 1)] * 9)
