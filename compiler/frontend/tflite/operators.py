"""The operators of .tflite files, each as the operator of compiler/graph/ that computes the same integers."""

from __future__ import annotations

from collections.abc import Callable

from ... import graph as g
from ...graph import tables
from . import layers, movement, recurrent, variables, wide
from .file import FileNode
from .importer import TO_NCHW, WIDE, Refused, TfliteImporter


def _binary(cls: type[g.Binary]) -> Callable[[TfliteImporter, FileNode], None]:
    def convert(imp: TfliteImporter, node: FileNode) -> None:
        y = imp.result(node)
        operands = tuple(_operand(imp, node, k, len(y.shape)) for k in (0, 1))
        imp.emit(node, cls(node.name, operands, y, *layers.clamp(node, y)))

    return convert


def _operand(imp: TfliteImporter, node: FileNode, position: int, rank: int) -> g.Tensor:
    """An operand that broadcasts against tensors of `rank` dimensions, in their layout."""
    x = imp.activation(node, position)
    if rank != 4 or len(x.shape) == 4:
        return x
    x = imp.reshape(f"{node.name}.{position}", x, (1,) * (4 - len(x.shape)) + x.shape)
    return imp.relayout(x, imp.unused(f"{x.name}.nchw"), TO_NCHW)


def _pool(cls: type[g.Pool]) -> Callable[[TfliteImporter, FileNode], None]:
    def convert(imp: TfliteImporter, node: FileNode) -> None:
        x, y, strides = imp.activation(node, 0), imp.result(node), layers.strides_of(node)
        kernel = node.option("filterHeight", 0), node.option("filterWidth", 0)
        if min(kernel) < 1:
            raise Refused(f"has windows of {kernel}; they must be at least 1")
        pads = layers.padding(node, layers.image(x), kernel, strides)
        imp.emit(node, cls(node.name, (x,), y, kernel, strides, pads, *layers.clamp(node, y)))

    return convert


def _mean(imp: TfliteImporter, node: FileNode) -> None:
    x = imp.activation(node, 0, plain=True)
    axes = tuple(sorted({int(a) % len(x.shape) for a in imp.constant(node, 1).reshape(-1)}))
    if len(x.shape) == 4 and (node.option("keepDims", False) or axes in ((1, 2), (1, 2, 3))):
        axes = tuple(sorted(movement.CANONICAL_AXIS[a] for a in axes))
        imp.emit(node, g.Mean(node.name, (imp.activation(node, 0),), imp.result(node), axes))
    else:
        imp.emit(node, g.Mean(node.name, (x,), imp.result(node, plain=True), axes), plain=True)


def _softmax(imp: TfliteImporter, node: FileNode) -> None:
    if imp.file.tensors[node.outputs[0]].type in WIDE:
        wide.softmax(imp, node)
        return
    x, y = imp.activation(node, 0), imp.result(node)
    axis = 1 if len(x.shape) == 4 else len(x.shape) - 1
    imp.emit(node, g.Softmax(node.name, (x,), y, axis, float(node.option("beta", 0.0))))


def _lookup(function: str) -> Callable[[TfliteImporter, FileNode], None]:
    def convert(imp: TfliteImporter, node: FileNode) -> None:
        x, y = imp.activation(node, 0), imp.result(node)
        imp.emit(node, g.Lookup(node.name, (x,), y, function, tables.table(function, x, y)))

    return convert


def _leaky_relu(imp: TfliteImporter, node: FileNode) -> None:
    x, y = imp.activation(node, 0), imp.result(node)
    table = tables.leaky_relu(node.option("alpha", 0.0), x, y)
    imp.emit(node, g.Lookup(node.name, (x,), y, "leaky_relu", table))


def _relu(low: float, high: float | None) -> Callable[[TfliteImporter, FileNode], None]:
    def convert(imp: TfliteImporter, node: FileNode) -> None:
        x, y = imp.activation(node, 0), imp.result(node)
        imp.emit(node, g.Requantize(node.name, (x,), y, *layers.limits(y, low, high)))

    return convert


def _quantize(imp: TfliteImporter, node: FileNode) -> None:
    """float32, int8 or uint8 -> int8 or uint8; uint8 is recoded as int8 for the arithmetic."""
    if {imp.info(node, 0).type, imp.file.tensors[node.outputs[0]].type} & {*WIDE}:
        wide.rescale(imp, node)
        return
    x, y = imp.activation(node, 0, plain=True, dtype=None), imp.result(node, plain=True)
    if "uint8" not in (x.dtype, y.dtype):
        x, y = imp.activation(node, 0, dtype=None), imp.result(node)
        imp.emit(node, _to_int8(node, x, y))
        return
    inside = y if y.dtype == "int8" else _signed(imp, y)
    if x.dtype == "uint8":
        same = (x.scale, x.zero_point - 128) == (inside.scale, inside.zero_point)
        signed = inside if same else _signed(imp, x)
        imp.ops.append(g.Recode(f"{node.name}.recode", (x,), signed))
        x = signed
    if x is not inside:
        imp.ops.append(_to_int8(node, x, inside))
    if y is not inside:
        imp.ops.append(g.Recode(f"{node.name}.uint8", (inside,), y))
    imp.emit(node, imp.ops.pop(), plain=True)


def _to_int8(node: FileNode, x: g.Tensor, y: g.Tensor) -> g.Operator:
    return g.Quantize(node.name, (x,), y, True) if x.dtype == "float32" else g.Requantize(node.name, (x,), y)


def _signed(imp: TfliteImporter, t: g.Tensor) -> g.Tensor:
    """A new int8 tensor of the values of a uint8 one."""
    return g.Tensor(imp.unused(f"{t.name}.int8"), t.shape, "int8", t.scale, t.zero_point - 128)


def _dequantize(imp: TfliteImporter, node: FileNode) -> None:
    imp.emit(node, g.Dequantize(node.name, (imp.activation(node, 0),), imp.result(node)))


# operator -> (its maximum number of inputs, None: any; its handler)
_HANDLERS: dict[str, tuple[int | None, Callable[[TfliteImporter, FileNode], None]]] = {
    "ADD": (2, _binary(g.Add)),
    "ASSIGN_VARIABLE": (2, variables.assign),
    "AVERAGE_POOL_2D": (1, _pool(g.ExactAveragePool)),
    "CALL_ONCE": (0, variables.call_once),
    "CONCATENATION": (None, movement.concatenation),
    "CONV_2D": (3, layers.conv_2d),
    "DEPTHWISE_CONV_2D": (3, layers.depthwise),
    "DEQUANTIZE": (1, _dequantize),
    "EXPAND_DIMS": (2, movement.reshape),
    "FULLY_CONNECTED": (3, layers.fully_connected),
    "LEAKY_RELU": (1, _leaky_relu),
    "LOGISTIC": (1, _lookup("logistic")),
    "MAX_POOL_2D": (1, _pool(g.MaxPool)),
    "MEAN": (2, _mean),
    "MUL": (2, _binary(g.Mul)),
    "PACK": (None, movement.pack),
    "PAD": (2, movement.pad),
    "PADV2": (3, movement.pad),
    "QUANTIZE": (1, _quantize),
    "READ_VARIABLE": (1, variables.read),
    "RELU": (1, _relu(0.0, None)),
    "RELU6": (1, _relu(0.0, 6.0)),
    "RELU_0_TO_1": (1, _relu(0.0, 1.0)),
    "RELU_N1_TO_1": (1, _relu(-1.0, 1.0)),
    "RESHAPE": (2, movement.reshape),
    "SLICE": (3, movement.take),
    "SOFTMAX": (1, _softmax),
    "SPLIT": (2, movement.split),
    "SQUEEZE": (1, movement.reshape),
    "STRIDED_SLICE": (4, movement.strided_slice),
    "SUB": (2, _binary(g.Sub)),
    "SVDF": (5, recurrent.svdf),
    "TANH": (1, _lookup("tanh")),
    "TRANSPOSE": (2, movement.transpose),
    "TRANSPOSE_CONV": (4, layers.transpose_conv),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (24, recurrent.lstm),
    "UNPACK": (1, movement.unpack),
    "VAR_HANDLE": (0, variables.handle),
}
_SEVERAL_OUTPUTS = ("SPLIT", "UNPACK")

OPERATORS = tuple(_HANDLERS)


def convert(imp: TfliteImporter, node: FileNode) -> None:
    """Append the node's operators. Raises `Refused`, or `InputError` if its parameters and shapes are inconsistent."""
    if node.kind not in _HANDLERS:
        raise Refused("is not supported")
    most, handler = _HANDLERS[node.kind]
    if most is not None and len(node.inputs) > most:
        raise Refused(f"has {len(node.inputs)} inputs; at most {most} are supported")
    if len(node.outputs) > 1 and node.kind not in _SEVERAL_OUTPUTS:
        raise Refused(f"has {len(node.outputs)} outputs; only one is supported")
    handler(imp, node)
