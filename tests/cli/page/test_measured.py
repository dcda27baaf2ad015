"""The data of a report: rows, limits, arenas and buffers, the timeline."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.cli.page import timeline
from tilewright.cli.page.measured import NOBODY, clock_source, instruction_rows, peak_macs, roofline, summary
from tilewright.cli.page.timeline import Collected, Track, covered_cycles, most_in_bins
from tilewright.hw.config import PRESETS
from tilewright.runtime.device import open_device
from tilewright.runtime.executable import LaunchStep
from tilewright.runtime.loader import Loaded
from tilewright.sim.dram import ZYNQ_HP
from tilewright.sim.losses import explain


def test_every_source_of_cycles_is_said():
    assert "timing model" in clock_source("timing") and "circuit" in clock_source("rtl")
    assert clock_source("board") == "register CYCLES of device board"


def test_both_units_multiply():
    one, two = PRESETS["tiny"], PRESETS["tiny_two"]
    assert peak_macs(one) == one.macs_per_cycle
    assert peak_macs(two) == two.macs_per_cycle * (1 + two.ternary_blocks)


def test_a_point_takes_the_time_of_its_busiest_unit():
    row = {"operator": "fc", "macs": 800, "bytes_loaded": 700, "bytes_stored": 100, "cycles": 10}
    row |= {"busy_load": 100, "busy_compute": 5}
    host = {"operator": "softmax", "macs": 5}
    found = roofline(PRESETS["tiny"], ZYNQ_HP, [row, host])
    assert found is not None
    assert found["points"] == [{"operator": "fc", "cycles": 100, "macs_per_byte": 1.0, "macs_per_cycle": 8.0}]
    assert roofline(PRESETS["tiny"], None, [row]) is None
    assert roofline(PRESETS["tiny"], ZYNQ_HP, [host]) is None


def test_instructions_find_their_rows(double):
    (step,) = (step for step in double.steps if isinstance(step, LaunchStep))
    rows = [{"operator": NOBODY, "launch": "double"}, {"operator": "add", "launch": "double"}]
    at = instruction_rows(rows, step)
    assert len(at) == len(step.launch.insn) and set(at) == {0, 1}
    assert set(instruction_rows(rows[:1], step)) == {0}


@pytest.fixture
def double():
    from tilewright.hw.isa import AluOp, Mem
    from tilewright.runtime.executable import Executable
    from tilewright.runtime.program import Program

    program = Program("tiny", "double")
    x = program.buffer("x", (4, 1, 4), 32)
    y = program.buffer("y", (4, 1, 4), kind="output")
    with program.origin("add"):
        program.load(Mem.ACC, 0, x, 0, x_size=4)
        program.alu(AluOp.ADD, [(4, 1, 1)])
        program.store(0, y, 0, x_size=4)
    return Executable.from_launch(program.finish())


def test_launches_tell_occupancy_and_losses(recorded):
    (launch,) = recorded.data["launches"]
    assert launch["occupancy"]["ACC"]["entries"] == 12 and launch["counters"]["COMPUTE_INSNS"] > 0
    assert all({"operator", "cycles", "text"} == warning.keys() for warning in launch["warnings"])


def test_the_bound_is_that_of_the_launches_that_ran(either):
    one, two = (explain(step.launch) for step in either.launches)
    for position, ran in ((0, one), (9, two)):
        with Loaded(either, open_device("timing", either.cfg)) as loaded:
            loaded.run({"x": np.zeros((4, 1, 4), np.int32), "position": np.array([position], np.int32)})
            rows = summary(either, loaded.reports, [], "timing", ZYNQ_HP, 1e8, None, {})
        found = {row["key"]: row["value"] for row in rows}
        assert (found["bound"], found["cycles"]) == (ran.bound, ran.cycles)


def test_the_arena_is_that_of_plan(network):
    (arena,) = network.data["arenas"]
    assert arena["bound"] <= arena["bytes"] == max(b["address"] + b["bytes"] for b in arena["buffers"])
    operators = {row["operator"] for row in network.data["operators"]}
    assert all(b["operator"] in operators and b["first"] <= b["last"] for b in arena["buffers"])


def test_a_recorded_program_has_no_arena(recorded):
    assert recorded.data["arenas"] == []


def test_buffers_lie_behind_each_other(recorded, network):
    for found in (recorded, network):
        rows = sorted(found.data["buffers"], key=lambda row: row["address"])
        assert all(a["address"] + a["bytes"] <= b["address"] for a, b in zip(rows, rows[1:]))
        used = [row for row in rows if row["first"] is not None]
        assert used and all(0 <= row["first"] < row["last"] <= found.cycles for row in used)


def test_inputs_are_read_before_results_are_written(recorded):
    rows = {row["name"]: row for row in recorded.data["buffers"]}
    assert rows["x"]["first"] < rows["y"]["first"] and rows["x"]["kind"] == "input"
    assert rows["w"]["last"] < rows["x"]["last"]


def track(*bars):
    found = Track()
    for bar in bars:
        found.add(*bar)
    return found


def test_bars_of_one_operator_and_name_are_joined_over_small_gaps():
    bars = track((0, 4, 0, 0, 0), (5, 9, 0, 0, 1), (9, 12, 1, 0, 2), (14, 15, 1, 0, 3), (20, 21, 1, 1, 4))
    joined = bars.joined(2)
    assert (joined.start, joined.end, joined.count) == ([0, 9, 20], [9, 15, 21], [2, 2, 1])
    assert joined.instruction == [0, 2, 4]
    assert bars.joined(0).start == [0, 5, 9, 14, 20]


INTERVALS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)), max_size=20)


@given(INTERVALS)
def test_covered_cycles_count_each_cycle_once(pairs):
    start, length = (np.array([pair[k] for pair in pairs], np.int64) for k in (0, 1))
    at, covered = covered_cycles(start, start + length)
    inside = [any(a <= cycle < a + n for a, n in pairs) for cycle in range(100)]
    assert np.interp(np.arange(101), at, covered).tolist() == np.concatenate([[0], np.cumsum(inside)]).tolist()


def test_a_run_with_more_than_a_page_holds_is_joined_and_says_so(monkeypatch, recorded):
    whole = recorded.data["timeline"]
    assert whole["left_out"] == {"bars": len(whole["bars"]["start"]), "joined_gap": None, "tokens": 0, "texts": False}
    monkeypatch.setattr(timeline, "MOST_BARS", 12)
    monkeypatch.setattr(timeline, "MOST_TOKENS", 2)
    monkeypatch.setattr(timeline, "MOST_TEXT", 10)
    collected = Collected()
    collected.cycles = whole["cycles"]
    collected.names = {name: k for k, name in enumerate(whole["names"])}
    collected.texts = whole["texts"]
    for number, name in enumerate(whole["tracks"]):
        at = [k for k, one in enumerate(whole["bars"]["track"]) if one == number]
        keys = ("start", "end", "operator", "name", "instruction")
        collected.tracks[name] = track(*(tuple(whole["bars"][key][k] for key in keys) for k in at))
    channels = [whole["channels"][k] for k in whole["tokens"]["channel"]]
    collected.tokens = list(zip(channels, *(whole["tokens"][key] for key in ("given", "taken", "waited"))))
    found = collected.to_dict()
    assert found["left_out"]["joined_gap"] and found["left_out"]["bars"] == len(whole["bars"]["start"])
    assert sum(found["bars"]["count"]) == len(whole["bars"]["start"])
    assert found["left_out"]["tokens"] == len(whole["tokens"]["given"]) - 2
    assert min(found["tokens"]["waited"]) >= sorted(whole["tokens"]["waited"])[-2]
    assert found["left_out"]["texts"] and found["texts"] == []
    assert found["busy"] == whole["busy"]  # of every instruction, joined or not


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 9)), max_size=12, unique_by=lambda change: change[0]))
def test_the_most_of_each_bin(changes):
    changes = sorted(changes)
    level = [next((value for at, value in reversed(changes) if at <= cycle), 0) for cycle in range(100)]
    found = most_in_bins(changes, np.linspace(0, 100, 11))
    assert found == [max(level[k : k + 10]) for k in range(0, 100, 10)]


def test_levels_are_those_of_the_metrics(recorded):
    metrics, levels = recorded.data["metrics"], recorded.data["timeline"]["levels"]
    assert max(levels["tokens LOAD -> COMPUTE"]) == metrics["tokens_load_compute_high"]["value"] > 0
    assert max(levels["queue of compute"]) == metrics["compute_queue_high"]["value"] > 0


def test_tokens_are_given_before_they_are_taken(recorded):
    tokens = recorded.data["timeline"]["tokens"]
    assert len(tokens["given"]) > 4
    assert all(given <= taken for given, taken in zip(tokens["given"], tokens["taken"]))
    assert set(recorded.data["timeline"]["channels"]) <= {f"{a} -> {b}" for a in QUEUES for b in QUEUES}


QUEUES = ("LOAD", "COMPUTE", "STORE")


def test_waits_stand_below_their_units(recorded):
    found = recorded.data["timeline"]
    assert found["tracks"] == ["load", "load waits", "compute", "compute waits", "store", "store waits"]
    names = {track: set() for track in found["tracks"]}
    for number, name in zip(found["bars"]["track"], found["bars"]["name"]):
        names[found["tracks"][number]].add(found["names"][name])
    assert "GEMM" in names["compute"] and "LOAD.INP" in names["load"] and "STORE.OUT" in names["store"]
    assert names["store waits"] == {"token"} and names["compute waits"] == {"token", "unit"}


def test_a_run_of_no_cycles_is_no_error():
    found = Collected().to_dict()
    assert found["cycles"] == 0 and found["bars"]["start"] == [] and found["busy"]["units"] == {}
