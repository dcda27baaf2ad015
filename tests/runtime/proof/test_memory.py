"""runtime/proof/memory.py: what is read without having been written, on chip and in DRAM."""

import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import UnwrittenError
from tilewright.hw.isa import AluOp, Mem
from tilewright.runtime.program import Program
from tilewright.runtime.symbols import Symbol
from tilewright.runtime.verify import verify

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
