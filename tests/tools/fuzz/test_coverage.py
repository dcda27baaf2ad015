"""tools/fuzz/coverage.py."""

import numpy as np

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import AluOp, Isa, Mem, Op
from tools.fuzz.compare import Coverage, legal_runs, run_of

TINY = PRESETS["tiny"]
ISA = Isa(TINY)


def words(name, **fields):
    return ISA.formats[name].encode(1, **fields)


def share(coverage, instruction, field):
    return next(s for s in coverage.shares([TINY]) if (s.instruction, s.field) == (instruction, field))


def test_runs_of_a_field():
    wide, narrow, signed = (ISA.formats["LOADP"].fields[name] for name in ("dram_base", "y_pad_0", "pad_value"))
    assert [run_of(wide, v) for v in (0, 1, 2, 3, 4, (1 << 32) - 1)] == [0, 1, 2, 2, 3, 32]
    assert [run_of(narrow, v) for v in (0, 9, 15)] == [0, 9, 15]
    assert [run_of(signed, v) for v in (-128, -2, -1, 0, 127)] == [-8, -2, -1, 0, 7]


def test_what_is_legal():
    runs = {(name, key): found for name, key, found in legal_runs(TINY)}
    assert len(runs["LOAD.INP", "dram_base"]) == 33 and len(runs["LOAD.INP", "y_pad_0"]) == 16
    assert runs["STORE.UOP", "x_size"] == {0} and runs["FINISH", "push_next"] == {0}
    assert len(runs["LOADP.INP", "pad_value"]) == 16
    assert max(runs["GEMM", "uop_end"]) == TINY.uop_depth.bit_length()
    assert runs["ALU.RESCALE", "use_imm"] == {1} and runs["LOAD.INP", "push_prev"] == {0}
    assert not [name for name, _ in runs if "TERNARY" in name or "LOOKUP" in name]


def test_values_are_counted_and_those_that_nothing_uses_apart():
    coverage = Coverage()
    coverage.program(TINY, words("LOAD", op=Op.LOAD, mem=Mem.INP, y_size=1, x_size=2, x_stride=9, dram_base=5))
    stride = share(coverage, "LOAD.INP", "x_stride")
    assert (stride.low, stride.high, stride.produced, stride.used, stride.runs) == (9, 9, 1, 0, 17)
    assert share(coverage, "LOAD.INP", "dram_base").used == 1
    assert share(coverage, "LOAD.WGT", "x_stride").produced == 0
    assert coverage.instructions() == {"LOAD.INP": 1}


def test_sums():
    one, other = Coverage(), Coverage()
    for coverage, imm in ((one, 3), (other, -9)):
        fields = {"use_imm": 1, "imm": imm, "uop_end": 1, "iter_out": 1, "iter_in": 1}
        coverage.program(TINY, words("ALU", op=Op.ALU, alu_op=AluOp.ADD, **fields))
    assert one != other
    one.add(other)
    imm = share(one, "ALU.ADD", "imm")
    assert (imm.low, imm.high, imm.produced, imm.used) == (-9, 3, 2, 2)
    assert one.instructions() == {"ALU.ADD": 2}
    both = one.shares([TINY, TINY.replace(name="other")])
    assert next(s for s in both if (s.instruction, s.field) == ("ALU.ADD", "imm")).runs == 2 * imm.runs
    assert np.array_equal(sorted({s.instruction for s in both}), sorted({name for name, _, _ in legal_runs(TINY)}))
