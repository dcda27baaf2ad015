"""`tilewright bench`: the convolutions of ResNet-18, and what every workload shares."""

import json
import re
from collections import Counter

import pytest

pytest.importorskip("tvm")

from tilewright.cli.bench.measure import Bench, rates, row, total
from tilewright.cli.profile import Profile
from tilewright.hw.config import PRESETS
from tilewright.runtime.device import Stats
from tilewright.runtime.executable import Executable
from tilewright.sim.random_programs import Recorder, record_random

TINY = PRESETS["tiny"]  # 16 multiply-accumulates per cycle
# 10 products of tiles, 4 further micro-ops
STATS = Stats(Counter(GEMM=2, ALU=1), 14, 160, Counter(INP=64, UOP=8), Counter(OUT=28), 50)


def bench(*profiles, **options):
    """A bench on the timing model of configuration tiny."""
    return Bench(TINY, "timing", options, Profile(profiles, "timing", {}), "convolutions", as_json=True)


def test_a_row_counts_what_the_device_counted():
    found = row(TINY, STATS, macs=120, instructions=3, exact=True)
    assert (found["cycles"], found["gemm_busy"], found["other_busy"]) == (50, 10, 4)
    assert (found["load_bytes"], found["store_bytes"]) == (72, 28)
    assert (found["macs"], found["ideal"], found["instructions"], found["exact"]) == (120, 7.5, 3, True)
    assert (found["utilisation"], found["bytes_per_cycle"]) == (7.5 / 50, 2)
    twice = total([found | {"count": 2}, found | {"exact": False}])
    assert (twice["cycles"], twice["ideal"], twice["exact"]) == (150, 22.5, False)


def test_without_a_clock_there_are_no_rates():
    found = row(TINY, Stats(uops=14, macs=160), macs=120, instructions=3, exact=False)
    assert found["cycles"] is found["utilisation"] is found["bytes_per_cycle"] is None
    assert rates(found) == {"utilisation": None, "bytes_per_cycle": None} and total([found])["cycles"] is None


def test_what_a_bench_runs_and_predicts_is_in_its_profile(tmp_path, capsys):
    recorder = Recorder(TINY, 4)
    record_random(recorder, 10)
    launch = recorder.program.finish()
    made = bench(str(tmp_path / "p.json"), skip={"dma", "alu"})
    outputs, stats = made.run("layer", Executable.from_launch(launch), recorder.inputs)
    assert set(outputs) and stats.cycles
    cycles = made.predict("again", launch)
    rows = [{"name": "C8", "op": "conv2d"} | row(TINY, STATS, macs=120, instructions=3, exact=True)]
    made.finish(rows, lambda: None, {"threads": 1}, {"total": {"cycles": 50}})
    found, kept = json.loads(capsys.readouterr().out), json.loads((tmp_path / "p.json").read_text())
    first, second = kept["launches"]
    assert (first["launch"], second["launch"]) == (f"layer: {launch.name}", "again")
    assert (first["metrics"]["cycles"], second["metrics"]["cycles"]) == (stats.cycles, cycles)
    assert (found["workload"], found["config"], found["dram"]) == ("convolutions", "tiny", "zynq_hp")
    assert (found["device"], found["skip"], found["total"]) == ("timing", ["alu", "dma"], {"cycles": 50})
    assert found["layers"] == kept["layers"] == rows and found["threads"] == 1


def keys(found):
    """The names of every object in a JSON document."""
    if isinstance(found, dict):
        return set(found) | set().union(*map(keys, found.values()))
    return set().union(*map(keys, found)) if isinstance(found, list) else set()


@pytest.mark.parametrize("workload", [[], ["resnet18"]])
def test_every_workload_has_these_keys_and_only_names(tilewright, workload, tmp_path):
    given = ["--on", "timing", "--config", "pynq_z1", "--layer", "C11", "--json", "--profile", tmp_path / "p.json"]
    found = json.loads(tilewright("bench", *workload, *given).out)
    kept = json.loads((tmp_path / "p.json").read_text())
    assert found.pop("profile") == [str(tmp_path / "p.json")]
    assert kept["layers"] == found["layers"] and [one["launch"] for one in kept["launches"]] == ["C11"]
    assert kept["metrics"]["cycles"] == found["layers"][0]["cycles"]
    (layer,) = found["layers"]
    assert {"name", "op"} | set(row(TINY, STATS, macs=1, instructions=1, exact=True)) <= set(layer)
    assert (layer["name"], layer["op"], layer["macs"]) == ("C11", "conv2d", 7 * 7 * 256 * 512)
    assert {"workload", "config", "dram", "device", "contract", "skip", "total"} <= set(found)
    assert all(key.isidentifier() for key in keys(found))


def test_layers_are_exact_and_add_up(printed):
    found = printed("bench --layer C8 --layer C11")
    assert [row["name"] for row in found["layers"]] == ["C8", "C11"]
    assert all(row["exact"] for row in found["layers"])
    assert found["total"]["macs"] == 2 * 6422528
    assert found["total"]["seconds"] == pytest.approx(sum(row["seconds"] for row in found["layers"]))
    assert list(found["time_share"]) == ["gemm", "alu", "transfer", "rest"]
    assert sum(found["time_share"].values()) == pytest.approx(1)
    assert min(found["time_share"].values()) > 0  # the modules of the model are found
    assert (found["config"], found["threads"], found["runs"]) == ("pynq_z1", 1, 5)


@pytest.mark.parametrize("kernels", [None, "Haswell"])
def test_the_table_states_threads_kernels_and_where_time_goes(tilewright, monkeypatch, kernels):
    monkeypatch.delenv("OPENBLAS_CORETYPE", raising=False)
    if kernels:
        monkeypatch.setenv("OPENBLAS_CORETYPE", kernels)
    done = tilewright("bench", "--layer", "C11")
    configuration, times, contract = done.out.splitlines()[-3:]
    chosen = f", with the kernels of OPENBLAS_CORETYPE={kernels}" if kernels else ""
    assert configuration == f"configuration pynq_z1, batch 1, matrix products on 1 thread{chosen}"
    assert times.startswith("time goes to GEMM ")
    assert contract == "rounding contract: double (two roundings, as TensorFlow Lite Micro)"


@pytest.mark.parametrize(
    "words, status, text",
    [
        ("bench --layer C99", 5, "unknown layer 'C99'; must be one of C2, C3, "),
        ("bench --on fpga", 5, "unknown device 'fpga'"),
        ("bench --compare tiles", 2, "--compare and --out need a workload: tilewright bench resnet18"),
        ("bench albert-384 --compare tiles", 2, "--compare and --out need a workload: tilewright bench resnet18"),
        ("bench resnet50", 2, "'resnet50' is not one of "),
    ],
)
def test_mistakes(refused, words, status, text):
    refused(status, text, words)


@pytest.mark.circuit
def test_cycles_of_the_circuit(tilewright):
    pytest.importorskip("amaranth")
    done = tilewright("bench", "--on", "rtl", "--config", "tiny", "--layer", "C11", "--json")
    if done.status == 5:
        pytest.skip(done.err)  # names the tool that is missing
    found = json.loads(done.out)
    (row,) = found["layers"]
    assert row["exact"] and (found["config"], found["device"]) == ("tiny", "rtl")
    assert re.match(r"Verilator [0-9.]+ --cc -O3 .*; g[+][+] [0-9.]+ -O1 .*; built in [0-9]+ s$", found["build"])
    ideal = 6422528 / 16
    assert row["cycles"] > ideal
    assert row["utilisation"] == pytest.approx(ideal / row["cycles"])
