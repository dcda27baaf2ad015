"""The rows that the operators of this folder have in `HOST_OPS`."""

from __future__ import annotations

from .. import hostshapes
from ..hostop import AXES, CLAMP, INT8, INT32, PER_CHANNEL, SCALE, THREE, UNIT, HostOp, scales, weights
from ..hostshapes import along_axis, as_dtype, cast_to, together
from ..schema import SHAPE, SIZE, Array, Flag, Int, Kind, ListOf, OneOf, Real
from . import attention, deeploy, detection, elementwise, fixed_point, numbers, recurrent, reductions, resize, shapes

_ANY = ("int8", "uint8", "int16", "int32", "int64", "float32", "bool")
_NUMBERS = ("float32", "int32", "int64")
_PLAIN = (*_NUMBERS, "bool")
_INTEGERS, _TWO_INTEGERS = ("int8", "int16", "int32"), ("int8", "int32")
_REAL = Real(-3.4e38, 3.4e38)
_DETECTION: dict[str, Kind] = {"anchors": Array(2, ("float32",)), "scales": ListOf(_REAL, 4), "each_class": Flag()}
_DETECTION |= dict.fromkeys(("most", "classes", "classes_per_box", "per_class"), SIZE)
_DETECTION |= {"score": _REAL, "overlap": _REAL}
_LOG_SOFTMAX: dict[str, Kind] = {"axis": Int(0), "scale": UNIT, "output_scale": UNIT, "zero_point": INT8}
_RESIZE: dict[str, Kind] = {"size": ListOf(SIZE, 2), "align_corners": Flag(), "half_pixel_centers": Flag()}
_RESIZE |= {"offset": Int(0, 128)}
_UNARY, _BINARY, _REDUCTION, _COMPARISON = (
    {"function": OneOf(tuple(known))}
    for known in (numbers.UNARY, numbers.BINARY, numbers.REDUCTIONS, numbers.COMPARISONS)
)
_NUMBER_DENSE: dict[str, Kind] = {"weight": Array(2, ("float32",)), "bias": Array(1, ("float32",))}
_COMPARISON8 = _COMPARISON | {"zero_points": ListOf(INT8, 2)} | scales(2)
_ARG_MAX: dict[str, Kind] = {"axis": Int(0), "shape": SHAPE, "dtype": OneOf(("int32", "int64")), "smallest": Flag()}
_PRODUCTS: dict[str, Kind] = {"transposed": Flag(), "images": Flag(), **SCALE, **THREE}
_PER_ELEMENT: dict[str, Kind] = {"multiplier": Array(1, ("int64",), 0, (1 << 31) - 1)}
_PER_ELEMENT |= {"exponent": Array(1, ("int64",), -32, 31)}
_L2: dict[str, Kind] = {"axis": Int(0), "x_zero_point": INT8, "scaled_first": Flag()}
_ANGLES = Array(2, ("int16",))
_ATTENTION: dict[str, Kind] = scales(2) | {"seen": SIZE}
_ATTENTION |= dict.fromkeys(("key_groups", "value_groups"), ListOf(Int(-1)))
_SHIFT: dict[str, Kind] = {"shift": Int(0, 31)}
_REQUANT: dict[str, Kind] = {**_SHIFT, "low": INT32, "high": INT32, "zero_point": INT8}
_REQUANT |= {"dtype": OneOf(_TWO_INTEGERS)}
_EXPONENTIALS: dict[str, Kind] = dict.fromkeys(("quadratic", "linear", "constant"), INT32)
_EXPONENTIALS |= {"period": SIZE, "levels": Int(1, 1 << 16), "zero_point": INT8, **CLAMP, **SCALE}
_STEP: dict[str, Kind] = {"zero_point": INT8, "cell_bits": Int(0, 6), "clip": Int(0, (1 << 15) - 1)}
_STEP |= {"coupled": Flag(), **SCALE}
_LSTM: dict[str, Kind] = {"weight": Array(2, ("int8",)), "bias": Array(1, ("int32",)), **_STEP}
_LSTM |= {f"gate_{name}": kind for name, kind in PER_CHANNEL.items()}
_DENSE16 = weights(2) | PER_CHANNEL | {"dtype": OneOf(("int16", "int32"))}
_FILTER: dict[str, Kind] = {"weight": Array(2, ("int16",)), "bias": Array(1, ("int32",)), "zero_point": INT8, **SCALE}
_RESCALE: dict[str, Kind] = {"x_zero_point": INT32, "zero_point": INT32, "dtype": OneOf(_INTEGERS), **SCALE}

KERNEL_ROWS = (
    HostOp(resize.take, shapes.taken, {"indices": ListOf(ListOf(Int(0)))}, _ANY),
    HostOp(resize.resize_bilinear, shapes.resized, _RESIZE, ("int8", "float32"), (4,)),
    HostOp(elementwise.maximum, together, count=2),
    HostOp(elementwise.minimum, together, count=2),
    HostOp(elementwise.lookup_pair, shapes.looked_up_pairs, {"table": Array(2, ("int8",))}, ("int8", "uint8"), count=2),
    HostOp(elementwise.prelu, together, THREE | scales(2), count=2),
    HostOp(elementwise.squared_difference, together, THREE | scales(3) | {"shift": Int(0, 7)}, count=2),
    HostOp(fixed_point.divide, together, SCALE | THREE | CLAMP, count=2),
    HostOp(fixed_point.l2_normalize, along_axis, _L2),
    HostOp(numbers.number_function, hostshapes.same, _UNARY, _NUMBERS),
    HostOp(numbers.number_binary, shapes.one_type, _BINARY, _NUMBERS, count=2),
    HostOp(numbers.number_reduce, shapes.reduced_numbers, _REDUCTION | AXES, _PLAIN),
    HostOp(numbers.number_dense, shapes.dense_rows, _NUMBER_DENSE, ("float32",)),
    HostOp(numbers.compare, shapes.compared, _COMPARISON, _PLAIN, count=2),
    HostOp(numbers.compare_int8, shapes.compared, _COMPARISON8, count=2),
    HostOp(numbers.select, shapes.selected, {}, _ANY, count=3),
    HostOp(numbers.cast, cast_to, {"dtype": OneOf(("int8", "uint8", "int16", *_NUMBERS))}, _ANY),
    HostOp(numbers.gather, shapes.gathered, {"axis": Int(0)}, _ANY, count=2),
    HostOp(numbers.gather_nd, shapes.gathered_nd, {}, _ANY, count=2),
    HostOp(detection.detections, shapes.detected, _DETECTION, ("float32",), (3,), 2),
    HostOp(reductions.reduce_max, hostshapes.reduced, AXES),
    HostOp(reductions.reduce_min, hostshapes.reduced, AXES),
    HostOp(reductions.log_softmax, along_axis, _LOG_SOFTMAX),
    HostOp(reductions.top_k, shapes.topmost, {"count": SIZE, "positions": Flag()}, ("int8", *_NUMBERS)),
    HostOp(reductions.arg_max, shapes.chosen, _ARG_MAX, ("int8", *_NUMBERS)),
    HostOp(attention.batch_matmul, shapes.batch_multiplied, _PRODUCTS, count=2),
    HostOp(attention.rms_norm, shapes.normed, _PER_ELEMENT),
    # the last input of these is a position
    HostOp(attention.rotate, shapes.rotated, {"cosine": _ANGLES, "sine": _ANGLES}, _TWO_INTEGERS, count=2),
    HostOp(attention.write_rows, shapes.with_rows, {}, _TWO_INTEGERS, count=3),
    HostOp(attention.write_columns, shapes.with_columns, {"tokens": Int(1)}, _TWO_INTEGERS, count=3),
    HostOp(attention.attention, shapes.attended, _ATTENTION, _TWO_INTEGERS, count=4),
    HostOp(deeploy.lanes, shapes.in_lanes, {"block": SIZE, "shape": SHAPE}, ranks=(2, 4)),
    HostOp(deeploy.integer_matmul, shapes.integer_products, {}, _TWO_INTEGERS, count=2),
    HostOp(deeploy.requant_shift, shapes.shifted, _REQUANT, ("int32",), count=3),
    HostOp(deeploy.integer_softmax, as_dtype("int8"), _EXPONENTIALS, _TWO_INTEGERS),
    HostOp(
        deeploy.integer_norm, shapes.integers_normed, _SHIFT | CLAMP | {"x_zero_point": INT8}, _TWO_INTEGERS, count=0
    ),
    HostOp(recurrent.dense_int16, hostshapes.dense_rows, _DENSE16, ranks=(2,)),
    HostOp(recurrent.filter_int16, hostshapes.filtered, _FILTER, ("int16",), (3,)),
    HostOp(recurrent.narrow, as_dtype("int8"), {}, ("int16", "int32")),
    HostOp(recurrent.rescale_integers, cast_to, _RESCALE, _INTEGERS),
    HostOp(recurrent.lstm, hostshapes.lstm_steps, _LSTM, ("int8", "int16"), (2, 3), 3),
    HostOp(recurrent.lstm_step, hostshapes.lstm_stepped, _STEP, ("int16", "int32"), (2, 3), 3),
)
