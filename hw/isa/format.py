"""Words of named bit fields: numpy encoder and decoder, and their table for the docs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import ConfigError, EncodingError


@dataclass(frozen=True)
class Field:
    """One bit field: `bits` wide; `lo` is its lowest bit, -1 for "after the field before"."""

    name: str
    bits: int
    doc: str
    signed: bool = False
    lo: int = -1

    @property
    def limits(self) -> tuple[int, int]:
        """Smallest and largest value, both included."""
        return (-(1 << self.bits - 1), (1 << self.bits - 1) - 1) if self.signed else (0, (1 << self.bits) - 1)


class Format:
    """A fixed-width word of named fields; no field crosses a 64-bit boundary unless the word is `dense`.

    Raises `ConfigError` when the fields need more bits than the word has.
    """

    def __init__(self, name: str, width: int, *fields: Field, dense: bool = False):
        self.name, self.width = name, width
        self.fields: dict[str, Field] = {}
        pos = 0
        for f in fields:
            lo = pos if f.lo < 0 else f.lo
            if f.lo < 0 and not dense and lo // 64 != (lo + f.bits - 1) // 64:
                lo = -(-lo // 64) * 64
            if lo < pos:
                raise ConfigError(f"{name}.{f.name} must start at bit {lo}, but the fields before it need {pos} bits")
            self.fields[f.name] = Field(f.name, f.bits, f.doc, f.signed, lo)
            pos = lo + f.bits
        if pos > width:
            raise ConfigError(f"{name}: the fields need {pos} bits, the word has {width}")

    def encode(self, n: int = 1, **values: object) -> np.ndarray:
        """Words, uint64 (n, ceil(width / 64)), from scalars or integer arrays of length `n`; absent fields are 0.

        Raises `EncodingError` for an unknown field or a value outside it.
        """
        out = np.zeros((n, -(-self.width // 64)), np.uint64)
        for key, value in values.items():
            f = self.fields.get(key)
            if f is None:
                raise EncodingError(f"{self.name} has no field {key!r}; it has {', '.join(self.fields)}")
            v = np.asarray(value, np.int64)
            for edge in (v.min(), v.max()) if v.size else ():
                self.check(key, int(edge))
            v, (word, bit) = v.astype(np.uint64) & np.uint64((1 << f.bits) - 1), divmod(f.lo, 64)
            out[:, word] |= v << np.uint64(bit)
            if bit + f.bits > 64:
                out[:, word + 1] |= v >> np.uint64(64 - bit)
        return out

    def check(self, key: str, value: int) -> None:
        """Raise `EncodingError` where the field `key` does not hold `value`."""
        f, (low, high) = self.fields[key], self.fields[key].limits
        if not low <= value <= high:
            raise EncodingError(f"{self.name}.{key} = {value}: outside {low}..{high} ({f.bits} bits)")

    def decode(self, words: np.ndarray) -> dict[str, np.ndarray]:
        """Fields, int64 (n,) each, of `words`, uint64 (n, ceil(width / 64))."""
        out = {}
        for f in self.fields.values():
            word, bit = divmod(f.lo, 64)
            v = words[:, word] >> np.uint64(bit)
            if bit + f.bits > 64:
                v = v | words[:, word + 1] << np.uint64(64 - bit)
            v = (v & np.uint64((1 << f.bits) - 1)).astype(np.int64)
            out[f.name] = np.where(v >> (f.bits - 1), v - (1 << f.bits), v) if f.signed else v
        return out

    def table(self) -> str:
        """The fields as a Markdown table."""
        rows = [f"| {f.lo + f.bits - 1}:{f.lo} | `{f.name}` | {f.doc} |" for f in self.fields.values()]
        return "\n".join(["| bits | field | meaning |", "|---|---|---|", *rows])
