"""Selects the kernels that compute an operator, and their attributes, for host steps and the reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from ...hw.errors import UnsupportedError
from ...runtime.hostops import HOST_OPS
from .. import graph as g
from .elementwise import SQUARE_SHIFT
from .operators import ADD_SHIFT


@dataclass
class HostCall:
    """One call of a function of `runtime.hostops.HOST_OPS`: its name, JSON attributes, constant arrays by name.

    `operands` are the constant operands that follow the activations, `dtype` is that of the result.
    """

    name: str
    attrs: dict
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    dtype: str = "int8"

    def __call__(self, *arrays: np.ndarray) -> np.ndarray:
        """The result for input arrays."""
        (result,) = HOST_OPS[self.name](list(arrays), self.attrs | self.constants)
        return result


@dataclass
class CustomCall(HostCall):
    """What computes an operator of a user's own; the host has no function of that name."""

    compute: Callable[..., np.ndarray] = np.asarray

    def __call__(self, *arrays: np.ndarray) -> np.ndarray:
        """The result for input arrays."""
        return self.compute(*arrays)


def host_calls(op: g.Operator, contract: str) -> list[HostCall]:
    """The calls that compute `op` in order, each on the result of the one before it.

    The first takes the operator's inputs, constant ones included. A convolution or dense layer is two calls: the int32
    accumulators, and their requantisation. Raises `UnsupportedError` for an operator without a kernel.
    """
    if isinstance(op, g.Custom):
        return [CustomCall(type(op).__name__, {}, {}, op.output.dtype, op.compute)]
    for kind, make in _MAKERS.items():
        if isinstance(op, kind):
            return make(op, contract)
    raise UnsupportedError(f"{type(op).__name__} {op.name!r}: this operator has no kernel")


def _linear(op: g.Linear, contract: str) -> list[HostCall]:
    attrs: dict = {"x_zero_point": op.x.zero_point}
    if isinstance(op, g.QConv2d):
        name = "conv2d_accumulators"
        attrs |= {"strides": list(op.strides), "pads": list(op.pads)}
        attrs |= {"dilations": list(op.dilations), "groups": op.groups}
    elif isinstance(op, g.QConvTranspose2d):
        name = "conv_transpose2d_accumulators"
        attrs |= {"strides": list(op.strides), "pads": list(op.pads)}
    else:
        name = "dense_accumulators"
    multiplier, exponent = op.multipliers
    clamp = {"zero_point": op.output.zero_point, "low": op.low, "high": op.high, "contract": op.contract or contract}
    return [
        HostCall(name, attrs, {"weight": op.weight, "bias": op.bias}, "int32"),
        HostCall("requantise", clamp, {"multiplier": multiplier, "exponent": exponent}),
    ]


def _quantize(op: g.Quantize, contract: str) -> list[HostCall]:
    y = op.output
    return [HostCall("quantize", {"scale": y.scale, "zero_point": y.zero_point, "ties_away": op.ties_away})]


def _quantize_image(op: g.QuantizeImage, contract: str) -> list[HostCall]:
    y = op.output
    attrs = {"scale": y.scale, "zero_point": y.zero_point, "ties_away": True}
    return [HostCall("transpose", {"axes": [0, 3, 1, 2]}, dtype="float32"), HostCall("quantize", attrs)]


def _dequantize(op: g.Dequantize, contract: str) -> list[HostCall]:
    return [HostCall("dequantize", {"scale": op.x.scale, "zero_point": op.x.zero_point}, dtype="float32")]


class Scaled(Protocol):
    """An operator with one R."""

    @property
    def multipliers(self) -> tuple[int, int]:
        """(multiplier, exponent)."""
        ...


def _scale(op: Scaled) -> dict:
    multiplier, exponent = op.multipliers
    return {"multiplier": multiplier, "exponent": exponent}


def _zero_points(op: g.Operator) -> dict:
    return {"x_zero_point": op.x.zero_point, "zero_point": op.output.zero_point}


def _requantize(op: g.Requantize, contract: str) -> list[HostCall]:
    return [HostCall("rescale", _zero_points(op) | _scale(op) | {"low": op.low, "high": op.high})]


def _lookup(op: g.Lookup | g.NearestRequantize, contract: str) -> list[HostCall]:
    return [HostCall("lookup", {}, {"table": op.table})]


def _add(op: g.Add, contract: str) -> list[HostCall]:
    multipliers, exponents = zip(*op.multipliers)
    attrs = {"zero_points": [t.zero_point for t in (*op.inputs, op.output)], "sign": op.sign, "shift": ADD_SHIFT}
    attrs |= {"multipliers": list(multipliers), "exponents": list(exponents), "low": op.low, "high": op.high}
    return [HostCall("add", attrs)]


def _multiply(op: g.Mul, contract: str) -> list[HostCall]:
    return [HostCall("multiply", _operands(op) | _scale(op))]


def _operands(op: g.Binary) -> dict:
    return {"zero_points": [t.zero_point for t in (*op.inputs, op.output)], "low": op.low, "high": op.high}


def _window(op: g.Pool) -> dict:
    return {"kernel": list(op.kernel), "strides": list(op.strides), "low": op.low, "high": op.high}


def _average_pool(op: g.AveragePool, contract: str) -> list[HostCall]:
    return [HostCall("average_pool", _window(op) | _zero_points(op) | _scale(op) | {"contract": contract})]


def _dense16(op: g.Dense16, contract: str) -> list[HostCall]:
    multiplier, exponent = op.multipliers
    constants = {"weight": op.weight, "bias": op.bias, "multiplier": multiplier, "exponent": exponent}
    attrs = {"x_zero_point": op.x.zero_point} | ({"dtype": "int32"} if op.output.dtype == "int32" else {})
    return [HostCall("dense_int16", attrs, constants, op.output.dtype)]


def _filter16(op: g.Filter16, contract: str) -> list[HostCall]:
    attrs = {"zero_point": op.output.zero_point} | _scale(op)
    return [HostCall("filter_int16", attrs, {"weight": op.weight, "bias": op.bias})]


def _lstm(op: g.Lstm, contract: str) -> list[HostCall]:
    (gates, exponents), (multiplier, exponent) = op.multipliers
    constants = {"weight": op.weight, "bias": op.bias, "gate_multiplier": gates, "gate_exponent": exponents}
    return [HostCall("lstm", _cells(op) | {"multiplier": multiplier, "exponent": exponent}, constants, "int16")]


def _cells(op: g.Lstm | g.LstmStep) -> dict:
    return {"zero_point": op.output.zero_point, "cell_bits": op.cell_bits, "clip": op.clip, "coupled": op.coupled}


def _rows(op: g.LstmOutputs | g.LstmCells, first: int, dtype: str) -> HostCall:
    attrs = {"begin": [0, first, 0], "strides": [1, 1, 1], "shape": list(op.output.shape)}
    return HostCall("strided_slice", attrs, dtype=dtype)


def _rms_norm(op: g.RmsNorm, contract: str) -> list[HostCall]:
    multiplier, exponent = op.multipliers
    return [HostCall("rms_norm", {}, {"multiplier": multiplier, "exponent": exponent})]


def _attention(op: g.Attention) -> dict:
    multipliers, exponents = zip(*op.multipliers)
    attrs = {"key_groups": list(op.key_groups), "value_groups": list(op.value_groups), "seen": op.seen}
    return attrs | {"multipliers": list(multipliers), "exponents": list(exponents)}


def _products(op: g.BatchMatMul) -> dict:
    zero_points = [t.zero_point for t in (*op.inputs, op.output)]
    return (
        {"zero_points": zero_points, "transposed": op.transposed} | ({"images": True} if op.images else {}) | _scale(op)
    )


def _requant_shift(op: g.RequantShift) -> dict:
    clamp = {"low": op.low, "high": op.high, "zero_point": op.output.zero_point}
    return {"shift": op.shift, "dtype": op.output.dtype} | clamp


def _integer_softmax(op: g.IntegerSoftmax) -> dict:
    names = ("quadratic", "linear", "constant", "period", "levels", "low", "high")
    return {name: getattr(op, name) for name in names} | {"zero_point": op.output.zero_point} | _scale(op)


def _integer_norm(op: g.IntegerNorm) -> dict:
    return {"shift": op.shift, "low": op.low, "high": op.high, "x_zero_point": op.x.zero_point}


def _softmax(op: g.Softmax, contract: str) -> list[HostCall]:
    bits = {"bits": 16} if op.output.dtype == "int16" else {}
    return [HostCall("softmax", {"axis": op.axis} | bits | _scale(op), dtype=op.output.dtype)]


def _exact_average_pool(op: g.ExactAveragePool) -> dict:
    return _window(op) | {"pads": list(op.pads)} | ({"ties_up": True} if op.ties_up else {})


def _movement(name: str, attrs: Callable[..., dict]) -> Callable[..., list[HostCall]]:
    return lambda op, contract: [HostCall(name, attrs(op), dtype=op.output.dtype)]


def _float(
    name: str, attrs: Callable[..., dict], constants: Callable[..., dict] = lambda op: {}
) -> Callable[..., list[HostCall]]:
    return lambda op, contract: [HostCall(name, attrs(op), constants(op), "float32")]


def _order(op: g.FloatMatMul | g.FloatConv2d | g.FloatConvTranspose2d) -> dict:
    return {"ordered": True} if op.ordered else {}


def _geometry(op: g.FloatConv2d | g.FloatConvTranspose2d) -> dict:
    pairs = {"strides": op.strides, "pads": op.pads, "dilations": op.dilations}
    return {key: list(value) for key, value in pairs.items()} | {"groups": op.groups} | _order(op)


def _weights(op: g.FloatConv2d | g.FloatConvTranspose2d) -> dict:
    return {"weight": op.weight, "bias": op.bias}


def _float_window(op: g.FloatMaxPool | g.FloatAveragePool) -> dict:
    return {"kernel": list(op.kernel), "strides": list(op.strides), "pads": list(op.pads)}


def _scaled(op: g.Prelu | g.SquaredDifference) -> dict:
    multipliers, exponents = zip(*op.multipliers)
    zero_points = [t.zero_point for t in (*op.inputs, op.output)]
    return {"zero_points": zero_points, "multipliers": list(multipliers), "exponents": list(exponents)}


def _compare(op: g.Compare, contract: str) -> list[HostCall]:
    if op.x.dtype != "int8":
        return [HostCall("compare", {"function": op.function}, dtype="bool")]
    multipliers, exponents = zip(*op.multipliers)
    attrs: dict = {"function": op.function, "zero_points": [t.zero_point for t in op.inputs]}
    attrs |= {"multipliers": list(multipliers), "exponents": list(exponents)}
    return [HostCall("compare_int8", attrs, dtype="bool")]


def _resize(op: g.ResizeBilinear | g.NumberResize) -> dict:
    attrs: dict = {"size": list(op.output.shape[2:])}
    attrs |= {"align_corners": op.align_corners, "half_pixel_centers": op.half_pixel_centers}
    offset = None if isinstance(op, g.NumberResize) else op.offset
    return attrs if offset is None else attrs | {"offset": offset}


def _l2_normalize(op: g.L2Normalization) -> dict:
    return {"axis": op.axis, "x_zero_point": op.x.zero_point, "scaled_first": op.scaled_first}


def _log_softmax(op: g.LogSoftmax) -> dict:
    y = op.output
    return {"axis": op.axis, "scale": op.x.scale, "output_scale": y.scale, "zero_point": y.zero_point}


def _detections(op: g.Detections) -> dict:
    names = ("most", "classes", "classes_per_box", "per_class", "each_class", "score", "overlap")
    return {name: getattr(op, name) for name in names} | {"scales": list(op.scales)}


def _axes(op: g.Mean | g.ReduceMax | g.NumberReduce) -> dict:
    return {"axes": list(op.axes), "shape": list(op.output.shape)}


def _arg_max(op: g.ArgMax) -> dict:
    return {"axis": op.axis, "shape": list(op.output.shape), "dtype": op.output.dtype, "smallest": op.smallest}


_MAKERS: dict[type[g.Operator], Callable[..., list[HostCall]]] = {
    g.Linear: _linear,
    g.Quantize: _quantize,
    g.QuantizeImage: _quantize_image,
    g.Dequantize: _dequantize,
    g.Recode: _movement("recode", lambda op: {}),
    g.NearestRequantize: _lookup,
    g.Requantize: _requantize,
    g.Lookup: _lookup,
    g.Add: _add,
    g.Mul: _multiply,
    g.Softmax: _softmax,
    g.Dense16: _dense16,
    g.Filter16: _filter16,
    g.Lstm: _lstm,
    g.LstmStep: lambda op, contract: [HostCall("lstm_step", _cells(op) | _scale(op), dtype="int16")],
    g.LstmOutputs: lambda op, contract: [_rows(op, 0, "int16"), HostCall("narrow", {})],
    g.LstmCells: lambda op, contract: [_rows(op, op.x.shape[1] - 1, "int16")],
    g.Rescale: _movement("rescale_integers", lambda op: {"dtype": op.output.dtype} | _zero_points(op) | _scale(op)),
    g.MaxPool: lambda op, contract: [HostCall("max_pool", _window(op) | {"pads": list(op.pads)})],
    g.AveragePool: _average_pool,
    g.ExactAveragePool: _movement("exact_average_pool", _exact_average_pool),
    g.Sum: _movement("mean", lambda op: _axes(op) | _zero_points(op) | _scale(op)),
    g.Mean: _movement("mean", lambda op: _axes(op) | _zero_points(op) | _scale(op)),
    g.ResizeBilinear: _movement("resize_bilinear", _resize),
    g.Minimum: _movement("minimum", lambda op: {}),  # before the class that it derives from
    g.Maximum: _movement("maximum", lambda op: {}),
    g.PairLookup: lambda op, contract: [HostCall("lookup_pair", {}, {"table": op.table})],
    g.Prelu: _movement("prelu", _scaled),
    g.SquaredDifference: _movement("squared_difference", lambda op: _scaled(op) | {"shift": SQUARE_SHIFT}),
    g.Div: _movement("divide", lambda op: _operands(op) | _scale(op)),
    g.L2Normalization: _movement("l2_normalize", _l2_normalize),
    g.LogSoftmax: _movement("log_softmax", _log_softmax),
    g.ReduceMin: _movement("reduce_min", _axes),
    g.ReduceMax: _movement("reduce_max", _axes),
    g.ArgMax: _movement("arg_max", _arg_max),
    g.TopK: _movement("top_k", lambda op: {"count": op.output.shape[-1], "positions": op.positions}),
    g.NumberFunction: _movement("number_function", lambda op: {"function": op.function}),
    g.NumberBinary: _movement("number_binary", lambda op: {"function": op.function}),
    g.NumberReduce: _movement("number_reduce", lambda op: {"function": op.function} | _axes(op)),
    g.NumberDense: _float("number_dense", lambda op: {}, lambda op: {"weight": op.weight, "bias": op.bias}),
    g.NumberResize: _movement("resize_bilinear", _resize),
    g.Compare: _compare,
    g.Select: _movement("select", lambda op: {}),
    g.Cast: _movement("cast", lambda op: {"dtype": op.output.dtype}),
    g.Gather: _movement("gather", lambda op: {"axis": op.axis}),
    g.GatherNd: _movement("gather_nd", lambda op: {}),
    g.BatchMatMul: _movement("batch_matmul", _products),
    g.IntegerMatMul: _movement("integer_matmul", lambda op: {}),
    g.RequantShift: _movement("requant_shift", _requant_shift),
    g.IntegerSoftmax: _movement("integer_softmax", _integer_softmax),
    g.IntegerNorm: _movement("integer_norm", _integer_norm),
    g.RmsNorm: _rms_norm,
    g.Rotate: lambda op, contract: [HostCall("rotate", {}, {"cosine": op.cosine, "sine": op.sine})],
    g.WriteRows: _movement("write_rows", lambda op: {}),
    g.WriteColumns: _movement("write_columns", lambda op: {"tokens": op.tokens} if op.tokens > 1 else {}),
    g.Attention: _movement("attention", _attention),
    g.Detections: lambda op, contract: [HostCall("detections", _detections(op), {"anchors": op.anchors}, "float32")],
    g.Reshape: _movement("reshape", lambda op: {"shape": list(op.output.shape)}),
    g.Heads: _movement("reshape", lambda op: {"shape": list(op.output.shape)}),
    g.Lanes: _movement("lanes", lambda op: {"block": op.block, "shape": list(op.output.shape)}),
    g.Transpose: _movement("transpose", lambda op: {"axes": list(op.axes)}),
    g.Concat: _movement("concatenate", lambda op: {"axis": op.axis}),
    g.Pad: _movement("pad", lambda op: {"pads": [list(pair) for pair in op.pads], "value": op.value}),
    g.StridedSlice: _movement(
        "strided_slice",
        lambda op: {"begin": list(op.begin), "strides": list(op.strides), "shape": list(op.output.shape)},
    ),
    g.Take: _movement("take", lambda op: {"indices": [list(found) for found in op.indices]}),
    g.FloatFunction: _float("float_function", lambda op: {"function": op.function, "alpha": op.alpha, "beta": op.beta}),
    g.FloatBinary: _float("float_binary", lambda op: {"function": op.function}),
    g.FloatReduce: _float(
        "float_reduce", lambda op: {"function": op.function, "axes": list(op.axes), "shape": list(op.output.shape)}
    ),
    g.FloatSoftmax: _float("float_softmax", lambda op: {"axis": op.axis, "logarithm": op.logarithm}),
    g.FloatMatMul: _float("float_matmul", _order),
    g.FloatLstm: _float(
        "float_lstm",
        lambda op: {"reverse": op.reverse},
        lambda op: {"weight": op.weight, "recurrence": op.recurrence, "bias": op.bias},
    ),
    g.FloatConv2d: _float("float_conv2d", _geometry, _weights),
    g.FloatConvTranspose2d: _float("float_conv_transpose2d", _geometry, _weights),
    g.FloatMaxPool: _float("float_max_pool", _float_window),
    g.FloatAveragePool: _float(
        "float_average_pool", lambda op: _float_window(op) | {"padding_counts": op.padding_counts}
    ),
}

KINDS = tuple(_MAKERS)  # the operators that have kernels, with those that derive from them
