"""Operators of Deeploy's dialect: a function per name, whose parameters are the inputs and attributes that it reads.

Means, ITA's softmax and divisions are computed on the host, in int32, by plain arithmetic (compiler/graph/numbers.py).
Their quotients are rounded half away from zero, as Deeploy's kernels do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ... import graph as g
from ..core import Node, Problem
from ..moves import along, sliced
from ..values import Expr, Fixed, Numbers, Value, View
from .deeploy_requantise import requantised
from .deeploy_values import (
    EVERY,
    Handler,
    Layer,
    Pair,
    Shares,
    Table,
    Tensors,
    constants,
    convolved,
    whole,
    windows,
)
from .geometry import Geometry, convolution, window
from .movements import MOVES, moved
from .nodes import ALIASES

_INT9 = 255  # largest weight of a layer


def _table(imp: Tensors, node: Node, value: Value) -> Table:
    """The value as a function of one int8 tensor. Raises `Problem`."""
    if isinstance(value, Table):
        return value
    view = _narrow(imp, node, value)
    return Table(view.shape, view.tensor, EVERY - view.tensor.zero_point)


def _narrow(imp: Tensors, node: Node, value: Value) -> View:
    """The value as an int8 tensor. Raises `Problem` for constants and values of more bits."""
    view = imp.narrow(node, value) if not isinstance(value, Fixed) else None
    if view is None:
        raise Problem(node, "is on values of more than 8 bits, or constants, which is not supported")
    return view


def _operand8(imp: Tensors, node: Node, value: Value, view: View | None) -> g.Tensor | None:
    """A constant, or the int8 `view` of a value, in the shape of the file; None where it has more bits."""
    if isinstance(value, Fixed):
        return imp.constant8(node, value)
    return None if view is None else imp.natural(view)


def _gelu(imp: Tensors, node: Node, x: Value, *, b: int, one: int) -> Table:
    table = _table(imp, node, x)
    d = np.minimum(np.abs(table.integers), -b) + b
    return replace(table, integers=table.integers * ((one + np.sign(table.integers) * (one - d * d)) >> 1))


def _hardswish(imp: Tensors, node: Node, x: Value, *, three: int, six: int, one_over_six: int) -> Table:
    table = _table(imp, node, x)
    return replace(table, integers=table.integers * (np.clip(table.integers + three, 0, six) * one_over_six))


def _divide(
    imp: Tensors, node: Node, x: Value, divisor: Value | None = None, *, Delta: int, eta: int, eps: int, y: int = 0
) -> Value:
    """TrueIntegerDiv: a product with `Delta * eta // (eta * y + eps)`, where y is an attribute or an int8 tensor."""
    by_tensor = divisor is not None and "y" not in node.attrs
    table = _table(imp, node, divisor if divisor is not None and by_tensor else x)
    denominator = (table.integers if by_tensor else np.array(y)) * eta + eps
    if (denominator == 0).any():
        raise Problem(node, "divides by 0")
    factor = Delta * eta // denominator
    if by_tensor:
        return _on_integers(imp, node, "mul", x, replace(table, integers=factor))
    return replace(table, integers=table.integers * factor)


def _on_integers(imp: Tensors, node: Node, function: str, *args: Value) -> Numbers:
    """An operator on int32 tensors."""
    x, y = (imp.whole(node, arg) for arg in args)
    t = imp.binary(node.name, function, x, y)
    return Numbers(t.shape, t)


def _check_last(node: Node, x: Value, axis: int) -> None:
    if axis not in (-1, len(x.shape) - 1):
        raise Problem(node, "is not along the last axis, which is not supported")


def _softmax(
    imp: Tensors, node: Node, x: Value, *, coeffA: int, coeffB: int, coeffC: int, log2: int, n_levels: int,
    axis: int = -1,
) -> Value:  # fmt: skip
    _check_last(node, x, axis)
    numbers = {"quadratic": coeffA, "linear": coeffB, "constant": coeffC, "period": log2, "levels": n_levels}
    view = imp.narrow(node, x)
    return Shares(x.shape, node, imp.whole(node, x) if view is None else imp.natural(view), numbers)


def _norm(imp: Tensors, node: Node, x: Value, weights: np.ndarray, *biases: Value, D: int, n_levels: int) -> Value:
    """iRMSNorm, and iLayerNorm, which has biases, too."""
    half = n_levels // 2
    if D < 1 or not 0 < half <= 128:
        raise Problem(node, f"has D = {D} and {2 * half} levels; at least 1, and 2..256 are supported")
    arrays = [weights, *(constants(node, bias, "weights") for bias in biases)]
    if len(arrays) != (2 if node.op == "iLayerNorm" else 1):
        raise Problem(node, f"has {1 + len(arrays)} inputs; {3 if node.op == 'iLayerNorm' else 2} are needed")
    operands = [imp.integers32(f"{node.name}.weight", np.broadcast_to(array, x.shape[-1:])) for array in arrays]
    view = imp.narrow(node, x)
    t = imp.whole(node, x) if view is None else imp.rows(view)
    op = g.IntegerNorm(node.name, (t, *operands), g.Tensor("", t.shape), D.bit_length() - 1, -half, half - 1)
    return View(x.shape, imp.append(op))


def _matmul(imp: Tensors, node: Node, x: Value, y: Value) -> Value:
    shape = imp.shape(node, node.outputs[0])
    views = [None if isinstance(v, Fixed) else imp.narrow(node, v) for v in (x, y)]
    if isinstance(y, Fixed) and y.array.ndim == 2 and views[0] is not None and len(x.shape) > 1:
        weight = whole(node, y.array, "weights").T
        if np.abs(weight).max() <= _INT9:
            return Layer(shape, node, imp.rows(views[0]), weight, np.zeros(len(weight), np.int64))
    if min(len(x.shape), len(y.shape)) < 2:
        raise Problem(node, "multiplies by a vector, which is not supported")
    first, second = (_operand8(imp, node, value, view) for value, view in zip((x, y), views))
    if first is not None and second is not None:
        return Pair(shape, node, node.op, first, second)
    wide = imp.whole(node, x), imp.whole(node, y)
    return Numbers(shape, imp.append(g.IntegerMatMul(node.name, wide, g.Tensor("", shape, "int32"))))


def _gemm(imp: Tensors, node: Node, x: Value, weights: np.ndarray, *biases: Value, transB: int = 0) -> Value:
    """A matrix by constant weights, with a row of biases; deeploy.py makes others products and sums."""
    weight = weights if transB else weights.T
    bias = _bias(node, biases, len(weight))
    view, shape = imp.narrow(node, x), imp.shape(node, node.outputs[0])
    if view is not None and np.abs(weight).max() <= _INT9:
        return Layer(shape, node, imp.rows(view), weight, bias)
    total = imp.products(node.name, imp.whole(node, x), imp.integers32(f"{node.name}.weight", weight.T))
    return Numbers(shape, Integer(imp, node).binary("add", total, bias))


def _bias(node: Node, biases: Sequence[Value], count: int) -> np.ndarray:
    """int64 (count,): the constant biases of a layer, zeros where it has none."""
    return sum((constants(node, bias, "biases").reshape(-1) for bias in biases), np.zeros(count, np.int64))


def _conv(imp: Tensors, node: Node, x: Value, weights: Value, *biases: Value) -> Value:
    geometry, weight = convolution(imp, node, x.shape, weights.shape), constants(node, weights, "weights")
    view, kernels = imp.narrow(node, x), weight.reshape(imp.image_shape(weight.shape))
    image = imp.shaped(imp.whole(node, x) if view is None else view.tensor, imp.image_shape(x.shape))
    layer = Layer(imp.shape(node, node.outputs[0]), node, image, kernels, _bias(node, biases, len(weight)), geometry)
    return layer if view is not None else Numbers(layer.shape, convolved(imp, layer, geometry))


def _clamp(imp: Tensors, node: Node, x: Value, *bounds: Value | None) -> Value:
    """Relu and Clip, of values of any width."""
    limits: list[float] = [0.0, np.inf] if node.op == "Relu" else [-np.inf, np.inf]
    for k, bound in enumerate(bounds):
        if bound is not None and not (isinstance(bound, Fixed) and np.isinf(bound.array).all()):
            limits[k] = int(constants(node, bound, "bounds").item())
    if isinstance(x, (View, Table)):
        table = _table(imp, node, x)
        return replace(table, integers=np.clip(table.integers, limits[0], limits[1]).astype(np.int64))
    t, numbers = imp.whole(node, x), Integer(imp, node)
    for function, limit in zip(("maximum", "minimum"), limits):
        t = numbers.binary(function, t, int(limit)) if np.isfinite(limit) else t
    return Numbers(x.shape, t)


def _pair(imp: Tensors, node: Node, x: Value, y: Value) -> Value:
    """A sum, difference or product."""
    if isinstance(x, Fixed) and node.op != "Sub":
        x, y = y, x
    if isinstance(y, Fixed) and (simple := _with_constant(imp, node, x, y)) is not None:
        return simple
    shape = np.broadcast_shapes(x.shape, y.shape)
    views = [None if isinstance(v, Fixed) else imp.narrow(node, v) for v in (x, y)]
    second = imp.constant8(node, y) if isinstance(y, Fixed) else None
    if node.op == "Sub" or views[0] is None or (views[1] is None and second is None):
        return _on_integers(imp, node, node.op.lower(), x, y)
    alike = views[1] is not None and x.shape == y.shape and len(shape) not in (2, 4)
    first, *others = [imp.rows(v) if alike else imp.natural(v) for v in views if v is not None]
    return Pair(shape, node, node.op, first, others[0] if second is None else second)


def _with_constant(imp: Tensors, node: Node, x: Value, y: Fixed) -> Value | None:
    """`x` with a constant: a bias of a layer, a factor of a product, a function of each value; None of others."""
    array = whole(node, y.array, "constants")
    if np.broadcast_shapes(x.shape, array.shape) != x.shape:
        return None
    sign = -1 if node.op == "Sub" else 1
    if isinstance(x, Layer) and node.op != "Mul" and (bias := x.per_channel(array)) is not None:
        return replace(x, bias=x.bias + sign * bias)
    if array.size != 1:
        return None
    number = int(array.reshape(-1)[0])
    if isinstance(x, Pair) and x.op != "MatMul" and node.op == "Mul":
        return replace(x, factor=x.factor * number)
    if isinstance(x, (View, Table)):
        table = _table(imp, node, x)
        return replace(table, integers=table.integers * number if node.op == "Mul" else table.integers + sign * number)
    return None


def _concat(imp: Tensors, node: Node, *args: Value, axis: int) -> Value:
    values, shape = [v for v in args if 0 not in v.shape], imp.shape(node, node.outputs[0])
    if len(values) == 1:
        return values[0]
    tensors = [_operand8(imp, node, v, None if isinstance(v, Fixed) else imp.narrow(node, v)) for v in values]
    narrow, axis = tuple(t for t in tensors if t is not None), axis % len(shape)
    if len(narrow) < len(tensors) or len({t.zero_point for t in narrow}) > 1:
        wide = tuple(imp.whole(node, value) for value in values)
        return Numbers(shape, imp.append(g.Concat(node.name, wide, g.Tensor("", shape, "int32"), axis)))
    y = g.Tensor("", shape, zero_point=narrow[0].zero_point)
    return View(shape, imp.append(g.Concat(node.name, narrow, y, axis)))


def _move(imp: Tensors, node: Node, x: Value, *_: Value) -> list[Value]:
    """An operator that only moves values, of any width."""
    values: list[Value] = []
    for index, tensor in enumerate(node.outputs):
        shape = imp.shape(node, tensor)
        if isinstance(x, View):
            values.append(imp.moved_view(node, index, x))
        elif isinstance(x, Table):
            values.append(Table(shape, imp.moved_view(node, index, View(x.shape, x.tensor)).tensor, x.integers))
        elif isinstance(x, Numbers):
            values.append(Numbers(shape, moved(imp, node, index, x.tensor)))
        else:
            values.append(Expr(shape, node, (x,), index))
    return values


def _max_pool(imp: Tensors, node: Node, x: Value) -> Value:
    """The largest value of each window, of int8 by one operator, of int32 by a reduction of all windows."""
    if (view := imp.narrow(node, x)) is not None:
        return imp.moved_view(node, 0, view)
    if max(node.attrs.get("dilations", [1])) > 1 or len(node.outputs) > 1:
        raise Problem(node, "has dilations or an index output, which are not supported")
    kernel, strides, pads = window(imp, node, x.shape)
    image = imp.shaped(imp.whole(node, x), imp.image_shape(x.shape))
    pixels = windows(imp, node.name, image, kernel, Geometry(strides, pads, (1, 1), 1), np.iinfo(np.int32).min)
    largest = Integer(imp, node).reduced("reduce_max", pixels, (2, 4))
    shape = imp.shape(node, node.outputs[0])
    return Numbers(shape, imp.shaped(largest, shape))


def _pad(imp: Tensors, node: Node, x: Value, amounts: Value, value: Value | None = None, *_: Value) -> Value:
    """Values around others, int8 where all are."""
    number, view = 0 if value is None else int(constants(node, value, "values").item()), imp.narrow(node, x)
    if view is not None and -128 <= number + view.tensor.zero_point <= 127:
        return imp.moved_view(node, 0, view)
    t = moved(imp, node, 0, imp.whole(node, x))
    return Numbers(t.shape, t)


_FULL, _STEP = 256, 32  # ITA's exponential is _FULL, halved for every _STEP below the largest value
_MOST_GROUPS = 64


class Integer:
    """Plain arithmetic on int32 or int64 tensors, one operator a call; operators are named after `node`."""

    def __init__(self, imp: Tensors, node: Node, dtype: str = "int32"):
        self.imp, self.node, self.dtype = imp, node, dtype

    def constant(self, array: np.ndarray | int) -> g.Tensor:
        """A constant operand."""
        return self.imp.constant(f"{self.node.name}.constant", np.asarray(array).astype(np.int32).astype(self.dtype))

    def operand(self, x: g.Tensor | np.ndarray | int) -> g.Tensor:
        """`x` as an operand."""
        return x if isinstance(x, g.Tensor) else self.constant(x)

    def binary(self, function: str, x: g.Tensor | int, y: g.Tensor | np.ndarray | int) -> g.Tensor:
        """`function` of two operands."""
        return self.imp.binary(self.node.name, function, self.operand(x), self.operand(y), self.dtype)

    def unary(self, function: str, x: g.Tensor) -> g.Tensor:
        """`function` of each value."""
        return self.imp.append(g.NumberFunction(self.node.name, (x,), replace(x, name="", data=None), function))

    def reduced(self, function: str, x: g.Tensor, axes: Sequence[int]) -> g.Tensor:
        """`function` along `axes`, which stay as sizes of 1."""
        shape = tuple(1 if k in axes else n for k, n in enumerate(x.shape))
        op = g.NumberReduce(self.node.name, (x,), g.Tensor("", shape, self.dtype), function, tuple(axes))
        return self.imp.append(op)

    def looked_up(self, table: np.ndarray, where: g.Tensor) -> g.Tensor:
        """The entries of `table` at the positions `where`."""
        y = g.Tensor("", where.shape, self.dtype)
        return self.imp.append(g.Gather(self.node.name, (self.constant(table), where), y, 0))

    def cast(self, x: g.Tensor, dtype: str) -> g.Tensor:
        """`x` as numbers of `dtype`."""
        return x if x.dtype == dtype else self.imp.append(g.Cast(self.node.name, (x,), g.Tensor("", x.shape, dtype)))

    def quotient(self, x: g.Tensor, divisor: g.Tensor | int) -> g.Tensor:
        """`x / divisor`, a divisor above 0, rounded half away from zero."""
        half = divisor // 2 if isinstance(divisor, int) else self.binary("floor_div", divisor, 2)
        rounded = self.binary("floor_div", self.binary("add", self.unary("abs", x), half), divisor)
        return self.binary("mul", self.unary("sign", x), rounded)


def _reduction(imp: Tensors, node: Node, x: Value, *_: Value, keepdims: int = 1) -> Value:
    """ReduceSum, ReduceMean and IntegerMean.

    A ReduceMean of a power of two of elements, whose dimensions go, is a shift: its ties go up, not away from zero.
    """
    shape, numbers = imp.shape(node, node.outputs[0]), Integer(imp, node)
    t, axes = imp.whole(node, x), imp.axes(node)
    total, count = numbers.reduced("sum", t, axes), math.prod(t.shape[k] for k in axes)
    if node.op == "ReduceMean" and not keepdims and not count & (count - 1):
        total = numbers.binary("floor_div", numbers.binary("add", total, count // 2), count)
    elif node.op != "ReduceSum":
        total = numbers.quotient(total, count)
    return Numbers(shape, imp.shaped(total, shape))


def _division(imp: Tensors, node: Node, x: Value, y: Value, *, Delta: int, eta: int, eps: int) -> Value:
    """IntegerDiv: `Delta * eta * x / (eta * y + eps)`."""
    wide, a, b = Integer(imp, node, "int64"), imp.whole(node, x), imp.whole(node, y)
    numerator = wide.binary("mul", wide.binary("mul", wide.cast(a, "int64"), eta), Delta)
    divisor = wide.binary("add", wide.binary("mul", wide.cast(b, "int64"), eta), eps)
    t = wide.cast(wide.quotient(numerator, divisor), "int32")
    return Numbers(t.shape, t)


def _shares(imp: Tensors, node: Node, x: Value, *, n_levels: int, axis: int = -1, group_width: int = 0) -> Value:
    """ITAMax, and ITAPartialMax, whose sum is made group by group, each less its largest value so far."""
    _check_last(node, x, axis)
    t, numbers = imp.whole(node, x), Integer(imp, node)
    last, count = len(t.shape) - 1, t.shape[-1]
    halvings = (np.arange(_FULL) + _STEP // 2) // _STEP
    width, top = (count, n_levels - 1) if node.op == "ITAMax" else (group_width, n_levels // 2 - 1)
    groups = count // width if width > 0 else 0
    if not 0 < groups <= _MOST_GROUPS or count % width:
        raise Problem(node, f"has groups of {width} of {count}; 1 to {_MOST_GROUPS} whole ones are supported")
    most = total = None
    for k in range(groups):
        indices = along(t.shape, last, range(k * width, (k + 1) * width))
        part = t if node.op == "ITAMax" else sliced(imp, f"{node.name}.group", t, indices)
        largest = numbers.reduced("reduce_max", part, (last,))
        before, most = most, largest if most is None else numbers.binary("maximum", most, largest)
        share = numbers.looked_up(_FULL >> halvings, numbers.binary("sub", most, part))
        addend = numbers.reduced("sum", share, (last,))
        if total is not None and before is not None:
            power = numbers.looked_up(1 << halvings, numbers.binary("sub", most, before))
            addend = numbers.binary("add", numbers.binary("floor_div", total, power), addend)
        total = addend
    assert most is not None and total is not None
    inverse = numbers.binary("floor_div", top * _FULL, total)
    power = numbers.looked_up(1 << halvings, numbers.binary("sub", most, t))
    return Numbers(x.shape, numbers.binary("floor_div", inverse, power))


def _no_norm(
    imp: Tensors, node: Node, x: Value, weights: np.ndarray, biases: np.ndarray, *, D: int, mul: int, n_levels: int
) -> Value:
    """iNoNorm: `clamp(((x * weight + bias) * mul) >> log2(D))`."""
    if D < 1 or not 0 < n_levels <= 256:
        raise Problem(node, f"has D = {D} and {n_levels} levels; at least 1, and 1..256 are supported")
    numbers, shift = Integer(imp, node), D.bit_length() - 1
    full = math.prod(x.shape)
    weights, biases = (array.reshape(x.shape) if array.size == full else array for array in (weights, biases))
    biased = numbers.binary("add", numbers.binary("mul", imp.whole(node, x), weights), biases)
    half = (1 << shift) >> 1  # which a RequantShift adds
    inputs = biased, numbers.constant(mul), numbers.constant(-half)
    op = g.RequantShift(node.name, inputs, g.Tensor("", x.shape), shift, -(n_levels // 2), n_levels // 2 - 1)
    return View(x.shape, imp.append(op))


# an ONNX or Deeploy name -> its function, whose parameters are the inputs and attributes that it reads
OPERATORS: dict[str, Handler] = {
    **dict.fromkeys(MOVES, _move),
    **dict.fromkeys(ALIASES, lambda imp, node, x, *_: x),
    **dict.fromkeys(("Add", "Mul", "Sub"), _pair),
    "Clip": _clamp,
    "Concat": _concat,
    "Conv": _conv,
    "Gemm": _gemm,
    "ITAMax": _shares,
    "ITAPartialMax": _shares,
    "IntegerDiv": _division,
    "IntegerMean": _reduction,
    "MatMul": _matmul,
    "MaxPool": _max_pool,
    "Pad": _pad,
    "ReduceMean": _reduction,
    "ReduceSum": _reduction,
    "Relu": _clamp,
    "RequantShift": requantised,
    "TrueIntegerDiv": _divide,
    "iGELU": _gelu,
    "iHardswish": _hardswish,
    "iLayerNorm": _norm,
    "iNoNorm": _no_norm,
    "iRMSNorm": _norm,
    "iSoftmax": _softmax,
}
