"""The instruction table: a row per opcode and memory id, and a row per ALU operation.

Whoever asks what an instruction is looks into its row: decoder, recorder and verifier, the fetch unit of the circuit,
both models, random programs, the docs. Adding a row is the whole declaration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from ..errors import ProgramError
from ..units import Queue

if TYPE_CHECKING:
    from ..config import Config

INSN_BYTES = 16


class Op(IntEnum):
    """Opcodes, bits 2:0 of every instruction."""

    LOAD = 0
    STORE = 1
    GEMM = 2
    FINISH = 3
    ALU = 4
    LOADP = 5
    DWGEMM = 6
    TERNARY = 7


_ID_BITS = 3  # of a memory id in the words


class Mem(IntEnum):
    """Memories of LOAD, LOADP and STORE; `id` is what the words have, which two of them may share."""

    UOP = 0
    WGT = 1
    INP = 2
    ACC = 3
    OUT = 4
    ACC8 = 5
    PAR = 6
    OUTQ = 7
    TWGT = 12  # ternary weights: of LOAD, what OUT is of STORE
    WGT4 = 14  # weights of 4 bits and their scales: of LOADP, what PAR is of LOAD
    TUOP = 15  # micro-ops of unit `ternary`: of LOAD, what OUTQ is of STORE

    @property
    def id(self) -> int:
        """The memory id in the words of an instruction."""
        return self % (1 << _ID_BITS)


class AluOp(IntEnum):
    """Operations of the tensor ALU; numbers from 8 on are its second space (see `SECOND_SPACE`)."""

    MIN = 0
    MAX = 1
    ADD = 2
    SHR = 3
    MUL = 4
    RESCALE = 5
    LOOKUP = 6
    REDUCE = 7

    @classmethod
    def of(cls, op: AluOp | str | int) -> AluOp:
        """The operation of this number or name, in any case. Raises `ProgramError` for another."""
        if isinstance(op, str) and op.upper() in cls.__members__:
            return cls[op.upper()]
        if isinstance(op, int) and op in list(cls):
            return cls(op)
        raise ProgramError(f"alu: operation {op} is not declared; use one of {', '.join(known.name for known in cls)}")


@dataclass(frozen=True)
class Instruction:
    """One row: opcode `op`, for loads and stores with memory id `mem`.

    `format` names its fields (`Isa.formats`), `queue` executes it, and the configuration needs all of `extensions` and
    `unit`.
    `loads` is the scratchpad that it fills, `stores` the one that it reads; a row with a memory id and neither moves
    nothing: its `x_size` is 0. `pads`: padding surrounds the tile. `one_row`: y_size, stride and pads are ignored.
    `loops`: it executes micro-ops in two loops. `nop`: with all other fields 0 it is the NOP of its queue.
    """

    op: Op
    mem: Mem | None
    format: str
    queue: Queue
    extensions: tuple[str, ...] = ()
    loads: Mem | None = None
    stores: Mem | None = None
    pads: bool = False
    one_row: bool = False
    loops: bool = False
    nop: bool = False
    unit: str = ""

    @property
    def scratchpad(self) -> Mem | None:
        """The scratchpad whose entries `sram_base` counts."""
        return self.stores if self.loads is None else self.loads

    @property
    def fields(self) -> dict[str, int]:
        """The values of `op` and `mem` in its words."""
        return {"op": self.op} if self.mem is None else {"op": self.op, "mem": self.mem.id}

    def missing(self, cfg: Config) -> str:
        """The extensions or the unit that `cfg` lacks to execute it; "" if none."""
        for name in self.extensions:
            if name not in cfg.extensions:
                return f"extension {name}"
        return f"unit {self.unit}" if self.unit and self.unit not in cfg.units else ""

    @property
    def executes(self) -> Mem | None:
        """The scratchpad whose micro-ops it executes."""
        return (Mem.TUOP if self.queue == Queue.TERNARY else Mem.UOP) if self.loops else None

    @property
    def empty(self) -> bool:
        """True where it has a memory id and moves nothing all the same."""
        return self.mem is not None and self.scratchpad is None


INSTRUCTIONS = (
    Instruction(Op.LOAD, Mem.UOP, "LOAD", Queue.COMPUTE, loads=Mem.UOP, one_row=True, nop=True),
    Instruction(Op.LOAD, Mem.WGT, "LOAD", Queue.LOAD, loads=Mem.WGT, pads=True),
    Instruction(Op.LOAD, Mem.INP, "LOAD", Queue.LOAD, loads=Mem.INP, pads=True, nop=True),
    Instruction(Op.LOAD, Mem.ACC, "LOAD", Queue.COMPUTE, loads=Mem.ACC, pads=True),
    Instruction(Op.LOAD, Mem.ACC8, "LOAD", Queue.COMPUTE, ("acc8",), loads=Mem.ACC, pads=True),
    Instruction(Op.LOAD, Mem.PAR, "LOAD", Queue.STORE, ("requant",), loads=Mem.PAR),
    Instruction(Op.LOAD, Mem.TWGT, "LOAD", Queue.LOAD, loads=Mem.TWGT, pads=True, unit="ternary"),
    Instruction(Op.LOAD, Mem.TUOP, "LOAD", Queue.LOAD, loads=Mem.TUOP, one_row=True, unit="ternary"),
    Instruction(Op.STORE, Mem.UOP, "STORE", Queue.STORE),  # how VTA's runtime writes a NOP of the store queue
    Instruction(Op.STORE, Mem.OUT, "STORE", Queue.STORE, stores=Mem.ACC, nop=True),
    Instruction(Op.STORE, Mem.OUTQ, "STOREQ", Queue.STORE, ("requant",), stores=Mem.ACC),
    Instruction(Op.GEMM, None, "GEMM", Queue.COMPUTE, loops=True),
    Instruction(Op.FINISH, None, "FINISH", Queue.COMPUTE),
    Instruction(Op.ALU, None, "ALU", Queue.COMPUTE, loops=True),
    Instruction(Op.LOADP, Mem.WGT, "LOADP", Queue.LOAD, ("pad_value",), loads=Mem.WGT, pads=True),
    Instruction(Op.LOADP, Mem.INP, "LOADP", Queue.LOAD, ("pad_value",), loads=Mem.INP, pads=True),
    Instruction(Op.LOADP, Mem.ACC, "LOADP", Queue.COMPUTE, ("pad_value",), loads=Mem.ACC, pads=True),
    Instruction(Op.LOADP, Mem.ACC8, "LOADP", Queue.COMPUTE, ("pad_value", "acc8"), loads=Mem.ACC, pads=True),
    Instruction(Op.LOADP, Mem.WGT4, "LOADP", Queue.LOAD, ("pad_value", "wgt4"), loads=Mem.WGT, pads=True),
    Instruction(Op.DWGEMM, None, "DWGEMM", Queue.COMPUTE, ("depthwise",), loops=True),
    Instruction(Op.TERNARY, None, "TERNARY", Queue.TERNARY, loops=True, nop=True, unit="ternary"),
)


REDUCTIONS = ("sum", "max")  # what the immediate of REDUCE chooses


# The second space of ALU operations, format ALUX: words with the number of REDUCE whose immediate has in its low
# `SECOND_BITS` bits, where it would name a reduction, the number of an operation from `SECOND_SPACE` on.
SECOND_SPACE, SECOND_BITS = 8, 7


@dataclass(frozen=True)
class Operation:
    """One row: ALU operation `op`, `acc[d] = meaning` of a = acc[d] and b = acc[s] or imm.

    `order_free`: it is associative and commutative, so that repeated issues of an accumulator may come in any order.
    `multiplies`: it goes through the multipliers or beside them, so that its results come later than others. `imm` is
    what the immediate names, for an operation that is undecodable without one; where that is an entry of a scratchpad,
    `reads` is the scratchpad. `names` has the name of every legal immediate, or `counted` the field of the
    configuration that says how many there are, from 0 on; with others it is undecodable.
    """

    op: AluOp
    meaning: str
    extensions: tuple[str, ...] = ()
    order_free: bool = False
    multiplies: bool = False
    imm: str = ""
    reads: Mem | None = None
    names: tuple[str, ...] = ()
    counted: str = ""

    @property
    def format(self) -> str:
        """The name of its instruction's format."""
        return "ALU" if self.op < SECOND_SPACE else "ALUX"

    def immediates(self, cfg: Config) -> int | None:
        """How many immediates are legal, from 0 on; None for all."""
        return getattr(cfg, self.counted) if self.counted else len(self.names) or None

    def check(self, imm: int | None, cfg: Config) -> None:
        """Raise `ProgramError` for an immediate with which the operation is undecodable; None stands for none."""
        most = self.immediates(cfg)
        if self.imm and imm is None:
            raise ProgramError(f"alu: {self.op.name} needs imm, its {self.imm}")
        if most and imm is not None and not 0 <= imm < most:
            known = ", ".join(f"{k} {name}" for k, name in enumerate(self.names)) or f"0 to {most - 1}"
            raise ProgramError(f"alu: {self.op.name} with imm = {imm}: {self.imm}s of {cfg.name} are {known}")


OPERATIONS: dict[int, Operation] = {
    row.op: row
    for row in (
        Operation(AluOp.MIN, "min(a, b)", order_free=True),
        Operation(AluOp.MAX, "max(a, b)", order_free=True),
        Operation(AluOp.ADD, "a + b", order_free=True),
        Operation(AluOp.SHR, "a >> b, or a << -b where b is negative"),
        Operation(AluOp.MUL, "a * b", order_free=True, multiplies=True),
        Operation(AluOp.RESCALE, "R(a)", ("rescale",), multiplies=True, imm="PAR entry", reads=Mem.PAR),
        Operation(AluOp.LOOKUP, "table[clamp(a)]", ("lookup",), multiplies=True, imm="table", counted="tables"),
        Operation(AluOp.REDUCE, "over channels", ("lane_reduce",), multiplies=True, imm="reduction", names=REDUCTIONS),
    )
}

_BY_OP: dict[int, dict[int | None, Instruction]] = {}
for _row in INSTRUCTIONS:
    _BY_OP.setdefault(_row.op, {})[None if _row.mem is None else _row.mem.id] = _row
_IDS = (None, *range(1 << _ID_BITS))
_ROWS = {(op, mem): rows.get(None) or rows.get(mem) for op, rows in _BY_OP.items() for mem in _IDS}

_SCRATCHPADS = {row.mem: row.scratchpad for row in INSTRUCTIONS if row.mem is not None and row.scratchpad is not None}
_UNITS = {row.mem: row.unit for row in INSTRUCTIONS if row.mem is not None}

MICRO_OPS = tuple(dict.fromkeys(row.executes for row in INSTRUCTIONS if row.executes is not None))
LOADABLE = frozenset(row.mem for row in INSTRUCTIONS if row.mem is not None and row.loads is not None)
STORABLE = frozenset(row.mem for row in INSTRUCTIONS if row.mem is not None and row.stores is not None)
PADDABLE = frozenset(row.mem for row in INSTRUCTIONS if row.mem is not None and row.pads)
LOADS = tuple(dict.fromkeys(row.op for row in INSTRUCTIONS if row.loads is not None))
STORES = tuple(dict.fromkeys(row.op for row in INSTRUCTIONS if row.stores is not None))
LOOPS = tuple(dict.fromkeys(row.op for row in INSTRUCTIONS if row.loops))


SCRATCHPADS = tuple(dict.fromkeys(_SCRATCHPADS.values()))


def rows_of(op: int) -> tuple[Instruction, ...]:
    """The rows of opcode `op`; none where it is not declared."""
    return tuple(_BY_OP.get(op, {}).values())


def instruction(op: int, mem: int | None = None) -> Instruction | None:
    """The row of opcode `op`, for loads and stores with memory id `mem`; None where there is none."""
    return _ROWS.get((op, mem)) or _ROWS.get((op, mem if mem is None else mem % (1 << _ID_BITS)))


def row_of(op: int, mem: int | None = None) -> Instruction:
    """The row of an instruction that is declared."""
    row = instruction(op, mem)
    assert row is not None
    return row


def loads_of(mem: Mem) -> tuple[Instruction, ...]:
    """The rows that load `mem`: LOAD, where there is one, then LOADP."""
    return tuple(row for row in INSTRUCTIONS if row.mem == mem and row.loads is not None)


def mem_of(op: int, mem: int) -> Mem:
    """The memory of a LOAD, LOADP or STORE that is declared, by the id in its words."""
    found = row_of(op, mem).mem
    assert found is not None
    return found


def form_of(f: Mapping[str, int]) -> str | None:
    """The name of the format of the decoded instruction `f`, declared or not; None where no opcode is declared."""
    rows = rows_of(f["op"])
    if f.get("alu_op", 0) >= SECOND_SPACE:
        return "ALUX"
    return (instruction(f["op"], f.get("mem", 0)) or rows[0]).format if rows else None


def ops_of(form: str) -> tuple[Op, ...]:
    """The opcodes whose words have format `form`."""
    return tuple(dict.fromkeys(row.op for row in INSTRUCTIONS if row.format == form))


def queue_of(op: int, mem: int | None = None) -> Queue:
    """The command queue that executes `op`; loads are routed by the memory they name."""
    return row_of(op, mem).queue


def nop_of(queue: Queue) -> Instruction:
    """The instruction that, with all other fields 0, carries tokens of `queue` and does nothing else."""
    return next(row for row in INSTRUCTIONS if row.nop and row.queue == queue)


def scratchpad_of(mem: Mem) -> Mem:
    """The scratchpad that `mem` addresses: accumulators for OUT, OUTQ and ACC8, weights for WGT4, else its own."""
    return _SCRATCHPADS[mem]


_OWN_ENTRIES = (Mem.UOP, Mem.WGT, Mem.INP, Mem.ACC, Mem.OUT, Mem.PAR, Mem.TWGT, Mem.WGT4)
_ENTRY_BYTES = {
    **{m: f"{m.name.lower()}_entry_bytes" for m in _OWN_ENTRIES},
    Mem.ACC8: "lanes",
    Mem.OUTQ: "out_entry_bytes",
    Mem.TUOP: "uop_entry_bytes",
}
_DEPTHS = {
    Mem.UOP: "uop_depth",
    Mem.WGT: "wgt_depth",
    Mem.INP: "inp_depth",
    Mem.PAR: "par_entries",
    Mem.ACC: "acc_depth",
    Mem.TWGT: "twgt_depth",
    Mem.TUOP: "uop_depth",
}


def entry_bytes(cfg: Config, mem: Mem) -> int:
    """Bytes in DRAM of one entry of `mem`, the unit of `dram_base` and strides."""
    return getattr(cfg, _ENTRY_BYTES[mem])


def depth(cfg: Config, mem: Mem) -> int:
    """Entries of the scratchpad that `mem` addresses, of PAR without tables; 0 where `cfg` lacks its unit."""
    unit = _UNITS[mem]
    return getattr(cfg, _DEPTHS[scratchpad_of(mem)]) if not unit or unit in cfg.units else 0


def room(cfg: Config, mem: Mem) -> int:
    """Entries that a LOAD of `mem` may write: the depth of its scratchpad, and for PAR also the tables after it."""
    return cfg.par_room if mem == Mem.PAR else depth(cfg, mem)


def table_span(cfg: Config, table: int) -> slice:
    """The PAR entries of table `table`."""
    first = cfg.par_entries + table * cfg.table_entries
    return slice(first, first + cfg.table_entries)
