"""Operators that move values without changing them, on int8 and on float32 tensors alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ... import graph as g
from ..core import Node, Problem
from .geometry import window
from .nodes import Reading

_MOST_PIECES = 256  # of a gather that takes slices one by one


def moved(imp: Reading, node: Node, index: int, x: g.Tensor, wanted: str = "") -> g.Tensor:
    """Result number `index` of the node on `x`; `wanted` is the name of the tensor, if it must have one."""
    return MOVES[node.op](imp, node, index, x, wanted)


def _like(x: g.Tensor, shape: Sequence[int]) -> g.Tensor:
    return replace(x, name="", shape=tuple(shape), data=None)


def _reshape(imp: Reading, node: Node, index: int, x: g.Tensor, wanted: str) -> g.Tensor:
    return imp.append(g.Reshape(node.name, (x,), _like(x, imp.shape(node, node.outputs[0]))), wanted)


def _transpose(imp: Reading, node: Node, index: int, x: g.Tensor, wanted: str) -> g.Tensor:
    axes = tuple(node.attrs.get("perm", reversed(range(len(x.shape)))))
    return imp.append(g.Transpose(node.name, (x,), _like(x, [x.shape[k] for k in axes]), axes), wanted)


def _slice(imp: Reading, node: Node, index: int, x: g.Tensor, wanted: str) -> g.Tensor:
    starts, ends, *rest = (imp.integers(node, t, "bounds") if t else None for t in node.inputs[1:])
    axes = rest[0] if rest and rest[0] is not None else range(len(starts or []))
    steps = rest[1] if len(rest) > 1 and rest[1] is not None else [1] * len(starts or [])
    indices = [range(n) for n in x.shape]
    for axis, *limits in zip(axes, starts or [], ends or [], steps):
        indices[axis] = range(x.shape[axis])[slice(*limits)]
    if any(not len(r) for r in indices):
        raise Problem(node, "leaves nothing of its input, which is not supported")
    return _sliced(imp, node.name, x, indices, wanted)


def _sliced(imp: Reading, name: str, x: g.Tensor, indices: Sequence[range], wanted: str) -> g.Tensor:
    steps = tuple(r.step if len(r) > 1 else 1 for r in indices)
    y = _like(x, [len(r) for r in indices])
    return imp.append(g.StridedSlice(name, (x,), y, tuple(r[0] for r in indices), steps), wanted)


def _split(imp: Reading, node: Node, index: int, x: g.Tensor, wanted: str) -> g.Tensor:
    axis = node.attrs.get("axis", 0) % len(x.shape)
    sizes = [imp.shape(node, t)[axis] for t in node.outputs[: index + 1]]
    indices = [range(n) for n in x.shape]
    indices[axis] = range(sum(sizes[:index]), sum(sizes))
    return _sliced(imp, f"{node.name}.{index}" if index else node.name, x, indices, wanted)


def _pad(imp: Reading, node: Node, index: int, x: g.Tensor, wanted: str) -> g.Tensor:
    mode = node.attrs.get("mode", b"constant").decode()
    amounts, rank = imp.integers(node, node.inputs[1], "amounts"), len(x.shape)
    axes = [k % rank for k in imp.integers(node, node.inputs[3], "axes")] if node.input(3) else range(rank)
    pads = [(0, 0)] * rank
    for k, axis in enumerate(axes):
        pads[axis] = amounts[k], amounts[k + len(amounts) // 2]
    if mode != "constant":
        return _mirrored(imp, node, x, pads, mode, wanted)
    if any(min(pair) < 0 for pair in pads):
        kept = [range(max(0, -before), n - max(0, -after)) for n, (before, after) in zip(x.shape, pads)]
        x = _sliced(imp, f"{node.name}.cut", x, kept, "")
        pads = [(max(0, before), max(0, after)) for before, after in pads]
    value = imp.number(node, node.inputs[2]) if node.input(2) else 0.0
    if math.isnan(value):
        raise Problem(node, f"pads with {value}, which is no number")
    if x.dtype == "int8":  # ties to even, as ONNX has it
        value = float(min(max(np.rint(value / x.scale) + x.zero_point, -128), 127))
    elif math.isinf(value):
        raise Problem(node, f"pads with {value:g}; only finite numbers are supported")
    shape = [n + before + after for n, (before, after) in zip(x.shape, pads)]
    return imp.append(g.Pad(node.name, (x,), _like(x, shape), tuple(pads), value), wanted)


def _mirrored(
    imp: Reading, node: Node, x: g.Tensor, pads: Sequence[tuple[int, int]], mode: str, wanted: str
) -> g.Tensor:
    """Padding with values of the tensor itself: a gather per axis."""
    changed = [axis for axis, pair in enumerate(pads) if any(pair)]
    if mode not in ("edge", "reflect", "wrap"):
        raise Problem(node, f"has mode {mode!r}; only constant, edge, reflect and wrap are supported")
    for axis in changed:
        indices = np.pad(np.arange(x.shape[axis]), pads[axis], mode=mode).tolist()
        x = take(imp, node, x, axis, indices, wanted if axis == changed[-1] else "")
    return x


def _max_pool(imp: Reading, node: Node, index: int, x: g.Tensor, wanted: str) -> g.Tensor:
    if index or max(node.attrs.get("dilations", [1])) > 1:
        raise Problem(node, "has dilations or an index output, which are not supported")
    kernel, strides, pads = window(imp, node, x.shape)
    image = imp.image(node.name, x)
    shape = imp.image_shape(imp.shape(node, node.outputs[0]))
    cls = g.MaxPool if x.dtype == "int8" else g.FloatMaxPool
    op = cls(node.name, (image,), _like(x, shape), kernel, strides, pads)
    return imp.plain(op, imp.shape(node, node.outputs[0]), wanted)


def _gather(imp: Reading, node: Node, index: int, x: g.Tensor, wanted: str) -> g.Tensor:
    axis, indices = node.attrs.get("axis", 0) % len(x.shape), imp.integers(node, node.inputs[1], "indices")
    shape = imp.shape(node, node.outputs[0])
    if wrong := [k for k in indices if not -x.shape[axis] <= k < x.shape[axis]]:
        raise Problem(node, f"reads position {wrong[0]} of a dimension of {x.shape[axis]}")
    picked = take(imp, node, x, axis, [k % x.shape[axis] for k in indices], "" if shape != x.shape else wanted)
    if picked.shape == shape:
        return picked
    return imp.append(g.Reshape(f"{node.name}.shape", (picked,), _like(picked, shape)), wanted)


def take(imp: Reading, node: Node, x: g.Tensor, axis: int, indices: list[int], wanted: str) -> g.Tensor:
    """The elements of `x` at `indices` of an axis: a slice, a repetition, or slices one after the other."""
    whole = [range(n) for n in x.shape]
    runs = _runs(indices)
    if len(runs) == 1:
        return _sliced(imp, node.name, x, [*whole[:axis], runs[0], *whole[axis + 1 :]], wanted)
    times = len(indices) // x.shape[axis]
    if indices == [k // times for k in range(x.shape[axis] * times)] and times > 1:
        return _repeated(imp, node, x, axis, times, wanted)
    if len(runs) > _MOST_PIECES:
        shape = [*x.shape[:axis], len(indices), *x.shape[axis + 1 :]]
        taken = tuple(tuple(indices) if k == axis else () for k in range(len(x.shape)))
        return imp.append(g.Take(node.name, (x,), _like(x, shape), taken), wanted)
    pieces = tuple(
        _sliced(imp, f"{node.name}.{k}", x, [*whole[:axis], run, *whole[axis + 1 :]], "") for k, run in enumerate(runs)
    )
    shape = [*x.shape[:axis], len(indices), *x.shape[axis + 1 :]]
    return imp.append(g.Concat(node.name, pieces, _like(x, shape), axis), wanted)


def _runs(indices: Sequence[int]) -> list[range]:
    """Arithmetic progressions that make up `indices`, each as long as possible."""
    found: list[range] = []
    for i in indices:
        last = found[-1] if found else range(0)
        step = last.step if len(last) > 1 else i - last[-1] if len(last) else 0
        if len(last) and step and i == last[-1] + step:
            found[-1] = range(last[0], i + (1 if step > 0 else -1), step)
        else:
            found.append(range(i, i + 1))
    return found


def _repeated(imp: Reading, node: Node, x: g.Tensor, axis: int, times: int, wanted: str) -> g.Tensor:
    before, after, name = math.prod(x.shape[: axis + 1]), math.prod(x.shape[axis + 1 :]), node.name
    flat = imp.append(g.Reshape(f"{name}.rows", (x,), _like(x, (before, 1, after))))
    grown = imp.append(g.Concat(f"{name}.{axis}", (flat,) * times, _like(x, (before, times, after)), 1))
    shape = [*x.shape[:axis], x.shape[axis] * times, *x.shape[axis + 1 :]]
    return imp.append(g.Reshape(name, (grown,), _like(x, shape)), wanted)


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
