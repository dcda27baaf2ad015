"""compiler/tune/measure.py: trials are programs whose cycles the timing model or the circuit counts."""

import pytest

pytest.importorskip("amaranth")

from tilewright.compiler import build
from tilewright.compiler.schedule.dense import dense
from tilewright.compiler.tile import Tile
from tilewright.compiler.tune.measure import CLOCK, cycles_of, measurers
from tilewright.compiler.tvm_compat import tuning
from tilewright.hw.config import PRESETS
from tilewright.sim.timing import predict

TINY = PRESETS["tiny"]


@pytest.fixture(scope="module")
def schedule():
    return dense(TINY, 2, 12, 20)


def test_a_trial_is_built_and_measured(schedule):
    tvm, errors = tuning(), list[str]()
    builder, runner = measurers(tvm, TINY, "timing", errors)
    too_large = dense(TINY.replace(inp_bytes=1 << 16), 64, 64, 4, tile=Tile(n=64, ci=16))
    target, ms = tvm.Target({"kind": "llvm", "num-cores": 1}), tvm.meta_schedule
    built, failed = builder.build([ms.builder.BuilderInput(sch.mod, target) for sch in (schedule, too_large)])
    assert failed.artifact_path is None and errors == [failed.error_msg] and "too small" in errors[0]
    info = ms.arg_info.ArgInfo.from_prim_func(schedule.mod["main"])
    (future,) = runner.run([ms.runner.RunnerInput(built.artifact_path, "llvm", info)])
    assert future.done() and float(future.result().run_secs[0]) * CLOCK == predict(build(schedule, TINY)).cycles


@pytest.mark.slow
def test_the_timing_model_counts_nearly_what_the_circuit_does(schedule):
    launch = build(schedule, TINY).finish()
    assert cycles_of(launch, "timing") == predict(launch).cycles
    assert cycles_of(launch, "rtl") == pytest.approx(cycles_of(launch, "timing"), rel=0.05)
