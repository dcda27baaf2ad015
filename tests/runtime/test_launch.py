"""runtime/launch.py and disasm.py: what a launch may hold, relocation, accesses beyond its buffers, and its text."""

from dataclasses import replace

import numpy as np
import pytest

from tests.runtime.launches import changed, first_of
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import AccessError, EncodingError, ProgramError
from tilewright.hw.isa import AluOp, Isa, Mem, Op, known_isa
from tilewright.runtime.buffer import Buffer
from tilewright.runtime.disasm import disassemble, disassemble_words
from tilewright.runtime.executable import Executable
from tilewright.runtime.launch import UOP_BUFFER, Launch, Origins, check_dram
from tilewright.runtime.program import Program
from tilewright.runtime.steps import LaunchStep
from tilewright.sim.random_programs import Recorder, record_random

VTA, TINY, PYNQ = PRESETS["vta"], PRESETS["tiny"], PRESETS["pynq_z1"]
X, W, OUT = Buffer("x", (8, 16)), Buffer("w", (4, 256)), Buffer("out", (8, 16), kind="output")
UOPS = Buffer(UOP_BUFFER, (2,), 32, kind="constant", data=np.array([1, 0, 0, 0, 2, 0, 0, 0x80], np.uint8))
ENTRY = {Mem.INP: 16, Mem.WGT: 256, Mem.OUT: 16, Mem.UOP: 4}  # bytes


def words(cfg, *rows):
    """Instructions of rows (format, fields)."""
    return np.concatenate([Isa(cfg).formats[name].encode(1, **fields) for name, fields in rows])


def moves(*rows, buffers=(X, W, OUT, UOPS)):
    """A launch of loads and stores (opcode, memory, DRAM entry, buffer number)."""
    fields = {"sram_base": 0xFFFF, "y_size": 0xFFFF, "x_size": 1}
    names = {Op.LOAD: "LOAD", Op.STORE: "STORE"}
    insn = words(VTA, *((names[op], fields | {"op": op, "mem": mem, "dram_base": at}) for op, mem, at, _ in rows))
    return Launch(VTA, "p", insn, np.array([number for *_, number in rows], np.int32), list(buffers))


ROWS = [(Op.LOAD, Mem.INP, 3, 0), (Op.LOAD, Mem.WGT, 1, 1), (Op.STORE, Mem.OUT, 7, 2), (Op.LOAD, Mem.UOP, 1, 3)]


def test_addresses_are_added_in_entries_of_the_memory_named():
    program = moves(*ROWS, (Op.LOAD, Mem.INP, 5, -1))
    before, addresses = program.insn.copy(), [0x1010, 0x2100, 0x3FF0, 0x104]
    found = program.relocate(addresses)
    np.testing.assert_array_equal(program.insn, before)
    for k, (old, new) in enumerate(zip(Isa(VTA).decode(before), Isa(VTA).decode(found))):
        place = addresses[k] // ENTRY[Mem(old["mem"])] if k < 4 else 0
        assert new == {**old, "dram_base": old["dram_base"] + place}
    assert program.uops.tolist() == [1, 0x80000002] and program.insn_bytes == 80
    assert moves(ROWS[0], buffers=[X]).uops.size == 0


LAST = ((1 << 32) - 1 - 3) * 16  # of an entry that fits


def test_the_last_address_that_fits():
    assert Isa(VTA).decode(moves(ROWS[0]).relocate([LAST, 0, 0, 0]))[0]["dram_base"] == (1 << 32) - 1


@pytest.mark.parametrize(
    "addresses, text",
    [
        ([LAST + 16, 0, 0, 0], r"dram_base = 4294967296: outside 0\.\.4294967295 \(32 bits\)"),
        ([0x1010, 0x2110, 0x3FF0, 0x104], "buffer 'w' at 0x2110: must be a multiple of 256 bytes"),
        ([1 << 63, 0, 0, 0], r"a buffer begins at byte 0x8000000000000000, which does not fit dram_base \(32 bits\)"),
    ],
)
def test_addresses_that_do_not_fit(addresses, text):
    with pytest.raises(EncodingError, match=f"^{text}$"):
        moves(*ROWS).relocate(addresses)


NOTHING, FINISH = np.zeros((1, 2), np.uint64), np.full((1, 2), 3, np.uint64)
PER_ONE = "reloc must hold one number per instruction"


@pytest.mark.parametrize(
    "insn, reloc, buffers, text",
    [
        (np.zeros((1, 2), np.int64), [0], [X], "instructions must be uint64"),
        (np.zeros((1, 4), np.uint64), [0], [X], "instructions must be uint64"),
        (np.zeros(2, np.uint64), [0, 0], [X], "instructions must be uint64"),
        (NOTHING, [1], [X], PER_ONE),
        (NOTHING, [-2], [X], f"{PER_ONE}; .* 0 is -2, which must be -1 or the position of one of 1 buffers"),
        (NOTHING, [0, 0], [X], PER_ONE),
        (NOTHING, [0.0], [X], PER_ONE),
        (NOTHING, [[0]], [X], PER_ONE),
        (NOTHING, ["x"], [X], PER_ONE),
        (FINISH, [0], [X], f"{PER_ONE}; .* instruction 0 is 0, which must be -1: it has no addr"),
        (NOTHING, [0], [X, W, Buffer("x", (1, 16))], "2 buffers are named 'x'$"),
        (NOTHING, [0], [Buffer(UOP_BUFFER, (4,))], "buffer 'uop' is input, 4 bytes: must be constant, and whole"),
        (NOTHING, [0], [Buffer(UOP_BUFFER, (3,), 8, True, "constant", np.zeros(3, np.uint8))],
         "buffer 'uop' is constant, 3 bytes: must be constant, and whole micro-ops of 4 bytes"),
    ],
)  # fmt: skip
def test_parts_of_a_launch_that_do_not_fit_together(insn, reloc, buffers, text):
    with pytest.raises(ProgramError, match=f"^launch 'p': {text}"):
        Launch(VTA, "p", insn, np.array(reloc), buffers)


@pytest.mark.parametrize(
    "paths, macs, of, text",
    [
        ([()], [], [0, 0], "must be as many macs as paths"),
        ([()], [None], [1, 1], "must be positions of 1 paths"),
        ([()], [None], [0.0, 0.0], "signed integers"),
        ([()], [None], [0] * 9, "must be one of each"),
    ],
)
def test_origins_that_do_not_fit_are_named(paths, macs, of, text):
    launch = moves(*ROWS)
    with pytest.raises(ProgramError, match=text):
        replace(launch, origins=Origins(paths, macs, np.array(of)))
    with pytest.raises(ProgramError, match="origin name 'a\\\\nb': must be"), Program(TINY).origin("a\nb"):
        pass


def test_instructions_know_what_they_are_for(tmp_path):
    p = Program(PRESETS["tiny"], "named")
    x, y = p.buffer("x", (8, 4)), p.buffer("y", (8, 4), kind="output")
    with p.origin("conv", macs=10):
        p.load(Mem.INP, 0, x, 0, x_size=4)
        with p.origin("product", macs=5), p.origin("product", macs=6):  # the same one
            p.gemm([(4, 1, 1, 0)], overwrite=True)
    with p.origin("conv", macs=1):
        p.store(0, y, 0, x_size=4)
    made, isa = p.finish(), known_isa(p.cfg)
    origins = made.origins
    assert origins is not None and made.depth == 2
    assert origins.paths == [(), ("conv",), ("conv", "product")] and origins.macs == [None, 11, 11]
    names = {isa.mnemonic(f): k for k, f in zip(origins.of.tolist(), isa.decode(made.insn))}
    assert names == {"LOAD.INP": 1, "LOAD.UOP": 2, "GEMM": 2, "STORE.OUT": 1, "FINISH": 0}
    Executable.from_launch(made).save(tmp_path / "x.tw")
    (step,) = Executable.load(tmp_path / "x.tw").steps
    assert isinstance(step, LaunchStep) and step.launch.origins is not None
    assert (step.launch.origins.paths, step.launch.origins.macs) == (origins.paths, origins.macs)
    assert np.array_equal(step.launch.origins.of, origins.of)


def copy_launch(rows=2, stride=4):
    p = Program(TINY, "copy")
    x, y = p.buffer("x", (8, 1, 4), 32), p.buffer("y", (8, 1, 4), kind="output")
    p.load(Mem.ACC, 0, x, 0, x_size=2, y_size=rows, x_stride=stride)
    p.alu(AluOp.ADD, [(4, 1, 1)])
    p.store(0, y, 0, x_size=4)
    return p.finish()


def test_what_stays_inside_passes():
    check_dram(copy_launch())
    check_dram(Launch(VTA, "p", REFUSED, np.array([-1, -1]), []))  # left to the accelerator, which refuses it
    for seed in range(20):
        recorder = Recorder(TINY, seed)
        record_random(recorder, 30)
        check_dram(recorder.program.finish())


COPY = copy_launch()
LOAD, ALU, STORE, UOP = (first_of(COPY, name) for name in ("LOAD.ACC", "ALU.ADD", "STORE.OUT", "LOAD.UOP"))


@pytest.mark.parametrize(
    "k, fields, text",
    [
        (LOAD, {"dram_base": 7}, "'x', which has 128"),
        (LOAD, {"x_stride": 7}, "ends at byte 144 of buffer 'x'"),
        (LOAD, {"dram_base": (1 << 32) - 1}, "of buffer 'x'"),
        (STORE, {"dram_base": 5}, "ends at byte 36 of buffer 'y', which has 32"),
        (STORE, {"y_size": 3}, "ends at byte 48 of buffer 'y'"),
        (UOP, {"x_size": 65535}, "ends at byte 262140 of buffer 'uop', which has 4"),
    ],
)
def test_what_leaves_its_buffer_is_named(k, fields, text):
    wrong = changed(copy_launch(), k, **fields)
    with pytest.raises(AccessError, match=text) as caught:
        check_dram(wrong)
    assert caught.value.index == k
    long = Launch(TINY, "long", np.tile(wrong.insn, (4000, 1)), np.tile(wrong.reloc, 4000), wrong.buffers)
    with pytest.raises(AccessError, match=f"instruction {k} .*{text}"):
        check_dram(long)


@pytest.mark.parametrize(
    "k, number, error, text",
    [
        (STORE, -1, AccessError, f"instruction {STORE} .*accesses DRAM, but its address belongs to no buffer"),
        (STORE, 0, AccessError, f"{STORE} .*stores to buffer 'x', which is input; only output, temp and state"),
        # it would change the fields that lie where others have an address
        (ALU, 0, ProgramError, f"instruction {ALU} .*has no DRAM address, but is relocated to buffer 0"),
    ],
)
def test_relocations_to_the_wrong_buffer(k, number, error, text):
    found = copy_launch()
    found.reloc[k] = number
    with pytest.raises(error, match=text):
        check_dram(found)
    if (k, number) == (STORE, 0):
        found.buffers[0].kind = "temp"
        check_dram(found)


def test_buffers_lie_on_entries():
    """Otherwise it depends on the device's memory whether the program runs."""
    found = copy_launch()
    for align, right in ((24, False), (48, True)):
        found.buffers[0].align = align
        if right:
            check_dram(found)
        else:
            with pytest.raises(EncodingError, match=f"instruction {LOAD}: .*'x' is aligned to 24 bytes; must be .* 16"):
                check_dram(found)


LINES = [
    "    0  LOAD    LOAD.INP sram_base=3 dram_base=9 y_size=1 x_size=2 push_next",
    "    1  COMPUTE ALU.SHR uop_end=1 iter_in=2 use_imm=1 imm=-4 pop_prev",
    "    2  STORE   STORE.OUT y_size=1 x_size=1 pop_prev push_prev",
    "    3  COMPUTE FINISH pop_next",
]
TEXT = words(
    VTA,
    ("LOAD", {"op": Op.LOAD, "mem": Mem.INP, "sram_base": 3, "dram_base": 9, "y_size": 1, "x_size": 2, "push_next": 1}),
    ("ALU", {"op": Op.ALU, "uop_end": 1, "iter_in": 2, "alu_op": AluOp.SHR, "use_imm": 1, "imm": -4, "pop_prev": 1}),
    ("STORE", {"op": Op.STORE, "mem": Mem.OUT, "y_size": 1, "x_size": 1, "pop_prev": 1, "push_prev": 1}),
    ("FINISH", {"op": Op.FINISH, "pop_next": 1}),
)
EXTENSIONS = words(
    PYNQ,
    ("LOAD", {"op": Op.LOAD, "mem": Mem.PAR, "sram_base": 2, "y_size": 1, "x_size": 4, "push_prev": 1}),
    ("DWGEMM", {"op": Op.DWGEMM, "uop_end": 9, "iter_out": 2, "iter_in": 1, "wgt_out": 9, "overwrite": 1}),
    ("ALU", {"op": Op.ALU, "uop_end": 1, "iter_in": 1, "alu_op": AluOp.RESCALE, "use_imm": 1, "imm": 3}),
    ("STOREQ", {"op": Op.STORE, "mem": Mem.OUTQ, "y_size": 2, "x_size": 1, "par_base": 2, "par_step": 1}),
)
REFUSED = words(VTA, ("FINISH", {"op": 7}), ("FINISH", {"op": 6, "pop_next": 1}))


@pytest.mark.parametrize(
    "cfg, insn, lines",
    [
        (VTA, TEXT[:0], []),
        (VTA, TEXT, LINES),
        (PYNQ, EXTENSIONS, [
            "    0  STORE   LOAD.PAR sram_base=2 y_size=1 x_size=4 push_prev",
            "    1  COMPUTE DWGEMM uop_end=9 iter_out=2 iter_in=1 overwrite=1 wgt_out=9",
            "    2  COMPUTE ALU.RESCALE uop_end=1 iter_in=1 use_imm=1 imm=3",
            "    3  STORE   STORE.OUTQ y_size=2 x_size=1 par_base=2 par_step=1",
        ]),
        (VTA, REFUSED, [
            "    0  ?       TERNARY <unit ternary is not in configuration vta>",
            "    1  ?       DWGEMM pop_next <extension depthwise is not in configuration vta>",
        ]),
    ],
    ids=["none", "vta", "extensions", "undecodable"],
)  # fmt: skip
def test_a_line_has_index_queue_fields_and_tokens(cfg, insn, lines):
    assert disassemble_words(cfg, insn) == lines


def test_buffers_stand_behind_the_instructions_that_address_them():
    buffers = [Buffer("y", (4, 16), kind="output"), Buffer("x", (4, 16))]
    launch = Launch(VTA, "p", TEXT, np.array([1, -1, 0, -1], np.int32), buffers)
    assert disassemble(launch) == [LINES[0] + " @x", LINES[1], LINES[2] + " @y", LINES[3]]
