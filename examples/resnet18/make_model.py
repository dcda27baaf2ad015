"""Write ResNet-18 as a QDQ ONNX file with synthetic weights: `python make_model.py resnet18.onnx`.

Shapes, operators and quantisation are those of an int8 ResNet-18; weights are random numbers and the scales such that
activations use their range, so its outputs say nothing about images. It measures compiler and accelerator.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

STAGES = ((1, 1), (2, 2), (4, 2), (8, 2))  # channels, in units of the width, and the first stride
INPUT_SCALE, INPUT_ZERO_POINT = 1 / 32, 0
SPREAD = 40.0  # standard deviation of int8 weights and of convolution results, about
LEFT = math.sqrt(0.5)  # of the root mean square that is left after a ReLU


class Network:
    """Collects nodes and constants; activations are (name, scale)."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, value: np.ndarray | np.generic) -> str:
        """The name of a new constant."""
        name = f"c{len(self.constants)}"
        self.constants.append(onnx.numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(self, kind: str, *inputs: str, name: str | None = None, **attrs: Any) -> str:
        """Append a node and return the name of its result."""
        name = name or f"{kind}_{len(self.nodes)}"
        self.nodes.append(onnx.helper.make_node(kind, list(inputs), [f"{name}.y"], name=name, **attrs))
        return f"{name}.y"

    def quantise(self, x: str, scale: float, zero_point: int) -> str:
        """QuantizeLinear and DequantizeLinear."""
        parameters = self.constant(np.float32(scale)), self.constant(np.int8(zero_point))
        return self.node("DequantizeLinear", self.node("QuantizeLinear", x, *parameters), *parameters)

    def weights(self, shape: tuple[int, ...], x_scale: float) -> tuple[str, str, float]:
        """(dequantised weights, dequantised biases, their mean scale), one scale per output channel."""
        w = np.clip(self.rng.normal(0, SPREAD, shape), -127, 127).astype(np.int8)
        scale = self.rng.uniform(0.8, 1.2, shape[0]).astype(np.float32) / 1000
        zeros = self.constant(np.zeros(shape[0], np.int8))
        weight = self.node("DequantizeLinear", self.constant(w), self.constant(scale), zeros, axis=0)
        b, b_scale = self.rng.integers(-1000, 1000, shape[0]).astype(np.int32), np.float32(x_scale) * scale
        zeros = self.constant(np.zeros(shape[0], np.int32))
        bias = self.node("DequantizeLinear", self.constant(b), self.constant(b_scale), zeros, axis=0)
        return weight, bias, float(scale.mean())

    def conv(
        self, name: str, x: tuple[str, float], shape: tuple[int, ...], stride: int, relu: bool, groups: int = 1
    ) -> tuple[str, float]:
        """A convolution that keeps the size, divided by the stride; with `relu` nothing below zero is left."""
        weight, bias, w_scale = self.weights(shape, x[1])
        attrs = {"strides": [stride] * 2, "pads": [shape[2] // 2] * 4} | ({"group": groups} if groups > 1 else {})
        y = self.node("Conv", x[0], weight, bias, name=name, **attrs)
        scale = x[1] * w_scale * SPREAD * LEFT * math.sqrt(math.prod(shape[1:]))
        if relu:
            return self.quantise(self.node("Relu", y), scale, -128), scale
        return self.quantise(y, scale, 3), scale

    def block(self, name: str, x: tuple[str, float], ci: int, co: int, stride: int) -> tuple[str, float]:
        """Two convolutions of 3x3 and a shortcut."""
        y = self.conv(f"{name}.1", x, (co, ci, 3, 3), stride, True)
        y = self.conv(f"{name}.2", y, (co, co, 3, 3), 1, False)
        short = x if stride == 1 and ci == co else self.conv(f"{name}.0", x, (co, ci, 1, 1), stride, False)
        total = self.node("Relu", self.node("Add", y[0], short[0], name=f"{name}.add"))
        scale = 1.3 * max(y[1], short[1])
        return self.quantise(total, scale, -128), scale

    def classifier(self, name: str, x: tuple[str, float], channels: int, classes: int, size: int) -> onnx.ModelProto:
        """The model `name`: the mean of `x` over the image and a dense layer; images have `size` rows and columns."""
        mean = self.quantise(self.node("GlobalAveragePool", x[0]), x[1] / 4, -128)
        weight, bias, w_scale = self.weights((classes, channels), x[1] / 4)
        logits = self.node("Gemm", self.node("Flatten", mean), weight, bias, name="fc", transB=1)
        self.quantise(logits, x[1] / 4 * w_scale * SPREAD * math.sqrt(channels), 0)
        inputs = [onnx.helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, [1, 3, size, size])]
        output = self.nodes[-1].output[0]
        outputs = [onnx.helper.make_tensor_value_info(output, onnx.TensorProto.FLOAT, [1, classes])]
        graph = onnx.helper.make_graph(self.nodes, name, inputs, outputs, self.constants)
        opset = [onnx.helper.make_opsetid("", 17)]
        return onnx.shape_inference.infer_shapes(onnx.helper.make_model(graph, opset_imports=opset, ir_version=9))


def resnet18(size: int = 224, width: int = 64, classes: int = 1000, seed: int = 0) -> onnx.ModelProto:
    """The model; images are float32 (1, 3, size, size), the first stage has `width` channels."""
    net = Network(seed)
    x = net.quantise("image", INPUT_SCALE, INPUT_ZERO_POINT), INPUT_SCALE
    x = net.conv("conv1", x, (width, 3, 7, 7), 2, True)
    pool = net.node("MaxPool", x[0], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    x = net.quantise(pool, x[1], -128), x[1]
    channels = width
    for k, (factor, stride) in enumerate(STAGES):
        for part in range(2):
            x = net.block(f"stage{k + 1}.{part}", x, channels, factor * width, stride if part == 0 else 1)
            channels = factor * width
    return net.classifier("resnet18", x, channels, classes, size)


def write(path: str, model: onnx.ModelProto, inputs: str | None) -> None:
    """Write the model, and with `inputs` a file of one random image for it."""
    onnx.save(model, path)
    if inputs:
        size = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
        image = np.random.default_rng(1).normal(0, 1, (1, *size)).astype(np.float32)
        np.savez(inputs, inputs=image)


def main(name: str, make: Callable[[int, Any], onnx.ModelProto], width: float, width_help: str) -> None:
    """Write the file that the command line names: `make(size, width)`, a network called `name`."""
    parser = argparse.ArgumentParser(description=f"Write {name} with synthetic weights as QDQ ONNX.")
    parser.add_argument("path", help="the file to write")
    parser.add_argument("--size", type=int, default=224, help="of the images (default: %(default)s)")
    parser.add_argument("--width", type=type(width), default=width, help=f"{width_help} (default: %(default)s)")
    parser.add_argument("--inputs", metavar="X.npz", help="also write one random image, for `tilewright run`")
    options = parser.parse_args()
    write(options.path, make(options.size, options.width), options.inputs)


if __name__ == "__main__":
    main("ResNet-18", resnet18, 64, "channels of the first stage")
