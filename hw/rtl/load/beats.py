"""Layout of scratchpad entries in the beats that bring them."""

from __future__ import annotations

from amaranth.hdl import Value

from ...config import Config
from ...isa import Mem, entry_bytes
from ..ports import address_bits

PART_BITS = 6  # of an entry's position in a beat


def loaded_as(cfg: Config, mems: tuple[Mem, ...]) -> tuple[Mem, ...]:
    """The memory ids by which LOADs name the scratchpads `mems`."""
    return (*mems, Mem.ACC8) if Mem.ACC in mems and loads_int8(cfg) else mems


def loads_int8(cfg: Config) -> bool:
    """True where ACC8 exists: its entries are as long as outputs, so it needs outputs of one byte."""
    return "acc8" in cfg.extensions and cfg.out_bits == 8


def units(mem: Mem) -> int:
    """Parts of an entry of `mem` whose bytes are a power of two: 3 for PAR, with its 12 bytes per channel."""
    return 3 if mem == Mem.PAR else 1


def in_units(mem: Mem, entries: Value) -> Value:
    """`entries * units(mem)`, by an adder: synthesis takes multipliers for a product with 3."""
    return entries + (entries << 1) if units(mem) == 3 else entries


def chunks(cfg: Config, mem: Mem) -> int:
    """Beats of an entry of `mem`, or 1."""
    return units(mem) << max(beat_shift(cfg, mem), 0)


def beat_shift(cfg: Config, mem: Mem) -> int:
    """log2 of the beats of a unit (see `units`) in DRAM; negative where several units are in a beat."""
    return (entry_bytes(cfg, mem) // units(mem) * 8).bit_length() - cfg.axi_bits.bit_length()


def count_bits(cfg: Config) -> int:
    """Of a number of entries: more than any scratchpad's or `sram_base`'s index."""
    return max(16, *(address_bits(cfg, mem) for mem in (Mem.UOP, Mem.INP, Mem.WGT, Mem.ACC))) + 1
