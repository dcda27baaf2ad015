"""Values of the tensors of a file while it is read: constants, tensors of the graph, float expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...runtime.hostops import floats as functions
from .. import graph as g
from .core import Node


@dataclass(eq=False)
class Value:
    """A tensor of the file; `shape` is its shape there."""

    shape: tuple[int, ...]


@dataclass(eq=False)
class Fixed(Value):
    """A constant array."""

    array: np.ndarray


@dataclass(eq=False)
class Weights(Value):
    """A dequantised constant: `(integers - zero) * scale`, with one scale, or one per index of `axis`."""

    integers: np.ndarray
    scale: np.ndarray
    zero: np.ndarray
    axis: int

    @property
    def real(self) -> np.ndarray:
        """float32: the values."""
        scale, zero = (
            a.reshape((-1,) + (1,) * (self.integers.ndim - self.axis - 1)) if a.size > 1 else a.reshape(())
            for a in (self.scale, self.zero)
        )
        return ((self.integers.astype(np.int64) - zero) * scale.astype(np.float32)).astype(np.float32)

    @property
    def centred(self) -> np.ndarray:
        """int64: the integers without their zero points."""
        zero = self.zero.astype(np.int64)
        return self.integers.astype(np.int64) - (
            zero.reshape((-1,) + (1,) * (self.integers.ndim - self.axis - 1)) if zero.size > 1 else zero.reshape(())
        )


@dataclass(eq=False)
class View(Value):
    """An int8 tensor of the graph, or its real values; `name` is the name of the node that dequantised it."""

    tensor: g.Tensor
    name: str = ""


@dataclass(eq=False)
class WideView(Value):
    """An int16 tensor of the graph, or its real values, as `View` is of int8; uint16 values are int16, 32768 less."""

    tensor: g.Tensor
    name: str = ""


@dataclass(eq=False)
class Numbers(Value):
    """A tensor of plain numbers of the graph: float32, integers or truth values."""

    tensor: g.Tensor


@dataclass(eq=False)
class Expr(Value):
    """Result number `index` of a float node on `args` (None: left out), computed once its users are known."""

    node: Node
    args: tuple[Value | None, ...]
    index: int = 0


@dataclass(eq=False)
class Broken(Value):
    """The output of a refused node; its users are not refused as well."""


def constant(value: Value | None) -> np.ndarray | None:
    """The value of a constant, dequantised or not; None of other values."""
    if isinstance(value, Weights):
        return value.real
    return value.array if isinstance(value, Fixed) else None


def signed(integers: np.ndarray) -> np.ndarray:
    """int8: uint8 values less 128, int8 values as they are."""
    return (integers.astype(np.int16) - (128 if integers.dtype == np.uint8 else 0)).astype(np.int8)


def channel_vector(array: np.ndarray, shape: tuple[int, ...], axis: int) -> np.ndarray | None:
    """One value per index of `axis` of an array that broadcasts to `shape`; None if it varies along other axes."""
    full = array.reshape((1,) * (len(shape) - array.ndim) + array.shape)
    if any(n > 1 for k, n in enumerate(full.shape) if k != axis):
        return None
    return np.broadcast_to(full.reshape(-1), (shape[axis],))


AFFINE = ("Add", "Div", "Mul", "Neg", "Sub")


class Affine(NamedTuple):
    """`factor * core + offset`; both are float64 and broadcast to the core's shape."""

    core: Value
    factor: np.ndarray
    offset: np.ndarray


def affine(value: Value) -> Affine:
    """`value` as an affine function of the innermost value that is no sum or product with a constant."""
    factor, offset = np.float64(1) * np.ones(()), np.zeros(())
    while isinstance(value, Expr) and value.node.op in AFFINE:
        op = value.node.op
        known = [constant(arg) for arg in value.args]
        if op == "Neg" and value.args[0] is not None:
            factor, value = -factor, value.args[0]
            continue
        index = next((k for k, c in enumerate(known) if c is not None), None)
        if index is None or len(known) != 2:
            break
        other, c = value.args[1 - index], np.asarray(known[index], np.float64)
        if other is None or known[1 - index] is not None or np.broadcast_shapes(other.shape, c.shape) != other.shape:
            break
        if op == "Mul":
            factor = factor * c
        elif op == "Div" and index == 1 and c.all():
            factor = factor / c
        elif op == "Add" or (op == "Sub" and index == 1):
            offset = offset + factor * (c if op == "Add" else -c)
        elif op == "Sub":
            factor, offset = -factor, offset + factor * c
        else:
            break
        value = other
    return Affine(value, factor, offset)


def clip_bounds(value: Expr) -> tuple[float, float] | None:
    """The bounds of a Relu or Clip; None of other operators, and of bounds that are not constant.

    Where the lower one is above the upper one, the upper one is both.
    """
    if value.node.op == "Relu":
        return 0.0, np.inf
    if value.node.op != "Clip":
        return None
    bounds = [-np.inf, np.inf]
    for k, key in enumerate(("min", "max")):
        arg = value.args[1 + k] if len(value.args) > 1 + k else None
        known = constant(arg)
        if arg is not None and (known is None or known.size != 1):
            return None
        if known is not None:
            bounds[k] = float(known.reshape(-1)[0])
        elif key in value.node.attrs:
            bounds[k] = float(value.node.attrs[key])
    return min(bounds), bounds[1]


def parameters(value: Expr) -> tuple[str, float, float]:
    """(function, alpha, beta) of a unary operator, of Clip the bounds, in float32's range."""
    node = value.node
    if node.op == "Clip":
        most = float(np.finfo(np.float32).max)
        low, high = clip_bounds(value) or (-most, most)
        return "Clip", max(low, -most), min(high, most)
    alpha, beta = functions.DEFAULTS.get(node.op, (0.0, 0.0))
    name = "GeluTanh" if node.op == "Gelu" and node.attrs.get("approximate", "none") == "tanh" else node.op
    return name, float(node.attrs.get("alpha", alpha)), float(node.attrs.get("beta", node.attrs.get("gamma", beta)))


def operands_first(value: Value, operands: Callable[[Expr], Sequence[Value | None]]) -> Iterator[Expr]:
    """The expressions in `value`, each once and after its `operands`; `value` itself comes last.

    The order is that of a depth-first search, without recursion: expressions are as deep as files make them.
    """
    seen: set[int] = set()
    pending: list[tuple[Value | None, bool]] = [(value, False)]
    while pending:
        top, complete = pending.pop()
        if not isinstance(top, Expr):
            continue
        if complete:
            yield top
        elif id(top) not in seen:
            seen.add(id(top))
            pending.append((top, True))
            pending += [(arg, False) for arg in reversed(operands(top))]


def _elementwise(value: Value | None, shape: tuple[int, ...]) -> tuple[Value | None, ...]:
    """The operands of an element-wise function whose result has the shape, without the bounds of Clip; else none."""
    if not isinstance(value, Expr) or value.shape != shape:
        return ()
    if value.node.op == "Clip":
        return value.args[:1] if clip_bounds(value) is not None else ()
    return value.args if value.node.op in functions.UNARY or value.node.op in functions.BINARY else ()


def single_view(value: Expr) -> View | None:
    """The one int8 tensor that an element-wise expression depends on; None if there are others, or constants per
    channel."""
    view: View | None = None
    shape = value.shape
    for part in operands_first(value, lambda part: _elementwise(part, shape)):
        for leaf in _elementwise(part, shape) or (part,):
            known = constant(leaf)
            if leaf is None or _elementwise(leaf, shape) or (known is not None and known.size == 1):
                continue
            if not isinstance(leaf, View) or leaf.tensor.name != (view or leaf).tensor.name:
                return None
            view = view or leaf
    return view if view is not None and view.shape == shape else None


def evaluated(value: Expr, x: np.ndarray) -> np.ndarray:
    """float32: the values of an element-wise expression whose int8 tensor has the real values `x`."""
    known: dict[int, np.ndarray] = {}

    def operand(arg: Value | None) -> np.ndarray:
        scalar = constant(arg)
        return known.get(id(arg), x) if scalar is None else scalar.reshape(-1)[0].astype(np.float32)

    for part in operands_first(value, lambda part: _elementwise(part, value.shape)):
        if part.node.op in functions.UNARY:
            known[id(part)] = functions.unary(operand(part.args[0]), *parameters(part))
        else:
            first, second = (np.asarray(operand(arg)) for arg in part.args[:2])
            known[id(part)] = functions.binary(first, second, part.node.op)
    return known[id(value)]


def steps(value: float, y: g.Tensor) -> int:
    """The int8 step of a real value in the quantisation of `y`: the nearest, ties to even."""
    return int(np.clip(np.rint(np.float32(value) / np.float32(y.scale)) + y.zero_point, -128, 127))
