"""Convolutions and dense layers: the zero point of the input goes into the bias, the store requantises."""

from __future__ import annotations

from ...runtime import layout
from .. import graph as g
from ..schedule.conv2d import conv2d
from ..schedule.dense import dense
from ..schedule.depthwise import depthwise
from . import folded
from .recording import Recording

_EPILOGUE = [("requant", "par")]


def lower(rec: Recording, op: g.QConv2d | g.QDense) -> None:
    """Append a convolution, of one group or depthwise, or a dense layer."""
    cfg = rec.cfg
    if op.name in rec.folded:
        assert isinstance(op, g.QConv2d)
        folded.lower(rec, op, *rec.folded[op.name], _parameters(rec, op))
        return
    if isinstance(op, g.QDense):
        scheduled = dense(cfg, *op.x.shape, len(op.weight), epilogue=_EPILOGUE)
        weights = layout.pack_dense_weights(op.weight, cfg)
    else:
        geometry = (*op.weight.shape[2:], op.strides, op.pads, op.dilations)
        fill = op.x.zero_point if any(op.pads) else 0
        n, c, h, w = op.x.shape
        if op.depthwise:
            scheduled = depthwise(cfg, n, h, w, c, *geometry, pad_value=fill, epilogue=_EPILOGUE)
            weights = layout.pack_depthwise_weights(op.weight[:, 0], cfg)
        else:
            scheduled = conv2d(cfg, n, h, w, c, len(op.weight), *geometry, pad_value=fill, epilogue=_EPILOGUE)
            weights = layout.pack_weights(op.weight, cfg)
    buffers = {"x": rec.activations[op.x.name], "w": rec.constant(f"{op.name}.w", weights), "par": _parameters(rec, op)}
    rec.append(op, scheduled, buffers)


def _parameters(rec: Recording, op: g.Linear):
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
