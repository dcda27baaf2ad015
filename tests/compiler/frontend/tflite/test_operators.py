"""Operators of .tflite files, one at a time: the reference gives the bytes of LiteRT's reference kernels."""

import numpy as np
import pytest
from flatbuffers import flexbuffers

from tilewright.compiler.frontend.tflite.importer import import_tflite
from tilewright.compiler.graph import reference
from tilewright.hw.errors import UnsupportedError

SAME, VALID = 0, 1
NONE, RELU, RELU6 = 0, 1, 3


@pytest.mark.parametrize("kind", ["ADD", "SUB", "MUL"])
@pytest.mark.parametrize(
    "shapes, constant",
    [
        (((1, 3, 4, 5), (1, 3, 4, 5)), False),
        (((1, 3, 4, 5), (5,)), True),
        (((1, 3, 4, 5), (1, 1, 1, 5)), True),
        (((1, 3, 4, 5), (4, 5)), False),
        (((2, 7), (2, 7)), False),
        (((2, 7), (1,)), False),
    ],
)
def test_sums_differences_and_products(tflite, equals_litert, kind, shapes, constant):
    for scales in ((0.05, 0.031), (0.02, 0.07)):
        m = tflite()
        x = m.input(shapes[0], scales[0], 11)
        other = m.rng.integers(-128, 128, shapes[1]).astype(np.int8)
        y = m.const(other, scales[1], -20) if constant else m.input(shapes[1], scales[1], -20)
        equals_litert(m, m.op(kind, [x, y], shapes[0], 0.06, -7, fusedActivationFunction=RELU6 if constant else NONE))


@pytest.mark.parametrize("kind", ["MAX_POOL_2D", "AVERAGE_POOL_2D"])
@pytest.mark.parametrize("kernel, strides", [((3, 3), (1, 1)), ((3, 2), (2, 1)), ((4, 3), (2, 3))])
@pytest.mark.parametrize("padding, activation", [(SAME, NONE), (SAME, RELU6), (VALID, RELU)])
def test_pooling(m, equals_litert, kind, kernel, strides, padding, activation):
    h, w, c = 9, 8, 3
    size = [-(-(n if padding == SAME else n - k + 1) // s) for n, k, s in zip((h, w), kernel, strides)]
    options = {"padding": padding, "strideH": strides[0], "strideW": strides[1], "fusedActivationFunction": activation}
    x = m.input((1, h, w, c))
    y = m.op(kind, [x], (1, *size, c), 0.05, -3, filterHeight=kernel[0], filterWidth=kernel[1], **options)
    equals_litert(m, y)


@pytest.mark.parametrize(
    "shape, axes, keep",
    [
        ((1, 5, 7, 4), (1, 2), True),
        ((1, 5, 7, 4), (1, 2), False),
        ((1, 5, 7, 4), (3,), True),
        ((1, 5, 7, 4), (1,), False),
        ((1, 5, 7, 4), (-1,), False),
        ((2, 9), (1,), True),
        ((2, 3, 4), (0, 2), False),
    ],
)
@pytest.mark.parametrize("rescaled", [True, False])
def test_means(m, equals_litert, shape, axes, keep, rescaled):
    positive = {a % len(shape) for a in axes}
    result = [1 if k in positive else n for k, n in enumerate(shape) if keep or k not in positive]
    scale = (0.013, 6) if rescaled else (0.05, -3)
    x = m.input(shape)
    equals_litert(m, m.op("MEAN", [x, m.const(np.array(axes, np.int32))], result, *scale, keepDims=keep))


@pytest.mark.parametrize("scale, beta", [(0.05, 1.0), (0.7, 1.0), (0.1, 2.5)])
@pytest.mark.parametrize("shape", [(4, 12), (1, 3, 3, 7)])
def test_softmax(m, equals_litert, scale, beta, shape):
    equals_litert(m, m.op("SOFTMAX", [m.input(shape, scale)], shape, 1 / 256, -128, beta=beta))


@pytest.mark.parametrize(
    "kind, scale, zero_point, options",
    [
        ("LOGISTIC", 1 / 256, -128, {}),
        ("TANH", 1 / 128, 0, {}),
        ("LEAKY_RELU", 0.07, 5, {"alpha": 0.3}),
        ("RELU", 0.03, -100, {}),
        ("RELU6", 0.03, -100, {}),
        ("RELU_N1_TO_1", 0.03, 10, {}),
        ("QUANTIZE", 0.031, 17, {}),
        ("QUANTIZE", 0.11, -9, {}),
    ],
)
@pytest.mark.parametrize("x_scale", [0.05, 0.03])
def test_functions_of_one_value(m, equals_litert, kind, scale, zero_point, options, x_scale):
    equals_litert(m, m.op(kind, [m.input((2, 200), x_scale, 3)], (2, 200), scale, zero_point, **options))


def test_float_ends(m, equals_litert):
    x = m.input((1, 4, 3, 50), None, dtype="FLOAT32")
    y = m.op("QUANTIZE", [x], (1, 4, 3, 50), 0.25, 7)
    z = m.tensor((1, 4, 3, 50), dtype="FLOAT32")
    m.output(m.node("DEQUANTIZE", [y], [z]))
    equals_litert(m, y)


@pytest.mark.parametrize("scale, zero_point", [(0.05, 3), (0.031, 3), (0.05, 4)])
def test_uint8_ends(m, equals_litert, scale, zero_point):
    x = m.input((1, 4, 3, 50), 0.05, 131, dtype="UINT8")
    y = m.op("QUANTIZE", [x], (1, 4, 3, 50), scale, zero_point)
    y = m.op("RELU", [y], (1, 4, 3, 50), scale, zero_point)
    m.output(m.node("QUANTIZE", [y], [m.tensor((1, 4, 3, 50), 0.05, 131, dtype="UINT8")]))
    equals_litert(m, y)


@pytest.mark.parametrize("kind", ["RESIZE_NEAREST_NEIGHBOR", "RESIZE_BILINEAR"])
@pytest.mark.parametrize("flags", [{}, {"alignCorners": True}, {"halfPixelCenters": True}])
@pytest.mark.parametrize("size", [(8, 10), (7, 3), (2, 13), (1, 1), (12, 5), (33, 31)])
def test_images_of_another_size(m, equals_litert, kind, flags, size):
    y = m.op(kind, [m.input((2, 4, 5, 3)), m.const(np.array(size, np.int32))], (2, *size, 3), 0.05, -3, **flags)
    equals_litert(m, y)


@pytest.mark.parametrize("kind", ["REDUCE_MAX", "REDUCE_MIN"])
@pytest.mark.parametrize(
    "shape, axes", [((2, 3, 4, 5), (1, 2)), ((2, 3, 4, 5), (3,)), ((2, 9), (-1,)), ((3, 2, 4), (0,))]
)
@pytest.mark.parametrize("keep", [True, False])
def test_extremes_along_axes(m, equals_litert, kind, shape, axes, keep):
    positive = {a % len(shape) for a in axes}
    result = [1 if k in positive else n for k, n in enumerate(shape) if keep or k not in positive]
    equals_litert(m, m.op(kind, [m.input(shape), m.const(np.array(axes, np.int32))], result, 0.05, -3, keepDims=keep))


@pytest.mark.parametrize("scale, zero_point", [(0.2, 4), (0.05, -3), (0.05, 60)])
@pytest.mark.parametrize("axes", [(1, 2), (3,), (1,)])
def test_sums_of_uint8(tflite, equals_litert, scale, zero_point, axes):
    """LiteRT's reference kernel of int8 sums is wrong: it cuts each step to int8."""
    shape = (2, 5, 7, 6)
    m, result = tflite(), tuple(1 if k in axes else n for k, n in enumerate(shape))
    y = m.tensor(result, scale, zero_point + 128, dtype="UINT8")
    x, where = m.input(shape, 0.013, 100, dtype="UINT8"), m.const(np.array(axes, np.int32))
    equals_litert(m, m.node("SUM", [x, where], [y], keepDims=True))


@pytest.mark.parametrize("scale, zero_point", [(0.03, -128), (0.02, 0)])
def test_square_roots(m, equals_litert, scale, zero_point):
    x = m.op("RELU", [m.input((4, 200), 0.05, 7)], (4, 200), 0.05, -128)
    equals_litert(m, m.op("SQRT", [x], (4, 200), scale, zero_point))


@pytest.mark.parametrize("kind", ["ARG_MAX", "ARG_MIN"])
@pytest.mark.parametrize("axis", [-1, 1])
def test_positions_of_extremes(m, equals_litert, kind, axis):
    shape = tuple(n for k, n in enumerate((2, 9, 5, 60)) if k != axis % 4)
    y = m.tensor(shape, dtype="INT32")
    x, where = m.input((2, 9, 5, 60)), m.const(np.array(axis, np.int32))
    equals_litert(m, m.node(kind, [x, where], [y], outputType=2))


@pytest.mark.parametrize(
    "axes, text",
    [([1, 2], "has 2 axes; it must have 1"), ([4], "names dimension 4 of a tensor of 4")],
)
def test_axes_of_positions(m, axes, text):
    y, x, where = m.tensor((2,), dtype="INT32"), m.input((2, 9, 5, 60)), m.const(np.array(axes, np.int32))
    m.output(m.node("ARG_MAX", [x, where], [y], outputType=2))
    with pytest.raises(UnsupportedError, match=text):
        import_tflite(m.save())


@pytest.mark.parametrize("shape", [(4, 9), (2, 3, 4, 5), (3, 200)])
@pytest.mark.parametrize("scale, zero_point", [(0.05, 3), (0.01, -100), (0.3, 50)])
def test_normalised_rows(tflite, equals_litert, shape, scale, zero_point):
    for kind, y in (("L2_NORMALIZATION", (1 / 128, 0)), ("LOG_SOFTMAX", (16 / 256, 127))):
        m = tflite()
        equals_litert(m, m.op(kind, [m.input(shape, scale, zero_point)], shape, *y))


@pytest.mark.parametrize("adj_x, adj_y", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_products_of_matrices(m, equals_litert, batch, adj_x, adj_y):
    x = m.input((*batch, *((20, 4) if adj_x else (4, 20))), 0.05, 9)
    y = m.input((*batch, *((7, 20) if adj_y else (20, 7))), 0.03, -5)
    equals_litert(m, m.op("BATCH_MATMUL", [x, y], (*batch, 4, 7), 0.15, -11, adjX=adj_x, adjY=adj_y))


def test_products_with_constant_matrices(m, equals_litert):
    y = m.const(m.rng.integers(-128, 128, (20, 7)).astype(np.int8), 0.03, 0)
    equals_litert(m, m.op("BATCH_MATMUL", [m.input((2, 4, 20), 0.05, 9), y], (2, 4, 7), 0.15, -11))


@pytest.mark.parametrize("constant", [0, 1, 2])
@pytest.mark.parametrize("turned", [True, False])
def test_products_of_matrices_one_of_which_is_constant(m, equals_litert, constant, turned):
    shapes = [(2, 4, 3) if turned else (2, 3, 4), (2, 4, 5)]
    given = [
        m.const(m.rng.integers(-128, 128, s).astype(np.int8), 0.02, 3) if k + 1 == constant else m.input(s)
        for k, s in enumerate(shapes)
    ]
    equals_litert(m, m.op("BATCH_MATMUL", given, (2, 3, 5), adjX=turned))


@pytest.mark.parametrize("activation", [0, 1, 3])
def test_a_dense_layer_by_computed_weights(m, equals_litert, activation):
    x, w = m.input((3, 12)), m.input((7, 12), 0.04, 9)
    equals_litert(m, m.op("FULLY_CONNECTED", [x, w], (3, 7), fusedActivationFunction=activation))


def test_images_of_16_bits_at_the_ends(m, litert_outputs):
    """An image in the file's layout between two operators, one of which takes it in the accelerator's."""
    x = m.op("QUANTIZE", [m.input((1, 4, 5, 3), 0.001, 0, dtype="INT16")], (1, 4, 5, 3), 0.05, -3)
    weights = m.weights((6, 3, 3, 3))
    y = m.op("CONV_2D", [x, *weights], (1, 4, 5, 6), padding=0, strideH=1, strideW=1)
    m.output(m.node("QUANTIZE", [y], [m.tensor((1, 4, 5, 6), 0.002, 0, "INT16")]))
    path = m.save()
    graph, given = import_tflite(path), m.rng.integers(-(1 << 13), 1 << 13, (1, 4, 5, 3)).astype(np.int16)
    (found,) = reference.run(graph, {graph.inputs[0].name: given})[0].values()
    np.testing.assert_array_equal(found, *litert_outputs(path, given))


@pytest.mark.parametrize("kind", ["MAXIMUM", "MINIMUM"])
@pytest.mark.parametrize(
    "shapes, constant",
    [
        (((1, 3, 4, 5), (1, 3, 4, 5)), False),
        (((1, 3, 4, 5), (5,)), True),
        (((2, 7), (2, 7)), False),
        (((2, 7), ()), True),
    ],
)
def test_the_larger_and_the_smaller_value(m, equals_litert, kind, shapes, constant):
    x = m.input(shapes[0])
    y = m.const(m.rng.integers(-128, 128, shapes[1]).astype(np.int8), 0.05, -3) if constant else m.input(shapes[1])
    equals_litert(m, m.op(kind, [x, y], shapes[0], 0.05, -3))


@pytest.mark.parametrize("shape, alphas", [((1, 3, 4, 5), (1, 1, 5)), ((1, 3, 4, 5), (1, 1, 1)), ((2, 7), (7,))])
@pytest.mark.parametrize("scales", [(0.03, 0.01, 0.05), (0.05, 0.007, 0.02)])
def test_rectifiers_with_slopes(m, equals_litert, shape, alphas, scales):
    alpha = m.const(m.rng.integers(-128, 128, alphas).astype(np.int8), scales[1], 11)
    equals_litert(m, m.op("PRELU", [m.input(shape, scales[0], 7), alpha], shape, scales[2], -20))


@pytest.mark.parametrize("scales", [(0.03, 0.01, 0.05), (0.05, 0.07, 0.02)])
def test_squared_differences(m, equals_litert, scales):
    x, y = m.input((1, 3, 4, 5), scales[0], 7), m.input((1, 3, 4, 1), scales[1], -9)
    equals_litert(m, m.op("SQUARED_DIFFERENCE", [x, y], (1, 3, 4, 5), scales[2], -100))


@pytest.mark.parametrize(
    "kind, x, y, options",
    [
        ("ABS", (0.05, 3), (0.05, -7), {}),
        ("ABS", (0.05, 3), (0.03, -90), {}),
        ("HARD_SWISH", (0.05, 3), (0.04, -100), {}),
        ("HARD_SWISH", (0.02, -20), (0.011, -30), {}),
        ("HARD_SWISH", (0.3, 11), (0.29, -120), {}),
        ("EXP", (0.02, -10), (0.037, -128), {}),
        ("GELU", (0.05, 3), (0.033, -120), {}),
        ("GELU", (0.05, 3), (0.033, -120), {"approximate": True}),
        ("LOG", (0.05, -128), (0.031, 9), {}),
        ("RSQRT", (0.02, -128), (0.05, -128), {}),
        ("RSQRT", (0.030416397377848625, -128), (0.004432574845850468, -128), {}),  # the table of float32 differs
        ("RSQRT", (0.0023878533393144608, -128), (0.03386349603533745, -128), {}),
        ("NEG", (0.05, 0), (0.05, 0), {}),
    ],
)
def test_tables_of_functions(m, equals_litert, kind, x, y, options):
    equals_litert(m, m.op(kind, [m.input((4, 200), *x)], (4, 200), *y, **options))


def test_negation_that_ignores_the_quantisation(m):
    m.output(m.op("NEG", [m.input((1, 9), 0.05, 3)], (1, 9), 0.05, 3))
    with pytest.raises(UnsupportedError, match="the kernel negates the bytes: scales must be equal and zero points 0"):
        import_tflite(m.save())


SHAPE = (3, 40)


@pytest.mark.parametrize("into", [("INT8", 0.05, -12), ("INT32", 1e-5, 0), ("INT16", 0.0013, 0)])
def test_quantize_of_int16(m, sequence, litert_sequence, into):
    kind, scale, zero_point = into
    x = m.input(SHAPE, 0.0004, 0, dtype="INT16")
    m.output(m.node("QUANTIZE", [x], [m.tensor(SHAPE, scale, zero_point, kind)]))
    path = m.save()
    inputs = m.rng.integers(-(1 << 15), 1 << 15, (4, *SHAPE)).astype(np.int16)
    (mine,), (theirs,) = sequence(path, inputs), litert_sequence(path, inputs)
    assert mine.dtype == kind.lower() and len(np.unique(mine)) > 20
    np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("scale", [2.0**-16, 1 / 65535])
def test_softmax_as_int16(m, sequence, litert_sequence, scale):
    x = m.input(SHAPE, 0.1, 4)
    m.output(m.node("SOFTMAX", [x], [m.tensor(SHAPE, scale, -(1 << 15), "INT16")], beta=1.0))
    path = m.save()
    inputs = m.rng.integers(-128, 128, (4, *SHAPE)).astype(np.int8)
    np.testing.assert_array_equal(sequence(path, inputs), litert_sequence(path, inputs))


def test_int16_elsewhere_is_refused(tflite):
    m = tflite()
    x = m.input(SHAPE, 0.0004, 0, dtype="INT16")
    m.output(m.node("RELU", [x], [m.tensor(SHAPE, 0.0004, 0, "INT16")]))
    with pytest.raises(UnsupportedError, match="has tensor 't0' of 16 bits; only activations of 8 bits are supported"):
        import_tflite(m.save())
    m = tflite()
    x = m.input(SHAPE, None, dtype="INT32")
    m.output(m.node("QUANTIZE", [x], [m.tensor(SHAPE, 0.5, 0)]))
    with pytest.raises(UnsupportedError, match="has int32 tensor 't0' with 0 scales; it needs one"):
        import_tflite(m.save())
    m = tflite()
    x = m.input(SHAPE, 1.0, 0, dtype="INT32")
    m.output(m.node("QUANTIZE", [x], [m.tensor(SHAPE, 0.5, 0, "INT16")]))
    with pytest.raises(UnsupportedError, match="whether R leaves 32 bits is True, expected False"):
        import_tflite(m.save())


BOXES, CLASSES = 40, 5


def post_process(m, real, most, shapes=True, **changes):
    """A file of the operator alone; the scores' first class is the background."""
    dtype = "FLOAT32" if real else "UINT8"
    boxes = m.input((1, BOXES, 4), None if real else 0.05, 128, dtype=dtype)
    scores = m.input((1, BOXES, CLASSES + 1), None if real else 1 / 256, 0, dtype=dtype)
    anchors = m.rng.integers(20, 256, (BOXES, 4)).astype(np.uint8)
    last = m.const(anchors.astype(np.float32) / 256) if real else m.const(anchors, 0.004, 9)
    outputs = [m.tensor(s if shapes else (), dtype="FLOAT32") for s in ((1, most, 4), (1, most), (1, most), (1,))]
    options = {"max_detections": most, "max_classes_per_detection": 1, "num_classes": CLASSES}
    options |= {"nms_score_threshold": 0.3, "nms_iou_threshold": 0.5}
    options |= {"y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0} | changes
    builder = flexbuffers.Builder()
    with builder.Map():
        for key, value in options.items():
            if value is not None:
                {bool: builder.Bool, int: builder.Int, float: builder.Float}[type(value)](key, value)
    m.node("CUSTOM", [boxes, scores, last], outputs)
    m.model.operatorCodes[-1].customCode = "TFLite_Detection_PostProcess"
    m.graph.operators[-1].customOptions = np.frombuffer(bytes(builder.Finish()), np.uint8)
    for y in outputs:
        m.output(y)
    if real:
        m.output(m.op("QUANTIZE", [boxes], (1, BOXES, 4), 0.1, 0))  # else it is a float32 model
    return m


@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("options", [{}, {"use_regular_nms": True, "detections_per_class": 7}])
@pytest.mark.parametrize("most", [6, 30])
def test_detections(tflite, litert_outputs, real, options, most):
    for seed in range(4):
        m = post_process(tflite(seed), real, most, **options)
        path = m.save()
        shapes = (1, BOXES, 4), (1, BOXES, CLASSES + 1)
        given = [m.rng.integers(60 * (1 - k), 200 + 56 * k, shape).astype(np.uint8) for k, shape in enumerate(shapes)]
        if real:
            given = [(x.astype(np.float32) - (1 - k) * 128) / (25, 256)[k] for k, x in enumerate(given)]
            given = [x.astype(np.float32) for x in given]
        graph = import_tflite(path)
        found, _ = reference.run(graph, dict(zip((t.name for t in graph.inputs), given)))
        for t, expected in zip(graph.outputs, litert_outputs(path, *given)):
            assert found[t.name].shape == expected.shape and np.array_equal(found[t.name], expected)
        assert found[graph.outputs[3].name][0] > 1


def test_shapes_that_a_file_leaves_out(tflite):
    graph = import_tflite(post_process(tflite(), False, 6, shapes=False).save())
    assert [t.shape for t in graph.outputs] == [(1, 6, 4), (1, 6), (1, 6), (1,)]


def test_options_that_are_missing(tflite):
    with pytest.raises(UnsupportedError, match="'custom_tflite_detection_postprocess_0' .* has no option num_classes"):
        import_tflite(post_process(tflite(), False, 6, num_classes=None).save())
    m = post_process(tflite(), False, 6)
    m.graph.operators[0].customOptions = np.array([255, 255], np.uint8)
    with pytest.raises(UnsupportedError, match="has no option max_detections"):
        import_tflite(m.save())
    m = post_process(tflite(), False, 6)
    m.graph.operators[0].outputs = m.graph.operators[0].outputs[:3]
    with pytest.raises(UnsupportedError, match="has 3 outputs; it must have 4"):
        import_tflite(m.save())
