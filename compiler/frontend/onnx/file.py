"""An ONNX file, checked: inputs of fixed sizes, nodes with unique names."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import ModelProto

from ....hw.errors import FileError, UnsupportedError
from ..source import Source, one_line
from .nodes import Node, attributes

_OLDEST = 11  # of the opsets: before it, QuantizeLinear's neighbours take their parameters from elsewhere


def unsupported(path: Path, problems: list[tuple[str, str, str]]) -> UnsupportedError:
    """One error for all (operator, name, why), those of one operator with one reason together."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for op, name, why in problems:
        grouped.setdefault((op, why), []).append(name)
    texts = []
    for (op, why), names in grouped.items():
        more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
        texts.append(f"{op} {names[0]!r}{more} {why}")
    count = f"{len(problems)} unsupported operator{'s' * (len(problems) > 1)}"
    return UnsupportedError(f"{path}: {count}: {'; '.join(texts)}")


def checked(source: Source) -> ModelProto:
    """The checked model, open batch dimensions set to 1. Raises `FileError` and `UnsupportedError`."""
    path, model = source.path, source.onnx()
    unknown = [n for n in model.graph.node if n.domain in ("", "ai.onnx") and not onnx.defs.has(n.op_type)]
    if unknown:
        names = [n.name or next(iter(n.output), "") for n in unknown]
        raise unsupported(path, [(n.op_type, name, "is not supported") for n, name in zip(unknown, names)])
    for value in model.graph.output:  # where a shape may be left out, but the checker wants one
        value.type.tensor_type.shape.SetInParent()
    try:
        onnx.checker.check_model(model)
    except Exception as exc:  # protobuf and onnx raise different ones
        raise FileError(f"{path}: not an ONNX model, or damaged ({one_line(exc)})") from None
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
    if opset and opset < _OLDEST:
        raise UnsupportedError(
            f"{path}: opset {opset}; must be {_OLDEST} or later; convert it with onnx.version_converter"
        )
    _fix_batch(path, model)
    return model


def _fix_batch(path: Path, model: ModelProto) -> None:
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


def named_nodes(model: ModelProto) -> list[Node]:
    """The model's nodes, unnamed ones by operator and position; those that pass float32 on as it is, as Identity."""
    nodes: list[Node] = []
    seen: set[str] = set()
    for number, proto in enumerate(model.graph.node):
        name = proto.name or f"{proto.op_type.lower()}_{number}"
        name = name if name not in seen else f"{name}_{number}"
        seen.add(name)
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        node = Node(proto.op_type, name, list(proto.input), list(proto.output), attributes(proto), domain)
        if domain == "com.microsoft" and node.op in ("QuantizeLinear", "DequantizeLinear", "Gelu"):
            node.domain = ""
        nodes.append(node)
    return nodes
