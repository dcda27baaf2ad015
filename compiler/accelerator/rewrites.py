"""Rewrites of a graph for the accelerator: channels absorbed by a reader, means of images, LSTM steps, wide weights.

None changes results. Each applies only where a kernel computes the new operators.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ...hw.config import Config
from .. import graph as g
from ..graph.rewrite import Producers, Rule, rewrite
from ..kernels import language, table
from ..kernels.elementwise import weighted_sum
from ..kernels.fold import may_fold
from ..kernels.recording import AbsorbedPad, AbsorbedSlice, own_rows, stand_in
from ..kernels.resize import repeat
from ..limits import most_padding


def absorb(graph: g.Graph, cfg: Config) -> g.Graph:
    """Paddings and slices of channels become part of the sums and depthwise convolutions that alone read them.

    The kernel of a sum reads the narrow tensor, and adds the padding by its parameters. A slice of whole blocks of
    channels is contiguous in memory, so that a depthwise convolution reads it where it lies.
    """
    sums = set[str]()  # with one padding: the pattern of a padded sum takes no second one

    def padded(op: g.Pad, readers: g.Readers, producers: Producers) -> list[g.Operator] | None:
        then = readers.only(op)
        if not isinstance(then, g.Add) or then.name in sums or not _pads(then, op, cfg):
            return None
        sums.add(then.name)
        return [stand_in(AbsorbedPad, op)]

    def sliced(op: g.StridedSlice, readers: g.Readers, producers: Producers) -> list[g.Operator] | None:
        then = readers.only(op)
        taken = isinstance(then, g.QConv2d) and _in_place(op, then, cfg)
        return [stand_in(AbsorbedSlice, op)] if taken else None

    return rewrite(graph, Rule(g.Pad, padded), Rule(g.StridedSlice, sliced))


def _pads(op: g.Add, pad: g.Pad, cfg: Config) -> bool:
    """True if the kernel of the sum can add the padding of this operand."""
    if cfg.batch > 1 or len(pad.x.shape) != 4 or pad.x.shape[0] > 1 or pad.x.dtype != "int8":
        return False
    whole = all(t.data is None and t.shape == op.output.shape for t in op.inputs)
    return pad.behind and whole and table.chosen(op, cfg) is weighted_sum


def _in_place(op: g.StridedSlice, reader: g.QConv2d, cfg: Config) -> bool:
    """True if `reader` can read the slice, whole blocks of channels of one batch of images, where it lies."""
    x, y = op.x, op.output
    if not own_rows(reader, cfg) or len(x.shape) != 4 or x.shape[0] > cfg.batch:
        return False
    plain = x.data is None and x.dtype == "int8" and set(op.strides) == {1}
    alike = (x.shape[0], *x.shape[2:]) == (y.shape[0], *y.shape[2:])
    end = op.begin[1] + y.shape[1]
    return plain and alike and not op.begin[1] % cfg.block_out and (end == x.shape[1] or not end % cfg.block_out)


def successive(graph: g.Graph) -> g.Graph:
    """A mean over columns, and then one over rows, become means of images, which the accelerator computes.

    Between them the tensor has no dimension of columns; now it has one, of size 1.
    """

    def images(op: g.Mean, readers: g.Readers, producers: Producers) -> list[g.Operator] | None:
        before = producers.get(op.x.name)
        if before is not None and before.output.shape != op.x.shape:
            return [replace(op, inputs=(before.output,), axes=(2, 3))]
        then = readers.get(op.output.name, [])
        over_rows = all(isinstance(r, g.Mean) and r.axes == (2,) and len(r.output.shape) == 2 for r in then)
        if op.axes != (3,) or len(op.output.shape) != 3 or not over_rows or op.output.name in readers.wanted:
            return None
        return [replace(op, output=replace(op.output, shape=(*op.output.shape, 1)))]

    return rewrite(graph, Rule(g.Mean, images))


_INT16 = np.iinfo(np.int16)


def split_steps(graph: g.Graph, pays: Callable[[g.Dense16], bool]) -> g.Graph:
    """The products of the hidden values of LSTMs of one step run on the accelerator, where that `pays`.

    Both products of a step, of its inputs and of its hidden values, are then in one launch; the host computes the
    functions of their sums. The latter are int16 where all values are, else int32, as they are not clamped.
    """

    def split(op: g.Lstm, readers: g.Readers, producers: Producers) -> list[g.Operator] | None:
        if op.x.shape[1] > 1:
            return None
        gates, hidden, _ = op.inputs
        bias = op.bias + hidden.zero_point * op.weight.sum(1, dtype=np.int64)  # its own bias has the zero point
        y = g.Tensor(f"{op.name}.own", (hidden.shape[0], len(op.weight)), "int32", gates.scale)
        own = g.Dense16(y.name, (hidden,), y, op.weight, bias.astype(np.int32), op.scales)
        low, high = own.result_ends
        if _INT16.min <= low and high <= _INT16.max:
            own = replace(own, output=replace(y, dtype="int16"))
        if not pays(own):
            return None
        return [own, g.LstmStep(op.name, (op.x, own.output, op.inputs[2]), op.output, op.factor, op.clip, op.coupled)]

    return rewrite(graph, Rule(g.Lstm, split))


_LARGEST = 2 * 127  # weight of two int8 parts


@dataclass(frozen=True, eq=False)
class HostRows(g.Take):
    """Rows of an image of few channels, each twice, which the host lays out (compiler/kernels/conv.py)."""


@dataclass(frozen=True, eq=False)
class WideConv(g.StandIn, g.QConv2d):
    """A convolution with two rows of int8 weights for each row of wide ones."""


def split_weights(graph: g.Graph, cfg: Config) -> g.Graph:
    """Weights beyond int8 become two int8 parts, where `cfg` can repeat rows and pad twice as many.

    Weights of uint8 files, less their zero point, are -255..255. Every row of the image is there twice, and the kernel
    has two rows for one: the first holds the weights clamped to int8, the second the rest.
    """
    inputs = {t.name for t in graph.inputs}

    def convolution(op: g.QConv2d, readers: g.Readers, producers: Producers) -> list[g.Operator] | None:
        if (found := _split(op, cfg)) is None:
            return None
        (take, conv), source = found, op.x
        while (made := producers.get(source.name)) is not None and (made.rearranges or made.x.dtype == "uint8"):
            source = made.x
        if source.name in inputs and may_fold(conv, cfg):
            take = stand_in(HostRows, take)
        return [take, conv]

    def dense(op: g.QDense, readers: g.Readers, producers: Producers) -> list[g.Operator] | None:
        """A convolution of images of one pixel."""
        ends = op.x, op.output
        x, y = (replace(t, name=f"{op.name}.{k}", shape=(*t.shape, 1, 1), data=None) for k, t in enumerate(ends))
        parameters = op.weight[..., None, None], op.weight_scale, op.bias, op.low, op.high
        found = _split(g.QConv2d(f"{op.name}.image", (x,), y, *parameters, **op.scaling), cfg)
        return found and [g.Reshape(x.name, (op.x,), x), *found, g.Reshape(op.name, (y,), op.output)]

    return rewrite(graph, Rule(g.QConv2d, convolution), Rule(g.QDense, dense))


def _split(op: g.QConv2d, cfg: Config) -> tuple[g.Take, WideConv] | None:
    """(Repeated rows, their convolution); None where weights need no two parts, or do not fit them."""
    if op.weight.dtype != np.int16 or op.weight.max() > _LARGEST:
        return None
    n, c, h, w = op.x.shape
    top, left, bottom, right = op.pads
    twice = replace(op.x, name=f"{op.name}.rows", shape=(n, c, 2 * h, w), data=None)
    take = g.Take(twice.name, (op.x,), twice, ((), (), tuple(np.repeat(np.arange(h), 2).tolist()), ()))
    if op.dilations[0] > 1 or 2 * max(top, bottom) > most_padding(cfg) or language.why_not(repeat, take, cfg):
        return None
    o, i, kh, kw = op.weight.shape
    first = np.clip(op.weight, -128, 127)
    weight = np.stack([first, op.weight - first], 3).reshape(o, i, 2 * kh, kw).astype(np.int8)
    geometry = {"strides": (2 * op.strides[0], op.strides[1]), "pads": (2 * top, left, 2 * bottom, right)}
    return take, stand_in(WideConv, op, inputs=(twice,), weight=weight, work=op.macs, **geometry)
