"""Outputs of a network whose heads are lanes, (1, heads, rows, elements), written as the host has them.

Entries of 16 heads are taken as weights, and products with one-hot inputs transpose them: an entry per head then.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ....hw.config import Config
from ....hw.isa import Mem
from ... import cost
from ... import graph as g
from ...graph.deeploy.layers import in_lanes
from ..direct.on_chip import on_chip
from ..recording import Recording
from ..stand_ins import RowsOut
from . import needs

_TILE = 8  # entries of each head: few, so that loads, products and stores overlap


def rows_out(graph: g.Graph, cfg: Config) -> g.Graph:
    """`graph` with its outputs of this kind, where `cfg` can write them: the last of all transformations."""
    block = cfg.block_in
    if needs.needs(cfg) or not any(in_lanes(op, block) for op in graph.ops):
        return graph
    names = graph.names
    images: dict[str, g.Tensor] = {}
    ops: list[g.Operator] = []
    made = {op.output.name: op for op in graph.ops}
    for op in graph.ops:
        op = replace(op, inputs=tuple(images.get(t.name, t) for t in op.inputs))
        y = op.output
        source = made.get(op.x.name) if isinstance(op, g.Reshape) else op
        inside = source is not None and (isinstance(source, g.Lanes) or in_lanes(source, block))
        if not inside or y not in graph.outputs or not _fits(y, block):
            ops.append(op)
            continue
        images[y.name] = image = replace(y, name=names.unused(f"{y.name}.image"))
        whole = RowsOut(names.unused(f"{y.name}.rows"), (image,), y, (0,) * 4, (1,) * 4)
        ops += [replace(op, output=image), whole]
    return replace(graph, ops=tuple(ops)) if images else graph


def _fits(t: g.Tensor, block: int) -> bool:
    return t.dtype == "int8" and len(t.shape) == 4 and t.shape[0] == 1 and not (t.shape[1] % block or _each(t) % block)


def _each(t: g.Tensor) -> int:
    """Elements of a head."""
    return t.shape[2] * t.shape[3]


def refusal(op: RowsOut, cfg: Config) -> str:
    """Reason why the accelerator cannot do it; empty if it can."""
    return needs.needs(cfg)


def cycles(op: RowsOut, cfg: Config) -> float:
    """Estimated cycles: parts of a block of heads are loaded, transposed and stored, which overlap."""
    entries = op.output.nbytes // cfg.block_in
    loads = cost.moved(cfg, op.output.nbytes)
    return max(entries, loads) + loads / _parts(op, cfg) + cost.round_trip()


def lower(rec: Recording, op: RowsOut) -> None:
    """Append it, some entries of each head at a time."""
    cfg, program, lanes = rec.cfg, rec.program, rec.cfg.block_in
    tiles, together = _each(op.output) // lanes, _together(op, cfg)
    source, target = rec.activations[op.x.name], rec.rows_out[op.name]
    with on_chip(rec) as chip:
        one_hot = chip.kept(Mem.INP, f"{op.name}.identity", np.eye(lanes, dtype=np.int8), lanes)
        wgt, size = chip.slots(Mem.WGT, together), together * lanes
        acc = chip.banks(size, size, cfg.acc_depth // 2)
        places = [(b, t) for b in range(op.output.shape[1] // lanes) for t in range(0, tiles, together)]
        for k, (block, first) in enumerate(places):
            count, base = min(together, tiles - first), block * tiles * lanes
            program.load(Mem.WGT, wgt[k % 2], source, block * tiles + first, x_size=count)
            loops = [(count, 1, 0, 1), (lanes, count, 1, 0)]
            program.gemm(loops, acc[k % 2], one_hot, wgt[k % 2], overwrite=True)
            program.store(acc[k % 2], target, base + first, y_size=lanes, x_size=count, x_stride=tiles)


def _together(op: RowsOut, cfg: Config) -> int:
    """Entries of each head in a tile."""
    return min(_each(op.output) // cfg.block_in, cfg.wgt_depth // 4, cfg.acc_depth // 4 // cfg.block_in, _TILE)


def _parts(op: RowsOut, cfg: Config) -> int:
    tiles = -(-_each(op.output) // cfg.block_in // _together(op, cfg))
    return op.output.shape[1] // cfg.block_in * tiles
