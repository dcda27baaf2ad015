"""Two kernels of one's own, a softmax and a fused attention, alone and in a network of this file.

Run it: python examples/kernels.py

The operators say what is computed, in integers with NumPy; the kernels say how the accelerator does it. In the network
of this file the accelerator uses them with

    tilewright run examples/kernels.py:network --target examples/kernels.py:kernels --config pynq_z1_plus ...
"""

from __future__ import annotations

import math
import sys

import numpy as np

import tilewright as tw
from tilewright.compiler import graph as g
from tilewright.compiler.kernels.language import Kernel, Requant, Tile, Unfit
from tilewright.compiler.kernels.norm import COPIES, inverse_root, need_roots, root_tables
from tilewright.hw.isa import Mem
from tilewright.hw.rounding import quantize_multiplier, requantise, rescale
from tilewright.runtime.hostops.attention import reciprocal, reciprocal_shifts

CONFIG = "pynq_z1_plus"  # it has the tables and the sums of lanes that both kernels need
STEP = 1 / 40  # of the scores in attention


def exponentials(step: float) -> np.ndarray:
    """int32 (256,): 127 * exp((v - 127) * step) of v = -128 ... 127."""
    return np.round(127 * np.exp((np.arange(-128, 128) - 127) * step)).astype(np.int32)


def to_weights(y: Tile, largest: Tile, lowest: int, table: int) -> None:
    """Replace y by the table's exponentials of what is below the largest, over lanes and the axes of y alone."""
    largest[...] = 0
    largest += lowest >> 16
    largest <<= 16
    largest.maximum(y).max_lanes()
    largest *= -1
    largest += 127
    y += largest
    y.merged("entry").lookup(table)


def inverse_sums(copies: Tile, y: Tile, context: int, tables: tuple[int, int]) -> Tile:
    """2**24 by the sums of y over lanes and the axes that `copies` do not have: a root's inverse, squared."""
    left, down, right = reciprocal_shifts(context)
    copies[...] = 0
    copies += y
    copies.merged("entry").sum_lanes()
    copies <<= left
    inverse = inverse_root(copies, tables)
    inverse >>= down
    inverse *= inverse
    inverse >>= right
    return inverse


class Softmax(g.Custom):
    """exp(x) by its sum along the channels of an image (n, c, h, w), in steps of 1/256 from zero point -128."""

    scale = quantize_multiplier(2.0**-16)

    def compute(self, *arrays: np.ndarray) -> np.ndarray:
        """The results on NumPy's integers."""
        x = arrays[0].astype(np.int64)
        weights = exponentials(self.x.scale)[x - x.max(1, keepdims=True) + 255]
        inverse = reciprocal(weights.sum(1, keepdims=True, dtype=np.int64), x.shape[1])
        return requantise(weights * inverse, *self.scale, -128)


@tw.kernel(Softmax)
def softmax(k: Kernel, op: Softmax) -> None:
    """As many pixels at a time as fit; the largest value and the sum of a pixel are in all lanes of an entry."""
    need_roots(k)
    n, channels, *_ = op.x.shape
    if n > 1 or channels % k.cfg.block_in:
        raise Unfit(f"{n} images of {channels} channels: must be one of whole blocks of {k.cfg.block_in}")
    x, out = (image[0].merged("pixel", "h", "w") for image in (k.input(0), k.output))
    blocks, pixels = x.shape.values()
    each = min(pixels, k.slot // blocks, k.bank // (blocks + COPIES + 1))
    one, par = k.identity(), k.parameters(Requant(0, *op.scale, -128))
    table, tables = k.table("exponential", exponentials(op.x.scale)), root_tables(k)
    xs, ys = k.slots(blocks * each), k.banks((blocks + COPIES + 1) * each)
    for first in range(0, pixels, each):
        these = slice(first, min(first + each, pixels))
        count = {"pixel": these.stop - first}
        place = ys.next(part=blocks + COPIES + 1, **count)
        y, largest, copies = place.pieces({"b": blocks, **count}, count, {"copy": COPIES, **count})
        y[...] = xs.load(x[:, these]) @ one
        to_weights(y, largest, -1 << 16, table)
        y *= inverse_sums(copies, y, channels, tables)
        k.store(out[:, these], y, par)


class Attention(g.Custom):
    """Means of values by the exponentials of queries times keys: one head, images (1, d, positions, 1) of each."""

    def compute(self, *arrays: np.ndarray) -> np.ndarray:
        """The results on NumPy's integers."""
        q, k, v = (each[0, :, :, 0].astype(np.int64) for each in arrays)
        scores = rescale(q.T @ k, *self.scales[0])
        below = np.clip(scores - scores.max(1, keepdims=True) + 127, -128, 127)
        weights = exponentials(STEP)[below + 128]
        inverse = reciprocal(weights.sum(1, keepdims=True, dtype=np.int64), q.shape[1])
        return requantise((weights @ v.T) * inverse, *self.scales[1], 0).T[None, :, :, None]

    @property
    def scales(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """(multiplier, exponent) of the scores, in steps of 1/40, and of the means, which have 24 bits more."""
        q, k, v = (t.scale for t in self.inputs)
        scores = q * k / math.sqrt(self.x.shape[1]) / STEP
        return quantize_multiplier(scores), quantize_multiplier(v / self.output.scale / 2.0**24)


@tw.kernel(Attention)
def attention(k: Kernel, op: Attention) -> None:
    """Keys and values are weights, a block of positions in each; some queries at a time go through on chip."""
    need_roots(k)
    block, (_, depth, positions, _) = k.cfg.block_in, op.x.shape
    if depth % block or positions % block:
        raise Unfit(f"{positions} positions of {depth} elements: both must be whole blocks of {block}")
    queries, out = (image[0].merged("q", "h", "w") for image in (k.input(0), k.output))
    keys, values = (k.weights(number).named(h="t") for number in (1, 2))
    blocks, tiles = keys.shape.values()
    scale, par = (k.parameters(Requant(0, *scale, 0)) for scale in op.scales)
    table, tables = k.table("exponential", exponentials(STEP)), root_tables(k)
    turned, weights = k.temporary("turned", t=tiles, b=blocks, lane=block), k.temporary("weights", q=positions, t=tiles)
    with k.scope():  # products with unit vectors transpose the values: their lanes become positions
        units = k.constant(Mem.INP, "units", np.eye(block, dtype=np.int8)[:, None], lane=block)
        y = k.tile(Mem.ACC, **turned.shape)
        y[...] = units @ k.load(k.tile(Mem.WGT, **values.shape), values)
        k.store(turned, y)
    key = k.load(k.tile(Mem.WGT, **keys.shape), keys)
    value = k.load(k.tile(Mem.WGT, t=tiles, b=blocks), k.array(turned.buffer, t=tiles, b=blocks))
    parts = tiles + blocks + COPIES + 1
    each = min(positions, k.slot // (blocks + tiles), k.bank // parts)
    xs, ws, ys = k.slots(each * blocks), k.slots(each * tiles), k.banks(each * parts)
    for first in range(0, positions, each):
        these = slice(first, min(first + each, positions))
        q = {"q": these.stop - first}
        place = ys.next(part=parts, **q)
        scores, largest, copies, means = place.pieces({**q, "t": tiles}, q, {"copy": COPIES, **q}, {"b": blocks, **q})
        scores[...] = 0
        scores += xs.load(queries[:, these]) @ key
        scores.merged("entry").rescale(scale)
        to_weights(scores, largest, -1 << 31, table)
        k.store(weights[these], scores)
        inverse = inverse_sums(copies, scores, positions, tables)
        means[...] = 0
        means += ws.load(weights[these]) @ value
        means *= inverse
        k.store(out[:, these], means, par)


kernels = [softmax, attention]  # for --target examples/kernels.py:kernels


def network() -> g.Graph:
    """Layers that make queries, keys and values of 32 vectors, attention, a layer, and a softmax."""
    rng = np.random.default_rng(1)
    x = g.Tensor("x", (1, 32, 32, 1), scale=1 / 32)
    ops: list[g.Operator] = []

    def layer(name: str, of: g.Tensor) -> g.Tensor:
        weight = rng.integers(-127, 128, (32, 32, 1, 1)).astype(np.int8)
        y = g.Tensor(name, x.shape, scale=1 / 32)
        scale, bias = np.full(32, 1 / 512, np.float32), rng.integers(-999, 999, 32).astype(np.int32)
        ops.append(g.QConv2d(f"layer {name}", (of,), y, weight, scale, bias, low=-127))
        return y

    mixed = g.Tensor("mixed", x.shape, scale=1 / 32)
    ops.append(Attention("attention", (layer("q", x), layer("k", x), layer("v", x)), mixed))
    y = g.Tensor("y", x.shape, scale=1 / 256, zero_point=-128)
    ops.append(Softmax("softmax", (layer("scores", mixed),), y))
    return g.Graph("block", (x,), (y,), tuple(ops))


def inputs() -> dict[str, np.ndarray]:
    """Random inputs of the network."""
    return {"x": np.random.default_rng(2).integers(-128, 128, (1, 32, 32, 1)).astype(np.int8)}


def main() -> None:
    """Run both kernels alone and compare them with NumPy; with an argument, also write the network's inputs there."""
    rng = np.random.default_rng(0)
    for op in network().ops:
        for one in kernels:
            if isinstance(op, g.Custom) and isinstance(op, one.operators):
                arrays = [rng.integers(-127, 128, t.shape).astype(np.int8) for t in op.inputs]
                found, stats = one.run(*arrays, op=op, config=CONFIG, on="timing")
                assert np.array_equal(found, op.compute(*arrays))
                print(f"{one.name}: equal to NumPy, {stats.cycles:,} cycles")
    if len(sys.argv) > 1:
        np.savez(sys.argv[1], x=inputs()["x"])


if __name__ == "__main__":
    main()
