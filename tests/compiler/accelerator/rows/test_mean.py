"""Means over channels as one launch against the reference."""

import pytest

from tilewright.compiler.accelerator.rows.mean import cycles, possible
from tilewright.compiler.graph import Mean, Tensor
from tilewright.hw.config import PRESETS

CFG = PRESETS["pynq_z1"]


def mean(shape, zero_point=0, axes=(1,)):
    kept = tuple(1 if k in axes else n for k, n in enumerate(shape))
    x, y = Tensor("x", shape, scale=0.1, zero_point=zero_point), Tensor("y", kept, scale=0.02, zero_point=-5)
    return Mean("op", (x,), y, axes)


@pytest.mark.parametrize("zero_point", [0, -128, 77])
@pytest.mark.parametrize("shape", [(1, 16, 1, 16), (2, 20, 1, 20), (1, 3, 40, 9), (1, 128, 1, 128), (3, 600, 1, 7)])
def test_every_mean_is_that_of_the_reference(exact, shape, zero_point):
    exact(mean(shape, zero_point))


def test_what_it_applies_to():
    assert possible(mean((1, 16, 4, 4)), CFG) and not possible(mean((1, 16, 4, 4)), PRESETS["vta"])
    assert not possible(mean((1, 16, 4, 4), axes=(2, 3)), CFG)  # direct/mean.py
    assert not possible(mean((1, 16, 4)), CFG)


def test_more_channels_take_longer():
    times = [cycles(mean((1, n, 1, 128)), CFG) for n in (16, 64, 256)]
    assert times == sorted(times) and times[2] > 2 * times[1]
