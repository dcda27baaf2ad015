"""tools/fuzz/compare.py: that all agree, and that it is seen where one does not."""

import shutil

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.sim.dram import Dram
from tilewright.sim.spec import SpecDevice
from tilewright.sim.timing.device import TimingDevice
from tools.fuzz import compare as module
from tools.fuzz.compare import Devices, Found, compared, memory
from tools.fuzz.programs import CONFIGS, TOGETHER, generated

TINY, TWO = PRESETS["tiny"], PRESETS["tiny_two"]
needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built")


@pytest.mark.parametrize("cfg", [TINY, TWO], ids=lambda cfg: cfg.name)
def test_definition_and_model_agree(cfg):
    found = compared(cfg, 30, 15, circuit=False)
    assert not found.differences and found.programs == 15 and found.instructions == found.defined > 300
    assert found.refused > 0 and not found.simulated and found.coverage.instructions()


@needs_compiler
@pytest.mark.parametrize("cfg", [TINY, pytest.param(TWO, marks=pytest.mark.slow)], ids=lambda cfg: cfg.name)
def test_all_agree(cfg):
    found = compared(cfg, 37, 6, circuit=True)
    assert not found.differences and found.simulated == found.instructions
    found.add(compared(cfg, 60, 6, circuit=True, every=0))
    assert found.programs == 12 and found.timed == 6 and 0 < found.worst < module.WORST
    assert found.error / found.timed < 0.02 and found.cycles > 10_000


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("chunk", range(4))
@pytest.mark.parametrize("cfg", CONFIGS[:-1], ids=lambda cfg: cfg.name)
def test_all_agree_on_many(cfg, chunk):
    found = compared(cfg, 1000 + 100 * chunk, 100, circuit=True, every=5)
    assert not found.differences


# each one differed, for a reason that is told: the timing model took unused pads of PAR and loads of no rows for work,
# and lost a request where a description had to wait
@needs_compiler
@pytest.mark.parametrize("seed", [0, 29, 63, 5242887])
def test_what_once_differed(seed):
    assert not compared(TINY, seed, 1, circuit=True, every=0).differences


# with unit `ternary`: an instruction of it waited in all of its banks for one that a load kept; MUL kept a bank between
# its uses; a load of nothing beyond the accumulators kept too few; a plain STORE did not wait for requantising ones,
# and a STORE waited for all of a GEMM that left its bank free in every second cycle
@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("seed", [943718984, 5242905, 7000108, 7000185, 7000201, 1006633306])
def test_what_once_differed_with_both_units(seed):
    found = compared(TWO, seed, 1, circuit=True, every=0)
    assert not found.differences and found.timed == 1 and found.worst < 0.002


def test_a_definition_that_differs_is_seen(monkeypatch):
    real = SpecDevice.run_image

    def run_image(self, image, address, count):
        stats = real(self, image, address, count)
        image[-1] ^= 1
        return stats

    monkeypatch.setattr(SpecDevice, "run_image", run_image)
    found = compared(TINY, 0, 2, circuit=False)
    assert [(d.kind, d.seed, d.first) for d in found.differences] == [("definition", 0, 0), ("definition", 1, 1)]
    assert "1 bytes differ from the model's" in found.differences[0].text


@needs_compiler
def test_wrong_cycles_are_seen(monkeypatch):
    real = TimingDevice.run_image

    def run_image(self, image, address, count):
        stats = real(self, image, address, count)
        stats.cycles = 2 * (stats.cycles or 0)
        return stats

    monkeypatch.setattr(TimingDevice, "run_image", run_image)
    (difference,) = compared(TINY, 0, 1, circuit=True, every=0).differences
    assert difference.kind == "cycles" and "timing model: " in difference.text


def test_an_error_of_a_legal_program_is_seen():
    program = generated(TINY, 1)
    program.image[program.address] |= 8  # the first instruction waits for a token that nobody gives
    found = Devices(TINY, Dram(), circuit=False, define=False).difference(program, Found())
    assert found is not None and found[0] == "error" and found[1].startswith("a legal program ends in ")


def test_ten_programs_have_one_memory_and_half_of_the_memories_stall():
    memories = [memory(TINY, seed) for seed in range(4 * TOGETHER)]
    assert len({m.name for m in memories}) == 3 and sum(m.seed is None for m in memories) == 2 * TOGETHER
    assert all(memory(TINY, seed).seed is not None for seed in range(40, 50))
    assert np.array_equal([m.name for m in memories[:10]], ["zynq_hp"] * 10)
