"""The store unit: low bits of accumulators, or int8 results of the post-processing unit, to DRAM in strided rows.

Its rows and their data are made in hw/rtl/store_data.py; here are bursts, responses, tokens and loads of parameters.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, PureInterface

from ..config import Config
from ..isa import Mem, Op
from ..regs import Error
from .axi import INCR, OKAY, AxiWrite, Splitter, beat_size, burst_layout
from .fifo import Fifo
from .latencies import ADDRESS_DEPTH, BEHIND_LATENCY, BURST_BEATS, OUTSTANDING, ROW_DEPTH
from .mover import Mover, beat_shift, in_units, move_of, writer_members
from .ports import (
    ADDRESS_BITS,
    BEATS_BITS,
    INDEX_BITS,
    Fault,
    Requantise,
    SramWrite,
    StoreRead,
    Token,
    beat_signature,
    command_signature,
    fault_of,
    insn_layout,
    keep_first,
    request_signature,
    unit_members,
)
from .store_data import StorePack, StoreRows, pushes, row_layout


class StoreOrder(wiring.Component):
    """Delays a LOAD until all earlier STOREs that wrote its data are answered.

    Members:
        stored: in, a STORE is taken
        row: in, a row of it leaves for the bus
        addr, beats: in, the beats of that row, from beat address `addr` on
        sending: in, rows or data of a STORE wait to be sent; stays high in the three cycles after `row`
        answered: in, nothing is sent or in flight: every write is in memory
        first: in, beat address of the LOAD at the head of the queue
        waits: in, it was there in the `BEHIND_LATENCY` cycles before, too
        may: out, that LOAD may be taken

    A LOAD waits until all data are sent; then it may be taken if it begins behind the last beat of every row that
    is not known to be answered, else when every write is answered. Latency `BEHIND_LATENCY` for the former.
    """

    def __init__(self, cfg: Config):
        bits = ADDRESS_BITS - beat_size(cfg)
        super().__init__(
            {
                "stored": In(1),
                "row": In(1),
                "addr": In(bits),
                "beats": In(BEATS_BITS),
                "sending": In(1),
                "answered": In(1),
                "first": In(bits),
                "waits": In(1),
                "may": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Where the rows end that are not answered."""
        m = Module()
        unanswered, end = Signal(), Signal(max(len(self.addr), len(self.beats)) + 1)
        addr, beats, behind = (Signal.like(s, reset_less=True) for s in (self.addr, self.beats, end))
        row, came = Signal(), Signal()
        # in time, as the row is still being sent
        m.d.sync += [row.eq(self.row), addr.eq(self.addr), beats.eq(self.beats)]
        m.d.sync += [came.eq(row), behind.eq(addr + beats)]
        # a product makes `first`: it waits in a register before it is compared
        first, beyond = Signal.like(self.first, reset_less=True), Signal()
        m.d.sync += [first.eq(self.first), beyond.eq(first >= end)]
        m.d.comb += self.may.eq(~unanswered | (~self.sending & self.waits & beyond))
        with m.If(self.stored):
            m.d.sync += unanswered.eq(1)
        with m.Elif(self.answered):
            m.d.sync += [unanswered.eq(0), end.eq(0)]
        with m.If(came & (behind > end)):
            m.d.sync += end.eq(behind)
        return m


class StoreLoads(wiring.Component):
    """Passes the store queue's instructions on, in order; in place of an executed LOAD of PAR an empty STORE that gives
    its token.

    Members:
        cmd: in, instructions of the store queue
        o: out, the STOREs among them, and the empty ones
        req: out, requests to the read port
        beats: in, their data
        write_par: out, write port of the parameters
        stored: out, a STORE leaves, not what stands for a LOAD
        first: out, beat address of the LOAD at `cmd`
        may: in, that LOAD may be taken
        idle, fault, bytes, memory_wait, progress: out, as of `Mover`

    No latency for STORE, the mover's for LOAD. Back-pressure: a LOAD waits for `may`, what follows a LOAD for it.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        members = writer_members(cfg, (Mem.PAR,))
        del members["done"], members["hold"]  # `done` goes to `o`; no parameter is in use once a LOAD may be taken
        super().__init__(
            {
                "cmd": In(command_signature()),
                "o": Out(command_signature()),
                "stored": Out(1),
                "first": Out(ADDRESS_BITS - beat_size(cfg)),
                "may": In(1),
                "req": Out(request_signature(cfg)),
                **members,
            }
        )

    def elaborate(self, platform: object) -> Module:
        """The mover, and the STORE that stands for its LOAD."""
        m, cfg = Module(), self.cfg
        m.submodules.mover = mover = Mover(cfg, mems=(Mem.PAR,))
        for name in ("req", "beats", "write_par", "fault"):
            outer, inner = getattr(self, name), getattr(mover, name)
            wiring.connect(m, inner, wiring.flipped(outer))
        insn = Value.cast(self.cmd.payload.insn)
        entry = data.View(insn_layout(cfg, "LOAD"), insn).dram_base
        n = len(pushes(cfg))
        loads, loading, index, push = (
            Signal(),
            Signal(),
            Signal(INDEX_BITS, reset_less=True),
            Signal(n, reset_less=True),
        )
        done, ended, waits = Signal(128), Signal(), Signal()  # the LOAD has ended; what stands for it waits
        m.d.comb += [
            loads.eq(data.View(insn_layout(cfg, "FINISH"), insn).op == Op.LOAD),
            *move_of(cfg, self.cmd.payload, mover.cmd.payload),
            mover.cmd.valid.eq(self.cmd.valid & loads & ~loading & self.may),
            self.first.eq(in_units(cfg, Mem.PAR, entry) << beat_shift(cfg, Mem.PAR)),
            self.stored.eq(self.o.valid & self.o.ready & ~loading),
            mover.done.ready.eq(1),
            ended.eq(mover.done.valid | waits),
            _tokens(cfg, data.View(insn_layout(cfg, "STORE"), done)).eq(push),
            self.o.valid.eq(Mux(loading, ended, self.cmd.valid & ~loads)),
            self.o.payload.insn.eq(Mux(loading, done, insn)),
            self.o.payload.index.eq(Mux(loading, index, self.cmd.payload.index)),
            self.cmd.ready.eq(~loading & Mux(loads, mover.cmd.ready & self.may, self.o.ready)),
            self.idle.eq(~loading),
            self.bytes.eq(mover.bytes),
            self.memory_wait.eq(mover.memory_wait),
            self.progress.eq(mover.progress),
        ]
        m.d.sync += waits.eq(ended & ~self.o.ready)
        with m.If(loading):
            m.d.sync += loading.eq(~(ended & self.o.ready))
        with m.Else():
            m.d.sync += [loading.eq(mover.cmd.valid & mover.cmd.ready), index.eq(self.cmd.payload.index)]
            m.d.sync += push.eq(_tokens(cfg, mover.cmd.payload.push))
        return m


def _tokens(cfg: Config, flags: data.View) -> Value:
    """The tokens that an instruction of the store queue gives."""
    return Cat(flags[name] for name in pushes(cfg))


class StoreBursts(wiring.Component):
    """Writes rows in bursts, ends them with `wlast`, and gives the tokens of answered ones.

    Members:
        row: in, rows; one of 0 entries only gives its token
        beats: in, their data
        axi: out, the bus
        to_compute, to_ternary: out, tokens of instructions whose bursts are answered; the latter with unit ternary
        halt: in, send no further address
        idle: out, no burst is in flight
        done: out, no address is left to send
        ended: out, an instruction has ended
        fault: out, a response that is an error
        memory_wait: out, the bus or its response is waited for
        progress: out, something passed on the bus
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        beat = data.StructLayout({"data": cfg.axi_bits, "strb": cfg.axi_bits // 8})
        super().__init__(
            {
                "row": In(stream.Signature(row_layout(cfg))),
                "beats": In(stream.Signature(beat)),
                "axi": Out(AxiWrite(cfg)),
                "to_compute": Out(Token()),
                **({"to_ternary": Out(Token())} if "ternary" in cfg.units else {}),
                "halt": In(1),
                "idle": Out(1),
                "done": Out(1),
                "ended": Out(1),
                "fault": Out(Fault()),
                "memory_wait": Out(1),
                "progress": Out(1),
            }
        )

    def elaborate(self, platform: object):
        """The row's splitter; FIFOs of addresses, of lengths for the data, and of awaited answers."""
        m, axi, payload = Module(), self.axi, self.row.payload
        answer = data.StructLayout({"burst": 1, "last": 1, "push": len(pushes(self.cfg)), "index": INDEX_BITS})
        m.submodules.splitter = splitter = Splitter(self.cfg)
        m.submodules.lengths = lengths = Fifo(shape=range(BURST_BEATS), depth=OUTSTANDING)
        m.submodules.answers = answers = Fifo(shape=answer, depth=OUTSTANDING)
        m.submodules.addresses = addresses = Fifo(shape=burst_layout(self.cfg), depth=ADDRESS_DEPTH)
        row = Signal.like(payload, reset_less=True)  # the splitter's
        go, empty, room = Signal(), Signal(), Signal()
        flying, more, idle = Signal(range(OUTSTANDING + 1)), Signal(init=1), Signal(init=1)
        m.d.comb += [
            splitter.i.valid.eq(self.row.valid),
            splitter.i.payload.addr.eq(payload.addr),
            splitter.i.payload.beats.eq(payload.beats),
            self.row.ready.eq(splitter.i.ready),
            empty.eq(row.empty),
            room.eq(addresses.i.ready & lengths.i.ready & more),
            go.eq(splitter.valid & ~self.halt & answers.i.ready & (empty | room)),
            splitter.take.eq(go),
            *(fifo.may.eq(splitter.valid) for fifo in (answers, lengths, addresses)),
            answers.i.valid.eq(go),
            answers.i.payload.burst.eq(~empty),
            answers.i.payload.last.eq(splitter.final & row.last),
            answers.i.payload.push.eq(row.push),
            answers.i.payload.index.eq(row.index),
            lengths.i.valid.eq(go & ~empty),
            lengths.i.payload.eq(splitter.burst.len),
            addresses.i.valid.eq(go & ~empty),
            addresses.i.payload.eq(splitter.burst),
            addresses.o.ready.eq(axi.awready),
            axi.awvalid.eq(addresses.o.valid),
            axi.awaddr.eq(addresses.o.payload.addr << beat_size(self.cfg)),
            axi.awlen.eq(addresses.o.payload.len),
            axi.awsize.eq(beat_size(self.cfg)),
            axi.awburst.eq(INCR),
        ]
        with m.If(self.row.ready):
            m.d.sync += row.eq(payload)
        goes, comes = go & ~empty, axi.bvalid & axi.bready
        with m.If(goes & ~comes):
            m.d.sync += [flying.eq(flying + 1), more.eq(flying != OUTSTANDING - 1), idle.eq(0)]
        with m.Elif(comes & ~goes):
            m.d.sync += [flying.eq(flying - 1), more.eq(1), idle.eq(flying == 1)]
        m.d.comb += [self.idle.eq(idle), self.done.eq(~splitter.valid & ~addresses.o.valid)]
        self._data(m, lengths)
        self._answers(m, answers)
        m.d.comb += [
            self.progress.eq(axi.awvalid & axi.awready | axi.wvalid & axi.wready | axi.bvalid & axi.bready),
            self.memory_wait.eq(
                (axi.awvalid & ~axi.awready)
                | (axi.wvalid & ~axi.wready)
                | (answers.o.valid & answers.o.payload.burst & ~axi.bvalid & ~axi.wvalid & ~splitter.valid)
            ),
        ]
        return m

    def _data(self, m: Module, lengths: Fifo) -> None:
        axi, count = self.axi, Signal(range(BURST_BEATS))
        m.d.comb += [
            axi.wvalid.eq(self.beats.valid & lengths.o.valid),
            axi.wdata.eq(self.beats.payload.data),
            axi.wstrb.eq(self.beats.payload.strb),
            axi.wlast.eq(count == lengths.o.payload),
            self.beats.ready.eq(axi.wready & lengths.o.valid),
            lengths.o.ready.eq(axi.wvalid & axi.wready & axi.wlast),
        ]
        with m.If(axi.wvalid & axi.wready):
            m.d.sync += count.eq(Mux(axi.wlast, 0, count + 1))

    def _answers(self, m: Module, answers: Fifo) -> None:
        """Takes a response, or a NOP; the tokens of the last one are given in the same cycle, all at once."""
        head, gives = answers.o.payload, Signal()
        came = ~head.burst | self.axi.bvalid
        tokens, room = self._tokens(answers.o.valid, head, gives, came)
        m.d.comb += [
            *tokens,
            self.axi.bready.eq(answers.o.valid & head.burst & (~gives | room | self.halt)),
            answers.o.ready.eq(came & (~gives | room | self.halt)),
            self.ended.eq(answers.o.valid & answers.o.ready & head.last),
        ]
        broken = self.axi.bvalid & self.axi.bready & (self.axi.bresp != OKAY)
        keep_first(m, self.fault, (broken, Error.WRITE_RESPONSE, head.index))

    def _tokens(self, answered: Value, head: data.View, gives: Signal, came: Value) -> tuple[list[object], Value]:
        """Statements that give the tokens of `head`, an answer; whether those that take them have room."""
        if "ternary" not in self.cfg.units:
            give = [gives.eq(answered & head.last & head.push), self.to_compute.valid.eq(gives & came & ~self.halt)]
            return give, self.to_compute.ready
        compute, ternary = ~head.push[0] | self.to_compute.ready, ~head.push[1] | self.to_ternary.ready
        give = [
            gives.eq(answered & head.last & head.push.any()),
            self.to_compute.valid.eq(gives & head.push[0] & came & ternary & ~self.halt),
            self.to_ternary.valid.eq(gives & head.push[1] & came & compute & ~self.halt),
        ]
        return give, compute & ternary


class Store(wiring.Component):
    """dram[base + y * x_stride + x] = low out_bits of every element of acc[sram_base + y * x_size + x].

    With extension `requant` also int8 of them under PAR entry par_base + y * par_step (hw/rtl/store_data.py), and LOAD
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

    def elaborate(self, platform: object):
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

    def _ternary(self, m: Module, bursts: StoreBursts, flags: data.View) -> Value:
        """Tokens of unit ternary; returns whether the first instruction has those that it takes."""
        wiring.connect(m, bursts.to_ternary, wiring.flipped(self.to_ternary))
        m.d.comb += self.from_ternary.ready.eq(self.cmd.ready & flags.pop_next)
        return ~flags.pop_next | self.from_ternary.valid

    def _order(self, m: Module, loads: StoreLoads, row: PureInterface, sending: Value, answered: Value) -> None:
        """LOADs wait for earlier STOREs to the same bytes; see `StoreOrder` for `row`, `sending` and `answered`."""
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
