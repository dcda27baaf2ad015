"""Images enlarged by whole factors, as one launch against the reference."""

import numpy as np
import pytest

from tilewright.compiler.accelerator.direct.repeat import refusal, repetition
from tilewright.compiler.graph import Take, Tensor
from tilewright.hw.config import PRESETS

CFG = PRESETS["pynq_z1"]


def enlarged(shape, down, across):
    n, c, h, w = shape
    indices = [() if f == 1 else tuple(np.repeat(np.arange(k), f).tolist()) for k, f in ((h, down), (w, across))]
    y = Tensor("y", (n, c, h * down, w * across), scale=0.1, zero_point=3)
    return Take("op", (Tensor("x", shape, scale=0.1, zero_point=3),), y, ((), (), *indices))


@pytest.mark.parametrize("shape", [(1, 20, 5, 7), (1, 3, 40, 33), (2, 16, 1, 9)])
@pytest.mark.parametrize("factors", [(2, 2), (3, 1), (1, 4)])
def test_pixels_are_repeated(exact, shape, factors):
    exact(enlarged(shape, *factors))


def test_tiles_are_the_rows_that_fit():
    found = repetition(enlarged((1, 16, 64, 64), 2, 2), CFG)
    assert found is not None and (found.down, found.across) == (2, 2)
    assert found.rows == min(64, CFG.inp_depth // 128, CFG.acc_depth // 2 // 256)


def test_what_is_no_repetition():
    x = Tensor("x", (1, 16, 4, 4), scale=0.1, zero_point=3)
    for indices in (((0, 0, 1), ()), ((3, 2, 1, 0), ()), ((0, 0, 1, 1, 2, 3), ())):
        y = Tensor("y", (1, 16, len(indices[0]), 4), scale=0.1, zero_point=3)
        assert "it moves elements" in refusal(Take("op", (x,), y, ((), (), *indices)), CFG)
    assert "it moves elements" in refusal(enlarged((1, 16, 2, 4000), 2, 2), CFG)
    assert not refusal(enlarged((1, 16, 2, 4), 2, 2), CFG)
