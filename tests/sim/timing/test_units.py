"""sim/timing/units.py: queues, tokens, reasons of waits."""

import numpy as np

from tilewright.hw.isa import Queue


def test_reasons_of_waits(overlapped):
    timing, gemm = overlapped(3)
    loads = np.flatnonzero(timing.queue == Queue.LOAD)
    assert timing.waits["token_prev"].sum() > 0 and timing.waits["unit"][gemm[2]] > 900
    assert timing.waits["memory"][loads[0]] >= 40
    assert timing.counters["COMPUTE_TOKEN_WAIT"] == timing.waits["token_prev"][timing.queue == Queue.COMPUTE].sum()
    waited = sum(timing.waits[name] for name in ("token_prev", "token_next", "unit"))
    assert (timing.issue - timing.arrive == waited).all()
