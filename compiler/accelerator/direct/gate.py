"""Products of an image with one value per channel, as gates of squeeze-and-excite blocks are.

GEMM copies the image to the accumulators, ahead of the ALU as loads of the input scratchpad are, and the ALU multiplies
each pixel by the accumulator of its block of gates. In a schedule all operands of a chain have one shape.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ....hw.config import Config
from ....hw.isa import AluOp, Mem
from ....hw.units import striped
from ....runtime import layout
from ....runtime.buffer import Buffer
from ... import cost
from ... import graph as g
from ...graph.integer_forms import Requant
from ..recording import Recording, packed_shape, store_parameters
from .on_chip import on_chip

_TILE = 200  # entries: enough to hide what an instruction costs, and few enough for a short start and end


@dataclass(frozen=True)
class Gates:
    """A product of the image, input `image`, with the gates, input `gates`: `pixels` for each of `outer` gate entries.

    A tile has `most` gates, or `chunk` pixels of one; `loaded` gates are in the accumulators together.
    """

    image: int
    gates: int
    outer: int
    pixels: int
    most: int
    chunk: int
    loaded: int

    def __iter__(self) -> Iterator[tuple[int, int, int, int]]:
        """(first gate, gates, first pixel, pixels) of each tile."""
        for group in range(0, self.outer, self.loaded):
            last = min(self.outer, group + self.loaded)
            for first in range(group, last, self.most):
                for pixel in range(0, self.pixels, self.chunk):
                    yield first, min(self.most, last - first), pixel, min(self.chunk, self.pixels - pixel)


def gates_of(op: g.Operator, cfg: Config) -> Gates | None:
    """The gates of a product, in tiles that fit `cfg`; None where it is another product."""
    if not isinstance(op, g.Mul) or len(op.output.shape) != 4 or not {"overwrite", "acc8"} <= cfg.extensions:
        return None
    shape = op.output.shape
    images = [k for k, t in enumerate(op.inputs) if t.data is None and t.shape == shape]
    if not images or cfg.block_in != cfg.block_out or shape[2] * shape[3] == 1:
        return None
    gates = op.inputs[1 - images[0]]
    computed, constant = gates.shape == (*shape[:2], 1, 1), gates.data is not None
    if not computed and not (constant and (1, 1, *gates.shape)[-2:] == (1, 1)):
        return None
    n, blocks, h, w, *_ = packed_shape(shape, cfg)
    outer, pixels, loaded = n * blocks, h * w, min(n * blocks, cfg.acc_depth // 8)
    size = min(_TILE, cfg.inp_depth // 2, cfg.acc_depth // 2 - loaded)
    most = min(loaded, max(1, size // pixels))
    return Gates(images[0], 1 - images[0], outer, pixels, most, min(pixels, size), loaded)


def cycles(op: g.Mul, gates: Gates, cfg: Config) -> float:
    """Estimated cycles: per entry a copy, a sum where the image has a zero point, and three of the multipliers, which
    the product shares with the store.
    """
    tiles, entries = len([*gates]), gates.outer * gates.pixels
    passes = 4 + (op.inputs[gates.image].zero_point != 0)
    loads = cost.transfer(striped(cfg), entries * cfg.inp_entry_bytes, tiles)
    stores = cost.transfer(cfg, entries * cfg.out_entry_bytes, tiles)
    first = (loads + stores) / tiles + cost.moved(cfg, gates.outer * cfg.out_entry_bytes)
    return max(cost.computed(passes * entries, 3 * tiles), loads, stores) + first


def lower(rec: Recording, op: g.Mul, gates: Gates) -> None:
    """Append a product with gates, tile by tile."""
    cfg, program, out = rec.cfg, rec.program, rec.activations[op.output.name]
    offsets = [-op.inputs[k].zero_point for k in (gates.image, gates.gates)]
    store = Requant(0, *op.multipliers, op.output.zero_point, op.low, op.high)
    size, values = gates.most * gates.chunk, _values(rec, op, gates)
    with on_chip(rec) as chip:
        identity = np.eye(cfg.block_out, cfg.block_in, dtype=np.int8)
        wgt = chip.constant(Mem.WGT, rec.constant(f"{op.name}.identity", identity))
        par = chip.constant(Mem.PAR, store_parameters(rec, op, store))
        inp, last = chip.slots(Mem.INP, size), cfg.acc_depth - gates.loaded
        half = cfg.acc_depth // 2
        acc = chip.region(Mem.ACC, size, 0, half), chip.region(Mem.ACC, size, half, last)  # a bank each
        gate = chip.region(Mem.ACC, gates.loaded, last)
        for k, (first, count, pixel, pixels) in enumerate(gates):
            if first % gates.loaded == 0 and pixel == 0:
                loaded = min(gates.loaded, gates.outer - first)
                program.load(Mem.ACC8, gate, values, first, x_size=loaded)
                if offsets[1]:
                    program.alu(AluOp.ADD, [(loaded, 1, 0)], gate, imm=offsets[1])
            entries, where = count * pixels, first * gates.pixels + pixel
            program.load(Mem.INP, inp[k % 2], rec.operand(op, gates.image), where, x_size=entries)
            program.gemm([(entries, 1, 1, 0)], acc[k % 2], inp[k % 2], wgt, overwrite=True)
            if offsets[0]:
                program.alu(AluOp.ADD, [(entries, 1, 0)], acc[k % 2], imm=offsets[0])
            loops = [(count, pixels, 1), (pixels, 1, 0)]
            program.alu(AluOp.MUL, loops, acc[k % 2], gate + first % gates.loaded)
            program.store(acc[k % 2], out, where, x_size=entries, par=par)


def _values(rec: Recording, op: g.Mul, gates: Gates) -> Buffer:
    """The packed gates."""
    t = op.inputs[gates.gates]
    if t.data is None:
        return rec.activations[t.name]
    whole = np.broadcast_to(t.data, (*op.output.shape[:2], 1, 1))
    return rec.constant(f"{op.name}.{t.name}", layout.pack_blocks(whole, rec.cfg.batch, rec.cfg.block_in))
