"""Integer sums of products: ConvInteger and MatMulInteger, and DynamicQuantizeLinear, which gives most of their inputs.

Values of uint8 become int8, 128 less. The sums of products of these with the weights come from a layer without zero
points, which runs on the device; what the zero point adds is known of the sums of the weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from onnx import TensorProto

from ... import graph as g
from ..core import Node, Problem, like
from ..moves import Pads, around, padded
from ..values import Fixed, Numbers, Value, View
from . import geometry
from .floats import Floats
from .nodes import Reading
from .weights import int8_parts, repeated

_Args = Sequence[Value | None]


def integers(imp: Floats, node: Node, args: _Args) -> list[Value] | None:
    """The results of a node of this module; None of other nodes."""
    make = _MAKERS.get(node.op)
    return None if make is None else make(imp, node, args)


def _quantised(imp: Floats, node: Node, args: _Args) -> list[Value]:
    (value,) = args
    assert value is not None
    x, name, (_, scale_name, zero_name) = imp.realised(value), node.name, node.outputs
    ends = imp.append(g.ValueRange(f"{name}.range", (x,), g.Tensor("", (2,), "float32")))
    y = g.Tensor("", (1,), "float32")
    scale = imp.append(g.RangeScale(f"{name}.scale", (ends,), y), imp.wanted(scale_name))
    y = g.Tensor("", (1,), "uint8")
    zero = imp.append(g.RangeZeroPoint(f"{name}.zero_point", (ends, scale), y), imp.wanted(zero_name))
    steps = imp.append(g.QuantizeBy(name, (x, scale, zero), g.Tensor("", x.shape, "int8", zero_point=-128)))
    return [View(value.shape, steps, name), Numbers((), scale), Numbers((), zero)]


def _conv(imp: Floats, node: Node, args: _Args) -> list[Value]:
    x, zero = _steps(imp, node, args, 0)
    weight = _weights(node, args, 0)
    if weight.ndim != len(x.shape) or weight.ndim not in (3, 4):
        raise Problem(node, f"has weights of {weight.ndim} dimensions; only 3 and 4 are supported")
    strides, pads, dilations, groups = geometry.convolution(imp, node, x.shape, weight.shape)
    name, image, sums = node.name, imp.image(node.name, x), weight.reshape(len(weight), -1).sum(1)
    if any(pads):
        image = _padded(imp, f"{name}.pad", image, zero, around(pads))
    parts = int8_parts(weight.reshape(imp.image_shape(weight.shape)))
    image = repeated(imp, name, image, groups, len(parts))
    shape = imp.shape(node, node.outputs[0])
    y = g.Tensor("", imp.image_shape(shape), "int32")
    op = g.IntegerConv2d(f"{name}.sums", (image,), y, np.concatenate(parts, 1), strides, dilations, groups)
    return [_less(imp, node, imp.plain(op, shape), zero, sums, 1)]


def _padded(imp: Reading, name: str, x: g.Tensor, zero: g.Tensor, pads: Pads) -> g.Tensor:
    """`x` with its zero point around it."""
    if zero.data is not None:
        return padded(imp, name, x, pads, int(zero.data[0]) - 128)
    shape = (n + sum(pair) for n, pair in zip(x.shape, pads))
    return imp.append(g.PadBy(name, (x, zero), like(x, "", shape), tuple(pads)))


def _matmul(imp: Floats, node: Node, args: _Args) -> list[Value]:
    shape, name = imp.shape(node, node.outputs[0]), node.name
    if not isinstance(args[1], Fixed) or args[1].array.ndim != 2:
        operands = tuple(_centred(imp, node, args, k) for k in (0, 1))
        op = g.IntegerMatMul(name, operands, g.Tensor("", shape, "int32"))
        return [Numbers(shape, imp.append(op, imp.wanted(node.outputs[0])))]
    (x, zero), weight = _steps(imp, node, args, 0), _weights(node, args, 1)
    rows, parts = imp.reshape(f"{name}.rows", x, (math.prod(x.shape[:-1]), x.shape[-1])), int8_parts(weight)
    rows = repeated(imp, name, rows, 1, len(parts))
    w = imp.constant(f"{name}.weights", np.concatenate(parts))
    y = g.Tensor("", (rows.shape[0], weight.shape[1]), "int32")
    sums = imp.append(g.IntegerMatMul(f"{name}.sums", (rows, w), y))
    full = imp.reshape(f"{name}.shape", sums, shape)
    return [_less(imp, node, full, zero, weight.sum(0), len(shape) - 1)]


def _less(imp: Floats, node: Node, acc: g.Tensor, zero: g.Tensor, sums: np.ndarray, axis: int) -> Numbers:
    """The sums of products with the values less their zero point."""
    y = g.Tensor("", acc.shape, "int32")
    op = g.SubtractZeroPoint(node.name, (acc, zero), y, sums.astype(np.int32), axis)
    return Numbers(acc.shape, imp.append(op, imp.wanted(node.outputs[0])))


def _steps(imp: Reading, node: Node, args: _Args, k: int) -> tuple[g.Tensor, g.Tensor]:
    """Operand `k`, int8, and its zero point, uint8 (1,): 128 more."""
    x, zero = args[k], args[k + 2] if len(args) > k + 2 else None
    if not isinstance(x, (View, Numbers)) or x.tensor.dtype not in ("int8", "uint8"):
        raise Problem(node, "has an operand that is neither int8 nor uint8, or is constant")
    middle = 128 if imp.reader.types[node.inputs[k]] == TensorProto.INT8 else 0
    t = x.tensor
    if t.dtype == "uint8":
        t = imp.append(g.Recode(f"{node.name}.int8", (t,), g.Tensor("", t.shape, "int8", zero_point=-128)))
    if isinstance(zero, Numbers) and zero.tensor.dtype == "uint8" and not middle:
        return t, zero.tensor
    if zero is not None and (not isinstance(zero, Fixed) or zero.array.size > 1):
        raise Problem(node, "has a zero point that neither DynamicQuantizeLinear gives nor is one constant")
    point = middle + (0 if zero is None else int(zero.array.reshape(-1)[0]))
    return t, imp.constant(f"{node.name}.zero", np.array([point], np.uint8))


def _weights(node: Node, args: _Args, axis: int) -> np.ndarray:
    """int64: the constant second operand less its zero points, one for all or for each index of `axis`."""
    w, zero = args[1], args[3] if len(args) > 3 else None
    if not isinstance(w, Fixed) or not isinstance(zero, (Fixed, type(None))):
        raise Problem(node, "has weights or zero points of weights that are not constant")
    points = np.zeros(1, np.int64) if zero is None else zero.array.astype(np.int64).reshape(-1)
    return w.array.astype(np.int64) - points.reshape(-1, *(1,) * (w.array.ndim - axis - 1))


def _centred(imp: Floats, node: Node, args: _Args, k: int) -> g.Tensor:
    """int32: operand `k` less its zero point."""
    if isinstance(w := args[k], Fixed):
        return imp.constant(f"{node.name}.weights", _weights(node, args, w.array.ndim - 1).astype(np.int32))
    x, zero = _steps(imp, node, args, k)
    wide = g.Tensor("", x.shape, "int32")
    t = imp.append(g.Cast(f"{node.name}.{k}", (x,), wide))
    ones = np.ones(x.shape[-1], np.int32)
    return imp.append(g.SubtractZeroPoint(f"{node.name}.{k}.centred", (t, zero), wide, ones, len(x.shape) - 1))


_MAKERS: dict[str, Callable[[Floats, Node, _Args], list[Value]]] = {
    "ConvInteger": _conv,
    "DynamicQuantizeLinear": _quantised,
    "MatMulInteger": _matmul,
}
NAMES = tuple(_MAKERS)
