"""LOOKUP and REDUCE, which go beside the multipliers and take as long.

LOOKUP: o[k] = table[min(max(a[k], -128), 127) + 128]
REDUCE: o[k] = sum or maximum of a over the channels of k's row
"""

from __future__ import annotations

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ...config import TABLE_SIZE, Config
from ...isa import REDUCTIONS, Mem
from ..latencies import PLACE_LATENCY, RESCALE_LATENCY, TABLE_LATENCY, multipliers
from ..ports import SramWrite, group_bits, lane_bits

_WORD = 32  # bits of a value
_PLACE_BITS = (TABLE_SIZE - 1).bit_length()
_END = RESCALE_LATENCY - 1  # the stage in which the results are chosen


class FunctionUse(wiring.Signature):
    """ALU's use of the functions: in every cycle with `lookup` or `reduce` one group of lanes enters, the first group
    of an entry first.

    Members:
        lookup, reduce: out, lanes enter
        group: out, their group
        imm: out, the table or the reduction
        a: out, the entry
        o: in, results of the group that entered `RESCALE_LATENCY` cycles before, 32 bits each; 0 where none did
    """

    def __init__(self, cfg: Config):
        super().__init__(
            {
                "lookup": Out(1),
                "reduce": Out(1),
                "group": Out(group_bits(cfg)),
                "imm": Out(range(max(cfg.tables, len(REDUCTIONS)))),
                "a": Out(cfg.acc_entry_bits),
                "o": In(_WORD * multipliers(cfg)),
            }
        )


class Functions(wiring.Component):
    """The operations that the extensions of `cfg` have.

    Members:
        use: in, operands of ALU
        write: in, write port of the parameters, behind which the tables lie

    Latency `RESCALE_LATENCY`, interval 1, no back-pressure.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        super().__init__({"use": In(FunctionUse(cfg)), "write": In(SramWrite(cfg, Mem.PAR))})

    def elaborate(self, platform) -> Module:
        """The results of both; a register behind their choice."""
        m, use = Module(), self.use
        found = []
        if "lookup" in self.cfg.extensions:
            looks = _delayed(m, use.lookup, _END, "looks")
            found.append(Mux(looks[-1], self._values(m, looks), 0))
        if "lane_reduce" in self.cfg.extensions:
            reduces = _delayed(m, use.reduce, _END, "reduces")
            found.append(Mux(reduces[-1], self._reduced(m), 0))
        chosen = found[0] if len(found) == 1 else found[0] | found[1]
        m.d.sync += use.o.eq(chosen)
        return m

    def _values(self, m: Module, looks: list) -> Value:
        """What the tables hold for the lanes, in stage `_END`; each lane has a copy of them."""
        cfg, use, count = self.cfg, self.use, multipliers(self.cfg)
        part = Signal(_WORD * count, reset_less=True)
        with m.If(use.lookup):
            m.d.sync += part.eq(use.a.word_select(use.group, len(part)) if len(use.a) > len(part) else use.a)
        begin = _END - TABLE_LATENCY + 1  # the stage in which the memories get the places
        table = _delayed(m, use.imm[: (cfg.tables - 1).bit_length()], begin, "table", reset_less=True)[-1]
        beat, address, beats = self._written(m)
        low = (lane_bits(cfg, Mem.PAR) // _WORD).bit_length() - 1  # of a place: the value's number in its row
        values = []
        for k in range(count):
            place = Signal(_PLACE_BITS, name=f"place_{k}", reset_less=True)
            m.d.sync += place.eq(_place(part[_WORD * k : _WORD * (k + 1)]))
            place = _delayed(m, place, begin - PLACE_LATENCY, f"place_{k}", reset_less=True)[-1]
            m.submodules[f"table_{k}"] = memory = Memory(shape=len(beat), depth=beats, init=[])
            write, read = memory.write_port(), memory.read_port()
            m.d.comb += [write.en.eq(address[-1]), write.addr.eq(address[:-1]), write.data.eq(beat)]
            m.d.comb += [read.en.eq(looks[begin]), read.addr.eq(Cat(place, table) >> low)]
            held = Signal(len(beat), name=f"held_{k}", reset_less=True)
            with m.If(looks[begin + 1]):
                m.d.sync += held.eq(read.data)
            number = _delayed(m, place[:low], _END - begin, f"number_{k}", reset_less=True)[-1]
            values.append(held.word_select(number, _WORD) if low else held)
        return Cat(values)

    def _written(self, m: Module) -> tuple[Value, Value, int]:
        """A beat for the tables, one cycle late; its address with an enable above, and the beats of all tables."""
        cfg, write = self.cfg, self.write
        used = cfg.table_words * _WORD // lane_bits(cfg, Mem.PAR)  # beats of an entry
        entries = cfg.tables * cfg.table_entries
        beat, en, entry = Signal.like(write.data), Signal(used), Signal(range(entries))
        m.d.sync += [
            beat.eq(write.data),
            entry.eq(write.addr - cfg.par_entries),
            en.eq(Mux(write.addr >= cfg.par_entries, write.en, 0)),
        ]
        number = Signal(range(used))
        for k in range(1, used):
            with m.If(en[k]):
                m.d.comb += number.eq(k)
        return beat, Cat(number, entry, en.any()), used * entries

    def _reduced(self, m: Module) -> Value:
        """What the lanes of a group get, in stage `_END`: a tree of registers over the channels of each row."""
        cfg, use, block, count = self.cfg, self.use, self.cfg.block_out, multipliers(self.cfg)
        first = _delayed(m, use.reduce & (use.group == 0), _END, "first")
        most = _delayed(m, use.imm == REDUCTIONS.index("max"), _END, "most", reset_less=True)
        rows = [use.a[_WORD * k : _WORD * (k + 1)].as_signed() for k in range(cfg.lanes)]
        for stage in range(_END):  # what is there when a stage takes nothing stays: all groups of an entry read it
            if stage and len(rows) > cfg.batch:
                rows = [_combined(a, b, most[stage]) for a, b in zip(rows[::2], rows[1::2])]
            values = [Signal(_WORD, name=f"row_{stage + 1}_{k}", reset_less=True) for k in range(len(rows))]
            with m.If(first[stage]):
                m.d.sync += [value.eq(row) for value, row in zip(values, rows)]
            rows = [value.as_signed() for value in values]
        group = _delayed(m, use.group, _END, "group", reset_less=True)[-1]
        if count >= block:  # whole rows
            mine = Cat(row.as_unsigned().replicate(block) for row in rows)
            return mine.word_select(group, _WORD * count) if len(mine) > _WORD * count else mine
        row = group >> (block // count).bit_length() - 1
        return Cat(rows).word_select(row, _WORD).replicate(count)


def _delayed(m: Module, value: Value, stages: int, name: str, *, reset_less: bool = False) -> list[Value]:
    """`value`, and what it was 1 to `stages` cycles ago."""
    found = [value]
    for k in range(stages):
        found.append(Signal(value.shape(), name=f"{name}_{k + 1}", reset_less=reset_less))
        m.d.sync += found[-1].eq(found[-2])
    return found


def _place(a: Value) -> Value:
    """`min(max(a, -128), 127) + 128`."""
    high, sign = a[_PLACE_BITS - 1 :], a[-1]
    within = (high == 0) | high.all()
    return Mux(within, Cat(a[: _PLACE_BITS - 1], ~a[_PLACE_BITS - 1]), (~sign).replicate(_PLACE_BITS))


def _combined(a: Value, b: Value, most: Value) -> Value:
    """The sum of both, or with `most` the larger one, by one adder."""
    other = Cat(most, b.as_unsigned() ^ most.replicate(_WORD)).as_signed()  # b, or -b
    total = (Cat(C(1, 1), a).as_signed() + other)[1 : _WORD + 2]
    below = total[_WORD]  # with `most`: a < b
    return Mux(most, Mux(below, b, a), total[:_WORD])[:_WORD].as_signed()
