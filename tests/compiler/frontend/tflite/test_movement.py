"""Operators of .tflite files that move values: the reference gives the bytes of LiteRT's reference kernels."""

import numpy as np
import pytest


@pytest.mark.parametrize("axis", [1, 2, -1])
def test_concatenation(tflite, equals_litert, axis):
    m = tflite()
    shapes = [[1, 3, 4, 5], [1, 3, 4, 5]]
    shapes[1][axis] = 2
    total = list(shapes[0])
    total[axis] += 2
    x, y = (m.input(shape, 0.08, 4) for shape in shapes)
    k = m.const(m.rng.integers(-128, 128, shapes[1]).astype(np.int8), 0.08, 4)
    total[axis] += 2
    m.output(m.op("CONCATENATION", [x, y, k], total, axis=axis))
    equals_litert(m)


def test_movement(tflite, equals_litert):
    """Padding, transposition, slices and shapes, of images and of others."""
    m = tflite()
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
    m.output(m.op("STRIDED_SLICE", [y, *cut], (1, 2), shrinkAxisMask=0b1010, **q))
    equals_litert(m)


@pytest.mark.parametrize("axis", [1, 3, -2])
def test_splits(tflite, equals_litert, axis):
    m = tflite()
    shape = [1, 4, 6, 8]
    x = m.input(shape)
    shape[axis] //= 2
    parts = [m.tensor(shape, 0.05, -3) for _ in range(2)]
    m.node("SPLIT", [m.const(np.array(axis, np.int32)), x], parts, numSplits=2)
    for part in parts:
        m.output(m.op("RELU", [part], shape, 0.05, -3))
    equals_litert(m)


@pytest.mark.parametrize("shape, axis", [((1, 4, 6), 3), ((1, 4, 6), 1), ((5, 2), 0)])
def test_stacks(tflite, equals_litert, shape, axis):
    m = tflite()
    whole = (*shape[:axis], 2, *shape[axis:])
    y = m.op("PACK", [m.input(shape), m.input(shape)], whole, 0.05, -3, axis=axis, valuesCount=2)
    y = m.op("RELU", [y], whole, 0.05, -100)
    parts = [m.tensor(shape, 0.05, -100) for _ in range(2)]
    m.node("UNPACK", [y], parts, num=2, axis=axis)
    for part in parts:
        m.output(part)
    equals_litert(m)
