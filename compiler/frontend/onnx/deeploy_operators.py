"""What the nodes of a file in Deeploy's dialect stand for.

Means, ITA's softmax and divisions are computed on the host, in int32, by plain arithmetic (compiler/graph/numbers.py).
Their quotients are rounded half away from zero, as Deeploy's kernels do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ... import graph as g
from ..core import Node, Problem
from ..moves import along, sliced
from ..values import Expr, Fixed, Numbers, Value, View
from .deeploy_requantise import requantised
from .deeploy_values import (
    EVERY,
    Convolution,
    Layer,
    Pair,
    Products,
    Shares,
    Table,
    Tensors,
    attribute,
    given,
    whole,
)
from .geometry import convolution
from .movements import MOVES, moved
from .nodes import ALIASES

_INT9 = 255  # largest weight of a layer


def _table(imp: Tensors, node: Node, value: Value) -> Table:
    """The value as a function of one int8 tensor. Raises `Problem`."""
    if isinstance(value, Table):
        return value
    view = imp.narrow(node, value) if not isinstance(value, Fixed) else None
    if view is None:
        raise Problem(node, "is on values of more than 8 bits, or constants, which is not supported")
    return Table(view.shape, view.tensor, EVERY - view.tensor.zero_point)


def _function(compute: Callable[[Node, np.ndarray], np.ndarray]) -> Callable[..., list[Value]]:
    """An operator on each value by itself."""

    def found(imp: Tensors, node: Node, args: list[Value | None]) -> list[Value]:
        x = _table(imp, node, given(node, args, 1)[0])
        return [Table(x.shape, x.tensor, compute(node, x.integers))]

    return found


def _gelu(node: Node, x: np.ndarray) -> np.ndarray:
    b, one = attribute(node, "b"), attribute(node, "one")
    d = np.minimum(np.abs(x), -b) + b
    return x * ((one + np.sign(x) * (one - d * d)) >> 1)


def _hardswish(node: Node, x: np.ndarray) -> np.ndarray:
    moved_up = np.clip(x + attribute(node, "three"), 0, attribute(node, "six"))
    return x * (moved_up * attribute(node, "one_over_six"))


def _quotient(node: Node, y: np.ndarray) -> np.ndarray:
    """What TrueIntegerDiv multiplies by for a divisor `y`, in steps of 1 / Delta. Raises `Problem`."""
    delta, eta, eps = (attribute(node, name) for name in ("Delta", "eta", "eps"))
    divisor = y * eta + eps
    if (divisor == 0).any():
        raise Problem(node, "divides by 0")
    return delta * eta // divisor


def _divide(imp: Tensors, node: Node, args: list[Value | None]) -> list[Value]:
    x = given(node, args, 1)[0]
    if "y" in node.attrs:
        numerator, factor = _table(imp, node, x), _quotient(node, np.array(attribute(node, "y")))
        return [Table(x.shape, numerator.tensor, numerator.integers * factor)]
    divisor = _table(imp, node, given(node, args, 2)[1])
    reciprocal = Table(divisor.shape, divisor.tensor, _quotient(node, divisor.integers))
    return [_on_integers(imp, node, "mul", x, reciprocal)]


def _on_integers(imp: Tensors, node: Node, function: str, *args: Value) -> Numbers:
    """An operator on int32 tensors."""
    x, y = (imp.whole(node, arg) for arg in args)
    t = imp.binary(node.name, function, x, y)
    return Numbers(t.shape, t)


def _softmax(imp: Tensors, node: Node, args: list[Value | None]) -> list[Value]:
    (x,) = given(node, args, 1)
    if node.attrs.get("axis", -1) not in (-1, len(x.shape) - 1):
        raise Problem(node, "is not along the last axis, which is not supported")
    names = {"quadratic": "coeffA", "linear": "coeffB", "constant": "coeffC", "period": "log2", "levels": "n_levels"}
    numbers = {name: attribute(node, key) for name, key in names.items()}
    view = imp.narrow(node, x)
    return [Shares(x.shape, node, imp.whole(node, x) if view is None else imp.natural(view), numbers)]


def _norm(imp: Tensors, node: Node, args: list[Value | None]) -> list[Value]:
    x, *rest = given(node, args, 3 if node.op == "iLayerNorm" else 2)
    divisor, half = attribute(node, "D"), attribute(node, "n_levels", "n_levels_out") // 2
    if divisor < 1 or not 0 < half <= 128:
        raise Problem(node, f"has D = {divisor} and {2 * half} levels; at least 1, and 2..256 are supported")
    size = x.shape[-1:]
    weights = []
    for value in rest:
        if not isinstance(value, Fixed):
            raise Problem(node, "has weights that are not constant")
        array = np.broadcast_to(whole(node, value.array, "weights"), size)
        weights.append(imp.integers32(f"{node.name}.weight", array))
    view = imp.narrow(node, x)
    t = imp.whole(node, x) if view is None else imp.rows(view)
    y = g.Tensor("", t.shape)
    op = g.IntegerNorm(node.name, (t, *weights), y, divisor.bit_length() - 1, -half, half - 1)
    return [View(x.shape, imp.append(op))]


def _matmul(imp: Tensors, node: Node, args: list[Value | None]) -> list[Value]:
    x, y = given(node, args, 2)
    shape = imp.shape(node, node.outputs[0])
    views = [None if isinstance(v, Fixed) else imp.narrow(node, v) for v in (x, y)]
    if isinstance(y, Fixed) and y.array.ndim == 2 and views[0] is not None and len(x.shape) > 1:
        weight = whole(node, y.array, "weights").T
        if np.abs(weight).max() <= _INT9:
            return [Layer(shape, node, imp.rows(views[0]), weight, np.zeros(len(weight), np.int64))]
    found = []
    for value, view in zip((x, y), views):
        t = imp.constant8(node, value) if isinstance(value, Fixed) else None if view is None else imp.natural(view)
        found.append(t)
    if min(len(x.shape), len(y.shape)) < 2:
        raise Problem(node, "multiplies by a vector, which is not supported")
    if found[0] is not None and found[1] is not None:
        return [Products(shape, node, found[0], found[1])]
    wide = imp.whole(node, x), imp.whole(node, y)
    return [Numbers(shape, imp.append(g.IntegerMatMul(node.name, wide, g.Tensor("", shape, "int32"))))]


def _gemm(imp: Tensors, node: Node, args: list[Value | None]) -> list[Value]:
    """A matrix by constant weights, with a row of biases; forms.py makes others products and sums."""
    x, y, *rest = given(node, args, len(node.inputs))
    assert isinstance(y, Fixed)
    weight = whole(node, y.array if node.attrs.get("transB", 0) else y.array.T, "weights")
    bias = np.zeros(len(weight), np.int64)
    for value in rest:
        assert isinstance(value, Fixed)
        bias = bias + whole(node, value.array, "biases").reshape(-1)
    view, shape = imp.narrow(node, x), imp.shape(node, node.outputs[0])
    if view is not None and np.abs(weight).max() <= _INT9:
        return [Layer(shape, node, imp.rows(view), weight, bias)]
    sums = imp.products(node.name, imp.whole(node, x), imp.integers32(f"{node.name}.weight", weight.T))
    return [Numbers(shape, Integer(imp, node).binary("add", sums, bias))]


def _conv(imp: Tensors, node: Node, args: list[Value | None]) -> list[Value]:
    x, y, *rest = given(node, args, len(node.inputs))
    view = imp.narrow(node, x)
    if view is None or not isinstance(y, Fixed) or not all(isinstance(b, Fixed) for b in rest):
        raise Problem(node, "is not on int8 images with constant weights, which alone is supported")
    geometry = convolution(imp, node, x.shape, y.shape)
    weight, bias = whole(node, y.array, "weights"), np.zeros(len(y.array), np.int64)
    for value in rest:
        assert isinstance(value, Fixed)
        bias = bias + whole(node, value.array, "biases").reshape(-1)
    image, kernels = imp.image_shape(view.shape), imp.image_shape(weight.shape)
    found = imp.shaped(view.tensor, image), weight.reshape(kernels), bias, geometry
    return [Convolution(imp.shape(node, node.outputs[0]), node, *found)]


def _clamp(imp: Tensors, node: Node, args: list[Value | None]) -> list[Value]:
    """Relu and Clip, of values of any width."""
    (x,), bounds = given(node, args, 1), args[1:]
    limits: list[float] = [0.0, np.inf] if node.op == "Relu" else [-np.inf, np.inf]
    for k, bound in enumerate(bounds):
        if bound is not None and not isinstance(bound, Fixed):
            raise Problem(node, "has bounds that are not constant")
        if bound is not None and np.isfinite(bound.array).all():
            limits[k] = int(whole(node, bound.array, "bounds").item())
    if isinstance(x, (View, Table)):
        table = _table(imp, node, x)
        return [Table(x.shape, table.tensor, np.clip(table.integers, limits[0], limits[1]).astype(np.int64))]
    found, numbers = imp.whole(node, x), Integer(imp, node)
    for function, limit in zip(("maximum", "minimum"), limits):
        found = numbers.binary(function, found, int(limit)) if np.isfinite(limit) else found
    return [Numbers(x.shape, found)]


def _narrow_move(imp: Tensors, node: Node, args: list[Value | None]) -> list[Value]:
    """MaxPool and Pad, of int8 values."""
    x = given(node, args, 1)[0]
    view = imp.narrow(node, x) if not isinstance(x, Fixed) else None
    if view is None:
        raise Problem(node, "is on values of more than 8 bits, or constants, which is not supported")
    return [imp.moved_view(node, 0, view)]


def _pair(imp: Tensors, node: Node, args: list[Value | None]) -> list[Value]:
    """A sum, difference or product."""
    x, y = given(node, args, 2)
    if isinstance(x, Fixed) and node.op != "Sub":
        x, y = y, x
    if isinstance(y, Fixed) and (found := _with_constant(imp, node, x, y)) is not None:
        return [found]
    shape = np.broadcast_shapes(x.shape, y.shape)
    views = [None if isinstance(v, Fixed) else imp.narrow(node, v) for v in (x, y)]
    constants = [imp.constant8(node, v) if isinstance(v, Fixed) else None for v in (x, y)]
    if node.op == "Sub" or any(v is None and c is None for v, c in zip(views, constants)):
        return [_on_integers(imp, node, node.op.lower(), x, y)]
    computed = not isinstance(x, Fixed) and not isinstance(y, Fixed)
    alike = computed and x.shape == y.shape and len(shape) not in (2, 4)
    tensors = [imp.rows(v) if alike else imp.natural(v) for v in views if v is not None]
    first, second = (*tensors, *(c for c in constants if c is not None))  # the constant one is the second
    return [Pair(shape, node, node.op, first, second)]


def _with_constant(imp: Tensors, node: Node, x: Value, y: Fixed) -> Value | None:
    """`x` with a constant: a bias of a layer, a factor of a product, a function of each value; None of others."""
    array = whole(node, y.array, "constants")
    if np.broadcast_shapes(x.shape, array.shape) != x.shape:
        return None
    sign = -1 if node.op == "Sub" else 1
    if isinstance(x, Layer) and node.op != "Mul" and array.size == (array.shape or (1,))[-1]:
        return Layer(x.shape, x.node, x.x, x.weight, x.bias + sign * array.reshape(-1))
    if isinstance(x, Convolution) and node.op != "Mul" and array.ndim > len(x.shape) - 2:
        whole_shape = (1,) * (len(x.shape) - array.ndim) + array.shape
        if array.size in (1, len(x.weight)) and whole_shape[1] == array.size:
            return Convolution(x.shape, x.node, x.x, x.weight, x.bias + sign * array.reshape(-1), x.geometry)
    if array.size != 1:
        return None
    number = int(array.reshape(-1)[0])
    if isinstance(x, Pair) and node.op == "Mul":
        return Pair(x.shape, x.node, x.op, x.x, x.y, x.factor * number)
    if isinstance(x, (View, Table)):
        table = _table(imp, node, x)
        integers = table.integers * number if node.op == "Mul" else table.integers + sign * number
        return Table(x.shape, table.tensor, integers)
    return None


def _concat(imp: Tensors, node: Node, args: list[Value | None]) -> list[Value]:
    values = [v for v in given(node, args, len(node.inputs)) if 0 not in v.shape]
    shape = imp.shape(node, node.outputs[0])
    if len(values) == 1:
        return values
    axis = attribute(node, "axis") % len(shape)
    tensors = []
    for value in values:
        view = None if isinstance(value, Fixed) else imp.narrow(node, value)
        tensors.append(imp.constant8(node, value) if isinstance(value, Fixed) else view and imp.natural(view))
    if any(t is None for t in tensors) or len({t.zero_point for t in tensors if t}) > 1:
        whole32 = tuple(imp.whole(node, value) for value in values)
        return [Numbers(shape, imp.append(g.Concat(node.name, whole32, g.Tensor("", shape, "int32"), axis)))]
    found = tuple(t for t in tensors if t is not None)
    y = g.Tensor("", shape, zero_point=found[0].zero_point)
    return [View(shape, imp.append(g.Concat(node.name, found, y, axis)))]


def _move(imp: Tensors, node: Node, args: list[Value | None]) -> list[Value]:
    x = given(node, args, 1)[0]
    found: list[Value] = []
    for index, tensor in enumerate(node.outputs):
        shape = imp.shape(node, tensor)
        if isinstance(x, View):
            found.append(imp.moved_view(node, index, x))
        elif isinstance(x, Table):
            view = imp.moved_view(node, index, View(x.shape, x.tensor))
            found.append(Table(shape, view.tensor, x.integers))
        elif isinstance(x, Numbers):
            found.append(Numbers(shape, moved(imp, node, index, x.tensor)))
        else:
            found.append(Expr(shape, node, (x,), index))
    return found


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


def reduction(imp: Tensors, node: Node, args: list[Value | None]) -> list[Value]:
    """ReduceSum, ReduceMean and IntegerMean.

    A ReduceMean of a power of two of elements, whose dimensions go, is a shift: its ties go up, not away from zero.
    """
    shape, numbers = imp.shape(node, node.outputs[0]), Integer(imp, node)
    x, axes = imp.whole(node, given(node, args, 1)[0]), imp.axes(node)
    total = numbers.reduced("sum", x, axes)
    count = math.prod(x.shape[k] for k in axes)
    if node.op == "ReduceMean" and not node.attrs.get("keepdims", 1) and not count & (count - 1):
        total = numbers.binary("floor_div", numbers.binary("add", total, count // 2), count)
    elif node.op != "ReduceSum":
        total = numbers.quotient(total, count)
    return [Numbers(shape, imp.shaped(total, shape))]


def division(imp: Tensors, node: Node, args: list[Value | None]) -> list[Value]:
    """IntegerDiv: `Delta * eta * x / (eta * y + eps)`."""
    x, y = (imp.whole(node, value) for value in given(node, args, 2))
    delta, eta, eps = (attribute(node, name) for name in ("Delta", "eta", "eps"))
    wide = Integer(imp, node, "int64")
    numerator = wide.binary("mul", wide.binary("mul", wide.cast(x, "int64"), eta), delta)
    divisor = wide.binary("add", wide.binary("mul", wide.cast(y, "int64"), eta), eps)
    found = wide.cast(wide.quotient(numerator, divisor), "int32")
    return [Numbers(found.shape, found)]


def shares(imp: Tensors, node: Node, args: list[Value | None]) -> list[Value]:
    """ITAMax, and ITAPartialMax, whose sum is made group by group, each less its largest value so far."""
    value = given(node, args, 1)[0]
    if node.attrs.get("axis", -1) not in (-1, len(value.shape) - 1):
        raise Problem(node, "is not along the last axis, which is not supported")
    x, levels, numbers = imp.whole(node, value), attribute(node, "n_levels"), Integer(imp, node)
    last, count = len(x.shape) - 1, x.shape[-1]
    below = np.arange(_FULL)
    halvings = (below + _STEP // 2) // _STEP
    powers = 1 << halvings

    def less(most: g.Tensor, part: g.Tensor) -> g.Tensor:
        return numbers.binary("sub", most, part)

    if node.op == "ITAMax":
        most = numbers.reduced("reduce_max", x, (last,))
        total = numbers.reduced("sum", numbers.looked_up(_FULL >> halvings, less(most, x)), (last,))
        top = levels - 1
    else:
        width, top = attribute(node, "group_width"), levels // 2 - 1
        groups = count // width if width > 0 else 0
        if not 0 < groups <= _MOST_GROUPS or count % width:
            raise Problem(node, f"has groups of {width} of {count}; 1 to {_MOST_GROUPS} whole ones are supported")
        most = total = None
        for k in range(groups):
            part = sliced(imp, f"{node.name}.group", x, along(x.shape, last, range(k * width, (k + 1) * width)))
            largest = numbers.reduced("reduce_max", part, (last,))
            before, most = most, largest if most is None else numbers.binary("maximum", most, largest)
            each = numbers.reduced("sum", numbers.looked_up(_FULL >> halvings, less(most, part)), (last,))
            if total is not None and before is not None:
                kept = numbers.binary("floor_div", total, numbers.looked_up(powers, less(most, before)))
                each = numbers.binary("add", kept, each)
            total = each
        assert most is not None and total is not None
    inverse = numbers.binary("floor_div", top * _FULL, total)
    found = numbers.binary("floor_div", inverse, numbers.looked_up(powers, less(most, x)))
    return [Numbers(value.shape, found)]


def no_norm(imp: Tensors, node: Node, args: list[Value | None]) -> list[Value]:
    """iNoNorm: `clamp(((x * weight + bias) * mul) >> log2(D))`."""
    x, weight, bias = given(node, args, 3)
    if not isinstance(weight, Fixed) or not isinstance(bias, Fixed):
        raise Problem(node, "has weights that are not constant")
    divisor, factor, levels = attribute(node, "D"), attribute(node, "mul"), attribute(node, "n_levels")
    if divisor < 1 or not 0 < levels <= 256:
        raise Problem(node, f"has D = {divisor} and {levels} levels; at least 1, and 1..256 are supported")
    numbers, shift = Integer(imp, node), divisor.bit_length() - 1
    arrays = []
    for value, what in ((weight, "weights"), (bias, "biases")):
        array = whole(node, value.array, what)
        arrays.append(array.reshape(x.shape) if array.size == math.prod(x.shape) else array)
    biased = numbers.binary("add", numbers.binary("mul", imp.whole(node, x), arrays[0]), arrays[1])
    half = (1 << shift) >> 1  # which a RequantShift adds
    inputs = biased, numbers.constant(factor), numbers.constant(-half)
    op = g.RequantShift(node.name, inputs, g.Tensor("", x.shape), shift, -(levels // 2), levels // 2 - 1)
    return [View(x.shape, imp.append(op))]


OPERATORS: dict[str, Callable[[Tensors, Node, list[Value | None]], list[Value]]] = {
    **dict.fromkeys((name for name in MOVES if name not in ("MaxPool", "Pad")), _move),
    **dict.fromkeys(ALIASES, lambda imp, node, args: [given(node, args, 1)[0]]),
    **dict.fromkeys(("Add", "Mul", "Sub"), _pair),
    "Clip": _clamp,
    "Concat": _concat,
    "Conv": _conv,
    "Gemm": _gemm,
    "ITAMax": shares,
    "ITAPartialMax": shares,
    "IntegerDiv": division,
    "IntegerMean": reduction,
    "MatMul": _matmul,
    "MaxPool": _narrow_move,
    "Pad": _narrow_move,
    "ReduceMean": reduction,
    "ReduceSum": reduction,
    "Relu": _clamp,
    "RequantShift": requantised,
    "TrueIntegerDiv": _divide,
    "iGELU": _function(_gelu),
    "iHardswish": _function(_hardswish),
    "iLayerNorm": _norm,
    "iNoNorm": no_norm,
    "iRMSNorm": _norm,
    "iSoftmax": _softmax,
}
