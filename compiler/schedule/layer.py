"""Base of the ready schedules: `Expression` and `Layer` hold a computation before its tile is chosen.

A ready schedule makes an `Expression`; with an epilogue that becomes a `Layer`, whose `scheduled` applies a tile: a
given one, the choice of a search, or the cost model's cheapest. `layer_of` and `capture` return the layer of a call,
for tuning. `arrange_reduction` and `arrange_windows` apply the tiles of all layers but element-wise chains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Protocol, TypedDict

from ...hw.config import Config
from ...hw.errors import ScheduleError
from ..intrin import ACC, INP, SLOTS, WGT, tensorize_gemm, tensorize_reset
from ..tile import OUTPUT_DIMS, Tile
from ..tvm_compat import Node, PrimFunc, Schedule, te
from . import epilogue as ep
from .epilogue import Epilogue
from .tiling import Work, best_tile, best_tiles, largest_tile, ranked_tiles


@dataclass(frozen=True)
class Layer:
    """A layer before its tile is chosen.

    `func` computes it, `arrange(sch, tile)` schedules it, `work` describes it to the cost model.
    """

    cfg: Config
    func: PrimFunc
    work: Work
    arrange: Callable[[Schedule, Tile], object]

    def best(self, vthreads: int) -> Tile:
        """The tile to use without a search. Raises `CapacityError` if none fits."""
        return best_tile(self.work, self.cfg, vthreads)

    def ranked(self, vthreads: int) -> Iterable[tuple[Tile, float]]:
        """(tile, estimated cycles) of the tiles that fit, the cheapest first.

        They have `vthreads` virtual threads, or as many as fit. Raises `CapacityError` if no tile fits.
        """
        return ranked_tiles(self.work, self.cfg, vthreads)

    def promising(self, vthreads: int, count: int) -> list[Tile]:
        """The `count` cheapest tiles, no two alike in extents and threads, `best` and the largest.

        Raises `CapacityError` if no tile fits.
        """
        others = self.best(vthreads), largest_tile(self.work, self.cfg, vthreads)
        return list(dict.fromkeys([*best_tiles(self.work, self.cfg, vthreads, count), *others]))

    def scheduled(
        self, tile: Tile | None = None, vthreads: int | None = None, search: TileSearch | None = None
    ) -> Schedule:
        """The schedule for `tile`, with `vthreads` where both are given.

        Without a tile it is the choice of `search` for at most `vthreads` virtual threads (default 2), else the
        cheapest. Raises `CapacityError` if no tile fits, `ScheduleError` for an impossible one.
        """
        if tile is None:
            threads = 2 if vthreads is None else vthreads
            tile = self.best(threads) if search is None else search.tile(self, threads)
        elif vthreads is not None:
            tile = replace(tile, vthreads=vthreads)
        sch = Schedule(self.func)
        self.arrange(sch, tile)
        return sch


class OnAlu(Layer):
    """A layer whose data the ALU reads and writes, so that tiles are in accumulators; it ranks its tiles itself."""

    def best(self, vthreads: int) -> Tile:
        """The cheapest tile."""
        return self.promising(vthreads, 1)[0]

    def promising(self, vthreads: int, count: int) -> list[Tile]:
        """The `count` cheapest tiles."""
        return [tile for tile, _ in islice(self.ranked(vthreads), count)]


class Options(TypedDict, total=False):
    """The options of `conv2d`, `depthwise`, `dense` and `pool`: the arguments of `Expression.scheduled`."""

    epilogue: Sequence[ep.Stage]
    planes: bool | int
    tile: Tile | None
    vthreads: int | None
    search: TileSearch | None


class PaddedOptions(Options, total=False):
    """The options of `conv2d` and `depthwise`: also the value of the padding, by default 0."""

    pad_value: int


@dataclass(frozen=True)
class Expression:
    """The expression of a layer, from the tensors `inputs` to its accumulators `acc`, and how to schedule it.

    `arrange(epilogue, sch, tile)` schedules it and the blocks that an epilogue adds; `kind` is the class of its layer.
    """

    cfg: Config
    work: Work
    inputs: tuple[Node, ...]
    acc: Node
    arrange: Callable[[ep.Epilogue, Schedule, Tile], object]
    kind: type[Layer] = Layer

    def scheduled(
        self,
        epilogue: Sequence[ep.Stage] = (),
        planes: bool | int = False,
        tile: Tile | None = None,
        vthreads: int | None = None,
        search: TileSearch | None = None,
    ) -> Schedule:
        """The schedule with an epilogue; `tile`, `vthreads` and `search` as in `Layer.scheduled`.

        Also raises `ScheduleError` for an impossible epilogue.
        """
        ep.check(epilogue, [tensor.op.name for tensor in self.inputs], planes)
        after = ep.build(self.acc, epilogue, planes, self.cfg, self.work.co)
        func = te.create_prim_func([*self.inputs, *after.operands, *after.outputs])
        work = ep.with_epilogue(self.work, epilogue, planes)
        return self.kind(self.cfg, func, work, partial(self.arrange, after)).scheduled(tile, vthreads, search)


Ready = partial[Schedule]  # a ready schedule with its arguments, but for its tile


class TileSearch(Protocol):
    """Chooses a tile, as `compiler.tune.search.Search` does."""

    def tile(self, layer: Layer, vthreads: int) -> Tile:
        """The tile to use, with at most `vthreads` virtual threads."""
        ...


class Tiles(Protocol):
    """Makes the ready schedules of a network, with tiles that it knows."""

    def scheduled(self, ready: Ready) -> Schedule:
        """The schedule that `ready` makes."""
        ...


def scheduled_by(tiles: Tiles | None, ready: Callable[..., Schedule], *args: Any, **options: Any) -> Schedule:
    """The schedule that `ready` makes of these arguments, by `tiles` if there are any."""
    return ready(*args, **options) if tiles is None else tiles.scheduled(partial(ready, *args, **options))


def layer_of(ready: Callable[..., Schedule], *args, **kwargs) -> Layer:
    """The layer that a ready schedule makes of these arguments: `layer_of(conv2d, config, 1, 56, 56, 64, 64, 3, 3)`.

    Raises the errors of `ready`, and `ScheduleError` if a tile is given.
    """
    return capture(partial(ready, *args, **kwargs))[1]


def capture(ready: Ready) -> tuple[Schedule, Layer]:
    """(the schedule of `ready`, its layer). Raises as `layer_of` does."""
    search = _LayerCapture()
    scheduled = ready(search=search)
    if not search.layers:
        raise ScheduleError(f"{ready.func.__name__}: the tile is to be searched; leave tile out")
    return scheduled, search.layers[0]


class _LayerCapture:
    """A search that records the layers it is called with."""

    def __init__(self):
        self.layers: list[Layer] = []

    def tile(self, layer: Layer, vthreads: int) -> Tile:
        self.layers.append(layer)
        return layer.best(vthreads)


Levels = list[tuple[str, Node]]  # (dimension, loop over tiles), outermost first


def arrange_reduction(cfg: Config, outputs: tuple[str, ...], after: Epilogue, sch: Schedule, tile: Tile) -> None:
    """Schedule block `acc`, a sum of products of `x` and `w`, with the blocks of the epilogue `after`.

    Its loops are the dimensions `outputs` (names of `tile.OUTPUT_DIMS`), batch, block_out, then the channel blocks, the
    kernel's loops and block_in. Images (four dimensions) come from block `input`, which pads them. Raises
    `ScheduleError` for an impossible `tile`.
    """
    acc = sch.get_sblock("acc")
    sch.set_scope(acc, 0, ACC)
    weight = sch.cache_read(acc, 1, WGT)
    padded = "oy" in outputs
    data = sch.get_sblock("input") if padded else sch.cache_read(acc, 0, INP)
    if padded:
        sch.set_scope(data, 0, INP)
    loops, rank = sch.get_loops(acc), len(outputs)
    lanes, channel, kernel = [*loops[rank : rank + 2], loops[-1]], loops[rank + 2], loops[rank + 3 : -1]
    levels, inner = tile_outputs(sch, loops[:rank], outputs, tile)
    channels, within = sch.split(channel, [None, tile.ci])
    sch.reorder(*(loop for _, loop in levels), channels, within, *kernel, *inner, *lanes)
    bind_threads(sch, levels, tile)
    place_epilogue(sch, after, levels)
    operands = (data, ("n", "oy", "ox", "ci"), tile.inp_slots), (weight, ("co", "ci"), tile.wgt_slots)
    for block, dims, slots in operands:
        sch.compute_at(block, attach(sch, [*levels, ("ci", channels)], dims), preserve_unit_loops=True)
        sch.annotate(block, SLOTS, slots)
    tensorize_reset(sch, sch.decompose_reduction(acc, channels), cfg)
    tensorize_gemm(sch, acc, cfg)


def arrange_windows(scope: str, after: Epilogue, sch: Schedule, tile: Tile) -> Node:
    """Schedule block `acc`, a reduction over windows of each channel of block `input`, whose tiles are in `scope`.

    Its loops are the four of `tile.OUTPUT_DIMS`, batch, block_out and the two of the kernel. Returns the block that
    initialises the accumulators. Raises `ScheduleError` for an impossible `tile`.
    """
    acc, data = sch.get_sblock("acc"), sch.get_sblock("input")
    for block, memory in ((acc, ACC), (data, scope)):
        sch.set_scope(block, 0, memory)
    loops = sch.get_loops(acc)
    levels, inner = tile_outputs(sch, loops[:4], OUTPUT_DIMS, tile)
    sch.reorder(*(loop for _, loop in levels), *loops[6:], *inner, *loops[4:6])
    bind_threads(sch, levels, tile)
    place_epilogue(sch, after, levels)
    sch.compute_at(data, attach(sch, levels, OUTPUT_DIMS), preserve_unit_loops=True)
    return sch.decompose_reduction(acc, sch.get_loops(acc)[len(levels)])


def tile_outputs(sch: Schedule, loops: Sequence, names: tuple[str, ...], tile: Tile) -> tuple[Levels, list]:
    """Split the output `loops` into loops over tiles, threads first, and loops inside one."""
    if tile.checked().thread not in names:
        raise ScheduleError(f"Tile.thread = {tile.thread!r}: must be one of {', '.join(names)}")
    outer, inner, threads = {}, {}, []
    for name, loop in zip(names, loops):
        size = getattr(tile, name)
        if name == tile.thread and tile.vthreads > 1:  # one split in three: two splits would have two bounds
            thread, outer[name], inner[name] = sch.split(loop, [tile.vthreads, None, size])
            threads = [(name, thread)]
        else:
            outer[name], inner[name] = sch.split(loop, [None, size])
    levels = threads + [(name, outer[name]) for name in tile.order if name in outer]
    return levels, [inner[name] for name in ("oy", "ox", "co", "n") if name in inner]


def bind_threads(sch: Schedule, levels: Levels, tile: Tile) -> None:
    """Make the outermost loop of `tile_outputs` virtual threads, if there are several."""
    if tile.vthreads > 1:
        sch.bind(levels[0][1], "vthread.x")


def attach(sch: Schedule, levels: Levels, dims: tuple[str, ...]):
    """The loop to load an operand in: the innermost one that its tile depends on."""
    best = levels[0][1]
    for name, loop in levels:
        if name in dims and int(sch.get(loop).extent) > 1:
            best = loop
    return best


def place_epilogue(sch: Schedule, epilogue: Epilogue, levels: Levels) -> None:
    """Move the blocks after block `acc` into the innermost loop over tiles, and load their parameters."""

    def move(name: str):
        block = sch.get_sblock(name)
        sch.reverse_compute_at(block, levels[-1][1], preserve_unit_loops=True)
        return block

    for name in epilogue.stored_after(None):
        move(name)
    for stage in epilogue.stages:
        sch.set_scope(move(stage), 0, ACC)
        for name in epilogue.stored_after(stage):
            move(name)
    for name, scope in epilogue.readers:
        parameter = sch.cache_read(sch.get_sblock(name), 1, scope)
        if name in epilogue.shared:
            continue  # parameters of all channels are loaded once, before all loops
        sch.compute_at(parameter, attach(sch, levels, ("co",)), preserve_unit_loops=True)
