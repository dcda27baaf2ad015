"""sim/timing_store.py: stores beside GEMM."""

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Op, Queue
from tilewright.runtime.program import Program
from tilewright.sim.timing import predict

PYNQ = PRESETS["pynq_z1"]
HALF = PYNQ.acc_depth // 2


def store_beside_gemm(base, entries=64, **fields):
    """The timing of one store of accumulators from `base` on while GEMM reads those from 0 on, and its position."""
    program = Program(PYNQ, tokens="explicit")
    out = program.buffer("out", (entries * 4, PYNQ.out_entry_bytes), kind="output")
    program.gemm([(2000, 0, 0, 0)])
    program.store(base, out, 0, x_size=entries, **fields)
    timing = predict(program)
    return timing, int(np.flatnonzero(program.finish().insn[:, 0] & np.uint64(7) == Op.STORE)[0])


def test_another_bank_is_read_beside_gemm():
    timing, at = store_beside_gemm(HALF)
    assert timing.waits["bank"][at] == 0
    # 3 cycles to the first beat, two beats per entry, 20 cycles to the response
    assert timing.end[at] == timing.start[at] + 3 + 2 * 64 - 1 + 20


def test_the_same_bank_waits_for_gemm():
    timing, at = store_beside_gemm(1)
    gemm = int(np.argmax(np.where(timing.queue == Queue.COMPUTE, timing.end - timing.start, 0)))
    assert timing.waits["bank"][at] > 1500
    assert timing.end[at] > timing.end[gemm]


@pytest.mark.parametrize(("rows", "stride"), [(1, 64), (4, 64), (3, 80)])
def test_rows_follow_each_other(rows, stride):
    timing, at = store_beside_gemm(HALF, y_size=rows, x_stride=stride)
    assert timing.counters["STORE_BYTES"] == rows * 64 * 16
    assert timing.end[at] == timing.start[at] + 3 + rows * 2 * 64 - 1 + 20
