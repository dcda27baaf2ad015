"""The accumulators, in banks: ports that read and write at the same time, and the exclusive use of a bank."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory, WritePort
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...isa import Mem
from ..latencies import accumulator_latency, issue_latency, multiply_latency, ternary_latency
from ..ports import (
    AccumulatorRead,
    SramWrite,
    StoreRead,
    TernaryRead,
    TernaryWrite,
    address_bits,
    entry_bits,
    lane_bits,
)
from ..scratchpad import bank, repeated


class EntryWrite(wiring.Signature):
    """Write port for whole accumulators, taken in every cycle."""

    def __init__(self, cfg: Config):
        entry, addr = entry_bits(cfg, Mem.ACC), address_bits(cfg, Mem.ACC)
        super().__init__({"en": Out(1), "addr": Out(addr), "data": Out(entry)})


class Accumulators(wiring.Component):
    """The accumulators, in `cfg.acc_banks` banks by the top bits of the index, each with a read and a write port.

    With unit `ternary` a bank has `ternary_blocks` planes by the next bits of the index; they share the bank's read
    address, so that one row holds the entries of one place in all planes.

    Members:
        dst, src: in, the pipeline's read ports; never both in one bank (`bank`) in one cycle
        write: in, the pipeline's write port
        load: in, the mover's write port; never in the bank of `write` in one cycle
        ternary_read, ternary_write: in, ports of unit `ternary`; never in a bank that the pipeline reads, or that it
            or the mover writes, in one cycle
        store: in, the store unit's read port; waits where the pipeline or unit `ternary` reads

    A read in the cycle of a write to the same entry gives the old contents.
    Latency `SCRATCHPAD_LATENCY`; back-pressure on `store` alone.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        self._ternary = "ternary" in cfg.units
        self._planes = cfg.ternary_blocks if self._ternary else 1
        self._rows = (cfg.bank_depth // self._planes - 1).bit_length()  # bits of the place in a plane
        ternary = {"ternary_read": In(TernaryRead(cfg)), "ternary_write": In(TernaryWrite(cfg))}
        super().__init__(
            {
                "dst": In(AccumulatorRead(cfg)),
                "src": In(AccumulatorRead(cfg)),
                "write": In(EntryWrite(cfg)),
                "load": In(SramWrite(cfg, Mem.ACC)),
                **(ternary if self._ternary else {}),
                "store": In(StoreRead(cfg)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """The banks, each with its choice of address; each reader chooses the bank and the plane that it asked, the
        pipeline itself between the halves of the banks."""
        m, cfg = Module(), self.cfg
        count = cfg.acc_banks * self._planes
        banks = [self._bank(m, k) for k in range(cfg.acc_banks)]
        size = cfg.acc_entry_bits
        data = (
            banks if self._planes == 1 else [b[p * size : (p + 1) * size] for b in banks for p in range(self._planes)]
        )
        stored = self.store.en & self.store.ready
        # of two banks the enables say which one, straight from registers
        readers = {name: (port.en.any(), port.en[-1], port) for name, port in (("dst", self.dst), ("src", self.src))}
        readers["store"] = (stored, bank(cfg, self.store.addr), self.store)
        numbers = {}
        for name, (en, where, port) in readers.items():
            latest = Signal(range(count), name=f"{name}_bank")
            with m.If(en):
                m.d.sync += latest.eq(where if count <= 2 else port.addr[self._rows :])
            numbers[name] = latest
        half = max(count // 2, 1)
        for port, number in ((self.dst, numbers["dst"]), (self.src, numbers["src"])):
            m.d.comb += [
                *[port.data[k].eq(_chosen(number[:-1], part)) for k, part in enumerate((data[:half], data[-half:]))],
                port.upper.eq(number[-1:]),
            ]
        stored_entry = _chosen(numbers["store"], data)
        fresh, held = Signal(), Signal.like(self.store.data, reset_less=True)
        m.d.sync += fresh.eq(stored)
        m.d.sync += held.eq(self.store.data)  # the same choice again: no gate of its own
        m.d.comb += self.store.data.eq(Mux(fresh, stored_entry, held))
        if self._ternary:
            en, latest = self.ternary_read.en, Signal(range(cfg.acc_banks), name="ternary_bank")
            with m.If(en.any()):
                m.d.sync += latest.eq(_number(en))
            m.d.comb += self.ternary_read.data.eq(_chosen(latest, banks))
        return m

    def _bank(self, m: Module, k: int) -> Value:
        """Bank `k`; returns the row that it read."""
        cfg, rows = self.cfg, self._rows
        lane = lane_bits(cfg, Mem.ACC)
        row = self._planes * entry_bits(cfg, Mem.ACC)
        memory = Memory(shape=row, depth=cfg.bank_depth // self._planes, init=[])
        m.submodules[f"bank_{k}"] = memory
        write, read = memory.write_port(granularity=lane), memory.read_port()
        dst, src, store = (Signal(name=f"{name}_{k}") for name in ("dst", "src", "store"))
        others = Mux(src, self.src.addr[:rows], self.store.addr[:rows])
        taken = dst | src
        if self._ternary:
            ternary = self.ternary_read.en[k]
            others, taken = Mux(ternary, self.ternary_read.addr, others), taken | ternary
        m.d.comb += [
            dst.eq(self.dst.en[k]),
            src.eq(self.src.en[k]),
            store.eq(self.store.en & (bank(cfg, self.store.addr) == k)),
            read.en.eq(taken | store),
            read.addr.eq(Mux(dst, self.dst.addr[:rows], others)),
        ]
        with m.If(bank(cfg, self.store.addr) == k):
            m.d.comb += self.store.ready.eq(~taken if self._ternary else ~dst & ~src)
        self._write(m, k, write)
        return read.data

    def _write(self, m: Module, k: int, write: WritePort) -> None:
        """The write port of bank `k`."""
        cfg, rows = self.cfg, self._rows
        compute, load = Signal(name=f"compute_{k}"), Signal(name=f"load_{k}")
        lanes: Value = Mux(compute, ~0, Mux(load, self.load.en, 0))
        addr: Value = Mux(compute, self.write.addr[:rows], self.load.addr[:rows])
        entries: Value = Mux(compute, self.write.data, repeated(cfg, Mem.ACC, self.load.data))
        if self._ternary:
            ternary, count = self.ternary_write.en[k], len(self.load.en)
            plane = Mux(compute, self.write.addr, self.load.addr)[rows : rows + (self._planes - 1).bit_length()]
            chosen = [Mux(plane == p, lanes[:count], 0) for p in range(self._planes)] if self._planes > 1 else [lanes]
            lanes = Mux(ternary, ~0, Cat(chosen))
            addr = Mux(ternary, self.ternary_write.addr, addr)
            entries = Mux(ternary, self.ternary_write.data, entries.replicate(self._planes))
        m.d.comb += [
            compute.eq(self.write.en & (bank(cfg, self.write.addr) == k)),
            load.eq(bank(cfg, self.load.addr) == k),
            write.en.eq(lanes),
            write.addr.eq(addr),
            write.data.eq(entries),
        ]


def _number(one: Value) -> Value:
    """The number of the bit of `one` that is set."""
    bits = (len(one) - 1).bit_length()
    return Cat(Cat(one[k] for k in range(len(one)) if k >> bit & 1).any() for bit in range(bits))


def _chosen(number: Value, values: Sequence[Value]) -> Value:
    """The value with this number, of a power of two of them."""
    if len(values) == 1:
        return values[0]
    half = len(values) // 2
    if half == 1:
        return Mux(number, values[1], values[0])
    return Mux(number[-1], _chosen(number[:-1], values[half:]), _chosen(number[:-1], values[:half]))


class Exclusion(wiring.Component):
    """Which banks the compute queue uses, for unit `ternary`.

    Members, one bit per bank:
        issue: in, banks of the issue at the sequencer's output, 0 where there is none; it stays there until it goes on
        multiply: in, it is MUL or another operation with that latency
        loads: in, banks of the loads of accumulators that are dispatched and not in memory
        busy: out, banks of `issue`, of issues that went on and are not written, and, one cycle late, of `loads`

    An issue of unit `ternary` leaves only where its bank is not `busy`: in a cycle in which both ask for a free bank,
    the compute queue has it. An issue of that queue never waits: those of the other unit that left before it are
    written when it reads, as `ternary_latency` is not more than `accumulator_latency`. A load, which may be written in
    any cycle, waits until no issue of unit `ternary` is in its banks, and looks at that from the cycle on in which they
    are `busy`.

    Nobody waits for ever. The compute queue's instructions wait for unit `ternary` in that one place: no issue of it
    leaves any more in the banks of the load, and those that left are written `ternary_latency` later. So all that is
    dispatched ends as without that unit, a few cycles later, and its banks are free then. What waits for a token of
    unit `ternary` is not dispatched and keeps no bank; the queue keeps one as long as it has instructions for it.
    """

    def __init__(self, cfg: Config):
        assert ternary_latency(cfg) <= accumulator_latency(cfg)
        self.cfg = cfg
        banks = cfg.acc_banks
        super().__init__({"issue": In(banks), "multiply": In(1), "loads": In(banks), "busy": Out(banks)})

    def elaborate(self, platform: object) -> Module:
        """A timer for each bank, set by every issue: one that multiplies is never overtaken."""
        m = Module()
        longest, usual = multiply_latency(self.cfg), issue_latency(self.cfg)
        held, timers = Signal(self.cfg.acc_banks), [Signal(range(longest)) for _ in self.issue]
        for k, left in enumerate(timers):
            with m.If(self.issue[k]):
                m.d.sync += left.eq(Mux(self.multiply, longest - 1, usual - 1))
            with m.Elif(left != 0):
                m.d.sync += left.eq(left - 1)
            m.d.sync += held[k].eq(self.issue[k] | (left != 0) | self.loads[k])
        m.d.comb += self.busy.eq(self.issue | held)
        return m
