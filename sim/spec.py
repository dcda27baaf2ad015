"""The definition of the instruction set: executes a binary program one element after the other.

docs/isa.md shows these functions beside the fields of each instruction. They are written to be read; sim/model/ is
their fast form. Values are Python's integers, which have no width: where a value has one, `signed` says so.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import numpy as np

from ..hw.config import Config
from ..hw.errors import AccessError, DeadlockError, ExecutionError, TokenError
from ..hw.isa import PAR, REDUCTIONS, AluOp, Format, Isa, Mem, Op, depth, entry_bytes, mem_of, room, row_of, table_span
from ..hw.rounding import CONTRACTS, requantise, rescale
from ..hw.units import channels, queues
from ..runtime.device import Stats, program_stats
from ..runtime.tokens import deadlock_text, left_over_text, popped, pushed
from .memory import CAPACITY, DeviceMemory, program_bytes

Fields = dict[str, int]  # of an instruction, a micro-op or the parameters of a channel, by name


def signed(value: int, bits: int) -> int:
    """The low `bits` of `value` in two's complement: values that do not fit wrap."""
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def ternary_value(value: int, bits: int) -> int:
    """The weight in the low `bits` of `value`: bit 0 says that it is not zero, bit 1 that it is negative."""
    return value & 1 and signed(value, bits)


def fields_of(word: int, fmt: Format) -> Fields:
    """The fields of `word`, whose format is `fmt`."""
    unsigned = {f: (word >> f.lo) % (1 << f.bits) for f in fmt.fields.values()}
    return {f.name: signed(value, f.bits) if f.signed else value for f, value in unsigned.items()}


class Scratchpad(dict[int, list]):
    """Entries by index, from `first` on. An index outside raises `AccessError`: it never wraps."""

    def __init__(self, mem: Mem, entries: Iterable[list], first: int = 0):
        super().__init__(enumerate(entries, first))
        self.name, self.end = mem.name, first + len(self)

    def __missing__(self, index: int) -> list:
        raise AccessError(f"{self.name} entry {index} is outside 0..{self.end - 1}")


class SpecDevice(DeviceMemory):
    """An accelerator of configuration `cfg`: scratchpads, which start at zero and keep their contents, and DRAM.

    `inp[entry][batch][input channel]`, `wgt[entry][output channel][input channel]`, `acc[entry][batch][output channel]`
    are integers, `uop[entry][0]` and `par[entry][output channel]` fields; `tables[entry]` is a part of a table, of the
    PAR entry with that index. Unit `ternary` has `twgt[entry][channel of a block][input channel]`, the channels of one
    block behind those of another, and `tuop`. `choose` is that of `order`.
    """

    def __init__(self, cfg: Config, *, capacity: int = CAPACITY, choose: Callable[[list[int]], int] = min):
        super().__init__(capacity)
        self.cfg, self.isa, self.dram, self.choose = cfg, Isa(cfg), self.bytes, choose
        held = (Mem.UOP, Mem.INP, Mem.WGT, Mem.PAR, Mem.ACC, Mem.TWGT, Mem.TUOP)
        pads = [Scratchpad(mem, (self.entry(mem, b"") for _ in range(depth(cfg, mem)))) for mem in held]
        self.uop, self.inp, self.wgt, self.par, self.acc, self.twgt, self.tuop = pads
        self.scratchpads = {**dict(zip(held, pads)), Mem.ACC8: self.acc, Mem.WGT4: self.wgt}
        words = ([0] * cfg.table_words for _ in range(room(cfg, Mem.PAR) - cfg.par_entries))
        self.tables = Scratchpad(Mem.PAR, words, cfg.par_entries)

    def run(self, insn_address: int, insn_count: int) -> Stats:
        """`run_image` with the device's own memory as DRAM."""
        return self.run_image(self.bytes, insn_address, insn_count)

    def run_image(self, image: np.ndarray, insn_address: int, insn_count: int) -> Stats:
        """Execute `insn_count` instructions from byte address `insn_address` on, with `image`, uint8 (n,), as DRAM.

        All are decoded first, so a program cannot change itself; each executes completely before the next. Raises the
        errors of `check` and `order`, and `AccessError` outside a memory: then the contents of memories are undefined.
        """
        self.starts += 1
        words = np.frombuffer(program_bytes(image, insn_address, insn_count), np.uint64).reshape(-1, 2)
        insns = self.isa.decode(words)
        names = [f"instruction {k} ({self.isa.disassemble(f)})" for k, f in enumerate(insns)]
        check(self.isa, insns, names)
        self.dram = image
        for k in order(self.isa, insns, names, self.choose):
            try:
                FUNCTIONS[Op(insns[k]["op"])](self, insns[k])
            except AccessError as exc:
                raise AccessError(f"{names[k]}: {exc}", k) from None
        return program_stats(self.isa, words)

    def shape(self, mem: Mem) -> tuple[int, int, int]:
        """(rows, columns, bits of an element) of an entry of `mem`."""
        cfg, mem = self.cfg, Mem.WGT if mem == Mem.WGT4 else mem
        columns = cfg.block_in if mem in (Mem.INP, Mem.WGT, Mem.TWGT) else cfg.block_out
        rows = {Mem.WGT: cfg.block_out, Mem.TWGT: cfg.ternary_blocks * cfg.block_out}.get(mem, cfg.batch)
        return rows, columns, 8 * entry_bytes(cfg, mem) // (rows * columns)

    def entry(self, mem: Mem, data: bytes | np.ndarray) -> list:
        """The entry of `mem` that `data` encode, little-endian: element i is in bits [i * w, (i + 1) * w).

        WGT4 has the scale of each row, 4 bits without sign, then elements of 4 bits, which are multiplied by it.
        """
        number = int.from_bytes(data, "little")
        if mem in (Mem.UOP, Mem.TUOP):
            return [fields_of(number, self.isa.uop)]
        if mem == Mem.PAR:
            return [fields_of(number >> c * PAR.width, PAR) for c in range(self.cfg.block_out)]
        rows, columns, bits = self.shape(mem)
        if mem == Mem.WGT4:
            q = [[number >> 4 * (rows + r * columns + c) for c in range(columns)] for r in range(rows)]
            return [[signed(value, 4) * (number >> 4 * r & 15) for value in q[r]] for r in range(rows)]
        value = ternary_value if mem == Mem.TWGT else signed
        return [[value(number >> (r * columns + c) * bits, bits) for c in range(columns)] for r in range(rows)]

    def fill(self, mem: Mem, at: int, data: np.ndarray) -> None:
        """Put the entry that `data` encode into the scratchpad of `mem`; in PAR tables follow the parameters."""
        if mem == Mem.PAR and at >= self.cfg.par_entries:
            number = int.from_bytes(data, "little")
            self.tables[at][:] = [signed(number >> 32 * i, 32) for i in range(self.cfg.table_words)]
        else:
            self.scratchpads[mem][at][:] = self.entry(mem, data)

    def put(self, mem: Mem, index: int, entry: list[list[int]]) -> None:
        """Write the low bits of each element of `entry` to entry `index` of `mem` in DRAM."""
        target, bits = self.in_dram(mem, index), self.shape(mem)[2]
        number = sum(v % (1 << bits) << i * bits for i, v in enumerate(v for row in entry for v in row))
        target[:] = list(number.to_bytes(len(target), "little"))

    def in_dram(self, mem: Mem, index: int) -> np.ndarray:
        """The bytes of entry `index` of `mem` in DRAM, a view."""
        size = entry_bytes(self.cfg, mem)
        if (index + 1) * size > len(self.dram):
            raise AccessError(f"{size} bytes at {index * size:#x} are outside DRAM, 0..{len(self.dram) - 1:#x}")
        return self.dram[index * size : (index + 1) * size]


def load(m: SpecDevice, f: Fields) -> None:
    """LOAD and LOADP: rows of entries from DRAM, padding around them, to consecutive entries of a scratchpad."""
    row, mem, at, columns = row_of(f["op"], f["mem"]), mem_of(f["op"], f["mem"]), f["sram_base"], f["x_size"]
    rows = 1 if row.one_row else f["y_size"]
    top, bottom, left, right = (f[k] if row.pads else 0 for k in ("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1"))
    for y in range(-top, rows + bottom) if columns else ():  # without columns there is no padding either
        for x in range(-left, columns + right):
            if 0 <= y < rows and 0 <= x < columns:
                m.fill(mem, at, m.in_dram(mem, f["dram_base"] + y * f["x_stride"] + x))
            else:
                height, width, bits = m.shape(mem)
                m.scratchpads[mem][at][:] = [[signed(f.get("pad_value", 0), bits)] * width for _ in range(height)]
            at += 1


def store(m: SpecDevice, f: Fields) -> None:
    """STORE to OUT: the low bits of each element of consecutive accumulator entries, to rows in DRAM."""
    for y, x in np.ndindex(f["y_size"], f["x_size"]):
        values = m.acc[f["sram_base"] + y * f["x_size"] + x]
        m.put(Mem.OUT, f["dram_base"] + y * f["x_stride"] + x, values)


def storeq(m: SpecDevice, f: Fields) -> None:
    """STORE to OUTQ: as to OUT, but each element is requantised with the parameters of its row and channel."""
    for y, x in np.ndindex(f["y_size"], f["x_size"]):
        values, par = m.acc[f["sram_base"] + y * f["x_size"] + x], m.par[f["par_base"] + y * f["par_step"]]
        out = [[requantised(value, p) for value, p in zip(row, par)] for row in values]
        m.put(Mem.OUTQ, f["dram_base"] + y * f["x_stride"] + x, out)


def requantised(value: int, p: Fields) -> int:
    """The output byte of an accumulator of a channel with the parameters `p`."""
    total, contract = signed(value + p["bias"], 32), CONTRACTS[p["mode"]]
    return int(requantise(total, p["multiplier"], p["exponent"], p["zero_point"], p["low"], p["high"], contract))


def indices(m: SpecDevice, f: Fields) -> Iterator[tuple[int, int, int]]:
    """(dst, src, wgt) of every micro-op that GEMM, DWGEMM, ALU or TERNARY issues, in order."""
    if not f["uop_bgn"] <= f["uop_end"] <= m.cfg.uop_depth:
        raise AccessError(f"micro-ops {f['uop_bgn']}..{f['uop_end'] - 1} are not among 0..{m.cfg.uop_depth - 1}")
    uops = range(f["uop_bgn"], f["uop_end"])
    for i, j in np.ndindex(f["iter_out"], f["iter_in"]) if uops else ():
        for k in uops:
            (u,) = (m.tuop if f["op"] == Op.TERNARY else m.uop)[k]
            d = u["dst"] + i * f["dst_out"] + j * f["dst_in"]
            s = u["src"] + i * f["src_out"] + j * f["src_in"]
            w = u["wgt"] + i * f.get("wgt_out", 0) + j * f.get("wgt_in", 0)
            yield d, s, w


def gemm(m: SpecDevice, f: Fields) -> None:
    """GEMM: an entry of inputs times an entry of weights, added to an entry of accumulators."""
    accumulate(m, f, lambda s, w, b, c: sum(x * y for x, y in zip(m.inp[s][b], m.wgt[w][c])))


def dwgemm(m: SpecDevice, f: Fields) -> None:
    """DWGEMM: an entry of inputs times row `wgt` of all weights, channel by channel, added to accumulators.

    With `extra_taps`, as many neighbours of both as well: `wgt` then counts groups of `row_taps` rows.
    """
    taps, block = range(1 + f.get("extra_taps", 0)), m.cfg.block_in

    def product(s: int, w: int, b: int, c: int) -> int:
        rows = [w * m.cfg.row_taps + t if len(taps) > 1 else w for t in taps]
        return sum(m.inp[s + t][b][c] * m.wgt[row // block][row % block][c] for t, row in zip(taps, rows))

    accumulate(m, f, product)


def ternary(m: SpecDevice, f: Fields) -> None:
    """TERNARY: as GEMM, with several blocks in an entry of weights, each for a plane of accumulators of its own."""
    plane, bank, block = m.cfg.plane_depth, m.cfg.bank_depth, m.cfg.block_out
    for d, _, _ in indices(m, f):
        if d % bank >= plane:
            raise AccessError(f"ACC entry {d} is not in the first plane of a bank, {plane} of every {bank} entries")

    def product(s: int, w: int, b: int, c: int, t: int) -> int:
        return sum(x * y for x, y in zip(m.inp[s][b], m.twgt[w][t * block + c]))

    for t in range(m.cfg.ternary_blocks):
        accumulate(m, f, partial(product, t=t), t * plane)


def accumulate(m: SpecDevice, f: Fields, product: Callable[[int, int, int, int], int], behind: int = 0) -> None:
    """Add `product(src, wgt, batch, channel)` to every element of an entry; `overwrite` stores it, `reset` zero.

    The entry is as far `behind` that of the micro-op.
    """
    for d, s, w in indices(m, f):
        for b, c in np.ndindex(m.cfg.batch, m.cfg.block_out):
            acc = m.acc[d + behind][b]
            acc[c] = 0 if f["reset"] else signed((0 if f.get("overwrite") else acc[c]) + product(s, w, b, c), 32)


def alu(m: SpecDevice, f: Fields) -> None:
    """ALU: every element of an entry of accumulators becomes op(itself, immediate or element of another entry)."""
    imm, op = f["imm"], AluOp(f["alu_op"])
    for d, s, _ in indices(m, f):
        for b in range(m.cfg.batch):
            row = m.acc[d][b]
            if op == AluOp.RESCALE:
                scales = [(p["multiplier"], p["exponent"], CONTRACTS[p["mode"]]) for p in m.par[imm]]
                results = [int(rescale(a, *scale)) for a, scale in zip(row, scales)]
            elif op == AluOp.LOOKUP:
                results = [table_value(m, imm, a) for a in row]
            elif op == AluOp.REDUCE:
                results = [REDUCED[REDUCTIONS[imm]](row)] * len(row)
            else:
                results = [OPERATIONS[op](a, b) for a, b in zip(row, [imm] * len(row) if f["use_imm"] else m.acc[s][b])]
            row[:] = [signed(result, 32) for result in results]


def table_value(m: SpecDevice, table: int, a: int) -> int:
    """The value of `table` for `a`: the first is for -128 and below, the last for 127 and above."""
    entry, word = divmod(min(max(a, -128), 127) + 128, m.cfg.table_words)
    return m.tables[table_span(m.cfg, table).start + entry][word]


def shift_right(a: int, n: int) -> int:
    """SHR: keeps the sign; a negative amount shifts left. Amounts from 31 on leave the sign, from -32 on nothing."""
    return a >> min(n, 31) if n >= 0 else a << min(-n, 32)


def finish(m: SpecDevice, f: Fields) -> None:
    """FINISH: the last instruction of a program, and the last to execute. It changes nothing."""


OPERATIONS = {AluOp.MIN: min, AluOp.MAX: max, AluOp.ADD: operator.add, AluOp.SHR: shift_right, AluOp.MUL: operator.mul}
REDUCED = {"sum": sum, "max": max}
FUNCTIONS = {Op.LOAD: load, Op.LOADP: load, Op.GEMM: gemm, Op.DWGEMM: dwgemm, Op.ALU: alu, Op.FINISH: finish}
FUNCTIONS[Op.TERNARY] = ternary
FUNCTIONS[Op.STORE] = lambda m, f: (storeq if f["mem"] == Mem.OUTQ else store)(m, f)


def check(isa: Isa, insns: list[Fields], names: list[str]) -> None:
    """Raise `ExecutionError` for the first instruction that is undecodable, or FINISH and not the last one, or the last
    one and not FINISH."""
    last = len(insns) - 1
    for k, f in enumerate(insns):
        if reason := isa.undecodable(f):
            raise ExecutionError(f"{names[k]}: {reason}", k)
        if f["op"] == Op.FINISH and k < last:
            raise ExecutionError(f"{names[k]}: more instructions follow FINISH", k)
    if not insns or insns[last]["op"] != Op.FINISH:
        raise ExecutionError("the program has no FINISH", last if insns else None)


def order(isa: Isa, insns: list[Fields], names: list[str], choose: Callable[[list[int]], int]) -> list[int]:
    """The order in which `insns` execute: in each queue that of the program, and none before its tokens.

    `choose` picks one of those that may execute next, at most one per queue; any choice is legal. Raises `TokenError`
    for too many tokens in a channel or tokens left over, `DeadlockError`, `ExecutionError` for one after FINISH.
    """
    waiting = {queue: [k for k, f in enumerate(insns) if isa.queue(f) == queue] for queue in queues(isa.cfg)}
    every, tokens, done = channels(isa.cfg), Counter(), []
    pops, pushes = ([flags(every, isa.queue(f), f) for f in insns] for flags in (popped, pushed))
    while ready := [q[0] for q in waiting.values() if q and all(tokens[c] for c in pops[q[0]])]:
        done.append(k := choose(ready))
        waiting[isa.queue(insns[k])].remove(k)
        tokens.subtract(pops[k])
        tokens.update(pushes[k])
        for channel in (c for c in pushes[k] if tokens[c] > isa.cfg.token_depth):
            raise TokenError(f"{names[k]}: {tokens[channel]} tokens {channel}; it holds {isa.cfg.token_depth}", k)
    if len(done) < len(insns):
        heads = {queue: q[0] if q else None for queue, q in waiting.items()}
        text = deadlock_text(heads.items(), lambda k: [c for c in pops[k] if not tokens[c]], names.__getitem__)
        raise DeadlockError(text, min(k for k in heads.values() if k is not None))
    if done[-1] != len(insns) - 1:
        raise ExecutionError(f"{names[done[-1]]} executes after FINISH: nothing orders FINISH behind it", done[-1])
    for channel in (c for c in every if tokens[c]):
        last = max(k for k in done if channel in pushes[k])
        raise TokenError(left_over_text(channel, tokens[channel], names[last]), last)
    return done
