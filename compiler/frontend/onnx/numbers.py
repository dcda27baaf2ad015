"""Nodes that compute integers and truth values, also of real values: arithmetic, positions, comparisons, choices.

They become operators on plain numbers as soon as they are read. A name is a row of the table at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from onnx import helper

from ... import graph as g
from ..core import Node, Problem
from ..values import Fixed, Numbers, Value, View, Weights, signed
from .floats import Floats
from .movements import MOVES, moved
from .nodes import parameters

Make = Callable[..., g.Operator]  # of the importer, a node, its output and its operands
TYPES = ("float32", "int32", "int64", "bool")  # int8 and uint8 need a scale


def converted(imp: Floats, node: Node, args: list[Value | None]) -> list[Value] | None:
    """The values of the outputs of a node on numbers; None of other nodes."""
    kinds = {dtype_of(imp, t) for t in (*node.inputs[:1], *node.outputs[:1])}
    if node.op == "Gather" and isinstance(args[1], Numbers):
        return _gathered(imp, node, args)
    if node.op == "TopK":
        return _top(imp, node, args)
    numeric = any(isinstance(arg, Numbers) and arg.tensor.dtype != "float32" for arg in args)
    made_bytes = node.op == "Cast" and kinds > {"float32"} and dtype_of(imp, node.inputs[0]) == "float32"
    if not numeric and kinds <= {"float32", "int8", "uint8"} and node.op != "Where" and not made_bytes:
        return None
    if node.op in MOVES and isinstance(args[0], Numbers):
        tensors = [moved(imp, node, k, args[0].tensor, imp.wanted(t)) for k, t in enumerate(node.outputs)]
        return [Numbers(t.shape, t) for t in tensors]
    if node.op not in MAKERS or (node.op in ARITHMETIC and not numeric):
        return None
    plain = node.op in ("ArgMax", "ArgMin")  # whose integers are as good as their real values
    operands = [arg.tensor if plain and isinstance(arg, View) else _tensor(imp, node, arg) for arg in args]
    y = _output(imp, node, imp.shape(node, node.outputs[0]))
    t = imp.append(MAKERS[node.op](imp, node, y, *operands), imp.wanted(node.outputs[0]))
    return [Numbers(t.shape, t)]


def dtype_of(imp: Floats, tensor: str) -> str:
    """The type of a tensor of the file, by numpy's name; empty where it is unknown."""
    kind = imp.reader.types.get(tensor, 0)
    return str(helper.tensor_dtype_to_np_dtype(kind)) if kind else ""


def _tensor(imp: Floats, node: Node, value: Value | None) -> g.Tensor:
    """The tensor of plain numbers of an argument."""
    if value is None:
        raise Problem(node, "lacks an input that it needs")
    if isinstance(value, Numbers):
        return value.tensor
    if isinstance(value, Fixed) and value.array.dtype != np.float32:
        array = np.ascontiguousarray(np.atleast_1d(value.array))
        if str(array.dtype) not in TYPES:
            raise Problem(node, f"has a constant of type {array.dtype}; only {', '.join(TYPES)} are supported")
        return imp.constant("constant", array)
    return imp.realised(value)


def _output(imp: Floats, node: Node, shape: tuple[int, ...], index: int = 0) -> g.Tensor:
    dtype = dtype_of(imp, node.outputs[index])
    if dtype not in (*TYPES, "int8", "uint8"):
        raise Problem(node, f"has an output of type {dtype}; only {', '.join(TYPES)} are supported")
    return g.Tensor("", shape or (1,), dtype)


def _zero(imp: Floats, x: g.Tensor) -> g.Tensor:
    return imp.constant("zero", np.zeros((1,) * len(x.shape), x.dtype))


def _cast(imp: Floats, node: Node, y: g.Tensor, x: g.Tensor) -> g.Operator:
    if y.dtype == "bool":
        return g.Compare(node.name, (x, _zero(imp, x)), y, "not_equal")
    return g.Cast(node.name, (x,), y)


def _compared(function: str) -> Make:
    return lambda imp, node, y, *operands: g.Compare(node.name, operands[:2], y, function)


def _binary(function: str) -> Make:
    return lambda imp, node, y, *operands: g.NumberBinary(node.name, operands[:2], y, function)


def _unary(function: str) -> Make:
    return lambda imp, node, y, x: g.NumberFunction(node.name, (x,), y, function)


def _reduced(function: str) -> Make:
    return lambda imp, node, y, x, *axes: g.NumberReduce(node.name, (x,), y, function, imp.axes(node))


def _total(function: str) -> Make:
    """A sum or mean. onnxruntime adds int32 in more bits, and clamps the sum to int32."""

    def make(imp: Floats, node: Node, y: g.Tensor, x: g.Tensor, *axes: g.Tensor) -> g.Operator:
        if y.dtype != "int32":
            return _reduced(function)(imp, node, y, x)
        total, bounds = g.Tensor("", y.shape, "int64"), np.iinfo(np.int32)
        wide = imp.append(g.Cast(f"{node.name}.wide", (x,), g.Tensor("", x.shape, "int64")))
        t = imp.append(_reduced(function)(imp, replace(node, name=f"{node.name}.total"), total, wide))
        for name, bound in ("maximum", bounds.min), ("minimum", bounds.max):
            operands = t, imp.constant(name, np.array([bound], np.int64))
            t = imp.append(g.NumberBinary(f"{node.name}.{name}", operands, total, name))
        return g.Cast(node.name, (t,), y)

    return make


def _product(imp: Floats, node: Node, y: g.Tensor, *operands: g.Tensor) -> g.Operator:
    if {t.dtype for t in operands} != {"int32"} or min(len(t.shape) for t in operands) < 2:
        raise Problem(node, "multiplies integers; only matrices of int32 are supported")
    return g.IntegerMatMul(node.name, operands, y)


def _concat(imp: Floats, node: Node, y: g.Tensor, *operands: g.Tensor) -> g.Operator:
    return g.Concat(node.name, operands, y, node.attrs["axis"] % len(y.shape))


def _position(imp: Floats, node: Node, y: g.Tensor, x: g.Tensor) -> g.Operator:
    if node.attrs.get("select_last_index", 0):
        raise Problem(node, "takes the last of several positions, which is not supported")
    return g.ArgMax(node.name, (x,), y, node.attrs.get("axis", 0) % len(x.shape), node.op == "ArgMin")


def _top(imp: Floats, node: Node, args: list[Value | None]) -> list[Value]:
    """TopK along the last axis: values and positions."""
    x, (count,) = _tensor(imp, node, args[0]), imp.integers(node, node.inputs[1], "a number of values")
    if node.attrs.get("axis", -1) % len(x.shape) != len(x.shape) - 1 or not node.attrs.get("largest", 1):
        raise Problem(node, "takes the smallest values, or not along the last axis, which is not supported")
    shape = (*x.shape[:-1], count)
    values = imp.append(g.TopK(node.name, (x,), g.Tensor("", shape, x.dtype)), imp.wanted(node.outputs[0]))
    results: list[Value] = [Numbers(shape, values)]
    if len(node.outputs) > 1:
        where = imp.append(g.TopK(f"{node.name}.positions", (x,), g.Tensor("", shape, "int32"), True))
        y = _output(imp, node, shape, 1)
        t = imp.append(g.Cast(f"{node.name}.int64", (where,), y), imp.wanted(node.outputs[1]))
        results.append(Numbers(shape, t))
    return results


def _gathered(imp: Floats, node: Node, args: list[Value | None]) -> list[Value]:
    """Gather at computed positions: of a quantised table its integers, of others their real values."""
    x, where = args[0], _tensor(imp, node, args[1])
    axis, shape, wanted = node.attrs.get("axis", 0), imp.shape(node, node.outputs[0]), imp.wanted(node.outputs[0])
    if isinstance(x, Fixed) and x.array.dtype in (np.int8, np.uint8):  # which the next node dequantises
        reader = next(iter(imp.reader.readers.get(node.outputs[0], ())), None)
        x = parameters(imp, reader, x) if reader and reader.op == "DequantizeLinear" else x
    if isinstance(x, Weights) and x.scale.size == 1 and x.scale > 0 and x.integers.dtype in (np.int8, np.uint8):
        moved_by = 128 if x.integers.dtype == np.uint8 else 0
        data = signed(x.integers)
        like = g.Tensor("", data.shape, "int8", float(x.scale[0]), int(x.zero.reshape(-1)[0]) - moved_by)
        x = View(x.shape, imp.constant(f"{node.name}.table", data, like), node.name)
    if isinstance(x, View) and not wanted:
        y = replace(x.tensor, name="", shape=shape or (1,), data=None)
        t = imp.append(g.Gather(node.name, (x.tensor, where), y, axis % len(x.shape), True))
        return [View(shape, t, x.name)]
    t = _tensor(imp, node, x)
    y = g.Tensor("", shape or (1,), t.dtype)
    t = imp.append(g.Gather(node.name, (t, where), y, axis % len(t.shape), True), wanted)
    return [Numbers(shape, t)]


ARITHMETIC: dict[str, Make] = {  # of integers; of float32 values they are expressions
    "Abs": _unary("abs"),
    "Add": _binary("add"),
    "Concat": _concat,
    "Div": _binary("div"),
    "MatMul": _product,
    "Max": _binary("maximum"),
    "Min": _binary("minimum"),
    "Mul": _binary("mul"),
    "Neg": _unary("neg"),
    "ReduceMax": _reduced("reduce_max"),
    "ReduceMean": _total("mean"),
    "ReduceMin": _reduced("reduce_min"),
    "ReduceSum": _total("sum"),
    "Relu": _unary("relu"),
    "Sign": _unary("sign"),
    "Sub": _binary("sub"),
}
MAKERS: dict[str, Make] = ARITHMETIC | {
    "And": lambda imp, node, y, a, b: g.Select(node.name, (a, b, a), y),
    "ArgMax": _position,
    "ArgMin": _position,
    "Cast": _cast,
    "Equal": _compared("equal"),
    "Greater": _compared("greater"),
    "GreaterOrEqual": _compared("greater_equal"),
    "Less": _compared("less"),
    "LessOrEqual": _compared("less_equal"),
    "Not": lambda imp, node, y, x: g.Compare(node.name, (x, _zero(imp, x)), y, "equal"),
    "Or": lambda imp, node, y, a, b: g.Select(node.name, (a, a, b), y),
    "Where": lambda imp, node, y, *operands: g.Select(node.name, operands, y),
    "Xor": _compared("not_equal"),
}
NAMES = (*MAKERS, "TopK")
