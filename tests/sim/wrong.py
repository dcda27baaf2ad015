"""Wrong programs, and what is said of them: by the definition, the behavioural model and, where it can, the circuit."""

from dataclasses import dataclass
from typing import SupportsInt

import numpy as np

from tilewright.hw.config import PRESETS, Config
from tilewright.hw.errors import AccessError, DeadlockError, ExecutionError, TokenError
from tilewright.hw.isa import INSN_BYTES, AluOp, Isa, Mem, Op
from tilewright.sim.random_programs import FOUR, ROWS, WIDE

TINY, TWO, VTA = PRESETS["tiny"], PRESETS["tiny_two"], PRESETS["vta"]
AT = 4096  # address of the instructions; the rest of memory is zero
FAR = 1 << 24  # an entry beyond memory


def program(cfg: Config, insns: list[dict], nbytes: int = 1 << 16) -> tuple[np.ndarray, int, int]:
    """(memory, address, count) of the instructions with these fields."""
    isa, image = Isa(cfg), np.zeros(nbytes, np.uint8)
    for k, f in enumerate(insns):
        form = isa.format_of(f)
        assert form is not None
        image[AT + INSN_BYTES * k :][:INSN_BYTES] = form.encode(**f).view(np.uint8).reshape(-1)
    return image, AT, len(insns)


def load(mem: Mem, **fields: SupportsInt) -> dict:
    """LOAD of one entry."""
    return {"op": Op.LOAD, "mem": mem.id, "y_size": 1, "x_size": 1, **fields}


def store(mem: Mem = Mem.OUT, **fields: SupportsInt) -> dict:
    """STORE of one entry."""
    return {"op": Op.STORE, "mem": mem.id, "y_size": 1, "x_size": 1, "x_stride": 1, **fields}


def loop(op: Op, **fields: SupportsInt) -> dict:
    """An instruction that issues the first micro-op once."""
    return {"op": op, "uop_end": 1, "iter_out": 1, "iter_in": 1, **fields}


def alu(op: int = AluOp.ADD, **fields: SupportsInt) -> dict:
    """ALU with an immediate."""
    return loop(Op.ALU, alu_op=op, use_imm=1, **fields)


def ternary(**fields: SupportsInt) -> list[dict]:
    """TERNARY behind the load of its micro-op, before STORE and FINISH."""
    unit = loop(Op.TERNARY, pop_next=1, push_prev=1, **fields)
    return [load(Mem.TUOP, push_prev=1), unit, STORE | {"pop_next": 1, "push_prev": 1}, FINISH | {"pop_next": 1}]


NOP, STORE, FINISH = {"op": Op.LOAD, "mem": Mem.UOP.id}, {"op": Op.STORE, "mem": Mem.OUT.id}, {"op": Op.FINISH}
PUSH = {"op": Op.LOAD, "mem": Mem.INP.id, "push_next": 1}
STORED = [STORE | {"push_prev": 1}, FINISH | {"pop_next": 1}]  # the end of a program whose last work is a store


@dataclass(frozen=True)
class Wrong:
    """A wrong program of `cfg`: the `error` of instruction `index`, and the text that the model gives.

    In a text `{k}` is the name of instruction k. `definition` is the text of the definition where it has another one.
    `circuit` says whether the circuit ends in the same way.
    """

    cfg: Config
    insns: list[dict]
    error: type[ExecutionError]
    index: int | None
    text: str
    definition: str = ""
    circuit: bool = True

    def said(self, text: str) -> str:
        """`text` with the names of the instructions."""
        isa = Isa(self.cfg)
        words = np.concatenate([np.zeros((0, 2), np.uint64)] + [
            form.encode(**f) for f in self.insns if (form := isa.format_of(f)) is not None
        ])  # fmt: skip
        names = [f"instruction {k} ({isa.disassemble(f)})" for k, f in enumerate(isa.decode(words))]
        return text.format(*names)


def _undecodable(cfg: Config, insn: dict, text: str) -> Wrong:
    return Wrong(cfg, [NOP, insn, FINISH], ExecutionError, 1, f"{{1}}: {text}")


def _outside(insn: dict, text: str, definition: str, cfg: Config = TINY) -> Wrong:
    """An instruction whose indices leave a memory, behind one that does nothing."""
    end = STORED if insn["op"] == Op.STORE else [FINISH]
    return Wrong(cfg, [NOP, insn, *end], AccessError, 1, f"{{1}}: {text}", f"{{1}}: {definition}")


def _ternary(text: str, definition: str, **fields: SupportsInt) -> Wrong:
    return Wrong(TWO, ternary(**fields), AccessError, 1, f"{{1}}: {text}", f"{{1}}: {definition or text}")


_GEMM, _DW = (lambda **f: loop(Op.GEMM, **f)), (lambda **f: loop(Op.DWGEMM, **f))
_EARLY = "{0}: 2 instructions follow FINISH"
_MORE = "{0}: more instructions follow FINISH"
_NO_FINISH = "the program has no FINISH"
_BOTH = "reset and overwrite are both set"
# tiny has 256 micro-ops, 256 inputs of 4 bytes, 128 weights of 16 bytes, 128 accumulators, 8 entries of parameters
WRONG = [
    # instructions that cannot be decoded
    _undecodable(TINY, {"op": Op.TERNARY}, "unit ternary is not in configuration tiny"),
    _undecodable(TINY, load(Mem.TWGT), "unit ternary is not in configuration tiny"),
    _undecodable(TINY, load(Mem.OUT), "unit ternary is not in configuration tiny"),
    _undecodable(TINY, load(Mem.UOP) | {"op": Op.LOADP}, "memory id 0 cannot be loaded by LOADP"),
    _undecodable(TINY, load(Mem.WGT4, op=Op.LOADP), "extension wgt4 is not in configuration tiny"),
    _undecodable(TINY, store(Mem.INP), "memory id 2 cannot be stored"),
    _undecodable(TINY, {"op": Op.ALU, "alu_op": 7}, "extension lane_reduce is not in configuration tiny"),
    _undecodable(TINY, alu(AluOp.RESCALE) | {"use_imm": 0}, "RESCALE without use_imm: its operand is a PAR entry"),
    _undecodable(TINY, {"op": Op.GEMM, "reset": 1, "overwrite": 1}, _BOTH),
    _undecodable(TWO, {"op": Op.TERNARY, "reset": 1, "overwrite": 1}, _BOTH),
    _undecodable(TINY, load(Mem.INP, push_prev=1), "push_prev is set, but queue LOAD has no prev queue"),
    _undecodable(TINY, store(pop_next=1), "pop_next is set, but queue STORE has no next queue"),
    _undecodable(VTA, load(Mem.INP) | {"op": Op.LOADP}, "extension pad_value is not in configuration vta"),
    _undecodable(VTA, {"op": Op.DWGEMM}, "extension depthwise is not in configuration vta"),
    _undecodable(VTA, load(Mem.PAR), "extension requant is not in configuration vta"),
    _undecodable(VTA, alu(AluOp.RESCALE), "extension rescale is not in configuration vta"),
    Wrong(TINY, [_GEMM(reset=1), _GEMM(reset=1, overwrite=1), FINISH], ExecutionError, 1, f"{{1}}: {_BOTH}"),
    Wrong(WIDE, [alu(AluOp.LOOKUP, imm=2), FINISH], ExecutionError, 0, "{0}: LOOKUP with imm 2: tables are 0 to 1"),
    # FINISH
    Wrong(TINY, [], ExecutionError, None, f"{_NO_FINISH}: it has no instructions", _NO_FINISH),
    Wrong(TINY, [NOP, NOP], ExecutionError, 1, f"{_NO_FINISH}; its last instruction is {{1}}", _NO_FINISH),
    Wrong(TINY, [FINISH, NOP, FINISH], ExecutionError, 0, _EARLY, _MORE),
    Wrong(TINY, [FINISH, {"op": Op.TERNARY}, FINISH], ExecutionError, 0, _EARLY, _MORE),
    Wrong(TINY, [{"op": Op.TERNARY}, FINISH, FINISH], ExecutionError, 0,
          "{0}: unit ternary is not in configuration tiny"),
    Wrong(TINY, [load(Mem.ACC), FINISH, load(Mem.INP)], ExecutionError, 1, "{1}: 1 instructions follow FINISH",
          "{1}: more instructions follow FINISH"),
    Wrong(TINY, [STORE | {"pop_prev": 1}, FINISH | {"push_next": 1}], ExecutionError, 0,
          "{0} executes after FINISH: nothing orders FINISH behind it", circuit=False),
    # tokens
    Wrong(TINY, [PUSH, FINISH], TokenError, 0, "1 tokens LOAD -> COMPUTE are left over; the last is pushed by {0}"),
    Wrong(TINY, [alu(push_next=1), alu(push_prev=1), alu(push_prev=1), load(Mem.INP, pop_next=1), FINISH], TokenError,
          2, "1 tokens COMPUTE -> LOAD are left over; the last is pushed by {2}"),
    Wrong(TWO, [loop(Op.TERNARY, push_next=1), loop(Op.TERNARY, push_prev=1), STORE | {"pop_next": 1, "push_prev": 1},
                FINISH | {"pop_next": 1}], TokenError, 0,
          "1 tokens TERNARY -> LOAD are left over; the last is pushed by {0}"),
    Wrong(TINY.replace(token_depth=2), [PUSH] * 3 + [NOP | {"pop_prev": 1}] * 3 + [FINISH], TokenError, 2,
          "{2}: 3 tokens LOAD -> COMPUTE; the channel holds 2", "{2}: 3 tokens LOAD -> COMPUTE; it holds 2",
          circuit=False),
    Wrong(TINY, [PUSH, NOP | {"pop_next": 1}, FINISH], DeadlockError, 1,
          "deadlock: LOAD is empty; COMPUTE waits for a token STORE -> COMPUTE at {1}; STORE is empty"),
    Wrong(TINY, [load(Mem.INP), alu(pop_prev=1), store(pop_prev=1), *STORED], DeadlockError, 1,
          "deadlock: LOAD is empty; COMPUTE waits for a token LOAD -> COMPUTE at {1}; "
          "STORE waits for a token COMPUTE -> STORE at {2}"),
    Wrong(TINY, [load(Mem.INP, pop_next=1, push_next=1), alu(pop_prev=1, push_prev=1), FINISH], DeadlockError, 0,
          "deadlock: LOAD waits for a token COMPUTE -> LOAD at {0}; COMPUTE waits for a token LOAD -> COMPUTE at {1}; "
          "STORE is empty"),
    Wrong(TINY, [PUSH, alu(pop_prev=1), alu(pop_prev=1, pop_next=1), STORE, FINISH], DeadlockError, 2,
          "deadlock: LOAD is empty; COMPUTE waits for a token LOAD -> COMPUTE and STORE -> COMPUTE at {2}; "
          "STORE is empty"),
    Wrong(TWO, ternary()[1:], DeadlockError, 0,
          "deadlock: LOAD is empty; COMPUTE waits for a token STORE -> COMPUTE at {2}; "
          "STORE waits for a token TERNARY -> STORE at {1}; TERNARY waits for a token LOAD -> TERNARY at {0}"),
    # micro-ops and accumulators
    _outside(_GEMM(uop_bgn=5, uop_end=4), "micro-ops end at 4, before they begin at 5",
             "micro-ops 5..3 are not among 0..255"),
    _outside(alu(uop_bgn=255, uop_end=300), "micro-ops 255..299 are outside 0..255",
             "micro-ops 255..299 are not among 0..255"),
    _outside(_GEMM(uop_bgn=250, uop_end=257), "micro-ops 250..256 are outside 0..255",
             "micro-ops 250..256 are not among 0..255"),
    _outside(_GEMM(iter_in=129, dst_in=1), "ACC entries 0..128 are outside 0..127", "ACC entry 128 is outside 0..127"),
    _outside(_GEMM(iter_out=3, src_out=128), "INP entries 0..256 are outside 0..255",
             "INP entry 256 is outside 0..255"),
    _outside(_GEMM(iter_out=3, iter_in=2, wgt_out=50, wgt_in=28), "WGT entries 0..128 are outside 0..127",
             "WGT entry 128 is outside 0..127"),
    _outside(_GEMM(reset=1, iter_out=16383, dst_out=127), "ACC entries 0..2080514 are outside 0..127",
             "ACC entry 254 is outside 0..127"),
    _outside(alu(iter_out=2, iter_in=65, dst_in=1, dst_out=64), "ACC entries 0..128 are outside 0..127",
             "ACC entry 128 is outside 0..127"),
    _outside(alu(iter_out=2, iter_in=2, src_out=100, src_in=28) | {"use_imm": 0},
             "ACC entries 0..128 are outside 0..127", "ACC entry 128 is outside 0..127"),
    _outside(_DW(iter_out=5, iter_in=5, wgt_out=127, wgt_in=1), "WGT rows 0..512 are outside 0..511",
             "WGT entry 128 is outside 0..127"),
    _outside(_DW(extra_taps=3, iter_in=2, src_in=125), "INP entries 0..128 are outside 0..127",
             "INP entry 128 is outside 0..127", ROWS),
    _outside(_DW(extra_taps=3, iter_in=5, wgt_in=32), "WGT rows 0..515 are outside 0..511",
             "WGT entry 64 is outside 0..63", ROWS),
    _outside(alu(AluOp.RESCALE, imm=-1), "PAR entries -1..-1 are outside 0..7", "PAR entry -1 is outside 0..7"),
    _outside(alu(AluOp.RESCALE, imm=8), "PAR entries 8..8 are outside 0..7", "PAR entry 8 is outside 0..7"),
    _outside(alu(AluOp.RESCALE, imm=8), "PAR entries 8..8 are outside 0..7", "PAR entry 8 is outside 0..7", WIDE),
    _ternary("ACC entry 8 is not in the first plane of a bank, 8 of every 32 entries", "", iter_in=2, dst_in=8),
    _ternary("ACC entry 8 is not in the first plane of a bank, 8 of every 32 entries", "", iter_in=2, dst_in=8,
             reset=1),
    _ternary("ACC entries 0..254 are outside 0..127", "ACC entry 127 is not in the first plane of a bank, 8 of every "
             "32 entries", iter_in=2, iter_out=2, dst_in=127, dst_out=127),
    _ternary("INP entries 0..256 are outside 0..255", "INP entry 256 is outside 0..255", iter_in=3, src_in=128),
    _ternary("TWGT entries 0..128 are outside 0..127", "TWGT entry 128 is outside 0..127", iter_in=3, wgt_in=64),
    _ternary("micro-ops 0..256 are outside 0..255", "micro-ops 0..256 are not among 0..255", uop_end=257),
    _ternary("micro-ops end at 1, before they begin at 2", "micro-ops 2..0 are not among 0..255", uop_bgn=2),
    Wrong(TWO, [load(Mem.TUOP, push_prev=1), loop(Op.TERNARY, pop_next=1),
                loop(Op.TERNARY, push_prev=1, iter_in=9, dst_in=1), *ternary()[2:]], AccessError, 2,
          "{2}: ACC entry 8 is not in the first plane of a bank, 8 of every 32 entries"),
    # loads and stores
    _outside(load(Mem.INP, sram_base=250, y_size=2, x_size=4), "INP entries 250..257 are outside 0..255",
             "INP entry 256 is outside 0..255"),
    _outside(load(Mem.INP, sram_base=250, x_pad_1=8), "INP entries 250..258 are outside 0..255",
             "INP entry 256 is outside 0..255"),
    _outside(load(Mem.WGT, sram_base=65535), "WGT entries 65535..65535 are outside 0..127",
             "WGT entry 65535 is outside 0..127"),
    _outside(load(Mem.ACC8, sram_base=120, x_size=9), "ACC8 entries 120..128 are outside 0..127",
             "ACC entry 128 is outside 0..127"),
    _outside(load(Mem.WGT4, op=Op.LOADP, sram_base=63, x_size=2), "WGT4 entries 63..64 are outside 0..63",
             "WGT entry 64 is outside 0..63", FOUR),
    _outside(load(Mem.UOP, sram_base=200, x_size=57), "UOP entries 200..256 are outside 0..255",
             "UOP entry 256 is outside 0..255"),
    _outside(load(Mem.PAR, sram_base=3, y_size=2, x_size=3, x_stride=3), "PAR entries 3..8 are outside 0..7",
             "PAR entry 8 is outside 0..7"),
    _outside(load(Mem.PAR, sram_base=71, x_size=2), "PAR entries 71..72 are outside 0..71",
             "PAR entry 72 is outside 0..71", WIDE),
    _outside(load(Mem.TWGT, sram_base=127, x_size=2), "TWGT entries 127..128 are outside 0..127",
             "TWGT entry 128 is outside 0..127", TWO),
    _outside(load(Mem.TUOP, sram_base=255, x_size=2), "TUOP entries 255..256 are outside 0..255",
             "TUOP entry 256 is outside 0..255", TWO),
    _outside(store(sram_base=126, y_size=3), "OUT entries 126..128 are outside 0..127",
             "ACC entry 128 is outside 0..127"),
    _outside(store(Mem.OUTQ, sram_base=126, x_size=3), "OUTQ entries 126..128 are outside 0..127",
             "ACC entry 128 is outside 0..127"),
    _outside(store(Mem.OUTQ, par_base=8), "PAR entries 8..8 are outside 0..7", "PAR entry 8 is outside 0..7"),
    _outside(store(Mem.OUTQ, y_size=3, par_base=2, par_step=3), "PAR entries 2..8 are outside 0..7",
             "PAR entry 8 is outside 0..7"),
    # memory
    _outside(load(Mem.INP, dram_base=16383, x_size=2), "DRAM bytes 0xfffc..0x10003 are outside 0..0xffff",
             "4 bytes at 0x10000 are outside DRAM, 0..0xffff"),
    _outside(load(Mem.ACC, y_size=3, x_stride=2048), "DRAM bytes 0x0..0x1000f are outside 0..0xffff",
             "16 bytes at 0x10000 are outside DRAM, 0..0xffff"),
    _outside(load(Mem.UOP, dram_base=0xFFFFFFFF), "DRAM bytes 0x3fffffffc..0x3ffffffff are outside 0..0xffff",
             "4 bytes at 0x3fffffffc are outside DRAM, 0..0xffff"),
    _outside(load(Mem.PAR, x_size=2, dram_base=1364), "DRAM bytes 0xffc0..0x1001f are outside 0..0xffff",
             "48 bytes at 0xfff0 are outside DRAM, 0..0xffff"),
    _outside(load(Mem.WGT4, op=Op.LOADP, dram_base=1820), "DRAM bytes 0xfff0..0x10013 are outside 0..0xffff",
             "36 bytes at 0xfff0 are outside DRAM, 0..0xffff", FOUR),
    _outside(load(Mem.TWGT, dram_base=FAR), "DRAM bytes 0x10000000..0x1000000f are outside 0..0xffff",
             "16 bytes at 0x10000000 are outside DRAM, 0..0xffff", TWO),
    _outside(store(dram_base=16380, x_size=5), "DRAM bytes 0xfff0..0x10003 are outside 0..0xffff",
             "4 bytes at 0x10000 are outside DRAM, 0..0xffff"),
    _outside(store(dram_base=16360, y_size=9, x_stride=4), "DRAM bytes 0xffa0..0x10023 are outside 0..0xffff",
             "4 bytes at 0x10000 are outside DRAM, 0..0xffff"),
]  # fmt: skip
# programs that reach the last entries, or name others and read none
RIGHT = [
    (TINY, [_DW(iter_out=4, iter_in=4, wgt_out=127, wgt_in=1), _DW(iter_out=5, iter_in=5, wgt_out=127, reset=1)]),
    (ROWS, [_DW(extra_taps=3, iter_in=2, src_in=124, wgt_in=63), _DW(extra_taps=3, iter_out=2, wgt_out=63)]),
    (TINY, [alu(AluOp.RESCALE, imm=7), alu(AluOp.RESCALE, imm=-1, iter_in=0), alu(iter_out=3, src_out=200)]),
    (TINY, [_GEMM(reset=1, iter_out=100, dst_out=1, src_out=200, wgt_out=100), _DW(reset=1, iter_out=9, src_out=200)]),
    (TINY, [_GEMM(iter_in=128, dst_in=1)]),
    (TINY, [_GEMM(iter_out=0, iter_in=4, dst_out=127), _GEMM(uop_bgn=2, uop_end=2), _GEMM(uop_bgn=255, uop_end=256)]),
    (TINY, [load(Mem.INP, sram_base=250, x_size=2, x_pad_1=4), load(Mem.INP, dram_base=16383)]),
    (TINY, [load(Mem.PAR, sram_base=7), load(Mem.UOP, sram_base=255), load(Mem.ACC, x_pad_0=15, x_size=0)]),
    (TINY, [store(sram_base=127, dram_base=16383), store(Mem.OUTQ, par_base=7),
            store(Mem.OUTQ, sram_base=9999, x_size=0)]),
]  # fmt: skip
IDS = [f"{case.cfg.name}, {case.definition or case.text}" for case in WRONG]
