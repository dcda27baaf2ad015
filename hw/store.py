"""The store unit: low bits of accumulators to DRAM, in strided rows."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .axi import AxiWrite
from .bursts import StoreBursts
from .config import Config
from .fifo import FIFO_LATENCY, Fifo
from .layouts import insn_layout
from .packer import StorePack
from .ports import StoreRead, Token, command_signature, unit_members
from .regs import Error
from .rows import StoreRows

ADDRESS_LATENCY = 2 + FIFO_LATENCY  # cycles from a row to its first burst's address on the bus
DATA_LATENCY = 3  # cycles from a row to its first beat on the bus, where the accumulators are free


class Store(wiring.Component):
    """dram[base + y * x_stride + x] = low out_bits of every element of acc[sram_base + y * x_size + x].

    Members: `cmd` the store queue, `from_compute` and `to_compute` its tokens, `acc` the accumulators, `axi`, and those
    of every unit.
    Latency `PLAN_LATENCY` + `ADDRESS_LATENCY` to the address, `PLAN_LATENCY` + `DATA_LATENCY` to the data. Interval one
    beat per cycle, or one entry where that is smaller; rows and instructions follow each other without a pause.
    The token is given after the last write response, while the next instructions already write. Back-pressure: the
    accumulators, the bus, `OUTSTANDING` unanswered bursts. After `halt`, bursts whose address is out are completed.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__(
            {
                "cmd": In(command_signature()),
                "from_compute": In(Token()),
                "to_compute": Out(Token()),
                "acc": Out(StoreRead(cfg)),
                "axi": Out(AxiWrite(cfg)),
                **unit_members(),
            }
        )

    def elaborate(self, platform):
        """Rows go to the splitter (addresses) and to the packer (data); responses come back to the splitter."""
        m, cfg, activity = Module(), self.cfg, self.activity
        m.submodules.rows = rows = StoreRows(cfg)
        m.submodules.bursts = bursts = StoreBursts(cfg)
        m.submodules.pack = pack = StorePack(cfg)
        flags = data.View(insn_layout(cfg, "FINISH"), Value.cast(self.cmd.payload.insn))
        permitted = ~flags.pop_prev | self.from_compute.valid
        # registers between the rows and the answers that bursts wait for
        m.submodules.waiting = waiting = Fifo(shape=rows.row.payload.shape(), depth=1)
        both = pack.row.ready & waiting.i.ready
        m.d.comb += [
            rows.cmd.valid.eq(self.cmd.valid & permitted & ~self.halt),
            rows.cmd.payload.eq(self.cmd.payload),
            self.cmd.ready.eq(rows.cmd.valid & rows.cmd.ready),
            self.from_compute.ready.eq(self.cmd.ready & flags.pop_prev),
            rows.row.ready.eq(both),
            waiting.i.valid.eq(rows.row.valid & both),
            waiting.i.payload.eq(rows.row.payload),
            pack.row.valid.eq(rows.row.valid & both & (rows.row.payload.entries != 0)),
            pack.row.payload.eq(rows.row.payload),
            bursts.halt.eq(self.halt),
        ]
        wiring.connect(m, waiting.o, bursts.row)
        wiring.connect(m, bursts.to_compute, wiring.flipped(self.to_compute))
        wiring.connect(m, bursts.axi, wiring.flipped(self.axi))
        wiring.connect(m, pack.acc, wiring.flipped(self.acc))
        wiring.connect(m, pack.beats, bursts.beats)
        with m.If(self.fault.code == Error.NONE):
            with m.If(bursts.fault.code != Error.NONE):
                m.d.sync += [self.fault.code.eq(bursts.fault.code), self.fault.index.eq(bursts.fault.index)]
            with m.Else():
                m.d.sync += [self.fault.code.eq(pack.fault.code), self.fault.index.eq(pack.fault.index)]
        left = Cat(~rows.idle, waiting.o.valid, ~bursts.done, ~pack.idle)
        m.d.comb += [
            self.idle.eq(bursts.idle & (self.halt | (left == 0))),
            activity.busy.eq(left != 0),
            activity.token_wait.eq(self.cmd.valid & ~permitted),
            activity.memory_wait.eq(bursts.memory_wait),
            activity.insn.eq(self.cmd.ready),
            activity.bytes.eq(pack.bytes),
            activity.progress.eq(self.cmd.ready | pack.progress | bursts.progress),
        ]
        return m
