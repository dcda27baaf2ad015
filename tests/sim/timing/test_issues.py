"""sim/timing/issues.py: issues, their intervals and banks; reasons of waits."""

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import AluOp, Isa, Op, Queue
from tilewright.hw.rtl import latencies as lat
from tilewright.sim.timing.issues import PLACE, Kernels, Uses
from tilewright.sim.timing.read_port import NEVER

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


@pytest.mark.parametrize("seed", range(20))
def test_banks_of_every_issue_with_two_units(seed):
    """`runs` and `windows` against all micro-op issues, one after the other."""
    print(f"seed {seed}")
    cfg, rng = PRESETS["tiny_two"], np.random.default_rng(seed)
    uops = rng.integers(0, cfg.acc_depth // 2, (int(rng.integers(1, 5)), 2))
    f = GEMM | {"uop_end": len(uops), "iter_out": int(rng.integers(1, 4)), "iter_in": int(rng.integers(1, 4))}
    f |= {name: int(rng.integers(0, 17)) for name in ("dst_out", "dst_in", "src_out", "src_in")}
    f |= {"use_imm": int(rng.integers(0, 2)), "alu_op": AluOp.ADD}
    of, indices = kernels(cfg, *uops), []
    for i, j, u in np.ndindex(f["iter_out"], f["iter_in"], len(uops)):
        steps = (("dst_out", "dst_in"), ("src_out", "src_in"))
        indices.append([int(uops[u, k]) + i * f[a] + j * f[b] for k, (a, b) in enumerate(steps)])
    banks = [dst // cfg.bank_depth for dst, _ in indices]
    runs = of.job(Op.TERNARY, f).runs
    assert [bank for mask, count in runs for bank in [mask.bit_length() - 1] * count] == banks
    assert all(a[0] != b[0] for a, b in zip(runs, runs[1:]))
    job, cycle, used, read = of.job(Op.ALU, f), 0, set(), set()
    for dst, src in indices:
        both = {dst // cfg.bank_depth} | ({src // cfg.bank_depth} if not f["use_imm"] else set())
        takes = 2 if not f["use_imm"] and len(both) == 1 else 1
        used |= {(at, bank) for bank in both for at in range(cycle, cycle + takes + lat.issue_latency(cfg))}
        read |= {(at, bank) for bank in both for at in range(cycle, cycle + takes)}
        cycle += takes
    shown = {
        (at, bank) for b, e, mask in job.windows for bank in range(4) if mask >> bank & 1 for at in range(b, e + 1)
    }
    assert shown == used and cycle == job.cycles
    if job.touched & (job.touched - 1):  # of one bank it is told in short
        assert {(at, bank.bit_length() - 1) for b, e, bank in job.reads for at in range(b, e + 1)} == read
    assert job.used == sum(1 << bank for bank in {bank for _, bank in used})


def test_multiplications_leave_a_bank_between_them():
    cfg = PRESETS["tiny_two"]
    uops, found = [(0, 0), *[(cfg.bank_depth, 0)] * 4], []
    for iterations in (1, 2):
        f = ALU | {"uop_end": 5, "iter_out": 1, "iter_in": iterations, "dst_in": 0, "dst_out": 0, "use_imm": 1}
        found.append(kernels(cfg, *uops).job(Op.ALU, f | {"alu_op": AluOp.MUL}))
    one, two = (([(b, e) for b, e, banks in job.windows if banks == 1]) for job in found)
    assert one == [(0, lat.multiply_latency(cfg))]
    assert two == [one[0], (found[0].cycles, two[1][1])] and two[1][0] > one[0][1]


def test_a_bank_is_free_between_many_uses():
    """A STORE waited for the end of an ALU instruction of 524 micro-op issues, whose banks alternate."""
    four = kernels(PYNQ, (0, 0), (HALF, 0), (1, 0), (HALF + 1, 0))
    job = four.job(Op.ALU, ALU | {"use_imm": 1, "uop_end": 4, "iter_out": 1, "iter_in": 131, "dst_in": 0})
    assert len(job.reads) == 524 and {end - begin for begin, end, _ in job.reads} == {0}


def test_what_is_too_long_to_look_at_touches_its_banks_all_the_time():
    cfg = PRESETS["tiny_two"]
    f = GEMM | {"uop_end": 1, "iter_out": 16383, "iter_in": 16383, "dst_out": 0, "dst_in": 0}
    of = kernels(cfg, (0, 0), (cfg.bank_depth, 0))
    assert of.job(Op.TERNARY, f | {"uop_end": 2}).runs == ((3, 2 * 16383**2),)
    assert of.job(Op.TERNARY, f | {"iter_in": 1}).runs == ((1, 16383),)
    long = of.job(Op.GEMM, f | {"uop_end": 2})
    assert long.used == 3 and {banks for *_, banks in long.windows} == {1, 2}
    assert max(end for _, end, _ in long.windows) == long.cycles - 1 + lat.issue_latency(cfg)


def test_empty_loops_take_a_place():
    assert kernels(PYNQ, (0, 0)).job(Op.GEMM, GEMM | {"iter_in": 0}) == PLACE._replace(uops=(0, 1))


def test_a_bank_is_free_between_its_uses():
    uses = Uses()
    for begin, end, banks in ((10, 19, 0b01), (20, 24, 0b01), (30, 31, 0b11)):
        uses.add(begin, end, banks)
    assert [uses.free(0b01, cycle) for cycle in (9, 10, 24, 25, 30)] == [9, 25, 25, 25, 32]
    assert uses.free(0b10, 12) == 12 and uses.free(0b10, 31) == 32
    assert [uses.next(0b01, cycle) for cycle in (0, 10, 25, 30)] == [10, 20, 30, NEVER]
    assert uses.next(0b10, 0) == 30


def test_the_last_use():
    uses = Uses()
    assert uses.latest(0b11) == -1
    uses.add(3, 8, 0b01)
    uses.add(5, 6, 0b10)
    assert (uses.latest(0b01), uses.latest(0b10), uses.latest(0b11), uses.latest(0b100)) == (8, 6, 8, -1)


def test_reasons_of_waits(overlapped):
    timing, gemm = overlapped(3)
    loads = np.flatnonzero(timing.queue == Queue.LOAD)
    assert timing.waits["token_prev"].sum() > 0 and timing.waits["unit"][gemm[2]] > 900
    assert timing.waits["memory"][loads[0]] >= 40
    assert timing.counters["COMPUTE_TOKEN_WAIT"] == timing.waits["token_prev"][timing.queue == Queue.COMPUTE].sum()
    waited = sum(timing.waits[name] for name in ("token_prev", "token_next", "unit"))
    assert (timing.issue - timing.arrive == waited).all()
