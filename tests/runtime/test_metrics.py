"""runtime/metrics.py: every device counts what is declared, all that count the same alike, and sums."""

import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.isa import Mem, Queue
from tilewright.hw.metrics import CIRCUIT, Kind, metrics
from tilewright.hw.units import Channel, channels
from tilewright.runtime.device import Stats, Timeline, open_device
from tilewright.runtime.executable import Executable
from tilewright.runtime.loader import Loaded
from tilewright.runtime.metrics import combined, flagged, of_launch, queue_levels, token_levels, used
from tilewright.runtime.program import Program
from tilewright.sim.random_programs import Recorder, record_random

TINY, TWO = PRESETS["tiny"], PRESETS["tiny_two"]
DEVICES = ["model", "spec", "timing", "rtl"]
needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built")


def values(cfg, seed, on, length=20) -> dict[str, Any]:
    recorder = Recorder(cfg, seed)
    record_random(recorder, length)
    launch = recorder.program.finish()
    with Loaded(Executable.from_launch(launch), open_device(on, cfg)) as loaded:
        loaded.run(recorder.inputs)
        return of_launch(launch, loaded.reports[0].stats)


@pytest.mark.circuit
@pytest.mark.parametrize("cfg", [TINY, TWO], ids=lambda cfg: cfg.name)
@pytest.mark.parametrize("on", ["model", "spec", "timing", pytest.param("rtl", marks=needs_compiler)])
def test_a_device_counts_what_is_declared(cfg, on):
    found = values(cfg, 3, on, 8)
    assert list(found) == [name for name, metric in metrics(cfg).items() if on in metric.by]
    for name, value in found.items():
        kind = metrics(cfg)[name].kind
        assert isinstance(value, {Kind.RATE: float, Kind.HISTOGRAM: dict}.get(kind, int)), name


@pytest.mark.circuit
@needs_compiler
@pytest.mark.parametrize("cfg", [TINY, TWO], ids=lambda cfg: cfg.name)
def test_the_timing_model_counts_what_the_circuit_counts(cfg):
    """All that is no cycle is equal, and so are tokens and bursts; cycles are within the model's bound."""
    for seed in range(6):
        got, expected, model = (values(cfg, seed, on) for on in ("timing", "rtl", "model"))
        for name in got.keys() & expected.keys():
            metric = metrics(cfg)[name]
            if name.endswith("_buffer_high"):
                assert got[name] == pytest.approx(expected[name], abs=2), name
            elif metric.unit != "cycles" and metric.kind != Kind.RATE and not name.endswith("_durations"):
                assert got[name] == expected[name], name
        assert got["cycles"] == pytest.approx(expected["cycles"], rel=0.05)
        for name in ("compute_busy", "load_busy", "gemm_use", "macs_per_cycle", "bytes_loaded_per_cycle"):
            assert got[name] == pytest.approx(expected[name], rel=0.05, abs=0.005), name
        assert model.items() <= expected.items() and model.items() <= got.items()


def test_a_board_counts_what_its_registers_hold():
    recorder = Recorder(TINY, 7)
    record_random(recorder, 10)
    launch = recorder.program.finish()
    with Loaded(Executable.from_launch(launch), open_device("timing", TINY)) as loaded:
        loaded.run(recorder.inputs)
        simulated = of_launch(launch, loaded.reports[0].stats)
        found = of_launch(launch, replace(loaded.reports[0].stats, timeline=None, observed=None))
    assert list(found) == [name for name, metric in metrics(TINY).items() if "board" in metric.by]
    assert found.items() <= simulated.items()


def test_queues_are_no_fuller_than_they_can_be():
    for seed in range(4):
        found = values(TINY, seed, "timing", 60)
        for name in ("load", "compute", "store"):
            level = found[f"{name}_queue_high"]
            assert isinstance(level, int) and 0 < level <= TINY.queue_depth + 1


def test_several_launches_add_up():
    one, two = values(TINY, 1, "timing"), values(TINY, 2, "timing")
    found: dict[str, Any] = combined(TINY, [one, two])
    assert list(found) == list(one)
    for name, metric in metrics(TINY).items():
        if "timing" not in metric.by:
            assert name in CIRCUIT_ALONE
            continue
        a, b, both = one[name], two[name], found[name]
        if isinstance(a, dict) and isinstance(b, dict):
            assert both == {k: a.get(k, 0) + b.get(k, 0) for k in {**a, **b}}
        elif metric.over is None:
            assert both == (max(a, b) if metric.kind == Kind.HIGH_WATER else a + b)
        else:
            above, below = (found[part] for part in metric.over)
            assert both == pytest.approx(above / below, abs=1e-6)
    assert combined(TINY, [one]) == one and combined(TINY, []) == {}


CIRCUIT_ALONE = [name for name, metric in metrics(TINY).items() if metric.by == CIRCUIT]


def launch():
    """Load, GEMM, STORE, FINISH."""
    program = Program(TINY)
    x, out = program.buffer("x", (1, TINY.block_in)), program.buffer("out", (1, TINY.block_out), kind="output")
    program.load(Mem.INP, 0, x, 0)
    program.gemm([(1, 1, 1, 1)], overwrite=True)
    program.store(0, out, 0)
    return program.finish()


def timeline(found, queued=None):
    """Each instruction is issued in cycle 10 k and ends in 10 k + 5."""
    n = len(found.insn)
    ops = (found.insn[:, 0] & np.uint64(7)).tolist()
    queue = np.array([{0: Queue.COMPUTE, 1: Queue.STORE}.get(op, Queue.COMPUTE) for op in ops])
    queue[0] = Queue.LOAD
    issue = 10 * np.arange(n)
    return Timeline(queue, issue, issue, issue + 5, {}, queued)


def test_tokens_are_given_at_the_end_and_taken_at_the_issue():
    made = launch()
    levels = token_levels(made, timeline(made))
    given = levels[Channel(Queue.LOAD, Queue.COMPUTE)]
    (push,) = flagged(made, timeline(made), Queue.LOAD, "push_next")
    (pop,) = flagged(made, timeline(made), Queue.COMPUTE, "pop_prev")
    assert (given.cycles.tolist(), given.values.tolist(), given.most) == ([10 * push + 5, 10 * pop], [1, 0], 1)
    assert len(levels) == len(channels(TINY))


def test_instructions_wait_in_their_queue_until_they_are_issued():
    made = launch()
    assert queue_levels(made, timeline(made)) == {}
    levels = queue_levels(made, timeline(made, np.zeros(len(made.insn), np.int64)))
    mine = int((timeline(made).queue == Queue.COMPUTE).sum())
    assert levels["compute"].most == mine and levels["compute"].values[-1] == 0
    assert levels["load"].most == 0  # issued in the cycle in which it comes


def test_durations_are_counted_by_powers_of_two():
    made = launch()
    line = replace(timeline(made), waits={"unit": np.zeros(len(made.insn), np.int64)})
    found = of_launch(made, Stats(timeline=lambda: line))
    assert found["load_durations"] == {"4": 1} and found["load_unit_wait"] == 0


def test_loads_with_padding_results_and_stores():
    program = Program(TINY)
    x, out = program.buffer("x", (8, TINY.block_in)), program.buffer("out", (8, TINY.block_out), kind="output")
    program.load(Mem.INP, 3, x, 0, y_size=2, x_size=2, x_stride=2, pads=(0, 1, 1, 0))  # 3 rows of 3
    program.gemm([(4, 5, 1, 0)], dst=7, reset=True)  # dst 7, 12, 17, 22
    program.store(0, out, 0, x_size=8)
    found = used(program.finish())
    assert found[Mem.INP] == 3 + 9 and found[Mem.ACC] == 23
    assert found[Mem.UOP] >= 1 and Mem.WGT not in found


def test_planes_of_unit_ternary():
    cfg = PRESETS["tiny_two"]
    program = Program(cfg)
    program.ternary([(1, 0, 0, 0)], dst=2, reset=True)
    assert used(program.finish())[Mem.ACC] == 3 + (cfg.ternary_blocks - 1) * cfg.plane_depth


def test_what_is_never_executed_uses_nothing():
    launch = Program(TINY).finish()
    assert used(launch) == {}
    launch.insn[0, 0] |= np.uint64(7)
    assert used(launch) == {}
