"""The last part of the mover: beats and padding to the scratchpads' write ports."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import TERNARY_BITS, Config
from ...isa import Mem, entry_bytes, room
from ...regs import Error
from ..faults import keep_first_seen
from ..ports import BYTES_BITS, Fault, SramWrite, beat_signature, push_signature
from .beats import beat_shift, chunks, loaded_as
from .walker import step_layout


def writer_members(cfg: Config, mems: tuple[Mem, ...]) -> dict:
    """Members of a `Writer` besides its steps, for `wiring.Component`; a mover has them too."""
    return {
        "beats": In(beat_signature(cfg)),
        **{f"write_{mem.name.lower()}": Out(SramWrite(cfg, mem)) for mem in mems},
        "done": Out(push_signature()),
        "hold": In(1),
        "idle": Out(1),
        "fault": Out(Fault()),
        "bytes": Out(BYTES_BITS),
        "memory_wait": Out(1),
        "progress": Out(1),
    }


class Writer(wiring.Component):
    """Writes steps: all lanes of a padding entry at once, data beat by beat.

    Members:
        step: in, entries to write, padding or data
        beats, write_<mem>, done, hold, idle, fault, bytes, memory_wait, progress: as of `Mover`
    """

    def __init__(self, cfg: Config, *, mems: tuple[Mem, ...]):
        self.cfg, self.mems = cfg, mems
        super().__init__({"step": In(stream.Signature(step_layout(cfg))), **writer_members(cfg, mems)})

    def elaborate(self, platform):
        """One register between beats and scratchpads; a counter of an entry's chunks, the last of which is known ahead,
        so that `step` and `beats` are taken after few gates."""
        m = Module()
        step, go, may = self.step.payload, Signal(), Signal()
        chunk, ends, final = Signal(10), Signal(), Signal()
        read = self.step.valid & step.data
        m.d.comb += [
            may.eq(self.step.valid & ~self.hold & ~(step.last & self.done.valid & ~self.done.ready)),
            go.eq(may & (~step.data | self.beats.valid)),
            final.eq(step.single | ends),
            self.memory_wait.eq(read & ~self.beats.valid),
            self.progress.eq(go),
            self.step.ready.eq(may & Mux(step.data, self.beats.valid & final, 1)),
            self.beats.ready.eq(may & step.data & self.beats.valid & (step.leave | ~final)),
            self.idle.eq(~self.step.valid & ~self.done.valid),
        ]
        with m.If(go & step.data):
            m.d.sync += [chunk.eq(Mux(final, 0, chunk + 1)), ends.eq(~final & self._ends(chunk))]
        with m.If(self.done.ready):
            m.d.sync += self.done.valid.eq(0)
        with m.If(go & step.last & self.step.ready):
            m.d.sync += [self.done.valid.eq(1), self.done.payload.eq(step.push)]
        for mem in self.mems:
            self._write(m, mem, go, chunk)
        self._check(m, go)
        return m

    def _ends(self, chunk) -> Value:
        """1 while `chunk` is the last but one of an entry."""
        names = [(name, chunks(self.cfg, name)) for name in loaded_as(self.cfg, self.mems)]
        long = [(self.step.payload.mem == name.id) & (chunk == n - 2) for name, n in names if n > 1]
        return Cat(long).any() if long else Const(0)

    def _write(self, m: Module, mem: Mem, go, chunk) -> None:
        """The registered write port of `mem`."""
        step, port = self.step.payload, getattr(self, f"write_{mem.name.lower()}")
        lanes, word = len(port.en), len(port.data)
        bits = {Mem.INP: self.cfg.inp_bits, Mem.WGT: self.cfg.wgt_bits, Mem.TWGT: TERNARY_BITS}.get(mem, 32)
        padding = Signal(bits, name=f"padding_{mem.name.lower()}")
        addr, datum = (Signal.like(s, reset_less=True) for s in (port.addr, port.data))
        m.d.comb += [padding.eq(step.pad_value.as_signed()), port.addr.eq(addr), port.data.eq(datum)]
        m.d.sync += port.en.eq(0)
        for name in loaded_as(self.cfg, (mem,)):
            shift = beat_shift(self.cfg, name)
            n = chunks(self.cfg, name)
            en = Const((1 << lanes) - 1, lanes) if n == 1 else self._lanes(chunk, n, lanes)
            with m.If(step.mem == name.id):
                m.d.sync += [
                    addr.eq(step.addr),
                    datum.eq(Mux(step.pad, padding.replicate(word // bits), self._datum(name, -shift, word))),
                ]
                with m.If(go & ~step.empty & (step.addr < room(self.cfg, mem))):
                    m.d.sync += port.en.eq(Mux(step.pad, (1 << lanes) - 1, en))
                with m.If(go & step.data):
                    m.d.comb += self.bytes.eq(min(entry_bytes(self.cfg, name), self.cfg.axi_bits // 8))

    @staticmethod
    def _lanes(chunk, n: int, lanes: int):
        """Enables of the lanes of one of `n` chunks."""
        return Cat((chunk[: (n - 1).bit_length()] == k).replicate(lanes // n) for k in range(n))

    def _datum(self, name: Mem, parts_log2: int, word: int):
        """The part of a beat that is written: all of it, or one entry; int8 becomes int32."""
        beat = self.beats.payload.data
        if parts_log2 > 0:
            beat = beat.word_select(self.step.payload.part[:parts_log2], self.cfg.axi_bits >> parts_log2)
        if name == Mem.ACC8:
            beat = Cat(Cat(beat[k : k + 8], beat[k + 7].replicate(24)) for k in range(0, len(beat), 8))
        return beat.replicate(word // len(beat))

    def _check(self, m: Module, go) -> None:
        """Keeps the first fault."""
        step = self.step.payload
        beyond = Signal()
        for name in loaded_as(self.cfg, self.mems):
            with m.If(step.mem == name.id):
                m.d.comb += beyond.eq(step.addr >= room(self.cfg, name))
        writes, broken = go & ~step.empty, step.data & self.beats.payload.error
        keep_first_seen(
            m,
            self.fault,
            (writes & broken, Error.READ_RESPONSE, step.index),
            (writes & beyond, Error.RANGE, step.index),
        )
