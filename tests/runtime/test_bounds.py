"""runtime/bounds.py: accesses of a launch that leave its buffers."""

import time

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import AccessError, EncodingError, ProgramError
from tilewright.hw.isa import AluOp, Isa, Mem, Op
from tilewright.runtime.launch import Launch, check_dram
from tilewright.runtime.program import Program
from tilewright.sim.random_programs import Recorder, record_random

TINY = PRESETS["tiny"]


def launch(rows=2, stride=4):
    p = Program(TINY, "copy")
    x, y = p.buffer("x", (8, 1, 4), 32), p.buffer("y", (8, 1, 4), kind="output")
    p.load(Mem.ACC, 0, x, 0, x_size=2, y_size=rows, x_stride=stride)
    p.alu(AluOp.ADD, [(4, 1, 1)])
    p.store(0, y, 0, x_size=4)
    return p.finish()


def changed(k, **fields):
    found = launch()
    f = {**Isa(TINY).decode(found.insn)[k], **fields}
    fmt = Isa(TINY).format_of(f["op"], f.get("mem", 0))
    assert fmt
    found.insn[k] = fmt.encode(1, **{name: f[name] for name in fmt.fields})[0]
    return found


def of(found, op):
    return next(k for k, f in enumerate(Isa(TINY).decode(found.insn)) if f["op"] == op)


def test_what_stays_inside_passes():
    check_dram(launch())
    for seed in range(20):
        recorder = Recorder(TINY, seed)
        record_random(recorder, 30)
        check_dram(recorder.program.finish())


LOAD, STORE = of(launch(), Op.LOAD), of(launch(), Op.STORE)
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
    found = launch()
    found.reloc[STORE] = -1
    with pytest.raises(AccessError, match=f"instruction {STORE} .*accesses DRAM, but its address belongs to no buffer"):
        check_dram(found)


def test_stores_to_what_the_host_fills():
    found = launch()
    found.reloc[STORE] = 0
    with pytest.raises(
        AccessError, match=f"{STORE} .*stores to buffer 'x', which is input; only output, temp and state"
    ) as caught:
        check_dram(found)
    assert caught.value.index == STORE
    found.buffers[0].kind = "temp"
    check_dram(found)


def test_micro_ops_are_loaded_from_their_buffer():
    found = launch()
    load = next(k for k, f in enumerate(Isa(TINY).decode(found.insn)) if f.get("mem") == Mem.UOP and f["op"] == Op.LOAD)
    f = Isa(TINY).decode(found.insn)[load]
    found.insn[load] = Isa(TINY).formats["LOAD"].encode(1, **f | {"x_size": 65535})[0]
    with pytest.raises(AccessError, match="ends at byte 262140 of buffer 'uop', which has 4"):
        check_dram(found)


def test_a_relocation_of_what_has_no_address():
    """It would change the fields that lie where others have an address."""
    found = launch()
    k = of(found, Op.ALU)
    found.reloc[k] = 0
    with pytest.raises(ProgramError, match=f"instruction {k} .*has no DRAM address, but is relocated to buffer 0"):
        check_dram(found)


def test_buffers_lie_on_entries():
    """Otherwise it depends on the device's memory whether the program runs."""
    found = launch()
    found.buffers[0].align = 24
    with pytest.raises(EncodingError, match=f"instruction {LOAD}: .*'x' is aligned to 24 bytes; must be"):
        check_dram(found)
    found.buffers[0].align = 48
    check_dram(found)


def test_a_long_program_is_checked_in_no_time():
    found = launch()
    long = Launch(TINY, "long", np.tile(found.insn, (4000, 1)), np.tile(found.reloc, 4000), found.buffers)
    start = time.perf_counter()
    check_dram(long)
    assert time.perf_counter() - start < 1
    long.insn[-2:] = changed(STORE, dram_base=5).insn[-2:]
    with pytest.raises(AccessError, match="which has 32"):
        check_dram(long)


def test_what_cannot_be_decoded_is_left_to_the_accelerator():
    found = launch()
    found.insn[0] = np.array([7, 0], np.uint64)
    check_dram(found)
