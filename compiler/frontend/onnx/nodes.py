"""The nodes of an ONNX file in order: constants evaluated, shapes known, composed operators made chains of others."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper, shape_inference
from onnx.reference import ReferenceEvaluator

from ....hw.errors import InputError, UnsupportedError
from ....runtime.hostops.floats import UNARY
from ....runtime.schema import MOST
from ... import graph as g
from ...graph import Names, ranges
from ..core import Builder, Node, Problem, Refusal
from ..source import DEEPLOY, one_line
from ..values import Broken, Fixed, Value, Weights, constant
from .file import named_nodes

ALIASES = ("Identity", "Dropout", "Cast")  # whose first output is their input, as far as float32 goes
BILINEAR = "Bilinear"  # an operator of our own: images, and per row and per column the neighbours and their weights
# Errors of Python, numpy and onnx's reference for inputs and attributes that are missing or contradict each other
MISFITS = (ArithmeticError, AssertionError, LookupError, MemoryError, TypeError, ValueError)
# all inputs of which are of one type
_UNTYPED = ("Add", "Clip", "Concat", "Conv", "Gemm", "MatMul", "MaxPool", "Mul", "Relu", "Sub")
_REFERENCE_OPSET = 19  # the first whose quantisation onnx's reference computes; it means the same before
_MOST_FOLDED = 1 << 26  # elements of a constant that is evaluated
_DATA_ELEMENTS = 4096  # of a constant whose values a shape may depend on


def _proto(node: Node) -> onnx.NodeProto:
    """The node for onnx's functions."""
    return helper.make_node(node.op, node.inputs, node.outputs, node.name, domain=node.domain, **node.attrs)


# Takes a chain, the inputs of a node, None where one is left out, and its attributes as keywords. Returns the results,
# or None, as where Python cannot call it with these arguments, if the node stays.
Rewrite = Callable[..., "Term | tuple[Term | None, ...] | None"]
_OTHER_FLOATS = (TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)  # constants of rewrites are float32
_UNREAD = ("momentum", "spatial", "stash_type")  # attributes that change no result


class Beyond(Problem):
    """Raised for integers that can leave int32; float32 values can take their place."""


class Narrow(NamedTuple):
    """A type of fewer than eight bits: the type that holds its values here, and their range."""

    wide: type[np.int8] | type[np.uint8]
    low: int
    high: int


NARROW = {  # by the number of the type
    TensorProto.INT4: Narrow(np.int8, -8, 7),
    TensorProto.UINT4: Narrow(np.uint8, 0, 15),
    TensorProto.INT2: Narrow(np.int8, -2, 1),
    TensorProto.UINT2: Narrow(np.uint8, 0, 3),
}


class Inconsistent(Exception):
    """Raised for shapes or types that contradict each other."""


class Reader:
    """Reads the nodes of a model: `nodes` are those that remain, the others are `constants`.

    `shapes` and `types` (numbers of TensorProto) are those of all tensors read so far. `rewrites` are by operator. With
    `untyped` numbers of any type are taken where ONNX has float32.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        rewrites: dict[str, Rewrite],
        untyped: bool = False,
    ):
        self.rewrites, self.opsets, self.untyped = rewrites, list(model.opset_import), untyped
        self.opset = next((o.version for o in self.opsets if o.domain in ("", "ai.onnx")), 1)
        self.constants: dict[str, np.ndarray] = {}
        self.narrow: dict[str, Narrow] = {}  # the types of constants that the file has in fewer bits
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.types: dict[str, int] = {}
        self.nodes: list[Node] = []
        for tensor in model.graph.initializer:
            self._hold(tensor.name, numpy_helper.to_array(tensor))
        for value in model.graph.input:
            if value.name not in self.constants:
                tensor = value.type.tensor_type
                self.shapes[value.name] = tuple(d.dim_value for d in tensor.shape.dim)
                self.types[value.name] = tensor.elem_type
        self._names = Names((*self.shapes, *(t for n in model.graph.node for t in n.output)))
        self.unused = self._names.unused  # a name like the given one that no tensor has
        self._uses: dict[str, list[NodeProto | None]] = {value.name: [None] for value in model.graph.output}
        for node in model.graph.node:
            for tensor in node.input:
                self._uses.setdefault(tensor, []).append(node)
        self.producers: dict[str, Node] = {}
        self.readers: dict[str, list[Node]] = {}  # the nodes whose first input a tensor is

    def read(self, nodes: Iterable[Node]) -> None:
        """Read nodes in order. Raises `Inconsistent` and `UnsupportedError`."""
        for node in nodes:
            self._read(node)

    def drop_unread(self, outputs: Iterable[str]) -> None:
        """Leave out nodes that no output depends on, such as those whose readers read what was before them."""
        needed = set(outputs)
        for node in reversed(self.nodes):
            if needed.intersection(node.outputs):
                needed.update(node.inputs)
        self.nodes = [node for node in self.nodes if needed.intersection(node.outputs)]

    def constant(self, array: np.ndarray, name: str = "constant") -> str:
        """The name of a new constant."""
        name = self.unused(name)
        self._hold(name, array)
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

    def _hold(self, name: str, array: np.ndarray) -> None:
        """A constant under its name; values of fewer than eight bits become bytes."""
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        if kind in NARROW:
            self.narrow[name] = NARROW[kind]
            array = array.astype(NARROW[kind].wide)
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        self.constants[name], self.shapes[name], self.types[name] = array, array.shape, kind

    def narrow_result(self, node: Node) -> Narrow | None:
        """The type of a QuantizeLinear's result, where it has fewer than eight bits."""
        if node.op != "QuantizeLinear":
            return None
        return self.narrow.get(node.input(2)) or NARROW.get(node.attrs.get("output_dtype", 0))

    def is_read(self, tensor: str) -> bool:
        """True if an output of the file, or a node that is in no branch, is or reads the tensor."""
        return tensor in self._uses

    def quantised_again(self, tensor: str) -> bool:
        """True if the only use of a tensor of the file, by way of tensors of one use each, is a QuantizeLinear."""
        while len(uses := self._uses.get(tensor, [])) == 1 and (node := uses[0]) is not None:
            if node.op_type == "QuantizeLinear":
                return True
            tensor = node.output[0]
        return False

    def _read(self, node: Node) -> None:
        if self._fold(node):
            return
        if node.op == "If" and (condition := self.value(node.inputs[0])) is not None:
            return self.read(self._branch(node, node.attrs["then_branch" if condition.all() else "else_branch"]))
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

    def _branch(self, node: Node, graph: onnx.GraphProto) -> list[Node]:
        """The nodes of the branch that an If takes, and its results under their names outside of it."""
        for tensor in graph.initializer:
            self._hold(tensor.name, numpy_helper.to_array(tensor))
        ends = (Node("Identity", f"{node.name}.{y}", [x.name], [y]) for x, y in zip(graph.output, node.outputs) if y)
        return [*named_nodes(graph), *ends]

    def _rewritten(self, node: Node) -> list[Node] | None:
        """The nodes in place of one; None where it stays, as where the signature of its rewrite has not all of it."""
        rewrite, chain = self.rewrites.get(node.op), Chain(self, node)
        if rewrite is None or any(self.types.get(t) in _OTHER_FLOATS for t in node.inputs):
            return None
        attrs = {key: value for key, value in node.attrs.items() if key not in _UNREAD}
        try:
            result = rewrite(chain, *(Term(chain, t) if t else None for t in node.inputs), **attrs)
            return None if result is None else chain.finish(result)
        except MISFITS:
            return None  # it lacks an input or its shape, or has an attribute that is not read: it is refused by name

    def _fold(self, node: Node) -> bool:
        """Evaluate a node on constants; False where it is not one."""
        if node.domain or node.op == "DequantizeLinear" or self.narrow_result(node) is not None:
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
        self._hold(name, value)

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
        graph = helper.make_graph([_proto(node)], "node", inputs, outputs)
        opset = max(self.opset, _REFERENCE_OPSET if node.op in ("QuantizeLinear", "DequantizeLinear") else 0)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        with np.errstate(all="ignore"):
            arrays_out: Any = ReferenceEvaluator(model).run(None, dict(zip(names, arrays)))
        return arrays_out

    def _infer(self, node: Node) -> None:
        """Shapes and types of a node's outputs."""
        if any(t not in self.shapes for t in node.inputs if t) or node.domain:
            return  # comes from a node that is refused by name, or is one
        if node.op in ("QuantizeLinear", "DequantizeLinear"):
            self._note(node, self.shapes[node.inputs[0]], self._quantised_type(node))
            return
        if node.op == BILINEAR:
            rows, columns = (len(self.constants[node.inputs[k]]) for k in (1, 3))
            self._note(node, (*self.shapes[node.inputs[0]][:2], rows, columns), TensorProto.FLOAT)
            return
        if node.op.startswith("Reduce") or node.op == "IntegerMean":
            kept, axes = node.attrs.get("keepdims", 1), self.axes(node)
            shape = ((1 if k in axes else n, k in axes) for k, n in enumerate(self.shapes[node.inputs[0]]))
            self._note(node, tuple(n for n, reduced in shape if kept or not reduced), self.types[node.inputs[0]])
            return
        if node.op in UNARY or node.op in DEEPLOY:
            self._note(node, self.shapes[node.inputs[0]], self.types[node.inputs[0]])
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
            inferred = shape_inference.infer_node_outputs(schema, _proto(node), types, data, opset_imports=self.opsets)
        except Exception as exc:
            raise Inconsistent(f"{node}: {exc}") from None
        for name, kind in inferred.items():
            tensor = kind.tensor_type
            dims = [d.dim_value if d.HasField("dim_value") else -1 for d in tensor.shape.dim]
            if not kind.HasField("tensor_type") or not tensor.HasField("shape") or -1 in dims:
                continue  # a shape that depends on values: whoever uses it is refused
            if node.attrs.get("ceil_mode", 0):
                dims = self._without_windows_of_padding(node, dims)
            self.shapes[name], self.types[name] = tuple(dims), tensor.elem_type

    def _without_windows_of_padding(self, node: Node, dims: list[int]) -> list[int]:
        """The shape of a pool's result; in `ceil_mode` a last window that begins behind the image is left out."""
        size, count = self.shapes[node.inputs[0]], len(dims) - 2
        strides, pads = (node.attrs.get(key, [fill] * count) for key, fill in (("strides", 1), ("pads", 0)))
        beyond = [(dims[2 + k] - 1) * strides[k] >= size[2 + k] + pads[k] for k in range(count)]
        return [*dims[:2], *(n - extra for n, extra in zip(dims[2:], beyond))]

    def _note(self, node: Node, shape: tuple[int, ...], kind: int) -> None:
        self.shapes[node.outputs[0]], self.types[node.outputs[0]] = shape, kind

    def _quantised_type(self, node: Node) -> int:
        if node.op == "DequantizeLinear":
            return TensorProto.FLOAT
        if node.input(2):
            return self.types.get(node.inputs[2], TensorProto.UINT8)
        return node.attrs.get("output_dtype", 0) or TensorProto.UINT8


class Reading(Builder):
    """A builder with the `reader` of a file and the `values` of its tensors so far, by name.

    `outputs` are the names of the graph's outputs, which only `wanted` tensors get. Names of operators and of tensors
    may be equal. `problems` are refused nodes, `ends` errors of inputs and outputs.
    """

    def __init__(self, reader: Reader, outputs: Sequence[str]):
        super().__init__(outputs)
        self.reader, self.outputs, self.reserved = reader, list(outputs), frozenset(outputs)
        self.values: dict[str, Value] = {}
        self.problems: list[Refusal] = []
        self.ends: list[str] = []
        self._operators = Names()

    def append(self, op: g.Operator, wanted: str = "") -> g.Tensor:
        """Append an operator, whose output is named `wanted`, or after the operator. Returns that output."""
        free = op.name if op.name not in self.tensors else f"{op.name}.out"
        output = replace(op.output, name=wanted or self.unused(free))
        return self.emit(replace(op, name=self._operators.unused(op.name), output=output))

    def add(
        self, kind: Callable[..., g.Operator], inputs: tuple[g.Tensor, ...], y: g.Tensor, *facts: Any,
        wanted: str = "", **more: Any,
    ) -> g.Tensor:  # fmt: skip
        """Append an operator that is named after `y`. Returns its output."""
        return self.append(kind(y.name, inputs, y, *facts, **more), wanted)

    def checked(self, node: Node, op: g.Operator, wanted: str = "", shape: Sequence[int] | None = None) -> g.Tensor:
        """Append an operator, in another `shape` if one is given. Raises `Beyond`."""
        if text := ranges.problem(op):
            raise Beyond(node, text)
        return self.plain(op, op.output.shape if shape is None else shape, wanted)

    def image_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Four dimensions: a row of pixels is an image of one row."""
        return (*shape[:2], 1, *shape[2:]) if len(shape) == 3 else tuple(shape)

    def image(self, name: str, x: g.Tensor) -> g.Tensor:
        """`x` with four dimensions."""
        return self.reshape(f"{name}.image", x, self.image_shape(x.shape))

    def plain(self, op: g.Operator, shape: Sequence[int], wanted: str = "") -> g.Tensor:
        """Append an operator and bring its output to `shape`."""
        if op.output.shape == tuple(shape):
            return self.append(op, wanted)
        return self.reshape(f"{op.name}.shape", self.append(op), shape, wanted)

    def walk(self, model: ModelProto, on_input: Callable[[str], None], on_node: Callable[[Node], None]) -> None:
        """Read the nodes of `model`, and visit its inputs that are no constants, then its nodes in order."""
        nodes = named_nodes(model.graph)
        for node in nodes:  # without positions, means and deviations that nothing reads
            if node.op == "MaxPool" or node.op.endswith("Normalization"):
                node.outputs[1:] = [y if self.reader.is_read(y) else "" for y in node.outputs[1:]]
                node.outputs = node.outputs[: max((k + 1 for k, y in enumerate(node.outputs) if y), default=1)]
        self.reader.read(nodes)
        self.reader.drop_unread(self.outputs)
        for value in model.graph.input:
            if value.name not in self.reader.constants:
                on_input(value.name)
        for node in self.reader.nodes:
            on_node(node)

    @contextmanager
    def noting(self, node: Node) -> Iterator[None]:
        """Turn an error of the block into a problem of `node`, or of the node that the error names."""
        try:
            yield
        except Problem as exc:
            self.problems.append(Refusal(exc.why, exc.node.kind, exc.node.name))
        except InputError as exc:
            self.problems.append(Refusal(str(exc), node.kind, node.name))
        except MISFITS as exc:
            why = f"has inputs or attributes that do not fit together ({one_line(exc)})"
            self.problems.append(Refusal(why, node.kind, node.name))

    def wanted(self, tensor: str) -> str:
        """The name of an output of the graph, empty for other tensors of the file."""
        return tensor if tensor in self.reserved else ""

    def shape(self, node: Node, tensor: str) -> tuple[int, ...]:
        """The shape of a tensor of the file, (1,) of a scalar. Raises `Problem`, which names `node`, where unknown."""
        if tensor not in self.reader.shapes:
            raise Problem(node, "has a shape that depends on values, which is not supported")
        shape = self.reader.shapes[tensor]
        if math.prod(shape) > MOST:
            raise Problem(node, f"has {math.prod(shape):,} elements; at most {MOST:,} are supported")
        return shape or (1,)

    def integers(self, node: Node, tensor: str, what: str) -> list[int]:
        """The value of a constant of integers. Raises `Problem`."""
        array = self.reader.value(tensor)
        if array is None or array.dtype.kind not in "iu":
            raise Problem(node, f"has {what} that are not constant")
        return [int(v) for v in array.reshape(-1)]

    def axes(self, node: Node) -> tuple[int, ...]:
        """The axes of a reduction, sorted. Raises `InputError`."""
        return self.reader.axes(node)

    def number(self, node: Node, tensor: str) -> float:
        """The value of a constant of one number, dequantised or not. Raises `Problem`."""
        array = constant(self.value(tensor))
        if array is None or array.size != 1:
            raise Problem(node, "has a value that is not constant")
        return float(array.reshape(-1)[0])

    def value(self, tensor: str) -> Value | None:
        """The value of a tensor of the file; None of an input that is left out."""
        if not tensor:
            return None
        if tensor not in self.values:
            array = self.reader.value(tensor)
            self.values[tensor] = Broken(()) if array is None else Fixed(array.shape, array)
        return self.values[tensor]


_ACTIVATIONS = ("int8", "uint8", "int16", "uint16")
_CONSTANTS = (*_ACTIVATIONS, "int32")
_MIDDLE: dict[int, int] = {
    TensorProto.UINT8: 1 << 7,
    TensorProto.UINT16: 1 << 15,
}  # what unsigned types have more than signed ones


def _parts(imp: Reading, node: Node, weights: bool) -> tuple[np.ndarray, np.ndarray | None]:
    """(scales, zero points or None)."""
    scale, zero = (imp.reader.value(t) if t else None for t in (node.inputs[1], node.input(2)))
    if scale is None or (node.input(2) and zero is None):
        raise Problem(node, "has a scale or zero point that is not constant")
    if node.attrs.get("block_size", 0):
        raise Problem(node, "has one scale per block, which is not supported")
    scales = scale.astype(np.float32).reshape(-1)
    if not weights and scales.size > 1:
        raise Problem(node, "has one scale per channel; activations have one per tensor")
    least = np.finfo(np.float32).tiny  # of activations
    wrong = scales[~(np.isfinite(scales) & (weights | (scales >= least)))]
    if wrong.size:
        raise Problem(node, f"has scale {wrong[0]:g}; it must be finite{'' if weights else f' and at least {least:g}'}")
    integers = node.outputs[0] if node.op == "QuantizeLinear" else node.inputs[0]
    kind = TensorProto.DataType.Name(imp.reader.types[integers]).lower()
    if kind not in (_CONSTANTS if weights else _ACTIVATIONS):
        raise Problem(node, f"is of type {kind}; only {', '.join(_ACTIVATIONS)} are supported")
    return scales, zero


def activation(imp: Reading, node: Node) -> tuple[float, int]:
    """(scale, zero point) of activations, as int8 or int16: unsigned ones are moved. Raises `Problem`."""
    scales, zero = _parts(imp, node, False)
    integers = node.outputs[0] if node.op == "QuantizeLinear" else node.inputs[0]
    moved = _MIDDLE.get(imp.reader.types[integers], 0)
    return float(scales[0]), (0 if zero is None else int(zero.reshape(-1)[0])) - moved


def parameters(imp: Reading, node: Node, x: Fixed) -> Weights:
    """A dequantised constant. Raises `Problem`."""
    scales, zero = _parts(imp, node, True)
    axis = node.attrs.get("axis", 1)
    if scales.size == 1 or x.array.ndim < 2:
        axis = 0
    elif not -x.array.ndim <= axis < x.array.ndim or x.array.shape[axis] != scales.size:
        raise Problem(node, f"has {scales.size} scales along axis {axis} of a constant of shape {x.array.shape}")
    points = np.zeros(1, np.int32) if zero is None else zero.reshape(-1)
    return Weights(x.array.shape, x.array, scales, points, axis % max(1, x.array.ndim))


class Chain:
    """The nodes that take the place of `node`: `add` appends one, `finish` names the results after the file's."""

    def __init__(self, reader: Reader, node: Node):
        self.reader, self.node = reader, node
        self.nodes: list[Node] = []

    def add(self, op: str, *inputs: Term | np.ndarray | float | None, **attrs: object) -> Term:
        """The result of a new node. Arrays and numbers, which are float32, become constants; None is left out."""
        name = f"{self.node.name}.{len(self.nodes)}"
        names = [self._name_of(x) for x in inputs]
        lists = {key: list(value) if isinstance(value, (range, tuple)) else value for key, value in attrs.items()}
        output = self.reader.unused(f"{name}.y")
        self.nodes.append(Node(op, name, names, [output], lists))
        return Term(self, output)

    def constant(self, array: np.ndarray | float) -> Term:
        """A new constant."""
        array = array if isinstance(array, np.ndarray) else as_float(array)
        return Term(self, self.reader.constant(array, f"{self.node.name}.constant"))

    def _name_of(self, x: Term | np.ndarray | float | None) -> str:
        return "" if x is None else (x if isinstance(x, Term) else self.constant(x)).name

    def finish(self, results: Term | tuple[Term | None, ...]) -> list[Node]:
        """The nodes, which write `results` to the outputs of the file's node, where it has them."""
        one = isinstance(results, Term)
        for output, term in zip(self.node.outputs, (results,) if isinstance(results, Term) else results):
            if term is None or not output:
                continue
            if not any(term.name in node.outputs for node in self.nodes):
                term = self.add("Identity", term)
            for node in self.nodes:
                node.inputs = [output if name == term.name else name for name in node.inputs]
                if term.name in node.outputs:
                    node.outputs = [output]
                    if not one:
                        node.name = f"{self.node.name}.{output}"
                    elif all(other.name != self.node.name for other in self.nodes):
                        node.name = self.node.name
        return self.nodes


@dataclass(frozen=True, eq=False)
class Term:
    """A tensor of the file, or of a node of a chain; its arithmetic appends nodes. Shape and type of inputs only."""

    chain: Chain
    name: str
    __array_ufunc__ = None  # NumPy's arrays leave sums and products with a term to it

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an input of the node."""
        return self.chain.reader.shapes[self.name]

    @property
    def type(self) -> int:
        """The element type, a number of TensorProto."""
        return self.chain.reader.types[self.name]

    @property
    def value(self) -> np.ndarray | None:
        """The value of a constant, None of other tensors."""
        return self.chain.reader.value(self.name)

    @property
    def real(self) -> np.ndarray | None:
        """The value of a constant, dequantised or not; None of other tensors."""
        return self.chain.reader.real(self.name)

    def axes_from(self, axis: int) -> list[int]:
        """The axes from `axis` on."""
        return list(range(axis % len(self.shape), len(self.shape)))

    def node(self, op: str, *others: Term | np.ndarray | float | None, **attrs: object) -> Term:
        """The result of a new node on this tensor and others."""
        return self.chain.add(op, self, *others, **attrs)

    def reshape(self, *shape: int) -> Term:
        """This tensor in another shape."""
        return self.node("Reshape", np.array(shape, np.int64))

    def transpose(self, axes: Iterable[int]) -> Term:
        """This tensor with its dimensions in the order `axes`."""
        return self.node("Transpose", perm=list(axes))

    def swapped(self) -> Term:
        """This tensor with its last two dimensions swapped."""
        last = len(self.shape) - 1
        return self.transpose([*range(last - 1), last, last - 1])

    def slice(self, axis: int, start: int, end: int) -> Term:
        """The elements from `start` to before `end` along `axis`."""
        return self.node("Slice", *(np.array([k], np.int64) for k in (start, end, axis)))

    def take(self, indices: np.ndarray | int, axis: int = 0) -> Term:
        """The elements at `indices` of `axis`; of one index without that dimension."""
        return self.node("Gather", np.asarray(indices, np.int64), axis=axis)

    def __add__(self, other: Term | np.ndarray | float) -> Term:
        return self.node("Add", other)

    def __sub__(self, other: Term | np.ndarray | float) -> Term:
        return self.node("Sub", other)

    def __rsub__(self, other: np.ndarray | float) -> Term:
        return self.chain.add("Sub", other, self)

    def __mul__(self, other: Term | np.ndarray | float) -> Term:
        return self.node("Mul", other)

    def __truediv__(self, other: Term | np.ndarray | float) -> Term:
        return self.node("Div", other)


def as_float(array: object) -> np.ndarray:
    """`array` as float32."""
    return np.asarray(array, np.float32)
