"""Means over channels, pixel by pixel: products with ones add the lanes of all blocks up, and the store divides."""

from __future__ import annotations

import math

import numpy as np

from ....hw.config import Config
from ....hw.isa import Mem
from ....hw.units import striped
from ... import cost
from ... import graph as g
from ...graph.integer_forms import Requant
from ..direct import mean as of_pixels
from ..direct.on_chip import on_chip
from ..recording import Recording, store_parameters

_TILE = 256  # entries: enough to hide what an instruction costs, and few enough for a short start and end


def possible(op: g.Mean, cfg: Config) -> bool:
    """True for a mean over the channels of images that the accelerator can compute."""
    able = cfg.batch == 1 and cfg.block_in == cfg.block_out and "overwrite" in cfg.extensions
    kept = len(op.x.shape) == len(op.output.shape) == 4
    return able and kept and tuple(op.axes) == (1,) and _blocks(op, cfg) <= cfg.inp_depth // 2


def cycles(op: g.Mean, cfg: Config) -> float:
    """Estimated cycles: an entry per cycle, or as fast as the image is loaded; first load, last store."""
    n, _, *size = op.x.shape
    blocks, pixels = _blocks(op, cfg), n * math.prod(size)
    each = min(pixels, _rows(blocks, cfg))
    tiles = -(-pixels // each)
    loads = cost.transfer(striped(cfg), pixels * blocks * cfg.inp_entry_bytes, tiles, tiles * blocks)
    stores = cost.transfer(cfg, pixels * cfg.out_entry_bytes, tiles)
    return max(loads, cost.computed(pixels * blocks, 2 * tiles), stores) + (loads + stores) / tiles


def lower(rec: Recording, op: g.Mean) -> None:
    """Append a mean over channels, some pixels at a time, or one over pixels."""
    if not possible(op, rec.cfg):
        of_pixels.lower(rec, op)
        return
    cfg, program, (n, channels, *size) = rec.cfg, rec.program, op.x.shape
    pixels, blocks = math.prod(size), _blocks(op, cfg)
    each = min(pixels, _rows(blocks, cfg))
    ones = np.ones((2, cfg.block_out, cfg.block_in), np.int8)
    ones[1, :, channels - (blocks - 1) * cfg.block_in :] = 0
    store = Requant(-op.count * op.x.zero_point, *op.multipliers, op.output.zero_point)
    x, out = rec.operand(op, 0), rec.activations[op.output.name]
    with on_chip(rec) as chip:
        wgt = chip.constant(Mem.WGT, rec.constant(f"{op.name}.ones", ones), 2)
        par = chip.constant(Mem.PAR, store_parameters(rec, op, store))
        inp, acc = chip.slots(Mem.INP, blocks * each), chip.banks(each, each, cfg.acc_depth // 2)
        tiles = [(image, first) for image in range(n) for first in range(0, pixels, each)]
        for k, (image, first) in enumerate(tiles):
            count, base, dst = min(each, pixels - first), inp[k % 2], acc[k % 2]
            where = image * blocks * pixels + first
            program.load(Mem.INP, base, x, where, y_size=blocks, x_size=count, x_stride=pixels)
            program.gemm([(count, 1, 1, 0)], dst, base + (blocks - 1) * count, wgt + 1, overwrite=True)
            if blocks > 1:
                program.gemm([(blocks - 1, 0, count, 0), (count, 1, 1, 0)], dst, base, wgt)
            program.store(dst, out, image * pixels + first, x_size=count, par=par)


def _blocks(op: g.Mean, cfg: Config) -> int:
    return -(-op.x.shape[1] // cfg.block_in)


def _rows(blocks: int, cfg: Config) -> int:
    """Pixels in a tile."""
    return max(1, min(_TILE, cfg.inp_depth // 2) // blocks)
