"""Computes what a .tflite file leaves open: the shapes of its tensors, and constants that follow from others.

A file records a shape of each tensor, with 1 where its writer did not know a size: networks exported with an open batch
compute the shapes of their reshapes by operators on integers. As TensorFlow Lite does when it allocates tensors, each
operator's shapes follow from its inputs' shapes and constants (`output_shapes`); a recorded shape stays where nothing
gives another. Operators that copy or compute integers on known values are constants (`fold_constants`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..linear import reach
from .file import FileNode, Info, ModelFile, schema

Shape = tuple[int, ...]


def resolved(file: ModelFile) -> ModelFile:
    """The file with shapes and constants as they follow from its inputs' shapes, operator by operator."""
    tensors = list(file.tensors)
    for node in file.nodes:
        for k, shape in zip(node.outputs, output_shapes(node, tensors)):
            tensors[k] = replace(tensors[k], shape=shape)
        if (value := fold_constants(node, tensors)) is not None:
            tensors[node.outputs[0]] = replace(tensors[node.outputs[0]], data=value)
    return replace(file, tensors=tensors)


class _Known(NamedTuple):
    """The inputs of a node: `shape` of each, and `value`, which raises `LookupError` where it is not constant."""

    node: FileNode
    tensors: Sequence[Info]

    def shape(self, k: int) -> Shape:
        return self._info(k).shape

    def value(self, k: int) -> list[int]:
        """The constant of an input, flat."""
        if (data := self._info(k).data) is None:
            raise LookupError
        return [int(v) for v in data.reshape(-1)]

    def pairs(self, k: int) -> list[list[int]]:
        """The constant of an input, (before, after) of each dimension."""
        values = self.value(k)
        return [values[i : i + 2] for i in range(0, len(values), 2)]

    def _info(self, k: int) -> Info:
        if self.node.inputs[k] < 0:
            raise LookupError
        return self.tensors[self.node.inputs[k]]


def output_shapes(node: FileNode, tensors: Sequence[Info]) -> list[Shape]:
    """The shape of each output: by the shapes and constants of the inputs, or the recorded one where they say none."""
    recorded = [tensors[k].shape for k in node.outputs]
    if node.kind not in _SHAPES:
        return recorded
    try:
        shapes = _SHAPES[node.kind](_Known(node, tensors))
    except (ArithmeticError, LookupError, TypeError, ValueError):  # an input is not constant, or the file is damaged
        return recorded
    shapes = [shapes] * len(recorded) if isinstance(shapes, tuple) else shapes
    sound = len(shapes) == len(recorded) and min((n for shape in shapes for n in shape), default=1) > 0
    return [tuple(map(int, shape)) for shape in shapes] if sound else recorded


def _first(x: _Known) -> Shape:
    return x.shape(0)


def _broadcast(x: _Known) -> Shape:
    return np.broadcast_shapes(*(x.shape(k) for k in range(len(x.node.inputs))))


def _windows(x: _Known, kernel: Sequence[int]) -> Shape:
    """(height, width) of windows of `kernel` pixels, dilation included, on the image at input 0."""
    strides = x.node.option("strideH", 0), x.node.option("strideW", 0)
    same = x.node.option("padding", schema.Padding.SAME) == schema.Padding.SAME
    return tuple(-(-(n if same else n - k + 1) // s) for n, k, s in zip(x.shape(0)[1:3], kernel, strides))


def _convolution(channels: int) -> Callable[[_Known], Shape]:
    """The rule of a convolution whose weights have the output channels in dimension `channels`."""

    def rule(x: _Known) -> Shape:
        weights = x.shape(1)
        dilations = x.node.option("dilationHFactor", 1), x.node.option("dilationWFactor", 1)
        return x.shape(0)[0], *_windows(x, reach(weights[1:3], dilations)), weights[channels]

    return rule


def _pool(x: _Known) -> Shape:
    n, *_, c = x.shape(0)
    return n, *_windows(x, (x.node.option("filterHeight", 0), x.node.option("filterWidth", 0))), c


def _dense(x: _Known) -> Shape:
    units, features = x.shape(1)
    if x.node.option("keepNumDims", False):
        return *x.shape(0)[:-1], units
    return math.prod(x.shape(0)) // features, units


def _batch_matmul(x: _Known) -> Shape:
    (*first, rows, inner), (*second, other, columns) = x.shape(0), x.shape(1)
    rows, columns = inner if x.node.option("adjX", False) else rows, other if x.node.option("adjY", False) else columns
    return *np.broadcast_shapes(tuple(first), tuple(second)), rows, columns


def _reshape(x: _Known) -> Shape:
    shape = x.value(1) if len(x.node.inputs) > 1 else [int(n) for n in x.node.option("newShape", ())]
    size = math.prod(x.shape(0))
    sizes = tuple(size // -math.prod(shape) if n < 0 else n for n in shape)
    if math.prod(sizes) != size:
        raise ValueError
    return sizes


def _squeeze(x: _Known) -> Shape:
    shape, given = x.shape(0), x.node.option("squeezeDims", None)
    axes = [k for k, n in enumerate(shape) if n == 1] if given is None or not len(given) else given
    return _without(shape, axes)


def _without(shape: Shape, axes: Iterable[int]) -> Shape:
    dropped = {a % len(shape) for a in axes}
    return tuple(n for k, n in enumerate(shape) if k not in dropped)


def _inserted(shape: Shape, axis: int, size: int) -> Shape:
    axis %= len(shape) + 1
    return *shape[:axis], size, *shape[axis:]


def _resized(shape: Shape, axis: int, size: int) -> Shape:
    axis %= len(shape)
    return *shape[:axis], size, *shape[axis + 1 :]


def _reduced(x: _Known) -> Shape:
    shape, axes = x.shape(0), x.value(1)
    if not x.node.option("keepDims", False):
        return _without(shape, axes)
    kept = {a % len(shape) for a in axes}
    return tuple(1 if k in kept else n for k, n in enumerate(shape))


def _concatenated(x: _Known) -> Shape:
    axis, shapes = x.node.option("axis", 0), [x.shape(k) for k in range(len(x.node.inputs))]
    return _resized(shapes[0], axis, sum(shape[axis] for shape in shapes))


def _unpacked(x: _Known) -> Shape:
    return _without(x.shape(0), [x.node.option("axis", 0)])


def _split(x: _Known) -> Shape:
    (axis,), shape, count = x.value(0), x.shape(1), len(x.node.outputs)
    return _resized(shape, axis, shape[axis] // count)


def _split_sizes(x: _Known) -> list[Shape]:
    shape, sizes, (axis,) = x.shape(0), x.value(1), x.value(2)
    rest = shape[axis] - sum(n for n in sizes if n >= 0)
    return [_resized(shape, axis, rest if n < 0 else n) for n in sizes]


def _slice_sizes(x: _Known) -> Shape:
    return tuple(n - b if size < 0 else size for n, b, size in zip(x.shape(0), x.value(1), x.value(2), strict=True))


def _strided(x: _Known) -> Shape:
    """The sizes of `ranges`; a new axis has one, an axis to shrink has none."""
    node, begin = x.node, x.value(1)
    sizes = iter(map(len, ranges(node, x.shape(0), begin, x.value(2), x.value(3))))
    new, shrunk, ellipsis = (node.option(f"{name}Mask", 0) for name in ("newAxis", "shrinkAxis", "ellipsis"))
    entries = sum(ellipsis >> k & 1 == 0 and new >> k & 1 == 0 for k in range(len(begin)))
    shape: list[int] = []
    for k in range(len(begin)):
        if ellipsis >> k & 1:
            shape += [next(sizes) for _ in range(len(x.shape(0)) - entries)]
        elif new >> k & 1:
            shape.append(1)
        else:
            size = next(sizes)
            shape += [] if shrunk >> k & 1 else [size]
    return *shape, *sizes


def _gathered(x: _Known) -> Shape:
    shape, where, axis = x.shape(0), x.shape(1), x.node.option("axis", 0) % len(x.shape(0))
    return *shape[:axis], *where[x.node.option("batchDims", 0) % (len(where) + 1) :], *shape[axis + 1 :]


def _gathered_nd(x: _Known) -> Shape:
    *outer, depth = x.shape(1)
    return *outer, *x.shape(0)[depth:]


def _padded(x: _Known) -> Shape:
    return tuple(n + before + after for n, (before, after) in zip(x.shape(0), x.pairs(1), strict=True))


def _blocks_of_space(x: _Known) -> Shape:
    n, h, w, c = x.shape(0)
    b = x.node.option("blockSize", 1)
    return (n, h * b, w * b, c // b // b) if x.node.kind == "DEPTH_TO_SPACE" else (n, h // b, w // b, c * b * b)


def _space_to_batch(x: _Known) -> Shape:
    (n, *size), blocks = x.shape(0), x.value(1)
    inner = [(n + sum(edge)) // b for n, edge, b in zip(size, x.pairs(2), blocks)]
    return n * math.prod(blocks), *inner, *size[len(blocks) :]


def _batch_to_space(x: _Known) -> Shape:
    (n, *size), blocks = x.shape(0), x.value(1)
    inner = [n * b - sum(edge) for n, edge, b in zip(size, x.pairs(2), blocks)]
    return n // math.prod(blocks), *inner, *size[len(blocks) :]


def _one_hot(x: _Known) -> Shape:
    axis = x.node.option("axis", -1)
    return _inserted(x.shape(0), axis, x.value(1)[0])


def _range(x: _Known) -> Shape:
    return (len(range(*(x.value(k)[0] for k in range(3)))),)


def _states(x: _Known) -> Shape:
    """Of an LSTM: the input's, with the size of its state."""
    return *x.shape(0)[:-1], x.shape(18)[-1]


_FIRST = """
    ABS ADD_N CAST CEIL COMPLEX_ABS COS CUMSUM DENSIFY DEQUANTIZE ELU EXP FAKE_QUANT FLOOR GELU HARD_SWISH IMAG
    L2_NORMALIZATION LEAKY_RELU LOG LOGICAL_NOT LOGISTIC LOG_SOFTMAX NEG QUANTIZE REAL RELU RELU6 RELU_0_TO_1
    RELU_N1_TO_1 REVERSE_V2 ROUND RSQRT SIGN SIN SOFTMAX SQRT SQUARE TANH ZEROS_LIKE
"""
_BROADCAST = """
    ADD DIV EQUAL FLOOR_DIV FLOOR_MOD GREATER GREATER_EQUAL LESS LESS_EQUAL LOGICAL_AND LOGICAL_OR MAXIMUM MINIMUM MUL
    NOT_EQUAL POW PRELU SELECT_V2 SQUARED_DIFFERENCE SUB
"""
# operator -> the shapes of its outputs, or of all of them
_SHAPES: dict[str, Callable[[_Known], Shape | list[Shape]]] = {
    **dict.fromkeys(_FIRST.split(), _first),
    **dict.fromkeys(_BROADCAST.split(), _broadcast),
    **dict.fromkeys(("ARG_MAX", "ARG_MIN"), lambda x: _without(x.shape(0), x.value(1))),
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D"), _pool),
    **dict.fromkeys(("DEPTH_TO_SPACE", "SPACE_TO_DEPTH"), _blocks_of_space),
    **dict.fromkeys(("MEAN", "REDUCE_ALL", "REDUCE_ANY", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "SUM"), _reduced),
    **dict.fromkeys(("MIRROR_PAD", "PAD", "PADV2"), _padded),
    **dict.fromkeys(
        ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"), lambda x: (x.shape(0)[0], *x.value(1), x.shape(0)[3])
    ),
    "BATCH_MATMUL": _batch_matmul,
    "BATCH_TO_SPACE_ND": _batch_to_space,
    "BROADCAST_TO": lambda x: np.broadcast_shapes(x.shape(0), tuple(x.value(1))),
    "CONCATENATION": _concatenated,
    "CONV_2D": _convolution(0),
    "DEPTHWISE_CONV_2D": _convolution(3),
    "EMBEDDING_LOOKUP": lambda x: (*x.shape(0), *x.shape(1)[1:]),
    "EXPAND_DIMS": lambda x: _inserted(x.shape(0), x.value(1)[0], 1),
    "FILL": lambda x: tuple(x.value(0)),
    "FULLY_CONNECTED": _dense,
    "GATHER": _gathered,
    "GATHER_ND": _gathered_nd,
    "ONE_HOT": _one_hot,
    "PACK": lambda x: _inserted(x.shape(0), x.node.option("axis", 0), len(x.node.inputs)),
    "RANGE": _range,
    "RANK": lambda x: (),
    "RESHAPE": _reshape,
    "RFFT2D": lambda x: (*x.shape(0)[:-2], x.value(1)[0], x.value(1)[1] // 2 + 1),
    "SELECT": lambda x: x.shape(1),
    "SHAPE": lambda x: (len(x.shape(0)),),
    "SLICE": _slice_sizes,
    "SPACE_TO_BATCH_ND": _space_to_batch,
    "SPLIT": _split,
    "SPLIT_V": _split_sizes,
    "SQUEEZE": _squeeze,
    "STRIDED_SLICE": _strided,
    "SVDF": lambda x: (x.shape(0)[0], x.shape(1)[0] // x.node.option("rank", 0)),
    "TILE": lambda x: tuple(n * times for n, times in zip(x.shape(0), x.value(1), strict=True)),
    "TOPK_V2": lambda x: (*x.shape(0)[:-1], x.value(1)[0]),
    "TRANSPOSE": lambda x: tuple(x.shape(0)[a] for a in x.value(1)),
    "TRANSPOSE_CONV": lambda x: tuple(x.value(0)),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _states,
    "UNPACK": _unpacked,
}


_LARGEST_FOLDED = 1 << 24  # elements, of operators that repeat values
INTEGERS = {"INT32": np.int32, "INT64": np.int64}
# also folded, by operators that only copy
_OTHERS = {t.upper(): np.dtype(t) for t in ("float32", "float16", "int8", "uint8", "int16", "bool")}


def ranges(
    node: FileNode, shape: Sequence[int], begin: Sequence[int], end: Sequence[int], strides: Sequence[int]
) -> list[range]:
    """The indices that a STRIDED_SLICE takes of each dimension, by its five masks.

    A new axis takes none; an ellipsis, and dimensions after the last entry, take whole dimensions. Raises `ValueError`
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
    """The node's result; None unless its inputs are known and consistent, and it copies or computes integers."""
    if not node.outputs:
        return None
    output = tensors[node.outputs[0]]
    copies = node.kind in (*_COPIES, "DEQUANTIZE")
    dtype = (_OTHERS | INTEGERS if copies else INTEGERS).get(output.type)
    if dtype is None or len(node.outputs) > 1 or not (copies or node.kind in (*_EVALUATORS, "DEQUANTIZE")):
        return None
    inputs = [tensors[k] for k in node.inputs if k >= 0]
    if node.kind == "DEQUANTIZE" and inputs[0].data is not None:
        return dequantised(inputs[0]).reshape(output.shape)
    arrays = [np.array(t.shape) if node.kind in ("SHAPE", "RANK") else t.data for t in inputs]
    known = [a for a in arrays if a is not None]
    largest = max(_LARGEST_FOLDED, *(a.size for a in known), 0)
    if len(known) < len(arrays) or math.prod(output.shape) > largest:
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


def dequantised(x: Info) -> np.ndarray:
    """The real values of a constant, float32; of half precision the same values."""
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
    "DENSIFY": _same,
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
