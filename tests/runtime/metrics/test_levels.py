"""runtime/metrics/levels.py: levels from hand-made cycles."""

import numpy as np

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Mem, Queue
from tilewright.hw.units import Channel, channels
from tilewright.runtime.device import Timeline
from tilewright.runtime.metrics import flagged, queue_levels, token_levels
from tilewright.runtime.program import Program

TINY = PRESETS["tiny"]


def launch():
    """Load, GEMM, STORE, FINISH."""
    program = Program(TINY)
    x, out = program.buffer("x", (1, TINY.block_in)), program.buffer("out", (1, TINY.block_out), kind="output")
    program.load(Mem.INP, 0, x, 0)
    program.gemm([(1, 1, 1, 1)], overwrite=True)
    program.store(0, out, 0)
    return program.finish()


def timeline(found, queued=None):
    """Each instruction is issued in cycle 10 k and ends in 10 k + 5."""
    n = len(found.insn)
    ops = (found.insn[:, 0] & np.uint64(7)).tolist()
    queue = np.array([{0: Queue.COMPUTE, 1: Queue.STORE}.get(op, Queue.COMPUTE) for op in ops])
    queue[0] = Queue.LOAD
    issue = 10 * np.arange(n)
    return Timeline(queue, issue, issue, issue + 5, {}, queued)


def test_tokens_are_given_at_the_end_and_taken_at_the_issue():
    made = launch()
    levels = token_levels(made, timeline(made))
    given = levels[Channel(Queue.LOAD, Queue.COMPUTE)]
    (push,) = flagged(made, timeline(made), Queue.LOAD, "push_next")
    (pop,) = flagged(made, timeline(made), Queue.COMPUTE, "pop_prev")
    assert (given.cycles.tolist(), given.values.tolist(), given.most) == ([10 * push + 5, 10 * pop], [1, 0], 1)
    assert len(levels) == len(channels(TINY))


def test_instructions_wait_in_their_queue_until_they_are_issued():
    made = launch()
    assert queue_levels(made, timeline(made)) == {}
    levels = queue_levels(made, timeline(made, np.zeros(len(made.insn), np.int64)))
    mine = int((timeline(made).queue == Queue.COMPUTE).sum())
    assert levels["compute"].most == mine and levels["compute"].values[-1] == 0
    assert levels["load"].most == 0  # issued in the cycle in which it comes
