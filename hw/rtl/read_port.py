"""One AXI read port shared by several clients."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..config import Config
from .axi import INCR, OKAY, AxiRead, Splitter, beat_size, burst_layout
from .fifo import Fifo
from .latencies import ADDRESS_DEPTH, BURST_BEATS, OUTSTANDING
from .ports import beat_signature, request_signature, word_signature


class ReadPort(wiring.Component):
    """Reads in bursts for several clients, which are served in rotation, one burst at a time; client `yields`, where
    there is one, only while no other wants a burst.

    Members:
        req[k]: in, requests of client k
        beats[k]: out, their data, in order
        words: out, the same for the last client, `width` beats at once; where `width` is more than 1
        axi: out, the bus
        halt: in, send no further address from the next cycle on
        idle: out, no burst is in flight, nor granted now
        progress: out, an address or a beat passed

    Latency `REQUEST_LATENCY` for addresses, `BEAT_LATENCY` for data; one burst and one beat per cycle, `OUTSTANDING`
    bursts in flight. Back-pressure: none on the bus, because a burst is sent only when its client's buffer
    (`buffers[k]` beats) has room for it; so no client can keep another from its data.
    Every burst of a client with `words` is a multiple of `width` beats.
    """

    def __init__(self, cfg: Config, *, buffers: tuple[int, ...], width: int = 1, yields: int | None = None):
        assert all(n >= 2 * BURST_BEATS for n in buffers)
        self.cfg, self.buffers, self.width, self.yields = cfg, buffers, width, yields
        n = len(buffers)
        words = {"words": Out(word_signature(cfg, width))} if width > 1 else {}
        super().__init__(
            {
                "req": In(request_signature(cfg)).array(n),
                "beats": Out(beat_signature(cfg)).array(n - len(words)),
                **words,
                "axi": Out(AxiRead(cfg)),
                "halt": In(1),
                "idle": Out(1),
                "progress": Out(1),
            }
        )

    def elaborate(self, platform: object):
        """Splitters, arbiter, addresses; a FIFO of each burst's client routes the data, which are registered first."""
        m, axi = Module(), self.axi
        n, size = len(self.buffers), beat_size(self.cfg)
        grant, want = Signal(n), Signal(n)
        m.submodules.addresses = addresses = Fifo(shape=burst_layout(self.cfg), depth=ADDRESS_DEPTH)
        m.submodules.route = route = Fifo(shape=range(max(n, 2)), depth=OUTSTANDING)
        splitters = [self._splitter(m, k, want[k], grant[k]) for k in range(n)]
        flying, flying_next, may = Signal(range(OUTSTANDING + 1)), Signal(range(OUTSTANDING + 1)), Signal(init=1)
        chosen = self._arbiter(m, want, grant)
        with m.If(addresses.i.ready & may):
            m.d.comb += grant.eq(chosen)
        m.d.comb += [addresses.i.valid.eq(grant.any()), route.i.valid.eq(grant.any())]
        m.d.comb += [addresses.may.eq(want.any()), route.may.eq(want.any())]
        for k, splitter in enumerate(splitters):
            with m.If(grant[k]):
                m.d.comb += [route.i.payload.eq(k), addresses.i.payload.eq(splitter.burst)]
        beat, came, last = (
            Signal(beat_signature(self.cfg).members["payload"].shape, reset_less=True),
            Signal(),
            Signal(),
        )
        m.d.sync += [came.eq(axi.rvalid), last.eq(axi.rvalid & axi.rlast)]
        m.d.sync += [beat.data.eq(axi.rdata), beat.error.eq(axi.rresp != OKAY)]
        m.d.comb += flying_next.eq(flying + grant.any() - last)
        m.d.sync += [flying.eq(flying_next), may.eq((flying_next != OUTSTANDING) & ~self.halt)]
        m.d.comb += [
            axi.arvalid.eq(addresses.o.valid),
            axi.araddr.eq(addresses.o.payload.addr << size),
            axi.arlen.eq(addresses.o.payload.len),
            axi.arsize.eq(size),
            axi.arburst.eq(INCR),
            addresses.o.ready.eq(axi.arready),
            axi.rready.eq(1),
            route.o.ready.eq(last),
            self.idle.eq((flying == 0) & ~grant.any()),
            self.progress.eq(came | (axi.arvalid & axi.arready)),
        ]
        for k, depth in enumerate(self.buffers):
            mine = came & (route.o.payload == k)
            if self._wide(k):
                self._words(m, mine, beat, last)
                continue
            m.submodules[f"buffer_{k}"] = buffer = Fifo(shape=beat.shape(), depth=depth)
            m.d.comb += [buffer.i.valid.eq(mine), buffer.may.eq(mine), buffer.i.payload.eq(beat)]
            wiring.connect(m, buffer.o, wiring.flipped(self.beats[k]))
        return m

    def _wide(self, k: int) -> bool:
        """True for the client that takes several beats at once."""
        return self.width > 1 and k == len(self.buffers) - 1

    def _words(self, m: Module, came: Value, beat: data.View, last: Value) -> None:
        """The buffer of the last client: beats that `came` are put together before it, so it gives a word per cycle."""
        bits, final = self.cfg.axi_bits, self.width - 1
        m.submodules.buffer_words = buffer = Fifo(
            shape=self.words.payload.shape(), depth=self.buffers[-1] // self.width
        )
        earlier, broken, count = Signal(final * bits, reset_less=True), Signal(), Signal(range(self.width))
        whole, word = Cat(earlier, beat.data), buffer.i.payload
        with m.If(came):
            m.d.sync += [count.eq(count + 1), earlier.eq(whole[bits:])]
            m.d.sync += broken.eq((broken | beat.error) & (count != final))
        m.d.comb += [buffer.i.valid.eq(came & (count == final)), buffer.may.eq(buffer.i.valid), word.data.eq(whole)]
        m.d.comb += [word.error.eq(broken | beat.error), word.last.eq(last)]
        wiring.connect(m, buffer.o, wiring.flipped(self.words))

    def _splitter(self, m: Module, k: int, want: Signal, grant: Signal) -> Splitter:
        """The bursts of client k: it wants one while its buffer has room, and sends it when it is granted.

        `want` is known one cycle ahead, because all that a grant enables depends on it.
        """
        m.submodules[f"splitter_{k}"] = splitter = Splitter(self.cfg)
        wiring.connect(m, wiring.flipped(self.req[k]), splitter.i)
        size = self.buffers[k]
        # room of the buffer for beats that were not requested, beyond a burst
        room = Signal(range(-BURST_BEATS, size - BURST_BEATS + 1), init=size - BURST_BEATS, name=f"room_{k}")
        left = Signal.like(room, name=f"left_{k}")
        if self._wide(k):
            taken = Mux(self.words.valid & self.words.ready, self.width, 0)
        else:
            taken = self.beats[k].valid & self.beats[k].ready
        m.d.comb += [left.eq(room - Mux(grant, splitter.length, 0) + taken), splitter.take.eq(grant)]
        m.d.sync += [room.eq(left), want.eq((~splitter.i.ready | splitter.i.valid) & (left >= 0))]
        return splitter

    def _arbiter(self, m: Module, want: Signal, grant: Signal) -> Signal:
        """One bit of `want`: the first one after the client that was granted last, of those that do not yield."""
        n = len(want)
        last, chosen = Signal(range(n)), Signal(n)
        rotation = [k for k in range(n) if k != self.yields]
        if self.yields is not None:
            m.d.comb += chosen.eq(want & 1 << self.yields)
        with m.Switch(last):
            for latest in range(n):
                with m.Case(latest):
                    for k in sorted(rotation, key=lambda k, latest=latest: (latest - k) % n):
                        with m.If(want[k]):
                            m.d.comb += chosen.eq(1 << k)
        for k in rotation:
            with m.If(grant[k]):
                m.d.sync += last.eq(k)
        return chosen
