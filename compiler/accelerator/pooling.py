"""Means over rows that follow those over columns, as one of images."""

from __future__ import annotations

from dataclasses import replace

from .. import graph as g
from ..graph.rewrite import Producers, Rule, rewrite


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
