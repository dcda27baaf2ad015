"""hw/rtl/compute/accumulators.py: who may enter a bank, and for how long its owner has it."""

from collections import deque

import pytest

from tests.hw.bench import script, simulate
from tests.hw.rtl.compute import unit_bench as compute
from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Mem
from tilewright.hw.rtl.compute import unit
from tilewright.hw.rtl.compute.accumulators import Exclusion
from tilewright.hw.rtl.latencies import accumulator_latency, issue_latency, multiply_latency, ternary_latency

TWO = PRESETS["tiny_two"]
BANKS = TWO.acc_banks


FIRST, USUAL, LONGEST = {"busy": 1}, issue_latency(TWO), multiply_latency(TWO)
BUSY = {
    # while the issue stands at the output, and then as many cycles as it takes; the other banks are free
    "an issue": [({"issue": 4}, {"busy": 4}, 3), ({"issue": 0}, {"busy": 4}, USUAL), ({}, {"busy": 0}, 0)],
    "a multiplication": [
        ({"issue": 4, "multiply": 1}, {"busy": 4}, 3),
        ({"issue": 0}, {"busy": 4}, LONGEST),
        ({}, {"busy": 0}, 0),
    ],
    # GEMM in the bank of a MUL stands at the output until the results of that come, so the bank stays busy
    "a quick issue behind a slow one": [
        ({"issue": 1, "multiply": 1}, {}),
        ({"multiply": 0}, FIRST, LONGEST),
        ({"issue": 0}, FIRST, USUAL),
    ],
    # a cycle longer than they say
    "loads until they are written": [
        ({"loads": 3}, {"busy": 0}),
        ({}, {"busy": 3}, 40),
        ({"loads": 2}, {"busy": 3}),
        ({}, {"busy": 2}, 0),
    ],
}


@pytest.mark.parametrize("name", BUSY)
def test_a_bank_is_busy_for(name):
    dut = Exclusion(TWO)
    simulate(dut, script(dut, *BUSY[name]))


@pytest.mark.parametrize("block", [1, 2, 16, 256])
def test_unit_ternary_has_written_when_the_next_issue_reads(block):
    """So that GEMM and ALU wait for none of its issues."""
    cfg = TWO.replace(block_in=block, extensions=[], inp_bytes=None, wgt_bytes=None, twgt_bytes=64 * block)
    assert ternary_latency(cfg) <= accumulator_latency(cfg)


class Neighbour:
    """Unit `ternary` around a compute unit: issues in random banks that are not busy, as often as it may.

    It looks at all ports of the accumulators, where the two must never meet.
    """

    def __init__(self, bench, accumulators, share):
        self.bench, self.acc, self.share = bench, accumulators, share
        self.issues = self.loaded = 0

    def bank(self, addr):
        return addr // self.bench.cfg.bank_depth

    def used(self, ctx):
        """Banks that the compute unit reads or writes, and those that a load writes."""
        acc = self.acc[-1]
        compute = {k for port in (acc.dst, acc.src) for k in range(BANKS) if ctx.get(port.en) >> k & 1}
        if ctx.get(acc.write.en):
            compute.add(self.bank(ctx.get(acc.write.addr)))
        return compute, {self.bank(ctx.get(acc.load.addr))} if ctx.get(acc.load.en) else set()

    async def run(self, ctx):
        dut, r = self.bench.dut, self.bench.rng
        inside: deque[int | None] = deque([None] * ternary_latency(self.bench.cfg), ternary_latency(self.bench.cfg))
        while True:
            there = {bank for bank in inside if bank is not None}
            ctx.set(dut.ternary_busy, sum(1 << bank for bank in there))
            compute, loaded = self.used(ctx)
            assert not there & (compute | loaded)
            self.loaded += bool(loaded)
            bank, busy = int(r.integers(BANKS)), ctx.get(dut.busy)
            leaves = not busy >> bank & 1 and r.random() < self.share
            inside.append(bank if leaves else None)
            self.issues += leaves
            await ctx.tick()


@pytest.fixture
def seen(monkeypatch):
    """The accumulators of every compute unit that is made."""
    found = []

    class Seen(unit.Accumulators):
        def __init__(self, cfg):
            super().__init__(cfg)
            found.append(self)

    monkeypatch.setattr(unit, "Accumulators", Seen)
    return found


@pytest.mark.circuit
@pytest.mark.parametrize("share", [0.3, 1.0])
def test_a_load_that_nothing_else_holds_up_waits_for_the_unit(seen, share):
    """Padding, which needs no data, into a bank that the unit is in, or enters before it sees the load."""
    bench = compute.Bench(TWO, seed=3)
    for _ in range(24):
        bench.load(Mem.ACC, TWO.bank_depth * int(bench.rng.integers(BANKS)), 0, x_size=1, x_pad_0=6)
    neighbour, words = Neighbour(bench, seen, share), bench.words

    async def main(ctx):
        for word in words:
            bench.words = [word]
            await bench.source(ctx)
            await ctx.tick().until(bench.dut.idle)
        await bench.read_back(ctx)

    simulate(bench.module, main, background=[neighbour.run, bench.memory()], cycles=2000)
    assert neighbour.loaded == 24 * (6 + 2)  # the entry that is read comes in two beats


@pytest.mark.circuit
def test_gemm_takes_no_cycle_longer(seen):
    """Beside a unit that is in all other banks, and in its own as soon as it may."""
    cycles = []
    for share in (0.0, 1.0):
        bench = compute.prepared("two units", [(0, 1, 2), (TWO.bank_depth, 2, 1), (0, 3, 3)])
        for at in (0, 1, 2, 1, 0):
            bench.add(2, uop_bgn=at, uop_end=at + 1, iter_out=1, iter_in=40)
        neighbour = Neighbour(bench, seen, share)
        bench.tokens = neighbour.run
        cycles.append(compute.run(bench))
    assert cycles[1] <= cycles[0] + 2 * ternary_latency(TWO)  # loads before the first
    assert neighbour.issues > 100  # beside half of the steps of GEMM and more
