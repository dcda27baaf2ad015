"""Pieces of C: names, types, arrays."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

_WIDTH = 100  # characters of a line of values
TYPES = {"bool": "uint8_t", "float32": "float"}


def c_type(dtype: str) -> str:
    """The C type of a tensor's elements."""
    return TYPES.get(dtype, f"{dtype}_t")


def identifier(kind: str, name: str, taken: Iterable[str] = ()) -> str:
    """A C name for the tensor `name` that is none of those `taken`, in any case.

    It begins with the tensor's `kind`, input or output, as no name of C, of its library or of the generated code does.
    """
    found = f"{kind}_{re.sub(r'[^0-9A-Za-z]+', '_', name).strip('_') or 'x'}"
    base, k, known = found, 1, {other.lower() for other in taken}
    while found.lower() in known:
        k += 1
        found = f"{base}_{k}"
    return found


def values(array: np.ndarray) -> str:
    """The elements of an array, as lines of C constants."""
    flat = array.reshape(-1)
    if flat.dtype.kind == "f":
        texts = [f"{float(v).hex()}f" if np.isfinite(v) else _special(float(v)) for v in flat]
    elif flat.dtype == np.int32 or flat.dtype == np.int64:
        suffix, least = ("", -(1 << 31)) if flat.dtype == np.int32 else ("LL", -(1 << 63))
        texts = [f"({least + 1}{suffix} - 1)" if v == least else f"{v}{suffix}" for v in flat.tolist()]
    elif flat.dtype == np.uint32:
        texts = [f"0x{v:x}u" for v in flat.tolist()]
    else:
        texts = [str(int(v)) for v in flat.tolist()]
    return wrapped(texts)


def wrapped(texts: Iterable[str]) -> str:
    """Parts of a list between braces, as lines."""
    lines, line = list[str](), ""
    for text in texts:
        if line and len(line) + len(text) + 2 > _WIDTH:
            lines.append(line)
            line = ""
        line += f" {text}," if line else f"    {text},"
    return "\n".join([*lines, line])


def _special(value: float) -> str:
    if value != value:
        return "(0.0f / 0.0f)"
    return "(1.0f / 0.0f)" if value > 0 else "(-1.0f / 0.0f)"


def array(name: str, data: np.ndarray, kind: str = "static const") -> str:
    """The definition of a constant array."""
    return f"{kind} {c_type(data.dtype.name)} {name}[] = {{\n{values(data)}\n}};"


def comment(text: str) -> str:
    """`text` in a comment that it cannot end."""
    return f"/* {inside(text)} */"


def inside(text: str) -> str:
    """`text` as ASCII on one line, without the characters that begin or end a comment."""
    plain = "".join(c if c.isascii() and c.isprintable() else "_" for c in text)
    return plain.replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?")  # trigraphs are read in comments, too
