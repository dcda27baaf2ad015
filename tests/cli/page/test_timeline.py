"""cli/page/timeline.py: joined bars, tokens, busy shares that never exceed all cycles."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tilewright.cli.page import timeline
from tilewright.cli.page.timeline import Collected, Track, covered_cycles


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
