"""Tensors of an executable: impossible declarations."""

import numpy as np
import pytest

from tilewright.hw.errors import ProgramError
from tilewright.runtime.steps import Tensor


@pytest.mark.parametrize(
    "args, text",
    [
        (((2,), "int16"), "dtype 'int16' must be one of int8, uint8, int32, uint32, float32"),
        (((2,), "int8", "constant"), "kind 'constant' needs data"),
        (((2,), "int8", "input", np.zeros(2, np.int8)), "takes no data"),
        (((2,), "int8", "constant", np.zeros(3, np.int8)), r"data is int8 (3,), must be int8 (2,)"),
    ],
)
def test_impossible_tensors(args, text):
    with pytest.raises(ProgramError) as caught:
        Tensor("t", *args)
    assert text in str(caught.value)
