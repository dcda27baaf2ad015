"""Specifications of read ports, stripes and stores: AXI's rules, and each beat once."""

from amaranth.hdl import Const, Mux, Signal

from tilewright.hw.config import PRESETS

CFG = PRESETS["tiny"].replace(axi_bits=32)
BYTES = 4  # of a beat
WRAP = 1 << 38  # beat addresses

STEADY = "an address stays until it is taken"
PAGE = "a burst stays in its 4 kB"
ONCE = "every beat is asked for as often as it was requested"
ROOM = "there is room for every beat that comes"
WHOLE = "whole beats at rising addresses"
OWN = "every beat goes to its client"
DATA = "a beat stays until it is taken"
TURN = "ports take turns, with bursts and with words"
WORDS = "a burst is whole words within 16 beats"
LAST = "the last beat of a burst is marked, and no other"


def burst_rules(spec, valid, ready, addr, length, size, burst):
    """What AXI demands of addresses; lengths have 4 bits, so no burst is longer than 16 beats."""
    spec.sees(spec.steady(valid, ready, addr, length, size, burst), STEADY)
    spec.sees((size == 2) & (burst == 1), WHOLE)
    spec.sees(~valid | (addr[:12] + (length + 1) * BYTES <= 4096), PAGE)
    spec.invariant(~valid | (addr[2:6] + length < 16) & (addr[:2] == 0), "a burst stays in its 16 beats")


def covers(at, first, beats):
    """Whether beat address `at` is one of `beats` from `first` on; nothing wraps."""
    return (first <= at) & (at < first + beats)


def asked_once(spec, request, held, bus):
    """Counts, for any beat address, the requests that cover it against the bursts that do.

    `request` is (passes, first beat, beats), `held` those that still wait inside, `bus` (passes, first beat, beats).
    """
    at, asked, sent = spec.constant("at", 38), Signal(4), Signal(4)
    passes, first, beats = request
    spec.takes(~passes | ((beats != 0) & (first + beats <= WRAP)))
    spec.m.d.sync += asked.eq(asked + (passes & covers(at, first, beats)))
    passes, first, beats = bus
    spec.m.d.sync += sent.eq(sent + (passes & covers(at, first, beats)))
    spec.sees((asked - sent)[:4] == sum(here & covers(at, *span) for here, *span in held), ONCE)
    here, first, beats = held[0]
    spec.invariant(~here | ((beats != 0) & (first + beats <= WRAP)), "what is left is not empty")


def waiting(spec, path, fifo):
    """The one address in the memory of `fifo`, and whether it is there."""
    (word,) = spec.memory(path, 42, 1)
    spec.queue(fifo)
    there = fifo.level != fifo.o.valid
    spec.invariant(~there | fifo.o.valid, "the output is filled first")
    spec.invariant(~there | (word[:4] + word[38:42] < 16), "a burst that waits stays in its 16 beats")
    return there, word[:38], word[38:42] + 1


def last_is_known(spec, splitter):
    """That the next burst is the last is found one cycle ahead."""
    left = splitter.left
    spec.invariant(~splitter.valid | (splitter.final == (left.beats + left.addr[:4] <= 16)), "the last burst is known")


def read_port(spec, port, clients=1, width=1):
    """A port whose clients and bus are free; the last client takes `width` beats at once, 1 or 2, and asks for such."""
    dut = port(CFG, buffers=(32,) * clients, width=width)
    calls = spec.add("port", dut)
    axi, inside = dut.axi, calls["_splitter"]
    addresses = calls["elaborate"][0].addresses
    spec.drive("bus", axi.arready, axi.rvalid, axi.rdata, axi.rresp, axi.rlast, dut.halt)
    for k in range(clients):
        taker = dut.words if width > 1 and k == clients - 1 else dut.beats[k]
        spec.drive(f"client_{k}", dut.req[k].valid, dut.req[k].payload, taker.ready)
        spec.takes(~dut.req[k].valid | (dut.req[k].payload.beats != 0))
        splitter = inside[k].splitter
        spec.invariant(~splitter.valid | (splitter.left.beats != 0), "a request that is left is not empty")
        if width > 1 and k == clients - 1:
            spec.takes(~dut.req[k].valid | even(dut.req[k].payload))
            spec.invariant(~splitter.valid | even(splitter.left), "what is left is whole words")
        last_is_known(spec, splitter)
        spec.invariant(inside[k].want == (splitter.valid & (inside[k].room >= 0)), "who wants a burst is known")
    wait = waiting(spec, "port.addresses.memory", addresses)
    burst_rules(spec, axi.arvalid, axi.arready, axi.araddr, axi.arlen, axi.arsize, axi.arburst)
    spec.reaches(axi.arvalid & (axi.arlen == 15) & axi.rvalid)
    if clients == 1:
        only, request = inside[0].splitter, dut.req[0]
        bus = (axi.arvalid, axi.araddr[2:], axi.arlen + 1)
        passes = (request.valid & request.ready, request.payload.addr, request.payload.beats)
        asked_once(
            spec,
            passes,
            [(only.valid, only.left.addr, only.left.beats), bus, wait],
            (axi.arvalid & axi.arready, *bus[1:]),
        )
        if width > 1:
            spec.invariant(~bus[0] | ~(bus[1][0] | bus[2][0]), "a burst is whole words")
            spec.invariant(~wait[0] | ~(wait[1][0] | wait[2][0]), "a burst that waits is whole words")
        bus_answers(spec, dut, calls, wait, width)
    return spec


def even(span):
    """Whether a request is whole words of two beats."""
    return ~(span.addr[0] | span.beats[0])


def bus_answers(spec, dut, calls, wait, width):
    """The bus gives the beats that it owes, and marks the last of every burst."""
    axi, inside, only = dut.axi, calls["elaborate"][0], calls["_splitter"][0]
    beats, bursts = Signal(8), Signal(8)  # that the bus owes
    asked = axi.arvalid & axi.arready
    spec.m.d.sync += beats.eq(beats + Mux(asked, axi.arlen + 1, 0) - axi.rvalid)
    spec.m.d.sync += bursts.eq(bursts + asked - (axi.rvalid & axi.rlast))
    spec.takes(~axi.rvalid | ((beats != 0) & (~axi.rlast | (bursts != 0))))
    packed = calls["_words"][0] if width > 1 else inside
    buffer, route = packed.buffer, inside.route
    spec.queue(buffer)
    spec.queue(route)
    part = packed.count if width > 1 else Const(0, 1)  # beats of a word that is not whole
    spec.sees(axi.rready & (~buffer.i.valid | buffer.i.ready) & (~route.i.valid | route.i.ready), ROOM)
    spec.sees(buffer.i.valid == (inside.came & (part == width - 1)), OWN)
    on_way = Mux(axi.arvalid, axi.arlen + 1, 0) + Mux(wait[0], wait[2], 0) + inside.came
    here = buffer.level * width + part
    spec.invariant(only.room >= -16, "no more is asked for than there is room for")
    spec.invariant(only.room + 16 + here + beats + on_way == 32, "a beat is free, asked, owed or here")
    spec.invariant((buffer.level - buffer.o.valid)[:6] <= 32 // width, "no more are stored than fit")
    spec.invariant(((part + beats + inside.came)[0] == 0) | (width == 1), "what comes ends a word")
    spec.invariant(inside.flying == bursts + inside.addresses.level + inside.last, "bursts in flight")
    spec.invariant(~inside.may | (inside.flying != 8), "one more may fly")
    spec.invariant((inside.flying == route.level) & (inside.flying <= 8), "their clients are known")
    spec.invariant((route.level - route.o.valid)[:4] <= 8, "clients fit")
    spec.invariant((route.level == 0) | route.o.valid, "the first client is known")
    words = spec.memory("port.route.memory", 1, 8)
    spec.invariant(sum(words) + route.o.payload == 0, "there is one client")


def spread(spec, component):
    """Two ports in turn: what they are asked for, and whose word is the next."""
    dut = component(CFG.replace(load_ports=2))
    (inside,) = spec.add("stripes", dut)["elaborate"]
    splitter, req = inside.splitter, dut.req
    spec.drive("req", req.valid, req.payload, dut.beats.ready)
    for k in range(2):
        spec.drive(f"port_{k}", dut.burst[k].ready, dut.words[k].valid, dut.words[k].payload)
    wide = (req.payload.addr << 1, req.payload.beats << 1)
    sent, ended = Signal(8), Signal(8)  # bursts; burst n is for port n mod 2, and so are its words
    goes = [burst.valid & burst.ready for burst in dut.burst]
    ends = [words.valid & words.ready & words.payload.last for words in dut.words]
    spec.m.d.sync += [sent.eq(sent + goes[0] + goes[1]), ended.eq(ended + ends[0] + ends[1])]
    for k in range(2):
        spec.sees(~dut.burst[k].valid | (sent[0] == k), TURN)
        spec.sees(~dut.words[k].ready | (ended[0] == k), TURN)
        spec.sees((dut.words[k].valid & (ended[0] == k)) == (dut.beats.valid & (ended[0] == k)), TURN)
        span = dut.burst[k].payload
        spec.sees(~dut.burst[k].valid | ((span.addr[:4] + span.beats <= 16) & even(span) & (span.beats != 0)), WORDS)
    last_is_known(spec, splitter)
    spec.invariant(~splitter.valid | even(splitter.left), "what is left is whole words")
    spec.invariant((inside.sending == sent[0]) & (inside.reading == ended[0]), "turns are counted")
    left = (splitter.valid, splitter.left.addr, splitter.left.beats)
    first = Mux(dut.burst[1].valid, dut.burst[1].payload.addr, dut.burst[0].payload.addr)
    passes = (req.valid & req.ready, *wide)
    asked_once(spec, passes, [left], (goes[0] | goes[1], first, splitter.length))
    spec.reaches(goes[1] & dut.burst[1].payload.beats[4] & ends[0])
    return spec


def free_store(spec, bursts):
    """The store unit's bursts; rows, data and bus are free."""
    dut = bursts(CFG)
    calls = spec.add("bursts", dut)
    axi, inside = dut.axi, calls["elaborate"][0]
    row, beats = dut.row.payload, dut.beats
    spec.drive("row", dut.row.valid, row, beats.valid, beats.payload, dut.to_compute.ready, dut.halt)
    spec.drive("bus", axi.awready, axi.wready, axi.bvalid, axi.bresp)
    spec.takes(spec.steady(beats.valid, beats.ready, beats.payload))
    spec.takes(((row.entries == 0) == (row.beats == 0)) & (row.empty == (row.entries == 0)))
    return dut, inside


def store(spec, bursts):
    """Rules of both channels, and that every beat of every row is written once."""
    dut, inside = free_store(spec, bursts)
    axi, row = dut.axi, dut.row.payload
    wait = waiting(spec, "bursts.addresses.memory", inside.addresses)
    burst_rules(spec, axi.awvalid, axi.awready, axi.awaddr, axi.awlen, axi.awsize, axi.awburst)
    spec.sees(spec.steady(axi.wvalid, axi.wready, axi.wdata, axi.wstrb, axi.wlast), DATA)
    splitter, entries = inside.splitter, inside.row.entries
    rest = (splitter.valid & (entries != 0), splitter.left.addr, splitter.left.beats)
    spec.invariant(~splitter.valid | ((entries == 0) == (splitter.left.beats == 0)), "a NOP has no beats")
    spec.invariant(~splitter.valid | (inside.row.empty == (entries == 0)), "a NOP is known")
    last_is_known(spec, splitter)
    bus = (axi.awvalid, axi.awaddr[2:], axi.awlen + 1)
    passes = (dut.row.valid & dut.row.ready & (row.entries != 0), row.addr, row.beats)
    asked_once(spec, passes, [rest, bus, wait], (axi.awvalid & axi.awready, *bus[1:]))
    spec.reaches(axi.awvalid & (axi.awlen == 15) & axi.wvalid)
    return spec


def stored_lengths(spec, bursts):
    """The address and the data of burst `n` (any) tell the same number of beats."""
    dut, _ = free_store(spec, bursts)
    axi, n = dut.axi, spec.constant("n", 2)
    spec.takes(dut.row.payload.beats < 4)  # little for the solver to try
    told, ended, beat, length, came, known, over = (Signal(5) for _ in range(7))
    address, data = axi.awvalid & axi.awready, axi.wvalid & axi.wready
    spec.m.d.sync += [told.eq(told + address), ended.eq(ended + (data & axi.wlast))]
    spec.m.d.sync += beat.eq(Mux(data, Mux(axi.wlast, 0, beat + 1), beat))
    with spec.m.If(address & (told == n)):
        spec.m.d.sync += [length.eq(axi.awlen), known.eq(1)]
    with spec.m.If(data & axi.wlast & (ended == n)):
        spec.m.d.sync += [came.eq(beat), over.eq(1)]
    spec.sees((known == 0) | (over == 0) | (length == came), LAST)
    spec.reaches((known != 0) & (over != 0) & (n == 1) & (length == 1))
    return spec
