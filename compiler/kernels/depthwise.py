"""Depthwise convolutions that are requantised: as a schedule, or with every row of the input loaded once.

In the kernel rows stay on chip, in a ring, for all windows that have them; a schedule loads rows again with each tile.
Output rows are computed in parts, through all channels without a break: a part needs new rows, and some of the part
before it. Where products hide the loads of both, or the layer is small, the timing model says which is faster.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from ...hw.config import Config
from ...hw.isa import Mem
from ...hw.units import striped
from ...runtime import layout
from ...runtime.buffer import Buffer
from ...runtime.program import Program
from .. import cost
from .. import graph as g
from ..api import Scheduled, build, build_into
from ..conv_shape import ConvShape
from ..intrin import PAR_WORDS
from ..limits import limits
from ..schedule.conv2d import conv2d_of
from ..schedule.depthwise import depthwise_of, reach
from ..tvm_compat import PrimFunc
from .language import Array, Kernel, Tile, Unfit, equal_parts, every, lower, program_cycles, refuse
from .recording import Recording, packed_shape, scheduled
from .views import Product, Rows, dense

_EPILOGUE = (("requant", "par"),)
_PART = 512  # accumulators of a part at most: with more, products, stores and loads of several parts overlap less
_ENDS = 32  # accumulators of the first and the last part, about: nothing hides their loads, or their stores
_REST = {False: 4, True: 3}  # a part has at most this share of what is left, so that at the end stores do not lag
_PARAMETERS = 8  # blocks whose parameters are loaded at a time: stores wait for each load
_SHARE = 8  # parts of a large layer at least
_HIDDEN = 1.2  # with products of so many times the loads, or less, a schedule waits for rows that it loads again


class Cut(NamedTuple):
    """Planes of at most `columns` output columns, all rows of them, and parts of at most `rows` output rows."""

    columns: int
    rows: int


class Piece(NamedTuple):
    """Rows [first, end) of the output, `columns` columns from `column` on, of one block of channels of an image."""

    image: int
    block: int
    column: int
    columns: int
    first: int
    end: int

    @property
    def size(self) -> int:
        """Entries of the output, and accumulators."""
        return (self.end - self.first) * self.columns


Part = list[Piece]  # pieces of planes that follow each other, all but the first from their row 0 on


def append(rec: Recording, op: g.QConv2d, buffers: Mapping[str, Buffer], pad_value: int = 0) -> None:
    """Append a convolution of the buffers `x`, `w` and `par`, packed as for its schedule."""
    options = {"pad_value": pad_value, "epilogue": _EPILOGUE}
    way = faster_rows(rec.cfg, op.shape, pad_value) or rec.schedule(depthwise_of, op.shape, **options)
    _append(rec, op, way, {**buffers, "out": rec.activations[op.output.name]})


def _append(rec: Recording, op: g.QConv2d, way: Cut | Scheduled, buffers: Mapping[str, Buffer]) -> None:
    if isinstance(way, Cut):
        lower(lambda k, op: rows_on_chip(k, op, buffers, way), rec, op)
    else:
        build_into(rec.program, way, buffers, rec.placement, name=op.name)


def depthwise_program(cfg: Config, shape: ConvShape, pad_value: int = 0) -> Program:
    """The program of one layer, requantised: inputs `x`, `w` and `par`, packed as for `depthwise`; output `out`.

    Raises the errors of `depthwise`, and `UnsupportedError` for a configuration that has no circuit, as networks do.
    """
    by_default = _scheduled(cfg, shape, pad_value)
    cut = faster_rows(cfg, shape, pad_value, alone=True)
    return build(by_default, cfg) if cut is None else _recorded(cfg, shape, pad_value, cut).program


@cost.cached(256)  # a network has many layers of one shape
def faster_rows(cfg: Config, shape: ConvShape, pad_value: int, *, alone: bool = False) -> Cut | None:
    """How rows that stay on chip are cut; None where they do not fit, or where a schedule is as fast.

    A schedule loads rows several times. Unless the layer is large and its products do not hide that, all are timed: a
    layer that is not `alone` between two 1x1 convolutions, of which the first hides what comes before its products, and
    gives its results in an order of its own; the loads of the second wait for the last stores of the layer.
    """

    def cycles(way: Cut | Scheduled) -> int:
        beside = () if alone else (ConvShape(shape.n, shape.c, *size, shape.c) for size in (shape.size, shape.output))
        around = [scheduled(conv2d_of, cfg, each, epilogue=_EPILOGUE) for each in beside]
        return program_cycles(_recorded(cfg, shape, pad_value, way, around).program)

    try:
        found = cuts(cfg, shape, pad_value)
        if _large(cfg, shape) and _products_per_load(cfg, shape, found[0].columns) < _HIDDEN:
            _recorded(cfg, shape, pad_value, found[0])
            return found[0]
        timed = {cut: cycles(cut) for cut in found}
    except Unfit:
        return None
    best = min(found, key=lambda cut: timed[cut])
    return best if timed[best] < cycles(_scheduled(cfg, shape, pad_value)) else None


def _scheduled(cfg: Config, shape: ConvShape, pad_value: int) -> PrimFunc:
    return scheduled(depthwise_of, cfg, shape, pad_value=pad_value, epilogue=_EPILOGUE)


def _recorded(
    cfg: Config, shape: ConvShape, pad_value: int, way: Cut | Scheduled, around: Sequence[PrimFunc] = ()
) -> Recording:
    """The layer with buffers `w`, `par`, `out`, and `x`, or between the layers `around` it. Raises `Unfit`."""
    rec, block = Recording(cfg, "double", "depthwise"), cfg.block_out
    rec.program.uops_ahead = True
    weight, channels = np.zeros((shape.c, 1, *shape.kernel), np.int8), np.zeros(shape.c, np.int32)
    image = g.Tensor("x", (shape.n, shape.c, *shape.size), zero_point=pad_value)
    out = g.Tensor("out", (shape.n, shape.c, *shape.output))
    op = g.QConv2d(
        "depthwise", (image,), out, weight, np.ones(shape.c, np.float32), channels,
        strides=shape.strides, pads=shape.pads, dilations=shape.dilations, groups=shape.c,
    )  # fmt: skip
    if around:
        x = build_into(rec.program, around[0], {}, rec.placement, name="before")["out"]
    else:
        x = rec.buffer("x", packed_shape(image.shape, cfg), cfg.inp_bits)
    buffers = {
        "x": x,
        "w": rec.buffer("w", layout.pack_depthwise_weights(weight[:, 0], cfg).shape, cfg.wgt_bits),
        "par": rec.buffer("par", (-(-shape.c // block), block, PAR_WORDS), 32, signed=False),
        "out": rec.buffer("out", packed_shape(out.shape, cfg), kind="output"),
    }
    with rec.program.origin("depthwise"):
        _append(rec, op, way, buffers)
    for after in around[1:]:
        build_into(rec.program, after, {"x": buffers["out"]}, rec.placement, name="after")
    return rec


def rows_on_chip(k: Kernel, op: g.QConv2d, buffers: Mapping[str, Buffer], cut: Cut) -> None:
    """Record a convolution of `buffers` x, w, par and out, packed as for its schedule, in the parts of `cut`.

    Weights and parameters are loaded with the first part that needs them.
    """
    k.need("depthwise", "overwrite", "requant")
    cfg, shape, (kh, kw), (oy, ox) = k.cfg, op.shape, op.shape.kernel, op.shape.output
    images, blocks, pitch = -(-shape.n // cfg.batch), -(-shape.c // cfg.block_out), layout.depthwise_pitch(cfg, kw)
    count = blocks * kh * pitch
    entries = -(-count // cfg.block_in)
    weights, parameters = k.array(buffers["w"], entry=entries), k.array(buffers["par"], b=blocks)
    out = k.array(buffers["out"], n=images, b=blocks, h=oy, w=ox)
    parts = [*_parts(cfg, shape, cut)]

    wgt = k.tile(Mem.WGT, high=max(entries, cfg.wgt_depth // cfg.block_in), entry=entries)
    par = k.tile(Mem.PAR, b=blocks)
    rows = _Rows(k, op, k.array(buffers["x"], row=images * blocks * shape.h, w=shape.w), cut.columns, parts[0][0].end)
    sizes = [sum(piece.size for piece in part) for part in parts]
    size = max(sizes)
    # one place in a bank where a part has no more than a plane, so that no store reads the bank that products write;
    # where it has more, stores wait for parameters more often, and products run ahead of them
    ys = k.banks(size, places=2 if cut.rows > oy and 2 * size <= k.bank else 1)
    kernel = wgt.rows(b=blocks, ky=kh, kx=pitch)
    begun = ready = 0  # entries of weights, and blocks of parameters, that were loaded
    for part, entries_of_part in zip(parts, sizes):
        y, seen = ys.next(entry=entries_of_part), 1 + max(piece.block for piece in part)
        tiles = y.pieces(*({"h": piece.end - piece.first, "w": piece.columns} for piece in part))
        products = [one for piece, tile in zip(part, tiles) for one in _products(k, op, rows, piece, tile, kernel)]
        rows.load()
        if (end := -(-seen * kh * pitch // cfg.block_in)) > begun:
            k.load(wgt[begun:end], weights[begun:end])
            begun = end
        with k.together():
            for add, tile, value in sorted(products, key=lambda one: one[0]):
                k.multiply(tile, value, overwrite=not add)
        if seen > ready:  # those of the first part alone, as it waits for them; then several, the last ones together
            if ready:
                seen = blocks if blocks - ready < 2 * _PARAMETERS else max(seen, ready + _PARAMETERS)
            k.load(par[ready:seen], parameters[ready:seen])
            ready = seen
        while part:  # whole planes by one statement, other pieces one by one
            (image, block, column, columns, first, end), count = part[0], 1
            if part[0].size == oy * ox:
                whole = (piece.image == image and piece.size == oy * ox for piece in part)
                count = [*whole, False].index(False)
            these = slice(block, block + count)
            target = out[image, these, first:end, column : column + columns]
            k.store(target, y.reshaped(b=count, h=end - first, w=columns), par[these])
            if part := part[count:]:
                y = y[target.size :]


class _Rows:
    """A ring of input rows on chip for the plane that is computed; where padding is needed, one place holds it.

    The ring begins at the place, large enough for the first part of `first` output rows, that was used longest ago.
    While one part is computed, the input rows of the next part are loaded beside its own.
    """

    def __init__(self, k: Kernel, op: g.QConv2d, x: Array, columns: int, first: int):
        self.k, self.x, self.shape, self.fill = k, x, op.shape, op.x.zero_point if any(op.pads) else 0
        self.width, padded = self.shape.reach(1, columns)[1], _padded(self.shape, self.fill)
        self.count, together = k.cfg.inp_depth // self.width, padded + len(_needed(self.shape, 0, first))
        refuse(together > self.count, f"{together} rows of {self.width} entries do not fit INP")
        self.ring = Tile(k, 0, dense({"row": self.count, "w": self.width}), Mem.INP)
        start = k.rec.placement.region(Mem.INP, together * self.width, 0, self.ring.size)
        self._next, self.outside = -(-start // self.width) % self.count, None
        self._plane: tuple[int, ...] = ()
        self._places: dict[int, int] = {}  # of rows of the image
        self._new: list[tuple[int, int, tuple[int, int]]] = []  # (place, row of `x`, window of columns)
        if padded:  # its place stays
            self.outside = self._place()
            at = self.outside * self.width
            k.fill(k.tile(Mem.INP, at, at + self.width, entry=self.width), x, self.fill)

    def _place(self) -> int:
        if self._next == self.outside:
            self._next = (self._next + 1) % self.count
        taken, self._next = self._next, (self._next + 1) % self.count
        self.k.rec.placement.use(Mem.INP, taken * self.width, self.width)
        return taken

    def take(self, piece: Piece) -> None:
        """Find places for the rows of a piece that are not on chip."""
        shape = self.shape
        if piece[:4] != self._plane:
            self._plane, self._places = piece[:4], {}
        columns = piece.column * shape.strides[1] - shape.pads[1], shape.reach(1, piece.columns)[1]
        first = (piece.image * -(-shape.c // self.k.cfg.block_in) + piece.block) * shape.h
        for row in _needed(shape, piece.first, piece.end):
            if row not in self._places:
                self._places[row] = self._place()
                self._new.append((self._places[row], first + row, columns))

    def place(self, y: int, ky: int) -> int | None:
        """Where the row is that output row `y` multiplies with row `ky` of the kernel; None outside of the image."""
        row = _source(self.shape, y, ky)
        return None if row is None else self._places[row]

    def load(self) -> None:
        """Load the rows that were not on chip: one instruction for rows that follow one another."""
        field = limits(self.k.cfg, "LOADP" if self.fill else "LOAD")
        most = field["y_size"] if self.shape.w <= field["x_stride"] else 1
        while self._new:
            (place, row, (begin, width)), count = self._new[0], 1
            if width == self.width:
                follow = [(place + n, row + n, (begin, width)) for n in range(min(most, len(self._new)))]
                count = [*(new == next_row for new, next_row in zip(self._new, follow)), False].index(False)
            window = self.x.window(self.fill, row=(row, count), w=(begin, width))
            self.k.load(self.ring[place : place + count, :width], window)
            del self._new[:count]


def _products(
    k: Kernel, op: g.QConv2d, rows: _Rows, piece: Piece, y: Tile, kernel: Rows
) -> Iterator[tuple[bool, Tile, Product]]:
    """(whether it is added, accumulators, product) for each row of the kernel, most rows inside of the image first.

    Products with rows outside of the image are left out, unless a row of padding stands for them.
    """
    rows.take(piece)
    (kh, kw), (_, sx), (_, dx) = op.shape.kernel, op.strides, op.dilations
    most, columns = k.cfg.row_taps if dx == 1 else 1, piece.columns
    places = {ky: [rows.place(row, ky) for row in range(piece.first, piece.end)] for ky in range(kh)}
    begun, ring = set[int](), rows.ring.named(row="h")
    for ky in sorted(places, key=lambda ky: places[ky].count(None)):
        each = [rows.outside if place is None else place for place in places[ky]]
        inside = [(n, place) for n, place in enumerate(each) if place is not None]
        for add in (False, True):
            for n, place, count, step in _runs([one for one in inside if (one[0] in begun) == add]):
                x = ring[every(place, count, step) if step else place]
                for kx in range(0, kw, most):
                    value = x.at(w=every(kx * dx, columns, sx)) * kernel[piece.block, ky, kx]
                    yield add or kx > 0, y[n : n + count], value.with_taps(min(most, kw - kx)).over("h w")
        begun |= {n for n, _ in inside}


def _runs(places: list[tuple[int, int]]) -> Iterator[tuple[int, int, int, int]]:
    """(first row, its place, count, places from one to the next) of adjacent rows in equal steps of at least 0."""
    while places:
        (first, place), count, step = places[0], 1, places[1][1] - places[0][1] if len(places) > 1 else 0
        while count < len(places) and step >= 0 and places[count] == (first + count, place + count * step):
            count += 1
        yield first, place, count, step if count > 1 else 0
        places = places[count:]


def _parts(cfg: Config, shape: ConvShape, cut: Cut) -> Iterator[Part]:
    """Small parts at both ends; parts between them are loaded while the parts before them are computed."""
    rows, ends, rest = shape.output[0], -(-_ENDS // cut.columns), _REST[cut.rows > shape.output[0]]
    images, blocks, ox = -(-shape.n // cfg.batch), -(-shape.c // cfg.block_out), shape.output[1]
    begins = product(range(images), range(blocks), range(0, ox, cut.columns))
    planes = [(image, block, column, min(cut.columns, ox - column)) for image, block, column in begins]
    total, done, ratio = len(planes) * rows, 0, _products_per_load(cfg, shape, cut.columns)
    growth = min(1.0, ratio / 2) if ratio > 1 else 1.0  # loads that take longer are waited for in any case
    while done < total:
        at, left = done % rows, total - done
        count = min(left, cut.rows, max(ends, int(done * growth)), max(ends, left // rest))
        inside = rows - at
        if count < inside:
            count = -(-inside // -(-inside // count))  # parts of about the same size
        else:
            count = inside + (count - inside) // rows * rows
        end, within = done + count, range(done // rows, -(-(done + count) // rows))
        yield [Piece(*planes[n], max(0, done - n * rows), min(rows, end - n * rows)) for n in within]
        done = end


def _products_per_load(cfg: Config, shape: ConvShape, columns: int) -> float:
    """Cycles of the products of a row for each cycle in which its new input rows are loaded."""
    taps = cfg.row_taps if shape.dilations[1] == 1 else 1
    loaded = shape.reach(1, columns)[1] * shape.strides[0] * cfg.inp_entry_bytes
    micro_ops = shape.kernel[0] * -(-shape.kernel[1] // taps) * columns
    return micro_ops / cost.moved(striped(cfg), loaded)


def _large(cfg: Config, shape: ConvShape) -> bool:
    """True where an image has so many parts that the ends of the layer matter little."""
    return -(-shape.c // cfg.block_out) * math.prod(shape.output) > 3 * _PART


def cuts(cfg: Config, shape: ConvShape, pad_value: int) -> list[Cut]:
    """With the widest planes of which some rows fit: as many rows as fit, whole planes if possible.

    Of a layer that is not large also whole planes and a quarter of one; of a large one a part is at most one of
    `_SHARE`, as what follows waits for the last one. Raises `Unfit` where none fits.
    """
    images, blocks, kw = -(-shape.n // cfg.batch), -(-shape.c // cfg.block_out), shape.kernel[1]
    refuse(shape.strides[0] >= shape.span[0], "windows without common rows")
    if (count := blocks * shape.kernel[0] * layout.depthwise_pitch(cfg, kw)) > reach(cfg, kw, shape.dilations[1]):
        raise Unfit(f"{count} rows of weights: more than micro-ops reach")
    formats, large = ("LOADP" if pad_value else "LOAD", "STOREQ"), _large(cfg, shape)
    widest = min(limits(cfg, name)["x_size"] for name in formats)
    (oy, ox), (sy, _), (span, _) = shape.output, shape.strides, shape.span
    for columns in equal_parts(ox):
        width, accumulators = shape.reach(1, columns)[1], min(_PART, cfg.acc_depth // 4) // columns
        room = max(0, cfg.inp_depth // width - _padded(shape, pad_value))
        planes = min(room // (2 * min(shape.h, (oy - 1) * sy + span)), accumulators // oy)
        planes = min(planes, max(1, images * blocks // _SHARE)) if large else planes
        most = planes * oy or min(accumulators, oy, max(0, room + sy - span) // (2 * sy))
        if width <= widest and most:
            others = () if large else (oy, oy // 4)
            return [Cut(columns, most), *(Cut(columns, rows) for rows in others if 0 < rows < most)]
    raise Unfit(f"no row of the windows {shape.kernel} fits {cfg.name}")


def _padded(shape: ConvShape, pad_value: int) -> bool:
    """True where a row of padding stands for all rows outside of the image; else products with those are left out."""
    inside = [[_source(shape, y, ky) is not None for ky in range(shape.kernel[0])] for y in range(shape.output[0])]
    return not all(map(any, inside)) or (pad_value != 0 and not all(map(all, inside)))


def _source(shape: ConvShape, y: int, ky: int) -> int | None:
    """The row of the image that output row `y` multiplies with row `ky` of the kernel; None outside of it."""
    row = y * shape.strides[0] - shape.pads[0] + ky * shape.dilations[0]
    return row if 0 <= row < shape.h else None


def _needed(shape: ConvShape, first: int, end: int) -> range:
    """The rows of the image from the first to the last one that output rows [first, end) need."""
    (sy, _), top = shape.strides, shape.pads[0]
    return range(max(0, first * sy - top), min(shape.h, (end - 1) * sy - top + shape.span[0]))
