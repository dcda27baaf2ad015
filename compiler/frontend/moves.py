"""Movements of values by the indices taken along each dimension: slices, gathers, paddings, transpositions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from .. import graph as g
from .core import Builder, like

TO_NCHW, TO_NHWC = (0, 3, 1, 2), (0, 2, 3, 1)
_MOST_PIECES = 256  # of a gather that takes slices one by one
Pads = Sequence[tuple[int, int]]  # (before, after) of each dimension
Mode = Literal["edge", "reflect", "symmetric", "wrap"]


def along(shape: Sequence[int], axis: int, indices: range) -> list[range]:
    """The indices of a slice of a tensor of `shape`: `indices` along `axis`, all along other dimensions."""
    return [indices if k == axis else range(n) for k, n in enumerate(shape)]


def bounded(shape: Sequence[int], axes: Sequence[int], *limits: Sequence[int]) -> list[range]:
    """The indices of a slice by (begin, end, step) of each of `axes`, as in Python; all along other dimensions."""
    indices = [range(n) for n in shape]
    for axis, *bounds in zip(axes, *limits):
        indices[axis] = range(shape[axis])[slice(*bounds)]
    return indices


def strides(indices: Sequence[range]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(begin, stride) per dimension of the `StridedSlice` that takes `indices`, which must not be empty."""
    return tuple(r[0] for r in indices), tuple(r.step if len(r) > 1 else 1 for r in indices)


def sliced(imp: Builder, name: str, x: g.Tensor, indices: Sequence[range], wanted: str = "") -> g.Tensor:
    """The elements of `x` at `indices`."""
    return imp.add(g.StridedSlice, (x,), like(x, name, [len(r) for r in indices]), *strides(indices), wanted=wanted)


def turned(
    imp: Builder, name: str, x: g.Tensor, axes: Sequence[int], relayout: bool = False, wanted: str = ""
) -> g.Tensor:
    """`x` with its dimensions in the order `axes`."""
    y = like(x, name, [x.shape[k] for k in axes])
    return imp.add(g.Transpose, (x,), y, tuple(axes), relayout, wanted=wanted)


def padded(imp: Builder, name: str, x: g.Tensor, pads: Pads, value: float, wanted: str = "") -> g.Tensor:
    """`x` with `value` around it; amounts below 0 cut off."""
    if any(min(pair) < 0 for pair in pads):
        kept = [range(max(0, -before), n - max(0, -after)) for n, (before, after) in zip(x.shape, pads)]
        x = sliced(imp, f"{name}.cut", x, kept)
        pads = [(max(0, before), max(0, after)) for before, after in pads]
    y = like(x, name, [n + before + after for n, (before, after) in zip(x.shape, pads)])
    return imp.add(g.Pad, (x,), y, tuple(pads), value, wanted=wanted)


def around(pads: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Padding of images NCHW by (top, left, bottom, right)."""
    top, left, bottom, right = pads
    return (0, 0), (0, 0), (top, bottom), (left, right)


def mirrored(imp: Builder, name: str, x: g.Tensor, pads: Pads, mode: Mode, wanted: str = "") -> g.Tensor:
    """`x` padded with values of its own, by numpy's `mode`: a gather per axis."""
    changed = [axis for axis, pair in enumerate(pads) if any(pair)]
    for axis in changed:
        indices = np.pad(np.arange(x.shape[axis]), pads[axis], mode=mode).tolist()
        x = gathered(imp, name, x, axis, indices, wanted if axis == changed[-1] else "")
    return x


def gathered(imp: Builder, name: str, x: g.Tensor, axis: int, indices: list[int], wanted: str = "") -> g.Tensor:
    """The elements of `x` at `indices` of an axis: a slice, a repetition, or slices one after the other."""
    runs = _runs(indices)
    if len(runs) == 1:
        return sliced(imp, name, x, along(x.shape, axis, runs[0]), wanted)
    times = len(indices) // x.shape[axis]
    if indices == [k // times for k in range(x.shape[axis] * times)] and times > 1:
        return _repeated(imp, name, x, axis, times, wanted)
    y = like(x, name, [*x.shape[:axis], len(indices), *x.shape[axis + 1 :]])
    if len(runs) > _MOST_PIECES:
        taken = tuple(tuple(indices) if k == axis else () for k in range(len(x.shape)))
        return imp.add(g.Take, (x,), y, taken, wanted=wanted)
    pieces = [sliced(imp, f"{name}.{k}", x, along(x.shape, axis, run)) for k, run in enumerate(runs)]
    return imp.add(g.Concat, tuple(pieces), y, axis, wanted=wanted)


def _runs(indices: Sequence[int]) -> list[range]:
    """The arithmetic progressions, as long as possible, that follow each other in `indices`."""
    runs: list[range] = []
    for i in indices:
        last = runs[-1] if runs else range(0)
        step = last.step if len(last) > 1 else i - last[-1] if len(last) else 0
        if len(last) and step and i == last[-1] + step:
            runs[-1] = range(last[0], i + (1 if step > 0 else -1), step)
        else:
            runs.append(range(i, i + 1))
    return runs


def _repeated(imp: Builder, name: str, x: g.Tensor, axis: int, times: int, wanted: str) -> g.Tensor:
    before, after = math.prod(x.shape[: axis + 1]), math.prod(x.shape[axis + 1 :])
    flat = imp.add(g.Reshape, (x,), like(x, f"{name}.rows", (before, 1, after)))
    grown = imp.add(g.Concat, (flat,) * times, like(x, f"{name}.{axis}", (before, times, after)), 1)
    shape = [*x.shape[:axis], x.shape[axis] * times, *x.shape[axis + 1 :]]
    return imp.add(g.Reshape, (grown,), like(x, name, shape), wanted=wanted)
