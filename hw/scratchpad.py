"""Scratchpads: plain ones with one write and one read port, and the accumulators in banks."""

from __future__ import annotations

from amaranth.hdl import C, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .config import Config
from .isa import Mem
from .ports import SramRead, SramWrite, StoreRead, address_bits, entry_bits, lane_bits, word_bits

READ_LATENCY = 1  # cycles from an address to its entry


def repeated(cfg: Config, mem: Mem, word: Value) -> Value:
    """The data of a `SramWrite` repeated over a whole entry."""
    return word.replicate(entry_bits(cfg, mem) // word_bits(cfg, mem))


class Scratchpad(wiring.Component):
    """`depth` entries, zero after configuration.

    Members: `write`, `read`. A read in the cycle of a write to the same entry gives the old contents.
    Latency `READ_LATENCY`, one read and one write per cycle, no back-pressure.
    """

    def __init__(self, cfg: Config, *, mem: Mem):
        self.cfg, self.mem = cfg, mem
        super().__init__({"write": In(SramWrite(cfg, mem)), "read": In(SramRead(cfg, mem))})

    def elaborate(self, platform) -> Module:
        """One memory."""
        m, cfg, mem = Module(), self.cfg, self.mem
        depth = 1 << address_bits(cfg, mem)
        m.submodules.memory = memory = Memory(shape=entry_bits(cfg, mem), depth=depth, init=[])
        write, read = memory.write_port(granularity=lane_bits(cfg, mem)), memory.read_port()
        m.d.comb += [
            write.en.eq(self.write.en),
            write.addr.eq(self.write.addr),
            write.data.eq(repeated(cfg, mem, self.write.data)),
            read.en.eq(self.read.en),
            read.addr.eq(self.read.addr),
            self.read.data.eq(read.data),
        ]
        return m


class EntryWrite(wiring.Signature):
    """Write port for whole accumulators, taken in every cycle."""

    def __init__(self, cfg: Config):
        entry, addr = entry_bits(cfg, Mem.ACC), address_bits(cfg, Mem.ACC)
        super().__init__({"en": Out(1), "addr": Out(addr), "data": Out(entry)})


class Accumulators(wiring.Component):
    """The accumulators, in `cfg.acc_banks` banks by the top bits of the index, each with a read and a write port.

    Members: `dst` and `src` are the pipeline's read ports: never both in one bank in one cycle (`bank` tells).
    `write` is the pipeline's write port, `load` the mover's: never both in one bank in one cycle. `store` reads where
    the pipeline does not. A read in the cycle of a write to the same entry gives the old contents.
    Latency `READ_LATENCY`; back-pressure on `store` alone.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__(
            {
                "dst": In(SramRead(cfg, Mem.ACC)),
                "src": In(SramRead(cfg, Mem.ACC)),
                "write": In(EntryWrite(cfg)),
                "load": In(SramWrite(cfg, Mem.ACC)),
                "store": In(StoreRead(cfg)),
            }
        )

    def elaborate(self, platform) -> Module:
        """The banks, each with its choice of address; each reader chooses the bank that it asked."""
        m, cfg = Module(), self.cfg
        count = cfg.acc_banks
        data = [self._bank(m, k) for k in range(count)]
        readers = {"dst": self.dst.en, "src": self.src.en, "store": self.store.en & self.store.ready}
        chosen = {}
        for name, en in readers.items():
            latest = Signal(range(count), name=f"{name}_bank")
            with m.If(en):
                m.d.sync += latest.eq(bank(cfg, getattr(self, name).addr))
            chosen[name] = data[0] if count == 1 else Mux(latest, data[1], data[0])
        m.d.comb += [self.dst.data.eq(chosen["dst"]), self.src.data.eq(chosen["src"])]
        fresh, held = Signal(), Signal.like(self.store.data, reset_less=True)
        m.d.sync += fresh.eq(readers["store"])
        with m.If(fresh):
            m.d.sync += held.eq(chosen["store"])
        m.d.comb += self.store.data.eq(Mux(fresh, chosen["store"], held))
        return m

    def _bank(self, m: Module, k: int) -> Value:
        """Bank `k`; returns what it read."""
        cfg = self.cfg
        depth = cfg.acc_depth // cfg.acc_banks
        rows = (depth - 1).bit_length()
        memory = Memory(shape=entry_bits(cfg, Mem.ACC), depth=depth, init=[])
        m.submodules[f"bank_{k}"] = memory
        lane = lane_bits(cfg, Mem.ACC)
        write, read = memory.write_port(granularity=lane), memory.read_port()
        dst, src, store = (Signal(name=f"{name}_{k}") for name in ("dst", "src", "store"))
        m.d.comb += [
            dst.eq(self.dst.en & (bank(cfg, self.dst.addr) == k)),
            src.eq(self.src.en & (bank(cfg, self.src.addr) == k)),
            store.eq(self.store.en & (bank(cfg, self.store.addr) == k)),
            read.en.eq(dst | src | store),
            read.addr.eq(Mux(dst, self.dst.addr[:rows], Mux(src, self.src.addr[:rows], self.store.addr[:rows]))),
        ]
        with m.If(bank(cfg, self.store.addr) == k):
            m.d.comb += self.store.ready.eq(~dst & ~src)
        compute, load = Signal(name=f"compute_{k}"), Signal(name=f"load_{k}")
        m.d.comb += [
            compute.eq(self.write.en & (bank(cfg, self.write.addr) == k)),
            load.eq(bank(cfg, self.load.addr) == k),
            write.en.eq(Mux(compute, ~0, Mux(load, self.load.en, 0))),
            write.addr.eq(Mux(compute, self.write.addr[:rows], self.load.addr[:rows])),
            write.data.eq(Mux(compute, self.write.data, repeated(cfg, Mem.ACC, self.load.data))),
        ]
        return read.data


def bank(cfg: Config, addr: Value) -> Value:
    """The bank of accumulator `addr`."""
    return addr[len(addr) - (cfg.acc_banks.bit_length() - 1) :] if cfg.acc_banks > 1 else C(0, 1)
