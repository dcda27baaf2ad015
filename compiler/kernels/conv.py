"""Convolutions and dense layers: the zero point of the input goes into the bias, the store requantises.

Most are recorded by schedules (compiler/schedule), in tiles that these choose. Kernels record depthwise convolutions
that keep their rows on chip (depthwise.py), convolutions of images of few channels, and layers whose channels two units
divide (two_units.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count, cycle, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...hw.config import Config
from ...hw.isa import Mem
from ...runtime import layout
from ...runtime.buffer import Buffer, Region
from .. import graph as g
from ..api import build_into
from ..conv_shape import ConvShape
from ..graph.integer_forms import Requant
from ..graph.ranges import problem
from ..limits import most_padding
from ..schedule.conv2d import conv2d_of
from ..schedule.dense import dense_of
from ..schedule.depthwise import depthwise_of, reach
from ..schedule.epilogue import PLANES, Stage
from ..tvm_compat import Schedule
from . import depthwise, language
from .fold import PARTS, Fold, FoldTiles, fold_weights
from .language import Kernel, Unfit, by_shape, cuts, refuse
from .recording import Recording, channel_parameters, need_layer, own_rows, packed_shape
from .two_units import Layer, divided, input_of, multiply
from .views import place


def _facts(op: g.Linear) -> object:
    return language.integers(op), _same_for_all(op)


@by_shape(_facts)
def dense(k: Kernel, op: g.QDense) -> None:
    """A dense layer, by its schedule."""
    need_layer(op)
    if op.ternary:
        return divided(k, op)
    _append(k, op, dense_of, *_vectors(op.shape, op.weight, k.cfg))


@by_shape(_facts)
def conv2d(k: Kernel, op: g.QConv2d) -> None:
    """A convolution; one of groups may be several, part after part, each of whole blocks of channels."""
    cfg = k.cfg
    need_layer(op)
    if op.ternary:
        return divided(k, op)
    if k.fold is not None:
        return folded_conv(k, op)
    refuse(max(op.pads) > most_padding(cfg), f"padding {op.pads}: at most {most_padding(cfg)}")
    if (part := groups_per_part(op, cfg)) < op.groups:
        for one in _parts(k.rec, op, part):
            language.lower(conv2d, k.rec, one)
        return
    fill = op.x.zero_point if any(op.pads) else 0
    if own_rows(op, cfg):
        weights = layout.pack_depthwise_weights(op.weight[:, 0], cfg)
        depthwise.append(k.rec, op, _buffers(k, op, weights), fill)
    else:
        shape, weight = in_entries(replace(op.shape, groups=1), ungrouped(op), cfg)
        refuse(max(shape.pads) > most_padding(cfg), f"padding {op.pads}: at most {most_padding(cfg)} entries of inputs")
        _append(k, op, conv2d_of, shape, layout.pack_weights(weight, cfg), pad_value=fill)


@by_shape(_facts)
def whole_image(k: Kernel, op: g.QConv2d) -> None:
    """A kernel as large as the image: packed, both are those of a dense layer, which may be split anywhere."""
    need_layer(op)
    one = op.shape.kernel == op.shape.size and not any(op.pads) and op.groups == 1 and op.dilations == (1, 1)
    if not one or op.shape.taps == 1 or op.ternary or k.fold is not None:
        raise Unfit("its image has several places for the kernel")
    shape, weight = in_entries(op.shape, op.weight, k.cfg)
    entries = -(-shape.c // k.cfg.block_in) * k.cfg.block_in * shape.taps
    row = replace(op.shape, c=entries, h=1, w=1, kernel=(1, 1))
    _append(k, op, dense_of, row, layout.pack_weights(weight, k.cfg))


def in_entries(shape: ConvShape, weight: NDArray[np.int8], cfg: Config) -> tuple[ConvShape, NDArray[np.int8]]:
    """The convolution on the image as it lies, and its weights (o, c, kh, kw).

    A pixel of a block of channels is an entry that a store wrote, `block_out` channels: several entries of inputs where
    `block_in` is less. They are columns of a wider image, in which the kernel reads all columns of a pixel; those that
    a dilation leaves out are zeros.
    """
    parts, (o, c, kh, kw), (dy, dx) = cfg.block_out // cfg.block_in, weight.shape, shape.dilations
    if parts == 1:
        return shape, weight
    (_, left, _, right), blocks, span = shape.pads, -(-c // cfg.block_out), (kw - 1) * dx + 1
    wide = np.zeros((o, blocks * cfg.block_out, kh, span), np.int8)
    wide[:, :c, :, ::dx] = weight
    wide = wide.reshape(o, blocks, parts, cfg.block_in, kh, span).transpose(0, 1, 3, 4, 5, 2)
    weight = wide.reshape(o, blocks * cfg.block_in, kh, span * parts)
    changes = {"c": weight.shape[1], "w": parts * shape.w, "kernel": weight.shape[2:], "dilations": (dy, 1)}
    pads = (shape.pads[0], parts * left, shape.pads[2], parts * right)
    return replace(shape, **changes, strides=(shape.strides[0], parts * shape.strides[1]), pads=pads), weight


def _vectors(shape: ConvShape, weight: NDArray[np.int8], cfg: Config) -> tuple[ConvShape, NDArray[np.int8]]:
    """The dense layer on vectors in whole blocks of `block_out`, and its packed weights."""
    more = -shape.c % max(cfg.block_in, cfg.block_out)
    return replace(shape, c=shape.c + more), layout.pack_dense_weights(np.pad(weight, ((0, 0), (0, more))), cfg)


def groups_per_part(op: g.QConv2d, cfg: Config) -> int:
    """Number of groups that are computed together: all of them, or fewer that fill whole blocks of channels.

    Blocks of channels of several images are not contiguous.
    """
    if op.groups == 1 or op.x.shape[0] > cfg.batch:
        return op.groups
    if own_rows(op, cfg):  # as many blocks as micro-ops can address the rows of
        kh, kw = op.weight.shape[2:]
        rows = kh * layout.depthwise_pitch(cfg, kw)
        return min(op.groups, max(1, reach(cfg, kw, op.shape.dilations[1]) // rows) * cfg.block_out)
    inputs, outputs = op.weight.shape[1], len(op.weight) // op.groups
    whole = (k for k in range(1, op.groups) if op.groups % k == 0 and not k * inputs % cfg.block_out)
    return next((k for k in whole if not k * outputs % cfg.block_out), op.groups)


def ungrouped(op: g.QConv2d | g.IntegerConv2d) -> NDArray[np.int8]:
    """The weights (O, C, KH, KW), zero where an output channel does not read an input channel."""
    (o, c, kh, kw), group = op.weight.shape, np.arange(op.groups)
    weight = np.zeros((op.groups, o // op.groups, op.groups, c, kh, kw), np.int8)
    weight[group, :, group] = op.weight.reshape(op.groups, -1, c, kh, kw)
    return weight.reshape(o, -1, kh, kw)


def _parts(rec: Recording, op: g.QConv2d, count: int) -> Iterator[g.QConv2d]:
    """Convolutions of `count` groups each (the last may have fewer), on parts of the buffers of `op`."""
    inputs, outputs = op.weight.shape[1], len(op.weight) // op.groups  # channels of a group
    for groups in cuts(op.groups, count):
        first, size = groups.start, groups.stop - groups.start
        parts = list[g.Tensor]()
        for t, channels in ((op.x, inputs), (op.output, outputs)):
            part = replace(t, name=f"{t.name}.{op.name}.{first}", shape=(t.shape[0], size * channels, *t.shape[2:]))
            rec.activations[part.name] = rec.part(t, part, first * channels)
            parts.append(part)
        own = slice(first * outputs, (first + size) * outputs)
        facts: dict[str, Any] = {"weight": op.weight[own], "weight_scale": op.weight_scale[own], "bias": op.bias[own]}
        facts["steps"] = None if op.steps is None else op.steps[own]
        yield replace(op, name=f"{op.name}.{first}", inputs=(parts[0],), output=parts[1], groups=size, **facts)


def _same_for_all(op: g.Linear) -> bool:
    """True if the store's parameters are those of every channel: scales per tensor, no biases."""
    return all((values == values[0]).all() for values in (*op.multipliers, op.zero_points, op.corrected_bias))


def _append(
    k: Kernel, op: g.Linear, ready: Callable[..., Schedule], shape: ConvShape, weights: NDArray[np.int8], **options: int
) -> None:
    same = _same_for_all(op)
    epilogue = (("requant_all" if same else "requant", "par"),)  # parameters that are the same for all, or by channel
    scheduled = k.rec.schedule(ready, shape, epilogue=epilogue, **options)
    k.rec.append(op, scheduled, _buffers(k, op, weights, same))


def _buffers(k: Kernel, op: g.Linear, weights: NDArray[np.int8], same: bool = False) -> dict[str, Buffer]:
    parameters = channel_parameters(k.rec, op, op.corrected_bias[0] if same else op.corrected_bias)
    return {"x": k.rec.activations[op.x.name], "w": k.rec.constant(f"{op.name}.w", weights), "par": parameters}


def host_step(op: g.QConv2d, fold: Fold, cfg: Config) -> tuple[dict[str, Any], tuple[int, ...]]:
    """(attributes of the host operator `fold_windows`, shape of its result)."""
    attrs: dict[str, Any] = {
        "rows": fold.rows,
        "dilation": op.dilations[0],
        "step": fold.step,
        "strips": fold.laid_out,
    }
    attrs |= {"group": fold.group, "offsets": list(fold.offsets), "entries": fold.entries}
    top = op.pads[0] - fold.above * fold.step
    attrs |= {"top": top, "left": op.pads[1], "value": op.x.zero_point, "block": cfg.block_in}
    return attrs, fold.image(op.x.shape, cfg)


@by_shape()
def folded_conv(k: Kernel, op: g.QConv2d) -> None:
    """A convolution of few channels: rows and columns of its window are folded into the channels of one block.

    The host lays the image out once (fold.py has the layouts): an entry holds as many bytes of the window as it has
    lanes. Which entry holds which tap is a table, not an affine function of loops. Adjacent outputs whose taps are in
    the same entries have separate weights for them. C1 of ResNet-18, a window of 7x7 with 3 channels, takes 10
    micro-ops per output instead of the 49 of blocks of channels. Tiles are rows; all weights are on chip.
    """
    k.need("overwrite", "requant", batch=1)
    if k.fold is None:
        raise Unfit("its image is not laid out for it")
    tiles, layer = FoldTiles(op.shape, k.fold, k.cfg), Layer.of(op.shape, 0, k.fold, k.cfg)
    refuse(not tiles.fit, f"a row of {op.shape.output[1]} pixels, or {tiles.weights} entries of weights do not fit")
    reads, blocks = layer.reads, layer.gemm
    extents = {"b": blocks, "c": layer.inputs, "term": len(reads.terms)}
    parameters = k.array(channel_parameters(k.rec, op, op.corrected_bias), b=blocks)
    weights = k.known("w", fold_weights(op, k.fold, k.cfg), **extents)
    x, out = input_of(k, layer), k.output

    wgt = k.tile(Mem.WGT, **extents)
    par = k.load(k.tile(Mem.PAR, b=blocks), parameters)
    if not tiles.late:
        k.load(wgt, weights)
    xs = k.slots(tiles.entries(tiles.first))
    small, large = (rows * tiles.co * tiles.columns for rows in (tiles.rows, tiles.first))
    low, high = k.tile(Mem.ACC, high=k.bank, entry=large), k.tile(Mem.ACC, low=k.bank, entry=large)
    banks, numbers = cycle((low, high)), count()
    for n, (top, left, rows, columns) in product(range(layer.images), tiles):
        at = {"h": reads.window(0, top, rows), "w": reads.window(1, left, columns)}
        tile = xs.load(x[n].window(op.x.zero_point, **at))
        for these in cuts(blocks, tiles.co):
            number, extents = next(numbers), {"b": these.stop - these.start, "h": rows, "w": columns}
            # the store of a large first tile takes as long as two tiles: both of them go to the other bank
            second = number == 2 and max(math.prod(extents.values()), small) <= large - small
            y = (high[small:] if second else next(banks)).reshaped(**extents)
            if tiles.late and number == 0:
                y.merged("entry")[...] = 0
                for part in cuts(len(reads.terms), -(-len(reads.terms) // PARTS)):
                    k.load(wgt[0, 0, part], weights[0, 0, part])
                    multiply(y, tile, wgt[:, :, part], replace(reads, terms=reads.terms[part]), fresh=False)
            else:
                multiply(y, tile, wgt[these], reads, fresh=True)
            k.store(out[n, these, top : top + rows, left : left + columns], y, par[these])


@by_shape(lambda op: (language.integers(op), op.result_bytes))
def integer_conv2d(k: Kernel, op: g.IntegerConv2d) -> None:
    """The sums of a convolution, as planes of their bytes; one of groups has zeros among its weights."""
    if op.x.data is not None:
        raise Unfit("its input is a constant")
    if own_rows(op, k.cfg):
        weights, ready, shape = layout.pack_depthwise_weights(op.weight[:, 0], k.cfg), depthwise_of, op.shape
    else:
        shape, weight = in_entries(replace(op.shape, groups=1), ungrouped(op), k.cfg)
        weights, ready = layout.pack_weights(weight, k.cfg), conv2d_of
    _append_planes(k, op, ready, shape, {"w": k.rec.constant(f"{op.name}.w", weights)})


@by_shape(lambda op: op.result_bytes)
def integer_dense(k: Kernel, op: g.IntegerMatMul) -> None:
    """The sums of the products of rows with constant weights, as planes of their bytes."""
    if op.weight is None or op.x.data is not None:
        raise Unfit("its operands are not rows and a constant int8 matrix")
    n, features = op.x.shape
    shape, weights = _vectors(ConvShape(n, features, 1, 1, len(op.weight)), op.weight, k.cfg)
    _append_planes(k, op, dense_of, shape, {"w": k.rec.constant(f"{op.name}.w", weights)})


def _append_planes(
    k: Kernel,
    op: g.Operator,
    ready: Callable[..., Schedule],
    shape: ConvShape,
    constants: dict[str, Buffer],
    epilogue: tuple[Stage, ...] = (),
) -> None:
    """Record a layer whose output is planes of bytes, one after the other in its buffer, the lowest first."""
    planes = op.result_bytes
    buffers = {"x": k.rec.packed(op.x), **constants}
    packed = packed_shape(op.output.shape, k.cfg)
    whole, start = place(k.rec.activations[op.output.name])
    for number, name in enumerate(PLANES[:planes]):
        at = start + number * math.prod(packed)
        buffers[name] = Region(f"{op.output.name}.{name}", packed, whole=whole, start=at)
    scheduled = k.rec.schedule(ready, shape, epilogue=epilogue, planes=planes)
    build_into(k.program, scheduled, buffers, k.rec.placement, name=op.name)


_INT16 = np.iinfo(np.int16)


def dense16(k: Kernel, op: g.Dense16) -> None:
    """A dense layer with results of 16 or 32 bits: the ALU rescales the sums, each byte is stored in a plane."""
    k.need("rescale")
    if why := problem(op):
        raise Unfit(why)
    planes, (low, high), bias = op.result_bytes, op.result_ends, op.corrected_bias
    multiplier, exponent = op.multipliers
    n, features = op.x.shape
    shape, weights = _vectors(ConvShape(n, features, 1, 1, len(op.weight)), op.weight, k.cfg)
    buffers = {
        "w": k.rec.constant(f"{op.name}.w", weights),
        "scale": k.requant(Requant(0, 1 << 30, 1, 0), "scale", multiplier=multiplier, exponent=exponent).buffer,
    }
    chain: list[Stage] = [("rescale", "scale")]
    if bias.any():
        chain.insert(0, ("add", "b"))
        buffers["b"] = k.rec.constant(f"{op.name}.b", layout.pack_bias(bias, k.cfg))
    if planes == 2 and low < _INT16.min:
        chain.append(("max", int(_INT16.min)))
    if planes == 2 and high > _INT16.max:
        chain.append(("min", int(_INT16.max)))
    _append_planes(k, op, dense_of, shape, buffers, tuple(chain))
