"""Float expressions with quantised operands that have an integer form, other than layers.

A form gets the expression that a QuantizeLinear takes, without movements and clamps, and appends operators that
produce the quantised result. It returns None where it does not apply: the host then computes in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ... import graph as g
from .expressions import evaluated, single_view
from .geometry import window
from .layers import linear, scaled_channels
from .nodes import Node
from .values import Expr, Problem, Value, View, Weights, constant

if TYPE_CHECKING:
    from .importer import Importer, Result

_BINARY: dict[str, type[g.Binary]] = {"Add": g.Add, "Sub": g.Sub, "Mul": g.Mul}
_FUNCTIONS = {"Sigmoid": "logistic", "Tanh": "tanh", "LeakyRelu": "leaky_relu"}  # names as those of other formats
_SOFTMAX_SCALE, _SOFTMAX_ZERO = 1 / 256, -128  # of the fixed-point softmax
_FINEST = 0.75  # of its steps: where an output has finer ones, its own rounding would cost more than one of them
_MOST_INNER = (1 << 31) // 255**2  # elements of a row of a product, less their zero points: sums are int32


def _operand(imp: Importer, node: Node, value: Value | None) -> g.Tensor | None:
    """The int8 tensor behind an operand: a view, or a constant of one scale."""
    if (view := imp.as_view(value)) is not None:
        return view.tensor
    if not isinstance(value, Weights) or value.scale.size > 1 or value.zero.size > 1:
        return None
    moved = 128 if value.integers.dtype == np.uint8 else 0
    if value.integers.dtype not in (np.int8, np.uint8) or not value.scale.all():
        return None
    like = g.Tensor("", (1,), "int8", float(value.scale[0]), int(value.zero[0]) - moved)
    return imp.constant(f"{node.name}.constant", (value.integers.astype(np.int16) - moved).astype(np.int8), like)


def _binary(imp: Importer, value: Expr, result: Result) -> g.Tensor | None:
    kind = _BINARY.get(value.node.op)
    if kind is None or all(constant(arg) is not None for arg in value.args):
        return None
    if single_view(value) is not None and not all(isinstance(arg, (View, Weights)) for arg in value.args):
        return None  # a table needs fewer steps
    found = [_operand(imp, value.node, arg) for arg in value.args]
    operands = tuple(t for t in found if t is not None)
    if len(operands) < 2:
        return None
    return imp.checked(value.node, kind(value.node.name, operands, result.y, *result.clamp), result.wanted)


def _product(imp: Importer, value: Expr, result: Result) -> g.Tensor | None:
    """The product of two int8 matrices, or many of them, whose sums are within int32."""
    views = [imp.as_view(arg) for arg in value.args] if value.node.op == "MatMul" else []
    operands = tuple(view.tensor for view in views if view is not None)
    if len(operands) < 2 or min(len(t.shape) for t in operands) < 2 or operands[0].shape[-1] > _MOST_INNER:
        return None
    node, y = value.node, result.y
    if result.whole:
        return imp.checked(node, g.BatchMatMul(node.name, operands, y), result.wanted)
    product = imp.checked(node, g.BatchMatMul(f"{node.name}.product", operands, y))
    return imp.append(g.NearestRequantize(node.name, (product,), y, *result.clamp), result.wanted)


def _concat(imp: Importer, value: Expr, result: Result) -> g.Tensor | None:
    if value.node.op != "Concat":
        return None
    node, (low, high) = value.node, result.clamp
    parts = imp.joined(value, result.y)
    if not result.whole:
        clamped = enumerate(replace(t, name="", data=None) for t in parts)
        ops = [g.NearestRequantize(f"{node.name}.{k}.clamp", (parts[k],), y, low, high) for k, y in clamped]
        parts = [imp.append(op) for op in ops]
    axis = node.attrs["axis"] % len(value.shape)
    return imp.append(g.Concat(node.name, tuple(parts), result.y, axis), result.wanted)


def _softmax(imp: Importer, value: Expr, result: Result) -> g.Tensor | None:
    node, y = value.node, result.y
    fine = y.scale < _FINEST * _SOFTMAX_SCALE
    x = imp.as_view(value.args[0]) if node.op == "Softmax" and not fine else None
    if x is None or x.tensor.scale <= 2.0**-26:
        return None
    axis = node.attrs["axis"]
    if (y.scale, y.zero_point) == (_SOFTMAX_SCALE, _SOFTMAX_ZERO) and result.whole:
        return imp.append(g.Softmax(node.name, (x.tensor,), y, axis), result.wanted)
    fixed = imp.append(
        g.Softmax(node.name, (x.tensor,), replace(y, scale=_SOFTMAX_SCALE, zero_point=_SOFTMAX_ZERO), axis)
    )
    return imp.checked(node, g.NearestRequantize(f"{node.name}.rescale", (fixed,), y, *result.clamp), result.wanted)


def _table(imp: Importer, value: Expr, result: Result) -> g.Tensor | None:
    """A function of one int8 tensor, however many nodes it takes, as a table."""
    view = single_view(value)
    if view is None:
        return None
    x, y = view.tensor, result.y
    with np.errstate(all="ignore"):
        real = evaluated(value, np.float32(x.scale) * (np.arange(-128, 128) - x.zero_point).astype(np.float32))
        steps = np.rint(real.astype(np.float32) / np.float32(y.scale))
    if np.isnan(steps).any():
        raise Problem(value.node, f"gives no number for an input of {np.flatnonzero(np.isnan(steps))[0] - 128}")
    table = np.clip(steps + y.zero_point, *result.clamp).astype(np.int8)
    function = _FUNCTIONS.get(value.node.op, value.node.op)
    return imp.append(g.Lookup(value.node.name, (x,), y, function, table), result.wanted)


def _average_pool(imp: Importer, value: Expr, result: Result) -> g.Tensor | None:
    node, y = value.node, result.y
    x = imp.as_view(value.args[0]) if node.op == "AveragePool" else None
    if x is None or max(node.attrs.get("dilations", [1])) > 1:
        return None
    kernel, strides, pads = window(imp, node, x.shape)
    image = imp.image(node.name, x.tensor)
    y = replace(y, shape=imp.image_shape(y.shape))
    if any(pads) and not node.attrs.get("count_include_pad", 0):
        if image.scale > y.scale:
            return None  # a rounding before the last one could cost more than a step
        same = imp.append(
            g.ExactAveragePool(
                f"{node.name}.mean", (image,), replace(image, name="", shape=y.shape, data=None), kernel, strides, pads
            )
        )
        found = imp.checked(node, g.NearestRequantize(node.name, (same,), y, *result.clamp))
        return imp.reshape(f"{node.name}.shape", found, result.y.shape, result.wanted)
    if any(pads):
        if node.attrs.get("ceil_mode", 0):
            return None
        top, left, bottom, right = pads
        around = ((0, 0), (0, 0), (top, bottom), (left, right))
        n, c, h, w = image.shape
        grown = replace(image, name="", shape=(n, c, h + top + bottom, w + left + right), data=None)
        image = imp.append(g.Pad(f"{node.name}.pad", (image,), grown, around, image.zero_point))
    op = g.AveragePool(node.name, (image,), y, kernel, strides, (0, 0, 0, 0), *result.clamp)
    return imp.checked(node, op, result.wanted, result.y.shape)


def _mean(imp: Importer, value: Expr, result: Result) -> g.Tensor | None:
    node, y = value.node, result.y
    x = imp.as_view(value.args[0]) if node.op == "ReduceMean" else None
    if x is None:
        return None
    axes = imp.axes(node)
    if len(x.shape) == 4 and axes == (2, 3) and node.attrs.get("keepdims", 1):
        op = g.AveragePool(node.name, (x.tensor,), y, x.shape[2:], (1, 1), (0, 0, 0, 0), *result.clamp)
        return imp.checked(node, op, result.wanted)
    if result.whole:
        return imp.checked(node, g.Mean(node.name, (x.tensor,), y, axes), result.wanted)
    mean = imp.checked(node, g.Mean(f"{node.name}.mean", (x.tensor,), y, axes))
    return imp.append(g.NearestRequantize(node.name, (mean,), y, *result.clamp), result.wanted)


Form = Callable[["Importer", Expr, "Result"], "g.Tensor | None"]
FORMS: tuple[Form, ...] = (linear, _binary, _product, _concat, _softmax, _average_pool, _mean, _table, scaled_channels)
