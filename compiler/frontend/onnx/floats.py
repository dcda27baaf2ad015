"""Float expressions without an integer form, and networks that are not quantised, as float32 operators of the graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ....runtime.hostops import floats as functions
from ... import graph as g
from ..core import Problem
from ..values import (
    Expr,
    Fixed,
    Numbers,
    Value,
    View,
    Weights,
    WideView,
    clip_bounds,
    constant,
    operands_first,
    parameters,
)
from . import geometry
from .movements import MOVES, moved
from .nodes import BILINEAR, Reader, Reading
from .recurrent import PLAIN
from .wide import wide_layer


class Floats(Reading):
    """A reading that computes values in float32, each once."""

    def __init__(self, reader: Reader, outputs: Sequence[str]):
        super().__init__(reader, outputs)
        self.floats: dict[int, tuple[Value, g.Tensor]] = {}  # realised, by id

    def realised(self, value: Value, wanted: str = "") -> g.Tensor:
        """The float32 tensor of a value; `wanted` is its name where it is an output of the graph."""
        known = self.floats.get(id(value))
        if known is not None:
            return known[1] if not wanted else self.reshape(f"{wanted}.copy", known[1], known[1].shape, wanted)
        missing = operands_first(value, lambda part: [arg for arg in part.args if id(arg) not in self.floats])
        for part in (*missing, value):  # so that `_made` finds all expressions that it reads, and does not recurse
            if id(part) not in self.floats:
                self.floats[id(part)] = part, _made(self, part, wanted if part is value else "")
        return self.floats[id(value)][1]


Make = Callable[[Floats, Expr, str], g.Tensor]


def _made(imp: Floats, value: Value, wanted: str) -> g.Tensor:
    if isinstance(value, Numbers):
        return value.tensor if not wanted else imp.reshape(f"{wanted}.copy", value.tensor, value.shape, wanted)
    if isinstance(value, (View, WideView)):
        y = g.Tensor("", value.shape, "float32")
        return imp.append(g.Dequantize(value.name or f"{value.tensor.name}.float", (value.tensor,), y), wanted)
    if isinstance(value, (Fixed, Weights)):
        t = imp.constant("constant", np.asarray(constant(value), np.float32))
        return t if not wanted else imp.reshape(f"{wanted}.copy", t, t.shape, wanted)
    assert isinstance(value, Expr)
    if value.node.op in MOVES:
        (x, *_) = value.args
        assert x is not None
        return moved(imp, value.node, value.index, imp.realised(x), wanted)
    wide = wide_layer(imp, value, wanted)
    return FLOATS[value.node.op](imp, value, wanted) if wide is None else wide


def _y(value: Expr) -> g.Tensor:
    return g.Tensor("", value.shape or (1,), "float32")


def _operands(imp: Floats, value: Expr) -> tuple[g.Tensor, ...]:
    return tuple(imp.realised(arg) for arg in value.args if arg is not None)


def _plain(make: Callable[..., g.Operator]) -> Make:
    """The operator that `make` makes of the importer, the expression, the output and the operands."""
    return lambda imp, value, wanted: imp.append(make(imp, value, _y(value), _operands(imp, value)), wanted)


def _unary(imp: Floats, value: Expr, y: g.Tensor, operands: tuple[g.Tensor, ...]) -> g.Operator:
    if value.node.op == "Clip" and clip_bounds(value) is None:
        raise Problem(value.node, "has bounds that are not constant")
    return g.FloatFunction(value.node.name, operands[:1], y, *parameters(value))


def _softmax(imp: Floats, value: Expr, y: g.Tensor, operands: tuple[g.Tensor, ...]) -> g.Operator:
    node = value.node
    return g.FloatSoftmax(node.name, operands, y, node.attrs["axis"], node.op == "LogSoftmax")


def _gemm(imp: Floats, value: Expr, wanted: str) -> g.Tensor:
    node, (a, b, *c) = value.node, value.args
    assert a is not None and b is not None
    x, w = imp.realised(a), imp.realised(b)
    if node.attrs.get("transA", 0):
        x = imp.append(g.Transpose(f"{node.name}.a", (x,), g.Tensor("", x.shape[::-1], "float32"), (1, 0)))
    if node.attrs.get("transB", 0):
        w = imp.append(g.Transpose(f"{node.name}.b", (w,), g.Tensor("", w.shape[::-1], "float32"), (1, 0)))
    alpha, beta = node.attrs.get("alpha", 1.0), node.attrs.get("beta", 1.0)
    added = c[0] if c and beta else None

    def scaled(name: str, t: g.Tensor, key: str, factor: float, wanted: str = "") -> g.Tensor:
        if factor == 1:
            return t
        constant, y = imp.constant(f"{node.name}.{key}", np.array(factor, np.float32)), g.Tensor("", t.shape, "float32")
        return imp.append(g.FloatBinary(f"{node.name}.{name}", (t, constant), y, "Mul"), wanted)

    if alpha == 1 and added is None:
        return imp.append(g.FloatMatMul(node.name, (x, w), _y(value)), wanted)
    y = imp.append(g.FloatMatMul(f"{node.name}.product", (x, w), _y(value)))
    y = scaled("scaled", y, "alpha", alpha, wanted if added is None else "")
    if added is None:
        return y
    z = scaled("biases", imp.realised(added), "beta", beta)
    return imp.append(g.FloatBinary(node.name, (y, z), _y(value), "Add"), wanted)


def _weights(imp: Floats, value: Expr) -> tuple[np.ndarray, np.ndarray]:
    """(weights, biases) of a convolution, float32."""
    node, weight = value.node, constant(value.args[1])
    bias = constant(value.args[2]) if len(value.args) > 2 and value.args[2] is not None else np.zeros(1)
    if weight is None or bias is None:
        raise Problem(node, "has weights or biases that are not constant")
    if weight.ndim not in (3, 4) or weight.ndim != len(value.shape):
        raise Problem(node, f"has weights of {weight.ndim} dimensions; only 3 and 4 are supported")
    if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
        raise Problem(node, "has weights or biases that are not finite")
    channels = value.shape[1]
    return (
        np.ascontiguousarray(weight.reshape(imp.image_shape(weight.shape)), np.float32),
        np.ascontiguousarray(np.broadcast_to(bias, (channels,)), np.float32),
    )


def _conv(imp: Floats, value: Expr, wanted: str) -> g.Tensor:
    node, (first, second, *_) = value.node, value.args
    assert first is not None and second is not None
    weight, bias = _weights(imp, value)
    find = geometry.convolution if node.op == "Conv" else geometry.transposed
    shape = find(imp, node, first.shape, second.shape)
    if node.op == "Conv" and first.shape[1] != weight.shape[1] * shape.groups:
        raise Problem(node, f"has {first.shape[1]} input channels, its weights have {weight.shape[1] * shape.groups}")
    cls = g.FloatConv2d if node.op == "Conv" else g.FloatConvTranspose2d
    y = g.Tensor("", imp.image_shape(value.shape), "float32")
    image = imp.image(node.name, imp.realised(first))
    return imp.plain(cls(node.name, (image,), y, weight, bias, *shape), value.shape, wanted)


def _average_pool(imp: Floats, value: Expr, wanted: str) -> g.Tensor:
    node, x = value.node, value.args[0]
    assert x is not None
    counts = bool(node.attrs.get("count_include_pad", 0))
    if max(node.attrs.get("dilations", [1])) > 1 or (counts and node.attrs.get("ceil_mode", 0)):
        raise Problem(node, "has dilations, or ceil_mode with padding that counts, which are not supported")
    y = g.Tensor("", imp.image_shape(value.shape), "float32")
    image = imp.image(node.name, imp.realised(x))
    by_columns = imp.reader.opset < 19  # as onnxruntime's kernels do
    op = g.FloatAveragePool(node.name, (image,), y, *geometry.window(imp, node, x.shape), counts, by_columns)
    return imp.plain(op, value.shape, wanted)


def _resized(imp: Floats, value: Expr, wanted: str) -> g.Tensor:
    x, *places = value.args
    assert x is not None
    rows, row_weights, columns, column_weights = (place.array for place in places if isinstance(place, Fixed))
    facts = rows, columns, row_weights, column_weights
    return imp.append(g.FloatResize(value.node.name, (imp.realised(x),), _y(value), *facts), wanted)


def _lstm(imp: Floats, value: Expr, wanted: str) -> g.Tensor:
    """LSTM of default activations, from zeros on, in one direction or both; its hidden values of all steps."""
    node, x, parts = value.node, value.args[0], [constant(arg) for arg in value.args[1:]]
    weight, recurrence, bias, *others = (*parts, None, None, None)
    started = any(
        arg is not None and (hidden_states is None or hidden_states.any())
        for arg, hidden_states in zip(value.args[4:], others)
    )
    if value.index or started or not node.attrs.keys() <= PLAIN:
        raise Problem(
            node, "has lengths or attributes that are not supported, or with first or last values too many steps"
        )
    if weight is None or recurrence is None or (len(value.args) > 3 and value.args[3] is not None and bias is None):
        raise Problem(node, "has weights or biases that are not constant")
    assert x is not None
    t, (count, ways, n, hidden), hidden_states = imp.realised(x), value.shape, list[g.Tensor]()
    for k in range(ways):
        sums = np.zeros(4 * hidden) if bias is None else bias[k].reshape(2, -1).sum(0)
        w, r, b = (np.ascontiguousarray(part, np.float32) for part in (weight[k], recurrence[k], sums))
        reverse = k == 1 or node.attrs.get("direction", "forward") == "reverse"
        y = g.Tensor("", (count, n, hidden), "float32")
        h = imp.append(g.FloatLstm(f"{node.name}.{k}", (t,), y, w, r, b, reverse))
        hidden_states.append(imp.reshape(f"{node.name}.{k}.way", h, (count, 1, n, hidden), wanted if ways == 1 else ""))
    return (
        hidden_states[0] if ways == 1 else imp.append(g.Concat(node.name, tuple(hidden_states), _y(value), 1), wanted)
    )


FLOATS: dict[str, Make] = {
    **dict.fromkeys((name for name in functions.UNARY if name != "GeluTanh"), _plain(_unary)),
    **dict.fromkeys(functions.BINARY, _plain(lambda imp, v, y, xs: g.FloatBinary(v.node.name, xs, y, v.node.op))),
    **dict.fromkeys(
        functions.REDUCTIONS,
        _plain(lambda imp, v, y, xs: g.FloatReduce(v.node.name, xs[:1], y, v.node.op, imp.axes(v.node))),
    ),
    "AveragePool": _average_pool,
    BILINEAR: _resized,
    "Concat": _plain(lambda imp, v, y, xs: g.Concat(v.node.name, xs, y, v.node.attrs["axis"] % len(v.shape))),
    "Conv": _conv,
    "ConvTranspose": _conv,
    "Gemm": _gemm,
    "LSTM": _lstm,
    "LogSoftmax": _plain(_softmax),
    "MatMul": _plain(lambda imp, v, y, xs: g.FloatMatMul(v.node.name, xs[:2], y)),
    "Softmax": _plain(_softmax),
}
