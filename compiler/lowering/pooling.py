"""Maxima and means over windows."""

from __future__ import annotations

import math

from .. import graph as g
from ..forms import Requant, mean_store
from ..schedule.pool import pool
from . import maxima
from .recording import Recording, store_parameters


def maximum(rec: Recording, op: g.MaxPool) -> None:
    """Append a maximum over windows: on both units, or with the ALU alone."""
    tiles = maxima.tiles_of(op, rec.cfg)
    if tiles is not None:
        maxima.maximum(rec, op, tiles)
        return
    _pool(rec, op, "max", op.kernel, op.strides, op.pads, Requant(0, 1 << 30, 1, 0, op.low, op.high))


def exact_average(rec: Recording, op: g.ExactAveragePool) -> None:
    """Append a mean of windows without padding, ties away from zero."""
    store = mean_store(math.prod(op.kernel), op.low, op.high)
    _pool(rec, op, "sum", op.kernel, op.strides, op.pads, store)


def average(rec: Recording, op: g.AveragePool) -> None:
    """Append a mean of windows that is requantised."""
    bias = -math.prod(op.kernel) * op.x.zero_point
    store = Requant(bias, *op.multipliers, op.output.zero_point, op.low, op.high, rec.contract)
    _pool(rec, op, "sum", op.kernel, op.strides, op.pads, store)


def mean(rec: Recording, op: g.Mean) -> None:
    """Append a mean over rows and columns."""
    store = Requant(-op.count * op.x.zero_point, *op.multipliers, op.output.zero_point)
    kernel = op.x.shape[2], op.x.shape[3]
    _pool(rec, op, "sum", kernel, (1, 1), (0, 0, 0, 0), store)


def _pool(
    rec: Recording,
    op: g.Op,
    kind: str,
    kernel: tuple[int, int],
    strides: tuple[int, int],
    pads: tuple[int, int, int, int],
    store: Requant,
) -> None:
    n, c, h, w = op.x.shape
    scheduled = pool(rec.cfg, n, h, w, c, *kernel, strides, pads, kind=kind, epilogue=[("requant", "par")])
    rec.append(op, scheduled, {"x": rec.operand(op, 0), "par": store_parameters(rec, op, store, c)})
