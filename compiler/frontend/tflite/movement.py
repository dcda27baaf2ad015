"""Operators of .tflite files that move values without changing them."""

from __future__ import annotations

from ... import graph as g
from . import layers
from .file import FileNode
from .importer import TO_NCHW, TO_NHWC, Refused, TfliteImporter
from .shapes import ranges

CANONICAL_AXIS = dict(enumerate(TO_NHWC))  # NHWC axis -> NCHW axis


def concatenation(imp: TfliteImporter, node: FileNode) -> None:
    """CONCATENATION of activations and constants."""
    y = imp.result(node)
    rank = len(y.shape)
    axis = node.option("axis", 0) % rank
    if layers.clamp(node, y) != (-128, 127):
        raise Refused("has a fused activation, which is not supported")
    inputs = tuple(imp.activation(node, k) for k in range(len(node.inputs)))
    imp.emit(node, g.Concat(node.name, inputs, y, CANONICAL_AXIS[axis] if rank == 4 else axis))


def pad(imp: TfliteImporter, node: FileNode) -> None:
    """PAD with the zero point, or PADV2 with a value of its own."""
    x, y = imp.activation(node, 0), imp.result(node)
    rows = imp.constant(node, 1).reshape(-1, 2).tolist()
    value = int(imp.constant(node, 2).item()) if node.kind == "PADV2" else y.zero_point
    if len(rows) != len(x.shape):
        raise Refused(f"pads {len(rows)} dimensions of input {x.name!r}, which has {len(x.shape)}")
    pads = tuple((before, after) for before, after in ([rows[k] for k in TO_NCHW] if len(rows) == 4 else rows))
    imp.emit(node, g.Pad(node.name, (x,), y, pads, value))


def reshape(imp: TfliteImporter, node: FileNode) -> None:
    """RESHAPE and its variants; the new shape is that of the output."""
    x, y = imp.activation(node, 0, plain=True, dtype=None), imp.result(node, plain=True)
    imp.emit(node, g.Reshape(node.name, (x,), y), plain=True)


def transpose(imp: TfliteImporter, node: FileNode) -> None:
    """TRANSPOSE."""
    x, axes = imp.activation(node, 0, dtype=None), tuple(int(a) for a in imp.constant(node, 1).reshape(-1))
    if len(axes) == 4:  # from NCHW to the file's layout, exchange, and back
        axes = tuple(TO_NHWC[axes[k]] for k in TO_NCHW)
    imp.emit(node, g.Transpose(node.name, (x,), imp.result(node), axes))


def take(imp: TfliteImporter, node: FileNode) -> None:
    """SLICE: sizes are those of the output."""
    x, y = imp.activation(node, 0), imp.result(node)
    begin = [int(b) for b in imp.constant(node, 1).reshape(-1)]
    begin = [begin[k] for k in TO_NCHW] if len(begin) == 4 else begin
    imp.emit(node, g.StridedSlice(node.name, (x,), y, tuple(begin), (1,) * len(begin)))


def strided_slice(imp: TfliteImporter, node: FileNode) -> None:
    """STRIDED_SLICE with begin, end and shrink-axis masks."""
    masks = {name: node.option(f"{name}Mask", 0) for name in ("begin", "end", "ellipsis", "newAxis", "shrinkAxis")}
    if masks["ellipsis"] or masks["newAxis"] or node.option("offset", False):
        raise Refused("has an ellipsis mask, a new-axis mask or an end that is an offset, which are not supported")
    x, y = imp.activation(node, 0, plain=True), imp.result(node, plain=True)
    given = [[int(v) for v in imp.constant(node, k).reshape(-1)] for k in (1, 2, 3)]
    if {len(values) for values in given} != {len(x.shape)} or 0 in given[2]:
        raise Refused(f"slices {len(given[0])} dimensions of input {x.name!r}, which has {len(x.shape)}")
    found = ranges(node, x.shape, *given)
    if not all(found):
        raise Refused(f"selects no element along dimension {[bool(indices) for indices in found].index(False)}")
    begin, sizes = [indices[0] for indices in found], [len(indices) for indices in found]
    steps = tuple(step if n > 1 else 1 for step, n in zip(given[2], sizes))
    if not masks["shrinkAxis"] and len(sizes) == 4:
        x, y = imp.activation(node, 0), imp.result(node)
        begin, steps = (tuple(values[k] for k in TO_NCHW) for values in (begin, steps))
        imp.emit(node, g.StridedSlice(node.name, (x,), y, begin, steps))
        return
    part = y
    if masks["shrinkAxis"]:
        part = g.Tensor(imp.unused(f"{y.name}.slice"), tuple(sizes), y.dtype, y.scale, y.zero_point)
    op = g.StridedSlice(node.name, (x,), part, tuple(begin), steps)
    if masks["shrinkAxis"]:
        imp.ops.append(op)
        op = g.Reshape(f"{node.name}.reshape", (part,), y)
    imp.emit(node, op, plain=True)


def split(imp: TfliteImporter, node: FileNode) -> None:
    """SPLIT into equal parts."""
    x, rank = imp.activation(node, 1), len(imp.info(node, 1).shape)
    axis = int(imp.constant(node, 0).item()) % rank
    axis, start = CANONICAL_AXIS[axis] if rank == 4 else axis, 0
    for k in range(len(node.outputs)):
        y = imp.result(node, k)
        begin = tuple(start if a == axis else 0 for a in range(rank))
        imp.emit(node, g.StridedSlice(f"{node.name}.{k}", (x,), y, begin, (1,) * rank), k)
        start += y.shape[axis]


def pack(imp: TfliteImporter, node: FileNode) -> None:
    """PACK: stack the inputs along a new axis."""
    y, rank = imp.result(node, plain=True), len(imp.file.tensors[node.outputs[0]].shape)
    axis = node.option("axis", 0) % rank
    part = tuple(1 if a == axis else n for a, n in enumerate(y.shape))
    given = [imp.activation(node, k, plain=True) for k in range(len(node.inputs))]
    parts = tuple(imp.reshape(f"{node.name}.{k}", x, part) for k, x in enumerate(given))
    imp.emit(node, g.Concat(node.name, parts, y, axis), plain=True)


def unpack(imp: TfliteImporter, node: FileNode) -> None:
    """UNPACK: split along an axis, and drop it."""
    x = imp.activation(node, 0, plain=True)
    rank = len(x.shape)
    axis = node.option("axis", 0) % rank
    shape = tuple(1 if a == axis else n for a, n in enumerate(x.shape))
    for k in range(len(node.outputs)):
        y = imp.result(node, k, plain=True)
        part = g.Tensor(imp.unused(f"{node.name}.{k}"), shape, y.dtype, y.scale, y.zero_point)
        begin = tuple(k if a == axis else 0 for a in range(rank))
        imp.ops.append(g.StridedSlice(part.name, (x,), part, begin, (1,) * rank))
        imp.emit(node, g.Reshape(f"{part.name}.reshape", (part,), y), k, plain=True)
