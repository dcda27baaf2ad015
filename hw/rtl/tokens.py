"""Dependence tokens: a counted channel from one queue to its neighbour."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..config import Config
from .ports import Token


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

    def elaborate(self, platform):
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
