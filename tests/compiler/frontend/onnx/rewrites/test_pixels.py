"""Orders and sizes of images: each against onnxruntime."""

import numpy as np
import pytest


@pytest.mark.parametrize("kind", ["GlobalMaxPool", "GlobalAveragePool"])
def test_global_pools(qdq, compared, kind):
    m = qdq()
    m.output(m.quantise(m.node(kind, m.quantise(m.input("x", [1, 3, 5, 4])))))
    compared(m, 1.001, 0.3, 0.05)


@pytest.mark.parametrize(
    "mode, scales", [("linear", [1, 1, 2, 2]), ("linear", [1, 1, 1.5, 0.5]), ("cubic", [1, 1, 2, 2])]
)
@pytest.mark.parametrize("where", ["half_pixel", "align_corners", "asymmetric"])
def test_resizes(qdq, compared, mode, scales, where):
    m = qdq()
    attrs = {"mode": mode, "coordinate_transformation_mode": where}
    m.output(m.node("Resize", m.input("x", [1, 2, 6, 4]), "", m.const(np.array(scales, np.float32)), **attrs))
    compared(m, 1e-4)


def test_a_size_that_is_there_already(qdq, compared):
    m = qdq()
    x = m.node("Resize", m.input("x", [1, 2, 3, 4]), "", m.const(np.ones(4, np.float32)))
    m.output(m.node("Tile", m.node("Expand", x, m.const(np.array([2, 2, 3, 4]))), m.const(np.ones(4, np.int64))))
    compared(m)
