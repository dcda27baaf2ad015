"""Plain numbers in .tflite files: the reference gives the bytes of LiteRT's reference kernels."""

import numpy as np
import pytest

from tilewright.compiler.frontend.tflite.importer import import_tflite
from tilewright.hw.errors import UnsupportedError

SHAPE = (1, 3, 4, 5)


def quantised(m, x, shape):
    """An int8 output, without which a file is a float32 model."""
    return m.op("QUANTIZE", [x], shape, 0.1, 3)


@pytest.mark.parametrize("kind", ["ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE"])
@pytest.mark.parametrize("activation", [0, 1, 3])
def test_float_operands(tflite, equals_litert, kind, activation):
    m = tflite()
    x = m.input(SHAPE, None, dtype="FLOAT32")
    y = m.const(m.rng.normal(0, 2, 5).astype(np.float32))
    options = {"fusedActivationFunction": activation} if kind in ("ADD", "SUB", "MUL", "DIV") else {}
    z = m.node(kind, [x, y], [m.tensor(SHAPE, dtype="FLOAT32")], **options)
    m.output(z)
    m.output(quantised(m, z, SHAPE))
    equals_litert(m)


def test_functions_of_floats(tflite, equals_litert):
    m = tflite()
    x = m.input(SHAPE, None, dtype="FLOAT32")
    for kind in ("ABS", "SQRT", "SQUARE", "NEG", "FLOOR", "RELU6"):
        x = m.node(kind, [x], [m.tensor(SHAPE, dtype="FLOAT32")])
        m.output(x)
        if kind == "NEG":
            x = m.node("ADD", [x, m.const(np.array([7.3], np.float32))], [m.tensor(SHAPE, dtype="FLOAT32")])
    m.output(quantised(m, x, SHAPE))
    equals_litert(m)


def test_what_lies_at_the_largest_value(tflite, equals_litert):
    """As networks that find key points do: position, its row and column, offsets there."""
    m = tflite()
    heat, offsets = m.input((1, 48, 3), 0.05, -3), m.input((8, 6, 3), 0.02, 5)
    where = m.tensor((1, 3), dtype="INT32")
    m.node("ARG_MAX", [heat, m.const(np.int32(1))], [where], outputType=2)
    six = m.const(np.array(6, np.int32))
    row = m.node("FLOOR_DIV", [where, six], [m.tensor((1, 3), dtype="INT32")])
    whole = m.node("MUL", [row, six], [m.tensor((1, 3), dtype="INT32")])
    column = m.node("SUB", [where, whole], [m.tensor((1, 3), dtype="INT32")])
    channel = m.const(np.array([[0, 1, 2]], np.int32))
    place = m.node("PACK", [row, column, channel], [m.tensor((1, 3, 3), dtype="INT32")], axis=2, valuesCount=3)
    m.output(m.node("GATHER_ND", [offsets, place], [m.tensor((1, 3), 0.02, 5)]))
    m.output(m.node("CAST", [row], [m.tensor((1, 3), dtype="FLOAT32")]))
    flat = m.node("RESHAPE", [row, m.const(np.array([3], np.int32))], [m.tensor((3,), dtype="INT32")])
    m.output(m.node("GATHER", [offsets, flat], [m.tensor((3, 6, 3), 0.02, 5)], axis=0))
    equals_litert(m)


def test_raw_bytes_are_cast(tflite, equals_litert):
    m = tflite()
    x = m.node("CAST", [m.input(SHAPE, None, dtype="UINT8")], [m.tensor(SHAPE, dtype="FLOAT32")])
    m.output(quantised(m, x, SHAPE))
    equals_litert(m)


def test_casts_of_quantised_uint8(tflite):
    m = tflite()
    x = m.node("RELU", [m.input(SHAPE, 0.05, 131, dtype="UINT8")], [m.tensor(SHAPE, 0.05, 131, dtype="UINT8")])
    m.output(m.node("CAST", [x], [m.tensor(SHAPE, dtype="FLOAT32")]))
    with pytest.raises(UnsupportedError, match="casts a quantised uint8 tensor, which is not supported"):
        import_tflite(m.save())


def test_unknown_activations(tflite):
    m = tflite()
    x = m.input(SHAPE, None, dtype="FLOAT32")
    y = m.node("ADD", [x, x], [m.tensor(SHAPE, dtype="FLOAT32")], fusedActivationFunction=4)
    m.output(quantised(m, y, SHAPE))
    with pytest.raises(UnsupportedError, match="has fused activation 4; only none, RELU"):
        import_tflite(m.save())
