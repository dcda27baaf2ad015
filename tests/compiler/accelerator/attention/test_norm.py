"""Root mean square norms as one launch against the reference."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.compiler.accelerator.module import Accelerator
from tilewright.compiler.graph import RmsNorm, Tensor
from tilewright.compiler.kernels.language import cycles, why_not
from tilewright.compiler.kernels.norm import rms_norm
from tilewright.hw.config import PRESETS
from tilewright.sim.timing import predict

PLUS = PRESETS["pynq_z1_plus"]


def norm(shape, gain=None):
    gain = np.linspace(0, 3, shape[1]) if gain is None else gain
    return RmsNorm("norm", (Tensor("x", shape, scale=0.05),), Tensor("y", shape, scale=0.02), gain)


@pytest.mark.parametrize("shape", [(1, 64), (1, 10), (1, 288), (3, 40), (20, 48), (1, 1024)])
def test_rows(steps, shape):
    steps(norm(shape), symbols=[{}] * 3)


@pytest.mark.parametrize("on", ["spec", "rtl"])
def test_devices(steps, on):
    steps(norm((2, 10)), on=on)


@pytest.mark.parametrize("value", [0, 1, -128, 127])
def test_equal_elements(steps, value):
    """Zeros stay zeros; sums of squares reach 2**20."""
    steps(norm((1, 64)), data={"x": np.full((1, 64), value, np.int8)})


def test_gains_of_nothing(steps):
    steps(norm((1, 32), np.zeros(32)))


@pytest.mark.parametrize("shape", [(1, 64), (1, 288), (4, 64)])
def test_its_cycles_are_those_of_the_timing_model(steps, shape):
    op = norm(shape)
    assert cycles(rms_norm, op, PLUS) == pytest.approx(predict(steps(op)).cycles, rel=0.01)


def test_a_norm_of_64_elements_adds_less_than_500_cycles(steps):
    op = norm((1, 64))
    first = replace(op, name="first", output=replace(op.output, name="first"))
    second = replace(op, inputs=(first.output,))
    assert predict(steps(first, second)).cycles - predict(steps(first)).cycles < 500


def refusal(op, cfg):
    return why_not(rms_norm, op, cfg)


def test_refusals():
    assert Accelerator(PLUS).refusal(norm((1, 64))) == ""
    assert refusal(norm((1, 64)), PRESETS["pynq_z1"]) == "it needs the extensions lane_reduce, lookup"
    assert refusal(norm((1, 2000)), PLUS) == "125 entries of PAR: they do not fit those that are free in 0 to 64"
    wide = PLUS.replace(name="wide", batch=2)
    assert refusal(norm((1, 64)), wide) == "batch 2, blocks 16 and 16: it needs batch 1 and blocks of one size"
    assert refusal(norm((1, 64)), PLUS.replace(name="one", tables=1)) == "it needs 2 tables; one has 1"
    x, y = (Tensor(name, (1, 4, 64), scale=0.05) for name in "xy")
    assert refusal(RmsNorm("n", (x,), y, np.ones(64)), PLUS) == "3 dimensions: only rows of channels"
