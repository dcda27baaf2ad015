"""The instruction set, declared once: fields, opcodes, memories, queues; numpy encoder, decoder, disassembler.

An instruction is 128 bits, held as two little-endian uint64 words; a micro-op is 32 bits, the post-processing
parameters (PAR) of one channel 96. Widths follow the depths of the configuration's scratchpads, positions follow the
order of the declaration, and no field of an instruction crosses a 64-bit boundary. The base set is VTA's, bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from .errors import ConfigError, EncodingError
from .rounding import CONTRACTS

if TYPE_CHECKING:
    from .config import Config

INSN_BYTES = 16
ITER_BITS = 14


class Op(IntEnum):
    """Opcodes, bits 2:0 of every instruction."""

    LOAD = 0
    STORE = 1
    GEMM = 2
    FINISH = 3
    ALU = 4
    LOADP = 5
    DWGEMM = 6


class Mem(IntEnum):
    """Memory ids of LOAD, LOADP and STORE."""

    UOP = 0
    WGT = 1
    INP = 2
    ACC = 3
    OUT = 4
    ACC8 = 5
    PAR = 6
    OUTQ = 7


class AluOp(IntEnum):
    """Operations of the tensor ALU."""

    MIN = 0
    MAX = 1
    ADD = 2
    SHR = 3
    MUL = 4
    RESCALE = 5


class Queue(IntEnum):
    """Command queues, in the order in which dependence tokens connect neighbours."""

    LOAD = 0
    COMPUTE = 1
    STORE = 2


POP_PREV, POP_NEXT, PUSH_PREV, PUSH_NEXT = "pop_prev", "pop_next", "push_prev", "push_next"
FLAGS = (POP_PREV, POP_NEXT, PUSH_PREV, PUSH_NEXT)

LOADABLE = frozenset({Mem.UOP, Mem.WGT, Mem.INP, Mem.ACC, Mem.ACC8, Mem.PAR})
STORABLE = frozenset({Mem.OUT, Mem.OUTQ})
PADDABLE = frozenset({Mem.WGT, Mem.INP, Mem.ACC, Mem.ACC8})
_LOAD_QUEUE = {Mem.WGT: Queue.LOAD, Mem.INP: Queue.LOAD, Mem.PAR: Queue.STORE}

EXTENSION_OF_OP = {Op.LOADP: "pad_value", Op.DWGEMM: "depthwise"}
EXTENSION_OF_MEM = {Mem.ACC8: "acc8", Mem.PAR: "requant", Mem.OUTQ: "requant"}
EXTENSION_OF_ALU = {AluOp.RESCALE: "rescale"}


def queue_of(op: Op, mem: Mem | None = None) -> Queue:
    """The command queue that executes `op`; loads are routed by the memory they name."""
    if op == Op.STORE:
        return Queue.STORE
    if op in (Op.LOAD, Op.LOADP):
        assert mem is not None
        return _LOAD_QUEUE.get(mem, Queue.COMPUTE)
    return Queue.COMPUTE


def entry_bytes(cfg: Config, mem: Mem) -> int:
    """Bytes in DRAM of one entry of `mem`: what `dram_base` and strides count."""
    return {
        Mem.UOP: cfg.uop_entry_bytes,
        Mem.WGT: cfg.wgt_entry_bytes,
        Mem.INP: cfg.inp_entry_bytes,
        Mem.ACC: cfg.acc_entry_bytes,
        Mem.OUT: cfg.out_entry_bytes,
        Mem.ACC8: cfg.batch * cfg.block_out,
        Mem.PAR: cfg.par_entry_bytes,
        Mem.OUTQ: cfg.out_entry_bytes,
    }[mem]


def depth(cfg: Config, mem: Mem) -> int:
    """Entries of the scratchpad that `mem` addresses (OUT and ACC8 address the accumulators)."""
    return {
        Mem.UOP: cfg.uop_depth,
        Mem.WGT: cfg.wgt_depth,
        Mem.INP: cfg.inp_depth,
        Mem.PAR: cfg.par_entries,
    }.get(mem, cfg.acc_depth)


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


class Format:
    """A fixed-width word of named fields; no field crosses a 64-bit boundary unless the word is `dense`.

    Raises `ConfigError` when the fields need more bits than the word has.
    """

    def __init__(self, name: str, width: int, *fields: Field, dense: bool = False):
        self.name, self.width = name, width
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
            raise ConfigError(
                f"{name}: the fields need {pos} bits, the word has {width}; choose smaller uop, inp, wgt or acc buffers"
            )

    def encode(self, n: int = 1, **values: object) -> np.ndarray:
        """Words, uint64 (n, ceil(width / 64)), from scalars or integer arrays of length `n`; absent fields are 0.

        Raises `EncodingError` for an unknown field or a value outside it.
        """
        out = np.zeros((n, -(-self.width // 64)), np.uint64)
        for key, value in values.items():
            f = self.fields.get(key)
            if f is None:
                raise EncodingError(f"{self.name} has no field {key!r}; it has {', '.join(self.fields)}")
            v = np.asarray(value, np.int64)
            low, high = f.limits
            if v.size and (v.min() < low or v.max() > high):
                bad = int(v.min()) if v.min() < low else int(v.max())
                raise EncodingError(f"{self.name}.{key} = {bad}: outside {low}..{high} ({f.bits} bits)")
            v, (word, bit) = v.astype(np.uint64) & np.uint64((1 << f.bits) - 1), divmod(f.lo, 64)
            out[:, word] |= v << np.uint64(bit)
            if bit + f.bits > 64:
                out[:, word + 1] |= v >> np.uint64(64 - bit)
        return out

    def decode(self, words: np.ndarray) -> dict[str, np.ndarray]:
        """Fields, int64 (n,) each, of `words`, uint64 (n, ceil(width / 64))."""
        out = {}
        for f in self.fields.values():
            word, bit = divmod(f.lo, 64)
            v = words[:, word] >> np.uint64(bit)
            if bit + f.bits > 64:
                v = v | words[:, word + 1] << np.uint64(64 - bit)
            v = (v & np.uint64((1 << f.bits) - 1)).astype(np.int64)
            out[f.name] = np.where(v >> (f.bits - 1), v - (1 << f.bits), v) if f.signed else v
        return out

    def table(self) -> str:
        """The fields as a Markdown table."""
        rows = [f"| {f.lo + f.bits - 1}:{f.lo} | `{f.name}` | {f.doc} |" for f in self.fields.values()]
        return "\n".join(["| bits | field | meaning |", "|---|---|---|", *rows])


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

    `formats` maps `LOAD`, `LOADP`, `STORE`, `STOREQ`, `GEMM`, `DWGEMM`, `ALU`, `FINISH`, `UOP` and `PAR` to their
    `Format`. Raises `ConfigError` where the depths do not fit the words.
    """

    def __init__(self, cfg: Config):
        self.cfg = cfg
        uop, inp, wgt, acc = (d.bit_length() - 1 for d in (cfg.uop_depth, cfg.inp_depth, cfg.wgt_depth, cfg.acc_depth))
        if acc + inp + wgt > 32:
            raise ConfigError(
                f"Config.acc_bytes, inp_bytes, wgt_bytes: depths {cfg.acc_depth}, {cfg.inp_depth}, {cfg.wgt_depth} "
                f"need {acc + inp + wgt} index bits, a micro-op has 32; halve one of them"
            )
        loops, steps = _loops(uop), _steps(dst=acc, src=inp, wgt=wgt)
        overwrite = [Field("overwrite", 1, "acc[d] = dot instead of acc[d] += dot", lo=63)]
        if "overwrite" in cfg.extensions and uop > 13:
            raise ConfigError(
                f"Config.uop_bytes = {cfg.uop_bytes}: extension overwrite needs at most 8192 micro-ops (32768 bytes)"
            )
        gemm = [*_head(), *loops, *(overwrite if "overwrite" in cfg.extensions else []), *steps]
        wide = [
            Field("y_size", 16, "rows", lo=64),
            Field("x_size", 16, "entries per row"),
            Field("x_stride", 16, "entries from row to row in DRAM"),
        ]
        narrow = [
            Field("y_size", 12, "rows", lo=64),
            Field("x_size", 12, "entries per row"),
            Field("x_stride", 16, "entries from row to row in DRAM"),
        ]
        par = [
            Field("par_base", 10, "PAR entry of row 0", lo=112),
            Field("par_step", 6, "PAR entries from row to row"),
        ]
        alu = [
            Field("alu_op", 3, "operation"),
            Field("use_imm", 1, "second operand is imm, not acc[src]"),
            Field("imm", 16, "immediate", signed=True),
        ]
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
            "GEMM": Format("GEMM", 128, *gemm),
            "FINISH": Format("FINISH", 128, *_head()),
            "ALU": Format("ALU", 128, *_head(), *loops, *_steps(dst=acc, src=inp), *alu),
            "LOADP": Format("LOADP", 128, *mem, *narrow, *_pads(4, "padded"), pad_value),
            "DWGEMM": Format("DWGEMM", 128, *gemm),
            "STOREQ": Format("STOREQ", 128, *mem, *wide, *par),
            "UOP": self.uop,
            "PAR": PAR,
        }
        opcode_alone = Format("UNKNOWN", 128, Field("op", 3, "opcode"))
        by_kind = [[self.format_of(op, mem) or opcode_alone for mem in range(8)] for op in range(8)]
        self._decoders = [*dict.fromkeys(fmt for row in by_kind for fmt in row)]
        self._kinds = np.array([[self._decoders.index(fmt) for fmt in row] for row in by_kind])

    def format_of(self, op: int, mem: int) -> Format | None:
        """The format of opcode `op` (for STORE also by memory id `mem`); None where no opcode is declared."""
        if op not in Op.__members__.values():
            return None
        return self.formats["STOREQ" if op == Op.STORE and mem == Mem.OUTQ else Op(op).name]

    def decode(self, words: np.ndarray) -> list[dict[str, int]]:
        """Fields of every instruction of `words`, uint64 (n, 2).

        Instructions without a declared opcode decode to `{"op": opcode}` alone; `undecodable` says so.
        """
        words = np.ascontiguousarray(words, np.uint64).reshape(-1, 2)
        low = words[:, 0].astype(np.uint16)
        kind = self._kinds[low & 7, low >> 7 & 7]
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
        op = f["op"]
        if op not in Op.__members__.values():
            return f"opcode {op} is not declared"
        op = Op(op)
        need = EXTENSION_OF_OP.get(op)
        if op in (Op.LOAD, Op.LOADP):
            allowed = LOADABLE if op == Op.LOAD else PADDABLE
            if f["mem"] not in allowed:
                return f"memory id {f['mem']} cannot be loaded by {op.name}"
            need = need if need and need not in self.cfg.extensions else EXTENSION_OF_MEM.get(Mem(f["mem"]), need)
        elif op == Op.STORE:
            nop = f.get("x_size") == 0 and f["mem"] == Mem.UOP  # how VTA's runtime writes a NOP of the store queue
            if f["mem"] not in STORABLE and not nop:
                return f"memory id {f['mem']} cannot be stored"
            need = EXTENSION_OF_MEM.get(Mem(f["mem"]))
        elif op == Op.ALU:
            if f["alu_op"] not in AluOp.__members__.values():
                return f"ALU operation {f['alu_op']} is not declared"
            need = EXTENSION_OF_ALU.get(AluOp(f["alu_op"]))
            if f["alu_op"] == AluOp.RESCALE and need in self.cfg.extensions and not f["use_imm"]:
                return "RESCALE without use_imm: its operand is a PAR entry"
        if need and need not in self.cfg.extensions:
            return f"extension {need} is not in configuration {self.cfg.name}"
        if f.get("overwrite") and f["reset"]:
            return "reset and overwrite are both set"
        return self._flag_to_nowhere(f)

    def _flag_to_nowhere(self, f: dict[str, int]) -> str | None:
        """Names a token flag towards a queue that does not exist: the load queue is first, the store queue last."""
        queue = self.queue(f)
        absent = {Queue.LOAD: (POP_PREV, PUSH_PREV), Queue.STORE: (POP_NEXT, PUSH_NEXT)}.get(queue, ())
        for flag in absent:
            if f.get(flag):
                return f"{flag} is set, but queue {queue.name} has no {flag[-4:]} queue"
        return None

    def queue(self, f: dict[str, int]) -> Queue:
        """The queue of a decoded instruction that `undecodable` accepts."""
        op = Op(f["op"])
        return queue_of(op, Mem(f["mem"]) if op in (Op.LOAD, Op.LOADP) else None)

    def mnemonic(self, f: dict[str, int]) -> str:
        """The first word of the disassembly of a decoded instruction with a declared opcode."""
        if "mem" in f:
            return f"{Op(f['op']).name}.{Mem(f['mem']).name}"
        if "alu_op" in f:
            known = f["alu_op"] in AluOp.__members__.values()
            return f"ALU.{AluOp(f['alu_op']).name if known else f['alu_op']}"
        return Op(f["op"]).name

    def disassemble(self, f: dict[str, int]) -> str:
        """One line of text for a decoded instruction; every field that is not zero is shown."""
        if f["op"] not in Op.__members__.values():
            return f"undecodable opcode {f['op']}"
        name, skip = self.mnemonic(f), {"op", "mem", "alu_op", *FLAGS}
        flags = [flag for flag in FLAGS if f.get(flag)]
        body = [f"{k}={v}" for k, v in f.items() if k not in skip and (v or k in ("x_size", "y_size"))]
        return " ".join([name, *body, *flags])


@lru_cache(maxsize=8)
def known_isa(cfg: Config) -> Isa:
    """The instruction set of `cfg`, made once."""
    return Isa(cfg)
