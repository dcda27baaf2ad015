"""Reads quantised networks: int8 .tflite files -> compiler/graph/, operator by operator.

This importer does not use Relax: TVM's .tflite front end lowers quantised operators to float or to its own integer
arithmetic, which rounds unlike TensorFlow Lite, and misreads the operator codes of some files. Each operator of a file
becomes the one of compiler/graph/ that computes the same integers: `_HANDLERS` is the table.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np

from ....hw.errors import InputError, UnsupportedError
from ... import graph as g
from ...graph import int16_tables, tables
from ..core import Misfit, Refusal, Refused, summary
from ..moves import sliced, turned
from ..source import Source
from . import layers, movement, numbers, recurrent, spectra
from .builder import WIDE, TfliteImporter
from .file import FileNode, ModelFile, read
from .layers import Handler, unary
from .shapes import resolved

DETECTION = "CUSTOM TFLite_Detection_PostProcess"


def _real(imp: TfliteImporter, node: FileNode, position: int) -> g.Tensor:
    """An input as float32, dequantised if it is int8."""
    x = imp.activation(node, position, plain=True, dtype=None)
    if x.dtype == "float32":
        return x
    return imp.add(g.Dequantize, (x,), g.Tensor(f"{node.name}.{position}", x.shape, "float32"))


def _anchors(imp: TfliteImporter, node: FileNode) -> np.ndarray:
    """The anchors, a constant float32 (N, 4)."""
    data, info = imp.known(node, 2), imp.info(node, 2)
    if info.scale.size == 1:
        data = (data.astype(np.int32) - int(info.zero_point[0])).astype(np.float32) * info.scale[0]
    return data.astype(np.float32)


def _detections(imp: TfliteImporter, node: FileNode) -> None:
    """TFLite_Detection_PostProcess: one Detections operator, and a slice of its table for each output of the file."""
    needed = ("max_detections", "num_classes", "nms_score_threshold", "nms_iou_threshold")
    needed += tuple(f"{axis}_scale" for axis in "yxhw")
    values = {name: node.option(name, None) for name in needed}
    if missing := [name for name, value in values.items() if value is None]:
        raise Refused(f"has no option {missing[0]}")
    if len(node.outputs) != 4:
        raise Refused(f"has {len(node.outputs)} outputs; it must have 4")
    boxes, scores, anchors = _real(imp, node, 0), _real(imp, node, 1), _anchors(imp, node)
    facts = {
        "scales": tuple(float(values[f"{axis}_scale"]) for axis in "yxhw"),
        "most": int(values["max_detections"]),
        "classes": int(values["num_classes"]),
        "classes_per_box": int(node.option("max_classes_per_detection", 1)),
        "per_class": int(node.option("detections_per_class", 100)),
        "each_class": bool(node.option("use_regular_nms", False)),
        "score": float(values["nms_score_threshold"]),
        "overlap": float(values["nms_iou_threshold"]),
    }
    rows = facts["most"] * (1 if facts["each_class"] else min(facts["classes_per_box"], facts["classes"]))
    table = g.Tensor(f"{node.name}.table", (1, rows + 1, 6), "float32")
    table = imp.add(g.Detections, (boxes, scores), table, anchors, **facts)
    # (first row, first column, rows, columns) of each output, and its shape, which files leave out
    parts = (0, 0, rows, 4), (0, 4, rows, 1), (0, 5, rows, 1), (rows, 0, 1, 1)
    shapes = (1, rows, 4), (1, rows), (1, rows), (1,)
    for k, ((row, column, height, width), shape) in enumerate(zip(parts, shapes)):
        indices = range(1), range(row, row + height), range(column, column + width)
        part = sliced(imp, f"{node.name}.{k}", table, indices)
        name = f"{part.name}.reshape"
        y = replace(imp.result(node, k, plain=True), shape=shape)
        imp.produce(node, g.Reshape(name, (part,), y), k, plain=True)


def _ends(imp: TfliteImporter, node: FileNode) -> tuple[g.Tensor, g.Tensor]:
    """The input and the output, in the file's layout."""
    ends = imp.info(node, 0), imp.file.tensors[node.outputs[0]]
    for info in ends:
        if info.type in WIDE and info.scale.size != 1:
            raise Refused(f"has {info.type.lower()} tensor {info.name!r} with {info.scale.size} scales; it needs one")
    y = imp.result(node, plain=True)
    return imp.activation(node, 0, plain=True, dtype=None), y


def _rescale(imp: TfliteImporter, node: FileNode) -> None:
    """QUANTIZE between int8, int16 and int32."""
    x, y = _ends(imp, node)
    imp.produce(node, g.Rescale(node.name, (x,), y), plain=True)


def _wide_softmax(imp: TfliteImporter, node: FileNode) -> None:
    """SOFTMAX of int8 or int16 as int16."""
    x, y = _ends(imp, node)
    cls = g.WideSoftmax if x.dtype == "int16" else g.Softmax16
    imp.produce(node, cls(node.name, (x,), y, len(x.shape) - 1, float(node.option("beta", 0.0))), plain=True)


def _pool(imp: TfliteImporter, node: FileNode) -> None:
    x, y, strides = imp.activation(node, 0, wide=True), imp.result(node), layers.strides_of(node)
    kernel = layers.window(node)
    facts = kernel, strides, layers.padding(node, layers.image(x), kernel, strides), *layers.clamp(node, y)
    if node.kind == "MAX_POOL_2D":
        imp.produce(node, g.MaxPool(node.name, (x,), y, *facts))
    else:
        imp.produce(node, g.ExactAveragePool(node.name, (x,), y, *facts, imp.info(node, 0).unsigned))


def _total(cls: type[g.Mean]) -> Handler:
    """MEAN and SUM over constant axes."""

    def convert(imp: TfliteImporter, node: FileNode) -> None:
        x = imp.activation(node, 0, plain=True, wide=True)
        axes = numbers.axes_of(imp, node, x)
        if len(x.shape) == 4 and (node.option("keepDims", False) or axes in ((1, 2), (1, 2, 3))):
            axes = tuple(sorted(movement.CANONICAL_AXIS[a] for a in axes))
            x = imp.activation(node, 0, wide=True)
            imp.produce(node, cls(node.name, (x,), imp.result(node), axes))
        else:
            imp.produce(node, cls(node.name, (x,), imp.result(node, plain=True), axes), plain=True)

    return convert


def _channels(x: g.Tensor) -> int:
    """The dimension that is the last one in the file."""
    return 1 if len(x.shape) == 4 else len(x.shape) - 1


def _softmax(imp: TfliteImporter, node: FileNode) -> None:
    if imp.file.tensors[node.outputs[0]].type in WIDE:
        _wide_softmax(imp, node)
        return
    x, y = imp.activation(node, 0), imp.result(node)
    op = g.Softmax(node.name, (x,), y, _channels(x), float(node.option("beta", 0.0)))
    op.expect("the output's scale and zero point", (y.scale, y.zero_point), (1 / 256, -128))  # as TensorFlow Lite does
    imp.produce(node, op)


def _reduce(cls: type[g.ReduceMax]) -> Handler:
    return unary(lambda imp, node, x, y: cls(node.name, (x,), y, numbers.axes_of(imp, node, x)), plain=True, wide=True)


def _arg_max(imp: TfliteImporter, node: FileNode, x: g.Tensor, y: g.Tensor) -> g.Operator:
    axes = numbers.axes_of(imp, node, x)
    if len(axes) != 1:
        raise Refused(f"has {len(axes)} axes; it must have 1")
    return g.ArgMax(node.name, (x,), y, axes[0], node.kind == "ARG_MIN")


def _top_k(imp: TfliteImporter, node: FileNode) -> None:
    """TOPK_V2: two operators, of values and of positions; their number is in the outputs' shapes."""
    imp.known(node, 1)
    if len(node.outputs) != 2:
        raise Refused(f"has {len(node.outputs)} outputs; it must have 2")
    x = imp.activation(node, 0, plain=True, dtype=None)
    for k in (0, 1):
        imp.produce(node, g.TopK(f"{node.name}.{k}", (x,), imp.result(node, k, plain=True), k == 1), k, plain=True)


def _batch_matmul(imp: TfliteImporter, node: FileNode) -> None:
    """BATCH_MATMUL; the first operand is transposed by a step of its own."""
    x, other = (imp.activation(node, k, plain=True, wide=True) for k in (0, 1))
    if node.option("adjX", False):
        axes, name = (*range(len(x.shape) - 2), len(x.shape) - 1, len(x.shape) - 2), f"{node.name}.rows"
        x = turned(imp, name, x, axes) if x.data is None else imp.relayout(x, imp.unused(name), axes)
    op = g.BatchMatMul(node.name, (x, other), imp.result(node, plain=True), bool(node.option("adjY", False)))
    imp.produce(node, op, plain=True)


def _l2_normalization(imp: TfliteImporter, node: FileNode, x: g.Tensor, y: g.Tensor) -> g.Operator:
    if layers.clamp(node, y) != layers.every(y):
        raise Refused("has a fused activation, which is not supported")
    return g.L2Normalization(node.name, (x,), y, _channels(x), imp.info(node, 0).unsigned)


def _resize_bilinear(imp: TfliteImporter, node: FileNode, x: g.Tensor, y: g.Tensor) -> g.Operator:
    offset = 128 if imp.info(node, 0).unsigned else None
    return g.ResizeBilinear(node.name, (x,), y, *movement.resize_flags(imp, node), offset)


def _quantize(imp: TfliteImporter, node: FileNode) -> None:
    """float32 or int8 -> int8, or wider integers; a uint8 input of the network is recoded on the way."""
    types = imp.info(node, 0).type, imp.file.tensors[node.outputs[0]].type
    if {*types} & {*WIDE} and types[0] != "FLOAT32":
        _rescale(imp, node)
        return
    raw, y = imp.outside(node.inputs[0]), imp.result(node, plain=True)
    if raw is not None and (raw.scale, raw.zero_point - 128) == (y.scale, y.zero_point):
        imp.produce(node, g.Recode(f"{node.name}.recode", (raw,), y), plain=True)
        return
    x, y = imp.activation(node, 0, dtype=None), imp.result(node)
    kind = g.Quantize(node.name, (x,), y, True) if x.dtype == "float32" else g.Requantize(node.name, (x,), y)
    imp.produce(node, kind)


# operator -> (its maximum number of inputs, None: any; its handler)
_HANDLERS: dict[str, tuple[int | None, Handler]] = {
    "ABS": (1, layers.function("abs", tables.absolute, int16_tables.absolute)),
    "ADD": (2, layers.binary(g.Add)),
    "ARG_MAX": (2, unary(_arg_max, plain=True, dtype=None)),
    "ARG_MIN": (2, unary(_arg_max, plain=True, dtype=None)),
    "ASSIGN_VARIABLE": (2, recurrent.assign),
    "AVERAGE_POOL_2D": (1, _pool),
    "BATCH_MATMUL": (2, _batch_matmul),
    "BATCH_TO_SPACE_ND": (3, movement.batch_to_space),
    "BROADCAST_TO": (2, movement.repeat),
    "CALL_ONCE": (0, recurrent.call_once),
    "CAST": (1, numbers.cast),
    "CONCATENATION": (None, movement.concatenation),
    "CONV_2D": (3, layers.conv_2d),
    DETECTION: (3, _detections),
    "DEPTHWISE_CONV_2D": (3, layers.depthwise),
    "DEPTH_TO_SPACE": (1, movement.depth_to_space),
    "DEQUANTIZE": (1, unary(lambda imp, node, x, y: g.Dequantize(node.name, (x,), y), wide=True)),
    "DIV": (2, layers.binary(g.Div)),
    "ELU": (1, layers.real("elu")),
    "EMBEDDING_LOOKUP": (2, numbers.embedding),
    "EXP": (1, layers.real("exp", layers.by_steps("exp"))),
    "EXPAND_DIMS": (2, movement.reshape),
    "FLOOR_DIV": (2, numbers.binary("floor_div")),
    "FLOOR_MOD": (2, numbers.binary("floor_mod")),
    "FULLY_CONNECTED": (3, layers.fully_connected),
    "GATHER": (2, movement.gather),
    "GATHER_ND": (2, numbers.gather_nd),
    "GELU": (1, layers.gelu),
    "HARD_SWISH": (1, layers.function("hard_swish", tables.hard_swish)),
    "L2_NORMALIZATION": (1, unary(_l2_normalization)),
    "LEAKY_RELU": (1, unary(layers.leaky_relu, wide=True)),
    **dict.fromkeys(("EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "NOT_EQUAL"), (2, numbers.comparison)),
    "LOG": (1, layers.real("log")),
    **dict.fromkeys(("LOGICAL_AND", "LOGICAL_NOT", "LOGICAL_OR"), (2, numbers.logic)),
    "LOG_SOFTMAX": (1, unary(lambda imp, node, x, y: g.LogSoftmax(node.name, (x,), y, _channels(x)))),
    "LOGISTIC": (1, layers.real("logistic", int16_tables.logistic)),
    "MAXIMUM": (2, layers.pairwise(g.Maximum)),
    "MAX_POOL_2D": (1, _pool),
    "MEAN": (2, _total(g.Mean)),
    "MINIMUM": (2, layers.pairwise(g.Minimum)),
    "MIRROR_PAD": (2, movement.mirror_pad),
    "MUL": (2, layers.binary(g.Mul)),
    "NEG": (1, layers.function("neg", tables.negative)),
    "ONE_HOT": (4, numbers.one_hot),
    "PACK": (None, movement.pack),
    "PAD": (2, movement.pad),
    "PADV2": (3, movement.pad),
    "PRELU": (2, layers.pairwise(g.Prelu)),
    "QUANTIZE": (1, _quantize),
    "READ_VARIABLE": (1, recurrent.read),
    "REDUCE_MAX": (2, _reduce(g.ReduceMax)),
    "REDUCE_MIN": (2, _reduce(g.ReduceMin)),
    "RELU": (1, layers.relu(0.0, None)),
    "RELU6": (1, layers.relu(0.0, 6.0)),
    "RELU_0_TO_1": (1, layers.relu(0.0, 1.0)),
    "RELU_N1_TO_1": (1, layers.relu(-1.0, 1.0)),
    "RESHAPE": (2, movement.reshape),
    "RESIZE_BILINEAR": (2, unary(_resize_bilinear, wide=True)),
    "RESIZE_NEAREST_NEIGHBOR": (2, movement.resize_nearest),
    "REVERSE_V2": (2, movement.reverse),
    "RSQRT": (1, layers.function("rsqrt", tables.inverse_square_root, layers.by_steps("rsqrt"))),
    **dict.fromkeys(("SELECT", "SELECT_V2"), (3, numbers.select)),
    "SLICE": (3, movement.take),
    "SOFTMAX": (1, _softmax),
    "SPACE_TO_BATCH_ND": (3, movement.space_to_batch),
    "SPACE_TO_DEPTH": (1, movement.space_to_depth),
    "SPLIT": (2, movement.split),
    "SPLIT_V": (3, movement.split),
    "SQRT": (1, layers.function("sqrt", tables.square_root)),
    "SQUARED_DIFFERENCE": (2, layers.pairwise(g.SquaredDifference)),
    "SQUEEZE": (1, movement.reshape),
    "STRIDED_SLICE": (4, movement.strided_slice),
    "SUB": (2, layers.binary(g.Sub)),
    "SUM": (2, _total(g.Sum)),
    "SVDF": (5, recurrent.svdf),
    "TANH": (1, layers.real("tanh", int16_tables.tanh)),
    "TILE": (2, movement.repeat),
    "TOPK_V2": (2, _top_k),
    "TRANSPOSE": (2, movement.transpose),
    "TRANSPOSE_CONV": (4, layers.transpose_conv),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (24, recurrent.lstm),
    "UNPACK": (1, movement.unpack),
    "VAR_HANDLE": (0, recurrent.handle),
}
_SEVERAL_OUTPUTS = (DETECTION, "SPLIT", "SPLIT_V", "TOPK_V2", "UNPACK")

OPERATORS = tuple(sorted({*_HANDLERS, *numbers.HANDLERS, *spectra.HANDLERS}))


_TEXT = "works on text; cut it off, and give the network the numbers that it computes"
_ELSEWHERE = "is a program for another accelerator; give the file from before {}"
# operators that no file describes: pattern of the kind -> what they are, and the way in
_FOREIGN = {
    r"CUSTOM Flex.*": "is an operator of TensorFlow itself (Flex); convert the network with TFLITE_BUILTINS alone",
    r"CUSTOM .*(CTC|Ctc|BeamSearch|Decoder).*": "is a decoder; cut it off, and decode the network's outputs yourself",
    r"CUSTOM .*([Tt]okeni|[Ss]entence|[Ww]ord|[Nn][Gg]ram|[Tt]ext|[Ss]tring|[Rr]agged|Unicode|UTF8).*": _TEXT,
    r"HASHTABLE.*|SKIP_GRAM|LSH_PROJECTION": _TEXT,
    r"CUSTOM edgetpu-custom-op": _ELSEWHERE.format("edgetpu_compiler"),
    r"CUSTOM ethos-u": _ELSEWHERE.format("Vela"),
    r"CUSTOM.*": "is a custom operator, which only its author's runtime defines; build the network without it",
    r"CALL|IF|WHILE": "runs other parts of the file, which is not supported; convert the network without control flow",
}


def _why_foreign(kind: str) -> str:
    """What an operator is that no handler can take, and the way in; empty for others."""
    return "" if kind in _HANDLERS else next((why for form, why in _FOREIGN.items() if re.fullmatch(form, kind)), "")


def convert(imp: TfliteImporter, node: FileNode) -> None:
    """Append the node's operators. Raises `Refused`, or `InputError` if its parameters and shapes are inconsistent."""
    if spectra.are_spectra(imp, node):
        spectra.HANDLERS[node.kind](imp, node)
        return
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


def import_tflite(model: str | Path | Source) -> g.Graph:
    """Read an int8 .tflite file; open dimensions get the sizes that the file suggests.

    Operators are named after their kind and position (`conv_2d_0`), tensors as in the file. Raises `FileError` where
    the file is missing, damaged or inconsistent, `UnsupportedError` that lists the unsupported operators
    with their reasons, those of one kind together.
    """
    return import_file(read(model))


def import_file(file: ModelFile) -> g.Graph:
    """The graph of a file that has been read, or of a part of one; otherwise as `import_tflite`."""
    foreign = [(node, why) for node in file.nodes if (why := _why_foreign(node.kind))]
    if foreign:
        problems = [Refusal(why, node.kind, node.name, node.tensor) for node, why in foreign]
        raise UnsupportedError(f"{file.path}: {summary(problems)}")
    importer = TfliteImporter(resolved(file))
    file = importer.file
    importer.add_inputs()
    for node in file.nodes:
        if all(file.tensors[k].data is not None for k in node.outputs) and node.outputs:
            continue
        before = len(importer.ops)
        try:
            convert(importer, node)
            importer.check_numbers(before)
        except Refused as exc:
            if not (isinstance(exc, Misfit) and importer.doubtful.intersection(node.inputs)):
                importer.problems.append(Refusal(str(exc), node.kind, node.name, node.tensor))
        except InputError as exc:
            if not importer.doubtful.intersection(node.inputs):
                importer.problems.append(Refusal(f"does not fit: {exc}", node.kind, node.name, node.tensor))
        importer.assume_outputs(node)
    importer.add_outputs()
    if importer.problems:
        raise UnsupportedError(f"{file.path}: {summary(importer.problems)}")
    graph = tuple(importer.inputs), tuple(importer.outputs), tuple(importer.ops), importer.variables.states()
    return g.Graph(file.path.stem, *graph)
