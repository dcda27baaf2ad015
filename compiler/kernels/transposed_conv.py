"""Transposed convolutions: every phase of the output is a convolution of the input with some of the kernel's taps.

Output row `y` is reached by the taps `k` with `y + top - k` a multiple of the stride, columns alike. Micro-ops write
accumulators in the order of the output, so that one store takes a tile. Each phase has biases of its own, as taps
between pixels add nothing: the ALU adds them unless all are equal. Where the weights of one block of the output do not
fit, its sums stay in the accumulators while weights for other blocks of the input are loaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from ...hw.isa import Mem
from ...runtime import layout
from .. import graph as g
from .language import Kernel, Tile, Unfit, cuts, equal_parts
from .recording import channel_parameters, need_layer

_TILES = (1, 2, 4, 8)  # tiles of an image, at least: nothing hides the load of the first and the store of the last
Taps = tuple[tuple[int, int], ...]  # (tap, its input pixel)


@dataclass(frozen=True)
class Phases:
    """One axis of the convolution, with the `taps` of each phase.

    Output `stride * t + phase` reads input `first + t + pixel` for each (tap, pixel), of `reach` pixels in all.
    """

    first: int
    reach: int
    taps: tuple[Taps, ...]

    @staticmethod
    def of(op: g.QConvTranspose2d, k: int) -> Phases:
        """Axis `k` of the image: 0 for rows, 1 for columns."""
        stride, before, taps = op.strides[k], op.pads[k], range(op.weight.shape[2 + k])
        reaching = ([tap for tap in taps if (phase + before - tap) % stride == 0] for phase in range(stride))
        places = [[(tap, (phase + before - tap) // stride) for tap in found] for phase, found in enumerate(reaching)]
        offsets = [place for each in places for _, place in each]
        first = min(offsets)
        found = tuple(tuple((tap, place - first) for tap, place in each) for each in places)
        return Phases(first, max(offsets) + 1 - first, found)


def conv_transpose(k: Kernel, op: g.QConvTranspose2d) -> None:
    """A transposed convolution, in tiles of one block of channels of the output."""
    k.need("overwrite", "requant", batch=1)
    need_layer(op)
    _conv_transpose(k, op, k.fastest(_conv_transpose, _tiles(k, op)))


def _conv_transpose(k: Kernel, op: g.QConvTranspose2d, tile: tuple[int, int, int]) -> None:
    (chunk, rows, columns), down, across, x, out = tile, Phases.of(op, 0), Phases.of(op, 1), k.input(0), k.output
    (images, blocks, _, _), (_, outputs, height, width) = x.shape.values(), out.shape.values()
    (kh, kw), (v, u) = op.weight.shape[2:], op.strides
    weights = k.known("w", layout.pack_weights(op.weight, k.cfg), o=outputs, b=blocks, ky=kh, kx=kw)
    taps_of_phases = [[[tap for tap, _ in taps] for taps in pair] for pair in product(down.taps, across.taps)]
    sums = [op.weight[:, :, a][:, :, :, b].sum((1, 2, 3), dtype=np.int64) for a, b in taps_of_phases]
    bias = (op.bias - op.x.zero_point * np.stack(sums)).astype(np.int32)
    equal = bool((bias == bias[0]).all())  # then the store adds them
    parameters = k.array(channel_parameters(k.rec, op, bias[0] if equal else np.zeros_like(bias[0])), par=outputs)
    by_phase = np.stack([layout.pack_bias(each, k.cfg) for each in bias], axis=1)
    biases = None if equal else k.known("bias", by_phase, o=outputs, v=v, u=u)

    ws, xs = k.slots(chunk * kh * kw, Mem.WGT), k.slots(chunk * (rows + down.reach - 1) * (columns + across.reach - 1))
    par, addends = k.tile(Mem.PAR, par=1), k.tile(Mem.ACC, low=2 * k.bank - v * u, v=v, u=u)
    ys = k.banks(rows * v * columns * u)
    tiles = [*product(range(images), range(0, -(-height // v), rows), range(0, -(-width // u), columns))]
    for o, (n, top, left) in product(range(outputs), tiles):
        if (n, top, left) == tiles[0]:
            k.load(par, parameters[o : o + 1])
            if biases is not None:
                k.load(addends, biases[o])
        h, w = min(rows, -(-height // v) - top), min(columns, -(-width // u) - left)
        y = ys.next(h=h, v=v, w=w, u=u)
        window = {"h": (top + down.first, h + down.reach - 1), "w": (left + across.first, w + across.reach - 1)}
        for these in cuts(blocks, chunk):
            factors = ws.hold(weights[o, these])
            near = xs.next(b=these.stop - these.start, h=window["h"][1], w=window["w"][1])
            for number, image in enumerate(x[n, these].parts(1)):
                k.load(near[number], image[0].window(op.x.zero_point, **window))
            for (i, taps), (j, others) in product(enumerate(down.taps), enumerate(across.taps)):
                _products(k, y[:, i, :, j], near, factors, (taps, others), fresh=these.start == 0)
        if biases is not None:
            y += addends
        part = out[n, o, top * v : min(height, (top + h) * v), left * u : min(width, (left + w) * u)]
        y = y.merged("h", "h", "v").merged("w", "w", "u")
        k.store(part, y[: part.shape["h"], : part.shape["w"]], par)


def _products(k: Kernel, y: Tile, x: Tile, weights: Tile, taps: tuple[Taps, Taps], *, fresh: bool) -> None:
    """The products of a tile for one phase: where `fresh`, the first one replaces what the accumulators hold."""
    h, w = y.shape.values()
    if fresh and not all(taps):  # no tap of the kernel reaches these pixels
        y[...] = 0
    with k.together():
        for number, (b, (ky, dy), (kx, dx)) in enumerate(product(range(x.shape["b"]), *taps)):
            value = x[b, dy : dy + h, dx : dx + w] @ weights[b, ky, kx]
            k.multiply(y, value.over("h w"), overwrite=fresh and number == 0)


def _tiles(k: Kernel, op: g.QConvTranspose2d) -> list[tuple[int, int, int]]:
    """The widest tiles that fit: (blocks of the input whose weights are on chip together, rows, columns of a phase)."""
    cfg, taps, (v, u), down, across = k.cfg, op.weight[0, 0].size, op.strides, Phases.of(op, 0), Phases.of(op, 1)
    height, width = (-(-size // stride) for size, stride in zip(op.output.shape[2:], op.strides))
    most = min(cfg.wgt_depth, cfg.uop_depth) // (2 * taps)
    chunks = (chunk for chunk in equal_parts(k.input(0).shape["b"]) if chunk <= most)
    for chunk, columns in product(chunks, equal_parts(width)):
        inputs = k.slot // (chunk * (columns + across.reach - 1))
        rows = min((k.bank - v * u) // (v * u * columns), inputs + 1 - down.reach, height)
        if rows > 0:
            return [(chunk, each, columns) for each in dict.fromkeys(min(rows, -(-height // n)) for n in _TILES)]
    raise Unfit(
        f"{v}x{u} pixels of the output, and twice the weights {op.weight.shape[2:]} of one block, do not fit {cfg.name}"
    )
