"""Shapes that a .tflite file computes: integer operators on constants and on sizes, which are known when it is read.

Networks exported with an open batch size have them before reshapes and transposed convolutions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from .file import FileNode, Info

INTEGERS = ("INT32", "INT64")


def ranges(
    node: FileNode, shape: Sequence[int], begin: Sequence[int], end: Sequence[int], strides: Sequence[int]
) -> list[range]:
    """The indices that a STRIDED_SLICE takes of each dimension, by its five masks.

    A new axis takes none; an ellipsis, and what follows the last entry, takes whole dimensions. Raises `ValueError`
    where there are more entries than dimensions.
    """
    masks = {name: node.option(f"{name}Mask", 0) for name in ("begin", "end", "ellipsis", "newAxis", "shrinkAxis")}
    entries = [k for k in range(len(begin)) if not masks["newAxis"] >> k & 1 or masks["ellipsis"] >> k & 1]
    whole = len(shape) - sum(not masks["ellipsis"] >> k & 1 for k in entries)
    if whole < 0:
        raise ValueError(f"{len(begin)} entries for {len(shape)} dimensions")
    found: list[range] = []
    for k in entries:
        if masks["ellipsis"] >> k & 1:
            found += map(range, shape[len(found) : len(found) + whole])
            continue
        n, first, last, step = shape[len(found)], int(begin[k]), int(end[k]), int(strides[k])
        last += first if node.option("offset", False) else 0
        if masks["shrinkAxis"] >> k & 1:
            first += n if first < 0 else 0
            found.append(range(first, first + 1))
            continue
        limits = None if masks["begin"] >> k & 1 else first, None if masks["end"] >> k & 1 else last
        found.append(range(n)[slice(*limits, step)])
    return found + [range(n) for n in shape[len(found) :]]


def fold_constants(node: FileNode, tensors: Sequence[Info]) -> np.ndarray | None:
    """The integers that the node computes; None unless its output is an integer tensor and its inputs are
    known and consistent."""
    if not node.outputs:
        return None
    output = tensors[node.outputs[0]]
    if output.type not in INTEGERS or len(node.outputs) > 1 or node.kind not in _EVALUATORS:
        return None
    inputs = [tensors[k] for k in node.inputs if k >= 0]
    arrays = [np.array(t.shape) if node.kind == "SHAPE" else t.data for t in inputs]
    known = [a for a in arrays if a is not None]
    if len(known) < len(arrays):
        return None
    dtype = np.int32 if output.type == "INT32" else np.int64
    try:
        return np.asarray(_EVALUATORS[node.kind](node, known), dtype).reshape(output.shape)
    except (ValueError, IndexError, TypeError):  # inconsistent inputs, in a damaged file
        return None


def _strided_slice(node: FileNode, arrays: list[np.ndarray]) -> np.ndarray:
    x, begin, end, strides = arrays
    found = ranges(node, x.shape, begin.tolist(), end.tolist(), strides.tolist())
    return x[np.ix_(*found)] if found else x


def _binary(function: Callable) -> Callable:
    return lambda node, arrays: function(arrays[0], arrays[1])


def _same(node: FileNode, arrays: list[np.ndarray]) -> np.ndarray:
    return arrays[0]


_EVALUATORS: dict[str, Callable] = {
    "SHAPE": _same,
    "STRIDED_SLICE": _strided_slice,
    "PACK": lambda node, arrays: np.stack(arrays, node.option("axis", 0)),
    "CONCATENATION": lambda node, arrays: np.concatenate([np.atleast_1d(a) for a in arrays], node.option("axis", 0)),
    "GATHER": lambda node, arrays: np.take(arrays[0], arrays[1], node.option("axis", 0)),
    "ADD": _binary(np.add),
    "SUB": _binary(np.subtract),
    "MUL": _binary(np.multiply),
    "FLOOR_DIV": _binary(np.floor_divide),
    "REDUCE_PROD": lambda node, arrays: arrays[0].prod(tuple(arrays[1].reshape(-1)), keepdims=False),
    "CAST": _same,
    "RESHAPE": _same,
    "SQUEEZE": _same,
    "EXPAND_DIMS": _same,
}
