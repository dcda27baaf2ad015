"""Shapes that a .tflite file computes: integer operators on constants and on sizes, which are known when it is read.

Networks exported with an open batch size have them before reshapes and transposed convolutions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from .file import FileNode, Info

INTEGERS = {"INT32": np.int32, "INT64": np.int64}
# also folded, by operators that only copy
_OTHERS = {"FLOAT32": np.float32, "INT8": np.int8, "BOOL": np.bool_}


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
            first = 0 if masks["begin"] >> k & 1 else first + n if first < 0 else first
            found.append(range(first, first + 1))
            continue
        limits = None if masks["begin"] >> k & 1 else first, None if masks["end"] >> k & 1 else last
        found.append(range(n)[slice(*limits, step)])
    return found + [range(n) for n in shape[len(found) :]]


def fold_constants(node: FileNode, tensors: Sequence[Info]) -> np.ndarray | None:
    """What the node computes; None unless its inputs are known and consistent, and it computes integers, or copies."""
    if not node.outputs:
        return None
    output = tensors[node.outputs[0]]
    copies = node.kind in (*_COPIES, "DEQUANTIZE")
    dtype = (_OTHERS | INTEGERS if copies else INTEGERS).get(output.type)
    if dtype is None or len(node.outputs) > 1 or not (copies or node.kind in (*_EVALUATORS, "DEQUANTIZE")):
        return None
    inputs = [tensors[k] for k in node.inputs if k >= 0]
    if node.kind == "DEQUANTIZE" and inputs[0].data is not None:
        return _dequantised(node, inputs[0]).reshape(output.shape)
    arrays = [np.array(t.shape) if node.kind in ("SHAPE", "RANK") else t.data for t in inputs]
    known = [a for a in arrays if a is not None]
    if len(known) < len(arrays):
        return None
    try:
        return np.asarray((_COPIES | _EVALUATORS)[node.kind](node, known), dtype).reshape(output.shape)
    except (ValueError, IndexError, TypeError):  # inconsistent inputs, in a damaged file
        return None


def _strided_slice(node: FileNode, arrays: list[np.ndarray]) -> np.ndarray:
    x, begin, end, strides = arrays
    found = ranges(node, x.shape, begin.tolist(), end.tolist(), strides.tolist())
    return x[np.ix_(*found)] if found else x


def _binary(function: Callable) -> Callable:
    return lambda node, arrays: function(arrays[0], arrays[1])


def _dequantised(node: FileNode, x: Info) -> np.ndarray:
    """The real values of a constant; of half precision the same values."""
    assert x.data is not None
    if not x.scale.size:
        return x.data.astype(np.float32)
    along = [1] * x.data.ndim
    if x.scale.size > 1:
        along[x.axis] = x.scale.size
    steps = (x.data.astype(np.int64) - x.zero_point.reshape(along)).astype(np.float32)
    return steps * x.scale.reshape(along)


def _same(node: FileNode, arrays: list[np.ndarray]) -> np.ndarray:
    return arrays[0]


def _slice(node: FileNode, arrays: list[np.ndarray]) -> np.ndarray:
    x, begin, size = arrays
    return x[tuple(slice(b, None if n < 0 else b + n) for b, n in zip(begin.reshape(-1), size.reshape(-1)))]


_COPIES: dict[str, Callable] = {
    "STRIDED_SLICE": _strided_slice,
    "SLICE": _slice,
    "PACK": lambda node, arrays: np.stack(arrays, node.option("axis", 0)),
    "CONCATENATION": lambda node, arrays: np.concatenate([np.atleast_1d(a) for a in arrays], node.option("axis", 0)),
    "GATHER": lambda node, arrays: np.take(arrays[0], arrays[1], node.option("axis", 0)),
    "FILL": lambda node, arrays: np.broadcast_to(arrays[1], arrays[0].reshape(-1)),
    "BROADCAST_TO": lambda node, arrays: np.broadcast_to(arrays[0], arrays[1].reshape(-1)),
    "TILE": lambda node, arrays: np.tile(arrays[0], arrays[1].reshape(-1)),
    "TRANSPOSE": lambda node, arrays: arrays[0].transpose(arrays[1].reshape(-1)),
    "RESHAPE": _same,
    "SQUEEZE": _same,
    "EXPAND_DIMS": _same,
}
_EVALUATORS: dict[str, Callable] = {
    "SHAPE": _same,
    "RANK": lambda node, arrays: arrays[0].size,
    "RANGE": lambda node, arrays: np.arange(*(a.item() for a in arrays)),
    "ZEROS_LIKE": lambda node, arrays: np.zeros_like(arrays[0]),
    "MAXIMUM": _binary(np.maximum),
    "MINIMUM": _binary(np.minimum),
    "FLOOR_MOD": _binary(np.mod),
    "ADD": _binary(np.add),
    "SUB": _binary(np.subtract),
    "MUL": _binary(np.multiply),
    "FLOOR_DIV": _binary(np.floor_divide),
    "REDUCE_PROD": lambda node, arrays: arrays[0].prod(tuple(arrays[1].reshape(-1)), keepdims=False),
    "CAST": _same,
}
