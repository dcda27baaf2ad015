"""tools/fuzz/programs.py: what is made, the same for the same seed, legal, and of every kind; unused fields."""

import shutil

import numpy as np
import pytest

from tilewright.hw.circuit import check_buildable
from tilewright.hw.config import PRESETS
from tilewright.hw.isa import AluOp, Isa, Mem, Op
from tilewright.runtime.loader import run
from tilewright.runtime.verify import verify
from tilewright.sim.dram import Dram
from tilewright.sim.model.device import ModelDevice
from tilewright.sim.random_programs import ROWS, Recorder, record_random
from tilewright.sim.spec import SpecDevice
from tools.fuzz.compare import Coverage, Devices, Found, legal_runs
from tools.fuzz.programs import CONFIGS, TOGETHER, Generated, Writer, any_value, generated, unused, varied, wild


@pytest.mark.parametrize("cfg", CONFIGS, ids=lambda cfg: cfg.name)
def test_legal_programs_of_every_configuration_end_well(cfg):
    check_buildable(cfg)
    for seed in range(3):
        print(f"seed {seed}")
        program = generated(cfg, seed)
        assert program.legal
        again = generated(cfg, seed)
        assert np.array_equal(program.image, again.image) and program.count == again.count
        ModelDevice(cfg).run_image(program.image.copy(), program.address, program.count)


def test_one_group_of_five_may_end_in_errors():
    groups = [[wild(seed) for seed in range(k * TOGETHER, (k + 1) * TOGETHER)] for k in range(10)]
    assert (
        all(len(set(group)) == 1 for group in groups) and [group[0] for group in groups] == ([False] * 4 + [True]) * 2
    )
    assert not generated(CONFIGS[0], 4 * TOGETHER).legal


def test_every_instruction_of_a_configuration_is_made():
    cfg, coverage = CONFIGS[1], Coverage()
    for seed in range(20):
        coverage.program(cfg, generated(cfg, seed).words)
    missing = {name for name, _, _ in legal_runs(cfg)} - set(coverage.instructions())
    assert not missing


LOAD = {"op": Op.LOAD, "mem": Mem.INP, "y_size": 1, "x_size": 2, "x_stride": 0, "sram_base": 0, "dram_base": 0}
LOAD |= dict.fromkeys(("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1"), 0)
PADS = {"y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1"}
GEMM = {"op": Op.GEMM, "reset": 0, "uop_bgn": 0, "uop_end": 1, "iter_out": 2, "iter_in": 1}
STEPS = {f"{index}_{loop}" for index in ("dst", "src", "wgt") for loop in ("out", "in")}
GEMM |= dict.fromkeys(STEPS, 0)
ALU = {name: value for name, value in GEMM.items() if not name.startswith("wgt_")}
ALU |= {"op": Op.ALU, "alu_op": AluOp.ADD, "imm": 1}


@pytest.mark.parametrize(
    "f, expected",
    [
        (LOAD, {"x_stride"}),
        (LOAD | {"y_size": 2}, set()),
        (LOAD | {"mem": Mem.PAR}, {"x_stride"} | PADS),
        (LOAD | {"mem": Mem.UOP, "y_size": 7}, {"y_size", "x_stride"} | PADS),
        (LOAD | {"x_size": 0}, set(LOAD) - {"op", "mem", "x_size"}),
        (LOAD | {"y_size": 0}, set(LOAD) - {"op", "mem", "y_size", "y_pad_0", "y_pad_1"}),
        (LOAD | {"y_size": 0, "y_pad_1": 1}, {"x_stride"}),
        (LOAD | {"op": Op.LOADP, "pad_value": 3}, {"x_stride", "pad_value"}),
        (GEMM, {"dst_in", "src_in", "wgt_in"}),
        (
            GEMM | {"iter_in": 0},
            {name for name in GEMM if name[3:4] == "_" and name != "uop_bgn" and name != "uop_end"} | {"iter_out"},
        ),
        (ALU | {"use_imm": 1}, {"reset", "src_out", "src_in", "dst_in"}),
        (ALU | {"use_imm": 0}, {"reset", "imm", "src_in", "dst_in"}),
        ({"op": Op.FINISH, "pop_prev": 0}, set()),
    ],
)
def test_fields_that_nothing_uses(f, expected):
    assert unused(f) == expected


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cfg", [PRESETS["tiny_two"], ROWS], ids=lambda cfg: cfg.name)
def test_a_varied_program_means_what_it_meant(cfg, seed):
    print(f"seed {seed}")
    recorder = Recorder(cfg, seed)
    record_random(recorder, 8)
    launch = recorder.program.finish()
    other = varied(launch, np.random.default_rng(seed))
    assert (other.insn != launch.insn).any(axis=1).mean() > 0.5
    verify(other)
    results = [run(one, recorder.inputs, SpecDevice(cfg))[0]["out"] for one in (launch, other)]
    assert results[0].any() and np.array_equal(results[0], results[1])


def test_any_value_reaches_both_limits():
    rng, fields = np.random.default_rng(0), Isa(PRESETS["tiny"]).formats["ALU"].fields
    for name in ("imm", "iter_out", "reset"):
        values = [any_value(fields[name], rng) for _ in range(300)]
        assert (min(values), max(values)) == fields[name].limits


needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built")


def compare(cfg, seeds, other):
    """Run program after program on the model and on `other`; both start from zero after an error.

    Returns how many ended well.
    """
    devices, found = None, Found()
    for seed in seeds:
        print(f"{cfg.name} seed {seed}")
        if devices is None or not devices.usable:
            devices = Devices(cfg, Dram.random(seed), circuit=other == "circuit", define=other == "definition")
        differs = devices.difference(Generated(seed, *Writer(cfg, seed).program(), legal=False), found)
        assert differs is None, f"{cfg.name} seed {seed}: {differs}"
    return found.programs - found.refused


@pytest.mark.circuit
@pytest.mark.parametrize("other", ["definition", pytest.param("circuit", marks=needs_compiler)])
@pytest.mark.parametrize("cfg", [PRESETS["tiny"], ROWS, PRESETS["tiny_two"]], ids=lambda c: c.name)
def test_both_end_alike(cfg, other):
    well = compare(cfg, range(150), other)
    assert 30 < well < 120
