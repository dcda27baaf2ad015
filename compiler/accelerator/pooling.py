"""Maxima and means over windows, and means over rows that follow those over columns."""

from __future__ import annotations

from dataclasses import replace

from .. import graph as g
from ..graph.integer_forms import Requant, mean_store
from ..schedule.pool import pool_of
from .direct import max_pool, mean
from .recording import Recording, store_parameters


def maximum(rec: Recording, op: g.MaxPool) -> None:
    """Append a maximum over windows: on both units, or with the ALU alone."""
    tiles = max_pool.tiles_of(op, rec.cfg)
    if tiles is not None:
        max_pool.lower(rec, op, tiles)
        return
    _pool(rec, op, "max", Requant(0, 1 << 30, 1, 0, op.low, op.high))


def exact_average(rec: Recording, op: g.ExactAveragePool) -> None:
    """Append a mean of windows without padding, ties away from zero or up."""
    _mean(rec, op, mean_store(op.shape.taps, op.low, op.high, op.ties_up))


def average(rec: Recording, op: g.AveragePool) -> None:
    """Append a mean of windows that is requantised."""
    bias = -op.shape.taps * op.x.zero_point
    _mean(rec, op, Requant(bias, *op.multipliers, op.output.zero_point, op.low, op.high, rec.contract))


def successive(graph: g.Graph) -> g.Graph:
    """`graph` with a mean over columns and then one over rows as means of images, which the accelerator computes.

    Between them the tensor has no dimension of columns; now it has one, of size 1.
    """
    readers = graph.readers
    found: dict[str, g.Operator] = {}
    for op in graph.ops:
        then = readers.get(op.output.name, [])
        over_rows = all(isinstance(r, g.Mean) and r.axes == (2,) and len(r.output.shape) == 2 for r in then)
        if isinstance(op, g.Mean) and op.axes == (3,) and len(op.output.shape) == 3 and over_rows:
            if op.output in graph.wanted:
                continue
            image = replace(op.output, shape=(*op.output.shape, 1))
            found[op.name] = replace(op, output=image)
            found |= {r.name: replace(r, inputs=(image,), axes=(2, 3)) for r in then}
    return replace(graph, ops=tuple(found.get(op.name, op) for op in graph.ops)) if found else graph


def _mean(rec: Recording, op: g.Pool, store: Requant) -> None:
    sums = mean.sums_of(op, rec.cfg)
    if sums is not None:
        mean.add_up(rec, op, sums, store)
    else:
        _pool(rec, op, "sum", store)


def _pool(rec: Recording, op: g.Pool, kind: str, store: Requant) -> None:
    scheduled = rec.schedule(pool_of, op.shape, kind=kind, epilogue=[("requant", "par")])
    rec.append(op, scheduled, {"x": rec.operand(op, 0), "par": store_parameters(rec, op, store, op.shape.c)})
