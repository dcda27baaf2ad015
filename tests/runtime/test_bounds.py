"""runtime/bounds.py: accesses of a launch that leave its buffers."""

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import AccessError
from tilewright.hw.isa import AluOp, Isa, Mem, Op
from tilewright.runtime.bounds import check_dram
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


def test_what_cannot_be_decoded_is_left_to_the_accelerator():
    found = launch()
    found.insn[0] = np.array([7, 0], np.uint64)
    check_dram(found)
