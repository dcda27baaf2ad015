"""tools/timing.py: the timing model against the circuit, and what of it decides the exit status."""

import json
import shutil

import pytest
from click.testing import CliRunner

from tilewright.hw.config import PRESETS
from tools import timing as bench_timing
from tools.timing import TimedProgram, _spearman, _TimingBench, command


def rows(*cycles, group="tilings of C5"):
    return [TimedProgram(group, str(k), "pynq_z1", 10, timing, rtl, 0.001) for k, (timing, rtl) in enumerate(cycles)]


def test_rank_correlation():
    assert _spearman(rows((1, 10), (2, 30), (3, 70))) == pytest.approx(1)
    assert _spearman(rows((1, 70), (2, 30), (3, 10))) == pytest.approx(-1)
    assert _spearman(rows((1, 1), (1, 1), (2, 2), (3, 3))) == pytest.approx(1)  # equal ones share a rank


@pytest.mark.parametrize(
    ("cycles", "passed"),
    [
        ([(100, 100), (200, 201), (300, 299)], True),
        ([(100, 100), (200, 200), (300, 320)], False),  # one is off by more than 5 %
        ([(103, 100), (206, 200), (309, 300)], False),  # all by more than 2 %
        ([(1000, 1001), (1001, 1000), (1002, 999)], False),  # in another order
    ],
)
def test_what_passes(monkeypatch, cycles, passed):
    monkeypatch.setattr(bench_timing, "RANKED", ("C5",))
    bench = _TimingBench()
    bench.rows = rows(*cycles)
    assert bench.summary(0)["passed"] is passed


def test_random_tiles_are_legal_and_follow_the_seed():
    pytest.importorskip("tvm")
    names = [[name for name, _ in bench_timing._tilings("C5", PRESETS["pynq_z1"], seed, 3)] for seed in (4, 4, 5)]
    assert names[0] == names[1] != names[2] and len(set(names[0])) == 3


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built")
def test_the_model_is_as_good_as_promised():
    done = CliRunner().invoke(command, ["--seed", "7", "--tilings", "5", "--programs", "10", "--json"])
    facts = json.loads(done.output)
    print(facts["mean_error"], facts["worst_error"], facts["rank_correlation"])
    assert facts["passed"] and done.exit_code in (0, None)
    assert {row["group"] for row in facts["rows"]} >= {"ResNet-18", "small networks", "random programs"}
