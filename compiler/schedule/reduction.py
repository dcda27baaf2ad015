"""The schedule that dense layers and convolutions share: tiles, virtual threads, loads, GEMM, epilogue, stores."""

from __future__ import annotations

from dataclasses import dataclass

from ...hw.config import Config
from ...hw.errors import ScheduleError
from ..intrin import ACC, INP, WGT, tensorize_gemm, tensorize_reset
from ..tile import Tile
from ..tvm_compat import Schedule, te
from .epilogue import Epilogue


@dataclass
class Reduction:
    """Tensor expressions of a layer.

    Block `acc` reads `x` (or the padded `input`) and `w`; its loops are the dimensions `outputs` (names of
    `tile.OUTPUT_DIMS`), batch, block_out, then the channel blocks, the kernel's loops and block_in.
    """

    params: list
    epilogue: Epilogue
    outputs: tuple[str, ...]
    padded: bool


def schedule_reduction(cfg: Config, work: Reduction, tile: Tile) -> Schedule:
    """The schedule of `work`. Raises `ScheduleError` for an impossible `tile`."""
    if tile.checked().thread not in work.outputs:
        raise ScheduleError(f"Tile.thread = {tile.thread!r}: must be one of {', '.join(work.outputs)}")
    func = te.create_prim_func([*work.params, *work.epilogue.operands, *work.epilogue.outputs])
    sch = Schedule(func)
    acc = sch.get_sblock("acc")
    sch.set_scope(acc, 0, ACC)
    weight = sch.cache_read(acc, 1, WGT)
    data = sch.get_sblock("input") if work.padded else sch.cache_read(acc, 0, INP)
    if work.padded:
        sch.set_scope(data, 0, INP)
    levels, channels = _tiled(sch, acc, work, tile)
    _place_epilogue(sch, work.epilogue, levels)
    for block, dims, hold in ((data, ("n", "oy", "ox", "ci"), tile.hold_inp), (weight, ("co", "ci"), tile.hold_wgt)):
        inside = [] if hold else [("ci", channels)]
        sch.compute_at(block, _attach(sch, [*levels, *inside], dims), preserve_unit_loops=True)
    init = sch.decompose_reduction(acc, channels)
    tensorize_reset(sch, init, cfg)
    tensorize_gemm(sch, acc, cfg)
    return sch


def _tiled(sch: Schedule, acc, work: Reduction, tile: Tile):
    """Tile the loops of `acc`; -> [(dimension, loop over tiles)] from the outermost in, loop over tiles of ci."""
    loops = sch.get_loops(acc)
    rank = len(work.outputs)
    lanes, channel, kernel = [*loops[rank : rank + 2], loops[-1]], loops[rank + 2], loops[rank + 3 : -1]
    outer, inner = {}, {}
    for name, loop in zip(work.outputs, loops):
        outer[name], inner[name] = sch.split(loop, [None, getattr(tile, name)])
    channels, within = sch.split(channel, [None, tile.ci])
    levels = [(name, outer[name]) for name in tile.order if name in outer]
    threads = []
    if tile.vthreads > 1:
        thread, outer[tile.thread] = sch.split(outer[tile.thread], [tile.vthreads, None])
        levels = [(name, outer[name]) for name, _ in levels]
        threads = [(tile.thread, thread)]
    order = [loop for _, loop in threads + levels]
    pixels = [inner[name] for name in ("oy", "ox", "co", "n") if name in inner]
    sch.reorder(*order, channels, within, *kernel, *pixels, *lanes)
    if threads:
        sch.bind(threads[0][1], "vthread.x")
    return threads + levels, channels


def _attach(sch: Schedule, levels: list, dims: tuple[str, ...]):
    """The loop to load an operand in: the innermost one that changes which part of it is needed."""
    best = levels[0][1]
    for name, loop in levels:
        if name in dims and int(sch.get(loop).extent) > 1:
            best = loop
    return best


def _place_epilogue(sch: Schedule, epilogue: Epilogue, levels: list) -> None:
    innermost = levels[-1][1]

    def move(name: str):
        block = sch.get_sblock(name)
        sch.reverse_compute_at(block, innermost, preserve_unit_loops=True)
        return block

    for name in epilogue.stored_after(None):
        move(name)
    for stage in epilogue.stages:
        block = move(stage)
        sch.set_scope(block, 0, ACC)
        for name in epilogue.stored_after(stage):
            move(name)
    if epilogue.operands:
        post = sch.get_sblock("post")  # it reads the accumulators first, then its parameters in order
        for index in range(1, 1 + len(epilogue.operands)):
            parameter = sch.cache_read(post, index, ACC)
            sch.compute_at(parameter, _attach(sch, levels, ("co",)), preserve_unit_loops=True)
