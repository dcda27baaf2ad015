"""Plain numbers in .tflite files: the reference gives the bytes of LiteRT's reference kernels."""

import numpy as np
import pytest

from tilewright.compiler import reference
from tilewright.compiler.frontend.tflite.importer import import_tflite
from tilewright.hw.errors import UnsupportedError

SHAPE = (1, 3, 4, 5)


def quantised(m, x, shape):
    """An int8 output, without which a file is a float32 model."""
    return m.op("QUANTIZE", [x], shape, 0.1, 3)


@pytest.mark.parametrize("kind", ["ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", "PRELU"])
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


FUNCTIONS = ["ABS", "EXP", "FLOOR", "HARD_SWISH", "LEAKY_RELU", "LOGISTIC", "NEG", "RELU", "RELU6"]
FUNCTIONS += ["RELU_0_TO_1", "RELU_N1_TO_1", "SIGN", "SQUARE", "SOFTMAX"]
POSITIVE = ["LOG", "RSQRT", "SQRT"]


@pytest.mark.parametrize("kind", FUNCTIONS + POSITIVE)
def test_functions_of_floats(tflite, equals_litert, kind):
    m = tflite()
    x = m.input(SHAPE, None, dtype="FLOAT32")
    if kind in POSITIVE:
        x = m.node("SQUARE", [x], [m.tensor(SHAPE, dtype="FLOAT32")])
    options = {"LEAKY_RELU": {"alpha": 0.3}, "SOFTMAX": {"beta": 1.0}}.get(kind, {})
    x = m.node(kind, [x], [m.tensor(SHAPE, dtype="FLOAT32")], **options)
    m.output(x)
    m.output(quantised(m, x, SHAPE))
    equals_litert(m)


@pytest.mark.parametrize("kind, function", [("SIN", np.sin), ("COS", np.cos), ("TANH", np.tanh), ("CEIL", np.ceil)])
def test_functions_that_differ_in_the_last_bit_or_that_litert_does_not_have(tflite, kind, function):
    m = tflite()
    x = m.node(kind, [m.input(SHAPE, None, dtype="FLOAT32")], [number(m, SHAPE)])
    m.output(x)
    m.output(quantised(m, x, SHAPE))
    graph = import_tflite(m.save())
    given = m.rng.normal(0, 4, SHAPE).astype(np.float32)
    found, _ = reference.run(graph, {graph.inputs[0].name: given})
    np.testing.assert_allclose(found[graph.outputs[0].name], function(given), rtol=1e-6)


@pytest.mark.parametrize("kind", ["MEAN", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "SUM"])
@pytest.mark.parametrize("axes, shape", [((1, 2), (1, 5)), ((3,), (1, 3, 4)), ((2,), (1, 3, 5))])
def test_floats_along_axes(tflite, equals_litert, kind, axes, shape):
    m = tflite()
    x = m.node(kind, [m.input(SHAPE, None, dtype="FLOAT32"), m.const(np.array(axes, np.int32))], [number(m, shape)])
    m.output(x)
    m.output(quantised(m, x, shape))
    equals_litert(m)


def number(m, shape):
    return m.tensor(shape, dtype="FLOAT32")


@pytest.mark.parametrize("activation", [0, 3])
def test_a_dense_layer_of_floats_behind_int8(tflite, equals_litert, activation):
    """As a file has it whose last layers are not quantised."""
    m = tflite()
    x = m.node("DEQUANTIZE", [m.input((1, 3, 40), 0.05, 4)], [number(m, (1, 3, 40))])
    weights = [m.const(m.rng.normal(size=shape).astype(np.float32)) for shape in ((7, 40), (7,))]
    y = m.node(
        "FULLY_CONNECTED", [x, *weights], [number(m, (1, 3, 7))], keepNumDims=True, fusedActivationFunction=activation
    )
    m.output(m.node("SOFTMAX", [y], [number(m, (1, 3, 7))], beta=1.0))
    equals_litert(m)


def test_what_is_not_read_of_floats(tflite):
    m = tflite()
    x = m.node("DEQUANTIZE", [m.input((1, 40), 0.05, 4)], [number(m, (1, 40))])
    y = m.node("FULLY_CONNECTED", [x, *m.weights((7, 40), bias=False)], [number(m, (1, 7))])
    m.output(m.node("SOFTMAX", [y], [number(m, (1, 7))], beta=2.0))
    with pytest.raises(UnsupportedError) as caught:
        import_tflite(m.save())
    assert "weights of int8 (dynamic quantisation); quantise activations, too" in str(caught.value)
    assert "has beta 2.0; of float32 only 1 is supported" in str(caught.value)


@pytest.mark.parametrize("dtype", ["FLOAT32", "INT8"])
def test_the_largest_of_each_row(tflite, equals_litert, dtype):
    m = tflite()
    x = m.input((2, 50), *((0.05, 4) if dtype == "INT8" else (None,)), dtype=dtype)
    kinds = (m.tensor((2, 9), *((0.05, 4) if dtype == "INT8" else ()), dtype=dtype), m.tensor((2, 9), dtype="INT32"))
    m.node("TOPK_V2", [x, m.const(np.array(9, np.int32))], list(kinds))
    for t in kinds:
        m.output(t)
    m.output(quantised(m, kinds[0], (2, 9)))
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


@pytest.mark.parametrize("dtype", ["FLOAT32", "INT32"])
def test_casts_of_quantised_uint8(tflite, equals_litert, dtype):
    m = tflite()
    x = m.node("RELU", [m.input(SHAPE, 0.05, 131, dtype="UINT8")], [m.tensor(SHAPE, 0.05, 131, dtype="UINT8")])
    m.output(m.node("CAST", [x], [m.tensor(SHAPE, dtype=dtype)]))
    equals_litert(m)


def test_casts_of_quantised_uint8_to_bytes(tflite):
    m = tflite()
    x = m.node("RELU", [m.input(SHAPE, 0.05, 131, dtype="UINT8")], [m.tensor(SHAPE, 0.05, 131, dtype="UINT8")])
    m.output(m.node("CAST", [x], [m.tensor(SHAPE, dtype="UINT8")]))
    with pytest.raises(UnsupportedError, match="casts a quantised uint8 tensor to uint8; only float32, int32"):
        import_tflite(m.save())


def test_unknown_activations(tflite):
    m = tflite()
    x = m.input(SHAPE, None, dtype="FLOAT32")
    y = m.node("ADD", [x, x], [m.tensor(SHAPE, dtype="FLOAT32")], fusedActivationFunction=4)
    m.output(quantised(m, y, SHAPE))
    with pytest.raises(UnsupportedError, match="has fused activation 4; only none, RELU"):
        import_tflite(m.save())
