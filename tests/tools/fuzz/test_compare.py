"""tools/fuzz/compare.py: that all agree, that it is seen where one does not, and which values were tried."""

import shutil

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import AluOp, Isa, Mem, Op
from tilewright.sim.dram import Dram
from tilewright.sim.spec import SpecDevice
from tilewright.sim.timing.device import TimingDevice
from tools.fuzz import compare as module
from tools.fuzz.compare import Coverage, Devices, Found, compared, legal_runs, memory, run_of
from tools.fuzz.programs import TOGETHER, generated

TINY = PRESETS["tiny"]
ISA = Isa(TINY)


def words(name, **fields):
    return ISA.formats[name].encode(1, **fields)


def share(coverage, instruction, field):
    return next(s for s in coverage.shares([TINY]) if (s.instruction, s.field) == (instruction, field))


def test_runs_of_a_field():
    wide, narrow, signed = (ISA.formats["LOADP"].fields[name] for name in ("dram_base", "y_pad_0", "pad_value"))
    assert [run_of(wide, v) for v in (0, 1, 2, 3, 4, (1 << 32) - 1)] == [0, 1, 2, 2, 3, 32]
    assert [run_of(narrow, v) for v in (0, 9, 15)] == [0, 9, 15]
    assert [run_of(signed, v) for v in (-128, -2, -1, 0, 127)] == [-8, -2, -1, 0, 7]


def test_what_is_legal():
    runs = {(name, key): found for name, key, found in legal_runs(TINY)}
    assert len(runs["LOAD.INP", "dram_base"]) == 33 and len(runs["LOAD.INP", "y_pad_0"]) == 16
    assert runs["STORE.UOP", "x_size"] == {0} and runs["FINISH", "push_next"] == {0}
    assert len(runs["LOADP.INP", "pad_value"]) == 16
    assert max(runs["GEMM", "uop_end"]) == TINY.uop_depth.bit_length()
    assert runs["ALU.RESCALE", "use_imm"] == {1} and runs["LOAD.INP", "push_prev"] == {0}
    assert not [name for name, _ in runs if "TERNARY" in name or "LOOKUP" in name]


def test_values_are_counted_and_those_that_nothing_uses_apart():
    coverage = Coverage()
    coverage.program(TINY, words("LOAD", op=Op.LOAD, mem=Mem.INP, y_size=1, x_size=2, x_stride=9, dram_base=5))
    stride = share(coverage, "LOAD.INP", "x_stride")
    assert (stride.low, stride.high, stride.produced, stride.used, stride.runs) == (9, 9, 1, 0, 17)
    assert share(coverage, "LOAD.INP", "dram_base").used == 1
    assert share(coverage, "LOAD.WGT", "x_stride").produced == 0
    assert coverage.instructions() == {"LOAD.INP": 1}


def test_sums():
    one, other = Coverage(), Coverage()
    for coverage, imm in ((one, 3), (other, -9)):
        fields = {"use_imm": 1, "imm": imm, "uop_end": 1, "iter_out": 1, "iter_in": 1}
        coverage.program(TINY, words("ALU", op=Op.ALU, alu_op=AluOp.ADD, **fields))
    assert one != other
    one.add(other)
    imm = share(one, "ALU.ADD", "imm")
    assert (imm.low, imm.high, imm.produced, imm.used) == (-9, 3, 2, 2)
    assert one.instructions() == {"ALU.ADD": 2}
    both = one.shares([TINY, TINY.replace(name="other")])
    assert next(s for s in both if (s.instruction, s.field) == ("ALU.ADD", "imm")).runs == 2 * imm.runs
    assert np.array_equal(sorted({s.instruction for s in both}), sorted({name for name, _, _ in legal_runs(TINY)}))


TWO = PRESETS["tiny_two"]
needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built")


@pytest.mark.parametrize("first", [30, 35, 40])
@pytest.mark.parametrize("cfg", [TINY, TWO], ids=lambda cfg: cfg.name)
def test_definition_and_model_agree(cfg, first):
    found = compared(cfg, first, 5, circuit=False)
    assert not found.differences and found.programs == 5 and found.instructions == found.defined > 100
    assert (found.refused > 0) == (first == 40) and not found.simulated
    assert found.refused == 5 or found.coverage.instructions()


@pytest.mark.circuit
@needs_compiler
@pytest.mark.parametrize("cfg", [TINY, pytest.param(TWO, marks=pytest.mark.slow)], ids=lambda cfg: cfg.name)
def test_all_agree(cfg):
    found = compared(cfg, 37, 6, circuit=True)
    assert not found.differences and found.simulated == found.instructions
    found.add(compared(cfg, 60, 6, circuit=True, every=0))
    assert found.programs == 12 and found.timed == 6 and 0 < found.worst < module.WORST
    assert found.error / found.timed < 0.02 and found.cycles > 10_000


# each one differed, for a reason that is told: the timing model took unused pads of PAR and loads of no rows for work,
# and lost a request where a description had to wait
@pytest.mark.circuit
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


@pytest.mark.circuit
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
