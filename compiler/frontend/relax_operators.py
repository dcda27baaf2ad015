"""Relax's other operators with quantized operands -> compiler/graph/operators.py.

A handler gets the float expression that a quantize takes, without relu and clip, and appends operators that produce
the quantised result. It raises `InputError`, which names the ONNX node, for what it does not support.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...hw.errors import InputError
from .. import graph as g
from ..graph import tables
from .relax_layers import ints

if TYPE_CHECKING:
    from .relax import RelaxImporter, Result

SOFTMAX_SCALE, SOFTMAX_ZERO = 1 / 256, -128  # of the fixed-point softmax


def _operands(imp: RelaxImporter, result: Result) -> list[g.Tensor] | None:
    """The int8 tensors behind the call's operands; None if one has a problem that is reported further up."""
    call = result.call
    found = [imp.operand(arg) for arg in (call.args[0].fields if hasattr(call.args[0], "fields") else call.args)]
    return None if None in found else [t for t in found if t is not None]


def _binary(cls: type[g.Binary]) -> Callable[[RelaxImporter, Result], None]:
    def convert(imp: RelaxImporter, result: Result) -> None:
        if operands := _operands(imp, result):
            imp.produce(result, cls(imp.name(result.source), tuple(operands), result.y, *result.clamp))

    return convert


def _concat(imp: RelaxImporter, result: Result) -> None:
    operands, y = _operands(imp, result), result.y
    if operands:
        name = imp.name(result.source)
        same = [imp.rescaled(f"{name}.{k}", x, y) for k, x in enumerate(operands)]
        imp.produce(result, g.Concat(name, tuple(same), y, int(result.call.attrs.axis) % len(y.shape)))


def _softmax(imp: RelaxImporter, result: Result) -> None:
    x, y = imp.views.get(result.call.args[0]), result.y
    if x is None:
        return
    name, axis = imp.name(result.source), int(result.call.attrs.axis) % len(y.shape)
    if (y.scale, y.zero_point) == (SOFTMAX_SCALE, SOFTMAX_ZERO) and result.clamp == (-128, 127):
        imp.produce(result, g.Softmax(name, (x,), y, axis))
        return
    fixed = imp.tensor(f"{name}.q8", y.shape, g.Tensor("", y.shape, "int8", SOFTMAX_SCALE, SOFTMAX_ZERO))
    imp.emit(g.Softmax(name, (x,), fixed, axis))
    imp.produce(result, g.NearestRequantize(f"{name}.rescale", (fixed,), y, *result.clamp))


def _lookup(function: str) -> Callable[[RelaxImporter, Result], None]:
    def convert(imp: RelaxImporter, result: Result) -> None:
        x = imp.views.get(result.call.args[0])
        if x is not None:
            alpha = float(getattr(result.call.attrs, "alpha", 0.0)) if function == "leaky_relu" else 0.0
            try:
                table = np.clip(tables.nearest_even(function, x, result.y, alpha), *result.clamp)
            except InputError as exc:
                raise InputError(f"{imp.node(result.source)}: {exc}") from None
            imp.produce(result, g.Lookup(imp.name(result.source), (x,), result.y, function, table))

    return convert


def _average_pool(imp: RelaxImporter, result: Result) -> None:
    a, x = result.call.attrs, imp.views.get(result.call.args[0])
    if x is None:
        return
    (kernel, strides, pads), name, node = (
        _window(imp, result.source, a),
        imp.name(result.source),
        imp.node(result.source),
    )
    if any(pads) and not a.count_include_pad:
        raise InputError(f"{node} excludes padding from its mean, which is not supported")

    def make(x: g.Tensor, y: g.Tensor) -> g.Operator:
        if any(pads):
            top, left, bottom, right = pads
            x = imp.padded(f"{name}.pad", x, ((0, 0), (0, 0), (top, bottom), (left, right)), x.zero_point)
        return g.AveragePool(name, (x,), y, kernel, strides, (0, 0, 0, 0), *result.clamp)

    imp.place(result.var, str(a.layout), x, result.y, make)


def _mean(imp: RelaxImporter, result: Result) -> None:
    a, x, y = result.call.attrs, imp.views.get(result.call.args[0]), result.y
    if x is None:
        return
    name, axes = imp.name(result.source), tuple(sorted(k % len(x.shape) for k in ints(a.axis)))
    if len(x.shape) == 4 and axes == (2, 3) and a.keepdims:
        imp.produce(result, g.AveragePool(name, (x,), y, x.shape[2:], (1, 1), (0, 0, 0, 0), *result.clamp))
        return
    if result.clamp != (-128, 127):
        raise InputError(f"{imp.node(result.source)} is a mean with an activation, which is not supported")
    imp.produce(result, g.Mean(name, (x,), y, axes))


# operator of the float expression that a quantize takes -> its handler
COMPUTE: dict[str, Callable[[RelaxImporter, Result], None]] = {
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


def _max_pool(imp: RelaxImporter, var: Any, call: Any, x: g.Tensor) -> None:
    window, name = _window(imp, var, call.attrs), imp.name(var)
    y = replace(x, name=var.name, shape=ints(var.ty.shape), data=None)
    imp.place(var, str(call.attrs.layout), x, y, lambda x, y: g.MaxPool(name, (x,), y, *window))


def _window(imp: RelaxImporter, var: Any, attrs: Any) -> tuple[Any, Any, Any]:
    """(kernel, strides, pads) of a pooling operator. Raises `InputError` for a dilated one."""
    if max(ints(attrs.dilation)) > 1:
        raise InputError(f"{imp.node(var)} is dilated, which is not supported")
    return ints(attrs.pool_size), ints(attrs.strides), ints(attrs.padding)


def _reshape(imp: RelaxImporter, var: Any, call: Any, x: g.Tensor) -> None:
    imp.move(g.Reshape, var, x)


def _transpose(imp: RelaxImporter, var: Any, call: Any, x: g.Tensor) -> None:
    axes = ints(call.attrs.axes) if call.attrs.axes is not None else tuple(reversed(range(len(x.shape))))
    imp.move(g.Transpose, var, x, tuple(a % len(x.shape) for a in axes))


def _slice(imp: RelaxImporter, var: Any, call: Any, x: g.Tensor) -> None:
    axes, begin, end, strides = (
        [int(v.value if hasattr(v, "value") else v) for v in fields.fields] for fields in call.args[1:5]
    )
    indices = [range(n) for n in x.shape]
    for axis, *limits in zip(axes, begin, end, strides):
        indices[axis] = range(x.shape[axis])[slice(*limits)]
    steps = tuple(r.step if len(r) > 1 else 1 for r in indices)
    imp.move(g.StridedSlice, var, x, tuple(r[0] for r in indices), steps)


# operator that moves dequantised values -> its handler: the int8 values move, their scale stays
MOVE: dict[str, Callable[[RelaxImporter, Any, Any, g.Tensor], None]] = {
    "relax.nn.max_pool2d": _max_pool,
    "relax.reshape": _reshape,
    "relax.squeeze": _reshape,
    "relax.expand_dims": _reshape,
    "relax.flatten": _reshape,
    "relax.permute_dims": _transpose,
    "relax.strided_slice": _slice,
}


def _integer_clip(imp: RelaxImporter, var: Any, call: Any) -> None:
    """A clip of quantised integers."""
    x, moved = imp.views.get(call.args[0]), 128 if var.ty.dtype == "uint8" else 0
    if x is None:
        return
    low, high = (int(np.clip(float(bound.value) - moved, -128, 127)) for bound in call.args[1:3])
    if (low, high) == (-128, 127):
        imp.views[var] = x
    else:
        imp.move(g.NearestRequantize, var, x, low, high)


def _integer_mean(imp: RelaxImporter, var: Any, call: Any) -> None:
    """int8 of int32 means of int8: what TVM's importer makes of a mean of windows in a .tflite file.

    The file's operator rounds to the nearest, and so does this one; TVM's form cuts off.
    """
    pool: Any = imp.calls.get(call.args[0])
    first: Any = imp.calls.get(pool.args[0]) if _name_of(pool) == "relax.nn.avg_pool2d" else None
    x = imp.views.get(first.args[0]) if _name_of(first) == "relax.astype" else None
    if x is None or first.args[0].ty.dtype != var.ty.dtype or pool.attrs.count_include_pad:
        return
    window, name, ties_up = _window(imp, call.args[0], pool.attrs), imp.name(call.args[0]), var.ty.dtype == "uint8"
    y = replace(x, name=var.name, shape=ints(var.ty.shape), data=None)
    made = functools.partial(g.ExactAveragePool, ties_up=ties_up)
    imp.place(var, str(pool.attrs.layout), x, y, lambda x, y: made(name, (x,), y, *window))


def _name_of(call: Any) -> str:
    return getattr(getattr(call, "op", None), "name", "")


# operator on quantised integers themselves, without a dequantize -> its handler
INTEGER: dict[str, Callable[[RelaxImporter, Any, Any], None]] = {
    "relax.clip": _integer_clip,
    "relax.astype": _integer_mean,
}


def split(imp: RelaxImporter, var: Any, call: Any, index: int, x: g.Tensor) -> None:
    """One part of a split."""
    axis, sections = int(call.attrs.axis) % len(x.shape), call.attrs.indices_or_sections
    if isinstance(sections, int):
        size = math.ceil(x.shape[axis] / sections)
        starts = [size * k for k in range(sections)]
    else:
        starts = [0, *ints(sections)]
    begin = [0] * len(x.shape)
    begin[axis] = starts[index]
    imp.move(g.StridedSlice, var, x, tuple(begin), (1,) * len(x.shape))
