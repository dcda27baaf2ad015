"""hw/rtl/compute/accumulators.py, by induction: two units are never in one bank, and nobody waits for ever."""

import pytest
from amaranth.hdl import Cat, Mux, Signal

from tilewright.hw.config import PRESETS
from tilewright.hw.rtl.compute.accumulators import Exclusion
from tilewright.hw.rtl.latencies import accumulator_latency, issue_latency, multiply_latency, ternary_latency

CFG = PRESETS["tiny_two"]
USUAL, LONGEST, READ = issue_latency(CFG), multiply_latency(CFG), accumulator_latency(CFG)
TERNARY = ternary_latency(CFG)
ONE = "a bank belongs to one unit"
LOADS = "a load is written when those of unit ternary are written"


def bank(spec, exclusion):
    """Both units at one of the banks: issues of the compute queue, loads, issues of unit ternary, whenever they like.

    What the solver cannot choose: an issue stays at the output until it goes on, and none overtakes one that
    multiplies (hw/rtl/compute/pipeline.py).
    """
    m, dut = spec.m, exclusion(CFG)
    (inside,) = spec.add("exclusion", dut)["elaborate"]
    issue, multiply, loads, asks, may = (spec.free(name) for name in ("issue", "multiply", "loads", "asks", "may"))
    # issues that went on and are not written, by the cycles since: bit 0 stands for the cycle before
    usual, slow, ternary = (Signal(latency, name=f"flying_{latency}") for latency in (USUAL, LONGEST, TERNARY))
    leaves, stays, kind = Signal(), Signal(), Signal()
    m.d.comb += [dut.issue.eq(issue), dut.multiply.eq(multiply), dut.loads.eq(loads), leaves.eq(asks & ~dut.busy[0])]
    goes = issue & may
    m.d.sync += [stays.eq(issue & ~may), kind.eq(multiply), ternary.eq(Cat(leaves, ternary))]
    m.d.sync += [usual.eq(Cat(goes & ~multiply, usual)), slow.eq(Cat(goes & multiply, slow))]
    spec.takes(~stays | (issue & (multiply == kind)))
    spec.takes(~(goes & ~multiply & slow[: LONGEST - USUAL - 1].any()))
    seen, written = Signal(), Signal()  # a load whose bank is busy since a cycle; that may be written
    m.d.sync += [seen.eq(loads), written.eq(loads & (written | (seen & ~ternary.any())))]
    reads = usual[READ - 1 :].any() | slow[READ - 1 :].any()  # or will not read any more, and has to write
    spec.sees(~((leaves | ternary.any()) & (reads | written)), ONE)
    waits = _counted(spec, loads & seen & ~written, ternary, TERNARY + 1)
    spec.sees(waits <= TERNARY + 1, LOADS)
    for k in range(TERNARY):
        spec.invariant(~ternary[k] | ~(usual[k:].any() | slow[k:].any()), "those of unit ternary are older")
    for flying in (usual, slow):
        for k, one in enumerate(flying):
            left = len(flying) - 1 - k
            spec.invariant(~one | stays | (inside.timers[0] >= left), "the timer runs as long as the latest issue")
    spec.invariant(~(usual.any() | slow.any() | stays | seen) | inside.held[0], "what is in the bank is held")
    spec.invariant(~written | seen, "only loads are written")
    spec.invariant((waits <= TERNARY) | written, "the last cycle is that in which this is seen")
    spec.reaches(goes & ternary.any() & usual.any())
    spec.reaches(written & (waits == 0) & asks)
    return spec


def _counted(spec, waits, ternary, most):
    """Cycles of the wait so far, in which no issue of unit ternary leaves."""
    count = Signal(range(most + 2))
    spec.m.d.sync += count.eq(Mux(waits, count + 1, 0))
    for k in range(1, TERNARY + 1):
        spec.invariant((count < k) | ~ternary[:k].any(), f"within {k} cycles none left")
    return count


def test_two_units_are_never_in_one_bank_and_nobody_waits_for_ever(solver, new_spec):
    solver.proved(bank(new_spec(), Exclusion))


def test_both_wait_for_each_other_in_turn(solver, new_spec):
    solver.reached(bank(new_spec(), Exclusion), 16)


@pytest.mark.parametrize(
    "before, after, text, steps",
    [
        ("self.busy.eq(self.issue | held)", "self.busy.eq(self.issue)", ONE, USUAL + 4),
        ("| self.loads[k]", "", ONE, 6),
        ("| self.loads[k]", "", LOADS, TERNARY + 6),
        ("usual - 1)", "usual - 2)", ONE, USUAL + 4),
    ],
)
def test_a_wrong_exclusion_is_found(solver, new_spec, mutant, before, after, text, steps):
    changed = mutant("compute.accumulators", before, after)
    solver.refuted(bank(new_spec(), changed.Exclusion), text, steps)
