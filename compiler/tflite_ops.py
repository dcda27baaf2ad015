"""The operators of .tflite files, each as the operator of compiler/graph.py that computes the same integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from . import graph as g
from . import tables
from .tflite import TO_NCHW, TO_NHWC, Importer, Refused
from .tflite_file import Node, schema
from .tflite_shapes import ranges

_ACTIVATION = schema.ActivationFunctionType
_CANONICAL_AXIS = dict(enumerate(TO_NHWC))  # NHWC axis -> NCHW axis
_SAME = schema.Padding.SAME


def _quantised(value: float, y: g.Tensor) -> int:
    """The int8 step of a real value, before clamping, as TensorFlow Lite computes it."""
    return y.zero_point + int(tables.round_away(np.float32(value) / np.float32(y.scale)))


def _clamp(node: Node, y: g.Tensor, kind: int | None = None) -> tuple[int, int]:
    """int8 limits of a fused activation (default: the node's). Raises `Refused` for those that are no clamp."""
    if kind is None:
        kind = node.option("fusedActivationFunction", _ACTIVATION.NONE)
    limits = {
        _ACTIVATION.NONE: (None, None),
        _ACTIVATION.RELU: (0.0, None),
        _ACTIVATION.RELU6: (0.0, 6.0),
        _ACTIVATION.RELU_N1_TO_1: (-1.0, 1.0),
    }
    if kind not in limits:
        raise Refused(f"has fused activation {kind}; only none, RELU, RELU6 and RELU_N1_TO_1 are supported")
    return _limits(y, *limits[kind])


def _limits(y: g.Tensor, low: float | None, high: float | None) -> tuple[int, int]:
    bottom = -128 if low is None else max(-128, _quantised(low, y))
    top = 127 if high is None else min(127, _quantised(high, y))
    if bottom > top:
        raise Refused(f"clamps to {bottom}..{top}, which holds no value of output {y.name!r}")
    return bottom, top


def _weights(imp: Importer, node: Node, position: int, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """(int8 weights in the file's layout, one float32 scale per index of `axis`, or one alone)."""
    data, info = imp.constant(node, position), imp.info(node, position)
    if info.type != "INT8":
        raise Refused(f"has weights {info.name!r} of type {info.type.lower()}; only int8 is supported")
    if data.ndim <= axis:
        raise Refused(f"has weights {info.name!r} of shape {info.shape}")
    if not info.scale.size:
        raise Refused(f"has weights {info.name!r} without quantisation parameters")
    if info.zero_point.any():
        raise Refused(f"has weights {info.name!r} with a zero point other than 0")
    if info.scale.size > 1 and (info.axis != axis or info.scale.size != data.shape[axis]):
        raise Refused(
            f"has weights {info.name!r} of shape {info.shape} with {info.scale.size} scales along dimension "
            f"{info.axis}; one scale, or one per index of dimension {axis}, is supported"
        )
    if not (np.isfinite(info.scale).all() and (info.scale >= 0).all()):
        raise Refused(f"has weights {info.name!r} with a scale that is negative or not finite")
    return data, info.scale


def _bias(imp: Importer, node: Node, position: int, channels: int) -> np.ndarray:
    if not imp.given(node, position):
        return np.zeros(channels, np.int32)
    data, info = imp.constant(node, position), imp.info(node, position)
    if info.type != "INT32" or data.size != channels:
        raise Refused(
            f"has bias {info.name!r}: {info.type.lower()} of shape {info.shape}, int32 ({channels},) expected"
        )
    return data.reshape(channels)


def _spread(scale: np.ndarray, channels: int) -> np.ndarray:
    return np.ascontiguousarray(np.broadcast_to(scale, (channels,)))


def _image(t: g.Tensor) -> tuple[int, int]:
    if len(t.shape) != 4:
        raise Refused(f"has input {t.name!r} of {len(t.shape)} dimensions; only 4 are supported")
    return t.shape[2], t.shape[3]


def _strides(node: Node) -> tuple[int, int]:
    strides = node.option("strideH", 0), node.option("strideW", 0)
    if min(strides) < 1:
        raise Refused(f"has strides {strides}; they must be at least 1")
    return strides


def _same(
    size: tuple[int, int], out: tuple[int, int], kernel: tuple[int, ...], strides: tuple[int, int]
) -> tuple[int, int, int, int]:
    """(top, left, bottom, right) so that `out` windows fit `size`; the odd row or column comes last."""
    total = [max(0, (out[k] - 1) * strides[k] + kernel[k] - size[k]) for k in (0, 1)]
    before = [n // 2 for n in total]
    return before[0], before[1], total[0] - before[0], total[1] - before[1]


def _padding(
    node: Node, size: tuple[int, int], kernel: tuple[int, ...], strides: tuple[int, int]
) -> tuple[int, int, int, int]:
    if node.option("padding", _SAME) != _SAME:
        return 0, 0, 0, 0
    return _same(size, (-(-size[0] // strides[0]), -(-size[1] // strides[1])), kernel, strides)


def _convolution(imp: Importer, node: Node, weight: np.ndarray, scale: np.ndarray, groups: int) -> None:
    """A convolution with weights (O, I, KH, KW)."""
    x, y, strides = imp.activation(node, 0), imp.result(node), _strides(node)
    dilations = node.option("dilationHFactor", 1), node.option("dilationWFactor", 1)
    if min(dilations) < 1:
        raise Refused(f"has dilations {dilations}; they must be at least 1")
    reach = tuple((k - 1) * d + 1 for k, d in zip(weight.shape[2:], dilations))
    pads = _padding(node, _image(x), reach, strides)
    channels = len(weight)
    parameters = np.ascontiguousarray(weight), _spread(scale, channels), _bias(imp, node, 2, channels)
    imp.emit(node, g.QConv2d(node.name, (x,), y, *parameters, *_clamp(node, y), strides, pads, dilations, groups))


def _conv_2d(imp: Importer, node: Node) -> None:
    weight, scale = _weights(imp, node, 1, 0)
    x = imp.activation(node, 0)
    _image(x)
    if weight.ndim != 4 or x.shape[1] % weight.shape[3]:
        raise Refused(f"has {x.shape[1]} input channels and weights of shape {weight.shape}")
    _convolution(imp, node, weight.transpose(TO_NCHW), scale, x.shape[1] // weight.shape[3])


def _depthwise(imp: Importer, node: Node) -> None:
    weight, scale = _weights(imp, node, 1, 3)
    x = imp.activation(node, 0)
    _image(x)
    if weight.ndim != 4 or weight.shape[0] != 1 or weight.shape[3] % x.shape[1]:
        raise Refused(f"has {x.shape[1]} input channels and weights of shape {weight.shape}")
    _convolution(imp, node, weight.transpose(3, 0, 1, 2), scale, x.shape[1])


def _transpose_conv(imp: Importer, node: Node) -> None:
    weight, scale = _weights(imp, node, 1, 0)
    imp.constant(node, 0)  # the output's shape, which the file also gives as such
    x, y, strides = imp.activation(node, 2), imp.result(node), _strides(node)
    size, grown, kernel = _image(x), _image(y), weight.shape[1:3]
    top, left = 0, 0
    if node.option("padding", _SAME) == _SAME:  # that of the convolution from the output to the input
        top, left, _, _ = _same(grown, size, kernel, strides)
    bottom, right = ((size[k] - 1) * strides[k] + kernel[k] - (top, left)[k] - grown[k] for k in (0, 1))
    channels = len(weight)
    parameters = (
        np.ascontiguousarray(weight.transpose(TO_NCHW)),
        _spread(scale, channels),
        _bias(imp, node, 3, channels),
    )
    pads = top, left, bottom, right
    imp.emit(node, g.QConvTranspose2d(node.name, (x,), y, *parameters, *_clamp(node, y), strides, pads))


def _fully_connected(imp: Importer, node: Node) -> None:
    weight, scale = _weights(imp, node, 1, 0)
    if weight.ndim != 2 or node.option("weightsFormat", 0):
        raise Refused(f"has weights of shape {weight.shape} in format {node.option('weightsFormat', 0)}")
    x, y = imp.activation(node, 0, plain=True), imp.result(node, plain=True)
    channels, features = weight.shape
    if np.prod(x.shape) % features:
        raise Refused(f"has input {x.name!r} of shape {x.shape} and weights of shape {weight.shape}")
    rows = int(np.prod(x.shape)) // features
    x = imp.reshape(f"{node.name}.rows", x, (rows, features))
    direct = y.shape == (rows, channels)
    flat = y if direct else g.Tensor(imp.unused(f"{y.name}.rows"), (rows, channels), "int8", y.scale, y.zero_point)
    parameters = weight, _spread(scale, channels), _bias(imp, node, 2, channels)
    op = g.QDense(node.name, (x,), flat, *parameters, *_clamp(node, y), float32_scale=scale.size == 1)
    if not direct:
        imp.ops.append(op)
        op = g.Reshape(f"{node.name}.reshape", (flat,), y)
    imp.emit(node, op, plain=True)


def _binary(cls: type[g.Binary]) -> Callable[[Importer, Node], None]:
    def convert(imp: Importer, node: Node) -> None:
        y = imp.result(node)
        operands = tuple(_operand(imp, node, k, len(y.shape)) for k in (0, 1))
        imp.emit(node, cls(node.name, operands, y, *_clamp(node, y)))

    return convert


def _operand(imp: Importer, node: Node, position: int, rank: int) -> g.Tensor:
    """An operand that broadcasts against tensors of `rank` dimensions, in their layout."""
    x = imp.activation(node, position)
    if rank != 4 or len(x.shape) == 4:
        return x
    x = imp.reshape(f"{node.name}.{position}", x, (1,) * (4 - len(x.shape)) + x.shape)
    return imp.relayout(x, imp.unused(f"{x.name}.nchw"), TO_NCHW)


def _concatenation(imp: Importer, node: Node) -> None:
    y = imp.result(node)
    rank = len(y.shape)
    axis = node.option("axis", 0) % rank
    if _clamp(node, y) != (-128, 127):
        raise Refused("has a fused activation, which is not supported")
    inputs = tuple(imp.activation(node, k) for k in range(len(node.inputs)))
    imp.emit(node, g.Concat(node.name, inputs, y, _CANONICAL_AXIS[axis] if rank == 4 else axis))


def _pad(imp: Importer, node: Node) -> None:
    x, y = imp.activation(node, 0), imp.result(node)
    rows = imp.constant(node, 1).reshape(-1, 2).tolist()
    value = int(imp.constant(node, 2).item()) if node.kind == "PADV2" else y.zero_point
    if len(rows) != len(x.shape):
        raise Refused(f"pads {len(rows)} dimensions of input {x.name!r}, which has {len(x.shape)}")
    pads = tuple((before, after) for before, after in ([rows[k] for k in TO_NCHW] if len(rows) == 4 else rows))
    imp.emit(node, g.Pad(node.name, (x,), y, pads, value))


def _pool(cls: type[g.Pool]) -> Callable[[Importer, Node], None]:
    def convert(imp: Importer, node: Node) -> None:
        x, y, strides = imp.activation(node, 0), imp.result(node), _strides(node)
        kernel = node.option("filterHeight", 0), node.option("filterWidth", 0)
        if min(kernel) < 1:
            raise Refused(f"has windows of {kernel}; they must be at least 1")
        pads = _padding(node, _image(x), kernel, strides)
        imp.emit(node, cls(node.name, (x,), y, kernel, strides, pads, *_clamp(node, y)))

    return convert


def _mean(imp: Importer, node: Node) -> None:
    x = imp.activation(node, 0, plain=True)
    axes = tuple(sorted({int(a) % len(x.shape) for a in imp.constant(node, 1).reshape(-1)}))
    if len(x.shape) == 4 and (node.option("keepDims", False) or axes in ((1, 2), (1, 2, 3))):
        axes = tuple(sorted(_CANONICAL_AXIS[a] for a in axes))
        imp.emit(node, g.Mean(node.name, (imp.activation(node, 0),), imp.result(node), axes))
    else:
        imp.emit(node, g.Mean(node.name, (x,), imp.result(node, plain=True), axes), plain=True)


def _reshape(imp: Importer, node: Node) -> None:
    x, y = imp.activation(node, 0, plain=True, dtype=None), imp.result(node, plain=True)
    imp.emit(node, g.Reshape(node.name, (x,), y), plain=True)


def _transpose(imp: Importer, node: Node) -> None:
    x, axes = imp.activation(node, 0, dtype=None), tuple(int(a) for a in imp.constant(node, 1).reshape(-1))
    if len(axes) == 4:  # from NCHW to the file's layout, exchange, and back
        axes = tuple(TO_NHWC[axes[k]] for k in TO_NCHW)
    imp.emit(node, g.Transpose(node.name, (x,), imp.result(node), axes))


def _softmax(imp: Importer, node: Node) -> None:
    x, y = imp.activation(node, 0), imp.result(node)
    axis = 1 if len(x.shape) == 4 else len(x.shape) - 1
    imp.emit(node, g.Softmax(node.name, (x,), y, axis, float(node.option("beta", 0.0))))


def _lookup(function: str) -> Callable[[Importer, Node], None]:
    def convert(imp: Importer, node: Node) -> None:
        x, y = imp.activation(node, 0), imp.result(node)
        imp.emit(node, g.Lookup(node.name, (x,), y, function, tables.table(function, x, y)))

    return convert


def _leaky_relu(imp: Importer, node: Node) -> None:
    x, y = imp.activation(node, 0), imp.result(node)
    table = tables.leaky_relu(node.option("alpha", 0.0), x, y)
    imp.emit(node, g.Lookup(node.name, (x,), y, "leaky_relu", table))


def _relu(low: float, high: float | None) -> Callable[[Importer, Node], None]:
    def convert(imp: Importer, node: Node) -> None:
        x, y = imp.activation(node, 0), imp.result(node)
        imp.emit(node, g.Requantize(node.name, (x,), y, *_limits(y, low, high)))

    return convert


def _quantize(imp: Importer, node: Node) -> None:
    """float32, int8 or uint8 -> int8 or uint8; uint8 is recoded as int8 for the arithmetic."""
    x, y = imp.activation(node, 0, plain=True, dtype=None), imp.result(node, plain=True)
    if "uint8" not in (x.dtype, y.dtype):
        x, y = imp.activation(node, 0, dtype=None), imp.result(node)
        imp.emit(node, _to_int8(node, x, y))
        return
    inside = y if y.dtype == "int8" else _signed(imp, y)
    if x.dtype == "uint8":
        same = (x.scale, x.zero_point - 128) == (inside.scale, inside.zero_point)
        signed = inside if same else _signed(imp, x)
        imp.ops.append(g.Recode(f"{node.name}.recode", (x,), signed))
        x = signed
    if x is not inside:
        imp.ops.append(_to_int8(node, x, inside))
    if y is not inside:
        imp.ops.append(g.Recode(f"{node.name}.uint8", (inside,), y))
    imp.emit(node, imp.ops.pop(), plain=True)


def _to_int8(node: Node, x: g.Tensor, y: g.Tensor) -> g.Op:
    return g.Quantize(node.name, (x,), y, True) if x.dtype == "float32" else g.Requantize(node.name, (x,), y)


def _signed(imp: Importer, t: g.Tensor) -> g.Tensor:
    """A new int8 tensor of the values of a uint8 one."""
    return g.Tensor(imp.unused(f"{t.name}.int8"), t.shape, "int8", t.scale, t.zero_point - 128)


def _dequantize(imp: Importer, node: Node) -> None:
    imp.emit(node, g.Dequantize(node.name, (imp.activation(node, 0),), imp.result(node)))


def _slice(imp: Importer, node: Node) -> None:
    x, y = imp.activation(node, 0), imp.result(node)
    begin = [int(b) for b in imp.constant(node, 1).reshape(-1)]
    begin = [begin[k] for k in TO_NCHW] if len(begin) == 4 else begin
    imp.emit(node, g.StridedSlice(node.name, (x,), y, tuple(begin), (1,) * len(begin)))


def _strided_slice(imp: Importer, node: Node) -> None:
    masks = {name: node.option(f"{name}Mask", 0) for name in ("begin", "end", "ellipsis", "newAxis", "shrinkAxis")}
    if masks["ellipsis"] or masks["newAxis"] or node.option("offset", False):
        raise Refused("has an ellipsis mask, a new-axis mask or an end that is an offset, which are not supported")
    x, y = imp.activation(node, 0, plain=True), imp.result(node, plain=True)
    given = [[int(v) for v in imp.constant(node, k).reshape(-1)] for k in (1, 2, 3)]
    if {len(values) for values in given} != {len(x.shape)} or 0 in given[2]:
        raise Refused(f"slices {len(given[0])} dimensions of input {x.name!r}, which has {len(x.shape)}")
    found = ranges(node, x.shape, *given)
    if not all(found):
        raise Refused(f"takes nothing along dimension {[bool(indices) for indices in found].index(False)}")
    begin, sizes = [indices[0] for indices in found], [len(indices) for indices in found]
    steps = tuple(step if n > 1 else 1 for step, n in zip(given[2], sizes))
    if not masks["shrinkAxis"] and len(sizes) == 4:
        x, y = imp.activation(node, 0), imp.result(node)
        begin, steps = (tuple(values[k] for k in TO_NCHW) for values in (begin, steps))
        imp.emit(node, g.StridedSlice(node.name, (x,), y, begin, steps))
        return
    part = y
    if masks["shrinkAxis"]:
        part = g.Tensor(imp.unused(f"{y.name}.slice"), tuple(sizes), y.dtype, y.scale, y.zero_point)
    op = g.StridedSlice(node.name, (x,), part, tuple(begin), steps)
    if masks["shrinkAxis"]:
        imp.ops.append(op)
        op = g.Reshape(f"{node.name}.reshape", (part,), y)
    imp.emit(node, op, plain=True)


def _split(imp: Importer, node: Node) -> None:
    x, rank = imp.activation(node, 1), len(imp.info(node, 1).shape)
    axis = int(imp.constant(node, 0).item()) % rank
    axis, start = _CANONICAL_AXIS[axis] if rank == 4 else axis, 0
    for k in range(len(node.outputs)):
        y = imp.result(node, k)
        begin = tuple(start if a == axis else 0 for a in range(rank))
        imp.emit(node, g.StridedSlice(f"{node.name}.{k}", (x,), y, begin, (1,) * rank), k)
        start += y.shape[axis]


def _pack(imp: Importer, node: Node) -> None:
    y, rank = imp.result(node, plain=True), len(imp.file.tensors[node.outputs[0]].shape)
    axis = node.option("axis", 0) % rank
    part = tuple(1 if a == axis else n for a, n in enumerate(y.shape))
    given = [imp.activation(node, k, plain=True) for k in range(len(node.inputs))]
    parts = tuple(imp.reshape(f"{node.name}.{k}", x, part) for k, x in enumerate(given))
    imp.emit(node, g.Concat(node.name, parts, y, axis), plain=True)


def _unpack(imp: Importer, node: Node) -> None:
    x = imp.activation(node, 0, plain=True)
    rank = len(x.shape)
    axis = node.option("axis", 0) % rank
    shape = tuple(1 if a == axis else n for a, n in enumerate(x.shape))
    for k in range(len(node.outputs)):
        y = imp.result(node, k, plain=True)
        part = g.Tensor(imp.unused(f"{node.name}.{k}"), shape, y.dtype, y.scale, y.zero_point)
        begin = tuple(k if a == axis else 0 for a in range(rank))
        imp.ops.append(g.StridedSlice(part.name, (x,), part, begin, (1,) * rank))
        imp.emit(node, g.Reshape(f"{part.name}.reshape", (part,), y), k, plain=True)


# operator -> the most inputs that it takes (None: any number), and what converts it
_HANDLERS: dict[str, tuple[int | None, Callable[[Importer, Node], None]]] = {
    "ADD": (2, _binary(g.Add)),
    "AVERAGE_POOL_2D": (1, _pool(g.ExactAveragePool)),
    "CONCATENATION": (None, _concatenation),
    "CONV_2D": (3, _conv_2d),
    "DEPTHWISE_CONV_2D": (3, _depthwise),
    "DEQUANTIZE": (1, _dequantize),
    "EXPAND_DIMS": (2, _reshape),
    "FULLY_CONNECTED": (3, _fully_connected),
    "LEAKY_RELU": (1, _leaky_relu),
    "LOGISTIC": (1, _lookup("logistic")),
    "MAX_POOL_2D": (1, _pool(g.MaxPool)),
    "MEAN": (2, _mean),
    "MUL": (2, _binary(g.Mul)),
    "PACK": (None, _pack),
    "PAD": (2, _pad),
    "PADV2": (3, _pad),
    "QUANTIZE": (1, _quantize),
    "RELU": (1, _relu(0.0, None)),
    "RELU6": (1, _relu(0.0, 6.0)),
    "RELU_0_TO_1": (1, _relu(0.0, 1.0)),
    "RELU_N1_TO_1": (1, _relu(-1.0, 1.0)),
    "RESHAPE": (2, _reshape),
    "SLICE": (3, _slice),
    "SOFTMAX": (1, _softmax),
    "SPLIT": (2, _split),
    "SQUEEZE": (1, _reshape),
    "STRIDED_SLICE": (4, _strided_slice),
    "SUB": (2, _binary(g.Sub)),
    "TANH": (1, _lookup("tanh")),
    "TRANSPOSE": (2, _transpose),
    "TRANSPOSE_CONV": (4, _transpose_conv),
    "UNPACK": (1, _unpack),
}
_SEVERAL_OUTPUTS = ("SPLIT", "UNPACK")

OPERATORS = tuple(_HANDLERS)


def convert(imp: Importer, node: Node) -> None:
    """Append what computes the node. Raises `Refused`, or `InputError` where the parts do not fit together."""
    if node.kind not in _HANDLERS:
        raise Refused("is not supported")
    most, handler = _HANDLERS[node.kind]
    if most is not None and len(node.inputs) > most:
        raise Refused(f"has {len(node.inputs)} inputs; at most {most} are supported")
    if len(node.outputs) > 1 and node.kind not in _SEVERAL_OUTPUTS:
        raise Refused(f"has {len(node.outputs)} outputs; only one is supported")
    handler(imp, node)
