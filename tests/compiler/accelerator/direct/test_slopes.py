"""Leaky ReLU without a table, as one launch against the reference."""

import numpy as np
import pytest

from tilewright.compiler.graph import LeakyRelu, Tensor, tables
from tilewright.compiler.kernels.elementwise import lines_of
from tilewright.hw.config import PRESETS
from tilewright.sim.timing import predict

CFG = PRESETS["pynq_z1"]


def leaky(alpha, scales=(0.1, 0.1), zero_points=(-9, 17), shape=(1, 20, 5, 7)):
    x, y = (Tensor(t, shape, scale=s, zero_point=z) for t, s, z in zip("xy", scales, zero_points))
    table, slopes = tables.leaky_relu(alpha, x, y), tables.slopes(alpha, x, y)
    return LeakyRelu("op", (x,), y, "leaky_relu", table, slopes)


@pytest.mark.parametrize("name", ["pynq_z1", "tiny"])
@pytest.mark.parametrize("scales", [(0.1, 0.1), (0.1, 0.0731), (0.05, 0.083)])
@pytest.mark.parametrize("alpha", [0.0, 0.01, 0.3, 1.5])
def test_leaky_rectifiers(exact, name, scales, alpha):
    exact(leaky(alpha, scales), cfg=PRESETS[name])
    exact(leaky(alpha, scales, (-128, -100), (2, 20)), cfg=PRESETS[name])


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.1])
def test_both_forms_are_exact(alpha):
    rng, forms = np.random.default_rng(int(1000 * alpha)), set()
    for _ in range(12):
        op = leaky(alpha, rng.uniform(0.05, 0.2, 2).tolist(), rng.integers(-128, 128, 2).tolist())
        forms.add(not lines_of(op).scales)
        assert np.array_equal(lines_of(op).apply(np.arange(-128, 128)), op.table)
    assert True in forms


@pytest.mark.parametrize("alpha, multiples", [(0.01, True), (0.3, False)])
def test_its_cycles(exact, alpha, multiples):
    op = leaky(alpha, shape=(1, 64, 28, 28))
    assert (not lines_of(op).scales) == multiples
    assert predict(exact(op)).cycles < (6 if multiples else 11) * 4 * 28**2
