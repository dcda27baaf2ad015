"""Operators of ONNX that order, resize and pick elements, as elementary ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from onnx import TensorProto

from ..core import Node
from .nodes import LIKE, REAL, Chain, Reader, Rewrite


def _global_pool(reduction: str) -> Rewrite:
    def rewrite(reader: Reader, node: Node) -> list[Node]:
        axes = list(range(2, len(reader.shapes[node.inputs[0]])))
        return [Node(reduction, node.name, node.inputs[:1], node.outputs, {"axes": axes})]

    return rewrite


def _depth_to_space(reader: Reader, node: Node) -> list[Node]:
    n, c, h, w = reader.shapes[node.inputs[0]]
    size, chain = node.attrs["blocksize"], Chain(reader, node)
    crd = node.attrs.get("mode", b"DCR") == b"CRD"
    split = [n, c // size**2, size, size, h, w] if crd else [n, size, size, c // size**2, h, w]
    y = chain.add("Reshape", node.inputs[0], np.array(split, np.int64))
    y = chain.add("Transpose", y, perm=[0, 1, 4, 2, 5, 3] if crd else [0, 3, 4, 1, 5, 2])
    chain.add("Reshape", y, np.array([n, c // size**2, h * size, w * size], np.int64))
    return chain.finish()


def _space_to_depth(reader: Reader, node: Node) -> list[Node]:
    n, c, h, w = reader.shapes[node.inputs[0]]
    size, chain = node.attrs["blocksize"], Chain(reader, node)
    y = chain.add("Reshape", node.inputs[0], np.array([n, c, h // size, size, w // size, size], np.int64))
    y = chain.add("Transpose", y, perm=[0, 3, 5, 1, 2, 4])
    chain.add("Reshape", y, np.array([n, c * size**2, h // size, w // size], np.int64))
    return chain.finish()


def _resize(reader: Reader, node: Node) -> list[Node] | None:
    """A gather per axis for the nearest pixels, else a matrix per axis."""
    x, nearest = node.inputs[0], node.attrs.get("mode", b"nearest") == b"nearest"
    sizes, scales = (reader.value(t) if t else None for t in (node.input(3), node.input(2)))
    crops = node.attrs.get("coordinate_transformation_mode", b"half_pixel") == b"tf_crop_and_resize"
    stretched = node.attrs.get("keep_aspect_ratio_policy", b"stretch") == b"stretch"
    if crops or not stretched or node.attrs.get("antialias", 0):
        return None
    given, by_size = (sizes, True) if sizes is not None and sizes.size else (scales, False)
    if given is None:
        return None
    shape, chain = reader.shapes[x], Chain(reader, node)
    axes = [k % len(shape) for k in node.attrs.get("axes", range(len(shape)))]
    changed = [k for k, axis in enumerate(axes) if given[k] != (shape[axis] if by_size else 1)]
    if not nearest and any(axes[k] < len(shape) - 2 for k in changed):
        return None
    integers = not nearest and reader.types[x] != TensorProto.FLOAT
    if integers:
        x = chain.add(REAL, x)
    for k in changed:
        matrix = _along(reader, node, shape[axes[k]], given[k], by_size)
        if nearest:
            x = chain.add("Gather", x, matrix.argmax(1).astype(np.int64), axis=axes[k])
        elif axes[k] == len(shape) - 1:
            x = chain.add("MatMul", x, np.ascontiguousarray(matrix.T))
        else:
            x = chain.add("MatMul", matrix, x)
    if integers:
        chain.add(LIKE, x, node.inputs[0])
    return chain.finish() if chain.nodes else [Node("Identity", node.name, [x], node.outputs)]


def _along(reader: Reader, node: Node, size: int, given: np.ndarray, by_size: bool) -> np.ndarray:
    """float32 (new size, size): what a resize does along one axis, by ONNX's reference."""
    kept = {key: value for key, value in node.attrs.items() if key != "axes"}
    one = Node("Resize", "resize", ["x", "", "", "given"] if by_size else ["x", "", "given"], ["y"], kept)
    amounts = np.array([size if by_size else 1, given], np.int64 if by_size else np.float32)
    (rows,) = reader.evaluate(one, [np.eye(size, dtype=np.float32), amounts])
    return np.ascontiguousarray(rows.T, np.float32)


def _average_pool(reader: Reader, node: Node) -> list[Node] | None:
    """Padding that counts, and windows that reach behind it, where nothing counts: explicit padding with zeros."""
    attrs, rank = node.attrs, len(reader.shapes[node.inputs[0]])
    pads = attrs.get("pads", [])
    if not (attrs.get("count_include_pad", 0) and attrs.get("ceil_mode", 0) and any(pads)):
        return None
    chain, half = Chain(reader, node), len(pads) // 2
    amounts = [*[0] * (rank - half), *pads[:half], *[0] * (rank - half), *pads[half:]]
    kept = {key: value for key, value in attrs.items() if key not in ("pads", "count_include_pad")}
    chain.add("AveragePool", chain.add("Pad", node.inputs[0], np.array(amounts, np.int64)), **kept)
    return chain.finish()


def _elements(indices: np.ndarray, axis: int, shape: Sequence[int]) -> np.ndarray:
    """The positions in a flat array of `shape` of the elements at `indices` of `axis`, one per element of them."""
    places = np.indices(indices.shape)
    places[axis] = indices % shape[axis]
    return np.asarray(np.ravel_multi_index(tuple(places), tuple(shape)))


def _rows(indices: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """The numbers of the parts of `shape` at `indices`, whose last dimension counts along the first of `shape`."""
    count = indices.shape[-1]
    places = np.moveaxis(indices % np.array(shape[:count]), -1, 0)
    return np.asarray(np.ravel_multi_index(tuple(places), tuple(shape[:count])))


def _gather_nd(reader: Reader, node: Node) -> list[Node] | None:
    indices, shape = reader.value(node.inputs[1]), reader.shapes[node.inputs[0]]
    if indices is None or node.attrs.get("batch_dims", 0):
        return None
    rest, chain = shape[indices.shape[-1] :], Chain(reader, node)
    rows = _rows(indices, shape)
    flat = chain.reshape(node.inputs[0], -1, *rest)
    chain.reshape(chain.add("Gather", flat, rows.reshape(-1).astype(np.int64), axis=0), *rows.shape, *rest)
    return chain.finish()


def _gather_elements(reader: Reader, node: Node) -> list[Node] | None:
    indices, shape = reader.value(node.inputs[1]), reader.shapes[node.inputs[0]]
    if indices is None:
        return None
    chain, places = Chain(reader, node), _elements(indices, node.attrs.get("axis", 0) % len(shape), shape)
    flat = chain.reshape(node.inputs[0], -1)
    chain.reshape(chain.add("Gather", flat, places.reshape(-1).astype(np.int64), axis=0), *indices.shape)
    return chain.finish()


def _scatter(find: Callable[[np.ndarray, Node, Sequence[int]], np.ndarray]) -> Rewrite:
    """The data and behind it the updates: of both, each element is the last that was written to its place."""

    def rewrite(reader: Reader, node: Node) -> list[Node] | None:
        x, where, updates = node.inputs
        indices, shape = reader.value(where), reader.shapes[x]
        if indices is None or node.attrs.get("reduction", b"none") != b"none":
            return None
        size = math.prod(shape)
        places, chain = np.arange(size), Chain(reader, node)
        written = find(indices, node, shape).reshape(-1)
        places[written] = size + np.arange(written.size)
        both = chain.add("Concat", chain.reshape(x, -1), chain.reshape(updates, -1), axis=0)
        chain.reshape(chain.add("Gather", both, places.astype(np.int64), axis=0), *shape)
        return chain.finish()

    return rewrite


def _nd(indices: np.ndarray, node: Node, shape: Sequence[int]) -> np.ndarray:
    each = math.prod(shape[indices.shape[-1] :])
    return _rows(indices, shape)[..., None] * each + np.arange(each)


LAYOUTS: dict[str, Rewrite] = {
    "AveragePool": _average_pool,
    "DepthToSpace": _depth_to_space,
    "GlobalAveragePool": _global_pool("ReduceMean"),
    "GlobalMaxPool": _global_pool("ReduceMax"),
    "Resize": _resize,
    "SpaceToDepth": _space_to_depth,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "ScatterElements": _scatter(lambda indices, node, shape: _elements(indices, node.attrs.get("axis", 0), shape)),
    "ScatterND": _scatter(_nd),
}
