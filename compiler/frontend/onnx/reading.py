"""The graph in the making beside the file it is made from: shapes and constants of the file's tensors by name."""

from __future__ import annotations

import math

from ....runtime.schema import MOST
from .builder import Builder
from .nodes import Node, Reader
from .values import Broken, Fixed, Problem, Value, constant


class Reading(Builder):
    """A builder with the `reader` of a file, and what the file's tensors stand for, `values`, so far."""

    def __init__(self, reader: Reader, outputs: list[str]):
        super().__init__(set(outputs))
        self.reader, self.outputs = reader, outputs
        self.values: dict[str, Value] = {}

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
