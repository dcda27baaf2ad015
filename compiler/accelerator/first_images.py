"""Images that the host brings to the first convolutions, and so can lay out for them."""

from __future__ import annotations

from ...hw.config import Config
from .. import graph as g
from ..graph.rewrite import transposes
from ..kernels.fold import Fold, fold_in_place
from ..kernels.layouts import cheapest_layout
from .sequences import TO_NCHW


def brought(graph: g.Graph) -> set[str]:
    """The names of the graph's inputs, and of what the host makes of them before the first layers."""
    found = {t.name for t in graph.inputs}
    for op in graph.ops:
        if op.x.name in found and (op.copies or op.x.dtype != "int8"):
            found.add(op.output.name)
    return found


def fold_of(op: g.QConv2d, cfg: Config, *, nhwc: bool) -> Fold | None:
    """The layout with which `op` is fastest; None for blocks of channels. With `nhwc` it may stay as it lies."""
    return cheapest_layout(op, cfg, nhwc=nhwc or op.x.shape[1] == 1)


def folds_of(graph: g.Graph, cfg: Config) -> dict[str, Fold]:
    """How the images of the first convolutions will be laid out, by the names of these."""
    given, moves = brought(graph), {op.output.name for op in graph.ops if transposes(op, TO_NCHW)}
    quantised = {op.output.name for op in graph.of(g.QuantizeImage)}
    found = dict[str, Fold | None]()
    for op in graph.of(g.QConv2d):
        if op.x.name in quantised:
            found[op.name] = fold_in_place(op, cfg)
        elif op.x.name in given:
            found[op.name] = fold_of(op, cfg, nhwc=op.x.name in moves)
    return {name: fold for name, fold in found.items() if fold is not None}
