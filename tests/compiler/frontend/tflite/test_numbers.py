"""Plain numbers in .tflite files: the reference gives the bytes of LiteRT's reference kernels."""

import numpy as np
import pytest

from tilewright.compiler.frontend.tflite.importer import import_tflite
from tilewright.compiler.graph import reference
from tilewright.hw.errors import UnsupportedError

SHAPE = (1, 3, 4, 5)


def quantised(m, x, shape):
    """An int8 output, without which a file is a float32 model."""
    return m.op("QUANTIZE", [x], shape, 0.1, 3)


@pytest.mark.parametrize("kind", ["ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", "PRELU"])
@pytest.mark.parametrize("activation", [0, 1, 3])
def test_float_operands(m, equals_litert, kind, activation):
    x = m.input(SHAPE, None, dtype="FLOAT32")
    y = m.const(m.rng.normal(0, 2, 5).astype(np.float32))
    options = {"fusedActivationFunction": activation} if kind in ("ADD", "SUB", "MUL", "DIV") else {}
    z = m.node(kind, [x, y], [m.tensor(SHAPE, dtype="FLOAT32")], **options)
    m.output(z)
    equals_litert(m, quantised(m, z, SHAPE))


FUNCTIONS = ["ABS", "EXP", "FLOOR", "HARD_SWISH", "LEAKY_RELU", "LOGISTIC", "NEG", "RELU", "RELU6"]
FUNCTIONS += ["RELU_0_TO_1", "RELU_N1_TO_1", "SIGN", "SQUARE", "SOFTMAX"]
POSITIVE = ["LOG", "RSQRT", "SQRT"]


@pytest.mark.parametrize("kind", FUNCTIONS + POSITIVE)
def test_functions_of_floats(m, equals_litert, kind):
    x = m.input(SHAPE, None, dtype="FLOAT32")
    if kind in POSITIVE:
        x = m.node("SQUARE", [x], [m.tensor(SHAPE, dtype="FLOAT32")])
    options = {"LEAKY_RELU": {"alpha": 0.3}, "SOFTMAX": {"beta": 1.0}}.get(kind, {})
    x = m.node(kind, [x], [m.tensor(SHAPE, dtype="FLOAT32")], **options)
    m.output(x)
    equals_litert(m, quantised(m, x, SHAPE))


@pytest.mark.parametrize("kind, function", [("SIN", np.sin), ("COS", np.cos), ("TANH", np.tanh), ("CEIL", np.ceil)])
def test_functions_that_differ_in_the_last_bit_or_that_litert_does_not_have(m, kind, function):
    x = m.node(kind, [m.input(SHAPE, None, dtype="FLOAT32")], [number(m, SHAPE)])
    m.output(x)
    m.output(quantised(m, x, SHAPE))
    graph = import_tflite(m.save())
    given = m.rng.normal(0, 4, SHAPE).astype(np.float32)
    found, _ = reference.run(graph, {graph.inputs[0].name: given})
    np.testing.assert_allclose(found[graph.outputs[0].name], function(given), rtol=1e-6)


@pytest.mark.parametrize("kind", ["MEAN", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "SUM"])
@pytest.mark.parametrize("axes, shape", [((1, 2), (1, 5)), ((3,), (1, 3, 4)), ((2,), (1, 3, 5))])
def test_floats_along_axes(m, equals_litert, kind, axes, shape):
    x = m.node(kind, [m.input(SHAPE, None, dtype="FLOAT32"), m.const(np.array(axes, np.int32))], [number(m, shape)])
    m.output(x)
    equals_litert(m, quantised(m, x, shape))


def number(m, shape):
    return m.tensor(shape, dtype="FLOAT32")


@pytest.mark.parametrize("activation", [0, 3])
def test_a_dense_layer_of_floats_behind_int8(m, equals_litert, activation):
    """As a file has it whose last layers are not quantised."""
    x = m.node("DEQUANTIZE", [m.input((1, 3, 40), 0.05, 4)], [number(m, (1, 3, 40))])
    weights = [m.const(m.rng.normal(size=shape).astype(np.float32)) for shape in ((7, 40), (7,))]
    y = m.node(
        "FULLY_CONNECTED", [x, *weights], [number(m, (1, 3, 7))], keepNumDims=True, fusedActivationFunction=activation
    )
    equals_litert(m, m.node("SOFTMAX", [y], [number(m, (1, 3, 7))], beta=1.0))


def test_what_is_not_read_of_floats(m):
    x = m.node("DEQUANTIZE", [m.input((1, 40), 0.05, 4)], [number(m, (1, 40))])
    y = m.node("FULLY_CONNECTED", [x, *m.weights((7, 40), bias=False)], [number(m, (1, 7))])
    m.output(m.node("SOFTMAX", [y], [number(m, (1, 7))], beta=2.0))
    with pytest.raises(UnsupportedError) as caught:
        import_tflite(m.save())
    assert "weights of int8 (dynamic quantisation); quantise activations, too" in str(caught.value)
    assert "has beta 2.0; of float32 only 1 is supported" in str(caught.value)


@pytest.mark.parametrize("dtype", ["FLOAT32", "INT8"])
def test_the_largest_of_each_row(m, equals_litert, dtype):
    x = m.input((2, 50), *((0.05, 4) if dtype == "INT8" else (None,)), dtype=dtype)
    kinds = (m.tensor((2, 9), *((0.05, 4) if dtype == "INT8" else ()), dtype=dtype), m.tensor((2, 9), dtype="INT32"))
    m.node("TOPK_V2", [x, m.const(np.array(9, np.int32))], list(kinds))
    for t in kinds:
        m.output(t)
    equals_litert(m, quantised(m, kinds[0], (2, 9)))


def test_what_lies_at_the_largest_value(m, equals_litert):
    """As networks that find key points do: position, its row and column, offsets there."""
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
    equals_litert(m, m.node("GATHER", [offsets, flat], [m.tensor((3, 6, 3), 0.02, 5)], axis=0))


def test_raw_bytes_are_cast(m, equals_litert):
    x = m.node("CAST", [m.input(SHAPE, None, dtype="UINT8")], [m.tensor(SHAPE, dtype="FLOAT32")])
    equals_litert(m, quantised(m, x, SHAPE))


@pytest.mark.parametrize("dtype", ["FLOAT32", "INT32"])
def test_casts_of_quantised_uint8(m, equals_litert, dtype):
    x = m.node("RELU", [m.input(SHAPE, 0.05, 131, dtype="UINT8")], [m.tensor(SHAPE, 0.05, 131, dtype="UINT8")])
    equals_litert(m, m.node("CAST", [x], [m.tensor(SHAPE, dtype=dtype)]))


def test_casts_of_quantised_uint8_to_bytes(m):
    x = m.node("RELU", [m.input(SHAPE, 0.05, 131, dtype="UINT8")], [m.tensor(SHAPE, 0.05, 131, dtype="UINT8")])
    m.output(m.node("CAST", [x], [m.tensor(SHAPE, dtype="UINT8")]))
    with pytest.raises(UnsupportedError, match="casts a quantised uint8 tensor to uint8; only float32, int32"):
        import_tflite(m.save())


def test_unknown_activations(m):
    x = m.input(SHAPE, None, dtype="FLOAT32")
    y = m.node("ADD", [x, x], [m.tensor(SHAPE, dtype="FLOAT32")], fusedActivationFunction=4)
    m.output(quantised(m, y, SHAPE))
    with pytest.raises(UnsupportedError, match="has fused activation 4; only none, RELU"):
        import_tflite(m.save())


COMPARISONS = ["EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "NOT_EQUAL"]


@pytest.mark.parametrize("kind", COMPARISONS)
def test_comparisons(m, equals_litert, kind):
    x, y = m.input((2, 900), 0.05, -3), m.input((2, 900), 0.05 if "EQUAL" in kind else 0.07, -3)
    m.output(m.node(kind, [x, y], [m.tensor((2, 900), dtype="BOOL")]))
    real = m.node("FLOOR", [m.node("DEQUANTIZE", [x], [number(m, (2, 900))])], [number(m, (2, 900))])
    bits = m.node(kind, [real, m.const(np.float32(2.0))], [m.tensor((2, 900), dtype="BOOL")])
    equals_litert(m, m.node("CAST", [bits], [number(m, (2, 900))]))


@pytest.mark.parametrize("dtype", ["INT8", "UINT8", "FLOAT32"])
@pytest.mark.parametrize("kind", ["SELECT", "SELECT_V2"])
def test_choices(m, equals_litert, kind, dtype):
    plain = (None,) if dtype == "FLOAT32" else (0.05, 120 if dtype == "UINT8" else -8)
    x, y = m.input(SHAPE, *plain, dtype=dtype), m.input(SHAPE, *plain, dtype=dtype)
    which = m.node("GREATER", [x, y], [m.tensor(SHAPE, dtype="BOOL")])
    z = m.node(kind, [which, x, y], [m.tensor(SHAPE, *plain, dtype=dtype)])
    m.output(z)
    equals_litert(m, quantised(m, z, SHAPE))


def test_choices_of_rows_and_of_one_constant(m, equals_litert):
    x, other = m.input((4, 3, 2), 0.05, -8), m.input((4, 3, 2), 0.05, -8)
    rows = m.input((4,), 0.05, -8)
    zero = m.const(np.array([-8], np.int8), 0.05, -8)
    which = m.node("GREATER", [rows, zero], [m.tensor((4,), dtype="BOOL")])
    m.output(m.op("SELECT", [which, x, other], (4, 3, 2), 0.05, -8))
    each = m.node("LESS", [x, zero], [m.tensor((4, 3, 2), dtype="BOOL")])
    equals_litert(m, m.op("SELECT_V2", [each, x, zero], (4, 3, 2), 0.05, -8))


@pytest.mark.parametrize("kind", ["LOGICAL_AND", "LOGICAL_OR"])
@pytest.mark.parametrize("over", ["REDUCE_ANY", "REDUCE_ALL"])
def test_truth_values(m, equals_litert, kind, over):
    x, y = m.input((90, 2), 0.05, -3), m.input((90, 2), 0.05, -3)
    some = m.node("GREATER", [x, y], [m.tensor((90, 2), dtype="BOOL")])
    others = m.node("LESS", [x, m.const(np.array([7], np.int8), 0.05, -3)], [m.tensor((90, 2), dtype="BOOL")])
    both = m.node(kind, [some, others], [m.tensor((90, 2), dtype="BOOL")])
    m.output(m.node("LOGICAL_NOT", [both], [m.tensor((90, 2), dtype="BOOL")]))
    equals_litert(m, m.node(over, [both, m.const(np.array([1], np.int32))], [m.tensor((90,), dtype="BOOL")]))


@pytest.mark.parametrize("axis, shape", [(-1, (2, 3, 6)), (1, (2, 6, 3))])
def test_one_of_many(m, equals_litert, axis, shape):
    where = m.node(
        "ARG_MAX", [m.input((2, 3, 6)), m.const(np.int32(2))], [m.tensor((2, 3), dtype="INT32")], outputType=2
    )
    values = [m.const(np.int32(6)), m.const(np.float32(1)), m.const(np.float32(-0.5))]
    y = m.node("ONE_HOT", [where, *values], [number(m, shape)], axis=axis)
    equals_litert(m, quantised(m, y, shape))


def test_rows_of_a_table(m, equals_litert):
    where = m.node("ARG_MAX", [m.input((4, 9)), m.const(np.int32(1))], [m.tensor((4,), dtype="INT32")], outputType=2)
    table = m.const(m.rng.integers(-99, 99, (9, 6)).astype(np.int8), 0.05)
    equals_litert(m, m.op("EMBEDDING_LOOKUP", [where, table], (4, 6), 0.05, 0))


def real(m, *shape):
    return m.const(m.rng.normal(size=shape).astype(np.float32))


WINDOWS = {"padding": 0, "strideH": 2, "strideW": 2}
# kind -> inputs behind the image of SHAPE, the output's shape, options
LAYERS = {
    "CONV_2D": (lambda m: [real(m, 7, 3, 3, 5), real(m, 7)], (1, 2, 2, 7), WINDOWS),
    "DEPTHWISE_CONV_2D": (lambda m: [real(m, 1, 3, 3, 5), real(m, 5)], (1, 2, 2, 5), WINDOWS | {"depthMultiplier": 1}),
    "AVERAGE_POOL_2D": (lambda m: [], (1, 2, 2, 5), WINDOWS | {"filterHeight": 3, "filterWidth": 3}),
    "MAX_POOL_2D": (lambda m: [], (1, 2, 2, 5), WINDOWS | {"filterHeight": 3, "filterWidth": 3}),
}


@pytest.mark.parametrize("activation", [0, 1])
@pytest.mark.parametrize("kind", LAYERS)
def test_layers_of_images_in_float(m, equals_litert, kind, activation):
    others, shape, options = LAYERS[kind]
    x = m.node("DEQUANTIZE", [m.input(SHAPE)], [number(m, SHAPE)])
    equals_litert(m, m.node(kind, [x, *others(m)], [number(m, shape)], fusedActivationFunction=activation, **options))


def test_a_transposed_convolution_of_floats(m, equals_litert):
    x = m.node("DEQUANTIZE", [m.input(SHAPE)], [number(m, SHAPE)])
    size = m.const(np.array([1, 6, 8, 7], np.int32))
    equals_litert(m, m.node("TRANSPOSE_CONV", [size, real(m, 7, 3, 3, 5), x], [number(m, (1, 6, 8, 7))], **WINDOWS))


@pytest.mark.parametrize("options", [{}, {"halfPixelCenters": True}, {"alignCorners": True}], ids=str)
def test_images_of_another_size_in_float(m, equals_litert, options):
    x = m.node("DEQUANTIZE", [m.input(SHAPE)], [number(m, SHAPE)])
    size = m.const(np.array([7, 9], np.int32))
    equals_litert(m, m.node("RESIZE_BILINEAR", [x, size], [number(m, (1, 7, 9, 5))], **options))


@pytest.mark.parametrize("options", [{}, {"adjX": True}, {"adjY": True}], ids=str)
def test_products_of_matrices_of_floats(m, equals_litert, options):
    shapes = [(2, 6, 4) if options.get("adjX") else (2, 4, 6), (2, 5, 6) if options.get("adjY") else (2, 6, 5)]
    x, y = (m.node("DEQUANTIZE", [m.input(shape)], [number(m, shape)]) for shape in shapes)
    equals_litert(m, m.node("BATCH_MATMUL", [x, y], [number(m, (2, 4, 5))], **options))


def test_a_dense_layer_of_two_activations(m, equals_litert):
    x, y = m.input((4, 20), 0.05, -3), m.input((7, 20), 0.04, 5)
    equals_litert(m, m.op("FULLY_CONNECTED", [x, y, -1], (4, 7), 0.3, 1))


def test_a_dense_layer_of_two_activations_and_more(m):
    x, y = m.input((4, 20), 0.05, -3), m.input((7, 20), 0.04, 5)
    m.output(m.op("FULLY_CONNECTED", [x, y, m.const(np.arange(7, dtype=np.int32), 0.002)], (4, 7), 0.3, 1))
    with pytest.raises(UnsupportedError, match="has weights that are not constant, and biases"):
        import_tflite(m.save())


def test_other_operators_of_floats(m, equals_litert):
    x = m.node("DEQUANTIZE", [m.input((3, 8))], [number(m, (3, 8))])
    m.output(m.node("L2_NORMALIZATION", [x], [number(m, (3, 8))]))
    m.output(m.node("ADD_N", [x, x, m.input((3, 8), None, dtype="FLOAT32")], [number(m, (3, 8))]))
    equals_litert(m, m.node("ARG_MAX", [x, m.const(np.int32(1))], [m.tensor((3,), dtype="INT32")], outputType=2))


@pytest.mark.parametrize("approximate", [False, True])
def test_gelu_of_floats(m, against_litert, approximate):
    x = m.node("DEQUANTIZE", [m.input((3, 8))], [number(m, (3, 8))])
    m.output(m.node("GELU", [x], [number(m, (3, 8))], approximate=approximate))
    for mine, theirs in zip(*against_litert(m)):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def test_weights_that_are_dequantised(m, equals_litert):
    """As files have them whose weights alone are small: int8 by one or many scales, or half precision."""
    x = m.node("DEQUANTIZE", [m.input((2, 5))], [number(m, (2, 5))])
    for scale in (0.01, np.array([0.01, 0.02, 0.03], np.float32)):
        w = m.const(m.rng.integers(-99, 99, (3, 5)).astype(np.int8), scale)
        w = m.node("DEQUANTIZE", [w], [number(m, (3, 5))])
        m.output(m.node("FULLY_CONNECTED", [x, w, -1], [number(m, (2, 3))]))
    half = m.tensor((3, 5), dtype="FLOAT16", data=m.rng.normal(size=(3, 5)).astype(np.float16))
    w = m.node("DEQUANTIZE", [half], [number(m, (3, 5))])
    equals_litert(m, m.node("FULLY_CONNECTED", [x, w, -1], [number(m, (2, 3))]))


def test_weights_of_four_bits(m, equals_litert):
    scales = np.array([0.1, 0.2, 0.3], np.float32)
    values = m.rng.integers(-7, 8, 15).astype(np.int8)
    pairs = np.append(values, 0).reshape(8, 2) & 15  # an odd number leaves half a byte
    w = m.tensor((3, 1, 1, 5), scales, dtype="INT4", data=(pairs[:, 0] | pairs[:, 1] << 4).astype(np.uint8))
    bias = m.const(np.arange(3, dtype=np.int32), np.float32(0.05) * scales)
    equals_litert(m, m.op("CONV_2D", [m.input((1, 4, 4, 5)), w, bias], (1, 4, 4, 3), 0.2, 1, strideH=1, strideW=1))
