"""cli/bench/rows.py: keys and counts of a layer's row, whichever workload it is of."""

import json
from collections import Counter

import pytest

from tilewright.cli.bench.rows import emit, facts, rates, row
from tilewright.hw.config import PRESETS
from tilewright.runtime.device import Stats

TINY = PRESETS["tiny"]  # 16 multiply-accumulates per cycle
# 10 products of tiles, 4 further micro-ops
STATS = Stats(Counter(GEMM=2, ALU=1), 14, 160, Counter(INP=64, UOP=8), Counter(OUT=28), 50)


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
    emit(facts("resnet18", TINY, "timing", {"skip": {"dma", "alu"}}), rows, {"total": {"cycles": 50}})
    found = json.loads(capsys.readouterr().out)
    assert (found["workload"], found["config"], found["dram"]) == ("resnet18", "tiny", "zynq_hp")
    assert (found["device"], found["skip"], found["total"]) == ("timing", ["alu", "dma"], {"cycles": 50})
    assert found["layers"] == rows


@pytest.mark.parametrize("workload", [[], ["resnet18"]])
def test_every_workload_has_these_keys_and_only_names(tilewright, workload):
    for needed in ("tvm", "amaranth"):
        pytest.importorskip(needed)
    done = tilewright("bench", *workload, "--on", "timing", "--config", "pynq_z1", "--layer", "C11", "--json")
    found = json.loads(done.out)
    (layer,) = found["layers"]
    assert {"name", "op"} | set(row(TINY, STATS, macs=1, instructions=1, exact=True)) <= set(layer)
    assert (layer["name"], layer["op"], layer["macs"]) == ("C11", "conv2d", 7 * 7 * 256 * 512)
    assert set(facts("", TINY, "", {})) | {"total"} <= set(found)
    assert all(key.isidentifier() for key in keys(found))
