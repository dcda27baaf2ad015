"""Operators of ONNX that order, resize and pick elements, as elementary ones; signatures as in rewrites.py."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from onnx import TensorProto, helper

from ..core import Node
from .nodes import BILINEAR, Chain, Rewrite, Term

_TIE = 1e-6  # so near half way between two pixels onnxruntime takes the one that its mode prefers


def _global_pool(reduction: str) -> Rewrite:
    return lambda c, x: x.node(reduction, axes=range(2, len(x.shape)))


def _depth_to_space(c: Chain, x: Term, *, blocksize: int, mode: str = "DCR") -> Term:
    n, channels, h, w = x.shape
    crd, size, depth = mode == "CRD", blocksize, channels // blocksize**2
    y = x.reshape(*([n, depth, size, size, h, w] if crd else [n, size, size, depth, h, w]))
    return y.transpose([0, 1, 4, 2, 5, 3] if crd else [0, 3, 4, 1, 5, 2]).reshape(n, depth, h * size, w * size)


def _space_to_depth(c: Chain, x: Term, *, blocksize: int) -> Term:
    (n, channels, h, w), size = x.shape, blocksize
    y = x.reshape(n, channels, h // size, size, w // size, size).transpose([0, 3, 5, 1, 2, 4])
    return y.reshape(n, channels * size**2, h // size, w // size)


def _resize(
    c: Chain, x: Term, roi: Term | None = None, scales: Term | None = None, sizes: Term | None = None, *,
    mode: str = "nearest", coordinate_transformation_mode: str = "half_pixel",
    nearest_mode: str = "round_prefer_floor", keep_aspect_ratio_policy: str = "stretch", antialias: int = 0,
    axes: Sequence[int] | None = None, **_: object,
) -> Term | None:  # fmt: skip
    """Gathers of the nearest pixels, sums of neighbours for linear ones of images, else a matrix per axis."""
    stretched = keep_aspect_ratio_policy == "stretch"
    if coordinate_transformation_mode == "tf_crop_and_resize" or not stretched or antialias:
        return None
    by_size = sizes is not None and sizes.value is not None and sizes.value.size > 0
    chosen = sizes if by_size else scales
    amounts = None if chosen is None else chosen.value
    if amounts is None:
        return None
    shape, rank = x.shape, len(x.shape)
    axes = [k % rank for k in (range(rank) if axes is None else axes)]
    factors, places = dict[int, np.float32](), dict[int, np.ndarray]()  # of axes that change
    aligned = coordinate_transformation_mode == "align_corners"  # where places depend on sizes alone
    for axis, amount in zip(axes, amounts):
        factor = np.float32(amount) / np.float32(shape[axis] if by_size else 1)
        if factor != 1:
            out = int(amount if by_size else factor * np.float32(shape[axis]))
            factors[axis], places[axis] = factor, _places(shape[axis], out, factor, coordinate_transformation_mode)
    if mode == "nearest" or not places:
        for axis, place in places.items():
            x = x.take(_nearest(place, shape[axis], nearest_mode), axis)
        return x
    y = x if x.type == TensorProto.FLOAT else x.node("DequantizeLinear", 1.0, _zero(x))  # the integers themselves
    if mode == "linear" and rank == 4 and places.keys() <= {2, 3}:
        taps = [_taps(places.get(k, np.arange(shape[k], dtype=np.float32)), shape[k]) for k in (2, 3)]
        y = y.node(BILINEAR, *taps[0], *taps[1])
    elif min(places, default=rank) < rank - 2:
        return None
    else:
        for axis, place in places.items():
            matrix = _matrix(c, shape[axis], len(place), None if by_size or aligned else factors[axis])
            if axis == rank - 1:
                y = y.node("MatMul", np.ascontiguousarray(matrix.T))
            else:
                y = c.add("MatMul", matrix, y)
    if x.type == TensorProto.FLOAT:
        return y
    y = y.node("Relu").node("Floor") - y.node("Neg").node("Relu").node("Floor")  # onnxruntime cuts fractions off
    return y.node("QuantizeLinear", 1.0, _zero(x))


def _zero(x: Term) -> np.ndarray:
    return np.zeros((), helper.tensor_dtype_to_np_dtype(x.type))


def _places(size: int, out: int, factor: np.float32, mode: str) -> np.ndarray:
    """float32 (out,): where the elements lie in an axis of `size` that is resized by `factor`, as in onnxruntime."""
    half, length, place = np.float32(0.5), np.float32(size), np.arange(out, dtype=np.float32)
    match mode:
        case "asymmetric":
            return place / factor
        case "align_corners":
            return place * (length - 1) / np.float32(max(1, out - 1))
        case "pytorch_half_pixel" if out == 1:
            return place
        case "tf_half_pixel_for_nn":
            return (place + half) / factor
        case "half_pixel_symmetric":
            shift = length / 2 * (1 - np.float32(out) / (factor * length))
            return shift + (place + half) / factor - half
        case _:
            return (place + half) / factor - half


def _nearest(places: np.ndarray, size: int, mode: str) -> np.ndarray:
    """The indices of the elements that are nearest to `places`."""
    exact, half = places.astype(np.float64), 0.5 + _TIE
    rounded = {"floor": np.floor(exact), "ceil": np.ceil(exact), "round_prefer_ceil": np.floor(exact + half)}
    return np.clip(rounded.get(mode, np.ceil(exact - half)), 0, size - 1).astype(np.int64)


def _taps(place: np.ndarray, size: int) -> list[np.ndarray]:
    """[int32 (out, 2) the neighbours of each of `place` in an axis of `size`, float32 (out, 2) their weights]."""
    place = np.clip(place, 0, size - 1)
    first = place.astype(np.int32)
    indices = np.stack([first, np.minimum(first + 1, size - 1)], 1)
    weights = np.abs(place[:, None] - indices[:, ::-1].astype(np.float32))
    weights[indices[:, 0] == indices[:, 1]] = 0.5
    return [indices, weights]


def _matrix(c: Chain, size: int, out: int, factor: np.float32 | None) -> np.ndarray:
    """float32 (out, size): the effect of a Resize along one axis, by `factor` or to a size, by ONNX's reference."""
    attrs = {key: value for key, value in c.node.attrs.items() if key != "axes"}
    node = Node("Resize", "resize", ["x", "", "", "amount"] if factor is None else ["x", "", "amount"], ["y"], attrs)
    amounts = np.array([size, out], np.int64) if factor is None else np.array([1, factor], np.float32)
    (rows,) = c.reader.evaluate(node, [np.eye(size, dtype=np.float32), amounts])
    return np.ascontiguousarray(rows.T, np.float32)


def _average_pool(
    c: Chain, x: Term, *, pads: Sequence[int] = (), count_include_pad: int = 0, **attrs: object
) -> Term | None:
    """Explicit padding with zeros where padding counts, but windows may reach beyond it, where nothing counts."""
    if not (count_include_pad and attrs.get("ceil_mode", 0) and any(pads)):
        return None
    half, outer = len(pads) // 2, [0] * (len(x.shape) - len(pads) // 2)
    amounts = [*outer, *pads[:half], *outer, *pads[half:]]
    return x.node("Pad", np.array(amounts, np.int64)).node("AveragePool", **attrs)


def _dilated_max_pool(
    c: Chain, x: Term, *, kernel_shape: Sequence[int], dilations: Sequence[int] = (1,), strides: Sequence[int] = (),
    pads: Sequence[int] = (), auto_pad: str = "NOTSET", ceil_mode: int = 0, storage_order: int = 0,
) -> Term | None:  # fmt: skip
    """A pool of windows that lie side by side, each with its elements; for those of the padding, its first one."""
    count, size = len(kernel_shape), x.shape[2:]
    if max(dilations) == 1 or auto_pad not in ("NOTSET", "VALID") or any(c.node.outputs[1:]):
        return None
    steps, around = strides or [1] * count, (auto_pad == "NOTSET" and pads) or [0] * 2 * count
    for k, (n, kernel, dilation, step) in enumerate(zip(size, kernel_shape, dilations, steps)):
        room = n + around[k] + around[k + count] - (kernel - 1) * dilation - 1
        begins = np.arange(-(-room // step) + 1 if ceil_mode else room // step + 1) * step - around[k]
        taps = begins[begins < n, None] + np.arange(kernel) * dilation
        inside = (taps >= 0) & (taps < n)
        if not inside.any(1).all():
            return None
        taps = np.where(inside, taps, np.take_along_axis(taps, inside.argmax(1)[:, None], 1))
        x = x.take(taps.reshape(-1), k + 2)
    return x.node("MaxPool", kernel_shape=list(kernel_shape), strides=list(kernel_shape))


def _one_hot(c: Chain, x: Term, depth: Term, values: Term, *, axis: int = -1) -> Term | None:
    """One value where a position along `axis` is that of the input, which may count from the end, another elsewhere."""
    if depth.value is None or values.value is None or x.type not in (TensorProto.INT32, TensorProto.INT64):
        return None
    (count,), rank, kind = (
        depth.value.reshape(-1).astype(int),
        len(x.shape) + 1,
        helper.tensor_dtype_to_np_dtype(x.type),
    )
    axis %= rank
    places = np.arange(count, dtype=kind).reshape([count if k == axis else 1 for k in range(rank)])
    x = x.reshape(*x.shape[:axis], 1, *x.shape[axis:])
    there = c.add("Or", *(x.node("Equal", places - back) for back in (0, count)))
    return there.node("Where", values.value[1:], values.value[:1])


def _flat_positions(indices: np.ndarray, axis: int, shape: Sequence[int]) -> np.ndarray:
    """The positions in a flat array of `shape` of the elements at `indices` of `axis`."""
    positions = np.indices(indices.shape)
    positions[axis] = indices % shape[axis]
    return np.asarray(np.ravel_multi_index(tuple(positions), tuple(shape)))


def _rows(indices: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """The numbers of the parts of `shape` at `indices`, whose last dimension counts along the first of `shape`."""
    count = indices.shape[-1]
    positions = np.moveaxis(indices % np.array(shape[:count]), -1, 0)
    return np.asarray(np.ravel_multi_index(tuple(positions), tuple(shape[:count])))


def _gather_nd(c: Chain, x: Term, indices: Term, *, batch_dims: int = 0) -> Term | None:
    if indices.value is None or batch_dims:
        return None
    rest, rows = x.shape[indices.shape[-1] :], _rows(indices.value, x.shape)
    return x.reshape(-1, *rest).take(rows.reshape(-1)).reshape(*rows.shape, *rest)


def _gather_elements(c: Chain, x: Term, indices: Term, *, axis: int = 0) -> Term | None:
    if indices.value is None:
        return None
    positions = _flat_positions(indices.value, axis % len(x.shape), x.shape)
    return x.reshape(-1).take(positions.reshape(-1)).reshape(*indices.shape)


def _scatter(positions: Callable[[np.ndarray, int, Sequence[int]], np.ndarray]) -> Rewrite:
    """Gather from data and updates in one row: each position takes the element that was written to it last."""

    def rewrite(
        c: Chain, x: Term, indices: Term, updates: Term, *, axis: int = 0, reduction: str = "none"
    ) -> Term | None:
        if indices.value is None or reduction != "none":
            return None
        size = math.prod(x.shape)
        sources, written = np.arange(size), positions(indices.value, axis, x.shape).reshape(-1)
        sources[written] = size + np.arange(written.size)
        return c.add("Concat", x.reshape(-1), updates.reshape(-1), axis=0).take(sources).reshape(*x.shape)

    return rewrite


def _parts(indices: np.ndarray, axis: int, shape: Sequence[int]) -> np.ndarray:
    elements = math.prod(shape[indices.shape[-1] :])
    return _rows(indices, shape)[..., None] * elements + np.arange(elements)


LAYOUTS: dict[str, Rewrite] = {
    "AveragePool": _average_pool,
    "DepthToSpace": _depth_to_space,
    "GlobalAveragePool": _global_pool("ReduceMean"),
    "GlobalMaxPool": _global_pool("ReduceMax"),
    "MaxPool": _dilated_max_pool,
    "OneHot": _one_hot,
    "Resize": _resize,
    "SpaceToDepth": _space_to_depth,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "ScatterElements": _scatter(_flat_positions),
    "ScatterND": _scatter(_parts),
}
