"""The mover of all loads: strided two-dimensional tiles from DRAM, padded, into scratchpads."""

from __future__ import annotations

from amaranth.hdl import C, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import Config
from .fifo import FIFO_LATENCY, Fifo
from .isa import Mem, Op, depth, entry_bytes
from .layouts import INDEX_BITS, insn_layout, push_layout
from .ports import (
    BYTES_BITS,
    Fault,
    SramWrite,
    address_bits,
    beat_signature,
    move_signature,
    push_signature,
    request_signature,
)
from .regs import Error

TILE_LATENCY = 2  # cycles from a command to its tile's description
PLAN_LATENCY = TILE_LATENCY + FIFO_LATENCY  # cycles from a command to its first request
WALK_LATENCY = 1  # cycles from a tile's description to its first entry's place
WRITE_LATENCY = 1  # cycles from a beat to the scratchpad's write port
DESCRIPTORS = 4  # commands whose requests may be ahead of the data
_PART_BITS = 6  # of an entry's place in a beat


def loaded_as(cfg: Config, mems: tuple[Mem, ...]) -> tuple[Mem, ...]:
    """The memory ids by which LOADs name the scratchpads `mems`."""
    return (*mems, Mem.ACC8) if Mem.ACC in mems and loads_int8(cfg) else mems


def loads_int8(cfg: Config) -> bool:
    """Whether ACC8 exists: its entries are as long as outputs, so it needs outputs of one byte."""
    return "acc8" in cfg.extensions and cfg.out_bits == 8


def move_of(cfg: Config, command, move) -> list:
    """Statements that make `move` (see `move_layout`) the LOAD or LOADP `command`."""
    insn = Value.cast(command.insn)
    load, flags = data.View(insn_layout(cfg, "LOAD"), insn), data.View(insn_layout(cfg, "FINISH"), insn)
    names = ("y_size", "x_size", "x_stride", "y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1")
    padded = data.View(insn_layout(cfg, "LOADP"), insn)
    loadp = load.op == Op.LOADP if "pad_value" in cfg.extensions else Const(0, 1)
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

    Members: `cmd` commands, `req` and `beats` the read port, `write_<mem>` one per scratchpad of `mems`, `done` the
    tokens of executed commands in order, `hold` (write nothing now), `idle`, `fault` (bus error or entry beyond the
    scratchpad), `bytes` moved in this cycle, `memory_wait` (the next entry is due and its data are not here),
    `progress` (something was written).
    Latency: `PLAN_LATENCY` to the request, `WRITE_LATENCY` from beat to scratchpad; `done` is valid in the cycle of the
    last write. Interval: one beat, one padding entry or (entries smaller than a beat) one entry per cycle, also from
    row to row and from command to command; the requests of `DESCRIPTORS` commands run ahead.
    Back-pressure: `hold`, and `done` that is not taken, stop the writes.
    """

    def __init__(self, cfg: Config, *, mems: tuple[Mem, ...]):
        self.cfg, self.mems, self.names = cfg, mems, loaded_as(cfg, mems)
        super().__init__(
            {
                "cmd": In(move_signature()),
                "req": Out(request_signature(cfg)),
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
        )

    def elaborate(self, platform):
        """Planner (requests), descriptor FIFO, walker (entries), writer (beats)."""
        m = Module()
        m.submodules.planner = planner = Planner(self.cfg, mems=self.names)
        m.submodules.descriptors = fifo = Fifo(shape=tile_layout(), depth=DESCRIPTORS)
        m.submodules.walker = walker = Walker(self.cfg, mems=self.names)
        m.submodules.writer = writer = Writer(self.cfg, mems=self.mems)
        wiring.connect(m, wiring.flipped(self.cmd), planner.cmd)
        # registers between the planner and the turns at the read port
        m.submodules.requests = requests = Fifo(shape=self.req.payload.shape(), depth=1)
        wiring.connect(m, planner.req, requests.i)
        wiring.connect(m, requests.o, wiring.flipped(self.req))
        wiring.connect(m, planner.tile, fifo.i)
        wiring.connect(m, fifo.o, walker.tile)
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


def _count_bits(cfg: Config) -> int:
    """Of a number of entries: more than any scratchpad's or `sram_base`'s index."""
    return max(16, *(address_bits(cfg, mem) for mem in (Mem.UOP, Mem.INP, Mem.WGT, Mem.ACC))) + 1


def tile_layout() -> data.StructLayout:
    """A tile as the walker walks it: last column and row, and what is not padding: first, last and one past it."""
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
            "pad_value": 8,
            "dense": 1,
            "offset": _PART_BITS,
            "offset_step": _PART_BITS,
            "push": push_layout(),
            "index": INDEX_BITS,
        }
    )


def step_layout(cfg: Config) -> data.StructLayout:
    """One entry to write: padding, or data from part `part` of a beat, with which the beat ends (`leave`) or not."""
    return data.StructLayout(
        {
            "mem": 3,
            "empty": 1,
            "pad": 1,
            "pad_value": 8,
            "addr": _count_bits(cfg) + 1,
            "part": _PART_BITS,
            "leave": 1,
            "last": 1,
            "push": push_layout(),
            "index": INDEX_BITS,
        }
    )


def units(mem: Mem) -> int:
    """Parts of an entry of `mem` whose bytes are a power of two: 3 for PAR, with its 12 bytes per channel."""
    return 3 if mem == Mem.PAR else 1


def _in_units(mem: Mem, entries: Value) -> Value:
    """`entries * units(mem)`, by an adder: synthesis takes multipliers for a product with 3."""
    return entries + (entries << 1) if units(mem) == 3 else entries


def beat_shift(cfg: Config, mem: Mem) -> int:
    """log2 of the beats of a unit (see `units`) in DRAM; negative where several units are in a beat."""
    return (entry_bytes(cfg, mem) // units(mem) * 8).bit_length() - cfg.axi_bits.bit_length()


class Planner(wiring.Component):
    """Turns a command into requests, one per row or one for a tile without gaps, and the walker's description.

    Members: `cmd`, `req`, `tile`, `idle`. Latency `TILE_LATENCY`; one request per cycle.
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

    def elaborate(self, platform):
        """First stage: the command; second: its sums and products, then its rows."""
        m = Module()
        taken, cmd = Signal(), Signal.like(self.cmd.payload, reset_less=True)
        active, told = Signal(), Signal()  # second stage; its tile is in the FIFO
        rows, entries, at = Signal(16), Signal(32), Signal(34)
        tile, mem, stride = Signal(tile_layout(), reset_less=True), Signal(3), Signal(16)
        over, load = Signal(), Signal()
        m.d.comb += [
            over.eq(~active | (((rows == 0) | ((rows == 1) & self.req.ready)) & (told | self.tile.ready))),
            load.eq(taken & over),
            self.cmd.ready.eq(~taken | load),
            self.req.valid.eq(active & (rows != 0)),
            self.tile.valid.eq(active & ~told),
            self.tile.payload.eq(tile),
            self.idle.eq(~taken & ~active),
        ]
        with m.If(self.cmd.ready):
            m.d.sync += [taken.eq(self.cmd.valid), cmd.eq(self.cmd.payload)]
        with m.If(over):
            m.d.sync += [active.eq(taken), told.eq(0)]
        with m.Elif(self.tile.ready):
            m.d.sync += told.eq(1)
        with m.If(self.req.valid & self.req.ready):
            m.d.sync += [rows.eq(rows - 1), at.eq(at + stride)]
        flat = cmd.mem == Mem.UOP if Mem.UOP in self.mems else Const(0, 1)
        dense = Signal()
        m.d.comb += dense.eq(flat | (cmd.x_stride == cmd.x_size))
        with m.If(load):
            count = Mux(flat, 1, cmd.y_size)
            m.d.sync += [
                mem.eq(cmd.mem),
                stride.eq(cmd.x_stride),
                at.eq(cmd.dram_base),
                rows.eq(Mux(cmd.x_size == 0, 0, Mux(dense, count != 0, count))),
                entries.eq(cmd.x_size * Mux(dense, count, 1)),
            ]
            m.d.sync += self._describe(tile, cmd, flat, dense)
        self._request(m, mem, at, entries)
        return m

    def _describe(self, tile, cmd, flat, dense) -> list:
        bare = C(1, 1) if self.mems == (Mem.PAR,) else flat
        pad = {name: Mux(bare, 0, cmd[name]) for name in ("x_pad_0", "x_pad_1", "y_pad_0", "y_pad_1")}
        rows = Mux(flat, 1, cmd.y_size)
        height = pad["y_pad_0"] + rows + pad["y_pad_1"]
        return [
            tile.mem.eq(cmd.mem),
            tile.empty.eq((cmd.x_size == 0) | (height == 0)),
            tile.base.eq(cmd.sram_base),
            tile.x_begin.eq(pad["x_pad_0"]),
            tile.x_final.eq(pad["x_pad_0"] + cmd.x_size - 1),
            tile.x_last.eq(pad["x_pad_0"] + cmd.x_size + pad["x_pad_1"] - 1),
            tile.y_begin.eq(pad["y_pad_0"]),
            tile.y_final.eq(pad["y_pad_0"] + rows - 1),
            tile.y_end.eq(pad["y_pad_0"] + rows),
            tile.y_last.eq(height - 1),
            tile.pad_value.eq(cmd.pad_value),
            tile.dense.eq(dense),
            tile.offset.eq(cmd.dram_base[:_PART_BITS]),
            tile.offset_step.eq(cmd.x_stride[:_PART_BITS]),
            tile.push.eq(cmd.push),
            tile.index.eq(cmd.index),
        ]

    def _request(self, m: Module, mem, at, entries) -> None:
        """Beats of `entries` entries from entry `at` on."""
        req = self.req.payload
        with m.Switch(mem):
            for name in self.mems:
                shift = beat_shift(self.cfg, name)
                with m.Case(name):
                    if shift >= 0:
                        first, count = (_in_units(name, value) for value in (at, entries))
                        m.d.comb += [req.addr.eq(first << shift), req.beats.eq(count << shift)]
                    else:
                        end = at[:-shift] + entries + ((1 << -shift) - 1)
                        m.d.comb += [req.addr.eq(at >> -shift), req.beats.eq(end >> -shift)]


class Walker(wiring.Component):
    """Walks the entries of a tile, one per cycle, without a pause between tiles.

    Members: `tile`, `step`. Latency `WALK_LATENCY`.
    """

    def __init__(self, cfg: Config, *, mems: tuple[Mem, ...]):
        self.cfg, self.mems = cfg, mems
        super().__init__({"tile": In(stream.Signature(tile_layout())), "step": Out(stream.Signature(step_layout(cfg)))})

    def elaborate(self, platform):
        """Counters of column, row, entries so far, and the place in the beat."""
        m = Module()
        tile, step = self.tile.payload, Signal(step_layout(self.cfg), reset_less=True)
        x, y, count = Signal(17), Signal(17), Signal(_count_bits(self.cfg))
        row_offset, column = (
            Signal(_PART_BITS),
            Signal(_PART_BITS),
        )  # places in the beat: of the row's first entry; entries since
        advance, x_last, last, pad, part, full = Signal(), Signal(), Signal(), Signal(), Signal(_PART_BITS), Signal()
        in_row = Signal()
        m.d.comb += [
            advance.eq(self.tile.valid & (~self.step.valid | self.step.ready)),
            x_last.eq(x == tile.x_last),
            last.eq((x_last & (y == tile.y_last)) | tile.empty),
            in_row.eq((y >= tile.y_begin) & (y < tile.y_end)),
            pad.eq(~in_row | (x < tile.x_begin) | (x > tile.x_final)),
            part.eq(tile.offset + row_offset + column),
            self.tile.ready.eq(advance & last),
            self.step.payload.eq(step),
        ]
        self._end_of_beat(m, tile.mem, part, full)
        ends = (~tile.dense | (y == tile.y_final)) & (x == tile.x_final)
        with m.If(~self.step.valid | self.step.ready):
            m.d.sync += self.step.valid.eq(self.tile.valid)
        with m.If(advance):
            m.d.sync += [
                step.mem.eq(tile.mem),
                step.empty.eq(tile.empty),
                step.pad.eq(pad),
                step.pad_value.eq(tile.pad_value),
                step.addr.eq(tile.base + count),
                step.part.eq(part),
                step.leave.eq(full | ends),
                step.last.eq(last),
                step.push.eq(tile.push),
                step.index.eq(tile.index),
                count.eq(count + ~count[-1]),  # stays beyond every scratchpad
                x.eq(x + 1),
                column.eq(column + ~pad),
            ]
            with m.If(x_last):
                m.d.sync += [x.eq(0), y.eq(y + 1)]
                with m.If(in_row & ~tile.dense):
                    m.d.sync += [row_offset.eq(row_offset + tile.offset_step), column.eq(0)]
            with m.If(last):
                m.d.sync += [x.eq(0), y.eq(0), count.eq(0), row_offset.eq(0), column.eq(0)]
        return m

    def _end_of_beat(self, m: Module, mem, part, full) -> None:
        with m.Switch(mem):
            for name in self.mems:
                with m.Case(name):
                    bits = max(-beat_shift(self.cfg, name), 0)
                    m.d.comb += full.eq(part[:bits].all() if bits else 1)


class Writer(wiring.Component):
    """Writes steps: all lanes of a padding entry at once, data beat by beat.

    Members: `step`, `beats`, `write_<mem>`, `done`, `hold`, `idle`, `fault`, `bytes`, `memory_wait`, `progress`: see
    `Mover`.
    """

    def __init__(self, cfg: Config, *, mems: tuple[Mem, ...]):
        self.cfg, self.mems = cfg, mems
        super().__init__(
            {
                "step": In(stream.Signature(step_layout(cfg))),
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
        )

    def elaborate(self, platform):
        """One register between beats and scratchpads; a counter of an entry's chunks."""
        m = Module()
        step, go, read = self.step.payload, Signal(), Signal()
        chunk, final = Signal(10), Signal()
        room = ~self.done.valid | self.done.ready
        m.d.comb += [
            read.eq(self.step.valid & ~step.empty & ~step.pad),
            go.eq(self.step.valid & ~self.hold & (~step.last | room) & (~read | self.beats.valid)),
            self.memory_wait.eq(read & ~self.beats.valid),
            self.progress.eq(go),
            self.step.ready.eq(go & (final | ~read)),
            self.beats.ready.eq(go & read & (step.leave | ~final)),
            self.idle.eq(~self.step.valid & ~self.done.valid),
        ]
        with m.If(go & read):
            m.d.sync += chunk.eq(Mux(final, 0, chunk + 1))
        with m.If(self.done.ready):
            m.d.sync += self.done.valid.eq(0)
        with m.If(go & step.last & self.step.ready):
            m.d.sync += [self.done.valid.eq(1), self.done.payload.eq(step.push)]
        for mem in self.mems:
            self._write(m, mem, go & ~step.empty, read, chunk, final)
        self._check(m, go, read)
        return m

    def _write(self, m: Module, mem: Mem, go, read, chunk, final) -> None:
        """The registered write port of `mem`."""
        step, port = self.step.payload, getattr(self, f"write_{mem.name.lower()}")
        lanes, word = len(port.en), len(port.data)
        bits = {Mem.INP: self.cfg.inp_bits, Mem.WGT: self.cfg.wgt_bits}.get(mem, 32)
        padding = Signal(bits, name=f"padding_{mem.name.lower()}")
        addr, datum = (Signal.like(s, reset_less=True) for s in (port.addr, port.data))
        m.d.comb += [padding.eq(step.pad_value.as_signed()), port.addr.eq(addr), port.data.eq(datum)]
        m.d.sync += port.en.eq(0)
        for name in loaded_as(self.cfg, (mem,)):
            shift = beat_shift(self.cfg, name)
            chunks = units(name) << max(shift, 0)
            en = Const((1 << lanes) - 1, lanes) if chunks == 1 else self._lanes(chunk, chunks, lanes)
            with m.If(step.mem == name):
                m.d.comb += final.eq(chunk == chunks - 1)
                m.d.sync += [
                    addr.eq(step.addr),
                    datum.eq(Mux(step.pad, padding.replicate(word // bits), self._datum(name, -shift, word))),
                ]
                with m.If(go & (step.addr < depth(self.cfg, mem))):
                    m.d.sync += port.en.eq(Mux(step.pad, (1 << lanes) - 1, en))
                with m.If(go & read):
                    m.d.comb += self.bytes.eq(min(entry_bytes(self.cfg, name), self.cfg.axi_bits // 8))

    @staticmethod
    def _lanes(chunk, chunks: int, lanes: int):
        """Enables of the lanes of one chunk."""
        return Cat((chunk[: (chunks - 1).bit_length()] == k).replicate(lanes // chunks) for k in range(chunks))

    def _datum(self, name: Mem, parts_log2: int, word: int):
        """What of a beat is written: all of it, or one entry; int8 becomes int32."""
        beat = self.beats.payload.data
        if parts_log2 > 0:
            beat = beat.word_select(self.step.payload.part[:parts_log2], self.cfg.axi_bits >> parts_log2)
        if name == Mem.ACC8:
            beat = Cat(Cat(beat[k : k + 8], beat[k + 7].replicate(24)) for k in range(0, len(beat), 8))
        return beat.replicate(word // len(beat))

    def _check(self, m: Module, go, read) -> None:
        """Keeps the first fault."""
        step = self.step.payload
        beyond = Signal()
        for name in loaded_as(self.cfg, self.mems):
            with m.If(step.mem == name):
                m.d.comb += beyond.eq(step.addr >= depth(self.cfg, name))
        with m.If(go & ~step.empty & (self.fault.code == Error.NONE)):
            with m.If(read & self.beats.payload.error):
                m.d.sync += [self.fault.code.eq(Error.READ_RESPONSE), self.fault.index.eq(step.index)]
            with m.Elif(beyond):
                m.d.sync += [self.fault.code.eq(Error.RANGE), self.fault.index.eq(step.index)]
