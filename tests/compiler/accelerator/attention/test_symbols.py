"""Inputs that are symbols of a launch."""

import numpy as np

from tilewright.compiler.graph import Gather, Requantize, Rotate, Tensor, WriteColumns, WriteRows
from tilewright.compiler.kernels.recording import limits
from tilewright.runtime.symbols import MOST_LIMIT


def tensor(name, *shape):
    return Tensor(name, shape, scale=0.05)


def test_each_symbol_has_the_smallest_limit_of_its_operators():
    position, token = (Tensor(name, (1,), "int32") for name in ("position", "token"))
    table = Tensor("words", (9, 16), scale=0.05, data=np.zeros((9, 16), np.int8))
    angles, values = np.zeros((48, 16), np.int16), tensor("values", 1, 32, 16, 1)
    ops = [
        Gather("gather", (table, token), tensor("x", 1, 16), 0),
        Rotate("rotate", (tensor("q", 1, 32), position), tensor("r", 1, 32), angles, angles),
        WriteRows("rows", (tensor("c", 1, 16, 8, 1), tensor("x", 1, 16), position), tensor("d", 1, 16, 8, 1)),
        WriteColumns("columns", (values, tensor("f", 1, 16, 16, 1), position), tensor("g", 1, 32, 16, 1)),
        Requantize("other", (tensor("x", 1, 16),), tensor("y", 1, 16)),
    ]
    assert [op.symbol and op.symbol[1] for op in ops] == [9, 48, MOST_LIMIT, 32, None]
    assert limits(ops) == {"token": 9, "position": 32} and limits(ops[:2])["position"] == 48
