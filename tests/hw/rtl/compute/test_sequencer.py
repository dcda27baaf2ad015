"""hw/rtl/compute/sequencer.py: the order of issues, one per cycle, and indices beyond their scratchpads."""

import numpy as np
import pytest

from tilewright.hw.config import PRESETS, Config
from tilewright.hw.isa import AluOp, Mem, Op
from tilewright.hw.regs import Error
from tilewright.hw.rtl.compute.sequencer import Sequencer
from tilewright.hw.rtl.latencies import ISSUES_AHEAD, SEQUENCER_LATENCY, STEP_LATENCY
from tilewright.sim.random_programs import ROWS

TINY = PRESETS["tiny"]
ODD = Config(
    name="odd", batch=2, block_in=8, block_out=4, wgt_bits=4,
    inp_bytes=1 << 10, wgt_bytes=1 << 10, acc_bytes=1 << 11, uop_bytes=128,
)  # fmt: skip
LOOPS = {"uop_bgn": 0, "uop_end": 1, "iter_out": 1, "iter_in": 1}


@pytest.fixture
def bench(sequencer_bench):
    """A function that makes the bench of a configuration with its micro-ops."""
    return lambda cfg, uops: sequencer_bench(cfg, Sequencer(cfg), Mem.UOP, uops)


@pytest.mark.parametrize("cfg", [TINY, ODD], ids=lambda c: c.name)
@pytest.mark.parametrize("stalls", [False, True])
def test_order_of_issues(simulate, rng, bench, cfg, stalls):
    uops = [tuple(int(v) for v in rng.integers(0, 3, 3)) for _ in range(8)]
    dut = bench(cfg, uops)
    for _ in range(12):
        begin = int(rng.integers(0, 8))
        fields = {"uop_bgn": begin, "uop_end": int(rng.integers(begin, 9))}
        fields |= {"iter_out": int(rng.integers(0, 4)), "iter_in": int(rng.integers(0, 4))}
        steps = [f"{n}_{loop}" for n in ("dst", "src") for loop in ("out", "in")]
        fields |= {name: int(rng.integers(0, 4)) for name in steps}
        op = Op(int(rng.choice([Op.GEMM, Op.DWGEMM, Op.ALU])))
        if op != Op.ALU:
            fields |= {"wgt_out": int(rng.integers(0, 2))}
        dut.expect(op, fields)
    issues, at, fault = dut.run(simulate, dut.jobs, len(dut.want), rng if stalls else None)
    for issue, (triple, last) in zip(issues, dut.want, strict=True):
        assert (issue.last, issue.bubble) == (last, triple is None)
        assert triple is None or (issue.dst, issue.src, issue.wgt) == triple
    assert fault == (Error.NONE, 0)
    if not stalls:
        assert at == [at[0] + k for k in dut.due]  # not one cycle without an issue, but between jobs of a single one


def test_latency(simulate, bench):
    dut = bench(TINY, [(1, 2, 3)])
    entry, issue = dut.entry_and_issue(simulate, dut.job(Op.GEMM, **LOOPS))
    assert issue == entry + SEQUENCER_LATENCY


def test_issues_wait_behind_the_output(simulate, bench):
    """While the first one waits; the next micro-op is read when it has gone on, and then one in every cycle again."""
    dut = bench(TINY, [(k, 0, 0) for k in range(12)])
    waited, later, gone = dut.held_back(simulate, dut.job(Op.GEMM, **LOOPS | {"uop_end": 12}), "dst")
    assert len(waited) == ISSUES_AHEAD
    first = gone[0][0]
    assert gone == [(first + k, k) for k in range(12)]
    assert later == [first + STEP_LATENCY + k for k in range(12 - ISSUES_AHEAD)]


@pytest.mark.parametrize(
    "op, fields, uop",
    [
        (Op.GEMM, {"iter_out": 2, "dst_out": 100}, (100, 0, 0)),
        (Op.GEMM, {"iter_in": 3, "src_in": 100}, (0, 100, 0)),
        (Op.GEMM, {"iter_in": 2, "iter_out": 2, "wgt_in": 64, "wgt_out": 64}, (0, 0, 0)),
        (Op.GEMM, {"iter_in": 16383, "src_in": 255}, (0, 0, 0)),
        (Op.DWGEMM, {"iter_out": 5, "wgt_out": 127}, (0, 0, 127)),
        (Op.DWGEMM, {"iter_in": 16383, "wgt_in": 127}, (0, 0, 0)),
        (Op.ALU, {"alu_op": AluOp.ADD}, (0, 128, 0)),
        (Op.GEMM, {"uop_end": 257}, (0, 0, 0)),
        (Op.GEMM, {"uop_bgn": 2}, (0, 0, 0)),
    ],
)
def test_an_index_beyond_its_scratchpad_is_an_error(simulate, bench, op, fields, uop):
    """tiny has 128 accumulators, 256 inputs, 128 tiles or 512 rows of weights and 256 micro-ops."""
    dut = bench(TINY, [uop])
    job = dut.job(op, index=7, **{**LOOPS, **{k: int(v) for k, v in fields.items()}})
    assert dut.fault_of(simulate, job) == (Error.RANGE, 7)


def test_rows_of_weights_up_to_the_last(simulate, bench):
    """The micro-op reaches row 127 of 512, the loops the rest."""
    dut = bench(TINY, [(0, 0, 127)])
    loops = {"iter_out": 4, "wgt_out": 127, "iter_in": 4, "wgt_in": 1}
    issues, _, fault = dut.run(simulate, [dut.job(Op.DWGEMM, **LOOPS | loops)], 16)
    assert [v.wgt for v in issues] == [127 + 127 * i + j for i in range(4) for j in range(4)]
    assert all(v.rows and v.dot for v in issues)
    assert fault == (Error.NONE, 0)


def test_taps_up_to_the_last_input_and_the_last_group_of_rows(simulate, bench):
    """4 of 128 inputs; of 128 groups of 4 rows, counted as rows from there on."""
    dut = bench(ROWS, [(0, 0, 0)])
    loop = LOOPS | {"iter_in": 2, "src_in": 124, "wgt_in": 63, "wgt_out": 63, "extra_taps": 3}
    issues, _, fault = dut.run(simulate, [dut.job(Op.DWGEMM, **loop)], 2)
    assert [(v.src, v.wgt, v.extra, v.rows) for v in issues] == [(0, 0, 3, 1), (124, 252, 3, 1)]
    assert fault == (Error.NONE, 0)


@pytest.mark.parametrize("fields", [{"src_in": 125}, {"wgt_in": 32, "iter_in": 5}])
def test_taps_beyond_a_scratchpad_are_an_error(simulate, bench, fields):
    dut = bench(ROWS, [(0, 0, 0)])
    job = dut.job(Op.DWGEMM, index=5, **LOOPS | {"iter_in": 2, "extra_taps": 3} | fields)
    issues, _, fault = dut.run(simulate, [job], int(fields.get("iter_in", 2)))
    assert [bool(v.bubble) for v in issues] == [False] * (len(issues) - 1) + [True]
    assert fault == (Error.RANGE, 5)


@pytest.mark.parametrize("fields", [{"use_imm": 1, "alu_op": AluOp.ADD}, {"reset": 1}])
def test_unused_indices_may_be_anything(simulate, bench, fields):
    op = Op.ALU if "alu_op" in fields else Op.GEMM
    dut = bench(TINY, [(3, 255, 127)])
    steps = {"iter_in": 3, "src_in": 255, **({"wgt_in": 127} if op == Op.GEMM else {})}
    job = dut.job(op, **{**LOOPS, **steps, **{k: int(v) for k, v in fields.items()}})
    issues, _, fault = dut.run(simulate, [job], 3)
    assert [v.dst for v in issues] == [3, 3, 3]
    assert not any(v.bubble for v in issues)
    assert fault == (Error.NONE, 0)


@pytest.mark.circuit
def test_the_longest_loops(simulate, bench):
    """All trips of a loop of 16383, and micro-ops up to the last of the buffer."""
    dut = bench(TINY, [(0, 0, 0)] * 256)
    jobs = [dut.job(Op.GEMM, uop_bgn=255, uop_end=256, iter_out=1, iter_in=16383)]
    issues, at, fault = dut.run(simulate, jobs, 16383, cycles=17_000)
    assert [v.last for v in issues[-2:]] == [0, 1]
    assert np.ptp(at) == len(at) - 1
    assert fault == (Error.NONE, 0)
