"""Variables of .tflite files: tensors that keep their values from one inference to the next, as states of the graph.

There are two kinds. A resource is named by VAR_HANDLE, gets its first values in the subgraph that CALL_ONCE runs, and
is moved by READ_VARIABLE and ASSIGN_VARIABLE. A variable tensor is an input of a recurrent operator, which changes it.
What has no first values starts as real zeros, that is at its zero point, as in TensorFlow Lite and its Micro form;
LiteRT refuses to read a resource without any.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ... import graph as g
from .file import FileNode, Info, Subgraph

if TYPE_CHECKING:
    from .importer import TfliteImporter

Key = tuple[bytes, bytes]  # container and name of a resource


@dataclass
class _Resource:
    """A resource in the making: its first values, the tensor that reads see, and what stands in it now."""

    initial: np.ndarray | None = None
    tensor: g.Tensor | None = None
    now: g.Tensor | None = None


class Variables:
    """The variables of a network that is being imported."""

    def __init__(self) -> None:
        self._handles: dict[int, Key] = {}  # by tensor
        self._resources: dict[Key, _Resource] = {}
        self._tensors: list[g.State] = []

    def name(self, handle: int, key: Key) -> None:
        """Tensor `handle` stands for the resource `key`."""
        self._handles[handle] = key
        self._resources.setdefault(key, _Resource())

    def resource(self, handle: int) -> _Resource | None:
        """The resource that tensor `handle` stands for, if there is one."""
        return self._resources.get(self._handles.get(handle, (b"", b"")))

    def initialise(self, key: Key, values: np.ndarray) -> None:
        """The first `values` of the resource `key`."""
        self._resources.setdefault(key, _Resource()).initial = values

    def keep(self, tensor: g.Tensor, new: g.Tensor) -> None:
        """The variable `tensor` of a recurrent operator gets the values `new`."""
        self._tensors.append(g.State(tensor, zeros(tensor), new))

    def states(self) -> tuple[g.State, ...]:
        """The states of the graph: variables that are read."""
        found = []
        for one in self._resources.values():
            if one.tensor is not None:
                first = zeros(one.tensor) if one.initial is None else one.initial
                found.append(g.State(one.tensor, first, one.now or one.tensor))
        return (*found, *self._tensors)


def zeros(t: g.Tensor) -> np.ndarray:
    """Real zeros in the quantisation of `t`."""
    return np.full(t.shape, t.zero_point, t.dtype)


def handle(imp: TfliteImporter, node: FileNode) -> None:
    """VAR_HANDLE."""
    imp.variables.name(node.outputs[0], _key(node))


def _key(node: FileNode) -> Key:
    return node.option("container", b"") or b"", node.option("sharedName", b"") or b""


def call_once(imp: TfliteImporter, node: FileNode) -> None:
    """CALL_ONCE of a subgraph that assigns constants."""
    from .importer import Refused

    number, others = node.option("initSubgraphIndex", 0), imp.file.others
    if not 1 <= number <= len(others):
        raise Refused(f"runs subgraph {number}, which the file does not have")
    for key, values in _assigned(others[number - 1]):
        imp.variables.initialise(key, values)


def _assigned(part: Subgraph) -> list[tuple[Key, np.ndarray]]:
    """The constants that a subgraph gives to resources. Raises `Refused` where it does anything else."""
    from .importer import Refused

    keys, found = {}, []
    for node in part.nodes:
        if node.kind == "VAR_HANDLE":
            keys[node.outputs[0]] = _key(node)
            continue
        target, value = (*node.inputs, -1, -1)[:2]
        data = part.tensors[value].data if value >= 0 else None
        if node.kind != "ASSIGN_VARIABLE" or target not in keys or data is None:
            raise Refused(f"runs {node.kind} {node.name!r}; only assignments of constants to variables are supported")
        found.append((keys[target], data))
    return found


def _named(imp: TfliteImporter, node: FileNode) -> tuple[Info, _Resource]:
    from .importer import Refused

    info = imp.info(node, 0)
    found = imp.variables.resource(node.inputs[0])
    if found is None:
        raise Refused(f"names {info.name!r}, which no VAR_HANDLE before it gives")
    return info, found


def read(imp: TfliteImporter, node: FileNode) -> None:
    """READ_VARIABLE: the state, or what an ASSIGN_VARIABLE before it gave."""
    from .importer import Refused

    info, found = _named(imp, node)
    y = imp.described(imp.file.tensors[node.outputs[0]])
    first = found.initial
    if first is not None and (first.shape, str(first.dtype)) != (y.shape, y.dtype):
        raise Refused(f"reads {y.dtype} {y.shape}; the variable starts as {first.dtype} {first.shape}")
    _check_shape(found, y)
    found.tensor = found.tensor or replace(y, name=info.name)
    now = found.now or found.tensor
    if (now.scale, now.zero_point) != (y.scale, y.zero_point):
        raise Refused(
            f"takes a variable of scale {now.scale:g} and zero point {now.zero_point} for {y.scale:g} and "
            f"{y.zero_point}; they must be equal within an inference"
        )
    imp.alias(node.outputs[0], now)


def _check_shape(found: _Resource, y: g.Tensor) -> None:
    """Raise `Refused` unless the resource has the shape and type of `y`, as far as they are known."""
    from .importer import Refused

    for t in (found.tensor, found.now):
        if t is not None and (t.shape, t.dtype) != (y.shape, y.dtype):
            raise Refused(f"takes a variable of {t.dtype} {t.shape} for {y.dtype} {y.shape}; they must be equal")


def assign(imp: TfliteImporter, node: FileNode) -> None:
    """ASSIGN_VARIABLE."""
    _, found = _named(imp, node)
    value = imp.activation(node, 1, plain=True, dtype=None)
    _check_shape(found, value)
    found.now = value
