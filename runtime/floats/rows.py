"""The rows that float operators have in `HOST_OPS`."""

from __future__ import annotations

from ..hostop import AXES, PADS, POOL, STRIDES, HostOp
from ..hostshapes import along_axis, same
from ..schema import MOST, SIZE, Array, Flag, Int, Kind, ListOf, OneOf, Real
from . import functions, operators, shapes

_FLOAT = ("float32",)
_REAL = Real(-3.5e38, 3.5e38)
_UNARY, _BINARY, _REDUCTION = (
    {"function": OneOf(tuple(known))} for known in (functions.UNARY, functions.BINARY, functions.REDUCTIONS)
)
_WEIGHTS: dict[str, Kind] = {"weight": Array(4, _FLOAT), "bias": Array(1, _FLOAT), "ordered": Flag()}
_WEIGHTS |= {"dilations": ListOf(SIZE, 2), "groups": SIZE, **STRIDES}
_LSTM: dict[str, Kind] = {"weight": Array(2, _FLOAT), "recurrence": Array(2, _FLOAT), "bias": Array(1, _FLOAT)}
_LSTM |= {"reverse": Flag()}
_TRANSPOSED = _WEIGHTS | {"pads": ListOf(Int(-MOST), 4)}

FLOAT_ROWS = (
    HostOp(operators.float_function, same, _UNARY | {"alpha": _REAL, "beta": _REAL}, _FLOAT),
    HostOp(operators.float_binary, shapes.together, _BINARY, _FLOAT, count=2),
    HostOp(operators.float_reduce, shapes.without_axes, _REDUCTION | AXES, _FLOAT),
    HostOp(operators.float_softmax, along_axis, {"axis": Int(0), "logarithm": Flag()}, _FLOAT),
    HostOp(operators.float_matmul, shapes.multiplied, {"ordered": Flag()}, _FLOAT, count=2),
    HostOp(operators.float_lstm, shapes.steps, _LSTM, _FLOAT, (3,)),
    HostOp(operators.float_conv2d, shapes.float_convolved, _WEIGHTS | PADS, _FLOAT, (4,)),
    HostOp(operators.float_conv_transpose2d, shapes.float_conv_transposed, _TRANSPOSED, _FLOAT, (4,)),
    HostOp(operators.float_max_pool, shapes.largest, POOL | PADS, _FLOAT, (4,)),
    HostOp(operators.float_average_pool, shapes.mean, POOL | PADS | {"padding_counts": Flag()}, _FLOAT, (4,)),
)
