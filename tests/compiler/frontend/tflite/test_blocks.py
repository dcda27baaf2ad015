"""Blocks of pixels: what they become; tests/compiler/frontend/tflite/test_movement.py compares them with LiteRT."""

import numpy as np

from tilewright.compiler.frontend.tflite.importer import import_tflite
from tilewright.compiler.graph import Reshape, Transpose


def test_depth_to_space_is_one_transposition(m):
    m.output(m.op("DEPTH_TO_SPACE", [m.input((1, 3, 4, 12))], (1, 6, 8, 3), 0.05, -3, blockSize=2))
    assert [type(op) for op in import_tflite(m.save()).ops] == [Reshape, Transpose, Reshape]


def test_no_padding_needs_no_operator(m):
    sizes = [m.const(np.array(v, np.int32)) for v in ([2, 2], [[0, 0], [0, 0]])]
    m.output(m.op("SPACE_TO_BATCH_ND", [m.input((1, 4, 4, 3)), *sizes], (4, 2, 2, 3), 0.05, -3))
    assert [type(op) for op in import_tflite(m.save()).ops] == [Reshape, Transpose, Reshape]
