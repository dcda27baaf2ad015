"""What the nodes of a file in Deeploy's dialect stand for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .... import graph as g
from ...dialect import DEEPLOY
from ..geometry import convolution
from ..moves import MOVES, moved
from ..nodes import ALIASES, Node
from ..values import Fixed, Problem, Value, View
from .forms import FORMS
from .requantise import requantised
from .tensors import Tensors
from .values import (
    EVERY,
    Convolution,
    Integers,
    Layer,
    Moved,
    Pair,
    Products,
    Shares,
    Table,
    attribute,
    given,
    whole,
)
from .wide import Integer, division, no_norm, reduction, shares

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


def _on_integers(imp: Tensors, node: Node, function: str, *args: Value) -> Integers:
    """An operator on int32 tensors."""
    x, y = (imp.whole(node, arg) for arg in args)
    shape = np.broadcast_shapes(x.shape, y.shape)
    op = g.NumberBinary(node.name, (x, y), g.Tensor("", shape, "int32"), function)
    return Integers(shape, imp.append(op))


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
    return [Integers(shape, imp.append(g.IntegerMatMul(node.name, wide, g.Tensor("", shape, "int32"))))]


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
    return [Integers(shape, Integer(imp, node).binary("add", sums, bias))]


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
    return [Integers(x.shape, found)]


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
        return [Integers(shape, imp.append(g.Concat(node.name, whole32, g.Tensor("", shape, "int32"), axis)))]
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
        elif isinstance(x, Integers):
            found.append(Integers(shape, moved(imp, node, index, x.tensor)))
        else:
            found.append(Moved(shape, node, index, x))
    return found


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
assert set(DEEPLOY) <= {*OPERATORS, *FORMS}
