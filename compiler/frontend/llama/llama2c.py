"""Reads checkpoints of llama2.c (`.bin`): versions 0 and 1 in float32, version 2 in int8 with a scale for each group.

Version 0 is a header of seven integers and weights in float32; a negative number of words says that the classifier is
its own. The later ones have a header of 256 bytes and the norms first.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np

from ....hw.errors import FileError, UnsupportedError
from ..source import Source
from .checkpoint import Description, Layer, Sizes, check_sizes, rates_of, shapes

_FIRST = struct.Struct("<7i")  # header of version 0
_LATER, _NEXT = b"24ka", struct.Struct("<4si7iBi")  # how later files begin, and what their headers hold
_HEADER = 256  # bytes of it
_NORMS = ("attention_norm", "hidden_norm", "norm")  # come first in later versions, and stay float32


def describe_llama2c(source: Source) -> Description:
    """The model in a file of llama2.c. Raises `FileError` for one that is truncated or damaged."""
    path, content = source.path, source.content
    version, group, start = 0, 0, _FIRST.size
    if content[: len(_LATER)] == _LATER:
        if len(content) < _HEADER:
            raise FileError(f"{path}: has {len(content)} bytes, its header alone {_HEADER}; the file is truncated")
        _, version, *numbers, shared, group = _NEXT.unpack_from(content)
        if version not in (1, 2):
            raise UnsupportedError(f"{path}: version {version} of llama2.c's checkpoints; must be 0, 1 or 2")
        own, start = not shared, _HEADER
    elif len(content) < _FIRST.size:
        raise FileError(f"{path}: has {len(content)} bytes, a checkpoint of llama2.c begins with {_FIRST.size}")
    else:
        numbers = list(_FIRST.unpack_from(content))
        own, numbers[5] = numbers[5] < 0, abs(numbers[5])
    sizes = Sizes(*numbers)
    check_sizes(path, sizes)
    if version == 2 and (group < 1 or sizes.width % group or sizes.hidden % group):
        rows = f"{sizes.width} and {sizes.hidden}"
        raise FileError(f"{path}: groups of {group} weights in rows of {rows}, which must be multiples; it is damaged")
    places, end = _places(sizes, own, version, group, start)
    if len(content) != end:
        stated = ", ".join(f"{key} {value}" for key, value in vars(sizes).items())
        raise FileError(f"{path}: has {len(content):,} bytes, a model of {stated} has {end:,}; the file is damaged")

    def read(key: str, layer: int | None) -> np.ndarray:
        at, step, shape = places[key]
        at, count = at + step * (layer or 0), math.prod(shape)
        if version < 2 or key in _NORMS:
            return np.frombuffer(content, "<f4", count, at).reshape(shape)
        values = np.frombuffer(content, "i1", count, at).reshape(-1, group)
        scales = np.frombuffer(content, "<f4", count // group, at + count)
        if not (scales >= 0).all():
            raise FileError(f"{path}: a scale of its weights {key!r} is below 0, or no number; the file is damaged")
        return (values * scales[:, None]).reshape(shape)

    rates = rates_of(sizes.head) if version else _rates(path, read("cosines", None), read("sines", None), sizes.head)
    return Description(path.stem, sizes, rates, read, own_classifier=own)


def _places(
    s: Sizes, own_classifier: bool, version: int, group: int, start: int
) -> tuple[dict[str, tuple[int, int, tuple[int, ...]]], int]:
    """(first byte, bytes, shape) of each array, by name, those of layers after each other, and where the file ends."""
    known, of_layers = shapes(s, own_classifier), Layer.__annotations__
    classifier = ["classifier"] * own_classifier
    if version == 0:  # tables of the rotary embedding stand before a classifier of its own
        known |= {"cosines": (s.context, s.head // 2), "sines": (s.context, s.head // 2)}
        names = [key for key in known if key != "classifier"]
    else:
        names = [*_NORMS, *(key for key in known if key not in (*_NORMS, "classifier"))]
    places, at = {}, start
    for key in [*names, *classifier]:
        shape = known[key][1:] if key in of_layers else known[key]
        count = math.prod(shape)
        step = count + 4 * (count // group) if version == 2 and key not in _NORMS else 4 * count
        places[key] = at, step, shape
        at += step * (s.layers if key in of_layers else 1)
    return places, at


def _rates(path: Path, cosines: np.ndarray, sines: np.ndarray, head: int) -> np.ndarray:
    """The rates of tables (context, head / 2); those of the usual base for tables that are no cosines and sines.

    llama2.c does not read its tables, so that a file may hold anything there. float32 tables of a base give that base,
    to six digits, and so its exact rates.
    """
    for key, table in (("cosines", cosines), ("sines", sines)):
        if not np.isfinite(table).all():
            raise FileError(f"{path}: its weights {key!r} hold values that are not finite; the file is damaged")
    usual = rates_of(head)
    if len(cosines) < 2 or np.abs(np.hypot(cosines[:2].astype(float), sines[:2]) - 1).max() > 1e-3:
        return usual
    found = np.arctan2(sines[1], cosines[1]).astype(np.float64)
    if head == 2 or found[-1] <= 0:
        return usual
    base = float(f"{found[-1] ** (-head / (head - 2)):.6g}")
    exact = rates_of(head, base)
    return exact if np.allclose(found, exact, rtol=1e-4, atol=1e-6) else found
