"""Operators that move values: shapes, the accelerator's layouts, slices, and elements by position."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from ...hw.errors import InputError
from .. import layout as layouts
from ..schema import MOST, SIZE, Int, Kind, ListOf
from ..steps import DTYPES
from .arrays import AnyArray, Attrs, Ints
from .c_calls import Value, Writer, merged, strides, type_of
from .row import ANY, FINITE, INT8, HostOp, Operand, Operands, need


def pad(x: AnyArray, *, pads: Sequence[Ints], value: float) -> AnyArray:
    """`x` with `value` around it; `pads` holds (before, after) per dimension."""
    return np.pad(x, [tuple(pair) for pair in pads], constant_values=value)


def pad_by(x: AnyArray, value: AnyArray, *, pads: Sequence[Ints]) -> AnyArray:
    """int8 `x` with the uint8 `value` (1,), less 128, around it; `pads` holds (before, after) per dimension."""
    return pad(x, pads=pads, value=int(value[0]) - 128)


def reshape(x: AnyArray, *, shape: Ints) -> AnyArray:
    """The same elements in another shape."""
    return x.reshape(shape)


def transpose(x: AnyArray, *, axes: Ints) -> AnyArray:
    """Dimension k of the result is dimension `axes[k]` of `x`."""
    return np.ascontiguousarray(x.transpose(axes))


def concatenate(*arrays: AnyArray, axis: int) -> AnyArray:
    """The arrays, joined along `axis`."""
    return np.concatenate(arrays, axis)


def strided_slice(x: AnyArray, *, begin: Ints, strides: Ints, shape: Ints) -> AnyArray:
    """`result[i] = x[begin + i * stride]` in every dimension; strides may be negative."""
    indices = [first + step * np.arange(n) for first, step, n in zip(begin, strides, shape)]
    return x[np.ix_(*indices)]


def pack(x: AnyArray, *, batch: int, block: int, layout: str = "NCHW") -> AnyArray:
    """Activations, 4 or 2 dimensions, in the accelerator's layout; see runtime/layout.py.

    Images may be NHWC: their channels are then dimension 3.
    """
    return layouts.pack_blocks(x.transpose(0, 3, 1, 2) if layout == "NHWC" else x, batch, block)


def unpack(packed: AnyArray, *, n: int, c: int, shape: Ints, layout: str = "NCHW") -> AnyArray:
    """Activations of `shape` from `packed`: `n` images of `c` channels in the accelerator's layout.

    Images come out in the order of `layout`, before their shape changes.
    """
    return layouts.unpack_blocks(packed, c, n, layout).reshape(shape)


def unpack_planes(planes: AnyArray, *, n: int, c: int, shape: Ints) -> AnyArray:
    """Integers of `shape` from planes of their bytes, lowest first, in the accelerator's layout: `n` images of `c`.

    Two planes make int16, more int32.
    """
    return layouts.unpack_blocks(layouts.joined_planes(planes), c, n).reshape(shape)


def accumulators(*planes: AnyArray, n: int, c: int) -> AnyArray:
    """int32 activations (n, c, ...) from the four packed byte planes, lowest first, that a program stored."""
    return layouts.unpack_blocks(layouts.planes_to_int32(planes), c, n)


def take(x: AnyArray, *, indices: Sequence[Ints]) -> AnyArray:
    """`result[i, j, ...] = x[indices[0][i], indices[1][j], ...]`; an empty list keeps the whole dimension."""
    full = [np.asarray(found if len(found) else range(n), np.int64) for found, n in zip(indices, x.shape)]
    return x[np.ix_(*full)]


def lanes(x: AnyArray, *, block: int, shape: Ints) -> AnyArray:
    """The image (1, C, H, W) of rows (H, C * W), or these of it: of each `block` channels column by column.

    In rows C is the next multiple of `block`; the elements of channels that the image does not have are 0.
    """
    if len(shape) == 2:
        _, channels, height, columns = x.shape
        whole = np.pad(x[0], ((0, -channels % block), (0, 0), (0, 0)))
        return whole.reshape(-1, block, height, columns).transpose(2, 0, 3, 1).reshape(shape)
    _, channels, height, columns = shape
    image = x.reshape(height, -1, columns, block).transpose(1, 3, 0, 2).reshape(1, -1, height, columns)
    return image[:, :channels]


def _inside(index: AnyArray, size: int, least: int = 0) -> AnyArray:
    if index.size and (index.min() < least or index.max() >= size):
        raise InputError(f"index {int(index.min())}..{int(index.max())} is outside a dimension of {size}")
    return index


def gather(x: AnyArray, indices: AnyArray, *, axis: int, from_end: bool = False) -> AnyArray:
    """The elements at `indices` along `axis`; with `from_end` negative ones count from the end.

    Raises `InputError` for one that is not in the dimension.
    """
    size = x.shape[axis]
    return np.take(x, _inside(indices, size, -size if from_end else 0), axis)


def gather_nd(x: AnyArray, indices: AnyArray) -> AnyArray:
    """The parts of `x` at the positions that are the last dimension of `indices`, which has at most x's rank.

    Raises `InputError` for a position that is not in `x`.
    """
    return x[tuple(_inside(indices[..., k], x.shape[k]) for k in range(indices.shape[-1]))]


def _padded(inputs: Operands, a: Attrs) -> Operand:
    (shape, dtype, _), pads = inputs[0], a["pads"]
    need(len(pads) == len(shape), f"pads has {len(pads)} pairs, its input {shape} {len(shape)} dimensions")
    if dtype not in ("float32", "bool"):
        info = np.iinfo(dtype)
        fits = info.min <= a["value"] <= info.max and a["value"] == int(a["value"])
        need(fits, f"value = {a['value']} is not in {dtype}")
    return Operand(tuple(n + before + after for n, (before, after) in zip(shape, pads)), dtype)


def _padded_by(inputs: Operands, a: Attrs) -> Operand:
    found = [(x.dtype, x.shape) for x in inputs[1:]]
    need(found == [("uint8", (1,))], f"the value is {found}: must be uint8 of shape (1,)")
    need(inputs[0].dtype == "int8", f"input 0 is {inputs[0].dtype}: must be int8")
    return _padded(inputs[:1], a | {"value": 0})


def _reshaped(inputs: Operands, a: Attrs) -> Operand:
    shape = tuple(a["shape"])
    need(
        math.prod(shape) == math.prod(inputs[0].shape),
        f"shape = {shape} has not as many elements as its input, {inputs[0].shape}",
    )
    return Operand(shape, inputs[0].dtype)


def _transposed(inputs: Operands, a: Attrs) -> Operand:
    shape = inputs[0].shape
    axes: Ints = a["axes"]
    need(sorted(axes) == [*range(len(shape))], f"axes = {axes} are not those of {shape}, each once")
    return Operand(tuple(shape[k] for k in axes), inputs[0].dtype)


def _concatenated(inputs: Operands, a: Attrs) -> Operand:
    axis: int = a["axis"]
    shapes = [x.shape for x in inputs]
    need(axis < len(shapes[0]), f"axis = {axis}: its input has {len(shapes[0])} dimensions")
    around = {(len(shape), *shape[:axis], -1, *shape[axis + 1 :]) for shape in shapes}
    need(len(around) == 1, f"inputs {shapes} differ in more than axis {axis}")
    need(len({x.dtype for x in inputs}) == 1, "inputs differ in dtype")
    total = sum(shape[axis] for shape in shapes)
    return Operand((*shapes[0][:axis], total, *shapes[0][axis + 1 :]), inputs[0].dtype)


def _sliced(inputs: Operands, a: Attrs) -> Operand:
    shape, (begin, strides, out) = inputs[0].shape, (a["begin"], a["strides"], a["shape"])
    lengths = {len(shape), len(begin), len(strides), len(out)}
    need(len(lengths) == 1, f"begin, strides and shape must have {len(shape)} elements each, as its input {shape} has")
    for k, (size, first, step, n) in enumerate(zip(shape, begin, strides, out)):
        inside = 0 <= first < size and 0 <= first + (n - 1) * step < size
        need(inside and step != 0, f"dimension {k}: {n} elements from {first} on, {step} apart, are not in {size}")
    return Operand(tuple(out), inputs[0].dtype)


def _channels_first(shape: tuple[int, ...], a: Attrs) -> tuple[int, ...]:
    if a["layout"] == "NCHW":
        return shape
    need(len(shape) == 4, f"layout = NHWC: its input {shape} must have 4 dimensions")
    return (shape[0], shape[3], *shape[1:3])


def _packed(inputs: Operands, a: Attrs) -> Operand:
    (n, c, *size), (batch, block) = _channels_first(inputs[0].shape, a), (a["batch"], a["block"])
    return Operand((-(-n // batch), -(-c // block), *size, batch, block), inputs[0].dtype)


def _folded(inputs: Operands, a: Attrs) -> Operand:
    n, c, *_ = _channels_first(inputs[0].shape, a)
    need(len(a["offsets"]) > 0, "offsets = []: at least one is needed")
    strip = max(a["offsets"]) + -(-a["entries"] // len(a["offsets"])) * a["group"] + a["block"] + a["rows"] * c
    return Operand((n, a["strips"], a["entries"], 1, a["block"]), inputs[0].dtype, n * a["strips"] * strip)


def _unpacked(shape: tuple[int, ...], n: int, c: int) -> tuple[int, ...]:
    batches, blocks, *size, batch, block = shape
    for name, value, most in (("n", n, batches * batch), ("c", c, blocks * block)):
        need(value <= most, f"{name} = {value}: its input {shape} holds {most}")
    return (n, c, *size)


def unpacked(inputs: Operands, a: Attrs) -> Operand:
    """The result of `unpack`: images and channels out of blocks, in another shape."""
    rank = len(inputs[0].shape)
    need(a.get("layout", "NCHW") == "NCHW" or rank == 6, f"layout = NHWC: its input of {rank} dimensions is no image")
    plain = _unpacked(inputs[0].shape, a["n"], a["c"])
    return _reshaped([Operand(plain, inputs[0].dtype)], a)


def _joined(inputs: Operands, a: Attrs) -> Operand:
    count, *packed = inputs[0].shape
    need(2 <= count <= 4, f"its input has {count} planes of bytes: must have 2 to 4")
    dtype = "int16" if count == 2 else "int32"
    return _reshaped([Operand(_unpacked(tuple(packed), a["n"], a["c"]), dtype)], a)


def _accumulated(inputs: Operands, a: Attrs) -> Operand:
    need(len({x.shape for x in inputs}) == 1, f"planes {[x.shape for x in inputs]} differ in shape")
    return Operand(_unpacked(inputs[0].shape, a["n"], a["c"]), "int32")


def _taken(inputs: Operands, a: Attrs) -> Operand:
    (shape, dtype, _), indices = inputs[0], a["indices"]
    need(len(indices) == len(shape), f"indices of {len(indices)} dimensions: its input {shape} has {len(shape)}")
    for k, (n, found) in enumerate(zip(shape, indices)):
        need(max(found, default=0) < n, f"indices: {max(found, default=0)} is not in dimension {k} of {shape}")
    return Operand(tuple(len(found) or n for n, found in zip(shape, indices)), dtype)


def _in_lanes(inputs: Operands, a: Attrs) -> Operand:
    rows, image = sorted((tuple(a["shape"]), inputs[0].shape), key=len)
    fits = len(rows) == 2 and len(image) == 4 and image[0] == 1
    whole = fits and rows == (image[2], -(-image[1] // a["block"]) * a["block"] * image[3])
    need(whole, f"shape = {a['shape']}, blocks of {a['block']}: its input is {inputs[0].shape}")
    return Operand(tuple(a["shape"]), inputs[0].dtype)


def _positions(where: Operand) -> None:
    need(where.dtype in ("int32", "int64"), f"positions of dtype {where.dtype}: must be int32 or int64")


def _gathered(inputs: Operands, a: Attrs) -> Operand:
    (shape, dtype, _), where, axis = inputs[0], inputs[1], a["axis"]
    _positions(where)
    need(axis < len(shape), f"axis = {axis}: its input has {len(shape)} dimensions")
    return Operand((*shape[:axis], *where.shape, *shape[axis + 1 :]), dtype)


def _gathered_nd(inputs: Operands, a: Attrs) -> Operand:
    (shape, dtype, _), where = inputs
    _positions(where)
    need(0 < len(where.shape), "positions have no dimensions")
    count = where.shape[-1]
    need(count <= len(shape), f"positions of {count} dimensions: their input {shape} has {len(shape)}")
    return Operand((*where.shape[:-1], *shape[count:]), dtype)


def _copy(
    w: Writer,
    x: Value,
    y: Value,
    shape: Ints,
    x_steps: Ints,
    y_steps: Ints,
    *,
    start: tuple[int, int] = (0, 0),
    width: int = 0,
) -> None:
    """Copy elements of `width` bytes (default: of x) of `shape` from x to y; steps and `start` of both are bytes."""
    width = width or x.width
    rows = merged(shape, (x_steps, y_steps))
    run = width
    if rows and rows[0][1:] == (width, width):
        run, rows = width * rows[0][0], rows[1:]
    if 0 not in shape:
        w.call("tw_move", x.pointer, start[0], y.pointer, start[1], run, w.plan(rows))


def _fill(w: Writer, y: Value, value: AnyArray) -> None:
    """Set every element of y to `value`, an array of one."""
    name = w.array("value", np.frombuffer(value.tobytes(), np.uint8), "uint8")
    w.call("tw_fill", y.pointer, y.size, y.width, name)


def copy_whole(w: Writer, x: Value, y: Value) -> None:
    """Copy all elements of x to y, unless both have the same address."""
    if x.pointer != y.pointer:
        _copy(w, x, y, [x.size], [x.width], [x.width])


def _reshape_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
    copy_whole(w, inputs[0], output)


def _transpose_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
    (x,) = inputs
    axes: Ints = a["axes"]
    steps = strides(x.shape, x.width)
    _copy(w, x, output, output.shape, [steps[k] for k in axes], strides(output.shape, x.width))


def _concatenate_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
    steps, start = strides(output.shape, output.width), 0
    axis: int = a["axis"]
    for x in inputs:
        _copy(w, x, output, x.shape, strides(x.shape, x.width), steps, start=(0, start))
        start += x.shape[axis] * steps[axis]


def _pad_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
    """The value everywhere, then a copy of the input."""
    _fill(w, output, np.array([a["value"]]).astype(output.dtype))
    _copy_inside(w, inputs[0], output, a)


def _pad_by_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
    x, value = inputs
    place = w.scratch(1)
    w.call("tw_recode", value.pointer, place, 1)
    w.call("tw_fill", output.pointer, output.size, 1, place)
    _copy_inside(w, x, output, a)


def _copy_inside(w: Writer, x: Value, output: Value, a: Attrs) -> None:
    """Copy `x` to its place in the padded output."""
    steps = strides(output.shape, output.width)
    start = sum(before * step for (before, _), step in zip(a["pads"], steps))
    _copy(w, x, output, x.shape, strides(x.shape, x.width), steps, start=(0, start))


def _strided_slice_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
    (x,) = inputs
    steps = strides(x.shape, x.width)
    start = sum(begin * step for begin, step in zip(a["begin"], steps))
    moves = [step * stride for step, stride in zip(steps, a["strides"])]
    _copy(w, x, output, output.shape, moves, strides(output.shape, x.width), start=(start, 0))


def _parts(size: int, block: int) -> list[tuple[int, int, int]]:
    """(first block, number of blocks, elements of each) of the full blocks, and of the last one."""
    full, rest = divmod(size, block)
    return [part for part in ((0, full, block), (full, 1, rest)) if part[1] and part[2]]


def _pack_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
    """Zeros if blocks are not full, then a walk through full blocks, and others through the rest."""
    (x,), layout = inputs, a["layout"]
    n, c = x.shape[0], x.shape[3 if layout == "NHWC" else 1]
    if n % a["batch"] or c % a["block"]:
        _fill(w, output, np.zeros(1, x.dtype))
    for shape, plain, _packed, starts in _block_walks(x.shape, layout, output.shape, (x.width, x.width)):
        _copy(w, x, output, shape, plain, _packed, start=starts)


def _block_walks(
    plain: Ints, layout: str, packed: Ints, widths: tuple[int, int]
) -> Iterator[tuple[list[int], list[int], list[int], tuple[int, int]]]:
    """(shape, steps in the images, steps in the blocks, starts of both) of each walk, in bytes.

    `plain` is the shape (n, c, ...) or with `layout` NHWC (n, h, w, c), `packed` (batches, blocks, ..., batch, block).
    """
    own = strides(plain, widths[0])
    channel = 3 if layout == "NHWC" else 1
    inner = [k for k in range(1, len(plain)) if k != channel]
    steps = strides(packed, widths[1])
    (n, c), (batch, block) = (plain[0], plain[channel]), packed[-2:]
    for (row, rows, images), (column, columns, lanes) in itertools.product(_parts(n, batch), _parts(c, block)):
        shape = [rows, columns, *(plain[k] for k in inner), images, lanes]
        moves = [own[0] * batch, own[channel] * block, *(own[k] for k in inner), own[0], own[channel]]
        starts = (row * moves[0] + column * moves[1], row * steps[0] + column * steps[1])
        yield shape, moves, steps, starts


def unpack_in_c(w: Writer, x: Value, y: Value, a: Attrs, byte: int = 0, start: int = 0) -> None:
    """Copy the elements of blocks of x, from byte `start` on, into those of y, into each from its byte `byte` on."""
    size, layout, n, c = x.shape[2:-2], a.get("layout", "NCHW"), a["n"], a["c"]
    plain = (n, *size, c) if layout == "NHWC" else (n, c, *size)
    for shape, moves, steps, starts in _block_walks(plain, layout, x.shape, (y.width, x.width)):
        _copy(w, x, y, shape, steps, moves, start=(starts[1] + start, starts[0] + byte), width=x.width)


def _unpack_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
    unpack_in_c(w, inputs[0], output, a)


def _unpack_planes_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
    """Each plane becomes a byte of the integers; a missing highest byte is filled with the sign."""
    (x,) = inputs
    count, *packed = x.shape
    one = x._replace(shape=tuple(packed))
    for k in range(count):
        unpack_in_c(w, one, output, a, byte=k, start=k * one.nbytes)
    if count < output.width:
        w.call("tw_extend", output.pointer, output.size)


def _accumulators_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
    for k, x in enumerate(inputs):
        unpack_in_c(w, x, output, a, byte=k)


def _take_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
    """Offsets per dimension; trailing dimensions that are kept whole are copied in one piece."""
    (x,) = inputs
    lists = [list(found) or list(range(n)) for found, n in zip(a["indices"], x.shape)]
    steps = strides(x.shape, x.width)
    run = x.width
    while lists and lists[-1] == [*range(x.shape[len(lists) - 1])]:
        run *= len(lists.pop())
    offsets = [[index * step for index in found] for found, step in zip(lists, steps)]
    plan = w.array("take", [len(lists), *itertools.chain(*([len(found), *found] for found in offsets))])
    w.call("tw_take", x.pointer, output.pointer, run, plan)


def _lanes_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
    """A walk through full blocks of channels, and one through the last block, which rows fill with zeros."""
    (x,), block, width = inputs, a["block"], inputs[0].width
    to_rows = len(x.shape) == 4
    _, channels, height, columns = x.shape if to_rows else output.shape
    own = strides((channels, height, columns), width)
    steps = strides((height, -(-channels // block), columns, block), width)
    if to_rows and channels % block:
        _fill(w, output, np.zeros(1, x.dtype))
    for first, count, size in _parts(channels, block):
        shape = (height, count, columns, size)
        image, rows = (own[1], own[0] * block, own[2], own[0]), steps
        plain, packed = first * image[1], first * rows[1]
        if to_rows:
            _copy(w, x, output, shape, image, rows, start=(plain, packed))
        else:
            _copy(w, x, output, shape, rows, image, start=(packed, plain))


def _fold_windows_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
    """The plan has sizes and steps of the image, then the numbers of the strips."""
    (x,) = inputs
    own = strides(x.shape)
    order = (0, 3, 1, 2) if a["layout"] == "NHWC" else (0, 1, 2, 3)
    image = [x.shape[k] for k in order] + [own[k] for k in order]
    strip = [a[name] for name in ("strips", "step", "top", "left", "rows", "dilation", "entries", "group", "block")]
    plan = w.array("fold", [*image, *strip, len(a["offsets"]), *a["offsets"]])
    w.call("tw_fold_windows", x.pointer, output.pointer, plan, a["value"])


def _gather_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
    """The piece after the axis at each position, for each index before the axis."""
    x, where = inputs
    axis: int = a["axis"]
    step = strides(x.shape, x.width)[axis]
    outer = math.prod(x.shape[:axis])
    size = x.shape[axis]
    least = -size if a.get("from_end") else 0
    _pieces(w, x, where, output, (outer, step * size), where.size, step, [least, size, step])


def _pieces(
    w: Writer, x: Value, where: Value, y: Value, outer: tuple[int, int], count: int, run: int, sizes: Ints
) -> None:
    plan = w.array("gather", [len(sizes) // 3, *sizes])
    w.call("tw_gather", x.pointer, where.pointer, type_of(where), y.pointer, *outer, count, run, plan, checked=True)


def _gather_nd_in_c(w: Writer, inputs: Sequence[Value], output: Value, a: Attrs) -> None:
    """The piece after the dimensions of a position."""
    x, where = inputs
    depth, steps = where.shape[-1], strides(x.shape, x.width)
    run = math.prod(x.shape[depth:]) * x.width
    sizes = [v for pair in zip(x.shape[:depth], steps) for v in (0, *pair)]
    _pieces(w, x, where, output, (1, 0), math.prod(where.shape[:-1]), run, sizes)


_FOLD: dict[str, Kind] = {
    **dict.fromkeys(("rows", "dilation", "step", "strips", "group", "entries"), SIZE),
    "offsets": ListOf(Int(0)),
    "top": Int(0),
    "left": Int(0),
    "value": INT8,
}
_SLICE: dict[str, Kind] = {"begin": ListOf(Int(0)), "strides": ListOf(Int(-MOST))}
_PAD: dict[str, Kind] = {"pads": ListOf(ListOf(Int(0), 2)), "value": FINITE}
_TAKE: dict[str, Kind] = {"indices": ListOf(ListOf(Int(0)))}

ROWS = (
    HostOp(pad, _padded, _PAD, DTYPES, c=_pad_in_c),
    HostOp(pad_by, _padded_by, {"pads": _PAD["pads"]}, ("int8", "uint8"), count=2, c=_pad_by_in_c),
    HostOp(reshape, _reshaped, {}, DTYPES, c=_reshape_in_c),
    HostOp(transpose, _transposed, {}, DTYPES, c=_transpose_in_c),
    HostOp(concatenate, _concatenated, {}, DTYPES, count=0, c=_concatenate_in_c),
    HostOp(strided_slice, _sliced, _SLICE, DTYPES, c=_strided_slice_in_c),
    HostOp(take, _taken, _TAKE, ANY, c=_take_in_c),
    HostOp(gather, _gathered, {}, ANY, count=2, c=_gather_in_c),
    HostOp(gather_nd, _gathered_nd, {}, ANY, count=2, c=_gather_nd_in_c),
    HostOp(pack, _packed, {}, DTYPES, (2, 4), c=_pack_in_c),
    HostOp(unpack, unpacked, {}, DTYPES, (4, 6), c=_unpack_in_c),
    HostOp(unpack_planes, _joined, {}, ranks=(5, 7), c=_unpack_planes_in_c),
    HostOp(accumulators, _accumulated, {}, ranks=(4, 6), count=4, c=_accumulators_in_c),
    HostOp(layouts.fold_windows, _folded, _FOLD, ranks=(4,), c=_fold_windows_in_c),
    HostOp(lanes, _in_lanes, {}, ranks=(2, 4), c=_lanes_in_c),
)
