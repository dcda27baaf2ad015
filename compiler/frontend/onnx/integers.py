"""Quantised values as ONNX allows them beyond one scale of int8: narrow types, scales per channel, operators without.

An operator on int8 or uint8 values becomes the one on real values between a DequantizeLinear and a QuantizeLinear of
scale 1. All are exact: integers of 8 bits are float32 values. Signatures are as in rewrites.py.
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from .nodes import Chain, Rewrite, Term, as_float

BYTES = (TensorProto.INT8, TensorProto.UINT8)
_COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
# whose results are within the type's range; Abs and Neg of -128 are not
_FUNCTIONS = ("Clip", "Expand", "Max", "Min", "ReduceMax", "ReduceMin", "Relu", "Sign", "Where")


def _zero(kind: int) -> np.ndarray:
    return np.zeros((), np.uint8 if kind == TensorProto.UINT8 else np.int8)


def _quantize(
    c: Chain, x: Term, scale: Term, zero: Term | None = None, *, axis: int = 1, output_dtype: int = 0,
    block_size: int = 0, saturate: int = 1, precision: int = 0,
) -> Term | None:  # fmt: skip
    """Types of fewer bits as bytes that are clamped; a scale per channel as a division before the rounding."""
    narrow = c.reader.narrow_result(c.node)
    if narrow is not None:
        zeros = np.zeros(scale.shape, narrow.wide) if zero is None else zero.value  # as a constant of the wide type
        blocks = {"block_size": block_size} if block_size else {}  # which old opsets do not have
        y = x.node("QuantizeLinear", scale, zeros, axis=axis, **blocks)
        return y.node("Clip", *(np.array(bound, narrow.wide) for bound in (narrow.low, narrow.high)))
    if scale.value is None or scale.value.size == 1 or block_size:
        return None
    y = (x / _along(scale, axis, x)).node("Round")
    y = y if zero is None else y + _along(zero, axis, x)
    kind = (output_dtype or TensorProto.UINT8) if zero is None else zero.type
    return y.node("QuantizeLinear", 1.0, _zero(kind)) if kind in BYTES else None


def _dequantize(
    c: Chain, x: Term, scale: Term, zero: Term | None = None, *, axis: int = 1, block_size: int = 0,
    output_dtype: int = 0,
) -> Term | None:  # fmt: skip
    """Computed values of a computed scale or one per channel, and int32 values, as products of real values."""
    whole = x.type == TensorProto.INT32
    if scale.value is None:
        y = x.node("Cast", to=TensorProto.FLOAT)
        return (y if zero is None else y - zero.node("Cast", to=TensorProto.FLOAT)) * scale
    if x.value is not None or block_size or not (whole or scale.value.size > 1):
        return None
    y = x.node("Cast", to=TensorProto.FLOAT) if whole else x.node("DequantizeLinear", 1.0)
    y = y if zero is None else y - _along(zero, axis, x)
    return y * _along(scale, axis, x)


def _along(parameters: Term, axis: int, x: Term) -> np.ndarray:
    """Constants of one number, or one per index of `axis`, that broadcast to `x`. Raises `TypeError` for others."""
    values, rank = as_float(parameters.value), len(x.shape)
    return values.reshape(() if values.size == 1 else (-1,) + (1,) * (rank - 1 - axis % rank))


def _clip(c: Chain, x: Term, low: Term | None = None, high: Term | None = None) -> Term | None:
    """A clamp after QuantizeLinear, as Brevitas writes it, as one of the real values before."""
    before = c.reader.producers.get(x.name)
    if before is None or before.op != "QuantizeLinear":
        return None
    source, scale, *zero = (Term(c, name) for name in before.inputs if name)
    constants = [scale, *zero, *(bound for bound in (low, high) if bound is not None)]
    if any(term.value is None or term.value.size > 1 for term in constants):
        return None
    point = as_float(zero[0].value) if zero else np.float32(0)
    bounds = [
        None if bound is None else ((as_float(bound.value) - point) * as_float(scale.value)).reshape(())
        for bound in (low, high)
    ]
    return source.node("Clip", *bounds).node("QuantizeLinear", scale, *zero, **before.attrs)


def _on_bytes(op: str, otherwise: Rewrite | None) -> Rewrite:
    """`op` on int8 and uint8 values; on others what `otherwise` makes of it."""

    def rewrite(c: Chain, *inputs: Term | None, **attrs: object) -> Term | tuple[Term | None, ...] | None:
        kind = next((x.type for x in inputs if x is not None and x.type in BYTES), None)
        if kind is None:
            return None if otherwise is None else otherwise(c, *inputs, **attrs)
        first, *bounds = inputs
        if op == "Clip" and first is not None and (clamped := _clip(c, first, *bounds)) is not None:
            return clamped
        real = [x.node("DequantizeLinear", 1.0) if x is not None and x.type in BYTES else x for x in inputs]
        y = c.add(op, *real, **attrs)
        c.nodes[-1].name = c.node.name
        return y if op in _COMPARISONS else y.node("QuantizeLinear", 1.0, _zero(kind))

    return rewrite


def with_bytes(rewrites: dict[str, Rewrite]) -> dict[str, Rewrite]:
    """`rewrites`, and those of operators on int8 and uint8 values."""
    own = {op: _on_bytes(op, rewrites.get(op)) for op in (*_COMPARISONS, *_FUNCTIONS)}
    return {**rewrites, **own, "DequantizeLinear": _dequantize, "QuantizeLinear": _quantize}
