"""A small network, and inputs for it."""

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert")
pytest.importorskip("tvm")

from tests.compiler import conftest

tflite = conftest.tflite

SHAPE = (1, 12, 12, 16)


@pytest.fixture
def net(tflite):
    """Two convolutions, a mean, and a table between them that stays with LiteRT if it is not claimed."""
    m = tflite()
    x = m.op("CONV_2D", [m.input(SHAPE), *m.weights((16, 3, 3, 16))], SHAPE, 0.05, -3, strideH=1, strideW=1)
    x = m.op("LOGISTIC", [x], SHAPE, 1 / 256, -128)
    x = m.op("QUANTIZE", [x], SHAPE, 0.05, -3)
    x = m.op("CONV_2D", [x, *m.weights((10, 3, 3, 16))], (1, 12, 12, 10), 0.05, -3, strideH=1, strideW=1)
    m.output(m.op("MEAN", [x, m.const(np.array([1, 2], np.int32))], (1, 10), 0.02, 1))
    return m.save()


@pytest.fixture
def inputs(tmp_path):
    """A file of four samples with labels."""
    x = np.random.default_rng(4).integers(-128, 128, (4, *SHAPE)).astype(np.int8)
    np.savez(tmp_path / "x.npz", inputs=x, labels=np.arange(4))
    return tmp_path / "x.npz"
