"""Images of float32 values that the accelerator quantises itself, and reads as they then lie in its memory.

The host would touch each value, four bytes of it; the accelerator loads the image as it is. That needs a convolution
that reads NHWC rows (compiler/kernels/fold.py), and a scale with exact steps (compiler/kernels/quantise_steps.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...hw.config import Config
from ...runtime.buffer import Buffer
from .. import graph as g
from ..kernels import table
from ..kernels.fold import Fold, fold_in_place
from ..target.module import Refusal
from .first_images import to_nchw


def quantised_images(graph: g.Graph, cfg: Config) -> g.Graph:
    """`graph` with such an image, its change of layout and its quantisation, as one operator."""
    readers, made = graph.readers, {op.output.name: op for op in graph.ops}
    wanted = {t.name for t in graph.wanted}
    found: dict[str, g.QuantizeImage] = {}
    gone: set[str] = set()
    for op in graph.ops:
        move = made.get(op.x.name) if isinstance(op, g.Quantize) else None
        if not isinstance(op, g.Quantize) or move is None or not to_nchw(move):
            continue
        only = [readers.get(t.name, []) for t in (move.output, op.output)]
        inside = all(len(some) == 1 for some in only) and wanted.isdisjoint((move.output.name, op.output.name))
        new = g.QuantizeImage(op.name, (move.x,), op.output)
        if inside and op.ties_away and not table.refusal(new, cfg) and layout(only[1], cfg) is not None:
            found[op.name] = new
            gone.add(move.name)
    ops = tuple(found.get(op.name, op) for op in graph.ops if op.name not in gone)
    return replace(graph, ops=ops) if found else graph


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
