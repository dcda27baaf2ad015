"""GEMM, ALU and unit `ternary` on the simulated circuit at the same time: in one bank, and in banks of their own."""

import shutil

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Mem
from tilewright.runtime.loader import run
from tilewright.sim.dram import Dram
from tilewright.sim.model.device import ModelDevice
from tilewright.sim.random_programs import Recorder
from tilewright.sim.rtl.device import RtlDevice
from tools.fuzz.programs import Crowd

TWO = PRESETS["tiny_two"]

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built")


def crowded(seed, circuit=None, model=None):
    """One such program on model and circuit."""
    launch, inputs = Crowd(TWO, seed).record()
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
