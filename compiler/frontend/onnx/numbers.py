"""Nodes on integers and truth values, and those that make such of real values: positions, comparisons, choices.

They become operators on plain numbers as soon as they are read; what moves them is moves.py's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from onnx import helper

from ... import graph as g
from ..core import Node, Problem
from ..values import Fixed, Real, Value, View, Weights
from .floats import realised
from .movements import MOVES, moved
from .nodes import parameters

if TYPE_CHECKING:
    from .importer import Importer

Make = Callable[["Importer", Node, list[Value | None]], g.Operator]
TYPES = ("float32", "int32", "int64", "bool")  # beside raw int8 and uint8
_COMPARISONS = {
    "Equal": "equal",
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
    "Less": "less",
    "LessOrEqual": "less_equal",
    "Xor": "not_equal",
}
_BINARY = {"Add": "add", "Div": "div", "Max": "maximum", "Min": "minimum", "Mul": "mul", "Sub": "sub"}


def converted(imp: Importer, node: Node, args: list[Value | None]) -> list[Value] | None:
    """What the node's outputs stand for; None where it is not one of these."""
    kinds = {dtype_of(imp, t) for t in (*node.inputs[:1], *node.outputs[:1])}
    if node.op == "Gather" and isinstance(args[1], Real):
        return _gathered(imp, node, args)
    if node.op == "TopK":
        return _top(imp, node, args)
    numeric = any(isinstance(arg, Real) and arg.tensor.dtype != "float32" for arg in args)
    if not numeric and kinds <= {"float32", "int8", "uint8"} and node.op != "Where":
        return None
    if node.op in MOVES and isinstance(args[0], Real):
        return [Real(t.shape, t) for t in (_moved(imp, node, k, args[0].tensor) for k in range(len(node.outputs)))]
    if node.op not in MAKERS or (node.op in (*_BINARY, "Concat") and not numeric):
        return None
    op = MAKERS[node.op](imp, node, args)
    t = imp.append(op, _wanted(imp, node.outputs[0]))
    return [Real(t.shape, t)]


def _wanted(imp: Importer, tensor: str) -> str:
    return tensor if tensor in imp.reserved else ""


def _moved(imp: Importer, node: Node, index: int, x: g.Tensor) -> g.Tensor:
    return moved(imp, node, index, x, _wanted(imp, node.outputs[index]))


def dtype_of(imp: Importer, tensor: str) -> str:
    """The type of a tensor of the file, by numpy's name; empty where it is unknown."""
    kind = imp.reader.types.get(tensor, 0)
    return str(helper.tensor_dtype_to_np_dtype(kind)) if kind else ""


def _tensor(imp: Importer, node: Node, value: Value | None) -> g.Tensor:
    """The tensor of plain numbers of an argument."""
    if value is None:
        raise Problem(node, "lacks an input that it needs")
    if isinstance(value, Real):
        return value.tensor
    if isinstance(value, Fixed) and value.array.dtype != np.float32:
        array = np.ascontiguousarray(np.atleast_1d(value.array))
        if str(array.dtype) not in TYPES:
            raise Problem(node, f"has a constant of type {array.dtype}; only {', '.join(TYPES)} are supported")
        return imp.constant("constant", array)
    return realised(imp, value)


def _output(imp: Importer, node: Node, shape: tuple[int, ...], index: int = 0) -> g.Tensor:
    dtype = dtype_of(imp, node.outputs[index])
    if dtype not in (*TYPES, "int8", "uint8"):
        raise Problem(node, f"has an output of type {dtype}; only {', '.join(TYPES)} are supported")
    return g.Tensor("", shape or (1,), dtype)


def _shape(imp: Importer, node: Node) -> tuple[int, ...]:
    return imp.shape(node, node.outputs[0])


def _cast(imp: Importer, node: Node, args: list[Value | None]) -> g.Operator:
    x, y = _tensor(imp, node, args[0]), _output(imp, node, _shape(imp, node))
    if y.dtype == "bool":
        return g.Compare(node.name, (x, _zero(imp, x)), y, "not_equal")
    return g.Cast(node.name, (x,), y)


def _zero(imp: Importer, x: g.Tensor) -> g.Tensor:
    return imp.constant("zero", np.zeros((1,) * len(x.shape), x.dtype))


def _compare(imp: Importer, node: Node, args: list[Value | None]) -> g.Operator:
    operands = tuple(_tensor(imp, node, arg) for arg in args[:2])
    return g.Compare(node.name, operands, _output(imp, node, _shape(imp, node)), _COMPARISONS[node.op])


def _not(imp: Importer, node: Node, args: list[Value | None]) -> g.Operator:
    x = _tensor(imp, node, args[0])
    return g.Compare(node.name, (x, _zero(imp, x)), _output(imp, node, _shape(imp, node)), "equal")


def _logic(imp: Importer, node: Node, args: list[Value | None]) -> g.Operator:
    x, y = (_tensor(imp, node, arg) for arg in args[:2])
    values = (x, y, x) if node.op == "And" else (x, x, y)
    return g.Select(node.name, values, _output(imp, node, _shape(imp, node)))


def _where(imp: Importer, node: Node, args: list[Value | None]) -> g.Operator:
    operands = tuple(_tensor(imp, node, arg) for arg in args)
    return g.Select(node.name, operands, _output(imp, node, _shape(imp, node)))


def _binary(imp: Importer, node: Node, args: list[Value | None]) -> g.Operator:
    operands = tuple(_tensor(imp, node, arg) for arg in args[:2])
    return g.NumberBinary(node.name, operands, _output(imp, node, _shape(imp, node)), _BINARY[node.op])


def _concat(imp: Importer, node: Node, args: list[Value | None]) -> g.Operator:
    operands, y = tuple(_tensor(imp, node, arg) for arg in args), _output(imp, node, _shape(imp, node))
    return g.Concat(node.name, operands, y, node.attrs["axis"] % len(y.shape))


def _position(imp: Importer, node: Node, args: list[Value | None]) -> g.Operator:
    if node.attrs.get("select_last_index", 0):
        raise Problem(node, "takes the last of several positions, which is not supported")
    x = args[0].tensor if isinstance(args[0], View) else _tensor(imp, node, args[0])
    axis = node.attrs.get("axis", 0) % len(x.shape)
    return g.ArgMax(node.name, (x,), _output(imp, node, _shape(imp, node)), axis, node.op == "ArgMin")


def _top(imp: Importer, node: Node, args: list[Value | None]) -> list[Value]:
    """TopK along the last axis: values and positions."""
    x, (count,) = _tensor(imp, node, args[0]), imp.integers(node, node.inputs[1], "a number of values")
    if node.attrs.get("axis", -1) % len(x.shape) != len(x.shape) - 1 or not node.attrs.get("largest", 1):
        raise Problem(node, "takes the smallest values, or not along the last axis, which is not supported")
    shape = (*x.shape[:-1], count)
    values = imp.append(g.TopK(node.name, (x,), g.Tensor("", shape, x.dtype)), _wanted(imp, node.outputs[0]))
    found: list[Value] = [Real(shape, values)]
    if len(node.outputs) > 1:
        where = imp.append(g.TopK(f"{node.name}.positions", (x,), g.Tensor("", shape, "int32"), True))
        y = _output(imp, node, shape, 1)
        t = imp.append(g.Cast(f"{node.name}.int64", (where,), y), _wanted(imp, node.outputs[1]))
        found.append(Real(shape, t))
    return found


def _gathered(imp: Importer, node: Node, args: list[Value | None]) -> list[Value]:
    """Gather at computed positions: of a quantised table its integers, of others their real values."""
    x, where = args[0], _tensor(imp, node, args[1])
    axis, shape, wanted = node.attrs.get("axis", 0), _shape(imp, node), _wanted(imp, node.outputs[0])
    if isinstance(x, Fixed) and x.array.dtype in (np.int8, np.uint8):  # dequantised behind this node
        reader = next(iter(imp.reader.readers.get(node.outputs[0], ())), None)
        x = parameters(imp, reader, x) if reader and reader.op == "DequantizeLinear" else x
    if isinstance(x, Weights) and x.scale.size == 1 and x.integers.dtype in (np.int8, np.uint8):
        moved_by = 128 if x.integers.dtype == np.uint8 else 0
        data = (x.integers.astype(np.int16) - moved_by).astype(np.int8)
        like = g.Tensor("", data.shape, "int8", float(x.scale[0]), int(x.zero.reshape(-1)[0]) - moved_by)
        x = View(x.shape, imp.constant(f"{node.name}.table", data, like), node.name)
    if isinstance(x, View) and not wanted:
        y = replace(x.tensor, name="", shape=shape or (1,), data=None)
        t = imp.append(g.Gather(node.name, (x.tensor, where), y, axis % len(x.shape)))
        return [View(shape, t, x.name)]
    t = _tensor(imp, node, x)
    y = g.Tensor("", shape or (1,), t.dtype)
    t = imp.append(g.Gather(node.name, (t, where), y, axis % len(t.shape)), wanted)
    return [Real(shape, t)]


MAKERS: dict[str, Make] = {
    **dict.fromkeys(_COMPARISONS, _compare),
    **dict.fromkeys(_BINARY, _binary),
    **dict.fromkeys(("And", "Or"), _logic),
    **dict.fromkeys(("ArgMax", "ArgMin"), _position),
    "Cast": _cast,
    "Concat": _concat,
    "Not": _not,
    "Where": _where,
}
NAMES = (*MAKERS, "TopK")
