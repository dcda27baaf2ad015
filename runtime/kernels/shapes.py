"""What each operator of this folder needs of its inputs and attributes together, and the shape of its result.

As runtime/hostshapes.py: a function per operator, called once types and ranges have been checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..hostshapes import Operand, need, reduced, together
from .attention import LARGEST_CONTEXT

MOST_ROWS = 1 << 20  # of detections


def taken(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """As many elements per dimension as indices, or all."""
    (shape, dtype, _), indices = inputs[0], a["indices"]
    need(len(indices) == len(shape), f"indices of {len(indices)} dimensions: its input {shape} has {len(shape)}")
    for k, (n, found) in enumerate(zip(shape, indices)):
        need(max(found, default=0) < n, f"indices: {max(found, default=0)} is not in dimension {k} of {shape}")
    return Operand(tuple(len(found) or n for n, found in zip(shape, indices)), dtype)


def in_lanes(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """The image of rows, or the rows of an image."""
    rows, image = sorted((tuple(a["shape"]), inputs[0].shape), key=len)
    fits = len(rows) == 2 and len(image) == 4 and image[0] == 1
    whole = fits and rows == (image[2], -(-image[1] // a["block"]) * a["block"] * image[3])
    need(whole, f"shape = {a['shape']}, blocks of {a['block']}: its input is {inputs[0].shape}")
    return Operand(tuple(a["shape"]), inputs[0].dtype)


def one_type(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """The shape to which both broadcast, in their type."""
    need(inputs[0].dtype == inputs[1].dtype, f"inputs differ in dtype: {inputs[0].dtype} and {inputs[1].dtype}")
    return together(inputs, a)._replace(dtype=inputs[0].dtype)


def looked_up_pairs(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """Of the shape to which both broadcast, by a table that has every pair of values."""
    need(a["table"].shape == (256, 256), f"table {a['table'].shape}: must be (256, 256)")
    return together(inputs, a)


def compared(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """The shape to which both broadcast, of truth values."""
    return one_type(inputs, a)._replace(dtype="bool")


def selected(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """The shape to which all three broadcast, in the type of the last two."""
    need(inputs[0].dtype == "bool", f"the condition is {inputs[0].dtype}: must be bool")
    need(inputs[1].dtype == inputs[2].dtype, f"inputs differ in dtype: {inputs[1].dtype} and {inputs[2].dtype}")
    return together(inputs, a)._replace(dtype=inputs[1].dtype)


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
    return Operand((n, c, *a["size"]), inputs[0].dtype)


def chosen(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """Of the asked dtype, without the axis, or with 1 in its place."""
    return Operand(reduced(inputs, a | {"axes": [a["axis"]]}).shape, a["dtype"])


def batch_multiplied(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """Rows of the first, columns of the second, or its rows where it is transposed; int8."""
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


def integer_products(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """Rows of the first, columns of the second; int32."""
    return batch_multiplied(inputs, a)._replace(dtype="int32")


def shifted(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """The shape to which all broadcast, in the type asked; int8 has room for the clamp and the zero point."""
    shape = together(inputs, a).shape
    bounds = [a["low"] + a.get("zero_point", 0), a["high"] + a.get("zero_point", 0)]
    dtype = a.get("dtype", "int8")
    need(
        dtype == "int32" or -128 <= min(bounds) and max(bounds) <= 127,
        f"low, high = {bounds} with the zero_point: not within int8, the dtype",
    )
    return Operand(shape, dtype)


def integers_normed(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """The first input's shape in int8; weights, and biases if there are some, are as long as its rows."""
    x, *rest = inputs
    need(len(rest) in (1, 2), f"{len(inputs)} inputs: must be 2 or 3")
    for t in rest:
        need((t.shape, t.dtype) == (x.shape[-1:], "int32"), f"weights {t.dtype} {t.shape}: its input is {x.shape}")
    return Operand(x.shape, "int8")


def normed(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """The input's shape, which has as many elements in its last dimension as there are multipliers."""
    shape, given = inputs[0].shape, [a["multiplier"].shape, a["exponent"].shape]
    need(given == [shape[-1:]] * 2, f"multiplier and exponent {given}: the input is {shape}")
    return inputs[0]


def _placed(inputs: Sequence[Operand]) -> list[tuple[int, ...]]:
    """The shapes of all but the last, which is a position."""
    *values, position = inputs
    need(position[:2] == ((1,), "int32"), f"the position is {position.dtype} {position.shape}: must be int32 (1,)")
    wrong = [x.dtype for x in values if x.dtype != "int8"]
    need(not wrong, f"an input is {wrong[:1]}: must be int8")
    return [x.shape for x in values]


def _expect_cache(cache: tuple[int, ...]) -> None:
    need(len(cache) == 4 and cache[::3] == (1, 1), f"a cache is {cache}: must have 4 dimensions, of 1 at both ends")


def rotated(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """The input's shape, which has chunks of twice as many elements as there are angles."""
    (shape,), angles = _placed(inputs), [a["cosine"].shape, a["sine"].shape]
    need(angles[0] == angles[1], f"cosine and sine {angles} differ in shape")
    width = 2 * angles[0][1]
    need(len(shape) == 2 and width > 0, f"input {shape}, angles {angles[0]}: must be (tokens, chunks)")
    need(shape[0] <= angles[0][0], f"input {shape} has more tokens than the {angles[0][0]} positions of the angles")
    need(shape[1] % width == 0, f"input {shape} has no chunks of {width}, twice the angles")
    return Operand(shape, "int8")


def with_rows(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """The shape of the first, in which the rows of the second have places, each another."""
    cache, rows = _placed(inputs)
    _expect_cache(cache)
    need(len(rows) == 2 and rows[1] == cache[1] and rows[0] <= cache[2], f"rows {rows} do not fit {cache}")
    return Operand(cache, "int8")


def with_columns(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """The shape of the first, in which the second, transposed, has places."""
    cache, block = _placed(inputs)
    _expect_cache(cache)
    _expect_cache(block)
    need(block[1] == cache[2] and cache[1] % block[2] == 0, f"block {block} does not fit {cache}")
    tokens = a.get("tokens", 1)
    need(block[2] % tokens == 0, f"tokens = {tokens}: the block has {block[2]} positions")
    return Operand(cache, "int8")


def attended(inputs: Sequence[Operand], a: dict[str, Any]) -> Operand:
    """For each token a row of the values' width for each chunk of its queries."""
    queries, keys, values = _placed(inputs)
    _expect_cache(keys)
    _expect_cache(values)
    need(values[1] == keys[2] <= LARGEST_CONTEXT, f"keys {keys}, values {values}: at most {LARGEST_CONTEXT} positions")
    need(a["seen"] <= keys[2], f"seen = {a['seen']}: the cache has {keys[2]} positions")
    lanes, outputs = a["key_groups"], a["value_groups"]
    need(2 * len(lanes) == keys[1], f"key_groups has {len(lanes)} lanes: must have half of {keys}")
    need(len(outputs) == values[2], f"value_groups has {len(outputs)} lanes: values are {values}")
    unknown = set(outputs) - set(lanes) - {-1}
    need(not unknown, f"value_groups has {sorted(unknown)[:1]}, which key_groups has not")
    need(
        len(queries) == 2 and queries[1] % keys[1] == 0, f"queries {queries} have no chunks of {keys[1]}, a key's lanes"
    )
    need(queries[0] <= a["seen"], f"queries {queries} are of more tokens than the {a['seen']} positions that are read")
    tokens, chunks = queries[0], queries[1] // keys[1]
    return Operand((tokens, chunks * values[2]), "int8", tokens * chunks * a["seen"])
