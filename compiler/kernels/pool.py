"""Means and maxima over windows, by a schedule of the ALU."""

from __future__ import annotations

from .. import graph as g
from ..accelerator.recording import store_parameters
from ..graph.integer_forms import Requant
from ..limits import most_padding
from ..schedule.pool import pool_of
from .language import Kernel, Unfit
from .mean import mean_requant


def average_pool(k: Kernel, op: g.AveragePool | g.ExactAveragePool) -> None:
    """A mean of windows; one without multipliers only where all windows have as many elements."""
    if isinstance(op, g.ExactAveragePool) and any(op.pads):
        raise Unfit("windows of different numbers of elements")
    _pool(k, op, "sum", mean_requant(op, k.rec.contract))


def max_pool(k: Kernel, op: g.MaxPool) -> None:
    """A maximum of windows."""
    _pool(k, op, "max", Requant(0, 1 << 30, 1, 0, op.low, op.high))


def _pool(k: Kernel, op: g.Pool, kind: str, store: Requant) -> None:
    if max(op.pads) > most_padding(k.cfg):
        raise Unfit(f"padding {op.pads}: at most {most_padding(k.cfg)}")
    scheduled = k.rec.schedule(pool_of, op.shape, kind=kind, epilogue=[("requant", "par")])
    par = store_parameters(k.rec, op, store, op.shape.c)
    k.rec.append(op, scheduled, {"x": k.rec.operand(op, 0), "par": par})
