"""cli/profile/timeline.py: launches one behind the other."""

import json

import pytest

from tilewright.cli.profile.timeline import write_timeline
from tilewright.cli.profile.values import launches_of
from tilewright.hw.config import PRESETS
from tilewright.hw.errors import UnsupportedError
from tilewright.runtime.device import Stats

TINY = PRESETS["tiny"]


@pytest.fixture(scope="module")
def run(ran):
    return launches_of(*ran(TINY, 5, 10))


def test_the_second_launch_begins_where_the_first_ends(run, tmp_path):
    (done,) = run
    write_timeline(str(tmp_path / "one.json"), run, "one", "timing")
    write_timeline(str(tmp_path / "two.json"), 2 * run, "two", "timing")
    one, two = (json.loads((tmp_path / f"{name}.json").read_text())["traceEvents"] for name in ("one", "two"))
    for phase in "XC":
        first, both = (sorted((e["ts"], e["name"]) for e in events if e["ph"] == phase) for events in (one, two))
        assert both == sorted([*first, *((ts + done.stats.cycles, name) for ts, name in first)])


def test_a_launch_without_cycles_of_instructions_is_refused(run, tmp_path):
    bare = run[0]._replace(stats=Stats())
    with pytest.raises(UnsupportedError, match="device 'board' has no cycles of instructions; use timing or rtl"):
        write_timeline(str(tmp_path / "t.json"), [bare], "bare", "board")
    assert not list(tmp_path.iterdir())
