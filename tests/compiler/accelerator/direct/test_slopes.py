"""Functions with two slopes as one launch against the reference."""

import numpy as np
import pytest

from tilewright.compiler.accelerator.direct.slopes import cycles, lines_of, refusal
from tilewright.compiler.graph import Lookup, Tensor, tables
from tilewright.hw.config import PRESETS
from tilewright.sim.timing import predict

CFG = PRESETS["pynq_z1"]


def leaky(alpha, scales=(0.1, 0.1), zero_points=(-9, 17), shape=(1, 20, 5, 7)):
    x, y = (Tensor(t, shape, scale=s, zero_point=z) for t, s, z in zip("xy", scales, zero_points))
    return Lookup("op", (x,), y, "leaky_relu", tables.leaky_relu(alpha, x, y))


@pytest.mark.parametrize("name", ["pynq_z1", "tiny"])
@pytest.mark.parametrize("scales", [(0.1, 0.1), (0.1, 0.0731), (0.05, 0.083)])
@pytest.mark.parametrize("alpha", [0.01, 0.1, 0.3, 1.5])
def test_leaky_rectifiers(exact, name, scales, alpha):
    exact(leaky(alpha, scales), cfg=PRESETS[name])
    exact(leaky(alpha, scales, (-128, -100), (2, 20)), cfg=PRESETS[name])


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.1, 0.125, 0.2, 0.25, 0.3])
def test_a_form_is_found_for_every_scale(alpha):
    rng = np.random.default_rng(int(1000 * alpha))
    for _ in range(8):
        op = leaky(alpha, rng.uniform(0.05, 0.2, 2).tolist(), rng.integers(-128, 128, 2).tolist())
        lines = lines_of(op, CFG)
        assert lines is not None and np.array_equal(lines.apply(np.arange(-128, 128)), op.table)


def test_absolute_values(exact):
    x, y = Tensor("x", (1, 20, 5, 7), scale=0.1, zero_point=3), Tensor("y", (1, 20, 5, 7), scale=0.07, zero_point=-128)
    exact(Lookup("op", (x,), y, "abs", tables.absolute(x, y)))


@pytest.mark.parametrize("alpha, multiples", [(0.01, True), (0.3, False)])
def test_the_estimate(exact, alpha, multiples):
    op = leaky(alpha, shape=(1, 64, 28, 28))
    lines = lines_of(op, CFG)
    assert lines is not None and (lines.scales is None) == multiples
    assert cycles(op, lines, CFG) == pytest.approx(predict(exact(op)).cycles, rel=0.15)


def test_refusals():
    x, y = Tensor("x", (1, 16), scale=0.05), Tensor("y", (1, 16), scale=1 / 256, zero_point=-128)
    logistic = Lookup("op", (x,), y, "logistic", tables.table("logistic", x, y))
    assert refusal(logistic, CFG) == "logistic: the ALU has no table"
    assert refusal(leaky(0.1), CFG) == "" != refusal(leaky(0.1), PRESETS["vta"])
    assert refusal(leaky(0.1, shape=(1, 20, 5)), CFG) == "leaky_relu: the ALU has no table"
    odd = leaky(0.1)
    odd.table[5] += 3
    assert refusal(odd, CFG) == "leaky_relu: the ALU has no table"
