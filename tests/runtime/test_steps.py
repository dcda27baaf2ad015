"""Tensors of an executable: impossible declarations."""

import numpy as np
import pytest

from tilewright.hw.errors import ProgramError
from tilewright.runtime.steps import Tensor


@pytest.mark.parametrize(
    "args, text",
    [
        (((2,), "int4"), "dtype 'int4' must be one of int8, uint8, int16, int32, uint32, int64, float32, bool"),
        (((2.5,), "int8"), "shape (2.5,): must be integers"),
        (((2, 0), "int8"), "shape (2, 0): every dimension must be at least 1"),
        (((1 << 20, 1 << 20), "int32"), "4,398,046,511,104 bytes; at most 1,099,511,627,776 are allowed"),
        (((2,), "int8", "scratch"), "kind 'scratch' must be one of input, output, constant, temp, state"),
        (((2,), "int8", "constant"), "kind 'constant' needs data"),
        (((2,), "int8", "input", np.zeros(2, np.int8)), "takes no data; only constant and state tensors do"),
        (((2,), "int8", "state", None, "y"), "kind 'state' needs data"),
        (((2,), "int8", "state", np.zeros(2, np.int8)), "kind 'state' needs next, the tensor whose values it takes"),
        (((2,), "int8", "temp", None, "y"), "kind 'temp' takes no next"),
        (((2,), "int8", "constant", np.zeros(3, np.int8)), r"data is int8 (3,), must be int8 (2,)"),
    ],
)
def test_impossible_tensors(args, text):
    with pytest.raises(ProgramError) as caught:
        Tensor("t", *args)
    assert text in str(caught.value)
