"""`tilewright bench resnet18`, on its smallest layers."""

import json
import shutil

import pytest

pytest.importorskip("tvm")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of tiles of the test's own; what Verilator built stays where it is."""
    from tilewright.compiler.tune import search

    monkeypatch.setattr(search, "cache_folder", lambda kind: tmp_path / kind)


def test_layers_on_the_timing_model(printed, tmp_path):
    pytest.importorskip("amaranth")
    pytest.importorskip("matplotlib")
    layers = ["--layer", "C11", "--layer", "add5.1"]
    found = printed("bench resnet18 --on timing", *layers, "--out", tmp_path / "new")
    assert (found["config"], found["dram"], found["device"]) == ("pynq_z1", "zynq_hp", "timing")
    conv, add = found["layers"]
    assert (conv["name"], conv["op"], add["name"], add["op"]) == ("C11", "conv2d", "add5.1", "add")
    assert conv["exact"] and add["exact"] and not add["offloaded"]
    assert conv["ideal"] == conv["gemm_busy"] == 25088 and add["ideal"] == 0
    assert conv["roofline"] == 25088 and conv["roofline_of"] == "gemm" and conv["vta_cycles"] == 108100
    assert conv["roofline"] < conv["cycles"] < 1.3 * conv["roofline"]
    assert conv["utilisation"] == pytest.approx(25088 / conv["cycles"])
    assert found["total"]["cycles"] == conv["cycles"] + add["cycles"]
    assert found["offloaded"]["cycles"] == conv["cycles"]
    written = {path.name: path for path in (tmp_path / "new").iterdir()}
    assert sorted(written) == ["layers.csv", "roofline.png", "roofline.svg", "timeline.json"]
    assert sorted(found["files"]) == sorted(map(str, written.values()))
    assert conv["loads_beside_gemm"] > 0.8


def test_comparisons_are_printed(tilewright):
    pytest.importorskip("amaranth")
    done = tilewright(
        "bench", "resnet18", "--on", "timing", "--layer", "C11", "--compare", "threads", "--compare", "tiles"
    )
    assert done.status == 0, done.err
    lines = [line.split() for line in done.out.splitlines()]
    heads = [line for line in lines if line and line[0] == "shape"]
    assert [line[1:] for line in heads] == [
        ["cycles", "one", "thread", "gain"],
        ["cycles", "largest", "tile", "gain"],
        ["buffers", "/", "8", "largest", "tile", "gain"],
    ]
    gains = [float(line[-1]) for line in lines if line and line[0] == "C11" and len(line) == 4]
    assert len(gains) == 3 and min(gains) >= 1


def test_the_behavioural_model_checks_values_alone(printed):
    (row,) = printed("bench resnet18 --on model --layer add5.2")["layers"]
    assert row["exact"] and row["cycles"] is None and row["store_bytes"] == 49 * 512


def test_what_takes_no_time_is_said_and_not_compared_with_vta(tilewright, printed):
    pytest.importorskip("amaranth")
    command = ["bench", "resnet18", "--on", "timing", "--layer", "C11", "--skip", "gemm", "--skip", "alu"]
    found = printed(*command, "--compare", "threads")
    (row,) = found["layers"]
    assert found["skip"] == ["alu", "gemm"]
    assert row["vta_cycles"] is None and row["speedup"] is None
    assert row["cycles"] < row["ideal"] and row["loads_beside_gemm"] < 0.1 and row["one_thread"] < row["ideal"]
    done = tilewright(*command)
    assert done.status == 0, done.err
    assert "simulated; alu, gemm without time" in done.out and "published" not in done.out


def test_a_shapes_name_stands_for_its_layers(tilewright):
    done = tilewright("bench", "resnet18", "--on", "model", "--layer", "C9", "--json")
    assert [row["name"] for row in json.loads(done.out)["layers"]] == ["C9.1", "C9.2", "C9.3"]
    done = tilewright("bench", "resnet18", "--on", "model", "--layer", "C13")
    assert done.status and all(f" {name}," in done.err for name in ("C9", "C9.1", "add2.1", "maxpool", "C3"))


def test_another_memory_and_its_roofline(printed):
    rows = []
    for dram in ("zynq_hp", "zynq_hp,port_bytes=4"):
        found = printed("bench resnet18 --on timing --layer add5.2 --dram", dram)
        assert found["dram"] == dram
        rows += found["layers"]
    assert rows[1]["roofline"] == 2 * rows[0]["roofline"] and rows[1]["cycles"] > 1.5 * rows[0]["cycles"]


def test_the_layer_outside_the_total_alone(tilewright):
    pytest.importorskip("amaranth")
    done = tilewright("bench", "resnet18", "--on", "timing", "--layer", "C3")
    assert done.status == 0, done.err
    assert "C3" in done.out and "total" not in done.out


def test_mistakes_are_named(tilewright, refused):
    refused(5, "unknown layer 'C13'; must be one of C1, maxpool, C2.1", "bench resnet18 --layer C13")
    refused(2, "--compare and --out need a workload: tilewright bench resnet18", "bench --compare tiles")
    assert tilewright("bench", "resnet50").status == 2
    done = tilewright("bench", "resnet18", "--layer", "fc", "--compare", "tiles")
    assert done.status == 5 and "--compare: device 'model' counts no cycles; use --on timing" in done.err


def test_a_folder_that_cannot_be_made_is_named(tilewright, tmp_path):
    (tmp_path / "file").write_text("")
    done = tilewright("bench", "resnet18", "--layer", "add5.2", "--out", tmp_path / "file" / "in")
    assert done.status != 0 and "cannot create this folder" in done.err


@pytest.mark.skipif(not shutil.which("g++"), reason="g++ is missing: no circuit can be built")
def test_the_circuit_tells_which_tiles_were_loaded_beside_gemm(tilewright, tmp_path):
    pytest.importorskip("amaranth")
    pytest.importorskip("matplotlib")
    command = ["bench", "resnet18", "--on", "rtl", "--layer", "C11", "--layer", "add5.2", "--out", tmp_path / "new"]
    done = tilewright(*command, "--json")
    assert done.status == 0, done.err
    conv, add = json.loads(done.out)["layers"]
    assert conv["exact"] and 0.8 * conv["tiles"] <= conv["tiles_beside_gemm"] < conv["tiles"]
    assert 0.8 < conv["loads_beside_gemm"] < 1
    assert add["exact"] and 0 < add["tiles_beside_gemm"] < add["tiles"]
    events = json.loads((tmp_path / "new" / "timeline.json").read_text())["traceEvents"]
    products = sum(event["dur"] for event in events if event["name"] == "GEMM")
    assert products >= conv["gemm_busy"]
    assert max(event["ts"] + event["dur"] for event in events if event["ph"] == "X") <= conv["cycles"] + add["cycles"]
