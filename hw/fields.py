"""The fields and the extensions of a configuration, each declared with its default, legal values, meaning and cost.

`Fields` declares each field with `power`, `number`, `switch`, `names` or `text`, which keep a `Parameter` in the
field's metadata. The checks, the fingerprint, docs/configuration.md and `tilewright config --help` read it from there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

from .units import COMPUTE_UNITS

_KEY = "parameter"
_Names = TypeVar("_Names", frozenset[str], tuple[str, ...])


class Part(Enum):
    """How a field enters the fingerprint.

    A `CIRCUIT` field never does, as programs do not depend on it. `FIRST` fields are of the first version and always
    do. Any other field, so every new one, enters it and a file only where it differs from its default: the
    fingerprints and files of configurations that do without it stay as they are. `LATER_CIRCUIT` is for new fields
    of the circuit.
    """

    FIRST = "yes"
    LATER = "where it is not the default"
    CIRCUIT = "no"
    LATER_CIRCUIT = "no, and it is in a file only where it is not the default"

    @property
    def circuit(self) -> bool:
        """True where programs do not depend on the field."""
        return self in (Part.CIRCUIT, Part.LATER_CIRCUIT)


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


def power(default: int | None, limits: tuple[int, int], part: Part, meaning: str, cost: str, **facts: str) -> int:
    """A field whose legal values are the powers of two within `limits`; None as `default`: `facts` has the `usual`."""
    low, high = limits
    legal = f"powers of two, {low} to {high}" if low < high else str(low)
    return _field(default, Parameter(part, meaning, cost, legal, low, high, True, **facts))


def number(default: int, limits: tuple[int, int], part: Part, meaning: str, cost: str) -> int:
    """A field whose legal values are the integers within `limits`."""
    low, high = limits
    return _field(default, Parameter(part, meaning, cost, f"{low} to {high}", low, high))


def switch(default: bool, part: Part, meaning: str, cost: str) -> bool:
    """A field that is true or false."""
    return _field(default, Parameter(part, meaning, cost, "true, false"))


def names(default: _Names, known: Collection[str], part: Part, meaning: str, cost: str) -> _Names:
    """A field of names among `known`."""
    return _field(default, Parameter(part, meaning, cost, f"names among {', '.join(known)}"))


def text(default: str, part: Part, meaning: str, cost: str) -> str:
    """A field of printable text."""
    return _field(default, Parameter(part, meaning, cost, "printable text"))


def _field(default: object, parameter: Parameter) -> Any:
    return field(default=default, metadata={_KEY: parameter})


_UNDECLARED = Parameter(Part.LATER, "", "", "")


def parameters(cls: type[Any]) -> dict[str, Parameter]:
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
    "wgt4": Extension(
        "memory id WGT4 loads weights of 4 bits, each times the scale of its row, also of 4 bits, as 8-bit weights",
        "`wgt_bits` 8, `block_in` 4 and `block_out` 2 or more; in the circuit, at most `8 * block_out` bits from all "
        "load ports at once",
        "9 LUTs and 2 flip-flops for each bit that the load ports give at once; half of the bytes of weights to move",
        "pad_value",
        "whose instruction loads them",
    ),
}
UNITS = tuple(COMPUTE_UNITS)


SMALLEST = 64  # bytes of a buffer
_DEEPER = "block RAM in proportion; larger and fewer tiles, so fewer loads"


@dataclass(frozen=True)
class Fields:
    """The fields of a configuration, unchecked; `Config` checks them and derives the rest."""

    name: str = text("custom", Part.CIRCUIT, "what tables, files and the Verilog call it", "nothing")
    batch: int = power(
        1,
        (1, 64),
        Part.FIRST,
        "rows of inputs that one GEMM micro-op multiplies",
        "multipliers, ALU lanes and the width of INP and ACC in proportion (DSP, LUT, block RAM); rows beyond the "
        "network's batch are idle",
    )
    block_in: int = power(
        16,
        (1, 256),
        Part.FIRST,
        "input channels that one GEMM micro-op sums",
        "multipliers and the width of INP and WGT in proportion (DSP, LUT, block RAM); channels are padded to it",
    )
    block_out: int = power(
        16,
        (1, 256),
        Part.FIRST,
        "output channels that one GEMM micro-op computes",
        "multipliers, ALU lanes and the width of WGT and ACC in proportion (DSP, LUT, block RAM); channels are padded "
        "to it",
    )
    inp_bits: int = power(
        8, (4, 8), Part.FIRST, "width of an input; networks need 8", "wider multipliers; bytes of INP and of its loads"
    )
    wgt_bits: int = power(
        8,
        (2, 8),
        Part.FIRST,
        "width of a weight",
        "wider multipliers; bytes of WGT and of its loads, often most of all",
    )
    acc_bits: int = power(32, (32, 32), Part.FIRST, "width of an accumulator", "one value, so no choice")
    out_bits: int = power(
        8, (4, 8), Part.FIRST, "width of a stored output; networks need 8", "bytes of stores and of the next loads"
    )
    uop_bytes: int = power(
        None,
        (SMALLEST, 1 << 20),
        Part.FIRST,
        "the micro-op buffer, 4 bytes each",
        "block RAM in proportion; fewer loads of micro-ops",
        key="uop_depth",
        usual="32768",
    )
    inp_bytes: int = power(
        None,
        (SMALLEST, 1 << 24),
        Part.FIRST,
        "the input scratchpad",
        _DEEPER,
        key="inp_depth",
        usual="32768, or 2048 entries (see below)",
    )
    wgt_bytes: int = power(
        None,
        (SMALLEST, 1 << 24),
        Part.FIRST,
        "the weight scratchpad",
        _DEEPER,
        key="wgt_depth",
        usual="262144, or 1024 entries (see below)",
    )
    acc_bytes: int = power(
        None,
        (SMALLEST, 1 << 24),
        Part.FIRST,
        "the accumulator scratchpad",
        _DEEPER,
        key="acc_depth",
        usual="131072, or 2048 entries (see below)",
    )
    par_entries: int = power(
        64,
        (1, 1024),
        Part.FIRST,
        "entries of post-processing parameters, each of `block_out` channels",
        "block RAM, with `requant` alone; fewer loads of parameters",
    )
    extensions: frozenset[str] = names(
        frozenset(), EXTENSIONS, Part.FIRST, "additions to the base instruction set", "see the next table"
    )
    tables: int = power(
        4,
        (1, 16),
        Part.LATER,
        "tables of 256 values that LOOKUP chooses from",
        "block RAM, with `lookup` alone: 1 kB for each of `ppu_lanes` lanes; fewer loads of tables",
    )
    units: tuple[str, ...] = names(
        ("gemm",), UNITS, Part.LATER, "compute units, `gemm` first", "the circuit of each unit and its queue"
    )
    ternary_blocks: int = power(
        1,
        (1, 4),
        Part.LATER,
        "blocks of output channels that one micro-op of unit `ternary` computes",
        "LUT of its dot products, bits of an entry of its weights and of its access to the accumulators in proportion",
    )
    twgt_bytes: int = power(
        1 << 15,
        (SMALLEST, 1 << 24),
        Part.LATER,
        "the scratchpad of ternary weights",
        "block RAM, with unit `ternary` alone; larger and fewer tiles",
    )
    acc_banks: int = power(
        1,
        (1, 4),
        Part.CIRCUIT,
        "banks of the accumulators, by the top bits of the index; unit `ternary` needs 4",
        "LUT, the same block RAM; a unit that computes, a load and a store each use a bank of their own at full speed",
    )
    axi_bits: int = power(
        64,
        (32, 512),
        Part.CIRCUIT,
        "data width of the memory ports; the PYNQ-Z1 needs 64",
        "LUT and flip-flops of loads and stores; bytes moved per cycle at most in proportion",
    )
    load_ports: int = power(
        1,
        (1, 4),
        Part.CIRCUIT,
        "memory ports that load",
        "a read port in LUT; inputs and weights at the bytes per cycle of all ports, beside the loads of other units",
    )
    store_ports: int = power(
        1, (1, 4), Part.CIRCUIT, "memory ports that store; the circuit has 1", "one value in the circuit, so no choice"
    )
    queue_depth: int = power(
        64,
        (4, 1024),
        Part.CIRCUIT,
        "instructions that wait in each command queue",
        "LUT as memory; fetch waits less often for a full queue",
    )
    token_depth: int = number(
        1023,
        (1, 65535),
        Part.CIRCUIT,
        "dependence tokens that a channel holds",
        "bits of a counter; programs with more tokens in flight are refused",
    )
    ppu_lanes: int = power(
        8,
        (1, 64),
        Part.CIRCUIT,
        "channels that MUL, RESCALE and the post-processing unit handle in a cycle",
        "DSP and LUT in proportion; an entry takes `batch * block_out / ppu_lanes` cycles",
    )
    dsp_packing: bool = switch(
        False, Part.CIRCUIT, "two products of 8 bits in one DSP", "half of GEMM's DSP, some LUT; no cycles"
    )
    array_clock: int = power(
        1,
        (1, 2),
        Part.LATER_CIRCUIT,
        "clock of GEMM's multipliers, as a multiple of the core's",
        "with 2 half of GEMM's DSP, which then close at twice the clock; a second clock",
    )
