"""GEMM, ALU and unit `ternary` on the simulated circuit at the same time: in one bank, and in banks of their own."""

import shutil

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import AluOp, Mem
from tilewright.runtime.loader import run
from tilewright.sim.dram import Dram
from tilewright.sim.model.device import ModelDevice
from tilewright.sim.random_programs import ENTRIES, Recorder
from tilewright.sim.rtl.device import RtlDevice

TWO = PRESETS["tiny_two"]
BLOCKS = TWO.ternary_blocks

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built")


class Crowd:
    """Random work of all units in few accumulators of the same banks, nearly all of it without tokens between them.

    In every plane of a bank the first entries belong to unit `ternary`, those behind to the compute queue.
    """

    def __init__(self, seed):
        self.to = Recorder(TWO, seed)
        self.r = r = self.to.rng
        cut, banks = int(r.integers(1, 5)), r.permutation(4)
        starts = [bank * TWO.bank_depth for bank in banks[: r.integers(1, 5)]]
        self.ternary = [start + k for start in starts[: r.integers(1, 5)] for k in range(cut)]
        first = cut if r.random() < 0.8 else 0  # or both in the same entries
        self.runs = [start + t * TWO.plane_depth + first for start in starts for t in range(BLOCKS)]
        self.length = TWO.plane_depth - first
        self.weights = min(8, TWO.twgt_depth)

    def below(self, n):
        return int(self.r.integers(n))

    def accumulators(self, n):
        return self.r.choice(self.runs, n) + self.r.integers(0, self.length, n)

    def mode(self):
        chosen = self.r.random()
        return {"reset": chosen < 0.15, "overwrite": 0.15 <= chosen < 0.3}

    def uops(self, dst, wgt):
        n = 1 + self.below(5)
        same = np.resize(dst(1 if self.below(2) else n), n)
        return np.stack([same, self.r.integers(0, 16, n), self.r.integers(0, wgt, n)], 1)

    def loops(self):
        return [(1 + self.below(8), 0, self.below(3), 0) for _ in range(self.below(3))]

    def gemm(self):
        self.to.gemm(self.loops(), self.uops(self.accumulators, 16), **self.mode())

    def product(self):
        self.to.ternary(self.loops(), self.uops(lambda n: self.r.choice(self.ternary, n), self.weights), **self.mode())

    def alu(self):
        op = [AluOp.ADD, AluOp.MAX, AluOp.SHR, AluOp.MUL, AluOp.RESCALE][self.below(5)]
        n = 1 + self.below(5)
        imm = self.below(8) if op in (AluOp.SHR, AluOp.RESCALE) or self.below(2) else None
        self.to.alu(op, [], np.stack([self.accumulators(n), self.accumulators(n)], 1), imm)

    def load(self):
        """Padding comes before the data, so that a load is written as soon as it may."""
        at = self.below(self.length - 1)
        pads, x = self.below(self.length - at), 1
        x = 1 + self.below(self.length - at - pads)
        self.to.load(Mem.ACC, self.r.choice(self.runs) + at, self.below(8), x=x, pads=(0, 0, pads, 0))

    def operand(self):
        mem = (Mem.INP, Mem.WGT, Mem.TWGT)[self.below(3)]
        self.to.load(mem, self.below(6), self.below(8), x=1 + self.below(2))

    def store(self):
        self.to.store(self.below(TWO.acc_depth - 3), self.below(64), x=1 + self.below(3), par=self.below(8))

    def record(self):
        to = self.to
        for mem, depth in ((Mem.INP, TWO.inp_depth), (Mem.WGT, TWO.wgt_depth), (Mem.TWGT, TWO.twgt_depth)):
            to.load(mem, 0, 0, x=min(ENTRIES, depth))
        to.load(Mem.PAR, 0, 0, x=TWO.par_entries)
        for start in range(0, TWO.acc_depth, 32):
            to.load(Mem.ACC, start, 0, x=32)
        kinds = [self.gemm, self.product, self.alu, self.load, self.store, self.operand]
        for kind in self.r.choice(6, 5 + self.below(60), p=self.r.dirichlet([3, 3, 1, 1, 1, 0.5])):
            kinds[kind]()
        to.store(0, 100, x=TWO.acc_depth)
        to.store(0, 100 + TWO.acc_depth, x=TWO.acc_depth, par=1)
        return to.program.finish(), to.inputs


def crowded(seed, circuit=None, model=None):
    """One such program on model and circuit."""
    launch, inputs = Crowd(seed).record()
    circuit, model = circuit or RtlDevice(TWO, dram=Dram.random(seed)), model or ModelDevice(TWO)
    (got,), (expected,) = (tuple(run(launch, inputs, device)[0].values()) for device in (circuit, model))
    np.testing.assert_array_equal(got, expected, f"seed {seed}")


@pytest.mark.parametrize("chunk", range(4))
def test_units_in_one_bank_give_what_the_model_gives(chunk):
    for seed in range(10 * chunk, 10 * chunk + 10):
        print(f"seed {seed}")
        crowded(seed)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(20))
def test_units_in_one_bank_many_times(chunk):
    for seed in range(1000 + 100 * chunk, 1100 + 100 * chunk):
        print(f"seed {seed}")
        crowded(seed)


def cycles(gemm, ternary, bank):
    """Cycles of so many issues of GEMM in bank 0 and of unit `ternary` in `bank`, without tokens between them."""
    to = Recorder(TWO, 0)
    for mem in (Mem.INP, Mem.WGT, Mem.TWGT):
        to.load(mem, 0, 0, x=4)
    if ternary:
        to.ternary([(ternary, 0, 0, 0)], np.array([[bank * TWO.bank_depth, 0, 0]]))
    if gemm:
        to.gemm([(gemm, 0, 0, 0)], np.array([[1, 0, 0]]))
    to.store(0, 0, x=2)
    found = run(to.program.finish(), to.inputs, RtlDevice(TWO))[1].cycles
    assert found is not None
    return found


def test_both_units_compute_in_the_same_cycles_in_banks_of_their_own():
    alone = cycles(2000, 0, 0)
    assert cycles(2000, 2000, 1) <= alone + 60
    assert cycles(0, 2000, 1) >= 2000
    assert cycles(2000, 2000, 0) >= alone + 2000 - 60  # in one bank one after the other
