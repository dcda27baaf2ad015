"""The post-processing unit: entries of int32 accumulators to entries of int8 outputs."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...isa import Mem
from ..fifo import Fifo
from ..latencies import PPU_ENTRIES, groups, multipliers
from ..ports import Requantise, address_bits, group_bits


class Ppu(wiring.Component):
    """o[k] = min(max(zero_point + R(i[k] + bias), low), high), with the parameters of the lane's channel.

    Members:
        i: in, entries: `data`, the PAR index `par`, and a `tag` that stays with the entry
        o: out, entries of outputs with their tags
        port: out, use of the multipliers
        idle: out, nothing is inside

    R is that of hw/rtl/compute/rescale.py. Latency `ppu_latency(cfg)`, interval `groups(cfg)` cycles per entry.
    Back-pressure: an entry is held at `i` until its last group has entered the multipliers; it begins when there is
    room for its outputs, so the multipliers never wait.
    """

    def __init__(self, cfg: Config, *, tag: data.StructLayout):
        self.cfg, self.tag = cfg, tag
        word = {"data": cfg.acc_entry_bits, "par": address_bits(cfg, Mem.PAR), "tag": tag}
        super().__init__(
            {
                "i": In(stream.Signature(data.StructLayout(word))),
                "o": Out(stream.Signature(data.StructLayout({"data": cfg.out_entry_bits, "tag": tag}))),
                "port": Out(Requantise(cfg)),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        """Groups in, groups out; FIFOs of outputs and of tags."""
        m, cfg, port = Module(), self.cfg, self.port
        last = groups(cfg) - 1
        m.submodules.tags = tags = Fifo(shape=self.tag, depth=PPU_ENTRIES)
        room = Signal(range(PPU_ENTRIES + 1), init=PPU_ENTRIES)
        some, idle = Signal(init=1), Signal(init=1)  # of that room, and all of it
        group, enters, begins, leaves = Signal(group_bits(cfg)), Signal(), Signal(), Signal()
        m.d.comb += [
            port.en.eq(self.i.valid & ((group != 0) | some)),
            port.group.eq(group),
            port.par.eq(self.i.payload.par),
            port.a.eq(self.i.payload.data),
            enters.eq(port.en & port.ready),
            begins.eq(enters & (group == 0)),
            self.i.ready.eq(enters & (group == last)),
            tags.i.valid.eq(self.i.ready),
            tags.may.eq(self.i.valid),
            tags.i.payload.eq(self.i.payload.tag),
            tags.o.ready.eq(leaves),
            leaves.eq(self.o.valid & self.o.ready),
            self.o.payload.tag.eq(tags.o.payload),
            self.idle.eq(idle),
        ]
        with m.If(enters):
            m.d.sync += group.eq(group + 1)
        with m.If(begins & ~leaves):
            m.d.sync += [room.eq(room - 1), some.eq(room != 1), idle.eq(0)]
        with m.Elif(leaves & ~begins):
            m.d.sync += [room.eq(room + 1), some.eq(1), idle.eq(room == PPU_ENTRIES - 1)]
        self._collect(m, last)
        return m

    def _collect(self, m: Module, last: int) -> None:
        """An entry of the groups that come back."""
        m.submodules.outputs = outputs = Fifo(shape=self.cfg.out_entry_bits, depth=PPU_ENTRIES)
        port, came = self.port, Signal(group_bits(self.cfg))
        parts = [Signal(8 * multipliers(self.cfg), name=f"part_{k}", reset_less=True) for k in range(last)]
        with m.If(port.o_en):
            m.d.sync += came.eq(came + 1)
            for k, part in enumerate(parts):
                with m.If(came == k):
                    m.d.sync += part.eq(port.o)
        m.d.comb += [
            outputs.i.valid.eq(port.o_en & (came == last)),
            outputs.may.eq(port.o_en),
            outputs.i.payload.eq(Cat(*parts, port.o)),
            self.o.valid.eq(outputs.o.valid),
            self.o.payload.data.eq(outputs.o.payload),
            outputs.o.ready.eq(self.o.ready),
        ]
