"""Float expressions with quantised operands that have an integer form: layers, sums, products, softmax, means, tables.

`Quantiser` takes movements and clamps off the expression that a QuantizeLinear takes. A form gets the rest and appends
operators that produce the quantised result. It returns None where it does not apply: the host then computes in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from ....runtime.hostops.reductions import MOST_PLACES
from ... import graph as g
from ...graph import ranges
from ..core import Node, Problem
from ..linear import is_unit
from ..moves import around, padded
from ..source import SINGLE
from ..values import (
    Expr,
    Fixed,
    Value,
    View,
    Weights,
    affine,
    channel_vector,
    clip_bounds,
    constant,
    evaluated,
    operands_first,
    signed,
    single_view,
    steps,
)
from . import geometry
from .floats import Floats
from .geometry import window
from .movements import MOVES, moved
from .nodes import Beyond, Reader
from .weights import dense_weights, int8_parts, of_bytes, repeated, scaled

_EXACT = 1e-5  # largest distance of a bound from an integer, in steps
LINEAR = ("Conv", "ConvTranspose", "Gemm", "MatMul")
# distance from a tie in steps of the output, the share of such sums, and the most sums that are looked at
_NEAR_TIE, _TIES, _SUMS = 2.0**-15, 2.0**-10, 1 << 16
_INT32 = np.iinfo(np.int32)
_UNEVEN = 2.0**-10  # distance from a whole number of units that a bias may have
_UNIT = 127  # the largest weight of a channel that is only scaled


@dataclass(frozen=True, eq=False)
class Result:
    """The result of a QuantizeLinear on a float expression: a tensor quantised as `y`, clamped to `clamp`.

    `wanted` is its name if it is an output of the graph, else empty; `top` is the last node before the quantisation.
    """

    y: g.Tensor
    clamp: tuple[int, int]
    wanted: str
    top: Node

    @property
    def whole(self) -> bool:
        """True if nothing is clamped."""
        return self.clamp == (-128, 127)


class Quantiser(Floats):
    """A reading that computes values as int8 tensors: by the first form that applies, else from float32."""

    def __init__(self, reader: Reader, outputs: Sequence[str]):
        super().__init__(reader, outputs)
        self.views: dict[int, tuple[Value, View | None]] = {}  # found by `as_view`, by id
        self.integer_means: dict[str, bool] = {}  # pools of another format that divide integers; whether ties go up
        self.quantised: dict[tuple[int, float, int], tuple[Value, g.Tensor]] = {}  # by id, scale and zero point
        self.joins: dict[tuple[int, float, int], tuple[Value, list[g.Tensor]]] = {}  # by id, scale and zero point

    def quantise(self, value: Value, y: g.Tensor, node: Node, wanted: str = "") -> g.Tensor:
        """`value` as an int8 tensor quantised as `y`; `node` names an operator that only quantises.

        Movements and clamps of a float expression are taken off: they come after quantisation, and with it.
        """
        key = id(value), y.scale, y.zero_point
        if key in self.quantised and not wanted:  # onnxruntime's quantiser may write one QuantizeLinear per reader
            return self.quantised[key][1]
        for part in operands_first(value, lambda part: self._unjoined(part, y)):  # so that `joined` does not recurse
            self.joined(_bare(part).core, y)
        core, low, high, moves, top = _bare(value)
        clamp = steps(low, y), steps(high, y)
        result = Result(replace(y, shape=core.shape), clamp, "" if moves else wanted, top or node)
        t = self._quantised(core, result, node.name)
        for k, move in enumerate(reversed(moves)):
            t = moved(self, move.node, move.index, t, wanted if k == len(moves) - 1 else "")
        self.quantised[key] = value, t
        return t

    def _unjoined(self, value: Expr, y: g.Tensor) -> Sequence[Value | None]:
        """The operands of the Concat below `value` that are not quantised as `y` yet."""
        core = _bare(value).core
        if not isinstance(core, Expr) or core.node.op != "Concat" or (id(core), y.scale, y.zero_point) in self.joins:
            return ()
        return core.args

    def joined(self, value: Value, y: g.Tensor) -> list[g.Tensor]:
        """The operands of a Concat, quantised as `y`, which is done once; none of another value."""
        if not isinstance(value, Expr) or value.node.op != "Concat":
            return []
        key, node = (id(value), y.scale, y.zero_point), value.node
        if key not in self.joins:
            self.joins[key] = value, []
            for k, arg in enumerate(value.args):
                assert arg is not None
                part = Node("Concat", f"{node.name}.{k}", [], [])
                try:
                    self.joins[key][1].append(self.quantise(arg, replace(y, shape=arg.shape), part))
                except Problem as exc:
                    raise Problem(node if exc.node is part else exc.node, exc.why) from None
        return self.joins[key][1]

    def _quantised(self, value: Value, result: Result, name: str) -> g.Tensor:
        y = result.y
        if isinstance(value, View):
            x = value.tensor
            if (x.scale, x.zero_point) == (y.scale, y.zero_point) and result.whole:
                return x
            with suppress(Beyond):
                op = g.NearestRequantize(result.top.name, (x,), y, *result.clamp)
                return self.checked(result.top, op, result.wanted)
        if isinstance(value, (Fixed, Weights)):
            real = np.asarray(constant(value), np.float32)
            steps = np.clip(np.rint(real / np.float32(y.scale)) + y.zero_point, *result.clamp)
            return self.constant(f"{name}.constant", steps.astype(np.int8), y)
        if isinstance(value, Expr):
            with suppress(Beyond):
                for form in FORMS:
                    if (quantised := form(self, value, result)) is not None:
                        return quantised
        t = g.Quantize(name, (self.realised(value),), replace(y, shape=value.shape))
        if result.whole:
            return self.append(t, result.wanted)
        x = self.append(t)
        return self.append(g.NearestRequantize(result.top.name, (x,), y, *result.clamp), result.wanted)

    def as_view(self, value: Value | None) -> View | None:
        """An int8 tensor of exactly the values of `value`, which may be clamped or multiplied, if there is one."""
        clamps: list[Expr] = []
        while isinstance(value, Expr) and id(value) not in self.views and clip_bounds(value) is not None:
            clamps.append(value)
            value = value.args[0]
        if isinstance(value, Expr) and id(value) not in self.views:
            self.views[id(value)] = value, self._exact(value, None)
        view = self.views[id(value)][1] if isinstance(value, Expr) else value if isinstance(value, View) else None
        for clamp in reversed(clamps):
            view = self._exact(clamp, view)
            self.views[id(clamp)] = clamp, view
        return view

    def _exact(self, value: Expr, x: View | None) -> View | None:
        """`as_view` of an expression; `x` is the view of the operand of a clamp."""
        node, bounds = value.node, clip_bounds(value)
        if bounds is not None and x is not None:
            t = x.tensor
            real = [(np.float64(steps(b, t)) - t.zero_point) * t.scale for b in bounds]
            if any(np.isfinite(b) and abs(b - r) > _EXACT * t.scale for b, r in zip(bounds, real)):
                return None
            y = replace(t, name="", data=None)
            op = g.NearestRequantize(node.name, (t,), y, *(steps(b, t) for b in bounds))
            return View(value.shape, self.append(op), node.name)
        core, factor, offset = affine(value)
        if isinstance(core, View) and factor.size == 1 and factor.item() > 0 and not offset.any():
            t = core.tensor
            y = g.Tensor("", t.shape, "int8", t.scale * factor.item(), t.zero_point)
            return View(value.shape, self.relabelled(node, t, y), node.name)
        return None

    def relabelled(self, node: Node, t: g.Tensor, y: g.Tensor) -> g.Tensor:
        """Reinterpret int8 values under another scale or zero point; no value changes."""
        if (t.scale, t.zero_point) == (y.scale, y.zero_point):
            return t
        same = np.arange(-128, 128).astype(np.int8)
        return self.append(g.Lookup(f"{node.name}.rescaled", (t,), y, "identity", same))


class _Bare(NamedTuple):
    """A value without the clamps and movements around it: the bounds, the movements and the last clamp's node."""

    core: Value
    low: float
    high: float
    moves: list[Expr]
    top: Node | None


def _bare(value: Value) -> _Bare:
    """Take clamps and movements off a float expression. Raises `Problem` for bounds that are no numbers."""
    low, high, moves, top = -math.inf, math.inf, list[Expr](), None
    while isinstance(value, Expr):
        bounds = clip_bounds(value)
        if bounds is not None:
            if math.isnan(bounds[0]) or math.isnan(bounds[1]):
                raise Problem(value.node, f"clamps to {bounds[0]:g}..{bounds[1]:g}, which are no numbers")
            low, high = max(low, min(bounds[0], high)), min(high, max(bounds[1], low))
            top = top or value.node
        elif value.node.op in MOVES and (value.node.op != "Pad" or (low, high) == (-math.inf, math.inf)):
            moves.append(value)
        else:
            break
        inner = value.args[0]
        assert inner is not None
        value = inner
    return _Bare(value, low, high, moves, top)


class _Layer(NamedTuple):
    """A layer: weights int64 (O, ...), their scales float64 (O,), int32 biases (O,), steps as `g.Linear` has them."""

    weight: np.ndarray
    scale: np.ndarray
    bias: np.ndarray
    steps: np.ndarray | None


def linear(imp: Quantiser, value: Expr, result: Result) -> g.Tensor | None:
    """The layer that computes `value`; None if it is not a layer on an int8 tensor and constant weights."""
    core, factor, offset = affine(value)
    if not isinstance(core, Expr) or core.node.op not in LINEAR:
        return None
    node, (first, weight, *rest) = core.node, core.args
    if not isinstance(weight, Weights) or not of_bytes(weight) or node.attrs.get("transA", 0):
        return None
    x = imp.as_view(first)
    if x is None:
        return None
    dense = node.op in ("Gemm", "MatMul")
    scaled_weights = dense_weights(node, weight) if dense else _conv_weights(imp, node, x, weight)
    axis = len(core.shape) - 1 if dense else 1
    scaled = channel_vector(factor, core.shape, axis), channel_vector(offset, core.shape, axis)
    own = constant(rest[0]) if rest and rest[0] is not None else np.zeros(1)
    if scaled_weights is None or own is None or scaled[0] is None or scaled[1] is None:
        return None
    own_bias = channel_vector(
        np.asarray(own, np.float64), core.shape if dense else (1, len(scaled_weights[0])), axis if dense else 1
    )
    if own_bias is None:
        return None
    alpha, beta = node.attrs.get("alpha", 1.0), node.attrs.get("beta", 1.0)
    real = own_bias * beta * scaled[0] + scaled[1]
    weight_scale = scaled_weights[1] * alpha * scaled[0]
    plain = factor.ndim == 0 and factor == 1 and not offset.any() and (alpha, beta) == (1.0, 1.0)
    exact = _exact_bias(rest, x.tensor.scale, scaled_weights[1]) if plain else None
    layer = _layer(scaled_weights[0], weight_scale, real, exact, x.tensor, result)
    return None if layer is None else (_dense if dense else _conv)(imp, node, x.tensor, layer, result)


def _conv_weights(imp: Quantiser, node: Node, x: View, weight: Weights) -> tuple[np.ndarray, np.ndarray] | None:
    """(weights of four dimensions, output channel first, scales)."""
    if weight.integers.ndim != len(x.shape) or len(x.shape) not in (3, 4):
        raise Problem(node, f"has weights of {weight.integers.ndim} dimensions; only 3 and 4 are supported")
    shape, groups = weight.integers.shape, node.attrs.get("group", 1)
    centred = weight.centred.reshape(imp.image_shape(shape))
    if node.op == "Conv":
        if x.shape[1] != shape[1] * groups:
            raise Problem(node, f"has {x.shape[1]} input channels, its weights have {shape[1] * groups}")
        return scaled(centred, weight, 0)
    found = scaled(centred, weight, 1)
    return None if found is None else _ungrouped(node, centred, found[1], groups)


def _ungrouped(node: Node, weight: np.ndarray, scale: np.ndarray, groups: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights (C, O / groups, KH, KW) of a transposed convolution as (O, C, ...), zeros between groups and taps."""
    c, per_group, kh, kw = weight.shape
    dilations = node.attrs.get("dilations", [1, 1])
    dh, dw = (1, dilations[0]) if len(dilations) == 1 else dilations
    full = np.zeros((per_group * groups, c, (kh - 1) * dh + 1, (kw - 1) * dw + 1), np.int64)
    for k in range(groups):
        inputs = slice(k * c // groups, (k + 1) * c // groups)
        full[k * per_group : (k + 1) * per_group, inputs, ::dh, ::dw] = weight[inputs].swapaxes(0, 1)
    return full, np.tile(scale[:per_group], groups)


def _layer(
    weight: np.ndarray, scale: np.ndarray, real: np.ndarray, exact: np.ndarray | None, x: g.Tensor, result: Result
) -> _Layer | None:
    """The layer of weights (O, ...) and real biases (O,), or their `exact` integers, on `x`; None beyond int32.

    Scales become positive. A bias that is no whole number of units is one plus whole steps of the result, or nearly. A
    channel whose sums leave int32, as with biases that onnxruntime's quantiser clips, gets weights of 0 if its result
    does not depend on the input.
    """
    column = (-1,) + (1,) * (weight.ndim - 1)
    sign, y = np.where(scale < 0, -1, 1), result.y
    weight, exact = weight * sign.reshape(column), None if exact is None else exact * sign
    scale = np.abs(scale).astype(np.float32).astype(np.float64)
    low, high = ranges.sums(weight, np.zeros(len(weight), np.int64), x.ends)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        bias, steps = exact, np.zeros_like(low)
        if bias is None:
            units, step = np.where(real == 0, 0, real / (x.scale * scale)), y.scale / (x.scale * scale)
            steps = _whole_steps(units, step, y.zero_point, low, high)
            bias = np.rint(units - np.where(steps == 0, 0, steps * step))
        wrong = ~((bias + low >= _INT32.min) & (bias + high <= _INT32.max))
        ends = (np.rint((real + end * x.scale * scale).astype(np.float32) / np.float32(y.scale)) for end in (low, high))
        least, most = (np.clip(end + y.zero_point, *result.clamp) for end in ends)
    if (wrong & (least != most)).any():
        return None
    if wrong.any():
        weight, scale = np.where(wrong.reshape(column), 0, weight), np.where(wrong, y.scale / x.scale, scale)
        bias, steps = np.where(wrong, least - y.zero_point, bias), np.where(wrong, 0, steps)
    return _Layer(weight, scale, bias.astype(np.int32), steps.astype(np.int32) if steps.any() else None)


def _whole_steps(units: np.ndarray, step: np.ndarray, zero_point: int, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """int64 (O,): the steps of the result, `step` units each, without which biases of `units` are closest to integers.

    They are 0 where the biases are close themselves, and where sums from `low` to `high` would leave int32.
    """
    steps = np.array(sorted(range(-128 - zero_point, 128 - zero_point), key=abs))
    left = units[:, None] - np.where(steps == 0, 0, steps * step[:, None])
    uneven = np.abs(left - np.rint(left))
    wide = (left + low[:, None] < _INT32.min) | (left + high[:, None] > _INT32.max)
    uneven = np.where(wide | np.isnan(uneven), np.inf, np.where((steps == 0) & (uneven < _UNEVEN), -1, uneven))
    return steps[uneven.argmin(1)]


def _exact_bias(rest: list, x_scale: float, scales: np.ndarray) -> np.ndarray | None:
    """The integers of a bias that is in accumulator units in the file; None of other biases."""
    bias = rest[0] if rest else None
    if not isinstance(bias, Weights) or bias.integers.dtype != np.int32 or bias.zero.any():
        return None
    if not is_unit(bias.scale, x_scale * scales):
        return None
    return np.broadcast_to(bias.integers.reshape(-1), scales.shape).astype(np.int32)


def _parameters(
    imp: Quantiser, name: str, x: g.Tensor, layer: _Layer, clamp: tuple[int, int], groups: int
) -> tuple[g.Tensor, tuple[np.ndarray, np.ndarray, np.ndarray, int, int]]:
    """The input and the constants of a layer."""
    parts = int8_parts(layer.weight)
    x = repeated(imp, name, x, groups, len(parts))
    return x, (np.concatenate(parts, 1), layer.scale.astype(np.float32), layer.bias, *clamp)


def _dense(imp: Quantiser, node: Node, x: g.Tensor, layer: _Layer, result: Result) -> g.Tensor:
    """A dense layer; all dimensions before the features are rows."""
    name, shape = node.name, result.y.shape
    rows = imp.reshape(f"{name}.rows", x, (math.prod(x.shape[:-1]), x.shape[-1]))
    rows, parameters = _parameters(imp, name, rows, layer, result.clamp, 1)
    y = replace(result.y, shape=(rows.shape[0], len(layer.weight)))
    if y.shape == shape:
        return imp.checked(node, g.QDense(name, (rows,), y, *parameters, steps=layer.steps), result.wanted)
    flat = imp.checked(node, g.QDense(name, (rows,), y, *parameters, steps=layer.steps))
    return imp.reshape(f"{name}.reshape", flat, shape, result.wanted)


def _conv(imp: Quantiser, node: Node, x: g.Tensor, layer: _Layer, result: Result) -> g.Tensor:
    name, shape = node.name, result.y.shape
    image = imp.image(name, x)
    y = replace(result.y, shape=imp.image_shape(shape))
    if node.op == "Conv":
        strides, pads, dilations, groups = geometry.convolution(imp, node, x.shape, _file_shape(layer, x))
        image, parameters = _parameters(imp, name, image, layer, result.clamp, groups)
        op: g.Operator = g.QConv2d(name, (image,), y, *parameters, strides, pads, dilations, groups, steps=layer.steps)
    else:
        strides, pads, *_ = geometry.transposed(imp, _undilated(node), x.shape, _file_shape(layer, x))
        image, parameters = _parameters(imp, name, image, layer, result.clamp, 1)
        op = g.QConvTranspose2d(name, (image,), y, *parameters, strides, pads, steps=layer.steps)
    return imp.checked(node, op, result.wanted, shape)


def _file_shape(layer: _Layer, x: g.Tensor) -> tuple[int, ...]:
    """The shape of the weights with as many dimensions as the input."""
    shape = layer.weight.shape
    return (*shape[:2], shape[3]) if len(x.shape) == 3 else shape


def _undilated(node: Node) -> Node:
    """The node for weights that hold the zeros of its dilations."""
    return replace(node, attrs={k: v for k, v in node.attrs.items() if k != "dilations"})


def scaled_channels(imp: Quantiser, value: Expr, result: Result) -> g.Tensor | None:
    """An affine function per channel of an int8 tensor, as a depthwise convolution of one pixel; None of others."""
    core, factor, offset = affine(value)
    if not isinstance(core, View) or core is value or len(core.shape) < 2:
        return None
    vectors = channel_vector(factor, core.shape, 1), channel_vector(offset, core.shape, 1)
    if vectors[0] is None or vectors[1] is None:
        return None
    node, (n, c, *size) = value.node, core.shape
    units = _units(vectors[0], vectors[1] / core.tensor.scale)
    layer = _layer(units.reshape(c, 1, 1, 1), vectors[0] / units, vectors[1], None, core.tensor, result)
    if layer is None:
        return None
    shape = core.shape if len(core.shape) == 4 else (n, c, 1, math.prod(size))
    image = imp.reshape(f"{node.name}.image", core.tensor, shape)
    scales = layer.scale.astype(np.float32)
    weights = layer.weight.astype(np.int8)
    y = replace(result.y, shape=shape)
    parameters = weights, scales, layer.bias, *result.clamp
    op = g.QConv2d(node.name, (image,), y, *parameters, groups=c, steps=layer.steps)
    return imp.checked(node, op, result.wanted, core.shape)


def _units(factor: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """int64 (C,): weights of channels times `factor`, so that `offset` is nearly a whole number of the products' steps.

    The bias of a channel is a whole number of such steps: rounding it is what makes the layer inexact.
    """
    weights = np.arange(_UNIT, 0, -1)
    scales = (np.abs(factor) / weights[:, None]).astype(np.float32).astype(np.float64)
    bias = np.divide(offset, scales, out=np.zeros_like(scales), where=scales > 0)
    return weights[(np.abs(bias - np.rint(bias)) / weights[:, None]).argmin(0)]


_BINARY: dict[str, Callable[..., g.Binary]] = {"Add": g.Add, "Sub": g.Sub, "Mul": partial(g.Mul, contract=SINGLE)}
_FUNCTIONS = {"Sigmoid": "logistic", "Tanh": "tanh", "LeakyRelu": "leaky_relu"}  # names in .tflite files
_MOST_INNER = (1 << 31) // 255**2  # elements of a row of a product, less their zero points: sums are int32


def _operand(imp: Quantiser, node: Node, value: Value | None) -> g.Tensor | None:
    """The int8 tensor of an operand that is a view, or a constant of one scale."""
    if (view := imp.as_view(value)) is not None:
        return view.tensor
    if not isinstance(value, Weights) or value.scale.size > 1 or value.zero.size > 1:
        return None
    if value.integers.dtype not in (np.int8, np.uint8) or value.scale <= 0:
        return None
    moved = 128 if value.integers.dtype == np.uint8 else 0
    like = g.Tensor("", (1,), "int8", float(value.scale[0]), int(value.zero[0]) - moved)
    return imp.constant(f"{node.name}.constant", signed(value.integers), like)


def _binary(imp: Quantiser, value: Expr, result: Result) -> g.Tensor | None:
    kind = _BINARY.get(value.node.op)
    if kind is None or all(constant(arg) is not None for arg in value.args):
        return None
    if single_view(value) is not None and not all(isinstance(arg, (View, Weights)) for arg in value.args):
        return None  # a table needs fewer steps
    tensors = [_operand(imp, value.node, arg) for arg in value.args]
    operands = tuple(t for t in tensors if t is not None)
    if len(operands) < 2:
        return None
    return imp.checked(value.node, kind(value.node.name, operands, result.y, *result.clamp), result.wanted)


def _product(imp: Quantiser, value: Expr, result: Result) -> g.Tensor | None:
    """The product of two int8 tensors of matrices whose sums are within int32."""
    views = [imp.as_view(arg) for arg in value.args] if value.node.op == "MatMul" else []
    operands = tuple(view.tensor for view in views if view is not None)
    if len(operands) < 2 or min(len(t.shape) for t in operands) < 2 or operands[0].shape[-1] > _MOST_INNER:
        return None
    node, y = value.node, result.y
    if result.whole:
        return imp.checked(node, g.BatchMatMul(node.name, operands, y, contract=SINGLE), result.wanted)
    product = imp.checked(node, g.BatchMatMul(f"{node.name}.product", operands, y, contract=SINGLE))
    return imp.append(g.NearestRequantize(node.name, (product,), y, *result.clamp), result.wanted)


def _concat(imp: Quantiser, value: Expr, result: Result) -> g.Tensor | None:
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


def _softmax(imp: Quantiser, value: Expr, result: Result) -> g.Tensor | None:
    node, y = value.node, result.y
    x = imp.as_view(value.args[0]) if node.op == "Softmax" and 2.0**-MOST_PLACES <= y.scale < 2 else None
    if x is None or x.tensor.scale <= 2.0**-26:
        return None
    shares = g.Softmax(node.name if result.whole else f"{node.name}.shares", (x.tensor,), y, node.attrs["axis"])
    if result.whole:
        return imp.append(shares, result.wanted)
    return imp.append(g.NearestRequantize(node.name, (imp.append(shares),), y, *result.clamp), result.wanted)


def _table(imp: Quantiser, value: Expr, result: Result) -> g.Tensor | None:
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


def _prelu(imp: Quantiser, value: Expr, result: Result) -> g.Tensor | None:
    """PRelu with a constant slope for each channel."""
    node, y = value.node, result.y
    x = imp.as_view(value.args[0]) if node.op == "PRelu" else None
    slopes = None if x is None or len(x.shape) < 2 else constant(value.args[1])
    channels = None if x is None or slopes is None else channel_vector(slopes, x.shape, 1)
    if x is None or channels is None or not np.isfinite(channels).all():
        return None
    image = imp.image(node.name, x.tensor) if len(x.shape) == 3 else x.tensor
    op = g.NearestPrelu(node.name, (image,), replace(y, shape=image.shape), channels.astype(np.float32), *result.clamp)
    return imp.checked(node, op, result.wanted, x.shape)


def _has_ties(factor: float, count: int) -> bool:
    """True if `factor` takes sums of `count` values half way between two integers more often than chance does.

    There float32 decides in onnxruntime: its roundings depend on the values, not on their sum alone.
    """
    sums = np.arange(min(255 * count, math.ceil(256 / factor), _SUMS))
    return bool((np.abs(sums * factor % 1 - 0.5) < _NEAR_TIE).mean() > _TIES)


def _average_pool(imp: Quantiser, value: Expr, result: Result) -> g.Tensor | None:
    node, y = value.node, result.y
    x = imp.as_view(value.args[0]) if node.op == "AveragePool" else None
    if x is None or max(node.attrs.get("dilations", [1])) > 1:
        return None
    kernel, strides, pads = window(imp, node, x.shape)
    image = imp.image(node.name, x.tensor)
    y = replace(y, shape=imp.image_shape(y.shape))
    if node.name in imp.integer_means:
        ties_up = imp.integer_means[node.name]
        mean = g.ExactAveragePool(node.name, (image,), y, kernel, strides, pads, *result.clamp, ties_up=ties_up)
        return imp.checked(node, mean, result.wanted, result.y.shape)
    if any(pads):
        if not node.attrs.get("count_include_pad", 0) or node.attrs.get("ceil_mode", 0):
            return None  # windows have means of different numbers of elements
        image = padded(imp, f"{node.name}.pad", image, around(pads), image.zero_point)
    op = g.AveragePool(node.name, (image,), y, kernel, strides, (0, 0, 0, 0), *result.clamp)
    if not op.axes and _has_ties(op.factor, math.prod(kernel)):
        return None
    return imp.checked(node, op, result.wanted, result.y.shape)


def _mean(imp: Quantiser, value: Expr, result: Result) -> g.Tensor | None:
    node, y = value.node, result.y
    x = imp.as_view(value.args[0]) if node.op == "ReduceMean" else None
    if x is None:
        return None
    axes = imp.axes(node)
    if len(x.shape) == 4 and axes == (2, 3) and node.attrs.get("keepdims", 1):
        op = g.AveragePool(node.name, (x.tensor,), y, x.shape[2:], (1, 1), (0, 0, 0, 0), *result.clamp)
        return imp.checked(node, op, result.wanted)
    if result.whole:
        return imp.checked(node, g.Mean(node.name, (x.tensor,), y, axes, contract=SINGLE), result.wanted)
    mean = imp.checked(node, g.Mean(f"{node.name}.mean", (x.tensor,), y, axes, contract=SINGLE))
    return imp.append(g.NearestRequantize(node.name, (mean,), y, *result.clamp), result.wanted)


Form = Callable[[Quantiser, Expr, Result], g.Tensor | None]
FORMS: tuple[Form, ...] = (
    linear,
    _binary,
    _product,
    _concat,
    _softmax,
    _average_pool,
    _mean,
    _table,
    _prelu,
    scaled_channels,
)
