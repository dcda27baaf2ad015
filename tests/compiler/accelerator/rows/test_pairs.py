"""Images and one value per pixel as one launch against the reference."""

import pytest

from tilewright.compiler.graph import Add, Mul, SquaredDifference, Sub, Tensor

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


@pytest.mark.parametrize("points", [(0, 0), (-128, 127), (127, -128)])
@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("kind", [Add, Sub, Mul, SquaredDifference])
def test_every_form(exact, kind, scales, points):
    exact(pair(kind, (1, 48, 1, 64), scales, points))


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("kind", [Add, Mul, SquaredDifference])
def test_the_values_may_come_first(exact, kind, scales):
    exact(pair(kind, (1, 48, 1, 64), scales, first=False))
