"""runtime/proof/dram.py, against the bytes of every access."""

import numpy as np

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import known_isa
from tilewright.runtime.access import dram_access
from tilewright.runtime.proof.memory import DramTouches
from tilewright.runtime.proof.order import Instructions
from tilewright.sim.random_programs import Recorder, record_random


def bytes_by_turn(launch, insn):
    """(turn, byte, written) of everything that the program touches."""
    found = set()
    for k, f in enumerate(known_isa(launch.cfg).decode(insn)):
        access = dram_access(launch.cfg, f)
        for first, end in access.spans().tolist() if access else ():
            found.update((k, byte, bool(access and access.write)) for byte in range(first, end))
    return found


def test_cells_are_the_bytes_that_are_touched(monkeypatch):
    recorder = Recorder(PRESETS["tiny"], 5)
    record_random(recorder, 8)
    launch = recorder.program.finish()
    insn = launch.relocate([3 * k << 16 for k in range(len(launch.buffers))])
    expected = bytes_by_turn(launch, insn)
    program, order = Instructions(launch.cfg, insn), np.arange(len(insn))
    everything = np.array([[0, 1 << 40]])
    for watched in (None, everything):
        touches = DramTouches(program, order, watched)
        written = {byte for _, byte, write in expected if write}
        wanted = {row for row in expected if watched is not None or row[1] in written}
        (events,) = touches.events()
        found = {
            (turn, byte, write)
            for turn, cls, write in zip(events.turn.tolist(), events.cls.tolist(), events.write.tolist())
            for byte in range(touches.bounds[cls], touches.bounds[cls + 1])
        }
        assert found >= wanted and (found == wanted if watched is not None else found <= expected)
    stores = {turn for turn, _, write in expected if write}
    assert touches.touched(touches.written) >= stores
    monkeypatch.setattr("tilewright.runtime.proof.memory.MOST_EVENTS", 4)
    parts = list(touches.events())
    assert len(parts) > 3 and sum(len(some.turn) for some in parts) == len(events.turn)
