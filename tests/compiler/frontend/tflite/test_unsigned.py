"""uint8 files of the earlier generation: the reference gives the bytes of LiteRT's reference kernels."""

import numpy as np
import pytest

from tilewright.compiler.frontend.tflite.file import read, relabelled
from tilewright.compiler.frontend.tflite.importer import import_tflite
from tilewright.compiler.graph import QConv2d, Recode

IMAGE, S, RGB = (1, 6, 7, 4), (0.05, 131), (1, 3, 4, 2)
WINDOW = {"padding": 0, "strideH": 1, "strideW": 1, "filterHeight": 3, "filterWidth": 2}


def ints(*values):
    return np.array(values, np.int32)


# kind -> (shapes of the inputs, their quantisation, constants, the output's shape, its quantisation, options)
CASES = {
    "ADD": ([IMAGE] * 2, [S, (0.031, 77)], [], IMAGE, (0.06, 100), {"fusedActivationFunction": 3}),
    "SUB": ([IMAGE] * 2, [S, (0.031, 77)], [], IMAGE, (0.06, 100), {}),
    "MUL": ([IMAGE] * 2, [S, (0.031, 77)], [], IMAGE, (0.06, 100), {}),
    "MAXIMUM": ([IMAGE] * 2, [S, S], [], IMAGE, S, {}),
    "RELU6": ([IMAGE], [S], [], IMAGE, (0.04, 9), {}),
    "LOGISTIC": ([IMAGE], [S], [], IMAGE, (1 / 256, 0), {}),
    "TANH": ([IMAGE], [S], [], IMAGE, (1 / 128, 128), {}),
    "HARD_SWISH": ([(4, 200)], [S], [], (4, 200), (0.04, 20), {}),
    "LEAKY_RELU": ([(4, 200)], [S], [], (4, 200), (0.07, 140), {"alpha": 0.3}),
    "SOFTMAX": ([(4, 20)], [S], [], (4, 20), (1 / 256, 0), {"beta": 1.0}),
    "L2_NORMALIZATION": ([(9, 20)], [S], [], (9, 20), (1 / 128, 128), {}),
    "MEAN": ([IMAGE], [S], [ints(1, 2)], (1, 4), (0.02, 110), {}),
    "REDUCE_MAX": ([IMAGE], [S], [ints(1, 2)], (1, 4), S, {}),
    "RESIZE_NEAREST_NEIGHBOR": ([IMAGE], [S], [ints(12, 14)], (1, 12, 14, 4), S, {}),
    "RESIZE_BILINEAR": ([IMAGE], [S], [ints(13, 9)], (1, 13, 9, 4), S, {"halfPixelCenters": True}),
    "AVERAGE_POOL_2D": ([IMAGE], [S], [], IMAGE, S, WINDOW),
    "MAX_POOL_2D": ([IMAGE], [S], [], IMAGE, S, WINDOW | {"fusedActivationFunction": 1}),
    "PAD": ([RGB], [S], [ints([0, 0], [1, 1], [0, 2], [0, 0])], (1, 5, 6, 2), S, {}),
    "CONCATENATION": ([IMAGE] * 3, [S, (0.03, 99), (0.06, 140)], [], (1, 6, 7, 12), (0.06, 140), {"axis": 3}),
    "QUANTIZE": ([IMAGE], [S], [], IMAGE, (0.07, 111), {}),
}


@pytest.mark.parametrize("kind", CASES)
def test_operators(m, equals_litert, kind):
    shapes, scales, constants, shape, y, options = CASES[kind]
    inputs = [m.input(each, *s, dtype="UINT8") for each, s in zip(shapes, scales)]
    inputs += [m.const(c) for c in constants]
    equals_litert(m, m.node(kind, inputs, [m.tensor(shape, *y, dtype="UINT8")], **options))


LAYERS = {
    "CONV_2D": (
        (1, 6, 7, 5),
        (8, 3, 3, 5),
        8,
        (1, 6, 7, 8),
        {"strideH": 1, "strideW": 1},
    ),
    "DEPTHWISE_CONV_2D": ((1, 6, 7, 5), (1, 3, 3, 10), 10, (1, 6, 7, 10), {"strideH": 1, "strideW": 1}),
    "TRANSPOSE_CONV": ((1, 4, 4, 5), (6, 3, 3, 5), 6, (1, 8, 8, 6), {"strideH": 2, "strideW": 2}),
}


def layer(m, kind, zero_point, seed):
    """A layer whose sums suit uint8, on any zero points."""
    shape, weights, channels, out, options = LAYERS[kind]
    rng = np.random.default_rng(seed)
    s, t = (float(np.float32(v)) for v in rng.uniform(0.003, 0.05, 2))
    x = m.input(shape, s, int(rng.integers(0, 256)), dtype="UINT8")
    w = m.const(rng.integers(0, 256, weights).astype(np.uint8), t, zero_point)
    b = m.const(rng.integers(-3000, 3000, channels).astype(np.int32), np.float32(s) * np.float32(t))
    y = m.tensor(out, float(np.float32(s * t * 700)), 120, dtype="UINT8")
    before = [m.const(np.array(out, np.int32)), w, x, b] if kind == "TRANSPOSE_CONV" else [x, w, b]
    if kind == "DEPTHWISE_CONV_2D":
        options = options | {"depthMultiplier": 2}
    m.output(m.node(kind, before, [y], **options))
    return m


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("zero_point", [50, 93, 127, 128, 200])
def test_weights_with_a_zero_point(tflite, equals_litert, kind, zero_point):
    for seed in range(2):
        equals_litert(layer(tflite(), kind, zero_point, seed))


def test_wide_weights_are_those_of_int16(tflite):
    for zero_point, dtype in ((128, np.int8), (93, np.int16)):
        graph = import_tflite(layer(tflite(), "CONV_2D", zero_point, 0).save())
        assert [op.weight.dtype for op in graph.ops if isinstance(op, QConv2d)] == [dtype]


def test_quotients(m, equals_litert):
    # LiteRT refuses a divisor of 0
    x, y = m.input(IMAGE, *S, dtype="UINT8"), m.const(m.rng.integers(120, 256, IMAGE).astype(np.uint8), 0.021, 119)
    equals_litert(m, m.node("DIV", [x, y], [m.tensor(IMAGE, 0.06, 100, dtype="UINT8")]))


def test_dense_layers_round_once_as_litert_does(m, litert_outputs):
    from tilewright.compiler.graph import reference

    x = m.input((30, 50), 0.0513, 99, dtype="UINT8")
    w = m.const(m.rng.integers(0, 256, (20, 50)).astype(np.uint8), 0.0117, 140)
    b = m.const(m.rng.integers(-3000, 3000, 20).astype(np.int32), np.float32(0.0513) * np.float32(0.0117))
    m.output(m.node("FULLY_CONNECTED", [x, w, b], [m.tensor((30, 20), 0.3, 120, dtype="UINT8")]))
    path = m.save()
    given = m.rng.integers(0, 256, (30, 50)).astype(np.uint8)
    graph = import_tflite(path)
    (mine,) = reference.run(graph, {graph.inputs[0].name: given}, "single")[0].values()
    assert np.array_equal(mine, litert_outputs(path, given)[0]) and mine.dtype == np.uint8


def test_ends_keep_names_and_type(tflite):
    m = layer(tflite(), "CONV_2D", 128, 0)
    m.graph.tensors[0].name, m.graph.tensors[3].name = "image", "scores"
    path = m.save()
    graph = import_tflite(path)
    assert [(t.name, t.dtype, t.zero_point >= 0) for t in (*graph.inputs, *graph.outputs)] == [
        ("image", "uint8", True),
        ("scores", "uint8", True),
    ]
    assert [type(op) for op in graph.ops].count(Recode) == 2
    file, ends = relabelled(read(path))
    assert ends == {0: "image", 3: "scores"} and {t.type for t in file.tensors} == {"INT8", "INT32"}
    assert [t.unsigned for t in file.tensors] == [True, True, False, True]
