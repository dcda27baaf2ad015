"""What each host operator needs of its inputs and attributes together, and the shape and dtype of its result.

A function per operator of runtime/hostops.py, called with its inputs and its attributes, whose types and ranges have
been checked. It raises `ProgramError` where they do not fit together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..hw.errors import ProgramError


class Operand(NamedTuple):
    """Shape and dtype of an array, and how many elements the largest array made on the way to it has."""

    shape: tuple[int, ...]
    dtype: str
    scratch: int = 0


Rule = Callable[[Sequence[Operand], dict[str, Any]], Operand]


def need(holds: bool, text: str) -> None:
    """Raise `ProgramError` with `text` unless it holds."""
    if not holds:
        raise ProgramError(text)


def same(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """As the first input."""
    return inputs[0]


def as_dtype(dtype: str) -> Rule:
    """The first input's shape in another dtype."""
    return lambda inputs, a: Operand(inputs[0].shape, dtype)


def cast_to(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """The shape in another type."""
    return Operand(inputs[0].shape, a["dtype"])


def recoded(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """int8 for uint8, and the other way round."""
    return Operand(inputs[0].shape, "int8" if inputs[0].dtype == "uint8" else "uint8")


def padded(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """With the padding around."""
    (shape, dtype, _), pads = inputs[0], a["pads"]
    need(len(pads) == len(shape), f"pads has {len(pads)} pairs, its input {shape} {len(shape)} dimensions")
    if dtype not in ("float32", "bool"):
        info = np.iinfo(dtype)
        need(a["value"] in range(info.min, info.max + 1), f"value = {a['value']} is not in {dtype}")
    return Operand(tuple(n + before + after for n, (before, after) in zip(shape, pads)), dtype)


def reshaped(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """The same elements."""
    shape = tuple(a["shape"])
    need(
        math.prod(shape) == math.prod(inputs[0].shape),
        f"shape = {shape} has not as many elements as its input, {inputs[0].shape}",
    )
    return Operand(shape, inputs[0].dtype)


def transposed(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """The dimensions in another order."""
    shape, axes = inputs[0].shape, a["axes"]
    need(sorted(axes) == [*range(len(shape))], f"axes = {axes} are not those of {shape}, each once")
    return Operand(tuple(shape[k] for k in axes), inputs[0].dtype)


def concatenated(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """One after the other."""
    axis, shapes = a["axis"], [x.shape for x in inputs]
    need(axis < len(shapes[0]), f"axis = {axis}: its input has {len(shapes[0])} dimensions")
    around = {(len(shape), *shape[:axis], -1, *shape[axis + 1 :]) for shape in shapes}
    need(len(around) == 1, f"inputs {shapes} differ in more than axis {axis}")
    need(len({x.dtype for x in inputs}) == 1, "inputs differ in dtype")
    total = sum(shape[axis] for shape in shapes)
    return Operand((*shapes[0][:axis], total, *shapes[0][axis + 1 :]), inputs[0].dtype)


def sliced(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """As many elements per dimension as asked, all of them in the input."""
    shape, (begin, strides, out) = inputs[0].shape, (a["begin"], a["strides"], a["shape"])
    lengths = {len(shape), len(begin), len(strides), len(out)}
    need(len(lengths) == 1, f"begin, strides and shape must have {len(shape)} elements each, as its input {shape} has")
    for k, (size, first, step, n) in enumerate(zip(shape, begin, strides, out)):
        inside = 0 <= first < size and 0 <= first + (n - 1) * step < size
        need(inside and step != 0, f"dimension {k}: {n} elements from {first} on, {step} apart, are not in {size}")
    return Operand(tuple(out), inputs[0].dtype)


def _channels_first(shape: tuple[int, ...], a: dict[str, Any]) -> tuple[int, ...]:
    if a.get("layout", "NCHW") == "NCHW":
        return shape
    need(len(shape) == 4, f"layout = NHWC: its input {shape} must have 4 dimensions")
    return (shape[0], shape[3], *shape[1:3])


def packed(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """Blocks of images and channels."""
    (n, c, *size), (batch, block) = _channels_first(inputs[0].shape, a), (a["batch"], a["block"])
    return Operand((-(-n // batch), -(-c // block), *size, batch, block), inputs[0].dtype)


def folded(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """Entries of strips."""
    n, c, *_ = _channels_first(inputs[0].shape, a)
    need(len(a["offsets"]) > 0, "offsets = []: at least one is needed")
    strip = max(a["offsets"]) + -(-a["entries"] // len(a["offsets"])) * a["group"] + a["block"] + a["rows"] * c
    return Operand((n, a["strips"], a["entries"], 1, a["block"]), inputs[0].dtype, n * a["strips"] * strip)


def _unpacked(shape: tuple[int, ...], n: int, c: int) -> tuple[int, ...]:
    batches, blocks, *size, batch, block = shape
    for name, value, most in (("n", n, batches * batch), ("c", c, blocks * block)):
        need(value <= most, f"{name} = {value}: its input {shape} holds {most}")
    return (n, c, *size)


def unpacked(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """Images and channels out of blocks, in another shape."""
    rank = len(inputs[0].shape)
    need(a.get("layout", "NCHW") == "NCHW" or rank == 6, f"layout = NHWC: its input of {rank} dimensions is no image")
    plain = _unpacked(inputs[0].shape, a["n"], a["c"])
    return reshaped([Operand(plain, inputs[0].dtype)], a)


def joined(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """int16 of two planes of bytes, int32 of more, out of blocks of channels, in another shape."""
    count, *packed = inputs[0].shape
    need(2 <= count <= 4, f"its input has {count} planes of bytes: must have 2 to 4")
    dtype = "int16" if count == 2 else "int32"
    return reshaped([Operand(_unpacked(tuple(packed), a["n"], a["c"]), dtype)], a)


def accumulated(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """int32 out of byte planes."""
    need(len({x.shape for x in inputs}) == 1, f"planes {[x.shape for x in inputs]} differ in shape")
    return Operand(_unpacked(inputs[0].shape, a["n"], a["c"]), "int32")


def along_axis(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """As the input, which has the axis."""
    need(a["axis"] < len(inputs[0].shape), f"axis = {a['axis']}: its input has {len(inputs[0].shape)} dimensions")
    return Operand(*inputs[0][:2])


def softmaxed(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """As the input, which has the axis, in so many bits."""
    return Operand(along_axis(inputs, a).shape, f"int{a.get('bits', 8)}")


def unpacked_softmaxed(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """Images and channels out of blocks, in another shape, which has the axis."""
    return softmaxed([unpacked(inputs, a)], a)


def _biased(a: dict[str, Any], weight: tuple[int, ...]) -> None:
    need(a["bias"].shape == weight[:1], f"bias {a['bias'].shape} and weight {weight} differ in channels")


def convolved(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """int32, smaller by what the kernel reaches."""
    (n, c, *size), weight, groups = inputs[0].shape, a["weight"].shape, a["groups"]
    _biased(a, weight)
    need(weight[1] * groups == c, f"weight {weight} in {groups} groups needs {weight[1] * groups} channels, not {c}")
    need(weight[0] % groups == 0, f"weight {weight}: its outputs do not divide into {groups} groups")
    reach = [(k - 1) * d + 1 for k, d in zip(weight[2:], a["dilations"])]
    out, area = _windows(size, reach, a["strides"], a["pads"])
    return Operand((n, weight[0], *out), "int32", n * c * area)


def _windows(
    size: Sequence[int], kernel: Sequence[int], strides: Sequence[int], pads: Sequence[int]
) -> tuple[tuple[int, int], int]:
    """(rows and columns of windows, elements of the padded image)."""
    grown = [n + pads[k] + pads[k + 2] for k, n in enumerate(size)]
    need(
        all(k <= n for k, n in zip(kernel, grown)),
        f"windows of {tuple(kernel)} do not fit an image of {tuple(size)} with pads {tuple(pads)}",
    )
    rows, columns = ((n - k) // s + 1 for n, k, s in zip(grown, kernel, strides))
    return (rows, columns), math.prod(grown)


def conv_transposed(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """int32, larger by the strides."""
    (n, c, *size), weight, pads = inputs[0].shape, a["weight"].shape, a["pads"]
    _biased(a, weight)
    need(weight[1] == c, f"weight {weight} needs {weight[1]} channels, not {c}")
    need(min(pads[:2]) >= 0, f"pads = {pads}: those at the top and left must be at least 0")
    whole = [(m - 1) * s + k for m, s, k in zip(size, a["strides"], weight[2:])]
    out = [whole[k] - pads[k] - pads[k + 2] for k in range(2)]
    need(min(out) >= 1, f"pads = {pads} leave nothing of {whole[0]} x {whole[1]}")
    area = math.prod(m + max(0, -pads[k + 2]) for k, m in enumerate(whole))
    return Operand((n, weight[0], *out), "int32", n * weight[0] * area)


def dense(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """int32, one per row of the weights."""
    (n, features), weight = inputs[0].shape, a["weight"].shape
    _biased(a, weight)
    need(weight[1] == features, f"weight {weight} needs {weight[1]} features, not {features}")
    return Operand((n, weight[0]), "int32")


def dense_rows(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """int16 or int32, one per row of the weights."""
    found = dense(inputs, a)
    for name in ("multiplier", "exponent"):
        need(a[name].shape == found.shape[1:], f"{name} {a[name].shape}: weight {a['weight'].shape} needs one per row")
    return Operand(found.shape, a.get("dtype", "int16"))


def filtered(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """int8, one per unit."""
    (n, *window), weight, units = inputs[0].shape, a["weight"].shape, len(a["bias"])
    need(weight == tuple(window), f"weight {weight} needs windows of its shape, not {tuple(window)}")
    need(weight[0] % units == 0, f"bias of {units} units: the {weight[0]} filters do not divide into them")
    return Operand((n, units), "int8", math.prod(inputs[0].shape))


def lstm_steps(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """int16, a row per step and one for the cells."""
    gates, hidden, cells = inputs
    dtypes = [x.dtype for x in inputs]
    need(
        dtypes == ["int16", "int8", "int16"], f"gates, hidden values and cells are {dtypes}: must be int16, int8, int16"
    )
    need(len(gates.shape) == 3, f"gates {gates.shape}: must have 3 dimensions")
    n, steps, rows = gates.shape
    kinds = 3 if a.get("coupled") else 4
    size = rows // kinds
    need(rows % kinds == 0, f"gates {gates.shape}: {rows} do not divide into {kinds} gates")
    for what, x in (("hidden values", hidden), ("cells", cells)):
        need(x.shape == (n, size), f"{what} {x.shape}: gates {gates.shape} need {(n, size)}")
    need(a["weight"].shape == (rows, size), f"weight {a['weight'].shape}: gates {gates.shape} need {(rows, size)}")
    for name in ("bias", "gate_multiplier", "gate_exponent"):
        need(a[name].shape == (rows,), f"{name} {a[name].shape}: gates {gates.shape} need {(rows,)}")
    return Operand((n, steps + 1, size), "int16", n * rows)


def lstm_stepped(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """int16 rows of hidden values and cells."""
    gates, own, cells = inputs
    dtypes = gates.dtype, cells.dtype
    need(dtypes == ("int16", "int16"), f"gates and cells are {dtypes}: must be int16")
    need(len(gates.shape) == 3 and gates.shape[1] == 1, f"gates {gates.shape}: must have 3 dimensions, of one step")
    n, _, rows = gates.shape
    kinds = 3 if a.get("coupled") else 4
    need(rows % kinds == 0, f"gates {gates.shape}: {rows} do not divide into {kinds} gates")
    for what, x, needed in (("own sums", own, (n, rows)), ("cells", cells, (n, rows // kinds))):
        need(x.shape == needed, f"{what} {x.shape}: gates {gates.shape} need {needed}")
    return Operand((n, 2, rows // kinds), "int16", n * rows)


def per_channel(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """int8 of the first input's shape."""
    shape = inputs[0].shape
    for name in ("multiplier", "exponent"):
        need(a[name].shape == shape[1:2], f"{name} {a[name].shape}: its input {shape} needs {shape[1:2]}")
    return Operand(shape, "int8")


def looked_up(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """int8 of the first input's shape, whose values all have an entry."""
    need(a["table"].shape == (256,), f"table {a['table'].shape}: must have 256 entries")
    return Operand(inputs[0].shape, "int8")


def together(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """int8 of the shape to which both broadcast."""
    shapes = [x.shape for x in inputs]
    try:
        return Operand(np.broadcast_shapes(*shapes), "int8")
    except ValueError:
        raise ProgramError(f"inputs {shapes} do not broadcast") from None


def pooled(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """int8, one per window."""
    n, c, *size = inputs[0].shape
    out, area = _windows(size, a["kernel"], a["strides"], a.get("pads", (0, 0, 0, 0)))
    return Operand((n, c, *out), "int8", n * c * area)


def averaged(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """int8, one per window, each of which holds a pixel."""
    found, pads = pooled(inputs, a), a["pads"]
    for k, (size, n) in enumerate(zip(inputs[0].shape[2:], found.shape[2:])):
        inside = pads[k] < a["kernel"][k] and (n - 1) * a["strides"][k] - pads[k] < size
        need(inside, f"pads = {pads}: windows of {a['kernel']} that hold padding alone have no mean")
    return found


def reduced(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """int8 without the axes, or with 1 in their place."""
    shape, axes, out = inputs[0].shape, a["axes"], tuple(a["shape"])
    need(len({*axes}) == len(axes) and max(axes, default=0) < len(shape), f"axes = {axes} are not those of {shape}")
    left = math.prod(n for k, n in enumerate(shape) if k not in axes)
    need(math.prod(out) == left, f"shape = {out} has not the {left} elements that {shape} without axes {axes} has")
    return Operand(out, "int8")
