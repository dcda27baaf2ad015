"""sim/timing/compute.py: GEMM after GEMM, and loads that pass it."""

import numpy as np

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Mem
from tilewright.hw.rtl import latencies as lat
from tilewright.runtime.program import Program
from tilewright.sim.timing import predict

PYNQ = PRESETS["pynq_z1"]


def test_gemm_follows_gemm_without_a_gap(overlapped):
    timing, gemm = overlapped(3)
    assert len(gemm) == 3
    assert np.diff(timing.start[gemm]).tolist() == [1000, 1000]
    assert (timing.end[gemm] - timing.start[gemm] == 999 + lat.issue_latency(PYNQ)).all()


def test_a_load_into_another_bank_passes_gemm():
    def cycles(base):
        program = Program(PYNQ, tokens="explicit")
        b = program.buffer("b", (8, PYNQ.acc_entry_bytes))
        program.gemm([(2000, 0, 0, 0)])
        program.load(Mem.ACC, base, b, 0, x_size=8)
        timing = predict(program)
        load = int(np.flatnonzero((program.finish().insn[:, 0] >> np.uint64(7) & np.uint64(7)) == Mem.ACC)[0])
        return timing.start[load], timing.end[load]

    (same, _), (other, end) = cycles(0), cycles(PYNQ.acc_depth // 2)
    assert other < 1000 and same > 2000
    assert end > 2000  # its token comes in the order of the queue
