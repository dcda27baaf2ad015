"""Other operators of Relax: those of the ONNX importer."""

import numpy as np


def image(m, *shape):
    return m.quantise(m.input("x", list(shape or (1, 4, 6, 5))))


def test_operators(m, same_as_onnx):
    x = image(m)
    y = m.quantise(m.node("Sigmoid", x), 1 / 256, -128)
    y = m.quantise(m.node("Clip", m.node("Add", x, y), m.const(np.float32(-1)), m.const(np.float32(2))), 0.03)
    y = m.quantise(m.node("Concat", y, x, axis=1), 0.05)
    y = m.quantise(m.node("AveragePool", y, kernel_shape=[2, 2]), 0.04)
    m.output(m.quantise(m.node("Softmax", m.node("Flatten", y), axis=1), 1 / 256, -128))
    same_as_onnx(m)


def test_movements(m, same_as_onnx):
    y = m.node("MaxPool", image(m), kernel_shape=[2, 2])
    y = m.node("Transpose", y, perm=[0, 2, 3, 1])
    bounds = (m.const(np.array([k], np.int64)) for k in (1, 4, 1))
    m.output(m.quantise(m.node("Slice", y, *bounds)))
    same_as_onnx(m)
