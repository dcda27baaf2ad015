"""Operators of ONNX that move values without changing them, on int8 and on float32 tensors alike."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from onnx import TensorProto

from ... import graph as g
from .. import moves
from ..core import Node, Problem, like
from ..values import steps
from .geometry import window
from .nodes import Reading


def moved(imp: Reading, node: Node, index: int, x: g.Tensor, wanted: str = "") -> g.Tensor:
    """Result number `index` of the node on `x`; `wanted` is the name of the tensor, if it must have one."""
    return MOVES[node.op](imp, node, index, x, wanted)


def _reshape(imp: Reading, node: Node, index: int, x: g.Tensor, wanted: str) -> g.Tensor:
    return imp.add(g.Reshape, (x,), like(x, node.name, imp.shape(node, node.outputs[0])), wanted=wanted)


def _transpose(imp: Reading, node: Node, index: int, x: g.Tensor, wanted: str) -> g.Tensor:
    axes = node.attrs.get("perm", [*reversed(range(len(x.shape)))])
    return moves.turned(imp, node.name, x, axes, wanted=wanted)


def _slice(imp: Reading, node: Node, index: int, x: g.Tensor, wanted: str) -> g.Tensor:
    starts, ends, *rest = (imp.integers(node, t, "bounds") if t else None for t in node.inputs[1:])
    axes = rest[0] if rest and rest[0] is not None else range(len(starts or []))
    steps = rest[1] if len(rest) > 1 and rest[1] is not None else [1] * len(starts or [])
    indices = moves.bounded(x.shape, axes, starts or [], ends or [], steps)
    if not all(indices):
        raise Problem(node, "leaves nothing of its input, which is not supported")
    return moves.sliced(imp, node.name, x, indices, wanted)


def _split(imp: Reading, node: Node, index: int, x: g.Tensor, wanted: str) -> g.Tensor:
    axis = node.attrs.get("axis", 0) % len(x.shape)
    sizes = [imp.shape(node, t)[axis] for t in node.outputs[: index + 1]]
    indices = moves.along(x.shape, axis, range(sum(sizes[:index]), sum(sizes)))
    return moves.sliced(imp, f"{node.name}.{index}" if index else node.name, x, indices, wanted)


def _pad(imp: Reading, node: Node, index: int, x: g.Tensor, wanted: str) -> g.Tensor:
    mode = node.attrs.get("mode", "constant")
    amounts, rank = imp.integers(node, node.inputs[1], "amounts"), len(x.shape)
    axes = [k % rank for k in imp.integers(node, node.inputs[3], "axes")] if node.input(3) else range(rank)
    pads = [(0, 0)] * rank
    for k, axis in enumerate(axes):
        pads[axis] = amounts[k], amounts[k + len(amounts) // 2]
    if mode in ("edge", "reflect", "wrap"):
        return moves.mirrored(imp, node.name, x, pads, mode, wanted)
    if mode != "constant":
        raise Problem(node, f"has mode {mode!r}; only constant, edge, reflect and wrap are supported")
    value, kind = imp.number(node, node.inputs[2]) if node.input(2) else 0.0, imp.reader.types[node.inputs[0]]
    if math.isnan(value):
        raise Problem(node, f"pads with {value}, which is no number")
    if x.dtype == "int8":
        moved_by = {int(TensorProto.INT8): 0, int(TensorProto.UINT8): -128}.get(kind)  # of values without a scale
        value = float(steps(value, x)) if moved_by is None else value + moved_by
    elif math.isinf(value):
        return _bordered(imp, node, x, pads, value, wanted)
    return moves.padded(imp, node.name, x, pads, value, wanted)


def _bordered(
    imp: Reading, node: Node, x: g.Tensor, pads: list[tuple[int, int]], value: float, wanted: str
) -> g.Tensor:
    """`x` between constants of an infinite value, which attributes of operators cannot have."""
    x = moves.padded(imp, f"{node.name}.cut", x, [(min(before, 0), min(after, 0)) for before, after in pads], 0.0)
    padded_axes = [axis for axis, pair in enumerate(pads) if max(pair) > 0]
    for axis in padded_axes:
        shapes = [(*x.shape[:axis], max(count, 0), *x.shape[axis + 1 :]) for count in pads[axis]]
        ends = [[imp.constant(node.name, np.full(s, value, np.float32))] if s[axis] else [] for s in shapes]
        parts = (*ends[0], x, *ends[1])
        y = like(x, node.name, [sum(t.shape[k] for t in parts) if k == axis else n for k, n in enumerate(x.shape)])
        x = imp.add(g.Concat, parts, y, axis, wanted=wanted if axis == padded_axes[-1] else "")
    return x


def _max_pool(imp: Reading, node: Node, index: int, x: g.Tensor, wanted: str) -> g.Tensor:
    if node.outputs[1:] or max(node.attrs.get("dilations", [1])) > 1:
        raise Problem(node, "has positions that are read, or dilations with SAME padding or windows of it alone")
    shape = imp.shape(node, node.outputs[0])
    image = imp.image(node.name, x)
    kind = g.MaxPool if x.dtype == "int8" else g.FloatMaxPool
    op = kind(node.name, (image,), like(x, "", imp.image_shape(shape)), *window(imp, node, x.shape))
    return imp.plain(op, shape, wanted)


def _gather(imp: Reading, node: Node, index: int, x: g.Tensor, wanted: str) -> g.Tensor:
    axis, indices = node.attrs.get("axis", 0) % len(x.shape), imp.integers(node, node.inputs[1], "indices")
    shape, size = imp.shape(node, node.outputs[0]), x.shape[axis]
    if wrong := [k for k in indices if not -size <= k < size]:
        raise Problem(node, f"reads position {wrong[0]} of a dimension of {size}")
    picked = moves.gathered(imp, node.name, x, axis, [k % size for k in indices], "" if shape != x.shape else wanted)
    return picked if picked.shape == shape else imp.reshape(f"{node.name}.shape", picked, shape, wanted)


MOVES: dict[str, Callable[..., g.Tensor]] = {
    "Flatten": _reshape,
    "Gather": _gather,
    "MaxPool": _max_pool,
    "Pad": _pad,
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _reshape,
    "Transpose": _transpose,
    "Unsqueeze": _reshape,
}
COPIES = frozenset(MOVES.keys() - {"MaxPool", "Pad"})  # whose result has values of their input alone
