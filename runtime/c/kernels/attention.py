"""Operators of transformers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...kernels.attention import TURN, WEIGHTS, reciprocal_shifts, squares_shift
from ...kernels.roots import HIGH, LOW
from ..statements import Value, Writer, spread, strides
from .moves import reshape


def matrices(shape: Sequence[int], images: bool) -> tuple[list[int], list[int], list[int], list[int]]:
    """(shape and steps of the dimensions around, shape and steps of rows and columns) of an array of matrices.

    Images are (N, columns, 1, rows).
    """
    steps = strides(shape)
    if images:
        return [shape[0]], [steps[0]], [shape[3], shape[1]], [steps[3], steps[1]]
    return [*shape[:-2]], steps[:-2], [*shape[-2:]], steps[-2:]


def around(shape: Sequence[int], onto: Sequence[int], size: int) -> list[int]:
    """Steps of matrices of `size` elements, (...) of them, that broadcast to as many as `onto`."""
    return spread(shape, onto, size)


def batch_matmul(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """Steps of rows, of columns and of the elements that are multiplied, within a walk through the matrices."""
    images = a.get("images", False)
    (x_count, _, x_size, x_step), (y_count, _, y_size, y_step), (count, _, size, step) = (
        matrices(v.shape, images) for v in (*inputs, output)
    )
    if a.get("transposed", False):
        y_step = y_step[::-1]
    plan = w.walk(
        count,
        *(around(c, count, np.prod(s, dtype=int)) for c, s in ((x_count, x_size), (y_count, y_size), (count, size))),
    )
    numbers = [
        *size,
        x_size[1],
        *x_step,
        y_step[1],
        y_step[0],
        *step,
        *a["zero_points"],
        a["multiplier"],
        a["exponent"],
    ]
    x, y = (v.pointer for v in inputs)
    w.call("tw_batch_matmul", x, y, output.pointer, plan, w.array("numbers", numbers))


def _roots(w: Writer) -> str:
    return w.array("roots", np.concatenate([HIGH, LOW]))


def rms_norm(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """The tables of roots are data, as are the scales."""
    (x,), scales = inputs, np.concatenate([a["multiplier"], a["exponent"]])
    size = x.shape[-1]
    numbers = x.size // size, size, squares_shift(size)
    w.call("tw_rms_norm", x.pointer, output.pointer, *numbers, _roots(w), w.array("scales", scales))


def rotate(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """The tables of angles are data."""
    x, position = (v.pointer for v in inputs)
    count, width = a["cosine"].shape
    tables = w.array("cosine", a["cosine"], "int16"), w.array("sine", a["sine"], "int16")
    scale = w.array("scale", TURN)
    w.call("tw_rotate", x, position, output.pointer, output.size, width, count, *tables, scale, checked=True)


def _copied(w: Writer, cache: Value, output: Value) -> None:
    """The output begins as the cache, unless it is the same place."""
    if cache.pointer != output.pointer:
        reshape(w, [cache], output, {})


def write_rows(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """A copy of the cache, then the row."""
    cache, row, position = inputs
    _copied(w, cache, output)
    w.call("tw_write_rows", row.pointer, position.pointer, output.pointer, *output.shape[1:3])


def write_columns(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """A copy of the cache, then the block."""
    cache, block, position = inputs
    _copied(w, cache, output)
    sizes = *output.shape[1:3], block.shape[2]
    w.call("tw_write_columns", block.pointer, position.pointer, output.pointer, *sizes, checked=True)


def attention(w: Writer, inputs: Sequence[Value], output: Value, a: dict) -> None:
    """Scores, then weights of one query at a time are scratch; what is behind the position is not looked at."""
    queries, keys, values, position = inputs
    width, context = keys.shape[1:3]
    of_values = [*a["value_groups"]]
    groups = sorted({*of_values} - {-1})
    numbers = [queries.size // width, width, context, values.shape[2], a["seen"], *a["multipliers"], *a["exponents"]]
    numbers += [*reciprocal_shifts(context), len(groups), *groups, *a["key_groups"], *of_values]
    pointers = [v.pointer for v in (queries, keys, values, position, output)]
    scratch = w.scratch(4 * a["seen"])
    tables = w.array("weights", WEIGHTS, "int8"), _roots(w)
    w.call("tw_attention", *pointers, scratch, w.array("numbers", numbers), *tables, checked=True)
