"""Images of float32 values that the accelerator quantises itself, and reads as they then lie in its memory.

The host would touch each value, four bytes of it; the accelerator loads the image as it is. That needs a convolution
that reads NHWC rows (compiler/kernels/fold.py), and a scale with exact steps (compiler/kernels/quantise_steps.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from ...hw.config import Config
from ...runtime.buffer import Buffer
from .. import graph as g
from ..graph.rewrite import Producers, Rule, rewrite, without_unread
from ..kernels import table
from ..kernels.fold import Fold, fold_in_place
from ..target.module import Refusal
from .first_images import to_nchw


def quantised_images(graph: g.Graph, cfg: Config) -> g.Graph:
    """`graph` with such an image, its change of layout and its quantisation, as one operator."""

    def image(op: g.Quantize, readers: g.Readers, producers: Producers) -> list[g.Operator] | None:
        move = producers.get(op.x.name)
        if not op.ties_away or move is None or readers.only(move) is not op or not to_nchw(move):
            return None
        new, reader = g.QuantizeImage(op.name, (move.x,), op.output), readers.only(op)
        return [new] if reader and layout([reader], cfg) and not table.refusal(new, cfg) else None

    found = rewrite(graph, Rule(g.Quantize, image))
    return found if found is graph else without_unread(found)


def layout(readers: Sequence[g.Operator], cfg: Config) -> Fold | None:
    """How the only reader, a convolution, reads rows of NHWC; None where it cannot."""
    (reader,) = readers if len(readers) == 1 else (None,)
    return fold_in_place(reader, cfg) if isinstance(reader, g.QConv2d) else None


def read_in_place(
    op: g.QuantizeImage, graph: g.Graph, ops: Sequence[g.Operator], cfg: Config, image: Buffer
) -> dict[str, tuple[Fold, Buffer]]:
    """The images of convolutions by name: that of the reader of `op`. Raises `Refusal` where another part reads it."""
    readers = graph.readers.get(op.output.name, [])
    fold = layout(readers, cfg)
    if fold is None or readers[0] not in ops or op.output in graph.wanted:
        raise Refusal({op.name: "what reads the image is computed elsewhere"})
    return {readers[0].name: (fold, image)}
