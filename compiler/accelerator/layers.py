"""Convolutions and dense layers: the zero point of the input goes into the bias, the store requantises."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from ...hw.config import Config
from ...runtime import layout
from .. import cost
from .. import graph as g
from ..conv_shape import ConvShape
from ..kernels import depthwise, language
from ..kernels.folded_conv import folded_conv
from ..kernels.recording import Recording, channel_parameters, own_rows
from ..schedule.conv2d import conv2d_of
from ..schedule.dense import dense_of
from ..schedule.depthwise import depthwise_of, reach
from ..schedule.epilogue import Stage
from ..tvm_compat import PrimFunc, Schedule

_EACH, _ALL = (("requant", "par"),), (("requant_all", "par"),)  # parameters by channel, or the same for all


def lower(rec: Recording, op: g.QConv2d | g.QDense) -> None:
    """Append a convolution or a dense layer."""
    cfg = rec.cfg
    if isinstance(op, g.QConv2d) and (part := groups_per_part(op, cfg)) < op.groups:
        for one in _parts(rec, op, part):
            lower(rec, one)
        return
    if op.name in rec.folded:
        assert isinstance(op, g.QConv2d)
        language.lower(folded_conv, rec, op)
        return
    same = not (isinstance(op, g.QConv2d) and own_rows(op, cfg)) and _same_for_all(op)
    epilogue, bias = (_ALL, op.corrected_bias[0]) if same else (_EACH, op.corrected_bias)
    fill = op.x.zero_point if isinstance(op, g.QConv2d) and any(op.pads) else 0
    if isinstance(op, g.QDense):
        scheduled = _scheduled(rec, dense_of, op.shape, epilogue)
        weights = layout.pack_dense_weights(op.weight, cfg)
    elif whole_image(op) and 2 * op.shape.taps > min(cfg.inp_depth, cfg.wgt_depth):
        # Packed images and weights are those of a dense layer on their entries, which may be split anywhere.
        row = replace(
            op.shape, c=-(-op.shape.c // cfg.block_in) * cfg.block_in * op.shape.taps, h=1, w=1, kernel=(1, 1)
        )
        scheduled, weights = _scheduled(rec, dense_of, row, epilogue), layout.pack_weights(op.weight, cfg)
    else:
        if own_rows(op, cfg):
            scheduled = _scheduled(rec, depthwise_of, op.shape, epilogue, pad_value=fill)
            weights = layout.pack_depthwise_weights(op.weight[:, 0], cfg)
        else:
            scheduled = _scheduled(rec, conv2d_of, replace(op.shape, groups=1), epilogue, pad_value=fill)
            weights = layout.pack_weights(ungrouped(op), cfg)
    parameters = channel_parameters(rec, op, bias)
    buffers = {"x": rec.activations[op.x.name], "w": rec.constant(f"{op.name}.w", weights), "par": parameters}
    if isinstance(op, g.QConv2d) and own_rows(op, cfg):
        depthwise.append(rec, op, scheduled, buffers, fill)
    else:
        rec.append(op, scheduled, buffers)


def work(op: g.Linear, cfg: Config) -> tuple[int, int]:
    """(micro-ops of an entry of the output, bytes of all weights in it, with those of other groups)."""
    taps, channels = op.weight[0, 0].size, op.weight.shape[1]
    if isinstance(op, g.QConv2d) and own_rows(op, cfg):
        return taps, op.weight.size
    if isinstance(op, g.QConv2d):
        channels *= groups_per_part(op, cfg)
    products = taps * -(-channels // cfg.block_in)
    return products, len(op.weight) * taps * channels


def whole_image(op: g.QConv2d) -> bool:
    """True if its kernel is as large as the image, whose pixels each have one product with it."""
    return op.shape.kernel == op.shape.size and not any(op.pads) and op.groups == 1 and op.dilations == (1, 1)


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


def _same_for_all(op: g.QConv2d | g.QDense) -> bool:
    """True if the store's parameters are those of every channel: scales per tensor, no biases."""
    return all((values == values[0]).all() for values in (*op.multipliers, op.corrected_bias))


def _scheduled(
    rec: Recording, ready: Callable[..., Schedule], shape: ConvShape, epilogue: tuple[Stage, ...], **options: int
) -> PrimFunc:
    if rec.tiles is None:
        return _by_default(ready, rec.cfg, shape, epilogue, **options)
    return rec.schedule(ready, shape, epilogue=epilogue, **options)


@cost.cached(256)  # a network has many layers of one shape
def _by_default(
    ready: Callable[..., Schedule], cfg: Config, shape: ConvShape, epilogue: tuple[Stage, ...], **options: int
) -> PrimFunc:
    scheduled = ready(cfg, shape, epilogue=epilogue, **options)
    (func,) = scheduled.mod.functions.values()
    return func
