"""Images at the beginning of a network: the host lays them out for the first convolutions, or leaves them as they lie.

The host would touch each value of a float32 image, four bytes of it; the accelerator quantises it as it is. That needs
a convolution that reads NHWC rows (compiler/kernels/fold.py), and a scale with exact steps
(compiler/kernels/quantise_steps.py).
"""

from __future__ import annotations

from ...hw.config import Config
from .. import graph as g
from ..graph.rewrite import Producers, Rule, rewrite, transposes, without_unread
from ..kernels import table
from ..kernels.fold import Fold, fold_in_place
from ..kernels.layouts import cheapest_layout
from .sequences import TO_NCHW


def brought(graph: g.Graph) -> set[str]:
    """The names of the graph's inputs, and of what the host makes of them before the first layers."""
    found = {t.name for t in graph.inputs}
    for op in graph.ops:
        names = {t.name for t in op.inputs if t.data is None}
        if names and names <= found and (op.copies or op.x.dtype != "int8"):
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


def quantised_images(graph: g.Graph, cfg: Config) -> g.Graph:
    """float32 images are quantised in the launch that reads them: with their change of layout one operator."""

    def image(op: g.Quantize, readers: g.Readers, producers: Producers) -> list[g.Operator] | None:
        move, reader = producers.get(op.x.name), readers.only(op)
        if not op.ties_away or move is None or readers.only(move) is not op or not transposes(move, TO_NCHW):
            return None
        new = g.QuantizeImage(op.name, (move.x,), op.output)
        in_place = isinstance(reader, g.QConv2d) and fold_in_place(reader, cfg)
        return [new] if in_place and not table.refusal(new, cfg) else None

    found = rewrite(graph, Rule(g.Quantize, image))
    return found if found is graph else without_unread(found)
