"""Orders and sizes of images: each against onnxruntime."""

import numpy as np
import pytest


@pytest.mark.parametrize("kind", ["GlobalMaxPool", "GlobalAveragePool"])
def test_global_pools(m, compared, kind):
    m.output(m.quantise(m.node(kind, m.quantise(m.input("x", [1, 3, 5, 4])))))
    compared(m, 1.001, 0.3, 0.05)


@pytest.mark.parametrize(
    "mode, scales", [("linear", [1, 1, 2, 2]), ("linear", [1, 1, 1.5, 0.5]), ("cubic", [1, 1, 2, 2])]
)
@pytest.mark.parametrize("where", ["half_pixel", "align_corners", "asymmetric"])
def test_resizes(m, compared, mode, scales, where):
    attrs = {"mode": mode, "coordinate_transformation_mode": where}
    m.output(m.node("Resize", m.input("x", [1, 2, 6, 4]), "", m.const(np.array(scales, np.float32)), **attrs))
    compared(m, 1e-4)


def test_a_size_that_is_there_already(m, compared):
    x = m.node("Resize", m.input("x", [1, 2, 3, 4]), "", m.const(np.ones(4, np.float32)))
    m.output(m.node("Tile", m.node("Expand", x, m.const(np.array([2, 2, 3, 4]))), m.const(np.ones(4, np.int64))))
    compared(m)


@pytest.mark.parametrize("size", [5, 6, 7])
@pytest.mark.parametrize("quantised", [False, True])
def test_windows_behind_padding_that_counts(m, compared, size, quantised):
    x = m.input("x", [1, 3, size, size + 1])
    attrs = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1, "count_include_pad": 1}
    y = m.node("AveragePool", m.quantise(x) if quantised else x, **attrs)
    m.output(m.quantise(y) if quantised else y)
    compared(m, 1.001 if quantised else 1e-4, scale=0.05 if quantised else 1)
