"""Convolutions and dense layers: the zero point of the input goes into the bias, the store requantises."""

from __future__ import annotations

from functools import lru_cache

from ...hw.config import Config
from ...runtime import layout
from ...runtime.buffer import Buffer
from .. import graph as g
from ..schedule.conv2d import conv2d
from ..schedule.dense import dense
from ..schedule.depthwise import depthwise
from ..tvm_compat import PrimFunc, Schedule
from . import folded
from .recording import Recording

_EPILOGUE = (("requant", "par"),)
_SCHEDULES = {"dense": dense, "conv2d": conv2d, "depthwise": depthwise}


def lower(rec: Recording, op: g.QConv2d | g.QDense) -> None:
    """Append a convolution, of one group or depthwise, or a dense layer."""
    cfg = rec.cfg
    if op.name in rec.folded:
        assert isinstance(op, g.QConv2d)
        folded.lower(rec, op, *rec.folded[op.name], _parameters(rec, op))
        return
    if isinstance(op, g.QDense):
        scheduled = _scheduled("dense", cfg, (*op.x.shape, len(op.weight)))
        weights = layout.pack_dense_weights(op.weight, cfg)
    else:
        geometry = (*op.weight.shape[2:], op.strides, op.pads, op.dilations)
        fill = op.x.zero_point if any(op.pads) else 0
        n, c, h, w = op.x.shape
        if op.depthwise:
            scheduled = _scheduled("depthwise", cfg, (n, h, w, c, *geometry), pad_value=fill)
            weights = layout.pack_depthwise_weights(op.weight[:, 0], cfg)
        else:
            scheduled = _scheduled("conv2d", cfg, (n, h, w, c, len(op.weight), *geometry), pad_value=fill)
            weights = layout.pack_weights(op.weight, cfg)
    buffers = {"x": rec.activations[op.x.name], "w": rec.constant(f"{op.name}.w", weights), "par": _parameters(rec, op)}
    rec.append(op, scheduled, buffers)


@lru_cache(maxsize=256)  # a network has many layers of one shape
def _scheduled(kind: str, cfg: Config, shape: tuple, **options: int) -> PrimFunc:
    scheduled: Schedule = _SCHEDULES[kind](cfg, *shape, epilogue=_EPILOGUE, **options)
    (func,) = scheduled.mod.functions.values()
    return func


def _parameters(rec: Recording, op: g.Linear) -> Buffer:
    multiplier, exponent = op.multipliers
    return rec.parameters(
        f"{op.name}.par",
        bias=op.folded_bias,
        multiplier=multiplier,
        exponent=exponent,
        zero_point=op.output.zero_point,
        low=op.low,
        high=op.high,
        contract=rec.contract,
    )
