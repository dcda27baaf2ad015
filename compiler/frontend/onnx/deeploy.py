"""Reads a file in Deeploy's dialect: inputs, nodes in order, outputs.

Its tensors are float32 and hold integers. Inputs are int8, or of the type of the arrays in inputs.npz beside the file.
The result of a RequantShift with 256 levels is int8, results without a RequantShift are int32. This module rewrites
nodes that stand for several operators, and nodes with attributes where ONNX has inputs today. deeploy_operators.py
translates an operator, deeploy_requantise.py a RequantShift with the operator before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from onnx import ModelProto, TensorProto, numpy_helper

from ... import graph as g
from ..core import Node, Problem
from ..source import SINGLE
from ..values import Broken, Fixed, Numbers, Value, View
from .deeploy_operators import OPERATORS
from .deeploy_values import UNSIGNED, Tensors, call
from .nodes import Chain, Reader, Rewrite, Term, as_float
from .rewrites import product_and_sum


def _number(value: float | TensorProto) -> float:
    """The number of an attribute, which may be a tensor of one."""
    return float(np.asarray(value if isinstance(value, (int, float)) else numpy_helper.to_array(value)).item())


def _pad(
    c: Chain, x: Term, *others: Term, pads: Sequence[int], value: float = 0.0, mode: str = "constant"
) -> Term | None:
    return None if others else x.node("Pad", np.array(pads, np.int64), value, mode=mode)


def _slice(
    c: Chain, x: Term, *others: Term, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int] | None = None
) -> Term | None:
    bounds = (np.array(values, np.int64) for values in (starts, ends, axes) if values is not None)
    return None if others else x.node("Slice", *bounds)


def _clip(c: Chain, x: Term, *others: Term, **bounds: float | TensorProto) -> Term | None:
    if others or not bounds:
        return None
    return x.node("Clip", *(_number(bounds[key]) if key in bounds else None for key in ("min", "max")))


def _gemm(c: Chain, x: Term, y: Term, bias: Term | None = None, **attrs: float) -> Term | None:
    """A matrix product and a sum, but for a row of biases and constant weights, which a layer takes as they are."""
    constant = y.value is not None and (bias is None or bias.value is not None)
    row = bias is None or np.prod(bias.shape) == (bias.shape or (1,))[-1]
    plain = not attrs.get("transA") and attrs.get("alpha", 1.0) == attrs.get("beta", 1.0) == 1.0
    return None if constant and row and len(x.shape) == 2 and plain else product_and_sum(x, y, bias, **attrs)


def _shifted(op: str, logarithm: bool = False) -> Rewrite:
    """`op` and a RequantShift in one: its factor, offset and divisor are attributes, or the last inputs.

    The divisor may be an attribute alone; where `logarithm`, an input or the attribute `shift` is its logarithm.
    """

    def rewrite(
        c: Chain, *inputs: Term, mul: TensorProto | None = None, add: TensorProto | None = None,
        div: TensorProto | None = None, shift: TensorProto | None = None, n_levels: object = 256,
        n_levels_out: object = None, signed: object = 1, **attrs: object,
    ) -> Term | None:  # fmt: skip
        if mul is not None and add is not None:
            numbers: list[np.ndarray | None] = [as_float(_number(value)) for value in (mul, add)]
        else:
            count = 3 if div is None else 2
            inputs, numbers = inputs[:-count], [term.value for term in inputs[-count:]]
        if any(array is None for array in numbers):
            return None
        known = div if div is not None else shift
        divisor = _number(known) if known is not None else np.asarray(numbers[2]).item()
        divisor = 2.0**divisor if div is None and logarithm else divisor
        levels = n_levels if n_levels_out is None else n_levels_out
        numbers = [as_float(array) for array in numbers[:2]]
        return c.add(op, *inputs, **attrs).node(
            "RequantShift", *numbers, div=int(divisor), n_levels_out=levels, signed=signed
        )

    return rewrite


FORMS: dict[str, Rewrite] = {
    "Clip": _clip,
    "DebugPrint": lambda c, x: x,
    "Gemm": _gemm,
    "Pad": _pad,
    "RQIntegerDiv": _shifted("IntegerDiv"),
    "RequantizedConv": _shifted("Conv"),
    "RequantizedGemm": _shifted("Gemm"),
    "RequantizediGELU": _shifted("iGELU", logarithm=True),
    "RequantizediHardswish": _shifted("iHardswish", logarithm=True),
    "Slice": _slice,
}


# types of inputs that a file states; most state float32, whatever the values are
_STATED: dict[int, str] = {TensorProto.UINT8: "uint8", TensorProto.INT32: "int32"}


class DeeployImporter(Tensors):
    """Walks the nodes of a model in order."""

    def __init__(self, model: ModelProto, types: Mapping[str, str]):
        super().__init__(Reader(model, FORMS, untyped=True), [v.name for v in model.graph.output])
        self.model, self._types = model, types

    def graph(self, name: str) -> g.Graph | None:
        """The whole model; None if there are problems."""
        self.walk(self.model, self._input, self._node)
        tensors = [] if self.problems else [self._output(tensor) for tensor in self.outputs]
        if self.problems or self.ends:
            return None
        return self._named(name, tensors)

    def _input(self, name: str) -> None:
        shape = self.reader.shapes[name]
        if 0 in shape:  # an empty cache; a Concat with it is its other operand
            self.values[name] = Fixed(shape, np.zeros(shape, np.float32))
            return
        self.tensors.add(name)
        kind = self._types.get(name) or _STATED.get(self.reader.types[name], "int8")
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
        results: list[Value] = [Broken(()) for _ in node.outputs]
        with self.noting(node):
            if node.domain:
                raise Problem(node, f"of domain {node.domain!r} is not supported")
            if node.op not in OPERATORS:
                raise Problem(node, "is not supported beside Deeploy's operators")
            if not any(isinstance(arg, Broken) for arg in args):
                results = call(OPERATORS[node.op], self, node, args)
        self.values |= dict(zip(node.outputs, results))

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

    def _named(self, name: str, tensors: list[g.Tensor | None]) -> g.Graph:
        """The graph, whose outputs have the names that they have in the file."""
        computed = {op.output.name for op in self.ops}
        names: dict[str, str] = {}
        outputs = []
        for wanted, t in zip(self.outputs, tensors):
            assert t is not None
            if t.name != wanted and (t.name not in computed or t.name in names or t.name in self.reserved):
                t = self.reshape(f"{wanted}.copy", t, t.shape, wanted)
            elif t.name != wanted:
                names[t.name] = wanted
                t = replace(t, name=wanted)
            outputs.append(t)

        def renamed(t: g.Tensor) -> g.Tensor:
            return replace(t, name=names[t.name]) if t.name in names else t

        ops = [replace(op, inputs=tuple(map(renamed, op.inputs)), output=renamed(op.output)) for op in self.ops]
        return g.Graph(name, tuple(self.inputs), tuple(outputs), tuple(ops), contract=SINGLE)
