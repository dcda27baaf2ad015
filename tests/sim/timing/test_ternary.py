"""sim/timing/ternary.py: unit `ternary` beside the others, by its constants and by the circuit."""

import shutil

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Mem
from tilewright.hw.rtl import latencies as lat
from tilewright.hw.units import Queue
from tilewright.runtime.loader import run
from tilewright.runtime.program import Program
from tilewright.sim.rtl import RtlDevice
from tilewright.sim.timing import predict

TWO, PYNQ = PRESETS["tiny_two"], PRESETS["pynq_z1_two"]
QUEUE = Queue.TERNARY


class Work:
    """A program with inputs and weights on chip: products of unit `ternary` and of GEMM, in rows of one bank each."""

    def __init__(self, cfg, rows=4):
        self.cfg, self.rows, self.p = cfg, rows, Program(cfg)
        x, w = self.p.buffer("x", (rows, cfg.inp_entry_bytes)), self.p.buffer("w", (1, cfg.wgt_entry_bytes))
        t = self.p.buffer("t", (1, cfg.twgt_entry_bytes), signed=False)
        self.y = self.p.buffer("y", (2 * rows, cfg.out_entry_bytes), kind="output")
        self.p.load(Mem.INP, 0, x, 0, x_size=rows)
        self.p.load(Mem.TWGT, 0, t, 0)
        self.p.load(Mem.WGT, 0, w, 0)

    def ternary(self, trips, bank, at=0):
        self.p.ternary([(trips, 0, 0, 0), (self.rows, 1, 1, 0)], bank * self.cfg.bank_depth + at, overwrite=True)

    def gemm(self, trips, bank):
        self.p.gemm([(trips, 0, 0, 0), (self.rows, 1, 1, 0)], bank * self.cfg.bank_depth, overwrite=True)

    def store(self, bank, at=0):
        self.p.store(bank * self.cfg.bank_depth + at, self.y, 0, x_size=self.rows)


def of_ternary(timing):
    return np.flatnonzero(timing.queue == QUEUE)


@pytest.mark.parametrize("cfg", [TWO, PYNQ], ids=lambda cfg: cfg.name)
def test_instructions_follow_each_other_without_a_gap(cfg):
    work = Work(cfg)
    for _ in range(3):
        work.ternary(50, 2)
    timing = predict(work.p)
    at = of_ternary(timing)[:3]
    assert np.diff(timing.start[at]).tolist() == [200, 200]
    assert (timing.end[at] - timing.start[at] == 199 + lat.ternary_latency(cfg)).all()
    assert timing.start[at[0]] - timing.issue[at[0]] == lat.TERNARY_SEQUENCER_LATENCY
    assert timing.counters["TERNARY_INSNS"] == len(of_ternary(timing)) and timing.counters["TERNARY_BUSY"] > 600


def test_units_work_at_the_same_time_in_banks_of_their_own():
    def cycles(gemm, ternary, bank):
        work = Work(PYNQ)
        work.ternary(ternary, bank, PYNQ.plane_depth // 2)
        work.gemm(gemm, 0)
        return predict(work.p).cycles

    least = cycles(1, 1, 1)
    assert cycles(300, 1, 1) == pytest.approx(least + 1200, abs=20)
    assert cycles(300, 300, 1) == pytest.approx(cycles(300, 1, 1), abs=2)
    assert cycles(300, 300, 0) == pytest.approx(least + 2400, abs=40)  # one after the other


def test_store_waits_for_a_bank_that_the_unit_reads():
    def waits(bank):
        work = Work(PYNQ)
        work.p.ternary([(4, 1, 1, 0)], reset=True)
        work.store(0)
        work.p.ternary([(50, 0, 0, 0), (4, 1, 1, 0)], bank * PYNQ.bank_depth + 8)
        timing = predict(work.p)
        return timing.waits["bank"].sum()

    assert waits(0) > 100 and waits(1) == 0


def test_without_short_ways_the_cycles_are_the_same():
    for bank in (0, 1):
        work = Work(TWO)
        for k in range(3):
            work.gemm(20, 0)
            work.ternary(9 + k, bank, 4)
            work.store(0)
            work.store(bank, 4)
        quick, slow = predict(work.p), predict(work.p, fast=False)
        assert quick.cycles == slow.cycles and (quick.end == slow.end).all()


# (GEMM first, trips of unit ternary, trips of GEMM, bank of the unit): GEMM has bank 0
SHARED = [(1, 9, 5, 0), (0, 9, 5, 0), (0, 30, 2, 0), (1, 2, 30, 0), (0, 1, 1, 0), (0, 20, 20, 1)]


@pytest.mark.circuit
@pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built")
@pytest.mark.parametrize("case", SHARED, ids=str)
def test_every_instruction_takes_the_cycles_of_the_circuit(case):
    first, ternary, gemm, bank = case
    work = Work(TWO)
    for _ in range(4):
        if first:
            work.gemm(gemm, 0)
        work.ternary(ternary, bank, 4)
        if not first:
            work.gemm(gemm, 0)
    work.store(0)
    work.store(bank, 4)
    launch = work.p.finish()
    inputs = {b.name: np.zeros(b.shape, np.int8) for b in launch.buffers if b.kind == "input"}
    timing, (_, found) = predict(launch), run(launch, inputs, RtlDevice(TWO))
    assert found.timeline is not None
    circuit = found.timeline()
    assert timing.cycles == found.cycles
    np.testing.assert_array_equal(timing.issue, circuit.issue)
    np.testing.assert_array_equal(timing.end, circuit.end)
    for name in ("TERNARY_BUSY", "TERNARY_INSNS", "TERNARY_TOKEN_WAIT"):
        assert timing.counters[name] == found.counters[name]
