"""Operators of .tflite files that move values without changing them: shapes, slices, splits, gathers, blocks of pixels.

Indices are in the file's layout (NHWC), and become those of NCHW for images.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ....runtime.hostops.resize import nearest
from ... import graph as g
from ...graph import tables
from ..core import Refused, like
from ..moves import TO_NCHW, TO_NHWC, along, padded, strides, turned
from . import layers, numbers
from .builder import TfliteImporter, dimension
from .file import FileNode
from .shapes import ranges

CANONICAL_AXIS = dict(enumerate(TO_NHWC))  # NHWC axis -> NCHW axis


def concatenation(imp: TfliteImporter, node: FileNode) -> None:
    """CONCATENATION of activations and constants."""
    y = imp.result(node)
    rank = len(y.shape)
    axis = dimension(node.option("axis", 0), rank)
    if y.dtype in ("int8", "int16") and layers.clamp(node, y) != layers.every(y):
        raise Refused("has a fused activation, which is not supported")
    inputs = tuple(_copied(imp, node, k, y) for k in range(len(node.inputs)))
    imp.produce(node, g.Concat(node.name, inputs, y, CANONICAL_AXIS[axis] if rank == 4 else axis))


def _copied(imp: TfliteImporter, node: FileNode, position: int, y: g.Tensor) -> g.Tensor:
    """An input in the quantisation of the output, which only uint8 files may change."""
    x = imp.activation(node, position, dtype=None)
    if (x.scale, x.zero_point) == (y.scale, y.zero_point) or not imp.info(node, position).unsigned:
        return x
    part, table = (
        replace(x, name=f"{node.name}.{position}", scale=y.scale, zero_point=y.zero_point),
        tables.copied(x, y),
    )
    if x.data is not None:
        return replace(part, name=imp.unused(part.name), data=table[x.data.astype(int) + 128])
    return imp.add(g.Lookup, (x,), part, "copy", table)


def pad(imp: TfliteImporter, node: FileNode) -> None:
    """PAD with the zero point, or PADV2 with a value of its own."""
    x, y = imp.activation(node, 0, dtype=None), imp.result(node)
    rows = imp.pairs(node, 1)
    padding = imp.file.tensors[node.outputs[0]].zero_point  # of the file's output, whatever the input's is
    value = imp.number(node, 2) if node.kind == "PADV2" else int(padding[0]) if padding.size else 0
    if len(rows) != len(x.shape):
        raise Refused(f"pads {len(rows)} dimensions of input {x.name!r}, which has {len(x.shape)}")
    pads = tuple((before, after) for before, after in ([rows[k] for k in TO_NCHW] if len(rows) == 4 else rows))
    imp.produce(node, g.Pad(node.name, (x,), y, pads, value))


# RESHAPE and its variants; the output has the new shape
reshape = layers.unary(lambda imp, node, x, y: g.Reshape(node.name, (x,), y), plain=True, dtype=None)


def transpose(imp: TfliteImporter, node: FileNode) -> None:
    """TRANSPOSE by constant axes."""
    x, axes = imp.activation(node, 0, dtype=None), tuple(int(a) for a in imp.known(node, 1).reshape(-1))
    if len(axes) == 4:  # from NCHW to the file's layout, exchange, and back
        axes = tuple(TO_NHWC[axes[k]] for k in TO_NCHW)
    imp.produce(node, g.Transpose(node.name, (x,), imp.result(node), axes))


def take(imp: TfliteImporter, node: FileNode) -> None:
    """SLICE; the output has the sizes."""
    x, y = imp.activation(node, 0, dtype=None), imp.result(node)
    begin = [int(b) for b in imp.known(node, 1).reshape(-1)]
    begin = [begin[k] for k in TO_NCHW] if len(begin) == 4 else begin
    imp.produce(node, g.StridedSlice(node.name, (x,), y, tuple(begin), (1,) * len(begin)))


def strided_slice(imp: TfliteImporter, node: FileNode) -> None:
    """STRIDED_SLICE with all its masks."""
    x, y = imp.activation(node, 0, plain=True, dtype=None), imp.result(node, plain=True)
    given = [[int(v) for v in imp.known(node, k).reshape(-1)] for k in (1, 2, 3)]
    if len({*map(len, given)}) > 1 or 0 in given[2]:
        raise Refused(f"has begin, end and strides {given}")
    try:
        found = ranges(node, x.shape, *given)
    except ValueError as exc:
        raise Refused(f"slices input {x.name!r} by {exc}") from None
    if not all(found):
        raise Refused(f"selects no element along dimension {[bool(indices) for indices in found].index(False)}")
    sizes = tuple(map(len, found))
    if sizes == y.shape and len(sizes) == 4:
        x, y = imp.canonical(x, node, 0), imp.result(node)
        imp.produce(node, g.StridedSlice(node.name, (x,), y, *strides([found[k] for k in TO_NCHW])))
        return
    imp.produce_as(node, y, sizes, "slice", lambda out: g.StridedSlice(node.name, (x,), out, *strides(found)))


def split(imp: TfliteImporter, node: FileNode) -> None:
    """SPLIT into equal parts, SPLIT_V into parts of given sizes; the outputs have the sizes."""
    position, where = (0, 2) if node.kind == "SPLIT_V" else (1, 0)
    x, rank = imp.activation(node, position, dtype=None), len(imp.info(node, position).shape)
    axis = dimension(int(imp.number(node, where)), rank)
    axis, start = CANONICAL_AXIS[axis] if rank == 4 else axis, 0
    for k in range(len(node.outputs)):
        y = imp.result(node, k)
        end = start + y.shape[axis]
        part = strides(along(x.shape, axis, range(start, end)))
        imp.produce(node, g.StridedSlice(f"{node.name}.{k}", (x,), y, *part), k)
        start = end


def pack(imp: TfliteImporter, node: FileNode) -> None:
    """PACK: stack the inputs along a new axis."""
    y, rank = imp.result(node, plain=True), len(imp.file.tensors[node.outputs[0]].shape)
    axis = dimension(node.option("axis", 0), rank)
    part = tuple(1 if a == axis else n for a, n in enumerate(y.shape))
    given = [imp.activation(node, k, plain=True, dtype=None) for k in range(len(node.inputs))]
    parts = tuple(imp.reshape(f"{node.name}.{k}", x, part) for k, x in enumerate(given))
    imp.produce(node, g.Concat(node.name, parts, y, axis), plain=True)


def unpack(imp: TfliteImporter, node: FileNode) -> None:
    """UNPACK: split along an axis, and drop it."""
    x = imp.activation(node, 0, plain=True, dtype=None)
    axis = dimension(node.option("axis", 0), len(x.shape))
    for k in range(len(node.outputs)):
        y, indices = imp.result(node, k, plain=True), along(x.shape, axis, range(k, k + 1))
        part = like(y, f"{node.name}.{k}", map(len, indices))
        part = imp.add(g.StridedSlice, (x,), part, *strides(indices))
        imp.produce(node, g.Reshape(f"{part.name}.reshape", (part,), y), k, plain=True)


def resize_flags(imp: TfliteImporter, node: FileNode) -> tuple[bool, bool]:
    """(align_corners, half_pixel_centers) of a resize; the output has the size."""
    imp.known(node, 1)
    layers.image(imp.activation(node, 0, dtype=None))
    return bool(node.option("alignCorners", False)), bool(node.option("halfPixelCenters", False))


def resize_nearest(imp: TfliteImporter, node: FileNode) -> None:
    """RESIZE_NEAREST_NEIGHBOR, as a gather along each changed dimension."""
    x, y, flags = imp.activation(node, 0, dtype=None), imp.result(node), resize_flags(imp, node)
    rows, columns = (tuple(nearest(x.shape[k], y.shape[k], *flags)) for k in (2, 3))
    imp.produce(node, g.Take(node.name, (x,), y, ((), (), rows, columns)))


def _taken(imp: TfliteImporter, node: FileNode, indices: Callable[[int, int, int], Sequence[int]]) -> None:
    """Append a `Take` of `indices(dimension, size, output's size)`, in the file's layout."""
    x, y = imp.activation(node, 0, plain=True, dtype=None), imp.result(node, plain=True)
    if len(x.shape) != len(y.shape):
        x = imp.reshape(f"{node.name}.rank", x, (1,) * (len(y.shape) - len(x.shape)) + x.shape)
    found = [indices(k, n, y.shape[k]) for k, n in enumerate(x.shape)]
    kept = tuple(() if list(i) == [*range(n)] else tuple(int(v) for v in i) for i, n in zip(found, x.shape))
    if len(kept) != 4:
        imp.produce(node, g.Take(node.name, (x,), y, kept), plain=True)
        return
    x, y = imp.canonical(x, node, 0), imp.result(node)
    imp.produce(node, g.Take(node.name, (x,), y, tuple(kept[k] for k in TO_NCHW)))


def repeat(imp: TfliteImporter, node: FileNode) -> None:
    """TILE repeats the input along every dimension, BROADCAST_TO along dimensions of 1."""
    imp.known(node, 1)
    _taken(imp, node, lambda k, n, out: [i % n for i in range(out)])


def reverse(imp: TfliteImporter, node: FileNode) -> None:
    """REVERSE_V2: the dimensions of the list from last to first."""
    rank = len(imp.info(node, 0).shape)
    axes = {dimension(int(a), rank) for a in imp.known(node, 1).reshape(-1)}
    _taken(imp, node, lambda k, n, out: range(n)[::-1] if k in axes else range(n))


def mirror_pad(imp: TfliteImporter, node: FileNode) -> None:
    """MIRROR_PAD: the input reflected at its edges, which with mode 1 (SYMMETRIC) are repeated."""
    rows, edge = imp.pairs(node, 1), node.option("mode", 0)
    if len(rows) != len(imp.info(node, 0).shape):
        raise Refused(f"pads {len(rows)} dimensions of {len(imp.info(node, 0).shape)}")

    def mirrored(k: int, n: int, out: int) -> list[int]:
        before, after = rows[k]
        if max(before, after) > n - 1 + edge:
            raise Refused(f"reflects {max(before, after)} elements of {n}")
        return np.pad(np.arange(n), (before, after), mode="symmetric" if edge else "reflect").tolist()

    _taken(imp, node, mirrored)


def gather(imp: TfliteImporter, node: FileNode) -> None:
    """GATHER of constant or computed positions along one axis."""
    x, y = imp.activation(node, 0, plain=True, dtype=None), imp.result(node, plain=True)
    if imp.info(node, 1).data is None or node.option("batchDims", 0):
        numbers.gather(imp, node)
        return
    where, axis = imp.known(node, 1), dimension(node.option("axis", 0), len(x.shape))
    found = tuple(int(i) for i in where.reshape(-1))
    shape = (*x.shape[:axis], len(found), *x.shape[axis + 1 :])
    indices = tuple(found if k == axis else () for k in range(len(x.shape)))
    imp.produce_as(node, y, shape, "rows", lambda out: g.Take(node.name, (x,), out, indices))


def _moved(imp: TfliteImporter, node: FileNode, x: g.Tensor, split: tuple[int, ...], axes: tuple[int, ...]) -> g.Tensor:
    """`x` as `split`, its dimensions then in the order `axes`."""
    return turned(imp, f"{node.name}.moved", imp.reshape(f"{node.name}.blocks", x, split), axes)


def _emit(imp: TfliteImporter, node: FileNode, x: g.Tensor) -> None:
    """`x` in the shape of the node's output."""
    imp.produce(node, g.Reshape(node.name, (x,), imp.result(node, plain=True)), plain=True)


def _image(imp: TfliteImporter, node: FileNode) -> g.Tensor:
    x = imp.activation(node, 0, plain=True, dtype=None)
    if len(x.shape) != 4:
        raise Refused(f"has input {x.name!r} of {len(x.shape)} dimensions; only 4 are supported")
    return x


def depth_to_space(imp: TfliteImporter, node: FileNode) -> None:
    """DEPTH_TO_SPACE: channels to blocks of pixels."""
    x, b = _image(imp, node), max(1, node.option("blockSize", 1))
    n, h, w, c = x.shape
    if c % (b * b):
        raise Refused(f"has {c} channels, which are not whole blocks of {b} x {b}")
    _emit(imp, node, _moved(imp, node, x, (n, h, w, b, b, c // b // b), (0, 1, 3, 2, 4, 5)))


def space_to_depth(imp: TfliteImporter, node: FileNode) -> None:
    """SPACE_TO_DEPTH: blocks of pixels to channels."""
    x, b = _image(imp, node), max(1, node.option("blockSize", 1))
    n, h, w, c = x.shape
    if h % b or w % b:
        raise Refused(f"has an image of {h} x {w}, which is not whole blocks of {b} x {b}")
    _emit(imp, node, _moved(imp, node, x, (n, h // b, b, w // b, b, c), (0, 1, 3, 2, 4, 5)))


def _parameters(imp: TfliteImporter, node: FileNode) -> tuple[g.Tensor, list[int], list[list[int]]]:
    """The input, the block's size in each spatial dimension, and (before, after) of pads or crops."""
    x = imp.activation(node, 0, plain=True, dtype=None)
    sizes = [int(n) for n in imp.known(node, 1).reshape(-1)]
    edges = imp.pairs(node, 2)
    if len(edges) != len(sizes) or not 1 <= len(sizes) < len(x.shape) or min(sizes) < 1 or min(map(min, edges)) < 0:
        raise Refused(f"has blocks {sizes} and edges {edges} for input {x.name!r} of shape {x.shape}")
    return x, sizes, edges


def space_to_batch(imp: TfliteImporter, node: FileNode) -> None:
    """SPACE_TO_BATCH_ND: pads, and takes every n-th pixel to an image of its own."""
    x, sizes, edges = _parameters(imp, node)
    m, rest = len(sizes), x.shape[1 + len(sizes) :]
    if any(map(any, edges)):
        pads = ((0, 0), *((int(a), int(b)) for a, b in edges), *((0, 0) for _ in rest))
        x = padded(imp, f"{node.name}.padded", x, pads, x.zero_point)
    if any(n % b for n, b in zip(x.shape[1:], sizes)):
        raise Refused(f"has an image of {x.shape[1 : 1 + m]}, padded, which is not whole blocks of {sizes}")
    pairs = [size for n, b in zip(x.shape[1:], sizes) for size in (n // b, b)]
    split = (x.shape[0], *pairs, *rest)
    order = (*range(2, 2 * m + 1, 2), 0, *range(1, 2 * m, 2), *range(2 * m + 1, len(split)))
    _emit(imp, node, _moved(imp, node, x, split, order))


def batch_to_space(imp: TfliteImporter, node: FileNode) -> None:
    """BATCH_TO_SPACE_ND: interleaves images to one, and crops it."""
    x, sizes, edges = _parameters(imp, node)
    m, blocks = len(sizes), math.prod(sizes)
    if x.shape[0] % blocks:
        raise Refused(f"has {x.shape[0]} images, which are not whole blocks of {sizes}")
    split = (*sizes, x.shape[0] // blocks, *x.shape[1:])
    pairs = [axis for k in range(m) for axis in (m + 1 + k, k)]
    y = _moved(imp, node, x, split, (m, *pairs, *range(2 * m + 1, len(split))))
    whole = (split[m], *(n * b for n, b in zip(x.shape[1:], sizes)), *x.shape[1 + m :])
    y = imp.reshape(f"{node.name}.image", y, whole)
    if not any(map(any, edges)):
        _emit(imp, node, y)
        return
    begin = (0, *(int(a) for a, _ in edges), *(0 for _ in x.shape[1 + m :]))
    result = imp.result(node, plain=True)
    imp.produce(node, g.StridedSlice(node.name, (y,), result, begin, (1,) * len(begin)), plain=True)
