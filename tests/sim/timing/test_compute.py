"""sim/timing/compute.py: GEMM after GEMM, and loads that pass it."""

import shutil

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Mem, Op
from tilewright.hw.rtl import latencies as lat
from tilewright.runtime.program import Program
from tilewright.sim.random_programs import NARROW
from tilewright.sim.rtl import RtlDevice
from tilewright.sim.timing import predict
from tilewright.sim.timing.device import TimingDevice

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


def test_a_load_of_no_rows_has_the_place_that_its_low_bits_name():
    """What reads another bank passes it; what reads that one waits, also where the place is beyond the accumulators."""

    def cycles(place):
        program = Program(NARROW)
        x, y = program.buffer("x", (8, 1, 8), 32), program.buffer("y", (8, 1, 8), 4, kind="output")
        program.load(Mem.ACC, 0, x, 0, x_size=8)
        for _ in range(3):
            program.load(Mem.ACC, place, x, 0, x_size=2, y_size=0)
            program.alu_uops("ADD", np.array([(1, 0), (2, 0)]), imm=1)
        program.store(0, y, 0, x_size=8)
        return predict(program).cycles

    assert cycles(0) == cycles(NARROW.acc_depth) > cycles(NARROW.acc_depth - 1)


@pytest.mark.circuit
@pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built")
@pytest.mark.parametrize(("begin", "end"), [(0, 1), (3, 3), (3, 5), (4, 4), (0, 0)])
def test_what_issues_nothing_waits_for_the_micro_ops_that_it_names(machine, begin, end):
    """As in the circuit: micro-ops 0 to 3 are being loaded, and of no range at all the place between two of them."""
    m = machine(PRESETS["tiny"])
    loads = {"op": Op.LOAD, "mem": Mem.UOP, "dram_base": 100, "x_size": 4}
    empty = {"op": Op.ALU, "uop_bgn": begin, "uop_end": end, "iter_out": 0, "iter_in": 1}
    program = m.put([loads, empty, {"op": Op.FINISH}], 4096)
    devices = (kind(PRESETS["tiny"]) for kind in (RtlDevice, TimingDevice))
    expected, got = (device.run_image(m.dram.copy(), *program).cycles for device in devices)
    assert got == expected
