"""Layers of Relax: those of the ONNX importer."""


def image(m, *shape):
    return m.quantise(m.input("x", list(shape or (1, 4, 6, 5))))


def test_layers(qdq, same_as_onnx):
    m = qdq()
    w, scale = m.weights(6, 4, 3, 3)
    y = m.node("Conv", image(m), w, m.bias(scale), pads=[1, 1, 1, 1], strides=[2, 1])
    y = m.quantise(m.node("Relu", y), 0.1)
    w, scale = m.weights(6, 3, 2, 2, axis=1)
    m.output(m.quantise(m.node("ConvTranspose", y, w, m.bias(scale, 0.1), strides=[2, 2]), 0.2))
    assert [op.name for op in same_as_onnx(m).layers] == ["conv2d0", "conv2d_transpose0"]


def test_dense_layers(qdq, same_as_onnx):
    m = qdq()
    w, scale = m.weights(8, 5, axis=1)
    y = m.node("Add", m.node("MatMul", image(m, 2, 3, 8), w), m.bias(scale))
    m.output(m.quantise(y, 0.1))
    same_as_onnx(m)
