"""Reads a file in Deeploy's dialect: inputs, nodes in order, outputs.

Its tensors are float32 and hold integers. Inputs are int8, unless those that lie beside the file are of another type;
what a RequantShift with 256 levels gives is int8, and what has none before it int32. deeploy_operators.py says what
each operator stands for, deeploy_requantise.py what a RequantShift makes of it; nodes that are others in a row, or have
as attributes what ONNX has as inputs today, are rewritten here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from onnx import ModelProto, numpy_helper

from ... import graph as g
from ..core import Node, Problem
from ..source import SINGLE
from ..values import Broken, Fixed, Numbers, Value, View
from .deeploy_operators import OPERATORS
from .deeploy_values import UNSIGNED, Tensors
from .nodes import Chain, Reader, Rewrite, as_float


def _number(node: Node, name: str) -> float:
    value = node.attrs[name]
    return float(np.asarray(value if isinstance(value, (int, float)) else numpy_helper.to_array(value)).item())


def _pad(reader: Reader, node: Node) -> list[Node] | None:
    if "pads" not in node.attrs:
        return None
    pads = reader.constant(np.array(node.attrs["pads"], np.int64))
    value = reader.constant(as_float(node.attrs.get("value", 0.0)))
    mode = {"mode": node.attrs["mode"]} if "mode" in node.attrs else {}
    return [Node("Pad", node.name, [node.inputs[0], pads, value], node.outputs, mode)]


def _slice(reader: Reader, node: Node) -> list[Node] | None:
    if "starts" not in node.attrs:
        return None
    lists = (node.attrs[key] for key in ("starts", "ends", "axes") if key in node.attrs)
    given = [reader.constant(np.array(values, np.int64)) for values in lists]
    return [Node("Slice", node.name, [node.inputs[0], *given], node.outputs)]


def _clip(reader: Reader, node: Node) -> list[Node] | None:
    if not {"min", "max"} & set(node.attrs):
        return None
    bounds = [reader.constant(as_float(_number(node, key))) if key in node.attrs else "" for key in ("min", "max")]
    return [Node("Clip", node.name, [node.inputs[0], *bounds], node.outputs)]


def _gemm(reader: Reader, node: Node) -> list[Node] | None:
    """A matrix product and a sum, but for a row of biases and constant weights, which a layer takes as they are."""
    x, y, *bias = node.inputs
    shapes, attrs = reader.shapes, node.attrs
    factors = [attrs.get(key, 1.0) for key in ("alpha", "beta")]
    constant = all(t in reader.constants for t in (y, *bias))
    row = not bias or np.prod(shapes[bias[0]]) == (shapes[bias[0]] or (1,))[-1]
    if constant and row and len(shapes[x]) == 2 and not attrs.get("transA", 0) and factors == [1.0, 1.0]:
        return None
    chain = Chain(reader, node)
    turned = [*range(len(shapes[x]) - 2), len(shapes[x]) - 1, len(shapes[x]) - 2]
    if attrs.get("transA", 0):
        x = chain.add("Transpose", x, perm=turned)
    if attrs.get("transB", 0):
        y = chain.add("Transpose", y, perm=turned)
    found = chain.add("MatMul", x, y)
    if factors[0] != 1.0:
        found = chain.add("Mul", found, as_float(factors[0]))
    for other in bias:
        scaled = chain.add("Mul", other, as_float(factors[1])) if factors[1] != 1.0 else other
        found = chain.add("Add", found, scaled)
    return chain.finish()


def _shifted(op: str, logarithm: bool = False) -> Rewrite:
    """`op` and a RequantShift in one: its factor, offset and divisor are attributes, or the last inputs.

    The divisor may be an attribute alone; where `logarithm`, an input or the attribute `shift` is its logarithm.
    """

    def rewrite(reader: Reader, node: Node) -> list[Node] | None:
        attrs, inputs = node.attrs, node.inputs
        if "mul" in attrs:
            numbers = [as_float(_number(node, name)) for name in ("mul", "add")]
        else:
            count = 2 if "div" in attrs else 3
            inputs, numbers = inputs[:-count], [reader.value(t) for t in inputs[-count:]]
        if any(array is None for array in numbers):
            return None
        known = [key for key in ("div", "shift") if key in attrs]
        divisor = _number(node, known[0]) if known else np.asarray(numbers[2]).item()
        if "div" not in known and logarithm:
            divisor = 2.0**divisor
        levels = attrs.get("n_levels_out", attrs.get("n_levels", 256))
        chain = Chain(reader, node)
        y = chain.add(op, *inputs, **{k: v for k, v in attrs.items() if k not in _SHIFTS})
        factor, offset = map(as_float, numbers[:2])
        shift = {"div": int(divisor), "n_levels_out": levels, "signed": attrs.get("signed", 1)}
        chain.add("RequantShift", y, factor, offset, **shift)
        return chain.finish()

    return rewrite


_SHIFTS = ("mul", "add", "shift", "div", "n_levels", "n_levels_out", "signed")

FORMS: dict[str, Rewrite] = {
    "Clip": _clip,
    "DebugPrint": lambda reader, node: [Node("Identity", node.name, node.inputs[:1], node.outputs[:1])],
    "Gemm": _gemm,
    "Pad": _pad,
    "RQIntegerDiv": _shifted("IntegerDiv"),
    "RequantizedConv": _shifted("Conv"),
    "RequantizedGemm": _shifted("Gemm"),
    "RequantizediGELU": _shifted("iGELU", logarithm=True),
    "RequantizediHardswish": _shifted("iHardswish", logarithm=True),
    "Slice": _slice,
}


class DeeployImporter(Tensors):
    """Walks the nodes of a model in order."""

    def __init__(self, model: ModelProto, types: Sequence[str] = ()):
        super().__init__(Reader(model, FORMS, untyped=True), [v.name for v in model.graph.output])
        self.model = model
        names = [v.name for v in model.graph.input if v.name not in self.reader.constants]
        whole = [name for name in names if 0 not in self.reader.shapes[name]]
        counted = names if len(types) == len(names) else whole
        self._types = dict(zip(counted, types)) if len(types) == len(counted) else {}  # of inputs, where they are known

    def graph(self, name: str) -> g.Graph | None:
        """The whole model; None if there are problems."""
        self.walk(self.model, self._input, self._node)
        found = [] if self.problems else [self._output(tensor) for tensor in self.outputs]
        if self.problems or self.ends:
            return None
        return self._named(name, found)

    def _input(self, name: str) -> None:
        shape = self.reader.shapes[name]
        if 0 in shape:  # nothing to give; what is joined with it stays
            self.values[name] = Fixed(shape, np.zeros(shape, np.float32))
            return
        self.tensors.add(name)
        kind = self._types.get(name, "int8")
        if kind == "uint8":
            self.inputs.append(g.Tensor(name, shape, kind))
            t = g.Tensor("", shape, zero_point=UNSIGNED)
            self.values[name] = View(shape, self.append(g.Recode(f"{name}.int8", (self.inputs[-1],), t)))
        elif kind == "int32":
            self.inputs.append(g.Tensor(name, shape, kind))
            self.values[name] = Numbers(shape, self.inputs[-1])
        else:
            self.inputs.append(g.Tensor(name, shape))
            self.values[name] = View(shape, self.inputs[-1])

    def _node(self, node: Node) -> None:
        args = [self.value(t) for t in node.inputs]
        found: list[Value] = [Broken(()) for _ in node.outputs]
        with self.noting(node):
            if node.domain:
                raise Problem(node, f"of domain {node.domain!r} is not supported")
            if node.op not in OPERATORS:
                raise Problem(node, "is not supported beside Deeploy's operators")
            if not any(isinstance(arg, Broken) for arg in args):
                found = OPERATORS[node.op](self, node, args)
        self.values |= dict(zip(node.outputs, found))

    def _output(self, name: str) -> g.Tensor | None:
        """The tensor of an output: int8, uint8 or int32."""
        value = self.value(name)
        end = Node("Output", name, [], [])
        if value is None or isinstance(value, (Broken, Fixed)):
            self.ends.append(f"output {name!r} does not come from the inputs")
            return None
        if any(t.name == name for t in self.inputs):
            self.ends.append(f"output {name!r} is an input, which is not supported")
            return None
        with self.noting(end):
            view = self.narrow(end, value)
            if view is None:
                return self.whole(end, value)
            t = self.natural(view)
            if not t.zero_point:
                return t
            y = replace(t, name=name, dtype="uint8", zero_point=0, data=None)
            return self.append(g.Recode(f"{name}.uint8", (t,), y), name)
        return None

    def _named(self, name: str, found: list[g.Tensor | None]) -> g.Graph:
        """The graph, whose outputs have the names that they have in the file."""
        made = {op.output.name for op in self.ops}
        names: dict[str, str] = {}
        outputs = []
        for wanted, t in zip(self.outputs, found):
            assert t is not None
            if t.name != wanted and (t.name not in made or t.name in names or t.name in self.reserved):
                t = self.reshape(f"{wanted}.copy", t, t.shape, wanted)
            elif t.name != wanted:
                names[t.name] = wanted
                t = replace(t, name=wanted)
            outputs.append(t)

        def renamed(t: g.Tensor) -> g.Tensor:
            return replace(t, name=names[t.name]) if t.name in names else t

        ops = [replace(op, inputs=tuple(map(renamed, op.inputs)), output=renamed(op.output)) for op in self.ops]
        return g.Graph(name, tuple(self.inputs), tuple(outputs), tuple(ops), contract=SINGLE)
