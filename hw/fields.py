"""The fields of a configuration, each declared with its default, legal values, meaning and cost."""

from __future__ import annotations

from dataclasses import dataclass

from .parameters import EXTENSIONS, UNITS, Part, names, number, power, switch, text
from .sizes import SMALLEST

_DEEPER = "block RAM in proportion; larger and fewer tiles, so fewer loads"


@dataclass(frozen=True)
class Fields:
    """What is chosen about an accelerator; `Config` checks it and derives the rest."""

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
