"""Rotations as one launch against the reference."""

import numpy as np
import pytest

from tilewright.compiler.graph import Rotate, Tensor
from tilewright.compiler.kernels.attention import rotary
from tilewright.compiler.kernels.language import cycles, why_not
from tilewright.hw.config import PRESETS
from tilewright.sim.timing import predict

PLUS = PRESETS["pynq_z1_plus"]


def rotation(chunks, half, positions=32, tokens=1):
    angles = np.arange(positions)[:, None] * np.linspace(0.01, 1, half)
    cosine, sine = (np.round(f(angles) * 2**14).astype(np.int16) for f in (np.cos, np.sin))
    x, y = (Tensor(name, (tokens, chunks * 2 * half), scale=0.05) for name in "xy")
    return Rotate("rotate", (x, Tensor("position", (1,), "int32")), y, cosine, sine)


@pytest.mark.parametrize(("chunks", "half"), [(1, 16), (2, 16), (4, 32), (1, 144)])
def test_positions(steps, chunks, half):
    steps(rotation(chunks, half), symbols=[{"position": p} for p in (0, 1, 31)])


@pytest.mark.parametrize(("chunks", "half", "tokens"), [(2, 16, 16), (3, 144, 16), (1, 32, 5)])
def test_blocks_of_tokens(steps, chunks, half, tokens):
    """Those of 3 chunks of 288 do not fit the accumulators together."""
    symbols = [{"position": p} for p in range(48 // tokens)]
    steps(rotation(chunks, half, 48, tokens), symbols=symbols)


@pytest.mark.parametrize("on", ["spec", "rtl"])
def test_devices(steps, on):
    steps(rotation(2, 4), symbols=[{"position": 5}], on=on)
    steps(rotation(2, 4, tokens=4), symbols=[{"position": 7}], on=on)


@pytest.mark.parametrize(("chunks", "half"), [(2, 16), (1, 144)])
def test_its_cycles_are_those_of_the_timing_model(steps, chunks, half):
    op = rotation(chunks, half)
    launch = steps(op, symbols=[{"position": 0}])
    assert cycles(rotary, op, PLUS) == pytest.approx(predict(launch).cycles, rel=0.01)


def refusal(op, cfg):
    return why_not(rotary, op, cfg)


def test_refusals():
    assert refusal(rotation(1, 16), PLUS) == ""
    assert refusal(rotation(1, 24), PLUS) == "halves of 24 elements: must be whole blocks of 16"
    assert refusal(rotation(600, 16), PLUS) == ("1202 entries of ACC: they do not fit those that are free in 0 to 1024")
    assert "extensions" in refusal(rotation(1, 16), PRESETS["pynq_z1"])
