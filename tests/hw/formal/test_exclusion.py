"""hw/rtl/compute/exclusion.py, by induction: two units are never in one bank, and nobody waits for ever."""

import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.rtl.latencies import issue_latency, multiply_latency, ternary_latency

CFG = PRESETS["tiny_two"]
USUAL, LONGEST, TERNARY = issue_latency(CFG), multiply_latency(CFG), ternary_latency(CFG)
ONE = "a bank belongs to one unit"
ISSUES = "an issue goes on when those of unit ternary are written"
LOADS = "a load is written when those of unit ternary are written"


def bank(spec, exclusion):
    """Both units at one of the banks: issues of the compute queue, loads, issues of unit ternary, whenever they like.

    What the solver cannot choose: an issue stays at the output until it goes on, and none overtakes one that
    multiplies (hw/rtl/compute/pipeline.py).
    """
    from amaranth.hdl import Mux, Signal

    m, dut = spec.m, exclusion(CFG)
    (inside,) = spec.add("exclusion", dut)["elaborate"]
    issue, multiply, loads, asks, may = (spec.free(name) for name in ("issue", "multiply", "loads", "asks", "may"))
    compute, ternary = Signal(LONGEST), Signal(TERNARY)  # issues that went on, by the cycles to their writes
    goes, leaves, stays, kind = Signal(), Signal(), Signal(), Signal()
    m.d.comb += [
        dut.issue.eq(issue),
        dut.multiply.eq(multiply),
        dut.loads.eq(loads),
        dut.ternary.eq(ternary.any()),
        goes.eq(issue & may & ~dut.waits),
        leaves.eq(asks & ~dut.busy[0]),
    ]
    m.d.sync += [
        stays.eq(issue & ~goes),
        kind.eq(multiply),
        compute.eq(compute >> 1 | Mux(goes, Mux(multiply, 1 << LONGEST - 1, 1 << USUAL - 1), 0)),
        ternary.eq(ternary >> 1 | leaves << TERNARY - 1),
    ]
    spec.takes(~stays | (issue & (multiply == kind)))
    spec.takes(~(goes & ~multiply & compute[USUAL + 1 :].any()))
    seen, written = Signal(), Signal()  # a load whose bank is busy since a cycle; that may be written
    m.d.sync += [seen.eq(loads), written.eq(loads & (written | (seen & ~ternary.any())))]
    spec.sees(~((leaves | ternary.any()) & (goes | compute.any() | written)), ONE)
    issue_waits = _counted(spec, issue & dut.waits, ternary, TERNARY)
    load_waits = _counted(spec, loads & seen & ~written, ternary, TERNARY + 1)
    spec.sees(issue_waits <= TERNARY, ISSUES)
    spec.sees(load_waits <= TERNARY + 1, LOADS)
    for k in range(LONGEST):
        spec.invariant(~compute[k] | stays | (inside.timers[0] >= k), "the timer runs as long as the latest issue")
    spec.invariant(~(compute.any() | stays | seen) | inside.held[0], "what is in the bank is held")
    spec.invariant(~written | seen, "only loads are written")
    spec.invariant((load_waits <= TERNARY) | written, "the last cycle is that in which this is seen")
    spec.reaches(goes & (issue_waits == 3))
    spec.reaches(written & (load_waits == 0) & asks)
    return spec


def _counted(spec, waits, ternary, most):
    """Cycles of the wait so far, in which no issue of unit ternary leaves."""
    from amaranth.hdl import Mux, Signal

    count = Signal(range(most + 2))
    spec.m.d.sync += count.eq(Mux(waits, count + 1, 0))
    for k in range(1, TERNARY + 1):
        spec.invariant((count < k) | (ternary >> TERNARY - k == 0), f"after {k} cycles so many are written")
    return count


def test_two_units_are_never_in_one_bank_and_nobody_waits_for_ever(solver, new_spec):
    from tilewright.hw.rtl.compute.exclusion import Exclusion

    solver.proved(bank(new_spec(), Exclusion))


def test_both_wait_for_each_other_in_turn(solver, new_spec):
    from tilewright.hw.rtl.compute.exclusion import Exclusion

    solver.reached(bank(new_spec(), Exclusion), 16)


@pytest.mark.parametrize(
    "before, after, text, steps",
    [
        ("self.busy.eq(self.issue | held)", "self.busy.eq(held)", ONE, 6),
        ("self.issue & self.ternary", "self.issue & self.ternary & self.multiply.replicate(4)", ONE, 6),
        ("| self.loads[k]", "", ONE, 6),
        ("usual - 1)", "usual - 2)", ONE, USUAL + 4),
        ("self.busy.eq(self.issue | held)", "self.busy.eq(0)", ISSUES, TERNARY + 4),
        ("self.busy.eq(self.issue | held)", "self.busy.eq(0)", LOADS, TERNARY + 6),
    ],
)
def test_a_wrong_exclusion_is_found(solver, new_spec, mutant, before, after, text, steps):
    changed = mutant("compute.exclusion", before, after)
    solver.refuted(bank(new_spec(), changed.Exclusion), text, steps)
