"""Reads QDQ ONNX files.

The ONNX file is checked first, so that one error names all unsupported ONNX nodes; then it goes through TVM's Relax
(compiler/frontend/relax.py). QDQ means that every activation and weight passes
QuantizeLinear and DequantizeLinear, as onnxruntime's `quantize_static` writes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ...hw.errors import FileError, UnsupportedError
from ..graph import Graph
from .source import Source, as_source, one_line

try:
    import onnx
    from onnx import ModelProto, NodeProto, helper, numpy_helper, shape_inference
except ImportError as exc:
    raise UnsupportedError(f"reading models needs onnx ({exc}); pip install 'tilewright[compiler]'") from None

_INTEGER = "is not supported; export the network as QDQ"
_HINTS = {
    "BatchNormalization": "is not supported; fold it into the convolution before quantising",
    "ConvInteger": _INTEGER,
    "DynamicQuantizeLinear": "is not supported; quantise the network statically (QDQ)",
    "MatMulInteger": _INTEGER,
    "QLinearConv": _INTEGER,
    "QLinearMatMul": _INTEGER,
}
_LINEAR = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_POOLS = ("MaxPool", "AveragePool", "GlobalAveragePool")
_BINARY = ("Add", "Sub", "Mul")
_CLAMPS = ("Relu", "Clip")
_FUNCTIONS = ("Sigmoid", "Tanh", "LeakyRelu", "Softmax", "ReduceMean")
# operators that move int8 values without changing them
_MOVES = ("MaxPool", "Reshape", "Flatten", "Identity", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Split", "Pad")
_COMPUTE = (*_LINEAR, *_BINARY, *_FUNCTIONS, "Concat", "AveragePool", "GlobalAveragePool")
OPERATORS = frozenset((*_COMPUTE, *_MOVES, *_CLAMPS, "Constant", "QuantizeLinear", "DequantizeLinear"))


def import_onnx(model: str | Path | Source) -> Graph:
    """Read a QDQ ONNX file; an open batch dimension becomes 1.

    Raises `FileError` if the file is missing, damaged or inconsistent, `UnsupportedError` that lists every node
    that the compiler does not support.
    """
    source = as_source(model)
    path, proto = source.path, _checked(source)
    facts = _ModelFacts(proto)
    problems = [f"{n.op_type} {facts.names[id(n)]!r} {why}" for n in proto.graph.node if (why := facts.refusal(n))]
    if problems:
        raise _unsupported(path, problems)
    from .relax import import_relax  # imports TVM, which takes seconds

    order = facts.order_of_use(proto)
    nodes = [(facts.kind(n), facts.names[id(n)]) for n in order]
    pads = [facts.pads(n) for n in order if n.op_type == "Pad"]
    return import_relax(proto, path.stem, nodes, pads)


def _unsupported(path: Path, problems: list[str]) -> UnsupportedError:
    count = f"{len(problems)} unsupported operator{'s' * (len(problems) > 1)}"
    return UnsupportedError(f"{path}: {count}: {'; '.join(problems)}")


def _checked(source: Source) -> ModelProto:
    """The checked model, all shapes fixed and padding explicit."""
    path, model = source.path, source.onnx()
    unknown = [n for n in model.graph.node if n.domain in ("", "ai.onnx") and not onnx.defs.has(n.op_type)]
    if unknown:
        raise _unsupported(path, [f"{n.op_type} {n.name or n.output[:1]!r} is not supported" for n in unknown])
    try:
        onnx.checker.check_model(model)
    except Exception as exc:  # protobuf and onnx raise different ones
        raise FileError(f"{path}: not an ONNX model, or damaged ({one_line(exc)})") from None
    _fix_batch(path, model)
    try:
        model = shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    except Exception as exc:
        raise FileError(f"{path}: the model's shapes or types are inconsistent ({one_line(exc)})") from None
    _explicit_padding(model)
    return model


def _fix_batch(path: Path, model: ModelProto) -> None:
    """Set open batch dimensions to 1 and remove the shapes that depend on them."""
    weights = {i.name for i in model.graph.initializer}
    for value in model.graph.input:
        if value.name in weights:
            continue
        dims = value.type.tensor_type.shape.dim
        text = ", ".join(d.dim_param or str(d.dim_value or "?") for d in dims)
        if any(not d.dim_value for d in dims[1:]) or not dims:
            raise UnsupportedError(f"{path}: input {value.name!r} has shape ({text}); only the first size may be open")
        if not dims[0].dim_value:
            dims[0].dim_value = 1
    del model.graph.value_info[:]
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")


def _explicit_padding(model: ModelProto) -> None:
    """Replace `auto_pad` by pads, from the inferred shapes."""
    shapes = _shapes(model)
    for node in model.graph.node:
        attrs = _attributes(node)
        mode = attrs.get("auto_pad", b"NOTSET")
        if mode == b"NOTSET" or node.op_type not in (*_POOLS, "Conv"):  # of ConvTranspose: see `refusal`
            continue
        pads = [0, 0, 0, 0]
        size, out = shapes.get(node.input[0], [])[2:], shapes.get(node.output[0], [])[2:]
        if mode in (b"SAME_UPPER", b"SAME_LOWER"):
            kernel = attrs.get("kernel_shape") or shapes.get(node.input[1], [])[2:]
            ones = [1] * len(kernel)
            spec = zip(size, out, kernel, attrs.get("strides", ones), attrs.get("dilations", ones))
            total = [max(0, (o - 1) * s + (k - 1) * d + 1 - i) for i, o, k, s, d in spec]
            less, more = [t // 2 for t in total], [t - t // 2 for t in total]
            pads = less + more if mode == b"SAME_UPPER" else more + less
        kept = [a for a in node.attribute if a.name not in ("auto_pad", "pads")]
        del node.attribute[:]
        node.attribute.extend([*kept, helper.make_attribute("pads", pads)])


def _shapes(model: ModelProto) -> dict[str, list[int]]:
    values = (*model.graph.input, *model.graph.value_info, *model.graph.output)
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in values}
    return shapes | {i.name: list(i.dims) for i in model.graph.initializer}


def _attributes(node: NodeProto) -> dict:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


class _ModelFacts:
    """Facts of a file for the checks: names of nodes, producers and users of tensors, constants."""

    def __init__(self, model: ModelProto):
        self.shapes = _shapes(model)
        self.names: dict[int, str] = {}
        self.producer: dict[str, NodeProto] = {}
        self.users: dict[str, list[NodeProto]] = {}
        self.outputs = {v.name for v in model.graph.output}
        self.constants = {i.name: i for i in model.graph.initializer}
        seen: set[str] = set()
        for number, node in enumerate(model.graph.node):
            name = node.name or f"{node.op_type.lower()}_{number}"
            self.names[id(node)] = name if name not in seen else f"{name}_{number}"
            seen.add(self.names[id(node)])
            if node.op_type == "Constant" and "value" in (attrs := _attributes(node)):
                self.constants[node.output[0]] = attrs["value"]
            for tensor in node.output:
                self.producer[tensor] = node
            for tensor in node.input:
                self.users.setdefault(tensor, []).append(node)

    def constant(self, tensor: str) -> bool:
        """True for a constant tensor, dequantised or not."""
        node = self.producer.get(tensor)
        if node is not None and node.op_type in ("DequantizeLinear", "Reshape", "Identity"):
            return self.constant(node.input[0])
        return tensor in self.constants

    def quantised(self, tensor: str) -> bool:
        """True for a tensor of dequantised int8 values, possibly rearranged."""
        node = self.producer.get(tensor)
        if node is None:
            return False
        if node.op_type in _MOVES:
            return self.quantised(node.input[0])
        return node.op_type in ("DequantizeLinear", "QuantizeLinear")

    def refusal(self, node: NodeProto) -> str:
        """Reason not to compile the node; empty if it is supported."""
        if node.domain not in ("", "ai.onnx"):
            return f"of domain {node.domain!r} is not supported"
        if node.op_type not in OPERATORS:
            return _HINTS.get(node.op_type, "is not supported")
        if node.op_type in _LINEAR:
            return self._linear(node)
        if node.op_type in _POOLS:
            return self._pool(node)
        if node.op_type in _BINARY:
            return self._binary(node)
        if node.op_type in _CLAMPS:
            return self._clamp(node)
        if node.op_type in (*_FUNCTIONS, "Concat"):
            return self._inputs(node, node.input if node.op_type == "Concat" else node.input[:1]) or self._output(node)
        if node.op_type in _MOVES and not self.constant(node.input[0]):
            return self._inputs(node, node.input[:1]) or self._move(node)
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            return self._quantisation(node)
        return ""

    def order_of_use(self, model: ModelProto) -> list[NodeProto]:
        """The nodes in the order of their first use, which is that of TVM's bindings."""
        used: dict[int, NodeProto] = {}
        for tensor in (*(t for n in model.graph.node for t in n.input), *(v.name for v in model.graph.output)):
            if tensor in self.producer:
                used.setdefault(id(self.producer[tensor]), self.producer[tensor])
        return list(used.values())

    def kind(self, node: NodeProto) -> str:
        """The node's operator; `Bias` for a sum that adds the biases of a layer."""
        constant = node.op_type == "Add" and any(self.constant(t) for t in node.input)
        return "Bias" if constant and any(self._from(t, _LINEAR) for t in node.input) else node.op_type

    def pads(self, node: NodeProto) -> tuple[tuple[tuple[int, int], ...], float]:
        """((before, after) per dimension, value) of a Pad node."""
        amounts = numpy_helper.to_array(self.constants[node.input[1]]).tolist()
        half = len(amounts) // 2
        value = self._number(node.input[2]) if len(node.input) > 2 and node.input[2] else 0.0
        return tuple(zip(amounts[:half], amounts[half:])), value

    def _number(self, tensor: str) -> float:
        """The value of a scalar constant, dequantised or not."""
        node = self.producer.get(tensor)
        if node is None or node.op_type != "DequantizeLinear":
            return float(numpy_helper.to_array(self.constants[tensor]).reshape(-1)[0])
        parts = [numpy_helper.to_array(self.constants[t]).astype(np.float64).reshape(-1)[0] for t in node.input]
        return float((parts[0] - (parts[2] if len(parts) > 2 else 0)) * parts[1])

    def _inputs(self, node: NodeProto, tensors: Iterable[str]) -> str:
        return "" if all(self.quantised(t) for t in tensors) else "has an input that is not quantised"

    def _move(self, node: NodeProto) -> str:
        attrs = _attributes(node)
        if node.op_type == "Pad":
            if attrs.get("mode", b"constant") != b"constant":
                return f"has mode {attrs['mode'].decode()!r}; only 'constant' is supported"
            if len(node.input) < 2 or len(node.input) > 3 or any(not self.constant(t) for t in node.input[1:] if t):
                return "has axes, or amounts or a value that are not constant, which is not supported"
            if min(min(pair) for pair in self.pads(node)[0]) < 0:
                return "has negative amounts, which are not supported"
        return ""

    def _binary(self, node: NodeProto) -> str:
        if self.kind(node) == "Bias":
            return self._output(node)
        for t in node.input:
            if self.constant(t) and not self._from(t, ("DequantizeLinear",)):
                return "has a constant that is not quantised"
        if not any(not self.constant(t) for t in node.input):
            return "has two constants"
        return self._inputs(node, node.input) or self._output(node)

    def _clamp(self, node: NodeProto) -> str:
        if any(not self.constant(t) for t in node.input[1:] if t):
            return "has bounds that are not constant"
        if not (self.quantised(node.input[0]) or self._from(node.input[0], (*_COMPUTE, *_CLAMPS))):
            return "has an input that is not quantised"
        return self._output(node)

    def _from(self, tensor: str, kinds: tuple[str, ...]) -> bool:
        return tensor in self.producer and self.producer[tensor].op_type in kinds

    def _linear(self, node: NodeProto) -> str:
        attrs = _attributes(node)
        if not self.quantised(node.input[0]):
            return "has an input that is not quantised"
        if not self._from(node.input[1], ("DequantizeLinear",)) or not self.constant(node.input[1]):
            return "has weights that are not quantised constants"
        if node.op_type == "ConvTranspose" and (
            attrs.get("group", 1) != 1
            or max(attrs.get("dilations", [1])) > 1
            or attrs.get("auto_pad", b"NOTSET") != b"NOTSET"
            or "output_shape" in attrs
        ):
            return "has groups, dilations, auto_pad or output_shape, which are not supported"
        if any(attrs.get(key, value) != value for key, value in (("alpha", 1.0), ("beta", 1.0), ("transA", 0))):
            return "has alpha, beta or transA; only 1, 1, 0 are supported"
        source = self.producer[node.input[1]].input[0]
        rank = len(self.constants[source].dims) if source in self.constants else 0
        if rank != (wanted := 4 if node.op_type.startswith("Conv") else 2):
            return f"has weights of {rank} dimensions; only {wanted} are supported"
        channels = self.constants[source].dims[1] * attrs.get("group", 1)
        if node.op_type == "Conv" and (c := self.shapes[node.input[0]][1]) != channels:
            return f"has {c} input channels, its weights have {channels}"
        if any(not self.constant(t) for t in node.input[2:]):
            return "has a bias that is not constant"
        return self._output(node, ("Add",) if len(node.input) == 2 else ())

    def _output(self, node: NodeProto, more: tuple[str, ...] = ()) -> str:
        """Reason to refuse an output: only a quantisation may use it, directly or through clamps, and `more`."""
        users = self.users.get(node.output[0], [])
        allowed = (*_CLAMPS, "QuantizeLinear", *more)
        if node.output[0] in self.outputs or not users or any(u.op_type not in allowed for u in users):
            return "has an output that is not quantised"
        return ""

    def _pool(self, node: NodeProto) -> str:
        attrs = _attributes(node)
        if not self.quantised(node.input[0]):
            return "has an input that is not quantised"
        if node.op_type != "GlobalAveragePool" and len(attrs.get("kernel_shape", ())) != 2:
            return f"has {len(attrs.get('kernel_shape', ()))} dimensions; only 2 are supported"
        if attrs.get("ceil_mode", 0) or max(attrs.get("dilations", [1])) > 1 or len(node.output) > 1:
            return "has ceil_mode, dilations or an index output, which are not supported"
        if node.op_type == "MaxPool":
            return ""
        if any(attrs.get("pads", [])) and not attrs.get("count_include_pad", 0):
            return "excludes padding from its mean, which is not supported"
        return self._output(node)

    def _quantisation(self, node: NodeProto) -> str:
        if any(t not in self.constants for t in node.input[1:]):
            return "has a scale or zero point that is not constant"
        weights = node.op_type == "DequantizeLinear" and self.constant(node.input[0])
        scales = numpy_helper.to_array(self.constants[node.input[1]]).reshape(-1)
        if not weights and scales.size > 1:
            return "has one scale per channel; activations have one per tensor"
        wrong = scales[~(np.isfinite(scales) & (scales >= 0 if weights else scales > 0))]
        if wrong.size:
            return f"has scale {wrong[0]:g}; it must be finite and {'not negative' if weights else 'positive'}"
        types = {onnx.TensorProto.INT8, onnx.TensorProto.UINT8} | ({onnx.TensorProto.INT32} if weights else set())
        if len(node.input) > 2 and self.constants[node.input[2]].data_type not in types:
            kind = onnx.TensorProto.DataType.Name(self.constants[node.input[2]].data_type).lower()
            return f"is of type {kind}; only int8 and uint8 are supported"
        return ""
