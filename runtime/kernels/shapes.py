"""What each operator of this folder needs of its inputs and attributes together, and the shape of its result.

As runtime/hostshapes.py: a function per operator, called once types and ranges have been checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...hw.errors import ProgramError
from ..hostshapes import Operand, reduced, together

MOST_ROWS = 1 << 20  # of detections


def need(holds: bool, text: str) -> None:
    """Raise `ProgramError` with `text` unless it holds."""
    if not holds:
        raise ProgramError(text)


def taken(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """As many elements per dimension as indices, or all."""
    (shape, dtype, _), indices = inputs[0], a["indices"]
    need(len(indices) == len(shape), f"indices of {len(indices)} dimensions: its input {shape} has {len(shape)}")
    for k, (n, found) in enumerate(zip(shape, indices)):
        need(max(found, default=0) < n, f"indices: {max(found, default=0)} is not in dimension {k} of {shape}")
    return Operand(tuple(len(found) or n for n, found in zip(shape, indices)), dtype)


def cast_to(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """The shape in another type."""
    return Operand(inputs[0].shape, a["dtype"])


def one_type(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """The shape to which both broadcast, in their type."""
    need(inputs[0].dtype == inputs[1].dtype, f"inputs differ in dtype: {inputs[0].dtype} and {inputs[1].dtype}")
    return together(inputs, a)._replace(dtype=inputs[0].dtype)


def reduced_numbers(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """Without the axes, or with 1 in their place, in the input's type."""
    return reduced(inputs, a)._replace(dtype=inputs[0].dtype)


def dense_rows(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """A row of as many elements as the weights have rows for each of the input's."""
    (shape, dtype, _), (units, features) = inputs[0], a["weight"].shape
    need(shape[-1:] == (features,), f"weight {a['weight'].shape} does not fit an input of {shape}")
    need(a["bias"].shape == (units,), f"bias {a['bias'].shape}: must be {(units,)}")
    return Operand((*shape[:-1], units), dtype)


def _positions(where: Operand) -> None:
    need(where.dtype in ("int32", "int64"), f"positions of dtype {where.dtype}: must be int32 or int64")


def gathered(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """The positions' dimensions in place of the axis."""
    (shape, dtype, _), where, axis = inputs[0], inputs[1], a["axis"]
    _positions(where)
    need(axis < len(shape), f"axis = {axis}: its input has {len(shape)} dimensions")
    return Operand((*shape[:axis], *where.shape, *shape[axis + 1 :]), dtype)


def gathered_nd(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """The positions' dimensions but the last, then those that they leave."""
    (shape, dtype, _), where = inputs
    _positions(where)
    need(0 < len(where.shape), "positions have no dimensions")
    count = where.shape[-1]
    need(count <= len(shape), f"positions of {count} dimensions: their input {shape} has {len(shape)}")
    return Operand((*where.shape[:-1], *shape[count:]), dtype)


def detected(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """A row per detection, and one for their number."""
    (boxes, _, _), (scores, _, _) = inputs
    count = boxes[1]
    need(boxes == (1, count, 4), f"boxes {boxes}: must be (1, N, 4)")
    need(scores[:2] == (1, count), f"scores {scores}: must be of {count} boxes")
    need(a["anchors"].shape == (count, 4), f"anchors {a['anchors'].shape}: must be {(count, 4)}")
    need(a["classes"] <= scores[2], f"classes = {a['classes']}: the scores have {scores[2]}")
    need(min(map(abs, a["scales"])) > 0, f"scales = {a['scales']}: must not be 0")
    rows = a["most"] * (1 if a["each_class"] else min(a["classes_per_box"], a["classes"]))
    need(rows <= MOST_ROWS, f"most = {a['most']}: {rows} rows, at most {MOST_ROWS} are allowed")
    return Operand((1, rows + 1, 6), "float32")


def topmost(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """Rows of as many elements as asked."""
    (*around, size), dtype, _ = inputs[0]
    need(a["count"] <= size, f"count = {a['count']}: rows have {size} elements")
    return Operand((*around, a["count"]), "int32" if a["positions"] else dtype)


def resized(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """Images of the size asked."""
    n, c, *_ = inputs[0].shape
    return Operand((n, c, *a["size"]), "int8")


def chosen(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """Of the asked dtype, without the axis, or with 1 in its place."""
    return Operand(reduced(inputs, a | {"axes": [a["axis"]]}).shape, a["dtype"])


def batch_multiplied(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """Rows of the first, columns of the second, or its rows where it is transposed."""
    x, y = (operand.shape for operand in inputs)
    if a.get("images", False):
        need(all(len(s) == 4 and s[2] == 1 for s in (x, y)), f"inputs {[x, y]} are not images of one row")
        matrices = [Operand((s[0], s[3], s[1]), "int8") for s in (x, y)]
        (count, rows, columns), dtype, _ = batch_multiplied(matrices, a | {"images": False})
        return Operand((count, columns, 1, rows), dtype)
    need(min(len(x), len(y)) > 1, f"inputs {[x, y]} are not matrices")
    inner, columns = y[-2:][:: -1 if a.get("transposed", False) else 1]
    need(inner == x[-1], f"inputs {[x, y]} cannot be multiplied: {x[-1]} is not {inner}")
    batches = together([Operand(x[:-2], "int8"), Operand(y[:-2], "int8")], a).shape
    return Operand((*batches, x[-2], columns), "int8")


def normed(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """The input's shape, which has as many elements in its last dimension as there are gains."""
    need(a["gain"].shape == inputs[0].shape[-1:], f"gain {a['gain'].shape}: its input is {inputs[0].shape}")
    return inputs[0]


def _placed(inputs: Sequence[Operand]) -> None:
    *values, position = inputs
    need(position[:2] == ((1,), "int32"), f"the position is {position.dtype} {position.shape}: must be int32 (1,)")
    wrong = [x.dtype for x in values if x.dtype != "int8"]
    need(not wrong, f"an input is {wrong[:1]}: must be int8")


def rotated(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """The input's shape, whose last dimension has an angle for each pair."""
    _placed(inputs)
    shape, angles = inputs[0].shape, [a["cosine"].shape, a["sine"].shape]
    need(angles[0] == angles[1], f"cosine and sine {angles} differ in shape")
    need(shape[-1:] == (2 * angles[0][1],), f"cosine {angles[0]}: its input is {shape}, with other pairs")
    return Operand(shape, "int8")


def with_rows(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """The shape of the first, in which the second has a place."""
    _placed(inputs)
    cache, rows = inputs[0].shape, inputs[1].shape
    need(len(cache) == len(rows) == 3, f"inputs {[cache, rows]} must have 3 dimensions")
    need((cache[0], cache[2]) == (rows[0], rows[2]) and rows[1] <= cache[1], f"rows {rows} do not fit {cache}")
    return Operand(cache, "int8")


def exponentiated(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """The shape of the scores."""
    _placed(inputs)
    need(a["table"].shape == (256,), f"table {a['table'].shape}: must have 256 entries")
    return Operand(inputs[0].shape, "int8")


def averaged_values(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """A row of the values' width for each row of weights."""
    weights, values = (operand.shape for operand in inputs)
    need(values[:2] == (weights[0], weights[2]), f"values {values} do not fit weights {weights}")
    return Operand((*weights[:2], values[2]), "int8")
