"""QOperator files as QDQ ones: QLinearConv and its family are DequantizeLinear, the operator, and QuantizeLinear."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..core import Node
from .nodes import Reader, Rewrite


class _Around:
    """The nodes around an operator that takes integers."""

    def __init__(self, reader: Reader, node: Node):
        self.reader, self.node = reader, node
        self.nodes: list[Node] = []

    def dequantised(self, x: str, scale: str, zero: str = "", axis: int = 1) -> str:
        """The real values of tensor `x`."""
        y = self.reader.unused(f"{x}.real")
        inputs = [x, scale, zero] if zero else [x, scale]
        self.nodes.append(Node("DequantizeLinear", f"{self.node.name}.{len(self.nodes)}", inputs, [y], {"axis": axis}))
        return y

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


def _conv(reader: Reader, node: Node) -> list[Node]:
    x, xs, xz, w, ws, wz, ys, yz = node.inputs[:8]
    around = _Around(reader, node)
    inputs = [around.dequantised(x, xs, xz), around.dequantised(w, ws, wz, 0), *around.biases(node.input(8), xs, ws)]
    return around.quantised("Conv", inputs, node.attrs, ys, yz)


def _matmul(reader: Reader, node: Node) -> list[Node]:
    a, a_scale, a_zero, b, b_scale, b_zero, ys, yz = node.inputs[:8]
    around = _Around(reader, node)
    columns = len(reader.shapes[b]) - 1
    inputs = [around.dequantised(a, a_scale, a_zero), around.dequantised(b, b_scale, b_zero, columns)]
    return around.quantised("MatMul", inputs, node.attrs, ys, yz)


def _gemm(reader: Reader, node: Node) -> list[Node]:
    a, a_scale, a_zero, b, b_scale, b_zero = node.inputs[:6]
    around = _Around(reader, node)
    channel = 0 if node.attrs.get("transB", 0) else 1
    inputs = [around.dequantised(a, a_scale, a_zero), around.dequantised(b, b_scale, b_zero, channel)]
    inputs += around.biases(node.input(6), a_scale, b_scale)
    return around.quantised("Gemm", inputs, node.attrs, node.input(7), node.input(8))


def _binary(op: str) -> Rewrite:
    def rewrite(reader: Reader, node: Node) -> list[Node]:
        a, a_scale, a_zero, b, b_scale, b_zero, ys = node.inputs[:7]
        around = _Around(reader, node)
        inputs = [around.dequantised(a, a_scale, a_zero), around.dequantised(b, b_scale, b_zero)]
        return around.quantised(op, inputs, {}, ys, node.input(7))

    return rewrite


def _unary(op: str) -> Rewrite:
    def rewrite(reader: Reader, node: Node) -> list[Node] | None:
        x, xs, xz, ys = node.inputs[:4]
        attrs = dict(node.attrs)
        if attrs.pop("channels_last", 0):
            return None  # refused by name
        attrs.pop("opset", None)
        around = _Around(reader, node)
        return around.quantised(op, [around.dequantised(x, xs, xz)], attrs, ys, node.input(4))

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
                inputs.append(around.dequantised(x, _like(reader, node, zero, one), zero, axis))
                continue
            y = reader.unused(f"{x}.centred")
            inputs.append(y if zero else x)
            if zero:
                around.nodes.append(Node("Sub", f"{node.name}.{len(around.nodes)}", [x, zero], [y]))
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
    "QGemm": _gemm,
    "QLinearAdd": _binary("Add"),
    "QLinearAveragePool": _unary("AveragePool"),
    "QLinearConcat": _concat,
    "QLinearConv": _conv,
    "QLinearGlobalAveragePool": _unary("GlobalAveragePool"),
    "QLinearLeakyRelu": _unary("LeakyRelu"),
    "QLinearMatMul": _matmul,
    "QLinearMul": _binary("Mul"),
    "QLinearReduceMean": _unary("ReduceMean"),
    "QLinearSigmoid": _unary("Sigmoid"),
    "QLinearSoftmax": _unary("Softmax"),
}
