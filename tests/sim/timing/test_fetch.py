"""sim/timing/fetch.py: instructions in the order of the program, as far as queues have room."""

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Mem, Queue
from tilewright.runtime.program import Program
from tilewright.sim.dram import Dram
from tilewright.sim.timing import predict

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
