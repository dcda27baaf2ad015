"""Layouts of Relax functions: constants that move before they are used, and images NHWC between operators on NCHW."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .. import graph as g
from ..graph import Names
from ..tvm_compat import ir, relax

TO_NCHW, TO_NHWC = (0, 3, 1, 2), (0, 2, 3, 1)


def fold_constants(bindings: Sequence[Any]) -> dict[Any, Any]:
    """The value of each variable, where a constant is moved before it is dequantised.

    TVM's importers leave weights that are transposed or reshaped by operators, before a dequantize or behind one.
    """
    found: dict[Any, Any] = {}
    for b in bindings:
        found[b.var] = _folded(b.value, found) if isinstance(b.value, ir.Call) else b.value
    return found


def _folded(call: Any, known: dict[Any, Any]) -> Any:
    kind = getattr(call.op, "name", "")
    operand: Any = call.args[0] if call.args else None
    operand = known.get(operand, operand)
    if kind == "relax.dequantize" and _is_constant(operand):
        return call if operand is call.args[0] else _dequantize(call, operand, int(call.attrs.axis))
    if kind == "relax.permute_dims" and _is_constant(operand):
        value = operand.value.numpy()
        axes = None if call.attrs.axes is None else [int(k) for k in call.attrs.axes]
        return relax.const(np.ascontiguousarray(value.transpose(axes)))
    if kind != "relax.reshape" or not all(hasattr(n, "value") for n in call.ty.shape):
        return call
    shape = tuple(int(n) for n in call.ty.shape)
    if _is_constant(operand):
        return relax.const(operand.value.numpy().reshape(shape))
    if getattr(getattr(operand, "op", None), "name", "") == "relax.dequantize" and _is_constant(operand.args[0]):
        value = operand.args[0].value.numpy()
        axis = _same_axis(value.shape, shape, int(operand.attrs.axis) % max(1, value.ndim))
        if axis is not None:
            return _dequantize(operand, relax.const(value.reshape(shape)), axis)
    return call


def _is_constant(expr: Any) -> bool:
    return isinstance(expr, ir.GenericConst) and hasattr(expr.value, "numpy")


def _dequantize(call: Any, value: Any, axis: int) -> Any:
    """`call` of the constant `value`, whose scales are along `axis`."""
    made = relax.op.dequantize(value, call.args[1], call.args[2], axis=axis, out_dtype=call.attrs.out_dtype)
    return relax.BlockBuilder().normalize(made)  # which gives it its type


def _same_axis(before: tuple[int, ...], after: tuple[int, ...], axis: int) -> int | None:
    """The axis of the reshaped array that has the indices of `axis`; None if none has."""
    if not before:
        return None
    ahead = math.prod(before[:axis])
    return next((k for k, n in enumerate(after) if n == before[axis] and math.prod(after[:k]) == ahead), None)


def sunk(ops: Sequence[g.Operator]) -> tuple[g.Operator, ...]:
    """`ops`, with the element-wise ones between images that become NHWC computed on NCHW, before they do.

    The transpositions that this leaves without a reader, or that only go there and back, are removed later
    (compiler/graph/simplify.py).
    """
    behind: dict[str, g.Tensor] = {}  # tensor NHWC -> the one NCHW that it was made of
    names = Names(name for op in ops for name in (op.name, op.output.name))
    found: list[g.Operator] = []
    for op in ops:
        parts = [part for t in op.inputs if (part := _moved(t, behind)) is not None]
        if isinstance(op, g.Transpose) and op.relayout and op.axes == TO_NHWC:
            behind[op.output.name] = op.x
        y, moved = op.output, None
        if len(parts) == len(op.inputs) and len(y.shape) == 4 and y.dtype == "int8":
            inner = replace(y, name=names.unused(f"{y.name}.nchw"), shape=tuple(y.shape[k] for k in TO_NCHW))
            moved = op.permuted(tuple(parts), inner, TO_NCHW)
        if moved is None:
            found.append(op)
            continue
        found += moved, g.Transpose(names.unused(f"{op.name}.nhwc"), (moved.output,), y, TO_NHWC, True)
        behind[y.name] = moved.output
    return tuple(found)


def _moved(t: g.Tensor, behind: dict[str, g.Tensor]) -> g.Tensor | None:
    """`t` as NCHW: what it was made of, or a constant; None where it would have to be transposed."""
    if t.data is None or len(t.shape) != 4:
        return behind.get(t.name)
    data = np.ascontiguousarray(t.data.transpose(TO_NCHW))
    return replace(t, shape=data.shape, data=data)
