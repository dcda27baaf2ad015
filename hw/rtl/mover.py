"""The mover of all loads: strided two-dimensional tiles from DRAM, padded, into scratchpads.

command -> Planner (requests) -> FIFO of tiles -> Walker (entries) -> Writer (beats and padding) -> scratchpads
"""

from __future__ import annotations

from amaranth.hdl import C, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import TERNARY_BITS, Config
from ..isa import Mem, Op, entry_bytes, room, scratchpad_of
from ..regs import Error
from .expander import Expander, beats, shared
from .fifo import KEEP, Fifo
from .latencies import COMMAND_DEPTH, REQUEST_DEPTH, TILE_DEPTH
from .ports import (
    BYTES_BITS,
    INDEX_BITS,
    Fault,
    SramWrite,
    address_bits,
    beat_signature,
    insn_layout,
    keep_first_seen,
    move_layout,
    move_signature,
    push_layout,
    push_signature,
    request_signature,
)

PART_BITS = 6  # of an entry's position in a beat


def loaded_as(cfg: Config, mems: tuple[Mem, ...]) -> tuple[Mem, ...]:
    """The memory ids by which LOADs name the scratchpads `mems`."""
    narrow = (("acc8", Mem.ACC8), ("wgt4", Mem.WGT4))
    return (*mems, *(mem for name, mem in narrow if name in cfg.extensions and scratchpad_of(mem) in mems))


def units(cfg: Config, mem: Mem) -> int:
    """Parts of an entry of `mem` whose bytes are a power of two: 3 for PAR, with its 12 bytes per channel; for WGT4 its
    scales, and as many weights of each row."""
    return {Mem.PAR: 3, Mem.WGT4: cfg.block_in + 1}.get(mem, 1)


def in_units(cfg: Config, mem: Mem, entries: Value) -> Value:
    """`entries * units(cfg, mem)`, by an adder: synthesis takes multipliers for a product."""
    count = units(cfg, mem)
    return entries if count == 1 else entries + (entries << count.bit_length() - 1)


def chunks(cfg: Config, mem: Mem) -> int:
    """Beats of an entry of `mem`, or 1; of WGT4, of one that begins with a beat."""
    return beats(cfg) if mem == Mem.WGT4 else units(cfg, mem) << max(beat_shift(cfg, mem), 0)


def beat_shift(cfg: Config, mem: Mem) -> int:
    """log2 of the beats of a unit (see `units`) in DRAM; negative where several units are in a beat."""
    return (entry_bytes(cfg, mem) // units(cfg, mem) * 8).bit_length() - cfg.axi_bits.bit_length()


def count_bits(cfg: Config) -> int:
    """Width of a count of entries: one bit more than the widest index of a scratchpad or of `sram_base`."""
    return max(16, *(address_bits(cfg, mem) for mem in (Mem.UOP, Mem.INP, Mem.WGT, Mem.ACC))) + 1


def tile_layout() -> data.StructLayout:
    """A tile as the walker walks it: last column and row; first, last and end of the part that is not padding.

    `one_column` and `one_row`: the last one is the first, too.
    """
    return data.StructLayout(
        {
            "mem": 3,
            "empty": 1,
            "base": 16,
            "x_last": 17,
            "y_last": 17,
            "x_begin": 4,
            "x_final": 17,
            "y_begin": 4,
            "y_final": 17,
            "y_end": 17,
            "one_column": 1,
            "one_row": 1,
            "pad_value": 8,
            "dense": 1,
            "offset": PART_BITS,
            "offset_step": PART_BITS,
            "push": push_layout(),
            "index": INDEX_BITS,
        }
    )


def _begun_layout() -> data.StructLayout:
    """A command with the pads that apply, its sums, and whether it makes no request, one, or one for all rows."""
    sums = dict.fromkeys(("x_final", "y_final", "y_end"), 17)
    flags = dict.fromkeys(("dense", "whole", "none", "one", "empty"), 1)
    return data.StructLayout({"cmd": move_layout(), "rows": 16, **sums, **flags})


class Planner(wiring.Component):
    """Turns a command into requests, one per row or one for a tile without gaps, and the walker's description.

    Members:
        cmd: in, LOADs
        req: out, requests to the read port
        tile: out, descriptions for the walker
        idle: out, nothing is inside

    Latency `TILE_LATENCY`; one request per cycle.
    """

    def __init__(self, cfg: Config, *, mems: tuple[Mem, ...]):
        self.cfg, self.mems = cfg, mems
        super().__init__(
            {
                "cmd": In(move_signature()),
                "req": Out(request_signature(cfg)),
                "tile": Out(stream.Signature(tile_layout())),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object):
        """Commands; first stage: sums and products of one; second: the rest of its sums, then its rows."""
        m = Module()
        m.submodules.commands = commands = Fifo(shape=self.cmd.payload.shape(), depth=COMMAND_DEPTH)
        wiring.connect(m, wiring.flipped(self.cmd), commands.i)
        cmd, taken, begun = commands.o.payload, Signal(), Signal(_begun_layout(), reset_less=True)  # first stage
        active, described = Signal(), Signal()  # second stage; its tile is in the FIFO
        rows, at, stride = Signal(16), Signal(34), Signal(16)
        product, whole, area = (Signal(n, reset_less=True) for n in (32, 1, 32))  # registers of one multiplier
        tile, mem, length = Signal(tile_layout(), reset_less=True), Signal(3), Signal(16)
        ended, load, none, one = (Signal() for _ in range(4))  # `none`, `one`: so many rows are left
        m.d.comb += [
            ended.eq(~active | ((none | (one & self.req.ready)) & (described | self.tile.ready))),
            load.eq(taken & ended),
            commands.o.ready.eq(~taken | ended),
            self.req.valid.eq(active & ~none),
            self.tile.valid.eq(active & ~described),
            self.tile.payload.eq(tile),
            self.idle.eq(~commands.o.valid & ~taken & ~active),
        ]
        with m.If(commands.o.ready):
            m.d.sync += [taken.eq(commands.o.valid), product.eq(cmd.x_size * cmd.y_size), *self._begin(begun, cmd)]
        with m.If(ended):
            m.d.sync += [active.eq(taken), described.eq(0)]
        with m.Elif(self.tile.ready):
            m.d.sync += described.eq(1)
        with m.If(self.req.valid & self.req.ready):
            m.d.sync += [rows.eq(rows - 1), none.eq(one), one.eq(rows == 2), at.eq(at + stride)]
        with m.If(load):
            m.d.sync += [
                mem.eq(begun.cmd.mem),
                stride.eq(begun.cmd.x_stride),
                at.eq(begun.cmd.dram_base),
                rows.eq(begun.rows),
                none.eq(begun.none),
                one.eq(begun.one),
                length.eq(begun.cmd.x_size),
                whole.eq(begun.whole),
                area.eq(product),
                *self._describe(tile, begun),
            ]
        self._request(m, mem, at, Mux(whole, area, length))
        return m

    def _begin(self, begun: data.View, cmd: data.View) -> list[object]:
        """First sums of `cmd`; the rest waits for the second stage."""
        uops = [mem for mem in self.mems if mem in (Mem.UOP, Mem.TUOP)]
        flat = cmd.mem == uops[0].id if uops else Const(0, 1)  # micro-ops are one row
        bare = C(1, 1) if self.mems == (Mem.PAR,) else flat
        left, right, above, below = (Mux(bare, 0, cmd[f"{name}_pad_{k}"]) for name in "xy" for k in (0, 1))
        rows = Mux(flat, 1, cmd.y_size)
        dense, nothing = flat | (cmd.x_stride == cmd.x_size), (cmd.x_size == 0) | (rows == 0)
        return [
            begun.cmd.eq(cmd),
            begun.cmd.x_pad_0.eq(left),
            begun.cmd.x_pad_1.eq(right),
            begun.cmd.y_pad_0.eq(above),
            begun.cmd.y_pad_1.eq(below),
            begun.rows.eq(rows),
            begun.dense.eq(dense),
            begun.whole.eq(dense & ~flat),
            begun.none.eq(nothing),
            begun.one.eq(~nothing & (dense | (rows == 1))),
            begun.empty.eq((cmd.x_size == 0) | ~(rows.any() | above.any() | below.any())),
            begun.x_final.eq(left + cmd.x_size - 1),
            begun.y_final.eq(above + rows - 1),
            begun.y_end.eq(above + rows),
        ]

    def _describe(self, tile: data.View, begun: data.View) -> list[object]:
        cmd = begun.cmd
        x_last, y_last = ((begun[f"{axis}_final"] + cmd[f"{axis}_pad_1"])[:17] for axis in "xy")
        return [
            tile.x_begin.eq(cmd.x_pad_0),
            tile.x_last.eq(x_last),
            tile.y_begin.eq(cmd.y_pad_0),
            tile.y_last.eq(y_last),
            tile.one_column.eq(x_last == 0),
            tile.one_row.eq(y_last == 0),
            tile.base.eq(cmd.sram_base),
            tile.offset.eq(cmd.dram_base[:PART_BITS]),
            tile.offset_step.eq(cmd.x_stride[:PART_BITS]),
            *(tile[name].eq(begun[name]) for name in ("empty", "x_final", "y_final", "y_end", "dense")),
            *(tile[name].eq(cmd[name]) for name in ("mem", "pad_value", "push", "index")),
        ]

    def _request(self, m: Module, mem: Value, at: Value, entries: Value) -> None:
        """Beats of `entries` entries from entry `at` on."""
        req = self.req.payload
        with m.Switch(mem):
            for name in self.mems:
                shift = beat_shift(self.cfg, name)
                first, count = (in_units(self.cfg, name, value) for value in (at, entries))
                with m.Case(name.id):
                    if shift >= 0:
                        m.d.comb += [req.addr.eq(first << shift), req.beats.eq(count << shift)]
                    else:
                        end = first[:-shift] + count + ((1 << -shift) - 1)
                        m.d.comb += [req.addr.eq(first >> -shift), req.beats.eq(end >> -shift)]


def step_layout(cfg: Config) -> data.StructLayout:
    """One entry to write: padding, or data from part `part` of a beat, with which the beat ends (`leave`) or not.

    `data` and `single`, known ahead for the writer: it is neither padding nor `empty`; it is at most one beat. `first`,
    of weights of 4 bits: it is the first one of its request.
    """
    first = {"first": 1} if "wgt4" in cfg.extensions else {}
    return data.StructLayout(
        {
            "mem": 3,
            "empty": 1,
            "pad": 1,
            "data": 1,
            "single": 1,
            "pad_value": 8,
            "addr": count_bits(cfg) + 1,
            "part": PART_BITS,
            "leave": 1,
            **first,
            "last": 1,
            "push": push_layout(),
            "index": INDEX_BITS,
        }
    )


class Walker(wiring.Component):
    """Walks the entries of a tile, one per cycle, without a pause between tiles.

    Members:
        tile: in, descriptions of tiles
        step: out, entries to write

    Latency `WALK_LATENCY`.
    """

    def __init__(self, cfg: Config, *, mems: tuple[Mem, ...]):
        self.cfg, self.mems = cfg, mems
        super().__init__({"tile": In(stream.Signature(tile_layout())), "step": Out(stream.Signature(step_layout(cfg)))})

    def elaborate(self, platform: object):
        """Counters of column, row, entries so far, and the position in the beat."""
        m = Module()
        tile, step = self.tile.payload, Signal(step_layout(self.cfg), reset_less=True)
        x, y, count = Signal(17), Signal(17), Signal(count_bits(self.cfg))
        row_offset = Signal(PART_BITS)  # position in its beat of the row's first entry, less the tile's
        column = Signal(PART_BITS)  # entries of the row so far, without padding
        advance, x_last, last, pad, full, single, in_row = (Signal() for _ in range(7))
        part = Signal(PART_BITS)
        # the first column or row of a tile, and the last of those behind it: known ahead, as `tile.ready` needs them
        left, right, top, bottom = Signal(init=1), Signal(), Signal(init=1), Signal()
        # not `step.valid`, in registers of their own: for the payload, and for `tile.ready`
        free, empty = Signal(init=1, attrs=KEEP), Signal(init=1, attrs=KEEP)
        m.d.comb += [
            advance.eq(self.tile.valid & (~self.step.valid | self.step.ready)),
            x_last.eq(Mux(left, tile.one_column, right)),
            last.eq((x_last & Mux(top, tile.one_row, bottom)) | tile.empty),
            in_row.eq((y >= tile.y_begin) & (y < tile.y_end)),
            pad.eq(~in_row | (x < tile.x_begin) | (x > tile.x_final)),
            part.eq(tile.offset + row_offset + column),
            self.tile.ready.eq((empty | self.step.ready) & last),
            self.step.payload.eq(step),
        ]
        with m.Switch(tile.mem):
            for name in self.mems:
                with m.Case(name.id):
                    bits = 0 if name == Mem.WGT4 else max(-beat_shift(self.cfg, name), 0)
                    m.d.comb += full.eq(part[:bits].all() if bits else 1)
                    m.d.comb += single.eq(chunks(self.cfg, name) == 1)
        ends = (~tile.dense | (y == tile.y_final)) & (x == tile.x_final)
        with m.If(~self.step.valid | self.step.ready):
            m.d.sync += [self.step.valid.eq(self.tile.valid), free.eq(~self.tile.valid), empty.eq(~self.tile.valid)]
        with m.If(free | self.step.ready):
            m.d.sync += [
                step.mem.eq(tile.mem),
                step.empty.eq(tile.empty),
                step.pad.eq(pad),
                step.data.eq(~pad & ~tile.empty),
                step.single.eq(single),
                step.pad_value.eq(tile.pad_value),
                step.addr.eq(tile.base + count),
                step.part.eq(part),
                step.leave.eq(full | ends),
                step.last.eq(last),
                step.push.eq(tile.push),
                step.index.eq(tile.index),
            ]
            if "wgt4" in self.cfg.extensions:
                m.d.sync += step.first.eq((x == tile.x_begin) & (~tile.dense | (y == tile.y_begin)))
        with m.If(advance):
            m.d.sync += [
                count.eq(count + ~count[-1]),  # stays beyond every scratchpad
                x.eq(x + 1),
                left.eq(x_last | tile.empty),
                right.eq(x + 1 == tile.x_last),
                column.eq(column + ~pad),
            ]
            with m.If(x_last | tile.empty):
                m.d.sync += x.eq(0)
            with m.If(x_last):
                m.d.sync += [y.eq(y + 1), top.eq(0), bottom.eq(y + 1 == tile.y_last)]
                with m.If(in_row & ~tile.dense):
                    m.d.sync += [row_offset.eq(row_offset + tile.offset_step), column.eq(0)]
            with m.If(last):
                m.d.sync += [y.eq(0), top.eq(1), count.eq(0), row_offset.eq(0), column.eq(0)]
        return m


def writer_members(cfg: Config, mems: tuple[Mem, ...]) -> dict[str, wiring.Member]:
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

    def elaborate(self, platform: object):
        """One register between beats and scratchpads; a counter of an entry's chunks, the last of which is known ahead,
        so that `step` and `beats` are taken after few gates."""
        m = Module()
        step, go, may = self.step.payload, Signal(), Signal()
        chunk, ends, final = Signal(10), Signal(), Signal()
        expander, more = self._expander(m, go, chunk)
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
            m.d.sync += [chunk.eq(Mux(final, 0, chunk + ~more)), ends.eq(~final & ~more & self._ends(chunk))]
        with m.If(self.done.ready):
            m.d.sync += self.done.valid.eq(0)
        with m.If(go & step.last & self.step.ready):
            m.d.sync += [self.done.valid.eq(1), self.done.payload.eq(step.push)]
        for mem in self.mems:
            self._write(m, mem, go, chunk, expander)
        self._check(m, go)
        return m

    def _expander(self, m: Module, go: Value, chunk: Value) -> tuple[Expander | None, Value]:
        """(what weights of 4 bits pass, whether it takes a beat that is no chunk of an entry)."""
        if Mem.WGT4 not in loaded_as(self.cfg, self.mems):
            return None, Const(0)
        m.submodules.expander = expander = Expander(self.cfg)
        step, named = self.step.payload, Signal()
        m.d.comb += [
            named.eq(step.mem == Mem.WGT4.id),
            expander.take.eq(go & step.data & named),
            expander.beat.eq(self.beats.payload.data),
            expander.chunk.eq(chunk),
            expander.inside.eq(step.part[0]),
            expander.first.eq(step.first),
        ]
        return expander, named & expander.more

    def _ends(self, chunk: Value) -> Value:
        """1 while `chunk` is the last but one of an entry."""
        names = [(name, chunks(self.cfg, name)) for name in loaded_as(self.cfg, self.mems)]
        long = [(self.step.payload.mem == name.id) & (chunk == n - 2) for name, n in names if n > 1]
        if Mem.WGT4 in (name for name, _ in names) and shared(self.cfg):
            inside = (self.step.payload.mem == Mem.WGT4.id) & self.step.payload.part[0]
            long.append(inside & (chunk == beats(self.cfg, inside=True) - 2))
        return Cat(long).any() if long else Const(0)

    def _write(self, m: Module, mem: Mem, go: Value, chunk: Value, expander: Expander | None) -> None:
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
            here = chunk[: (n - 1).bit_length()]
            en = Cat((here == k).replicate(lanes // n) for k in range(n)) if n > 1 else Const((1 << lanes) - 1, lanes)
            nbytes = min(entry_bytes(self.cfg, name), self.cfg.axi_bits // 8)
            if name == Mem.WGT4 and expander is not None:
                en, nbytes, expanded = expander.en, expander.bytes, Signal()
                m.d.sync += expanded.eq((step.mem == name.id) & ~step.pad)
                with m.If(expanded):
                    m.d.comb += port.data.eq(expander.data)
            with m.If(step.mem == name.id):
                m.d.sync += [
                    addr.eq(step.addr),
                    datum.eq(Mux(step.pad, padding.replicate(word // bits), self._datum(name, -shift, word))),
                ]
                with m.If(go & ~step.empty & (step.addr < room(self.cfg, mem))):
                    m.d.sync += port.en.eq(Mux(step.pad, (1 << lanes) - 1, en))
                with m.If(go & step.data):
                    m.d.comb += self.bytes.eq(nbytes)

    def _datum(self, name: Mem, parts_log2: int, word: int):
        """The part of a beat that is written: all of it, or one entry; int8 becomes int32; of WGT4, none as it is."""
        if name == Mem.WGT4:
            return Const(0, word)
        beat = self.beats.payload.data
        if parts_log2 > 0:
            beat = beat.word_select(self.step.payload.part[:parts_log2], self.cfg.axi_bits >> parts_log2)
        if name == Mem.ACC8:
            beat = Cat(Cat(beat[k : k + 8], beat[k + 7].replicate(24)) for k in range(0, len(beat), 8))
        return beat.replicate(word // len(beat))

    def _check(self, m: Module, go: Value) -> None:
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


def move_of(cfg: Config, command: data.View, move: data.View) -> list[object]:
    """Statements that make `move` (see `move_layout`) the LOAD or LOADP `command`."""
    insn = Value.cast(command.insn)
    load, flags = data.View(insn_layout(cfg, "LOAD"), insn), data.View(insn_layout(cfg, "FINISH"), insn)
    names = ("y_size", "x_size", "x_stride", "y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1")
    padded = data.View(insn_layout(cfg, "LOADP"), insn)
    # of the two opcodes the lowest bit tells which, in a register that no other decoding waits for
    assert (Op.LOAD & 1, Op.LOADP & 1) == (0, 1)
    loadp = load.op[0] if "pad_value" in cfg.extensions else Const(0, 1)
    return [
        *(move[name].eq(load[name]) for name in ("mem", "sram_base", "dram_base")),
        *(move[name].eq(Mux(loadp, padded[name], load[name])) for name in names),
        move.pad_value.eq(Mux(loadp, padded.pad_value, 0)),
        *(move.push[flag].eq(flags[flag]) for flag in ("push_prev", "push_next")),
        move.index.eq(command.index),
    ]


class Mover(wiring.Component):
    """sram[base + y * W + x] = pad, or dram[base + (y - y_pad_0) * x_stride + (x - x_pad_0)], for W x H entries.

    W = x_pad_0 + x_size + x_pad_1, H = y_pad_0 + y_size + y_pad_1; micro-ops are one row, and neither they nor PAR have
    pads. ACC8 widens int8. Nothing is moved where x_size is 0.

    Members:
        cmd: in, LOADs whose tokens are already taken
        req: out, requests to the read port
        beats: in, their data
        write_<mem>: out, write port of each scratchpad of `mems`
        done: out, executed commands in order, with the tokens that they give
        hold: in, write nothing now
        idle: out, nothing is inside
        fault: out, a bus error or an entry beyond its scratchpad
        bytes: out, bytes that were moved in this cycle
        memory_wait: out, the next entry is due and its data are not here
        progress: out, something was written

    Latency: `PLAN_LATENCY` to the request, `WRITE_LATENCY` from beat to scratchpad; `done` is valid in the cycle of the
    last write. Interval: one beat, one padding entry or (entries smaller than a beat) one entry per cycle, also from
    row to row and from command to command; the requests of `TILE_DEPTH` commands run ahead.
    Back-pressure: `hold`, and `done` that is not taken, stop the writes.
    """

    def __init__(self, cfg: Config, *, mems: tuple[Mem, ...]):
        self.cfg, self.mems, self.names = cfg, mems, loaded_as(cfg, mems)
        super().__init__({"cmd": In(move_signature()), "req": Out(request_signature(cfg)), **writer_members(cfg, mems)})

    def elaborate(self, platform: object):
        """Planner (requests), descriptor FIFO, walker (entries), writer (beats)."""
        m = Module()
        m.submodules.planner = planner = Planner(self.cfg, mems=self.names)
        m.submodules.descriptors = fifo = Fifo(shape=tile_layout(), depth=TILE_DEPTH)
        m.submodules.walker = walker = Walker(self.cfg, mems=self.names)
        m.submodules.writer = writer = Writer(self.cfg, mems=self.mems)
        wiring.connect(m, wiring.flipped(self.cmd), planner.cmd)
        # registers between the planner and the arbiter of the read port
        m.submodules.requests = requests = Fifo(shape=self.req.payload.shape(), depth=REQUEST_DEPTH)
        wiring.connect(m, planner.req, requests.i)
        wiring.connect(m, requests.o, wiring.flipped(self.req))
        wiring.connect(m, planner.tile, fifo.i)
        wiring.connect(m, fifo.o, walker.tile)
        m.d.comb += [requests.may.eq(planner.req.valid), fifo.may.eq(planner.tile.valid)]
        wiring.connect(m, walker.step, writer.step)
        wiring.connect(m, wiring.flipped(self.beats), writer.beats)
        wiring.connect(m, writer.done, wiring.flipped(self.done))
        for mem in self.mems:
            name = f"write_{mem.name.lower()}"
            wiring.connect(m, getattr(writer, name), wiring.flipped(getattr(self, name)))
        wiring.connect(m, writer.fault, wiring.flipped(self.fault))
        m.d.comb += [
            writer.hold.eq(self.hold),
            self.idle.eq(planner.idle & (fifo.level == 0) & writer.idle),
            self.bytes.eq(writer.bytes),
            self.memory_wait.eq(writer.memory_wait),
            self.progress.eq(writer.progress),
        ]
        return m
