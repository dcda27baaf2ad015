"""An ONNX file, checked: inputs of fixed sizes, nodes with unique names."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import onnx
from onnx import ModelProto, helper, version_converter

from ....hw.errors import FileError, UnsupportedError
from ..core import Node, Refusal, summary
from ..source import DEEPLOY, DOMAINS, Source, in_dialect, one_line

_OPTIMISERS = ("Adagrad", "Adam", "AdamW", "Momentum", "SGD")  # onnx's and onnxruntime's
# onnxruntime has the first in every opset, Deeploy the last
_IN_ALL_OPSETS = ("LayerNormalization", "SimplifiedLayerNormalization", "RMSNorm")
RUNTIME = "com.microsoft"  # the domain of onnxruntime's own operators
_OLDEST = 11  # of the opsets: before it, QuantizeLinear's neighbours take their parameters from elsewhere


def checked(source: Source) -> ModelProto:
    """The checked model, open batch dimensions set to 1. Raises `FileError` and `UnsupportedError`.

    onnx's checker does not know Deeploy's operators: models with them are checked as they are read.
    """
    path, model = source.path, source.onnx()
    _check_texts(path, model)
    _check_inference(path, model)
    _sort_nodes(path, model)
    _name_runtime_operators(model)
    own = [n for n in model.graph.node if n.domain in DOMAINS]
    unknown = [n for n in own if not onnx.defs.has(n.op_type) and n.op_type not in DEEPLOY]
    if unknown:
        refusals = [Refusal("is not supported", n.op_type, n.name or next(iter(n.output), "")) for n in unknown]
        raise UnsupportedError(f"{path}: {summary(refusals, 'operator')}; docs/networks.md lists those that are read")
    if in_dialect(model, source.types):
        _check_tensors(path, model)
        _check_dialect(path, model)
        _fix_batch(path, model, empty=True)
        for opset in model.opset_import:  # files have Concat and Gemm as later opsets do
            if opset.domain in DOMAINS:
                opset.version = max(opset.version, _OLDEST)
        return model
    for value in model.graph.output:  # where a shape may be left out, but the checker wants one
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.shape.SetInParent()
    try:
        onnx.checker.check_model(model)
    except Exception as exc:  # protobuf and onnx raise errors of many classes
        hint = "; give the types of its inputs (--input-type) if it is Deeploy's" if in_dialect(model, None) else ""
        raise FileError(f"{path}: not an ONNX model, or damaged ({one_line(exc)}){hint}") from None
    _check_tensors(path, model)
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
    if opset and opset < _OLDEST:
        model = _converted(path, model, opset)
    _fix_batch(path, model)
    return model


def _name_runtime_operators(model: ModelProto) -> None:
    """Give operators that onnxruntime has in every opset its domain, where the opset of the file lacks them."""
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), _OLDEST)
    unknown = [n for n in model.graph.node if n.domain in ("", "ai.onnx") and n.op_type in _IN_ALL_OPSETS]
    unknown = [n for n in unknown if not onnx.defs.has(n.op_type, opset)]
    for node in unknown:
        node.domain = RUNTIME
    if unknown and all(o.domain != RUNTIME for o in model.opset_import):
        model.opset_import.append(helper.make_opsetid(RUNTIME, 1))


def _converted(path: Path, model: ModelProto, opset: int) -> ModelProto:
    """The model in the oldest opset that is read. Raises `UnsupportedError` where onnx cannot do that."""
    try:
        return version_converter.convert_version(model, _OLDEST)
    except Exception as exc:  # onnx raises errors of many classes
        raise UnsupportedError(
            f"{path}: opset {opset}; must be {_OLDEST} or later, and onnx cannot convert it ({one_line(exc)})"
        ) from None


def _check_texts(path: Path, model: ModelProto) -> None:
    """Protobuf gives bytes for a text that is none. Raises `FileError`."""
    graph = model.graph
    texts: list[str | bytes] = [t for n in graph.node for t in (n.op_type, n.domain, n.name, *n.input, *n.output)]
    texts += [value.name for value in (*graph.input, *graph.output, *graph.initializer)]
    wrong = [text for text in texts if isinstance(text, bytes)]
    if wrong:
        raise FileError(f"{path}: not an ONNX model, or damaged (name {wrong[0]!r:.60} is no UTF-8)")


def _check_inference(path: Path, model: ModelProto) -> None:
    """Raise `UnsupportedError` for the step of a training: with losses, gradients, and optimisers of the weights."""
    ends = "Grad", "Gradient", "Loss"
    steps = [n for n in model.graph.node if n.op_type in _OPTIMISERS or n.op_type.endswith(ends)]
    if steps:
        names = ", ".join(sorted({node.op_type for node in steps}))
        raise UnsupportedError(f"{path}: is a step of training, with {names}; export the network for inference instead")


def _sort_nodes(path: Path, model: ModelProto) -> None:
    """Nodes behind those whose results they read, as onnxruntime has them; the file's order where it is one already.

    Raises `FileError` for a cycle.
    """
    nodes = list(model.graph.node)
    producers = {name: k for k, node in enumerate(nodes) for name in node.output if name}
    before = {k: {producers[name] for name in node.input if name in producers} for k, node in enumerate(nodes)}
    if all(earlier < k for k, found in before.items() for earlier in found):
        return
    try:
        order = [*TopologicalSorter(before).static_order()]
    except CycleError as exc:
        node = nodes[exc.args[1][0]]
        raise FileError(
            f"{path}: damaged: {node.op_type} {node.name!r} reads a value that depends on its own"
        ) from None
    del model.graph.node[:]
    model.graph.node.extend(nodes[k] for k in order)


def _check_tensors(path: Path, model: ModelProto) -> None:
    """Types that are none, and constants without their data, which onnx's checker lets pass."""
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        number = value.type.tensor_type.elem_type
        if number not in onnx.TensorProto.DataType.values():
            raise FileError(f"{path}: damaged: tensor {value.name!r} is of type {number}, which does not exist")
    inside = [a.t for n in model.graph.node for a in n.attribute if a.type == onnx.AttributeProto.TENSOR]
    for tensor in (*model.graph.initializer, *inside):
        try:
            onnx.numpy_helper.to_array(tensor)
        except Exception as exc:  # numpy and onnx raise errors of many classes
            raise FileError(f"{path}: damaged: constant {tensor.name!r} ({one_line(exc)})") from None


def _check_dialect(path: Path, model: ModelProto) -> None:
    """Raise `FileError` for tensors that are read before a node writes them, as onnx's checker would."""
    known = {"", *(value.name for value in (*model.graph.input, *model.graph.initializer))}
    for node in model.graph.node:
        missing = [name for name in node.input if name not in known]
        if missing:
            raise FileError(f"{path}: damaged: {node.op_type} {node.name!r} reads {missing[0]!r}, which nothing made")
        known.update(node.output)


def _fix_batch(path: Path, model: ModelProto, empty: bool = False) -> None:
    """Open batches become 1. Raises `UnsupportedError` for other open sizes, and, unless `empty`, for sizes of 0."""
    weights = {i.name for i in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in weights]
    if not inputs:
        raise UnsupportedError(f"{path}: the network has no input: its outputs are constants")
    for value in inputs:
        if not value.type.HasField("tensor_type"):
            raise UnsupportedError(f"{path}: input {value.name!r} is no tensor; only tensors are supported")
        tensor = value.type.tensor_type
        dims = tensor.shape.dim
        sizes = [d.dim_param or str(d.dim_value or "?") for d in dims]
        if not tensor.HasField("shape") or any(
            not (d.HasField("dim_value") if empty else d.dim_value) for d in dims[1:]
        ):
            raise UnsupportedError(
                f"{path}: input {value.name!r} has shape ({', '.join(sizes)}); only the first size may be open; give "
                f"numbers for the others: --shape {value.name}={','.join(['1', *sizes[1:]])}"
            )
        if dims and not dims[0].dim_value:
            dims[0].dim_value = 1


def _attribute(attribute: onnx.AttributeProto) -> Any:
    """The value of an attribute, texts decoded."""
    value = helper.get_attribute_value(attribute)
    texts = value if isinstance(value, list) else [value]
    decoded = [text.decode(errors="replace") if isinstance(text, bytes) else text for text in texts]
    return decoded if isinstance(value, list) else decoded[0]


def named_nodes(graph: onnx.GraphProto) -> list[Node]:
    """The graph's nodes under unique names; nodes without a name are called by operator and position."""
    nodes: list[Node] = []
    seen: set[str] = set()
    for number, proto in enumerate(graph.node):
        name = proto.name or f"{proto.op_type.lower()}_{number}"
        name = name if name not in seen else f"{name}_{number}"
        seen.add(name)
        domain = "" if proto.domain in DOMAINS else proto.domain
        attrs = {attribute.name: _attribute(attribute) for attribute in proto.attribute}
        node = Node(proto.op_type, name, list(proto.input), list(proto.output), attrs, domain)
        if domain == RUNTIME and node.op in ("QuantizeLinear", "DequantizeLinear", "Gelu"):
            node.domain = ""
        nodes.append(node)
    return nodes
