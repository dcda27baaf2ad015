"""Symbolic DRAM buffers, which programs read and write; they get their addresses when a program is loaded."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..hw.errors import InputError, ProgramError
from .arrays import Array
from .schema import Flag, Int, Kind, OneOf, check_fields, is_a

KINDS = ("input", "output", "constant", "temp", "state")
ELEMENT_BITS = (2, 4, 8, 32)
MOST_BYTES = 1 << 40  # per buffer or tensor: more than any device has, and far below 2**63
MOST_ALIGN = 1 << 24  # more than any entry of a scratchpad

_FIELDS: dict[str, Kind] = {
    "kind": OneOf(KINDS),
    "bits": OneOf(ELEMENT_BITS),
    "signed": Flag(),
    "align": Int(1, MOST_ALIGN),
}


def whole(what: str, values: Iterable[Any]) -> tuple[int, ...]:
    """`values` as ints. Raises `ProgramError`, beginning with `what`, for a value that is not an integer."""
    elements = tuple(values)
    if any(isinstance(n, (bool, np.bool_)) or not isinstance(n, (int, np.integer)) for n in elements):
        raise ProgramError(f"{what} {elements}: must be integers")
    return tuple(map(operator.index, elements))


def shape_of(name: str, shape: Any) -> tuple[int, ...]:
    """The `shape` of buffer `name` as a tuple. Raises `ProgramError` for a tensor or a number in its place."""
    what = f"buffer {name!r}: shape"
    if len(getattr(shape, "shape", (0,))) != 1:
        raise ProgramError(f"{what} is a tensor, {type(shape).__name__}; give its sizes, as x.shape")
    if not is_a(shape, Iterable):
        raise ProgramError(f"{what} {shape!r}: must be a tuple of integers, as (16,)")
    return whole(what, shape)


def integers(what: str, values: Sequence[int], n: int, meaning: str = "") -> tuple[int, ...]:
    """The `n` numbers `values` as ints, from any type that is an index; `meaning` explains them in the message.

    Raises `ProgramError`, beginning with `what`.
    """
    try:
        numbers = tuple(operator.index(value) for value in values)
    except TypeError:
        numbers = ()
    if len(numbers) != n:
        of = f" ({meaning})" if meaning else ""
        raise ProgramError(f"{what} is {values!r}: must be {n} {'integers' if n > 1 else 'integer'}{of}")
    return numbers


def pack_bits(values: Array, bits: int) -> Array:
    """Bytes, uint8, that hold the low `bits` of each value: element i in bits [i * bits, (i + 1) * bits)."""
    flat = np.ascontiguousarray(values).reshape(-1)
    if bits >= 8:
        return flat.astype(f"<i{bits // 8}").view(np.uint8)
    per_byte = 8 // bits
    parts = (flat.astype(np.int64) & ((1 << bits) - 1)).astype(np.uint8).reshape(-1, per_byte)
    return np.bitwise_or.reduce(parts << (bits * np.arange(per_byte, dtype=np.uint8)), axis=1).astype(np.uint8)


def unpack_bits(data: Array, bits: int, signed: bool = True) -> Array:
    """Elements of `bits` each in the bytes `data`, as int8, uint8, int32 or uint32."""
    if bits == 32:
        return data.view("<i4").astype(np.int32) if signed else data.view("<u4").astype(np.uint32)
    if bits == 8:
        return data.view(np.int8 if signed else np.uint8).copy()
    parts = (data[:, None] >> (bits * np.arange(8 // bits, dtype=np.uint8))) & np.uint8((1 << bits) - 1)
    values = parts.reshape(-1).astype(np.int8)
    if signed:
        values -= (values >> (bits - 1)) << bits
        return values
    return values.view(np.uint8)


@dataclass(eq=False)
class Buffer:
    """A named array of `bits`-wide elements in DRAM, C order; `kind` says who fills it.

    `input` is written before a run, `output` read after it, `constant` carries `data` (uint8 bytes) with the
    program, `temp` is the program's own, `state` keeps its values from run to run and is read and written in place. The
    byte address is a multiple of `align`; the recorder raises it to the entry sizes of the memories that the buffer is
    moved to.

    Raises `ProgramError` for an impossible declaration.
    """

    name: str
    shape: tuple[int, ...]
    bits: int = 8
    signed: bool = True
    kind: str = "input"
    data: Array | None = None
    align: int = 64

    def __post_init__(self) -> None:
        self.shape = shape_of(self.name, self.shape)
        what = f"buffer {self.name!r}"
        try:
            check_fields({name: getattr(self, name) for name in _FIELDS}, _FIELDS)
        except ProgramError as exc:
            raise ProgramError(f"{what}: {exc}") from None
        if min(self.shape, default=1) < 1:
            raise ProgramError(f"{what}: shape {self.shape}: every dimension must be at least 1")
        if math.prod(self.shape) * self.bits % 8:
            raise ProgramError(f"{what}: {self.bits}-bit elements of shape {self.shape} do not fill whole bytes")
        if self.nbytes > MOST_BYTES:
            raise ProgramError(f"{what}: {self.nbytes:,} bytes; at most {MOST_BYTES:,} are allowed")
        if (self.kind == "constant") != (self.data is not None):
            needs = "needs data" if self.kind == "constant" else "takes no data; only constant buffers do"
            raise ProgramError(f"{what}: kind {self.kind!r} {needs}")
        if self.data is not None and (self.data.dtype != np.uint8 or self.data.shape != (self.nbytes,)):
            raise ProgramError(f"{what}: data must be {self.nbytes} bytes (uint8)")

    @property
    def nbytes(self) -> int:
        """Bytes in DRAM."""
        return math.prod(self.shape) * self.bits // 8

    def pack(self, array: Array) -> Array:
        """The bytes, uint8 (nbytes,), of an integer `array` of this buffer's shape; of float32, where it has 32 bits.

        Raises `InputError` for another shape, a dtype that is not integer, or values outside the element.
        """
        array = np.asarray(array)
        if array.dtype == np.float32 and self.bits == 32:
            array = array.view(np.int32) if self.signed else array.view(np.uint32)
        if array.shape != self.shape:
            raise InputError(f"{self.name}: shape {array.shape} given, {self.shape} expected")
        if array.dtype.kind not in "iu":
            raise InputError(f"{self.name}: dtype {array.dtype} given, integers expected")
        low, high = (-(1 << self.bits - 1), (1 << self.bits - 1) - 1) if self.signed else (0, (1 << self.bits) - 1)
        info = np.iinfo(array.dtype)
        if (info.min < low or info.max > high) and array.size and (array.min() < low or array.max() > high):
            bad = array.min() if array.min() < low else array.max()
            raise InputError(f"{self.name}: value {bad} is outside {low}..{high} ({self.bits} bits)")
        return pack_bits(array, self.bits)

    def unpack(self, data: Array) -> Array:
        """The array in the bytes `data`, uint8 (nbytes,)."""
        return unpack_bits(data, self.bits, self.signed).reshape(self.shape)


@dataclass(eq=False)
class Region(Buffer):
    """Part of the buffer `whole`, from byte `start` on, which programs load and store like a buffer.

    Regions may overlap; accesses to shared bytes are ordered like all others. Raises `ProgramError` for a region that
    does not lie inside `whole`.
    """

    whole: Buffer | None = None
    start: int = 0

    def __post_init__(self) -> None:
        if self.whole is None or not 0 <= self.start <= self.whole.nbytes - self.nbytes:
            if self.whole is None:
                raise ProgramError(f"region {self.name!r}: needs `whole`, the buffer that it is part of")
            raise ProgramError(
                f"region {self.name!r}: bytes {self.start}..{self.start + self.nbytes - 1} are outside "
                f"0..{self.whole.nbytes - 1} of buffer {self.whole.name!r}"
            )
        self.kind = self.whole.kind
        super().__post_init__()
