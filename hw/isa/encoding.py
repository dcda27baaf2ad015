"""Words of named bit fields, and the instruction set of one configuration: formats, decoder, disassembler.

An instruction is 128 bits, held as two little-endian uint64 words; a micro-op is 32 bits, the post-processing
parameters of a channel are 96.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError, EncodingError
from ..rounding import CONTRACTS
from ..units import FLAGS, POP_NEXT, POP_PREV, PUSH_NEXT, PUSH_PREV, Queue, absent_flags, queues
from .table import LOADS, OPERATIONS, SECOND_BITS, SECOND_SPACE, AluOp, Mem, Op, form_of, instruction, queue_of, rows_of

if TYPE_CHECKING:
    from ..config import Config


@dataclass(frozen=True)
class Field:
    """One bit field: `bits` wide; `lo` is its lowest bit, -1 for "after the field before"."""

    name: str
    bits: int
    doc: str
    signed: bool = False
    lo: int = -1

    @property
    def limits(self) -> tuple[int, int]:
        """Smallest and largest value, both included."""
        return (-(1 << self.bits - 1), (1 << self.bits - 1) - 1) if self.signed else (0, (1 << self.bits) - 1)

    def decode(self, words: NDArray[np.uint64]) -> np.ndarray:
        """Its values, int64 (n,), in `words`, uint64 (n, words of the format)."""
        word, bit = divmod(self.lo, 64)
        v = words[:, word] >> np.uint64(bit)
        if bit + self.bits > 64:
            v = v | words[:, word + 1] << np.uint64(64 - bit)
        v = (v & np.uint64((1 << self.bits) - 1)).astype(np.int64)
        return np.where(v >> (self.bits - 1), v - (1 << self.bits), v) if self.signed else v


class Format:
    """A fixed-width word of named fields; no field crosses a 64-bit boundary unless the word is `dense`.

    `fixed` are further fields, each of which has one value in all words.
    Raises `ConfigError` when the fields need more bits than the word has.
    """

    def __init__(
        self, name: str, width: int, *fields: Field, dense: bool = False, fixed: Mapping[Field, int] | None = None
    ):
        self.name, self.width, self.fixed = name, width, dict(fixed or {})
        self.fields: dict[str, Field] = {}
        pos = 0
        for f in fields:
            lo = pos if f.lo < 0 else f.lo
            if f.lo < 0 and not dense and lo // 64 != (lo + f.bits - 1) // 64:
                lo = -(-lo // 64) * 64
            if lo < pos:
                raise ConfigError(f"{name}.{f.name} must start at bit {lo}, but the fields before it need {pos} bits")
            self.fields[f.name] = Field(f.name, f.bits, f.doc, f.signed, lo)
            pos = lo + f.bits
        if pos > width:
            raise ConfigError(f"{name}: the fields need {pos} bits, the word has {width}")

    def encode(self, n: int = 1, **values: object) -> np.ndarray:
        """Words, uint64 (n, ceil(width / 64)), from scalars or integer arrays of length `n`; absent fields are 0.

        Raises `EncodingError` for an unknown field or a value outside it.
        """
        out = np.zeros((n, -(-self.width // 64)), np.uint64)
        for f, value in self.fixed.items():
            out[:, f.lo // 64] |= np.uint64(value << f.lo % 64)
        for key, value in values.items():
            f = self.fields.get(key)
            if f is None:
                raise EncodingError(f"{self.name} has no field {key!r}; it has {', '.join(self.fields)}")
            v = np.asarray(value, np.int64)
            for edge in (v.min(), v.max()) if v.size else ():
                self.check(key, int(edge))
            v, (word, bit) = v.astype(np.uint64) & np.uint64((1 << f.bits) - 1), divmod(f.lo, 64)
            out[:, word] |= v << np.uint64(bit)
            if bit + f.bits > 64:
                out[:, word + 1] |= v >> np.uint64(64 - bit)
        return out

    def check(self, key: str, value: int) -> None:
        """Raise `EncodingError` where the field `key` does not hold `value`."""
        f, (low, high) = self.fields[key], self.fields[key].limits
        if not low <= value <= high:
            raise EncodingError(f"{self.name}.{key} = {value}: outside {low}..{high} ({f.bits} bits)")

    def decode(self, words: NDArray[np.uint64]) -> dict[str, np.ndarray]:
        """Fields, int64 (n,) each, of `words`, uint64 (n, ceil(width / 64))."""
        return {f.name: f.decode(words) for f in self.fields.values()}

    def table(self) -> str:
        """The fields as a Markdown table."""
        fields = [*self.fields.values(), *(replace(f, doc=f"is {value}") for f, value in self.fixed.items())]
        rows = [f"| {f.lo + f.bits - 1}:{f.lo} | `{f.name}` | {f.doc} |" for f in sorted(fields, key=lambda f: f.lo)]
        return "\n".join(["| bits | field | meaning |", "|---|---|---|", *rows])


ITER_BITS = 14


def _head() -> list[Field]:
    return [
        Field("op", 3, "opcode"),
        Field(POP_PREV, 1, "wait for and take a token from the previous queue"),
        Field(POP_NEXT, 1, "wait for and take a token from the next queue"),
        Field(PUSH_PREV, 1, "afterwards give a token to the previous queue"),
        Field(PUSH_NEXT, 1, "afterwards give a token to the next queue"),
    ]


def _address() -> list[Field]:
    return [
        Field("mem", 3, "memory id"),
        Field("sram_base", 16, "first scratchpad entry"),
        Field("dram_base", 32, "first DRAM entry"),
    ]


def _tile(bits: int) -> list[Field]:
    return [
        Field("y_size", bits, "rows", lo=64),
        Field("x_size", bits, "entries per row"),
        Field("x_stride", 16, "entries from row to row in DRAM"),
    ]


def _pads(bits: int, what: str) -> list[Field]:
    sides = (("y_pad_0", "rows before"), ("y_pad_1", "rows after"))
    sides += (("x_pad_0", "columns before"), ("x_pad_1", "columns after"))
    return [Field(name, bits, f"{what} {side}") for name, side in sides]


def _loops(uop_bits: int) -> list[Field]:
    return [
        Field("reset", 1, "write zero instead of accumulating (unused by ALU)"),
        Field("uop_bgn", uop_bits, "first micro-op"),
        Field("uop_end", uop_bits + 1, "one past the last micro-op"),
        Field("iter_out", ITER_BITS, "trips of the outer loop"),
        Field("iter_in", ITER_BITS, "trips of the inner loop"),
    ]


def _steps(**bits: int) -> list[Field]:
    return [
        Field(f"{index}_{loop}", n, f"step of {index} per {which} trip")
        for index, n in bits.items()
        for loop, which in (("out", "outer"), ("in", "inner"))
    ]


PAR = Format(
    "PAR",
    96,
    Field("bias", 32, "added to the accumulator, wrapping at 32 bits", signed=True),
    Field("multiplier", 31, "scale = multiplier * 2 ** (exponent - 31)"),
    Field("exponent", 6, "see multiplier", signed=True),
    Field("zero_point", 8, "added to the rounded product", signed=True),
    Field("low", 8, "results below are low", signed=True),
    Field("high", 8, "then, results above are high", signed=True),
    Field("mode", 1, f"rounding: {', '.join(f'{k} {name}' for k, name in enumerate(CONTRACTS))}"),
    dense=True,
)


class Isa:
    """Formats of one configuration, and what needs more than one format: decoding and disassembly.

    `formats` maps `LOAD`, `LOADP`, `STORE`, `STOREQ`, `GEMM`, `DWGEMM`, `TERNARY`, `ALU`, `ALUX`, `FINISH`, `UOP` and
    `PAR` to their `Format`. Raises `ConfigError` where the depths do not fit the words.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        uop, inp, wgt, acc = (d.bit_length() - 1 for d in (cfg.uop_depth, cfg.inp_depth, cfg.wgt_depth, cfg.acc_depth))
        if acc + inp + wgt > 32:
            raise ConfigError(
                f"Config.acc_bytes, inp_bytes, wgt_bytes: depths {cfg.acc_depth}, {cfg.inp_depth}, {cfg.wgt_depth} "
                f"need {acc + inp + wgt} index bits, a micro-op has 32"
            )
        loops, steps = _loops(uop), _steps(dst=acc, src=inp, wgt=wgt)
        for name, most in (("overwrite", 13), ("depthwise_rows", 12)):
            if name in cfg.extensions and uop > most:
                allowed = f"at most {1 << most} micro-ops ({cfg.uop_entry_bytes << most} bytes)"
                raise ConfigError(f"Config.uop_bytes = {cfg.uop_bytes}: extension {name} needs {allowed}")
        overwrite = [Field("overwrite", 1, "acc[d] = dot instead of acc[d] += dot", lo=63)]
        rows, taps = "depthwise_rows" in cfg.extensions, (cfg.row_taps - 1).bit_length()
        extra = [Field("extra_taps", taps, "neighbours of the input that are multiplied, too", lo=63 - taps)]
        gemm = [*_head(), *loops]
        last = [*(overwrite if "overwrite" in cfg.extensions else []), *steps]
        wide, narrow = _tile(16), _tile(12)
        par = [
            Field("par_base", 10, "PAR entry of row 0", lo=112),
            Field("par_step", 6, "PAR entries from row to row"),
        ]
        alu = [
            Field("alu_op", 3, "operation"),
            Field("use_imm", 1, "second operand is imm, not acc[src]"),
            Field("imm", 16, "immediate", signed=True),
        ]
        elements = [*_head(), *loops, *_steps(dst=acc, src=inp)]
        plain = Format("ALU", 128, *elements, *alu)
        number = replace(alu[0], bits=SECOND_BITS, doc=f"operation, {SECOND_SPACE} or more")
        second = [plain.fields["use_imm"], number, replace(alu[2], bits=alu[2].bits - SECOND_BITS)]
        self.uop = Format(
            "UOP",
            32,
            Field("dst", acc, "accumulator index"),
            Field("src", inp, "input index (ALU: accumulator index)"),
            Field("wgt", wgt, "weight index (ALU: unused)"),
        )
        mem = [*_head(), *_address()]
        pad_value = Field("pad_value", 8, "value of the padding", signed=True)
        self.formats = {
            "LOAD": Format("LOAD", 128, *mem, *wide, *_pads(4, "zero")),
            "STORE": Format("STORE", 128, *mem, *wide, *_pads(4, "unused:")),
            "GEMM": Format("GEMM", 128, *gemm, *last),
            "FINISH": Format("FINISH", 128, *_head()),
            "ALU": plain,
            "ALUX": Format("ALUX", 128, *elements, *second, fixed={plain.fields["alu_op"]: AluOp.REDUCE}),
            "LOADP": Format("LOADP", 128, *mem, *narrow, *_pads(4, "padded"), pad_value),
            "DWGEMM": Format("DWGEMM", 128, *gemm, *(extra if rows else []), *last),
            "TERNARY": Format("TERNARY", 128, *gemm, *last),
            "STOREQ": Format("STOREQ", 128, *mem, *wide, *par),
            "UOP": self.uop,
            "PAR": PAR,
        }
        self._absent = {queue: absent_flags(cfg, queue) for queue in queues(cfg)}
        opcode_alone = Format("UNKNOWN", 128, Field("op", 3, "opcode"))
        by_kind = [[self.format_of({"op": op, "mem": mem}) or opcode_alone for mem in range(8)] for op in range(8)]
        self._decoders = [*dict.fromkeys(fmt for row in by_kind for fmt in row), self.formats["ALUX"]]
        self._kinds = np.array([[self._decoders.index(fmt) for fmt in row] for row in by_kind])

    def format_of(self, f: Mapping[str, int]) -> Format | None:
        """The format of the decoded instruction `f`, declared or not; None where no opcode is declared."""
        name = form_of(f)
        return None if name is None else self.formats[name]

    def decode(self, words: NDArray[np.uint64]) -> list[dict[str, int]]:
        """Fields of every instruction of `words`, uint64 (n, 2).

        Instructions without a declared opcode decode to `{"op": opcode}` alone; `undecodable` says so.
        """
        words = np.reshape(np.ascontiguousarray(words, np.uint64), (-1, 2))
        low = words[:, 0].astype(np.uint16)
        kind = self._kinds[low & 7, low >> 7 & 7]
        at = np.flatnonzero((low & 7) == Op.ALU)
        plain, number = (self.formats[name].fields["alu_op"].decode(words[at]) for name in ("ALU", "ALUX"))
        kind[at[(plain == AluOp.REDUCE) & (number >= SECOND_SPACE)]] = len(self._decoders) - 1
        out: list[dict[str, int]] = [{} for _ in range(len(words))]
        for k, fmt in enumerate(self._decoders):
            rows = np.flatnonzero(kind == k)
            if len(rows):
                columns = fmt.decode(words[rows])
                names = tuple(columns)
                for row, values in zip(rows.tolist(), zip(*(c.tolist() for c in columns.values()))):
                    out[row] = dict(zip(names, values))
        return out

    def undecodable(self, f: dict[str, int]) -> str | None:
        """Why the decoded instruction `f` is not one of this configuration's, or None where it is."""
        row = instruction(f["op"], f.get("mem"))
        if row is None or (row.empty and f.get("x_size") != 0):
            return _undeclared(f)
        operation = OPERATIONS.get(f["alu_op"]) if row.op == Op.ALU else None
        if row.op == Op.ALU and operation is None:
            return f"ALU operation {f['alu_op']} is not declared"
        if missing := row.missing(self.cfg):
            return f"{missing} is not in configuration {self.cfg.name}"
        for name in operation.extensions if operation else ():
            if name not in self.cfg.extensions:
                return f"extension {name} is not in configuration {self.cfg.name}"
        if row.queue not in self._absent:
            return f"queue {row.queue.name} is not in configuration {self.cfg.name}"
        if operation and operation.imm and not f["use_imm"]:
            return f"{operation.op.name} without use_imm: its operand is a {operation.imm}"
        if operation and (most := operation.immediates(self.cfg)) and not 0 <= f["imm"] < most:
            return f"{operation.op.name} with imm {f['imm']}: {operation.imm}s are 0 to {most - 1}"
        if f.get("overwrite") and f["reset"]:
            return "reset and overwrite are both set"
        return self._flag_to_nowhere(f, row.queue)

    def _flag_to_nowhere(self, f: dict[str, int], queue: Queue) -> str | None:
        """Names a token flag towards a queue that does not exist."""
        for flag in self._absent[queue]:
            if f.get(flag):
                return f"{flag} is set, but queue {queue.name} has no {flag[-4:]} queue"
        return None

    def queue(self, f: dict[str, int]) -> Queue:
        """The queue of a decoded instruction that `undecodable` accepts."""
        return queue_of(f["op"], f.get("mem"))

    def mnemonic(self, f: dict[str, int]) -> str:
        """The first word of the disassembly of a decoded instruction with a declared opcode."""
        name = rows_of(f["op"])[0].op.name
        if "mem" in f:
            row = instruction(f["op"], f["mem"])
            return f"{name}.{(Mem(f['mem']) if row is None or row.mem is None else row.mem).name}"
        if f["op"] == Op.ALU:
            operation = OPERATIONS.get(f["alu_op"])
            return f"{name}.{f['alu_op'] if operation is None else operation.op.name}"
        return name

    def disassemble(self, f: dict[str, int]) -> str:
        """One line of text for a decoded instruction; every field that is not zero is shown."""
        if not rows_of(f["op"]):
            return f"undecodable opcode {f['op']}"
        name, skip = self.mnemonic(f), {"op", "mem", "alu_op", *FLAGS}
        flags = [flag for flag in FLAGS if f.get(flag)]
        body = [f"{k}={v}" for k, v in f.items() if k not in skip and (v or k in ("x_size", "y_size"))]
        return " ".join([name, *body, *flags])


def _undeclared(f: dict[str, int]) -> str:
    """Says of the opcode or the memory id that it has no row."""
    if not rows_of(f["op"]):
        return f"opcode {f['op']} is not declared"
    if f["op"] in LOADS:
        return f"memory id {f['mem']} cannot be loaded by {Op(f['op']).name}"
    return f"memory id {f['mem']} cannot be stored"


@lru_cache(maxsize=8)
def known_isa(cfg: Config) -> Isa:
    """The instruction set of `cfg`, made once."""
    return Isa(cfg)
