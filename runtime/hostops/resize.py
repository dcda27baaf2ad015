"""Images of another size, in the arithmetic of TensorFlow Lite's reference kernels, and in onnxruntime's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..schema import SIZE, Array, Int, ListOf
from .arrays import AnyArray, Attrs, Float32, Int32, Ints
from .c_calls import C, Value, Writer
from .row import WIDE, HostOp, Operand, Operands, need

ONE = 1 << 10  # a step of one pixel: positions have ten fractional bits
_F = np.float32


def nearest(size: int, out: int, align_corners: bool, half_pixel_centers: bool) -> list[int]:
    """For each of `out` elements the index of its nearest neighbour among `size`, computed in float32."""
    aligned = align_corners and out > 1
    step = _F(size - 1) / _F(out - 1) if aligned else _F(size) / _F(out)
    place = (np.arange(out, dtype=_F) + _F(0.5 if half_pixel_centers else 0)) * step
    index = np.floor(place + _F(0.5)) if align_corners else np.floor(place)
    return np.clip(index, 0, size - 1).astype(int).tolist()


def integer_positions(size: int, out: int, align_corners: bool, half_pixel_centers: bool) -> tuple[AnyArray, ...]:
    """Positions of `out` elements among `size`: (lower index, upper index, weight of the upper in 1 / ONE), int64."""
    step = (ONE * size + out // 2) // out
    if align_corners and out > 1:
        step = (ONE * (size - 1) + (out - 1) // 2) // (out - 1)
    place = np.arange(out, dtype=np.int64) * step
    if half_pixel_centers:
        place += step // 2 - ONE // 2
    low, high = np.maximum(place, 0) // ONE, np.minimum((place + ONE - 1) // ONE, size - 1)
    return np.minimum(low, size - 1), high, place - ONE * low


def real_positions(size: int, out: int, align_corners: bool, half_pixel_centers: bool) -> tuple[AnyArray, ...]:
    """`integer_positions` with weights in float32."""
    step = _F(size - 1) / _F(out - 1) if align_corners and out > 1 else _F(size) / _F(out)
    place = np.arange(out, dtype=_F)
    place = (place + _F(0.5)) * step - _F(0.5) if half_pixel_centers else place * step
    low = np.maximum(np.floor(place).astype(np.int64), 0)
    high = np.minimum(np.ceil(place).astype(np.int64), size - 1)
    return np.minimum(low, size - 1), high, place - low.astype(_F)


def resize_bilinear(
    x: AnyArray,
    *,
    size: Ints,
    align_corners: bool = False,
    half_pixel_centers: bool = False,
    offset: int | None = None,
) -> AnyArray:
    """NCHW `x` as images of `size` (h, w), each pixel a mean of its four neighbours, weighted by distance.

    Positions have ten fractional bits, sums twenty; they are rounded with ties away from zero. With `offset` the values
    are `x + offset`, all at least 0, in float32 arithmetic, rounded by adding one half. Float32 images stay float32.
    """
    real = x.dtype.kind == "f"
    place = real_positions if real or offset is not None else integer_positions
    (top, bottom, down), (left, right, across) = (
        place(x.shape[2 + k], size[k], align_corners, half_pixel_centers) for k in (0, 1)
    )
    down, one = down[:, None], ONE if place is integer_positions else _F(1)
    values = x if real else x.astype(np.int64) if offset is None else (x.astype(np.int64) + offset).astype(_F)
    upper, lower = values[:, :, top], values[:, :, bottom]
    total = upper[..., left] * (one - down) * (one - across)
    total = total + lower[..., left] * down * (one - across)
    total = total + upper[..., right] * (one - down) * across
    total = total + lower[..., right] * down * across
    if real:
        return total
    if offset is not None:
        return (np.trunc(total + _F(0.5)).astype(np.int64) - offset).astype(np.int8)
    total, half = total.astype(np.int64), 1 << 19
    return np.where(total > 0, (total + half) >> 20, -((half - total) >> 20)).astype(x.dtype)


def float_resize(
    x: Float32, *, row_neighbours: Int32, column_neighbours: Int32, row_weights: Float32, column_weights: Float32
) -> Float32:
    """NCHW `x` as images each of whose pixels is a sum of four neighbours, in the order in which onnxruntime adds them.

    Each row has two neighbours and their weights, (H, 2), and so has each column, (W, 2). First come the neighbours in
    the first row; the weights of a row and of a column are multiplied before the pixel.
    """
    parts = list[Float32]()
    for k, j in np.ndindex(2, 2):
        weights: Float32 = column_weights[:, j] * row_weights[:, k, None]
        parts.append(x[:, :, row_neighbours[:, k]][..., column_neighbours[:, j]] * weights)
    with np.errstate(all="ignore"):
        return parts[0] + parts[1] + parts[2] + parts[3]


def _interpolated(inputs: Operands, a: Attrs) -> Operand:
    (n, c, *size), found = inputs[0].shape, list[int]()
    for kind, extent in zip(("row", "column"), size):
        neighbours, weights = a[f"{kind}_neighbours"], a[f"{kind}_weights"]
        shape, last = neighbours.shape, neighbours.max(initial=0)
        need(shape[1:] == (2,) and weights.shape == shape, f"{kind}_weights {weights.shape}: neighbours are {shape}")
        need(last < extent, f"{kind}_neighbours has {last}: the images have {extent} {kind}s")
        found.append(shape[0])
    return Operand((n, c, *found), "float32")


def _resized(inputs: Operands, a: Attrs) -> Operand:
    (n, c, *_), dtype, _ = inputs[0]
    need(a["offset"] is None or dtype == "int8", f"offset = {a['offset']}: only int8 values have one, not {dtype}")
    return Operand((n, c, *a["size"]), dtype)


def _resize_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
    """The neighbours of rows and columns, and their weights, are constant arrays."""
    (x,), offset = inputs, a["offset"]
    tables: list[str] = []
    real = x.dtype == "float32" or offset is not None
    for k in (0, 1):
        place = real_positions if real else integer_positions
        low, high, weight = place(x.shape[2 + k], a["size"][k], a["align_corners"], a["half_pixel_centers"])
        if real:
            tables += [w.array("neighbours", np.stack([low, high], 1)), w.array("weights", weight, "float32")]
        else:
            tables.append(w.array("neighbours", np.stack([low, high, weight], 1)))
    call = f"tw_resize_real x out x_type {offset or 0}" if real else "tw_resize x out"
    function, _, arguments = call.partition(" ")
    C(function, f"{arguments} numbers {' '.join(tables)}", "planes x.shape.2: size")(w, inputs, output, a)


_KINDS = {"size": ListOf(SIZE, 2), "offset": Int(0, 128)}

_INDICES, _WEIGHTS = Array(2, ("int32",), 0), Array(2, ("float32",))
_PAIRS = {
    **dict.fromkeys(("row_neighbours", "column_neighbours"), _INDICES),
    **dict.fromkeys(("row_weights", "column_weights"), _WEIGHTS),
}

ROWS = (
    HostOp(resize_bilinear, _resized, _KINDS, (*WIDE, "float32"), (4,), c=_resize_in_c, narrow=True),
    HostOp(
        float_resize,
        _interpolated,
        _PAIRS,
        ("float32",),
        (4,),
        c=C(
            "tw_float_resize",
            "x out row_neighbours row_weights column_neighbours column_weights numbers",
            "planes x.shape.2: out.shape.2:",
        ),
    ),
)
