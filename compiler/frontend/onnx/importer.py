"""Reads QDQ and QOperator ONNX files: nodes to operators of compiler/graph/.

Between a DequantizeLinear and a QuantizeLinear an ONNX file computes in float32. The importer keeps such nodes as
expressions (values.py) until a QuantizeLinear, or an output, takes them: an expression with an integer form (forms.py)
becomes an int8 operator, every other one float32 operators on the host (floats.py). Operators that only move values
move int8 values (movements.py). QOperator files are rewritten to QDQ before (qlinear.py), composed operators to
elementary ones (rewrites.py, layouts.py, recurrent.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ....hw.errors import FileError, UnsupportedError
from ... import graph as g

try:
    from onnx import ModelProto, TensorProto
except ImportError as exc:
    raise UnsupportedError(f"reading models needs onnx ({exc}); pip install 'tilewright[compiler]'") from None
from ..core import Node, Problem, summary
from ..source import SINGLE, Source, as_source, in_dialect, one_line
from ..values import (
    Broken,
    Expr,
    Fixed,
    Numbers,
    Value,
    View,
    Weights,
    affine,
    clip_bounds,
    constant,
    operands_first,
    steps,
)
from .deeploy import DeeployImporter
from .file import checked
from .floats import FLOATS, realised
from .forms import FORMS
from .layouts import LAYOUTS
from .movements import MOVES, moved
from .nodes import ALIASES, LIKE, REAL, Inconsistent, Reader, Reading, activation, parameters
from .numbers import NAMES, converted
from .qlinear import QLINEAR
from .recurrent import RECURRENT
from .rewrites import ARITHMETIC

REWRITES = {**ARITHMETIC, **LAYOUTS, **RECURRENT, **QLINEAR}
_EXACT = 1e-5  # largest distance of a bound from an integer, in steps
_ENDS = ("QuantizeLinear", "DequantizeLinear")
OPERATORS = frozenset((*FLOATS, *NAMES, *MOVES, *REWRITES, *ALIASES, *_ENDS, "Constant", "Shape", "Size"))
_NUMBERS: dict[int, str] = {TensorProto.FLOAT: "float32", TensorProto.INT8: "int8", TensorProto.UINT8: "uint8"}
_NUMBERS |= {TensorProto.INT32: "int32", TensorProto.INT64: "int64", TensorProto.BOOL: "bool"}


def import_onnx(model: str | Path | Source) -> g.Graph:
    """Read an ONNX file; an open batch dimension becomes 1.

    Raises `FileError` if the file is missing, damaged or inconsistent, `UnsupportedError` that lists every node
    that the compiler does not support.
    """
    source = as_source(model)
    proto = checked(source)
    importer = DeeployImporter(proto, source.types) if in_dialect(proto, source.types) else Importer(proto)
    try:
        graph = importer.graph(source.path.stem)
    except Inconsistent as exc:
        raise FileError(f"{source.path}: the model's shapes or types are inconsistent ({one_line(exc)})") from None
    if importer.problems:
        raise UnsupportedError(f"{source.path}: {summary(importer.problems, 'operator')}")
    if graph is None:
        raise UnsupportedError(f"{source.path}: {'; '.join(importer.ends)}")
    return graph


@dataclass(frozen=True, eq=False)
class Result:
    """The result of a QuantizeLinear on a float expression: a tensor quantised as `y`, clamped to `clamp`.

    `wanted` is its name if it is an output of the graph, else empty; `top` is the last node before the quantisation.
    """

    y: g.Tensor
    clamp: tuple[int, int]
    wanted: str
    top: Node

    @property
    def whole(self) -> bool:
        """True if nothing is clamped."""
        return self.clamp == (-128, 127)


class Importer(Reading):
    """Walks the nodes of a model in order."""

    def __init__(self, model: ModelProto):
        super().__init__(Reader(model, REWRITES), [v.name for v in model.graph.output])
        self.model = model
        self.views: dict[int, tuple[Value, View | None]] = {}  # found by `as_view`, by id
        self.floats: dict[int, tuple[Value, g.Tensor]] = {}  # realised, by id
        self.joins: dict[tuple[int, float, int], tuple[Value, list[g.Tensor]]] = {}  # by id, scale and zero point
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
                    real = Numbers(value.shape, realised(self, value, tensor))
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

    def quantise(self, value: Value, y: g.Tensor, node: Node, wanted: str = "") -> g.Tensor:
        """`value` as an int8 tensor quantised as `y`; `node` names an operator that only quantises.

        Movements and clamps of a float expression are taken off: they come after quantisation, and with it.
        """
        for part in operands_first(value, lambda part: self._unjoined(part, y)):  # so that `joined` does not recurse
            self.joined(_bare(part).core, y)
        core, low, high, moves, top = _bare(value)
        clamp = steps(low, y), steps(high, y)
        result = Result(replace(y, shape=core.shape), clamp, "" if moves else wanted, top or node)
        t = self._quantised(core, result, node.name)
        for k, move in enumerate(reversed(moves)):
            t = moved(self, move.node, move.index, t, wanted if k == len(moves) - 1 else "")
        return t

    def _unjoined(self, value: Expr, y: g.Tensor) -> Sequence[Value | None]:
        """The operands of the Concat below `value` that are not quantised as `y` yet."""
        core = _bare(value).core
        if not isinstance(core, Expr) or core.node.op != "Concat" or (id(core), y.scale, y.zero_point) in self.joins:
            return ()
        return core.args

    def joined(self, value: Value, y: g.Tensor) -> list[g.Tensor]:
        """The operands of a Concat, quantised as `y`, which is done once; none of another value."""
        if not isinstance(value, Expr) or value.node.op != "Concat":
            return []
        key, node = (id(value), y.scale, y.zero_point), value.node
        if key not in self.joins:
            self.joins[key] = value, []
            for k, arg in enumerate(value.args):
                assert arg is not None
                part = Node("Concat", f"{node.name}.{k}", [], [])
                try:
                    self.joins[key][1].append(self.quantise(arg, replace(y, shape=arg.shape), part))
                except Problem as exc:
                    raise Problem(node if exc.node is part else exc.node, exc.why) from None
        return self.joins[key][1]

    def as_view(self, value: Value | None) -> View | None:
        """An int8 tensor of exactly the values of `value`, which may be clamped or multiplied, if there is one."""
        clamps: list[Expr] = []
        while isinstance(value, Expr) and id(value) not in self.views and clip_bounds(value) is not None:
            clamps.append(value)
            value = value.args[0]
        if isinstance(value, Expr) and id(value) not in self.views:
            self.views[id(value)] = value, self._exact(value, None)
        view = self.views[id(value)][1] if isinstance(value, Expr) else value if isinstance(value, View) else None
        for clamp in reversed(clamps):
            view = self._exact(clamp, view)
            self.views[id(clamp)] = clamp, view
        return view

    def _exact(self, value: Expr, x: View | None) -> View | None:
        """`as_view` of an expression; `x` is the view of the operand of a clamp."""
        node, bounds = value.node, clip_bounds(value)
        if bounds is not None and x is not None:
            t = x.tensor
            real = [(np.float64(steps(b, t)) - t.zero_point) * t.scale for b in bounds]
            if any(np.isfinite(b) and abs(b - r) > _EXACT * t.scale for b, r in zip(bounds, real)):
                return None
            y = replace(t, name="", data=None)
            op = g.NearestRequantize(node.name, (t,), y, *(steps(b, t) for b in bounds))
            return View(value.shape, self.append(op), node.name)
        core, factor, offset = affine(value)
        if isinstance(core, View) and factor.size == 1 and factor.item() > 0 and not offset.any():
            t = core.tensor
            y = g.Tensor("", t.shape, "int8", t.scale * factor.item(), t.zero_point)
            return View(value.shape, self.relabelled(node, t, y), node.name)
        return None

    def relabelled(self, node: Node, t: g.Tensor, y: g.Tensor) -> g.Tensor:
        """Reinterpret int8 values under another scale or zero point; no value changes."""
        same = np.arange(-128, 128).astype(np.int8)
        return self.append(g.Lookup(f"{node.name}.rescaled", (t,), y, "identity", same))

    def _quantised(self, value: Value, result: Result, name: str) -> g.Tensor:
        y = result.y
        if isinstance(value, View):
            x = value.tensor
            if (x.scale, x.zero_point) == (y.scale, y.zero_point) and result.whole:
                return x
            return self.checked(result.top, g.NearestRequantize(result.top.name, (x,), y, *result.clamp), result.wanted)
        if isinstance(value, (Fixed, Weights)):
            real = np.asarray(constant(value), np.float32)
            steps = np.clip(np.rint(real / np.float32(y.scale)) + y.zero_point, *result.clamp)
            return self.constant(f"{name}.constant", steps.astype(np.int8), y)
        if isinstance(value, Expr):
            for form in FORMS:
                if (quantised := form(self, value, result)) is not None:
                    return quantised
        t = g.Quantize(name, (realised(self, value),), replace(y, shape=value.shape))
        if result.whole:
            return self.append(t, result.wanted)
        x = self.append(t)
        return self.append(g.NearestRequantize(result.top.name, (x,), y, *result.clamp), result.wanted)

    def _output(self, name: str) -> g.Tensor | None:
        value = self.real.get(name) or self.value(name)
        if isinstance(value, (Fixed, Weights)) and self._is_float(name):
            value = Numbers(value.shape, realised(self, value, name))
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


class _Bare(NamedTuple):
    """A value without the clamps and movements around it: the bounds, the movements and the last clamp's node."""

    core: Value
    low: float
    high: float
    moves: list[Expr]
    top: Node | None


def _bare(value: Value) -> _Bare:
    """Take clamps and movements off a float expression. Raises `Problem` for bounds that are no numbers."""
    low, high, moves, top = -math.inf, math.inf, list[Expr](), None
    while isinstance(value, Expr):
        bounds = clip_bounds(value)
        if bounds is not None:
            if math.isnan(bounds[0]) or math.isnan(bounds[1]):
                raise Problem(value.node, f"clamps to {bounds[0]:g}..{bounds[1]:g}, which are no numbers")
            low, high = max(low, min(bounds[0], high)), min(high, max(bounds[1], low))
            top = top or value.node
        elif value.node.op in MOVES and (value.node.op != "Pad" or (low, high) == (-math.inf, math.inf)):
            moves.append(value)
        else:
            break
        inner = value.args[0]
        assert inner is not None
        value = inner
    return _Bare(value, low, high, moves, top)
