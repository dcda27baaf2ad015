"""Reads QDQ and QOperator ONNX files: nodes to operators of compiler/graph/.

Between a DequantizeLinear and a QuantizeLinear an ONNX file computes in float32. The importer keeps such nodes as
expressions (values.py) until a QuantizeLinear, or an output, takes them: an expression with an integer form (forms.py)
becomes an int8 operator, every other one float32 operators on the host (floats.py). Operators that only move values
move int8 values (movements.py). QOperator files are rewritten to QDQ before (qlinear.py), composed operators to
elementary ones (rewrites.py, layouts.py, recurrent.py).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ....hw.errors import FileError, InputError, UnsupportedError
from ... import graph as g

try:
    from onnx import ModelProto, TensorProto
except ImportError as exc:
    raise UnsupportedError(f"reading models needs onnx ({exc}); pip install 'tilewright[compiler]'") from None
from ..core import Node, Problem, summary
from ..source import SINGLE, Source, as_source, in_dialect, one_line
from ..values import Broken, Expr, Fixed, Numbers, Value, View, Weights, constant
from .deeploy import DeeployImporter
from .file import checked
from .floats import FLOATS
from .forms import Quantiser
from .layouts import LAYOUTS
from .movements import MOVES, moved
from .nodes import ALIASES, LIKE, REAL, Inconsistent, Reader, activation, parameters
from .numbers import NAMES, converted
from .qlinear import QLINEAR
from .recurrent import RECURRENT
from .rewrites import ARITHMETIC

REWRITES = {**ARITHMETIC, **LAYOUTS, **RECURRENT, **QLINEAR}
_ENDS = ("QuantizeLinear", "DequantizeLinear")
OPERATORS = frozenset((*FLOATS, *NAMES, *MOVES, *REWRITES, *ALIASES, *_ENDS, "Constant", "Shape", "Size"))
_NUMBERS: dict[int, str] = {TensorProto.FLOAT: "float32", TensorProto.INT8: "int8", TensorProto.UINT8: "uint8"}
_NUMBERS |= {TensorProto.INT32: "int32", TensorProto.INT64: "int64", TensorProto.BOOL: "bool"}


def import_onnx(model: str | Path | Source) -> g.Graph:
    """Read an ONNX file; an open batch dimension becomes 1.

    Raises `FileError` if the file is missing, damaged or inconsistent, `InputError` for given sizes with which it is
    inconsistent, `UnsupportedError` that lists every node that the compiler does not support.
    """
    source = as_source(model)
    proto = checked(source)
    importer = DeeployImporter(proto, source.types) if in_dialect(proto, source.types) else Importer(proto)
    try:
        graph = importer.graph(source.path.stem)
    except Inconsistent as exc:
        if source.shapes:
            sizes = ", ".join(f"{name!r} {tuple(shape)}" for name, shape in source.shapes.items())
            raise InputError(f"{source.path}: cannot have inputs {sizes} ({one_line(exc)}); give other sizes") from None
        raise FileError(f"{source.path}: the model's shapes or types are inconsistent ({one_line(exc)})") from None
    if importer.problems:
        raise UnsupportedError(f"{source.path}: {summary(importer.problems, 'operator')}")
    if graph is None:
        raise UnsupportedError(f"{source.path}: {'; '.join(importer.ends)}")
    return graph


class Importer(Quantiser):
    """Walks the nodes of a model in order."""

    def __init__(self, model: ModelProto):
        super().__init__(Reader(model, REWRITES), [v.name for v in model.graph.output])
        self.model = model
        self.real: dict[str, Numbers] = {}  # outputs in float32 whose integers other nodes read

    def graph(self, name: str) -> g.Graph | None:
        """The whole model; None if there are problems."""
        self.walk(self.model, self._input, self._node)
        tensors = [self._output(name) for name in self.outputs]
        if self.problems or self.ends or None in tensors:
            return None
        return g.Graph(name, tuple(self.inputs), tuple(t for t in tensors if t), tuple(self.ops), contract=SINGLE)

    def _input(self, name: str) -> None:
        shape, kind = self.reader.shapes[name], _NUMBERS.get(self.reader.types[name])
        if kind is None:
            type_name = TensorProto.DataType.Name(self.reader.types[name]).lower()
            self.ends.append(
                f"input {name!r} is of type {type_name}; only {', '.join(_NUMBERS.values())} are supported"
            )
            return
        self.tensors.add(name)
        first = next((n for n in self.reader.readers.get(name, ()) if n.op == "DequantizeLinear"), None)
        raw = first is None and any(n.op == "Cast" for n in self.reader.nodes)  # an image of bytes, made float32
        if raw or kind not in ("int8", "uint8"):
            self.inputs.append(g.Tensor(name, shape or (1,), kind))
            self.values[name] = Numbers(shape, self.inputs[-1])
            return
        if first is None:
            self.ends.append(f"input {name!r} is {kind}, but nothing dequantises it")
            return
        try:
            scale, zero = activation(self, first)
        except Problem:
            return  # the node is refused later
        plain = g.Tensor(name, shape, kind, scale, zero + (128 if kind == "uint8" else 0))
        self.inputs.append(plain)
        y = g.Tensor("", shape, "int8", scale, zero)
        t = self.append(g.Recode(f"{name}.int8", (plain,), y)) if kind == "uint8" else plain
        self.values[name] = View(shape, t)

    def _node(self, node: Node) -> None:
        known = len(self.problems)
        with self.noting(node):
            args = [self.value(t) for t in node.inputs]
            if any(isinstance(arg, Broken) for arg in args):
                results: list[Value] = [Broken(()) for _ in node.outputs]
            else:
                results = self._values(node, args)
            for tensor, value in zip(node.outputs, results):
                self.values[tensor] = value
                named = isinstance(value, Broken) or (isinstance(value, Numbers) and value.tensor.name == tensor)
                if tensor in self.reserved and not named and self._is_float(tensor):
                    real = Numbers(value.shape, self.realised(value, tensor))
                    if isinstance(value, View):  # such as a cache: its other readers take the integers
                        self.real[tensor] = real
                    else:
                        self.values[tensor] = real
        if len(self.problems) > known:
            self.values |= {t: Broken(()) for t in node.outputs}

    def _is_float(self, tensor: str) -> bool:
        return self.reader.types.get(tensor) == TensorProto.FLOAT

    def _values(self, node: Node, args: list[Value | None]) -> list[Value]:
        x = args[0] if args else None
        if node.domain:
            raise Problem(node, f"of domain {node.domain!r} is not supported")
        if node.op == "QuantizeLinear" and x is not None:
            return [self._quantize(node, x)]
        if node.op == "DequantizeLinear" and x is not None:
            return [self._dequantize(node, x)]
        if node.op == REAL and isinstance(x, View):
            return [View(x.shape, x.tensor, node.name)]
        if node.op == LIKE and x is not None and isinstance(args[1], View):
            y = replace(args[1].tensor, name="", shape=x.shape, data=None)
            return [View(x.shape, self.quantise(x, y, node, self.wanted(node.outputs[0])))]
        if (numbers := converted(self, node, args)) is not None:
            return numbers
        if node.op in ALIASES and x is not None:
            return [x, *(Broken(()) for _ in node.outputs[1:])]
        if node.op not in FLOATS and node.op not in MOVES and node.op != "Concat":
            known = "has inputs or attributes that are not supported"
            raise Problem(node, known if node.op in REWRITES else "is not supported")
        shapes = [self.shape(node, t) if t else () for t in node.outputs]
        if all(arg is None or isinstance(arg, (Fixed, Weights)) for arg in args):
            return self._evaluated(node, args)
        if node.op in MOVES and isinstance(x, View):
            return [self._view(node, k, x, t) for k, t in enumerate(node.outputs)]
        if node.op == "Concat" and not self._is_float(node.outputs[0]):
            return [self._joined(node, args)]
        if any(self.reader.types.get(t) != TensorProto.FLOAT for t in (*node.inputs[:1], *node.outputs[:1])):
            raise Problem(node, "is not on float32 values, which is not supported")
        return [Expr(shape, node, tuple(args), k) for k, shape in enumerate(shapes)]

    def _evaluated(self, node: Node, args: list[Value | None]) -> list[Value]:
        """The value of a node on constants, dequantised or not."""
        x = args[0]
        if isinstance(x, Weights) and node.op == "Transpose":
            perm = node.attrs.get("perm", [*reversed(range(x.integers.ndim))])
            turned = x.integers.transpose(perm)
            return [Weights(turned.shape, turned, x.scale, x.zero, perm.index(x.axis))]
        if isinstance(x, Weights) and x.scale.size == 1 and node.op in ("Reshape", "Flatten", "Squeeze", "Unsqueeze"):
            shape = self.shape(node, node.outputs[0])
            return [Weights(shape, x.integers.reshape(shape), x.scale, x.zero, 0)]
        arrays = [array for arg in args if (array := constant(arg)) is not None]
        return [Fixed(array.shape, array) for array in self.reader.evaluate(node, arrays)]

    def _view(self, node: Node, index: int, x: View, tensor: str) -> View:
        wanted = "" if self._is_float(tensor) else self.wanted(tensor)
        return View(self.shape(node, tensor), moved(self, node, index, x.tensor, wanted), x.name)

    def _joined(self, node: Node, args: list[Value | None]) -> View:
        """Integers one after the other; all must be quantised alike."""
        tensors = [arg.tensor for arg in args if isinstance(arg, View)]
        kinds = {(t.scale, t.zero_point) for t in tensors}
        if len(tensors) < len(args) or len(kinds) > 1:
            raise Problem(node, "joins integers of different scales, which is not supported")
        shape = self.shape(node, node.outputs[0])
        y = replace(tensors[0], name="", shape=shape, data=None)
        op = g.Concat(node.name, tuple(tensors), y, node.attrs["axis"] % len(shape))
        return View(shape, self.append(op, self.wanted(node.outputs[0])))

    def _dequantize(self, node: Node, x: Value) -> Value:
        if isinstance(x, Fixed):
            return parameters(self, node, x)
        if not isinstance(x, View):
            raise Problem(node, "has an input that is not quantised")
        scale, zero = activation(self, node)
        t = x.tensor
        if (t.scale, t.zero_point) != (scale, zero):
            t = self.relabelled(node, t, g.Tensor("", t.shape, "int8", scale, zero))
        return View(x.shape, t, node.name)

    def _quantize(self, node: Node, x: Value) -> View:
        (scale, zero), tensor = activation(self, node), node.outputs[0]
        wanted = self.wanted(tensor) if self.reader.types[tensor] == TensorProto.INT8 else ""
        return View(x.shape, self.quantise(x, g.Tensor("", x.shape, "int8", scale, zero), node, wanted))

    def _output(self, name: str) -> g.Tensor | None:
        value = self.real.get(name) or self.value(name)
        if isinstance(value, (Fixed, Weights)) and self._is_float(name):
            value = Numbers(value.shape, self.realised(value, name))
        t = value.tensor if isinstance(value, (Numbers, View)) else None
        if t is None or isinstance(value, Broken):
            if not self.problems and not self.ends:
                self.ends.append(f"output {name!r} does not come from operators on float32 or int8")
            return None
        if any(t.name == one.name == name for one in self.inputs):  # which a tensor of another name is a copy of
            return self.reshape(f"{name}.copy", t, t.shape, f"{name}'")
        if self._is_float(name):
            return t if t.name == name else self.reshape(f"{name}.copy", t, t.shape, name)
        if self.reader.types[name] == TensorProto.UINT8:
            y = replace(t, name=name, dtype="uint8", zero_point=t.zero_point + 128, data=None)
            return self.append(g.Recode(f"{name}.uint8", (t,), y), name)
        return t if t.name == name else self.reshape(f"{name}.copy", t, t.shape, name)
