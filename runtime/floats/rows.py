"""The rows that float operators have in `HOST_OPS`: function, rule, attributes, dtypes, ranks, number of inputs."""

from __future__ import annotations

from ..hostshapes import along_axis, same
from ..schema import MOST, SHAPE, SIZE, Array, Flag, Int, Kind, ListOf, OneOf, Real
from . import functions, operators, shapes

_FLOAT = ("float32",)
_REAL = Real(-3.5e38, 3.5e38)
_WINDOWS: dict[str, Kind] = {"strides": ListOf(SIZE, 2), "pads": ListOf(Int(0), 4)}
_POOL: dict[str, Kind] = {"kernel": ListOf(SIZE, 2), **_WINDOWS}
_WEIGHTS: dict[str, Kind] = {
    "weight": Array(4, _FLOAT),
    "bias": Array(1, _FLOAT),
    "dilations": ListOf(SIZE, 2),
    "groups": SIZE,
    "ordered": Flag(),
}

FLOAT_ROWS = (
    (
        operators.float_function,
        same,
        {"function": OneOf(tuple(functions.UNARY)), "alpha": _REAL, "beta": _REAL},
        _FLOAT,
        (),
        1,
    ),
    (operators.float_binary, shapes.together, {"function": OneOf(tuple(functions.BINARY))}, _FLOAT, (), 2),
    (
        operators.float_reduce,
        shapes.without_axes,
        {"function": OneOf(tuple(functions.REDUCTIONS)), "axes": ListOf(Int(0)), "shape": SHAPE},
        _FLOAT,
        (),
        1,
    ),
    (operators.float_softmax, along_axis, {"axis": Int(0), "logarithm": Flag()}, _FLOAT, (), 1),
    (operators.float_matmul, shapes.multiplied, {"ordered": Flag()}, _FLOAT, (), 2),
    (
        operators.float_lstm,
        shapes.steps,
        {"weight": Array(2, _FLOAT), "recurrence": Array(2, _FLOAT), "bias": Array(1, _FLOAT), "reverse": Flag()},
        _FLOAT,
        (3,),
        1,
    ),
    (operators.float_conv2d, shapes.float_convolved, _WEIGHTS | _WINDOWS, _FLOAT, (4,), 1),
    (
        operators.float_conv_transpose2d,
        shapes.float_conv_transposed,
        _WEIGHTS | {"strides": ListOf(SIZE, 2), "pads": ListOf(Int(-MOST), 4)},
        _FLOAT,
        (4,),
        1,
    ),
    (operators.float_max_pool, shapes.largest, _POOL, _FLOAT, (4,), 1),
    (operators.float_average_pool, shapes.mean, _POOL | {"padding_counts": Flag()}, _FLOAT, (4,), 1),
)
