"""int16 activations: layers with weights of 8 bits as two passes over the bytes of the activations.

Everything else of such networks is float32 on the host, between a DequantizeLinear and a QuantizeLinear.
"""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto

from ... import graph as g
from ..core import Node
from ..moves import around, padded
from ..values import Expr, Weights, WideView, channel_vector, constant
from . import geometry
from .nodes import Reading
from .weights import dense_weights, doubled, halves, of_bytes, scaled

WIDE = (TensorProto.INT16, TensorProto.UINT16)


def wide_layer(imp: Reading, value: Expr, wanted: str) -> g.Tensor | None:
    """The float32 result of a Conv, Gemm or MatMul of an int16 tensor and weights of 8 bits; None of others."""
    node = value.node
    plain = {"transA": 0, "alpha": 1.0, "beta": 1.0}
    if node.op not in ("Conv", "Gemm", "MatMul") or any(node.attrs.get(key, v) != v for key, v in plain.items()):
        return None
    x, weight, bias = (*value.args, None)[:3]
    if not isinstance(x, WideView) or not isinstance(weight, Weights) or not of_bytes(weight):
        return None
    conv, added = node.op == "Conv", np.zeros(1) if bias is None else constant(bias)
    found = scaled(weight.centred, weight, 0) if conv else dense_weights(node, weight)
    if found is None or added is None or (conv and weight.integers.ndim not in (3, 4)):
        return None
    weights, scale = found
    vector = channel_vector(added, (len(weights),) if conv else value.shape, 0 if conv else len(value.shape) - 1)
    if vector is None:
        return None
    of_weights = weights.reshape(len(weights), -1).sum(1).astype(np.int32)
    facts = x.tensor.scale, x.tensor.zero_point, scale.astype(np.float32), vector.astype(np.float32), of_weights
    if conv:
        sums = _conv_sums(imp, node, x.tensor, weights, imp.image_shape(value.shape)[2:])
    else:
        sums = _dense_sums(imp, node, x.tensor, weights)
    y = g.Tensor("", (sums.shape[0] // 2, *sums.shape[1:]), "float32")
    return imp.plain(g.ScaleBytes(node.name, (sums,), y, *facts), value.shape or (1,), wanted)


def _conv_sums(imp: Reading, node: Node, x: g.Tensor, weights: np.ndarray, size: tuple[int, ...]) -> g.Tensor:
    """int32 (2 * N, O, *size): the sums of a convolution of both bytes."""
    strides, pads, dilations, groups = geometry.convolution(imp, node, x.shape, weights.shape)
    image, parts = imp.image(node.name, x), halves(weights.reshape(imp.image_shape(weights.shape)))
    if any(pads):
        image = padded(imp, f"{node.name}.pad", image, around(pads), x.zero_point)
    image = _bytes(imp, node, image)
    if len(parts) > 1:
        image = doubled(imp, node.name, image, groups)
    y = g.Tensor("", (image.shape[0], len(weights), *size), "int32")
    op = g.IntegerConv2d(f"{node.name}.sums", (image,), y, np.concatenate(parts, 1), strides, dilations, groups)
    return imp.append(op)


def _dense_sums(imp: Reading, node: Node, x: g.Tensor, weights: np.ndarray) -> g.Tensor:
    """int32 (2 * rows, O): the sums of a dense layer of both bytes; weights (O, I)."""
    rows = _bytes(imp, node, imp.reshape(f"{node.name}.rows", x, (math.prod(x.shape[:-1]), x.shape[-1])))
    parts = halves(weights)
    if len(parts) > 1:
        rows = doubled(imp, node.name, rows, 1)
    w = imp.constant(f"{node.name}.weights", np.concatenate(parts, 1).T)
    y = g.Tensor("", (rows.shape[0], len(weights)), "int32")
    return imp.append(g.IntegerMatMul(f"{node.name}.sums", (rows, w), y))


def _bytes(imp: Reading, node: Node, x: g.Tensor) -> g.Tensor:
    y = g.Tensor("", (2 * x.shape[0], *x.shape[1:]), "int8")
    return imp.append(g.SplitBytes(f"{node.name}.bytes", (x,), y))
