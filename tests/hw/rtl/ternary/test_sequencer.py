"""hw/rtl/ternary.py: the order of issues, one per cycle, and indices beyond their scratchpads or planes."""

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Mem, Op
from tilewright.hw.regs import Error
from tilewright.hw.rtl.latencies import TERNARY_ISSUES_AHEAD, TERNARY_SEQUENCER_LATENCY
from tilewright.hw.rtl.ternary import TernarySequencer

TWO = PRESETS["tiny_two"]  # 4 banks of 4 planes of 8 accumulators, 256 inputs, 128 entries of weights, 256 micro-ops
ONE = TWO.replace(name="one_block", ternary_blocks=1, twgt_bytes=512)
LOOPS = {"uop_bgn": 0, "uop_end": 1, "iter_out": 1, "iter_in": 1}


@pytest.fixture
def bench(sequencer_bench):
    """A function that makes the bench of a configuration with its micro-ops."""
    return lambda cfg, uops: sequencer_bench(cfg, TernarySequencer(cfg), Mem.TUOP, uops)


@pytest.mark.parametrize("cfg", [TWO, ONE], ids=lambda c: c.name)
@pytest.mark.parametrize("stalls", [False, True])
def test_order_of_issues(simulate, rng, bench, cfg, stalls):
    """In every bank; not one cycle without an issue, but between jobs of a single one."""
    uops = [(int(bank) * cfg.bank_depth, *(int(v) for v in rng.integers(0, 3, 2))) for bank in [*range(4)] * 2]
    dut = bench(cfg, uops)
    for _ in range(12):
        begin = int(rng.integers(0, 8))
        fields = {"uop_bgn": begin, "uop_end": int(rng.integers(begin, 9))}
        fields |= {"iter_out": int(rng.integers(0, 4)), "iter_in": int(rng.integers(0, 4))}
        fields |= {name: int(rng.integers(0, 2)) for name in ("dst_out", "dst_in", "wgt_out", "wgt_in")}
        fields |= {name: int(rng.integers(0, 9)) for name in ("src_out", "src_in")}
        dut.expect(Op.TERNARY, fields)
    issues, at, fault = dut.run(simulate, dut.jobs, len(dut.want), rng if stalls else None)
    for issue, (triple, last) in zip(issues, dut.want, strict=True):
        assert issue.last == last
        if triple is None:
            assert issue.banks == 0
        else:
            found = (issue.banks.bit_length() - 1) * cfg.bank_depth + issue.place, issue.src, issue.wgt
            assert found == triple and issue.banks.bit_count() == 1
    assert fault == (Error.NONE, 0)
    if not stalls:
        assert at == [at[0] + k for k in dut.due]


def test_latency(simulate, bench):
    dut = bench(TWO, [(1, 2, 3)])
    entry, issue = dut.entry_and_issue(simulate, dut.job(Op.TERNARY, **LOOPS))
    assert issue == entry + TERNARY_SEQUENCER_LATENCY


def test_issues_wait_behind_the_output(simulate, bench):
    """All step on with it."""
    dut = bench(TWO, [(0, k, 0) for k in range(12)])
    waited, later, gone = dut.held_back(simulate, dut.job(Op.TERNARY, **LOOPS | {"uop_end": 12}), "src")
    assert len(waited) == TERNARY_ISSUES_AHEAD
    first = gone[0][0]
    assert gone == [(first + k, k) for k in range(12)]
    assert later == [first + k for k in range(12 - TERNARY_ISSUES_AHEAD)]


BEYOND = [
    (TWO, {"iter_out": 2, "dst_out": 100}, (100, 0, 0)),
    (TWO, {"iter_out": 2, "dst_out": 8}, (0, 0, 0)),  # in the second plane
    (TWO, {}, (63, 0, 0)),  # the last of the second bank's last plane
    (TWO, {"iter_in": 3, "src_in": 100}, (0, 100, 0)),
    (TWO, {"iter_in": 2, "iter_out": 2, "wgt_in": 64, "wgt_out": 64}, (0, 0, 0)),
    (TWO, {"iter_in": 16383, "src_in": 255}, (0, 0, 0)),
    (TWO, {"iter_in": 16383, "wgt_in": 127}, (0, 0, 0)),
    (TWO, {"uop_end": 257}, (0, 0, 0)),
    (TWO, {"uop_bgn": 2}, (0, 0, 0)),
    (TWO, {"reset": 1, "iter_in": 2, "dst_in": 127}, (1, 0, 0)),
    (ONE.replace(twgt_bytes=256), {}, (0, 0, 64)),  # of as many entries of ternary weights, fewer than a micro-op names
    (ONE.replace(twgt_bytes=256), {"wgt_in": 64, "iter_in": 2}, (0, 0, 0)),
]


@pytest.mark.parametrize("cfg, fields, uop", BEYOND)
def test_an_index_beyond_its_scratchpad_or_plane_is_an_error(simulate, bench, cfg, fields, uop):
    dut = bench(cfg, [uop])
    job = dut.job(Op.TERNARY, index=7, **{**LOOPS, **fields})
    assert dut.fault_of(simulate, job) == (Error.RANGE, 7)


def test_reset_reads_nothing_so_other_indices_may_be_anything(simulate, bench):
    dut = bench(TWO, [(3, 255, 127)])
    job = dut.job(Op.TERNARY, **{**LOOPS, "iter_in": 3, "src_in": 255, "wgt_in": 127, "reset": 1})
    issues, _, fault = dut.run(simulate, [job], 3)
    assert [(v.place, v.banks, v.reset, v.clear) for v in issues] == [(3, 1, 1, 1)] * 3
    assert fault == (Error.NONE, 0)


def test_the_longest_loops(simulate, bench):
    """All trips of a loop of 16383, and micro-ops up to the last of the buffer."""
    dut = bench(TWO, [(0, 0, 0)] * 256)
    jobs = [dut.job(Op.TERNARY, uop_bgn=255, uop_end=256, iter_out=1, iter_in=16383)]
    issues, at, fault = dut.run(simulate, jobs, 16383, cycles=17_000)
    assert [v.last for v in issues[-2:]] == [0, 1]
    assert np.ptp(at) == len(at) - 1
    assert fault == (Error.NONE, 0)
