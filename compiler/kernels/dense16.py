"""Dense layers with results of 16 or 32 bits: the ALU rescales the sums, each byte is stored in a plane of its own."""

from __future__ import annotations

import math

import numpy as np

from ...runtime import layout
from ...runtime.buffer import Region
from .. import graph as g
from ..api import build_into
from ..conv_shape import ConvShape
from ..graph.integer_forms import Requant
from ..graph.ranges import problem
from ..schedule.dense import dense_of
from ..schedule.epilogue import PLANES, Stage
from .language import Kernel, Unfit
from .recording import packed_shape, place

_INT16 = np.iinfo(np.int16)


def dense16(k: Kernel, op: g.Dense16) -> None:
    """The schedule of a dense layer; the output's buffer has the planes one after the other, the lowest bytes first."""
    k.need("rescale")
    if why := problem(op):
        raise Unfit(why)
    planes, (low, high), bias = op.result_bytes, op.result_ends, op.corrected_bias
    multiplier, exponent = op.multipliers
    buffers = {
        "x": k.rec.packed(op.x),
        "w": k.rec.constant(f"{op.name}.w", layout.pack_dense_weights(op.weight, k.cfg)),
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
    n, features = op.x.shape
    shape = ConvShape(n, features, 1, 1, len(op.weight))
    scheduled = k.rec.schedule(dense_of, shape, epilogue=tuple(chain), planes=planes)
    packed = packed_shape(op.output.shape, k.cfg)
    whole, start = place(k.rec.activations[op.output.name])
    for number, name in enumerate(PLANES[:planes]):
        at = start + number * math.prod(packed)
        buffers[name] = Region(f"{op.output.name}.{name}", packed, whole=whole, start=at)
    build_into(k.program, scheduled, buffers, k.rec.placement, name=op.name)
