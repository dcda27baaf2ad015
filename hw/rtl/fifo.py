"""First in, first out: command queues, descriptors, beats; and dependence tokens, which have no contents."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, ShapeLike, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..config import Config
from .ports import Token

KEEP = {"keep": "true"}  # synthesis leaves registers apart that are alike (boards/synthesis.py)


class Fifo(wiring.Component):
    """Keeps `depth` words and one more in the output register, in order.

    Members:
        i: in, words of `shape`
        may: in, a word may come: as `i.valid`, or more often, and known earlier; 1 where nobody drives it
        o: out, the same words
        level: out, number of words inside

    Latency `FIFO_LATENCY`, one word per cycle. Back-pressure: `i.ready` falls when the memory is full. Both ends are
    registered; the memory is read without a clock, which suits LUT RAM.
    """

    def __init__(self, *, shape: ShapeLike, depth: int):
        self.shape, self.depth = shape, depth
        super().__init__(
            {
                "i": In(stream.Signature(shape)),
                "may": In(1, init=1),
                "o": Out(stream.Signature(shape)),
                "level": Out(range(depth + 2)),
            }
        )

    def elaborate(self, platform: object):
        """Circular buffer in front of the output register, which it feeds unless it is empty."""
        m = Module()
        bits = Value.cast(self.i.payload).shape().width
        m.submodules.memory = memory = Memory(shape=bits, depth=self.depth, init=[])
        write, read = memory.write_port(), memory.read_port(domain="comb")
        head, tail, stored = Signal(range(self.depth)), Signal(range(self.depth)), Signal(range(self.depth + 1))
        full, empty = Signal(), Signal(init=1)  # of the memory; known ahead, so that no comparison delays the ends
        enters, fill = Signal(), Signal()
        out = Signal(bits, reset_less=True)
        m.d.comb += [
            self.i.ready.eq(~full),
            self.level.eq(stored + self.o.valid),
            enters.eq(self.i.valid & ~full),
            fill.eq(~self.o.valid | self.o.ready),
            write.addr.eq(tail),
            write.data.eq(Value.cast(self.i.payload)),
            # the place behind the last word holds anything, so no late `valid` is in the way; but a simulator is slower
            # for each write
            write.en.eq(~full & self.may),
            read.addr.eq(head),
            Value.cast(self.o.payload).eq(out),
        ]
        with m.If(fill):
            m.d.sync += self.o.valid.eq(~empty | self.i.valid)
            m.d.sync += out.eq(Mux(empty, Value.cast(self.i.payload), read.data))
        with m.If(enters & ~fill):
            m.d.sync += [stored.eq(stored + 1), full.eq(stored == self.depth - 1), empty.eq(0)]
        with m.Elif(fill & ~empty & ~enters):
            m.d.sync += [stored.eq(stored - 1), full.eq(0), empty.eq(stored == 1)]
        # a word that passes an empty memory has a place there, too: so `tail` waits for no `ready`
        for pointer, step in ((head, fill & (~empty | self.i.valid)), (tail, enters)):
            with m.If(step):
                m.d.sync += pointer.eq(0 if self.depth == 1 else pointer + 1)
                if self.depth & (self.depth - 1):
                    with m.If(pointer == self.depth - 1):
                        m.d.sync += pointer.eq(0)
        return m


class TokenChannel(wiring.Component):
    """level' = level + push - pop, 0 <= level <= token_depth.

    Members:
        push: in, tokens to keep
        pop: out, tokens to take
        level: out, number of tokens inside

    Latency `TOKEN_LATENCY`. Back-pressure: `push` waits while the channel is full, so that no token is lost; `pop`
    is valid while it is not empty.
    """

    def __init__(self, cfg: Config):
        self.depth = cfg.token_depth
        super().__init__({"push": In(Token()), "pop": Out(Token()), "level": Out(range(self.depth + 1))})

    def elaborate(self, platform: object):
        """The counter; that it is at one of its ends is known ahead."""
        m = Module()
        room, some = Signal(init=1), Signal()
        m.d.comb += [self.push.ready.eq(room), self.pop.valid.eq(some)]
        push, pop = self.push.valid & self.push.ready, self.pop.valid & self.pop.ready
        with m.If(push & ~pop):
            m.d.sync += [self.level.eq(self.level + 1), room.eq(self.level != self.depth - 1), some.eq(1)]
        with m.Elif(pop & ~push):
            m.d.sync += [self.level.eq(self.level - 1), room.eq(1), some.eq(self.level != 1)]
        return m
