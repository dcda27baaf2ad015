"""A small ONNX network whose first layers have ternary weights."""

import numpy as np
import pytest


@pytest.fixture
def ternary_onnx(tmp_path):
    """The path of a network x (1, 4, 6, 6) -> first (8 channels) -> second (8) -> scores (5 classes).

    All weights of `first` and `scores` are ternary, of `second` those of the even channels.
    """
    pytest.importorskip("onnx")
    pytest.importorskip("tvm")
    from tests.compiler.conftest import QdqModel

    m = QdqModel(tmp_path)

    def layer(kind, name, x, weight, **attributes):
        scale = m.const(m.rng.uniform(0.1, 0.3, len(weight)).astype(np.float32))
        w = m.node("DequantizeLinear", m.const(weight), scale, m.const(np.zeros(len(weight), np.int8)), axis=0)
        return m.quantise(m.node(kind, x, w, name=name, **attributes))

    first, second, scores = (
        m.rng.integers(-1, 2, shape).astype(np.int8) for shape in ((8, 4, 3, 3), (8, 8, 3, 3), (5, 72))
    )
    second[1::2] = m.rng.integers(-9, 9, second[1::2].shape)
    x = layer("Conv", "first", m.quantise(m.input("x", [1, 4, 6, 6])), first, pads=[1] * 4)
    x = layer("Conv", "second", x, second, pads=[1] * 4, strides=[2, 2])
    m.output(layer("Gemm", "scores", m.node("Flatten", x), scores, transB=1))
    return m.save("ternary.onnx")
