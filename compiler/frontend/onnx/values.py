"""What the tensors of an ONNX file stand for while it is read: constants, int8 tensors, float expressions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ... import graph as g
from .nodes import Node


class Problem(Exception):
    """Raised for a node that is not supported; the text says why, to print after the node."""

    def __init__(self, node: Node, why: str):
        super().__init__(why)
        self.node, self.why = node, why


@dataclass(eq=False)
class Value:
    """A tensor of the file; `shape` is its shape there."""

    shape: tuple[int, ...]


@dataclass(eq=False)
class Fixed(Value):
    """A constant."""

    array: np.ndarray


@dataclass(eq=False)
class Weights(Value):
    """A dequantised constant: `(integers - zero) * scale`, with one scale, or one per index of `axis`."""

    integers: np.ndarray
    scale: np.ndarray
    zero: np.ndarray
    axis: int

    @property
    def real(self) -> np.ndarray:
        """float32: the values."""
        scale, zero = (
            a.reshape((-1,) + (1,) * (self.integers.ndim - self.axis - 1)) if a.size > 1 else a.reshape(())
            for a in (self.scale, self.zero)
        )
        return ((self.integers.astype(np.int64) - zero) * scale.astype(np.float32)).astype(np.float32)

    @property
    def centred(self) -> np.ndarray:
        """int64: the integers without their zero points."""
        zero = self.zero.astype(np.int64)
        return self.integers.astype(np.int64) - (
            zero.reshape((-1,) + (1,) * (self.integers.ndim - self.axis - 1)) if zero.size > 1 else zero.reshape(())
        )


@dataclass(eq=False)
class View(Value):
    """An int8 tensor of the graph, or its real values; `name` is that of the node that dequantised it."""

    tensor: g.Tensor
    name: str = ""


@dataclass(eq=False)
class Real(Value):
    """A float32 tensor of the graph."""

    tensor: g.Tensor


@dataclass(eq=False)
class Expr(Value):
    """Result number `index` of a float node on `args` (None: left out), computed once its users are known."""

    node: Node
    args: tuple[Value | None, ...]
    index: int = 0


@dataclass(eq=False)
class Broken(Value):
    """What comes from a node that is refused: its users are not refused, too."""


def constant(value: Value | None) -> np.ndarray | None:
    """The value of a constant, dequantised or not; None of other values."""
    if isinstance(value, Weights):
        return value.real
    return value.array if isinstance(value, Fixed) else None


def channel_vector(array: np.ndarray, shape: tuple[int, ...], axis: int) -> np.ndarray | None:
    """One value per index of `axis` of an array that broadcasts to `shape`; None if it varies along other axes."""
    full = array.reshape((1,) * (len(shape) - array.ndim) + array.shape)
    if any(n > 1 for k, n in enumerate(full.shape) if k != axis):
        return None
    return np.broadcast_to(full.reshape(-1), (shape[axis],))
