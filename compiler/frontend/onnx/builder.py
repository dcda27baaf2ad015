"""The graph in the making: operators, names of operators and tensors, changes of shape; and what is known of the file's
tensors meanwhile."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
from onnx import ModelProto

from ....hw.errors import InputError
from ....runtime.schema import MOST
from ... import graph as g
from ...graph import Names, ranges
from ..source import one_line
from .file import named_nodes
from .nodes import MISFITS, Node, Reader
from .values import Broken, Fixed, Problem, Value, constant


class Builder:
    """Operators so far. `reserved` are the names of the graph's outputs: only `wanted` tensors get them."""

    def __init__(self, reserved: AbstractSet[str]):
        self.reserved = reserved
        self.inputs: list[g.Tensor] = []
        self.ops: list[g.Operator] = []
        self._tensors, self._names = Names(reserved), Names()

    def append(self, op: g.Operator, wanted: str = "") -> g.Tensor:
        """Append an operator, whose output is named `wanted`, or after the operator. Returns that output."""
        free = op.name if op.name not in self._tensors else f"{op.name}.out"
        output = replace(op.output, name=wanted or self._tensors.unused(free))
        op = replace(op, name=self._names.unused(op.name), output=output)
        self.ops.append(op)
        return op.output

    def constant(self, name: str, array: np.ndarray, like: g.Tensor | None = None) -> g.Tensor:
        """A constant operand, float32 or quantised as `like`; of rank 1 where it is a scalar."""
        array = np.ascontiguousarray(np.atleast_1d(array))
        name = self._tensors.unused(name)
        if like is None:
            return g.Tensor(name, array.shape, "float32", data=array.astype(np.float32))
        return g.Tensor(name, array.shape, "int8", like.scale, like.zero_point, array)

    def checked(self, node: Node, op: g.Operator, wanted: str = "", shape: Sequence[int] | None = None) -> g.Tensor:
        """As `append`, or with `shape` as `plain`. Raises `Problem` if integers of the operator can leave int32."""
        if text := ranges.problem(op):
            raise Problem(node, text)
        return self.plain(op, op.output.shape if shape is None else shape, wanted)

    def reshape(self, name: str, x: g.Tensor, shape: Sequence[int], wanted: str = "") -> g.Tensor:
        """`x` in another shape; `x` itself where that is its shape and no name is wanted."""
        if x.shape == tuple(shape) and not wanted:
            return x
        return self.append(g.Reshape(name, (x,), replace(x, name="", shape=tuple(shape), data=None)), wanted)

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


class Reading(Builder):
    """A builder with the `reader` of a file, and what the file's tensors stand for, `values`, so far.

    `problems` are (operator, name, why) of nodes, `ends` what is wrong with inputs and outputs.
    """

    def __init__(self, reader: Reader, outputs: list[str]):
        super().__init__(frozenset(outputs))
        self.reader, self.outputs = reader, outputs
        self.values: dict[str, Value] = {}
        self.problems: list[tuple[str, str, str]] = []
        self.ends: list[str] = []

    def walk(self, model: ModelProto, on_input: Callable[[str], None], on_node: Callable[[Node], None]) -> None:
        """Read the nodes of `model`, and visit its inputs that are no constants, then its nodes in order."""
        self.reader.read(named_nodes(model))
        for value in model.graph.input:
            if value.name not in self.reader.constants:
                on_input(value.name)
        for node in self.reader.nodes:
            on_node(node)

    @contextmanager
    def noting(self, node: Node) -> Iterator[None]:
        """Note as a problem, of `node` unless it names another, what is raised inside."""
        try:
            yield
        except Problem as exc:
            self.problems.append((exc.node.kind, exc.node.name, exc.why))
        except InputError as exc:
            self.problems.append((node.kind, node.name, str(exc)))
        except MISFITS as exc:
            why = f"has inputs or attributes that do not fit together ({one_line(exc)})"
            self.problems.append((node.kind, node.name, why))

    def shape(self, node: Node, tensor: str) -> tuple[int, ...]:
        """The shape of a tensor of the file. Raises `Problem`, which names `node`, where it is unknown."""
        if tensor not in self.reader.shapes:
            raise Problem(node, "has a shape that depends on values, which is not supported")
        shape = self.reader.shapes[tensor]
        if math.prod(shape) > MOST:
            raise Problem(node, f"has {math.prod(shape):,} elements; at most {MOST:,} are supported")
        return shape

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
        """What a tensor of the file stands for; None of one that is left out."""
        if not tensor:
            return None
        if tensor not in self.values:
            array = self.reader.value(tensor)
            self.values[tensor] = Broken(()) if array is None else Fixed(array.shape, array)
        return self.values[tensor]
