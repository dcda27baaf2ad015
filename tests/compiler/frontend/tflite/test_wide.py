"""16x8 quantisation: activations of 16 bits, weights of 8 bits; the reference gives LiteRT's values, a row each."""

import numpy as np
import pytest

from tilewright.compiler.frontend.tflite import import_tflite
from tilewright.hw.errors import UnsupportedError

SCALE, UNIT = 2e-4, 2.0**-15
SAME, VALID = 0, 1
NONE, RELU, RELU6 = 0, 1, 3
INT32 = 2  # the schema's number of the type
WINDOWS = {"padding": SAME, "strideH": 2, "strideW": 2}
POOL = WINDOWS | {"filterHeight": 3, "filterWidth": 2}


def q(*shape, s=SCALE):
    """An input of the network."""
    return lambda m: m.input(shape, s, 0, dtype="INT16")


def t(*shape, s=SCALE):
    """A computed tensor."""
    return lambda m: m.tensor(shape, s, 0, "INT16")


def ints(*values):
    """int32 constants."""
    return [lambda m, v=v: m.const(np.array(v, np.int32)) for v in values]


# kind, inputs, output, options
ROWS = [
    (kind, [q(2, 3, 30), q(*shape, s=1.7e-4)], t(2, 3, 30, s=3.1e-4), {"fusedActivationFunction": activation})
    for kind in ("ADD", "SUB", "MUL")
    for shape, activation in [((2, 3, 30), NONE), ((3, 1), RELU), ((30,), RELU6)]
]
ROWS += [(kind, [q(2, 30), q(30)], t(2, 30), {}) for kind in ("MAXIMUM", "MINIMUM")]
ROWS += [
    (kind, [q(4, 900, s=s)], t(4, 900, s=UNIT), {})
    for kind in ("LOGISTIC", "TANH")
    for s in (SCALE, 2.0**-13, 2.0**-12, 2.0**-11, 1e-2, 3e-5)
]
ROWS += [(kind, [q(4, 900)], t(4, 900, s=5e-4), {}) for kind in ("ABS", "EXP", "GELU", "RELU", "RELU6")]
ROWS += [("GELU", [q(4, 900, s=1e-4)], t(4, 900, s=1e-4), {"approximate": True})]
ROWS += [("LEAKY_RELU", [q(4, 900)], t(4, 900, s=3e-4), {"alpha": alpha}) for alpha in (0.3, -0.2)]
ROWS += [
    ("SOFTMAX", [q(*shape, s=s)], t(*shape, s=UNIT), {"beta": beta})
    for shape, s, beta in [((9, 50), SCALE, 1.0), ((2, 3, 4, 90), 1e-3, 1.0), ((3, 7), 2e-5, 0.5)]
]
ROWS += [
    (kind, [q(2, 7, 9, 3)], t(2, 4, 5, 3), POOL | {"fusedActivationFunction": activation})
    for kind in ("MAX_POOL_2D", "AVERAGE_POOL_2D")
    for activation in (NONE, RELU)
]
ROWS += [
    ("MEAN", [q(2, 5, 7, 4), *ints(axes)], t(*shape, s=1.3e-4), {"keepDims": len(shape) == 4})
    for axes, shape in [((1, 2), (2, 1, 1, 4)), ((1, 2), (2, 4)), ((-1,), (2, 5, 7))]
]
ROWS += [(kind, [q(2, 5, 7), *ints([1])], t(2, 7), {}) for kind in ("REDUCE_MAX", "REDUCE_MIN")]
ROWS += [
    (kind, [q(1, 5, 6, 3), *ints(size)], t(1, *size, 3), flags)
    for kind in ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
    for size, flags in [((9, 11), {"halfPixelCenters": True}), ((4, 13), {"alignCorners": True})]
]
ROWS += [
    ("BATCH_MATMUL", [q(2, *((20, 4) if x else (4, 20))), q(2, *((7, 20) if y else (20, 7)))], t(2, 4, 7, s=0.03),
     {"adjX": x, "adjY": y})
    for x in (False, True)
    for y in (False, True)
]  # fmt: skip
ROWS += [
    (kind, [q(*shape), *ints(*constants)], t(*result), options)
    for kind, shape, constants, result, options in [
        ("PAD", (1, 4, 6, 5), [[[0, 0], [1, 2], [0, 3], [2, 0]]], (1, 7, 9, 7), {}),
        ("TRANSPOSE", (1, 4, 6, 5), [[0, 2, 3, 1]], (1, 6, 5, 4), {}),
        ("RESHAPE", (2, 6), [[3, 4]], (3, 4), {}),
        ("SLICE", (1, 3, 3, 7), [[0, 1, 0, 2], [1, 2, 3, 4]], (1, 2, 3, 4), {}),
        ("STRIDED_SLICE", (5, 4), [[4, 0], [0, 4], [-2, 1]], (2, 4), {}),
        ("GATHER", (5, 4), [[3, 0, 0]], (3, 4), {}),
        ("MIRROR_PAD", (2, 5), [[[0, 1], [2, 0]]], (3, 7), {}),
    ]
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].lower())
def test_operators(m, equals_litert, row):
    kind, inputs, output, options = row
    equals_litert(m, m.node(kind, [make(m) for make in inputs], [output(m)], **options))


def weights(m, shape, axis, per_channel, bias):
    """[weights, biases]; the biases are int64, int32 or, with None, absent."""
    scale = m.rng.uniform(0.002, 0.01, shape[axis] if per_channel else 1).astype(np.float32)
    w = m.const(m.rng.integers(-127, 128, shape).astype(np.int8), scale, 0, axis)
    values = m.rng.integers(-(10**6), 10**6, shape[axis])
    return [w] if bias is None else [w, m.const(values.astype(bias), np.float32(SCALE) * scale)]


# kind -> shapes of input, weights and output, channels of the weights, options
LAYERS = {
    "CONV_2D": ((2, 9, 8, 6), (8, 3, 2, 3), (2, 5, 4, 8), 0, WINDOWS | {"fusedActivationFunction": RELU6}),
    "DEPTHWISE_CONV_2D": ((1, 6, 7, 5), (1, 3, 3, 10), (1, 3, 4, 10), 3, WINDOWS | {"depthMultiplier": 2}),
    "FULLY_CONNECTED": ((2, 3, 40), (7, 40), (2, 3, 7), 0, {"keepNumDims": True, "fusedActivationFunction": RELU}),
    "TRANSPOSE_CONV": ((1, 4, 5, 5), (6, 3, 3, 5), (1, 8, 10, 6), 0, WINDOWS),
}
BIASES = [(kind, np.int64) for kind in LAYERS] + [("CONV_2D", np.int32), ("FULLY_CONNECTED", np.int32)]
BIASES += [("FULLY_CONNECTED", None), ("TRANSPOSE_CONV", None)]  # LiteRT wants biases of the others


def layer(m, kind, bias, per_channel=True):
    """The output of a layer."""
    shape, weight, result, axis, options = LAYERS[kind]
    if bias is np.int32 and kind != "DEPTHWISE_CONV_2D":
        options = options | {"quantizedBiasType": INT32}
    x, (w, *b) = q(*shape)(m), weights(m, weight, axis, per_channel, bias)
    inputs = [m.const(np.array(result, np.int32)), w, x, *b] if kind == "TRANSPOSE_CONV" else [x, w, *b]
    return m.node(kind, inputs, [m.tensor(result, 0.004, 0, "INT16")], **options)


@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("kind, bias", BIASES)
def test_layers(tflite, equals_litert, kind, bias, per_channel):
    for seed in range(3):
        m = tflite(seed)
        equals_litert(m, layer(m, kind, bias, per_channel))


def test_ends_of_other_types(m, equals_litert):
    """float32 at the ends, and int8 between, as mixed files have them."""
    x = m.node("QUANTIZE", [m.input((3, 50), None, dtype="FLOAT32")], [t(3, 50)(m)])
    y = m.node("QUANTIZE", [x], [m.tensor((3, 50), 0.06, 5)])
    m.output(m.op("RELU", [y], (3, 50), 0.06, 5))
    equals_litert(m, m.node("DEQUANTIZE", [x], [m.tensor((3, 50), dtype="FLOAT32")]))


REFUSED = {
    "has bias 't2': int32 of shape (10,), expected int64 (10,)": lambda m: layer(m, "DEPTHWISE_CONV_2D", np.int32),
    "all powers of two, and pot_scale_int16; set that option": lambda m: m.node(
        "ADD", [q(2, 3, s=UNIT)(m), q(2, 3, s=UNIT)(m)], [t(2, 3, s=UNIT)(m)]
    ),
    "logistic of output scale 0.0002; 16-bit results have": lambda m: m.node("LOGISTIC", [q(2, 3)(m)], [t(2, 3)(m)]),
    "an input scale of 3; at most 2.66667 is allowed": lambda m: m.node(
        "TANH", [q(2, 3, s=3.0)(m)], [t(2, 3, s=UNIT)(m)]
    ),
    "which wrap at 32 bits; the file needs int64 biases": lambda m: m.node(
        "FULLY_CONNECTED",
        [q(1, 600)(m), m.const(np.full((2, 600), 127, np.int8), 0.01), m.const(np.zeros(2, np.int32))],
        [t(1, 2, s=0.004)(m)],
    ),
    "scales sums to 1.99754e+11 steps of 1e-10; at most 2**31": lambda m: m.node(
        "FULLY_CONNECTED", [q(1, 8)(m), m.const(np.full((2, 8), 127, np.int8), 0.003), -1], [t(1, 2, s=1e-10)(m)]
    ),
}


@pytest.mark.parametrize("text", REFUSED)
def test_refusals(m, text):
    m.output(REFUSED[text](m))
    with pytest.raises(UnsupportedError) as caught:
        import_tflite(m.save())
    assert text in str(caught.value)
