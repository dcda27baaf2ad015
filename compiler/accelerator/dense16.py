"""Dense layers with results of 16 or 32 bits: the ALU rescales the sums, each byte is stored in a plane of its own."""

from __future__ import annotations

import math

import numpy as np

from ...hw.config import Config
from ...hw.rounding import rescale
from ...runtime import layout
from ...runtime.buffer import Region
from .. import graph as g
from ..api import build_into
from ..conv_shape import ConvShape
from ..graph.ranges import problem
from ..schedule.dense import dense_of
from ..schedule.epilogue import PLANES, Stage
from .recording import Recording, packed_shape, place

_INT16 = np.iinfo(np.int16)


def refusal(op: g.Dense16, cfg: Config) -> str:
    """Reason why the accelerator cannot compute it; empty if it can."""
    if "rescale" not in cfg.extensions:
        return "results of more than 8 bits need the extension rescale"
    return problem(op)


def planes_of(op: g.Dense16) -> int:
    """How many bytes of each result are stored: 2 of int16, else those that its values need, 3 or 4."""
    if op.output.dtype == "int16":
        return 2
    low, high = ends(op)
    return 3 if -(1 << 23) <= low and high < 1 << 23 else 4


def ends(op: g.Dense16) -> tuple[int, int]:
    """The least and the largest value of all int8 inputs, before it is clamped."""
    reach = op.reach()
    low, high = (rescale(sums, *op.multipliers) for sums in (reach.low, reach.high))
    return int(low.min()), int(high.max())


def lower(rec: Recording, op: g.Dense16) -> None:
    """Append the layer; its output's buffer has the planes one after the other, the lowest bytes first."""
    cfg, planes = rec.cfg, planes_of(op)
    (multiplier, exponent), bias = op.multipliers, op.corrected_bias
    buffers = {
        "x": rec.activations[op.x.name],
        "w": rec.constant(f"{op.name}.w", layout.pack_dense_weights(op.weight, cfg)),
        "scale": rec.parameters(
            f"{op.name}.scale",
            bias=0,
            multiplier=multiplier,
            exponent=exponent,
            zero_point=0,
            low=-128,
            high=127,
            contract="double",
        ),
    }
    chain: list[Stage] = [("rescale", "scale")]
    if bias.any():
        chain.insert(0, ("add", "b"))
        buffers["b"] = rec.constant(f"{op.name}.b", layout.pack_bias(bias, cfg))
    low, high = ends(op)
    if planes == 2 and low < _INT16.min:
        chain.append(("max", int(_INT16.min)))
    if planes == 2 and high > _INT16.max:
        chain.append(("min", int(_INT16.max)))
    n, features = op.x.shape
    shape = ConvShape(n, features, 1, 1, len(op.weight))
    scheduled = rec.schedule(dense_of, shape, epilogue=chain, planes=planes)
    packed = packed_shape(op.output.shape, cfg)
    whole, start = place(rec.activations[op.output.name])
    for k, name in enumerate(PLANES[:planes]):
        at = start + k * math.prod(packed)
        buffers[name] = Region(f"{op.output.name}.{name}", packed, whole=whole, start=at)
    build_into(rec.program, scheduled, buffers, rec.placement, name=op.name)
