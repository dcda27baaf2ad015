"""The schedule that dense layers and convolutions share, and its parts: tiles, loads, epilogue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...hw.config import Config
from ...hw.errors import ScheduleError
from ..intrin import ACC, INP, SLOTS, WGT, tensorize_gemm, tensorize_reset
from ..tile import Tile
from ..tvm_compat import Schedule
from .epilogue import Epilogue

Levels = list[tuple[str, Any]]  # (dimension, loop over tiles), outermost first


@dataclass(frozen=True)
class Reduction:
    """Names and dimensions of a layer's expression.

    Block `acc` reads `x` (or the padded `input`) and `w`; its loops are the dimensions `outputs` (names of
    `tile.OUTPUT_DIMS`), batch, block_out, then the channel blocks, the kernel's loops and block_in.
    """

    epilogue: Epilogue
    outputs: tuple[str, ...]
    padded: bool


def arrange_reduction(cfg: Config, work: Reduction, sch: Schedule, tile: Tile) -> None:
    """Schedule `work`. Raises `ScheduleError` for an impossible `tile`."""
    acc = sch.get_sblock("acc")
    sch.set_scope(acc, 0, ACC)
    weight = sch.cache_read(acc, 1, WGT)
    data = sch.get_sblock("input") if work.padded else sch.cache_read(acc, 0, INP)
    if work.padded:
        sch.set_scope(data, 0, INP)
    loops, rank = sch.get_loops(acc), len(work.outputs)
    lanes, channel, kernel = [*loops[rank : rank + 2], loops[-1]], loops[rank + 2], loops[rank + 3 : -1]
    levels, inner = tile_outputs(sch, loops[:rank], work.outputs, tile)
    channels, within = sch.split(channel, [None, tile.ci])
    sch.reorder(*(loop for _, loop in levels), channels, within, *kernel, *inner, *lanes)
    bind_threads(sch, levels, tile)
    place_epilogue(sch, work.epilogue, levels)
    operands = (data, ("n", "oy", "ox", "ci"), tile.inp_slots), (weight, ("co", "ci"), tile.wgt_slots)
    for block, dims, slots in operands:
        sch.compute_at(block, attach(sch, [*levels, ("ci", channels)], dims), preserve_unit_loops=True)
        sch.annotate(block, SLOTS, slots)
    init = sch.decompose_reduction(acc, channels)
    tensorize_reset(sch, init, cfg)
    tensorize_gemm(sch, acc, cfg)


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
            continue  # those of all channels are loaded once, before all loops
        sch.compute_at(parameter, attach(sch, levels, ("co",)), preserve_unit_loops=True)
