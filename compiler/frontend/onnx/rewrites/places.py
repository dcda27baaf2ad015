"""Operators of ONNX that read or write elements at positions known when the file is read, as one Gather."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ..nodes import Node, Reader, Rewrite
from .chain import Chain


def _along(indices: np.ndarray, axis: int, shape: Sequence[int]) -> np.ndarray:
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
    chain, places = Chain(reader, node), _along(indices, node.attrs.get("axis", 0) % len(shape), shape)
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


PLACES: dict[str, Rewrite] = {
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "ScatterElements": _scatter(lambda indices, node, shape: _along(indices, node.attrs.get("axis", 0), shape)),
    "ScatterND": _scatter(_nd),
}
