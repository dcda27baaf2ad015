"""The load unit: moves inputs, weights, and ternary weights with their micro-ops from read ports to scratchpads."""

from __future__ import annotations

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..config import Config
from ..isa import Mem
from ..units import striped, stripes
from .axi import Splitter
from .mover import Mover, move_of
from .ports import (
    SramWrite,
    Token,
    beat_signature,
    command_signature,
    insn_layout,
    request_signature,
    unit_members,
    word_signature,
)


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

    def elaborate(self, platform: object) -> Module:
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


def loaded(cfg: Config) -> tuple[Mem, ...]:
    """The scratchpads that the load unit fills."""
    return (Mem.INP, Mem.WGT, *((Mem.TWGT, Mem.TUOP) if "ternary" in cfg.units else ()))


class Load(wiring.Component):
    """Executes LOAD and LOADP of the scratchpads `loaded(cfg)` in order, requests of the next ones ahead of the data of
    this one.

    Members, besides those of every unit (`unit_members`):
        cmd: in, the load queue
        from_compute, from_ternary: in, tokens that its instructions take; the latter with unit ternary
        to_compute, to_ternary: out, tokens that they give
        req: out, requests to the read port
        beats: in, their data
        write_<mem>: out, write ports of the scratchpads

    Latency and interval: the mover's; one instruction is taken per cycle. Back-pressure: an instruction waits for its
    token and for the mover; a token that cannot be given stops the writes.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        tokens = {"from_ternary": In(Token()), "to_ternary": Out(Token())} if "ternary" in cfg.units else {}
        super().__init__(
            {
                "cmd": In(command_signature()),
                "from_compute": In(Token()),
                "to_compute": Out(Token()),
                **tokens,
                "req": Out(request_signature(cfg)),
                "beats": In(beat_signature(cfg)),
                **{f"write_{mem.name.lower()}": Out(SramWrite(cfg, mem)) for mem in loaded(cfg)},
                **unit_members(),
            }
        )

    def elaborate(self, platform: object):
        """Tokens around the mover."""
        m = Module()
        mems = loaded(self.cfg)
        m.submodules.mover = mover = Mover(self.cfg, mems=mems)
        for name in ("req", "beats", *(f"write_{mem.name.lower()}" for mem in mems), "fault"):
            outer, inner = getattr(self, name), getattr(mover, name)
            wiring.connect(m, inner, wiring.flipped(outer))
        flags = data.View(insn_layout(self.cfg, "FINISH"), Value.cast(self.cmd.payload.insn))
        permitted = ~flags.pop_next | self.from_compute.valid
        if "ternary" in self.cfg.units:
            permitted &= ~flags.pop_prev | self.from_ternary.valid
        m.d.comb += [
            mover.cmd.valid.eq(self.cmd.valid & permitted & ~self.halt),
            *move_of(self.cfg, self.cmd.payload, mover.cmd.payload),
            self.cmd.ready.eq(mover.cmd.valid & mover.cmd.ready),
            self.from_compute.ready.eq(self.cmd.ready & flags.pop_next),
            *self._done(mover, flags),
            self.idle.eq(mover.idle),
            self.activity.busy.eq(~mover.idle),
            self.activity.token_wait.eq(self.cmd.valid & ~permitted),
            self.activity.memory_wait.eq(mover.memory_wait),
            self.activity.insn.eq(self.cmd.ready),
            self.activity.ended.eq(mover.done.valid & mover.done.ready),
            self.activity.bytes.eq(mover.bytes),
            self.activity.progress.eq(self.cmd.ready | mover.progress),
        ]
        return m

    def _done(self, mover: Mover, flags: data.View) -> list[object]:
        """Statements by which executed instructions give their tokens, to two neighbours at the same time."""
        done, push = mover.done, mover.done.payload
        if "ternary" not in self.cfg.units:
            return [
                self.to_compute.valid.eq(done.valid & push.push_next),
                done.ready.eq(~push.push_next | self.to_compute.ready),
            ]
        compute, ternary = ~push.push_next | self.to_compute.ready, ~push.push_prev | self.to_ternary.ready
        return [
            self.to_compute.valid.eq(done.valid & push.push_next & ternary),
            self.to_ternary.valid.eq(done.valid & push.push_prev & compute),
            done.ready.eq(compute & ternary),
            self.from_ternary.ready.eq(self.cmd.ready & flags.pop_prev),
        ]
