"""Operators of .tflite files that move blocks of pixels: between depth and space, and between batch and space.

Each is reshapes and one transposition, in the file's layout.
"""

from __future__ import annotations

from dataclasses import replace

from ... import graph as g
from .file import FileNode
from .importer import Refused, TfliteImporter


def _moved(imp: TfliteImporter, node: FileNode, x: g.Tensor, split: tuple[int, ...], axes: tuple[int, ...]) -> g.Tensor:
    """`x` as `split`, its dimensions then in the order `axes`."""
    x = imp.reshape(f"{node.name}.blocks", x, split)
    y = replace(x, name=f"{node.name}.moved", shape=tuple(split[a] for a in axes))
    return imp.add(g.Transpose, (x,), y, axes)


def _emit(imp: TfliteImporter, node: FileNode, x: g.Tensor) -> None:
    """`x` in the shape of the node's output."""
    imp.emit(node, g.Reshape(node.name, (x,), imp.result(node, plain=True)), plain=True)


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
    sizes = [int(n) for n in imp.constant(node, 1).reshape(-1)]
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
        shape = tuple(n + a + b for n, (a, b) in zip(x.shape, pads))
        x = imp.add(g.Pad, (x,), replace(x, name=f"{node.name}.padded", shape=shape), pads, x.zero_point)
    if any(n % b for n, b in zip(x.shape[1:], sizes)):
        raise Refused(f"has an image of {x.shape[1 : 1 + m]}, padded, which is not whole blocks of {sizes}")
    pairs = [size for n, b in zip(x.shape[1:], sizes) for size in (n // b, b)]
    split = (x.shape[0], *pairs, *rest)
    order = (*range(2, 2 * m + 1, 2), 0, *range(1, 2 * m, 2), *range(2 * m + 1, len(split)))
    _emit(imp, node, _moved(imp, node, x, split, order))


def batch_to_space(imp: TfliteImporter, node: FileNode) -> None:
    """BATCH_TO_SPACE_ND: interleaves images to one, and crops it."""
    x, sizes, edges = _parameters(imp, node)
    m, blocks = len(sizes), 1
    for size in sizes:
        blocks *= size
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
    imp.emit(node, g.StridedSlice(node.name, (y,), result, begin, (1,) * len(begin)), plain=True)
