"""Images enlarged by whole factors, as one launch against the reference."""

import numpy as np
import pytest

from tilewright.compiler.graph import Take, Tensor
from tilewright.compiler.kernels.language import why_not
from tilewright.compiler.kernels.resize import repeat
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


def copied(shape, count, across=1):
    x = Tensor("x", shape, scale=0.1, zero_point=3)
    y = Tensor("y", (count, *shape[1:3], shape[3] * across), scale=0.1, zero_point=3)
    columns = tuple(np.repeat(np.arange(shape[3]), across).tolist()) if across > 1 else ()
    return Take("op", (x,), y, ((0,) * count, (), (), columns))


@pytest.mark.parametrize(
    ("shape", "count", "across"), [((1, 40, 1, 1), 3, 40), ((1, 16, 1, 20), 4, 1), ((1, 5, 64, 30), 2, 2)]
)
def test_an_image_becomes_several(exact, shape, count, across):
    exact(copied(shape, count, across))


def test_what_is_no_repetition():
    x = Tensor("x", (1, 16, 4, 4), scale=0.1, zero_point=3)
    for indices in (((0, 0, 1), ()), ((3, 2, 1, 0), ()), ((0, 0, 1, 1, 2, 3), ())):
        y = Tensor("y", (1, 16, len(indices[0]), 4), scale=0.1, zero_point=3)
        assert "it moves elements" in why_not(repeat, Take("op", (x,), y, ((), (), *indices)), CFG)
    assert "it moves elements" in why_not(repeat, enlarged((1, 16, 2, 4000), 2, 2), CFG)
    assert not why_not(repeat, enlarged((1, 16, 2, 4), 2, 2), CFG)
    several = Take("op", (Tensor("x", (2, 16, 1, 1)),), Tensor("y", (4, 16, 1, 1)), ((0, 0, 1, 1), (), (), ()))
    assert "it moves elements" in why_not(repeat, several, CFG)
