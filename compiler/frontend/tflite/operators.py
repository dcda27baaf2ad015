"""The operators of .tflite files, each as the operator of compiler/graph/ that computes the same integers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ... import graph as g
from ...graph import tables
from . import blocks, detection, elementwise, layers, movement, numbers, recurrent, variables, wide
from .elementwise import Handler
from .file import FileNode
from .importer import WIDE, Refused, TfliteImporter


def _pool(imp: TfliteImporter, node: FileNode) -> None:
    x, y, strides = imp.activation(node, 0), imp.result(node), layers.strides_of(node)
    kernel = layers.window(node)
    facts = kernel, strides, layers.padding(node, layers.image(x), kernel, strides), *layers.clamp(node, y)
    if node.kind == "MAX_POOL_2D":
        imp.emit(node, g.MaxPool(node.name, (x,), y, *facts))
    else:
        imp.emit(node, g.ExactAveragePool(node.name, (x,), y, *facts, imp.info(node, 0).unsigned))


def _total(cls: type[g.Mean]) -> Handler:
    """MEAN and SUM."""

    def convert(imp: TfliteImporter, node: FileNode) -> None:
        x = imp.activation(node, 0, plain=True)
        axes = numbers.axes_of(imp, node, x)
        if len(x.shape) == 4 and (node.option("keepDims", False) or axes in ((1, 2), (1, 2, 3))):
            axes = tuple(sorted(movement.CANONICAL_AXIS[a] for a in axes))
            imp.emit(node, cls(node.name, (imp.activation(node, 0),), imp.result(node), axes))
        else:
            imp.emit(node, cls(node.name, (x,), imp.result(node, plain=True), axes), plain=True)

    return convert


def _softmax(imp: TfliteImporter, node: FileNode) -> None:
    if imp.file.tensors[node.outputs[0]].type in WIDE:
        wide.softmax(imp, node)
        return
    x, y = imp.activation(node, 0), imp.result(node)
    axis = 1 if len(x.shape) == 4 else len(x.shape) - 1
    imp.emit(node, g.Softmax(node.name, (x,), y, axis, float(node.option("beta", 0.0))))


def _reduce(cls: type[g.ReduceMax]) -> Handler:
    def convert(imp: TfliteImporter, node: FileNode) -> None:
        x, y = imp.activation(node, 0, plain=True), imp.result(node, plain=True)
        imp.emit(node, cls(node.name, (x,), y, numbers.axes_of(imp, node, x)), plain=True)

    return convert


def _arg_max(imp: TfliteImporter, node: FileNode) -> None:
    x, y = imp.activation(node, 0, plain=True, dtype=None), imp.result(node, plain=True)
    axes = numbers.axes_of(imp, node, x)
    if len(axes) != 1:
        raise Refused(f"has {len(axes)} axes; it must have 1")
    imp.emit(node, g.ArgMax(node.name, (x,), y, axes[0], node.kind == "ARG_MIN"), plain=True)


def _top_k(imp: TfliteImporter, node: FileNode) -> None:
    """TOPK_V2: two operators, of values and of positions; their number is in the outputs' shapes."""
    imp.constant(node, 1)
    if len(node.outputs) != 2:
        raise Refused(f"has {len(node.outputs)} outputs; it must have 2")
    x = imp.activation(node, 0, plain=True, dtype=None)
    for k in (0, 1):
        imp.emit(node, g.TopK(f"{node.name}.{k}", (x,), imp.result(node, k, plain=True), k == 1), k, plain=True)


def _batch_matmul(imp: TfliteImporter, node: FileNode) -> None:
    """BATCH_MATMUL; the first operand is transposed by a step of its own."""
    x, other = (imp.activation(node, k, plain=True) for k in (0, 1))
    if node.option("adjX", False):
        axes = (*range(len(x.shape) - 2), len(x.shape) - 1, len(x.shape) - 2)
        data = None if x.data is None else np.ascontiguousarray(x.data.transpose(axes))
        turned = replace(x, name=imp.unused(f"{node.name}.rows"), shape=tuple(x.shape[a] for a in axes), data=data)
        if data is None:
            imp.ops.append(g.Transpose(turned.name, (x,), turned, axes))
        x = turned
    op = g.BatchMatMul(node.name, (x, other), imp.result(node, plain=True), bool(node.option("adjY", False)))
    imp.emit(node, op, plain=True)


def _log_softmax(imp: TfliteImporter, node: FileNode) -> None:
    x, y = imp.activation(node, 0), imp.result(node)
    imp.emit(node, g.LogSoftmax(node.name, (x,), y, 1 if len(x.shape) == 4 else len(x.shape) - 1))


def _l2_normalization(imp: TfliteImporter, node: FileNode) -> None:
    x, y, unsigned = imp.activation(node, 0), imp.result(node), imp.info(node, 0).unsigned
    if layers.clamp(node, y) != (-128, 127):
        raise Refused("has a fused activation, which is not supported")
    axis = 1 if len(x.shape) == 4 else len(x.shape) - 1
    imp.emit(node, g.L2Normalization(node.name, (x,), y, axis, unsigned))


def _resize_bilinear(imp: TfliteImporter, node: FileNode) -> None:
    x, y, flags = imp.activation(node, 0), imp.result(node), movement.resize_flags(imp, node)
    offset = 128 if imp.info(node, 0).unsigned else None
    imp.emit(node, g.ResizeBilinear(node.name, (x,), y, *flags, offset))


def _quantize(imp: TfliteImporter, node: FileNode) -> None:
    """float32 or int8 -> int8, or wider integers; a uint8 input of the network is recoded on the way."""
    if {imp.info(node, 0).type, imp.file.tensors[node.outputs[0]].type} & {*WIDE}:
        wide.rescale(imp, node)
        return
    raw, y = imp.outside(node.inputs[0]), imp.result(node, plain=True)
    if raw is not None and (raw.scale, raw.zero_point - 128) == (y.scale, y.zero_point):
        imp.emit(node, g.Recode(f"{node.name}.recode", (raw,), y), plain=True)
        return
    x, y = imp.activation(node, 0, dtype=None), imp.result(node)
    kind = g.Quantize(node.name, (x,), y, True) if x.dtype == "float32" else g.Requantize(node.name, (x,), y)
    imp.emit(node, kind)


def _dequantize(imp: TfliteImporter, node: FileNode) -> None:
    imp.emit(node, g.Dequantize(node.name, (imp.activation(node, 0),), imp.result(node)))


# operator -> (its maximum number of inputs, None: any; its handler)
_HANDLERS: dict[str, tuple[int | None, Handler]] = {
    "ABS": (1, elementwise.function("abs", tables.absolute)),
    "ADD": (2, elementwise.binary(g.Add)),
    "ARG_MAX": (2, _arg_max),
    "ARG_MIN": (2, _arg_max),
    "ASSIGN_VARIABLE": (2, variables.assign),
    "AVERAGE_POOL_2D": (1, _pool),
    "BATCH_MATMUL": (2, _batch_matmul),
    "BATCH_TO_SPACE_ND": (3, blocks.batch_to_space),
    "BROADCAST_TO": (2, movement.broadcast_to),
    "CALL_ONCE": (0, variables.call_once),
    "CAST": (1, numbers.cast),
    "CONCATENATION": (None, movement.concatenation),
    "CONV_2D": (3, layers.conv_2d),
    detection.KIND: (3, detection.post_process),
    "DEPTHWISE_CONV_2D": (3, layers.depthwise),
    "DEPTH_TO_SPACE": (1, blocks.depth_to_space),
    "DEQUANTIZE": (1, _dequantize),
    "DIV": (2, elementwise.binary(g.Div)),
    "ELU": (1, elementwise.real("elu")),
    "EMBEDDING_LOOKUP": (2, numbers.embedding),
    "EXP": (1, elementwise.real("exp")),
    "EXPAND_DIMS": (2, movement.reshape),
    "FLOOR_DIV": (2, numbers.binary("floor_div")),
    "FLOOR_MOD": (2, numbers.binary("floor_mod")),
    "FULLY_CONNECTED": (3, layers.fully_connected),
    "GATHER": (2, movement.gather),
    "GATHER_ND": (2, numbers.gather_nd),
    "GELU": (1, elementwise.gelu),
    "HARD_SWISH": (1, elementwise.function("hard_swish", tables.hard_swish)),
    "L2_NORMALIZATION": (1, _l2_normalization),
    "LEAKY_RELU": (1, elementwise.leaky_relu),
    **dict.fromkeys(("EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "NOT_EQUAL"), (2, numbers.comparison)),
    "LOG": (1, elementwise.real("log")),
    **dict.fromkeys(("LOGICAL_AND", "LOGICAL_NOT", "LOGICAL_OR"), (2, numbers.logic)),
    "LOG_SOFTMAX": (1, _log_softmax),
    "LOGISTIC": (1, elementwise.real("logistic")),
    "MAXIMUM": (2, elementwise.pairwise(g.Maximum)),
    "MAX_POOL_2D": (1, _pool),
    "MEAN": (2, _total(g.Mean)),
    "MINIMUM": (2, elementwise.pairwise(g.Minimum)),
    "MIRROR_PAD": (2, movement.mirror_pad),
    "MUL": (2, elementwise.binary(g.Mul)),
    "NEG": (1, elementwise.function("neg", tables.negative)),
    "ONE_HOT": (4, numbers.one_hot),
    "PACK": (None, movement.pack),
    "PAD": (2, movement.pad),
    "PADV2": (3, movement.pad),
    "PRELU": (2, elementwise.pairwise(g.Prelu)),
    "QUANTIZE": (1, _quantize),
    "READ_VARIABLE": (1, variables.read),
    "REDUCE_MAX": (2, _reduce(g.ReduceMax)),
    "REDUCE_MIN": (2, _reduce(g.ReduceMin)),
    "RELU": (1, elementwise.relu(0.0, None)),
    "RELU6": (1, elementwise.relu(0.0, 6.0)),
    "RELU_0_TO_1": (1, elementwise.relu(0.0, 1.0)),
    "RELU_N1_TO_1": (1, elementwise.relu(-1.0, 1.0)),
    "RESHAPE": (2, movement.reshape),
    "RESIZE_BILINEAR": (2, _resize_bilinear),
    "RESIZE_NEAREST_NEIGHBOR": (2, movement.resize_nearest),
    "REVERSE_V2": (2, movement.reverse),
    "RSQRT": (1, elementwise.function("rsqrt", tables.inverse_square_root)),
    **dict.fromkeys(("SELECT", "SELECT_V2"), (3, numbers.select)),
    "SLICE": (3, movement.take),
    "SOFTMAX": (1, _softmax),
    "SPACE_TO_BATCH_ND": (3, blocks.space_to_batch),
    "SPACE_TO_DEPTH": (1, blocks.space_to_depth),
    "SPLIT": (2, movement.split),
    "SPLIT_V": (3, movement.split),
    "SQRT": (1, elementwise.function("sqrt", tables.square_root)),
    "SQUARED_DIFFERENCE": (2, elementwise.pairwise(g.SquaredDifference)),
    "SQUEEZE": (1, movement.reshape),
    "STRIDED_SLICE": (4, movement.strided_slice),
    "SUB": (2, elementwise.binary(g.Sub)),
    "SUM": (2, _total(g.Sum)),
    "SVDF": (5, recurrent.svdf),
    "TANH": (1, elementwise.real("tanh")),
    "TILE": (2, movement.tile),
    "TOPK_V2": (2, _top_k),
    "TRANSPOSE": (2, movement.transpose),
    "TRANSPOSE_CONV": (4, layers.transpose_conv),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (24, recurrent.lstm),
    "UNPACK": (1, movement.unpack),
    "VAR_HANDLE": (0, variables.handle),
}
_SEVERAL_OUTPUTS = (detection.KIND, "SPLIT", "SPLIT_V", "TOPK_V2", "UNPACK")

OPERATORS = tuple(sorted({*_HANDLERS, *numbers.HANDLERS}))


def convert(imp: TfliteImporter, node: FileNode) -> None:
    """Append the node's operators. Raises `Refused`, or `InputError` if its parameters and shapes are inconsistent."""
    if node.kind in numbers.HANDLERS and numbers.are_numbers(imp, node):
        numbers.HANDLERS[node.kind](imp, node)
        return
    if node.kind not in _HANDLERS:
        raise Refused("is not supported")
    most, handler = _HANDLERS[node.kind]
    if most is not None and len(node.inputs) > most:
        raise Refused(f"has {len(node.inputs)} inputs; at most {most} are supported")
    if len(node.outputs) > 1 and node.kind not in _SEVERAL_OUTPUTS:
        raise Refused(f"has {len(node.outputs)} outputs; only one is supported")
    handler(imp, node)
