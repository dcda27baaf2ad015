"""Relax's operators with quantized operands -> compiler/graph/: layers by dataflow patterns, others by their names.

A handler gets the float expression that a quantize takes, without relu and clip, and appends operators that produce
the quantised result. It raises `InputError`, which names the ONNX node, for what it does not support.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ...hw.errors import InputError
from .. import graph as g
from ..graph import tables
from ..tvm_compat import DFPattern, Var, is_const, is_op, wildcard
from .core import like
from .linear import in_units, is_unit, narrowed, per_channel
from .moves import along, around, bounded, padded, strides
from .values import SOFTMAX_SCALE, SOFTMAX_ZERO

if TYPE_CHECKING:
    from .relax import RelaxImporter, Result


Call: TypeAlias = Any  # of TVM; its annotations lack the fields of its nodes
Expr: TypeAlias = Any
Layer: TypeAlias = "tuple[np.ndarray, np.ndarray, np.ndarray, int, int]"  # weights, scales, biases, bounds
Match: TypeAlias = "Mapping[DFPattern, Expr]"
# convert an operator: of a float expression, of a movement of dequantised values, of integers themselves
Compute: TypeAlias = "Callable[[RelaxImporter, Result], None]"
Move: TypeAlias = "Callable[[RelaxImporter, Var, Call, g.Tensor], None]"
Integer: TypeAlias = "Callable[[RelaxImporter, Var, Call], None]"
LAYERS = ("relax.nn.conv2d", "relax.nn.conv2d_transpose", "relax.matmul")
_K = is_const()
_X = wildcard()
_DEQUANTIZED = is_op("relax.dequantize")(is_const(), is_const(), is_const())
_WEIGHT = is_op("relax.dequantize")(is_const(), is_const(), is_const())
_CONV = is_op(LAYERS[0])(_X, _WEIGHT)
_TRANSPOSE_CONV = is_op(LAYERS[1])(_X, _WEIGHT)
_TRANSPOSED = is_op("relax.permute_dims")(_WEIGHT)
_DENSE = is_op(LAYERS[2])(_X, _TRANSPOSED | _WEIGHT)
_FLAT_BIAS = _DEQUANTIZED | _K
_BIAS = is_op("relax.reshape")(_FLAT_BIAS, wildcard()) | _FLAT_BIAS
_LINEAR = _CONV | _TRANSPOSE_CONV | _DENSE
_BIASED = is_op("relax.add")(_LINEAR, _BIAS) | is_op("relax.add")(_BIAS, _LINEAR)
_PATTERN = _BIASED | _LINEAR


def linear(imp: RelaxImporter, result: Result) -> bool:
    """Append the layer that computes `result`; False if it is not a layer."""
    match = _PATTERN.extract_matched_expr(result.call, imp.values_of)
    if not match:
        return False
    kind = next(p for p in (_CONV, _TRANSPOSE_CONV, _DENSE) if p in match)
    call, before = match[kind], len(imp.ops)
    source = imp.variable(call)
    x = imp.views.get(call.args[0])
    if x is None:
        return True  # the problem is further up and reported there
    node = imp.node(source)
    kernel = ("OI" if _TRANSPOSED in match else "IO") if kind is _DENSE else str(call.attrs.kernel_layout)
    _check_layout(match, call, node, "" if kind is _DENSE else str(call.attrs.data_layout))
    weight, scales = _weights(match, node, kernel)
    bias = _bias(match, node, np.float64(x.scale) * scales.astype(np.float64))
    layer = weight, scales, bias, *result.clamp
    if kind is _DENSE:
        _dense(imp, result, x, layer, source, _rounds_scales(match, True))
    else:
        _convolution(imp, result, x, layer, source, call, _rounds_scales(match, False))
    imp.check_numbers(before, node)
    return True


def _check_layout(match: Match, call: Call, node: str, layout: str) -> None:
    """Raise `InputError` for a result in another layout than the operand, and for a sum that is no bias.

    `layout` is the layout of the images; it is empty for a dense layer, which has channels last.
    """
    if layout and str(call.attrs.out_layout or layout) != layout:
        raise InputError(f"{node} turns images of layout {layout} to {call.attrs.out_layout}, which is not supported")
    if _BIASED in match:
        shape, rank = ints(match[_BIAS].ty.shape), len(call.ty.shape)
        full = (1,) * (rank - len(shape)) + shape
        channel = layout.index("C") if layout else rank - 1
        if len(full) > rank or any(n != 1 for k, n in enumerate(full) if k != channel):
            raise InputError(f"{node} is added to constants of shape {shape}, which are not one number per channel")


def _convolution(
    imp: RelaxImporter, result: Result, x: g.Tensor, layer: Layer, source: Var, call: Call, rounded: bool
) -> None:
    """Append a convolution, or a transposed one."""
    a, name = call.attrs, imp.name(source)
    transposed = call.op.name != LAYERS[0]
    if transposed and (max(ints(a.dilation)) > 1 or int(a.groups) > 1):
        raise InputError(f"{imp.node(source)} is transposed with dilations or groups, which is not supported")
    h, w = ints(a.strides)
    top, left, bottom, right = ints(a.padding)

    def make(x: g.Tensor, y: g.Tensor) -> g.Operator:
        if transposed:
            extra = ints(a.output_padding)
            pads = top, left, bottom - extra[0], right - extra[1]
            return g.QConvTranspose2d(name, (x,), y, *layer, (h, w), pads, float32_scale=rounded)
        dilations, groups = ints(a.dilation), int(a.groups)
        pads = top, left, bottom, right
        return g.QConv2d(
            name, (x,), y, *layer, (h, w), pads, (dilations[0], dilations[1]), groups, float32_scale=rounded
        )

    imp.place(result.var, str(a.data_layout), x, result.y, make)


def _rounds_scales(match: Match, dense: bool) -> bool:
    """True for a layer of a .tflite file whose kernels round the product of scales to float32.

    TVM's importer of .tflite files makes zero points int32, its importer of ONNX files int8 or uint8.
    """
    weight, scale, zero = (array(a) for a in match[_WEIGHT].args)
    return zero.dtype == np.int32 and scale.size == 1 and (dense or weight.dtype == np.uint8)


def _dense(imp: RelaxImporter, result: Result, x: g.Tensor, layer: Layer, source: Var, rounded: bool) -> None:
    """Append a dense layer; all dimensions before the features are rows."""
    name, rows = imp.name(source), (math.prod(x.shape[:-1]), x.shape[-1])
    if len(x.shape) == 2:
        imp.append(result.var, g.QDense(name, (x,), result.y, *layer, float32_scale=rounded))
        return
    x = imp.reshape(f"{name}.rows", x, rows)
    y = like(result.y, imp.unused(f"{name}.flat"), (rows[0], len(layer[0])))
    imp.emit(g.QDense(name, (x,), y, *layer, float32_scale=rounded))
    imp.append(result.var, g.Reshape(f"{name}.reshape", (y,), result.y))


def ints(values: Iterable[int]) -> tuple[int, ...]:
    """A tuple of Python's integers, of any length."""
    return tuple(int(v) for v in values)


def array(expr: Expr) -> np.ndarray:
    """The value of a constant."""
    return np.asarray(expr.value.numpy() if hasattr(expr.value, "numpy") else expr.value)


def _weights(match: Match, node: str, layout: str) -> tuple[np.ndarray, np.ndarray]:
    """(weights O, I and the kernel less their zero points, one float32 scale each).

    `layout` names their dimensions in the function. They are int8, or int16 where a difference is not.
    """
    call = match[_WEIGHT]
    weight, scale, zero = (array(a) for a in call.args)
    wanted = "OIHW"[: len(layout)]
    if sorted(layout) != sorted(wanted) or weight.ndim != len(layout):
        raise InputError(f"{node} has weights {weight.shape} of layout {layout}; their dimensions must be {wanted}")
    if weight.dtype not in (np.int8, np.uint8):
        raise InputError(f"{node} has weights of type {weight.dtype}; only int8 and uint8 are supported")
    axis = int(call.attrs.axis) % weight.ndim
    if max(scale.size, zero.size) > 1 and axis != layout.index("O"):
        raise InputError(f"{node} has weights with one scale per index of axis {axis}, not per output channel")
    shape = [-1 if k == axis else 1 for k in range(weight.ndim)]
    centred = weight.astype(np.int16) - zero.reshape(shape).astype(np.int16)
    weight = narrowed(centred.transpose([layout.index(letter) for letter in wanted]))
    return weight, per_channel(scale, len(weight))


def _bias(match: Match, node: str, scales: np.ndarray) -> np.ndarray:
    """int32 biases (O,) in accumulator units, `scales` float64 (O,).

    Raises `InputError` for a bias outside int32.
    """
    if _BIASED not in match:
        return np.zeros(len(scales), np.int32)
    if _DEQUANTIZED in match:
        bias, scale, zero = (array(a).reshape(-1) for a in match[_DEQUANTIZED].args)
        if bias.dtype == np.int32 and not zero.any() and is_unit(scale, scales):
            return np.broadcast_to(bias, scales.shape).copy()
        real = (bias.astype(np.float64) - zero) * scale
    else:
        real = array(match[_K]).reshape(-1).astype(np.float64)
    try:
        return in_units(real, scales)
    except InputError as exc:
        raise InputError(f"{node} {exc}") from None


def _operands(imp: RelaxImporter, result: Result) -> list[g.Tensor] | None:
    """The int8 tensors of the call's operands; None if the node of an operand was refused."""
    call = result.call
    views = [imp.operand(arg) for arg in (call.args[0].fields if hasattr(call.args[0], "fields") else call.args)]
    return None if None in views else [t for t in views if t is not None]


def _binary(cls: type[g.Binary]) -> Compute:
    def convert(imp: RelaxImporter, result: Result) -> None:
        if operands := _operands(imp, result):
            imp.append(result.var, cls(imp.name(result.source), tuple(operands), result.y, *result.clamp))

    return convert


def _concat(imp: RelaxImporter, result: Result) -> None:
    operands, y = _operands(imp, result), result.y
    if operands:
        name = imp.name(result.source)
        same = [imp.rescaled(f"{name}.{k}", x, y) for k, x in enumerate(operands)]
        imp.append(result.var, g.Concat(name, tuple(same), y, int(result.call.attrs.axis) % len(y.shape)))


def _softmax(imp: RelaxImporter, result: Result) -> None:
    x, y = imp.views.get(result.call.args[0]), result.y
    if x is None:
        return
    name, axis = imp.name(result.source), int(result.call.attrs.axis) % len(y.shape)
    if (y.scale, y.zero_point) == (SOFTMAX_SCALE, SOFTMAX_ZERO) and result.clamp == (-128, 127):
        imp.append(result.var, g.Softmax(name, (x,), y, axis))
        return
    fixed = g.Tensor(imp.unused(f"{name}.q8"), y.shape, "int8", SOFTMAX_SCALE, SOFTMAX_ZERO)
    imp.emit(g.Softmax(name, (x,), fixed, axis))
    imp.append(result.var, g.NearestRequantize(f"{name}.rescale", (fixed,), y, *result.clamp))


def _lookup(function: str) -> Compute:
    def convert(imp: RelaxImporter, result: Result) -> None:
        x = imp.views.get(result.call.args[0])
        if x is not None:
            alpha = float(getattr(result.call.attrs, "alpha", 0.0)) if function == "leaky_relu" else 0.0
            try:
                table = np.clip(tables.nearest_even(function, x, result.y, alpha), *result.clamp)
            except InputError as exc:
                raise InputError(f"{imp.node(result.source)}: {exc}") from None
            imp.append(result.var, g.Lookup(imp.name(result.source), (x,), result.y, function, table))

    return convert


def _average_pool(imp: RelaxImporter, result: Result) -> None:
    a, x = result.call.attrs, imp.views.get(result.call.args[0])
    if x is None:
        return
    kernel, strides, pads = _window(imp, result.source, a)
    name, node = imp.name(result.source), imp.node(result.source)
    if any(pads) and not a.count_include_pad:
        raise InputError(f"{node} excludes padding from its mean, which is not supported")

    def make(x: g.Tensor, y: g.Tensor) -> g.Operator:
        if any(pads):
            x = padded(imp, f"{name}.pad", x, around(pads), x.zero_point)
        return g.AveragePool(name, (x,), y, kernel, strides, (0, 0, 0, 0), *result.clamp)

    imp.place(result.var, str(a.layout), x, result.y, make)


def _mean(imp: RelaxImporter, result: Result) -> None:
    a, x, y = result.call.attrs, imp.views.get(result.call.args[0]), result.y
    if x is None:
        return
    name, axes = imp.name(result.source), tuple(sorted(k % len(x.shape) for k in ints(a.axis)))
    if len(x.shape) == 4 and axes == (2, 3) and a.keepdims:
        imp.append(result.var, g.AveragePool(name, (x,), y, x.shape[2:], (1, 1), (0, 0, 0, 0), *result.clamp))
        return
    if result.clamp != (-128, 127):
        raise InputError(f"{imp.node(result.source)} is a mean with an activation, which is not supported")
    imp.append(result.var, g.Mean(name, (x,), y, axes))


# operator of the float expression that a quantize takes -> its handler
COMPUTE: dict[str, Compute] = {
    "relax.add": _binary(g.Add),
    "relax.subtract": _binary(g.Sub),
    "relax.multiply": _binary(g.Mul),
    "relax.concat": _concat,
    "relax.nn.softmax": _softmax,
    "relax.sigmoid": _lookup("logistic"),
    "relax.tanh": _lookup("tanh"),
    "relax.nn.leakyrelu": _lookup("leaky_relu"),
    "relax.nn.avg_pool2d": _average_pool,
    "relax.mean": _mean,
}


def _max_pool(imp: RelaxImporter, var: Var, call: Call, x: g.Tensor) -> None:
    window, name = _window(imp, var, call.attrs), imp.name(var)
    y = replace(x, name=var.name, shape=ints(var.ty.shape), data=None)
    imp.place(var, str(call.attrs.layout), x, y, lambda x, y: g.MaxPool(name, (x,), y, *window))


def _window(
    imp: RelaxImporter, var: Var, attrs: Expr
) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int, int, int]]:
    """(kernel, strides, pads) of a pooling operator. Raises `InputError` for a dilated one."""
    if max(ints(attrs.dilation)) > 1:
        raise InputError(f"{imp.node(var)} is dilated, which is not supported")
    (kh, kw), (sh, sw), (top, left, bottom, right) = map(ints, (attrs.pool_size, attrs.strides, attrs.padding))
    return (kh, kw), (sh, sw), (top, left, bottom, right)


def _reshape(imp: RelaxImporter, var: Var, call: Call, x: g.Tensor) -> None:
    imp.move(g.Reshape, var, x)


def _transpose(imp: RelaxImporter, var: Var, call: Call, x: g.Tensor) -> None:
    axes = ints(call.attrs.axes) if call.attrs.axes is not None else tuple(reversed(range(len(x.shape))))
    imp.move(g.Transpose, var, x, tuple(a % len(x.shape) for a in axes))


def _slice(imp: RelaxImporter, var: Var, call: Call, x: g.Tensor) -> None:
    axes, begin, end, steps = (
        [int(v.value if hasattr(v, "value") else v) for v in fields.fields] for fields in call.args[1:5]
    )
    imp.move(g.StridedSlice, var, x, *strides(bounded(x.shape, axes, begin, end, steps)))


# operator that moves dequantised values -> its handler: the int8 values move, their scale stays
MOVE: dict[str, Move] = {
    "relax.nn.max_pool2d": _max_pool,
    "relax.reshape": _reshape,
    "relax.squeeze": _reshape,
    "relax.expand_dims": _reshape,
    "relax.flatten": _reshape,
    "relax.permute_dims": _transpose,
    "relax.strided_slice": _slice,
}


def _integer_clip(imp: RelaxImporter, var: Var, call: Call) -> None:
    """A clip of quantised integers."""
    x, moved = imp.views.get(call.args[0]), 128 if var.ty.dtype == "uint8" else 0
    if x is None:
        return
    low, high = (int(np.clip(float(bound.value) - moved, -128, 127)) for bound in call.args[1:3])
    if (low, high) == (-128, 127):
        imp.views[var] = x
    else:
        imp.move(g.NearestRequantize, var, x, low, high)


def _integer_mean(imp: RelaxImporter, var: Var, call: Call) -> None:
    """An int8 average pool of a .tflite file, which TVM's importer writes as an int32 pool between casts.

    Rounds to the nearest as the file's operator does, not towards zero as TVM's form.
    """
    pool: Call = imp.calls.get(call.args[0])
    first: Call = imp.calls.get(pool.args[0]) if _name_of(pool) == "relax.nn.avg_pool2d" else None
    x = imp.views.get(first.args[0]) if _name_of(first) == "relax.astype" else None
    if x is None or first.args[0].ty.dtype != var.ty.dtype or pool.attrs.count_include_pad:
        return
    window, name, ties_up = _window(imp, call.args[0], pool.attrs), imp.name(call.args[0]), var.ty.dtype == "uint8"
    y = replace(x, name=var.name, shape=ints(var.ty.shape), data=None)
    made = functools.partial(g.ExactAveragePool, ties_up=ties_up)
    imp.place(var, str(pool.attrs.layout), x, y, lambda x, y: made(name, (x,), y, *window))


def _name_of(call: Call) -> str:
    return getattr(getattr(call, "op", None), "name", "")


# operator on quantised integers themselves, without a dequantize -> its handler
INTEGER: dict[str, Integer] = {
    "relax.clip": _integer_clip,
    "relax.astype": _integer_mean,
}


def split(imp: RelaxImporter, var: Var, call: Call, index: int, x: g.Tensor) -> None:
    """One part of a split."""
    axis, sections = int(call.attrs.axis) % len(x.shape), call.attrs.indices_or_sections
    if isinstance(sections, int):
        size = math.ceil(x.shape[axis] / sections)
        starts = [size * k for k in range(sections)]
    else:
        starts = [0, *ints(sections)]
    indices = range(starts[index], x.shape[axis])  # whose end the output's shape says
    imp.move(g.StridedSlice, var, x, *strides(along(x.shape, axis, indices)))
