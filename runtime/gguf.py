"""Reads the header of a GGUF file of llama.cpp: its facts, and where its tensors lie. The tensors are not read."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..hw.errors import FileError, UnsupportedError

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}  # kinds of facts
_STRING, _ARRAY = 8, 9
_MOST_DIMS = 4
_MOST_ALIGNMENT = 1 << 20


@dataclass(frozen=True)
class TensorInfo:
    """A tensor in the file: `shape` in numpy's order, the number of its type, and the byte where its data begin."""

    shape: tuple[int, ...]
    kind: int
    start: int


@dataclass(frozen=True)
class Gguf:
    """The header of the file at `path`: `facts`, lists among them, and what it says of `tensors`, by name."""

    path: Path
    facts: dict[str, Any]
    tensors: dict[str, TensorInfo]

    def fact(self, key: str, kind: type, default: Any = None) -> Any:
        """The fact `key`, an int, float, str, bool or list, or `default`. Raises `FileError` where it is another."""
        value = self.facts.get(key, default)
        if kind is float and type(value) is int:
            value = float(value)
        if value is not default and type(value) is not kind:
            raise FileError(f"{self.path}: {key} is {type(value).__name__}, must be {kind.__name__}")
        return value


def read_gguf(path: str | Path, content: bytes) -> Gguf:
    """The header of a GGUF file with this `content`.

    Raises `FileError` for a file that is truncated or damaged, `UnsupportedError` for another version.
    """
    reader = _Reader(Path(path), content)
    if content[: len(MAGIC)] != MAGIC:
        raise FileError(f"{path}: is no GGUF file")
    reader.at = len(MAGIC)
    version = reader.number("I")
    if version not in _VERSIONS:
        raise UnsupportedError(f"{path}: version {version} of GGUF; must be 2 or 3, little-endian; convert it again")
    tensor_count, fact_count = reader.number("Q"), reader.number("Q")
    facts, tensors = dict[str, Any](), dict[str, TensorInfo]()
    for _ in range(fact_count):
        key = reader.string()
        if key in facts:
            raise FileError(f"{path}: has the fact {key[:60]!r} twice; the file is damaged")
        facts[key] = reader.value(reader.number("I"))
    for _ in range(tensor_count):
        name, dims = reader.string(), reader.number("I")
        if name in tensors or not 0 < dims <= _MOST_DIMS:
            raise FileError(f"{path}: tensor {name[:60]!r} comes twice or has {dims} dimensions; the file is damaged")
        shape = tuple(reversed([reader.number("Q") for _ in range(dims)]))
        if 0 in shape:
            raise FileError(f"{path}: tensor {name[:60]!r} has a dimension of 0; the file is damaged")
        tensors[name] = TensorInfo(shape, reader.number("I"), reader.number("Q"))
    alignment = facts.get("general.alignment", 32)
    if type(alignment) is not int or not 0 < alignment <= _MOST_ALIGNMENT:
        raise FileError(f"{path}: general.alignment = {alignment!r:.40}, must be 1 to {_MOST_ALIGNMENT}")
    start = -(-reader.at // alignment) * alignment
    placed = {name: TensorInfo(p.shape, p.kind, start + p.start) for name, p in tensors.items()}
    return Gguf(reader.path, facts, placed)


class _Reader:
    """Reads values one after another, `at` the byte where the next begins."""

    def __init__(self, path: Path, content: bytes):
        self.path, self._content, self.at = path, content, 0

    def bytes(self, count: int) -> bytes:
        """The next `count` bytes."""
        if count > len(self._content) - self.at:
            raise FileError(
                f"{self.path}: its header ends after its {len(self._content):,} bytes; the file is truncated"
            )
        self.at += count
        return self._content[self.at - count : self.at]

    def number(self, kind: str) -> Any:
        """A number of this format of `struct`."""
        return struct.unpack(f"<{kind}", self.bytes(struct.calcsize(f"<{kind}")))[0]

    def string(self) -> str:
        """A text."""
        try:
            return self.bytes(self.number("Q")).decode()
        except UnicodeDecodeError:
            raise FileError(f"{self.path}: a text of its header is no UTF-8; the file is damaged") from None

    def value(self, kind: int) -> Any:
        """A fact of a kind: a number, a text or a list of one of these."""
        if kind == _STRING:
            return self.string()
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind != _ARRAY:
            raise FileError(f"{self.path}: a fact of kind {kind}, which GGUF has not; the file is damaged")
        item, count = self.number("I"), self.number("Q")
        if item == _STRING:
            return [self.string() for _ in range(count)]
        if item not in _NUMBERS:
            raise FileError(f"{self.path}: a list of facts of kind {item}; must be numbers or texts")
        code = _NUMBERS[item]
        return list(struct.unpack(f"<{count}{code}", self.bytes(count * struct.calcsize(f"<{code}"))))
