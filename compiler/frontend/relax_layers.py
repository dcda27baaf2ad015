"""Relax's convolutions and dense layers with quantized operands -> compiler/graph/layers.py, by dataflow patterns."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ...hw.errors import InputError
from .. import graph as g
from ..tvm_compat import is_const, is_op, wildcard

if TYPE_CHECKING:
    from .relax import RelaxImporter, Result

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
_INT32 = np.iinfo(np.int32)
_ALLOWED = f"outside {_INT32.min}..{_INT32.max}"


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
    parameters = weight, scales, bias, *result.clamp
    if kind is _DENSE:
        _dense(imp, result, x, parameters, source, _rounds_scales(match, True))
    else:
        _convolution(imp, result, x, parameters, source, call, _rounds_scales(match, False))
    imp.check_numbers(before, node)
    return True


def _check_layout(match: Any, call: Any, node: str, layout: str) -> None:
    """Raise `InputError` for a result in another layout than the operand, and for a sum that is no bias.

    `layout` is that of images, empty for a dense layer, whose last dimension has the channels.
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
    imp: RelaxImporter, result: Result, x: g.Tensor, parameters: Any, source: Any, call: Any, rounded: bool
) -> None:
    """Append a convolution, or a transposed one."""
    a, name = call.attrs, imp.name(source)
    transposed = call.op.name != LAYERS[0]
    if transposed and (max(ints(a.dilation)) > 1 or int(a.groups) > 1):
        raise InputError(f"{imp.node(source)} is transposed with dilations or groups, which is not supported")
    geometry: Any = ints(a.strides), ints(a.padding), ints(a.dilation), int(a.groups)
    if transposed:
        top, left, bottom, right = ints(a.padding)
        extra = ints(a.output_padding)
        geometry = ints(a.strides), (top, left, bottom - extra[0], right - extra[1])
    kind: Any = g.QConvTranspose2d if transposed else g.QConv2d

    def make(x: g.Tensor, y: g.Tensor) -> g.Operator:
        return kind(name, (x,), y, *parameters, *geometry, float32_scale=rounded)

    imp.place(result.var, str(a.data_layout), x, result.y, make)


def _rounds_scales(match: Any, dense: bool) -> bool:
    """Whether the layer is one of a .tflite file whose kernels round the product of scales to float32.

    TVM's importer of those files makes zero points int32; that of ONNX gives them the tensor's type.
    """
    weight, scale, zero = (array(a) for a in match[_WEIGHT].args)
    return zero.dtype == np.int32 and scale.size == 1 and (dense or weight.dtype == np.uint8)


def _dense(imp: RelaxImporter, result: Result, x: g.Tensor, parameters: Any, source: Any, rounded: bool) -> None:
    """Append a dense layer; all dimensions before the features are rows."""
    name, rows = imp.name(source), (math.prod(x.shape[:-1]), x.shape[-1])
    if len(x.shape) == 2:
        imp.produce(result, g.QDense(name, (x,), result.y, *parameters, float32_scale=rounded))
        return
    x = imp.reshape(f"{name}.rows", x, rows)
    y = imp.tensor(f"{name}.flat", (rows[0], len(parameters[0])), result.y)
    imp.emit(g.QDense(name, (x,), y, *parameters, float32_scale=rounded))
    imp.produce(result, g.Reshape(f"{name}.reshape", (y,), result.y))


def ints(values: Any) -> Any:
    """A tuple of Python's integers, of any length."""
    return tuple(int(v) for v in values)


def array(expr: Any) -> np.ndarray:
    """The value of a constant."""
    return np.asarray(expr.value.numpy() if hasattr(expr.value, "numpy") else expr.value)


def _weights(match: Any, node: str, layout: str) -> tuple[np.ndarray, np.ndarray]:
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
    along = [-1 if k == axis else 1 for k in range(weight.ndim)]
    centred = weight.astype(np.int16) - zero.reshape(along).astype(np.int16)
    weight = centred.astype(np.int8 if -128 <= centred.min() and centred.max() <= 127 else np.int16)
    weight = weight.transpose([layout.index(letter) for letter in wanted])
    scales = np.broadcast_to(scale.reshape(-1).astype(np.float32), (len(weight),))
    return np.ascontiguousarray(weight), np.ascontiguousarray(scales)


def _bias(match: Any, node: str, scales: np.ndarray) -> np.ndarray:
    """int32 biases in units of `scales`, float64 (O,), those of the accumulators.

    Raises `InputError` for a bias outside int32.
    """
    if _BIASED not in match:
        return np.zeros(len(scales), np.int32)
    if _DEQUANTIZED in match:
        bias, scale, zero = (array(a).reshape(-1) for a in match[_DEQUANTIZED].args)
        if bias.dtype == np.int32 and not zero.any() and np.allclose(scale, scales, rtol=1e-5, atol=0):
            return np.broadcast_to(bias, scales.shape).copy()
        real = (bias.astype(np.float64) - zero) * scale
    else:
        real = array(match[_K]).reshape(-1).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        units = np.broadcast_to(np.rint(real / scales), scales.shape)
    wrong = np.flatnonzero(~((units >= _INT32.min) & (units <= _INT32.max)))
    if wrong.size:
        k = wrong[0]
        raise InputError(
            f"{node} has bias {np.broadcast_to(real, scales.shape)[k]:g} for output channel {k}: {units[k]:g} times "
            f"the accumulator's scale {scales[k]:g}, {_ALLOWED}"
        )
    return units.astype(np.int32)
