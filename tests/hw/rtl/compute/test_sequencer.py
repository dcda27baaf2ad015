"""The sequencers of both units: the order of issues, one per cycle, and indices beyond their scratchpads."""

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring

from tests.hw.bench import Take, Watch, assign, instruction, put, simulate
from tilewright.hw.config import PRESETS, Config
from tilewright.hw.isa import AluOp, Isa, Mem, Op
from tilewright.hw.regs import Error
from tilewright.hw.rtl.compute.sequencer import Sequencer
from tilewright.hw.rtl.latencies import (
    ISSUES_AHEAD,
    JOB_INTERVAL,
    SEQUENCER_LATENCY,
    STEP_LATENCY,
    TERNARY_ISSUES_AHEAD,
    TERNARY_SEQUENCER_LATENCY,
)
from tilewright.hw.rtl.scratchpad import Scratchpad
from tilewright.hw.rtl.ternary import TernarySequencer
from tilewright.sim.random_programs import ROWS

TINY, TWO = PRESETS["tiny"], PRESETS["tiny_two"]
ONE = TWO.replace(name="one_block", ternary_blocks=1, twgt_bytes=512)
ODD = Config(
    name="odd", batch=2, block_in=8, block_out=4, wgt_bits=4,
    inp_bytes=1 << 10, wgt_bytes=1 << 10, acc_bytes=1 << 11, uop_bytes=128,
)  # fmt: skip
LOOPS = {"uop_bgn": 0, "uop_end": 1, "iter_out": 1, "iter_in": 1}
NO_FAULT = (Error.NONE, 0)
BOTH = pytest.mark.parametrize("op, cfg", [(Op.GEMM, TINY), (Op.TERNARY, TWO)], ids=["gemm", "ternary"])


def triples(uops, fields):
    """The indices (dst, src, wgt) of every issue of an instruction."""
    for i in range(fields["iter_out"]):
        for j in range(fields["iter_in"]):
            for u in uops[fields["uop_bgn"] : fields["uop_end"]]:
                steps = zip(u, ("dst", "src", "wgt"))
                yield tuple(v + i * fields.get(f"{n}_out", 0) + j * fields.get(f"{n}_in", 0) for v, n in steps)


class Bench:
    """The sequencer of a unit with its scratchpad of micro-ops; that of unit ternary where `ternary`."""

    def __init__(self, cfg, uops, ternary=False):
        self.cfg, self.uops, self.ternary, self.module = cfg, uops, ternary, Module()
        self.dut = TernarySequencer(cfg) if ternary else Sequencer(cfg)
        self.pad = Scratchpad(cfg, mem=Mem.TUOP if ternary else Mem.UOP)
        self.module.submodules.dut, self.module.submodules.pad = self.dut, self.pad
        wiring.connect(self.module, self.dut.uop, self.pad.read)

    def job(self, op, index=0, **fields):
        """An instruction as the unit hands it on; one issue, but for what `fields` say."""
        return {"insn": instruction(self.cfg, op.name, op=op, **LOOPS | fields), "index": index}

    def triple(self, issue):
        """The indices of an issue, None where an instruction has no issue."""
        if not self.ternary:
            return None if issue.bubble else (issue.dst, issue.src, issue.wgt)
        assert issue.banks.bit_count() <= 1
        dst = (issue.banks.bit_length() - 1) * self.cfg.bank_depth + issue.place
        return (dst, issue.src, issue.wgt) if issue.banks else None

    async def fill(self, ctx):
        """Write the micro-ops."""
        columns = zip(("dst", "src", "wgt"), zip(*self.uops))
        words = Isa(self.cfg).uop.encode(len(self.uops), **{name: np.array(column) for name, column in columns})
        for at, word in enumerate(words[:, 0].tolist()):
            assign(ctx, self.pad.write, en=1, addr=at, data=word)
            await ctx.tick()
        ctx.set(self.pad.write.en, 0)

    def run(self, jobs, count, rng=None, cycles=2000):
        """The first `count` issues of `jobs`, the cycle of each, and the fault; nothing follows them."""
        taken, seen, fault = Take(self.dut.o, count, rng, 0.4), Watch(self.dut.o.valid & self.dut.o.ready), []

        async def main(ctx):
            await self.fill(ctx)
            await put(ctx, self.dut.jobs, jobs, rng)

        async def sink(ctx):
            await taken(ctx)
            ctx.set(self.dut.o.ready, 1)
            for _ in range(10):
                assert not ctx.get(self.dut.o.valid)
                await ctx.tick()
            fault.extend((ctx.get(self.dut.fault.code), ctx.get(self.dut.fault.index)))

        simulate(self.module, main, sink, background=[seen], cycles=cycles)
        return taken.values, seen.at(), tuple(fault)

    def fault_of(self, job):
        """Code and index of the fault of `job`; nothing is at the output behind it."""
        codes = []

        async def main(ctx):
            await self.fill(ctx)
            ctx.set(self.dut.o.ready, 1)
            await put(ctx, self.dut.jobs, [job])
            await ctx.tick().until(self.dut.fault.code != Error.NONE)
            ctx.set(self.dut.halt, 1)
            await ctx.tick().repeat(10)
            codes.append((ctx.get(self.dut.fault.code), ctx.get(self.dut.fault.index)))
            assert not ctx.get(self.dut.o.valid)

        simulate(self.module, main, cycles=600)
        return codes[0]


@pytest.mark.parametrize("cfg", [TINY, ODD, TWO, ONE], ids=lambda c: c.name)
@pytest.mark.parametrize("stalls", [False, True])
def test_order_of_issues(rng, cfg, stalls):
    """Without stalls not one cycle is without an issue, but between jobs of a single one."""
    ternary = "ternary" in cfg.units
    uops = [tuple(int(v) for v in rng.integers(0, 3, 3)) for _ in range(8)]
    if ternary:  # in every bank
        uops = [(k % 4 * cfg.bank_depth, *uop[1:]) for k, uop in enumerate(uops)]
    dut, jobs, want, due, first = Bench(cfg, uops, ternary), [], [], [], 0
    for _ in range(12):
        begin = int(rng.integers(0, 8))
        fields = {"uop_bgn": begin, "uop_end": int(rng.integers(begin, 9))}
        fields |= {"iter_out": int(rng.integers(0, 4)), "iter_in": int(rng.integers(0, 4))}
        largest = {"dst": 2, "src": 4} if ternary else {"dst": 4, "src": 4}
        fields |= {f"{n}_{loop}": int(rng.integers(0, most)) for n, most in largest.items() for loop in ("out", "in")}
        op = Op.TERNARY if ternary else Op(int(rng.choice([Op.GEMM, Op.DWGEMM, Op.ALU])))
        if op != Op.ALU:
            fields |= {"wgt_out": int(rng.integers(0, 2))}
        jobs.append(dut.job(op, **fields))
        issues = [*triples(uops, fields)]
        want += [(t, k == len(issues) - 1) for k, t in enumerate(issues)] or [(None, True)]
        first = max(due[-1] + 1, first + JOB_INTERVAL) if due else 0
        due += range(first, first + max(len(issues), 1))
    issues, at, fault = dut.run(jobs, len(want), rng if stalls else None)
    assert [(dut.triple(issue), bool(issue.last)) for issue in issues] == want and fault == NO_FAULT
    assert stalls or at == [at[0] + k for k in due]


@BOTH
def test_latency(op, cfg):
    dut = Bench(cfg, [(1, 2, 3)], op == Op.TERNARY)
    seen = Watch(dut.dut.jobs.valid, dut.dut.o.valid)

    async def main(ctx):
        await dut.fill(ctx)
        ctx.set(dut.dut.o.ready, 1)
        await put(ctx, dut.dut.jobs, [dut.job(op)])
        await ctx.tick().repeat(10)

    simulate(dut.module, main, background=[seen], cycles=40)
    latency = TERNARY_SEQUENCER_LATENCY if dut.ternary else SEQUENCER_LATENCY
    assert seen.at(1) == [seen.at(0)[0] + latency]


@BOTH
def test_issues_wait_behind_the_output(op, cfg):
    """While the first one waits; the next micro-op is read when it has gone on, and then one in every cycle again."""
    dut = Bench(cfg, [(0, k, 0) for k in range(12)], op == Op.TERNARY)
    unit = dut.dut
    reads, gone = Watch(unit.uop.en), Watch(unit.o.valid & unit.o.ready, unit.o.payload.src)

    async def main(ctx):
        await dut.fill(ctx)
        await put(ctx, unit.jobs, [dut.job(op, uop_end=12)])
        await ctx.tick().repeat(20)
        assert not gone.at() and len(reads.at()) == ahead
        ctx.set(unit.o.ready, 1)
        await ctx.tick().repeat(20)

    ahead, step = (TERNARY_ISSUES_AHEAD, 0) if dut.ternary else (ISSUES_AHEAD, STEP_LATENCY)
    simulate(dut.module, main, background=[reads, gone], cycles=80)
    first = gone.at()[0]
    assert [(at, gone.rows[at][1]) for at in gone.at()] == [(first + k, k) for k in range(12)]
    assert reads.at()[ahead:] == [first + step + k for k in range(12 - ahead)]


# tiny has 128 accumulators, 256 inputs, 128 tiles or 512 rows of weights and 256 micro-ops
BEYOND = [
    (TINY, Op.GEMM, {"iter_out": 2, "dst_out": 100}, (100, 0, 0)),
    (TINY, Op.GEMM, {"iter_in": 3, "src_in": 100}, (0, 100, 0)),
    (TINY, Op.GEMM, {"iter_in": 2, "iter_out": 2, "wgt_in": 64, "wgt_out": 64}, (0, 0, 0)),
    (TINY, Op.GEMM, {"iter_in": 16383, "src_in": 255}, (0, 0, 0)),
    (TINY, Op.DWGEMM, {"iter_out": 5, "wgt_out": 127}, (0, 0, 127)),
    (TINY, Op.DWGEMM, {"iter_in": 16383, "wgt_in": 127}, (0, 0, 0)),
    (TINY, Op.ALU, {"alu_op": int(AluOp.ADD)}, (0, 128, 0)),
    (TINY, Op.GEMM, {"uop_end": 257}, (0, 0, 0)),
    (TINY, Op.GEMM, {"uop_bgn": 2}, (0, 0, 0)),
    (TWO, Op.TERNARY, {"iter_out": 2, "dst_out": 100}, (100, 0, 0)),
    (TWO, Op.TERNARY, {"iter_out": 2, "dst_out": 8}, (0, 0, 0)),  # in the second plane
    (TWO, Op.TERNARY, {}, (63, 0, 0)),  # the last of the second bank's last plane
    (TWO, Op.TERNARY, {"iter_in": 3, "src_in": 100}, (0, 100, 0)),
    (TWO, Op.TERNARY, {"iter_in": 2, "iter_out": 2, "wgt_in": 64, "wgt_out": 64}, (0, 0, 0)),
    (TWO, Op.TERNARY, {"iter_in": 16383, "src_in": 255}, (0, 0, 0)),
    (TWO, Op.TERNARY, {"iter_in": 16383, "wgt_in": 127}, (0, 0, 0)),
    (TWO, Op.TERNARY, {"uop_end": 257}, (0, 0, 0)),
    (TWO, Op.TERNARY, {"uop_bgn": 2}, (0, 0, 0)),
    (TWO, Op.TERNARY, {"reset": 1, "iter_in": 2, "dst_in": 127}, (1, 0, 0)),
    # of as many entries of ternary weights, fewer than a micro-op names
    (ONE.replace(twgt_bytes=256), Op.TERNARY, {}, (0, 0, 64)),
    (ONE.replace(twgt_bytes=256), Op.TERNARY, {"wgt_in": 64, "iter_in": 2}, (0, 0, 0)),
]


@pytest.mark.parametrize("cfg, op, fields, uop", BEYOND)
def test_an_index_beyond_its_scratchpad_or_plane_is_an_error(cfg, op, fields, uop):
    dut = Bench(cfg, [uop], op == Op.TERNARY)
    assert dut.fault_of(dut.job(op, index=7, **fields)) == (Error.RANGE, 7)


def test_rows_of_weights_up_to_the_last():
    """The micro-op reaches row 127 of 512, the loops the rest."""
    dut = Bench(TINY, [(0, 0, 127)])
    job = dut.job(Op.DWGEMM, iter_out=4, wgt_out=127, iter_in=4, wgt_in=1)
    issues, _, fault = dut.run([job], 16)
    assert [(v.wgt, v.rows, v.dot) for v in issues] == [(127 + 127 * i + j, 1, 1) for i in range(4) for j in range(4)]
    assert fault == NO_FAULT


def test_taps_up_to_the_last_input_and_the_last_group_of_rows():
    """4 of 128 inputs; of 128 groups of 4 rows, counted as rows from there on."""
    dut = Bench(ROWS, [(0, 0, 0)])
    job = dut.job(Op.DWGEMM, iter_in=2, src_in=124, wgt_in=63, wgt_out=63, extra_taps=3)
    issues, _, fault = dut.run([job], 2)
    assert [(v.src, v.wgt, v.extra, v.rows) for v in issues] == [(0, 0, 3, 1), (124, 252, 3, 1)]
    assert fault == NO_FAULT


@pytest.mark.parametrize("fields", [{"src_in": 125}, {"wgt_in": 32, "iter_in": 5}])
def test_taps_beyond_a_scratchpad_are_an_error(fields):
    dut = Bench(ROWS, [(0, 0, 0)])
    fields = {"iter_in": 2, "extra_taps": 3} | fields
    issues, _, fault = dut.run([dut.job(Op.DWGEMM, index=5, **fields)], fields["iter_in"])
    assert [bool(v.bubble) for v in issues] == [False] * (len(issues) - 1) + [True]
    assert fault == (Error.RANGE, 5)


@pytest.mark.parametrize(
    "op, fields",
    [
        (Op.ALU, {"use_imm": 1, "alu_op": int(AluOp.ADD)}),
        (Op.GEMM, {"reset": 1, "wgt_in": 127}),
        (Op.TERNARY, {"reset": 1, "wgt_in": 127}),
    ],
)
def test_unused_indices_may_be_anything(op, fields):
    dut = Bench(TWO if op == Op.TERNARY else TINY, [(3, 255, 127)], op == Op.TERNARY)
    issues, _, fault = dut.run([dut.job(op, iter_in=3, src_in=255, **fields)], 3)
    assert [(dut.triple(v) or [None])[0] for v in issues] == [3, 3, 3] and fault == NO_FAULT
    assert not dut.ternary or all(v.reset and v.clear for v in issues)


@pytest.mark.circuit
@BOTH
def test_the_longest_loops(op, cfg):
    """All trips of a loop of 16383, and micro-ops up to the last of the buffer."""
    dut = Bench(cfg, [(0, 0, 0)] * 256, op == Op.TERNARY)
    issues, at, fault = dut.run([dut.job(op, uop_bgn=255, uop_end=256, iter_in=16383)], 16383, cycles=17_000)
    assert [v.last for v in issues[-2:]] == [0, 1] and fault == NO_FAULT
    assert np.ptp(at) == len(at) - 1
