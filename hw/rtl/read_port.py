"""One AXI read port shared by several clients."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..config import Config
from .axi import INCR, OKAY, AxiRead, beat_size
from .fifo import Fifo
from .latencies import ADDRESS_DEPTH, BURST_BEATS, OUTSTANDING
from .ports import ADDRESS_BITS, beat_signature, request_signature


class ReadPort(wiring.Component):
    """Splits requests into bursts at 16-beat boundaries, takes turns between clients at every burst.

    Members: `req[k]` and `beats[k]` for each client k, `axi`, `halt` (send no further address), `idle` (nothing is
    in flight), `progress` (an address or a beat passed).
    Latency `REQUEST_LATENCY` for addresses, `BEAT_LATENCY` for data; one burst and one beat per cycle, `OUTSTANDING`
    bursts in flight. Back-pressure: none on the bus, because a burst is sent only when its client's buffer
    (`buffers[k]` beats) has room for it; so no client can keep another from its data.
    """

    def __init__(self, cfg: Config, *, buffers: tuple[int, ...]):
        assert all(n >= 2 * BURST_BEATS for n in buffers)
        self.cfg, self.buffers = cfg, buffers
        n = len(buffers)
        super().__init__(
            {
                "req": In(request_signature(cfg)).array(n),
                "beats": Out(beat_signature(cfg)).array(n),
                "axi": Out(AxiRead(cfg)),
                "halt": In(1),
                "idle": Out(1),
                "progress": Out(1),
            }
        )

    def elaborate(self, platform):
        """Splitters, turn, addresses; a FIFO of whose burst comes next routes the data, which are registered first."""
        m, axi = Module(), self.axi
        n, low = len(self.buffers), beat_size(self.cfg)
        grant, want = Signal(n), Signal(n)
        address = data.StructLayout({"addr": ADDRESS_BITS - low, "len": 4})
        m.submodules.addresses = addresses = Fifo(shape=address, depth=ADDRESS_DEPTH)
        m.submodules.route = route = Fifo(shape=range(max(n, 2)), depth=OUTSTANDING)
        bursts = [self._splitter(m, k, want[k], grant[k]) for k in range(n)]
        flying = Signal(range(OUTSTANDING + 1))
        turn = self._turn(m, want, grant)
        with m.If(addresses.i.ready & ~self.halt & (flying != OUTSTANDING)):
            m.d.comb += grant.eq(turn)
        m.d.comb += [addresses.i.valid.eq(grant.any()), route.i.valid.eq(grant.any())]
        for k, (addr, length) in enumerate(bursts):
            with m.If(grant[k]):
                m.d.comb += [
                    route.i.payload.eq(k),
                    addresses.i.payload.addr.eq(addr),
                    addresses.i.payload.len.eq(length - 1),
                ]
        beat, came, last = Signal(self.beats[0].payload.shape(), reset_less=True), Signal(), Signal()
        m.d.sync += [came.eq(axi.rvalid), last.eq(axi.rvalid & axi.rlast)]
        m.d.sync += [beat.data.eq(axi.rdata), beat.error.eq(axi.rresp != OKAY)]
        m.d.sync += flying.eq(flying + grant.any() - last)
        m.d.comb += [
            axi.arvalid.eq(addresses.o.valid),
            axi.araddr.eq(addresses.o.payload.addr << low),
            axi.arlen.eq(addresses.o.payload.len),
            axi.arsize.eq(low),
            axi.arburst.eq(INCR),
            addresses.o.ready.eq(axi.arready),
            axi.rready.eq(1),
            route.o.ready.eq(last),
            self.idle.eq(flying == 0),
            self.progress.eq(came | (axi.arvalid & axi.arready)),
        ]
        for k, depth in enumerate(self.buffers):
            m.submodules[f"buffer_{k}"] = buffer = Fifo(shape=beat.shape(), depth=depth)
            m.d.comb += [buffer.i.valid.eq(came & (route.o.payload == k)), buffer.i.payload.eq(beat)]
            wiring.connect(m, buffer.o, wiring.flipped(self.beats[k]))
        return m

    def _splitter(self, m: Module, k: int, want: Signal, grant: Signal) -> tuple[Signal, Signal]:
        """What is left of client k's request: wants a burst (address, length) and gives it when granted."""
        req = self.req[k]
        valid = Signal(name=f"valid_{k}")
        addr = Signal.like(req.payload.addr, name=f"addr_{k}", reset_less=True)
        beats = Signal.like(req.payload.beats, name=f"beats_{k}", reset_less=True)
        length, to_boundary = Signal(range(BURST_BEATS + 1), name=f"length_{k}"), Signal(range(BURST_BEATS + 1))
        final = Signal(name=f"final_{k}")  # the next burst is the last; known ahead, as `req.ready` depends on it
        m.d.comb += [
            to_boundary.eq(BURST_BEATS - addr[:4]),
            length.eq(Mux(final, beats[:5], to_boundary)),
            req.ready.eq(~valid | (grant & final)),
        ]
        with m.If(req.ready):
            m.d.sync += [valid.eq(req.valid), addr.eq(req.payload.addr), beats.eq(req.payload.beats)]
            m.d.sync += final.eq(req.payload.beats + req.payload.addr[:4] <= BURST_BEATS)
        with m.Elif(grant):
            m.d.sync += final.eq(beats <= to_boundary + BURST_BEATS)
            m.d.sync += [addr.eq(((addr >> 4) + 1) << 4), beats.eq(beats - length)]
        room = Signal(
            range(self.buffers[k] + 1), init=self.buffers[k], name=f"room_{k}"
        )  # beats neither here nor asked
        taken = self.beats[k].valid & self.beats[k].ready
        m.d.sync += room.eq(room - Mux(grant, length, 0) + taken)
        m.d.comb += want.eq(valid & (room >= BURST_BEATS))
        return addr, length

    def _turn(self, m: Module, want: Signal, grant: Signal) -> Signal:
        """One bit of `want`: the first one after the client that was granted last."""
        n = len(want)
        last, turn = Signal(range(n)), Signal(n)
        with m.Switch(last):
            for latest in range(n):
                with m.Case(latest):
                    for at in range(n, 0, -1):
                        k = (latest + at) % n
                        with m.If(want[k]):
                            m.d.comb += turn.eq(1 << k)
        for k in range(n):
            with m.If(grant[k]):
                m.d.sync += last.eq(k)
        return turn
