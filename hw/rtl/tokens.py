"""Dependence tokens: a counted channel from one queue to its neighbour."""

from __future__ import annotations

from amaranth.hdl import Module
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
        """The counter."""
        m = Module()
        m.d.comb += [self.push.ready.eq(self.level != self.depth), self.pop.valid.eq(self.level != 0)]
        push, pop = self.push.valid & self.push.ready, self.pop.valid & self.pop.ready
        with m.If(push & ~pop):
            m.d.sync += self.level.eq(self.level + 1)
        with m.Elif(pop & ~push):
            m.d.sync += self.level.eq(self.level - 1)
        return m
