"""How the fields and the extensions of a configuration are declared: legal values, meaning, cost.

hw/fields.py declares each field with `power`, `number`, `switch`, `names` or `text`, which keep a `Parameter` in the
field's metadata. The checks, the fingerprint, docs/configuration.md and `tilewright config --help` read it from there.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from .units import COMPUTE_UNITS

_KEY = "parameter"


class Part(Enum):
    """How a field enters the fingerprint.

    A `CIRCUIT` field never does, as programs do not depend on it. `FIRST` fields are of the first version and always
    do. Any other field, so every new one, enters it and a file only where it differs from its default: the
    fingerprints and files of configurations that do without it stay as they are.
    """

    FIRST = "yes"
    LATER = "where it is not the default"
    CIRCUIT = "no"


@dataclass(frozen=True)
class Parameter:
    """One field: its meaning, what it costs in area and cycles, and its legal values.

    `legal` describes them; `low` and `high` are the limits of numbers, of powers of two where `powers`. `key` is its
    name in the fingerprint where that is not the field's. `usual` describes a default that follows from other fields.
    """

    part: Part
    meaning: str
    cost: str
    legal: str
    low: int = 0
    high: int = 0
    powers: bool = False
    key: str = ""
    usual: str = ""


def power(default: int | None, limits: tuple[int, int], part: Part, meaning: str, cost: str, **facts: str) -> Any:
    """A field whose legal values are the powers of two within `limits`; None as `default`: `facts` has the `usual`."""
    low, high = limits
    legal = f"powers of two, {low} to {high}" if low < high else str(low)
    return _field(default, Parameter(part, meaning, cost, legal, low, high, True, **facts))


def number(default: int, limits: tuple[int, int], part: Part, meaning: str, cost: str) -> Any:
    """A field whose legal values are the integers within `limits`."""
    low, high = limits
    return _field(default, Parameter(part, meaning, cost, f"{low} to {high}", low, high))


def switch(default: bool, part: Part, meaning: str, cost: str) -> Any:
    """A field that is true or false."""
    return _field(default, Parameter(part, meaning, cost, "true, false"))


def names(default: object, known: object, part: Part, meaning: str, cost: str) -> Any:
    """A field of names among `known`."""
    assert isinstance(known, (dict, tuple))
    return _field(default, Parameter(part, meaning, cost, f"names among {', '.join(known)}"))


def text(default: str, part: Part, meaning: str, cost: str) -> Any:
    """A field of printable text."""
    return _field(default, Parameter(part, meaning, cost, "printable text"))


def _field(default: object, parameter: Parameter) -> Any:
    return field(default=default, metadata={_KEY: parameter})


_UNDECLARED = Parameter(Part.LATER, "", "", "")


def parameters(cls: type) -> dict[str, Parameter]:
    """The declaration of each field of the configuration class `cls`."""
    return {f.name: f.metadata.get(_KEY, _UNDECLARED) for f in dataclasses.fields(cls)}


@dataclass(frozen=True)
class Extension:
    """An addition to the base instruction set: its meaning, what it needs, what it costs.

    It may add to another extension, `extends`, without which it is not legal, for the reason `why`.
    """

    meaning: str
    needs: str
    cost: str
    extends: str = ""
    why: str = ""


EXTENSIONS: dict[str, Extension] = {
    "overwrite": Extension(
        "GEMM and DWGEMM may write their sum instead of adding it, so that no reset goes before",
        "at most 8192 micro-ops (`uop_bytes` 32768)",
        "one bit of the word; saves a GEMM with `reset` per tile",
    ),
    "pad_value": Extension(
        "LOADP pads with any byte, as pooling and zero points need",
        "",
        "a few LUTs in the load unit",
    ),
    "acc8": Extension(
        "memory id ACC8 loads 8-bit values into accumulators, sign-extended",
        "`out_bits` 8",
        "LUTs in the loads of accumulators; a quarter of the bytes to move",
    ),
    "requant": Extension(
        "stores scale, round and clamp accumulators to bytes, with parameters per channel (PAR)",
        "`out_bits` 8; in the circuit, PAR entries of whole beats",
        "the post-processing unit and the PAR memory: LUTs, block RAM, DSP by `ppu_lanes`",
    ),
    "depthwise": Extension(
        "DWGEMM multiplies each channel with weights of its own",
        "`block_in` and `block_out` equal",
        "LUTs that place zeros beside the diagonal; the multipliers are GEMM's",
    ),
    "depthwise_rows": Extension(
        "DWGEMM adds up several taps of a kernel row per micro-op, on neighbouring inputs",
        "blocks of 4 or more, at most 4096 micro-ops (`uop_bytes` 16384)",
        "LUTs that choose operands; the inputs lie in as many banks of block RAM; the multipliers are GEMM's",
        "depthwise",
        "whose mode it is",
    ),
    "rescale": Extension(
        "the ALU operation RESCALE scales accumulators in place, as residual additions need",
        "",
        "LUTs; the multipliers are those of `ppu_lanes`",
        "requant",
        "which loads its parameters",
    ),
    "lookup": Extension(
        "the ALU operation LOOKUP replaces values by those of a table: any function of int8, in 32 bits",
        "",
        "a copy of the `tables` in block RAM for each of `ppu_lanes` lanes",
        "requant",
        "which loads its tables",
    ),
    "lane_reduce": Extension(
        "the ALU operation REDUCE puts the sum or the maximum over an entry's channels into all of them",
        "",
        "LUTs and flip-flops: a tree of adders over `block_out` channels",
        "requant",
        "whose pipeline it uses",
    ),
}
UNITS = tuple(COMPUTE_UNITS)
