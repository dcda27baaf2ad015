"""Layers on quantised values whose results are float32: the int32 sums on the device, their scale on the host.

Layers of int8 whose results nothing quantises, as a network's last one, and layers of int16, as two passes over the
bytes of the activations. Everything else of such networks is float32 on the host, between a DequantizeLinear and a
QuantizeLinear.
"""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto

from ... import graph as g
from ..core import Node
from ..moves import around, padded
from ..values import Expr, View, Weights, WideView, channel_vector, constant
from . import geometry
from .nodes import Reading
from .weights import dense_weights, int8_parts, of_bytes, repeated, scaled

WIDE = (TensorProto.INT16, TensorProto.UINT16)


def wide_layer(imp: Reading, value: Expr, wanted: str) -> g.Tensor | None:
    """The float32 result of a Conv, Gemm or MatMul of an int8 or int16 tensor and weights of 8 bits; None of others."""
    node = value.node
    plain = {"transA": 0, "alpha": 1.0, "beta": 1.0}
    if node.op not in ("Conv", "Gemm", "MatMul") or any(node.attrs.get(key, v) != v for key, v in plain.items()):
        return None
    x, weight, bias = (*value.args, None)[:3]
    if not isinstance(x, (View, WideView)) or not isinstance(weight, Weights) or not of_bytes(weight):
        return None
    if x.tensor.data is not None:
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
    if conv:
        sums = _conv_sums(imp, node, x, weights, imp.image_shape(value.shape)[2:])
    else:
        sums = _dense_sums(imp, node, x, weights)
    t = x.tensor
    if isinstance(x, WideView):
        y = g.Tensor("", (sums.shape[0] // 2, *sums.shape[1:]), "float32")
        facts = t.scale, t.zero_point, scale.astype(np.float32), vector.astype(np.float32), of_weights
        return imp.plain(g.ScaleBytes(node.name, (sums,), y, *facts), value.shape or (1,), wanted)
    factors = {
        "zero_point": np.array(t.zero_point + 128, np.uint8),
        "scale": (scale * np.float32(t.scale)).astype(np.float32),
        "bias": vector.astype(np.float32),
    }
    operands = (imp.constant(f"{node.name}.{key}", array) for key, array in factors.items())
    op = g.ScaleSums(node.name, (sums, *operands), g.Tensor("", sums.shape, "float32"), of_weights, 1)
    return imp.plain(op, value.shape or (1,), wanted)


def _conv_sums(imp: Reading, node: Node, x: View | WideView, weights: np.ndarray, size: tuple[int, ...]) -> g.Tensor:
    """int32 (N, O, *size): the sums of a convolution; of int16 (2 * N, O, *size), of both bytes."""
    strides, pads, dilations, groups = geometry.convolution(imp, node, x.shape, weights.shape)
    image, parts = imp.image(node.name, x.tensor), int8_parts(weights.reshape(imp.image_shape(weights.shape)))
    if any(pads):
        image = padded(imp, f"{node.name}.pad", image, around(pads), x.tensor.zero_point)
    if isinstance(x, WideView):
        image = _bytes(imp, node, image)
    image = repeated(imp, node.name, image, groups, len(parts))
    y = g.Tensor("", (image.shape[0], len(weights), *size), "int32")
    op = g.IntegerConv2d(f"{node.name}.sums", (image,), y, np.concatenate(parts, 1), strides, dilations, groups)
    return imp.append(op)


def _dense_sums(imp: Reading, node: Node, x: View | WideView, weights: np.ndarray) -> g.Tensor:
    """int32 (rows, O): the sums of a dense layer, weights (O, I); of int16 (2 * rows, O), of both bytes."""
    rows = imp.reshape(f"{node.name}.rows", x.tensor, (math.prod(x.shape[:-1]), x.shape[-1]))
    if isinstance(x, WideView):
        rows = _bytes(imp, node, rows)
    parts = int8_parts(weights)
    rows = repeated(imp, node.name, rows, 1, len(parts))
    w = imp.constant(f"{node.name}.weights", np.concatenate(parts, 1).T)
    y = g.Tensor("", (rows.shape[0], len(weights)), "int32")
    return imp.append(g.IntegerMatMul(f"{node.name}.sums", (rows, w), y))


def _bytes(imp: Reading, node: Node, x: g.Tensor) -> g.Tensor:
    y = g.Tensor("", (2 * x.shape[0], *x.shape[1:]), "int8")
    return imp.append(g.SplitBytes(f"{node.name}.bytes", (x,), y))
