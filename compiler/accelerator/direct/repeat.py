"""Images enlarged by whole factors, each pixel repeated: GEMM copies the image into the accumulators, several times.

Products with an identity write every pixel to all of its places, so that a tile of whole rows is stored in one piece. A
single image may become several: its tiles are stored more than once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....hw.config import Config
from ....hw.isa import Mem
from ... import cost
from ... import graph as g
from ..recording import Recording, packed_bytes
from .on_chip import on_chip


@dataclass(frozen=True)
class Repetition:
    """`down` x `across` places per pixel, the `rows` of the image in a tile, and the `copies` of the image."""

    down: int
    across: int
    rows: int
    copies: int


def repetition(op: g.Take, cfg: Config) -> Repetition | None:
    """How `op` repeats pixels, in tiles that fit `cfg`; None if it does something else, or nothing fits."""
    if len(op.x.shape) != 4 or op.x.dtype != "int8" or op.indices[1]:
        return None
    if op.indices[0] and (op.x.shape[0] > 1 or cfg.batch > 1):
        return None
    if "overwrite" not in cfg.extensions or cfg.block_in != cfg.block_out:
        return None
    h, w = op.x.shape[2:]
    factors = [_factor(n, found) for n, found in zip((h, w), op.indices[2:])]
    down, across = (factor or 0 for factor in factors)
    rows = min(h, cfg.inp_depth // (2 * w), cfg.acc_depth // 2 // max(1, down * across * w))
    return Repetition(down, across, rows, max(1, len(op.indices[0]))) if down * across and rows else None


def _factor(size: int, found: tuple[int, ...]) -> int | None:
    """How often each of `size` indices comes; None if not all equally often, in order."""
    if not found:
        return 1
    factor = len(found) // size
    return factor if found == tuple(np.repeat(np.arange(size), factor).tolist()) else None


def refusal(op: g.Take, cfg: Config) -> str:
    """Reason why the accelerator cannot run the operator; empty if it can."""
    return "" if repetition(op, cfg) else "it moves elements, other than by whole factors of an image that fits"


def cycles(found: Repetition, op: g.Take, cfg: Config) -> float:
    """Estimated cycles: of the longest of loads, products and stores, and the first load and the last store."""
    stored = packed_bytes(op.output, cfg)
    entries = stored // found.copies // cfg.out_entry_bytes
    loads, stores = (cost.moved(cfg, nbytes) for nbytes in (packed_bytes(op.x, cfg), stored))
    tiles = -(-op.x.shape[2] // found.rows) * -(-op.x.shape[1] // cfg.block_in)
    return max(loads, entries, stores) + (loads + entries) / tiles + cost.OPERATOR


def lower(rec: Recording, op: g.Take) -> None:
    """Append the repetition, tile by tile."""
    cfg, found = rec.cfg, repetition(op, rec.cfg)
    assert found is not None  # `refusal` said so
    down, across, most = found.down, found.across, found.rows
    n, c, h, w = op.x.shape
    images, wide = -(-n // cfg.batch) * -(-c // cfg.block_in), w * across
    size = most * down * wide
    with on_chip(rec) as chip:
        identity = np.eye(cfg.block_out, cfg.block_in, dtype=np.int8)
        wgt = chip.constant(Mem.WGT, rec.constant(f"{op.name}.identity", identity))
        inp, acc = chip.slots(Mem.INP, most * w), chip.banks(size, size, cfg.acc_depth // 2)
        tiles = [(image, y) for image in range(images) for y in range(0, h, most)]
        for k, (image, y) in enumerate(tiles):
            rows = min(most, h - y)
            rec.program.load(Mem.INP, inp[k % 2], rec.operand(op, 0), (image * h + y) * w, x_size=rows * w)
            loops = [(rows, down * wide, w, 0), (w, across, 1, 0), (down, wide, 0, 0), (across, 1, 0, 0)]
            rec.program.gemm(loops, acc[k % 2], inp[k % 2], wgt, overwrite=True)
            where, out = (image * h + y) * down * wide, rec.activations[op.output.name]
            for copy in range(found.copies):
                place = where + copy * images * h * down * wide
                rec.program.store(acc[k % 2], out, place, x_size=rows * down * wide)
