"""The rows that the operators of this folder have in `HOST_OPS`.

Each is function, rule, attributes, dtypes, ranks, number of inputs; see `runtime.hostops.HostOp`.
"""

from __future__ import annotations

from ..hostshapes import along_axis, as_dtype, lstm_stepped, reduced, same, together
from ..schema import SHAPE, SIZE, Array, Flag, Int, Kind, ListOf, OneOf, Real
from . import attention, deeploy, detection, elementwise, fixed_point, numbers, recurrent, reductions, resize, shapes

_INT8 = ("int8",)
_ANY = ("int8", "uint8", "int16", "int32", "int64", "float32", "bool")
_NUMBERS = ("float32", "int32", "int64")
_PLAIN = (*_NUMBERS, "bool")
_REAL = Real(-3.4e38, 3.4e38)
_DETECTION: dict[str, Kind] = {"anchors": Array(2, ("float32",)), "scales": ListOf(_REAL, 4), "each_class": Flag()}
_DETECTION |= dict.fromkeys(("most", "classes", "classes_per_box", "per_class"), SIZE)
_DETECTION |= {"score": _REAL, "overlap": _REAL}
_POINTS: dict[str, Kind] = {"zero_points": ListOf(Int(-128, 127), 3)}
_AXES: dict[str, Kind] = {"axes": ListOf(Int(0)), "shape": SHAPE}
_UNIT = Real(2.0**-126, 2.0**127)
_LOG_SOFTMAX: dict[str, Kind] = {"axis": Int(0), "scale": _UNIT, "output_scale": _UNIT, "zero_point": Int(-128, 127)}
_RESIZE: dict[str, Kind] = {"size": ListOf(SIZE, 2), "align_corners": Flag(), "half_pixel_centers": Flag()}
_COMPARISON = OneOf(tuple(numbers.COMPARISONS))
_ARG_MAX: dict[str, Kind] = {"axis": Int(0), "shape": SHAPE, "dtype": OneOf(("int32", "int64")), "smallest": Flag()}
_SCALE: dict[str, Kind] = {"multiplier": Int(0, (1 << 31) - 1), "exponent": Int(-32, 31)}
_PRODUCTS: dict[str, Kind] = {"transposed": Flag(), "images": Flag(), **_SCALE, **_POINTS}
_PER_ELEMENT: dict[str, Kind] = {"multiplier": Array(1, ("int64",), 0, (1 << 31) - 1)}
_PER_ELEMENT |= {"exponent": Array(1, ("int64",), -32, 31)}
_ANGLES, _PLACED = Array(2, ("int16",)), ("int8", "int32")  # the last input of the second is a position
_DIVIDE: dict[str, Kind] = {**_SCALE, **_POINTS}
_DIVIDE |= {"low": Int(-128, 127), "high": Int(-128, 127)}
_INT32 = Int(-(1 << 31), (1 << 31) - 1)
_CLAMP8: dict[str, Kind] = {"low": Int(-128, 127), "high": Int(-128, 127)}
_SHIFT: dict[str, Kind] = {"shift": Int(0, 31)}
_REQUANT: dict[str, Kind] = {**_SHIFT, "low": _INT32, "high": _INT32, "zero_point": Int(-128, 127)}
_REQUANT |= {"dtype": OneOf(("int8", "int32"))}
_EXPONENTIALS: dict[str, Kind] = dict.fromkeys(("quadratic", "linear", "constant"), _INT32)
_EXPONENTIALS |= {"period": SIZE, "levels": Int(1, 1 << 16), "zero_point": Int(-128, 127), **_CLAMP8, **_SCALE}
_NORM: dict[str, Kind] = {**_SHIFT, **_CLAMP8, "x_zero_point": Int(-128, 127)}

_STEP: dict[str, Kind] = {"zero_point": Int(-128, 127), "cell_bits": Int(0, 6), "clip": Int(0, (1 << 15) - 1)}
_STEP |= {"coupled": Flag(), **_SCALE}


def _scales(count: int) -> dict[str, Kind]:
    return {"multipliers": ListOf(Int(0, (1 << 31) - 1), count), "exponents": ListOf(Int(-32, 31), count)}


_ATTENTION: dict[str, Kind] = {**_scales(2), "seen": SIZE}
_ATTENTION |= dict.fromkeys(("key_groups", "value_groups"), ListOf(Int(-1)))

KERNEL_ROWS = (
    (resize.take, shapes.taken, {"indices": ListOf(ListOf(Int(0)))}, _ANY, (), 1),
    (resize.resize_bilinear, shapes.resized, _RESIZE | {"offset": Int(0, 128)}, (*_INT8, "float32"), (4,), 1),
    (elementwise.maximum, together, {}, _INT8, (), 2),
    (elementwise.minimum, together, {}, _INT8, (), 2),
    (elementwise.lookup_pair, shapes.looked_up_pairs, {"table": Array(2, _INT8)}, (*_INT8, "uint8"), (), 2),
    (elementwise.prelu, together, _POINTS | _scales(2), _INT8, (), 2),
    (elementwise.squared_difference, together, _POINTS | _scales(3) | {"shift": Int(0, 7)}, _INT8, (), 2),
    (fixed_point.divide, together, _DIVIDE, _INT8, (), 2),
    (
        fixed_point.l2_normalize,
        along_axis,
        {"axis": Int(0), "x_zero_point": Int(-128, 127), "scaled_first": Flag()},
        _INT8,
        (),
        1,
    ),
    (numbers.number_function, same, {"function": OneOf(tuple(numbers.UNARY))}, _NUMBERS, (), 1),
    (numbers.number_binary, shapes.one_type, {"function": OneOf(tuple(numbers.BINARY))}, _NUMBERS, (), 2),
    (
        numbers.number_reduce,
        shapes.reduced_numbers,
        {"function": OneOf(tuple(numbers.REDUCTIONS))} | _AXES,
        _PLAIN,
        (),
        1,
    ),
    (
        numbers.number_dense,
        shapes.dense_rows,
        {"weight": Array(2, ("float32",)), "bias": Array(1, ("float32",))},
        ("float32",),
        (),
        1,
    ),
    (numbers.compare, shapes.compared, {"function": _COMPARISON}, _PLAIN, (), 2),
    (
        numbers.compare_int8,
        shapes.compared,
        {"function": _COMPARISON, "zero_points": ListOf(Int(-128, 127), 2)} | _scales(2),
        _INT8,
        (),
        2,
    ),
    (numbers.select, shapes.selected, {}, _ANY, (), 3),
    (numbers.cast, shapes.cast_to, {"dtype": OneOf((*_INT8, "uint8", "int16", *_NUMBERS))}, _ANY, (), 1),
    (numbers.gather, shapes.gathered, {"axis": Int(0)}, _ANY, (), 2),
    (numbers.gather_nd, shapes.gathered_nd, {}, _ANY, (), 2),
    (detection.detections, shapes.detected, _DETECTION, ("float32",), (3,), 2),
    (reductions.reduce_max, reduced, _AXES, _INT8, (), 1),
    (reductions.reduce_min, reduced, _AXES, _INT8, (), 1),
    (reductions.log_softmax, along_axis, _LOG_SOFTMAX, _INT8, (), 1),
    (attention.batch_matmul, shapes.batch_multiplied, _PRODUCTS, _INT8, (), 2),
    (attention.rms_norm, shapes.normed, _PER_ELEMENT, _INT8, (), 1),
    (attention.rotate, shapes.rotated, {"cosine": _ANGLES, "sine": _ANGLES}, _PLACED, (), 2),
    (attention.write_rows, shapes.with_rows, {}, _PLACED, (), 3),
    (attention.write_columns, shapes.with_columns, {"tokens": Int(1)}, _PLACED, (), 3),
    (attention.attention, shapes.attended, _ATTENTION, _PLACED, (), 4),
    (deeploy.lanes, shapes.in_lanes, {"block": SIZE, "shape": SHAPE}, _INT8, (2, 4), 1),
    (deeploy.integer_matmul, shapes.integer_products, {}, ("int8", "int32"), (), 2),
    (deeploy.requant_shift, shapes.shifted, _REQUANT, ("int32",), (), 3),
    (deeploy.integer_softmax, as_dtype("int8"), _EXPONENTIALS, ("int8", "int32"), (), 1),
    (deeploy.integer_norm, shapes.integers_normed, _NORM, ("int8", "int32"), (), 0),
    (reductions.top_k, shapes.topmost, {"count": SIZE, "positions": Flag()}, (*_INT8, *_NUMBERS), (), 1),
    (recurrent.lstm_step, lstm_stepped, _STEP, ("int16", "int32"), (2, 3), 3),
    (reductions.arg_max, shapes.chosen, _ARG_MAX, (*_INT8, *_NUMBERS), (), 1),
)
