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
from .. import graph as g
from .language import Kernel, Tile, Unfit, equal_parts, every
from .recording import channel_parameters

_TILES = (
    1,
    2,
    4,
    8,
)  # at least, of an image: few, whose loads and stores nothing hides at its ends, or many small ones
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
    _conv_transpose(k, op, k.fastest(_conv_transpose, _tiles(k, op)))


def _conv_transpose(k: Kernel, op: g.QConvTranspose2d, tile: tuple[int, int, int]) -> None:
    down, across = axes = Phases.of(op, 0), Phases.of(op, 1)
    phases = [*product(range(down.stride), range(across.stride))]
    (chunk, rows, columns), x, out = tile, k.input(0), k.output
    (images, blocks, _, _), (_, outputs, height, width), (kh, kw) = (
        x.shape.values(),
        out.shape.values(),
        op.shape.kernel,
    )
    packed = k.rec.constant(f"{op.name}.w", layout.pack_weights(op.weight, k.cfg))
    weights = k.array(packed, o=outputs, b=blocks, ky=kh, kx=kw)
    bias, equal = _biases(op, axes, phases)
    # the store adds equal biases
    parameters = k.array(channel_parameters(k.rec, op, bias[0] if equal else np.zeros_like(bias[0])), par=outputs)
    packed = None if equal else np.stack([layout.pack_bias(each, k.cfg) for each in bias], axis=1)
    biases = (
        None if packed is None else k.array(k.rec.constant(f"{op.name}.bias", packed), o=outputs, phase=len(phases))
    )

    ws, xs = k.slots(chunk * kh * kw, Mem.WGT), k.slots(chunk * down.inputs(rows) * across.inputs(columns))
    par, half = k.tile(Mem.PAR, par=1), (k.cfg.acc_depth - len(phases)) // 2
    ys = cycle([k.tile(Mem.ACC, low=low, high=low + half, entry=rows * columns) for low in (0, half)])
    addends = k.tile(Mem.ACC, low=k.cfg.acc_depth - len(phases), phase=len(phases))
    for o in range(outputs):
        k.load(par, parameters[o : o + 1])
        if biases is not None:
            k.load(addends, biases[o])
        for n, top, left in product(range(images), range(0, height, rows), range(0, width, columns)):
            y = next(ys).reshaped(h=min(rows, height - top), w=min(columns, width - left))
            (h, w), grids = y.shape.values(), [_grid(axes, phase, y) for phase in phases]
            for first in range(0, blocks, chunk):
                these = slice(first, min(first + chunk, blocks))
                factors = ws.hold(weights[o, these])
                near = xs.next(b=these.stop - first, h=down.inputs(h), w=across.inputs(w))
                for number, block in enumerate(range(first, these.stop)):
                    window = {"h": (down.first(top), down.inputs(h)), "w": (across.first(left), across.inputs(w))}
                    k.load(near[number], x[n, block].window(op.x.zero_point, **window))
                for phase, grid in zip(phases, grids):
                    if grid is not None:
                        _products(k, axes, phase, grid, near, factors, fresh=first == 0)
            for number, grid in enumerate(grids if biases is not None else ()):
                if grid is not None:
                    grid += addends[number]
            k.store(out[n, o, top : top + h, left : left + w], y, par)


def _grid(axes: tuple[Phases, Phases], phase: tuple[int, int], y: Tile) -> Tile | None:
    """The accumulators of `y` that have this phase; None where it is too small."""
    counts = [axis.count(size, first) for axis, size, first in zip(axes, y.shape.values(), phase)]
    if not min(counts):
        return None
    return y[tuple(every(first, count, axis.stride) for axis, count, first in zip(axes, counts, phase))]


def _products(
    k: Kernel, axes: tuple[Phases, Phases], phase: tuple[int, int], grid: Tile, x: Tile, weights: Tile, *, fresh: bool
) -> None:
    """The products of a tile for one phase; `fresh` ones replace what the accumulators hold."""
    (down, across), (h, w) = axes, grid.shape.values()
    rows, columns = down.taps[phase[0]], across.taps[phase[1]]
    if fresh and not (rows and columns):  # no tap of the kernel reaches these pixels
        grid[...] = 0
    with k.together():
        for number, (b, (ky, dy), (kx, dx)) in enumerate(product(range(x.shape["b"]), rows, columns)):
            near = x[b, every(dy - down.reach[0], h, 1), every(dx - across.reach[0], w, 1)]
            k.multiply(grid, (near @ weights[b, ky, kx]).over("h w"), overwrite=fresh and number == 0)


def _biases(
    op: g.QConvTranspose2d, axes: tuple[Phases, Phases], phases: list[tuple[int, int]]
) -> tuple[np.ndarray, bool]:
    """(int32 (phases, output channels): with what the zero point adds by the taps of a phase; True: all are equal)."""
    taps = [[[tap for tap, _ in axis.taps[one]] for axis, one in zip(axes, phase)] for phase in phases]
    sums = [op.weight[:, :, rows][:, :, :, columns].sum((1, 2, 3), dtype=np.int64) for rows, columns in taps]
    bias = (op.bias - op.x.zero_point * np.stack(sums)).astype(np.int32)
    return bias, bool((bias == bias[0]).all())


def _tiles(k: Kernel, op: g.QConvTranspose2d) -> list[tuple[int, int, int]]:
    """(blocks of the input whose weights are on chip together, rows, columns) of tiles: the widest that fit."""
    cfg, (height, width), taps = k.cfg, op.output.shape[2:], op.weight[0, 0].size
    (down, across), blocks = (Phases.of(op, 0), Phases.of(op, 1)), k.input(0).shape["b"]
    room, together = (cfg.acc_depth - down.stride * across.stride) // 2, min(cfg.wgt_depth, cfg.uop_depth) // (2 * taps)
    chunks = (chunk for chunk in equal_parts(blocks) if chunk <= together)
    for chunk, wide in product(chunks, equal_parts(-(-width // across.stride))):
        columns = min(width, wide * across.stride)
        inputs = k.slot // (chunk * across.inputs(columns))
        most = min(room // columns // down.stride, inputs - down.inputs(down.stride) + 1)  # times the stride
        if most > 0:
            rows = {min(most, -(-height // (tiles * down.stride))) * down.stride for tiles in _TILES}
            return [(chunk, each, columns) for each in sorted(rows, reverse=True)]
    raise Unfit(
        f"{down.stride}x{across.stride} pixels of the output, and twice the weights {op.weight.shape[2:]} of one "
        f"block, do not fit {cfg.name}"
    )
