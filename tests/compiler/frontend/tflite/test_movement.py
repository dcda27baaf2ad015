"""Operators of .tflite files that move values: the reference gives the bytes of LiteRT's reference kernels."""

import numpy as np
import pytest

from tilewright.compiler.frontend.tflite.importer import import_tflite
from tilewright.compiler.graph import Reshape, Transpose
from tilewright.hw.errors import UnsupportedError


@pytest.mark.parametrize("axis", [1, 2, -1])
def test_concatenation(m, equals_litert, axis):
    shapes = [[1, 3, 4, 5], [1, 3, 4, 5]]
    shapes[1][axis] = 2
    total = list(shapes[0])
    total[axis] += 2
    x, y = (m.input(shape, 0.08, 4) for shape in shapes)
    k = m.const(m.rng.integers(-128, 128, shapes[1]).astype(np.int8), 0.08, 4)
    total[axis] += 2
    equals_litert(m, m.op("CONCATENATION", [x, y, k], total, axis=axis))


def test_movement(m, equals_litert):
    """Padding, transposition, slices and shapes, of images and of others."""
    q = {"scale": 0.05, "zero_point": -3}
    x = m.input((1, 4, 6, 5))
    pads = m.const(np.array([[0, 0], [1, 2], [0, 3], [2, 0]], np.int32))
    y = m.op("PAD", [x, pads], (1, 7, 9, 7), **q)
    y = m.op("TRANSPOSE", [y, m.const(np.array([0, 2, 3, 1], np.int32))], (1, 9, 7, 7), **q)
    cut = [m.const(np.array(v, np.int32)) for v in ([0, 8, 1, 0], [1, 0, 6, 7], [1, -3, 2, 1])]
    y = m.op("STRIDED_SLICE", [y, *cut], (1, 3, 3, 7), endMask=8, **q)
    y = m.op(
        "SLICE",
        [y, m.const(np.array([0, 1, 0, 2], np.int32)), m.const(np.array([1, 2, 3, 4], np.int32))],
        (1, 2, 3, 4),
        **q,
    )
    m.output(y)
    y = m.op("RESHAPE", [y, m.const(np.array([6, 4], np.int32))], (6, 4), **q)
    m.output(m.op("TRANSPOSE", [y, m.const(np.array([1, 0], np.int32))], (4, 6), **q))
    y = m.op("RESHAPE", [y, m.const(np.array([1, 4, 3, 2], np.int32))], (1, 4, 3, 2), **q)
    value = m.const(np.array([77], np.int8), 0.05, -3)
    m.output(
        m.op("PADV2", [y, m.const(np.array([[0, 0], [0, 1], [2, 0], [0, 0]], np.int32)), value], (1, 5, 5, 2), **q)
    )
    cut = [m.const(np.array(v, np.int32)) for v in ([0, -2, 0, 1], [1, 0, 3, 2], [1, 1, 2, 1])]
    equals_litert(m, m.op("STRIDED_SLICE", [y, *cut], (1, 2), shrinkAxisMask=0b1010, **q))


@pytest.mark.parametrize("axis", [1, 3, -2])
def test_splits(m, equals_litert, axis):
    shape = [1, 4, 6, 8]
    x = m.input(shape)
    shape[axis] //= 2
    parts = [m.tensor(shape, 0.05, -3) for _ in range(2)]
    m.node("SPLIT", [m.const(np.array(axis, np.int32)), x], parts, numSplits=2)
    for part in parts:
        m.output(m.op("RELU", [part], shape, 0.05, -3))
    equals_litert(m)


@pytest.mark.parametrize("shape, axis", [((1, 4, 6), 3), ((1, 4, 6), 1), ((5, 2), 0)])
def test_stacks(m, equals_litert, shape, axis):
    whole = (*shape[:axis], 2, *shape[axis:])
    y = m.op("PACK", [m.input(shape), m.input(shape)], whole, 0.05, -3, axis=axis, valuesCount=2)
    y = m.op("RELU", [y], whole, 0.05, -100)
    parts = [m.tensor(shape, 0.05, -100) for _ in range(2)]
    m.node("UNPACK", [y], parts, num=2, axis=axis)
    for part in parts:
        m.output(part)
    equals_litert(m)


def ints(m, *values):
    return [m.const(np.array(v, np.int32)) for v in values]


@pytest.mark.parametrize("shape, axis", [([1, 4, 6, 8], 3), ([1, 4, 6, 8], -3), ([2, 8], 1)])
def test_splits_of_given_sizes(m, equals_litert, shape, axis):
    sizes = [1, shape[axis] - 3, 2]
    parts = [[n if k != axis % len(shape) else size for k, n in enumerate(shape)] for size in sizes]
    tensors = [m.tensor(part, 0.05, -3) for part in parts]
    m.node("SPLIT_V", [m.input(shape), *ints(m, sizes, axis)], tensors, numSplits=3)
    for part, t in zip(parts, tensors):
        m.output(m.op("RELU", [t], part, 0.05, -3))
    equals_litert(m)


Q = {"scale": 0.05, "zero_point": -3}
REFLECT, SYMMETRIC = 0, 1


@pytest.mark.parametrize(
    "kind, shape, constants, result, options",
    [
        ("TILE", (1, 2, 3, 4), [[1, 3, 2, 2]], (1, 6, 6, 8), {}),
        ("TILE", (2, 5), [[3, 1]], (6, 5), {}),
        ("BROADCAST_TO", (1, 3, 1, 4), [[2, 3, 5, 4]], (2, 3, 5, 4), {}),
        ("BROADCAST_TO", (3, 1), [[2, 3, 4]], (2, 3, 4), {}),
        ("GATHER", (1, 4, 5, 3), [[2, 0, 0, 3]], (1, 4, 4, 3), {"axis": 2}),
        ("GATHER", (7, 6), [[[1, 6], [0, 1]]], (2, 2, 6), {"axis": 0}),
        ("GATHER", (3, 5), [2], (3,), {"axis": -1}),
        ("REVERSE_V2", (1, 4, 5, 3), [[2]], (1, 4, 5, 3), {}),
        ("MIRROR_PAD", (1, 4, 5, 3), [[[0, 0], [1, 2], [3, 0], [0, 1]]], (1, 7, 8, 4), {"mode": REFLECT}),
        ("MIRROR_PAD", (1, 4, 5, 3), [[[0, 0], [1, 2], [3, 0], [0, 1]]], (1, 7, 8, 4), {"mode": SYMMETRIC}),
        ("DEPTH_TO_SPACE", (2, 3, 4, 12), [], (2, 6, 8, 3), {"blockSize": 2}),
        ("SPACE_TO_DEPTH", (2, 6, 9, 5), [], (2, 2, 3, 45), {"blockSize": 3}),
        ("SPACE_TO_BATCH_ND", (1, 5, 7, 3), [[2, 3], [[1, 0], [1, 1]]], (6, 3, 3, 3), {}),
        ("SPACE_TO_BATCH_ND", (2, 6, 5), [[2], [[0, 2]]], (4, 4, 5), {}),
        ("BATCH_TO_SPACE_ND", (6, 3, 3, 4), [[2, 3], [[1, 0], [1, 1]]], (1, 5, 7, 4), {}),
        ("BATCH_TO_SPACE_ND", (4, 3, 2), [[2], [[0, 0]]], (2, 6, 2), {}),
        ("STRIDED_SLICE", (2, 3, 4, 5), [[0, 1], [0, 4], [1, 2]], (2, 3, 4, 2), {"ellipsisMask": 1}),
        ("STRIDED_SLICE", (3, 4), [[0, 0, 1], [3, 1, 4], [2, 1, 1]], (2, 1, 3), {"newAxisMask": 2}),
        ("STRIDED_SLICE", (2, 3, 4), [[1], [2], [1]], (1, 3, 4), {}),
        ("STRIDED_SLICE", (2, 3, 4), [[1], [2], [1]], (3, 4), {"shrinkAxisMask": 1}),
        ("STRIDED_SLICE", (5, 4), [[1, 0], [3, 2], [1, 1]], (3, 2), {"offset": True}),
    ],
)
def test_elements_in_other_places(m, equals_litert, kind, shape, constants, result, options):
    equals_litert(m, m.op(kind, [m.input(shape), *ints(m, *constants)], result, **Q, **options))


def test_dilated_convolutions_between_batch_and_space(m, equals_litert):
    edges = [[2, 2], [2, 2]]
    y = m.op("SPACE_TO_BATCH_ND", [m.input((1, 8, 8, 3)), *ints(m, [2, 2], edges)], (4, 6, 6, 3), **Q)
    y = m.op("CONV_2D", [y, *m.weights((4, 3, 3, 3))], (4, 4, 4, 4), padding=1, strideH=1, strideW=1)
    equals_litert(m, m.op("BATCH_TO_SPACE_ND", [y, *ints(m, [2, 2], [[0, 0], [0, 0]])], (1, 8, 8, 4)))


def test_scalars_among_the_operands(m, equals_litert):
    y = m.op("MUL", [m.input((1, 3, 4, 5)), m.const(np.array(77, np.int8), 0.01, 3)], (1, 3, 4, 5), 0.03, 9)
    y = m.op("ADD", [m.const(np.array(-5, np.int8), 0.07, 3), y], (1, 3, 4, 5), 0.05, -3)
    m.output(y)
    m.output(
        m.op(
            "PADV2",
            [y, *ints(m, [[0, 0], [1, 0], [0, 1], [0, 0]]), m.const(np.array(7, np.int8), **Q)],
            (1, 4, 5, 5),
            **Q,
        )
    )
    equals_litert(m)


@pytest.mark.parametrize(
    "kind, shape, constants, result, options, text",
    [
        ("DEPTH_TO_SPACE", (1, 3, 4, 5), [], (1, 6, 8, 1), {"blockSize": 2}, "has 5 channels, which are not whole"),
        ("SPACE_TO_DEPTH", (1, 3, 4, 5), [], (1, 1, 2, 20), {"blockSize": 2}, "has an image of 3 x 4, which is not"),
        ("SPACE_TO_DEPTH", (3, 4), [], (1, 8), {"blockSize": 2}, "of 2 dimensions; only 4 are supported"),
        ("SPACE_TO_BATCH_ND", (1, 3, 4, 5), [[2, 2], [[0, 0], [0, 0]]], (4, 2, 2, 5), {}, "which is not whole blocks"),
        ("SPACE_TO_BATCH_ND", (1, 3, 4, 5), [[2, 2], [[0, 0]]], (4, 2, 2, 5), {}, r"has blocks \[2, 2\] and edges"),
        ("BATCH_TO_SPACE_ND", (3, 3, 4, 5), [[2, 2], [[0, 0], [0, 0]]], (1, 6, 8, 5), {}, "has 3 images, which are"),
        ("MIRROR_PAD", (2, 3), [[[2, 0], [0, 0]]], (4, 3), {}, "reflects 2 elements of 2"),
        ("MIRROR_PAD", (2, 3), [[[1, 0]]], (3, 3), {}, "pads 1 dimensions of 2"),
        ("PAD", (2, 3), [[1, 0, 0]], (3, 3), {}, "has 3 numbers in input .*; it takes pairs"),
        ("PADV2", (2, 3), [[[1, 0], [0, 0]], [7, 8]], (3, 3), {}, "has 2 numbers in input .*; it takes one"),
        ("PACK", (), [], (), {"axis": 0, "valuesCount": 1}, "names dimension 0 of a tensor of 0"),
        ("UNPACK", (2, 3), [], (3,), {"axis": 2, "num": 1}, "names dimension 2 of a tensor of 2"),
        ("GATHER", (2, 3), [[0]], (1, 3), {"axis": 0, "batchDims": 1}, "has axis 0 and batch_dims 1; only equal"),
        ("GATHER", (2, 3), [[2]], (1, 3), {}, "whether the indices lie within dimension 0 is False"),
        ("STRIDED_SLICE", (2, 3), [[0, 0, 0], [1, 1, 1], [1, 1, 1]], (1, 1), {}, "3 entries for 2 dimensions"),
        ("STRIDED_SLICE", (2, 3), [[0, 0], [1, 1], [1, 0]], (1, 1), {}, "has begin, end and strides"),
        ("STRIDED_SLICE", (2, 3), [[1, 0], [1, 1], [1, 1]], (1, 1), {}, "selects no element along dimension 0"),
    ],
)
def test_movement_that_does_not_fit(m, kind, shape, constants, result, options, text):
    m.output(m.op(kind, [m.input(shape), *ints(m, *constants)], result, **Q, **options))
    with pytest.raises(UnsupportedError, match=text):
        import_tflite(m.save())


def numbers(m, *values):
    return m.const(np.array(values, np.int32))


@pytest.mark.parametrize(
    "kind, constants, shape",
    [
        ("RESHAPE", [(2, 60)], (2, 60)),
        ("TRANSPOSE", [(0, 2, 1, 3)], (1, 6, 4, 5)),
        ("TRANSPOSE", [(0, 3, 1, 2)], (1, 5, 4, 6)),
        ("SLICE", [(0, 1, 0, 2), (1, 2, 6, 3)], (1, 2, 6, 3)),
        ("STRIDED_SLICE", [(0, 1, 0, 2), (1, 3, 6, 3), (1, 1, 1, 1)], (1, 2, 6)),
        ("GATHER", [(3, 0)], (2, 4, 6, 5)),
        ("RESIZE_NEAREST_NEIGHBOR", [(8, 9)], (1, 8, 9, 5)),
        ("TILE", [(1, 2, 1, 1)], (1, 8, 6, 5)),
        ("SPACE_TO_DEPTH", [], (1, 2, 3, 20)),
    ],
)
def test_bytes_are_copied_whatever_the_scales(m, equals_litert, kind, constants, shape):
    options = {"STRIDED_SLICE": {"shrinkAxisMask": 8}, "SPACE_TO_DEPTH": {"blockSize": 2}}.get(kind, {})
    if kind == "GATHER":
        x, options = m.input((4, 4, 6, 5), 0.05, -3), {"axis": 0}
    else:
        x = m.input((1, 4, 6, 5), 0.05, -3)
    y = m.op(kind, [x, *(numbers(m, *values) for values in constants)], shape, 0.0521, 4, **options)
    m.output(m.op("QUANTIZE", [y], shape, 0.09, -20))
    equals_litert(m, y)


@pytest.mark.parametrize("kind", ["MAX_POOL_2D", "AVERAGE_POOL_2D"])
def test_windows_of_almost_the_same_scale(m, equals_litert, kind):
    """As files have them whose scales were rounded twice."""
    options = {"padding": 1, "strideH": 2, "strideW": 2, "filterHeight": 2, "filterWidth": 2}
    y = m.op(kind, [m.input((1, 4, 6, 5), 0.05, -3)], (1, 2, 3, 5), 0.0500002, -3, **options)
    equals_litert(m, m.op("QUANTIZE", [y], (1, 2, 3, 5), 0.09, -20))


def test_floats_are_moved(m, equals_litert):
    x = m.node("DEQUANTIZE", [m.input((1, 4, 6, 5), 0.05, -3)], [m.tensor((1, 4, 6, 5), dtype="FLOAT32")])
    for kind, constants, shape in (
        ("PAD", [((0, 0), (1, 0), (0, 2), (0, 1))], (1, 5, 8, 6)),
        ("PADV2", [((0, 0), (1, 0), (0, 0), (0, 0)), -7.0], (1, 6, 8, 6)),
        ("RESIZE_NEAREST_NEIGHBOR", [(12, 8)], (1, 12, 8, 6)),
        ("TRANSPOSE", [(0, 3, 1, 2)], (1, 6, 12, 8)),
    ):
        given = [m.const(np.array(v, np.float32 if isinstance(v, float) else np.int32)) for v in constants]
        x = m.node(kind, [x, *given], [m.tensor(shape, dtype="FLOAT32")])
    equals_litert(m, x)


def test_padding_with_fractions(m, equals_litert):
    x = m.node("DEQUANTIZE", [m.input((2, 3), 0.05, -3)], [m.tensor((2, 3), dtype="FLOAT32")])
    y = m.tensor((3, 3), dtype="FLOAT32")
    equals_litert(m, m.node("PADV2", [x, numbers(m, (1, 0), (0, 0)), m.const(np.float32(-3e38))], [y]))


def test_bytes_that_move_to_another_scale(m, equals_litert):
    x = m.input((1, 3, 4, 5), 0.05, -3)
    edges = numbers(m, (0, 0), (1, 0), (0, 2), (0, 0))
    m.output(m.op("PAD", [x, edges], (1, 4, 6, 5), 0.06, 20))
    equals_litert(m, m.op("MAXIMUM", [x, m.input((1, 3, 4, 5), 0.07, 9)], (1, 3, 4, 5), 0.06, 20))


@pytest.mark.parametrize("computed", [False, True])
def test_rows_for_each_of_a_batch(m, equals_litert, computed):
    x = m.input((2, 4, 6), 0.05, -3)
    if computed:
        where = m.node("ARG_MAX", [x, m.const(np.int32(1))], [m.tensor((2, 6), dtype="INT32")], outputType=2)
    else:
        where = m.const(m.rng.integers(0, 4, (2, 6)).astype(np.int32))
    equals_litert(m, m.op("GATHER", [x, where], (2, 6, 6), 0.05, -3, axis=1, batchDims=1))


def test_a_dimension_that_is_dropped_starts_where_its_mask_says(m, equals_litert):
    x = m.input((3, 5))
    y = m.op("STRIDED_SLICE", [x, *ints(m, [1, 1], [2, 4], [1, 1])], (3,), 0.05, -3, beginMask=1, shrinkAxisMask=1)
    equals_litert(m, y)


def test_depth_to_space_is_one_transposition(m):
    m.output(m.op("DEPTH_TO_SPACE", [m.input((1, 3, 4, 12))], (1, 6, 8, 3), 0.05, -3, blockSize=2))
    assert [type(op) for op in import_tflite(m.save()).ops] == [Reshape, Transpose, Reshape]


def test_no_padding_needs_no_operator(m):
    sizes = [m.const(np.array(v, np.int32)) for v in ([2, 2], [[0, 0], [0, 0]])]
    m.output(m.op("SPACE_TO_BATCH_ND", [m.input((1, 4, 4, 3)), *sizes], (4, 2, 2, 3), 0.05, -3))
    assert [type(op) for op in import_tflite(m.save()).ops] == [Reshape, Transpose, Reshape]
