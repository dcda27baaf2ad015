"""The multiplier array of the simulated circuit as a C function (array.cpp), with the latency of the circuit.

Most of the time of a simulation goes to the products and sums of GEMM. The device `rtl_fast` has everything else as the
circuit has it.
"""

from __future__ import annotations

from pathlib import Path

from amaranth.hdl import Cat, ClockSignal, Fragment, Instance, Module, Signal

from ...hw.config import Config
from ...hw.isa import Mem
from ...hw.rtl.compute.gemm import Dot
from ...hw.rtl.latencies import array_latency
from ...hw.rtl.ports import entry_bits

SOURCE = Path(__file__).with_name("array.cpp")
_LANE = 32  # bits of a sum as the function gives it


def with_function(fragment: Fragment) -> dict[str, Signal]:
    """Put the function in the place of the multiplier array of the elaborated core `fragment`; no port is added."""
    for k, (part, name, where) in enumerate(fragment.subfragments):
        dot = part.origins[0] if part.origins else None
        if isinstance(dot, Dot):
            fragment.subfragments[k] = (Fragment.get(_array(dot), None), name, where)
        else:
            with_function(part)
    return {}


def defines(cfg: Config) -> dict[str, int]:
    """What array.cpp is compiled with."""
    names = ("inp_bits", "wgt_bits", "batch", "block_in", "block_out", "row_taps")
    return {name.upper(): getattr(cfg, name) for name in names}


def module(cfg: Config) -> str:
    """Verilog of the module that calls the function, where `en`, with a rising edge."""
    inp, wgt = cfg.row_taps * entry_bits(cfg, Mem.INP), entry_bits(cfg, Mem.WGT)
    sums = _LANE * cfg.lanes
    return f"""
module tilewright_array (
  input clk, input en, input rows, input [31:0] row, input [31:0] extra,
  input [{inp - 1}:0] inp, input [{wgt - 1}:0] wgt, output reg [{sums - 1}:0] sums = 0
);
  import "DPI-C" function void tilewright_array(
    input bit [{inp - 1}:0] inp, input bit [{wgt - 1}:0] wgt, input int rows, input int row, input int extra,
    output bit [{sums - 1}:0] sums
  );
  reg [{sums - 1}:0] found;
  always @(posedge clk) if (en) begin
    tilewright_array(inp, wgt, {{31'd0, rows}}, row, extra, found);
    sums <= found;
  end
endmodule
"""


def _array(dot: Dot) -> Module:
    """The function with the ports of `dot`; sums wait for as long as they take there."""
    m, cfg = Module(), dot.cfg
    taps = cfg.row_taps > 1
    sums = Signal(_LANE * cfg.lanes)
    m.submodules.function = Instance(
        "tilewright_array",
        i_clk=ClockSignal(),
        i_en=dot.en,
        i_inp=Cat(dot.inp, dot.near) if taps else dot.inp,
        i_wgt=dot.wgt,
        i_rows=dot.rows,
        i_row=Cat(dot.row, Signal(32 - len(dot.row))),
        i_extra=Cat(dot.extra, Signal(32 - len(dot.extra))) if taps else Signal(32),
        o_sums=sums,
    )
    enable = dot.en
    for k in range(1, array_latency(cfg)):
        before, earlier = enable, sums
        enable, sums = Signal(name=f"en_{k}"), Signal.like(sums, name=f"sums_{k}", reset_less=True)
        m.d.sync += enable.eq(before)
        with m.If(enable):
            m.d.sync += sums.eq(earlier)
    for k in range(cfg.lanes):
        m.d.comb += dot.sums[k].eq(sums[_LANE * k :][:_LANE].as_signed())
    return m
