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

import numpy as np

from ....hw.errors import FileError, InputError, UnsupportedError
from ... import graph as g
from ...graph.rewrite import without_unread

try:
    from onnx import ModelProto, TensorProto
except ImportError as exc:
    raise UnsupportedError(f"reading models needs onnx ({exc}); pip install 'tilewright[compiler]'") from None
from ..core import Node, Problem, summary
from ..source import SINGLE, Source, as_source, in_dialect, one_line
from ..values import Broken, Expr, Fixed, Numbers, Value, View, Weights, WideView, constant, signed, steps
from . import dynamic
from .deeploy import DeeployImporter
from .file import checked
from .floats import FLOATS
from .forms import Quantiser
from .integers import BYTES, with_bytes
from .layouts import LAYOUTS
from .movements import COPIES, MOVES, moved
from .nodes import ALIASES, BILINEAR, Inconsistent, Reader, activation, parameters
from .numbers import NAMES, converted
from .qlinear import QLINEAR
from .recurrent import RECURRENT
from .rewrites import ARITHMETIC
from .wide import WIDE

REWRITES = with_bytes({**ARITHMETIC, **LAYOUTS, **RECURRENT, **QLINEAR})
_ENDS = ("QuantizeLinear", "DequantizeLinear")
OPERATORS = frozenset(
    (*FLOATS, *NAMES, *dynamic.NAMES, *MOVES, *REWRITES, *ALIASES, *_ENDS, "Constant", "If", "Shape", "Size")
) - {BILINEAR}
_NUMBERS: dict[int, str] = {TensorProto.FLOAT: "float32", TensorProto.INT8: "int8", TensorProto.UINT8: "uint8"}
_NUMBERS |= {
    TensorProto.INT16: "int16",
    TensorProto.INT32: "int32",
    TensorProto.INT64: "int64",
    TensorProto.BOOL: "bool",
}


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
        outputs = tuple(t for t in tensors if t)
        return without_unread(g.Graph(name, tuple(self.inputs), outputs, tuple(self.ops), contract=SINGLE))

    def _input(self, name: str) -> None:
        shape, kind = self.reader.shapes[name] or (1,), _NUMBERS.get(self.reader.types[name])
        if kind is None:
            type_name = TensorProto.DataType.Name(self.reader.types[name]).lower()
            self.ends.append(
                f"input {name!r} is of type {type_name}; only {', '.join(_NUMBERS.values())} are supported"
            )
            return
        self.tensors.add(name)
        first = self._dequantiser(name)
        # an image of bytes that is made float32, or read as integers
        raw = first is None and any(n.op in ("Cast", *dynamic.NAMES) for n in self.reader.nodes)
        if raw or kind not in ("int8", "uint8", "int16"):
            self.inputs.append(g.Tensor(name, shape, kind))
            self.values[name] = Numbers(shape, self.inputs[-1])
            return
        scale, zero = 1.0, -128 if kind == "uint8" else 0  # of integers that nothing dequantises
        try:
            scale, zero = (scale, zero) if first is None else activation(self, first)
        except Problem:
            return  # the node is refused later
        plain = g.Tensor(name, shape, kind, scale, zero + (128 if kind == "uint8" else 0))
        self.inputs.append(plain)
        if kind == "int16":
            self.values[name] = WideView(shape, plain)
            return
        y = g.Tensor("", shape, "int8", scale, zero)
        t = self.append(g.Recode(f"{name}.int8", (plain,), y)) if kind == "uint8" else plain
        self.values[name] = View(shape, t)

    def _dequantiser(self, tensor: str) -> Node | None:
        """The first node that dequantises a tensor, which may be moved before."""
        moved = [tensor]
        for name in moved:  # which grows
            for node in self.reader.readers.get(name, ()):
                if node.op == "DequantizeLinear":
                    return node
                if node.op in MOVES or node.op in ALIASES:
                    moved += node.outputs
        return None

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
        unknown = "has inputs or attributes that are not supported" if node.op in REWRITES else "is not supported"
        if node.domain:
            raise Problem(node, unknown if node.op in REWRITES else f"of domain {node.domain!r} is not supported")
        if node.op == "If":
            raise Problem(node, "has a condition that depends on values, which is not supported")
        if node.op == "QuantizeLinear" and x is not None:
            return [self._quantize(node, x)]
        if node.op == "DequantizeLinear" and x is not None:
            return [self._dequantize(node, x)]
        if (integers := dynamic.integers(self, node, args)) is not None:
            return integers
        if node.op == "Cast" and x is not None:
            x = args[0] = self._integers(node, x)
        if (numbers := converted(self, node, args)) is not None:
            return numbers
        if node.op == "Dropout" and node.input(2) and ((training := constant(args[2])) is None or training.any()):
            raise Problem(node, "is in training mode, in which its results are random")
        if node.op in ALIASES and x is not None:
            return [x, *(Broken(()) for _ in node.outputs[1:])]
        if node.op not in FLOATS and node.op not in MOVES and node.op != "Concat":
            raise Problem(node, unknown)
        shapes = [self.shape(node, t) if t else () for t in node.outputs]
        if all(arg is None or isinstance(arg, (Fixed, Weights)) for arg in args):
            return self._evaluated(node, args)
        if isinstance(x, WideView) and node.op in COPIES:
            ts = [moved(self, node, k, x.tensor, self._stored(t)) for k, t in enumerate(node.outputs)]
            return [WideView(shape, t, x.name) for shape, t in zip(shapes, ts)]
        if node.op in MOVES and isinstance(x, View) and (node.op != "Pad" or self._keeps_steps(node, x)):
            return [self._view(node, k, x, t) for k, t in enumerate(node.outputs)]
        if node.op == "Concat" and not self._is_float(node.outputs[0]):
            return [self._joined(node, args)]
        if any(self.reader.types.get(t) != TensorProto.FLOAT for t in (*node.inputs[:1], *node.outputs[:1])):
            raise Problem(node, "is not on float32 values, which is not supported")
        return [Expr(shape, node, tuple(args), k) for k, shape in enumerate(shapes)]

    def _integers(self, node: Node, x: Value) -> Value:
        """What a Cast reads: of int8 and uint8 values the integers, not the real values that they stand for."""
        kind, result = (self.reader.types[t] for t in (node.inputs[0], node.outputs[0]))
        if not isinstance(x, View) or kind not in BYTES or kind == result:
            return x
        y = g.Tensor("", x.tensor.shape, "int8", zero_point=-128 if kind == TensorProto.UINT8 else 0)
        if result in BYTES:  # values that the other type does not have wrap
            wrapped = (np.arange(-128, 128) % 256 - 128).astype(np.int8)
            y = replace(y, zero_point=-128 - y.zero_point)
            return View(x.shape, self.append(g.Lookup(node.name, (x.tensor,), y, "wrapped", wrapped)))
        return View(x.shape, self.relabelled(node, x.tensor, y), node.name)

    def _keeps_steps(self, node: Node, x: View) -> np.bool_ | bool:
        """Whether Pad adds a value that `x` can have."""
        if not self._is_float(node.inputs[0]) or not node.input(2):
            return True
        value, t = self.number(node, node.inputs[2]), x.tensor
        return np.isnan(value) or np.float32((steps(value, t) - t.zero_point) * t.scale) == np.float32(value)

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
        return View(self.shape(node, tensor), moved(self, node, index, x.tensor, self._stored(tensor)), x.name)

    def _stored(self, tensor: str) -> str:
        """The name of an output of signed integers, empty for other tensors, which are converted."""
        return self.wanted(tensor) if self.reader.types.get(tensor) in (TensorProto.INT8, TensorProto.INT16) else ""

    def _joined(self, node: Node, args: list[Value | None]) -> View:
        """Integers one after the other, of the quantisation of the first computed ones."""
        like = next((arg.tensor for arg in args if isinstance(arg, View)), None)
        tensors = [] if like is None else [t for arg in args if (t := self._taken_as(node, arg, like)) is not None]
        if like is None or len(tensors) < len(args):
            raise Problem(node, "joins values that are not quantised, which is not supported")
        shape = self.shape(node, node.outputs[0])
        y = replace(like, name="", shape=shape, data=None)
        op = g.Concat(node.name, tuple(tensors), y, node.attrs["axis"] % len(shape))
        return View(shape, self.append(op, self._stored(node.outputs[0])))

    def _taken_as(self, node: Node, value: Value | None, like: g.Tensor) -> g.Tensor | None:
        """The integers of a value, quantised as `like`; None where it has none."""
        if isinstance(value, Fixed) and value.array.dtype in (np.int8, np.uint8):
            return self.constant(f"{node.name}.constant", signed(value.array), like)
        if not isinstance(value, View):
            return None
        return self.relabelled(node, value.tensor, replace(like, name="", shape=value.tensor.shape, data=None))

    def _dequantize(self, node: Node, x: Value) -> Value:
        if isinstance(x, Fixed) and node.attrs.get("block_size", 0):  # whose layer is float32
            (array,) = self.reader.evaluate(node, [a for t in node.inputs if (a := self.reader.value(t)) is not None])
            return Fixed(array.shape, array)
        if isinstance(x, Fixed):
            return parameters(self, node, x)
        if isinstance(x, Numbers) and x.tensor.dtype in ("int8", "uint8"):
            t = x.tensor
            if t.dtype == "uint8":
                y = g.Tensor("", t.shape, "int8", zero_point=-128)
                t = self.append(g.Recode(f"{node.name}.int8", (t,), y))
            x = View(x.shape, t)
        if isinstance(x, WideView):
            y = g.Tensor("", x.tensor.shape, "int16", *activation(self, node))
            same = (x.tensor.scale, x.tensor.zero_point) == (y.scale, y.zero_point)
            t = x.tensor if same else self.append(g.Cast(f"{node.name}.rescaled", (x.tensor,), y))
            return WideView(x.shape, t, node.name)
        if not isinstance(x, View):
            raise Problem(node, "has an input that is not quantised")
        scale, zero = activation(self, node)
        y = g.Tensor("", x.tensor.shape, "int8", scale, zero)
        return View(x.shape, self.relabelled(node, x.tensor, y), node.name)

    def _quantize(self, node: Node, x: Value) -> View | WideView:
        scale, zero = activation(self, node)
        if self.reader.types[node.outputs[0]] in WIDE:
            y = g.Tensor("", x.shape, "int16", scale, zero)
            op = g.Quantize(node.name, (self.realised(x),), y)
            return WideView(x.shape, self.append(op, self._stored(node.outputs[0])))
        y = g.Tensor("", x.shape, "int8", scale, zero)
        return View(x.shape, self.quantise(x, y, node, self._stored(node.outputs[0])))

    def _output(self, name: str) -> g.Tensor | None:
        value = self.real.get(name) or self.value(name)
        if isinstance(value, (Fixed, Weights)) and self._is_float(name):
            value = Numbers(value.shape, self.realised(value, name))
        t = value.tensor if isinstance(value, (Numbers, View, WideView)) else None
        if self.reader.types.get(name) == TensorProto.UINT16:
            self.ends.append(f"output {name!r} is uint16; outputs of 16 bits must be int16")
            return None
        if t is None or isinstance(value, Broken):
            if not self.problems and not self.ends:
                self.ends.append(f"output {name!r} does not come from operators on float32 or int8")
            return None
        is_input = any(one.name == name for one in self.inputs)
        wanted = f"{name}'" if is_input else name  # of a copy of the input
        if self.reader.types[name] == TensorProto.UINT8 and t.dtype == "int8":
            y = replace(t, dtype="uint8", zero_point=t.zero_point + 128, data=None)
            return self.append(g.Recode(f"{name}.uint8", (t,), y), wanted)
        return t if t.name == name and not is_input else self.reshape(f"{name}.copy", t, t.shape, wanted)
