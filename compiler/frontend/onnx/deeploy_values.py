"""The values of a file in Deeploy's dialect, and their tensors in the graph: int8 where they have the bits, else int32.

Sums and products have more bits than int8 until a RequantShift takes them. Until then they are values that name their
operands, so that the shift and the operator become one.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from onnx import TensorProto, numpy_helper

from ... import graph as g
from ..core import Node, Problem, like
from ..linear import reach
from ..moves import around, padded, turned
from ..values import Expr, Fixed, Numbers, Value, View
from .geometry import Geometry
from .movements import moved
from .nodes import Reader, Reading

EVERY = np.arange(-128, 128)  # int8 values


@dataclass(eq=False)
class Table(Value):
    """A function of one int8 tensor: `integers`, int64 (256,), by the stored values from -128 on."""

    tensor: g.Tensor
    integers: np.ndarray


@dataclass(eq=False)
class Layer(Value):
    """Sums of products of int8 values and constant weights, int64, plus biases, int64 (O,).

    A dense layer has rows x (N, I) and weights (O, I). With a `geometry` it is a convolution of images x (N, C, H, W)
    by weights (O, I, KH, KW).
    """

    node: Node
    x: g.Tensor
    weight: np.ndarray
    bias: np.ndarray
    geometry: Geometry | None = None

    def per_channel(self, array: np.ndarray) -> np.ndarray | None:
        """(1,) or (O,): the values of `array`, which broadcasts to the result, if it varies only along channels."""
        full = array.reshape((1,) * (len(self.shape) - array.ndim) + array.shape)
        count = full.shape[-1 if self.geometry is None else 1]
        return full.reshape(-1) if array.size == count and count in (1, len(self.weight)) else None


@dataclass(eq=False)
class Pair(Value):
    """`factor` times the sums, products or matrix products, by the node's operator `op`, of two int8 tensors."""

    node: Node
    op: str
    x: g.Tensor
    y: g.Tensor
    factor: int = 1


@dataclass(eq=False)
class Shares(Value):
    """An iSoftmax of an int8 or int32 tensor: 0..levels-1."""

    node: Node
    x: g.Tensor
    numbers: dict[str, int]


def unmoved(value: Value) -> tuple[list[Expr], Value]:
    """(movements of a value in their order, the value that they move); all expressions of the dialect are movements."""
    moves: list[Expr] = []
    while isinstance(value, Expr):
        moves.append(value)
        (value,) = filter(None, value.args)
    return moves[::-1], value


_SAME = {"n_levels": "n_levels_out", "n_levels_out": "n_levels"}  # attributes that are called either way


def attribute(node: Node, name: str) -> int:
    """The integer of an attribute, which may be a number or a tensor of one.

    Raises `Problem` where it is missing, or no integer.
    """
    value = node.attrs.get(name, node.attrs.get(_SAME.get(name, name)))
    if value is None:
        raise Problem(node, f"has no attribute {name!r}")
    array = numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)
    if array.size != 1:
        raise Problem(node, f"has {array.size} values of {name!r}; 1 is needed")
    return int(whole(node, array, name).reshape(-1)[0])


Handler = Callable[..., "Value | list[Value]"]


def call(function: Handler, imp: Tensors, node: Node, args: list[Value | None]) -> list[Value]:
    """The values of the outputs of a node, by the function of its operator.

    Its positional parameters are inputs: values, or int64 arrays of constants, which errors name after the parameter.
    Its keywords are attributes of integers. Raises `Problem` where the node lacks one without a default.
    """
    _, _, *parameters = inspect.signature(function).parameters.values()
    inputs, attrs = list[object](), dict[str, int]()
    for k, parameter in enumerate(parameters):
        known = parameter.default is not parameter.empty
        if parameter.kind is parameter.KEYWORD_ONLY:
            if not known or {parameter.name, _SAME.get(parameter.name)} & node.attrs.keys():
                attrs[parameter.name] = attribute(node, parameter.name)
        elif parameter.kind is parameter.VAR_POSITIONAL:
            inputs += args[k:]
        elif k >= len(args) or args[k] is None:
            if not known:
                count = sum(p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty for p in parameters)
                raise Problem(node, f"has {sum(arg is not None for arg in args)} inputs; {count} are needed")
            inputs.append(parameter.default)
        elif parameter.annotation == "np.ndarray":
            inputs.append(constants(node, args[k], parameter.name))
        else:
            inputs.append(args[k])
    result = function(imp, node, *inputs, **attrs)
    return result if isinstance(result, list) else [result]


def constants(node: Node, value: Value | None, what: str) -> np.ndarray:
    """int64: a constant of integers. Raises `Problem` for other values."""
    if not isinstance(value, Fixed):
        raise Problem(node, f"has {what} that are not constant")
    return whole(node, value.array, what)


def whole(node: Node, array: np.ndarray, what: str) -> np.ndarray:
    """int64: an array of integers of at most 32 bits, whatever its type. Raises `Problem` for others."""
    if array.dtype.kind not in "biuf":
        raise Problem(node, f"has {what} of type {array.dtype}, which are no integers")
    with np.errstate(invalid="ignore"):  # numbers that are none
        values = array.astype(np.float64)
    wrong = values[~(np.isfinite(values) & (values == np.rint(values)) & (np.abs(values) < 2.0**31))]
    if wrong.size:
        raise Problem(node, f"has {what} of {wrong[0]:g}, which is no integer of 32 bits")
    return values.astype(np.int64)


UNSIGNED = -128  # zero point of values from 0 on, which are stored less 128
_RESHAPES = ("Flatten", "Reshape", "Squeeze", "Unsqueeze")


class Tensors(Reading):
    """A builder that makes tensors of values.

    The tensor of a `View` may be in rows, (N, D) for the shape (..., D) in the file: dense layers and norms are.
    """

    def __init__(self, reader: Reader, outputs: list[str]):
        super().__init__(reader, outputs)
        self._shaped: dict[tuple[str, tuple[int, ...]], g.Tensor] = {}
        self._sums: dict[int, tuple[Layer, g.Tensor]] = {}  # of convolutions, by id

    def natural(self, view: View) -> g.Tensor:
        """The tensor in the shape that it has in the file."""
        return self.shaped(view.tensor, view.shape)

    def rows(self, view: View) -> g.Tensor:
        """The tensor as rows, (N, D)."""
        shape = view.shape or (1,)
        return self.shaped(view.tensor, (math.prod(shape[:-1]), shape[-1]))

    def shaped(self, t: g.Tensor, shape: tuple[int, ...]) -> g.Tensor:
        """`t` in another shape, which is made once."""
        if (t.name, shape) not in self._shaped:
            self._shaped[t.name, shape] = self.reshape(f"{t.name}.shape", t, shape)
        return self._shaped[t.name, shape]

    def integers32(self, name: str, array: np.ndarray) -> g.Tensor:
        """A constant int32 operand, of rank 1 where it is a scalar."""
        return self.constant(name, np.asarray(array).astype(np.int32))

    def constant8(self, node: Node, value: Fixed) -> g.Tensor | None:
        """A constant operand as int8; None where it has more bits."""
        array = whole(node, value.array, "constants")
        if array.size == 0 or array.min() < -128 or array.max() > 127:
            return None
        return self.constant(f"{node.name}.constant", array.astype(np.int8), g.Tensor("", (1,)))

    def narrow(self, node: Node, value: Value) -> View | None:
        """The value as an int8 tensor; None where it has more bits. `node` reads it."""
        moves, value = unmoved(value)
        view = self._narrow(node, value)
        return None if view is None else self.after(view, moves)

    def after(self, view: View, moves: Sequence[Expr]) -> View:
        """An int8 tensor after movements."""
        for move in moves:
            view = self.moved_view(move.node, move.index, view)
        return view

    def _narrow(self, node: Node, value: Value) -> View | None:
        if isinstance(value, View):
            return value
        if isinstance(value, Table):
            for zero in (0, UNSIGNED):
                stored = value.integers + zero
                if stored.min() >= -128 and stored.max() <= 127:
                    return View(value.shape, self.function(node, value.tensor, stored, zero))
        if isinstance(value, Shares):
            y = replace(value.x, name="", dtype="int8", zero_point=UNSIGNED, data=None)
            levels = value.numbers["levels"]
            if levels <= 256:
                op = g.IntegerSoftmax(value.node.name, (value.x,), y, **value.numbers, high=levels - 129)
                return View(value.shape, self.append(op))
        return None

    def function(self, node: Node, x: g.Tensor, stored: np.ndarray, zero: int) -> g.Tensor:
        """A function of each stored value of `x`: nothing, a product with a fraction, or a table."""
        if zero == x.zero_point and np.array_equal(stored, EVERY):
            return x
        y = replace(x, name="", zero_point=zero, data=None)
        return self.append(g.Lookup(node.name, (x,), y, node.op, stored.astype(np.int8)))

    def moved_view(self, node: Node, index: int, view: View) -> View:
        """An int8 tensor after a node that moves values."""
        shape = self.shape(node, node.outputs[index])
        if node.op in _RESHAPES:
            return View(shape, view.tensor if view.tensor.shape == shape else self.shaped(view.tensor, shape))
        return View(shape, moved(self, node, index, self.natural(view)))

    def whole(self, node: Node, value: Value) -> g.Tensor:
        """The value as an int32 tensor in the shape of the file. `node` reads it. Raises `Problem`."""
        name = f"{node.name}.integers"
        if isinstance(value, Numbers):
            return value.tensor
        if isinstance(value, Fixed):
            return self.integers32(f"{node.name}.constant", whole(node, value.array, "constants"))
        if isinstance(value, View):
            return self.widened(name, self.natural(value))
        if isinstance(value, Table):
            x = self.shaped(value.tensor, value.shape)
            place = self.binary(name, "sub", self._cast(name, x), self.integers32(name, np.array(-128)))
            y = replace(place, name="", data=None)
            return self.append(g.Gather(name, (self.integers32(name, value.integers), place), y, 0))
        if isinstance(value, Layer):
            return self.sums(value)
        if isinstance(value, Pair) and value.op == "MatMul":
            return self.products(value.node.name, value.x, value.y)
        if isinstance(value, Pair):
            x, y = (self.widened(name, t) for t in (value.x, value.y))
            total = self.binary(value.node.name, value.op.lower(), x, y)
            if value.factor != 1:
                total = self.binary(name, "mul", total, self.integers32(name, np.array(value.factor)))
            return self.shaped(total, value.shape)
        if isinstance(value, Expr):
            moves, value = unmoved(value)
            t = self.whole(node, value)
            for move in moves:
                t = moved(self, move.node, move.index, t)
            return t
        if (view := self.narrow(node, value)) is not None:
            return self.whole(node, view)
        raise Problem(node, "has an input that is not supported")

    def sums(self, value: Layer) -> g.Tensor:
        """The int32 sums of a layer in the shape of the file; a convolution is computed once for all its readers."""
        name = f"{value.node.name}.integers"
        if value.geometry is None:
            weight = self.integers32(f"{value.node.name}.weight", value.weight.T)
            total = self.products(value.node.name, value.x, weight)
            biased = self.binary(name, "add", total, self.integers32(name, value.bias)) if value.bias.any() else total
            return self.shaped(biased, value.shape)
        if id(value) not in self._sums:
            self._sums[id(value)] = value, convolved(self, value, value.geometry)
        return self._sums[id(value)][1]

    def widened(self, name: str, t: g.Tensor) -> g.Tensor:
        """The values of an int8 tensor in int32, without its zero point."""
        x = self._cast(name, t) if t.data is None else self.integers32(name, t.data.astype(np.int64))
        return self.binary(name, "sub", x, self.integers32(name, np.array(t.zero_point))) if t.zero_point else x

    def _cast(self, name: str, t: g.Tensor) -> g.Tensor:
        return self.append(g.Cast(name, (t,), g.Tensor("", t.shape, "int32")))

    def products(self, name: str, x: g.Tensor, y: g.Tensor) -> g.Tensor:
        """int32 sums of products: rows of `x` by columns of `y`."""
        a, b = (self.widened(name, t) if t.zero_point else t for t in (x, y))
        shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
        return self.append(g.IntegerMatMul(name, (a, b), g.Tensor("", shape, "int32")))

    def binary(self, name: str, function: str, x: g.Tensor, y: g.Tensor, dtype: str = "int32") -> g.Tensor:
        """`function` of two tensors of integers, of type `dtype`."""
        shape = np.broadcast_shapes(x.shape, y.shape)
        return self.append(g.NumberBinary(name, (x, y), g.Tensor("", shape, dtype), function))


def windows(imp: Tensors, name: str, x: g.Tensor, kernel: Sequence[int], geometry: Geometry, fill: int) -> g.Tensor:
    """The pixels of all windows of images x (N, C, H, W), padded with `fill`: (N, C, KH, rows, KW, columns)."""
    if any(geometry.pads):
        x = padded(imp, f"{name}.padded", x, around(geometry.pads), float(fill))
    extents = reach(kernel, geometry.dilations)
    sizes = [(size - r) // s + 1 for size, r, s in zip(x.shape[2:], extents, geometry.strides)]
    pixels = [
        tuple(k * d + i * s for k in range(count) for i in range(size))
        for count, size, s, d in zip(kernel, sizes, geometry.strides, geometry.dilations)
    ]
    if any(taken != tuple(range(size)) for taken, size in zip(pixels, x.shape[2:])):
        y = like(x, f"{name}.windows", (*x.shape[:2], *map(len, pixels)))
        x = imp.add(g.Take, (x,), y, ((), (), *pixels))
    return imp.shaped(x, (*x.shape[:2], kernel[0], sizes[0], kernel[1], sizes[1]))


def convolved(imp: Tensors, value: Layer, geometry: Geometry) -> g.Tensor:
    """The sums of a convolution: one product of matrices for each group, on all windows of the padded images."""
    node, (outputs, _, *kernel) = value.node, value.weight.shape
    taps = windows(imp, node.name, value.x, kernel, geometry, value.x.zero_point)
    groups, (n, c, _, height, _, width) = geometry.groups, taps.shape
    if kernel != [1, 1]:
        taps = turned(imp, f"{node.name}.taps", taps, (0, 1, 2, 4, 3, 5))
    columns = imp.shaped(taps, (n, groups, c // groups * math.prod(kernel), height * width))
    weight = value.weight.reshape(groups, outputs // groups, -1)
    matrix = imp.constant8(node, Fixed(weight.shape, weight)) or imp.integers32(f"{node.name}.weight", weight)
    total = imp.shaped(imp.products(node.name, matrix, columns), value.shape)
    if not value.bias.any():
        return total
    bias = value.bias.reshape(-1, *[1] * (len(value.shape) - 2))
    return imp.binary(node.name, "add", total, imp.integers32(f"{node.name}.bias", bias))
