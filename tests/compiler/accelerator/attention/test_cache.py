"""Caches written in place, as one launch against the reference."""

import numpy as np
import pytest

from tilewright.compiler.graph import RmsNorm, Tensor, WriteColumns, WriteRows
from tilewright.compiler.kernels.table import cycles, refusal
from tilewright.hw.config import PRESETS

PLUS = PRESETS["pynq_z1_plus"]


def tensor(name, *shape):
    return Tensor(name, shape, scale=0.05)


ROW, POSITION = "row", Tensor("position", (1,), "int32")


def rows(wide, size, tokens=1):
    inputs = tensor("cache", 1, wide, size, 1), tensor(ROW, tokens, wide), POSITION
    return WriteRows("rows", inputs, tensor("written", 1, wide, size, 1))


def columns(wide, positions, block=16, tokens=1):
    first = rows(wide, block, tokens)
    inputs = tensor("values", 1, positions, wide, 1), first.output, POSITION
    return first, WriteColumns("columns", inputs, tensor("turned", 1, positions, wide, 1), tokens)


def output(wide, tokens=1):
    """Something to read: a cache is no output."""
    return RmsNorm("norm", (tensor(ROW, tokens, wide),), tensor("y", tokens, wide), np.ones(wide))


@pytest.mark.parametrize(("wide", "size"), [(32, 64), (10, 16), (40, 48), (288, 16)])
def test_rows(steps, wide, size):
    """A ring: the position may be beyond its size."""
    steps(rows(wide, size), output(wide), symbols=[{"position": p} for p in (0, 1, size - 1, size, 3 * size + 5)])


@pytest.mark.parametrize(("wide", "positions"), [(32, 64), (16, 16), (288, 48)])
def test_columns(steps, wide, positions):
    places = [p for p in (0, 15, 16, 17, positions - 1) if p < positions]
    steps(*columns(wide, positions), output(wide), symbols=[{"position": p} for p in places])


@pytest.mark.parametrize("tokens", [16, 8])
def test_blocks_of_tokens(steps, tokens):
    places = [{"position": p} for p in range(48 // tokens)]
    steps(rows(40, 48, tokens), output(40, tokens), symbols=[*places, {"position": 48 // tokens + 1}])
    steps(*columns(32, 48, tokens=tokens), output(32, tokens), symbols=places)


@pytest.mark.parametrize("on", ["spec", "rtl"])
def test_devices(steps, on):
    places = [{"position": p} for p in (0, 5, 11)]
    steps(*columns(8, 12, 4), output(8), symbols=places, on=on)
    steps(*columns(8, 12, 4, tokens=4), output(8, 4), symbols=[{"position": p} for p in (0, 2)], on=on)


def test_refusals():
    assert refusal(rows(10, 16), PLUS) == refusal(columns(32, 64)[1], PLUS) == ""
    assert refusal(columns(32, 64, 32)[1], PLUS) == "a block of 32 positions: must be 16"
    assert refusal(columns(24, 64)[1], PLUS) == "values of 24 elements: must be whole blocks of 16"
    assert refusal(columns(4096, 64)[1], PLUS) == (
        "4096 entries of ACC: they do not fit those that are free in 0 to 2048"
    )
    assert refusal(rows(10, 24, 16), PLUS) == "24 positions: must be whole blocks of 16 tokens"
    assert refusal(rows(4096, 16, 16), PLUS) == (
        "4096 entries of ACC: they do not fit those that are free in 0 to 2048"
    )
    assert "extensions" in refusal(rows(10, 16), PRESETS["pynq_z1"])


def test_longer_rows_take_longer():
    assert cycles(rows(32, 64), PLUS) < cycles(rows(320, 64), PLUS)
