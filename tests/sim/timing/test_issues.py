"""sim/timing/issues.py: issues of GEMM and ALU, and the banks they read."""

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import AluOp, Isa, Op
from tilewright.hw.rtl import latencies as lat
from tilewright.sim.timing.issues import PLACE, Kernels

PYNQ = PRESETS["pynq_z1"]
HALF = PYNQ.acc_depth // 2
GEMM = {"uop_bgn": 0, "uop_end": 2, "iter_out": 3, "iter_in": 5, "dst_out": 2, "dst_in": 1, "src_out": 0, "src_in": 0}
GEMM |= {"reset": 0, "overwrite": 0}
ALU = GEMM | {"use_imm": 0, "alu_op": AluOp.ADD}


def kernels(cfg, *uops):
    words = Isa(cfg).uop.encode(len(uops), dst=[u[0] for u in uops], src=[u[1] for u in uops]).astype(np.uint32)
    found = Kernels(cfg, lambda first, count: words.reshape(-1)[:count])
    found.load(0, 0, len(uops))
    return found


def test_gemm_reads_the_bank_of_its_accumulators():
    low, high = kernels(PYNQ, (0, 0), (9, 0)), kernels(PYNQ, (HALF, 0), (HALF + 9, 0))
    job = low.job(Op.GEMM, GEMM)
    assert (job.issues, job.cycles, job.banks, job.uops) == (30, 30, 1, (0, 1))
    assert high.job(Op.GEMM, GEMM).banks == high.job(Op.GEMM, GEMM).touched == 2
    assert kernels(PYNQ, (HALF - 1, 0)).job(Op.GEMM, GEMM | {"uop_end": 1}).touched == 3
    assert low.job(Op.GEMM, GEMM | {"overwrite": 1}).touched == 1
    assert low.job(Op.GEMM, GEMM | {"overwrite": 1}).banks == low.job(Op.GEMM, GEMM | {"reset": 1}).banks == 0


def test_operands_in_one_bank_take_two_cycles():
    assert kernels(PYNQ, (0, 1), (2, 3)).job(Op.ALU, ALU).cycles == 60
    assert kernels(PYNQ, (0, HALF), (2, HALF + 3)).job(Op.ALU, ALU).cycles == 30
    assert kernels(PYNQ, (0, 1), (2, HALF + 3)).job(Op.ALU, ALU).cycles == 45
    assert kernels(PYNQ, (0, 1), (2, 3)).job(Op.ALU, ALU | {"use_imm": 1}).cycles == 30
    assert kernels(PRESETS["vta"], (0, 1), (2, 2000)).job(Op.ALU, ALU).cycles == 60


@pytest.mark.parametrize("seed", range(20))
def test_the_last_issue_of_each_bank(seed):
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    uops = rng.integers(HALF - 8, HALF + 2, (int(rng.integers(1, 5)), 2))
    f = GEMM | {"uop_end": len(uops), "iter_out": int(rng.integers(1, 5)), "iter_in": int(rng.integers(1, 5))}
    f |= {name: int(rng.integers(0, 3)) for name in ("dst_out", "dst_in")}
    job, banks = kernels(PYNQ, *uops).job(Op.GEMM, f), []
    for i, j, u in np.ndindex(f["iter_out"], f["iter_in"], len(uops)):
        banks.append(int(uops[u, 0] + i * f["dst_out"] + j * f["dst_in"] >= HALF))
    if job.touched == 3:
        after = [banks[::-1].index(bank) if bank in banks else len(banks) for bank in (0, 1)]
        assert job.tails == tuple(after)
    else:
        assert job.tails == () and job.touched == 1 << banks[0] and len(set(banks)) == 1


def test_trips_that_are_too_many_to_look_at_count_to_the_last():
    f = GEMM | {"uop_end": 1, "iter_out": 16383, "iter_in": 16383, "dst_out": 0, "dst_in": 0}
    assert kernels(PYNQ, (HALF - 1, 0)).job(Op.GEMM, f).tails == ()
    half = kernels(PYNQ, (0, 0), (HALF, 0)).job(Op.GEMM, f | {"uop_end": 2})
    assert half.tails == (1, 0)
    moved = kernels(PYNQ, (HALF - 500, 0)).job(Op.GEMM, f | {"iter_out": 1000, "dst_out": 1})
    assert moved.touched == 3 and moved.tails == (0, 0)  # bank 0 is left in the middle


def test_multiplications_follow_each_other_unless_they_need_a_product():
    apart = ALU | {"use_imm": 1, "alu_op": AluOp.MUL, "dst_in": 2, "dst_out": 10}
    found = kernels(PYNQ, (0, 0), (1, 0))
    assert found.job(Op.ALU, apart).cycles == 1 + 29 * lat.issue_interval(PYNQ, multiply=True)
    same = found.job(Op.ALU, apart | {"dst_in": 0, "dst_out": 0}).cycles
    assert same == 1 + lat.issue_interval(PYNQ, multiply=True) + 28 * lat.multiply_interval(PYNQ)


def test_empty_loops_take_a_place():
    assert kernels(PYNQ, (0, 0)).job(Op.GEMM, GEMM | {"iter_in": 0}) == PLACE._replace(uops=(0, 1))
