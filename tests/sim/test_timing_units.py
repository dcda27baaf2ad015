"""sim/timing_units.py: queues, tokens, reasons of waits."""

import numpy as np

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Mem, Queue
from tilewright.runtime.program import Program
from tilewright.sim.timing import predict

PYNQ = PRESETS["pynq_z1"]


def overlapped(loads):
    """A program in which each of `loads` loads gives a token to a GEMM of 1000 visits."""
    program = Program(PYNQ, tokens="explicit")
    x = program.buffer("x", (loads, PYNQ.inp_entry_bytes))
    for k in range(loads):
        program.load(Mem.INP, k, x, k)
        program.dep_push(Queue.LOAD, Queue.COMPUTE)
        program.dep_pop(Queue.LOAD, Queue.COMPUTE)
        program.gemm([(1000, 0, 0, 0)])
    return predict(program)


def test_reasons_of_waits():
    timing = overlapped(3)
    gemm = np.flatnonzero((timing.queue == Queue.COMPUTE) & (timing.end - timing.start > 900))
    loads = np.flatnonzero(timing.queue == Queue.LOAD)
    assert timing.waits["token_prev"].sum() > 0 and timing.waits["unit"][gemm[2]] > 900
    assert timing.waits["memory"][loads[0]] >= 40
    assert timing.counters["COMPUTE_TOKEN_WAIT"] == timing.waits["token_prev"][timing.queue == Queue.COMPUTE].sum()
    waited = sum(timing.waits[name] for name in ("token_prev", "token_next", "unit"))
    assert (timing.issue - timing.arrive == waited).all()
