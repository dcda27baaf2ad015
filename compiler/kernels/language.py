"""The kernel language: operators of the accelerator as one Python function each.

A kernel is a function `record(k, op)`. It asks `k` for tiles on chip, loads parts of the operator's inputs, computes on
them as NumPy would, and stores parts of its output. It raises `Unfit` where the operator does not suit it.
Whether a kernel applies, and how long it takes, follow from that one function: `why_not` and `cycles` run it into a
program of its own, which the timing model times. docs/kernels.md is the guide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from ...hw.config import Config
from ...hw.errors import CapacityError, EncodingError, KernelError, ScheduleError, Unfit
from ...hw.isa import AluOp, Mem, entry_bytes, table_span
from ...runtime import layout
from ...runtime.buffer import Buffer, Region
from ...runtime.launch import Launch
from ...runtime.program import Program
from ...runtime.symbols import Symbol
from .. import cost
from .. import graph as g
from ..graph.integer_forms import Requant
from ..limits import most_padding
from .fold import Fold
from .recording import OnChip, Recording, limits, packed_shape, refuse
from .views import Array, Product, Rows, Tile, View, cuts, dense, equal_parts, every, tile_of

__all__ = [
    "Array", "Kernel", "Record", "Slots", "Tile", "Unfit", "added", "by_shape", "cuts", "cycles",
    "equal_parts", "every", "launch", "lower", "refuse", "why_not",
]  # fmt: skip

Extents = list[dict[str, int]]  # the extents of the axes of each tile, by name
Loops = tuple[tuple[int, ...], ...]  # (extent, step in each operand) of each loop, from the outermost in
Record = Callable[["Kernel", Any], None]  # the second argument is an operator of the classes that the kernel computes
_Size = TypeVar("_Size")  # of a tile
_BY_SHAPE = dict[Record, Callable[[Any], object]]()
TILE = 256  # entries of a tile: enough to hide the latency of an instruction, and few enough for a short start and end
_LONG = 1 << 14  # cycles of a program whose start and end are a few per cent of it at most
_ALIKE = 1.01  # times the fewest cycles: a tile that takes so many is as good


class Slots:
    """Places on chip of one size that tiles take in turn: one is computed while the next one is loaded or stored."""

    def __init__(self, places: Iterable[Tile]):
        self.places = [*places]  # in the order in which they are taken
        self._held: dict[
            int, tuple[list[object], tuple[Tile, ...]]
        ] = {}  # (arrays, tiles) of `hold_all`, by the first entry

    def next(self, **extents: int) -> Tile:
        """The next place, with axes of these extents. Raises `KernelError` where they are larger than the place."""
        tile = self.other(**extents)
        self.places.append(self.places.pop(0))
        return tile

    def other(self, **extents: int) -> Tile:
        """The place after the latest one, which stays the next: the ALU reads tiles in two banks in one cycle."""
        tile = self.places[0].pieces(extents)[0]
        self._held.pop(tile.base, None)
        return tile.kernel.claimed(tile)

    def load(self, source: Array) -> Tile:
        """Load `source` to the next place."""
        return source.kernel.load(self.next(**source.padded), source)

    def hold(self, source: Array) -> Tile:
        """Load `source` to the place that was used longest ago, unless a place still holds it."""
        return self.hold_all(source)[0]

    def hold_all(self, *sources: Array) -> tuple[Tile, ...]:
        """As `hold`, several arrays one behind the other in one place."""
        wanted: list[object] = [(a.buffer, a.base, a.axes, a.symbol, a.fill) for a in sources]
        holding = next((base for base, (held, _) in self._held.items() if held == wanted), None)
        if holding is not None:
            self.places.sort(key=lambda place: place.base == holding)  # taken last
            return self._held[holding][1]
        place = self.next(**self.places[0].shape)
        tiles = place.pieces(*[source.padded for source in sources])
        for tile, source in zip(tiles, sources):
            source.kernel.load(tile, source)
        self._held[place.base] = wanted, tiles
        return tiles


_ON_ACCUMULATORS = frozenset({"acc8", "pad_value", "requant", "rescale"})


class Kernel:
    """Records the statements of a kernel function for one operator `op` into the program of `rec`.

    Tiles that do not fit on chip raise `Unfit` with the reason that a user reads, wrong statements `KernelError`.
    Statements add the dependence tokens that the queues of the accelerator need.
    """

    def __init__(self, rec: Recording, op: g.Operator):
        self.rec, self.op, self.cfg, self.program, self._chip = rec, op, rec.cfg, rec.program, OnChip(rec)
        self._together: dict[tuple[Any, ...], list[NDArray[np.int64]]] | None = (
            None  # micro-ops of statements that become one
        )
        self._tables = set[bytes]()

    # what the kernel needs

    def need(self, *extensions: str, batch: int = 0) -> None:
        """Raise `Unfit` without these extensions, or a batch of `batch` where one is given.

        Of extensions that move and scale accumulators alone the blocks may differ; products need blocks of one size,
        but for those of `fold`.
        """
        cfg = self.cfg
        if missing := sorted({*extensions} - cfg.extensions):
            raise Unfit(f"it needs the extension{'s' * (len(missing) > 1)} {', '.join(missing)}")
        if batch and cfg.batch != batch:
            raise Unfit(f"batch {cfg.batch}: it needs batch {batch}")
        if not {*extensions} <= _ON_ACCUMULATORS:
            self._need_equal_blocks()

    def _need_equal_blocks(self) -> None:
        cfg = self.cfg
        if cfg.block_in != cfg.block_out and self.fold is None:
            raise Unfit(f"blocks {cfg.block_in} and {cfg.block_out}: it needs blocks of one size")

    @property
    def slot(self) -> int:
        """The most entries of INP in each of two slots."""
        return self.cfg.inp_depth // 2

    @property
    def bank(self) -> int:
        """The accumulators in each of two banks."""
        return self.cfg.acc_depth // 2

    # tensors in DRAM

    def input(self, number: int) -> Array:
        """The packed input of that number: axes n, b, h, w of an image, n, b of a vector; a constant is broadcast.

        Raises `KernelError` where the operator has fewer inputs.
        """
        if not 0 <= number < len(self.op.inputs):
            raise KernelError(f"k.input({number}): the operator has {len(self.op.inputs)}, counted from 0")
        t = self.op.inputs[number]
        return self._packed(self.op.output if t.data is not None else t, self.rec.operand(self.op, number))

    def image(self, number: int) -> Array:
        """As `input`, but a constant is not broadcast, and a vector has axes n, b, h, w of images of one pixel."""
        t = self.op.inputs[number]
        x = self.input(number) if t.data is None else self.packed_constant(t.name, t.data)
        return x if "h" in x.shape else x.split("b", b=x.shape["b"], h=1, w=1)

    @property
    def output(self) -> Array:
        """The packed output, with axes as `input` has them."""
        return self._packed(self.op.output, self.rec.packed(self.op.output))

    def plain(self, t: g.Tensor, **extents: int) -> Array:
        """A tensor as the host has it, with axes of these extents, by default one of its entries, `entry`.

        Raises `Unfit` where its values are no whole entries.
        """
        values, lanes = math.prod(t.shape), self.cfg.block_out
        if values % lanes:
            raise Unfit(f"{values:,} values: it needs whole blocks of {lanes}")
        buffer = self.rec.plain[t.name] if t.name in self.rec.plain else self.rec.activations[t.name]
        return self.array(buffer, **extents or {"entry": values // lanes})

    def _packed(self, t: g.Tensor, buffer: Buffer) -> Array:
        """`t` in `buffer`, which may be part of an arena, or have the shape of a tensor of which `t` is a view."""
        return self.array(buffer, **dict(zip("nbhw", packed_shape(t.shape, self.cfg)[:-2])))

    def array(self, buffer: Buffer, **extents: int) -> Array:
        """`buffer` with axes of these extents, by default those of a packed tensor: n, b, h, w or n, b."""
        extents = extents or dict(zip("nbhw", buffer.shape[:-2]))
        return Array(self, 0, dense(extents), buffer)

    @property
    def fold(self) -> Fold | None:
        """The layout of the image of a convolution of few channels; None for blocks of channels."""
        return self.rec.folded[self.op.name][0] if self.op.name in self.rec.folded else None

    @property
    def folded(self) -> Array:
        """The image in the layout `fold`, axes n, h, w: strips and their entries."""
        fold, buffer = self.rec.folded[self.op.name]
        return self.array(buffer, **dict(zip("nhw", fold.image(self.op.inputs[0].shape, self.cfg))))

    def weights(self, number: int) -> Array:
        """The input (1, c, h, 1) of that number as weights, axes b, h: `block_out` pixels of a block are an entry."""
        x = self.input(number)
        return self.array(x.buffer, b=x.shape["b"], h=x.shape["h"] // self.cfg.block_out)

    def symbol(self, number: int, element: int = 0, *, step: int = 0, block: int = 1, within: int = 0) -> Symbol:
        """How an address moves with one element of integer input `number`, for `Array.moved`.

        It moves by `step` entries for each `block` of its values, and by `within` for each value inside of a block.
        """
        return self.rec.symbol(self.op.inputs[number], element, step=step, block=block, within=within)

    def temporary(self, name: str, **extents: int) -> Array:
        """A new buffer in DRAM for entries that leave the chip and come back."""
        size = math.prod(extents.values())
        buffer = self.rec.buffer(f"{self.op.name}.{name}", (size, self.cfg.batch, self.cfg.block_out), kind="temp")
        return self.array(buffer, **extents)

    def known(self, name: str, data: NDArray[np.integer], **extents: int) -> Array:
        """A constant in DRAM, one entry per element of its first axis; by default with one axis of that name."""
        return self.array(self.rec.constant(f"{self.op.name}.{name}", data), **extents or {name: len(data)})

    def requant(self, store: Requant, name: str = "par", **channels: NDArray[np.integer]) -> Array:
        """The parameters of a requantising store, or of `Tile.rescale`, in DRAM: one entry, for all channels.

        With `channels`, fields of `store` with one value per channel, an entry for each block, on axis b.
        """
        buffer = self.rec.parameters(f"{self.op.name}.{name}", **asdict(store) | channels)
        return self.array(buffer, **{"b" if channels else "par": buffer.shape[0]})

    # tiles on chip

    def tile(self, mem: Mem, low: int = 0, high: int | None = None, **extents: int) -> Tile:
        """A place for a tile, within entries [low, high) of `mem`."""
        return self.tiles(mem, extents, low=low, high=high)[0]

    def tiles(self, mem: Mem, *extents: dict[str, int], low: int = 0, high: int | None = None) -> tuple[Tile, ...]:
        """Adjacent places for tiles of these axes, within entries [low, high) of `mem`: none overlaps another one."""
        size = sum(math.prod(each.values()) for each in extents)
        whole = Tile(self, self._chip.region(mem, size, low, high), dense({"entry": size}), mem)
        return tuple(map(self.claimed, whole.pieces(*extents)))

    def claimed(self, tile: Tile) -> Tile:
        """The tile, which takes its place from others: a kernel with checks marks it (checked.py)."""
        return tile

    def fastest(self, record: Callable[[Kernel, Any, _Size], None], tiles: Iterable[_Size]) -> _Size:
        """The first of `tiles` with which `record(k, op, tile)` takes at most 1 % more cycles than with any of them.

        The timing model tries all, once for operators of equal shapes, each in a program of its own.
        """
        tiles, case = tuple(tiles), Case(record, _shape_facts(self.op), self.fold, self.op)
        return tiles[0] if len(tiles) == 1 else _fastest(case, tiles, self.cfg)

    def most(self, limit: int, banks: Callable[[int], tuple[Extents, Extents]]) -> int:
        """The largest number up to `limit` for which the tiles `banks(number)` fit the banks of accumulators, or 1."""
        for number in range(limit, 1, -1):
            if all(sum(math.prod(each.values()) for each in bank) <= self.bank for bank in banks(number)):
                return number
        return 1

    def scope(self) -> AbstractContextManager[None]:
        """Tiles that are taken inside end with it; later ones take the entries that were used longest ago."""
        return self._chip.scope()

    def slots(self, size: int, mem: Mem = Mem.INP, count: int = 2, low: int = 0, high: int | None = None) -> Slots:
        """`count` adjacent places of `size` entries within [low, high) of `mem`, inputs by default."""
        return Slots(self.tiles(mem, *[{"entry": size}] * count, low=low, high=high))

    def banks(self, size: int, places: int = 1) -> Slots:
        """`places` of `size` accumulators in each bank, taken in turn: one is stored while the ALU computes another."""
        one, half = {"entry": size}, self.bank
        first, second = (self.tiles(Mem.ACC, *[one] * places, low=low, high=low + half) for low in (0, half))
        return Slots(place for pair in zip(first, second) for place in pair)

    # constants on chip

    def constant(self, mem: Mem, name: str, data: NDArray[np.integer], *, kept: bool = False, **extents: int) -> Tile:
        """`data`, one entry per element of its first axis, loaded to `mem`; by default with one axis of that name.

        With `kept` it stays for all operators of the launch that ask for the same; ask for it before other places.
        """
        _check_entries(self.cfg, mem, name, data)
        extents = extents or {name: len(data)}
        if not kept:
            return self.load(self.tile(mem, **extents), self.known(name, data))
        base, there = self._chip.stays(mem, data)
        tile = Tile(self, base, dense(extents), mem)
        return tile if there else self.load(tile, self.known(name, data, **extents))

    def identity(self) -> Tile:
        """The weights that copy inputs to accumulators."""
        return self.matrices("identity", np.eye(self.cfg.block_out, self.cfg.block_in, dtype=np.int8)[None])[0]

    def matrices(self, name: str, values: NDArray[np.integer]) -> Tile:
        """Weights (count, lanes of the result, lanes of the input), int8 integers, on an axis called `name`."""
        return self.constant(Mem.WGT, name, _int8(name, values, self.cfg.block_out, self.cfg.block_in))

    def rows(self, name: str, values: NDArray[np.integer]) -> Rows:
        """Rows of weights (count, lanes), int8 integers, for products lane by lane, on an axis called `name`."""
        block, count = self.cfg.block_in, -(-len(values) // self.cfg.block_in)
        data = np.zeros((count, block, self.cfg.block_out), np.int8)
        data.reshape(count * block, -1)[: len(values)] = _int8(name, values, self.cfg.block_out)
        reach = max(count, self.cfg.wgt_depth // block)  # of micro-ops, which count rows
        tile = self.load(self.tile(Mem.WGT, high=reach, entry=count), self.known(name, data, entry=count))
        return tile.rows(**{name: len(values)})

    def parameters(self, store: Requant, **channels: NDArray[np.integer]) -> Tile:
        """The parameters of a requantising store, as of `requant`."""
        self.need("requant")
        source = self.requant(store, "par", **channels)
        return self.load(self.tile(Mem.PAR, **source.shape), source)

    def table(self, name: str, values: NDArray[np.integer]) -> int:
        """The number on chip of a table of 256 integers, for `Tile.lookup`."""
        self.need("lookup")
        self._tables.add(values.tobytes())
        if len(self._tables) > self.cfg.tables:
            raise Unfit(f"it needs {len(self._tables)} tables; {self.cfg.name} has {self.cfg.tables}")
        number, there = self._chip.table(values)
        if not there:
            source = self.known(name, layout.pack_table(values, self.cfg), entry=self.cfg.table_entries)
            self.load(Tile(self, table_span(self.cfg, number).start, source.axes, Mem.PAR), source)
        return number

    def packed_constant(self, name: str, values: NDArray[np.integer]) -> Array:
        """A constant (n, c, ...) in DRAM, packed as activations are."""
        packed = layout.pack_blocks(values, self.cfg.batch, self.cfg.block_out)
        return self.array(self.rec.constant(f"{self.op.name}.{name}", packed))

    # statements

    def load(self, target: View, source: View) -> Tile:
        """Load array `source` to tile `target`, in parts along the first axes if one transfer does not move all of it.

        Accumulators take bytes, extended by their sign.
        """
        if not isinstance(target, Tile) or not isinstance(source, Array):
            raise KernelError("k.load takes a tile, and then an array in DRAM, k.load(tile, k.input(0))")
        if not -128 <= source.fill <= 127:
            raise KernelError(f"{source} has padding of {source.fill}: must be within -128 to 127")
        self._alone("load")
        extents, most = source.padded, max((max(axis.pads) for axis in source.axes), default=0)
        if (size := math.prod(extents.values())) != target.size:
            what = f"{size} and {target.size} entries: they must have one size"
            raise KernelError(f"a load of {source} to {target}: {what}")
        if not target.dense():
            raise KernelError(f"a load of {source} to {target}: the tile has gaps; load to adjacent entries")
        if sorted(extents) == sorted(target.shape) and _order(extents) != _order(target.shape):
            raise KernelError(f"a load of {source} to {target}: their axes are in another order")
        if most > most_padding(self.cfg):
            raise Unfit(f"padding of {most}: at most {most_padding(self.cfg)}")
        if source.fill:
            self.need("pad_value")
        if (found := source.rows()) is None:
            parts = [source[at] for at in range(source.axes[0].extent)]
            for tile, part in zip(target.pieces(*[part.padded for part in parts]), parts):
                self.load(tile, part)
            return target
        self._uses(target, source)
        mem = Mem.ACC8 if target.mem is Mem.ACC and source.buffer.bits == 8 else target.mem
        rows, columns = found
        self.program.load(
            mem, target.base, source.buffer, source.base, y_size=rows.extent, x_size=columns.extent, x_stride=rows.step,
            pads=(*rows.pads, *columns.pads), pad_value=source.fill, at=source.symbol,
        )  # fmt: skip
        return target

    def fill(self, target: Tile, source: Array, value: int) -> None:
        """Set inputs to `value`, by a load of `source` of which nothing but padding is left."""
        _in(Mem.INP, target)
        if value:
            self.need("pad_value")
        source_at, pads = (source.buffer, source.base), (1, 0, 0, 0)
        self.program.load(Mem.INP, target.base, *source_at, y_size=0, x_size=target.size, pads=pads, pad_value=value)

    def store(self, target: View, y: View, par: Tile | None = None) -> None:
        """Store accumulators `y`, requantised by `par`: one entry for all, or one for each row along an axis of `y`."""
        if not isinstance(target, Array) or isinstance(y, Array):
            raise KernelError("k.store takes an array in DRAM, and then a tile, k.store(k.output, y)")
        self._alone("store")
        y = _in(Mem.ACC, y)
        if y.shape != target.shape or _order(y.shape) != _order(target.shape) or target.padded != target.shape:
            raise KernelError(f"a store of {y} to {target}: they must have the same axes, without padding")
        own, facts = [], {}
        if par is not None:
            _in(Mem.PAR, par)
            own = [axis for axis in par.axes if axis.extent > 1]
            if len(own) > 1 or any(y.shape.get(axis.name) != axis.extent for axis in own):
                raise KernelError(f"a store of {y} with {par}: one entry for all, or one for each of an axis of both")
            facts = {"par": par.base, "par_step": own[0].step if own else 0}
        name = own[0].name if own else ""
        if not y.dense() or (found := target.rows(name)) is None:
            first = next((axis.name for axis in y.axes if axis.extent > 1), "")
            for at in range(y.axis(first).extent):
                each = par.at(**{first: at}) if par is not None and first == name else par
                self.store(target.at(**{first: at}), y.at(**{first: at}), each)
            return
        self._uses(target, y, *([] if par is None else [par]))
        rows, columns = found
        self.program.store(
            y.base, target.buffer, target.base, y_size=rows.extent, x_size=columns.extent, x_stride=rows.step,
            at=target.symbol, **facts,
        )  # fmt: skip

    def zero(self, y: Tile) -> None:
        """Set accumulators to zero."""
        _in(Mem.ACC, y)
        self._uses(y)
        loops = tuple((axis.extent, axis.step, 0, 0) for axis in y.axes)
        self._record(self.program.gemm_uops, loops, np.array([(y.base, 0, 0)]), reset=True)

    def multiply(self, y: Tile, product: Product, *, overwrite: bool = False) -> None:
        """`y += product`, or `y = product` with `overwrite`: the first products replace it, others are added.

        Unit `ternary` multiplies by weights in TWGT: `y` is in the first plane of a bank, and the products of the other
        blocks of a group go to the same place in the next planes.
        """
        self._need_equal_blocks()
        views, ternary = (y, product.x, product.weights), product.weights.mem is Mem.TWGT
        for mem, view in zip((Mem.ACC, Mem.INP, Mem.TWGT if ternary else Mem.WGT), views):
            _in(mem, view)
        if isinstance(product.weights, Rows) != product.by_lane:
            raise KernelError(f"{product.weights}: @ takes weights, * their rows, `weights.rows(...)`")
        loops = _loops(views, product.order)
        summed = [a.name for t in views[1:] for a in t.axes if a.extent > 1 and a.name not in y.shape]
        if overwrite and summed:
            self.multiply(y, product.at(**{summed[0]: 0}), overwrite=True)
            self.multiply(y, product.at(**{summed[0]: slice(1, None)}))
            return
        if not (product.order or overwrite):  # sums have no order: the longest loops go to the instruction
            loops = tuple(sorted(loops, reverse=True))
        self._uses(y, product.x, product.weights, *([] if overwrite else [y]))
        weights, taps = product.weights.base, product.taps
        if taps > 1:  # weights count groups of rows
            group = self.cfg.row_taps
            if any(rows % group for rows in (weights, *(step for *_, step in loops))):
                raise KernelError(f"{taps} taps of {product.weights}: rows must be in groups of {group}")
            weights, loops = weights // group, tuple((*loop[:3], loop[3] // group) for loop in loops)
        moved = [0 if view.shifts is None else view.shifts for view in views]
        uops = np.stack(np.broadcast_arrays(y.base + moved[0], product.x.base + moved[1], weights + moved[2]), -1)
        facts = {"depthwise": True, "taps": taps} if product.by_lane else {}
        record = self.program.ternary_uops if ternary else self.program.gemm_uops
        self._record(record, loops, uops.reshape(-1, 3), overwrite=overwrite, **facts)

    def combine(self, op: AluOp, y: Tile, value: Tile | int, over: str = "") -> None:
        """`y = op(y, value)`, element by element, with a number or with accumulators."""
        views = (y, value) if isinstance(value, Tile) else (y, Tile(self, 0, (), Mem.ACC))
        for view in views:
            _in(Mem.ACC, view)
        imm, uops = None if isinstance(value, Tile) else value, np.array([(y.base, views[1].base)])
        loops = _loops(views, over)
        self._uses(y, y, *([value] if isinstance(value, Tile) else []))
        self._record(self.program.alu_uops, loops, uops, op=op, imm=imm)

    @contextmanager
    def together(self) -> Generator[None, None, None]:
        """Statements inside that are of one kind and have equal loops become one instruction.

        None may read or write entries that another one writes, but for products that are added to what other products
        replaced; loads and stores stay outside. Kinds are recorded in the order of their first statements.
        """
        if self._together is not None:
            raise KernelError("`together` cannot be nested")
        found = self._together = {}
        try:
            yield
        finally:
            self._together = None
        for (record, loops, *facts), uops in found.items():
            record(uops=np.concatenate(uops), loops=loops, **dict(facts))

    def _alone(self, what: str) -> None:
        if self._together is not None:
            raise KernelError(f"a {what} inside of `together`, whose statements are recorded at its end: do it before")

    def _record(self, record: Callable[..., None], loops: Loops, uops: NDArray[np.int64], **facts: object) -> None:
        if self._together is not None:
            self._together.setdefault((record, loops, *facts.items()), []).append(uops)
        else:
            record(uops=uops, loops=loops, **facts)

    def _uses(self, writes: View, *reads: View) -> None:
        """Called by each statement with the view that it writes and those that it reads: for checked.py."""


def _int8(name: str, values: NDArray[np.integer], *lanes: int) -> NDArray[np.int8]:
    """The values (count, *lanes) of weights. Raises `KernelError` where they are no int8 integers, or none."""
    values = np.asarray(values)
    if values.shape[1:] != lanes or not values.size:
        raise KernelError(f"weights {name} {values.shape}: must be (count, {', '.join(map(str, lanes))})")
    if (values != np.round(values)).any():
        raise KernelError(f"weights {name} are no integers: round them, and scale the result when it is stored")
    if values.min() < -128 or values.max() > 127:
        raise KernelError(f"weights {name} are {values.min()} to {values.max()}: they must be within -128 to 127")
    return values.astype(np.int8)


def _check_entries(cfg: Config, mem: Mem, name: str, data: NDArray[np.integer]) -> None:
    """Raise `KernelError` where the elements of the first axis are no entries of `mem`."""
    widest = {Mem.INP: np.int8, Mem.WGT: np.int8, Mem.ACC: np.int32}.get(mem)
    if widest and (data.dtype.kind != "i" or data.itemsize > np.dtype(widest).itemsize):
        what = f"{mem.name} takes {widest.__name__}, values.astype(np.{widest.__name__})"
        raise KernelError(f"constant {name} is {data.dtype}: {what}")
    size, allowed = data[0].nbytes if len(data) else 0, [entry_bytes(cfg, mem)]
    if mem is Mem.ACC:
        allowed.append(allowed[0] // 4)  # bytes, extended by their sign
    if size not in allowed:
        lanes = {Mem.WGT: (cfg.block_out, cfg.block_in), Mem.INP: (cfg.batch, cfg.block_in)}
        shape = lanes.get(mem, (cfg.batch, cfg.block_out))
        raise KernelError(
            f"constant {name} {data.shape} {data.dtype}: an element of its first axis has {size} bytes, an entry of "
            f"{mem.name} {' or '.join(map(str, allowed))}; its lanes must be {shape}"
        )


def _order(extents: dict[str, int]) -> list[str]:
    return [name for name, extent in extents.items() if extent > 1]


def _in(mem: Mem, view: View) -> Tile:
    """The view, a tile in `mem`. Raises `KernelError` where it is no tile, or lies in another memory."""
    tile = tile_of(view)
    if tile.mem is not mem:
        raise KernelError(f"{tile} is in {tile.mem.name}: the statement takes one in {mem.name}")
    return tile


def _loops(views: tuple[Tile, ...], order: str) -> Loops:
    """(extent, step in each view) for every axis of the views, in the order of the views or in the given one."""
    axes = dict[str, int]()
    for view in views:
        for axis in view.axes:
            if axes.setdefault(axis.name, axis.extent) != axis.extent:
                extents = f"{axes[axis.name]} and {axis.extent}"
                what = f"{' and '.join(map(str, views))}: axis {axis.name} has different extents, {extents}"
                raise KernelError(f"{what}: cut one of them, or give it another name")
    names = order.split() or list(axes)
    if sorted(names) != sorted(axes):
        raise KernelError(f"loops over {', '.join(names)}: the axes are {', '.join(axes)}")
    steps = [{axis.name: axis.step for axis in view.axes} for view in views]
    return tuple((axes[name], *(step.get(name, 0) for step in steps)) for name in names)


def lower(record: Record, rec: Recording, op: g.Operator) -> None:
    """Record `op` into the program of `rec`. Raises `Unfit` where it does not suit the kernel, or does not fit."""
    k = Kernel(rec, op)
    with k.scope():
        record(k, op)


# Trials: an operator in a program of its own says whether a kernel computes it, and how long that takes. Cycles are the
# timing model's; the functions that return them raise `Unfit` where a kernel cannot compute its operator.


def why_not(record: Record, op: g.Operator, cfg: Config, fold: Fold | None = None) -> str:
    """Reason why the kernel cannot compute the operator; empty if it can."""
    tried = _tried(case_of(record, op, fold), cfg)
    return tried if isinstance(tried, str) else ""


def launch(record: Record, op: g.Operator, cfg: Config, fold: Fold | None = None) -> Launch:
    """The launch of the operator alone that takes `cycles`."""
    return _fitting(_tried(case_of(record, op, fold), cfg)).finish()


def cycles(record: Record, op: g.Operator, cfg: Config, fold: Fold | None = None) -> float:
    """Cycles of a program of the operator alone, with its image laid out as `fold` says."""
    return _timed(case_of(record, op, fold), cfg)


def added(record: Record, op: g.Operator, cfg: Config, fold: Fold | None = None) -> float:
    """Cycles that the operator adds to a launch: two in a row, the second on the result of the first, less one alone.

    So the first loads and the last stores, which other operators of a launch hide, do not count.
    """
    return _added(case_of(record, op, fold), cfg)


def overlap(first: Case, second: Case, cfg: Config) -> float:
    """Cycles that the second operator takes less behind the first than in a launch of its own; 0 if it is long.

    Where the first one is long, or both fit no program, the overlap is that of the second one behind its like.
    """
    names = [t.name for t in first.op.tensors]
    wired = tuple(names.index(t.name) if t.name in names else -1 for t in second.op.tensors)
    return _overlap(first, second, wired, cfg)


def integers(op: g.Operator) -> object:
    """The attributes of an operator besides its tensors, without names, scales and the numbers of constants."""
    return tuple(_integers(getattr(op, each.name)) for each in fields(op) if each.name != "name")


def by_shape(facts: Callable[[Any], object] = integers) -> Callable[[Record], Record]:
    """Mark a kernel whose instructions follow from the shapes and zero points of tensors and from `facts` of `op`.

    Operators that are alike in these, as those of equal layers, are tried once.
    """

    def marked(record: Record) -> Record:
        _BY_SHAPE[record] = facts
        return record

    return marked


@dataclass(frozen=True)
class Case:
    """A trial of `record` on an operator, which is that of all operators with the same `facts` and `fold`."""

    record: Callable[..., None]
    facts: tuple[object, ...]
    fold: Fold | None
    op: g.Operator = field(compare=False)


def case_of(record: Record, op: g.Operator, fold: Fold | None = None) -> Case:
    """The trial of an operator whose image is laid out as `fold` says."""
    facts = _shape_facts(op, _BY_SHAPE[record]) if record in _BY_SHAPE else (op,)
    return Case(record, facts, fold, op)


def _shape_facts(op: g.Operator, facts: Callable[[Any], object] = integers) -> tuple[object, ...]:
    names = [t.name for t in op.tensors]
    return type(op), *map(names.index, names), _integers((*op.inputs, op.output)), facts(op)


def _integers(value: Any) -> Any:
    if isinstance(value, g.Tensor):
        return value.shape, value.dtype, value.zero_point, value.data is None
    if isinstance(value, tuple):
        return tuple(map(_integers, cast(tuple[Any, ...], value)))
    if isinstance(value, np.ndarray):
        array = cast(NDArray[Any], value)
        return array.shape, array.dtype
    return None if isinstance(value, float) else value


@cost.cached(512)
def _tried(case: Case, cfg: Config) -> Program | str:
    return _recorded((case,), cfg)


@cost.cached(512)
def _timed(case: Case, cfg: Config) -> float:
    return program_cycles(_fitting(_tried(case, cfg)))


@cost.cached(512)
def _added(case: Case, cfg: Config) -> float:
    alone = _timed(case, cfg)
    if alone > _LONG:
        return alone
    twice = _recorded((case,), cfg, partial(_twice, case))
    return (
        alone if isinstance(twice, str) else max(0.0, program_cycles(twice) - alone)
    )  # without room for two, that of one


@cost.cached(512)
def _overlap(first: Case, second: Case, wired: tuple[int, ...], cfg: Config) -> float:
    alone = _timed(second, cfg)
    if alone > _LONG:
        return 0.0
    if (before := _timed(first, cfg)) <= _LONG:
        both = _recorded((first, second), cfg)
        if not isinstance(both, str):
            return before + alone - program_cycles(both)
    return alone - _added(second, cfg)


@cost.cached(512)
def _fastest(case: Case, tiles: tuple[_Size, ...], cfg: Config) -> _Size:
    def trial(tile: _Size) -> Case:
        def record(k: Kernel, op: Any) -> None:
            case.record(k, op, tile)

        return replace(case, record=record)

    tried = [_recorded((trial(tile),), cfg) for tile in tiles]
    times = [math.inf if isinstance(program, str) else program_cycles(program) for program in tried]
    _fitting(tried[times.index(min(times))])
    return next(tile for tile, time in zip(tiles, times) if time <= _ALIKE * min(times))


def _fitting(tried: Program | str) -> Program:
    if isinstance(tried, str):
        raise Unfit(tried)
    return tried


def program_cycles(program: Program) -> int:
    """Cycles of a program, by the timing model with the memory of `cost.on_memory`."""
    from ...sim.timing import predict

    return predict(program, program.cfg, cost.timed_memory(program.cfg)).cycles


def _recorded(cases: tuple[Case, ...], cfg: Config, record: Callable[[Recording], None] | None = None) -> Program | str:
    """The program of the operators, or of `record` with buffers for their tensors; or the reason why there is none."""
    rec = Recording(cfg, "double", cases[0].op.name)
    rec.program.uops_ahead, rec.limits = True, limits([case.op for case in cases])
    read = {t.name for case in cases for t in case.op.inputs if t not in case.op.plain}
    kinds = {case.op.output.name: "temp" if case.op.output.name in read else "output" for case in cases}
    kinds |= {case.op.x.name: "state" for case in cases if isinstance(case.op, g.Write)}
    for case in cases:
        op, plain = case.op, case.op.plain
        packed = (*(t for t in op.inputs if t not in plain), op.output)
        computed = [t for t in packed if t.data is None and t.name not in rec.limits]
        if any(len(t.shape) < 2 for t in computed):
            return "operands are not in blocks of channels"
        for t in plain:
            if t.name not in rec.plain:
                rec.as_host(op, t)
        for t in computed:
            if t is op.output and isinstance(op, g.Write):  # in place
                rec.activations[t.name] = rec.activations[op.x.name]
            elif t.name not in rec.activations:
                rec.activation(op, t, kinds.get(t.name, "input"))
        if case.fold is not None:
            image = case.fold.image(op.x.shape, cfg)
            rec.folded[op.name] = case.fold, rec.buffer(f"{op.name}.x", image, kind="input")
    try:
        if record is not None:
            record(rec)
        else:
            for case in cases:
                _lowered(rec, case)
    except (CapacityError, EncodingError, ScheduleError) as exc:
        return str(exc)
    return rec.program


def _twice(case: Case, rec: Recording) -> None:
    """The operator two times in a row, as far as its first input goes; of other shape the second one reads the same."""
    op = case.op
    own = {t.name: rec.activations[t.name] for t in op.tensors if t.dtype == "int8" and t.name in rec.activations}
    chained = len(own) > 1 and op.output.name in own and not isinstance(op, g.Write)
    ends = (next(iter(own)), op.output.name) if chained else ()
    wholes = [rec.buffer(name, (max(own[end].nbytes for end in ends),), kind="temp") for name in ends]
    for number in range(2):
        for name, whole in zip(ends, wholes[:: -1 if number else 1]):
            rec.activations[name] = Region(name, own[name].shape, whole=whole)
        _lowered(rec, case, f"{op.name}.{number}")


def _lowered(rec: Recording, case: Case, name: str = "") -> None:
    rec.tables.clear()  # in a network these places usually hold the tables of other operators
    with rec.program.origin(name or case.op.name):
        lower(case.record, rec, case.op)
