"""QOperator files as QDQ ones: QLinearConv and its family are DequantizeLinear, the operator, and QuantizeLinear."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..core import Node
from .nodes import Chain, Reader, Rewrite


class _Around(Chain):
    """The nodes around an operator that takes integers."""

    def dequantised(self, x: str, scale: str, zero: str = "", *, axis: int = 1) -> str:
        """The real values of tensor `x`."""
        return self.add("DequantizeLinear", x, *((scale, zero) if zero else (scale,)), axis=axis)

    def biases(self, tensor: str, x_scale: str, w_scale: str) -> list[str]:
        """The real values of int32 biases, whose scale is that of the products; none where `tensor` is left out."""
        scales = [self.reader.value(t) for t in (x_scale, w_scale)]
        if not tensor or scales[0] is None or scales[1] is None:
            return []
        product = np.asarray(scales[0], np.float32).reshape(-1)[:1] * np.asarray(scales[1], np.float32).reshape(-1)
        product = product[0] if product.size == 1 else product
        scale = self.reader.constant(np.asarray(product, np.float32), f"{self.node.name}.scale")
        return [self.dequantised(tensor, scale, axis=0)]

    def quantised(self, op: str, inputs: Sequence[str], attrs: dict, scale: str, zero: str) -> list[Node]:
        """All nodes, with `op` on real `inputs`; without a `scale` its real result is the node's."""
        y = self.reader.unused(f"{self.node.outputs[0]}.real") if scale else self.node.outputs[0]
        self.nodes.append(Node(op, self.node.name, list(inputs), [y], attrs))
        if scale:
            parameters = [scale, zero] if zero else [scale]
            name = f"{self.node.name}.quantize"
            self.nodes.append(Node("QuantizeLinear", name, [y, *parameters], self.node.outputs[:1]))
        return self.nodes


def _real(op: str, operands: int = 2, bias: int | None = None) -> Rewrite:
    """`op` of `operands`, each with its scale and zero point, then those of the result; `bias` is an input's number."""

    def rewrite(reader: Reader, node: Node) -> list[Node] | None:
        attrs, end = dict(node.attrs), 3 * operands + (bias == 3 * operands)
        if attrs.pop("channels_last", 0):
            return None  # refused by name
        attrs.pop("opset", None)
        axes = {"Conv": 0, "Gemm": 0 if attrs.get("transB", 0) else 1}  # of output channels
        if op == "MatMul":
            axes[op] = len(reader.shapes[node.inputs[3]]) - 1
        around = _Around(reader, node)
        inputs = [around.dequantised(*node.inputs[:3])]
        if operands == 2:
            inputs.append(around.dequantised(*node.inputs[3:6], axis=axes.get(op, 1)))
        if bias is not None:
            inputs += around.biases(node.input(bias), node.inputs[1], node.inputs[4])
        scale = node.input(end) if op == "Gemm" else node.inputs[end]  # a Gemm's result may be real
        return around.quantised(op, inputs, attrs, scale, node.input(end + 1))

    return rewrite


def _concat(reader: Reader, node: Node) -> list[Node]:
    ys, yz, *rest = node.inputs
    around = _Around(reader, node)
    inputs = [around.dequantised(x, scale, zero) for x, scale, zero in zip(*(rest[k::3] for k in range(3)))]
    return around.quantised("Concat", inputs, node.attrs, ys, yz)


def _integer(op: str) -> Rewrite:
    """ConvInteger and MatMulInteger: int32 sums, here float32, of operands of scale 1."""

    def rewrite(reader: Reader, node: Node) -> list[Node]:
        around = _Around(reader, node)
        one = reader.constant(np.ones((), np.float32), f"{node.name}.one")
        inputs = []
        for k, axis in ((0, 1), (1, 0 if op == "Conv" else 1)):
            x, zero = node.inputs[k], node.input(2 + k)
            if reader.types.get(x) != 1:  # not the float32 values of DynamicQuantizeLinear
                inputs.append(around.dequantised(x, _like(reader, node, zero, one), zero, axis=axis))
            else:
                inputs.append(around.add("Sub", x, zero) if zero else x)
        return around.quantised(op, inputs, node.attrs, "", "")

    return rewrite


def _like(reader: Reader, node: Node, zero: str, one: str) -> str:
    """A scale of 1 for each of the zero points."""
    points = reader.value(zero) if zero else None
    if points is None or points.size == 1:
        return one
    return reader.constant(np.ones(points.shape, np.float32), f"{node.name}.ones")


QLINEAR: dict[str, Rewrite] = {
    "ConvInteger": _integer("Conv"),
    "MatMulInteger": _integer("MatMul"),
    "QGemm": _real("Gemm", bias=6),
    "QLinearAdd": _real("Add"),
    "QLinearAveragePool": _real("AveragePool", 1),
    "QLinearConcat": _concat,
    "QLinearConv": _real("Conv", bias=8),
    "QLinearGlobalAveragePool": _real("GlobalAveragePool", 1),
    "QLinearLeakyRelu": _real("LeakyRelu", 1),
    "QLinearMatMul": _real("MatMul"),
    "QLinearMul": _real("Mul"),
    "QLinearReduceMean": _real("ReduceMean", 1),
    "QLinearSigmoid": _real("Sigmoid", 1),
    "QLinearSoftmax": _real("Softmax", 1),
}
