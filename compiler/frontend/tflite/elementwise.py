"""Element-wise operators of .tflite files: of two operands, and functions of one value, which become tables."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ... import graph as g
from ...graph import tables
from . import layers
from .file import FileNode
from .importer import TO_NCHW, TfliteImporter

Handler = Callable[[TfliteImporter, FileNode], None]


def operand(imp: TfliteImporter, node: FileNode, position: int, rank: int, dtype: str | None = "int8") -> g.Tensor:
    """An operand that broadcasts against tensors of `rank` dimensions, in their layout."""
    x = imp.activation(node, position, dtype=dtype)
    if rank != 4 or len(x.shape) == 4:
        return x
    x = imp.reshape(f"{node.name}.{position}", x, (1,) * (4 - len(x.shape)) + x.shape)
    return imp.relayout(x, imp.unused(f"{x.name}.nchw"), TO_NCHW)


def binary(cls: type[g.Binary]) -> Handler:
    """ADD, SUB and MUL, with their fused activation."""

    def convert(imp: TfliteImporter, node: FileNode) -> None:
        y = imp.result(node)
        operands = tuple(operand(imp, node, k, len(y.shape)) for k in (0, 1))
        imp.emit(node, cls(node.name, operands, y, *layers.clamp(node, y)))

    return convert


def pairwise(cls: type[g.Pairwise]) -> Handler:
    """MAXIMUM and MINIMUM, of bytes as they are; PRELU and SQUARED_DIFFERENCE."""

    def convert(imp: TfliteImporter, node: FileNode) -> None:
        y = imp.result(node)
        x, other = (operand(imp, node, k, len(y.shape)) for k in (0, 1))
        other = imp.taken_as(other, x) if issubclass(cls, g.Maximum) else other
        imp.emit(node, cls(node.name, (x, other), y))

    return convert


def function(name: str, table: Callable[[g.Tensor, g.Tensor], np.ndarray]) -> Handler:
    """A function of one value by its table, made of input and output."""

    def convert(imp: TfliteImporter, node: FileNode) -> None:
        x, y = imp.activation(node, 0), imp.result(node)
        imp.emit(node, g.Lookup(node.name, (x,), y, name, table(x, y)))

    return convert


def real(name: str) -> Handler:
    """A function that the kernels compute by a table of its real values."""
    return function(name, lambda x, y: tables.table(name, x, y))


def leaky_relu(imp: TfliteImporter, node: FileNode) -> None:
    """LEAKY_RELU."""
    x, y, alpha = imp.activation(node, 0), imp.result(node), node.option("alpha", 0.0)
    table, slopes = tables.leaky_relu(alpha, x, y), tables.slopes(alpha, x, y)
    imp.emit(node, g.LeakyRelu(node.name, (x,), y, "leaky_relu", table, slopes))


def gelu(imp: TfliteImporter, node: FileNode) -> None:
    """GELU, exact or by the hyperbolic tangent."""
    real("gelu_tanh" if node.option("approximate", False) else "gelu")(imp, node)


def relu(low: float, high: float | None) -> Handler:
    """A rectifier of its own: rescaled, and clamped to real limits."""

    def convert(imp: TfliteImporter, node: FileNode) -> None:
        x, y = imp.activation(node, 0), imp.result(node)
        imp.emit(node, g.Requantize(node.name, (x,), y, *layers.limits(y, low, high)))

    return convert
