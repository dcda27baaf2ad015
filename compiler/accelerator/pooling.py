"""Maxima and means over windows."""

from __future__ import annotations

from .. import graph as g
from ..conv_shape import ConvShape
from ..graph.integer_forms import Requant, mean_store
from ..schedule.pool import pool_of
from .direct import max_pool
from .recording import Recording, store_parameters


def maximum(rec: Recording, op: g.MaxPool) -> None:
    """Append a maximum over windows: on both units, or with the ALU alone."""
    tiles = max_pool.tiles_of(op, rec.cfg)
    if tiles is not None:
        max_pool.lower(rec, op, tiles)
        return
    _pool(rec, op, op.shape, "max", Requant(0, 1 << 30, 1, 0, op.low, op.high))


def exact_average(rec: Recording, op: g.ExactAveragePool) -> None:
    """Append a mean of windows without padding, ties away from zero or up."""
    _pool(rec, op, op.shape, "sum", mean_store(op.shape.taps, op.low, op.high, op.ties_up))


def average(rec: Recording, op: g.AveragePool) -> None:
    """Append a mean of windows that is requantised."""
    bias = -op.shape.taps * op.x.zero_point
    store = Requant(bias, *op.multipliers, op.output.zero_point, op.low, op.high, rec.contract)
    _pool(rec, op, op.shape, "sum", store)


def mean(rec: Recording, op: g.Mean) -> None:
    """Append a mean over rows and columns."""
    store = Requant(-op.count * op.x.zero_point, *op.multipliers, op.output.zero_point)
    n, c, h, w = op.x.shape
    _pool(rec, op, ConvShape(n, c, h, w, c, (h, w), groups=c), "sum", store)


def _pool(rec: Recording, op: g.Operator, shape: ConvShape, kind: str, store: Requant) -> None:
    scheduled = rec.schedule(pool_of, shape, kind=kind, epilogue=[("requant", "par")])
    rec.append(op, scheduled, {"x": rec.operand(op, 0), "par": store_parameters(rec, op, store, shape.c)})
