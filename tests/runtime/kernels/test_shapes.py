"""Shapes of results; what does not fit is in tests/runtime/test_hostshapes.py, with all other operators."""

import pytest

from tilewright.hw.errors import ProgramError
from tilewright.runtime.hostshapes import Operand
from tilewright.runtime.kernels import shapes


def test_shapes():
    x = [Operand((2, 3, 4, 5), "int8")]
    assert shapes.taken(x, {"indices": [[1], [], [0, 0], [4]]}) == Operand((1, 3, 2, 1), "int8")
    assert shapes.resized(x, {"size": [8, 9]}) == Operand((2, 3, 8, 9), "int8")
    assert shapes.chosen(x, {"axis": 3, "shape": [2, 3, 4], "dtype": "int64"}) == Operand((2, 3, 4), "int64")


def test_what_must_hold():
    shapes.need(True, "")
    with pytest.raises(ProgramError, match="^why$"):
        shapes.need(False, "why")
