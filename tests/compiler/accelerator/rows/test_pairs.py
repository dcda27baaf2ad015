"""Images and one value per pixel as one launch against the reference."""

import numpy as np
import pytest

from tilewright.compiler.graph import Add, Mul, SquaredDifference, Sub, Tensor
from tilewright.compiler.graph.integer_forms import pair_form
from tilewright.compiler.kernels.elementwise import pair as kernel
from tilewright.compiler.kernels.elementwise import values_of
from tilewright.compiler.kernels.language import cycles, why_not
from tilewright.hw.config import PRESETS
from tilewright.runtime.hostops.elementwise import squared_difference
from tilewright.sim.timing import predict

CFG = PRESETS["pynq_z1"]
SHAPES = [(1, 16, 1, 16), (2, 20, 1, 20), (1, 3, 40, 9), (1, 128, 1, 128), (3, 600, 1, 7), (1, 4100, 1, 3)]
SCALES = [(0.1, 0.02), (0.02, 0.1), (0.1, 0.1), (0.1, 0.05)]


def pair(kind, shape, scales, points=(3, -7), first=True):
    x = Tensor("x", shape, scale=scales[0], zero_point=points[0])
    y = Tensor("y", (shape[0], 1, *shape[2:]), scale=scales[1], zero_point=points[1])
    z = Tensor("z", shape, scale=0.09, zero_point=-20)
    return kind("op", (x, y) if first else (y, x), z)


@pytest.mark.parametrize("kind", [Add, Sub, Mul, SquaredDifference])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_size(exact, kind, shape):
    exact(pair(kind, shape, SCALES[0]))


@pytest.mark.parametrize("kind", [Add, Mul, SquaredDifference])
def test_what_fits_decides_the_tile(exact, kind):
    exact(pair(kind, (1, 20, 5, 17), SCALES[0]), cfg=PRESETS["tiny"])


@pytest.mark.parametrize("points", [(0, 0), (-128, 127), (127, -128)])
@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("kind", [Add, Sub, Mul, SquaredDifference])
def test_every_form(exact, kind, scales, points):
    exact(pair(kind, (1, 48, 1, 64), scales, points))


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("kind", [Add, Sub, Mul, SquaredDifference])
def test_the_values_may_come_first(exact, kind, scales):
    exact(pair(kind, (1, 48, 1, 64), scales, first=False))


def with_constant(kind, first):
    """The operator on values of pixels and a constant of channels."""
    data = np.random.default_rng(2).integers(-128, 128, (1, 40, 1, 1)).astype(np.int8)
    x = Tensor("x", data.shape, scale=0.02, zero_point=5, data=data)
    y = Tensor("y", (2, 1, 1, 20), scale=0.1, zero_point=-7)
    return kind("op", (x, y) if first else (y, x), Tensor("z", (2, 40, 1, 20), scale=0.09, zero_point=-20))


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("kind", [Add, Mul, Sub])
def test_the_image_may_be_constant(exact, kind, first):
    exact(with_constant(kind, first))


@pytest.mark.parametrize("scales", SCALES)
def test_the_form_of_a_square_is_its_definition(scales):
    op = pair(SquaredDifference, (1, 16, 1, 16), scales)
    form, every = pair_form(op), np.arange(-128, 128)
    total = (form.x.apply(every[:, None]) - form.y.apply(every[None, :])) ** 2
    m, e = zip(*op.multipliers)
    facts = {"zero_points": (3, -7, -20), "multipliers": m, "exponents": e, "shift": 7}
    np.testing.assert_array_equal(form.store.apply(total), squared_difference(every[:, None], every[None, :], **facts))


def test_what_it_applies_to():
    shape = (1, 16, 1, 16)
    for kind in (Sub, Mul):
        found = [values_of(pair(kind, shape, SCALES[0], first=first)) for first in (True, False)]
        assert found == [(1, True), (0, True)]
    assert values_of(pair(Mul, (1, 1, 1, 16), SCALES[0])) == (None, False)  # of equal shapes
    assert "rescale" in why_not(kernel, pair(Mul, shape, SCALES[0]), PRESETS["vta"])


@pytest.mark.parametrize("kind, most", [(Add, 6), (SquaredDifference, 9)])
def test_the_cycles(exact, kind, most):
    op = pair(kind, (1, 256, 1, 128), SCALES[0])
    found = predict(exact(op)).cycles
    assert cycles(kernel, op, CFG) == pytest.approx(found, rel=0.01) and found < most * 16 * 128
