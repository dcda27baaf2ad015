"""Layers and element-wise operators of .tflite files: weights, biases, windows, clamps, handlers of one or two inputs.

Integers are those of TensorFlow Lite's kernels; `Refused` says what they do not have.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ... import graph as g
from ...graph import int16_tables, tables
from ..core import Misfit, Refused
from ..linear import narrowed, per_channel, reach, same
from ..moves import TO_NCHW
from .builder import ZEROS_SCALE, TfliteImporter
from .file import FileNode, Info, schema

_ACTIVATION = schema.ActivationFunctionType
_SAME = schema.Padding.SAME
_FAR = 1 << 17  # steps beyond int16, whatever the zero point is
_SHORT_BIASES = ("CONV_2D", "FULLY_CONNECTED")  # layers of 16-bit inputs that may have int32 biases
_BIAS_ERROR = 1e-5  # relative, of scales: they are rounded to float32


def _quantised(value: float, y: g.Tensor) -> int:
    """The step of a real value, before clamping, as TensorFlow Lite computes it."""
    with np.errstate(over="ignore"):
        steps = tables.round_away(np.float32(value) / np.float32(y.scale))
    return y.zero_point + int(np.clip(steps, -_FAR, _FAR))


def clamp(node: FileNode, y: g.Tensor, kind: int | None = None) -> tuple[int, int]:
    """Limits, in steps of `y`, of a fused activation (default: the node's). Raises `Refused` unless it is a clamp."""
    if kind is None:
        kind = node.option("fusedActivationFunction", _ACTIVATION.NONE)
    known = {
        _ACTIVATION.NONE: (None, None),
        _ACTIVATION.RELU: (0.0, None),
        _ACTIVATION.RELU6: (0.0, 6.0),
        _ACTIVATION.RELU_N1_TO_1: (-1.0, 1.0),
    }
    if kind not in known:
        raise Refused(f"has fused activation {kind}; only none, RELU, RELU6 and RELU_N1_TO_1 are supported")
    return limits(y, *known[kind])


def limits(y: g.Tensor, low: float | None, high: float | None) -> tuple[int, int]:
    """Limits in steps of `y` for real limits; None is no limit. Raises `Refused` for an empty range."""
    least, largest = every(y)
    bottom = least if low is None else max(least, _quantised(low, y))
    top = largest if high is None else min(largest, _quantised(high, y))
    if bottom > top:
        raise Refused(f"clamps to {bottom}..{top}, an empty range for output {y.name!r}")
    return bottom, top


def every(y: g.Tensor) -> tuple[int, int]:
    """The least and the largest step of `y`: the limits of no clamp."""
    info = np.iinfo(y.dtype)
    return int(info.min), int(info.max)


def weights(imp: TfliteImporter, node: FileNode, position: int, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """(weights in the file's layout less their zero point, one float32 scale per index of `axis`, or one alone).

    They are int8, or int16 where the difference from the zero point is not.
    """
    data, info = imp.known(node, position), imp.info(node, position)
    if info.type != "INT8":
        raise Refused(f"has weights {info.name!r} of type {info.type.lower()}; only int8 is supported")
    if data.ndim <= axis:
        raise Refused(f"has weights {info.name!r} of shape {info.shape}")
    if not info.scale.size:
        raise Refused(f"has weights {info.name!r} without quantisation parameters")
    if info.zero_point.any() and not (info.scale.size == 1 and (info.unsigned or node.kind == "FULLY_CONNECTED")):
        raise Refused(f"has weights {info.name!r} with a zero point other than 0")
    if info.scale.size > 1 and (info.axis != axis or info.scale.size != data.shape[axis]):
        raise Refused(
            f"has weights {info.name!r} of shape {info.shape} with {info.scale.size} scales along dimension "
            f"{info.axis}; one scale, or one per index of dimension {axis}, is supported"
        )
    if not (np.isfinite(info.scale).all() and (info.scale >= 0).all()):
        raise Refused(f"has weights {info.name!r} with a scale that is negative or not finite")
    if info.zero_point.any():
        data = narrowed(data.astype(np.int16) - np.int16(info.zero_point[0]))
    return data, info.scale


def _bias(imp: TfliteImporter, node: FileNode, position: int, x: g.Tensor, scales: np.ndarray) -> np.ndarray:
    """The biases of a layer on `x` with weights of `scales`, one per channel, whose products are their unit.

    They are int32; on 16-bit inputs int64, of some layers also int32.
    """
    channels, wide = len(scales), x.dtype == "int16"
    types = ("INT32",) if not wide else ("INT64", "INT32") if node.kind in _SHORT_BIASES else ("INT64",)
    if not imp.given(node, position):
        return np.zeros(channels, np.int64 if wide else np.int32)
    data, info = imp.known(node, position), imp.info(node, position)
    if info.type not in types or data.size != channels:
        wanted = " or ".join(types).lower()
        raise Refused(
            f"has bias {info.name!r}: {info.type.lower()} of shape {info.shape}, expected {wanted} ({channels},)"
        )
    bias = data.reshape(channels)
    if info.zero_point.any():
        raise Refused(f"has bias {info.name!r} with a zero point other than 0")
    if info.scale.size not in (0, 1, channels):
        raise Refused(f"has bias {info.name!r} with {info.scale.size} scales; expected one, or {channels}")
    if info.scale.size and x.scale > ZEROS_SCALE:
        _check_unit(info, bias, np.float64(x.scale) * scales.astype(np.float64))
    return bias


def _check_unit(info: Info, bias: np.ndarray, unit: np.ndarray) -> None:
    """Raise `Misfit` if a bias in its own scale is another number of steps of `unit`, the accumulators' scale."""
    own = np.broadcast_to(info.scale.astype(np.float64), unit.shape)
    error = np.abs(own - unit)
    # a difference of less than half a step of the accumulators is none
    wrong = np.flatnonzero(~((error <= _BIAS_ERROR * unit) | (np.abs(bias) * error <= unit / 2)))
    if wrong.size:
        k = wrong[0]
        raise Misfit(
            f"has bias {info.name!r} of scale {own[k]:g} for output channel {k}; it must be input scale times weight "
            f"scale, {unit[k]:g}, in which the kernels read biases"
        )


def image(t: g.Tensor) -> tuple[int, int]:
    """(height, width) of a canonical tensor. Raises `Refused` unless it has four dimensions."""
    if len(t.shape) != 4:
        raise Refused(f"has input {t.name!r} of {len(t.shape)} dimensions; only 4 are supported")
    return t.shape[2], t.shape[3]


def strides_of(node: FileNode) -> tuple[int, int]:
    """(h, w) of the options. Raises `Refused` for strides below 1."""
    strides = node.option("strideH", 0), node.option("strideW", 0)
    if min(strides) < 1:
        raise Refused(f"has strides {strides}; they must be at least 1")
    return strides


def padding(
    node: FileNode, size: tuple[int, int], kernel: tuple[int, ...], strides: tuple[int, int]
) -> tuple[int, int, int, int]:
    """(top, left, bottom, right) of windows of `kernel` elements, dilation included, on an image of `size`."""
    if node.option("padding", _SAME) != _SAME:
        return 0, 0, 0, 0
    top, left, bottom, right = same(size, [-(-n // s) for n, s in zip(size, strides)], kernel, strides)
    return top, left, bottom, right


def window(node: FileNode) -> tuple[int, int]:
    """(h, w) of a pooling's windows. Raises `Refused` below 1."""
    kernel = node.option("filterHeight", 0), node.option("filterWidth", 0)
    if min(kernel) < 1:
        raise Refused(f"has windows of {kernel}; they must be at least 1")
    return kernel


def cropped(
    node: FileNode, size: tuple[int, int], grown: tuple[int, int], kernel: tuple[int, ...]
) -> tuple[int, int, int, int]:
    """(top, left, bottom, right) that a transposed convolution from `size` to `grown` cuts off; below 0 it adds."""
    strides, top, left = strides_of(node), 0, 0
    if node.option("padding", _SAME) == _SAME:  # of the convolution from the output to the input
        top, left, _, _ = same(grown, size, kernel, strides)
    bottom, right = ((size[k] - 1) * strides[k] + kernel[k] - (top, left)[k] - grown[k] for k in (0, 1))
    return top, left, bottom, right


def _convolution(imp: TfliteImporter, node: FileNode, weight: np.ndarray, scale: np.ndarray, groups: int) -> None:
    """Append a convolution with weights (O, I, KH, KW)."""
    x, y, strides = imp.activation(node, 0, wide=True), imp.result(node), strides_of(node)
    dilations = node.option("dilationHFactor", 1), node.option("dilationWFactor", 1)
    if min(dilations) < 1:
        raise Refused(f"has dilations {dilations}; they must be at least 1")
    pads = padding(node, image(x), reach(weight.shape[2:], dilations), strides)
    scales = per_channel(scale, len(weight))
    parameters = np.ascontiguousarray(weight), scales, _bias(imp, node, 2, x, scales), *clamp(node, y)
    geometry = strides, pads, dilations, groups
    if x.dtype == "int16":
        imp.produce(node, g.WideConv2d(node.name, (x,), y, *parameters, *geometry))
        return
    facts: dict[str, Any] = {"float32_scale": imp.info(node, 0).unsigned}
    imp.produce(node, g.QConv2d(node.name, (x,), y, *parameters, *geometry, **facts))


def conv_2d(imp: TfliteImporter, node: FileNode) -> None:
    """CONV_2D, weights OHWI; fewer input channels in them than in the image make groups."""
    weight, scale = weights(imp, node, 1, 0)
    x = imp.activation(node, 0, wide=True)
    image(x)
    if weight.ndim != 4 or x.shape[1] % weight.shape[3]:
        raise Refused(f"has {x.shape[1]} input channels and weights of shape {weight.shape}")
    _convolution(imp, node, weight.transpose(TO_NCHW), scale, x.shape[1] // weight.shape[3])


def depthwise(imp: TfliteImporter, node: FileNode) -> None:
    """DEPTHWISE_CONV_2D, weights (1, KH, KW, C * multiplier): a convolution with a group per channel."""
    weight, scale = weights(imp, node, 1, 3)
    x = imp.activation(node, 0, wide=True)
    image(x)
    if weight.ndim != 4 or weight.shape[0] != 1 or weight.shape[3] % x.shape[1]:
        raise Refused(f"has {x.shape[1]} input channels and weights of shape {weight.shape}")
    _convolution(imp, node, weight.transpose(3, 0, 1, 2), scale, x.shape[1])


def transpose_conv(imp: TfliteImporter, node: FileNode) -> None:
    """TRANSPOSE_CONV, weights OHWI; inputs are the output shape, weights, image, biases."""
    weight, scale = weights(imp, node, 1, 0)
    imp.known(node, 0)  # the output's shape, which the output tensor has, too
    x, y, strides = imp.activation(node, 2, wide=True), imp.result(node), strides_of(node)
    pads = cropped(node, image(x), image(y), weight.shape[1:3])
    scales = per_channel(scale, len(weight))
    bias = _bias(imp, node, 3, x, scales)
    parameters = np.ascontiguousarray(weight.transpose(TO_NCHW)), scales, bias, *clamp(node, y), strides, pads
    if x.dtype == "int16":
        imp.produce(node, g.WideConvTranspose2d(node.name, (x,), y, *parameters))
        return
    facts: dict[str, Any] = {"float32_scale": imp.info(node, 2).unsigned}
    imp.produce(node, g.QConvTranspose2d(node.name, (x,), y, *parameters, **facts))


def _product(imp: TfliteImporter, node: FileNode) -> None:
    """FULLY_CONNECTED of two activations, without biases."""
    x, weight = (imp.activation(node, k, plain=True) for k in (0, 1))
    y = imp.result(node, plain=True)
    if imp.given(node, 2) or len(weight.shape) != 2:
        raise Refused("has weights that are not constant, and biases, or other dimensions than 2")
    rows = imp.reshape(f"{node.name}.rows", x, (int(np.prod(x.shape)) // weight.shape[1], weight.shape[1]))
    flat = replace(y, name=f"{node.name}.products", shape=(rows.shape[0], weight.shape[0]))
    flat = imp.add(g.BatchMatMul, (rows, weight), flat, True)
    if (bounds := clamp(node, y)) != every(y):
        flat = imp.add(g.Requantize, (flat,), replace(flat, name=f"{node.name}.clamped"), *bounds)
    imp.produce(node, g.Reshape(node.name, (flat,), y), plain=True)


def fully_connected(imp: TfliteImporter, node: FileNode) -> None:
    """FULLY_CONNECTED, weights (O, I); an input of any shape is rows of I features."""
    if imp.info(node, 1).data is None:
        _product(imp, node)
        return
    weight, scale = weights(imp, node, 1, 0)
    if weight.ndim != 2 or node.option("weightsFormat", 0):
        raise Refused(f"has weights of shape {weight.shape} in format {node.option('weightsFormat', 0)}")
    x, y = imp.activation(node, 0, plain=True, wide=True), imp.result(node, plain=True)
    channels, features = weight.shape
    if np.prod(x.shape) % features:
        raise Refused(f"has input {x.name!r} of shape {x.shape} and weights of shape {weight.shape}")
    rows = int(np.prod(x.shape)) // features
    x = imp.reshape(f"{node.name}.rows", x, (rows, features))
    scales = per_channel(scale, channels)
    parameters = weight, scales, _bias(imp, node, 2, x, scales), *clamp(node, y)

    def make(out: g.Tensor) -> g.Operator:
        if x.dtype == "int16":
            return g.WideDense(node.name, (x,), out, *parameters)
        return g.QDense(node.name, (x,), out, *parameters, float32_scale=scale.size == 1)

    imp.produce_as(node, y, (rows, channels), "rows", make)


Handler = Callable[[TfliteImporter, FileNode], None]
Unary = Callable[[TfliteImporter, FileNode, g.Tensor, g.Tensor], g.Operator]  # of the input and the output


def unary(make: Unary, *, plain: bool = False, dtype: str | None = "int8", wide: bool = False) -> Handler:
    """A handler of operators that read one activation, in the file's layout if `plain`.

    It has type `dtype` (None: any), with `wide` also int16.
    """

    def convert(imp: TfliteImporter, node: FileNode) -> None:
        x, y = imp.activation(node, 0, plain=plain, dtype=dtype, wide=wide), imp.result(node, plain=plain)
        imp.produce(node, make(imp, node, x, y), plain=plain)

    return convert


def operand(
    imp: TfliteImporter, node: FileNode, position: int, rank: int, dtype: str | None = "int8", wide: bool = False
) -> g.Tensor:
    """An operand that broadcasts against tensors of `rank` dimensions, in their layout."""
    x = imp.activation(node, position, dtype=dtype, wide=wide)
    if rank != 4 or len(x.shape) == 4:
        return x
    x = imp.reshape(f"{node.name}.{position}", x, (1,) * (4 - len(x.shape)) + x.shape)
    return imp.relayout(x, imp.unused(f"{x.name}.nchw"), TO_NCHW)


def binary(cls: type[g.Binary]) -> Handler:
    """ADD, SUB and MUL, with their fused activation."""

    def convert(imp: TfliteImporter, node: FileNode) -> None:
        y = imp.result(node)
        operands = tuple(operand(imp, node, k, len(y.shape), wide=cls.wide) for k in (0, 1))
        if issubclass(cls, g.Add) and y.dtype == "int16" and node.option("potScaleInt16", True):
            _refuse_powers(*operands, y)
        imp.produce(node, cls(node.name, operands, y, *clamp(node, y)))

    return convert


def _refuse_powers(*tensors: g.Tensor) -> None:
    """Raise `Refused` where all scales are powers of two: sums of 16 bits are then made by shifts alone."""
    if all(math.frexp(t.scale)[0] == 0.5 for t in tensors):
        scales = ", ".join(f"{t.scale:g}" for t in tensors)
        raise Refused(f"has scales {scales}, all powers of two, and pot_scale_int16; set that option to false")


def pairwise(cls: type[g.Pairwise]) -> Handler:
    """MAXIMUM and MINIMUM, of bytes as they are; PRELU and SQUARED_DIFFERENCE."""

    def convert(imp: TfliteImporter, node: FileNode) -> None:
        y = imp.result(node)
        x, other = (operand(imp, node, k, len(y.shape), wide=cls.wide) for k in (0, 1))
        other = imp.taken_as(other, x) if issubclass(cls, g.Maximum) else other
        imp.produce(node, cls(node.name, (x, other), y))

    return convert


Table = Callable[[g.Tensor, g.Tensor], np.ndarray]  # of the input and the output


def function(name: str, table: Table, wide: Table | None = None) -> Handler:
    """A function of one value by its table, of int16 values by the table `wide`."""

    def make(imp: TfliteImporter, node: FileNode, x: g.Tensor, y: g.Tensor) -> g.Operator:
        if wide is not None and x.dtype == "int16":
            return g.WideLookup(node.name, (x,), y, name, wide(x, y))
        return g.Lookup(node.name, (x,), y, name, table(x, y))

    return unary(make, wide=wide is not None)


def real(name: str, wide: Table | None = None) -> Handler:
    """A function that the kernels compute by a table of its real values."""
    return function(name, lambda x, y: tables.table(name, x, y), wide)


def by_steps(name: str) -> Table:
    """The table of int16 values of a function that the kernels compute by interpolation."""
    return lambda x, y: int16_tables.real(name, x, y)


def leaky_relu(imp: TfliteImporter, node: FileNode, x: g.Tensor, y: g.Tensor) -> g.Operator:
    """LEAKY_RELU of int8 or int16 values."""
    alpha = node.option("alpha", 0.0)
    if x.dtype == "int16":
        return g.WideLookup(node.name, (x,), y, "leaky_relu", int16_tables.leaky_relu(alpha, x, y))
    return g.LeakyRelu(node.name, (x,), y, "leaky_relu", tables.leaky_relu(alpha, x, y), tables.slopes(alpha, x, y))


def gelu(imp: TfliteImporter, node: FileNode) -> None:
    """GELU, exact or by the hyperbolic tangent."""
    name = "gelu_tanh" if node.option("approximate", False) else "gelu"
    real(name, by_steps(name))(imp, node)


def relu(low: float, high: float | None) -> Handler:
    """A rectifier of its own: rescaled, and clamped to real limits."""

    def make(imp: TfliteImporter, node: FileNode, x: g.Tensor, y: g.Tensor) -> g.Operator:
        bounds = limits(y, low, high)
        if x.dtype == "int16":
            return g.WideLookup(node.name, (x,), y, "relu", int16_tables.rescaled(x, y, *bounds))
        return g.Requantize(node.name, (x,), y, *bounds)

    return unary(make, wide=True)
