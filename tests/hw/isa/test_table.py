"""hw/isa/table.py: numbers, queues and scratchpads typed here once more, and what follows from the rows."""

from typing import Any

import pytest

from tilewright.hw.config import EXTENSIONS, PRESETS
from tilewright.hw.errors import ProgramError
from tilewright.hw.isa import (
    INSTRUCTIONS,
    LOADABLE,
    LOADS,
    LOOPS,
    MICRO_OPS,
    OPERATIONS,
    PADDABLE,
    STORABLE,
    STORES,
    AluOp,
    Isa,
    Mem,
    Op,
    depth,
    entry_bytes,
    instruction,
    loads_of,
    mem_of,
    nop_of,
    queue_of,
    room,
    row_of,
    rows_of,
    scratchpad_of,
    table_span,
)
from tilewright.hw.units import queues

VTA, PYNQ, TWO = PRESETS["vta"], PRESETS["pynq_z1"], PRESETS["pynq_z1_two"]

OPCODES = {"LOAD": 0, "STORE": 1, "GEMM": 2, "FINISH": 3, "ALU": 4, "LOADP": 5, "DWGEMM": 6, "TERNARY": 7}
MEMORIES = {"UOP": 0, "WGT": 1, "INP": 2, "ACC": 3, "OUT": 4, "ACC8": 5, "PAR": 6, "OUTQ": 7, "TWGT": 12, "TUOP": 15}
MEMORIES["WGT4"] = 14
ALU_OPS = {"MIN": 0, "MAX": 1, "ADD": 2, "SHR": 3, "MUL": 4, "RESCALE": 5, "LOOKUP": 6, "REDUCE": 7}


def test_numbers_of_opcodes_memories_and_operations():
    for enum, numbers in ((Op, OPCODES), (Mem, MEMORIES), (AluOp, ALU_OPS)):
        assert {member.name: member.value for member in enum} == numbers


# opcode and memory -> queue, scratchpad (* written by the load), extensions or unit, is padded
ROWS = {
    "LOAD.UOP": ("COMPUTE", "UOP*", "", False),
    "LOAD.WGT": ("LOAD", "WGT*", "", True),
    "LOAD.INP": ("LOAD", "INP*", "", True),
    "LOAD.ACC": ("COMPUTE", "ACC*", "", True),
    "LOAD.ACC8": ("COMPUTE", "ACC*", "acc8", True),
    "LOAD.PAR": ("STORE", "PAR*", "requant", False),
    "LOAD.TWGT": ("LOAD", "TWGT*", "ternary", True),
    "LOAD.TUOP": ("LOAD", "TUOP*", "ternary", False),
    "STORE.UOP": ("STORE", "", "", False),
    "STORE.OUT": ("STORE", "ACC", "", False),
    "STORE.OUTQ": ("STORE", "ACC", "requant", False),
    "GEMM": ("COMPUTE", "", "", False),
    "FINISH": ("COMPUTE", "", "", False),
    "ALU": ("COMPUTE", "", "", False),
    "LOADP.WGT": ("LOAD", "WGT*", "pad_value", True),
    "LOADP.INP": ("LOAD", "INP*", "pad_value", True),
    "LOADP.ACC": ("COMPUTE", "ACC*", "pad_value", True),
    "LOADP.ACC8": ("COMPUTE", "ACC*", "pad_value acc8", True),
    "LOADP.WGT4": ("LOAD", "WGT*", "pad_value wgt4", True),
    "DWGEMM": ("COMPUTE", "", "depthwise", False),
    "TERNARY": ("TERNARY", "", "ternary", False),
}


def name_of(row):
    return row.op.name if row.mem is None else f"{row.op.name}.{row.mem.name}"


def test_every_row():
    found = {}
    for row in INSTRUCTIONS:
        space = "" if row.scratchpad is None else row.scratchpad.name + "*" * (row.loads is not None)
        found[name_of(row)] = (row.queue.name, space, " ".join(row.extensions) or row.unit, row.pads)
    assert found == ROWS and len(INSTRUCTIONS) == len(ROWS)
    assert [name_of(row) for row in INSTRUCTIONS if row.one_row] == ["LOAD.UOP", "LOAD.TUOP"]
    assert [name_of(row) for row in INSTRUCTIONS if row.empty] == ["STORE.UOP"]


def test_every_number_has_a_row_and_every_format_a_user():
    assert {row.op for row in INSTRUCTIONS} == set(Op) and OPERATIONS.keys() == set(AluOp)
    assert {row.mem for row in INSTRUCTIONS} == {*Mem, None}
    assert {row.format for row in INSTRUCTIONS} | {"ALUX"} == Isa(PYNQ).formats.keys() - {"UOP", "PAR"}
    for op in Op:  # an opcode has a memory id in all of its rows or in none
        assert len({row.mem is None for row in rows_of(op)}) == 1


def test_a_row_is_found_by_opcode_and_memory_id():
    for row in INSTRUCTIONS:
        assert instruction(int(row.op), row.mem) is row and row in rows_of(row.op)
    assert instruction(Op.GEMM, 5) is instruction(Op.GEMM)  # those bits are something else there
    assert instruction(Op.LOADP, Mem.OUTQ) is instruction(Op.STORE) is instruction(8) is None
    assert rows_of(8) == ()


def test_a_memory_id_is_that_of_the_row():
    """Two memories may share one, of which two instructions name one each."""
    assert [(mem.name, mem.id) for mem in Mem if mem.id != mem] == [("TWGT", 4), ("WGT4", 6), ("TUOP", 7)]
    assert mem_of(Op.LOAD, 4) == mem_of(Op.LOAD, Mem.TWGT) == Mem.TWGT and mem_of(Op.STORE, 4) == Mem.OUT
    assert row_of(Op.LOAD, 7).loads == Mem.TUOP and row_of(Op.STORE, 7).stores == Mem.ACC


def test_micro_ops_are_in_a_scratchpad_of_each_unit():
    executed = {row.op: row.executes for row in INSTRUCTIONS if row.executes is not None}
    assert executed == {op: Mem.TUOP if op == Op.TERNARY else Mem.UOP for op in LOOPS}
    assert MICRO_OPS == (Mem.UOP, Mem.TUOP)


def test_what_a_configuration_lacks():
    assert row_of(Op.TERNARY).missing(PYNQ) == "unit ternary" and not row_of(Op.TERNARY).missing(TWO)
    assert row_of(Op.DWGEMM).missing(VTA) == "extension depthwise" and not row_of(Op.DWGEMM).missing(TWO)


def test_classes_of_opcodes_and_memories():
    assert (LOADS, STORES, LOOPS) == ((Op.LOAD, Op.LOADP), (Op.STORE,), (Op.GEMM, Op.ALU, Op.DWGEMM, Op.TERNARY))
    assert LOADABLE == {Mem.UOP, Mem.WGT, Mem.INP, Mem.ACC, Mem.ACC8, Mem.PAR, Mem.TWGT, Mem.TUOP, Mem.WGT4}
    assert STORABLE == {Mem.OUT, Mem.OUTQ}
    assert PADDABLE == {Mem.WGT, Mem.INP, Mem.ACC, Mem.ACC8, Mem.TWGT, Mem.WGT4}
    assert [row.op for row in loads_of(Mem.WGT)] == [Op.LOAD, Op.LOADP]
    assert [row.op for row in loads_of(Mem.WGT4)] == [Op.LOADP] and [row.op for row in loads_of(Mem.PAR)] == [Op.LOAD]


def test_classes_of_alu_operations():
    alone = dict.fromkeys((AluOp.RESCALE, AluOp.LOOKUP, AluOp.REDUCE))
    free = {AluOp.MIN, AluOp.MAX, AluOp.ADD, AluOp.MUL}
    assert {op for op, row in OPERATIONS.items() if row.order_free} == free
    assert {op for op, row in OPERATIONS.items() if row.multiplies} == {AluOp.MUL, *alone}
    assert {op: row.reads for op, row in OPERATIONS.items() if row.imm} == {**alone, AluOp.RESCALE: Mem.PAR}
    named = {AluOp.RESCALE: ("rescale",), AluOp.LOOKUP: ("lookup",), AluOp.REDUCE: ("lane_reduce",)}
    assert {op: row.extensions for op, row in OPERATIONS.items() if row.extensions} == named
    assert [OPERATIONS[op].immediates(PYNQ.replace(tables=8)) for op in AluOp] == [None] * 6 + [8, 2]
    assert all(row.op == op and row.meaning for op, row in OPERATIONS.items())


def test_every_extension_marks_something():
    rows = [*INSTRUCTIONS, *OPERATIONS.values()]
    assert {"overwrite"}.union(*(row.extensions for row in rows)) | {"depthwise_rows"} == EXTENSIONS


@pytest.mark.parametrize("row", INSTRUCTIONS, ids=name_of)
def test_instructions_go_to_the_queue_of_their_row(row):
    assert queue_of(row.op, row.mem) == row.queue
    assert Isa(PYNQ).queue(row.fields) == row.queue


@pytest.mark.parametrize("queue", queues(TWO))
def test_every_queue_has_a_nop(queue):
    row, isa = nop_of(queue), Isa(TWO)
    assert row.queue == queue and not row.extensions
    word = isa.formats[row.format].encode(**row.fields)
    assert isa.undecodable(isa.decode(word)[0]) is None


def test_entries_and_depths_of_every_memory():
    expected = {"UOP": (4, 8192), "WGT": (256, 1024), "INP": (16, 2048), "ACC": (64, 2048), "OUT": (16, 2048)}
    expected |= {"ACC8": (16, 2048), "PAR": (192, 64), "OUTQ": (16, 2048), "WGT4": (136, 1024)}
    expected |= {"TWGT": (64, 0), "TUOP": (4, 0)}  # entries of a unit that it lacks
    assert {m.name: (entry_bytes(VTA, m), depth(VTA, m)) for m in Mem} == expected
    assert (entry_bytes(TWO, Mem.TWGT), depth(TWO, Mem.TWGT), depth(TWO, Mem.TUOP)) == (64, 512, 4096)
    assert {m.name for m in Mem if scratchpad_of(m) != m} == {"OUT", "ACC8", "OUTQ", "WGT4"}


def test_tables_lie_behind_the_parameters():
    plus = PRESETS["pynq_z1_plus"]
    assert (plus.table_words, plus.table_entries, plus.par_room) == (32, 8, 64 + 4 * 8)
    assert [table_span(plus, k) for k in (0, 3)] == [slice(64, 72), slice(88, 96)]
    assert (depth(plus, Mem.PAR), room(plus, Mem.PAR)) == (64, 96) and room(PYNQ, Mem.PAR) == 64
    assert room(plus, Mem.INP) == depth(plus, Mem.INP)
    for block, entries in ((1, 128), (4, 32), (8, 16), (128, 1), (256, 1)):
        cfg = PYNQ.replace(block_in=block, block_out=block, inp_bytes=None, wgt_bytes=None, acc_bytes=None)
        assert cfg.table_entries == entries and 8 * cfg.table_words * entries == 8 * 256
        assert 4 * cfg.table_words <= cfg.par_entry_bytes


def test_operations_by_name():
    assert [AluOp.of(name) for name in ("add", "Max", "SHR", 0, AluOp.MUL)] == [
        AluOp.ADD, AluOp.MAX, AluOp.SHR, AluOp.MIN, AluOp.MUL,
    ]  # fmt: skip
    unknown: Any
    for unknown in ("plus", 8, None):
        with pytest.raises(ProgramError, match=f"alu: operation {unknown} is not declared; use one of MIN, MAX, ADD"):
            AluOp.of(unknown)
