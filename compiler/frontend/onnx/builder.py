"""The graph in the making: operators, names of operators and tensors, changes of shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ... import graph as g
from ...graph import ranges
from .nodes import Node
from .values import Problem


class Builder:
    """Operators so far. `reserved` are the names of the graph's outputs: only `wanted` tensors get them."""

    def __init__(self, reserved: set[str]):
        self.inputs: list[g.Tensor] = []
        self.ops: list[g.Operator] = []
        self._tensors, self._names = set(reserved), set[str]()

    def append(self, op: g.Operator, wanted: str = "") -> g.Tensor:
        """Append an operator, whose output is named `wanted`, or after the operator. Returns that output."""
        name, output = op.name, wanted or op.name
        while name in self._names:
            name += "'"
        while not wanted and output in self._tensors:
            output += ".out"
        self._names.add(name)
        self._tensors.add(output)
        op = replace(op, name=name, output=replace(op.output, name=output))
        self.ops.append(op)
        return op.output

    def constant(self, name: str, array: np.ndarray, like: g.Tensor | None = None) -> g.Tensor:
        """A constant operand, float32 or quantised as `like`; of rank 1 where it is a scalar."""
        array = np.ascontiguousarray(np.atleast_1d(array))
        while name in self._tensors:
            name += "'"
        self._tensors.add(name)
        if like is None:
            return g.Tensor(name, array.shape, "float32", data=array.astype(np.float32))
        return g.Tensor(name, array.shape, "int8", like.scale, like.zero_point, array)

    def checked(self, node: Node, op: g.Operator, wanted: str = "") -> g.Tensor:
        """As `append`. Raises `Problem` if integers of the operator can leave int32."""
        if text := ranges.problem(op):
            raise Problem(node, text)
        return self.append(op, wanted)

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
