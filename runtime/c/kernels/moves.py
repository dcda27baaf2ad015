"""Operators that move values: plans for one C function that walks through memory, and a few of their own."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from ..statements import Value, Writer, merged, strides


def copy(
    w: Writer,
    x: Value,
    y: Value,
    shape: Sequence[int],
    x_steps: Sequence[int],
    y_steps: Sequence[int],
    *,
    start: tuple[int, int] = (0, 0),
    width: int = 0,
) -> None:
    """Copy elements of `width` bytes, those of x by default; `start` and steps are bytes."""
    width = width or x.width
    rows = merged(shape, (x_steps, y_steps))
    run = width
    if rows and rows[0][1:] == (width, width):
        run, rows = width * rows[0][0], rows[1:]
    if 0 not in shape:
        w.call("tw_move", x.pointer, start[0], y.pointer, start[1], run, w.plan(rows))


def fill(w: Writer, y: Value, value: np.ndarray) -> None:
    """Set every element of y to `value`, an array of one."""
    name = w.array("value", np.frombuffer(value.tobytes(), np.uint8), "uint8")
    w.call("tw_fill", y.pointer, y.size, y.width, name)


def reshape(w: Writer, inputs: Sequence[Value], output: Value, attrs: dict) -> None:
    """One copy."""
    (x,) = inputs
    copy(w, x, output, [x.size], [x.width], [x.width])


def transpose(w: Writer, inputs: Sequence[Value], output: Value, attrs: dict) -> None:
    """One walk."""
    (x,) = inputs
    steps = strides(x.shape, x.width)
    copy(w, x, output, output.shape, [steps[k] for k in attrs["axes"]], strides(output.shape, x.width))


def concatenate(w: Writer, inputs: Sequence[Value], output: Value, attrs: dict) -> None:
    """A copy of each."""
    steps = strides(output.shape, output.width)
    start = 0
    for x in inputs:
        copy(w, x, output, x.shape, strides(x.shape, x.width), steps, start=(0, start))
        start += x.shape[attrs["axis"]] * steps[attrs["axis"]]


def pad(w: Writer, inputs: Sequence[Value], output: Value, attrs: dict) -> None:
    """The value everywhere, then the input."""
    (x,), steps = inputs, strides(output.shape, output.width)
    fill(w, output, np.array([attrs["value"]]).astype(x.dtype))
    start = sum(before * step for (before, _), step in zip(attrs["pads"], steps))
    copy(w, x, output, x.shape, strides(x.shape, x.width), steps, start=(0, start))


def strided_slice(w: Writer, inputs: Sequence[Value], output: Value, attrs: dict) -> None:
    """One walk, which begins inside."""
    (x,) = inputs
    steps = strides(x.shape, x.width)
    start = sum(begin * step for begin, step in zip(attrs["begin"], steps))
    moves = [step * stride for step, stride in zip(steps, attrs["strides"])]
    copy(w, x, output, output.shape, moves, strides(output.shape, x.width), start=(start, 0))


def _parts(size: int, block: int) -> list[tuple[int, int, int]]:
    """(number of the first block, blocks, elements of each): the full ones, and the rest."""
    full, rest = divmod(size, block)
    return [part for part in ((0, full, block), (full, 1, rest)) if part[1] and part[2]]


def pack(w: Writer, inputs: Sequence[Value], output: Value, attrs: dict) -> None:
    """Zeros where blocks are not full, and a walk through those that are, and through the others."""
    (x,), layout = inputs, attrs.get("layout", "NCHW")
    n, c = x.shape[0], x.shape[3 if layout == "NHWC" else 1]
    if n % attrs["batch"] or c % attrs["block"]:
        fill(w, output, np.zeros(1, x.dtype))
    for shape, plain, packed, starts in block_walks(x.shape, layout, output.shape, (x.width, x.width)):
        copy(w, x, output, shape, plain, packed, start=starts)


def block_walks(
    plain: Sequence[int], layout: str, packed: Sequence[int], widths: tuple[int, int]
) -> list[tuple[list[int], list[int], list[int], tuple[int, int]]]:
    """(shape, steps in the plain images, in the blocks, where both start): a walk per part, in bytes.

    `plain` is the shape (n, c, ...) or with `layout` NHWC (n, h, w, c), `packed` (batches, blocks, ..., batch, block).
    """
    own = strides(plain, widths[0])
    channel = 3 if layout == "NHWC" else 1
    inner = [k for k in range(1, len(plain)) if k != channel]
    steps = strides(packed, widths[1])
    (n, c), (batch, block) = (plain[0], plain[channel]), packed[-2:]
    found = []
    for (row, rows, images), (column, columns, lanes) in itertools.product(_parts(n, batch), _parts(c, block)):
        shape = [rows, columns, *(plain[k] for k in inner), images, lanes]
        moves = [own[0] * batch, own[channel] * block, *(own[k] for k in inner), own[0], own[channel]]
        starts = (row * moves[0] + column * moves[1], row * steps[0] + column * steps[1])
        found.append((shape, moves, steps, starts))
    return found


def _unpack(w: Writer, x: Value, y: Value, attrs: dict, byte: int = 0, start: int = 0) -> None:
    """Elements of blocks of x, from byte `start` on, to the elements of y from their byte `byte` on."""
    size, layout = x.shape[2:-2], attrs.get("layout", "NCHW")
    n, c = attrs["n"], attrs["c"]
    plain = (n, *size, c) if layout == "NHWC" else (n, c, *size)
    for shape, moves, steps, starts in block_walks(plain, layout, x.shape, (y.width, x.width)):
        copy(w, x, y, shape, steps, moves, start=(starts[1] + start, starts[0] + byte), width=x.width)


def unpack(w: Writer, inputs: Sequence[Value], output: Value, attrs: dict) -> None:
    """As `pack`, back."""
    _unpack(w, inputs[0], output, attrs)


def unpack_planes(w: Writer, inputs: Sequence[Value], output: Value, attrs: dict) -> None:
    """Every plane to its byte of the integers; a missing byte is the sign."""
    (x,) = inputs
    count, *packed = x.shape
    one = x._replace(shape=tuple(packed))
    for k in range(count):
        _unpack(w, one, output, attrs, byte=k, start=k * one.nbytes)
    if count < output.width:
        w.call("tw_extend", output.pointer, output.size)


def accumulators(w: Writer, inputs: Sequence[Value], output: Value, attrs: dict) -> None:
    """Every plane to its byte of the integers."""
    for k, x in enumerate(inputs):
        _unpack(w, x, output, attrs, byte=k)


def take(w: Writer, inputs: Sequence[Value], output: Value, attrs: dict) -> None:
    """Offsets per dimension; the last dimensions, if they are whole, are copied in one piece."""
    (x,) = inputs
    lists = [list(found) or list(range(n)) for found, n in zip(attrs["indices"], x.shape)]
    steps = strides(x.shape, x.width)
    run = x.width
    while lists and lists[-1] == [*range(x.shape[len(lists) - 1])]:
        run *= len(lists.pop())
    offsets = [[index * step for index in found] for found, step in zip(lists, steps)]
    plan = w.array("take", [len(lists), *itertools.chain(*([len(found), *found] for found in offsets))])
    w.call("tw_take", x.pointer, output.pointer, run, plan)


def lanes(w: Writer, inputs: Sequence[Value], output: Value, attrs: dict) -> None:
    """A walk through parts of `block` channels, and one through the others, beside which rows have zeros."""
    (x,), block, width = inputs, attrs["block"], inputs[0].width
    to_rows = len(x.shape) == 4
    _, channels, height, columns = x.shape if to_rows else output.shape
    own = strides((channels, height, columns), width)
    steps = strides((height, -(-channels // block), columns, block), width)
    if to_rows and channels % block:
        fill(w, output, np.zeros(1, x.dtype))
    for first, count, size in _parts(channels, block):
        shape = (height, count, columns, size)
        image, rows = (own[1], own[0] * block, own[2], own[0]), steps
        plain, packed = first * image[1], first * rows[1]
        if to_rows:
            copy(w, x, output, shape, image, rows, start=(plain, packed))
        else:
            copy(w, x, output, shape, rows, image, start=(packed, plain))


def fold_windows(w: Writer, inputs: Sequence[Value], output: Value, attrs: dict) -> None:
    """Sizes and steps of the image, then the numbers of the strips."""
    (x,), a = inputs, attrs
    own = strides(x.shape)
    order = (0, 3, 1, 2) if a.get("layout", "NCHW") == "NHWC" else (0, 1, 2, 3)
    image = [x.shape[k] for k in order] + [own[k] for k in order]
    strip = [a[name] for name in ("strips", "step", "top", "left", "rows", "dilation", "entries", "group", "block")]
    plan = w.array("fold", [*image, *strip, len(a["offsets"]), *a["offsets"]])
    w.call("tw_fold_windows", x.pointer, output.pointer, plan, a["value"])
