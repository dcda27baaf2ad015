"""What the tensors of a file in Deeploy's dialect stand for, beside int8 tensors (`View`) and constants (`Fixed`).

Sums and products have more bits than int8 until a RequantShift takes them: until then they are kept as what they are
the sums and products of.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import TensorProto, numpy_helper

from .... import graph as g
from ..geometry import Geometry
from ..nodes import Node
from ..values import Problem, Value

EVERY = np.arange(-128, 128)  # int8 values


@dataclass(eq=False)
class Table(Value):
    """A function of one int8 tensor: `integers`, int64 (256,), by the stored values from -128 on."""

    tensor: g.Tensor
    integers: np.ndarray


@dataclass(eq=False)
class Layer(Value):
    """`x @ weight.T + bias`: rows x (N, I), weights int64 (O, I), biases int64 (O,)."""

    node: Node
    x: g.Tensor
    weight: np.ndarray
    bias: np.ndarray


@dataclass(eq=False)
class Convolution(Value):
    """A convolution of the images x, weights int64 (O, I, KH, KW), biases int64 (O,); rows are images of one row."""

    node: Node
    x: g.Tensor
    weight: np.ndarray
    bias: np.ndarray
    geometry: Geometry


@dataclass(eq=False)
class Products(Value):
    """Matrix products of two int8 tensors."""

    node: Node
    x: g.Tensor
    y: g.Tensor


@dataclass(eq=False)
class Pair(Value):
    """`factor` times the sums or products, by the node's operator, of two int8 tensors."""

    node: Node
    op: str
    x: g.Tensor
    y: g.Tensor
    factor: int = 1


@dataclass(eq=False)
class Shares(Value):
    """An iSoftmax of an int8 or int32 tensor: 0..levels-1."""

    node: Node
    x: g.Tensor
    numbers: dict[str, int]


@dataclass(eq=False)
class Integers(Value):
    """An int32 tensor of the graph."""

    tensor: g.Tensor


@dataclass(eq=False)
class Moved(Value):
    """Result number `index` of a node that moves the values of another."""

    node: Node
    index: int
    inner: Value


def unmoved(value: Value) -> tuple[list[Moved], Value]:
    """The movements of a value, the first one first, and what they move."""
    moves: list[Moved] = []
    while isinstance(value, Moved):
        moves.append(value)
        value = value.inner
    return moves[::-1], value


def given(node: Node, args: list[Value | None], count: int) -> list[Value]:
    """The first `count` inputs. Raises `Problem` where one is left out."""
    found = [arg for arg in args[:count] if arg is not None]
    if len(found) < count:
        raise Problem(node, f"has {len(found)} inputs; {count} are needed")
    return found


def attribute(node: Node, name: str, *others: str) -> int:
    """The integer of an attribute, which may be a number or a tensor of one, or of the first of `others` that is there.

    Raises `Problem` where it is missing, or no integer.
    """
    found = next((node.attrs[key] for key in (name, *others) if key in node.attrs), None)
    if found is None:
        raise Problem(node, f"has no attribute {name!r}")
    array = numpy_helper.to_array(found) if isinstance(found, TensorProto) else np.asarray(found)
    if array.size != 1:
        raise Problem(node, f"has {array.size} values of {name!r}; 1 is needed")
    return int(whole(node, array, name).reshape(-1)[0])


def whole(node: Node, array: np.ndarray, what: str) -> np.ndarray:
    """int64: an array of integers of at most 32 bits, whatever its type. Raises `Problem` for others."""
    if array.dtype.kind not in "biuf":
        raise Problem(node, f"has {what} of type {array.dtype}, which are no integers")
    with np.errstate(invalid="ignore"):  # numbers that are none
        values = array.astype(np.float64)
    wrong = values[~(np.isfinite(values) & (values == np.rint(values)) & (np.abs(values) < 2.0**31))]
    if wrong.size:
        raise Problem(node, f"has {what} of {wrong[0]:g}, which is no integer of 32 bits")
    return values.astype(np.int64)
