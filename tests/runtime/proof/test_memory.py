"""runtime/proof/memory.py: what is read without having been written, and the bytes of every access."""

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import UnwrittenError
from tilewright.hw.isa import AluOp, Mem, known_isa
from tilewright.runtime.access import dram_access
from tilewright.runtime.program import Program
from tilewright.runtime.proof.memory import DramTouches
from tilewright.runtime.proof.order import Instructions
from tilewright.runtime.symbols import Symbol
from tilewright.runtime.verify import verify
from tilewright.sim.random_programs import Recorder, record_random

VTA = PRESETS["vta"]


def program(kind="temp", **sizes):
    recorded = Program(VTA)
    a = recorded.buffer("a", (8, 1, 16))
    t = recorded.buffer("t", (8, 1, 16), kind=kind)
    out = recorded.buffer("out", (4, 1, 16), kind="output")
    recorded.load(Mem.INP, 0, a, 0, x_size=4)
    recorded.gemm([(8, 1, 0, 0)], dst=0, reset=True)
    return recorded, a, t, out


def test_a_proved_program(launch):
    verify(launch, memory=True)


@pytest.mark.parametrize(
    "record, text",
    [
        (lambda p: p.alu(AluOp.ADD, [(4, 1, 1)], dst=6, imm=1), r"\(ALU.ADD .* reads ACC entries 8\.\.9 before any"),
        (lambda p: p.alu(AluOp.ADD, [(4, 1, 1)], dst=0, src=8), r"\(ALU.ADD .* reads ACC entries 8\.\.11 before any"),
        (lambda p: p.gemm([(4, 1, 1, 0)], dst=0, src=2, wgt=0), r"\(GEMM .* reads INP entries 4\.\.5 before any"),
    ],
)
def test_an_entry_that_nothing_wrote_is_named(record, text):
    recorded, _, _, out = program()
    if "GEMM" in text:
        w = recorded.buffer("w", (1, 16, 16))
        recorded.load(Mem.WGT, 0, w, 0)
    record(recorded)
    recorded.store(0, out, 0, x_size=4)
    launch = recorded.finish()
    verify(launch)
    with pytest.raises(UnwrittenError, match=text):
        verify(launch, memory=True)


def test_who_writes_it_too_late_is_named():
    recorded, a, _, out = program()
    recorded.store(6, out, 0, x_size=4)
    recorded.load(Mem.ACC8 if "acc8" in VTA.extensions else Mem.ACC, 8, a, 0, x_size=2)
    with pytest.raises(UnwrittenError, match=r"STORE.OUT .* ACC entries 8\.\.9 before .*; .*LOAD.* does later"):
        verify(recorded.finish(), memory=True)


def test_a_temporary_is_written_before_it_is_read():
    def launch(stored, kind="temp"):
        recorded, _, t, out = program(kind)
        recorded.store(0, t, 0, x_size=stored)
        recorded.load(Mem.INP, 0, t, 2, x_size=4)
        recorded.store(0, out, 0, x_size=4)
        return recorded.finish()

    verify(launch(6), memory=True)
    with pytest.raises(
        UnwrittenError, match=r"LOAD.INP .* reads bytes 0x50\.\.0x5f of buffer 't' before any"
    ) as caught:
        verify(launch(5), memory=True)
    assert caught.value.index is not None
    verify(launch(5, "state"), memory=True)


def test_outputs_are_written_whole():
    recorded, _, _, out = program()
    recorded.store(0, out, 0, y_size=2, x_size=1, x_stride=2)
    with pytest.raises(UnwrittenError, match=r"no instruction writes bytes 0x10\.\.0x3f of buffer 'out', of an output"):
        verify(recorded.finish(), memory=True)


@pytest.mark.parametrize("limit, right", [(1, True), (4, False)])
def test_a_store_with_a_symbol_writes_what_it_writes_for_every_value(limit, right):
    recorded, _, t, out = program()
    recorded.store(0, t, 0, x_size=4, at=Symbol("position", limit, step=1))
    recorded.load(Mem.INP, 0, t, 0, x_size=4)
    recorded.store(0, out, 0, x_size=4)
    launch = recorded.finish()
    if right:
        verify(launch, memory=True)
        return
    with pytest.raises(UnwrittenError, match=r"reads bytes 0x0\.\.0x2f of buffer 't'"):
        verify(launch, memory=True)


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
