"""tools/fuzz/vary.py: what nothing uses may be anything."""

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import AluOp, Isa, Mem, Op
from tilewright.runtime.loader import run
from tilewright.runtime.verify import verify
from tilewright.sim.random_programs import ROWS, Recorder, record_random
from tilewright.sim.spec import SpecDevice
from tools.fuzz.programs import any_value, unused, varied

LOAD = {"op": Op.LOAD, "mem": Mem.INP, "y_size": 1, "x_size": 2, "x_stride": 0, "sram_base": 0, "dram_base": 0}
LOAD |= dict.fromkeys(("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1"), 0)
PADS = {"y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1"}
GEMM = {"op": Op.GEMM, "reset": 0, "uop_bgn": 0, "uop_end": 1, "iter_out": 2, "iter_in": 1}
STEPS = {f"{index}_{loop}" for index in ("dst", "src", "wgt") for loop in ("out", "in")}
GEMM |= dict.fromkeys(STEPS, 0)


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
        ({"op": Op.FINISH, "pop_prev": 0}, set()),
    ],
)
def test_fields_that_nothing_uses(f, expected):
    assert unused(f) == expected


def test_fields_of_alu():
    alu = {name: value for name, value in GEMM.items() if not name.startswith("wgt_")} | {"op": Op.ALU, "imm": 1}
    assert unused(alu | {"alu_op": AluOp.ADD, "use_imm": 1}) == {"reset", "src_out", "src_in", "dst_in"}
    assert unused(alu | {"alu_op": AluOp.ADD, "use_imm": 0}) == {"reset", "imm", "src_in", "dst_in"}


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
