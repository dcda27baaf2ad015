"""Convolutions and dense layers: the zero point of the input goes into the bias, the store requantises.

GEMM alone computes them by their schedules (compiler/schedule), in tiles that those choose; depthwise ones may keep
their rows on chip, images of few channels may be folded, and two units divide the channels between them: these are
kernels of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ...hw.config import Config
from ...runtime import layout
from .. import graph as g
from ..conv_shape import ConvShape
from ..limits import most_padding
from ..schedule.conv2d import conv2d_of
from ..schedule.dense import dense_of
from ..schedule.depthwise import reach
from ..tvm_compat import Schedule
from . import depthwise, language
from .folded_conv import folded_conv
from .language import Kernel, Unfit, by_shape
from .recording import Recording, channel_parameters, need_layer, own_rows
from .split_conv import divided


def _facts(op: g.Linear) -> object:
    return language.integers(op), _same_for_all(op)


@by_shape(_facts)
def dense(k: Kernel, op: g.QDense) -> None:
    """A dense layer."""
    need_layer(op)
    if op.ternary:
        return divided(k, op)
    _append(k, op, dense_of, op.shape, layout.pack_dense_weights(op.weight, k.cfg))


@by_shape(_facts)
def conv2d(k: Kernel, op: g.QConv2d) -> None:
    """A convolution, of groups one or more parts after each other."""
    cfg = k.cfg
    need_layer(op)
    if op.ternary:
        return divided(k, op)
    if k.fold is not None:
        return folded_conv(k, op)
    if max(op.pads) > most_padding(cfg):
        raise Unfit(f"padding {op.pads}: at most {most_padding(cfg)}")
    if (part := groups_per_part(op, cfg)) < op.groups:
        for one in _parts(k.rec, op, part):
            language.lower(conv2d, k.rec, one)
        return
    fill = op.x.zero_point if any(op.pads) else 0
    if own_rows(op, cfg):
        weights = layout.pack_depthwise_weights(op.weight[:, 0], cfg)
        depthwise.append(k.rec, op, _buffers(k, op, weights), fill)
    else:
        _append(k, op, conv2d_of, replace(op.shape, groups=1), layout.pack_weights(ungrouped(op), cfg), pad_value=fill)


@by_shape(_facts)
def whole_image(k: Kernel, op: g.QConv2d) -> None:
    """A kernel as large as the image: packed, both are those of a dense layer, which may be split anywhere."""
    need_layer(op)
    one = op.shape.kernel == op.shape.size and not any(op.pads) and op.groups == 1 and op.dilations == (1, 1)
    if not one or op.shape.taps == 1 or op.ternary or k.fold is not None:
        raise Unfit("its image has several places for the kernel")
    entries = -(-op.shape.c // k.cfg.block_in) * k.cfg.block_in * op.shape.taps
    row = replace(op.shape, c=entries, h=1, w=1, kernel=(1, 1))
    _append(k, op, dense_of, row, layout.pack_weights(op.weight, k.cfg))


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
    whole = (k for k in range(1, op.groups) if op.groups % k == 0 and not k * inputs % cfg.block_in)
    return next((k for k in whole if not k * outputs % cfg.block_out), op.groups)


def ungrouped(op: g.QConv2d) -> np.ndarray:
    """The weights (O, C, KH, KW), zero where an output channel does not read an input channel."""
    if op.groups == 1:
        return op.weight
    o, c, kh, kw = op.weight.shape
    whole = np.zeros((o, op.groups * c, kh, kw), np.int8)
    for k in range(op.groups):
        outputs = slice(k * o // op.groups, (k + 1) * o // op.groups)
        whole[outputs, k * c : (k + 1) * c] = op.weight[outputs]
    return whole


def _parts(rec: Recording, op: g.QConv2d, count: int) -> Iterator[g.QConv2d]:
    """Convolutions of `count` groups each (the last may have fewer), on parts of the buffers of `op`."""
    per_group = op.weight.shape[1], len(op.weight) // op.groups
    for first in range(0, op.groups, count):
        groups = min(count, op.groups - first)
        tensors = []
        for t, channels in ((op.x, per_group[0]), (op.output, per_group[1])):
            part = replace(t, name=f"{t.name}.{op.name}.{first}", shape=(t.shape[0], groups * channels, *t.shape[2:]))
            rec.activations[part.name] = rec.part(t, part, first * channels)
            tensors.append(part)
        outputs = slice(first * per_group[1], (first + groups) * per_group[1])
        facts = {"weight": op.weight[outputs], "weight_scale": op.weight_scale[outputs], "bias": op.bias[outputs]}
        yield replace(op, name=f"{op.name}.{first}", inputs=(tensors[0],), output=tensors[1], groups=groups, **facts)


def _same_for_all(op: g.Linear) -> bool:
    """True if the store's parameters are those of every channel: scales per tensor, no biases."""
    return all((values == values[0]).all() for values in (*op.multipliers, op.corrected_bias))


def _append(
    k: Kernel, op: g.Linear, ready: Callable[..., Schedule], shape: ConvShape, weights: np.ndarray, **options: int
) -> None:
    same = _same_for_all(op)
    epilogue = (("requant_all" if same else "requant", "par"),)  # parameters that are the same for all, or by channel
    scheduled = k.rec.schedule(ready, shape, epilogue=epilogue, **options)
    k.rec.append(op, scheduled, _buffers(k, op, weights, same))


def _buffers(k: Kernel, op: g.Linear, weights: np.ndarray, same: bool = False) -> dict[str, Any]:
    parameters = channel_parameters(k.rec, op, op.corrected_bias[0] if same else op.corrected_bias)
    return {"x": k.rec.activations[op.x.name], "w": k.rec.constant(f"{op.name}.w", weights), "par": parameters}
