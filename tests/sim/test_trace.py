"""sim/trace.py: events of timing and circuit, and the file that Chrome and Perfetto read."""

import json
from collections import Counter, defaultdict

import numpy as np
import pytest

from tilewright.hw.config import PRESETS
from tilewright.hw.errors import FileError
from tilewright.hw.isa import Mem
from tilewright.runtime.launch import Launch
from tilewright.runtime.program import Program
from tilewright.sim.rtl.watch import Trace
from tilewright.sim.timing import predict
from tilewright.sim.trace import levels_of, of_launch, of_timing, of_trace, write_chrome

PYNQ = PRESETS["pynq_z1"]
# what the trace event format asks for: keys by phase, and their types
KEYS = {
    "M": {"ph": str, "name": str, "pid": int, "tid": int, "args": dict},
    "C": {"ph": str, "name": str, "pid": int, "ts": int, "args": dict},
    "X": {"ph": str, "cat": str, "name": str, "pid": int, "tid": int, "ts": int, "dur": int, "args": dict},
}


@pytest.fixture(scope="module")
def launch():
    program = Program(PYNQ)
    x, out = program.buffer("x", (64, 16)), program.buffer("out", (64, 16), kind="output")
    for k in range(4):
        program.load(Mem.INP, 16 * k, x, 16 * k, x_size=16)
        program.gemm([(16, 1, 1, 0)], dst=16 * k, src=16 * k, overwrite=True)
        program.store(16 * k, out, 16 * k, x_size=16)
    return program.finish()


def read(path):
    """The events of a trace file, each with the keys of its phase and no others."""
    content = json.loads(path.read_text())
    assert set(content) == {"traceEvents", "displayTimeUnit"} and content["displayTimeUnit"] in ("ms", "ns")
    for event in content["traceEvents"]:
        keys = KEYS[event["ph"]]
        assert {key: type(value) for key, value in event.items()} == keys
    return content["traceEvents"]


def test_file_of_a_timing(launch, tmp_path):
    timing = predict(launch)
    events = of_timing(timing, launch, PYNQ)
    write_chrome(tmp_path / "t.json", events)
    slices = [event for event in read(tmp_path / "t.json") if event["ph"] == "X"]
    assert len(slices) == len(events) >= len(launch.insn)
    assert all(0 <= event["ts"] and event["ts"] + event["dur"] <= timing.cycles for event in slices)
    by_row = defaultdict(list)
    for event in slices:
        by_row[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    assert all(a[1] <= b[0] for row in by_row.values() for a, b in zip(sorted(row), sorted(row)[1:]))


def test_levels_rise_and_fall_to_nothing(launch, tmp_path):
    timeline = predict(launch).timeline()
    write_chrome(tmp_path / "t.json", [], levels=levels_of(timeline, launch))
    steps = defaultdict(list)
    for event in read(tmp_path / "t.json"):
        if event["ph"] == "C":
            steps[event["name"]].append((event["ts"], event["args"]["level"]))
    assert {"tokens COMPUTE -> STORE", "queue of load", "queue of compute", "queue of store"} <= set(steps)
    for found in steps.values():
        assert found == sorted(found) and min(level for _, level in found) >= 0 and found[-1][1] == 0


def test_every_instruction_and_its_waits(launch):
    timing = predict(launch)
    events = of_timing(timing, launch, PYNQ)
    executed = [event for event in events if not event.track.endswith("waits")]
    assert [event.args["instruction"] for event in executed] == list(range(len(launch.insn)))
    assert Counter(event.track for event in executed)["store"] == (timing.queue == 2).sum()
    waited = sum(event.end - event.start for event in events if event.track == "compute waits")
    assert waited == (timing.issue - timing.arrive)[timing.queue == 1].sum() > 0


def test_a_launch_has_a_track_of_its_operators():
    program = Program(PYNQ)
    x, out = program.buffer("x", (64, 16)), program.buffer("out", (64, 16), kind="output")
    for k, name in enumerate(("conv", "pool")):
        with program.origin(name), program.origin("load"):
            program.load(Mem.INP, 0, x, 16 * k, x_size=16)
        with program.origin(name):
            program.gemm([(16, 1, 1, 0)], overwrite=True)
            program.store(0, out, 16 * k, x_size=16)
    launch = program.finish()
    found = predict(launch).timeline()
    events = of_launch(found, launch)
    spans = [(event.name, event.start, event.end) for event in events if event.track == "operator"]
    assert [name for name, *_ in spans] == ["conv", "pool"] and spans[0][1] < spans[1][1] < spans[1][2]
    executed = [event for event in events if event.track in ("load", "compute", "store")]
    names = [event.args.get("for") for event in executed if event.name == "LOAD.INP"]
    assert names == ["conv / load", "pool / load"]
    assert [event.name for event in executed if "for" not in event.args] == ["FINISH"]  # of the whole launch
    bare = Launch(launch.cfg, launch.name, launch.insn, launch.reloc, launch.buffers)
    assert {event.track for event in of_launch(found, bare)} == {event.track for event in events} - {"operator"}


def test_instructions_as_the_circuit_executed_them(launch):
    count = len(launch.insn)
    cycles, unit = 10 * np.arange(count), np.arange(count) % 3
    trace = Trace(unit, cycles, cycles + 1, cycles + 5, 0 * cycles, 0 * cycles, {})
    events = of_trace(trace, launch, PYNQ)
    assert [(event.start, event.end) for event in events] == [(10 * k + 1, 10 * k + 6) for k in range(count)]
    assert [event.track for event in events] == [("load", "compute", "store")[k % 3] for k in range(count)]
    assert events[0].args["instruction"] == 0 and str(events[0].args["text"]).startswith(events[0].name)


def test_instructions_that_follow_each_other_without_a_gap_share_a_row(launch, tmp_path):
    count = len(launch.insn)
    cycles, zeros = 5 * np.arange(count), np.zeros(count, np.int64)
    events = of_trace(Trace(zeros, zeros, cycles, cycles + 5, zeros, zeros, {}), launch, PYNQ)
    assert [(event.start, event.end) for event in events] == [(5 * k + (k > 0), 5 * k + 6) for k in range(count)]
    write_chrome(tmp_path / "t.json", events)
    assert {event["tid"] for event in read(tmp_path / "t.json") if event["ph"] == "X"} == {1}


def test_a_file_that_cannot_be_written(tmp_path):
    with pytest.raises(FileError):
        write_chrome(tmp_path / "missing" / "t.json", [])
