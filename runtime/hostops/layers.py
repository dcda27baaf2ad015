"""Layers of int8 or int16 activations with constant weights: convolutions, dense layers, and their requantisation.

The sums have the type of the biases, int32 or int64. int16.py has the requantisation of 16-bit layers.

Images are NCHW, rows (N, features); `R` is the rounding of hw/rounding.py with (multiplier, exponent). Layers in
float32 (floats.py) use the same walks over an image and its padding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...hw import rounding
from ..schema import MOST, Array, Int, Kind, ListOf, OneOf
from .arrays import AnyArray, Attrs, Int8, Int16, Int32, Ints
from .c_calls import C, Value, Writer
from .row import PER_CHANNEL, WIDE, HostOp, Operand, Operands, need

# integers that functions of convolutions read in C
CONVOLUTION = "x.shape out.shape.1: weight.shape.1: strides pads.:2 dilations groups"
_UNGROUPED = "x.shape out.shape.1: weight.shape.1: strides pads.:2 1 1 1"
_WEIGHTS = "weight weight_type bias"
Taps = list[tuple[tuple[int, int], AnyArray]]  # (row, column) of a tap of a kernel, the elements that it meets


def conv2d_accumulators(
    x: AnyArray,
    *,
    weight: AnyArray,
    bias: AnyArray,
    x_zero_point: int,
    strides: Ints,
    pads: Ints,
    dilations: Ints,
    groups: int,
) -> AnyArray:
    """`bias + sum((x - x_zero_point) * weight)` of a convolution, weights (O, C / groups, KH, KW), wrapping."""
    # sums of products of 16 by 9 bits stay below 2**53, so float64 products are exact
    views = tap_views(pad_image(x.astype(np.float64) - x_zero_point, pads, 0.0), weight.shape[2:], strides, dilations)
    return _with_bias(tap_sums(views, weight.astype(np.float64), groups), bias)


def tap_views(x: AnyArray, kernel: Ints, strides: Ints, dilations: Ints = (1, 1)) -> Taps:
    """For each tap of a kernel that moves over `x`, row by row: the elements (..., H, W) that it meets, a view."""
    spans = [(n - (k - 1) * d - 1) // s * s + 1 for n, k, s, d in zip(x.shape[-2:], kernel, strides, dilations)]
    found: Taps = []
    for i, j in np.ndindex(*kernel):
        rows, columns = (slice(tap * d, tap * d + n, s) for tap, d, n, s in zip((i, j), dilations, spans, strides))
        found.append(((i, j), x[..., rows, columns]))
    return found


def tap_sums(views: Taps, weight: AnyArray, groups: int, ordered: bool = False) -> AnyArray:
    """Sums (N, O, H, W) of weights (O, C / groups, KH, KW) times `views` of `tap_views`, in the weights' dtype."""
    (n, _, oh, ow), (o, per_group, kh, kw) = views[0][1].shape, weight.shape
    taps = weight.reshape(groups, o // groups, per_group, kh, kw)
    sums = np.zeros((n, groups, o // groups, oh * ow), weight.dtype)
    for tap, view in views:
        sums = with_products(sums, taps[(..., *tap)], view.reshape(n, groups, per_group, oh * ow), ordered)
    return sums.reshape(n, o, oh, ow)


def with_products(sums: AnyArray, taps: AnyArray, seen: AnyArray, ordered: bool) -> AnyArray:
    """`sums + taps @ seen`, the products added one after the other if `ordered`."""
    if not ordered and taps.shape[-1] > 1:
        return sums + taps @ seen
    for k in range(taps.shape[-1]):
        sums = sums + taps[..., k, None] * seen[..., k, None, :]
    return sums


def _with_bias(sums: AnyArray, bias: AnyArray) -> AnyArray:
    return (sums.astype(np.int64) + bias.reshape(-1, *(1,) * (sums.ndim - 2))).astype(bias.dtype)


def conv_transpose2d_accumulators(
    x: AnyArray, *, weight: AnyArray, bias: AnyArray, x_zero_point: int, strides: Ints, pads: Ints
) -> AnyArray:
    """Accumulators of a transposed convolution, weights (O, C, KH, KW); `pads` is cut off, or added if < 0."""
    centred = x.astype(np.float64) - x_zero_point
    n, c, height, width = x.shape
    o, _, kh, kw = weight.shape
    canvas = np.zeros((n, o, (height - 1) * strides[0] + kh, (width - 1) * strides[1] + kw))
    for tap, place in tap_views(canvas, (kh, kw), strides):
        product = weight[(..., *tap)].astype(np.float64) @ centred.reshape(n, c, -1)
        place += product.reshape(place.shape)
    return _with_bias(cut_image(canvas, pads), bias)


def dense_accumulators(x: AnyArray, *, weight: AnyArray, bias: AnyArray, x_zero_point: int) -> AnyArray:
    """`bias + (x - x_zero_point) @ weight.T`, wrapping."""
    return _with_bias((x.astype(np.float64) - x_zero_point) @ weight.T.astype(np.float64), bias)


def requantise(
    acc: Int32,
    *,
    multiplier: AnyArray,
    exponent: AnyArray,
    zero_point: int,
    low: int = -128,
    high: int = 127,
    contract: str = "double",
    steps: AnyArray | None = None,
) -> Int8:
    """int8 `clamp(zero_point + steps + R(acc), low, high)`; multiplier, exponent, steps per channel (dimension 1)."""
    zeros = zero_point + (np.zeros_like(exponent) if steps is None else steps)
    m, e, z = (part.reshape(-1, *(1,) * (acc.ndim - 2)) for part in (multiplier, exponent, zeros))
    return rounding.requantise(acc, m, e, z, low, high, contract)


def pad_image(x: AnyArray, pads: Ints, value: float) -> AnyArray:
    """NCHW `x` with `value` around it; `pads` is (top, left, bottom, right)."""
    top, left, bottom, right = pads
    return np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=value) if any(pads) else x


def cut_image(x: AnyArray, pads: Ints) -> AnyArray:
    """NCHW `x` without `pads`, (top, left, bottom, right); zeros are added at the bottom or right where < 0."""
    top, left, bottom, right = pads
    x = pad_image(x, (0, 0, max(0, -bottom), max(0, -right)), 0.0)
    return x[:, :, top : x.shape[2] - max(0, bottom), left : x.shape[3] - max(0, right)]


def windows(x: AnyArray, kernel: Ints, strides: Ints) -> AnyArray:
    """The windows (N, C, H, W, *kernel) of NCHW `x`: a view."""
    view = np.lib.stride_tricks.sliding_window_view(x, tuple(kernel), (2, 3))
    return view[:, :, :: strides[0], :: strides[1]]


def dense_int16(
    x: Int8,
    *,
    weight: AnyArray,
    bias: Int32,
    multiplier: AnyArray,
    exponent: AnyArray,
    x_zero_point: int,
    dtype: str = "int16",
) -> AnyArray:
    """`clamp(R(bias + (x - x_zero_point) @ weight.T))` of int8 rows as `dtype`; R is per row of the weights."""
    acc = dense_accumulators(x, weight=weight, bias=bias, x_zero_point=x_zero_point)
    info = np.iinfo(dtype)
    return np.clip(rounding.rescale(acc, multiplier, exponent), info.min, info.max).astype(dtype)


def filter_int16(window: Int16, *, weight: Int16, bias: Int32, multiplier: int, exponent: int, zero_point: int) -> Int8:
    """int8 (N, U) `clamp(zero_point + R(bias + sum(window * weight)))` of int16 windows (N, F, M), weights (F, M).

    Unit u sums the F / U filters from `u * F / U` on; the sum wraps at 32 bits.
    """
    sums = (window.astype(np.int64) * weight).sum(2).reshape(len(window), len(bias), -1).sum(2) + bias
    result = rounding.rescale(sums.astype(np.int32), multiplier, exponent) + zero_point
    return np.clip(result, -128, 127).astype(np.int8)


def _need_biases(a: Attrs, weight: tuple[int, ...]) -> None:
    need(a["bias"].shape == weight[:1], f"bias {a['bias'].shape} and weight {weight} differ in channels")


def convolved(inputs: Operands, a: Attrs) -> Operand:
    """Accumulators of a convolution; the padded image is scratch."""
    (n, c, *size), weight, groups = inputs[0].shape, a["weight"].shape, a["groups"]
    _need_biases(a, weight)
    need(weight[1] * groups == c, f"weight {weight} in {groups} groups needs {weight[1] * groups} channels, not {c}")
    need(weight[0] % groups == 0, f"weight {weight}: its outputs do not divide into {groups} groups")
    reach = [(k - 1) * d + 1 for k, d in zip(weight[2:], a["dilations"])]
    out, area = window_places(size, reach, a["strides"], a["pads"])
    return Operand((n, weight[0], *out), str(a["bias"].dtype), n * c * area)


def window_places(size: Ints, kernel: Ints, strides: Ints, pads: Ints) -> tuple[tuple[int, int], int]:
    """((rows, columns) of the windows, elements of the padded image)."""
    grown = [n + pads[k] + pads[k + 2] for k, n in enumerate(size)]
    need(
        all(k <= n for k, n in zip(kernel, grown)),
        f"windows of {tuple(kernel)} do not fit an image of {tuple(size)} with pads {tuple(pads)}",
    )
    rows, columns = ((n - k) // s + 1 for n, k, s in zip(grown, kernel, strides))
    return (rows, columns), math.prod(grown)


def conv_transposed(inputs: Operands, a: Attrs) -> Operand:
    """Accumulators of a transposed convolution; the uncropped image is scratch."""
    (n, c, *size), weight, pads = inputs[0].shape, a["weight"].shape, a["pads"]
    _need_biases(a, weight)
    need(weight[1] == c, f"weight {weight} needs {weight[1]} channels, not {c}")
    need(min(pads[:2]) >= 0, f"pads = {pads}: those at the top and left must be at least 0")
    whole = [(m - 1) * s + k for m, s, k in zip(size, a["strides"], weight[2:])]
    out = [whole[k] - pads[k] - pads[k + 2] for k in range(2)]
    need(min(out) >= 1, f"pads = {pads} leave nothing of {whole[0]} x {whole[1]}")
    area = math.prod(m + max(0, -pads[k + 2]) for k, m in enumerate(whole))
    return Operand((n, weight[0], *out), str(a["bias"].dtype), n * weight[0] * area)


def _dense(inputs: Operands, a: Attrs) -> Operand:
    (n, features), weight = inputs[0].shape, a["weight"].shape
    _need_biases(a, weight)
    need(weight[1] == features, f"weight {weight} needs {weight[1]} features, not {features}")
    return Operand((n, weight[0]), str(a["bias"].dtype))


def _dense_rows(inputs: Operands, a: Attrs) -> Operand:
    found = _dense(inputs, a)
    for name in ("multiplier", "exponent"):
        need(a[name].shape == found.shape[1:], f"{name} {a[name].shape}: weight {a['weight'].shape} needs one per row")
    return Operand(found.shape, a["dtype"])


def _filtered(inputs: Operands, a: Attrs) -> Operand:
    (n, *window), weight, units = inputs[0].shape, a["weight"].shape, len(a["bias"])
    need(weight == tuple(window), f"weight {weight} needs windows of its shape, not {tuple(window)}")
    need(weight[0] % units == 0, f"bias of {units} units: the {weight[0]} filters do not divide into them")
    return Operand((n, units), "int8", math.prod(inputs[0].shape))


def need_per_channel(x: Operand, a: Attrs, *names: str) -> None:
    """Raise `ProgramError` unless the arrays `names` have one value for each index of dimension 1."""
    for name in names:
        need(a[name].shape == x.shape[1:2], f"{name} {a[name].shape}: its input {x.shape} needs {x.shape[1:2]}")


def _requantised(inputs: Operands, a: Attrs) -> Operand:
    need_per_channel(inputs[0], a, "multiplier", "exponent", *(() if a["steps"] is None else ("steps",)))
    return Operand(inputs[0].shape, "int8")


def _requantise_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
    zeros = a["zero_point"] + (np.zeros_like(a["exponent"]) if a["steps"] is None else a["steps"])
    arguments = f"x out x.shape.:2 {math.prod(output.shape[2:])} multiplier+exponent+zeros once low high"
    C("tw_requantise_channels", arguments)(w, inputs, output, {**a, "zeros": zeros})


def _weight(rank: int) -> dict[str, Kind]:
    return {"weight": Array(rank, WIDE, -255, 255)}


def _layer(rank: int) -> dict[str, Kind]:
    return {**_weight(rank), "bias": Array(1, ("int32", "int64"), -(1 << 62), 1 << 62)}


def _dense_in_c(scales: str) -> C:
    return C("tw_dense", f"x out out_type x.shape weight.shape.0 {_WEIGHTS} x_zero_point {scales}")


ROWS = (
    HostOp(
        conv2d_accumulators,
        convolved,
        _layer(4),
        WIDE,
        (4,),
        c=C("tw_conv2d", f"x out {_WEIGHTS} numbers", f"{CONVOLUTION} x_zero_point"),
        narrow=True,
    ),
    HostOp(
        conv_transpose2d_accumulators,
        conv_transposed,
        {**_layer(4), "pads": ListOf(Int(-MOST), 4)},
        WIDE,
        (4,),
        c=C("tw_conv_transpose2d", f"x out {_WEIGHTS} numbers", f"{_UNGROUPED} x_zero_point"),
        narrow=True,
    ),
    HostOp(dense_accumulators, _dense, _layer(2), WIDE, (2,), c=_dense_in_c("0"), narrow=True),
    HostOp(
        requantise,
        _requantised,
        {**PER_CHANNEL, "steps": Array(1, ("int32",), -255, 255)},
        ("int32",),
        (2, 3, 4),
        c=_requantise_in_c,
    ),
    HostOp(
        dense_int16,
        _dense_rows,
        {**_weight(2), **PER_CHANNEL, "dtype": OneOf(("int16", "int32"))},
        ranks=(2,),
        c=_dense_in_c("multiplier+exponent"),
    ),
    HostOp(
        filter_int16,
        _filtered,
        {"weight": Array(2, ("int16",))},
        ("int16",),
        (3,),
        c=C("tw_filter", "x out weight bias numbers", "x.shape out.shape.1 zero_point multiplier exponent"),
    ),
)
