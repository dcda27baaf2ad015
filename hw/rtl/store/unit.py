"""The store unit: low bits of accumulators, or int8 results of the post-processing unit, to DRAM in strided rows."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...isa import Mem
from ..axi import AxiWrite
from ..faults import fault_of, keep_first
from ..fifo import Fifo
from ..latencies import BEHIND_LATENCY, ROW_DEPTH
from ..layouts import insn_layout
from ..ports import (
    Requantise,
    SramWrite,
    StoreRead,
    Token,
    beat_signature,
    command_signature,
    request_signature,
    unit_members,
)
from .bursts import StoreBursts
from .order import StoreOrder
from .packer import StorePack
from .parameters import StoreLoads
from .rows import StoreRows


class Store(wiring.Component):
    """dram[base + y * x_stride + x] = low out_bits of every element of acc[sram_base + y * x_size + x].

    With extension `requant` also int8 of them under PAR entry par_base + y * par_step (hw/rtl/store/ppu.py), and LOAD
    of PAR.

    Members, besides those of every unit (`unit_members`):
        cmd: in, the store queue
        from_compute, from_ternary: in, tokens that its instructions take; the latter with unit ternary
        to_compute, to_ternary: out, tokens that they give
        acc: out, read port of the accumulators
        axi: out, the bus
        requantise: out, use of the multipliers; this and what follows with extension `requant`
        req: out, requests to the read port
        beats: in, their data
        write_par: out, write port of the parameters

    Latency `ROW_LATENCY` + `STORE_ADDRESS_LATENCY` to the address, `ROW_LATENCY` + `STORE_DATA_LATENCY` to the data.
    Interval one beat per cycle, or one entry where that is smaller; rows and instructions follow each other without a
    pause.
    The token is given after the last write response, while the next instructions already write. Back-pressure: the
    accumulators, the multipliers, the bus, `OUTSTANDING` unanswered bursts. After `halt`, bursts whose address is out
    are completed.
    A LOAD of PAR is taken when it reads what the STOREs before it wrote (`StoreOrder`), and these need no parameters
    any more; what follows it waits for it, and its token comes in order.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        tokens = {"from_ternary": In(Token()), "to_ternary": Out(Token())} if "ternary" in cfg.units else {}
        post = {
            "requantise": Out(Requantise(cfg)),
            "req": Out(request_signature(cfg)),
            "beats": In(beat_signature(cfg)),
            "write_par": Out(SramWrite(cfg, Mem.PAR)),
        }
        super().__init__(
            {
                "cmd": In(command_signature()),
                "from_compute": In(Token()),
                "to_compute": Out(Token()),
                **tokens,
                "acc": Out(StoreRead(cfg)),
                "axi": Out(AxiWrite(cfg)),
                **(post if "requant" in cfg.extensions else {}),
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
        permitted, may = ~flags.pop_prev | self.from_compute.valid, Signal()
        if "ternary" in cfg.units:
            permitted &= self._ternary(m, bursts, flags)
        queue = command_signature().create()  # of instructions that have their tokens
        # registers between the rows and the answers that bursts wait for
        m.submodules.waiting = waiting = Fifo(shape=rows.row.payload.shape(), depth=ROW_DEPTH)
        both = pack.row.ready & waiting.i.ready
        m.d.comb += [
            may.eq(permitted & ~self.halt),
            queue.valid.eq(self.cmd.valid & may),
            queue.payload.eq(self.cmd.payload),
            self.cmd.ready.eq(queue.ready & queue.valid),
            self.from_compute.ready.eq(self.cmd.ready & flags.pop_prev),
            rows.row.ready.eq(both),
            waiting.i.valid.eq(rows.row.valid & both),
            waiting.may.eq(rows.row.valid),
            waiting.i.payload.eq(rows.row.payload),
            pack.row.valid.eq(rows.row.valid & both & ~rows.row.payload.empty),
            pack.row.payload.eq(rows.row.payload),
            bursts.halt.eq(self.halt),
        ]
        wiring.connect(m, waiting.o, bursts.row)
        wiring.connect(m, bursts.to_compute, wiring.flipped(self.to_compute))
        wiring.connect(m, bursts.axi, wiring.flipped(self.axi))
        wiring.connect(m, pack.acc, wiring.flipped(self.acc))
        wiring.connect(m, pack.beats, bursts.beats)
        left, blocks = [~rows.idle, waiting.o.valid, ~bursts.done, ~pack.idle], [bursts, pack]
        nbytes, memory_wait = pack.bytes, bursts.memory_wait
        if "requant" in cfg.extensions:
            m.submodules.loads = loads = StoreLoads(cfg)
            for name in ("req", "beats", "write_par"):
                wiring.connect(m, getattr(loads, name), wiring.flipped(getattr(self, name)))
            wiring.connect(m, pack.requantise, wiring.flipped(self.requantise))
            wiring.connect(m, queue, loads.cmd)
            wiring.connect(m, loads.o, rows.cmd)
            self._order(m, loads, pack.row, ~rows.idle | ~pack.idle, bursts.idle & ~Cat(left).any())
            left, blocks = [*left, ~loads.idle], [*blocks, loads]
            nbytes, memory_wait = nbytes + loads.bytes, memory_wait | loads.memory_wait
        else:
            wiring.connect(m, queue, rows.cmd)
        m.d.comb += [
            self.idle.eq(bursts.idle & (self.halt | ~Cat(left).any())),
            activity.busy.eq(Cat(left).any()),
            activity.token_wait.eq(self.cmd.valid & ~permitted),
            activity.memory_wait.eq(memory_wait),
            activity.insn.eq(self.cmd.ready),
            activity.ended.eq(bursts.ended),
            activity.bytes.eq(nbytes),
            activity.progress.eq(self.cmd.ready | Cat(block.progress for block in blocks).any()),
        ]
        keep_first(m, self.fault, *(fault_of(block.fault) for block in blocks))
        return m

    def _ternary(self, m: Module, bursts: StoreBursts, flags) -> Value:
        """Tokens of unit ternary; returns whether the first instruction has those that it takes."""
        wiring.connect(m, bursts.to_ternary, wiring.flipped(self.to_ternary))
        m.d.comb += self.from_ternary.ready.eq(self.cmd.ready & flags.pop_next)
        return ~flags.pop_next | self.from_ternary.valid

    def _order(self, m: Module, loads: StoreLoads, row, sending: Value, answered: Value) -> None:
        """LOADs wait for what they read; `row` passes where it is valid; `sending`, `answered`: see `StoreOrder`."""
        m.submodules.order = order = StoreOrder(self.cfg)
        here, taken, waits = Signal(), Signal(), Signal(BEHIND_LATENCY - 1)
        stayed = here & ~taken  # `ready` comes late: what follows from it is found a cycle later
        m.d.sync += [here.eq(self.cmd.valid), taken.eq(self.cmd.ready), waits.eq(Mux(stayed, Cat(1, waits), 0))]
        m.d.comb += [
            order.stored.eq(loads.stored),
            order.row.eq(row.valid),
            order.addr.eq(row.payload.addr),
            order.beats.eq(row.payload.beats),
            order.sending.eq(sending),
            order.answered.eq(answered),
            order.first.eq(loads.first),
            order.waits.eq(stayed & waits[-1]),
            loads.may.eq(order.may),
        ]
