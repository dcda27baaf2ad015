"""Images of float32 values that the accelerator quantises itself, and reads as they then lie in its memory.

The host would touch each value, four bytes of it; the accelerator loads the image as it is. That needs a convolution
that reads NHWC rows (compiler/kernels/fold.py), and a scale with exact steps (compiler/kernels/quantise_steps.py).
"""

from __future__ import annotations

from ...hw.config import Config
from .. import graph as g
from ..graph.rewrite import Producers, Rule, rewrite, transposes, without_unread
from ..kernels import table
from ..kernels.fold import fold_in_place
from .sequences import TO_NCHW


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
