"""runtime/launch.py: what a launch may hold, relocation, and accesses that leave its buffers."""

import time

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import AccessError, EncodingError, ProgramError
from tilewright.hw.isa import AluOp, Isa, Mem, Op, known_isa
from tilewright.runtime.buffer import Buffer
from tilewright.runtime.executable import Executable
from tilewright.runtime.launch import UOP_BUFFER, Launch, Origins, check_dram
from tilewright.runtime.program import Program
from tilewright.runtime.steps import LaunchStep
from tilewright.sim.random_programs import Recorder, record_random

VTA = PRESETS["vta"]
X, W, OUT = Buffer("x", (8, 16)), Buffer("w", (4, 256)), Buffer("out", (8, 16), kind="output")
UOPS = Buffer(UOP_BUFFER, (2,), 32, kind="constant", data=np.array([1, 0, 0, 0, 2, 0, 0, 0x80], np.uint8))
ENTRY = {Mem.INP: 16, Mem.WGT: 256, Mem.OUT: 16, Mem.UOP: 4}  # bytes


def row(op, mem, dram_base):
    name = "STORE" if op == Op.STORE else "LOAD"
    fields = {"sram_base": 0xFFFF, "y_size": 0xFFFF, "x_size": 1, "pop_next": op == Op.LOAD}
    return Isa(VTA).formats[name].encode(op=op, mem=mem, dram_base=dram_base, **fields)


def launch(rows, reloc, buffers=(X, W, OUT, UOPS)):
    return Launch(VTA, "p", np.concatenate(rows), np.array(reloc, np.int32), list(buffers))


ROWS = [row(Op.LOAD, Mem.INP, 3), row(Op.LOAD, Mem.WGT, 1), row(Op.STORE, Mem.OUT, 7), row(Op.LOAD, Mem.UOP, 1)]


def test_addresses_are_added_in_entries_of_the_memory_named():
    program = launch([*ROWS, row(Op.LOAD, Mem.INP, 5)], [0, 1, 2, 3, -1])
    before = program.insn.copy()
    addresses = [0x1010, 0x2100, 0x3FF0, 0x104]
    words = program.relocate(addresses)
    np.testing.assert_array_equal(program.insn, before)
    isa = Isa(VTA)
    kept = isa.decode(before)
    for k, (old, new) in enumerate(zip(kept, isa.decode(words))):
        place = addresses[k] // ENTRY[Mem(old["mem"])] if k < 4 else 0
        assert new == {**old, "dram_base": old["dram_base"] + place}
    np.testing.assert_array_equal(words[:, 1], before[:, 1])


def test_the_last_address_that_fits():
    program = launch([row(Op.LOAD, Mem.INP, 3)], [0])
    top = ((1 << 32) - 1 - 3) * 16
    assert Isa(VTA).decode(program.relocate([top, 0, 0, 0]))[0]["dram_base"] == (1 << 32) - 1
    with pytest.raises(EncodingError, match=r"^dram_base = 4294967296: outside 0\.\.4294967295 \(32 bits\)$"):
        program.relocate([top + 16, 0, 0, 0])


def test_addresses_between_entries_are_refused():
    program = launch(ROWS, [0, 1, 2, 3])
    with pytest.raises(EncodingError, match="^buffer 'w' at 0x2110: must be a multiple of 256 bytes$"):
        program.relocate([0x1010, 0x2110, 0x3FF0, 0x104])


def test_buffers_are_aligned_to_what_is_moved():
    launch(ROWS, [0, -1, 2, 3]).check_aligned()
    with pytest.raises(EncodingError, match="instruction 1: buffer 'w' is aligned to 64 bytes; must be .* 256, the"):
        launch(ROWS, [0, 1, 2, 3]).check_aligned()


def test_addresses_that_no_integer_holds_are_refused():
    with pytest.raises(EncodingError, match="^a buffer begins at byte 0x8000000000000000, which does not fit"):
        launch(ROWS[:1], [0], [X]).relocate([1 << 63])


def test_micro_ops_and_size():
    program = launch(ROWS, [0, 1, 2, 3])
    assert program.uops.tolist() == [1, 0x80000002]
    assert program.insn_bytes == 64
    assert launch(ROWS[:1], [0], [X]).uops.size == 0


@pytest.mark.parametrize(
    "insn, reloc, text",
    [
        (np.zeros((1, 2), np.int64), [0], "instructions must be uint64"),
        (np.zeros((1, 4), np.uint64), [0], "instructions must be uint64"),
        (np.zeros(2, np.uint64), [0, 0], "instructions must be uint64"),
        (np.zeros((1, 2), np.uint64), [1], "reloc must hold one number per instruction"),
        (
            np.zeros((1, 2), np.uint64),
            [-2],
            "reloc must hold .* instruction 0 is -2, which must be -1 or the position of one of 1 buffers",
        ),
        (np.zeros((1, 2), np.uint64), [0, 0], "reloc must hold one number per instruction"),
        (np.full((1, 2), 2, np.uint64), [0], "reloc must hold .* instruction 0 is 0, which must be -1: it has no addr"),
    ],
)
def test_instructions_and_relocations_that_do_not_fit_together(insn, reloc, text):
    with pytest.raises(ProgramError, match=f"^launch 'p': {text}"):
        Launch(VTA, "p", insn, np.array(reloc, np.int32), [X])


@pytest.mark.parametrize(
    "reloc", [np.array([-2], np.int32), np.array([0.0]), np.zeros((1, 1), np.int32), np.array(["x"])]
)
def test_relocations_that_are_none(reloc):
    with pytest.raises(ProgramError, match="^launch 'p': reloc must hold one number per instruction"):
        Launch(VTA, "p", np.zeros((1, 2), np.uint64), reloc, [X])


def test_buffers_of_one_name():
    with pytest.raises(ProgramError, match="^launch 'p': 2 buffers are named 'x'$"):
        launch(ROWS[:1], [0], [X, W, Buffer("x", (1, 16))])


@pytest.mark.parametrize(
    "buffer", [Buffer(UOP_BUFFER, (4,)), Buffer(UOP_BUFFER, (3,), 8, True, "constant", np.zeros(3, np.uint8))]
)
def test_micro_ops_that_are_none(buffer):
    with pytest.raises(
        ProgramError, match="buffer 'uop' is .* bytes: must be constant, and whole micro-ops of 4 bytes"
    ):
        launch(ROWS[:1], [0], [X, buffer])


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


def test_origins_that_do_not_fit_are_named():
    p = Program(PRESETS["tiny"])
    with pytest.raises(ProgramError, match="origin name 'a\\\\nb': must be"), p.origin("a\nb"):
        pass
    made = p.finish()
    one = np.zeros(len(made.insn), np.int32)
    for paths, macs, of, text in [
        ([()], [], one, "must be as many macs as paths"),
        ([()], [None], one + 1, "must be positions of 1 paths"),
        ([()], [None], one.astype(float), "signed integers"),
    ]:
        with pytest.raises(ProgramError, match=text):
            Origins(paths, macs, of)
    with pytest.raises(ProgramError, match="must be one of each"):
        Launch(made.cfg, "x", made.insn, made.reloc, made.buffers, Origins([()], [None], np.zeros(9, np.int32)))


TINY = PRESETS["tiny"]


def copy_launch(rows=2, stride=4):
    p = Program(TINY, "copy")
    x, y = p.buffer("x", (8, 1, 4), 32), p.buffer("y", (8, 1, 4), kind="output")
    p.load(Mem.ACC, 0, x, 0, x_size=2, y_size=rows, x_stride=stride)
    p.alu(AluOp.ADD, [(4, 1, 1)])
    p.store(0, y, 0, x_size=4)
    return p.finish()


def changed(k, **fields):
    found = copy_launch()
    f = {**Isa(TINY).decode(found.insn)[k], **fields}
    fmt = Isa(TINY).format_of(f["op"], f.get("mem", 0))
    assert fmt
    found.insn[k] = fmt.encode(1, **{name: f[name] for name in fmt.fields})[0]
    return found


def of(found, op):
    return next(k for k, f in enumerate(Isa(TINY).decode(found.insn)) if f["op"] == op)


def test_what_stays_inside_passes():
    check_dram(copy_launch())
    for seed in range(20):
        recorder = Recorder(TINY, seed)
        record_random(recorder, 30)
        check_dram(recorder.program.finish())


LOAD, STORE = of(copy_launch(), Op.LOAD), of(copy_launch(), Op.STORE)
BEYOND = [
    (LOAD, {"dram_base": 7}, "'x', which has 128"),
    (LOAD, {"x_stride": 7}, "ends at byte 144 of buffer 'x'"),
    (LOAD, {"dram_base": (1 << 32) - 1}, "of buffer 'x'"),
    (STORE, {"dram_base": 5}, "ends at byte 36 of buffer 'y', which has 32"),
    (STORE, {"y_size": 3}, "ends at byte 48 of buffer 'y'"),
]


@pytest.mark.parametrize("k, fields, text", BEYOND)
def test_what_leaves_its_buffer_is_named(k, fields, text):
    with pytest.raises(AccessError, match=text) as caught:
        check_dram(changed(k, **fields))
    assert caught.value.index == k


def test_an_address_that_belongs_to_no_buffer():
    found = copy_launch()
    found.reloc[STORE] = -1
    with pytest.raises(AccessError, match=f"instruction {STORE} .*accesses DRAM, but its address belongs to no buffer"):
        check_dram(found)


def test_stores_to_what_the_host_fills():
    found = copy_launch()
    found.reloc[STORE] = 0
    with pytest.raises(
        AccessError, match=f"{STORE} .*stores to buffer 'x', which is input; only output, temp and state"
    ) as caught:
        check_dram(found)
    assert caught.value.index == STORE
    found.buffers[0].kind = "temp"
    check_dram(found)


def test_micro_ops_are_loaded_from_their_buffer():
    found = copy_launch()
    load = next(k for k, f in enumerate(Isa(TINY).decode(found.insn)) if f.get("mem") == Mem.UOP and f["op"] == Op.LOAD)
    f = Isa(TINY).decode(found.insn)[load]
    found.insn[load] = Isa(TINY).formats["LOAD"].encode(1, **f | {"x_size": 65535})[0]
    with pytest.raises(AccessError, match="ends at byte 262140 of buffer 'uop', which has 4"):
        check_dram(found)


def test_a_relocation_of_what_has_no_address():
    """It would change the fields that lie where others have an address."""
    found = copy_launch()
    k = of(found, Op.ALU)
    found.reloc[k] = 0
    with pytest.raises(ProgramError, match=f"instruction {k} .*has no DRAM address, but is relocated to buffer 0"):
        check_dram(found)


def test_buffers_lie_on_entries():
    """Otherwise it depends on the device's memory whether the program runs."""
    found = copy_launch()
    found.buffers[0].align = 24
    with pytest.raises(EncodingError, match=f"instruction {LOAD}: .*'x' is aligned to 24 bytes; must be"):
        check_dram(found)
    found.buffers[0].align = 48
    check_dram(found)


def test_a_long_program_is_checked_in_no_time():
    found = copy_launch()
    long = Launch(TINY, "long", np.tile(found.insn, (4000, 1)), np.tile(found.reloc, 4000), found.buffers)
    start = time.perf_counter()
    check_dram(long)
    assert time.perf_counter() - start < 1
    long.insn[-2:] = changed(STORE, dram_base=5).insn[-2:]
    with pytest.raises(AccessError, match="which has 32"):
        check_dram(long)


def test_what_cannot_be_decoded_is_left_to_the_accelerator():
    found = copy_launch()
    found.insn[0] = np.array([7, 0], np.uint64)
    check_dram(found)
