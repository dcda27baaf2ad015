"""Operators of .tflite files at the ends of networks whose inputs or outputs are int16 or int32."""

from __future__ import annotations

from ... import graph as g
from .file import FileNode
from .importer import WIDE, Refused, TfliteImporter


def _ends(imp: TfliteImporter, node: FileNode) -> tuple[g.Tensor, g.Tensor]:
    """The input and the output, in the file's layout."""
    ends = imp.info(node, 0), imp.file.tensors[node.outputs[0]]
    for info in ends:
        if info.type in WIDE and info.scale.size != 1:
            raise Refused(f"has {info.type.lower()} tensor {info.name!r} with {info.scale.size} scales; it needs one")
    y = imp.result(node, plain=True, wide=True)
    return imp.activation(node, 0, plain=True, dtype=None), y


def rescale(imp: TfliteImporter, node: FileNode) -> None:
    """QUANTIZE between int8, int16 and int32."""
    x, y = _ends(imp, node)
    imp.emit(node, g.Rescale(node.name, (x,), y), plain=True)


def softmax(imp: TfliteImporter, node: FileNode) -> None:
    """SOFTMAX of int8 as int16."""
    x, y = _ends(imp, node)
    op = g.Softmax16(node.name, (x,), y, len(x.shape) - 1, float(node.option("beta", 0.0)))
    imp.emit(node, op, plain=True)
