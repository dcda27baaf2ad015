"""Means over rows that follow those over columns, as one of images."""

from __future__ import annotations

from dataclasses import replace

from .. import graph as g


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
