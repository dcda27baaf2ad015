"""Scales and zero points of QuantizeLinear and DequantizeLinear nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto

from .nodes import Node
from .values import Fixed, Problem, Weights

if TYPE_CHECKING:
    from .importer import Importer

_ACTIVATIONS = ("int8", "uint8")
_CONSTANTS = (*_ACTIVATIONS, "int32")


def _parts(imp: Importer, node: Node, weights: bool) -> tuple[np.ndarray, np.ndarray | None]:
    """(scales, zero points or None)."""
    scale, zero = (imp.reader.value(t) if t else None for t in (node.inputs[1], node.input(2)))
    if scale is None or (node.input(2) and zero is None):
        raise Problem(node, "has a scale or zero point that is not constant")
    if node.attrs.get("block_size", 0):
        raise Problem(node, "has one scale per block, which is not supported")
    scales = scale.astype(np.float32).reshape(-1)
    if not weights and scales.size > 1:
        raise Problem(node, "has one scale per channel; activations have one per tensor")
    wrong = scales[~(np.isfinite(scales) & (scales >= 0 if weights else scales > 0))]
    if wrong.size:
        raise Problem(
            node, f"has scale {wrong[0]:g}; it must be finite and {'not negative' if weights else 'positive'}"
        )
    integers = node.outputs[0] if node.op == "QuantizeLinear" else node.inputs[0]
    kind = TensorProto.DataType.Name(imp.reader.types[integers]).lower()
    if kind not in (_CONSTANTS if weights else _ACTIVATIONS):
        raise Problem(node, f"is of type {kind}; only int8 and uint8 are supported")
    return scales, zero


def activation(imp: Importer, node: Node) -> tuple[float, int]:
    """(scale, zero point) of activations, as int8: uint8 is int8 moved by 128. Raises `Problem`."""
    scales, zero = _parts(imp, node, False)
    integers = node.outputs[0] if node.op == "QuantizeLinear" else node.inputs[0]
    moved = 128 if imp.reader.types[integers] == TensorProto.UINT8 else 0
    return float(scales[0]), (0 if zero is None else int(zero.reshape(-1)[0])) - moved


def parameters(imp: Importer, node: Node, x: Fixed) -> Weights:
    """A dequantised constant. Raises `Problem`."""
    scales, zero = _parts(imp, node, True)
    axis = node.attrs.get("axis", 1)
    if scales.size == 1 or x.array.ndim < 2:
        axis = 0
    elif not -x.array.ndim <= axis < x.array.ndim or x.array.shape[axis] != scales.size:
        raise Problem(node, f"has {scales.size} scales along axis {axis} of a constant of shape {x.array.shape}")
    return weights(
        x.array, scales, np.zeros(1, np.int32) if zero is None else zero.reshape(-1), axis % max(1, x.array.ndim)
    )


def weights(integers: np.ndarray, scale: np.ndarray, zero: np.ndarray, axis: int) -> Weights:
    """A dequantised constant."""
    return Weights(integers.shape, integers, scale, zero, axis)
