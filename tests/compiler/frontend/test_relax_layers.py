"""Layers of Relax: those of the ONNX importer, layouts of images and weights, and sums that are no biases."""

import numpy as np
import pytest

from tilewright.compiler.frontend.relax import RelaxImporter
from tilewright.compiler.tvm_compat import relax
from tilewright.hw.errors import UnsupportedError

OP, NUMBERS = relax.op, (relax.const(np.float32(0.1)), relax.const(np.int8(0)))


def image(m, *shape):
    return m.quantise(m.input("x", list(shape or (1, 4, 6, 5))))


def test_layers(m, same_as_onnx):
    w, scale = m.weights(6, 4, 3, 3)
    y = m.node("Conv", image(m), w, m.bias(scale), pads=[1, 1, 1, 1], strides=[2, 1])
    y = m.quantise(m.node("Relu", y), 0.1)
    w, scale = m.weights(6, 3, 2, 2, axis=1)
    m.output(m.quantise(m.node("ConvTranspose", y, w, m.bias(scale, 0.1), strides=[2, 2]), 0.2))
    assert [op.name for op in same_as_onnx(m).layers] == ["conv2d0", "conv2d_transpose0"]


def test_dense_layers(m, same_as_onnx):
    w, scale = m.weights(8, 5, axis=1)
    y = m.node("Add", m.node("MatMul", image(m, 2, 3, 8), w), m.bias(scale))
    m.output(m.quantise(y, 0.1))
    same_as_onnx(m)


def layer(emit, x, data_layout="NCHW", kernel_layout="OIHW", out_layout="NCHW", added=None):
    """A convolution of images `x` by 8 x 4 x 1 x 1 weights of `kernel_layout`, and what is `added` to it."""
    sizes = dict(zip("OIHW", (8, 4, 1, 1)))
    weight = np.ones([sizes[letter] for letter in kernel_layout], np.int8)
    w = emit(OP.dequantize(relax.const(weight), *NUMBERS))
    layouts = {"data_layout": data_layout, "kernel_layout": kernel_layout, "out_layout": out_layout}
    y = emit(OP.nn.conv2d(emit(OP.dequantize(x, *NUMBERS)), w, **layouts))
    if added is not None:
        y = emit(OP.add(y, relax.const(np.ones(added, np.float32))))
    return emit(OP.quantize(y, *NUMBERS))


def graph(**options):
    shape = (1, 6, 6, 4) if options.get("data_layout") == "NHWC" else (1, 4, 6, 6)
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType(shape, "int8"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(layer(builder.emit, x, **options))
        builder.emit_func_output(y)
    function = relax.transform.CanonicalizeBindings()(builder.get())["main"]
    return RelaxImporter(function, ["y"]).graph("relax")


@pytest.mark.parametrize(
    "layouts",
    [("NCHW", "OIHW", "NCHW"), ("NHWC", "HWIO", "NHWC"), ("NCHW", "HWOI", "NCHW"), ("NHWC", "OHWI", "NHWC")],
)
def test_every_layout_has_the_same_weights(layouts):
    names = ("data_layout", "kernel_layout", "out_layout")
    (made,) = graph(**dict(zip(names, layouts))).layers
    assert made.weight.shape == (8, 4, 1, 1) and made.output.shape == (1, 8, 6, 6)


@pytest.mark.parametrize("added", [(8, 1, 1), (1, 8, 1, 1), (1, 1, 1), ()])
def test_a_bias_is_one_number_per_channel_or_in_all(added):
    (made,) = graph(added=added).layers
    assert made.bias.tolist() == [100] * 8


@pytest.mark.parametrize("added", [(6,), (1, 1, 6, 6), (1, 8, 6, 6)])
def test_other_sums_are_refused(added):
    with pytest.raises(
        UnsupportedError, match="is added to constants of shape .*, which are not one number per channel"
    ):
        graph(added=added)


def test_a_change_of_layout_is_refused():
    with pytest.raises(UnsupportedError, match="turns images of layout NCHW to NHWC, which is not supported"):
        graph(out_layout="NHWC")
