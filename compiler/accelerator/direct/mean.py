"""Means over rows, columns or both: products with an identity add the pixels up, and the store divides.

Loads of the input scratchpad run ahead of the array, which adds one entry per cycle; a schedule of the ALU waits for
its loads and takes two. The sums stay in the accumulators, so that an image may be larger than any scratchpad.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ....hw.config import Config
from ....hw.isa import Mem
from ....hw.units import striped
from ... import cost
from ... import graph as g
from ...graph.integer_forms import Requant
from ..recording import Recording, packed_shape, store_parameters
from .on_chip import on_chip

_TILES = 4  # at least, of an image in so many blocks: the loads of one overlap the sums of another


@dataclass(frozen=True)
class Sums:
    """Packed entries (outer, count, inner) that are added up over `count`, in tiles of (`most`, `chunk`, inner).

    A tile has more than one of `outer` only where `chunk` is all of `count`.
    """

    outer: int
    count: int
    inner: int
    most: int
    chunk: int

    def __iter__(self) -> Iterator[tuple[int, int, list[tuple[int, int]]]]:
        """(first of `outer`, how many, the (first, how many) of `count` of each load)."""
        parts = [(k, min(self.chunk, self.count - k)) for k in range(0, self.count, self.chunk)]
        for first in range(0, self.outer, self.most):
            yield first, min(self.most, self.outer - first), parts


def sums_of(op: g.Mean | g.Pool, cfg: Config) -> Sums | None:
    """The sums of a mean of images, in tiles that fit `cfg`; None if it is over other axes, or nothing fits.

    The mean of windows is one of images where one window is all of an image.
    """
    if isinstance(op, g.Pool):
        if op.kernel != op.x.shape[2:] or any(op.pads):
            return None
        axes = (2, 3)
    else:
        axes = tuple(sorted(op.axes))
        if len(op.x.shape) != 4 or not axes or not set(axes) <= {2, 3} or len(op.output.shape) == 3:
            return None
    n, c, h, w, *_ = packed_shape(op.x.shape, cfg)
    sizes = {(2, 3): (n * c, h * w, 1), (3,): (n * c * h, w, 1), (2,): (n * c, h, w)}
    outer, count, inner = sizes[axes]
    slot, half = cfg.inp_depth // 2, cfg.acc_depth // 2
    if inner > min(slot, half):
        return None
    most = min(outer, slot // (count * inner), half // inner)
    if most == 0:
        return Sums(outer, count, inner, 1, slot // inner)
    return Sums(outer, count, inner, -(-outer // max(-(-outer // most), min(outer, _TILES))), count)


def refusal(op: g.Mean, cfg: Config) -> str:
    """Reason why the accelerator cannot compute the mean; empty if it can."""
    if sums_of(op, cfg) is not None:
        return ""
    return f"mean over axes {op.axes} of {len(op.x.shape)} dimensions: only over rows and columns of images"


def cycles(sums: Sums, cfg: Config) -> float:
    """Estimated cycles: an entry per cycle, or as fast as the image is loaded."""
    entries, results = sums.outer * sums.count * sums.inner, sums.outer * sums.inner
    tiles = -(-sums.outer // sums.most)
    loads = cost.transfer(striped(cfg), entries * cfg.inp_entry_bytes, tiles * -(-sums.count // sums.chunk))
    return max(loads, cost.computed(entries + results, 2 * tiles)) + cost.transfer(cfg, results * cfg.out_entry_bytes)


def lower(rec: Recording, op: g.Mean) -> None:
    """Append a mean over rows, columns or both, tile by tile."""
    sums = sums_of(op, rec.cfg)
    assert sums is not None  # `refusal` said so
    add_up(rec, op, sums, Requant(-op.count * op.x.zero_point, *op.multipliers, op.output.zero_point))


def add_up(rec: Recording, op: g.Operator, sums: Sums, store: Requant) -> None:
    """Append the sums of `op`, each of which is stored by `store`."""
    cfg, program = rec.cfg, rec.program
    inner, out = sums.inner, rec.activations[op.output.name]
    size = sums.most * inner
    with on_chip(rec) as chip:
        identity = np.eye(cfg.block_out, cfg.block_in, dtype=np.int8)
        wgt = chip.constant(Mem.WGT, rec.constant(f"{op.name}.identity", identity))
        par = chip.constant(Mem.PAR, store_parameters(rec, op, store))
        inp, acc = chip.slots(Mem.INP, sums.most * sums.chunk * inner), chip.banks(size, size, cfg.acc_depth // 2)
        loads = 0
        for k, (first, outer, parts) in enumerate(sums):
            program.gemm([(outer * inner, 1, 0, 0)], acc[k % 2], reset=True)
            for begin, count in parts:
                base, loads = inp[loads % 2], loads + 1
                entries = (outer if count == sums.count else 1) * count * inner
                program.load(Mem.INP, base, rec.operand(op, 0), (first * sums.count + begin) * inner, x_size=entries)
                loops = [(outer, inner, count * inner, 0), (count, 0, inner, 0), (inner, 1, 1, 0)]
                program.gemm(sorted(loops, reverse=True), acc[k % 2], base, wgt)  # the longest in the instruction
            program.store(acc[k % 2], out, first * inner, x_size=outer * inner, par=par)
