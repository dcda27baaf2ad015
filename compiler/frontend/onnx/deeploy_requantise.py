"""RequantShift with the operator before it as one operator of the graph.

`y = clamp((x * factor + offset + half) >> shift)` with factors and offsets per tensor or per channel. An offset that is
a multiple of the factor becomes a bias, and the rest is R of hw/rounding.py. With other offsets, and for values of
more than 8 bits, the shift is computed on int32 tensors on the host.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ....hw.rounding import exact_multiplier, requantise
from ... import graph as g
from ...graph import ranges
from ..core import Node, Problem
from ..linear import narrowed
from ..values import Fixed, Numbers, Value, View
from .deeploy_values import (
    EVERY,
    UNSIGNED,
    Layer,
    Pair,
    Shares,
    Table,
    Tensors,
    unmoved,
)

_LARGEST = 32767


@dataclass(frozen=True)
class Shift:
    """The numbers of a RequantShift: `factor` and `offset` int64, as they are in the file."""

    node: Node
    factor: np.ndarray
    offset: np.ndarray
    shift: int
    low: int
    high: int

    @property
    def one(self) -> bool:
        """True if all channels have one factor and one offset."""
        return self.factor.size == self.offset.size == 1

    @property
    def zero_point(self) -> int:
        """The zero point of an int8 result."""
        return UNSIGNED if self.high > 127 else 0

    @property
    def clamp(self) -> tuple[int, int]:
        """The bounds of an int8 result, as it is stored."""
        return self.low + self.zero_point, self.high + self.zero_point

    def apply(self, x: np.ndarray) -> np.ndarray:
        """int64 results of a RequantShift whose channels are alike."""
        half = (1 << self.shift) >> 1
        return np.clip((x * self.factor.item() + self.offset.item() + half) >> self.shift, self.low, self.high)

    def ratio(self, times: int = 1) -> float | None:
        """The factor of `times` the value if R alone computes the shift; None if it cannot."""
        if not self.one or self.offset.item():
            return None
        return _exact(self.factor.item() * times, self.shift)


def _exact(factor: int, shift: int) -> float | None:
    """`factor / 2**shift`; None where no multiplier of R is that."""
    ratio = factor * 2.0**-shift
    try:
        exact_multiplier(ratio)
    except ValueError:
        return None
    return ratio if ratio > 0 and ratio * 2.0**shift == factor else None


def requantised(
    imp: Tensors, node: Node, x: Value, factors: np.ndarray, offsets: np.ndarray, *, div: int, n_levels_out: int,
    signed: int,
) -> Value:  # fmt: skip
    """The value of a RequantShift node. Raises `Problem`."""
    if div < 1 or n_levels_out < 2:
        raise Problem(node, f"has div = {div} and {n_levels_out} levels; at least 1 and 2 are needed")
    low, high = (-(n_levels_out // 2), n_levels_out // 2 - 1) if signed else (0, n_levels_out - 1)
    factor, offset = (_aligned(array, x.shape) for array in (factors, offsets))
    return _of(imp, x, Shift(node, factor, offset, div.bit_length() - 1, low, high))


def _aligned(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """`array`, of which there is one per channel where it does not broadcast to `shape` as it is; one number alone."""
    if array.size == 1:
        return array.reshape(())
    try:
        if np.broadcast_shapes(array.shape, shape) == shape:
            return array
    except ValueError:
        pass
    if len(shape) > 1 and array.size == shape[1]:
        return array.reshape(-1, *[1] * (len(shape) - 2))
    return array


def _of(imp: Tensors, x: Value, s: Shift) -> Value:
    narrow = s.high - s.low < 256
    moves, bare = unmoved(x) if narrow and s.one else ([], x)
    if isinstance(bare, Fixed):
        raise Problem(s.node, "is on a constant, which is not supported")
    if moves:
        view = _of(imp, bare, s)
        assert isinstance(view, View)  # which all results of at most 256 levels are
        return imp.after(view, moves)
    if narrow:
        y = g.Tensor("", (1,), zero_point=s.zero_point)
        one_operator = None
        if isinstance(x, View) and s.one:
            one_operator = _function(imp, Table(x.shape, x.tensor, EVERY - x.tensor.zero_point), s)
        elif isinstance(x, Table) and s.one:
            one_operator = _function(imp, x, s)
        elif isinstance(x, Layer):
            one_operator = _layer(imp, x, s, y)
        elif isinstance(x, (Pair, Shares)):
            one_operator = _combined(imp, x, s, y)
        if one_operator is not None:
            return View(x.shape, one_operator)
    return _wide(imp, x, s)


def _function(imp: Tensors, x: Table, s: Shift) -> g.Tensor:
    """The shift of a function of an int8 tensor: R of the tensor where that gives the same integers, else a table."""
    t = x.tensor if len(x.tensor.shape) in (2, 4) else imp.rows(View(x.shape, x.tensor))
    stored = s.apply(x.integers) + s.zero_point
    slope = int(x.integers[1] - x.integers[0])
    ratio = _exact(s.factor.item() * slope, s.shift)
    identity = s.zero_point == t.zero_point and np.array_equal(stored, EVERY)
    if ratio is not None and not identity:
        same = requantise(EVERY - t.zero_point, *exact_multiplier(ratio), s.zero_point, *s.clamp)
        y = replace(t, name="", zero_point=s.zero_point, data=None)
        op = g.ShiftRequantize(s.node.name, (t,), y, *s.clamp, ratio=ratio)
        if np.array_equal(same, stored) and not ranges.problem(op):
            return imp.append(op)
    return imp.function(s.node, t, stored, s.zero_point)


def _combined(imp: Tensors, x: Pair | Shares, s: Shift, y: g.Tensor) -> g.Tensor | None:
    """The shift of a sum or product of tensors, or of a softmax, as one operator; None where R cannot compute it."""
    ratio = s.ratio(x.factor if isinstance(x, Pair) else 1)
    if ratio is None:
        return None
    if isinstance(x, Pair) and x.op == "MatMul":
        if s.clamp != (-128, 127):
            return None
        op: g.Operator = g.ShiftMatMul(x.node.name, (x.x, x.y), replace(y, shape=x.shape), ratio=ratio)
    elif isinstance(x, Shares):
        if x.numbers["levels"] > _LARGEST:
            return None
        facts = {**x.numbers, "low": s.clamp[0], "high": s.clamp[1]}
        op = g.IntegerSoftmax(x.node.name, (x.x,), replace(y, shape=x.x.shape), **facts, ratio=ratio)
    else:
        kind = g.ShiftAdd if x.op == "Add" else g.ShiftMul
        shape = tuple(np.broadcast_shapes(x.x.shape, x.y.shape))
        op = kind(x.node.name, (x.x, x.y), replace(y, shape=shape), *s.clamp, ratio=ratio)
    return None if ranges.problem(op) else imp.append(op)


def _layer(imp: Tensors, x: Layer, s: Shift, y: g.Tensor) -> g.Tensor | None:
    """The shift of a layer as R of `acc + bias` per output channel; None where R cannot compute it."""
    count, vectors = len(x.weight), [x.per_channel(array) for array in (s.factor, s.offset)]
    if vectors[0] is None or vectors[1] is None:
        return None
    factor, offset = (np.broadcast_to(vector, (count,)) for vector in vectors if vector is not None)
    ratios = [_exact(int(f), s.shift) for f in factor]
    if any(r is None for r in ratios) or (factor == 0).any() or (offset % factor).any():
        return None
    bias = x.bias + offset // factor
    if np.abs(bias).max() >= 1 << 31:
        return None
    layer = narrowed(x.weight), np.array([float(r or 0) for r in ratios]), bias.astype(np.int32), *s.clamp
    if x.geometry is None:
        op: g.Operator = g.QDense(x.node.name, (x.x,), replace(y, shape=(x.x.shape[0], count)), *layer, exact=True)
        return None if ranges.problem(op) else imp.append(op)
    y = replace(y, shape=imp.image_shape(x.shape))
    op = g.QConv2d(x.node.name, (x.x,), y, *layer, *x.geometry, exact=True)
    return None if ranges.problem(op) else imp.shaped(imp.append(op), x.shape)


def _wide(imp: Tensors, x: Value, s: Shift) -> Value:
    """The shift of an int32 tensor, on the host."""
    t, name = imp.whole(s.node, x), s.node.name
    dtype = "int8" if s.high - s.low < 256 else "int32"
    zero = s.zero_point if dtype == "int8" else 0
    y = g.Tensor("", t.shape, dtype, zero_point=zero)
    constants = imp.integers32(f"{name}.factor", s.factor), imp.integers32(f"{name}.offset", s.offset)
    shifted = imp.append(g.RequantShift(name, (t, *constants), y, s.shift, s.low, s.high))
    return View(x.shape, shifted) if dtype == "int8" else Numbers(x.shape, shifted)
