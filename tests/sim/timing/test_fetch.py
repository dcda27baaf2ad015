"""sim/timing/engine.py: instructions in the order of the program, as far as queues have room."""

from collections import deque
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Mem, Queue
from tilewright.hw.rtl import latencies as lat
from tilewright.hw.units import Reader
from tilewright.runtime.program import Program
from tilewright.sim.dram import Dram
from tilewright.sim.timing import predict
from tilewright.sim.timing.engine import Fetch

TINY = PRESETS["tiny"]


def test_an_instruction_is_two_beats():
    program = Program(TINY)
    for _ in range(12):
        program.gemm([(1, 0, 0, 0)])
    timing = predict(program)
    arrive = timing.arrive[timing.queue == Queue.COMPUTE]
    assert (np.diff(arrive[3:10]) == 2).all()


@pytest.mark.parametrize("depth", [4, 64])
def test_a_full_queue_keeps_other_queues_from_their_instructions(depth):
    program = Program(TINY.replace(queue_depth=depth), tokens="explicit")
    x = program.buffer("x", (1, TINY.inp_entry_bytes))
    for _ in range(20):
        program.gemm([(100, 0, 0, 0)])
    program.load(Mem.INP, 0, x, 0)
    timing = predict(program)
    load = timing.arrive[timing.queue == Queue.LOAD][0]
    assert (load > 1000) == (depth == 4)


def test_the_first_one_comes_after_the_latency():
    launch = Program(TINY).finish()
    near, far = (predict(launch, dram=Dram(latency=latency)) for latency in (10, 60))
    assert far.arrive[0] - near.arrive[0] == 50


def test_an_instruction_whose_queue_is_full_has_left_the_buffer():
    """It waits in the word that its beats were put together in, so the next burst has room before it has a queue."""
    cfg = TINY.replace(axi_bits=32, queue_depth=4)
    room = lat.capacity(cfg.queue_depth)
    beats = 4 * (room + 1)  # four of 32 bits for each instruction; the last one finds the queue full
    unit: Any = SimpleNamespace(arrivals=[], taken=deque(), at=0, wake=lambda: None)
    program: Any = SimpleNamespace(queue=np.zeros(room + 2, int), count=room + 2)
    fetch = Fetch(cfg, program, 0, [unit], Reader("fetch", 64, 1))
    fetch.asked = beats
    fetch.burst(beats, 100, final=False)
    assert len(unit.arrivals) == room and fetch.waits_for is unit
    assert list(fetch.taken) == [(beats, 100 + lat.BEAT_LATENCY, 1)]
    unit.taken.append(500)
    fetch.resume()
    assert unit.arrivals[-1] == 501 + lat.FIFO_LATENCY and len(fetch.taken) == 1
