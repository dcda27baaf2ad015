import numpy as np

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import AluOp, Isa, Mem, Op
from tilewright.runtime.buffer import Buffer
from tilewright.runtime.disasm import disassemble, disassemble_words
from tilewright.runtime.launch import Launch

VTA, PYNQ = PRESETS["vta"], PRESETS["pynq_z1"]


def words(*rows):
    formats = Isa(VTA).formats
    return np.concatenate([formats[name].encode(**fields) for name, fields in rows])


ROWS = [
    ("LOAD", {"op": Op.LOAD, "mem": Mem.INP, "sram_base": 3, "dram_base": 9, "y_size": 1, "x_size": 2, "push_next": 1}),
    ("ALU", {"op": Op.ALU, "uop_end": 1, "iter_in": 2, "alu_op": AluOp.SHR, "use_imm": 1, "imm": -4, "pop_prev": 1}),
    ("STORE", {"op": Op.STORE, "mem": Mem.OUT, "y_size": 1, "x_size": 1, "pop_prev": 1, "push_prev": 1}),
    ("FINISH", {"op": Op.FINISH, "pop_next": 1}),
]
LINES = [
    "    0  LOAD    LOAD.INP sram_base=3 dram_base=9 y_size=1 x_size=2 push_next",
    "    1  COMPUTE ALU.SHR uop_end=1 iter_in=2 use_imm=1 imm=-4 pop_prev",
    "    2  STORE   STORE.OUT y_size=1 x_size=1 pop_prev push_prev",
    "    3  COMPUTE FINISH pop_next",
]


def test_a_line_has_index_queue_fields_and_tokens():
    assert disassemble_words(VTA, words(*ROWS)) == LINES
    assert disassemble_words(VTA, words(ROWS[0])[:0]) == []


def test_lines_of_the_extensions():
    isa = Isa(PYNQ)
    rows = [
        ("LOAD", {"op": Op.LOAD, "mem": Mem.PAR, "sram_base": 2, "y_size": 1, "x_size": 4, "push_prev": 1}),
        ("DWGEMM", {"op": Op.DWGEMM, "uop_end": 9, "iter_out": 2, "iter_in": 1, "wgt_out": 9, "overwrite": 1}),
        ("ALU", {"op": Op.ALU, "uop_end": 1, "iter_in": 1, "alu_op": AluOp.RESCALE, "use_imm": 1, "imm": 3}),
        ("STOREQ", {"op": Op.STORE, "mem": Mem.OUTQ, "y_size": 2, "x_size": 1, "par_base": 2, "par_step": 1}),
    ]
    assert disassemble_words(PYNQ, np.concatenate([isa.formats[name].encode(**f) for name, f in rows])) == [
        "    0  STORE   LOAD.PAR sram_base=2 y_size=1 x_size=4 push_prev",
        "    1  COMPUTE DWGEMM uop_end=9 iter_out=2 iter_in=1 overwrite=1 wgt_out=9",
        "    2  COMPUTE ALU.RESCALE uop_end=1 iter_in=1 use_imm=1 imm=3",
        "    3  STORE   STORE.OUTQ y_size=2 x_size=1 par_base=2 par_step=1",
    ]


def test_buffers_stand_behind_the_instructions_that_address_them():
    buffers = [Buffer("y", (4, 16), kind="output"), Buffer("x", (4, 16))]
    launch = Launch(VTA, "p", words(*ROWS), np.array([1, -1, 0, -1], np.int32), buffers)
    assert disassemble(launch) == [LINES[0] + " @x", LINES[1], LINES[2] + " @y", LINES[3]]


def test_instructions_that_cannot_be_decoded_say_why():
    insn = words(("FINISH", {"op": 7}), ("FINISH", {"op": 6, "pop_next": 1}), ROWS[3])
    assert disassemble_words(VTA, insn) == [
        "    0  ?       TERNARY <unit ternary is not in configuration vta>",
        "    1  ?       DWGEMM pop_next <extension depthwise is not in configuration vta>",
        "    2  COMPUTE FINISH pop_next",
    ]
