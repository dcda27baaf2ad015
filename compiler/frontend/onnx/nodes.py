"""The nodes of an ONNX file in order, with constants evaluated, shapes known, and composed operators rewritten."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference
from onnx.reference import ReferenceEvaluator

from ....hw.errors import InputError, UnsupportedError
from ....runtime.hostops.floats import UNARY
from ...names import Names
from ..dialect import DEEPLOY

ALIASES = ("Identity", "Dropout", "Cast")  # whose first output is their input, as far as float32 goes
# Operators of our own around a float operator on integers: their real values, and back, quantised as another tensor
REAL, LIKE = "RealValues", "QuantizeLike"
# What Python, numpy and onnx's reference raise for inputs and attributes that contradict each other, or are not there
MISFITS = (ArithmeticError, AssertionError, LookupError, MemoryError, TypeError, ValueError)
# all inputs of which are of one type
_UNTYPED = ("Add", "Clip", "Concat", "Conv", "Gemm", "MatMul", "MaxPool", "Mul", "Relu", "Sub")
_REFERENCE_OPSET = 19  # the first whose quantisation onnx's reference computes; it means the same before
_MOST_FOLDED = 1 << 26  # elements of a constant that is evaluated
_DATA_ELEMENTS = 4096  # of a constant whose values a shape may depend on


@dataclass(eq=False)
class Node:
    """A node: its operator, its unique name, its tensors ("" where one is left out) and attributes."""

    op: str
    name: str
    inputs: list[str]
    outputs: list[str]
    attrs: dict[str, Any] = field(default_factory=dict)
    domain: str = ""
    of: str = ""  # the operator of the file that it is part of, if that is another

    def input(self, k: int) -> str:
        """Input number `k`, empty where it is left out."""
        return self.inputs[k] if k < len(self.inputs) else ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}"

    @property
    def kind(self) -> str:
        """The operator that the file has."""
        return self.of or self.op

    def proto(self) -> onnx.NodeProto:
        """The node for onnx's functions."""
        return helper.make_node(self.op, self.inputs, self.outputs, self.name, domain=self.domain, **self.attrs)


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """A node's attributes by name."""
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


Rewrite = Callable[["Reader", Node], list[Node] | None]


class Inconsistent(Exception):
    """Raised for shapes or types that contradict each other."""


class Reader:
    """Reads the nodes of a model: `nodes` are those that remain, the others are `constants`.

    `shapes` and `types` (numbers of TensorProto) are those of all tensors read so far. `rewrites` are by operator; one
    gets the reader and a node, and returns nodes in its place, or None to keep it. With `untyped` numbers of any type
    are taken where ONNX has float32.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        rewrites: dict[str, Rewrite],
        untyped: bool = False,
    ):
        self.rewrites, self.opsets, self.untyped = rewrites, list(model.opset_import), untyped
        self.opset = next((o.version for o in self.opsets if o.domain in ("", "ai.onnx")), 1)
        self.constants: dict[str, np.ndarray] = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.types: dict[str, int] = {}
        self.nodes: list[Node] = []
        self.problems: list[tuple[str, str, str]] = []  # (operator, name, why)
        for name, array in self.constants.items():
            self._constant_type(name, array)
        for value in model.graph.input:
            if value.name not in self.constants:
                tensor = value.type.tensor_type
                self.shapes[value.name] = tuple(d.dim_value for d in tensor.shape.dim)
                self.types[value.name] = tensor.elem_type
        self._names = Names((*self.shapes, *(t for n in model.graph.node for t in n.output)))
        self.unused = self._names.unused  # a name like the given one that no tensor has
        self.producers: dict[str, Node] = {}
        self.readers: dict[str, list[Node]] = {}  # the nodes whose first input a tensor is

    def read(self, nodes: Iterable[Node]) -> None:
        """Read nodes in order. Raises `Inconsistent` and `UnsupportedError`."""
        for node in nodes:
            self._read(node)

    def constant(self, array: np.ndarray, name: str = "constant") -> str:
        """The name of a new constant."""
        name = self.unused(name)
        self.constants[name] = array
        self._constant_type(name, array)
        return name

    def value(self, tensor: str) -> np.ndarray | None:
        """The value of a constant, None of other tensors."""
        return self.constants.get(tensor)

    def real(self, tensor: str) -> np.ndarray | None:
        """The value of a constant, dequantised or not; None of other tensors."""
        node = self.producers.get(tensor)
        if tensor in self.constants or node is None or node.op != "DequantizeLinear":
            return self.constants.get(tensor)
        if any(t not in self.constants for t in node.inputs if t):
            return None
        return self.evaluate(node, [self.constants[t] for t in node.inputs if t])[0]

    def _constant_type(self, name: str, array: np.ndarray) -> None:
        self.shapes[name], self.types[name] = array.shape, helper.np_dtype_to_tensor_dtype(array.dtype)

    def _read(self, node: Node) -> None:
        if self._fold(node):
            return
        found = self._rewritten(node)
        if found is not None:
            for part in found:
                part.of = node.kind if part.op != node.kind else ""
            self.read(found)
            return
        try:
            self._infer(node)
        except InputError:
            pass  # the shape depends on values: the node is refused by name
        except MISFITS as exc:
            raise Inconsistent(f"{node}: {type(exc).__name__} {exc}") from None
        self.nodes.append(node)
        self.readers.setdefault(node.input(0), []).append(node)
        for tensor in node.outputs:
            self.producers[tensor] = node

    def _rewritten(self, node: Node) -> list[Node] | None:
        rewrite = self.rewrites.get(node.op)
        try:
            return rewrite(self, node) if rewrite else None
        except MISFITS:
            return None  # an input that the operator needs, or its shape, is not there: it is refused by name

    def _fold(self, node: Node) -> bool:
        """Evaluate a node on constants; False where it is not one."""
        if node.domain or node.op == "DequantizeLinear":
            return False
        if node.op in ("Shape", "Size") and node.inputs[0] in self.shapes:
            shape = np.array(self.shapes[node.inputs[0]], np.int64)
            end = node.attrs.get("end", len(shape))
            value = shape[node.attrs.get("start", 0) : end] if node.op == "Shape" else np.array(shape.prod(), np.int64)
            self._fix(node.outputs[0], value)
            return True
        if any(t not in self.constants for t in node.inputs if t) or node.op.startswith("Random"):
            return False
        try:
            values = self.evaluate(node, [self.constants[t] for t in node.inputs if t])
        except Exception:  # of many kinds; the node then remains, and is refused by name if it must be
            return False
        for name, value in zip(node.outputs, values):
            if name:
                self._fix(name, np.asarray(value))
        return True

    def _fix(self, name: str, value: np.ndarray) -> None:
        if value.size > _MOST_FOLDED:
            raise UnsupportedError(
                f"constant {name!r} has {value.size:,} elements; at most {_MOST_FOLDED:,} are allowed"
            )
        self.constants[name] = value
        self._constant_type(name, value)

    def axes(self, node: Node) -> tuple[int, ...]:
        """The axes of a reduction, by attribute or by input, sorted. Raises `InputError` for others than constants."""
        rank, axes = len(self.shapes[node.inputs[0]]), node.attrs.get("axes")
        if axes is None and node.input(1):
            known = self.value(node.inputs[1])
            if known is None:
                raise InputError("has axes that are not constant")
            axes = known.reshape(-1).tolist()
        if isinstance(axes, int):
            axes = [axes]
        if not axes:
            axes = () if node.attrs.get("noop_with_empty_axes", 0) else range(rank)
        return tuple(sorted(axis % rank for axis in axes))

    def evaluate(self, node: Node, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """The results of one node of ONNX on arrays, one for each input that is not left out."""
        names = [t for t in node.inputs if t]
        inputs = [
            helper.make_tensor_value_info(t, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for t, a in dict(zip(names, arrays)).items()
        ]
        outputs = [helper.make_empty_tensor_value_info(t) for t in node.outputs if t]
        graph = helper.make_graph([node.proto()], "node", inputs, outputs)
        opset = max(self.opset, _REFERENCE_OPSET if node.op in ("QuantizeLinear", "DequantizeLinear") else 0)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        with np.errstate(all="ignore"):
            found: Any = ReferenceEvaluator(model).run(None, dict(zip(names, arrays)))
        return found

    def _infer(self, node: Node) -> None:
        """Shapes and types of a node's outputs."""
        if any(t not in self.shapes for t in node.inputs if t) or node.domain:
            return  # comes from a node that is refused by name, or is one
        if node.op in ("QuantizeLinear", "DequantizeLinear"):
            self.shapes[node.outputs[0]] = self.shapes[node.inputs[0]]
            self.types[node.outputs[0]] = self._quantised_type(node)
            return
        if node.op in (REAL, LIKE):
            self.shapes[node.outputs[0]] = self.shapes[node.inputs[0]]
            self.types[node.outputs[0]] = TensorProto.FLOAT if node.op == REAL else self.types[node.inputs[1]]
            return
        if node.op.startswith("Reduce") or node.op == "IntegerMean":
            kept, axes = node.attrs.get("keepdims", 1), self.axes(node)
            shape = ((1 if k in axes else n, k in axes) for k, n in enumerate(self.shapes[node.inputs[0]]))
            self.shapes[node.outputs[0]] = tuple(n for n, reduced in shape if kept or not reduced)
            self.types[node.outputs[0]] = self.types[node.inputs[0]]
            return
        if node.op in UNARY or node.op in DEEPLOY:
            self.shapes[node.outputs[0]] = self.shapes[node.inputs[0]]
            self.types[node.outputs[0]] = self.types[node.inputs[0]]
            return
        plain = self.untyped and node.op in _UNTYPED
        types = {
            t: helper.make_tensor_type_proto(TensorProto.FLOAT if plain else self.types[t], self.shapes[t])
            for t in node.inputs
            if t in self.shapes
        }
        data = {
            t: numpy_helper.from_array(a, t)
            for t in node.inputs
            if (a := self.constants.get(t)) is not None and a.size <= _DATA_ELEMENTS
        }
        try:
            schema = onnx.defs.get_schema(node.op, self.opset, "")
            found = shape_inference.infer_node_outputs(schema, node.proto(), types, data, opset_imports=self.opsets)
        except Exception as exc:
            raise Inconsistent(f"{node}: {exc}") from None
        for name, kind in found.items():
            tensor = kind.tensor_type
            dims = [d.dim_value if d.HasField("dim_value") else -1 for d in tensor.shape.dim]
            if not kind.HasField("tensor_type") or not tensor.HasField("shape") or -1 in dims:
                continue  # a shape that depends on values: whoever uses it is refused
            self.shapes[name], self.types[name] = tuple(dims), tensor.elem_type

    def _quantised_type(self, node: Node) -> int:
        if node.op == "DequantizeLinear":
            return TensorProto.FLOAT
        if node.input(2):
            return self.types.get(node.inputs[2], TensorProto.UINT8)
        return node.attrs.get("output_dtype", 0) or TensorProto.UINT8
