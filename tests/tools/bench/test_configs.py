"""tools/bench/configs.py: the timing model against the circuit off the presets."""

import json
import shutil
from itertools import islice

import pytest
from click.testing import CliRunner

from tilewright.apps.explore.trial import on_accelerator
from tilewright.hw.circuit import check_buildable
from tilewright.hw.config import PRESETS
from tilewright.sim.dram import ZYNQ_HP, shared_bytes
from tools import configs
from tools.configs import MOST_MULTIPLIERS, TriedConfig, candidates, choices, command, memory


def row(timing, rtl, exact=True):
    return TriedConfig("one", "small", "near", 1, timing, rtl, exact)


def test_candidates_are_small_buildable_and_run_something():
    found = list(islice(candidates(0), 3))
    for cfg, dram, graph in found:
        check_buildable(cfg)
        assert cfg.macs_per_cycle <= MOST_MULTIPLIERS and dram.total_bytes >= shared_bytes(cfg, dram)
        assert on_accelerator(graph, cfg).launches
    assert [cfg for cfg, *_ in found] == [cfg for cfg, *_ in islice(candidates(0), 3)]
    assert len({cfg.fingerprint for cfg, *_ in found}) == 3
    assert len({dram.latency for _, dram, _ in found}) == 1


def test_memories_are_drawn_where_asked():
    assert len({dram.latency for _, dram, _ in islice(candidates(0, True), 3)}) == 3


@pytest.mark.parametrize(
    ("rows", "status"),
    [
        ([row(1010, 1000), row(990, 1000)], 0),
        ([row(1010, 1000), row(1021, 1000)], 1),
        ([row(1000, 1000), row(1000, 1000, exact=False)], 1),
    ],
)
def test_the_exit_status_says_whether_all_are_near_and_exact(monkeypatch, rows, status):
    left = iter(rows)
    monkeypatch.setattr(configs, "candidates", lambda *_: iter([(PRESETS["tiny"], None, None)] * len(rows)))
    monkeypatch.setattr(configs, "tried", lambda *_: next(left))
    arguments = {"args": ["--count", str(len(rows)), "--json"], "standalone_mode": False}
    done = CliRunner().invoke(command, **arguments)
    facts = json.loads(done.output)
    assert done.return_value == status and facts["passed"] is not bool(status)
    assert [one["error"] for one in facts["rows"]] == [one.error for one in rows]


def test_the_table_shows_the_choices(monkeypatch):
    monkeypatch.setattr(configs, "tried", lambda *_: row(1010, 1000))
    done = CliRunner().invoke(command, ["--count", "1"])
    assert "+1.000" in done.output and done.output.endswith("mean error 1.000 %, worst 1.000 %\n")
    assert choices(PRESETS["tiny"]).startswith("1x4x4, w8, depths 256/256/128/128, 1 x 64 bits, queues 64")
    assert memory(ZYNQ_HP) == "40/20, 8 B, 8/8 bursts"


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built")
def test_the_model_is_near_the_circuit_off_the_presets():
    done = CliRunner().invoke(command, ["--count", "3", "--json"], standalone_mode=False)
    assert done.return_value == 0, done.output
