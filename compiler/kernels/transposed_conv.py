"""Transposed convolutions: every phase of the output is a convolution of the input with some of the kernel's taps.

Output row `y` is reached by the taps `k` with `y + top - k` a multiple of the stride. Rows of one phase, `y` modulo the
stride, share their taps; columns alike. Micro-ops write accumulators in the order of the output, a phase apart, so that
one store takes a tile. Taps between pixels add nothing, so each phase has biases of its own: the ALU adds them, unless
all are equal. Where the weights of one block of the output do not fit, products of some blocks of the input are added
to those of others: the sums stay in the accumulators.

One reduction of a schedule for all phases needs a kernel padded to whole strides: 36 products instead of 25 for 5x5,
stride 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle, product

import numpy as np

from ...hw.isa import Mem
from ...runtime import layout
from .. import cost
from .. import graph as g
from .language import Array, Kernel, Tile, Unfit, equal_parts, every
from .recording import channel_parameters

Taps = tuple[tuple[int, int], ...]  # (tap, offset of its input pixel)


@dataclass(frozen=True)
class Phases:
    """One axis of the convolution, with the `taps` of each phase.

    Output `stride * t + phase` reads input `t + offset` for each tap.
    """

    stride: int
    taps: tuple[Taps, ...]

    @staticmethod
    def of(op: g.QConvTranspose2d, k: int) -> Phases:
        """Axis `k` of the image: 0 for rows, 1 for columns."""
        stride, before, taps = op.strides[k], op.pads[k], op.weight.shape[2 + k]
        found = []
        for phase in range(stride):
            reaching = [tap for tap in range(taps) if (phase + before - tap) % stride == 0]
            found.append(tuple((tap, (phase + before - tap) // stride) for tap in reaching))
        return Phases(stride, tuple(found))

    @property
    def reach(self) -> tuple[int, int]:
        """(smallest, largest) offset of an input pixel."""
        offsets = [offset for phase in self.taps for _, offset in phase]
        return min(offsets), max(offsets)

    def first(self, output: int) -> int:
        """The first input pixel that outputs from `output` on, a multiple of the stride, reach: perhaps padding."""
        return output // self.stride + self.reach[0]

    def inputs(self, outputs: int) -> int:
        """Number of input pixels that `outputs` outputs, from a multiple of the stride on, reach."""
        low, high = self.reach
        return -(-outputs // self.stride) + high - low

    def count(self, outputs: int, phase: int) -> int:
        """Number of the first `outputs` outputs, from a multiple of the stride on, that have a phase."""
        return max(0, -(-(outputs - phase) // self.stride))


def conv_transpose(k: Kernel, op: g.QConvTranspose2d) -> None:
    """A transposed convolution, in tiles of one block of channels of the output."""
    k.need("overwrite", "requant", batch=1)
    down, across = Phases.of(op, 0), Phases.of(op, 1)
    phases = [*product(range(down.stride), range(across.stride))]
    chunk, rows, columns = _tile(k, op, down, across)
    x, out, (kh, kw) = k.input(0), k.output, op.weight.shape[2:]
    (images, blocks, _, _), (_, outputs, height, width) = x.shape.values(), out.shape.values()
    packed = k.rec.constant(f"{op.name}.w", layout.pack_weights(op.weight, k.cfg))
    weights = k.array(packed, o=outputs, b=blocks, ky=kh, kx=kw)
    sums = np.stack([_sum_of(op, down.taps[v], across.taps[u]) for v, u in phases])
    bias, equal = (op.bias - op.x.zero_point * sums).astype(np.int32), bool((sums == sums[0]).all())
    # the store adds equal biases
    parameters = k.array(channel_parameters(k.rec, op, bias[0] if equal else np.zeros_like(bias[0])), par=outputs)
    biases = None if equal else _biases(k, bias)

    ws, xs = k.slots(chunk * kh * kw, Mem.WGT), k.slots(chunk * down.inputs(rows) * across.inputs(columns))
    par, half = k.tile(Mem.PAR, par=1), (k.cfg.acc_depth - len(phases)) // 2
    ys = cycle([k.tile(Mem.ACC, low=low, high=low + half, entry=rows * columns) for low in (0, half)])
    addends = k.tile(Mem.ACC, low=k.cfg.acc_depth - len(phases), phase=len(phases))
    chunks = [slice(first, min(first + chunk, blocks)) for first in range(0, blocks, chunk)]
    for o in range(outputs):
        whole = ws.load(weights[o]) if len(chunks) == 1 else None  # then they serve all tiles
        k.load(par, parameters[o : o + 1])
        if biases is not None:
            k.load(addends, biases[o])
        for n, top, left in product(range(images), range(0, height, rows), range(0, width, columns)):
            y = next(ys).reshaped(h=min(rows, height - top), w=min(columns, width - left))
            h, w = y.shape.values()
            part = out[n, o, top : top + h, left : left + w]
            for these in chunks:
                factors = ws.load(weights[o, these]) if whole is None else whole
                tile = xs.next(b=these.stop - these.start, h=down.inputs(h), w=across.inputs(w))
                for number, block in enumerate(range(these.start, these.stop)):
                    window = {"h": (down.first(top), down.inputs(h)), "w": (across.first(left), across.inputs(w))}
                    k.load(tile[number], x[n, block].window(op.x.zero_point, **window))
                for phase in phases:
                    _products(k, (down, across), phase, y, tile, factors, fresh=these.start == 0)
            for number, phase in enumerate(phases if biases is not None else ()):
                if (grid := _grid((down, across), phase, y)) is not None:
                    grid += addends[number]
            k.store(part, y, par)


def _grid(axes: tuple[Phases, Phases], phase: tuple[int, int], y: Tile) -> Tile | None:
    """The accumulators of `y` that have this phase; None where it is too small."""
    counts = [axis.count(size, first) for axis, size, first in zip(axes, y.shape.values(), phase)]
    if not min(counts):
        return None
    return y[tuple(every(first, count, axis.stride) for axis, count, first in zip(axes, counts, phase))]


def _products(
    k: Kernel, axes: tuple[Phases, Phases], phase: tuple[int, int], y: Tile, tile: Tile, weights: Tile, *, fresh: bool
) -> None:
    """The products of a tile for one phase; `fresh` ones replace what the accumulators hold."""
    if (grid := _grid(axes, phase, y)) is None:
        return
    (down, across), (h, w) = axes, grid.shape.values()
    rows, columns = down.taps[phase[0]], across.taps[phase[1]]
    if fresh and not (rows and columns):  # no tap of the kernel reaches these pixels
        grid[...] = 0
    with k.together():
        for number, (b, (ky, dy), (kx, dx)) in enumerate(product(range(tile.shape["b"]), rows, columns)):
            near = tile[b, every(dy - down.reach[0], h, 1), every(dx - across.reach[0], w, 1)]
            k.multiply(grid, (near @ weights[b, ky, kx]).over("h w"), overwrite=fresh and number == 0)


def _tile(k: Kernel, op: g.QConvTranspose2d, down: Phases, across: Phases) -> tuple[int, int, int]:
    """(blocks of the input whose weights are on chip together, rows, columns) of a tile, the widest one that fits."""
    cfg, (height, width), taps = k.cfg, op.output.shape[2:], op.weight[0, 0].size
    blocks, phases = k.input(0).shape["b"], down.stride * across.stride
    together = min(cfg.wgt_depth, cfg.uop_depth) // (2 * taps)
    chunks = (chunk for chunk in equal_parts(blocks) if chunk <= together)
    for chunk, wide in product(chunks, equal_parts(-(-width // across.stride))):
        columns = min(width, wide * across.stride)
        inputs = k.slot // (chunk * across.inputs(columns))
        most = min((cfg.acc_depth - phases) // 2 // columns, (inputs - down.inputs(down.stride) + 1) * down.stride)
        if most >= down.stride:
            # Loaded weights that serve one tile only are worth the largest; else small ones hide their loads, and
            # smaller ones stores, where these take longer than the products: nothing hides the last.
            tiles = 8 if cost.moved(cfg, cfg.out_entry_bytes) > chunk * taps / phases else 4
            if chunk < blocks:
                tiles = -(-height // (most // down.stride * down.stride))
            return chunk, min(most // down.stride, -(-height // (tiles * down.stride))) * down.stride, columns
    raise Unfit(
        f"{down.stride}x{across.stride} pixels of the output, and twice the weights {op.weight.shape[2:]} of one "
        f"block, do not fit {cfg.name}"
    )


def _sum_of(op: g.QConvTranspose2d, rows: Taps, columns: Taps) -> np.ndarray:
    """int64 (output channels,): the sum of the weights of the taps of a phase."""
    found = op.weight[:, :, [tap for tap, _ in rows]][:, :, :, [tap for tap, _ in columns]]
    return found.sum((1, 2, 3), dtype=np.int64)


def _biases(k: Kernel, values: np.ndarray) -> Array:
    """Biases int32 (phases, output channels) in DRAM, one entry per block of channels and phase."""
    packed = np.stack([layout.pack_bias(each, k.cfg) for each in values], axis=1)
    return k.array(k.rec.constant(f"{k.op.name}.bias", packed), o=len(packed), phase=len(values))
