"""Element-wise operators of .tflite files: the reference gives the bytes of LiteRT's reference kernels."""

import numpy as np
import pytest

from tilewright.compiler.frontend.tflite.importer import import_tflite
from tilewright.hw.errors import UnsupportedError


@pytest.mark.parametrize("kind", ["MAXIMUM", "MINIMUM"])
@pytest.mark.parametrize(
    "shapes, constant",
    [
        (((1, 3, 4, 5), (1, 3, 4, 5)), False),
        (((1, 3, 4, 5), (5,)), True),
        (((2, 7), (2, 7)), False),
        (((2, 7), ()), True),
    ],
)
def test_the_larger_and_the_smaller_value(m, equals_litert, kind, shapes, constant):
    x = m.input(shapes[0])
    y = m.const(m.rng.integers(-128, 128, shapes[1]).astype(np.int8), 0.05, -3) if constant else m.input(shapes[1])
    equals_litert(m, m.op(kind, [x, y], shapes[0], 0.05, -3))


@pytest.mark.parametrize("shape, alphas", [((1, 3, 4, 5), (1, 1, 5)), ((1, 3, 4, 5), (1, 1, 1)), ((2, 7), (7,))])
@pytest.mark.parametrize("scales", [(0.03, 0.01, 0.05), (0.05, 0.007, 0.02)])
def test_rectifiers_with_slopes(m, equals_litert, shape, alphas, scales):
    alpha = m.const(m.rng.integers(-128, 128, alphas).astype(np.int8), scales[1], 11)
    equals_litert(m, m.op("PRELU", [m.input(shape, scales[0], 7), alpha], shape, scales[2], -20))


@pytest.mark.parametrize("scales", [(0.03, 0.01, 0.05), (0.05, 0.07, 0.02)])
def test_squared_differences(m, equals_litert, scales):
    x, y = m.input((1, 3, 4, 5), scales[0], 7), m.input((1, 3, 4, 1), scales[1], -9)
    equals_litert(m, m.op("SQUARED_DIFFERENCE", [x, y], (1, 3, 4, 5), scales[2], -100))


@pytest.mark.parametrize(
    "kind, x, y, options",
    [
        ("ABS", (0.05, 3), (0.05, -7), {}),
        ("ABS", (0.05, 3), (0.03, -90), {}),
        ("HARD_SWISH", (0.05, 3), (0.04, -100), {}),
        ("HARD_SWISH", (0.02, -20), (0.011, -30), {}),
        ("HARD_SWISH", (0.3, 11), (0.29, -120), {}),
        ("EXP", (0.02, -10), (0.037, -128), {}),
        ("GELU", (0.05, 3), (0.033, -120), {}),
        ("GELU", (0.05, 3), (0.033, -120), {"approximate": True}),
        ("LOG", (0.05, -128), (0.031, 9), {}),
        ("RSQRT", (0.02, -128), (0.05, -128), {}),
        ("RSQRT", (0.030416397377848625, -128), (0.004432574845850468, -128), {}),  # the table of float32 differs
        ("RSQRT", (0.0023878533393144608, -128), (0.03386349603533745, -128), {}),
        ("NEG", (0.05, 0), (0.05, 0), {}),
    ],
)
def test_functions_of_one_value(m, equals_litert, kind, x, y, options):
    equals_litert(m, m.op(kind, [m.input((4, 200), *x)], (4, 200), *y, **options))


def test_negation_that_ignores_the_quantisation(m):
    m.output(m.op("NEG", [m.input((1, 9), 0.05, 3)], (1, 9), 0.05, 3))
    with pytest.raises(UnsupportedError, match="the kernel negates the bytes: scales must be equal and zero points 0"):
        import_tflite(m.save())
