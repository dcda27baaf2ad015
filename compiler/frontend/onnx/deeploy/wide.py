"""Operators of Deeploy's dialect on the host, in int32: means, ITA's softmax, divisions.

They are compositions of plain arithmetic (compiler/graph/numbers.py), movements and products of matrices. Quotients are
rounded half away from zero, as Deeploy's kernels do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .... import graph as g
from ..nodes import Node
from ..values import Fixed, Problem, Value, View
from .tensors import Tensors
from .values import Integers, attribute, given, whole

_FULL, _STEP = 256, 32  # ITA's exponential is _FULL, halved for every _STEP below the largest value
_MOST_GROUPS = 64


class Integer:
    """Plain arithmetic on int32 or int64 tensors, one operator a call; operators are named after `node`."""

    def __init__(self, imp: Tensors, node: Node, dtype: str = "int32"):
        self.imp, self.node, self.dtype = imp, node, dtype

    def constant(self, array: np.ndarray | int) -> g.Tensor:
        """A constant operand."""
        t = self.imp.integers32(f"{self.node.name}.constant", np.asarray(array))
        assert t.data is not None
        return replace(t, dtype=self.dtype, data=t.data.astype(self.dtype))

    def operand(self, x: g.Tensor | np.ndarray | int) -> g.Tensor:
        """`x` as an operand."""
        return x if isinstance(x, g.Tensor) else self.constant(x)

    def binary(self, function: str, x: g.Tensor | int, y: g.Tensor | np.ndarray | int) -> g.Tensor:
        """`function` of two operands."""
        a, b = self.operand(x), self.operand(y)
        shape = np.broadcast_shapes(a.shape, b.shape)
        return self.imp.append(g.NumberBinary(self.node.name, (a, b), g.Tensor("", shape, self.dtype), function))

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
    return [Integers(shape, imp.shaped(total, shape))]


def division(imp: Tensors, node: Node, args: list[Value | None]) -> list[Value]:
    """IntegerDiv: `Delta * eta * x / (eta * y + eps)`."""
    x, y = (imp.whole(node, value) for value in given(node, args, 2))
    delta, eta, eps = (attribute(node, name) for name in ("Delta", "eta", "eps"))
    wide = Integer(imp, node, "int64")
    numerator = wide.binary("mul", wide.binary("mul", wide.cast(x, "int64"), eta), delta)
    divisor = wide.binary("add", wide.binary("mul", wide.cast(y, "int64"), eta), eps)
    found = wide.cast(wide.quotient(numerator, divisor), "int32")
    return [Integers(found.shape, found)]


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
            begin = (*[0] * last, k * width)
            y = replace(x, name="", shape=(*x.shape[:-1], width), data=None)
            part = imp.append(g.StridedSlice(f"{node.name}.group", (x,), y, begin, (1,) * len(begin)))
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
    return [Integers(value.shape, found)]


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
