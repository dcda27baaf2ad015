"""Shapes of results; what does not fit is in tests/runtime/test_hostshapes.py, with all other operators."""

import numpy as np
import pytest

from tilewright.hw.errors import ProgramError
from tilewright.runtime.hostshapes import Operand
from tilewright.runtime.kernels import shapes


def test_shapes():
    x = [Operand((2, 3, 4, 5), "int8")]
    assert shapes.taken(x, {"indices": [[1], [], [0, 0], [4]]}) == Operand((1, 3, 2, 1), "int8")
    assert shapes.resized(x, {"size": [8, 9]}) == Operand((2, 3, 8, 9), "int8")
    assert shapes.topmost(x, {"count": 3, "positions": False}) == Operand((2, 3, 4, 3), "int8")
    assert shapes.topmost(x, {"count": 3, "positions": True}) == Operand((2, 3, 4, 3), "int32")
    numbers = [Operand((2, 3, 4), "int32")]
    assert shapes.reduced_numbers(numbers, {"axes": [1], "shape": [2, 4]}) == Operand((2, 4), "int32")
    assert shapes.compared(numbers * 2, {}) == Operand((2, 3, 4), "bool")
    pairs = [Operand((2, 1), "uint8"), Operand((3,), "int8")]
    assert shapes.looked_up_pairs(pairs, {"table": np.zeros((256, 256), np.int8)}) == Operand((2, 3), "int8")
    with pytest.raises(ProgramError, match=r"table \(256, 9\): must be \(256, 256\)"):
        shapes.looked_up_pairs(pairs, {"table": np.zeros((256, 9), np.int8)})
    condition = [Operand((4,), "bool")]
    assert shapes.selected(condition + numbers * 2, {}) == Operand((2, 3, 4), "int32")
    with pytest.raises(ProgramError, match="the condition is int32: must be bool"):
        shapes.selected(numbers * 3, {})
    with pytest.raises(ProgramError, match="inputs differ in dtype: int32 and int8"):
        shapes.selected(condition + numbers + x, {})
    assert shapes.chosen(x, {"axis": 3, "shape": [2, 3, 4], "dtype": "int64"}) == Operand((2, 3, 4), "int64")


def test_what_must_hold():
    shapes.need(True, "")
    with pytest.raises(ProgramError, match="^why$"):
        shapes.need(False, "why")
