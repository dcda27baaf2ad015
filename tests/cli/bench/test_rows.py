"""cli/bench/rows.py: keys and counts of a layer's row, whichever workload it is of."""

import json
from collections import Counter

import pytest

from tilewright.cli.bench.rows import Bench, emit, rates, row
from tilewright.cli.profile.files import Profile
from tilewright.hw.config import PRESETS
from tilewright.runtime.device import Stats
from tilewright.runtime.executable import Executable
from tilewright.sim.random_programs import Recorder, record_random

TINY = PRESETS["tiny"]  # 16 multiply-accumulates per cycle
# 10 products of tiles, 4 further micro-ops
STATS = Stats(Counter(GEMM=2, ALU=1), 14, 160, Counter(INP=64, UOP=8), Counter(OUT=28), 50)


def bench(device="timing", **options):
    """A bench on a device of configuration tiny, without a profile."""
    return Bench(TINY, device, options, Profile((), device, {}))


def test_what_a_bench_runs_and_predicts_is_in_its_profile(tmp_path):
    recorder = Recorder(TINY, 4)
    record_random(recorder, 10)
    launch = recorder.program.finish()
    made = Bench(TINY, "timing", {}, Profile([str(tmp_path / "p.json")], "timing", {}))
    outputs, stats = made.run("layer", Executable.from_launch(launch), recorder.inputs)
    assert set(outputs) and stats.cycles
    cycles = made.predict("again", launch)
    made.profile.write("two", {})
    first, second = json.loads((tmp_path / "p.json").read_text())["launches"]
    assert (first["launch"], second["launch"]) == (f"layer: {launch.name}", "again")
    assert (first["metrics"]["cycles"], second["metrics"]["cycles"]) == (stats.cycles, cycles)
    assert made.open().cfg is TINY and made.dram.name == "zynq_hp" and made.skip == frozenset()


def keys(found):
    """The names of every object in a JSON document."""
    if isinstance(found, dict):
        return set(found) | set().union(*map(keys, found.values()))
    return set().union(*map(keys, found)) if isinstance(found, list) else set()


def test_a_row_counts_what_the_device_counted():
    found = row(TINY, STATS, macs=120, instructions=3, exact=True)
    assert (found["cycles"], found["gemm_busy"], found["other_busy"]) == (50, 10, 4)
    assert (found["load_bytes"], found["store_bytes"]) == (72, 28)
    assert (found["macs"], found["ideal"], found["instructions"], found["exact"]) == (120, 7.5, 3, True)
    assert (found["utilisation"], found["bytes_per_cycle"]) == (7.5 / 50, 2)


def test_without_a_clock_there_are_no_rates():
    found = row(TINY, Stats(uops=14, macs=160), macs=120, instructions=3, exact=False)
    assert found["cycles"] is found["utilisation"] is found["bytes_per_cycle"] is None
    assert rates(found) == {"utilisation": None, "bytes_per_cycle": None}


def test_the_document(capsys):
    rows = [{"name": "C8", "op": "conv2d"} | row(TINY, STATS, macs=120, instructions=3, exact=True)]
    emit(bench(skip={"dma", "alu"}).facts("resnet18"), rows, {"total": {"cycles": 50}})
    found = json.loads(capsys.readouterr().out)
    assert (found["workload"], found["config"], found["dram"]) == ("resnet18", "tiny", "zynq_hp")
    assert (found["device"], found["skip"], found["total"]) == ("timing", ["alu", "dma"], {"cycles": 50})
    assert found["layers"] == rows


@pytest.mark.parametrize("workload", [[], ["resnet18"]])
def test_every_workload_has_these_keys_and_only_names(tilewright, workload, tmp_path):
    for needed in ("tvm", "amaranth"):
        pytest.importorskip(needed)
    given = ["--on", "timing", "--config", "pynq_z1", "--layer", "C11", "--json", "--profile", tmp_path / "p.json"]
    done = tilewright("bench", *workload, *given)
    found = json.loads(done.out)
    kept = json.loads((tmp_path / "p.json").read_text())
    assert found.pop("profile") == [str(tmp_path / "p.json")]
    assert kept["layers"] == found["layers"] and [one["launch"] for one in kept["launches"]] == ["C11"]
    assert kept["metrics"]["cycles"] == found["layers"][0]["cycles"]
    (layer,) = found["layers"]
    assert {"name", "op"} | set(row(TINY, STATS, macs=1, instructions=1, exact=True)) <= set(layer)
    assert (layer["name"], layer["op"], layer["macs"]) == ("C11", "conv2d", 7 * 7 * 256 * 512)
    assert set(bench().facts("")) | {"total"} <= set(found)
    assert all(key.isidentifier() for key in keys(found))
