"""The load unit's requests over several read ports, and their data in order again."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...units import striped, stripes
from ..ports import beat_signature, request_signature, word_signature
from ..splitter import Splitter


class Stripes(wiring.Component):
    """Gives the bursts of a transfer to the read ports in turn, and takes their words in the same turn.

    Members:
        req: in, requests, in beats as wide as those of all ports together (`striped`)
        beats: out, their data, in order
        burst[k]: out, bursts for port k, each of which is one request
        words[k]: in, their data, one wide beat at once, the end of each burst marked

    Latency `SPLIT_LATENCY` for requests, none for data; one burst and one wide beat per cycle. Back-pressure: a burst
    waits for its port, and those behind it wait too. As every port answers in the order of its bursts, the turn alone
    tells where the next word is.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        n = stripes(cfg)
        super().__init__(
            {
                "req": In(request_signature(striped(cfg))),
                "beats": Out(beat_signature(striped(cfg))),
                "burst": Out(request_signature(cfg)).array(n),
                "words": In(word_signature(cfg, n)).array(n),
            }
        )

    def elaborate(self, platform) -> Module:
        """A splitter, and two turns: of the port that gets the next burst, and of the one that has the next word."""
        m, n = Module(), len(self.burst)
        shift = (n - 1).bit_length()
        m.submodules.splitter = splitter = Splitter(self.cfg)
        sending, reading = Signal(range(n)), Signal(range(n))
        m.d.comb += [
            splitter.i.valid.eq(self.req.valid),
            splitter.i.payload.addr.eq(self.req.payload.addr << shift),
            splitter.i.payload.beats.eq(self.req.payload.beats << shift),
            self.req.ready.eq(splitter.i.ready),
        ]
        for k, burst in enumerate(self.burst):
            m.d.comb += [burst.payload.addr.eq(splitter.left.addr), burst.payload.beats.eq(splitter.length)]
            with m.If(sending == k):
                m.d.comb += [burst.valid.eq(splitter.valid), splitter.take.eq(splitter.valid & burst.ready)]
        with m.If(splitter.take):
            m.d.sync += sending.eq(sending + 1)
        for k, words in enumerate(self.words):
            word = words.payload
            with m.If(reading == k):
                m.d.comb += [self.beats.payload.data.eq(word.data), self.beats.payload.error.eq(word.error)]
                m.d.comb += [self.beats.valid.eq(words.valid), words.ready.eq(self.beats.ready)]
                with m.If(words.valid & words.ready & word.last):
                    m.d.sync += reading.eq(reading + 1)
        return m
