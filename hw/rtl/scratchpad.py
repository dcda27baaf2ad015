"""Scratchpads with one write and one read port: plain ones, inputs with their neighbours, parameters of channels."""

from __future__ import annotations

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..config import PAR_BYTES, Config
from ..isa import Mem
from .latencies import multipliers
from .ports import InputRead, SramRead, SramWrite, address_bits, entry_bits, group_bits, lane_bits


def repeated(cfg: Config, mem: Mem, word: Value) -> Value:
    """The data of a `SramWrite` repeated over a whole entry."""
    return repeated_to(entry_bits(cfg, mem), word)


def repeated_to(bits: int, word: Value) -> Value:
    """`word` repeated over `bits` bits."""
    return word.replicate(bits // len(word))


class Scratchpad(wiring.Component):
    """`depth` entries, zero after configuration.

    Members:
        write: in, the write port
        read: in, the read port

    A read in the cycle of a write to the same entry gives the old contents.
    Latency `OPERAND_LATENCY` for inputs and weights, with a register that block RAMs have at their output,
    `SCRATCHPAD_LATENCY` for others; one read and one write per cycle, no back-pressure.
    """

    def __init__(self, cfg: Config, *, mem: Mem):
        self.cfg, self.mem = cfg, mem
        super().__init__({"write": In(SramWrite(cfg, mem)), "read": In(SramRead(cfg, mem))})

    def elaborate(self, platform: object) -> Module:
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
        ]
        fresh = _delayed(m, self.read.en, "fresh")
        held = mem in (Mem.INP, Mem.WGT, Mem.TWGT)
        m.d.comb += self.read.data.eq(_held(m, fresh, read.data, "held") if held else read.data)
        return m


def _delayed(m: Module, en: Value, name: str) -> Value:
    """`en`, one cycle later."""
    later = Signal(name=name)
    m.d.sync += later.eq(en)
    return later


def _held(m: Module, fresh: Value, value: Value, name: str) -> Value:
    """The value read in the previous cycle, in a register that a block RAM can absorb."""
    held = Signal.like(value, name=name, reset_less=True)
    with m.If(fresh):
        m.d.sync += held.eq(value)
    return held


class Inputs(wiring.Component):
    """`Scratchpad` of the inputs in `cfg.row_taps` banks by the low bits of the index, which reads neighbours at once.

    Members:
        write: in, the write port
        read: in, the read port; after the last entry the first one follows

    Reads, latency and back-pressure are those of `Scratchpad`.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__({"write": In(SramWrite(cfg, Mem.INP)), "read": In(InputRead(cfg))})

    def elaborate(self, platform: object) -> Module:
        """The banks; each entry comes from the bank that its distance from the first one says."""
        m, cfg, write, read = Module(), self.cfg, self.write, self.read
        count, low = cfg.row_taps, (cfg.row_taps - 1).bit_length()
        depth = (1 << address_bits(cfg, Mem.INP)) // count
        found, asked, first = [], Signal(range(count)), Signal(range(count))
        fresh = _delayed(m, read.en, "fresh")
        with m.If(read.en):
            m.d.sync += asked.eq(read.addr)
        with m.If(fresh):
            m.d.sync += first.eq(asked)
        for k in range(count):
            m.submodules[f"bank_{k}"] = memory = Memory(shape=entry_bits(cfg, Mem.INP), depth=depth, init=[])
            writes, reads = memory.write_port(granularity=lane_bits(cfg, Mem.INP)), memory.read_port()
            m.d.comb += [
                writes.en.eq(Mux(write.addr[:low] == k, write.en, 0)),
                writes.addr.eq(write.addr[low:]),
                writes.data.eq(repeated(cfg, Mem.INP, write.data)),
                reads.en.eq(read.en),
                reads.addr.eq(read.addr[low:] + (read.addr[:low] > k)),
            ]
            found.append(_held(m, fresh, reads.data, f"held_{k}"))
        entries = [Signal.like(read.data, name=f"entry_{t}") for t in range(count)]
        with m.Switch(first):
            for at in range(count):
                with m.Case(at):
                    m.d.comb += [entry.eq(found[(at + t) % count]) for t, entry in enumerate(entries)]
        m.d.comb += [read.data.eq(entries[0]), read.near.eq(Cat(entries[1:]))]
        return m


def channels(cfg: Config) -> int:
    """Channels of a group of lanes; lane k of it is one of channel k mod this."""
    return min(multipliers(cfg), cfg.block_out)


class Parameters(wiring.Component):
    """The PAR scratchpad: it gives the parameters of one group of lanes in each cycle.

    Members:
        write: in, the write port
        en: in, read
        addr: in, the entry
        group: in, the group of lanes
        o: out, the parameters of its `channels(cfg)` channels

    Latency `SCRATCHPAD_LATENCY`, one read and one write per cycle, no back-pressure. Entries are written beat by beat
    (never two beats at once), and kept in rows of as few channels as are whole beats.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__(
            {
                "write": In(SramWrite(cfg, Mem.PAR)),
                "en": In(1),
                "addr": In(address_bits(cfg, Mem.PAR)),
                "group": In(group_bits(cfg)),
                "o": Out(8 * PAR_BYTES * channels(cfg)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """One memory of rows, of which an entry has one or several; a row of several groups has a multiplexer."""
        m, cfg = Module(), self.cfg
        beat, size = lane_bits(cfg, Mem.PAR), channels(cfg)
        while 8 * PAR_BYTES * size % beat:
            size *= 2
        row, rows = 8 * PAR_BYTES * size, cfg.block_out // size
        m.submodules.memory = memory = Memory(shape=row, depth=cfg.par_entries * rows, init=[])
        write, read = memory.write_port(granularity=beat), memory.read_port()
        parts = [self.write.en[k * row // beat : (k + 1) * row // beat] for k in range(rows)]
        row_bits, part_bits = (rows - 1).bit_length(), (size // channels(cfg) - 1).bit_length()
        number, part = Signal(row_bits), Signal(part_bits)
        tables = self.write.addr[address_bits(cfg, Mem.PAR) :].any()  # it goes to one of them
        for k, en in enumerate(parts):
            with m.If(en.any() & ~tables):
                m.d.comb += [number.eq(k), write.en.eq(en)]
        m.d.comb += [
            write.addr.eq(Cat(number, self.write.addr)),
            write.data.eq(repeated_to(row, self.write.data)),
            read.en.eq(self.en),
            read.addr.eq(Cat(self.group[part_bits : part_bits + row_bits], self.addr)),
            self.o.eq(read.data.word_select(part, len(self.o))),
        ]
        with m.If(self.en):
            m.d.sync += part.eq(self.group)
        return m


def bank(cfg: Config, addr: Value) -> Value:
    """The bank of accumulator `addr`."""
    return addr[(cfg.bank_depth - 1).bit_length() :] if cfg.acc_banks > 1 else C(0, 1)
