"""Nodes that take the place of one."""

from __future__ import annotations

import numpy as np

from ..nodes import Node, Reader


class Chain:
    """Nodes that take the place of `node`: `add` appends one on earlier results, the last has the node's name."""

    def __init__(self, reader: Reader, node: Node):
        self.reader, self.node = reader, node
        self.nodes: list[Node] = []

    def add(self, op: str, *inputs: str | np.ndarray, **attrs: object) -> str:
        """The result of a new node; an array among its inputs becomes a constant."""
        names = [t if isinstance(t, str) else self.reader.constant(t, f"{self.node.name}.constant") for t in inputs]
        name = f"{self.node.name}.{len(self.nodes)}"
        output = self.reader.unused(f"{name}.y")
        self.nodes.append(Node(op, name, names, [output], dict(attrs)))
        return output

    def slice(self, x: str, axis: int, start: int, end: int) -> str:
        """`x` from `start` to before `end` along `axis`."""
        return self.add("Slice", x, *(np.array([k], np.int64) for k in (start, end, axis)))

    def reshape(self, x: str, *shape: int) -> str:
        """`x` with another shape."""
        return self.add("Reshape", x, np.array(shape, np.int64))

    def write(self, output: str, op: str, *inputs: str | np.ndarray, **attrs: object) -> None:
        """Append a node that writes a result of the file's node, where that is wanted."""
        if output:
            self.add(op, *inputs, **attrs)
            self.nodes[-1].name, self.nodes[-1].outputs = f"{self.node.name}.{output}", [output]

    def finish(self) -> list[Node]:
        """The nodes, the last of which writes what the node wrote."""
        self.nodes[-1].outputs = self.node.outputs[:1]
        self.nodes[-1].name = self.node.name
        return self.nodes


def as_float(array: object) -> np.ndarray:
    """`array` as float32."""
    return np.asarray(array, np.float32)
