"""Reads a file in Deeploy's dialect: inputs, nodes in order, outputs.

Its tensors are float32 and hold integers. Inputs are int8, unless those that lie beside the file are of another type;
what a RequantShift with 256 levels gives is int8, and what has none before it int32. operators.py says what each
operator stands for, requantise.py what a RequantShift makes of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from onnx import ModelProto

from .... import graph as g
from ...source import SINGLE
from ..nodes import Node, Reader
from ..values import Broken, Fixed, Problem, Value, View
from .forms import FORMS
from .operators import OPERATORS
from .tensors import UNSIGNED, Tensors
from .values import Integers


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
        self._tensors.add(name)
        kind = self._types.get(name, "int8")
        if kind == "uint8":
            self.inputs.append(g.Tensor(name, shape, kind))
            t = g.Tensor("", shape, zero_point=UNSIGNED)
            self.values[name] = View(shape, self.append(g.Recode(f"{name}.int8", (self.inputs[-1],), t)))
        elif kind == "int32":
            self.inputs.append(g.Tensor(name, shape, kind))
            self.values[name] = Integers(shape, self.inputs[-1])
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
